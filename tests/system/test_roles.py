"""Which roles may call which operations, as a live server answers and as its contract states."""

import http.client

import hands
import harness
import pytest
from harness import make_token, wait_until

ROLES = ("reader", "demand", "cache-writer", "submitter", "builder", "publisher", "agent", "enrol", "operator", "admin")
OPTIONS = {"publisher": ("--channel", "stable", "--channel", "test-*")}
DIGEST = "sha256:" + "0" * 64


def role_tokens(database):
    return {role: make_token(database, f"of-{role}", role, *OPTIONS.get(role, ())) for role in ROLES}


def operations(server):
    paths = server.request("GET", "/openapi.json", token=None).json["paths"]
    return [(method.upper(), path, operation) for path, methods in paths.items() for method, operation in methods.items()]


def may(server, method, path, token):
    """True, False, or None for 401. A request that is refused for another reason than the role was let in."""
    concrete = path
    for name, value in {"{digest}": DIGEST, "{hash}": DIGEST, "{format}": "json", "{name}": "nobody", "{id}": "1"}.items():
        concrete = concrete.replace(name, value)
    answer = server.request(method, concrete, body=b"{}" if method in ("POST", "PUT") else None, token=token)
    if answer.status == 401:
        return None
    refused = answer.status == 403 and " needs the role " in answer.json["detail"]
    if refused:
        assert answer.headers["Content-Type"] == "application/problem+json" and answer.json["pointer"] == ""
    return not refused


def matrix(server, tokens):
    """{"GET /v1/jobs": {None: 401, "reader": True, …}} of every operation as each caller."""
    callers = {None: None, "garbage": "wt_garbage"} | tokens
    return {f"{method} {path}": {caller: may(server, method, path, token) for caller, token in callers.items()}
            for method, path, _ in operations(server)}


@pytest.fixture(scope="module")
def shared(postgres, tmp_path_factory):
    database = postgres.database()
    server = harness.Server(database, tmp_path_factory.mktemp("server"))
    server.tokens = role_tokens(database)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def found(shared):
    return matrix(shared, shared.tokens)


def test_the_contract_lists_the_roles_of_each_operation(shared, found):
    for method, path, operation in operations(shared):
        callers = found[f"{method} {path}"]
        allowed = [role for role in ROLES if callers[role]]
        if "security" in operation:
            assert operation["security"] == [] and allowed == [*ROLES] and callers[None] and callers["garbage"]
        else:
            assert allowed == operation["x-roles"], (method, path)
            assert callers[None] is None and callers["garbage"] is None, (method, path)


def test_no_role_is_empty_and_an_admin_may_call_everything(found):
    for role in ROLES:
        assert any(callers[role] and callers[None] is None for callers in found.values()), role
    assert all(callers["admin"] for callers in found.values())


def test_older_roles_keep_their_rights(found):
    """Tokens of existing databases: what their roles had is still theirs, and no more but signatures of code and reading the audit."""
    readers = {o for o, callers in found.items() if callers["reader"]}
    assert {o for o, c in found.items() if c["submitter"]} - readers == {
        "PUT /v1/blobs/{digest}", "POST /v1/kernels", "PUT /v1/kernels/{hash}/builds/{digest}", "POST /v1/jobs",
        "DELETE /v1/jobs/{id}", "POST /v1/jobs/cancel", "POST /v1/jobs/retry", "POST /v1/releases", "POST /v1/imports", "PUT /v1/images/{digest}", "POST /v1/demand/queue", "POST /v1/captures/tune",
        "GET /v1/policy", "PUT /v1/policy", "GET /v1/policies", "DELETE /v1/policies/{id}", "GET /v1/policy/suggestions", "POST /v1/policy/run",
        "POST /v1/kernels/{hash}/signatures", "POST /v1/kernels/{hash}/builds/{digest}/signatures"}
    of_anyone = {o for o, callers in found.items() if callers[None]} | {"GET /v1/token"}  # every token reads what it may do
    assert {o for o, c in found.items() if c["demand"]} - of_anyone == {
        "POST /v1/demand", "POST /v1/counters", "PUT /v1/remote/triton/{folder}/group/{file}",
        "PUT /v1/remote/triton/{folder}/{file}", "PUT /v1/remote/inductor/{key}", "PUT /v1/remote/helion/{key}",
        "POST /v1/captures", "GET /v1/captures/{id}", "DELETE /v1/captures/{id}"}
    assert {o for o, c in found.items() if c["enrol"]} - of_anyone == {"POST /v1/agents"}
    assert {o for o, c in found.items() if c["agent"]} - of_anyone == {
        "PUT /v1/blobs/{digest}", "GET /v1/blobs/{digest}", "GET /v1/kernels", "GET /v1/kernels/{hash}",
        "GET /v1/kernels/{hash}/builds", "GET /v1/kernels/{hash}/builds/{digest}", "POST /v1/agents",
        "POST /v1/agents/{id}/heartbeat", "POST /v1/agents/{id}/end", "POST /v1/agents/{id}/token", "POST /v1/leases", "POST /v1/leases/{id}/renew",
        "POST /v1/leases/{id}/results", "POST /v1/leases/{id}/release"}
    reading = {o for o in found if o.startswith("GET ")} | {"POST /v1/choices", "POST /v1/jobs/progress"}  # too long for a URL
    assert readers - of_anyone == reading - of_anyone - {
        "GET /v1/tokens", "GET /v1/audit", "GET /v1/policy", "GET /v1/policies", "GET /v1/policy/suggestions"}


def test_a_token_may_have_several_roles(shared):
    token = make_token(shared.database, "ci", "submitter,publisher", "--channel", "stable")
    listed = {item["name"]: item for item in shared.items("/v1/tokens")}["ci"]
    assert (listed["role"], listed["channels"]) == ("submitter,publisher", ["stable"])
    for method, path in (("POST", "/v1/jobs"), ("PUT", "/v1/channels/stable"), ("POST", "/v1/kernels")):
        assert may(shared, method, path, token), path
    assert not may(shared, "POST", "/v1/gc", token)
    refused = shared.request("POST", "/v1/gc", {}, token=token)
    assert "role operator or admin" in refused.json["detail"]
    assert 'has the role submitter,publisher' in refused.json["detail"]


@pytest.mark.parametrize("role", ["agent,enrol", "admin,reader", "reader,agent", "reader,reader", "reader,", "", "king"])
def test_unknown_and_incompatible_roles_are_refused(shared, role):
    answer = shared.request("POST", "/v1/tokens", {"name": "wrong", "role": role})
    assert answer.status == 422 and answer.json["pointer"] == "/role", answer


@pytest.mark.parametrize("terms,pointer", [
    ({"role": "publisher"}, "/channels"), ({"role": "publisher", "channels": []}, "/channels"),
    ({"role": "submitter", "channels": ["stable"]}, "/channels"), ({"role": "publisher", "channels": ["Stable"]}, "/channels/0"),
    ({"role": "publisher", "channels": ["a", 7]}, "/channels/1"), ({"role": "publisher", "channels": [""]}, "/channels/0"),
    ({"role": "publisher", "channels": ["a"] * 65}, "/channels"), ({"role": "publisher", "channels": "stable"}, "/channels")])
def test_only_a_publishers_token_names_channels(shared, terms, pointer):
    answer = shared.request("POST", "/v1/tokens", {"name": "wrong"} | terms)
    assert answer.status == 422 and answer.json["pointer"] == pointer, answer


def test_an_empty_list_of_channels_names_none(shared):
    answer = shared.request("POST", "/v1/tokens", {"name": "no-channels", "role": "reader", "channels": []})
    assert answer.status == 201, answer
    assert next(t for t in shared.items("/v1/tokens") if t["name"] == "no-channels")["channels"] is None


def test_a_publisher_moves_and_signs_the_channels_that_its_token_names_alone(shared):
    body = {"release": DIGEST}
    signature = {"environment": {"cpu": "gcc"}, "counter": 1,
                 "signature": {"key": DIGEST, "signature": "A" * 86 + "=="}}
    token = shared.tokens["publisher"]
    for channel, allowed in (("stable", True), ("test-7", True), ("test", False), ("stable-2", False), ("production", False)):
        moved = shared.request("PUT", f"/v1/channels/{channel}", body, token=token)
        signed = shared.request("POST", f"/v1/channels/{channel}/signatures", signature, token=token)
        assert (moved.status == 422, moved.status == 403) == (allowed, not allowed), (channel, moved)
        assert (signed.status == 404, signed.status == 403) == (allowed, not allowed), (channel, signed)
        if not allowed:
            assert all(word in moved.json["detail"] for word in ('"of-publisher"', "stable,test-*", f'"{channel}"'))
    assert shared.request("PUT", "/v1/channels/production", body).status == 422, "an admin may"


def expiring(server, role):
    body = {"name": f"short-{role}", "role": role, "expires": "3s"} | ({"channels": ["x"]} if role == "publisher" else {})
    return server.request("POST", "/v1/tokens", body).json["token"]


def test_a_token_of_any_role_expires_at_its_time_also_on_an_open_connection(server):
    paths = {"demand": ("POST", "/v1/demand"), "enrol": ("POST", "/v1/agents"), "agent": ("GET", "/v1/kernels")}
    connections = {}
    for role in ROLES:
        token, (method, path) = expiring(server, role), paths.get(role, ("GET", "/v1/jobs"))
        connections[role] = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600), method, path, token
    def status(role):
        connection, method, path, token = connections[role]
        connection.request(method, path, body=b"{}" if method == "POST" else None, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    assert {role: status(role)[0] for role in ROLES} == {role: 422 if role in ("demand", "enrol") else 200 for role in ROLES}
    for role in ROLES:
        wait_until(lambda: status(role)[0] == 401, 20, f"the token of the role {role} to end")
        assert b"has expired" in status(role)[1]
        connections[role][0].close()
    listed = {item["name"]: item["expires_at"] for item in server.items("/v1/tokens")}
    assert all(listed[f"short-{role}"] for role in ROLES)


def test_an_expired_token_gets_401_also_while_the_database_is_away(server, postgres):
    token = expiring(server, "reader")
    assert server.request("GET", "/v1/jobs", token=token).status == 200
    postgres.kill()
    try:
        wait_until(lambda: server.request("GET", "/v1/jobs", token=token).status == 401, 20, "the token to end")
        assert server.request("GET", "/v1/jobs").status == 503, "the others wait for the database"
    finally:
        postgres.start()


def waiting_poll(server, job, token, meanwhile):
    """What a long poll is answered that began before `meanwhile` was done."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    last = server.get(f"/v1/jobs/{job}/events")["next"]
    connection.request("GET", f"/v1/jobs/{job}/events?after={last}&wait=30", headers={"Authorization": f"Bearer {token}"})
    wait_until(lambda: "wavetune_parked 1" in server.request("GET", "/metrics").body.decode(), 20, "the poll to wait")
    meanwhile()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def a_job(server):
    hands.Hand(server, "node")
    return server.request("POST", "/v1/jobs", {"kernel": hands.register(server), "key": {"n": 64}, "space": hands.SMALL,
                                               "environment": hands.ENVIRONMENT}).json["job"]


def test_a_long_poll_ends_with_its_token(server):
    job = a_job(server)
    status, body = waiting_poll(server, job, expiring(server, "reader"), lambda: None)
    assert status == 401 and b"expired" in body


def test_a_long_poll_of_a_revoked_token_does_not_continue_as_another_of_its_name(server):
    job = a_job(server)
    token = server.request("POST", "/v1/tokens", {"name": "guest", "role": "reader"}).json["token"]

    def again():
        assert server.request("DELETE", "/v1/tokens/guest").status == 204
        assert server.request("POST", "/v1/tokens", {"name": "guest", "role": "reader"}).status == 201

    assert waiting_poll(server, job, token, again)[0] == 401
