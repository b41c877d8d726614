"""Demand: reports of hits and misses, untuned keys that become jobs, caches of similar environments, campaigns on a new stack,
and garbage collection. The test plays the agents."""

import json
import re
import shlex
import subprocess
import threading

import harness
import hands
import pytest
from harness import postgres_bin, wait_until, wavetune
from hands import ENVIRONMENT, SMALL, Hand, register

ONE = ("--lease-target-ms", "1000", "--poll-ms", "50", *harness.UNHURRIED)
NEXT = ENVIRONMENT | {"cpu": "gcc 2"}


@pytest.fixture(scope="module")
def database(postgres):
    return postgres.database()


@pytest.fixture(scope="module")
def server(database, tmp_path_factory):
    it = harness.Server(database, tmp_path_factory.mktemp("server"), options=ONE)
    it.kernel = register(it)
    it.demand = harness.make_token(database, "deployment", "demand")
    yield it
    it.stop()


def tune(server, key, environment=ENVIRONMENT, ratios=None, space=SMALL, **more):
    """A done job for a key; returns its id."""
    answer = server.request("POST", "/v1/jobs", {"kernel": server.kernel, "key": {"n": key}, "space": space,
                                                 "environment": environment} | more)
    assert answer.status == 201, answer
    hand, job = Hand(server, "tuner", environment=environment), answer.json["job"]

    def is_done():
        hand.work(ratios=ratios or {0: 1.0, 1: 0.5, 2: 2.0})
        return server.get(f"/v1/jobs/{job}")["state"] == "done"

    wait_until(is_done, 60, "the job to be done")
    return job


def report(server, *items, token=None, environment=ENVIRONMENT, **more):
    body = {"environment": environment, "items": list(items)} | more
    return server.request("POST", "/v1/demand", body, token=token or server.demand)


def item(key, misses=1, **more):
    return {"kernel": "test/leases", "key": {"n": key}, "misses": misses} | more


def wanted(server):
    return {i["key"]["n"]: i for i in server.get("/v1/demand?limit=1000")["items"]}


def test_a_demand_token_reports_and_can_do_nothing_else(server):
    assert report(server, item(1)).status == 202
    for method, path in (("GET", "/v1/demand"), ("GET", "/v1/jobs"), ("GET", f"/v1/kernels/{server.kernel}"), ("GET", "/v1/cache")):
        assert server.request(method, path, token=server.demand).status == 403, path
    reader = harness.make_token(server.database, "reader", "reader")
    assert report(server, item(1), token=reader).status == 403


def test_reports_add_up_and_only_registered_kernels_and_their_keys_count(server):
    unknown = [item(7) | {"kernel": "no/such"}, item(7) | {"kernel": "sha256:" + "0" * 64}, item(7) | {"key": {"m": 7}}]
    answer = report(server, item(7, 2, hits=3, tuning_ms=1500.0), item(7, 1), item(7) | {"kernel": server.kernel}, *unknown).json
    assert answer == {"accepted": 3, "ignored": 3, "policy": "suggest"}
    report(server, item(7, 1, kernel_ms=2.0))
    row = wanted(server)[7]
    assert (row["hits"], row["misses"], row["tuning_ms"], row["kernel_ms"]) == (3, 5, 1500.0, 2.0)
    assert row["saved_ms"] == pytest.approx(1500 + 8 * 2 * row["gain"])


def test_no_report_makes_the_ranking_or_later_reports_fail(server, database, postgres):
    """Times of no length, whose products are below every float, and counts that would leave their range."""
    report(server, item(8, kernel_ms=5e-324, tuning_ms=5e-324))
    assert wanted(server)[8]["kernel_ms"] is None
    postgres.sql(f"update demand set hits = {2**63 - 1}, misses = {2**63 - 1} where key::text = '{{\"n\":8}}'", conninfo=database)
    assert report(server, item(8, 2, hits=2)).json["accepted"] == 1
    assert wanted(server)[8]["hits"] == wanted(server)[8]["misses"] > 10**12
    postgres.sql("delete from demand where key::text = '{\"n\":8}'", conninfo=database)


def test_a_table_of_the_same_name_hides_no_kernel_from_reports(server):
    external = {"name": "test/leases", "language": "external", "key": ["n"], "exports": {"json": {}}}
    entries = [{"key": {"n": 9}, "config": {"A": 1}}]
    imported = server.request("POST", "/v1/imports", {"format": "json", "environment": NEXT, "tag": "elsewhere",
                                                      "kernels": [{"manifest": external, "entries": entries}]})
    assert imported.status == 201, imported
    assert report(server, item(9)).json["accepted"] == 1
    assert wanted(server)[9]["kernel"] == server.kernel


def test_an_invalid_report_is_refused_with_its_pointer(server):
    answer = report(server, item(1, -1))
    assert answer.status == 422 and answer.json["pointer"] == "/items/0/misses"


def test_a_token_that_reports_too_often_has_to_wait(server):
    token = harness.make_token(server.database, "eager", "demand")
    answers = (report(server, item(2), token=token) for _ in range(1000))  # a slow machine posts more before its bucket is empty
    refused = next(a for a in answers if a.status == 429)
    assert "eager" in refused.json["detail"] and int(refused.headers["Retry-After"]) >= 1
    assert report(server, item(2)).status == 202


def test_the_keys_missed_most_are_queued_with_the_space_of_the_last_job(server):
    tune(server, 1000)
    report(server, item(1001, 1, tuning_ms=1.0), item(1002, 5, tuning_ms=9e6), item(1000, 50))
    rows = wanted(server)
    assert 1000 not in rows, "it is tuned"
    assert rows[1002]["saved_ms"] > rows[1001]["saved_ms"]
    shown = wavetune(server, "demand").stdout.splitlines()
    assert '{"n":1002}' in shown[1]
    queued = json.loads(wavetune(server, "demand", "--queue", "1", "--json").stdout)
    assert [q["key"]["n"] for q in queued] == [1002]
    job = server.get(f"/v1/jobs/{queued[0]['job']}")
    assert (job["state"], job["priority"], job["space"], job["key"]) == ("queued", -100, SMALL, {"n": 1002})
    assert 1002 not in wanted(server)
    Hand(server, "tuner").work()


def test_the_few_configs_of_a_revalidation_are_not_taken_for_the_kernels_space(server):
    """Else a key would be tuned among two configs, be called faster, be released, and never be missed again."""
    tune(server, 1100)
    tune(server, 1101, space={"configs": [{"A": 1}, {"A": 2}]}, purpose="revalidate")
    report(server, item(1102, tuning_ms=9e8))
    queued = json.loads(wavetune(server, "demand", "--queue", "1", "--json").stdout)
    assert [q["key"]["n"] for q in queued] == [1102]
    assert server.get(f"/v1/jobs/{queued[0]['job']}")["space"] == SMALL
    Hand(server, "tuner").work()


def test_the_gain_of_a_kernel_is_against_its_default_and_not_against_incumbents(server, start, postgres):
    """Else kernels whose keys were tuned before would rank last."""
    other = start(harness.Server, postgres.database(), options=ONE)
    other.kernel, other.demand = register(other), harness.make_token(other.database, "deployment", "demand")
    space = SMALL | {"default": {"A": 1}}
    tune(other, 1, space=space)
    report(other, item(2, tuning_ms=1.0))
    first = wanted(other)[2]["gain"]
    for run in range(4):
        job = tune(other, 1, space=space, run=f"again {run}", ratios={0: 2.0, 1: 1.0, 2: 4.0})
        assert other.get(f"/v1/jobs/{job}")["baseline_from"] == "incumbent"
    tune(other, 3, space={"configs": [{"A": 2}]}, purpose="revalidate", ratios={0: 1.0})
    assert first == pytest.approx(0.5, abs=0.01) and wanted(other)[2]["gain"] == pytest.approx(first, abs=0.01)


def test_demand_that_no_agent_could_measure_stays_listed_until_one_enrols(server):
    body = {"environment": ENVIRONMENT | {"arch": "riscv64"}, "items": [item(1003, tuning_ms=9e8)]}
    assert server.request("POST", "/v1/demand", body, token=server.demand).status == 202
    done = wavetune(server, "demand", "--queue", "1")
    assert done.stdout.startswith("refused") and "no live agent" in done.stdout, done
    assert "no live agent" in wanted(server)[1003]["refused"], "it stays listed"
    partial = {"arch": "riscv64"}
    assert report(server, item(1004, tuning_ms=9e8), environment=partial).status == 202
    assert '{"n":1004}' in wavetune(server, "demand", "--queue", "1").stdout, "those that wait do not hide others"
    assert "no live agent matches its environment" in wavetune(server, "demand").stdout
    Hand(server, "riscv", environment=ENVIRONMENT | {"arch": "riscv64"})
    assert wanted(server)[1003]["refused"] is None
    queued, = json.loads(wavetune(server, "demand", "--queue", "1", "--json").stdout)
    assert queued["key"] == {"n": 1003} and queued["job"] and 1003 not in wanted(server)


def test_a_server_that_drops_reports_states_that(start, database, server):
    other = start(harness.Server, database, options=(*ONE, "--demand", "off"))
    assert other.request("POST", "/v1/demand", {"environment": ENVIRONMENT, "items": [item(3000)]},
                         token=server.demand).json == {"accepted": 0, "ignored": 1, "policy": "off"}
    assert 3000 not in wanted(server)
    assert "--demand suggest" in wavetune(other, "demand").stderr


def test_an_unknown_policy_is_refused(database):
    done = subprocess.run([harness.BUILD / "wavetune-server", "serve", "--database", database, "--demand", "maybe"],
                          capture_output=True, text=True)
    assert done.returncode == 2 and "maybe" in done.stderr and "suggest" in done.stderr


def test_the_automatic_mode_of_older_servers_names_the_policy_that_does_the_same(server, postgres):
    """Any token's keys become jobs in the order of the ranking, with the space, the budget and the run of jobs by hand."""
    refused = subprocess.run([harness.BUILD / "wavetune-server", "serve", "--database", server.database,
                              "--demand", "automatic"], capture_output=True, text=True)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    command = re.search(r"`wavetune (policy set .*)`", refused.stderr)[1].replace("--jobs-per-hour 60", "--jobs-per-hour 2")
    made = wavetune(server, *shlex.split(command))
    owner = server.items("/v1/policies")[0]["set_by"]
    assert "jobs an hour 2" in made.stdout and 'run          ""' in made.stdout
    tune(server, 2000, budget={"device_seconds": 50})
    postgres.sql("update jobs set created_at = created_at - interval '61 minutes'", conninfo=server.database)
    report(server, *(item(n, tuning_ms=1e8 - n) for n in range(2001, 2006)))
    found = lambda: {j["key"]["n"]: j["job"] for j in server.items("/v1/jobs") if j["key"]["n"] in range(2001, 2006)}
    wait_until(lambda: len(found()) >= 2, 60, "two jobs")
    for n in (2001, 2002):
        job = server.get(f"/v1/jobs/{found()[n]}")
        assert (job["run"], job["budget"]["device_seconds"], job["submitted_by"]) == ("", 50, owner), job
    postgres.sql("update jobs set created_at = created_at - interval '59 minutes'", conninfo=server.database)
    before = count(server, "policy_unlock")
    wait_until(lambda: count(server, "policy_unlock") > before + 1, 60, "two passes of the policy")
    assert set(found()) == {2001, 2002}, "two in an hour"
    postgres.sql("update jobs set created_at = created_at - interval '2 minutes'", conninfo=server.database)
    wait_until(lambda: set(found()) == {2001, 2002, 2003, 2004}, 60, "the jobs of the next hour")
    assert server.request("DELETE", f"/v1/policies/{server.items('/v1/policies')[0]['id']}").status == 204
    Hand(server, "tuner").work()


def count(server, statement):
    """How often a statement was executed."""
    found = re.search(rf'statement="{statement}"[^}}]*}} (\d+)', server.request("GET", "/metrics").body.decode())
    return int(found[1]) if found else 0


ROCM = {"rocm": "6.4.0", "triton": "3.3.1", "gpu": "Test GPU", "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}


def query(environment, **more):
    return "&".join(f"{k}={v}" for k, v in (environment | more).items()).replace(" ", "%20").replace("/", "%2F")


def test_a_similar_environment_is_served_only_on_request(server, database, postgres):
    tune(server, 64, tag="near")
    release = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "tag": "near"}).json["release"]
    assert server.request("PUT", "/v1/channels/near", {"release": release}).status == 200
    near = ENVIRONMENT | {"cpu": "gcc 9"}
    path = f"/v1/cache?{query(near, tag='near', channel='near')}"
    assert server.request("GET", path).status == 404
    assert server.request("GET", path + "&match=compatible").status == 404
    pair = ("--asked", '{"cpu": "gcc 9"}', "--served", '{"cpu": "gcc 1"}')
    declared = json.loads(wavetune(server, "compatible", "add", *pair, "--reason", "same code", "--json").stdout)["id"]
    assert json.loads(wavetune(server, "compatible", "add", *pair, "--json").stdout)["id"] == declared, "known"
    assert server.request("GET", path).status == 404, "strict by default"
    answer = server.request("GET", path + "&match=compatible")
    assert answer.status == 200 and answer.headers["Wavetune-Match"] == "compatible; cpu=gcc 1"
    assert answer.json["match"]["differs"] == {"cpu": {"asked": "gcc 9", "served": "gcc 1"}}
    assert answer.json["release"] == release
    exact = server.request("GET", f"/v1/cache?{query(ENVIRONMENT, tag='near', channel='near')}&match=compatible")
    assert exact.headers["Wavetune-Match"] == "exact"
    assert "gcc 9" in wavetune(server, "compatible", "list").stdout
    wavetune(server, "compatible", "remove", declared)
    assert server.request("GET", path + "&match=compatible").status == 404, "the cached answer was dropped"
    assert wavetune(server, "compatible", "remove", declared, check=False).returncode == 4
    assert wavetune(server, "compatible", "add", "--asked", "{}", "--served", "{}", check=False).returncode == 4
    assert wavetune(server, "compatible", "add", "--asked", "{}", check=False).returncode == 2
    assert server.request("GET", path + "&match=wide").status == 422


def test_a_cache_that_another_server_withdrew_is_served_no_longer(server, database, start):
    other = start(harness.Server, database, options=ONE)
    tune(server, 65, tag="withdrawn")
    release = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "tag": "withdrawn"}).json["release"]
    assert server.request("PUT", "/v1/channels/withdrawn", {"release": release}).status == 200
    path = f"/v1/cache?{query(ENVIRONMENT | {'cpu': 'gcc 8'}, tag='withdrawn', channel='withdrawn')}&match=compatible"
    declare = lambda reason: server.request("POST", "/v1/compatibilities", {"asked": {"cpu": "gcc 8"}, "served": {"cpu": "gcc 1"},
                                                                            "reason": reason}).json["id"]
    declared = declare("a guess")
    assert other.get(path)["match"]["reason"] == "a guess"
    declare("tried")
    wait_until(lambda: other.get(path)["match"]["reason"] == "tried", 60, "the other server to answer with the new reason")
    assert server.request("DELETE", f"/v1/compatibilities/{declared}").status == 204
    wait_until(lambda: other.request("GET", path).status == 404, 60, "the other server to serve it no longer")


def test_a_campaign_measures_the_winners_on_a_new_stack_and_tunes_failed_ones_again(server, database):
    for key in (1, 2, 3):
        tune(server, key, tag="upgrade", space=SMALL | {"default": {"A": 1}})
    published = wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--tag", "upgrade", "--channel", "old")
    assert "3 winners" in published.stdout
    node = Hand(server, "next", environment=NEXT)
    # The winner of every key has the ordinal 0 in its list, the default comes after it. On the new stack the default is faster
    # for one key, and for another the winner dies.
    ended = threading.Event()

    def work():
        while not ended.is_set():
            lease = node.pull(wait=1)
            if lease.status != 200:
                continue
            key, is_small = lease.json["key"]["n"], "configs" in lease.json["space"]
            ratios = {0: 0.5, 1: 1.0} if is_small and key != 2 else {0: 1.5, 1: 1.0} if is_small else None
            outcomes = {0: "runtime"} if is_small and key == 3 else None
            node.post(lease.json, ratios=ratios or {0: 1.0, 1: 0.5, 2: 2.0}, outcomes=outcomes)

    worker = threading.Thread(target=work)
    worker.start()
    call = ("campaign", "revalidate", "--from", json.dumps(ENVIRONMENT), "--to", json.dumps(NEXT), "--tag", "upgrade",
            "--channel", "old", "--wait")
    try:
        done = wavetune(server, *call, "--json", check=False)
    finally:
        ended.set()
        worker.join()
    assert done.returncode == 1, done
    document = json.loads(done.stdout)
    outcomes = {i["key"]["n"]: i["outcome"] for i in document["items"]}
    assert outcomes == {1: "still best", 2: "broke", 3: "broke"}, document
    assert (document["keys"], document["still_best"], document["broke"], document["without_regret"]) == (3, 1, 2, 1)
    assert document["worst_regret"] == pytest.approx(0.5, abs=0.01)
    retuned = [server.get(f"/v1/jobs/{i['retune']}") for i in document["items"] if i["retune"]]
    assert [(j["state"], j["space"]["parameters"]) for j in retuned] == [("done", SMALL["parameters"])] * 2
    again = wavetune(server, *call, check=False)
    assert "1 of 3 keys still best (33.3 %), worst regret 50.0 %" in again.stdout, "the same jobs, all done"


def test_a_campaign_that_cannot_begin_is_refused_with_the_reason(server):
    some = json.dumps(ENVIRONMENT)
    assert wavetune(server, "campaign", "revalidate", "--from", some, check=False).returncode == 2
    assert wavetune(server, "campaign", "revalidate", "--from", some, "--to", "[]", check=False).returncode == 2
    assert wavetune(server, "campaign", "revalidate", "--from", some, "--to", some, "--channel", "no", check=False).returncode == 4


def test_a_campaign_to_an_environment_that_is_not_known_is_refused_as_a_whole(server):
    tune(server, 60, tag="nowhere")
    tune(server, 61, tag="nowhere")
    wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--tag", "nowhere", "--channel", "nowhere")
    Hand(server, "next", environment=NEXT)
    call = ("campaign", "revalidate", "--from", json.dumps(ENVIRONMENT), "--tag", "nowhere", "--channel", "nowhere", "--to")
    done = wavetune(server, *call, '{"cpu": "gcc 99"}', check=False)
    assert done.returncode == 2 and done.stdout == "" and "--to" in done.stderr and done.stderr.count("\n") == 1, done
    assert json.dumps(ENVIRONMENT["cpu"]) in done.stderr and json.dumps(NEXT["cpu"]) in done.stderr, "those that are known"
    full = wavetune(server, *call, json.dumps(ENVIRONMENT | {"cpu": "gcc 99"}), check=False)
    assert full.returncode == 2 and "fits no known environment" in full.stderr and full.stdout == "", full
    assert "gcc 99" not in [e["environment"].get("cpu") for e in server.items("/v1/environments")], "no phantom"
    several = wavetune(server, *call, "{}", check=False)
    assert several.returncode == 2 and json.dumps(NEXT["cpu"]) in several.stderr, "those that fit"
    assert not [j for j in server.items("/v1/jobs") if j["tag"] == "nowhere" and j["environment"] != ENVIRONMENT]


def test_a_campaign_without_a_live_node_says_so_and_ends_at_its_time(server, postgres, database):
    tune(server, 65, tag="asleep")
    wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--tag", "asleep", "--channel", "asleep")
    gone = ENVIRONMENT | {"cpu": "gcc 3"}
    node = Hand(server, "gone", environment=gone)
    postgres.sql(f"update agents set last_seen = now() - interval '1 day' where id = '{node.id}'", conninfo=database)
    done = wavetune(server, "campaign", "revalidate", "--from", json.dumps(ENVIRONMENT), "--to", json.dumps(gone), "--tag", "asleep",
                    "--channel", "asleep", "--timeout", "1", check=False)
    assert done.returncode == 9 and done.stdout == "", done
    said = done.stderr.splitlines()
    assert "no live agent matches --to" in said[0] and "1 of 1 winners are measured as run revalidate-" in said[1], said
    assert "1 of 1 job had not ended after 1 s" in said[2], said


def test_a_campaign_leaves_out_cancelled_jobs(server):
    tune(server, 70, tag="cancelled")
    tune(server, 71, tag="cancelled")
    wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--tag", "cancelled", "--channel", "cancelled")
    node = Hand(server, "another", environment=NEXT)
    call = ("campaign", "revalidate", "--from", json.dumps(ENVIRONMENT), "--to", json.dumps(NEXT), "--tag", "cancelled", "--channel",
            "cancelled")
    finished = []
    worker = threading.Thread(target=lambda: finished.append(wavetune(server, *call, "--json", check=False)))
    worker.start()
    of_tag = lambda: [j for j in server.items("/v1/jobs") if j["tag"] == "cancelled" and j["environment"] == NEXT]
    wait_until(lambda: len(of_tag()) == 2, 60, "both small jobs")
    cancelled = next(j for j in of_tag() if j["key"]["n"] == 70)
    assert server.request("DELETE", f"/v1/jobs/{cancelled['job']}").status == 200
    wait_until(lambda: node.work(ratios={0: 0.5, 1: 1.0}) or not worker.is_alive(), 60, "the other one")
    worker.join()
    outcomes = {i["key"]["n"]: i["outcome"] for i in json.loads(finished[0].stdout)["items"]}
    assert outcomes == {70: "left out", 71: "still best"}, finished
    assert len(of_tag()) == 2, "a cancelled job is not tuned again"


@pytest.fixture
def forgetful(server, database, postgres):
    """The server, while no other request records that a release was made or fetched."""
    postgres.sql("create function forget() returns trigger language plpgsql as 'begin return null; end';"
                 "create trigger forget before insert on release_fetches for each row"
                 " when (new.fetched_at > now() - interval '1 h') execute function forget()", conninfo=database)
    yield server
    postgres.sql("drop function forget cascade", conninfo=database)


def test_releases_that_a_channel_or_a_recent_fetch_needs_are_never_collected(forgetful, database, postgres):
    server = forgetful
    job = tune(server, 5000, tag="gc")
    releases = []
    for config in (1, 2, 3):
        pins = [{"kernel": server.kernel, "key": {"n": 5000}, "config": {"A": config}}]
        answer = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "tag": "gc", "pins": pins}).json
        releases.append(answer["release"])
    served, fetched, idle = releases
    assert server.request("PUT", "/v1/channels/gc", {"release": served}).status == 200
    sql = lambda text: postgres.sql(text, conninfo=database)
    sql("alter table releases disable trigger releases_are_immutable; update releases set created_at = now() - interval '60 d'"
        " where tag = 'gc'; update blobs set created_at = now() - interval '60 d'")
    sql(f"insert into release_fetches values ('\\x{fetched[7:]}', now() - interval '1 d')")
    orphan = b"no release names this"
    import hashlib
    digest = hashlib.sha256(orphan).hexdigest()
    server.request("PUT", f"/v1/blobs/sha256:{digest}", orphan)
    sql(f"update blobs set created_at = now() - interval '60 d' where digest = '\\x{digest}'")
    document = json.loads(wavetune(server, "gc", "--dry-run", "--json").stdout)
    assert [r["release"] for r in document["releases"]] == [idle] and document["files"] == {"n": 1, "bytes": len(orphan)}
    assert server.get(f"/v1/releases/{idle}")["tag"] == "gc", "a dry run removes nothing"
    assert "removed 1 releases and 1 files" in wavetune(server, "gc").stdout
    assert "removed 0 releases and 0 files" in wavetune(server, "gc").stdout
    assert {r["release"] for r in server.items("/v1/releases") if r["tag"] == "gc"} == {served, fetched}
    assert server.get(f"/v1/jobs/{job}")["state"] == "done"
    assert server.request("POST", "/v1/gc", {"keep_days": 0}).status == 422


def age(postgres, database, tag):
    postgres.sql("alter table releases disable trigger releases_are_immutable; update releases set created_at = now() - "
                 f"interval '60 d' where tag = '{tag}'", conninfo=database)


def test_renewals_of_a_release_do_not_displace_the_rollback_target(server, database, postgres):
    tune(server, 5100, tag="renewed")
    releases = []
    for config in (1, 2):
        pins = [{"kernel": server.kernel, "key": {"n": 5100}, "config": {"A": config}}]
        releases.append(server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "tag": "renewed", "pins": pins}).json["release"])
        assert server.request("PUT", "/v1/channels/renewed", {"release": releases[-1]}).status == 200
    for day in range(10, 20):
        body = {"release": releases[1], "expires": f"2036-01-{day}T00:00:00Z"}
        assert server.request("PUT", "/v1/channels/renewed", body).status == 200
    age(postgres, database, "renewed")
    assert server.request("POST", "/v1/gc", {}).json["releases"] == []
    wavetune(server, "rollback", "renewed", "--tag", "renewed")
    assert server.get("/v1/channels/renewed?tag=renewed")["release"] == releases[0]


def test_the_history_of_a_channel_names_releases_that_are_gone(forgetful, database, postgres):
    server = forgetful
    tune(server, 5200, tag="long")
    values = [[a, b] for a in (1, 2, 3) for b in (1, 2, 3)]
    tune(server, 5201, tag="long")
    for a, b in values:
        pins = [{"kernel": server.kernel, "key": {"n": n}, "config": {"A": v}} for n, v in ((5200, a), (5201, b))]
        release = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "tag": "long", "pins": pins}).json["release"]
        assert server.request("PUT", "/v1/channels/long", {"release": release}).status == 200
    age(postgres, database, "long")
    before = server.get("/v1/channels/long/entries?tag=long")["items"]
    gone = [r["release"] for r in server.request("POST", "/v1/gc", {}).json["releases"]]
    assert gone == [before[-1]["release"]], "the last 8 are kept"
    assert server.get("/v1/channels/long/entries?tag=long")["items"] == before


def test_demand_that_is_no_longer_reported_is_collected(server, database, postgres):
    report(server, item(5300), item(5301))
    old = "key::text = '{\"n\":5300}'"
    postgres.sql(f"update demand set last_at = now() - interval '60 d' where {old}", conninfo=database)
    assert server.request("POST", "/v1/gc", {"dry_run": True}).json["demand"] == 1
    assert 5300 in wanted(server)
    assert "1 keys of demand" in wavetune(server, "gc").stdout
    assert 5300 not in wanted(server) and 5301 in wanted(server)


class Psql:
    """A database session with chosen statements."""

    def __init__(self, database):
        self.process = subprocess.Popen([postgres_bin() / "psql", "-qAtX", database], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def say(self, sql):
        print(sql, "\\echo done", sep="\n", file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n", sql

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def while_locked(database, postgres, sql, end, call):
    """The answer of `call`, which waits for a row that `sql` locked until `end` is executed and committed."""
    answers = []
    with Psql(database) as psql:
        psql.say(f"begin; {sql};")
        caller = threading.Thread(target=lambda: answers.append(call()))
        caller.start()
        wait_until(lambda: postgres.sql("select count(*) from pg_stat_activity where wait_event_type = 'Lock'",
                                        conninfo=database) != "0", 60, "it to wait")
        psql.say(f"{end}; commit;")
        caller.join()
    return answers[0]


def test_a_release_that_a_channel_takes_while_it_is_collected_stays(forgetful, database, postgres):
    server = forgetful
    tune(server, 5400, tag="race")
    release = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "tag": "race"}).json["release"]
    age(postgres, database, "race")
    of_it = f"from releases where digest = '\\x{release[7:]}'"
    move = f"insert into channels (name, environment_digest, tag, release, counter) select 'race', environment_digest, tag, digest, 1 {of_it}"
    answer = while_locked(database, postgres, f"do $$ begin perform 1 {of_it} for key share; end $$", move,
                          lambda: server.request("POST", "/v1/gc", {}))
    assert answer.status == 200 and answer.json["releases"] == [], answer
    assert server.get(f"/v1/releases/{release}")["tag"] == "race"


def test_a_channel_does_not_move_to_a_release_that_is_being_collected(server, database, postgres):
    tune(server, 5500, tag="late")
    release = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "tag": "late"}).json["release"]
    answer = while_locked(database, postgres, f"delete from releases where digest = '\\x{release[7:]}'", "",
                          lambda: server.request("PUT", "/v1/channels/late", {"release": release}))
    assert answer.status == 422 and "no release" in answer.json["detail"], answer


def test_a_release_that_was_made_again_or_exported_is_noted_as_fetched(server, start, database, postgres):
    tune(server, 6000, tag="noted")
    server = start(harness.Server, database, options=("--poll-ms", "10", *harness.UNHURRIED))
    release = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "tag": "noted"}).json["release"]
    taken = f"delete from release_fetches where release = '\\x{release[7:]}' returning 1"
    wait_until(lambda: postgres.sql(taken, conninfo=database) == "1", 100, "the time of its making to be recorded")
    server.get(f"/v1/releases/{release}/export/json")
    wait_until(lambda: postgres.sql(taken, conninfo=database) == "1", 100, "the export to be recorded")


# What programs that start tuned miss

CLOSURE = "sha256:" + "b" * 64


def missed(n=64, **more):
    return {"function": CLOSURE, "name": "add", "key": [str(n), "'torch.float16'"], "why": "the release has nothing of it", **more}


def report_misses(server, *items, token=None, environment=ENVIRONMENT):
    return server.request("POST", "/v1/demand", {"environment": environment, "missed": list(items)}, token=token or server.demand)


def listed_misses(server):
    return server.get("/v1/demand")["missed"]


def test_what_programs_missed_is_counted_and_listed_with_why(server):
    assert report_misses(server, missed(), missed(65)).json == {"accepted": 2, "ignored": 0, "policy": "suggest"}
    assert report_misses(server, missed(tuning_ms=250)).status == 202
    assert report_misses(server, missed(why="another environment")).status == 202
    first, second = listed_misses(server)
    assert (first["function"], first["name"], first["key"], first["misses"]) == (CLOSURE, "add", missed()["key"], 3)
    assert (first["why"], first["tuning_ms"], first["saved_ms"], first["capture"]) == ("another environment", 250, 750, None)
    assert (second["misses"], second["saved_ms"]) == (1, None)
    part = {"module": "m", "qualname": "add", "line": 1, "text": "def add(): pass\n"}
    function = {"version": 1, "closure": CLOSURE, "name": "m:add", "parts": [part]}
    server.request("POST", "/v1/captures", {"functions": [function]}, token=server.demand)
    assert listed_misses(server)[0]["capture"] == server.items("/v1/captures")[0]["id"]
    shown = wavetune(server, "demand").stdout
    assert "programs that start tuned had no config for:" in shown and "another environment" in shown


def test_a_miss_is_listed_for_a_week_and_then_removed(server, postgres):
    report_misses(server, missed(66, name="old"), missed(67))
    postgres.sql("update program_misses set last_at = now() - interval '8 days' where name = 'old'", conninfo=server.database)
    assert {"67"} == {one["key"][0] for one in listed_misses(server)} & {"66", "67"}
    wait_until(lambda: postgres.sql("select count(*) from program_misses where name = 'old'", conninfo=server.database) == "0", 60,
               "the removal")


@pytest.mark.parametrize("body,pointer", [
    ({}, "/items"), ({"missed": []}, "/missed"), ({"missed": [missed(function="x")]}, "/missed/0/function"),
    ({"missed": [missed(why="two\nlines")]}, "/missed/0/why"), ({"missed": [missed(), missed(key=["x" * 4097])]}, "/missed/1")])
def test_a_wrong_report_of_misses_is_refused_with_its_place(server, body, pointer):
    refused = server.request("POST", "/v1/demand", {"environment": ENVIRONMENT, **body}, token=server.demand)
    assert (refused.status, refused.json["pointer"]) == (422, pointer)


# Logs

LOG = """INFO 11-29 07:00:00 loading
(Worker_TP0) WARNING Using default W8A8 Block FP8 kernel config. Performance might be sub-optimal! Config file not found at \
/v/configs/N=2112,K=7168,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json
(Worker_TP1) WARNING Using default W8A8 Block FP8 kernel config. Performance might be sub-optimal! Config file not found at \
/v/configs/N=2112,K=7168,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json
Using default MoE config. Performance might be sub-optimal! Config file not found at /t/E=8,N=1792,device_name=AMD_Instinct_MI300X\
.json, /v/E=8,N=1792,device_name=AMD_Instinct_MI300X.json
[aiter] shape is M:16, N:1536, K:7168, not found tuned config in /tmp/a8w8_blockscale_tuned_gemm.csv, will use default config!
Config file not found at /etc/other.json
""".replace("\\\n", "")


def tables_kernel(folder, name, key, exports):
    """A kernel of tables, which no test measures."""
    return harness.small_kernel(folder, name=name, key=key, exports=exports, flops=key[0], bytes=key[0], arguments=[
        {"name": "y", "dtype": "float32", "shape": [key[0]], "access": "write"},
        {"name": "x", "dtype": "float32", "shape": [key[0]], "access": "read", "fill": "normal"},
        {"name": "n", "dtype": "int64", "value": key[0]}])


def from_log(server, text, *options, **more):
    environment = {**harness.os.environ, "WAVETUNE_URL": server.url if server else "http://127.0.0.1:1",
                   "WAVETUNE_TOKEN": server.token if server else "wt_none"}
    return subprocess.run([harness.BUILD / "wavetune", "demand", "--from-log", "-", *options], text=not isinstance(text, bytes),
                          input=text, capture_output=True, env=environment, timeout=600, check=True, **more)


def test_a_log_states_missing_tables_and_without_a_server_they_are_listed():
    done = from_log(None, LOG, "--json")
    gemm, moe, aiter = json.loads(done.stdout)
    assert gemm == {"table": "vllm-w8a8", "device": "AMD_Instinct_MI300X", "misses": 2, "members": {
        "N": 2112, "K": 7168, "dtype": "fp8_w8a8", "block_shape": "[128,128]"}, "file":
        "N=2112,K=7168,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json"}
    assert (moe["table"], moe["members"], moe["misses"]) == ("vllm-moe", {"E": 8, "N": 1792}, 1)
    assert (aiter["table"], aiter["members"]) == ("aiter-csv", {"M": 16, "N": 1536, "K": 7168})
    assert "registered kernels were not looked up" in done.stderr and "not understood: 1\n" in done.stderr
    assert "states no missing table" in from_log(None, "nothing\n").stderr
    assert json.loads(from_log(None, b"\0\xff" * 1000000, "--json").stdout) == []


def test_a_registered_kernel_of_a_missing_table_gets_the_command_that_queues_its_keys(server, tmp_path):
    gemm = tables_kernel(tmp_path / "gemm", "block_fp8", ["M", "N", "K"], {"vllm-w8a8": {
        "N": "N", "K": "K", "M": "M", "dtype": "fp8_w8a8", "block_shape": [128, 128], "config": {"A": "B"}}})
    moe = tables_kernel(tmp_path / "moe", "fused_moe", ["E", "N", "K", "M"], {"vllm-moe": {"E": "E", "N": "N", "M": "M"}})
    other = tables_kernel(tmp_path / "other", "int8", ["M", "N", "K"], {"vllm-w8a8": {
        "N": "N", "K": "K", "M": "M", "dtype": "int8_w8a8", "block_shape": [128, 128]}})
    wavetune(server, "kernel", "push", gemm, moe, other)
    found = {miss["table"]: miss.get("kernels") for miss in json.loads(from_log(server, LOG, "--json").stdout)}
    (own,), (lacking,) = found["vllm-w8a8"], found["vllm-moe"]
    assert (own["name"], own["key"], own["row"], own["lacks"]) == ("block_fp8/c", {"N": 2112, "K": 7168}, "M", [])
    assert own["command"] == ("wavetune submit DIR --key 'N=2112, K=7168, M=1..4096*2' --environment "
                              "'{\"gpu\": \"AMD Instinct MI300X\"}'")
    assert (lacking["name"], lacking["key"], lacking["lacks"], lacking["command"]) == (
        "fused_moe/c", {"E": 8, "N": 1792}, ["K"], None)
    assert found["aiter-csv"] is None
    words = shlex.split(own["command"].replace("DIR", str(gemm)))
    queued = wavetune(server, *words[1:-2], "--environment", json.dumps(ENVIRONMENT), "--json")
    assert len(json.loads(queued.stdout)) == 13
    text = from_log(server, LOG).stdout
    assert "# DIR: the folder of block_fp8/c\nwavetune submit DIR" in text and "lacks K; `wavetune shapes CONFIG.json" in text


def test_what_a_log_does_not_need_is_refused(tmp_path):
    for words, said in ((("--queue", "5", "--from-log", "-"), "--queue"), (("--from-log", tmp_path / "absent"), "absent"),
                        (("--from-log", tmp_path), "cannot read")):
        done = wavetune(None, "demand", *words, check=False)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done
