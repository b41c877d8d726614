"""The limits of the HTTP API: authentication, invalid bodies and headers, and the document that describes the routes."""

import json
import re
import socket

import harness
import pytest
from harness import make_token

ROUTE_H = re.sub(r" \\\n +", " ", (harness.SOURCE / "server/http/route.h").read_text())
ROUTES = re.findall(r'ROUTE\((\w+), "(\w+)", "([^"]+)", (\w+), ROUTE_(\w+), ([^,]+), "([^"]+)"\)', ROUTE_H)
BYTES = {"0": 1, "KIB": 1024, "MIB": 1024 * 1024}
DIGEST = "sha256:" + "0" * 64
JSON_ROUTES = [(name, method, path) for name, method, path, _, _, limit, _ in ROUTES
               if limit.strip() != "0" and name != "blob_put"]
LIMITS = {name: int(limit.split(" * ")[0]) * BYTES[limit.split(" * ")[-1]] for name, _, _, _, _, limit, _ in ROUTES}


def concrete(path):
    return (path.replace("{digest}", DIGEST).replace("{hash}", DIGEST).replace("{format}", "json").replace("{name}", "nobody")
            .replace("{id}", "1"))


@pytest.fixture(scope="module")
def shared(postgres, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    database = postgres.database()
    server = harness.Server(database, folder)
    server.tokens = {role: make_token(database, role, role) for role in ("reader", "submitter", "agent")}
    yield server
    server.stop()


def test_the_table_of_routes_was_read():
    assert len(ROUTES) >= 35
    assert ROUTE_H.count("ROUTE(") - 2 <= len(ROUTES) + 2


def test_an_unknown_token_is_401_with_the_authentication_scheme(shared):
    answer = shared.request("GET", "/v1/jobs", token="wt_nobody")
    assert answer.status == 401 and answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_revoked_token_stops_working(shared):
    made = shared.request("POST", "/v1/tokens", {"name": "short", "role": "reader"})
    assert made.status == 201
    assert shared.request("GET", "/v1/jobs", token=made.json["token"]).status == 200
    assert shared.request("DELETE", "/v1/tokens/short").status in (200, 204)
    assert shared.request("GET", "/v1/jobs", token=made.json["token"]).status == 401


def test_a_token_made_elsewhere_works_at_once(shared):
    token = make_token(shared.database, "elsewhere", "reader")
    assert shared.request("GET", "/v1/jobs", token=token).status == 200


def test_tokens_are_hashed_at_rest(shared, postgres):
    dump = postgres.sql("select t::text from tokens t", conninfo=shared.database)
    assert dump
    for token in shared.tokens.values():
        assert token not in dump and token.removeprefix("wt_") not in dump


def alive(server):
    return server.request("GET", "/healthz", token=None).status == 200


BAD_BODIES = {
    "empty": b"",
    "not JSON": b"{",
    "two documents": b"{} {}",
    "a duplicate member": b'{"a": 1, "a": 2}',
    "nested deeply": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "nested arrays": b"[" * 40 + b"]" * 40,
    "NUL in a string": b'{"a": "\\u0000"}',
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "a number too large": b'{"a": 1e999}',
    "an integer too large": b'{"a": 99999999999999999999}',
    "an array": b"[]",
    "a string": b'"text"',
    "null": b"null",
    "a number": b"1",
    "an unknown member": b'{"no_such_member": 1}',
}


KIND_OF_STATUS = {400: "invalid", 401: "unauthenticated", 403: "forbidden", 404: "missing", 405: "invalid", 409: "conflict",
                  412: "precondition", 413: "too_large", 422: "invalid"}


@pytest.mark.parametrize("name,method,path", JSON_ROUTES)
def test_an_invalid_body_gets_a_problem_with_a_pointer_and_does_not_end_the_server(shared, name, method, path):
    for what, body in BAD_BODIES.items():
        answer = shared.request(method, concrete(path), body=body)
        assert 400 <= answer.status < 500, (what, answer)
        assert answer.headers["Content-Type"] == "application/problem+json", (what, answer)
        problem = answer.json
        assert problem["status"] == answer.status and isinstance(problem["pointer"], str) and problem["detail"], (what, problem)
        assert problem["kind"] == KIND_OF_STATUS[answer.status], (what, problem)
    assert alive(shared)


@pytest.mark.parametrize("name,method,path", JSON_ROUTES)
def test_an_oversized_body_gets_413_and_does_not_end_the_server(shared, name, method, path):
    for length in (max(LIMITS[name], 4 * BYTES["MIB"]) + 1, 1 << 40):  # too many to be read and discarded
        with socket.create_connection(("127.0.0.1", shared.port), timeout=600) as connection:
            connection.sendall(f"{method} {concrete(path)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {shared.token}\r\n"
                               f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode())
            status = connection.recv(65536).split(b" ")[1]
        assert status == b"413", (length, status)
    assert alive(shared)


SPACE = {"parameters": {"B": [1, 2]}}
JOB = {"kernel": DIGEST, "key": {}, "space": SPACE, "environment": {}}
WRONG_TYPES = {  # (method, path): (body, the expected pointer)
    "job key": ("POST", "/v1/jobs", {**JOB, "key": 1}, "/key"),
    "job kernel": ("POST", "/v1/jobs", {**JOB, "kernel": "sha1:00"}, "/kernel"),
    "job space": ("POST", "/v1/jobs", {**JOB, "space": []}, "/space"),
    "job priority": ("POST", "/v1/jobs", {**JOB, "priority": "high"}, "/priority"),
    "job unknown member": ("POST", "/v1/jobs", {**JOB, "colour": "red"}, "/colour"),
    "job environment member": ("POST", "/v1/jobs", {**JOB, "environment": {"gpu": 1}}, "/environment/gpu"),
    "batch": ("POST", "/v1/jobs", {"jobs": [{**JOB, "key": 1}]}, "/jobs/0/key"),
    "batch type": ("POST", "/v1/jobs", {"jobs": {}}, "/jobs"),
    "lease agent": ("POST", "/v1/leases", {"agent": 1, "device": "d", "nonce": "n"}, "/agent"),
    "lease wait": ("POST", "/v1/leases", {"agent": "a", "device": "d", "nonce": "n", "wait": -1}, "/wait"),
    "renew epoch": ("POST", "/v1/leases/1/renew", {"epoch": "x"}, "/epoch"),
    "results epoch": ("POST", "/v1/leases/1/results", {"epoch": "x", "measurements": []}, "/epoch"),
    "results measurement": ("POST", "/v1/leases/1/results", {"epoch": 1, "measurements": [1]}, "/measurements/0"),
    "results samples": ("POST", "/v1/leases/1/results", {"epoch": 1, "measurements": [
        {"seq": 1, "config": 0, "process": 0, "round": 0, "outcome": "correct", "timer": "t", "samples_us": [-1.0],
         "baseline_us": [1.0]}]}, "/measurements/0/samples_us/0"),
    "results outcome": ("POST", "/v1/leases/1/results", {"epoch": 1, "measurements": [
        {"seq": 1, "config": 0, "process": 0, "round": 0, "outcome": "splendid"}]}, "/measurements/0/outcome"),
    "agent devices": ("POST", "/v1/agents", {"boot": "b", "name": "n", "version": "1", "devices": {}}, "/devices"),
    "agent environment": ("POST", "/v1/agents", {"boot": "b", "name": "n", "version": "1", "devices": [
        {"device": "d", "backend": "cpu", "environment": {"cpu": "x"}, "facts": {}}]}, "/devices/0/environment"),
    "channel release": ("PUT", "/v1/channels/stable", {"release": "latest"}, "/release"),
    "release environment": ("POST", "/v1/releases", {"environment": 3}, "/environment"),
    "release pins": ("POST", "/v1/releases", {"environment": {}, "pins": [1]}, "/pins/0"),
    "token role": ("POST", "/v1/tokens", {"name": "x", "role": "king"}, "/role"),
}


@pytest.mark.parametrize("what", WRONG_TYPES)
def test_an_error_points_at_the_bad_member(shared, what):
    method, path, body, pointer = WRONG_TYPES[what]
    answer = shared.request(method, path, body)
    assert 400 <= answer.status < 500, answer
    assert answer.json["pointer"].startswith(pointer), answer.json


def test_errors_of_the_protocol_are_answered(shared):
    assert shared.request("GET", "/v1/nothing").status == 404
    wrong = shared.request("PATCH", "/v1/jobs", {})
    assert wrong.status == 405 and set(wrong.headers["Allow"].replace(" ", "").split(",")) >= {"GET", "POST"}
    assert shared.request("GET", "/v1/jobs?limit=0").status == 422
    assert shared.request("GET", "/v1/jobs?limit=ten").status == 422
    assert shared.request("GET", "/v1/jobs?colour=red").status == 422
    assert shared.request("GET", "/v1/jobs/0").status == 404
    assert shared.request("GET", "/v1/jobs/x").status in (404, 422)
    assert shared.request("GET", "/v1/jobs/99999999999999999999").status in (404, 422)


def test_a_problem_document_has_its_kind(shared):
    problems = [shared.request("GET", "/v1/nothing"), shared.request("PATCH", "/v1/jobs", {}),
                shared.request("GET", "/v1/jobs?limit=0"), shared.request("GET", "/v1/jobs", token="wt_wrong"),
                shared.request("POST", "/v1/kernels", {}, token=shared.tokens["reader"])]
    assert [answer.status for answer in problems] == [404, 405, 422, 401, 403]
    assert [answer.json["kind"] for answer in problems] == [KIND_OF_STATUS[answer.status] for answer in problems]


STRANGE_HEADS = {
    "two lengths": b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "length and chunks": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
                         b"2\r\n{}\r\n0\r\n\r\n",
    "two hosts": b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "NUL in the path": b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n",
    "dots in the path": b"GET /v1/jobs/%2e%2e/%ff HTTP/1.1\r\nHost: x\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x00\x00\r\n\r\n",
    "a long path": b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
}


@pytest.mark.parametrize("what", STRANGE_HEADS)
def test_malformed_headers_do_not_end_the_server(shared, what):
    with socket.create_connection(("127.0.0.1", shared.port), timeout=600) as connection:
        try:
            connection.sendall(STRANGE_HEADS[what])
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
        except OSError:  # reset, or closed before all was sent
            answer = b""
    assert answer == b"" or answer.split(b" ")[1][:1] == b"4", answer[:200]
    assert alive(shared)


def test_openapi_describes_the_routes_and_nothing_else(shared):
    document = shared.get("/openapi.json", token=None)
    assert document["openapi"].startswith("3.")
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods
                 if method in ("get", "put", "post", "delete", "head")}
    table = {(method, path) for _, method, path, *_ in ROUTES}
    assert described - {("HEAD", "/v1/blobs/{digest}")} == table
    for _, method, path, *rest in ROUTES:
        operation = document["paths"][path][method.lower()]
        assert operation["summary"] and operation["responses"]
        for parameter in re.findall(r"{(\w+)}", path):
            assert any(p["name"] == parameter and p["in"] == "path" for p in operation["parameters"]), (path, parameter)


def test_metrics_are_what_prometheus_reads(shared):
    text = shared.request("GET", "/metrics").body.decode()
    families = set()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            families.add(line.split()[2])
        elif not line.startswith("#"):
            assert re.fullmatch(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^}]*\})? [0-9.eE+-]+(inf|nan)?', line), line
            name = re.split(r"[{ ]", line)[0]
            assert any(name == f or name in (f + "_sum", f + "_count", f + "_bucket") for f in families), line
    for wanted in re.findall(r'COUNTER\(\w+, "(\w+)"', (harness.SOURCE / "server/counters.h").read_text()):
        assert wanted in families


def test_no_answer_is_for_shared_caches_or_another_type_than_its_own(shared):
    for path, status in (("/v1/kernels", 200), ("/v1/choices", 200), ("/v1/jobs/0", 404), ("/metrics", 200), ("/none", 404), ("/", 200)):
        answer = shared.request("GET", path)
        assert answer.status == status and answer.headers["X-Content-Type-Options"] == "nosniff", path
        assert "public" not in answer.headers.get("Cache-Control", ""), path
    assert shared.request("GET", "/v1/kernels", token="wt_" + "0" * 64).headers["X-Content-Type-Options"] == "nosniff"


def test_blobs_are_checked_ranged_and_immutable(shared):
    import hashlib

    content = bytes(range(256)) * 3000
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    path = f"/v1/blobs/{digest}"
    assert shared.request("PUT", path, content + b"x").status == 422
    assert shared.request("GET", path).status == 404
    assert shared.request("PUT", path, content).status == 201
    assert shared.request("PUT", path, content).status == 200
    whole = shared.request("GET", path)
    assert whole.body == content and whole.headers["Cache-Control"] == "private, max-age=31536000, immutable"
    assert shared.request("GET", path, headers={"If-None-Match": whole.headers["ETag"]}).status == 304
    part = shared.request("GET", path, headers={"Range": "bytes=100-199"})
    assert part.status == 206 and part.body == content[100:200]
    assert part.headers["Content-Range"] == f"bytes 100-199/{len(content)}"
    tail = shared.request("GET", path, headers={"Range": "bytes=-5"})
    assert tail.status == 206 and tail.body == content[-5:]
    assert shared.request("GET", path, headers={"Range": f"bytes={len(content)}-"}).status == 416
    head = shared.request("HEAD", path)
    assert head.status == 200 and head.body == b"" and head.headers["Content-Length"] == str(len(content))


def test_kernels_name_the_blobs_that_are_missing(shared):
    manifest = {"name": "k", "language": "c", "entry": "k", "sources": [{"path": "k.c", "digest": DIGEST}], "key": ["n"],
                "arguments": [{"name": "y", "dtype": "float32", "shape": ["n"], "access": "write"}],
                "reference": {"source": {"path": "r.c", "digest": DIGEST}, "outputs": {"y": "y_at"}, "rtol": 0, "atol": 0}}
    answer = shared.request("POST", "/v1/kernels", manifest)
    assert answer.status == 409 and answer.json["missing"] == [DIGEST]


def test_missing_blobs_are_named_in_the_order_of_the_request(shared):
    digests = [f"sha256:{i * 7919 % 97:064x}" for i in range(1, 33)]
    manifest = {"name": "k", "language": "c", "entry": "k", "key": ["n"],
                "sources": [{"path": f"{i:02}.c", "digest": digest} for i, digest in enumerate(digests)],
                "arguments": [{"name": "y", "dtype": "float32", "shape": ["n"], "access": "write"}],
                "reference": {"source": {"path": "r.c", "digest": DIGEST}, "outputs": {"y": "y_at"}, "rtol": 0, "atol": 0}}
    missing = shared.request("POST", "/v1/kernels", manifest).json["missing"]
    assert [digest for digest in missing if digest != DIGEST] == digests


def test_channels_move_by_compare_and_set(shared, postgres):
    """Without a release there is nothing to move to; with If-Match a lost race is 412 (more in test_main_job)."""
    assert shared.request("PUT", "/v1/channels/stable", {"release": DIGEST}).status in (404, 422)
    assert shared.request("PUT", "/v1/channels/Not%20A%20Name", {"release": DIGEST}).status in (404, 422)
