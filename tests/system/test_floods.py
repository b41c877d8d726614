"""Clients that send slowly, hold connections, send too much or too often: the server closes or refuses what exceeds its limits,
and goes on serving the others."""

import contextlib
import hashlib
import json
import os
import re
import select
import socket
import time

import hands
import harness
import pytest
from harness import wait_until

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def serve(start, database):
    """Starts a server with these options."""
    return lambda *options: start(harness.Server, database, options=(*harness.UNHURRIED, *map(str, options)))


def metric(server, name):
    """The value of a metric, with its labels as /metrics writes them."""
    lines = server.request("GET", "/metrics").body.decode().splitlines()
    return next(float(line.rsplit(None, 1)[1]) for line in lines if line.startswith(f"{name} "))


def closed(server, reason):
    return metric(server, f'wavetune_http_connections_closed_total{{reason="{reason}"}}')


def connect(server, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", server.port), timeout=300, source_address=(source, 0))


def head(server, method, path, *lines, token=None):
    lines = (f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token or server.token}", *lines)
    return "\r\n".join((*lines, "", "")).encode()


def received(connection):
    """All that the server sends until it closes."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(65536):
            got += chunk
    return got


def statuses(got):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", got)]


def is_open(connection):
    """Whether the server has not closed it."""
    poll = select.poll()  # a Python socket with a timeout would wait for bytes
    poll.register(connection, select.POLLIN)
    if not poll.poll(0):
        return True
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except OSError:
        return False


def drip(connections, piece=b"x", every=0.2):
    """Sends a piece on each connection now and then, until the server has closed all."""
    left = list(connections)
    deadline = time.monotonic() + 60 * harness.PATIENCE
    while left := [connection for connection in left if is_open(connection)]:
        assert time.monotonic() < deadline, f"{len(left)} connections are still open"
        for connection in left:
            with contextlib.suppress(OSError):
                connection.sendall(piece)
        time.sleep(every)


# Deadlines

SLOW_HEADS = {
    "nothing": b"",
    "half a request line": b"GET /hea",
    "half a header": b"GET /healthz HTTP/1.1\r\nX-Slow: ",
    "headers without an end": b"GET /healthz HTTP/1.1\r\nHost: x\r\n",
}


@pytest.mark.parametrize("what", SLOW_HEADS)
def test_a_head_that_is_not_complete_in_time_ends_the_connection_whatever_is_sent(serve, what):
    server = serve("--head-timeout-ms", 1000)
    connections = [connect(server) for _ in range(50)]
    for connection in connections:
        connection.sendall(SLOW_HEADS[what])
    drip(connections, b"X-More: y\r\n" if what.startswith("headers") else b"x" if SLOW_HEADS[what] else b"\r\n")
    assert closed(server, "head") == 50
    wait_until(lambda: metric(server, "wavetune_http_open") == 1, 30, "this request to be the only one")


def test_the_second_request_of_a_connection_has_a_deadline_too(serve):
    server = serve("--head-timeout-ms", 1000)
    connection = connect(server)
    connection.sendall(HEALTH)
    assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    connection.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
    drip([connection])
    assert closed(server, "head") == 1


@pytest.mark.parametrize("line", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
def test_a_body_that_arrives_too_slowly_ends_the_connection(serve, line):
    server = serve("--body-timeout-ms", 1000, "--body-rate", 1000)
    connections = [connect(server) for _ in range(20)]
    for connection in connections:
        connection.sendall(head(server, "PUT", "/v1/blobs/sha256:" + "0" * 64, line))
    drip(connections, b"1\r\nx\r\n" if "chunked" in line else b"x")
    assert closed(server, "body") == 20


def test_the_body_of_a_refused_request_has_the_deadline_too(serve):
    server = serve("--body-timeout-ms", 1000, "--body-rate", 1000)
    connection = connect(server)
    connection.sendall(head(server, "POST", "/v1/kernels", "Content-Length: 60000", token="nobody"))
    drip([connection])
    assert closed(server, "body") == 1


def test_a_body_with_steady_progress_may_take_far_longer_than_the_timeout(serve):
    server = serve("--body-timeout-ms", 3000, "--body-rate", 1000)
    body = bytes(range(256)) * 240
    connection = connect(server)
    digest = hashlib.sha256(body).hexdigest()
    connection.sendall(head(server, "PUT", f"/v1/blobs/sha256:{digest}", f"Content-Length: {len(body)}", "Connection: close"))
    for at in range(0, len(body), 2560):  # 24 pieces, 10 times the rate
        connection.sendall(body[at:at + 2560])
        time.sleep(0.25)
    assert statuses(received(connection)) == [201]
    assert closed(server, "body") == 0


@pytest.fixture
def reading(serve):
    """Starts a server that expects so many bytes a second, and requests a large file on a connection with a small buffer."""
    def request(rate):
        server = serve("--body-timeout-ms", 3000, "--body-rate", rate)
        body = bytes(8 << 20)
        path = f"/v1/blobs/sha256:{hashlib.sha256(body).hexdigest()}"
        assert server.request("PUT", path, body).status == 201
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.settimeout(300)
        connection.sendall(head(server, "GET", path, "Connection: close"))
        return server, connection

    return request


def test_an_answer_that_is_not_read_ends_the_connection(reading):
    server, connection = reading(8 << 20)
    wait_until(lambda: closed(server, "answer") == 1, 30, "the server to close the connection")
    assert len(received(connection)) < 8 << 20


def test_an_answer_that_is_read_after_a_pause_is_complete(reading):
    server, connection = reading(1 << 10)
    time.sleep(4)
    assert len(received(connection)) > 8 << 20
    assert closed(server, "answer") == 0


def test_a_long_poll_is_not_ended_by_a_deadline(serve):
    server = serve("--head-timeout-ms", 2000, "--body-timeout-ms", 2000, "--poll-ms", 100)
    enrolled = server.request("POST", "/v1/agents", {"boot": "b", "name": "n", "version": "1", "devices": [
        {"device": "cpu0", "backend": "cpu",
         "environment": {"cpu": "gcc 12", "gpu": "test", "arch": "x86_64", "compute_units": 1, "partition": ""}}]})
    body = json.dumps({"agent": enrolled.json["agent"], "device": "cpu0", "nonce": "n", "wait": 5}).encode()
    connection = connect(server)
    connection.sendall(head(server, "POST", "/v1/leases", f"Content-Length: {len(body)}", "Connection: close") + body)
    assert statuses(received(connection)) == [204]
    assert closed(server, "head") == closed(server, "body") == 0


# Connections

def open_of(server, name):
    return metric(server, f'wavetune_http_connections{{class="{name}"}}')


def ask(connection, text):
    """The status of the answer to a request on this connection."""
    connection.sendall(text)
    return statuses(connection.recv(65536))[:1]


def test_a_flood_of_strangers_keeps_no_agent_and_no_operator_out(serve, database):
    server = serve("--connections", 200, "--event-threads", 2)
    agent, operator = (harness.make_token(database, role, role) for role in ("agent", "operator"))
    early = connect(server)
    assert ask(early, head(server, "GET", "/v1/kernels", token=operator)) == [200]
    enrolled = server.request("POST", "/v1/agents", {"boot": "b", "name": "n", "version": "1", "devices": [
        {"device": "cpu0", "backend": "cpu",
         "environment": {"cpu": "gcc 12", "gpu": "test", "arch": "x86_64", "compute_units": 1, "partition": ""}}]}, token=agent)
    body = json.dumps({"agent": enrolled.json["agent"], "device": "cpu0", "nonce": "n", "wait": 60}).encode()
    waiting = connect(server)
    waiting.sendall(head(server, "POST", "/v1/leases", f"Content-Length: {len(body)}", token=agent) + body)
    wait_until(lambda: metric(server, "wavetune_parked") == 1, 30, "the agent to wait for work")

    strangers = []
    for i in range(1000):
        strangers.append(connect(server, f"127.0.0.{1 + i % 50}"))
        strangers[-1].sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        if i % 100 == 99:
            assert server.request("GET", "/readyz", token=operator).status == 200
            beat = f"/v1/agents/{enrolled.json['agent']}/heartbeat"
            assert server.request("POST", beat, {"boot": "b"}, token=agent).status < 300
            assert ask(early, head(server, "GET", "/readyz", token=operator)) == [200]
    wait_until(lambda: sum(map(is_open, strangers)) <= 150, 30, "three quarters of the places at most")
    assert open_of(server, "stranger") <= 150 and open_of(server, "fleet") >= 2
    assert closed(server, "places") >= 850 and closed(server, "address") == 0
    assert is_open(strangers[-1]) and not is_open(strangers[0]), "the oldest are closed"
    assert is_open(waiting) and is_open(early)


def test_one_address_has_a_limit_for_strangers(serve, database):
    server = serve("--connections-per-address", 20)
    reader = harness.make_token(database, "reader", "reader")
    known = []
    for _ in range(30):
        known.append(connect(server, "127.0.0.2"))
        assert ask(known[-1], head(server, "GET", "/v1/kernels", token=reader)) == [200]
    strangers = [connect(server, "127.0.0.2") for _ in range(50)]
    wait_until(lambda: sum(map(is_open, strangers)) == 20, 30, "the limit")
    assert closed(server, "address") == 30 and all(map(is_open, known))
    assert open_of(server, "client") == 30
    assert ask(strangers[-1], HEALTH) == [200]
    assert ask(connect(server, "127.0.0.3"), HEALTH) == [200], "another address"


def test_a_connection_whose_token_was_refused_is_a_strangers(serve, database):
    server = serve("--connections-per-address", 5)
    reader = harness.make_token(database, "reader", "reader")
    connection = connect(server, "127.0.0.2")
    assert ask(connection, head(server, "GET", "/v1/kernels", token=reader)) == [200]
    assert ask(connection, head(server, "GET", "/v1/kernels", token="wt_unknown")) == [401]
    later = [connect(server, "127.0.0.2") for _ in range(5)]
    wait_until(lambda: not is_open(connection), 30, "it to make room")
    assert all(map(is_open, later))


def test_a_trusted_proxy_may_have_many_connections(serve):
    server = serve("--connections-per-address", 5, "--trusted-proxy", "127.0.0.2")
    connections = [connect(server, "127.0.0.2") for _ in range(50)]
    assert [ask(connection, HEALTH) for connection in connections] == [[200]] * 50
    assert closed(server, "address") == 0


# Limits of tokens

def limited(answer, option):
    """Whether it was refused because of this limit, with a sentence that names the option."""
    return (answer.status == 429 and answer.json["kind"] == "rate" and f"--{option}" in answer.json["detail"]
            and int(answer.headers["Retry-After"]) >= 1)


def refused(server, option):
    return metric(server, f'wavetune_limits_refused_total{{limit="{option}"}}')


@pytest.fixture
def tokens(database):
    """Names and makes tokens: tokens("agent") is one of that role."""
    return lambda role, name=None: harness.make_token(database, name or role, role)


def put(server, content, token):
    return server.request("PUT", f"/v1/blobs/sha256:{hashlib.sha256(content).hexdigest()}", content, token=token)


@pytest.fixture
def insist():
    """Sends requests of a token for the database on 30 connections, each 20 without waiting for answers."""
    def insist(server, token):
        request = f"GET /v1/kernels HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        connections.extend(connect(server) for _ in range(30))
        for connection in connections:
            connection.sendall(request * 20)
        wait_until(lambda: refused(server, "token-requests") >= 30, 20, "the connections to be refused")
        return connections

    connections = []
    yield insist
    for connection in connections:
        connection.close()


def test_a_token_that_sends_too_many_requests_waits_and_others_do_not(serve, tokens, insist):
    server = serve("--token-requests", 2)
    eager, calm, operator = tokens("reader"), tokens("reader", "calm"), tokens("operator")
    assert [server.request("GET", "/v1/jobs", token=eager).status for _ in range(10)] == [200] * 10, "a burst"
    connections = insist(server, eager)
    assert server.request("GET", "/v1/jobs", token=calm).status == 200
    assert [server.request("GET", "/v1/jobs", token=operator).status for _ in range(50)] == [200] * 50
    wait_until(lambda: limited(server.request("GET", "/v1/jobs", token=eager), "token-requests"), 20, "its turn to be another's")
    for connection in connections:
        connection.close()
    wait_until(lambda: server.request("GET", "/v1/jobs", token=eager).status == 200, 60, "its bucket to be filled")


def test_a_connection_beyond_its_tokens_rate_is_refused_four_times_a_second(serve, tokens, insist):
    server, agent = serve("--token-requests", 1), tokens("agent")
    began = time.monotonic()
    insist(server, agent)
    wait_until(lambda: refused(server, "token-requests") >= 90, 60, "each connection to ask three times")
    assert time.monotonic() - began >= 0.5, "there are two waits"

    def an_upload_waits():
        began = time.monotonic()
        status = put(server, b"some bytes", agent).status  # its body is read before it is refused
        assert status == 201 or (status == 429 and time.monotonic() - began >= 0.25)
        return status == 429

    wait_until(an_upload_waits, 60, "an upload to be refused")


def test_a_refusal_comes_before_a_starting_program_gives_up():
    """A program that gets no first byte in time does not use the server for half a minute or more. A refusal does not stop it."""
    hold = re.search(r"#define HOLD_MS (\d+)", (harness.SOURCE / "server/http/deadlines.h").read_text())
    first_byte = re.search(r"^FIRST_BYTE_S\b.* = ([\d.]+)", (harness.SOURCE / "python/wavetune/_runtime/wire.py").read_text(), re.M)
    assert float(hold[1]) / 1000 <= float(first_byte[1]) / 2


def test_a_server_that_stops_lets_go_of_held_refusals(serve, tokens, insist):
    server = serve("--token-requests", 1)
    insist(server, tokens("reader"))
    assert server.stop() == 0


def test_a_refused_upload_is_not_read(serve, tokens, insist):
    server, agent = serve("--token-requests", 1), tokens("agent")
    insist(server, agent)
    upload = head(server, "PUT", "/v1/blobs/sha256:" + "0" * 64, f"Content-Length: {64 << 20}", token=agent)

    def is_refused():
        with contextlib.closing(connect(server)) as connection:
            connection.sendall(upload)
            return select.select([connection], [], [], 10)[0] and statuses(received(connection)) == [429]

    wait_until(is_refused, 60, "it to be refused")


def test_a_token_may_store_only_so_many_bytes_of_files(serve, tokens, postgres):
    server = serve("--token-files-mib", 1)
    agent, other = tokens("agent"), tokens("submitter")
    first = bytes(600 << 10)
    assert put(server, first, agent).status == 201
    assert limited(put(server, b"1" + first, agent), "token-files-mib")
    assert put(server, first, agent).status == 200, "it is stored already"
    assert put(server, b"2" + first, other).status == 201, "another token"
    assert put(server, b"3" + bytes(3 << 20), "admin").status == 201, "an admin"
    assert refused(server, "token-files-mib") == 1
    stored = postgres.sql("select count(*), sum(size) from blobs", conninfo=server.database)
    assert stored == f"3|{len(first) * 2 + 2 + (3 << 20)}", "nothing of what was refused"

    postgres.sql("update blobs set created_at = now() - interval '40 days'", conninfo=server.database)
    assert server.request("POST", "/v1/gc", {}).json["files"]["n"] == 3
    assert put(server, b"1" + first, agent).status == 201, "removed files do not count"


def test_one_token_may_enrol_only_so_many_agents_and_devices(serve, tokens):
    server = serve("--token-agents", 3, "--token-devices", 5)
    agent = tokens("agent")

    def enrol(n_devices, token=agent, boot="b", known=None):
        devices = [{"device": f"cpu{i}", "backend": "cpu", "environment": hands.ENVIRONMENT} for i in range(n_devices)]
        return server.request("POST", "/v1/agents", {"boot": boot, "name": "n", "version": "1", "devices": devices}
                              | ({"agent": known} if known else {}), token=token)

    first = enrol(1)
    assert [first.status, enrol(3).status] == [201, 201]
    assert limited(enrol(2), "token-devices")
    assert enrol(1).status == 201
    assert limited(enrol(1), "token-agents")
    assert enrol(1, boot="b2", known=first.json["agent"]).status == 200, "a known agent"
    assert enrol(1, token=tokens("agent", "other")).status == 201
    assert len(server.items("/v1/agents")) == 4
    enrolment = server.request("POST", "/v1/tokens", {"name": "image", "role": "enrol", "uses": 9}).json["token"]
    assert [enrol(1, token=enrolment, boot=f"b{i}").status for i in range(9)] == [201] * 9, "it states its own number"


def test_one_token_may_have_only_so_many_open_jobs(serve, tokens):
    server = serve("--token-open-jobs", 3)
    kernel, submitter = hands.register(server), tokens("submitter")
    hands.Hand(server, "node")

    def submit(n, count=1, **more):
        jobs = [{"kernel": kernel, "key": {"n": 64 + i}, "space": hands.SMALL, "environment": hands.ENVIRONMENT} | more
                for i in range(n, n + count)]
        return server.request("POST", "/v1/jobs", {"jobs": jobs} if count > 1 else jobs[0], token=submitter)

    first = submit(0)
    assert [first.status, submit(1).status] == [201, 201]
    assert limited(submit(2, 2), "token-open-jobs")
    assert len(server.items("/v1/jobs")) == 2, "none of a batch that is too large"
    assert submit(2).status == 201
    assert limited(submit(3), "token-open-jobs")
    assert submit(2, priority=5).status == 200, "a known job"
    assert server.request("DELETE", f"/v1/jobs/{first.json['job']}", token=submitter).status in (200, 202, 204)
    assert submit(3).status == 201
    assert server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": 1}, "space": hands.SMALL,
                                               "environment": hands.ENVIRONMENT}).status == 201, "an admin"


def test_files_that_nothing_names_are_removed_in_time(serve, tokens, postgres):
    server = serve("--unused-file-days", 2)
    kernel, agent = hands.register(server), tokens("agent")
    contents = [b"unused %d" % i for i in range(200)]
    assert all(put(server, content, agent).status == 201 for content in contents)
    young = b"young"
    postgres.sql("update blobs set created_at = now() - interval '3 days'", conninfo=server.database)
    assert put(server, young, agent).status == 201
    other = serve("--unused-file-days", 0, "--poll-ms", 100)
    assert put(other, contents[0], agent).status == 200, "stored, and as a new one from now on"
    count = "select count(*) from blobs"
    assert postgres.sql(count, conninfo=server.database) == "203", "the server looks once an hour, the other one never"

    cleaner = serve("--unused-file-days", 2)
    wait_until(lambda: postgres.sql(count, conninfo=server.database) == "4", 60, "199 of the files to be removed")
    assert put(cleaner, young, agent).status == put(cleaner, contents[0], agent).status == 200
    assert put(cleaner, contents[1], agent).status == 201
    assert cleaner.request("GET", f"/v1/kernels/{kernel}").status == 200
    audit = cleaner.items("/v1/audit?action=collect")
    assert sum(row["detail"]["files"] for row in audit) == 199 and {row["token"] for row in audit} == {"(server)"}
    usage = postgres.sql("select sum(bytes) from blob_usage join tokens t on t.id = token_id where t.name = 'agent'",
                         conninfo=server.database)
    kept = (young, contents[0], contents[1])
    assert int(usage) == sum(map(len, kept)) + 4096 * len(kept)


# Memory

# The allocators of sanitizers keep freed memory.
KEEPS_MEMORY = {"ASAN_OPTIONS", "TSAN_OPTIONS"} & os.environ.keys()


def memory_mib(server):
    status = open(f"/proc/{server.process.pid}/status").read()
    return {name: int(re.search(rf"{name}:\s+(\d+) kB", status).group(1)) / 1024 for name in ("VmHWM", "VmRSS")}


IMPORT = b'{"format": "json", "environment": {}, "kernels": [%s]}'
BOMBS = {"arrays": b"[],", "numbers": b"0,", "objects": b"{},", "texts": b'"",', "nested": b"[[[[[[1]]]]]],"}


@pytest.mark.parametrize("what", BOMBS)
def test_a_body_whose_values_would_fill_the_memory_is_refused_unparsed(serve, what, tokens):
    server = serve()
    body = IMPORT % (BOMBS[what] * ((62 << 20) // len(BOMBS[what])) + b"0")
    before = memory_mib(server)["VmRSS"]
    answer = server.request("POST", "/v1/imports", body, token=tokens("submitter"))
    assert answer.status == 413 and "in parts" in answer.json["detail"], answer
    assert KEEPS_MEMORY or memory_mib(server)["VmHWM"] < before + 62 * 3, "the body, and what reading it takes"
    assert metric(server, "wavetune_bodies_refused_total") == 1
    assert metric(server, "wavetune_bodies_bytes") == 0


@pytest.mark.parametrize("ends", [b"0", b"]]"])
def test_memory_of_a_large_body_is_given_back(serve, tokens, ends):
    """Also when it is not JSON at its end."""
    server = serve()
    before = memory_mib(server)["VmRSS"]
    answer = server.request("POST", "/v1/imports", IMPORT % (b"[]," * 1_500_000 + ends), token=tokens("submitter"))
    assert answer.status == (422 if ends == b"0" else 400), answer
    assert memory_mib(server)["VmHWM"] > before + 150, "it was parsed"
    wait_until(lambda: KEEPS_MEMORY or memory_mib(server)["VmRSS"] < before + 50, 20, "the memory to be given back")


@pytest.fixture
def uploads(serve, tokens):
    """A server with 128 MiB for bodies, and a function that begins an upload and sends all but its last byte."""
    server = serve("--bodies-mib", 128)
    named = {name: tokens("agent", name) for name in ("first", "second", "third")}
    body = bytes(range(256)) * (30 << 12)
    path = f"/v1/blobs/sha256:{hashlib.sha256(body).hexdigest()}"

    def begin(name, chunked=False):
        connection = connect(server)
        line = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
        connection.sendall(head(server, "PUT", path, line, "Connection: close", token=named[name]))
        with contextlib.suppress(OSError):
            connection.sendall(b"%x\r\n" % len(body) + body if chunked else body[:-1])
        return connection

    return server, begin, body


def test_bodies_that_are_held_open_have_a_budget_of_memory(uploads):
    server, begin, body = uploads
    held = [begin("first"), begin("first")]
    wait_until(lambda: metric(server, "wavetune_bodies_bytes") == 2 * len(body), 30, "two uploads")
    answer = received(begin("first"))
    assert statuses(answer) == [429] and b"half of serve --bodies-mib" in answer and b"Retry-After" in answer
    held += [begin("second"), begin("second")]
    wait_until(lambda: metric(server, "wavetune_bodies_bytes") == 4 * len(body), 30, "four uploads")
    answer = received(begin("third"))
    assert statuses(answer) == [503] and b"--bodies-mib" in answer and b"Retry-After" in answer
    assert server.request("POST", "/v1/tokens", {"name": "small", "role": "reader"}).status == 201, "small bodies are not counted"

    held.pop().close()
    wait_until(lambda: metric(server, "wavetune_bodies_bytes") == 3 * len(body), 30, "an aborted one to be given back")
    held.append(begin("third"))
    for connection in held:
        connection.sendall(body[-1:])
        assert statuses(received(connection))[0] in (200, 201)
    assert metric(server, "wavetune_bodies_bytes") == 0
    assert metric(server, "wavetune_bodies_refused_total") == 2


def test_chunked_bodies_count_as_they_arrive(uploads):
    server, begin, _ = uploads
    held = [begin("first", chunked=True) for _ in range(2)]
    wait_until(lambda: metric(server, "wavetune_bodies_bytes") == 64 << 20, 30, "two uploads, in buffers that doubled")
    with contextlib.closing(begin("first", chunked=True)) as third:
        wait_until(lambda: not is_open(third), 30, "a third one to be closed")
    assert metric(server, "wavetune_bodies_refused_total") == 1
    for connection in held:
        connection.sendall(b"\r\n0\r\n\r\n")
        assert statuses(received(connection))[0] in (200, 201)
    assert metric(server, "wavetune_bodies_bytes") == 0
