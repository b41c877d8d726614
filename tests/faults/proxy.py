"""A proxy between agents and a server that fails on request: it delays, cuts and repeats requests, and records every
acknowledged post of results.

It understands as much of HTTP/1.1 as agents and servers use: heads, Content-Length and chunked bodies. What it does to a
request is chosen anew for each, by the chances in `faults`:

    delay      the request, or its answer, waits up to DELAY_S
    cut        the connection is lost after a part of the request, or after a part of the answer
    duplicate  the whole request is sent again, up to LATE_S later, to any of the servers; its answer is dropped
"""

import asyncio
import json
import random
import re
import threading

DELAY_S = 3
LATE_S = 2
HEAD_MAX = 1 << 20
RESULTS = re.compile(rb"POST /v1/leases/([\w.-]+)/results ")


class Cut(Exception):
    pass


async def read_head(reader, before=b""):
    """The head of a message with its blank line; b"" at the end of the connection."""
    head = before
    while b"\r\n\r\n" not in head:
        more = await reader.readline()
        if not more or len(head) > HEAD_MAX:
            return b""
        head += more
    return head


def header(head, name):
    found = re.search(rb"\r\n" + name + rb":[ \t]*([^\r]*)", head, re.IGNORECASE)
    return found[1] if found else b""


async def read_body(reader, head):
    if b"chunked" in header(head, b"Transfer-Encoding").lower():
        body = b""
        while True:
            size = await reader.readline()
            data = await reader.readexactly(int(size.split(b";")[0], 16) + 2)
            body += size + data
            if len(data) == 2:
                return body
    return await reader.readexactly(int(header(head, b"Content-Length") or 0))


async def read_answer(reader, method):
    while True:
        head = await read_head(reader)
        if not head:
            raise Cut
        status = int(head.split(b" ", 2)[1])
        if status >= 200:
            break
    has_body = method != b"HEAD" and status not in (204, 304)
    return status, head, await read_body(reader, head) if has_body else b""


class Proxy:
    """Listens on (address, port) in a thread of its own and forwards to upstreams[0]; duplicates go to any of `upstreams`."""

    def __init__(self, name, listen, upstreams, seed, history):
        self.name, self.listen, self.upstreams, self.history = name, listen, upstreams, history
        self.random = random.Random(seed)
        self.faults = {"delay": 0.0, "cut": 0.0, "duplicate": 0.0}
        self.counts = {"request": 0, "delay": 0, "cut": 0, "duplicate": 0}
        self.tasks = set()
        started = threading.Event()
        threading.Thread(target=self._run, args=(started,), daemon=True).start()
        if not started.wait(30):
            raise RuntimeError(f"the proxy {name} cannot listen on {listen}")

    def _run(self, started):
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(asyncio.start_server(self._serve, *self.listen, limit=HEAD_MAX))
        started.set()
        self.loop.run_forever()

    def _hits(self, fault):
        hit = self.random.random() < self.faults[fault]
        self.counts[fault] += hit
        return hit

    async def _serve(self, reader, writer):
        upstream = None
        try:
            before = b""
            while True:
                head = await read_head(reader, before)
                if not head:
                    return
                if header(head, b"Expect"):
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    head = re.sub(rb"\r\nExpect:[^\r]*", b"", head, flags=re.IGNORECASE)
                body = await read_body(reader, head)
                self.counts["request"] += 1
                if upstream is None or upstream[0].at_eof():
                    upstream = await asyncio.open_connection(*self.upstreams[0], limit=HEAD_MAX)
                before = await self._exchange(reader, writer, upstream, head, body)
        except (Cut, OSError, EOFError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            for end in [writer, *([upstream[1]] if upstream else [])]:
                end.transport.abort()  # a reset: the other side learns of it at once

    async def _exchange(self, reader, writer, upstream, head, body):
        """One request and its answer. Returns what the client sent meanwhile; when it has gone, the server is left too, as
        without a proxy."""
        if self._hits("delay"):
            await asyncio.sleep(self.random.uniform(0, DELAY_S))
        message = head + body
        if self._hits("cut") and self.random.random() < 0.5:
            upstream[1].write(message[:self.random.randrange(len(message))])
            await upstream[1].drain()
            raise Cut
        upstream[1].write(message)
        await upstream[1].drain()
        answer = asyncio.ensure_future(read_answer(upstream[0], head.split(b" ", 1)[0]))
        client = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([answer, client], return_when=asyncio.FIRST_COMPLETED)
            if client.done() and not client.result():
                raise Cut
            status, answer_head, answer_body = await answer
        finally:
            for task in (answer, client):
                if not task.done():
                    task.cancel()
            await asyncio.gather(answer, client, return_exceptions=True)
        self._record(head, body, status, answer_body)
        if self._hits("duplicate"):
            again = asyncio.ensure_future(self._again(head, body))
            self.tasks.add(again)
            again.add_done_callback(self.tasks.discard)
        if self._hits("delay"):
            await asyncio.sleep(self.random.uniform(0, DELAY_S))
        reply = answer_head + answer_body
        if self._hits("cut") and self.random.random() < 0.5:
            writer.write(reply[:self.random.randrange(len(reply))])
            await writer.drain()
            raise Cut
        writer.write(reply)
        await writer.drain()
        return b"" if client.cancelled() else client.result()

    async def _again(self, head, body):
        await asyncio.sleep(self.random.uniform(0, LATE_S))
        writer = None
        try:
            reader, writer = await asyncio.open_connection(*self.random.choice(self.upstreams), limit=HEAD_MAX)
            writer.write(head + body)
            status, _, answer = await asyncio.wait_for(read_answer(reader, head.split(b" ", 1)[0]), 30)
            self._record(head, body, status, answer)
        except (Cut, OSError, EOFError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError):
            pass
        finally:
            if writer:
                writer.transport.abort()

    def _record(self, head, body, status, answer):
        results = RESULTS.match(head)
        if status == 500:
            self.history.add("answer", who=self.name, what=head.split(b"\r\n")[0].decode(errors="replace"), status=status,
                             detail=answer[:300].decode(errors="replace"))
        if results and status == 200:
            posted = json.loads(body)
            self.history.add("post", who=self.name, **post_members(results[1].decode(), posted, status, json.loads(answer)))


def post_members(lease, posted, status, answer):
    """What the history keeps of a post of results. A lease's id may have a MAC behind its number."""
    return {"lease": lease.split(".")[0], "epoch": posted["epoch"], "status": status, "accepted": answer.get("accepted", 0),
            "measurements": [[m["seq"], m["config"], (m.get("samples_us") or [None])[0]] for m in posted["measurements"]]}
