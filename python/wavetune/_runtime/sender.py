"""What is sent in the background: misses, counters, compiled code, and the attempt to reach a
server that was away.

One thread, which lives while there is something to send. What does not fit into the queue is
dropped and counted. At the program's end it gets 0.5 s for what is left, and none where the server
did not answer before.

Misses and counters go soon after the program tuned a key, else every few minutes. A report without
an answer may have arrived: it is not sent again, so that nothing is counted twice.
"""

from __future__ import annotations

import atexit
import json
import math
import random
import time
from collections import deque
from typing import Callable
from urllib.parse import quote

from .._canonical import Named
from . import counters
from .log import log
from .wire import BODY_MAX, JSON, Answer, Wire
from .worker import Next, Worker

MISSES_MAX = 1000
FILES_MAX, FILES_BYTES_MAX = 256, 64 * 1024 * 1024
GATHER_S = 1.0  # a start tunes many keys
REPORT_S = 300.0
LAST_S = 0.5


def log_counters() -> None:
    """When the program ends."""
    log("the program ends: " + ", ".join(f"{name} {value:.6g}"
                                         for name, value in counters.snapshot().items()))


class Sender:
    """`head`: what every report states of the program."""

    def __init__(self, wire: Wire, head: Callable[[], Named]):
        self.wire, self.head = wire, head
        wire.wake = self.probe
        self._worker = Worker("sender", self._next)
        self.after_fork()
        atexit.register(self.stop)

    def after_fork(self) -> None:
        """In the child: the parent sends what it queued."""
        self._worker.after_fork()
        self._condition = self._worker.condition
        # by the member of a report of demand: keys of programs' functions, keys of kernels
        self._misses: dict[str, list[Named]] = {"missed": [], "items": []}
        self._files: deque[tuple[str, bytes]] = deque()
        self._is_probing = False
        self._may_send_counters = self._may_send_misses = self._may_send_files = True
        self._report_at = math.inf  # when misses and counters are to be sent, at the latest

    # In the program's threads.

    def missed(self, item: Named) -> None:
        """Is sent with the next report."""
        self._miss("missed", item)

    def wanted(self, item: Named) -> None:
        """A key of a kernel, of which there may be a registered one: the same."""
        self._miss("items", item)
        self.counted()

    def _miss(self, member: str, item: Named) -> None:
        with self._condition:
            if self._may_send_misses and len(self._misses[member]) < MISSES_MAX:
                self._misses[member].append(item)

    def tuned(self, item: Named, ms: float) -> None:
        """The program tuned what it missed."""
        with self._condition:
            if any(item is one for one in self._misses["missed"]):
                item["tuning_ms"] = round(ms, 3)
                self._report_at = min(self._report_at, time.monotonic() + GATHER_S)
                self._worker.wake()

    def counted(self) -> None:
        """Something is in the counters, or will be at once."""
        if self._report_at == math.inf:
            with self._condition:
                if self._may_send_counters or self._may_send_misses:
                    # Many containers start at once.
                    self._report_at = time.monotonic() + REPORT_S * random.uniform(0.8, 1.2)
                    self._worker.wake()

    def file(self, path: str, body: bytes) -> None:
        with self._condition:
            waiting = sum(len(other) for _, other in self._files)
            if not self._may_send_files or len(body) > BODY_MAX or \
                    len(self._files) >= FILES_MAX or waiting + len(body) > FILES_BYTES_MAX:
                counters.dropped += 1
                return
            self._files.append((path, body))
            self._worker.wake()

    def probe(self) -> None:
        with self._condition:
            self._is_probing = True
            self._worker.wake()

    def stop(self) -> None:
        """Sends what is left, in at most LAST_S."""
        self._worker.end(0.0 if self.wire.is_open() else LAST_S)
        log_counters()

    def _has_report(self) -> bool:
        return any(self._misses.values()) or self._may_send_counters and counters.is_pending()

    # In the thread.

    def _next(self) -> Next:
        is_ended = self._worker.is_ended
        due = 0.0 if is_ended and self._has_report() else self._report_at
        if self._files or self._is_probing:
            due = 0.0
        if due == math.inf or is_ended and self.wire.is_open():
            return None
        if not self.wire.may_try():
            return 5.0
        wait_s = due - time.monotonic()
        return wait_s if wait_s > 0 else self._send

    def _send(self) -> None:
        if self._is_probing:
            self._is_probing = False
            self.wire.request("GET", "/readyz", background=True)
        elif self._files:
            self._send_file()
        elif self.wire.is_open():
            self._is_probing = True
        else:
            self._report_at = math.inf
            self._send_misses()
            self._send_counters()

    def _send_file(self) -> None:
        with self._condition:
            path, body = self._files.popleft()
        answer = self.wire.request("PUT", path, body, {"Content-Type": "application/octet-stream"},
                                   background=True)
        if answer is not None and answer.status < 300:
            counters.sent += 1
            return
        counters.dropped += 1
        if answer is not None and answer.status == 403:
            with self._condition:
                counters.dropped += len(self._files)
                self._may_send_files = False
                self._files.clear()

    def _send_misses(self) -> None:
        with self._condition:
            missed, self._misses = self._misses, {name: [] for name in self._misses}
        stated = {name: items for name, items in missed.items() if items}
        if not stated:
            return
        answer = self._post("/v1/demand", {**self.head(), **stated})
        if answer is None or answer.status < 300:
            return
        with self._condition:
            if answer.status != 429:
                # a server that is older, or a token without the role
                self._may_send_misses, self._misses = False, {name: [] for name in missed}
            elif not self._worker.is_ended:
                self._misses = {name: (items + self._misses[name])[:MISSES_MAX]
                                for name, items in missed.items()}
                self._report_later()

    def _send_counters(self) -> None:
        counted = counters.take() if self._may_send_counters else {}
        if not counted:
            return
        tag = {name: value for name, value in self.head().items() if name == "tag"}
        answer = self._post("/v1/counters", {**tag, **counted})
        with self._condition:
            if answer is not None and answer.status == 429 and not self._worker.is_ended:
                counters.give_back(counted)
                self._report_later()
            elif answer is not None and answer.status in (403, 404):
                self._may_send_counters = False

    def _post(self, path: str, report: Named) -> Answer | None:
        body = json.dumps(report, separators=(",", ":")).encode()
        answer = self.wire.request("POST", path, body, JSON, background=True)
        if answer is not None and answer.status >= 300 and answer.status != 429:
            answer.log(f"POST {path}")
        return answer

    def _report_later(self) -> None:
        """Many containers report under one token."""
        self._report_at = time.monotonic() + random.uniform(30, 90)


def path_of(*segments: str, **query: str) -> str:
    """A path of the server, with every segment and value quoted."""
    text = "/" + "/".join(quote(segment, safe="") for segment in segments)
    if query:
        text += "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return text
