"""Many clients at once: none waits for long, and what all of them need is made once."""

import contextlib
import os
import resource
import select
import selectors
import signal
import socket
import time

import harness
import pytest
from test_choices import options, publish, query, reader  # noqa: F401
from test_leases import metric, runs_of
from test_remote import SHARED, place, put, server  # noqa: F401

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
SECONDS = 30  # less than an idle connection's time-out (IDLE_TIMEOUT_S), which would wake a stalled event thread


def connect(port, n):
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(n)]


def unanswered(connections, status=b"200"):
    """How many of them receive nothing for SECONDS."""
    with selectors.DefaultSelector() as ready:
        for connection in connections:
            ready.register(connection, selectors.EVENT_READ)
        while ready.get_map():
            events = ready.select(SECONDS)
            if not events:
                break
            for key, _ in events:
                assert key.fileobj.recv(1 << 16).startswith(b"HTTP/1.1 " + status), "a whole answer"
                ready.unregister(key.fileobj)
        return len(ready.get_map())


@pytest.mark.parametrize("n", [127, 128, 129, 256])  # libmicrohttpd takes 128 events at a time
def test_requests_that_arrive_at_the_same_moment_are_answered(start, database, n):
    server = start(harness.Server, database, options=("--event-threads", "1"))
    connections = connect(server.port, n)
    for _ in range(2):  # first they are accepted, then they are known
        os.kill(server.process.pid, signal.SIGSTOP)
        for connection in connections:
            connection.sendall(REQUEST)
        os.kill(server.process.pid, signal.SIGCONT)
        assert unanswered(connections) == 0
    for connection in connections:
        connection.close()


def test_a_thousand_clients_that_connect_at_once_are_answered(server):  # noqa: F811
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    os.kill(server.process.pid, signal.SIGSTOP)
    connections = connect(server.port, 1000)  # by the kernel: the server accepts none of them yet
    for connection in connections:
        connection.sendall(REQUEST)
    os.kill(server.process.pid, signal.SIGCONT)
    assert unanswered(connections) == 0
    for connection in connections:
        connection.close()


def test_a_turn_of_an_event_thread_that_takes_long_is_counted_and_logged(start, database):
    server = start(harness.Server, database, options=("--event-threads", "1"))
    connections = connect(server.port, 100)

    def is_counted():
        """Stops the server after the first of 100 answers, which it sends in one turn."""
        os.kill(server.process.pid, signal.SIGSTOP)
        for connection in connections:
            connection.sendall(REQUEST)
        os.kill(server.process.pid, signal.SIGCONT)
        select.select(connections, [], [])
        os.kill(server.process.pid, signal.SIGSTOP)
        time.sleep(1.1)
        os.kill(server.process.pid, signal.SIGCONT)
        assert unanswered(connections) == 0
        return b"wavetune_http_slow_turns_total 0\n" not in server.request("GET", "/metrics").body

    harness.wait_until(is_counted, 30, "a stop within a turn")
    assert "an event thread was busy for" in server.messages


def at_once(server, token, path, n=100):  # noqa: F811
    """Connections that sent the same request at the same moment. The token is known, so that all reach the workers' queue."""
    assert server.request("GET", "/v1/jobs", token=token).status == 200
    connections = connect(server.port, n)
    os.kill(server.process.pid, signal.SIGSTOP)
    for connection in connections:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    os.kill(server.process.pid, signal.SIGCONT)
    return connections


@SHARED
def test_shared_code_that_many_containers_request_at_once_is_read_once(server, reader):  # noqa: F811
    assert put(server, reader).status == 204
    assert unanswered(at_once(server, reader, place())) == 0
    assert runs_of(server, "remote_read") == 1
    assert runs_of(server, "remote_of_build") == 0, "the reads state no release"


@SHARED
def test_answers_from_memory_do_not_count_in_the_limit_of_a_token(start, database, options):  # noqa: F811
    server = start(harness.Server, database, options=(*options, "--token-requests", "1"))  # noqa: F811
    reader = harness.make_token(database, "container", "reader,demand")  # noqa: F811
    assert put(server, reader).status == 204
    for _ in range(3):  # with put, at_once's own requests and the first answer: the five of a burst
        assert unanswered(at_once(server, reader, place())) == 0


def test_choices_that_many_programs_request_at_once_are_looked_up_once(server, reader, publish):  # noqa: F811
    release = publish(1)
    for path, statement in ((f"/v1/choices?{query()}", "choices_signatures"), (f"/v1/releases/{release}", "release_load")):
        before = runs_of(server, statement)
        assert unanswered(at_once(server, reader, path)) == 0
        assert runs_of(server, statement) == before + 1


@SHARED
def test_what_is_not_stored_is_missing_for_each_of_many_requests(server, reader):  # noqa: F811
    assert unanswered(at_once(server, reader, place()), b"404") == 0
    assert put(server, reader).status == 204
    assert unanswered(at_once(server, reader, place())) == 0


@contextlib.contextmanager
def locked(server, table):  # noqa: F811
    """Another session has the table: statements that use it wait."""
    command = [harness.postgres_bin() / "psql", server.database, "-XAtq"]
    with harness.subprocess.Popen(command, stdin=harness.subprocess.PIPE, stdout=harness.subprocess.PIPE, text=True) as session:
        session.stdin.write(f"BEGIN; LOCK TABLE {table}; SELECT 1;\n")
        session.stdin.flush()
        assert session.stdout.readline() == "1\n"
        yield
        session.stdin.close()  # which ends the transaction


@SHARED
@pytest.mark.parametrize("timeout_s, status", [(60 * harness.PATIENCE, b"200"), (1, b"503")])
def test_requests_wait_for_the_one_that_makes_their_answer(start, database, options, timeout_s, status):  # noqa: F811
    """A lock keeps the first one waiting, until the lock is released or until the database's time-out. Then the others try for
    themselves."""
    server = start(harness.Server, database, options=(*options, "--database-timeout-ms", str(1000 * timeout_s)))  # noqa: F811
    reader = harness.make_token(database, "container", "reader,demand")  # noqa: F811
    assert put(server, reader).status == 204
    with locked(server, "remote_files"):
        connections = at_once(server, reader, place(), n=8)
        harness.wait_until(lambda: metric(server, "wavetune_http_waits_for_answer_total") == 7, 30, "7 requests to wait")
        if status == b"503":
            assert unanswered(connections, status) == 0
    if status == b"200":
        assert unanswered(connections, status) == 0
        assert runs_of(server, "remote_read") == 1
