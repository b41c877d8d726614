"""The summary of the fleet: GET /v1/fleet, /v1/fleet/nodes, /v1/campaigns, /v1/cost, and its gauges in /metrics."""

import concurrent.futures
import json
import re
import time
import urllib.parse

import harness
import pytest
from hands import ENVIRONMENT, LARGE, SMALL, Hand, configs_of, hands, kernel, server, submit  # noqa: F401 (fixtures)
from harness import wait_until
from test_interleavings import Session
from test_leases import metric, runs_of

NONE = dict.fromkeys(("total", "ended", "lost", "yielded", "drifted", "drained", "measuring", "idle"), 0)


def counts(**some):
    return NONE | some | {"total": sum(some.values())}


@pytest.fixture
def sql(postgres, database):
    return lambda text: postgres.sql(text, conninfo=database)


def until(server, path, is_right, what):
    """The answer, once it is right: a summary may be a second old."""
    def ask():
        answer = server.get(path)
        return answer if is_right(answer) else None

    return wait_until(ask, 30, what)


def devices_of(server, query=""):
    """{(host, device): its members}"""
    return {(node["host"], device["device"]): device for node in server.items(f"/v1/fleet/nodes{query}") for device in node["devices"]}


def test_without_agents_and_jobs_everything_is_zero(server):
    fleet = server.get("/v1/fleet")
    assert fleet["devices"] == NONE and fleet["nodes"] == 0 and fleet["queue"] == []
    assert fleet["to_go"] == {"seconds": None, "basis": "No job is open."} and fleet["rate"]["utilisation"] is None
    assert server.get("/v1/fleet/nodes")["items"] == server.get("/v1/campaigns")["items"] == server.get("/v1/cost")["items"] == []
    assert server.get("/v1/cost")["device_seconds"] == 0


@pytest.mark.parametrize("since", ["x", "infinity", "2026-01-01T00:00:00Z"])
def test_an_enrolment_cannot_state_that_a_device_is_yielded(server, since):
    agent = {"name": "n", "boot": "b", "version": "1", "devices": [
        {"device": "cpu0", "backend": "cpu", "environment": ENVIRONMENT, "facts": {"cores": 2, "yielded": {"since": since, "reason": "r"}}}]}
    answer = server.request("POST", "/v1/agents", agent)
    assert answer.status in (200, 201), answer.body
    until(server, "/v1/fleet", lambda f: f["devices"] == counts(idle=1), "the device to be idle")
    assert server.items("/v1/agents")[0]["devices"][0]["facts"] == {"cores": 2}


def test_each_device_has_a_state_with_its_time_and_reason(server, hands, submit, sql):
    working, drained, lost, gone = (hands(name, devices=("cpu0", "cpu1")) for name in ("working", "drained", "lost", "gone"))
    job = submit(SMALL)
    lease = working.pull().json
    assert working.renew(lease, configs_of(lease)[1]).status == 200
    assert server.request("POST", f"/v1/agents/{drained.id}/drain", {"reason": "a new fan"}).status == 200
    assert server.request("POST", f"/v1/agents/{working.id}/drain", {"reason": "noise", "device": "cpu1"}).status == 200
    sql(f"""update devices set suspect_since = now() - interval '1 hour', drain_reason = 'slower', drained_by = '(server)'
              where agent = '{drained.id}' and device = 'cpu0';
            update agents set last_seen = now() - interval '2 hours' where id = '{lost.id}';
            update agents set last_seen = now() - interval '8 days' where id = '{gone.id}'""")
    fleet = until(server, "/v1/fleet", lambda f: f["devices"] == counts(measuring=1, drained=2, drifted=1, lost=2), "the states")
    assert fleet["nodes"] == 3

    devices = devices_of(server)
    assert {place: device["state"] for place, device in devices.items()} == {
        ("working", "cpu0"): "measuring", ("working", "cpu1"): "drained", ("drained", "cpu0"): "drifted",
        ("drained", "cpu1"): "drained", ("lost", "cpu0"): "lost", ("lost", "cpu1"): "lost"}
    at = devices["working", "cpu0"]
    assert (at["job"], at["kernel"], at["key"], at["tag"], at["run"], at["stage"]) == (job, "test/leases", {"n": 64}, "default", "", "screen")
    assert (at["config"], at["of"], at["left"]) == (configs_of(lease)[1], 3, 3)
    assert (at["gpu"], at["arch"], at["partition"], at["backend"]) == ("Test CPU", "x86_64", "", "cpu")
    assert devices["working", "cpu1"]["reason"] == "noise" and devices["working", "cpu1"]["by"].startswith("admin")
    assert devices["drained", "cpu1"]["reason"] == "a new fan" and devices["drained", "cpu0"]["by"].startswith("admin")
    now_ms = fleet["as_of_ms"]
    for place, at_least, at_most in ((("working", "cpu0"), 0, 600e3), (("working", "cpu1"), 0, 600e3), (("drained", "cpu1"), 0, 600e3),
                                     (("drained", "cpu0"), 3600e3, 4200e3), (("lost", "cpu0"), 7200e3, 7800e3)):
        assert at_least <= now_ms - devices[place]["since_ms"] <= at_most, place
    nodes = {node["host"]: node for node in server.get("/v1/fleet/nodes")["items"]}
    assert (nodes["drained"]["reason"], nodes["working"]["reason"]) == ("a new fan", None)


YIELD = """update devices set facts = '{"yielded": {"since": "2026-01-01T00:00:00Z", "reason": "slurm job 4711"}}'"""


def test_a_yielded_device_shows_why_it_yielded_even_if_it_is_drained(server, hands, sql):
    hand = hands("a")
    assert server.request("POST", f"/v1/agents/{hand.id}/drain", {"reason": "a new fan"}).status == 200
    sql(YIELD)
    until(server, "/v1/fleet", lambda f: f["devices"] == counts(yielded=1), "the device to yield")
    device = devices_of(server)["a", "cpu0"]
    assert (device["reason"], device["by"]) == ("slurm job 4711", None)
    assert server.get("/v1/fleet/nodes")["items"][0]["reason"] == "a new fan", "the node's own stays"


def test_a_job_waits_for_yielded_devices(server, hands, submit, sql):
    hands("a", devices=("cpu0", "cpu1"))
    job = submit(SMALL)
    assert server.get(f"/v1/jobs/{job}")["waiting"] is None
    sql(YIELD + " where device = 'cpu0'")
    assert server.get(f"/v1/jobs/{job}")["waiting"] is None, "another device takes leases"
    sql(YIELD)
    assert server.get(f"/v1/jobs/{job}")["waiting"].endswith("takes leases; yielded to other programs: 2")


def test_a_device_that_ended_its_lease_is_idle_since_then(server, hands, submit):
    hand = hands("a")
    submit(SMALL)
    lease = hand.pull().json
    until(server, "/v1/fleet", lambda f: f["devices"] == counts(measuring=1), "the device to measure")
    before = time.time() * 1000
    assert server.request("POST", f"/v1/leases/{lease['lease']}/release", {"epoch": lease["epoch"], "reason": "test"}).status == 200
    until(server, "/v1/fleet", lambda f: f["devices"] == counts(idle=1), "the device to be idle")
    idle = devices_of(server)["a", "cpu0"]
    assert idle["since_ms"] >= before - 1000 and idle["job"] is None and idle["config"] is None


def test_draining_shows_at_once(server, hands):
    hand = hands("a")
    assert server.get("/v1/fleet")["devices"] == counts(idle=1)
    assert server.request("POST", f"/v1/agents/{hand.id}/drain", {"reason": "x"}).status == 200
    assert server.get("/v1/fleet")["devices"] == counts(drained=1)
    assert server.request("POST", f"/v1/agents/{hand.id}/drain", {"reason": None}).status == 200
    assert server.get("/v1/fleet")["devices"] == counts(idle=1)


def test_many_enrolments_outdate_the_summary_once_a_second_but_none_is_left_out(server, hands):
    began = time.monotonic()
    for i in range(40):
        hands(f"n{i}")
        assert server.get("/v1/fleet")["nodes"] >= 1
    runs, seconds = runs_of(server, "fleet_open"), time.monotonic() - began
    assert runs <= 3 + 2 * seconds, "it would be 40"
    until(server, "/v1/fleet", lambda f: f["nodes"] == 40, "all nodes, although nothing else happens")


def test_what_has_not_changed_is_not_sent_again(server, hands, submit):
    hand = hands("a")
    for path in ("/v1/fleet", "/v1/fleet/nodes", "/v1/campaigns"):
        def again(tag, path=path):
            answer = server.request("GET", path, headers={"If-None-Match": tag})
            assert answer.status in (200, 304) and (answer.status == 200 or answer.body == b"")
            return answer

        tag = server.request("GET", path).headers["ETag"]
        # An idle fleet stays as it is but for the time over which rates are, and the heartbeats of its nodes.
        if path != "/v1/fleet":
            assert again(tag).status == 304, path
            assert again('"other"').status == 200 and again(f'"other", {tag}').status == 304
        submit(SMALL, run=path)
        if path == "/v1/fleet/nodes":
            hand.pull()
        wait_until(lambda: again(tag).status == 200, 30, f"the change of {path}")
    fleet = server.get("/v1/fleet/nodes")["items"]
    assert len(fleet) == 1, "a tag does not change what is answered without one"


def test_requests_that_wait_for_a_summary_take_no_database_worker(server, hands, database):
    """Of requests that come while an outdated summary is made anew, one makes it; the others are parked."""
    hand, session = hands("a"), Session(database)
    assert server.get("/v1/fleet")["devices"] == counts(idle=1)
    session.run("begin")
    session.run("lock table job_usage in access exclusive mode")
    assert server.request("POST", f"/v1/agents/{hand.id}/drain", {"reason": "x"}).status == 200
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        waiting = [pool.submit(server.get, path) for path in ("/v1/fleet", "/v1/fleet/nodes") for _ in range(20)]
        wait_until(lambda: metric(server, "wavetune_parked") >= 39, 30, "all but one to be parked")
        assert server.get("/v1/token")["name"], "a worker is free"
        assert not any(each.done() for each in waiting)
        session.run("commit")
        answers = [each.result(60) for each in waiting]
    session.close()
    assert all(answer["devices"] == counts(drained=1) for answer in answers[:20])
    assert all(answer["items"][0]["reason"] == "x" for answer in answers[20:])


def test_nodes_are_paged_in_the_order_of_their_hosts(server, hands):
    for name in ("node10", "node2", "node1", "node2"):
        hands(name)
    until(server, "/v1/fleet", lambda f: f["nodes"] == 4, "four nodes")
    pages, after = [], ""
    while after is not None:
        page = server.get(f"/v1/fleet/nodes?limit=1{after and '&after=' + after}")
        pages += [(node["host"], node["agent"]) for node in page["items"]]
        after = page["next"]
    assert [host for host, _ in pages] == ["node1", "node2", "node2", "node10"] and len(set(pages)) == 4


def test_nodes_are_filtered_by_state_and_text(server, hands, submit):
    busy = hands("busy", devices=("cpu0", "cpu1"))
    hands("calm")
    submit(SMALL)
    busy.pull()
    until(server, "/v1/fleet", lambda f: f["devices"] == counts(measuring=1, idle=2), "the states")
    assert set(devices_of(server, "?device_state=measuring")) == {("busy", "cpu0")}
    assert set(devices_of(server, "?device_state=idle")) == {("busy", "cpu1"), ("calm", "cpu0")}
    assert set(devices_of(server, "?q=CALM")) == {("calm", "cpu0")}
    assert set(devices_of(server, "?q=test/lea")) == {("busy", "cpu0")}
    assert server.get("/v1/fleet/nodes?q=none+of+them")["items"] == []


def test_the_queue_is_by_tag_and_the_time_to_go_has_its_basis(server, hands, submit):
    hand = hands("a")
    for run in "abc":
        submit(SMALL, run=run)
    submit(SMALL, tag="other", priority=-5)
    until(server, "/v1/fleet", lambda f: f["queue"], "the queue")
    hand.post(hand.pull().json, device_us=2_000_000)

    def is_known(fleet):
        return fleet["to_go"]["seconds"] and fleet["rate"]["device_seconds"]

    # The pace is known when a summary saw the device measure.
    hand.pull()
    fleet = until(server, "/v1/fleet", lambda f: f["devices"]["measuring"] == 1 and f["rate"]["device_seconds"] >= 6, "the rate")
    assert fleet["rate"]["measurements"] >= 3 and fleet["rate"]["over_s"] > 0
    rows = {row["tag"]: row for row in fleet["queue"]}
    assert list(rows) == ["default", "other"]
    assert (rows["default"]["queued"], rows["default"]["running"]) == (2, 1) and rows["default"]["leases_held"] == 1
    assert (rows["other"]["queued"], rows["other"]["leases_open"]) == (1, 1) and rows["other"]["oldest_s"] >= 0
    fleet = until(server, "/v1/fleet", is_known, "a time to go")
    assert "4 jobs" in fleet["to_go"]["basis"] and "1 devices take leases" in fleet["to_go"]["basis"]
    campaigns = {(c["tag"], c["run"]): c for c in server.get("/v1/campaigns")["items"]}
    assert campaigns["other", ""]["to_go_s"] >= campaigns["default", "b"]["to_go_s"] > 0, "it is behind the others"


def test_jobs_for_hardware_that_is_not_there_are_said_to_wait(server, hands, submit, sql):
    hand = hands("a")
    submit(SMALL)
    sql(f"update agents set last_seen = now() - interval '1 day' where id = '{hand.id}'")
    fleet = until(server, "/v1/fleet", lambda f: f["devices"]["lost"] == 1 and f["queue"], "the lost device")
    assert fleet["to_go"] == {"seconds": None, "basis": "1 jobs wait for hardware of which no device takes leases."}


@pytest.fixture
def campaign_world(server, hands, kernel, database, sql):
    """Campaigns of two owners: done, cancelled, failed and open jobs."""
    tokens = {name: harness.make_token(database, name, "submitter") for name in ("alice", "bob")}

    def submit(owner, keys, **more):
        answer = server.request("POST", "/v1/jobs", {"jobs": [{"kernel": kernel, "key": {"n": n}, "space": SMALL,
                                                               "environment": ENVIRONMENT} | more for n in keys]}, token=tokens[owner])
        assert answer.status == 201, answer
        return [job["job"] for job in answer.json["jobs"]]

    hand = hands("a")
    submit("alice", [1, 2], tag="chat", run="one")
    hand.work(device_us=500_000, opening_us=250_000)
    submit("bob", [3], tag="chat", run="one")
    failing, = submit("bob", [4], tag="batch")
    hand.post(hand.pull().json, device_us=1000)  # the job of key 3 is open, with something spent
    cancelled = submit("bob", [5, 6], tag="batch", priority=-1)
    for job in cancelled:
        assert server.request("DELETE", f"/v1/jobs/{job}", token=tokens["bob"]).status == 200
    lease = next(lease for lease in iter(lambda: hand.pull().json, None) if lease["job"] == failing)
    assert hand.post(lease, outcomes=dict.fromkeys(configs_of(lease), "runtime"), baseline_failed=[lease["baseline"]], device_us=7000).status == 200
    wait_until(lambda: server.get(f"/v1/jobs/{failing}")["state"] == "failed", 30, "the job to fail")
    return {"tokens": tokens, "submit": submit, "hand": hand}


def campaigns_by_name(server):
    return {(c["tag"], c["run"]): c for c in server.items("/v1/campaigns")}


def test_campaigns_count_their_jobs_and_what_they_cost(server, campaign_world, sql):
    campaigns = wait_until(lambda: (found := campaigns_by_name(server)).get(("batch", ""), {}).get("failed") == 1 and found, 30,
                           "the campaigns")
    assert set(campaigns) == {("chat", "one"), ("batch", "")}
    chat, batch = campaigns["chat", "one"], campaigns["batch", ""]
    states = ("queued", "running", "done", "failed", "cancelled", "jobs")
    assert [chat[s] for s in states] == [0, 1, 2, 0, 0, 3] and [batch[s] for s in states] == [0, 0, 0, 1, 2, 3]
    assert (chat["owners"], batch["owners"], chat["kernels"]) == (["alice", "bob"], ["bob"], ["test/leases"])
    assert (chat["configs"], batch["configs"]) == (9, 9)
    for campaign, tag in ((chat, "chat"), (batch, "batch")):
        seconds, n = sql("select sum(device_us + opening_us) / 1e6, sum((select sum(o) from unnest(outcomes) o)) from leases l "
                         f"join jobs j on j.id = l.job_id where j.tag = '{tag}'").split("|")
        assert campaign["device_seconds"] == pytest.approx(float(seconds)) and campaign["measurements"] == int(n)
    assert chat["device_seconds"] > 1 and batch["to_go_s"] is None
    assert batch["last_ms"] >= batch["first_ms"] > chat["first_ms"], "the newest first"
    assert [c["tag"] for c in server.get("/v1/campaigns")["items"]] == ["batch", "chat"]


def test_campaigns_are_filtered_and_paged(server, campaign_world):
    wait_until(lambda: len(campaigns_by_name(server)) == 2, 30, "the campaigns")

    def names(query):
        return [(c["tag"], c["run"]) for c in server.get(f"/v1/campaigns{query}")["items"]]

    assert names("?owner=alice") == names("?tag=chat") == names("?run=one") == names("?open=true") == [("chat", "one")]
    assert names("?open=false") == names("?run=") == [("batch", "")] and names("?owner=nobody") == []
    first = server.get("/v1/campaigns?limit=1")
    second = server.get(f"/v1/campaigns?limit=1&after={first['next']}")
    assert [c["tag"] for c in first["items"] + second["items"]] == ["batch", "chat"] and second["next"] is None


def test_no_campaign_is_skipped_where_names_begin_alike(server, submit, sql):
    """Joined to one text, "x" and "a" would be behind "x-y" and "", as tag and run are not."""
    names = [("x", ""), ("x", "a"), ("x-y", ""), ("x/a", ""), ("x/a", "/"), ("x", "/a"), ("é", "1/2"), ("x ", "")]
    for tag, run in names:
        submit(SMALL, tag=tag, run=run)
    sql("update jobs set created_at = '2026-01-01T00:00:00Z'")
    until(server, "/v1/campaigns", lambda c: [i["first_ms"] for i in c["items"]] == [1767225600000] * len(names), "the campaigns")
    pages, after = [], ""
    while after is not None:
        page = server.get("/v1/campaigns?limit=1" + (after and f"&after={urllib.parse.quote(after)}"))
        pages += [(c["tag"], c["run"]) for c in page["items"]]
        after = page["next"]
    assert pages == sorted(names, key=lambda name: [each.encode() for each in name])


def test_the_time_to_go_of_a_campaign_is_by_the_shares_of_owners(server, campaign_world, sql):
    """Of equal owners with one priority, a small campaign is not behind all of a flood that came before it."""
    world = campaign_world
    world["submit"]("alice", range(100, 130), tag="flood")
    world["submit"]("bob", [200], tag="small")
    world["hand"].post(world["hand"].pull().json, device_us=2_000_000)
    world["hand"].pull()

    def to_go():
        found = campaigns_by_name(server)
        times = [found.get((tag, ""), {}).get("to_go_s") for tag in ("small", "flood")]
        return times if None not in times else None

    small, flood = wait_until(to_go, 30, "both times")
    assert small < flood / 3, "it is served in turns"
    sql("update owners set device_seconds_per_day = 1e-6 where name = 'bob'")
    wait_until(lambda: campaigns_by_name(server)["small", ""]["to_go_s"] is None, 30, "the quota to be seen")
    assert campaigns_by_name(server)["flood", ""]["to_go_s"] > 0


@pytest.mark.parametrize("by,names", [("owner", {"alice", "bob"}), ("tag", {"chat", "batch"}), ("run", {"one", ""}),
                                      ("kernel", {"test/leases"}), ("week", None), ("day", None)])
def test_cost_is_summed_each_way_and_loses_nothing(server, campaign_world, sql, by, names):
    cost = server.get(f"/v1/cost?by={by}")
    total = float(sql("select sum(device_us + opening_us) / 1e6 from leases"))
    assert cost["by"] == by and cost["device_seconds"] == pytest.approx(total) and cost["jobs"] == 5
    assert sum(item["device_seconds"] for item in cost["items"]) == pytest.approx(total)
    assert cost["measurements"] == sum(item["measurements"] for item in cost["items"]) > 0
    if names:
        assert {item["name"] for item in cost["items"]} == names
    else:
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", item["name"]) for item in cost["items"])


def test_cost_has_only_the_days_that_are_asked_for(server, campaign_world, sql):
    sql("update job_usage set day = day - 30 where tag = 'chat'")
    now_ms, day_ms = int(time.time() * 1000), 86400 * 1000
    recent = server.get(f"/v1/cost?by=tag&from_ms={now_ms - 2 * day_ms}")
    old = server.get(f"/v1/cost?by=tag&to_ms={now_ms - 2 * day_ms}")
    assert {i["name"]: i["jobs"] for i in recent["items"]} == {"batch": 3, "chat": 0}, "its open job counts today"
    assert {i["name"]: i["jobs"] for i in old["items"]} == {"chat": 2}
    both = server.get("/v1/cost?by=tag")
    assert both["device_seconds"] == pytest.approx(recent["device_seconds"] + old["device_seconds"])
    weeks = [i["name"] for i in server.get("/v1/cost?by=week")["items"]]
    assert len(weeks) == 2 and weeks == sorted(weeks, reverse=True)


USAGE = ("select day, encode(kernel, 'hex'), tag, run, owner, sum(done), sum(failed), sum(cancelled), sum(configs), sum(measurements), "
         "sum(device_us), sum(done_configs), sum(done_us) from job_usage group by 1, 2, 3, 4, 5 "
         "having sum(done + failed + cancelled) > 0 order by 1, 2, 3, 4, 5")


def test_the_running_sums_are_those_of_all_jobs(server, campaign_world, sql):
    before = sql(USAGE)
    assert len(before.splitlines()) == 2
    sql("select job_usage_rebuild()")
    assert sql(USAGE) == before


def test_a_job_that_is_made_open_again_is_counted_once(server, campaign_world, sql):
    before = sql(USAGE)
    sql("update jobs set state = 'running', finished_at = null where state = 'failed'")
    assert sql("select sum(failed), min(failed) from job_usage where tag = 'batch'").startswith("0|")
    sql("update jobs set state = 'failed', finished_at = now() where reason is not null and state = 'running'")
    assert sql(USAGE) == before


def fleet_lines(server):
    text = server.request("GET", "/metrics").body.decode()
    return {name: float(value) for name, value in re.findall(
        r"^(wavetune_(?:devices|jobs|leases|device_seconds)(?:_oldest_seconds|_all_total|_total)?(?:\{[^\n]*\})?) (\S+)$", text, re.M)
        if "jobs_done" not in name and "lease_" not in name}


def gauges_until(server, **wanted):
    """Waits for values of gauges, by name with labels."""
    wait_until(lambda: wanted.items() <= fleet_lines(server).items(), 30, f"{wanted} in {fleet_lines(server)}")
    return fleet_lines(server)


def test_metrics_have_the_fleet_by_state_and_tag(server, campaign_world, sql):
    total = float(sql("select sum(device_us + opening_us) / 1e6 from leases"))
    lines = gauges_until(server, **{'wavetune_jobs{state="running",tag="chat"}': 1, 'wavetune_device_seconds_all_total': total})
    assert lines['wavetune_jobs{state="queued",tag="chat"}'] == 0
    assert sum(n for name, n in lines.items() if name.startswith("wavetune_devices{")) == 1
    both = [lines[f'wavetune_device_seconds_total{{kernel="test/leases",tag="{tag}"}}'] for tag in ("chat", "batch")]
    assert sum(both) == pytest.approx(total)
    text = server.request("GET", "/metrics").body.decode()
    for name in ("wavetune_devices", "wavetune_jobs", "wavetune_leases_by_tag", "wavetune_jobs_oldest_seconds", "wavetune_device_seconds_total",
                 "wavetune_device_seconds_all_total", "wavetune_devices_utilisation"):
        assert re.search(rf"^# HELP {name} .*max over servers$", text, re.M) and len(re.findall(rf"^# TYPE {name} ", text, re.M)) == 1


def test_metrics_have_at_most_64_tags_and_the_rest_in_one(server, submit, postgres):
    for i in range(70):
        submit(SMALL, tag=f"tag-{i:02}")
    wait_until(lambda: sum(n for name, n in fleet_lines(server).items() if name.startswith('wavetune_jobs{state="queued"')) == 70, 30,
               "all jobs")
    queued = {name: n for name, n in fleet_lines(server).items() if name.startswith('wavetune_jobs{state="queued"')}
    assert len(queued) == 65 and queued['wavetune_jobs{state="queued",tag=""}'] == 6
    rows = until(server, "/v1/fleet", lambda f: len(f["queue"]) == 64, "the queue")["queue"]
    assert rows[-1]["tag"] is None and rows[-1]["queued"] == 7 and sum(row["queued"] for row in rows) == 70


def test_two_servers_of_one_database_say_the_same(server, start, database, campaign_world):
    other = start(harness.Server, database, options=harness.UNHURRIED)

    def without_age(answer):
        return {name: value for name, value in answer.items() if name not in ("as_of_ms", "rate", "to_go")}

    def known(of):
        found = [without_age(of.get("/v1/fleet")), of.get("/v1/fleet/nodes")["items"], of.get("/v1/campaigns")["items"],
                 of.get("/v1/cost")["items"]]
        for row in found[0]["queue"]:
            row.pop("oldest_s")
        for campaign in found[2]:
            campaign.pop("to_go_s")
        for node in found[1]:
            node.pop("seen_ms"), [device.pop("since_ms") for device in node["devices"]]
        lines = fleet_lines(of)
        return found + [{name: n for name, n in lines.items() if "oldest" not in name}]

    wait_until(lambda: known(server) == known(other), 30, "both servers to say the same")


def test_one_summary_is_made_for_all_who_ask(server, hands):
    hands("a")

    def made():
        text = server.request("GET", "/metrics").body.decode()
        return float(re.search(r'wavetune_db_runs_total\{statement="fleet_open"\} (\S+)', text)[1])

    server.get("/v1/fleet")
    before, began = made(), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: server.get("/v1/fleet")["as_of_ms"], range(400)))
    passed = time.monotonic() - began
    assert len(set(answers)) <= passed + 2 and made() - before <= passed + 3, "one a second, and those of the housekeeper"


@pytest.mark.parametrize("path", ["/v1/fleet?x=1", "/v1/fleet/nodes?device_state=busy", "/v1/fleet/nodes?limit=0", "/v1/campaigns?open=1",
                                  "/v1/campaigns?after=x", "/v1/campaigns?after=1", "/v1/campaigns?after=1/9/ab", "/v1/campaigns?after=1/x/ab",
                                  "/v1/campaigns?state=open", "/v1/cost?by=colour", "/v1/cost?from_ms=yesterday", "/v1/cost?to_ms=-1",
                                  "/v1/cost?to_ms=99999999999999999999"])
def test_wrong_arguments_are_refused_in_a_sentence(server, path):
    answer = server.request("GET", path)
    assert answer.status == 422 and answer.json["detail"], answer


def test_readers_may_read_it_and_others_may_not(server, database):
    reader, demand = (harness.make_token(database, name, name) for name in ("reader", "demand"))
    for path in ("/v1/fleet", "/v1/fleet/nodes", "/v1/campaigns", "/v1/cost"):
        assert server.request("GET", path, token=reader).status == 200
        assert server.request("GET", path, token=demand).status == 403
        assert server.request("GET", path, token=None).status == 401


def test_hostile_names_stay_text(server, hands, submit, kernel):
    name = '<img src=x onerror=alert(1)>"\\\n'
    hands(name.strip())
    submit(SMALL, tag='a"b\\c')
    gauges_until(server, **{'wavetune_jobs{state="queued",tag="a\\"b\\\\c"}': 1})
    until(server, "/v1/fleet/nodes", lambda n: [node["host"] for node in n["items"]] == [name.strip()], "the node")
    assert json.dumps(server.get("/v1/campaigns")["items"][0]["tag"]) == json.dumps('a"b\\c')
