"""Lasting pins and bans: which releases obey them, in which order, and who may make them."""

import json

import pytest
from hands import ENVIRONMENT, hands, kernel, server, submit  # noqa: F401 (fixtures)
from harness import make_token, wait_until, wavetune
from test_releases import GPU, ROCM_63, ROCM_64, Bench, one_server, sha256  # noqa: F401 (fixture)

SOFTMAX = "sha256:" + sha256("softmax")


@pytest.fixture
def bench(one_server, postgres):  # noqa: F811
    """The server of these tests, with nothing in it."""
    postgres.sql("TRUNCATE environments, kernels, spaces, releases, channels, channel_entries, images, overrides CASCADE",
                 conninfo=one_server.database)
    return Bench(one_server, postgres)


def admin(bench):  # noqa: F811
    """The name of the server's token."""
    return next(token["name"] for token in bench.server.items("/v1/tokens") if token["name"].startswith("admin-") and not token["revoked_at"])


def add(server, kind, config, kernel="softmax", reason="because", status=201, **more):  # noqa: F811
    answer = server.request("POST", "/v1/overrides", {"kind": kind, "kernel": kernel, "config": config, "reason": reason, **more})
    assert answer.status == status, answer
    return answer.json.get("id")


def values(bench, environment=ROCM_64, **more):  # noqa: F811
    """{M: B} of what would be released now."""
    answer = bench.release(environment, **more)
    if "release" not in answer.json:
        return {}
    rendered = bench.server.get(f"/v1/releases/{answer.json['release']}")
    found = {}
    for one in rendered["kernels"]:
        for winner in one["winners"]:
            found[winner[0][0]] = one["configs"][winner[1]]["values"]["B"]
    return found


def test_a_pin_stays_until_it_is_removed_and_is_reported_with_who_and_why(bench):  # noqa: F811
    bench.job(ROCM_64, winner=1)
    assert values(bench) == {1: 2}
    pin = add(bench.server, "pin", {"B": 4}, reason="17 is wrong with rocm 6.4.1")
    for _ in range(2):
        assert values(bench) == {1: 4}
    item = bench.release(ROCM_64).json["included"][0]
    assert (item["origin"], item["reason"]) == ("pinned", f"override {pin} of {admin(bench)}: 17 is wrong with rocm 6.4.1")
    assert bench.server.request("DELETE", f"/v1/overrides/{pin}").status == 204
    assert values(bench) == {1: 2}


def test_a_banned_winner_is_not_released_and_says_why(bench):  # noqa: F811
    older, newer = bench.job(ROCM_64, winner=0, run="a"), bench.job(ROCM_64, winner=1, run="b")
    ban = add(bench.server, "ban", {"B": 2}, reason="NaN at 128")
    answer = bench.release(ROCM_64)
    skipped = {item["job"]: item["reason"] for item in answer.json["skipped"]}
    assert f"is banned by override {ban} of {admin(bench)}: NaN at 128" in skipped[newer]
    assert values(bench) == {1: 1} and older not in skipped
    add(bench.server, "ban", {"B": 1})
    refused = bench.release(ROCM_64)
    assert refused.status == 422 and len(refused.json["skipped"]) == 2


def test_what_is_served_and_banned_is_not_kept(bench):  # noqa: F811
    bench.job(ROCM_64, winner=1)
    first = bench.release(ROCM_64).json["release"]
    assert bench.move(first, **{"If-None-Match": "*"}).status == 200
    bench.job(ROCM_64, winner=0, run="b")
    kept = bench.release(ROCM_64, replaces={"channel": "stable"}).json
    assert len(kept["kept"]) == 1
    add(bench.server, "ban", {"B": 2})
    assert values(bench, replaces={"channel": "stable"}) == {1: 1}


def test_a_ban_is_stronger_than_any_pin(bench):  # noqa: F811
    bench.job(ROCM_64, winner=1)
    pin, ban = add(bench.server, "pin", {"B": 4}, kernel=SOFTMAX, key={"M": 1}), add(bench.server, "ban", {"B": 4})
    answer = bench.release(ROCM_64)
    assert [item["reason"] for item in answer.json["skipped"]] == [
        f"the pin of override {pin} of {admin(bench)}: because is not used: its config is banned by override {ban} of {admin(bench)}: because"]
    assert values(bench) == {1: 2}
    of_request = bench.release(ROCM_64, pins=[{"kernel": SOFTMAX, "key": {"M": 1}, "config": {"B": 4}}])
    assert "the pinned config is banned by" in of_request.json["skipped"][0]["reason"]
    less = add(bench.server, "pin", {"B": 1})
    assert values(bench) == {1: 1} and less


def test_the_most_specific_pin_counts_and_that_of_the_request_is_stronger(bench):  # noqa: F811
    bench.job(ROCM_64, winner=1)
    scopes = ({}, {"tag": "default"}, {"environment": {"gpu": GPU["gpu"]}}, {"environment": GPU},
              {"key": {"M": 1}}, {"kernel": SOFTMAX}, {"kernel": SOFTMAX, "key": {"M": 1}})
    for i, scope in enumerate(scopes):
        value = (1, 4)[i % 2]
        add(bench.server, "pin", {"B": value}, **scope)
        assert values(bench) == {1: value}, scope
    for scope in scopes[-2::-1]:  # the same ones again do not become stronger, though they are newer
        add(bench.server, "pin", {"B": 2}, **scope)
    assert values(bench) == {1: 1}
    assert values(bench, pins=[{"kernel": SOFTMAX, "key": {"M": 1}, "config": {"B": 4}}]) == {1: 4}


@pytest.mark.parametrize("elsewhere", ({"tag": "chat"}, {"environment": ROCM_63}, {"key": {"M": 2}}, {"kernel": "gelu"},
                                       {"kernel": "sha256:" + "0" * 64}))
def test_an_override_for_something_else_changes_nothing(bench, elsewhere):  # noqa: F811
    bench.job(ROCM_64, winner=1)
    add(bench.server, "pin", {"B": 4}, unknown=True, **elsewhere)
    add(bench.server, "ban", {"B": 2}, unknown=True, **elsewhere)
    assert values(bench) == {1: 2}


def test_a_pin_outside_of_the_space_is_reported_and_the_key_stays_in_the_release(bench):  # noqa: F811
    bench.job(ROCM_64, winner=1)
    pin = add(bench.server, "pin", {"B": 3})
    answer = bench.release(ROCM_64)
    assert f"the pin of override {pin} of {admin(bench)}: because is not used: " in answer.json["skipped"][0]["reason"]
    assert values(bench) == {1: 2}


@pytest.mark.parametrize("wrong, pointer, says", (
    ({"kernel": "softmx"}, "/kernel", 'no kernel "softmx" is known'),
    ({"kernel": "sha256:" + "0" * 64}, "/kernel", "is known"),
    ({"config": {"BB": 2}}, "/config/BB", 'no space of "softmax" has a parameter "BB"'),
    ({"config": {"B": 2, "num_warps": 8}, "kernel": SOFTMAX}, "/config/num_warps", "has a parameter")))
def test_an_override_that_names_nothing_is_refused(bench, wrong, pointer, says):  # noqa: F811
    bench.job(ROCM_64, winner=1)
    body = {"kind": "ban", "kernel": "softmax", "config": {"B": 2}, "reason": "because"} | wrong
    refused = bench.server.request("POST", "/v1/overrides", body)
    assert (refused.status, refused.json["pointer"]) == (422, pointer) and says in refused.json["detail"], refused
    assert ("sha256" in str(wrong) or "did you mean" in refused.json["detail"]) and "--unknown" in refused.json["detail"]
    values = ",".join(f"{name}={value}" for name, value in body["config"].items())
    arguments = ("override", "add", "ban", body["kernel"], "--values", values, "--reason", "because")
    assert wavetune(bench.server, *arguments, check=False).returncode == 4
    assert bench.server.items("/v1/overrides") == []
    assert wavetune(bench.server, *arguments, "--unknown").stdout.startswith("override ")


def test_the_parameters_of_imported_configs_are_known_and_a_kernel_without_jobs_may_have_any(bench):  # noqa: F811
    bench.imported(ROCM_64, {"B": 16, "num_warps": 4})
    add(bench.server, "ban", {"num_warps": 8})
    add(bench.server, "ban", {"num_stages": 8}, status=422)
    bench.sql(f"INSERT INTO kernels (hash, name, language, manifest) SELECT '\\x{sha256('new')}', 'new', 'c', manifest FROM kernels")
    add(bench.server, "ban", {"num_stages": 8}, kernel="new")


def test_an_override_ends_at_its_time(bench):  # noqa: F811
    bench.job(ROCM_64, winner=1)
    add(bench.server, "pin", {"B": 4}, until="2020-01-01T00:00:00Z")
    assert values(bench) == {1: 2} and bench.server.items("/v1/overrides")[0]["ended"] is True
    again = add(bench.server, "pin", {"B": 4}, until="30d", status=200)
    assert values(bench) == {1: 4}
    listed = bench.server.items("/v1/overrides")
    assert [item["id"] for item in listed] == [again] and listed[0]["ended"] is False and listed[0]["until"] > "2026"


def test_an_import_obeys_them_too(bench):  # noqa: F811
    bench.imported(ROCM_64, {"B": 16, "num_warps": 4})
    add(bench.server, "ban", {"num_warps": 4, "B": 8})
    assert values(bench) == {1: 16}
    add(bench.server, "ban", {"num_warps": 4})
    assert bench.release(ROCM_64).status == 422
    add(bench.server, "pin", {"B": 32, "num_warps": 8})
    assert values(bench) == {1: 32}


def test_an_equal_of_a_banned_winner_takes_its_place(server, hands, submit):  # noqa: F811
    job, hand = submit({"parameters": {"A": [1, 2, 3]}, "default": {"A": 3}}), hands("a")
    wait_until(lambda: hand.work(ratios={0: 0.5, 1: 0.5001, 2: 1.0}) is not None
               and server.get(f"/v1/jobs/{job}")["state"] == "done", 30, "the job to be done")
    winner = server.get(f"/v1/jobs/{job}")["winner"]
    assert sorted(winner["verdict"]["equivalence_set"]) == [0, 1]
    other = 3 - winner["config_values"]["A"]
    ban = add(server, "ban", winner["config_values"], kernel="test/leases")
    answer = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT})
    assert answer.status == 201 and f"is banned by override {ban}" in answer.json["included"][0]["reason"], answer
    assert f"config {other - 1} of the equivalence set" in answer.json["included"][0]["reason"]
    add(server, "ban", {"A": other}, kernel="test/leases")
    refused = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT})
    assert refused.status == 422 and "as the rest of its equivalence set, is banned" in refused.json["skipped"][0]["reason"]


@pytest.mark.parametrize("wrong, pointer", (
    ({"kind": "wish"}, "/kind"), ({"config": {}}, "/config"), ({"config": {"B": [1]}}, "/config"), ({"reason": ""}, "/reason"),
    ({"kernel": "sha256:12"}, "/kernel"), ({"until": "soon"}, "/until"), ({"key": {"M": {}}}, "/key/M"), ({"reason": None}, "/reason"),
    ({"environment": {"rcom": "6"}}, "/environment/rcom"), ({"who": "me"}, "/who")))
def test_a_wrong_override_is_refused(bench, wrong, pointer):  # noqa: F811
    body = {"kind": "ban", "kernel": "softmax", "config": {"B": 1}, "reason": "because"} | wrong
    answer = bench.server.request("POST", "/v1/overrides", body)
    assert (answer.status, answer.json["pointer"]) == (422, pointer), answer
    assert bench.server.items("/v1/overrides") == []


def test_publishers_and_operators_make_them_and_each_change_is_audited(bench):  # noqa: F811
    server = bench.server  # noqa: F811
    body = {"kind": "ban", "kernel": "softmax", "config": {"B": 1}, "reason": "because", "unknown": True}
    tokens = {role: make_token(server.database, role, role, *(("--channel", "*") if role == "publisher" else ()))
              for role in ("reader", "submitter", "publisher", "operator")}
    assert [server.request("POST", "/v1/overrides", body, token=token).status for token in tokens.values()] == [403, 403, 201, 200]
    listed = server.request("GET", "/v1/overrides", token=tokens["reader"]).json["items"]
    assert [(item["made_by"], item["config"]) for item in listed] == [("operator", {"B": 1})]
    ban = listed[0]["id"]
    assert server.request("DELETE", f"/v1/overrides/{ban}", token=tokens["submitter"]).status == 403
    assert server.request("DELETE", f"/v1/overrides/{ban}", token=tokens["publisher"]).status == 204
    assert server.request("DELETE", f"/v1/overrides/{ban}", token=tokens["publisher"]).status == 404
    rows = [(row["token"], row["action"], row["object"]) for row in server.items("/v1/audit?object=" + ban)]
    assert rows == [("publisher", "end-override", ban), ("operator", "override", ban), ("publisher", "override", ban)]


def test_the_commands(bench):  # noqa: F811
    bench.job(ROCM_64, winner=1)
    server = bench.server  # noqa: F811
    out = wavetune(server, "override", "add", "pin", "softmax", "--values", "B=4", "--key", "M=1", "--reason", "as told",
                   "--environment", json.dumps({"rocm": "6.4.1"}), "--until", "30d").stdout
    pin = out.split()[1]
    assert out.startswith(f"override {pin} until 2") and "releases from now on obey it" in out
    table = wavetune(server, "override", "list").stdout.splitlines()
    assert table[1].split()[:5] == [pin, "pin", "softmax", '{"M":1}', "-"] and table[1].endswith("as told")
    published = wavetune(server, "publish", "--environment", json.dumps(ROCM_64))
    assert 'included  softmax {"M":1}: override ' + pin + f' of {admin(bench)}: as told' in published.stderr
    assert wavetune(server, "override", "remove", pin).stdout == f"removed {pin}\n"
    for arguments, code in ((("pin", "softmax", "--values", "B=4"), 2), (("pin",), 2), (("wish", "softmax", "--values", "B=4", "--reason", "x"), 4),
                            (("ban", "softmax", "--values", "{", "--reason", "x"), 2)):
        done = wavetune(server, "override", "add", *arguments, check=False)
        assert done.returncode == code and done.stderr.count("\n") == 1, done
    assert wavetune(server, "override", "remove", pin, check=False).returncode == 4
