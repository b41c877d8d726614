"""The server as a process: migrations, tokens from the command line, a stop while thousands of requests wait, a database that
stops and returns, false lengths of bodies, and `dev`."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

import harness
import pytest
from harness import BUILD, wait_until
from test_interleavings import Session

SERVER = BUILD / "wavetune-server"
ENVIRONMENT = {"cpu": "gcc 12", "gpu": "test", "arch": "x86_64", "compute_units": 1, "partition": ""}


def run(*arguments, environment=None, timeout=600):
    return subprocess.run([str(SERVER), *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **(environment or {})})


def exchange(port, text):
    """Sends bytes and reads until the server closes, as it does after a request with CLOSE."""
    with socket.create_connection(("127.0.0.1", port), timeout=600) as connection:
        connection.sendall(text)
        received = b""
        try:
            while chunk := connection.recv(65536):
                received += chunk
        except ConnectionResetError:
            pass
        return received


CLOSE = b"Connection: close\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + CLOSE
READY = b"GET /readyz HTTP/1.1\r\nHost: x\r\n" + CLOSE


def statuses(received):
    return [int(s) for s in re.findall(rb"HTTP/1\.1 (\d+)", received)]


def enrol(server):
    answer = server.request("POST", "/v1/agents", {"boot": "b", "name": "n", "version": "1", "devices": [
        {"device": "cpu0", "backend": "cpu", "environment": ENVIRONMENT, "facts": {}}]})
    assert answer.status in (200, 201), answer
    return answer.json["agent"]


def park(server, agent, number, wait=60):
    """A connection whose lease request waits."""
    body = json.dumps({"agent": agent, "device": "cpu0", "nonce": f"n{number}", "wait": wait}).encode()
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(b"POST /v1/leases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + server.token.encode()
                       + b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
    return connection


def metric(server, name):
    text = server.request("GET", "/metrics").body.decode()
    return float(re.search(rf"^{name} (\S+)$", text, re.M).group(1))


# Migrations

def add_migration(folder):
    """The next one."""
    file = folder / f"{101 + len(list(folder.glob('????_*.sql'))):04}_future.sql"
    file.write_text("CREATE TABLE future (id integer);\n")
    return file


def test_migrating_twice_and_from_many_processes_applies_each_version_once(postgres, empty_database):
    migrate = (SERVER, "migrate", "--json", "--database", empty_database)
    several = [subprocess.Popen(migrate, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    applied = [json.loads(p.communicate(timeout=600)[0])["applied"] for p in several]
    assert all(p.returncode == 0 for p in several)
    rows = postgres.sql("select version, name from schema_migrations order by 1", conninfo=empty_database).splitlines()
    assert sum(applied) == len(rows) and rows[0] == "100|base"
    assert json.loads(run("migrate", "--json", "--database", empty_database).stdout) == {"applied": 0}


@pytest.mark.parametrize("is_base", [True, False])
def test_a_migration_that_changed_after_it_was_applied_is_refused(empty_database, tmp_path, is_base):
    folder = tmp_path / "migrations"
    shutil.copytree(harness.SOURCE / "migrations", folder)
    file = add_migration(folder)
    environment = {"WAVETUNE_MIGRATIONS": str(folder)}
    assert run("migrate", "--database", empty_database, environment=environment).returncode == 0
    file = folder / "01_tokens.sql" if is_base else file
    file.write_text(file.read_text() + "-- a thought\n")
    done = run("migrate", "--database", empty_database, environment=environment)
    assert done.returncode == 1 and file.name[:3] in done.stderr and "new migration" in done.stderr


def test_a_database_newer_than_the_program_is_refused_and_the_server_is_not_ready(empty_database, tmp_path, start):
    folder = tmp_path / "migrations"
    shutil.copytree(harness.SOURCE / "migrations", folder)
    add_migration(folder)
    assert run("migrate", "--database", empty_database, environment={"WAVETUNE_MIGRATIONS": str(folder)}).returncode == 0
    done = run("migrate", "--database", empty_database)
    assert done.returncode == 1 and "future" in done.stderr and "newer" in done.stderr


def test_migrating_a_database_that_is_away_is_unreachable(tmp_path):
    done = run("migrate", "--database", f"host={tmp_path} dbname=none")
    assert done.returncode == 3 and "away" in done.stderr


def test_a_migration_that_fails_leaves_nothing_behind(postgres, empty_database, tmp_path):
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "01_good.sql").write_text("CREATE TABLE good (id integer);\n")
    (folder / "0101_bad.sql").write_text("CREATE TABLE half (id integer); SELECT 1 / 0;\n")
    done = run("migrate", "--database", empty_database, environment={"WAVETUNE_MIGRATIONS": str(folder)})
    assert done.returncode == 1 and "0101_bad failed" in done.stderr
    there = postgres.sql("select to_regclass('good') is not null, to_regclass('half') is null", conninfo=empty_database)
    assert there == "t|t"


def test_a_server_on_an_empty_database_lives_but_is_not_ready(empty_database, tmp_path, start):
    server = harness.Program([SERVER, "serve", "--port", "0", "--database", empty_database], tmp_path)
    try:
        url = wait_until(lambda: re.search(r"listening on (http://\S+)", server.output), 20, "the ready line").group(1)
        port = int(url.rsplit(":", 1)[1])
        wait_until(lambda: "wavetune-server migrate" in server.messages, 20, "the reason")
        assert statuses(exchange(port, READY)) == [503]
        assert statuses(exchange(port, HEALTH)) == [200]
        assert run("migrate", "--database", empty_database).returncode == 0
        wait_until(lambda: statuses(exchange(port, READY)) == [200], 20, "readiness after migrating")
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("address, says", [("127.0.0.1", False), ("::1", False), ("0.0.0.0", True), ("::", True)])
def test_a_server_that_others_can_reach_warns_of_unencrypted_tokens(address, says, tmp_path):
    alone = ["unshare", "--map-root-user", "--net"]  # a network of its own: no other machine can reach it
    up = "ip link set lo up; exec \"$@\""
    if subprocess.run([*alone, "ip", "link", "set", "lo", "up"], capture_output=True, timeout=300).returncode != 0:
        pytest.skip("no network namespace can be made")
    server = harness.Program([*alone, "sh", "-c", up, "sh", SERVER, "serve", "--listen", address, "--port", "0", "--database",
                              "host=/nowhere dbname=x"], tmp_path)
    wait_until(lambda: "not ready" in server.messages and server.output, 20, "its start")
    assert (server.messages.count("tokens travel unencrypted") == 1) == says
    assert server.stop() == 0


# Tokens from the command line

def test_tokens_are_made_listed_and_revoked_from_the_command_line(server):
    database = server.database
    token = run("token", "make", "ci", "--role", "submitter", "--database", database).stdout.strip()
    assert re.fullmatch(r"wt_[0-9a-f]{64}", token)
    again = run("token", "make", "ci", "--database", database)
    assert again.returncode == 4 and "already" in again.stderr
    assert server.request("GET", "/v1/kernels", token=token).status == 200
    listed = json.loads(run("token", "list", "--json", "--database", database).stdout)
    assert ("ci", "submitter", None) in [(t["name"], t["role"], t["revoked_at"]) for t in listed]
    assert run("token", "revoke", "ci", "--database", database).returncode == 0
    assert run("token", "revoke", "ci", "--database", database).returncode == 4
    wait_until(lambda: server.request("GET", "/v1/kernels", token=token).status == 401, 10, "the server to see it")
    assert run("token", "make", "a b", "--database", database).returncode == 2
    assert run("token", "make", "x", "--role", "king", "--database", database).returncode == 2


def test_commands_without_a_database_say_how_to_name_one():
    environment = {"WAVETUNE_DATABASE": ""}
    for command in (("serve",), ("migrate",), ("token", "list")):
        done = run(*command, environment=environment)
        assert done.returncode == 2 and "--database" in done.stderr


def test_a_port_in_use_and_an_invalid_address_are_errors(server):
    done = run("serve", "--port", server.port, "--database", server.database)
    assert done.returncode == 2 and "in use" in done.stderr
    done = run("serve", "--listen", "localhost.invalid", "--database", server.database)
    assert done.returncode == 2 and "numeric address" in done.stderr


# Connections

@pytest.mark.parametrize("what,head", [
    ("both lengths", b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
    ("two lengths", b"Content-Length: 4\r\nContent-Length: 4\r\n"),
    ("another coding", b"Transfer-Encoding: gzip\r\n"),
    ("two codings", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
    ("two hosts", b"Host: y\r\nContent-Length: 4\r\n"),
    ("two tokens", b"Authorization: Bearer other\r\nContent-Length: 4\r\n"),
])
def test_a_request_that_two_programs_would_read_differently_is_refused_and_closed(server, what, head):
    smuggled = b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    received = exchange(server.port, b"POST /v1/kernels HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + server.token.encode()
                        + b"\r\n" + head + b"\r\n" + smuggled)
    assert statuses(received)[:1] in ([400], []), (what, received)
    assert len(statuses(received)) <= 1, (what, received)


HEAD_BYTES = {
    "a blank before the colon of Transfer-Encoding": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a blank before the colon of Content-Length": b"Content-Length : 5\r\n\r\nhello",
    "a tab before the colon": b"Content-Length\t: 5\r\n\r\nhello",
    "a blank in a name": b"X Note: one\r\nContent-Length: 2\r\n\r\n{}",
    "a folded Transfer-Encoding beside Content-Length": b"Content-Length: 5\r\nTransfer-Encoding: x,\r\n chunked\r\n\r\n0\r\n\r\n",
    "a folded header": b"Content-Length: 2\r\nX-Note: one,\r\n two\r\n\r\n{}",
    "a header folded by a tab": b"Content-Length: 2\r\nX-Note: one,\r\n\ttwo\r\n\r\n{}",
    "a folded line of blanks": b"Content-Length: 2\r\nX-Note: one\r\n  \r\nX-Other: y\r\n\r\n{}",
    "a folded last line": b"X-Note: one\r\n \r\n\r\n",
    "NUL in a value": b"X-Note: one\0Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}",
    "a line without CR": b"X-Note: one\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("what", HEAD_BYTES)
def test_bytes_of_a_head_that_no_field_explains_are_refused_and_the_connection_closed(server, what):
    head = b"POST /v1/kernels HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + server.token.encode() + b"\r\n"
    received = exchange(server.port, head + HEAD_BYTES[what] + HEALTH)
    assert statuses(received) == [400] and b"application/problem+json" in received, received
    assert b"header field" in received or b"belong to no field" in received


@pytest.mark.parametrize("line", [b"GET /healthz\0/v1/jobs HTTP/1.1", b"GET /healthz?a=1\0&b=2 HTTP/1.1", b"GET  /healthz HTTP/1.1"])
def test_a_request_line_with_more_bytes_than_its_three_words_is_refused(server, line):
    assert statuses(exchange(server.port, line + b"\r\nHost: x\r\n\r\n" + HEALTH)) in ([400], [])


@pytest.mark.parametrize("lines, status", [
    (b"Host: x\r\nContent-Length: +5\r\n\r\nhello", 400),
    (b"X-No: host\r\n\r\n", 400),
    (b"Host: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 413),
    (b"Host: x\r\nCookie: " + b"a=b; " * 3000 + b"\r\n\r\n", 431),
    (b"Host: x\r\n" + b"X-A: b\r\n" * 5000 + b"\r\n", 431),
])
def test_what_libmicrohttpd_refuses_itself_ends_the_connection(server, lines, status):
    """In HTML, and for some of them the status line and fields stand once more at the beginning of the body."""
    head, _, body = exchange(server.port, b"GET /healthz HTTP/1.1\r\n" + lines + HEALTH).partition(b"\r\n\r\n")
    assert statuses(head) == [status] and b"Connection: close" in head
    html = body.removeprefix(head + b"\r\n\r\n")
    assert int(re.search(rb"Content-Length: (\d+)", head).group(1)) == len(html)
    assert html.startswith(b"<html>") and html.endswith(b"</html>"), "nothing after it is read as a request"


FINE_HEADS = {
    "no blank behind the colon": b"X-Note:one\r\nX-Empty:\r\n",
    "several blanks": b"X-Note:   one two\t \r\nX-Empty:  \r\nX-Last: \t1\r\n",
    "a long value": b"X-Note: " + b"y" * 6000 + b"\r\n",
    "many fields": b"".join(b"X-%d: %d\r\n" % (i, i) for i in range(80)),
    "cookies": b"Cookie: a=1; b=\"2\"; c\r\n",
    "all characters of names": b"X!#$%&'*+-.^_`|~: 1\r\n",
    "characters beyond ASCII": b"X-Note: \xe9\xff\r\n",
}


@pytest.mark.parametrize("what", FINE_HEADS)
def test_a_head_that_its_fields_explain_is_accepted(server, what):
    """Also in pieces, and as the second one of a connection, when libmicrohttpd has moved its buffer."""
    plain = b"GET /%68ealthz?%61=+&b HTTP/1.1\r\nHost: x\r\n" + FINE_HEADS[what]
    assert statuses(exchange(server.port, (plain + b"\r\n") * 3 + plain + CLOSE)) == [200] * 4
    with socket.create_connection(("127.0.0.1", server.port), timeout=600) as connection:
        for at in range(0, len(plain), 700):
            connection.sendall(plain[at:at + 700])
        connection.sendall(CLOSE)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_small_body_that_is_refused_is_read_and_the_connection_stays_open(server):
    received = exchange(server.port, b"POST /v1/kernels HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello" + HEALTH)
    assert statuses(received) == [401, 200]


def test_a_large_body_that_is_refused_is_answered_before_it_is_sent(server):
    received = exchange(server.port, b"PUT /v1/blobs/sha256:0 HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n")
    assert statuses(received) == [401]
    assert b"Connection: close" in received


def test_an_unknown_token_with_a_body_is_refused_after_it_was_looked_up(server):
    received = exchange(server.port, b"POST /v1/kernels HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer nobody\r\n"
                        b"Content-Length: 5\r\n\r\nhello" + HEALTH)
    assert statuses(received) == [401, 200]


def test_a_chunked_body_is_read_and_counted(server):
    head = b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer " + server.token.encode()
    body = json.dumps({"name": "chunked", "role": "reader"}).encode()
    received = exchange(server.port, head + b"\r\n" + CLOSE + b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")
    assert statuses(received) == [201]
    too_much = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    received = exchange(server.port, head + b"\r\n" + CLOSE + too_much + b"0\r\n\r\n")
    assert statuses(received) == [413]
    assert server.request("GET", "/healthz").status == 200


def test_requests_in_one_packet_are_answered_in_order(server):
    one = b"GET /v1/kernels HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + server.token.encode() + b"\r\n\r\n"
    received = exchange(server.port, one * 3 + b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n" + one[:-2] + CLOSE)
    assert statuses(received) == [200, 200, 200, 404, 200]


def test_a_statement_that_the_database_cannot_parse_is_an_internal_error_with_details_only_in_the_log(server, postgres):
    digest = "sha256:" + hashlib.sha256(b"code").hexdigest()
    assert server.request("PUT", f"/v1/blobs/{digest}", b"code").status == 201
    postgres.sql("ALTER TABLE blob_chunks RENAME TO odd", conninfo=server.database)
    answer = server.request("GET", f"/v1/blobs/{digest}")
    postgres.sql("ALTER TABLE odd RENAME TO blob_chunks", conninfo=server.database)
    assert answer.status == 500 and answer.json["kind"] == "internal" and "blob_chunks" not in answer.body.decode()
    assert "blob_chunks" in server.messages
    assert server.request("GET", f"/v1/blobs/{digest}").status == 200


def test_blobs_of_many_chunks_survive_and_a_damaged_one_is_an_error(server, postgres, start):
    body = os.urandom(300_000) + bytes(700_000)
    digest = "sha256:" + hashlib.sha256(body).hexdigest()
    assert server.request("PUT", f"/v1/blobs/{digest}", body=body).status == 201
    assert server.request("PUT", f"/v1/blobs/{digest}", body=body).status == 200
    assert server.request("GET", f"/v1/blobs/{digest}").body == body
    part = server.request("GET", f"/v1/blobs/{digest}", headers={"Range": "bytes=299990-300009"})
    assert part.status == 206 and part.body == body[299990:300010]
    assert server.request("GET", f"/v1/blobs/{digest}", headers={"Range": "bytes=0-1", "If-Range": '"other"'}).status == 200
    empty = "sha256:" + hashlib.sha256(b"").hexdigest()
    assert server.request("PUT", f"/v1/blobs/{empty}", body=b"").status == 201
    assert server.request("GET", f"/v1/blobs/{empty}").body == b""
    postgres.sql(f"update blob_chunks set bytes = (select bytes from blob_chunks where ordinal = 2 and digest = "
                 f"'\\x{digest[7:]}') where ordinal = 3 and digest = '\\x{digest[7:]}'", conninfo=server.database)
    other = start(harness.Server, server.database)
    answer = other.request("GET", f"/v1/blobs/{digest}")
    assert (answer.status, answer.json["kind"]) == (503, "unavailable") and "damaged" in answer.json["detail"]


def test_an_expired_admin_token_is_not_counted_as_one(server, database, postgres):
    assert server.request("POST", "/v1/tokens", {"name": "brief", "role": "admin", "expires": "1h"}).status == 201
    postgres.sql("update tokens set expires_at = now() - interval '1 s' where name = 'brief'", conninfo=database)
    mine = next(token["name"] for token in server.items("/v1/tokens") if token["name"].startswith("admin-"))
    assert server.request("DELETE", f"/v1/tokens/{mine}").status == 409


def test_the_last_admin_token_is_revoked_at_the_database_only(server, database):
    other = harness.make_token(database, "other", "admin")
    mine = next(i["name"] for i in server.items("/v1/tokens") if i["role"] == "admin" and i["name"] != "other")
    harness.make_token(database, "reader", "reader")
    assert server.request("DELETE", f"/v1/tokens/{mine}").status == 204
    answer = server.request("DELETE", "/v1/tokens/other", token=other)
    assert answer.status == 409 and "last admin token" in answer.json["detail"]
    assert server.request("DELETE", "/v1/tokens/reader", token=other).status == 204
    assert server.request("GET", "/v1/tokens", token=other).status == 200
    assert run("token", "revoke", "other", "--database", database).returncode == 0
    wait_until(lambda: server.request("GET", "/v1/tokens", token=other).status == 401, 20, "the server to see it")


def test_of_two_admins_that_revoke_each_other_one_stays(server, database, postgres):
    tokens = {name: harness.make_token(database, name, "admin") for name in ("a", "b")}
    mine = next(i["name"] for i in server.items("/v1/tokens") if i["name"] not in tokens)
    assert server.request("DELETE", f"/v1/tokens/{mine}", token=tokens["a"]).status == 204
    assert server.request("GET", "/v1/tokens", token=tokens["b"]).status == 200
    answers = {}
    threads = [threading.Thread(target=lambda m=m, o=o: answers.update({m: server.request("DELETE", f"/v1/tokens/{o}", token=tokens[m]).status}))
               for m, o in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(answers.values()).count(204) == 1, answers
    live = postgres.sql("select count(*) from tokens where role = 'admin' and revoked_at is null", conninfo=database)
    assert live == "1"


@pytest.mark.parametrize("n", [33, 250, 300, 1000, 2000])
def test_many_query_arguments_are_answered_at_once(server, n):
    target = b"/healthz?" + b"&".join(b"a%d=1" % i for i in range(n))
    answer = exchange(server.port, b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n" + CLOSE)
    assert statuses(answer) == [400] and b"more than 32" in answer


def test_every_server_counts_each_live_agent_once(start, database):
    servers = [start(harness.Server, database, options=("--heartbeat-ms", "1000")) for _ in range(2)]
    agents = [enrol(servers[i % 2]) for i in range(3)]

    def beat():
        for i, agent in enumerate(agents):
            servers[i % 2].request("POST", f"/v1/agents/{agent}/heartbeat", {"boot": "b"})
        return [metric(server, "wavetune_agents") for server in servers] == [3, 3]

    wait_until(beat, 10, "both to count three")
    wait_until(lambda: [metric(server, "wavetune_agents") for server in servers] == [0, 0], 30, "them to be lost")


# Waiting and stopping

def test_stopping_answers_all_waiting_requests(server):
    agent = enrol(server)
    waiting = [park(server, agent, i) for i in range(1000)]
    wait_until(lambda: metric(server, "wavetune_suspended") >= 1000, 30, "1,000 waiting agents")
    server.process.send_signal(signal.SIGTERM)
    answered = 0
    for connection in waiting:
        connection.settimeout(120)
        answered += connection.recv(4096).startswith(b"HTTP/1.1 503")
        connection.close()
    assert server.wait() == 0
    assert answered == 1000
    assert "fatal" not in server.messages


def test_clients_that_disconnect_while_they_wait_are_removed(server):
    agent = enrol(server)
    waiting = [park(server, agent, i) for i in range(50)]
    wait_until(lambda: metric(server, "wavetune_parked") >= 50, 10, "50 waiting agents")
    for connection in waiting:
        connection.close()
    wait_until(lambda: metric(server, "wavetune_suspended") == 0, 10, "all to be removed")


def test_a_database_that_stops_and_returns_gives_503_and_then_works(server, postgres):
    assert server.request("GET", "/v1/tokens").status == 200
    postgres.kill()
    wait_until(lambda: server.request("GET", "/readyz").status == 503, 15, "/readyz to say so")
    answer = server.request("GET", "/v1/tokens")
    assert answer.status == 503 and answer.headers["Retry-After"] == "1" and "away" in answer.json["detail"]
    assert server.request("GET", "/healthz").status == 200
    postgres.start()
    wait_until(lambda: server.request("GET", "/readyz").status == 200, 15, "/readyz to recover")
    assert server.request("GET", "/v1/tokens").status == 200


def test_a_connection_that_the_database_ended_costs_no_request(server, postgres):
    for _ in range(3):
        assert server.request("GET", "/v1/tokens").status == 200
        ended = postgres.sql("with theirs as materialized (select pid from pg_stat_activity where application_name = "
                             "'wavetune-server' and datname = current_database()) "
                             "select pid from theirs where pg_terminate_backend(pid)", conninfo=server.database).split()
        assert ended
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in ended), 20, "the connections to end")
        assert server.request("GET", "/v1/tokens").status == 200


def test_a_full_queue_is_503_and_counted(start, database):
    server = start(harness.Server, database, options=("--workers", "1", "--queue-max", "2"))
    assert server.request("GET", "/v1/kernels").status == 200
    session = Session(database)
    session.run("begin")
    session.run("lock table kernels in access exclusive mode")
    one = b"GET /v1/kernels HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + server.token.encode() + b"\r\n\r\n"
    connections = [socket.create_connection(("127.0.0.1", server.port), timeout=600)]
    connections[0].sendall(one)
    wait_until(lambda: metric(server, "wavetune_suspended") == 1 and metric(server, "wavetune_queue_length") == 0, 10,
               "the worker to have the first")
    for _ in range(7):
        connections.append(socket.create_connection(("127.0.0.1", server.port), timeout=600))
        connections[-1].sendall(one)
    wait_until(lambda: metric(server, "wavetune_queue_shed_total") == 5, 20, "requests beyond the queue to be refused")
    session.run("commit")
    session.close()
    found = sorted(statuses(c.recv(65536))[0] for c in connections)
    for connection in connections:
        connection.close()
    assert found == [200, 200, 200, 503, 503, 503, 503, 503]


# dev

class Dev(harness.Program):
    def __init__(self, folder, logs, options=()):
        super().__init__([SERVER, "dev", "--folder", folder, "--port", "0", "--json", *options], logs)

    def ready(self):
        def line():
            assert self.process.poll() is None, self.messages[-2000:]
            return self.output if "\n" in self.output else None

        self.facts = json.loads(wait_until(line, 60, "dev to be ready"))
        return self.facts


@pytest.fixture
def dev_folder():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="wt-dev-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def request(facts, path):
    with socket.create_connection(("127.0.0.1", int(facts["url"].rsplit(":", 1)[1])), timeout=600) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {facts['token']}"
                           f"\r\n\r\n".encode())
        return statuses(connection.recv(65536))[0]


def test_dev_started_again_keeps_its_data_and_token(dev_folder, tmp_path):
    first = Dev(dev_folder / "a", tmp_path)
    facts = first.ready()
    assert request(facts, "/v1/kernels") == 200
    assert run("token", "make", "kept", "--database", facts["database"]).returncode == 0
    assert oct((dev_folder / "a/token").stat().st_mode & 0o777) == "0o600"
    second = run("dev", "--folder", dev_folder / "a", "--port", "0")
    assert second.returncode == 2 and "another" in second.stderr
    assert first.stop(40) == 0
    third = Dev(dev_folder / "a", tmp_path)
    again = third.ready()
    assert again["token"] == facts["token"]
    assert "kept" in run("token", "list", "--database", again["database"]).stdout
    third.kill()
    fourth = Dev(dev_folder / "a", tmp_path)
    assert request(fourth.ready(), "/v1/kernels") == 200
    assert fourth.stop(40) == 0
    assert not (dev_folder / "a/data/postmaster.pid").exists()


def test_dev_ends_when_its_postgres_does_and_makes_a_new_token_for_a_revoked_one(dev_folder, tmp_path):
    first = Dev(dev_folder / "a", tmp_path)
    facts = first.ready()
    assert run("token", "revoke", "dev", "--database", facts["database"]).returncode == 0
    postmaster = int((dev_folder / "a/data/postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGQUIT)
    assert first.wait() == 70
    assert "PostgreSQL ended by itself" in first.messages and "report it: see CONTRIBUTING.md" in first.messages
    second = Dev(dev_folder / "a", tmp_path)
    assert second.ready()["token"] != facts["token"]
    assert request(second.facts, "/v1/kernels") == 200
    assert second.stop(40) == 0


def test_dev_accepts_a_folder_whose_path_is_too_long_for_a_socket(dev_folder, tmp_path):
    dev = Dev(dev_folder / ("long" * 30), tmp_path)
    facts = dev.ready()
    assert request(facts, "/healthz") == 200
    run_folder = re.search(r"host='([^']+)'", facts["database"]).group(1)
    assert len(run_folder) < 90
    assert dev.stop(40) == 0
    assert not pathlib.Path(run_folder).exists()


def test_dev_names_what_is_missing(dev_folder):
    done = run("dev", "--folder", dev_folder / "a", "--postgres-bin", dev_folder)
    assert done.returncode == 2 and "install the package" in done.stderr
    if os.geteuid() == 0:
        done = run("dev", "--folder", dev_folder / "a", "--user", "nobody-of-that-name")
        assert done.returncode == 2 and "--user" in done.stderr
        (dev_folder / "closed").mkdir(mode=0o700)
        done = run("dev", "--folder", dev_folder / "closed/b")
        assert done.returncode == 2 and f"chmod o+x {dev_folder / 'closed'}" in done.stderr
