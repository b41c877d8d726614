"""Jobs that a submitter makes of what programs recorded. The test plays the containers, the builder and the agents."""

import pytest
from harness import make_token
from test_captures import OTHER, function, launch, lease, post, results
from test_policy import NODE, STATED, capture, capture_and_build, function_item, jobs, options, passes, rule, server, tune  # noqa: F401


@pytest.fixture
def submitter(server):  # noqa: F811
    return make_token(server.database, "author", "submitter")


def ask(server, token, **body):  # noqa: F811
    return server.request("POST", "/v1/captures/tune", body, token=token)


def made(server, token, **body):  # noqa: F811
    answer = ask(server, token, **body)
    assert answer.status == 200, answer
    return answer.json["items"]


def test_a_submitter_tunes_what_a_program_recorded(server, submitter):  # noqa: F811
    kernel = capture_and_build(server, 64, 128)
    first, second = made(server, submitter, functions=[function_item(server)["id"]])
    assert (first["name"], first["kernel"], first["key"]) == ("package.module:f", kernel, {"n": 64})
    assert (first["state"], first["created"], first["environment"]) == ("queued", True, NODE | {"triton": "3.6.0"})
    job = server.get(f"/v1/jobs/{first['job']}")
    assert (job["run"], job["priority"], job["submitted_by"]) == ("", 0, "author")
    assert job["space"] == {"configs": [{"MODE": 0}, {"MODE": 1}, {"MODE": 2}], "default": {"MODE": 0}}, "what was compiled"
    assert jobs(server) == [64, 128] and second["key"] == {"n": 128}
    again = made(server, submitter, name="package.*")
    assert [(one["job"], one["created"]) for one in again] == [(first["job"], False), (second["job"], False)]
    tune(server)
    assert {one["state"] for one in made(server, submitter, name="*:?")} == {"tuned"} and jobs(server) == [64, 128]


def test_only_the_named_keys_are_tuned_with_a_budget_and_a_priority(server, submitter):  # noqa: F811
    capture_and_build(server, 64, 128, 256)
    found = made(server, submitter, name="package.module:f", keys=[{"n": 128}, {"n": 512}], priority=7, budget={"device_seconds": 9})
    assert [one["key"] for one in found] == [{"n": 128}] and jobs(server) == [128]
    job = server.get(f"/v1/jobs/{found[0]['job']}")
    assert (job["priority"], job["budget"]["device_seconds"]) == (7, 9)


def test_another_run_measures_a_tuned_key_again(server, submitter):  # noqa: F811
    capture_and_build(server, 64)
    first, = made(server, submitter, name="*")
    tune(server)
    second, = made(server, submitter, name="*", run="again")
    assert second["created"] and second["job"] != first["job"] and server.get(f"/v1/jobs/{second['job']}")["run"] == "again"
    third, = made(server, submitter, name="*", run="again")
    assert not third["created"] and third["job"] == second["job"]


def test_keys_that_a_builder_has_not_done_say_so_and_get_no_job(server, submitter):  # noqa: F811
    capture(server, 64, 128)
    mine = lease(server, server.builder).json["launches"]
    results(server, server.builder, {"id": mine[1]["id"], "epoch": mine[1]["epoch"], "refused": "a config has a hook"})
    capture(server, 256)
    found = {one["key"]["n"]: one for one in made(server, submitter, name="*")}
    assert sorted(one["state"] for one in found.values()) == ["building", "refused", "waiting"]
    assert [one["why"] for one in found.values() if one["state"] == "refused"] == ["a config has a hook"]
    assert jobs(server) == [] and not any("job" in one for one in found.values())


def test_more_keys_without_a_build_than_a_request_lists_hold_up_no_built_one(server, submitter, postgres):  # noqa: F811
    capture_and_build(server, 64)
    postgres.sql("""insert into captured_launches (id, function_id, token_id, digest, key, key_digest, arch, triton, document, environment,
                                                   image)
                    overriding system value
                    select -i, function_id, token_id, sha256(i::text::bytea), json_build_object('n', -i), sha256(i::text::bytea), arch,
                           triton, document, environment, image
                    from captured_launches, generate_series(1, 1000) i""", conninfo=server.database)
    answer = ask(server, submitter, name="*").json
    assert jobs(server) == [64] and (len(answer["items"]), answer["left"]) == (1000, 1)


def test_a_job_may_wait_for_an_agent_that_is_not_there_yet(server, submitter, postgres):  # noqa: F811
    capture_and_build(server, 64, 128)
    postgres.sql("update agents set last_seen = now() - interval '1 day'", conninfo=server.database)
    found = made(server, submitter, name="*")
    assert [one["state"] for one in found] == ["queued", "queued"], found


def test_a_policy_and_a_submitter_make_one_job_of_a_key(server, submitter):  # noqa: F811
    capture_and_build(server, 64)
    one, = made(server, submitter, name="*")
    rule(server)
    passes(server)
    assert jobs(server) == [64]
    capture_and_build(server, 128)
    passes(server)
    found = {item["key"]["n"]: item for item in made(server, submitter, name="*")}
    assert jobs(server) == [64, 128] and not found[128]["created"] and found[64]["job"] == one["job"]


@pytest.mark.parametrize("options", [("--token-open-jobs", "1")])
def test_a_token_that_has_all_its_open_jobs_is_told_for_each_key(server, submitter):  # noqa: F811
    capture_and_build(server, 64, 128)
    first, second = made(server, submitter, name="*")
    assert first["created"] and "at most 1 open jobs" in second["why"] and second["state"] == "built"


def test_what_is_wrong_is_refused(server, submitter):  # noqa: F811
    post(server, server.demand, [function(), function(OTHER)], [launch(64, environment=STATED)])
    assert ask(server, submitter).status == ask(server, submitter, name="*", functions=["1"]).status == 422
    assert ask(server, submitter, name="*", budget={"device_seconds": 0}).json["pointer"] == "/budget/device_seconds"
    assert ask(server, submitter, name="*", keys=[{"n": 1}, "n"]).json["pointer"] == "/keys/1"
    missing = ask(server, submitter, name="nothing")
    assert missing.status == 404 and "GET /v1/captures" in missing.json["detail"]
    assert ask(server, submitter, functions=["77"]).status == 404
    assert ask(server, server.demand, name="*").status == 403
