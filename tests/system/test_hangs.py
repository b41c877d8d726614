"""A PostgreSQL that hangs: its processes are stopped, as when its storage no longer answers. It closes no connection, so that
only deadlines end a wait."""

import concurrent.futures
import contextlib
import os
import pathlib
import select
import signal
import socket
import time

import harness
import pytest
from hands import ENVIRONMENT, Hand, register
from harness import PATIENCE, wait_until

TIMEOUT_MS = 2000 * PATIENCE


def processes(postgres):
    """The postmaster and all its children."""
    leader = int((postgres.folder / "data/postmaster.pid").read_text().split()[0])
    children = pathlib.Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
    return [leader, *map(int, children)]


@contextlib.contextmanager
def hanging(postgres):
    """PostgreSQL with all of its processes stopped."""
    stopped = processes(postgres)
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.fixture
def server(start, database):
    return start(harness.Server, database, options=("--database-timeout-ms", str(TIMEOUT_MS)))


def test_requests_are_answered_while_postgresql_hangs_and_served_when_it_resumes(postgres, server):
    reader = harness.make_token(server.database, "reader", "reader")
    assert [server.request("GET", "/v1/jobs", token=token).status for token in ("admin", reader)] == [200, 200]
    with hanging(postgres):
        for _ in range(2):
            began = time.monotonic()
            answer = server.request("GET", "/v1/jobs")
            assert answer.status == 503 and time.monotonic() - began < TIMEOUT_MS / 1000 + PATIENCE, answer
        wait_until(lambda: server.request("GET", "/readyz").status == 503, 30, "/readyz to report that the database hangs")
        wait_until(lambda: "not ready" in server.messages, 60, "the reason in the log")
        assert "the database" in server.request("GET", "/readyz").json["detail"], "an operator gets the reason"
        for token in (reader, "wt_unknown", None):
            assert "log has the reason" in server.request("GET", "/readyz", token=token).json["detail"]
        assert "wavetune_ready 0" in server.request("GET", "/metrics").body.decode()
    wait_until(lambda: server.request("GET", "/v1/jobs").status == 200, 10, "requests to be served again")
    wait_until(lambda: server.request("GET", "/readyz").status == 200, 10, "/readyz to answer 200 again")


def test_requests_that_wait_for_a_worker_are_answered_in_time_too(postgres, start, database):
    server = start(harness.Server, database, options=("--database-timeout-ms", str(TIMEOUT_MS), "--workers", "1"))
    assert server.request("GET", "/v1/jobs").status == 200

    def seconds(n):
        began = time.monotonic()
        answer = server.request("GET", "/v1/jobs", token="admin" if n % 2 else f"wt_new{n}")  # or one that must be looked up
        assert answer.status == 503 and int(answer.headers["Retry-After"]) >= 1, answer
        return time.monotonic() - began

    with hanging(postgres), concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert max(pool.map(seconds, range(20))) < TIMEOUT_MS / 1000 + PATIENCE
        metrics = server.request("GET", "/metrics").body.decode()
    assert "\nwavetune_queue_late_total 0\n" not in metrics, "those that waited for longer than half of their time"


def test_a_server_ends_while_postgresql_hangs(postgres, start, database):
    server = start(harness.Server, database, options=("--database-timeout-ms", "600000"))
    assert server.request("GET", "/v1/jobs").status == 200
    with hanging(postgres):
        began = time.monotonic()
        assert server.stop(seconds=30) == 0
        assert time.monotonic() - began < 10 * PATIENCE


def test_a_server_ends_while_it_connects_to_hosts_that_do_not_answer(start, tmp_path):
    """Each address has its own time."""
    with contextlib.ExitStack() as sockets:
        first, *rest = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(8)]
        ports = [listener.getsockname()[1] for listener in (first, *rest)]
        hosts = f"host={','.join(['127.0.0.1'] * len(ports))} port={','.join(map(str, ports))} dbname=none user=none"
        program = start(harness.Program, [harness.BUILD / "wavetune-server", "serve", "--port", "0", "--database", hosts])
        wait_until(lambda: "listening" in program.output, 30, "the server to start")
        assert select.select([first], [], [], 60)[0], "it connects"
        began = time.monotonic()
        assert program.stop(seconds=30) == 0
        assert time.monotonic() - began < 10 * PATIENCE
        assert "still connects to the database" in program.messages


def test_a_statement_that_takes_too_long_is_ended_by_postgresql_and_its_connection_stays(postgres, server):
    """Another session locks the job list's table for long: the request fails, the server works on."""
    locker = harness.subprocess.Popen(
        [str(harness.postgres_bin() / "psql"), server.database, "-XAtq", "-c",
         f"BEGIN; LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({4 * TIMEOUT_MS / 1000})"])
    try:
        wait_until(lambda: postgres.sql("select count(*) from pg_locks where mode = 'AccessExclusiveLock' and granted",
                                        conninfo=server.database) != "0", 10, "the lock")
        began = time.monotonic()
        assert server.request("GET", "/v1/jobs").status == 503
        assert time.monotonic() - began < 2 * TIMEOUT_MS / 1000
        assert server.request("GET", "/v1/environments").status == 200
    finally:
        locker.kill()
        locker.wait()


def test_leases_do_not_expire_because_postgresql_hung(postgres, start, database):
    """Their agents could not renew them meanwhile. Each round has a lease that comes due while the housekeeper waits."""
    lease_s = 4
    server = start(harness.Server, database, options=("--lease-ms", str(1000 * lease_s), "--database-timeout-ms", "60000"))
    hand = Hand(server, "a", environment=ENVIRONMENT)
    kernel = register(server)
    server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": 1}, "environment": ENVIRONMENT,
                                        "space": {"parameters": {"A": list(range(8))}}})
    time.sleep(lease_s + 0.5)  # a lease time after its start a server expires what is due
    lease = hand.pull().json
    for _ in range(3):
        assert hand.renew(lease).status == 200
        with hanging(postgres):
            time.sleep(lease_s + 0.2)
        time.sleep(1)
        assert hand.renew(lease).status == 200, server.messages
    assert "stood still" in server.messages
