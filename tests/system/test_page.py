"""What the web page is made of and reads: its files, what its token may do, the baselines of a device. The page itself is tested
in tests/browser/."""

import gzip

import harness
from hands import SMALL, hands, kernel, server, submit  # noqa: F401 (fixtures)


def test_files_of_the_page_have_a_strict_policy_and_an_entity_tag(server):
    for name in ("/", "/web/style.css", "/web/app.js", "/web/icon.svg", "/web/page_job.js"):
        plain = server.request("GET", name, token=None)
        headers = plain.headers
        assert plain.status == 200, name
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'" and policy["form-action"] == "'none'"
        assert all("unsafe" not in value and "*" not in value and "http" not in value for value in policy.values())
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
        packed = server.request("GET", name, token=None, headers={"Accept-Encoding": "br, gzip"})
        assert packed.headers["Content-Encoding"] == "gzip" and gzip.decompress(packed.body) == plain.body
        assert packed.headers["ETag"] != headers["ETag"] and packed.headers["Vary"] == "Accept-Encoding"
        for answer, more in ((plain, {}), (packed, {"Accept-Encoding": "gzip"})):
            again = server.request("GET", name, token=None, headers={"If-None-Match": answer.headers["ETag"], **more})
            assert again.status == 304 and again.body == b"" and "Content-Security-Policy" in again.headers
    source = (harness.SOURCE / "web/app.js").read_bytes()
    assert server.request("GET", "/web/app.js", token=None).body == source


def test_the_page_has_only_its_own_files(server):
    assert server.request("HEAD", "/", token=None).status == 200
    for name in ("/web/nothing.js", "/web/..%2Fmain.c", "/web/", "/web", "/index.html"):
        assert server.request("GET", name, token=None).status == 404, name
    assert server.request("POST", "/", b"{}", token=None).status == 405


def test_a_token_learns_what_it_may_do(server):
    tokens = {role: harness.make_token(server.database, f"a-{role}", role) for role in ("reader", "submitter", "demand", "agent")}
    tokens["publisher"] = harness.make_token(server.database, "pam", "publisher,submitter", "--channel", "stable", "--channel", "ci-*")
    own = server.get("/v1/token", token=tokens["publisher"])
    assert own["name"] == "pam" and set(own["role"].split(",")) == {"publisher", "submitter"} and own["channels"] == ["stable", "ci-*"]
    operations = [operation for methods in server.get("/openapi.json")["paths"].values() for operation in methods.values()]
    for name, token in tokens.items():
        own = server.get("/v1/token", token=token)
        allowed = {operation["operationId"] for operation in operations
                   if operation.get("security") == [] or set(own["role"].split(",")) & set(operation["x-roles"])}
        assert set(own["operations"]) == allowed, name
    assert "token_post" in server.get("/v1/token")["operations"] and "token_post" not in own["operations"]
    assert server.request("GET", "/v1/token", token=None).status == 401
    assert server.request("GET", "/v1/token", token="wt_wrong").status == 401


def test_the_baselines_of_a_device_are_those_of_its_leases(server, hands, submit, postgres):
    hand, other, job = hands("node1"), hands("node2"), submit(SMALL)
    hand.work(outcomes={2: "runtime"})
    path = f"/v1/agents/{hand.id}/devices/cpu0/baselines"
    found = server.get(path)
    assert found["rule"] == {"leases": 2, "history_min": 5, "history_max": 32, "share": 0.1, "spreads": 5}
    screen = found["items"][-1]  # newest first
    assert (screen["job"], screen["key"], screen["config"], screen["median_us"]) == (job, {"n": 64}, 0, 100.0)
    assert screen["outcomes"]["correct"] == 2 and screen["outcomes"]["runtime"] == 1 and screen["counts"] is True
    assert len(found["items"]) > 1 and len(server.get(f"{path}?limit=1")["items"]) == 1
    assert server.get(f"/v1/agents/{other.id}/devices/cpu0/baselines")["items"] == []
    # A history that began after them: they are shown, and not compared with.
    postgres.sql(f"update devices set history_since = now() where agent = '{hand.id}'", conninfo=server.database)
    assert {item["counts"] for item in server.get(path)["items"]} == {False}
    for wrong in (f"/v1/agents/{hand.id}/devices/cpu9/baselines", "/v1/agents/nobody/devices/cpu0/baselines"):
        assert server.request("GET", wrong).status == 404
    assert server.request("GET", f"{path}?limit=0").status == 422 and server.request("GET", f"{path}?after=1").status == 422
