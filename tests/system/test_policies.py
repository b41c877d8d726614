"""Policies of several tokens: whose jobs they make, who sees and removes them, and what becomes of the one that a server had."""


import harness
import pytest
from harness import make_token, wait_until, wavetune
from test_captures import listed
from test_demand import while_locked
from test_policy import (capture_and_build, function_item, jobs, options, passes, proposals, proposed, rule, run,  # noqa: F401
                         server, suggested, tune)


@pytest.fixture
def team(server):  # noqa: F811
    """A submitter, and the token of its programs."""
    server.teams = make_token(server.database, "team", "submitter")
    server.programs = make_token(server.database, "team-program", "demand,reader")
    return server.teams


def policies(server, token):  # noqa: F811
    return server.request("GET", "/v1/policies", token=token).json["items"]


def test_each_token_has_a_policy_of_its_own_and_jobs_in_its_name(server, team):  # noqa: F811
    rule(server)
    mine = rule(server, by=team, tokens=["team-program"], device_seconds_per_day=60)
    assert (mine["set_by"], mine["acts"], mine["tokens"]) == ("team", True, ["team-program"])
    capture_and_build(server, 64)
    capture_and_build(server, 128, token=server.programs, name="module.g/fp32-0000")
    wait_until(lambda: len(jobs(server)) == 2, 30, "a job of each")
    assert {j["key"]["n"]: j["submitted_by"] for j in server.items("/v1/jobs")} == {64: "operator", 128: "team"}
    tune(server, device_us=1_000_000)
    used = {one: server.request("GET", "/v1/policy", token=one).json["used_today"] for one in (team, server.operator)}
    assert used[team] == pytest.approx(used[server.operator], rel=0.5) and used[team] > 0, "each uses its own budget"


def test_two_policies_that_cover_a_key_make_one_job(server, team):  # noqa: F811
    rule(server), rule(server, by=team)
    capture_and_build(server, 64, 128)
    wait_until(lambda: len(jobs(server)) == 2, 30, "the jobs")
    passes(server)
    assert sorted(jobs(server)) == [64, 128] and {j["submitted_by"] for j in server.items("/v1/jobs")} == {"operator"}
    assert suggested(server, team) == []


def test_a_submitter_sees_and_removes_its_own_and_an_operator_any(server, team):  # noqa: F811
    first, second = rule(server), rule(server, by=team)
    assert [one["set_by"] for one in policies(server, team)] == ["team"]
    assert [(one["set_by"], one["used_today"]) for one in policies(server, server.operator)] == [("operator", None), ("team", None)]
    assert server.request("DELETE", f"/v1/policies/{first['id']}", token=team).status == 404
    assert server.request("DELETE", f"/v1/policies/{second['id']}", token=server.operator).status == 204
    assert server.request("DELETE", f"/v1/policies/{second['id']}", token=server.operator).status == 404
    assert server.request("GET", "/v1/policy", token=team).json["mode"] == "off" and policies(server, team) == []
    assert run(server).status == 200 and server.request("POST", "/v1/policy/run", {}, token=team).status == 409
    noted, = server.get("/v1/audit?action=remove-policy")["items"]
    assert (noted["token"], noted["object"]) == ("operator", "team")
    for token in (server.demand, server.builder):
        assert server.request("GET", "/v1/policies", token=token).status == 403


def test_a_policy_ends_with_its_token_and_another_token_of_the_name_has_it(server, team):  # noqa: F811
    rule(server, by=team)
    capture_and_build(server, 64)
    wait_until(lambda: jobs(server) == [64], 30, "the job")
    assert server.request("DELETE", "/v1/tokens/team").status == 204
    assert policies(server, server.operator)[0]["acts"] is False
    capture_and_build(server, 128)
    item = function_item(server)
    assert (item["move"], item["waits_for"].split(",")[0]) == ("submitter", f"a job: `wavetune captures tune {item['id']}`")
    rule(server, tokens=["team-program"])
    passes(server)
    assert jobs(server) == [64], "the pass followed the operator's policy only"
    make_token(server.database, "team", "reader")
    assert [one["acts"] for one in policies(server, server.operator) if one["set_by"] == "team"] == [False], "a reader makes no jobs"
    assert server.request("DELETE", "/v1/tokens/team").status == 204
    again = make_token(server.database, "team", "submitter")
    wait_until(lambda: jobs(server) == [64, 128], 30, "the job of the policy that acts again")
    assert policies(server, again)[0]["acts"] is True


def test_an_identity_with_other_roles_for_another_claim_has_one_policy(server, team, postgres):  # noqa: F811
    """As identities of CI have (test_oidc.py). The one that set the policy acts, while it is live."""
    rule(server, by=team)
    postgres.sql("""update policies set set_by = 'ci:main';
                    update tokens set name = 'ci:main', issuer = 'https://ci', expires_at = now() + interval '1 day' where name = 'team';
                    insert into tokens (name, role, digest, expires_at, issuer, made_by)
                    values ('ci:main', 'reader', sha256('other'), now() + interval '1 day', 'https://ci', 'test')""",
                 conninfo=server.database)
    assert [(one["set_by"], one["acts"]) for one in policies(server, server.operator)] == [("ci:main", True)]
    roles = "select string_agg(roles, ' ') from policy_states"
    assert postgres.sql(roles, conninfo=server.database) == "submitter"
    postgres.sql("update tokens set expires_at = now() where role = 'submitter' and issuer is not null", conninfo=server.database)
    assert postgres.sql(roles, conninfo=server.database) == "reader"


def test_a_policy_is_not_removed_while_it_is_followed(server, team, postgres):  # noqa: F811
    """A pass would propose, and promote, what it no longer says."""
    mine = rule(server, "off")
    lock = "do $$begin perform pg_advisory_xact_lock(hashtextextended('wavetune policy', 0)); end$$"
    status = while_locked(server.database, postgres, lock, "savepoint followed",
                          lambda: server.request("DELETE", f"/v1/policies/{mine['id']}", token=server.operator).status)
    assert status == 204 and policies(server, server.operator) == []


def test_a_channel_has_one_policy_and_only_a_publisher_lets_it_promote(server, team):  # noqa: F811
    rule(server, channel="stable")
    body = {"mode": "suggest", "tokens": ["program"]}
    taken = server.request("PUT", "/v1/policy", body | {"channel": "stable"}, token=team)
    assert (taken.status, taken.json["pointer"]) == (409, "/channel") and 'policy of the token "operator"' in taken.json["detail"]
    mayed = server.request("PUT", "/v1/policy", body | {"channel": "teams", "promote": True}, token=team)
    assert mayed.status == 403 and '"teams"' in mayed.json["detail"]
    both = make_token(server.database, "both", "submitter,publisher", "--channel", "teams")
    assert rule(server, by=both, channel="teams", promote=True)["promote"] is True
    assert server.request("DELETE", "/v1/tokens/both").status == 204
    make_token(server.database, "both", "submitter")  # which has the policy now, and may move no channel
    capture_and_build(server, 64)
    wait_until(lambda: jobs(server), 30, "the job")
    tune(server)
    wait_until(lambda: len(proposals(server)) == 2, 30, "a proposal to each channel")
    passes(server)
    assert proposals(server, "promoted") == []
    assert server.request("DELETE", "/v1/tokens/both").status == 204
    make_token(server.database, "both", "submitter,publisher", "--channel", "teams")
    wait_until(lambda: proposals(server, "promoted"), 30, "the promotion by a token that may")
    assert [one["channel"] for one in proposals(server, "promoted")] == ["teams"]
    one = proposed(server)
    assert (one["channel"], one["waits_for"]) == ("stable", "a publisher (wavetune proposals promote)")
    first = policies(server, server.operator)[0]
    assert server.request("DELETE", f"/v1/policies/{first['id']}", token=server.operator).status == 204
    assert proposals(server) == [] and proposals(server, "replaced")[0]["reason"] == "the policy that made it was removed"


@pytest.mark.parametrize("options", [("--token-open-jobs", "1")])
def test_the_limit_of_one_token_does_not_hold_up_another(server, team):  # noqa: F811
    rule(server, by=team)
    capture_and_build(server, 64, 128)
    wait_until(lambda: len(jobs(server)) == 1, 30, "the one job that the token may have")
    passes(server)
    assert len(jobs(server)) == 1
    decision, = server.request("POST", "/v1/policy/run", {}, token=team).json["items"]
    assert "at most 1 open jobs" in decision["refused"]
    rule(server)
    wait_until(lambda: len(jobs(server)) == 2, 30, "that of the operator's policy")


@pytest.mark.parametrize("options", [("--token-open-jobs", "1")])
def test_a_token_at_its_limit_is_told_and_the_demand_stays_listed(server, team):  # noqa: F811
    kernel = capture_and_build(server, 64, 128, 256)
    made = server.request("POST", "/v1/captures/tune", {"name": "*", "keys": [{"n": 64}]})
    environment = made.json["items"][0]["environment"]
    tune(server)
    misses = [{"kernel": kernel, "key": {"n": n}, "misses": 1} for n in (128, 256)]
    server.request("POST", "/v1/demand", {"environment": environment, "items": misses}, token=server.demand)
    refused = server.request("POST", "/v1/demand/queue", {"top": 10}, token=team)
    assert refused.status == 429 and "at most 1 open jobs" in refused.json["detail"]
    assert len(jobs(server)) == 2 and len(server.get("/v1/demand")["items"]) == 1, "it is not hidden for a day"


def test_demand_that_two_policies_name_counts_for_both(server, team):  # noqa: F811
    """What one token reported last does not hide it from the policy that names the other."""
    kernel = capture_and_build(server, 64)
    made = server.request("POST", "/v1/captures/tune", {"name": "*"}).json["items"][0]
    tune(server)
    environment = made["environment"]
    rule(server, "suggest"), rule(server, "suggest", by=team, tokens=["team-program"])
    for token in (server.demand, server.programs):
        body = {"environment": environment, "image": "sha256:1", "items": [{"kernel": kernel, "key": {"n": 128}, "misses": 1}]}
        assert server.request("POST", "/v1/demand", body, token=token).json["accepted"] == 1
    for token in (server.operator, team):
        only, = suggested(server, token)
        assert (only["source"], only["key"], only["image"]) == ("demand", {"n": 128}, "sha256:1")


def test_the_command_line_lists_and_removes_policies(server, team):  # noqa: F811
    assert "this token, which has set none" in wavetune(server, "policy", token=team).stdout
    wavetune(server, "policy", "set", "--mode", "suggest", "--owner", "program", token=team)
    shown = wavetune(server, "policy", "list", token=server.operator).stdout
    assert "team" in shown and "suggest" in shown
    one, = policies(server, team)
    assert wavetune(server, "policy", "remove", one["id"], token=team).stdout == f"removed {one['id']}\n"
    assert wavetune(server, "policy", "remove", one["id"], token=team, check=False).returncode == 4


def test_captures_say_whose_move_it_is_and_a_submitter_makes_it(server, team):  # noqa: F811
    from test_policy import build, capture
    capture(server, 64)
    first, = listed(server, server.demand)
    assert (first["move"], first["waits_for"].split(" (")[0]) == ("builder", "a builder")
    build(server)
    shown = wavetune(server, "captures").stdout
    assert f"a job: `wavetune captures tune {first['id']}`" in shown and "submitter" in shown
    assert "a job: `wavetune captures tune" in wavetune(server, "captures", "show", first["id"]).stdout
    done = wavetune(server, "captures", "tune", first["id"], "--key", "n=512", token=team, check=False)
    assert done.returncode == 4 and "has such a key" in done.stderr
    done = wavetune(server, "captures", "tune", "package.*", "--key", "n=64", "--priority", "3", token=team)
    assert "queued" in done.stdout and "true" in done.stdout
    assert function_item(server)["move"] == "agent" and "agent" in wavetune(server, "captures", "show", first["id"]).stdout
    tune(server)
    assert (function_item(server)["move"], function_item(server)["waits_for"]) == ("publisher", "a release (wavetune publish)")
    ended = wavetune(server, "captures", "tune", first["id"], "--wait", token=team).stdout
    assert "MODE=1" in ended or '"MODE":1' in ended, ended
    capture(server, 128)
    done = wavetune(server, "captures", "tune", first["id"], "--key", '{"n": 128}', token=team, check=False)
    assert done.returncode == 1 and "whose move it is" in done.stderr and "waiting" in done.stdout
