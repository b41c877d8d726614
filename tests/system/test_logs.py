"""Logs and ids of requests: each answer has an id, the log names it, each line of a JSON log is an object, and no log contains
a token."""

import hashlib
import json
import re
import socket
import subprocess
import threading

import harness
import pytest
from harness import BUILD, wait_until, wavetune
from test_interleavings import Session

MADE = re.compile(r"[0-9a-hjkmnp-tv-z]{4}(-[0-9a-hjkmnp-tv-z]{4}){3}")
JSON = ("--log-format", "json")


class JsonServer(harness.Server):
    """One whose log is JSON, and that prints nothing else."""

    def _wait_ready(self):
        self.url = wait_until(lambda: next((line["url"] for line in lines(self) if line["message"] == "listening"), None), 30,
                              "the line with the address")
        wait_until(lambda: self.request("GET", "/readyz").status == 200, 20, "/readyz")
        return self.url


def lines(program):
    """Its log so far, each whole line an object of strict UTF-8 without a member twice."""
    def once(pairs):
        assert len(dict(pairs)) == len(pairs), pairs
        return dict(pairs)

    with open(program.log.name, "rb") as file:
        whole = file.read().rpartition(b"\n")[0]
    return [json.loads(line.decode("utf-8"), object_pairs_hook=once) for line in whole.split(b"\n") if whole]


def of_request(program, request):
    return [line for line in lines(program) if line.get("request") == request]


def raw(port, text):
    with socket.create_connection(("127.0.0.1", port), timeout=600) as connection:
        connection.sendall(text)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


@pytest.fixture(scope="module")
def all_logged(postgres, tmp_path_factory):
    server = JsonServer(postgres.database(), tmp_path_factory.mktemp("server"), options=(*JSON, "--log-requests", "all"))
    yield server
    server.stop()


@pytest.mark.parametrize("method,path,status", [
    ("GET", "/healthz", 200), ("GET", "/openapi.json", 200), ("GET", "/v1/jobs", 200), ("GET", "/v1/nowhere", 404),
    ("PATCH", "/v1/jobs", 405), ("POST", "/v1/jobs", 400), ("GET", "/v1/jobs/x", 404), ("GET", "/v1/jobs?limit=0", 422),
    ("GET", "/%zz", 400), ("HEAD", "/v1/jobs", 200), ("DELETE", "/v1/tokens/nobody", 404)])
def test_each_answer_has_an_id_of_its_own_and_a_line(all_logged, method, path, status):
    one, two = (all_logged.request(method, path) for _ in range(2))
    assert one.status == two.status == status
    ids = one.headers["X-Request-Id"], two.headers["X-Request-Id"]
    assert all(MADE.fullmatch(id) for id in ids) and ids[0] != ids[1]
    if one.body and one.headers["Content-Type"] == "application/problem+json":
        assert one.json["request"] == ids[0]
    line, = of_request(all_logged, ids[0])
    assert line["component"] == "http" and line["message"] == "request" and line["method"] == method
    assert line["status"] == status and line["bytes"] == len(one.body) and line["peer"] == "127.0.0.1"
    assert isinstance(line["ms"], float) and line["ms"] >= 0 and line["waited_ms"] == 0 and line["level"] == "info"
    assert ("path" in line) == (path != "/%zz" and path != "/v1/nowhere" and method != "PATCH")


def test_a_line_has_the_paths_template_and_the_tokens_name_but_not_the_token(all_logged):
    answer = all_logged.request("GET", "/v1/releases/sha256:" + "7" * 64 + "?secret=1")
    line, = of_request(all_logged, answer.headers["X-Request-Id"])
    assert line["path"] == "/v1/releases/{digest}" and line["token"].startswith("admin-")
    with open(all_logged.log.name) as file:
        text = file.read()
    assert all_logged.token not in text and "7777" not in text and "secret" not in text


def test_cached_answers_have_ids_of_their_own_too(all_logged):
    body = {"format": "json", "environment": {"gpu": "x"}, "kernels": [
        {"manifest": {"name": "k", "language": "external", "key": ["n"],
                      "exports": {"dejavu": {"function": "f"}}}, "entries": [{"key": {"n": 1}, "config": {"B": 1}}]}]}
    imported = all_logged.request("POST", "/v1/imports", body)
    assert imported.status == 201, imported
    made = all_logged.request("POST", "/v1/releases", {"environment": {"gpu": "x"}})
    assert made.status == 201, made
    path = f"/v1/releases/{made.json['release']}"
    before = all_logged.request("GET", path)
    for headers, status in ({}, 200), ({"If-None-Match": before.headers["ETag"]}, 304), ({"X-Request-Id": "mine"}, 200):
        from_memory = re.compile(r"responses_from_memory_total (\d+)")
        n = from_memory.search(all_logged.request("GET", "/metrics").body.decode())[1]
        answer = all_logged.request("GET", path, headers=headers)
        assert int(from_memory.search(all_logged.request("GET", "/metrics").body.decode())[1]) == int(n) + 1
        assert answer.status == status and answer.headers["ETag"] == before.headers["ETag"]
        assert answer.body == (before.body if status == 200 else b"")
        assert answer.headers["X-Request-Id"] == headers.get("X-Request-Id", answer.headers["X-Request-Id"])
        line, = of_request(all_logged, answer.headers["X-Request-Id"])
        assert line["path"] == "/v1/releases/{digest}" and line["status"] == status and line["bytes"] == len(answer.body)


@pytest.mark.parametrize("id", ["5f1c4e0a9b7d4f6a", "7F000001:A3B2_0001:1F90-65a1.c", "a" * 64])
def test_an_id_that_a_caller_or_proxy_made_is_kept(all_logged, id):
    answer = all_logged.request("GET", "/v1/jobs/none", headers={"x-request-id": id})
    assert answer.headers["X-Request-Id"] == answer.json["request"] == id
    assert of_request(all_logged, id)[0]["status"] == 404


@pytest.mark.parametrize("id", ["a" * 65, "a b", 'a"b', "a=b", "a,b", "", "ä", "a\x1b[2J", "{}", "wt_5f1c4e0a"])
def test_an_id_that_is_malformed_is_replaced(all_logged, id):
    text = b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: " + id.encode() + b"\r\n\r\n"
    received = raw(all_logged.port, text)
    assert b"401" in received.split(b"\r\n")[0]
    id_there = re.search(rb"X-Request-Id: (.*)\r\n", received)[1].decode()
    assert MADE.fullmatch(id_there) and json.loads(received.split(b"\r\n\r\n", 1)[1])["request"] == id_there


def test_an_id_that_is_repeated_is_replaced(all_logged):
    received = raw(all_logged.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: one\r\n"
                                    b"X-Request-Id: two\r\n\r\n")
    assert MADE.fullmatch(re.search(rb"X-Request-Id: (.*)\r\n", received)[1].decode())


def test_a_keep_alive_connection_gets_an_id_for_each_request(all_logged):
    received = raw(all_logged.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: first\r\n\r\n"
                                    b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    one, two = re.findall(rb"X-Request-Id: (.*)\r\n", received)
    assert one == b"first" and MADE.fullmatch(two.decode())


def test_pages_of_the_http_library_have_no_id(all_logged):
    """What it refuses before this program sees it: documented in docs/api.md."""
    received = raw(all_logged.port, b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40000 + b"\r\n\r\n")
    assert re.match(rb"HTTP/1\.1 4\d\d", received) and b"X-Request-Id" not in received


def test_lines_that_a_request_causes_have_its_id(all_logged):
    made = all_logged.request("POST", "/v1/tokens", {"name": "watched", "role": "reader"}, headers={"X-Request-Id": "making"})
    assert made.status == 201
    about, answered = of_request(all_logged, "making")
    assert about["component"] == "token" and "watched" in about["message"] and answered["status"] == 201
    assert not any(line.get("request") for line in lines(all_logged) if line["component"] == "server")


def metric(server, name):
    found = re.search(rf"^{re.escape(name)} (\S+)$", server.request("GET", "/metrics").body.decode(), re.MULTILINE)
    return float(found[1]) if found else 0


def test_answers_are_counted_by_route_and_status(server):
    for status, path in (200, "/v1/agents"), (422, "/v1/agents?limit=0"), (404, "/v1/nowhere"):
        for _ in range(3):
            assert server.request("GET", path).status == status
    server.request("BREW", "/v1/agents")
    assert metric(server, 'wavetune_http_answers_total{route="agent_list",status="200"}') == 3
    assert metric(server, 'wavetune_http_answers_total{route="agent_list",status="422"}') == 3
    assert metric(server, 'wavetune_http_answers_total{route="none",status="404"}') == 3
    assert metric(server, 'wavetune_http_answers_total{route="none",status="405"}') == 1
    assert metric(server, 'wavetune_http_work_seconds_count{route="agent_list"}') == 6
    assert metric(server, 'wavetune_http_work_seconds_bucket{route="agent_list",le="+Inf"}') == 6
    assert 0 < metric(server, 'wavetune_http_work_seconds_sum{route="agent_list"}') < 60


def test_a_histogram_counts_work_not_waiting(server):
    agent = server.request("POST", "/v1/agents", {"boot": "b", "name": "n", "version": "1", "devices": [
        {"device": "cpu0", "backend": "cpu", "facts": {}, "environment": {
            "cpu": "gcc 12", "gpu": "test", "arch": "x86_64", "compute_units": 1, "partition": ""}}]}).json["agent"]
    poll = {"agent": agent, "device": "cpu0", "nonce": "1", "wait": 3}
    assert server.request("POST", "/v1/leases", poll).status == 204
    assert metric(server, 'wavetune_http_answers_total{route="lease_post",status="204"}') == 1
    assert metric(server, 'wavetune_http_work_seconds_sum{route="lease_post"}') < 2
    assert "http: request" not in server.messages, "waiting is not slow"


def test_refused_tokens_are_counted_by_reason(server, database):
    reader = harness.make_token(database, "reader", "reader")
    for token, reason in (None, "missing"), ("wt_wrong", "unknown"), ("wt_wrong", "unknown"), (reader, "role"):
        server.request("GET", "/v1/tokens", token=token)
    for reason, n in ("missing", 1), ("unknown", 2), ("role", 1), ("expired", 0), ("identity", 0):
        assert metric(server, f'wavetune_tokens_refused_total{{reason="{reason}"}}') == n, reason


def broken(server, table="jobs"):
    """A server whose statements on a table fail: its answers are 500."""
    session = Session(server.database)
    session.run(f"alter table {table} rename to elsewhere")
    session.close()


def test_by_default_only_errors_get_a_line_and_clients_name_the_request(server):
    for _ in range(20):
        server.request("GET", "/v1/agents")
        server.request("GET", "/v1/jobs", token="wt_wrong")
        server.request("GET", "/v1/jobs/none")
    assert "http: request" not in server.messages
    broken(server)
    answer = server.request("GET", "/v1/jobs")
    assert answer.status == 500
    about, request = [line for line in server.messages.splitlines() if f"request={answer.json['request']}" in line]
    assert " error request: " in about and "jobs" in about
    assert re.search(r" warning http: request method=GET path=/v1/jobs status=500 ms=\d+\.\d+ waited_ms=0 bytes=\d+ "
                     r"token=admin-\d+ peer=127\.0\.0\.1 request=\S+$", request)

    done = wavetune(server, "jobs", check=False)
    named = re.search(r"\(request (\S+)\)", done.stderr)
    assert done.returncode == 3 and named and f"request={named[1]}" in server.messages
    done = wavetune(server, "jobs", check=False, token="wt_wrong")
    assert done.returncode == 4 and "(request" not in done.stderr, "a refusal is the caller's fault"


def test_off_is_silent(start, database):
    server = start(harness.Server, database, options=("--log-requests", "off"))
    broken(server)
    assert server.request("GET", "/v1/jobs").status == 500
    assert "http: request" not in server.messages and "request: " in server.messages


def test_an_agent_names_the_request_that_failed(server, start):
    agent = start(harness.Agent, server, name="a")
    wait_until(lambda: "enrolled" in agent.messages, 30, "the enrolment")
    broken(server, "leases")
    named = wait_until(lambda: re.search(r"answered 500 to \S+ \S+: .*\(request (\S+)\)", agent.messages), 60, "a failure")
    assert f"request={named[1]}" in server.messages


def test_the_python_programs_name_the_request_that_failed(server, tmp_path):
    broken(server, "images")
    text = '{"gpu":"x","version":1}'
    program = ("import os, sys; sys.path.insert(0, sys.argv[1]); from wavetune._pack.identity import put_identity\n"
               "put_identity(sys.argv[2], sys.argv[3], dict(os.environ))")
    digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    done = subprocess.run(["python3", "-c", program, harness.SOURCE / "python", text, digest], capture_output=True, text=True, timeout=600,
                          env={"PATH": "/usr/bin:/bin", "WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": server.token})
    named = re.search(r'answered 5\d\d: .*"request":"([^"]+)"', done.stderr)
    assert named and f"request={named[1]}" in server.messages, done.stderr


def test_slow_requests_get_a_line(server, database):
    session = Session(database)
    session.run("begin")
    session.run("lock table jobs")
    answers = []
    asking = threading.Thread(target=lambda: answers.append(server.request("GET", "/v1/jobs")))
    asking.start()
    session.run("select pg_sleep(1.5)")
    session.run("commit")
    asking.join(300)
    session.close()
    assert answers[0].status == 200
    slow, = [line for line in server.messages.splitlines() if "http: request" in line]
    assert " info http: request method=GET path=/v1/jobs status=200 ms=" in slow and answers[0].headers["X-Request-Id"] in slow


def test_a_flood_of_errors_does_not_flood_the_log(server):
    broken(server)
    for _ in range(400):
        assert server.request("GET", "/v1/jobs").status == 500
    left_out = metric(server, "wavetune_log_request_lines_left_out_total")
    assert left_out > 0 and server.messages.count("http: request ") == 400 - left_out


def test_an_ending_server_does_not_log_waiting_requests(server):
    agent = server.request("POST", "/v1/agents", {"boot": "b", "name": "n", "version": "1", "devices": [
        {"device": "cpu0", "backend": "cpu", "facts": {}, "environment": {
            "cpu": "gcc 12", "gpu": "test", "arch": "x86_64", "compute_units": 1, "partition": ""}}]}).json["agent"]
    answers = []
    asking = threading.Thread(target=lambda: answers.append(server.request("POST", "/v1/leases", {
        "agent": agent, "device": "cpu0", "nonce": "1", "wait": 60})))
    asking.start()
    wait_until(lambda: metric(server, "wavetune_parked") == 1, 30, "the request to wait")
    assert server.stop() == 0
    asking.join(300)
    assert answers[0].status == 503 and MADE.fullmatch(answers[0].json["request"])
    assert "http: request" not in server.messages


JUNK = r'''
  static int has_printed;
  if (!has_printed) {
    static const char junk[] = "{\"level\":\"error\",\"message\":\"forged\"}\n\x1b[2J\x07 bell\n\xff\xfe\xc0\xaf no utf-8\n"
                               "\xed\xa0\x80 half \xe2\x82\nnul \0 behind\n\xc2\x9b c1 \xe2\x80\xa8 separator\nwt_nothing=1 time=2\n";
    char line[6000];
    memset(line, '\x01', sizeof line);
    has_printed = write(2, junk, sizeof junk - 1) > 0 && write(1, line, sizeof line) > 0;
  }
'''


def junk_kernel(folder):
    """Prints bytes that no log may contain unchanged."""
    harness.small_kernel(folder)
    source = folder / "quick.c"
    source.write_text("#include <string.h>\n#include <unistd.h>\n" +
                      source.read_text().replace("  for (int repeat", JUNK + "  for (int repeat", 1))
    return folder


def test_the_logs_of_a_campaign_are_json_line_by_line_and_hold_no_token(start, database, tmp_path):
    server = start(JsonServer, database, options=(*JSON, "--log-requests", "all", "--require-enrolment"))
    token = server.request("POST", "/v1/tokens", {"name": "nodes", "role": "enrol"}).json["token"]
    agent = start(harness.Agent, server, name='a "b"', token=token, environment={"WAVETUNE_LOG_FORMAT": "json"})
    wait_until(lambda: server.items("/v1/agents"), 60, "the agent")
    wavetune(server, "submit", junk_kernel(tmp_path / "junk"), "--key", "n=1000", "--wait")
    own = (agent.state / "token").read_text().split()[0]
    assert agent.stop() == 0 and server.stop() == 0
    assert server.output == "" and agent.output == ""

    of_server, of_agent = lines(server), lines(agent)
    for line in of_server + of_agent:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) and isinstance(line["message"], str)
        assert line["level"] in ("error", "warning", "info", "debug")
    assert {line["program"] for line in of_server} == {"wavetune-server"}
    assert {line["program"] for line in of_agent} == {"wavetune-agent"}
    for program in server, agent:
        assert not any(secret in program.messages for secret in (server.token, token, own))

    worker = [line for line in of_agent if line.get("component") == "worker"]
    printed = [line["message"] for line in worker]
    assert '{"level":"error","message":"forged"}' in printed and "\x1b[2J\x07 bell" in printed
    assert "\ufffd\ufffd\ufffd\ufffd no utf-8" in printed and "\x9b c1 \u2028 separator" in printed
    assert any("behind" in text for text in printed), "the text after a NUL is logged"
    assert all(isinstance(line["pid"], int) and line["level"] == "info" for line in worker)
    assert not any(line["message"] == "forged" for line in of_agent)

    began = next(line for line in of_agent if line["message"] == "began")
    assert began["component"] == "lease" and began["kernel"] == "quick/c" and isinstance(began["lease"], str)
    assert isinstance(began["configs"], int) and began["device"] == "cpu0"
    queued = next(line for line in of_server if line["message"] == "queued")
    assert queued["component"] == "job" and queued["job"] == began["job"]
    submitted, = [line for line in of_request(server, queued["request"]) if line["component"] == "http"]
    assert submitted["path"] == "/v1/jobs" and submitted["method"] == "POST" and submitted["status"] == 201
    enrolled = next(line for line in of_server if line["message"] == "enrolled")
    assert enrolled["name"] == 'a "b"' and enrolled["request"]


def test_the_format_comes_from_a_configuration_file_too(tmp_path):
    (tmp_path / "config.json").write_text('{"log_format": "json", "log_requests": "off"}')
    done = subprocess.run([BUILD / "wavetune-server", "serve", "--database", "dbname=x", "--port", "0", "--listen", "nowhere",
                           "--config", tmp_path / "config.json"], capture_output=True, text=True, timeout=600)
    line = json.loads(done.stderr)
    assert done.returncode == 2 and line["level"] == "error" and "cannot listen" in line["message"] and done.stdout == ""


@pytest.mark.parametrize("program,command", [("wavetune-server", "serve"), ("wavetune-server", "dev"), ("wavetune-server", "migrate"),
                                             ("wavetune-agent", "run"), ("wavetune-agent", "tune")])
def test_an_unknown_format_is_refused_with_the_known_ones(program, command):
    done = subprocess.run([BUILD / program, command, "--log-format", "xml"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and '--log-format "xml"' in done.stderr and "text or json" in done.stderr


def test_an_unknown_choice_of_requests_is_refused():
    done = subprocess.run([BUILD / "wavetune-server", "serve", "--database", "dbname=x", "--log-requests", "some"],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and "off, errors or all" in done.stderr


def test_an_agent_that_cannot_start_logs_that_in_json(tmp_path):
    done = subprocess.run([BUILD / "wavetune-agent", "run", *JSON, "--state", tmp_path], capture_output=True, text=True,
                          timeout=600, env={"PATH": "/usr/bin:/bin"})
    line = json.loads(done.stderr)
    assert done.returncode == 2 and line["program"] == "wavetune-agent" and "--url" in line["message"]


def test_migrate_logs_in_json(postgres):
    done = subprocess.run([BUILD / "wavetune-server", "migrate", *JSON, "--database", postgres.database(migrated=False)],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and all(json.loads(line)["component"] == "migrate" for line in done.stderr.splitlines())
