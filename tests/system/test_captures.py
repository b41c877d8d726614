"""Launches that programs recorded: posted by containers, read by those who may, leased to builders, removed."""

import json

import harness
import pytest
from harness import make_token, wavetune
from test_builds import canonical, sha

CLOSURE, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
ENVIRONMENT = {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X", "arch": "gfx942", "triton": "3.6.0"}
WISH = {"triton": "3.6.0", "arches": ["gfx942"]}


@pytest.fixture
def options():
    return ()


@pytest.fixture
def server(start, database, options):
    return start(harness.Server, database, options=(*harness.UNHURRIED, *options))


@pytest.fixture
def tokens(server, database):
    return {role: make_token(database, f"the-{role}", role) for role in ("demand", "reader", "builder", "operator")} | {
        "other": make_token(database, "other-container", "demand")}


def function(closure=CLOSURE, text="def f(): pass\n"):
    return {"version": 1, "closure": closure, "name": "package.module:f",
            "parts": [{"module": "package.module", "qualname": "f", "line": 1, "text": text}], "globals": [], "autotune": None}


def launch(n=64, closure=CLOSURE, **more):
    return {"version": 1, "closure": closure, "key": [str(n), "'torch.float16'"], "key_names": ["n"], "key_values": [n],
            "environment": ENVIRONMENT, "image": None, "triton": "3.6.0", "arguments": [], "configs": [], "refused": [], **more}


def post(server, token, functions=(), launches=()):
    return server.request("POST", "/v1/captures", {"functions": list(functions), "launches": list(launches)}, token=token)


def listed(server, token):
    return server.request("GET", "/v1/captures", token=token).json["items"]


def lease(server, token, **wish):
    return server.request("POST", "/v1/captures/leases", {**WISH, **wish}, token=token)


def results(server, token, *launches):
    return server.request("POST", "/v1/captures/results", {"launches": list(launches)}, token=token)


def test_a_launch_is_stored_once_and_counted(server, tokens):
    first = post(server, tokens["demand"], [function()], [launch(), launch(128)])
    assert (first.status, first.json) == (202, {"functions": 1, "launches": 2, "dropped": 0})
    assert post(server, tokens["demand"], [function()], [launch()]).json == {"functions": 1, "launches": 1, "dropped": 0}
    own, = listed(server, tokens["reader"])
    assert (own["closure"], own["name"], own["owner"]) == (CLOSURE, "package.module:f", "the-demand")
    assert {name: own[name] for name in ("keys", "waiting", "building", "built", "refused", "tuned", "why")} == {
        "keys": 2, "waiting": 2, "building": 0, "built": 0, "refused": 0, "tuned": 0, "why": None}
    found = server.request("GET", f"/v1/captures/{own['id']}", token=tokens["demand"]).json
    assert found["function"] == function()
    assert sorted((one["key"]["n"], one["seen"], one["state"]) for one in found["launches"]) == [
        (64, 2, "waiting"), (128, 1, "waiting")]


def test_a_launch_whose_function_is_not_there_is_dropped(server, tokens):
    assert post(server, tokens["demand"], [], [launch(closure=OTHER)]).json == {"functions": 0, "launches": 0, "dropped": 1}


def test_a_text_is_read_by_its_owner_builders_and_operators_only(server, tokens):
    post(server, tokens["demand"], [function()], [launch()])
    own, = listed(server, tokens["reader"])
    assert "text" not in json.dumps(own)
    may = {name: server.request("GET", f"/v1/captures/{own['id']}", token=token).status for name, token in tokens.items()}
    assert may == {"demand": 200, "builder": 200, "operator": 200, "reader": 404, "other": 404}


def test_a_capture_is_removed_by_its_owner_or_an_operator(server, tokens):
    for who in ("demand", "operator"):
        post(server, tokens["demand"], [function()], [launch()])
        own, = listed(server, tokens["reader"])
        assert server.request("DELETE", f"/v1/captures/{own['id']}", token=tokens["other"]).status == 404
        assert server.request("DELETE", f"/v1/captures/{own['id']}", token=tokens["reader"]).status == 403
        assert server.request("DELETE", f"/v1/captures/{own['id']}", token=tokens[who]).status == 204
        assert listed(server, tokens["reader"]) == []
    assert server.request("DELETE", "/v1/captures/1", token=tokens["operator"]).status == 404
    noted = server.request("GET", "/v1/audit?action=remove-capture", token=server.token).json["items"]
    assert [one["token"] for one in noted] == ["the-operator", "the-demand"]


def test_two_tokens_have_their_own_copies(server, tokens):
    post(server, tokens["demand"], [function()], [launch()])
    post(server, tokens["other"], [function()], [launch()])
    assert [one["owner"] for one in listed(server, tokens["reader"])] == ["the-demand", "other-container"]


@pytest.mark.parametrize("options", [("--captures-per-day", "2")])
def test_a_token_records_so_many_new_launches_in_a_day(server, tokens):
    assert post(server, tokens["demand"], [function()], [launch(), launch(128)]).json["dropped"] == 0
    assert post(server, tokens["demand"], [function()], [launch(256), launch()]).json == {
        "functions": 1, "launches": 1, "dropped": 1}
    assert post(server, tokens["other"], [function()], [launch(256)]).json["dropped"] == 0


def test_what_is_wrong_is_refused_with_its_place(server, tokens):
    answer = post(server, tokens["demand"], [{**function(), "version": 7}])
    assert (answer.status, answer.json["pointer"]) == (422, "/functions/0/version")
    answer = post(server, tokens["demand"], [function()], [launch(key_values=[])])
    assert (answer.status, answer.json["pointer"]) == (422, "/launches/0/key_values")
    assert listed(server, tokens["reader"]) == []


def test_too_many_reports_of_a_token_are_429(server, tokens):
    statuses = []
    while 429 not in statuses and len(statuses) < 600:  # one more is granted each second
        statuses.append(post(server, tokens["demand"]).status)
    assert len(statuses) > 60 and statuses == [202] * (len(statuses) - 1) + [429]


def test_a_builder_leases_the_launches_of_one_function(server, tokens):
    assert lease(server, tokens["builder"]).status == 204
    post(server, tokens["demand"], [function(), function(OTHER)], [launch(), launch(128), launch(closure=OTHER)])
    first = lease(server, tokens["builder"]).json
    assert first["function"] == function()
    assert sorted((one["launch"] for one in first["launches"]), key=lambda one: one["key_values"]) == [launch(), launch(128)]
    assert [one["epoch"] for one in first["launches"]] == [1, 1]
    assert lease(server, tokens["builder"]).json["function"] == function(OTHER)
    assert lease(server, tokens["builder"]).status == 204, "all are leased"
    assert [one["building"] for one in listed(server, tokens["reader"])] == [2, 1]


def test_a_builder_gets_what_it_can_compile_for(server, tokens):
    post(server, tokens["demand"], [function()], [launch()])
    assert lease(server, tokens["builder"], triton="3.9.0").status == 204
    assert lease(server, tokens["builder"], arches=["sm_90"]).status == 204
    assert lease(server, tokens["demand"]).status == 403
    assert lease(server, tokens["builder"], arches=["sm_90", "gfx942"]).status == 200


def test_launches_of_one_key_that_differ_in_specialisation_are_built_together(server, tokens, postgres):
    first, further = launch(specialisation="1", further=False), launch(specialisation="2", further=True)
    post(server, tokens["demand"], [function()], [first, launch(128, specialisation="3")])
    mine = {one["launch"]["key_values"][0]: one for one in lease(server, tokens["builder"]).json["launches"]}
    build = "decode(repeat('ab', 32), 'hex')"
    postgres.sql(f"""INSERT INTO kernels (hash, name, language, manifest) VALUES ({build}, 'k', 'triton', '{{}}');
                     INSERT INTO builds (digest, kernel, arch, triton, variants, build, head)
                     VALUES ({build}, {build}, 'gfx942', '3.6.0', 1, '{{}}', '{{}}');
                     INSERT INTO spaces (digest, space) VALUES ({build}, '{{}}');
                     UPDATE captured_launches SET build = {build}, kernel = {build}, space_digest = {build}, configs = 1,
                            leased_until = NULL""", conninfo=server.database)
    own, = listed(server, tokens["reader"])
    assert (own["keys"], own["built"], own["waiting"]) == (2, 2, 0)

    assert post(server, tokens["demand"], [function()], [further]).json["launches"] == 1
    own, = listed(server, tokens["reader"])
    assert (own["keys"], own["built"], own["waiting"]) == (2, 1, 1), "it is no key of its own"
    again = lease(server, tokens["builder"]).json["launches"]
    assert sorted((one["launch"]["specialisation"], one["epoch"]) for one in again) == [("1", 2), ("2", 1)]
    assert {one["id"] for one in again} & {one["id"] for one in mine.values()} == {mine[64]["id"]}, "the other key stays built"
    own, = listed(server, tokens["reader"])
    assert (own["keys"], own["built"], own["building"]) == (2, 1, 1)
    assert results(server, tokens["builder"], *({"id": one["id"], "epoch": one["epoch"], "refused": "no"} for one in again)
                   ).json == {"accepted": 2, "stale": 0}
    assert lease(server, tokens["builder"]).status == 204


def test_a_lease_has_whole_keys(server, tokens):
    launches = [launch(n, specialisation=str(i)) for i in range(10) for n in range(16)]
    assert post(server, tokens["demand"], [function()], launches).json["launches"] == 160
    sizes = []
    while (answer := lease(server, tokens["builder"])).status == 200:
        found = [one["launch"]["key_values"][0] for one in answer.json["launches"]]
        assert all(found.count(n) == 10 for n in found)
        sizes.append(len(found))
    assert sizes == [60, 60, 40]


def test_an_expired_lease_is_given_to_another_and_its_results_are_stale(server, tokens, postgres):
    post(server, tokens["demand"], [function()], [launch()])
    old, = lease(server, tokens["builder"]).json["launches"]
    postgres.sql("UPDATE captured_launches SET leased_until = now() - interval '1 s'", conninfo=server.database)
    new, = lease(server, tokens["builder"]).json["launches"]
    assert (old["id"], old["epoch"], new["epoch"]) == (new["id"], 1, 2)
    why = {"refused": "a config has a hook"}
    assert results(server, tokens["builder"], {"id": old["id"], "epoch": 1, **why}).json == {"accepted": 0, "stale": 1}
    assert results(server, tokens["builder"], {"id": new["id"], "epoch": 2, **why}).json == {"accepted": 1, "stale": 0}
    own, = listed(server, tokens["reader"])
    assert (own["refused"], own["waiting"], own["why"]) == (1, 0, "a config has a hook")
    assert results(server, tokens["builder"], {"id": new["id"], "epoch": 2, **why}).json["stale"] == 1, "it is decided"


def test_a_builder_that_still_works_keeps_its_lease(server, tokens, postgres):
    post(server, tokens["demand"], [function()], [launch()])
    mine, = lease(server, tokens["builder"]).json["launches"]
    postgres.sql("UPDATE captured_launches SET leased_until = now() + interval '1 s'", conninfo=server.database)
    assert results(server, tokens["builder"], {"id": mine["id"], "epoch": mine["epoch"]}).json["accepted"] == 1
    left = postgres.sql("SELECT extract(epoch FROM leased_until - now()) > 500 FROM captured_launches",
                        conninfo=server.database)
    assert left.strip() == "t"


def test_a_launch_is_built_by_a_build_that_was_pushed_and_waits_again_without_it(server, tokens, postgres, tmp_path):
    place, code = tmp_path / "add", tmp_path / "build"
    place.mkdir()
    (code / "objects").mkdir(parents=True)
    (place / "add.py").write_text("import triton\n")
    (place / "space.json").write_text(json.dumps({"configs": [{"BLOCK": 64}]}))
    (place / "kernel.json").write_text(json.dumps({
        "name": "add", "key": ["n"], "arguments": [{"name": "y", "dtype": "float16", "shape": ["n"], "access": "write"}],
        "versions": {"triton": {"language": "triton", "entry": "add", "sources": ["add.py"], "launch": {"grid": ["n"]}}}}))
    kernel = wavetune(None, "kernel", "hash", place).stdout.strip()
    (code / "objects" / sha(b"code").removeprefix("sha256:")).write_text("code")
    build = canonical({"kernel": kernel, "toolchain": {"triton": "3.6.0"}, "arch": "gfx942", "warp_size": 64, "variants": [
        {"signature": {"y": "*fp16"}, "constexprs": {}, "objects": [
            {"config": {"BLOCK": 64}, "digest": sha(b"code"), "metadata": {"name": "add"}}]}]})
    (code / "build.json").write_bytes(build)
    post(server, tokens["demand"], [function()], [launch()])
    mine, = lease(server, tokens["builder"]).json["launches"]
    one = {"id": mine["id"], "epoch": mine["epoch"]}
    assert results(server, tokens["builder"], {**one, "build": sha(build)}).json["stale"] == 1, "it is not there yet"
    wavetune(server, "kernel", "push", place, "--build", code)
    both = results(server, tokens["builder"], {**one, "build": sha(build), "refused": "no"})
    assert (both.status, both.json["pointer"]) == (422, "/launches")
    assert results(server, tokens["builder"], {**one, "build": sha(build)}).json["accepted"] == 1

    own, = listed(server, tokens["reader"])
    assert (own["built"], own["waiting"], own["tuned"]) == (1, 0, 0)
    found, = server.request("GET", f"/v1/captures/{own['id']}", token=tokens["builder"]).json["launches"]
    assert (found["state"], found["build"], found["kernel"]) == ("built", sha(build), kernel)

    postgres.sql("DELETE FROM builds", conninfo=server.database)
    own, = listed(server, tokens["reader"])
    assert (own["built"], own["waiting"]) == (0, 1)


@pytest.mark.parametrize("options", [("--capture-days", "1")])
def test_old_captures_are_removed(server, tokens, postgres, start):
    post(server, tokens["demand"], [function(), function(OTHER)], [launch(), launch(128), launch(closure=OTHER)])
    postgres.sql(f"""UPDATE captured_launches SET seen_at = now() - interval '2 days' WHERE id = 1;
                     UPDATE captured_functions SET seen_at = now() - interval '2 days';
                     DELETE FROM captured_launches WHERE id = 3""", conninfo=server.database)
    again = start(harness.Server, server.database, options=(*harness.UNHURRIED, "--capture-days", "1"))
    harness.wait_until(lambda: [one["keys"] for one in listed(again, tokens["reader"])] == [1])


def test_the_command_line_lists_shows_and_removes(server, tokens):
    post(server, tokens["demand"], [function()], [launch(), launch(128)])
    assert "package.module:f" in wavetune(server, "captures").stdout and "a builder" in wavetune(server, "captures").stdout
    leased = lease(server, tokens["builder"]).json["launches"]
    assert "its builder" in wavetune(server, "captures").stdout
    results(server, tokens["builder"], *({"id": one["id"], "epoch": 1, "refused": "it has a hook"} for one in leased))
    assert "refused: it has a hook" in wavetune(server, "captures").stdout
    own, = json.loads(wavetune(server, "captures", "--json").stdout)
    shown = wavetune(server, "captures", "show", own["id"]).stdout
    assert "# package.module:f\ndef f(): pass\n" in shown and '{"n":128}' in shown and "it has a hook" in shown
    assert "TRITON" not in shown.upper(), "it is the same for all keys"
    post(server, tokens["demand"], [function()], [launch(triton="3.9.0", environment={**ENVIRONMENT, "triton": "3.9.0"})])
    shown = wavetune(server, "captures", "show", own["id"]).stdout
    assert "TRITON" in shown.upper() and "3.6.0" in shown and "3.9.0" in shown
    assert wavetune(server, "captures", "remove", own["id"]).stdout.startswith("removed")
    assert wavetune(server, "captures", "remove", own["id"], check=False).returncode == 4
    assert wavetune(server, "captures", "show", check=False).returncode == 2


def test_functions_are_listed_in_pages(server, tokens):
    post(server, tokens["demand"], [function(), function(OTHER)], [])
    first = server.request("GET", "/v1/captures?limit=1", token=tokens["reader"]).json
    second = server.request("GET", f"/v1/captures?limit=1&after={first['next']}", token=tokens["reader"]).json
    assert [one["closure"] for one in first["items"] + second["items"]] == [CLOSURE, OTHER] and second["next"] is None
