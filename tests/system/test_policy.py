"""The policy: captures and demand that become jobs, and winners that are proposed to a channel. The test plays the containers,
the builder and the agents."""

import json
import re
import sys

import harness
import pytest
import test_captured
from hands import Hand
from harness import make_token, wait_until, wavetune
from test_builds import canonical, sha
from test_captures import function, launch, lease, listed, post, results
from test_gpu_agent import agent_on_gpu
from test_gpu_agent import pytestmark as gpu_marks

sys.path.insert(0, str(harness.SOURCE / "python"))
from wavetune.client import ApiError, Client  # noqa: E402

NODE = {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X", "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
STATED = NODE | {"triton": "3.6.0", "torch": "2.9.0"}
QUICK = ("--poll-ms", "20", *harness.UNHURRIED)
IMAGE = "sha256:" + "1" * 64
BEST = {0: 1.0, 1: 0.5, 2: 2.0}


@pytest.fixture
def options():
    return ()


@pytest.fixture
def server(start, database, options):
    it = start(harness.Server, database, options=(*QUICK, *options))
    it.demand, it.builder = make_token(database, "program", "demand,reader"), make_token(database, "builder", "builder")
    it.operator = make_token(database, "operator", "operator")
    it.publisher = make_token(database, "publisher", "publisher", "--channel", "stable")
    it.hand = Hand(it, "node", environment=NODE)
    return it


def manifest(server, name="module.f/fp32-0000"):
    source = b"# module:f\n"
    server.request("PUT", f"/v1/blobs/{sha(source)}", source)
    return {"name": name, "language": "triton", "entry": "f", "key": ["n"], "cases": "build",
            "sources": [{"path": "kernel.py", "digest": sha(source)}],
            "arguments": [{"name": "y", "dtype": "float32", "kind": "buffer"}, {"name": "n", "dtype": "int64", "kind": "scalar"}]}


def variant(n, modes):
    return {"key": {"n": n}, "signature": {"y": "*fp32", "n": "i64"}, "constexprs": {},
            "case": {"arguments": {"y": {"elements": n, "access": "readwrite", "fill": "zeros"}, "n": {"value": n}}},
            "objects": [{"config": {"MODE": mode}, "digest": sha(b"code"), "grid": [1, 1, 1],
                         "metadata": {"name": "f", "num_warps": 4, "shared": 0}} for mode in modes],
            "failed": [{"config": {"MODE": 9}, "error": "out of resource"}]}


def capture(server, *keys, image=IMAGE, token=None, **more):
    return post(server, token or server.demand, [function()],
                [launch(n, environment=STATED, image=image, **more) for n in keys])


def build(server, modes=(0, 1, 2), **more):
    """Does what waits, as a builder would; returns the kernel's hash."""
    while (leased := lease(server, server.builder)).status == 200:
        launches = leased.json["launches"]
        kernel = server.request("POST", "/v1/kernels", manifest(server, **more)).json["kernel"]
        server.request("PUT", f"/v1/blobs/{sha(b'code')}", b"code")
        keys = sorted({one["launch"]["key_values"][0] for one in launches})
        text = canonical({"kernel": kernel, "toolchain": {"triton": "3.6.0"}, "arch": "gfx942", "warp_size": 64,
                          "variants": [variant(n, modes) for n in keys]})
        put = server.request("PUT", f"/v1/kernels/{kernel}/builds/{sha(text)}", text)
        assert put.status in (200, 201), put
        done = results(server, server.builder, *({"id": one["id"], "epoch": one["epoch"], "build": sha(text)} for one in launches))
        assert done.json == {"accepted": len(launches), "stale": 0}, done
    return kernel


def capture_and_build(server, *keys, **more):
    capture(server, *keys, **more)
    return build(server)


def rule(server, mode="automatic", by=None, **more):
    body = {"mode": mode, "tokens": ["program"], "device_seconds_per_day": 3600} | more
    answer = server.request("PUT", "/v1/policy", {k: v for k, v in body.items() if v is not None}, token=by or server.operator)
    assert answer.status == 200, answer
    return answer.json


def suggested(server, token=None):
    return server.request("GET", "/v1/policy/suggestions", token=token or server.operator).json["items"]


def run(server, **more):
    return server.request("POST", "/v1/policy/run", more, token=server.operator)


def jobs(server):
    """The keys of the jobs, in the order in which they were made."""
    return [one["key"]["n"] for one in sorted(server.items("/v1/jobs"), key=lambda one: int(one["job"]))]


def passes(server):
    """Waits until the policy was followed once more, from its beginning to its end."""
    def count():
        found = re.search(r'statement="policy_unlock"[^}]*} (\d+)', server.request("GET", "/metrics").body.decode())
        return int(found[1]) if found else 0
    before = count()
    wait_until(lambda: count() > before + 1, 30, "two passes of the policy")


def tune(server, **how):
    server.hand.work(ratios=BEST, **how)


def function_item(server):
    item, = listed(server, server.demand)
    return item


def proposals(server, state="open"):
    return [one for one in server.items("/v1/proposals") if one["state"] == state]


def proposed(server):
    wait_until(lambda: proposals(server), 30, "a proposal")
    one, = proposals(server)
    return one


def promote(server, proposal, body=None, token=None, **more):
    return server.request("POST", f"/v1/proposals/{proposal['id']}/promote", body or {}, token=token or server.publisher, **more)


# The rule


def test_a_new_server_has_no_policy_and_makes_nothing(server):
    found = server.request("GET", "/v1/policy", token=server.operator).json
    assert (found["mode"], found["tokens"], found["require"], found["used_today"]) == ("off", [], "agrees", 0)
    capture_and_build(server, 64)
    assert suggested(server) == [] and jobs(server) == []
    refused = run(server)
    assert refused.status == 409 and '"operator" is off' in refused.json["detail"]
    item = function_item(server)
    assert item["waits_for"].startswith(f"a job: `wavetune captures tune {item['id']}`") and item["move"] == "submitter"


@pytest.mark.parametrize("body,pointer,words", [
    ({"mode": "sometimes"}, "/mode", "off, suggest, automatic"),
    ({"mode": "suggest", "tokens": ["program"], "budget": 3}, "/budget", "budget"),
    ({"mode": "suggest"}, "/tokens", "no token is named"),
    ({"mode": "suggest", "tokens": ["nobody"]}, "/tokens", 'no token "nobody"'),
    ({"mode": "automatic", "tokens": ["program"]}, "/device_seconds_per_day", "needs a budget"),
    ({"mode": "automatic", "tokens": ["program"], "device_seconds_per_day": 0}, "/device_seconds_per_day", "0"),
    ({"mode": "automatic", "tokens": ["*"], "jobs_per_hour": 0}, "/jobs_per_hour", "1"),
    ({"mode": "suggest", "tokens": ["*"], "device_seconds_per_job": 0}, "/device_seconds_per_job", "0"),
    ({"mode": "suggest", "tokens": ["*", "nobody"]}, "/tokens", 'no token "nobody"'),
    ({"mode": "suggest", "tokens": ["program"], "promote": True}, "/promote", "nothing to promote"),
    ({"mode": "suggest", "tokens": ["program"], "channel": "No Name"}, "/channel", "channel"),
    ({"mode": "suggest", "tokens": ["program"], "images": [""]}, "/images/0", "empty pattern"),
    ({"mode": "suggest", "tokens": ["program"], "require": "more"}, "/require", "bitwise"),
    ({"mode": "suggest", "tokens": ["program"], "configs_max": 0}, "/configs_max", "1")])
def test_a_policy_that_cannot_work_is_refused_with_a_sentence(server, body, pointer, words):
    answer = server.request("PUT", "/v1/policy", body, token=server.operator)
    assert (answer.status, answer.json["pointer"]) == (422, pointer), answer
    assert words in answer.json["detail"], answer


def test_a_suggested_job_is_made_when_an_operator_says_so(server):
    rule(server, "suggest", device_seconds_per_day=None)
    kernel = capture_and_build(server, 64, 128)
    passes(server)
    assert jobs(server) == [], "it only suggests"
    first, second = suggested(server)
    assert (first["source"], first["kernel"], first["key"], first["configs"]) == ("capture", kernel, {"n": 64}, 3)
    assert first["device_seconds"] == pytest.approx(3 * 0.03), "nothing was ever measured"
    assert first["environment"] == NODE | {"triton": "3.6.0"} and first["image"] == IMAGE and second["key"] == {"n": 128}
    assert "(wavetune policy run)" in function_item(server)["waits_for"]
    made = run(server, top=1).json["items"]
    assert [one["key"] for one in made] == [{"n": 64}]
    job = server.get(f"/v1/jobs/{made[0]['job']}")
    assert (job["run"], job["priority"], job["space"]["default"]) == ("policy", -50, {"MODE": 0})
    assert job["space"]["configs"] == [{"MODE": 0}, {"MODE": 1}, {"MODE": 2}], "what was compiled"
    tune(server, device_us=2_000_000)
    assert suggested(server)[0]["device_seconds"] > 6, "its configs times what a config of this kernel took"
    assert server.request("GET", "/v1/policy", token=server.operator).json["used_today"] > 6
    noted = server.get("/v1/audit?action=submit")["items"]
    assert [one["token"] for one in noted] == ["operator"]


def test_an_automatic_policy_makes_each_job_once_with_two_servers(server, start):
    other = start(harness.Server, server.database, options=QUICK)
    rule(server)
    capture_and_build(server, *range(1, 41))
    wait_until(lambda: len(jobs(server)) == 40, 60, "all jobs")
    passes(server), passes(other)
    assert sorted(jobs(server)) == list(range(1, 41))
    noted = server.items("/v1/audit?action=submit")
    assert len(noted) == 40 and {one["token"] for one in noted} == {"operator"}, "whose policy it is"


def test_a_job_that_exists_is_not_made_again_whoever_made_it(server):
    kernel = capture_and_build(server, 64)
    by_hand = server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": 64}, "environment": NODE | {"triton": "3.6.0"},
                                                  "space": {"configs": [{"MODE": 0}, {"MODE": 1}]}})
    assert by_hand.status == 201, by_hand
    rule(server)
    passes(server)
    assert len(jobs(server)) == 1 and suggested(server) == []
    assert (function_item(server)["queued"], function_item(server)["job"]) == (1, by_hand.json["job"])


def test_launches_of_one_key_that_differ_in_specialisation_have_one_job(server):
    capture_and_build(server, 64, specialisation="1")
    capture(server, 64, specialisation="2")
    rule(server)
    passes(server)
    assert jobs(server) == [] and suggested(server) == [], "a build with the code of both comes first"
    build(server)
    wait_until(lambda: jobs(server), 30, "the job")
    passes(server)
    assert jobs(server) == [64]
    tune(server)
    capture_and_build(server, 64, specialisation="3")
    passes(server)
    own = function_item(server)
    assert jobs(server) == [64] and (own["keys"], own["tuned"], own["without_job"] if "without_job" in own else 0) == (1, 1, 0)


def test_the_days_budget_stops_it_and_the_next_day_goes_on(server, postgres):
    rule(server, device_seconds_per_day=25)
    capture_and_build(server, 64)
    wait_until(lambda: jobs(server) == [64], 30, "the first job")
    tune(server)
    postgres.sql("update leases set device_us = 0, opening_us = 0;"
                 "update leases set device_us = 20000000 where id = (select min(id) from leases)", conninfo=server.database)
    capture_and_build(server, 128)
    passes(server)
    assert jobs(server) == [64], "20 s were used, and the next job is estimated to take as long"
    assert "as its filters and budget allow" in function_item(server)["waits_for"]
    assert server.request("GET", "/v1/policy/suggestions", token=server.operator).json["device_seconds_left"] == pytest.approx(5)
    postgres.sql("update leases set granted_at = granted_at - interval '1 day';"
                 "update jobs set finished_at = finished_at - interval '1 day' where finished_at is not null",
                 conninfo=server.database)
    wait_until(lambda: jobs(server) == [64, 128], 30, "the job of the next day")


def test_open_jobs_count_as_they_are_estimated_and_a_small_one_goes_first(server, postgres):
    rule(server, device_seconds_per_day=0.2)
    capture_and_build(server, 64, 128, 256)
    wait_until(lambda: len(jobs(server)) == 2, 30, "two jobs of 0.09 s")
    passes(server)
    assert len(jobs(server)) == 2
    assert server.request("GET", "/v1/policy", token=server.operator).json["open"] == pytest.approx(0.18)


def test_a_job_above_a_whole_days_budget_gets_that_as_its_own(server):
    rule(server, device_seconds_per_day=0.05)
    capture_and_build(server, 64, 128)
    wait_until(lambda: len(jobs(server)) == 1, 30, "one job")
    passes(server)
    job, = server.items("/v1/jobs")
    assert server.get(f"/v1/jobs/{job['job']}")["budget"]["device_seconds"] == pytest.approx(0.05)


def test_tokens_that_are_not_named_cause_no_jobs(server, postgres):
    other = make_token(server.database, "stranger", "demand,reader")
    capture_and_build(server, 1, token=other)
    capture_and_build(server, 2)
    rule(server)
    wait_until(lambda: jobs(server) == [2], 30, "the job of the token that is named")
    passes(server)
    assert jobs(server) == [2]
    waits = {one["owner"]: one["waits_for"] for one in listed(server, server.demand)}
    assert waits["stranger"].endswith('or a policy that names the token "stranger"')
    server.request("DELETE", "/v1/tokens/program")
    capture_and_build(server, 3, token=other)
    passes(server)
    assert jobs(server) == [2], "a revoked token counts no more"


def test_any_token_and_a_run_of_its_own_within_the_hour(server, postgres):
    """Without a budget for the day. Jobs by hand with the run count, too."""
    other = make_token(server.database, "stranger", "demand,reader")
    capture_and_build(server, 1, token=other)
    capture_and_build(server, 2, 3)
    rule(server, tokens=["*"], device_seconds_per_day=None, device_seconds_per_job=0.05, jobs_per_hour=2, run="nightly")
    wait_until(lambda: len(jobs(server)) == 2, 30, "two jobs")
    passes(server)
    assert len(jobs(server)) == 2 and 1 in jobs(server) and run(server).json == {"items": []}
    assert {(one["run"], one["budget"]["device_seconds"]) for one in (server.get(f"/v1/jobs/{one['job']}")
                                                                     for one in server.items("/v1/jobs"))} == {("nightly", 0.05)}
    assert suggested(server)[0]["device_seconds"] == pytest.approx(0.05), "no more than its budget"
    assert server.request("GET", "/v1/policy", token=server.operator).json["open"] == pytest.approx(0.1)
    postgres.sql("update jobs set created_at = created_at - interval '61 minutes'", conninfo=server.database)
    wait_until(lambda: sorted(jobs(server)) == [1, 2, 3], 30, "the job of the next hour")


def test_images_only_leave_some_out(server):
    capture_and_build(server, 1, image="sha256:" + "a_%b" * 16)
    capture_and_build(server, 2, image=None)
    capture_and_build(server, 3)
    rule(server, images=["sha256:a_%b*", "sha256:?b*"])
    wait_until(lambda: jobs(server) == [1], 30, "the job of the image")
    rule(server, images=["sha256:1*"])
    wait_until(lambda: jobs(server) == [1, 3], 30, "the job of the other image")
    rule(server, images=[])
    wait_until(lambda: jobs(server) == [1, 3, 2], 30, "the job without an image")


def test_a_key_of_too_many_configs_gets_no_job(server):
    capture(server, 1)
    build(server, modes=range(5))
    capture_and_build(server, 2)
    rule(server, configs_max=4)
    wait_until(lambda: jobs(server) == [2], 30, "the smaller job")
    passes(server)
    assert jobs(server) == [2]


def test_why_no_job_could_be_made_is_kept_and_tried_again(server, postgres):
    postgres.sql("update agents set last_seen = now() - interval '1 day'", conninfo=server.database)
    quiet = Hand(server, "another", environment=NODE | {"gpu": "AMD Instinct MI210", "arch": "gfx90a", "compute_units": 104})
    rule(server)
    capture_and_build(server, 64)
    wait_until(lambda: "no live agent" in (function_item(server)["waits_for"] or ""), 30, "the reason")
    assert "no live agent" in suggested(server)[0]["not_queued"]
    shown = wavetune(server, "captures", "show", function_item(server)["id"]).stdout
    assert "no live agent" in shown and quiet.id
    Hand(server, "node again", environment=NODE)
    postgres.sql("update captured_launches set decided_at = now() - interval '1 hour'", conninfo=server.database)
    wait_until(lambda: jobs(server) == [64], 30, "the job")


def test_demand_of_named_tokens_is_handled_by_the_same_rule(server):
    stranger = make_token(server.database, "stranger", "demand")
    kernel = capture_and_build(server, 64, 128, 256, 512)
    made = server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": 64}, "environment": NODE | {"triton": "3.6.0"},
                                               "space": {"configs": [{"MODE": 0}, {"MODE": 1}]}})
    tune(server)
    assert server.get(f"/v1/jobs/{made.json['job']}")["state"] == "done"
    item = function_item(server)
    assert server.request("DELETE", f"/v1/captures/{item['id']}", token=server.operator).status == 204

    def miss(n, token, image="sha256:1"):
        body = {"environment": NODE | {"triton": "3.6.0"}, "image": image, "items": [{"kernel": kernel, "key": {"n": n}, "misses": 1}]}
        assert server.request("POST", "/v1/demand", body, token=token).json["accepted"] == 1

    rule(server, "suggest", images=["sha256:1"])
    miss(128, server.demand), miss(256, stranger), miss(512, server.demand, "sha256:2"), miss(128, stranger)
    only, = suggested(server)
    assert (only["source"], only["key"], only["configs"], only["image"]) == ("demand", {"n": 128}, 2, "sha256:1")
    rule(server, images=["sha256:1"])
    wait_until(lambda: jobs(server) == [64, 128], 30, "the job for demand")
    passes(server)
    assert jobs(server) == [64, 128]


def test_a_build_without_code_for_the_launch_is_refused(server):
    """Its key would get a job that no agent can run."""
    kernel = capture_and_build(server, 64)
    capture(server, 128)
    mine, = lease(server, server.builder).json["launches"]
    older = server.items(f"/v1/kernels/{kernel}/builds")[0]["build"]
    refused = results(server, server.builder, {"id": mine["id"], "epoch": mine["epoch"], "build": older})
    assert (refused.status, refused.json["pointer"]) == (422, "/launches/0"), refused
    assert "the build has no code for the launch" in refused.json["detail"]
    assert function_item(server)["building"] == 1


# Proposals


def test_a_proposal_is_made_when_all_keys_of_an_image_are_done(server, postgres):
    rule(server, channel="stable")
    capture_and_build(server, 64, 128)
    wait_until(lambda: len(jobs(server)) == 2, 30, "the jobs")
    first = server.hand.pull().json
    server.hand.post(first, ratios=BEST)
    passes(server)
    assert proposals(server) == [], "a job is open"
    capture(server, 256)
    tune(server)
    passes(server)
    assert proposals(server) == [], "a key waits for a builder"
    assert function_item(server)["waits_for"].startswith("a builder")
    build(server)
    wait_until(lambda: len(jobs(server)) == 3, 30, "the third job")
    tune(server)
    one = proposed(server)
    assert (one["channel"], one["winners"], one["added"], one["images"], one["etag"]) == ("stable", 3, 3, [IMAGE], None)
    assert one["waits_for"] == "a publisher (wavetune proposals promote)"
    item = function_item(server)
    assert (item["proposed"], item["proposal"]) == (3, one["id"])
    assert item["waits_for"] == f"proposal {one['id']} (wavetune proposals promote)"
    full = server.get(f"/v1/proposals/{one['id']}")
    assert sorted(a["key"]["n"] for a in full["changes"]["added"]) == [64, 128, 256]
    assert {a["config"]["MODE"] for a in full["changes"]["added"]} == {1}
    noted, = server.get("/v1/audit?action=propose")["items"]
    assert (noted["token"], noted["object"], noted["detail"]["images"]) == ("(server)", one["id"], [IMAGE])


def test_an_undecided_key_holds_a_proposal_back_and_a_failed_one_does_not(server, postgres):
    rule(server, channel="stable")
    capture_and_build(server, 64, 128)
    wait_until(lambda: len(jobs(server)) == 2, 30, "the jobs")
    postgres.sql("""create function undecided() returns trigger language plpgsql as $$ begin
                    new.verdict = jsonb_set(new.verdict::jsonb, '{verdict}', '"AMBIGUOUS"')::json; return new; end $$;
                    create trigger undecided before insert on winners for each row
                    when (new.job_id = 1) execute function undecided()""", conninfo=server.database)
    tune(server)
    wait_until(lambda: function_item(server)["undecided"] == 1, 30, "the verdict")
    passes(server)
    assert proposals(server) == []
    item = function_item(server)
    assert item["waits_for"] == f"another run (wavetune captures tune {item['id']} --run NAME): job 1 found no clear winner"
    postgres.sql("delete from winners where job_id = 1", conninfo=server.database)
    rule(server, channel="stable")  # looks again
    one = proposed(server)
    assert one["winners"] == 1
    assert [(s["job"], s["key"]) for s in server.get(f"/v1/proposals/{one['id']}")["changes"]["skipped"]] == [("1", {"n": 64})]


def test_winners_without_the_required_agreement_are_not_proposed(server):
    rule(server, channel="stable", require="bitwise")
    capture_and_build(server, 64, 128)
    wait_until(lambda: len(jobs(server)) == 2, 30, "the jobs")
    while (pulled := server.hand.pull()).status == 200:
        how = "bitwise" if pulled.json["key"] == {"n": 64} else "agrees"
        facts = {mode: {"agreement": how, "agreement_sets": 3} for mode in range(3)}
        assert server.hand.post(pulled.json, ratios=BEST, conditions=facts).status == 200
    one = proposed(server)
    assert one["winners"] == 1
    skipped, = server.get(f"/v1/proposals/{one['id']}")["changes"]["skipped"]
    assert skipped["key"] == {"n": 128} and "bitwise is required" in skipped["reason"]


def test_a_publisher_promotes_a_proposal_and_the_channel_serves_its_keys(server):
    rule(server, channel="stable")
    capture_and_build(server, 64)
    wait_until(lambda: jobs(server), 30, "the job")
    tune(server)
    one = proposed(server)
    for role in ("reader", "submitter", "operator"):
        assert promote(server, one, token=make_token(server.database, f"a-{role}", role)).status == 403
    elsewhere = make_token(server.database, "elsewhere", "publisher", "--channel", "other")
    assert promote(server, one, token=elsewhere).status == 403
    assert promote(server, one, {"release": one["release"]}).json["pointer"] == "/release"
    assert promote(server, one, headers={"If-Match": '"1.0-00"'}).status == 412
    moved = promote(server, one)
    assert (moved.status, moved.json["release"], moved.json["counter"]) == (200, one["release"], 1)
    assert proposals(server) == [] and proposals(server, "promoted")[0]["decided_by"] == "publisher"
    item = function_item(server)
    assert (item["served"], item["channel"], item["waits_for"]) == (1, "stable", None)
    again = promote(server, one)
    assert again.status == 409 and "was promoted" in again.json["detail"]
    passes(server)
    assert proposals(server) == [], "the channel has it"


def test_a_stale_proposal_is_replaced_and_a_rejected_one_does_not_come_back(server):
    rule(server, channel="stable")
    capture_and_build(server, 64)
    wait_until(lambda: jobs(server), 30, "the job")
    tune(server)
    first = proposed(server)
    capture_and_build(server, 128)
    wait_until(lambda: len(jobs(server)) == 2, 30, "the second job")
    tune(server)
    wait_until(lambda: [p["winners"] for p in proposals(server)] == [2], 30, "the newer proposal")
    old, = proposals(server, "replaced")
    assert (old["id"], old["reason"]) == (first["id"], "another release replaces it")
    assert promote(server, first).status == 409
    second, = proposals(server)
    wavetune(server, "promote", first["release"], "stable")
    wait_until(lambda: [p["id"] for p in proposals(server)] not in ([], [second["id"]]), 30, "one for the moved channel")
    third, = proposals(server)
    assert (third["release"], third["added"]) == (second["release"], 1) and third["etag"]
    reject = f"/v1/proposals/{third['id']}/reject"
    assert server.request("POST", reject, {}, token=server.publisher).json["pointer"] == "/reason"
    done = server.request("POST", reject, {"reason": "not on a Friday"}, token=server.publisher)
    assert (done.status, done.json["state"], done.json["reason"]) == (200, "rejected", "not on a Friday")
    assert server.request("POST", reject, {"reason": "twice"}, token=server.publisher).status == 409
    passes(server)
    assert proposals(server) == []
    rule(server, channel="stable", configs_max=100)
    passes(server)
    assert proposals(server) == [], "that release was rejected"
    actions = {one["action"] for one in server.items("/v1/audit")}
    assert {"set-policy", "propose", "replace", "reject", "move"} <= actions


def test_the_release_of_an_open_proposal_is_not_collected(server, postgres):
    rule(server, channel="stable")
    capture_and_build(server, 64)
    wait_until(lambda: jobs(server), 30, "the job")
    tune(server)
    one = proposed(server)
    postgres.sql("alter table releases disable trigger releases_are_immutable;"
                 "update releases set created_at = now() - interval '60 d'", conninfo=server.database)

    def due():
        postgres.sql("delete from release_fetches", conninfo=server.database)
        return [r["release"] for r in server.request("POST", "/v1/gc", {"dry_run": True, "keep_days": 1}).json["releases"]]

    assert due() == []
    reject = f"/v1/proposals/{one['id']}/reject"
    assert server.request("POST", reject, {"reason": "no"}, token=server.publisher).status == 200
    wait_until(lambda: due() == [one["release"]], 30, "the release to be due")


def test_a_rule_promotes_where_no_signature_is_wanted(server):
    rule(server, channel="stable", promote=True)
    capture_and_build(server, 64)
    wait_until(lambda: jobs(server), 30, "the job")
    tune(server)
    wait_until(lambda: function_item(server)["served"] == 1, 30, "the channel to move")
    done, = proposals(server, "promoted")
    assert done["decided_by"] == "(server)"
    assert server.get("/v1/channels")["items"][0]["release"] == done["release"]


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "publisher.key"
    wavetune(None, "key", "new", path)
    return path


def test_where_signatures_are_wanted_a_proposal_waits_for_a_key(start, database, key, postgres):
    public = str(key) + ".pub"
    it = start(harness.Server, database, options=(*QUICK, "--publisher-key", public))
    it.demand, it.builder = make_token(database, "program", "demand,reader"), make_token(database, "builder", "builder")
    it.operator, it.hand = make_token(database, "operator", "operator"), Hand(it, "node", environment=NODE)
    it.publisher = make_token(database, "publisher", "publisher", "--channel", "stable")
    rule(it, channel="stable", promote=True)
    capture_and_build(it, 64)
    wait_until(lambda: jobs(it), 30, "the job")
    tune(it)
    one = proposed(it)
    passes(it)
    assert proposals(it)[0]["waits_for"] == "a publisher's key (wavetune proposals promote --sign-key)"
    refused = promote(it, one)
    assert refused.status == 403 and "signed" in refused.json["detail"]
    done = wavetune(it, "proposals", "promote", one["id"], "--sign-key", key, token=it.publisher)
    assert one["release"] in done.stdout
    assert proposals(it, "promoted")[0]["decided_by"] == "publisher"
    assert wavetune(it, "proposals", "promote", one["id"], "--sign-key", key, check=False).returncode == 4


# The command line


def test_the_command_line_sets_a_policy_and_shows_what_becomes_of_it(server):
    assert wavetune(server, "policy", "set", check=False).returncode == 2
    assert "above 0" in wavetune(server, "policy", "set", "--mode", "suggest", "--budget", "much", check=False).stderr
    shown = wavetune(server, "policy", "set", "--mode", "suggest", "--owner", "program", "--budget", "3600", "--image", "sha256:*",
                     "--configs-max", "64", "--channel", "stable", "--require", "none").stdout
    assert "suggest" in shown and '["program"]' in shown and "3600" in shown and shown == wavetune(server, "policy").stdout
    capture_and_build(server, 64)
    listing = wavetune(server, "policy", "suggestions").stdout
    assert '{"n":64}' in listing and "1 jobs, about 0.1 device seconds; 3600.0 are left today" in listing
    assert "job" in wavetune(server, "policy", "run", "--top", "5").stdout
    tune(server)
    one = proposed(server)
    assert "a publisher" in wavetune(server, "proposals").stdout
    assert '{"n":64}' in wavetune(server, "proposals", "show", one["id"]).stdout
    assert wavetune(server, "proposals", "reject", one["id"], check=False).returncode == 2
    assert wavetune(server, "proposals", "reject", one["id"], "--reason", "no").stdout == f"rejected {one['id']}\n"
    assert "rejected" in wavetune(server, "proposals", "show", one["id"]).stdout
    assert wavetune(server, "proposals", "show", "99", check=False).returncode == 4
    assert json.loads(wavetune(server, "policy", "set", "--mode", "off", "--json").stdout)["mode"] == "off"


def test_a_script_does_the_same(server, monkeypatch):
    for name in ("WAVETUNE_URL", "WAVETUNE_TOKEN", "WAVETUNE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    client = Client(server.url, server.token, patience_s=0)
    with pytest.raises(ApiError, match="no token is named"):
        client.set_policy("suggest")
    assert client.set_policy("suggest", tokens=["program"], channel="stable")["mode"] == client.policy()["mode"] == "suggest"
    capture_and_build(server, 64, 128)
    assert len(client.suggestions()) == 2 and len(client.run_policy()) == 2
    assert [one["state"] for one in client.tune_captures(name="package.*")] == ["queued", "queued"]
    tune(server)
    one = proposed(server)
    assert [p["id"] for p in client.proposals()] == [one["id"]]
    assert client.reject_proposal(one["id"], "no")["state"] == client.proposal(one["id"])["state"] == "rejected"
    with pytest.raises(ApiError, match="was rejected: no"):
        client.promote_proposal(one["id"])
    own, = client.policies()
    client.remove_policy(own["id"])
    assert client.policy()["mode"] == "off"
    item, = client.captures()
    assert item["released"] == 2 and item["waits_for"] == "a channel (wavetune promote)"


# With a real agent


@gpu_marks[0]
@gpu_marks[1]
def test_from_a_capture_to_a_served_winner_with_a_real_agent(start, database, tmp_path):
    """The agent measures on a stand-in device; the builder's part is played with what `wavetune kernel push` stores."""
    server = start(harness.Server, database, options=QUICK)
    server.demand, server.builder = make_token(database, "program", "demand,reader"), make_token(database, "builder", "builder")
    server.operator = make_token(database, "operator", "operator")
    agent = agent_on_gpu(start, server, tmp_path)
    rule(server, channel="stable", promote=True)
    device, = server.items("/v1/agents")[0]["devices"]
    key = {"key_names": ["n", "dtype"], "key_values": [test_captured.N, {"dtype": "torch.float32"}]}
    stated = device["environment"] | {"triton": "3.6.0"}
    assert post(server, server.demand, [function()], [launch(environment=stated, image=IMAGE, **key)]).json["dropped"] == 0
    mine, = lease(server, server.builder).json["launches"]

    kernel = test_captured.without_reference(test_captured.captured_kernel(tmp_path / "kernel"))
    code = test_captured.captured_build(tmp_path / "build", kernel, tmp_path, [(test_captured.KEY, test_captured.PLAIN)])
    wavetune(server, "kernel", "push", kernel, "--build", code)
    digest = sha((code / "build.json").read_bytes())
    assert results(server, server.builder, {"id": mine["id"], "epoch": 1, "build": digest}).json["accepted"] == 1

    wait_until(lambda: function_item(server)["served"] == 1, 120, f"the winner to be served: {agent.messages[-2000:]}")
    promoted, = proposals(server, "promoted")
    assert (promoted["decided_by"], promoted["winners"], promoted["images"]) == ("(server)", 1, [IMAGE])
    assert server.request("GET", "/v1/policy", token=server.operator).json["used_today"] > 0


ENTRY_SPACE = {"parameters": {"MODE": [0, 1, 2, 9]}, "conditions": ["MODE < 9"], "default": {"MODE": 1}}


def build_by_entry(server, space=ENTRY_SPACE, member="rows"):
    """Builds what waits as a builder with an entry: the kernel has another key than the launches, and variants for any key."""
    leased = lease(server, server.builder).json["launches"]
    flat = {**manifest(server, "table/entry"), "key": ["rows"], "launch": {"grid": ["rows"]},
            "arguments": [{"name": "y", "dtype": "float32", "shape": ["rows"], "access": "write"},
                          {"name": "n", "dtype": "int64", "value": "rows"}]}
    del flat["cases"]
    kernel = server.request("POST", "/v1/kernels", flat).json["kernel"]
    server.request("PUT", f"/v1/blobs/{sha(b'code')}", b"code")
    objects = [{name: value for name, value in one.items() if name != "grid"} for one in variant(1, (0, 1, 2))["objects"]]
    text = canonical({"kernel": kernel, "toolchain": {"triton": "3.6.0"}, "arch": "gfx942", "warp_size": 64, "variants": [
        {"when": "rows != 1", "signature": {"y": "*fp32", "n": "i64"}, "constexprs": {}, "objects": objects}]})
    put = server.request("PUT", f"/v1/kernels/{kernel}/builds/{sha(text)}", text)
    assert put.status in (200, 201), put
    return kernel, results(server, server.builder, *(
        {"id": one["id"], "epoch": one["epoch"], "build": sha(text), "key": {member: one["launch"]["key_values"][0] // 2},
         "space": space} for one in leased))


def test_the_job_of_an_entrys_build_has_the_entrys_key_and_space(server):
    capture(server, 64, 128)
    kernel, done = build_by_entry(server)
    assert done.json == {"accepted": 2, "stale": 0}, done
    assert suggested(server) == [] and rule(server)
    passes(server)
    made = sorted(server.items("/v1/jobs"), key=lambda one: one["key"]["rows"])
    assert [(one["kernel"], one["key"]) for one in made] == [(kernel, {"rows": 32}), (kernel, {"rows": 64})]
    assert server.get(f"/v1/jobs/{made[0]['job']}")["space"] == ENTRY_SPACE
    found = server.request("GET", f"/v1/captures/{function_item(server)['id']}", token=server.builder).json
    assert sorted((one["key"]["rows"], one["state"]) for one in found["launches"]) == [(32, "queued"), (64, "queued")]
    assert found["example"]["key_values"] == [64], "the document is as it was recorded"
    assert capture(server, 64).json["launches"] == 1 and function_item(server)["keys"] == 2, "the same launch is posted again"


@pytest.mark.parametrize("more, why", [
    ({"member": "columns"}, "the build has no code for the launch: "),
    ({"space": {"parameters": {"MODE": []}}}, "/launches/0"),
    ({"space": {**ENTRY_SPACE, "conditions": ["DEPTH == 1"]}}, "DEPTH")])
def test_a_key_and_a_space_that_a_build_does_not_take_are_refused(server, more, why):
    capture(server, 64)
    done = build_by_entry(server, **more)[1]
    assert done.status == 422 and why in done.json["detail"] + done.json.get("pointer", ""), done
