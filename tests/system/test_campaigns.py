"""How the server makes campaigns fast: ranges by predicted seconds, remaining configs for idle devices, earlier winners, budgets,
halving, searches and finals on several devices. The test plays the agents."""

import json
import math
import re
import threading

import harness
import pytest
from hands import ENVIRONMENT, LARGE, SMALL, Hand, configs_of, events, expire, hands, kernel, register, server, submit  # noqa: F401


def test_lease_sizes_follow_the_earlier_times_of_the_kernels_configs(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE)
    assert [len(configs_of(lease)) for lease in hand.take_all(device_us=60000) if lease["stage"] == "screen"] == [8, 8, 8]
    submit(LARGE, run="known to be slow")
    assert len(configs_of(hand.pull().json)) == 8
    hand.server.request("DELETE", f"/v1/jobs/{int(job) + 1}")
    submit(SMALL, run="quick")
    hand.work(device_us=10)
    submit(LARGE, run="of both")
    assert len(configs_of(hand.pull().json)) == 8, "the mean over the kernel's jobs"


def test_an_earlier_winner_is_the_baseline_if_it_is_a_valid_config(server, hands, submit):
    hand, first = hands("hand"), submit(SMALL)
    hand.work(ratios={2: 0.5})
    assert server.get(f"/v1/jobs/{first}")["baseline_from"] == "first"
    again = server.get(f"/v1/jobs/{submit(SMALL, run='again')}")
    assert (again["baseline"], again["baseline_from"]) == (2, "incumbent")
    defaulted = SMALL | {"default": {"A": 2}}
    job = server.get(f"/v1/jobs/{submit(defaulted, tag='another tag')}")
    assert (job["baseline"], job["baseline_from"]) == (1, "default")
    without = server.get(f"/v1/jobs/{submit(SMALL | {'conditions': ['A < 3']}, run='without it')}")
    assert (without["baseline"], without["baseline_from"]) == (0, "first")
    elsewhere = server.get(f"/v1/jobs/{submit(SMALL, key={'n': 65})}")
    assert elsewhere["baseline_from"] == "first"


def test_winners_of_other_keys_are_tried_first_in_the_first_lease(server, hands, submit):
    hand, _ = hands("hand"), submit(LARGE)
    hand.work(ratios={20: 0.5}, device_us=30000)
    job = submit(LARGE, key={"n": 128})
    leases = hand.take_all(device_us=30000)
    assert configs_of(leases[0]) == [*range(8), 20] and leases[0]["likely"] == [20]
    assert leases[1]["likely"] == leases[2]["likely"] == []
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["measured"]) == ("done", 24)


def in_order(server, hand, jobs, ratios):
    """Posts the jobs at once and works until all are done: their screens' leases by key, in the order in which they began, which
    is not that of the post. `ratios`: by key."""
    ids = [one["job"] for one in server.request("POST", "/v1/jobs", {"jobs": jobs}).json["jobs"]]
    screens = {}
    while any(server.get(f"/v1/jobs/{job}")["state"] != "done" for job in ids):
        lease = hand.pull(wait=1).json
        if lease["stage"] == "screen":
            screens.setdefault(lease["key"]["n"], []).append(lease)
        assert hand.post(lease, ratios=ratios[lease["key"]["n"]], device_us=30000).status == 200
    return screens


def test_jobs_of_one_post_begin_with_the_winners_of_those_that_are_done_before_them(server, hands, kernel):
    best = {64: 20, 1024: 7, 128: 3}
    screens = in_order(server, hands("hand"), [
        {"kernel": kernel, "key": {"n": n}, "space": LARGE, "environment": ENVIRONMENT} for n in best],
        {n: {config: 0.5} for n, config in best.items()})
    before = []
    for n, (first, *_) in screens.items():
        assert first["likely"] == [best[other] for other in sorted(before, key=lambda other: abs(math.log2(other / n)))]
        before.append(n)


def test_a_lease_has_the_best_ratio_so_far(server, hands, submit):
    hand, _ = hands("hand"), submit(LARGE)
    best = [lease["best_ratio"] for lease in hand.take_all(ratios={12: 0.75})]
    assert best[:3] == [None, 1.0, 0.75]


def test_the_best_ratio_is_not_that_of_a_config_that_left_the_race_early(server, hands, submit):
    hand, _ = hands("hand"), submit(LARGE)
    best = [lease["best_ratio"] for lease in hand.take_all(ratios={12: 0.75, 13: 0.8}, ends={12: "far", 13: "decided"})]
    assert best[:3] == [None, 1.0, 0.8]


def test_a_config_that_left_the_race_early_displaces_no_finalist_that_stayed(server, hands, submit):
    hand, _ = hands("hand"), submit(LARGE)
    ratios = dict.fromkeys(range(5, 12), 0.5) | {12: 0.5, 13: 0.8, 14: 0.82}
    final = next(lease for lease in hand.take_all(ratios=ratios, ends=dict.fromkeys(range(5, 13), "far")) if lease["stage"] == "final")
    assert {0, 13, 14} <= set(configs_of(final))


SPENT = {"cause": "spent"}
SPENT_OLD = {"reason": "the device time is spent"}  # of agents that state no cause


def release(server, lease, why, **more):
    return server.request("POST", f"/v1/leases/{lease['lease']}/release", {"epoch": lease["epoch"]} | why | more)


def test_a_lease_gets_its_share_of_the_budget_and_is_not_leased_again_when_that_is_spent(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE, budget={"device_seconds": 1.2})
    first = hand.pull().json
    assert first["device_us"] == 240000, "a third of the screen's 60 %"
    assert first["budget_us"] == 720000
    hand.post(first, configs=[0, 1], done=False, device_us=20000)
    assert release(server, first, SPENT).json == {"state": "cancelled"}
    assert ("budget", None) in events(server, job)
    second = hand.pull().json
    assert configs_of(second) == list(range(8, 16)) and second["device_us"] == (720000 - 40000) / 2
    assert release(server, second, SPENT_OLD).json == {"state": "cancelled"}, "though it measured nothing"
    assert hand.post(hand.pull().json).status == 200
    leases = hand.take_all()
    each = 1000 * len(configs_of(leases[0]))
    left = [(1200000 - 48000 - n * each) / (3 - n) for n in range(3)]
    assert [lease["stage"] for lease in leases] == ["final"] * 3
    assert [lease["device_us"] for lease in leases] == pytest.approx(left, abs=1)
    assert all(lease["budget_us"] == lease["device_us"] for lease in leases), "each process opens the kernel"
    assert server.get(f"/v1/jobs/{job}")["measured"] == 10


@pytest.mark.parametrize("seconds", [0.05, 1, 60])
def test_a_job_spends_its_budget_and_no_more_when_its_leases_use_their_limits(server, hands, submit, seconds):
    hand, job = hands("hand"), submit(LARGE, budget={"device_seconds": seconds})
    while (answer := hand.pull()).status == 200:
        lease = answer.json
        assert hand.post(lease, device_us=lease["device_us"] // len(configs_of(lease))).status == 200
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["state"] == "done" and 0.9 * seconds < summary["spent_device_seconds"] <= seconds
    assert "exceeded" not in harness.wavetune(server, "show", job).stdout


def test_a_budget_too_small_for_any_final_of_the_job_is_refused_with_a_larger_one(server, hands, submit, kernel):
    hand, _ = hands("hand"), submit(LARGE)
    hand.work(device_us=100000)
    again = {"kernel": kernel, "key": {"n": 64}, "space": LARGE, "environment": ENVIRONMENT, "run": "again"}
    refused = server.request("POST", "/v1/jobs", {"jobs": [again | {"budget": {"device_seconds": 0.5}}]})
    assert (refused.status, refused.json["pointer"]) == (422, "/jobs/0/budget/device_seconds"), refused
    assert "0.1" in refused.json["detail"] and "at least 0.6" in refused.json["detail"]
    assert server.request("POST", "/v1/jobs", again | {"budget": {"device_seconds": 0.6}}).status == 201
    assert server.request("POST", "/v1/jobs", again | {"key": {"n": 65}, "budget": {"device_seconds": 0.5}}).status == 201, \
        "nothing was measured for this key"


def test_the_smallest_final_is_measured_even_after_a_screen_that_exceeded_its_budget(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE, budget={"device_seconds": 1})
    leases = hand.take_all(device_us=500000)
    assert [(lease["stage"], len(configs_of(lease))) for lease in leases] == [("screen", 8)] + [("final", 2)] * 3
    assert {lease["device_us"] for lease in leases[1:]} == {1}, "as few rounds as a verdict needs"
    shown = harness.wavetune(server, "show", job).stdout
    assert "24 valid configs: 8 measured (8 correct), 16 never tried: the budget of 1 device-seconds" in shown
    assert "exceeded by 6" in shown


def spent_of(server, job):
    """(spent in all, on opening the kernel), in microseconds."""
    summary = server.get(f"/v1/jobs/{job}")
    return round(summary["spent_device_seconds"] * 1e6), round(summary["opening_device_seconds"] * 1e6)


def test_opening_the_kernel_counts_as_spent_once_even_when_posted_again(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE)
    lease = hand.pull().json
    body = {"epoch": lease["epoch"], "opening_us": 300000,
            "measurements": [{"seq": 100, "config": 0, "outcome": "compile", "device_us": 1000}]}
    for _ in range(3):  # the answer was lost
        assert server.request("POST", f"/v1/leases/{lease['lease']}/results", body).status == 200
        assert spent_of(server, job) == (301000, 300000)
    assert hand.post(lease, configs=[1], done=False, opening_us=450000).status == 200
    assert spent_of(server, job) == (452000, 450000), "it was opened again: 150 ms more"
    assert hand.post(lease, configs=[2], done=False, opening_us=300000).status == 200
    assert hand.post(lease, configs=[3], done=False).status == 200
    assert spent_of(server, job) == (454000, 450000), "an earlier report, or none, adds nothing"
    assert hand.post(lease, configs=[], opening_us=500000).json["state"] == "open"
    assert spent_of(server, job) == (504000, 500000), "only with the end of the lease"


def test_each_holder_of_a_lease_reports_its_own_opening_time_and_a_former_one_none(server, hands, submit, expire):
    one, two, job = hands("one"), hands("two"), submit(SMALL)  # a job of one lease
    lost = one.pull().json
    assert one.post(lost, configs=[0], done=False, opening_us=100000).status == 200
    expire(lost)
    assert one.post(lost, configs=[1], done=False, opening_us=900000).status == 409
    assert spent_of(server, job) == (101000, 100000), "late results change nothing"
    held = two.pull(wait=60).json
    assert held["lease"] == lost["lease"]
    assert two.post(held, configs=[1], done=False, opening_us=70000).status == 200
    assert one.post(lost, configs=[2], done=False, opening_us=900000).status == 409
    assert spent_of(server, job) == (172000, 170000)
    assert release(server, held, {"cause": "stopped"}, opening_us=80000).json == {"state": "open"}
    assert release(server, held, {"cause": "stopped"}, opening_us=80000).status == 409, "its answer was lost"
    assert spent_of(server, job) == (182000, 180000)


@pytest.mark.parametrize("opening", [None, -1, 1.5, "1"])
def test_an_invalid_opening_time_is_refused_and_changes_nothing(server, hands, submit, opening):
    hand, job = hands("hand"), submit(LARGE)
    lease = hand.pull().json
    refused = release(server, lease, {"reason": "x"}, opening_us=opening)
    assert (refused.status, refused.json["pointer"]) == (422, "/opening_us"), refused
    assert hand.post(lease).status == 200 and spent_of(server, job) == (8000, 0)


def test_a_job_whose_opening_alone_exceeds_its_budget_ends_after_its_first_lease(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE, budget={"device_seconds": 1})
    lease = hand.pull().json
    assert lease["budget_us"] == 600000
    assert release(server, lease, SPENT, opening_us=600000).json == {"state": "cancelled"}
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["measured"]) == ("failed", 0), "two more leases were open"
    assert "before any config was measured" in summary["reason"] and "0.6 device-seconds" in summary["reason"]
    assert [kind for kind, _ in events(server, job)].count("budget") == 2
    assert hand.pull().status == 204
    shown = harness.wavetune(server, "show", job, check=False).stdout
    assert "0.6 device-seconds were spent, 0.6 of them" in shown


def test_an_opening_longer_than_the_screens_share_ends_the_screen_with_its_measurements(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE, budget={"device_seconds": 1})
    assert hand.post(hand.pull().json, opening_us=700000).status == 200
    leases = hand.take_all(opening_us=100000)
    assert [(lease["stage"], len(configs_of(lease))) for lease in leases] == [("final", 2)] * 3, "of 24 configs"
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["measured"]) == ("done", 8)
    assert spent_of(server, job) == (700000 + 8000 + 3 * 102000, 1000000)


@pytest.mark.parametrize("seconds, finalists", [(0.71, 8), (0.65, 2)])
def test_each_process_of_the_final_is_predicted_to_open_the_kernel(server, hands, submit, seconds, finalists):
    """100 ms an opening, 1 ms a config, so 324 ms for the screen, and 9 ms for a finalist in three processes: the rest after
    three openings suffices for all eight close ones, or for the least number."""
    hand, job = hands("hand"), submit(LARGE, budget={"device_seconds": seconds})
    leases = hand.take_all(opening_us=100000)
    assert server.get(f"/v1/jobs/{job}")["measured"] == 24
    assert {len(configs_of(lease)) for lease in leases if lease["stage"] == "final"} == {finalists}


def test_an_agent_that_reports_no_opening_time_works_as_before(server, hands, submit):
    old, new, job = hands("old"), hands("new"), submit(LARGE, budget={"device_seconds": 60})
    assert old.post(old.pull().json).status == 200 and new.post(new.pull().json, opening_us=2000).status == 200
    assert old.work() == ["screen"] + ["final"] * 3
    measured = server.items(f"/v1/jobs/{job}/measurements")
    assert server.get(f"/v1/jobs/{job}")["state"] == "done" and spent_of(server, job) == (1000 * len(measured) + 2000, 2000)


def test_a_release_states_all_that_was_spent(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    assert hand.post(hand.pull().json, opening_us=250000).status == 200
    hand.work()
    published = json.loads(harness.wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--json").stdout)
    provenance = json.loads(published["bytes"])["kernels"][0]["provenance"]
    assert spent_of(server, job)[0] == 262000 and provenance == [{"origin": "tuned", "spent_device_seconds": 0.262}]


def test_a_final_whose_time_is_spent_is_leased_again(server, hands, submit):
    """A process of the final that is cut short would leave the verdict without it."""
    hand, _ = hands("hand"), submit(SMALL, budget={"device_seconds": 60})
    hand.post(hand.pull().json)
    lease = hand.pull().json
    assert lease["stage"] == "final"
    assert release(server, lease, SPENT).json == {"state": "open"}
    assert hand.pull().json["lease"] == lease["lease"]


def test_a_lease_without_a_budget_has_none_to_spend(server, hands, submit):
    hand, _ = hands("hand"), submit(SMALL)
    lease = hand.pull().json
    assert lease["device_us"] is None and lease["budget_us"] is None
    assert release(server, lease, SPENT).json == {"state": "open"}


CLOSE = {config: 1 + config / 1000 for config in range(24)}


def test_many_close_configs_of_several_leases_race_once_more_together(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE)
    leases = hand.take_all(ratios=CLOSE)
    assert [lease["stage"] for lease in leases] == ["screen"] * 3 + ["halving"] + ["final"] * 3
    assert configs_of(leases[3]) == list(range(24)) and configs_of(leases[4]) == list(range(16))
    assert server.get(f"/v1/jobs/{job}")["winner"]["config"] == 0


def test_a_failed_halving_keeps_the_results_of_the_screen(server, hands, submit):
    hand, _ = hands("hand"), submit(LARGE)
    for _ in range(3):
        hand.post(hand.pull().json, ratios=CLOSE)
    hand.post(hand.pull().json, outcomes=dict.fromkeys(range(24), "runtime"))
    final = hand.pull().json
    assert final["stage"] == "final" and configs_of(final) == list(range(16))


def test_the_default_is_a_finalist_whatever_its_rank(server, hands, submit):
    hand, _ = hands("hand"), submit(SMALL | {"default": {"A": 3}})
    hand.post(hand.pull().json, ratios={2: 7.0})
    assert 2 in configs_of(hand.pull().json)


def test_a_final_is_spread_over_devices_and_waits_a_while_for_them(server, hands, submit, postgres, database):
    one, two, job = hands("one"), hands("two"), submit(SMALL, finals={"devices": 2})
    one.post(one.pull().json)
    first, third = one.pull().json, one.pull().json
    assert first["process"] == 0 and third["process"] == 2, "any device may get the last one"
    assert one.pull().status == 204
    other = submit(SMALL, tag="later")
    assert one.pull().json["job"] == other, "leases that wait for another device delay no other device"
    second = two.pull().json
    assert second["process"] == 1
    two.post(second)
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["finals"] == {"devices": 2}
    one.post(first), one.post(third)
    assert server.get(f"/v1/jobs/{job}")["winner"]["verdict"]["devices"] == 2
    assert "the same verdict" in harness.wavetune(server, "show", job, "--recompute").stdout


def final_on_two(server, hands, submit, rounds=12, name_of_two="two", **of_two):
    """A job that has a winner: `two` measured one process of its final, `one` the others, which are more when that is not settled."""
    one, two, job = hands("one"), hands(name_of_two), submit(SMALL, finals={"devices": 2})
    one.post(one.pull().json)
    first, third = one.pull().json, one.pull().json
    two.post(two.pull().json, rounds=rounds, **of_two)
    one.post(first, rounds=rounds), one.post(third, rounds=rounds)
    one.work(rounds=rounds)
    return job, one, two


def by_device(server, job):
    return json.loads(harness.wavetune(server, "show", job, "--devices", "--json").stdout)


def of_devices(server, job):
    """What `show --devices` prints: its table, and the remarks under it."""
    table, remarks = harness.wavetune(server, "show", job, "--devices").stdout.split("\n\n")
    return table, remarks.splitlines()


DEVICES_AGREE = "no device is known to be more than 2 % faster"


def test_a_device_that_prefers_another_config_is_named(server, hands, submit):
    job, one, two = final_on_two(server, hands, submit, ratios={2: 0.95})
    document = by_device(server, job)
    assert (document["job"], document["winner"], document["knows_processes"]) == (job, 0, True)
    assert [(d["agent"], d["device"], d["name"], d["prefers"], d["quarantined"]) for d in document["devices"]] == \
        [(two.id, "cpu0", "two cpu0", 2, False), (one.id, "cpu0", "one cpu0", None, False)]
    assert [(f["config"], f["processes"], round(f["ratio"], 9), f["median_us"]) for f in document["devices"][0]["finalists"]] \
        == [(0, 1, 1.0, 100.0), (1, 1, 1.01, 101.0), (2, 1, 0.95, 95.0)]
    assert [(f["config"], f["processes"], round(f["ratio"], 9)) for f in document["devices"][1]["finalists"]] \
        == [(0, 5, 1.0), (1, 5, 1.01), (2, 5, 1.02)]
    table, remarks = of_devices(server, job)
    assert re.search(r"^! +2 +95.00 +0.9500  0.9500 to 0.9500 +1$", table, re.M)
    assert re.search(r"^\*  one cpu0 +0 +100.00 +1.0000  1.0000 to 1.0000 +5$", table, re.M)
    assert len(remarks) == 1 and remarks[0].startswith("two cpu0 would choose config 2 (!): ") and "5.0 %" in remarks[0]


def test_agreeing_devices_are_reported_even_when_they_share_a_name(server, hands, submit):
    job, one, two = final_on_two(server, hands, submit, name_of_two="one")
    table, remarks = of_devices(server, job)
    assert [remark.startswith(DEVICES_AGREE) for remark in remarks] == [True]
    assert [d["name"] for d in by_device(server, job)["devices"]] == [f"one cpu0 ({hand.id[:8]})" for hand in (two, one)]
    assert f"one cpu0 ({one.id[:8]})" in table


def test_devices_with_one_process_each_are_not_distinguished_from_the_process(server, hands, submit):
    three, job = [hands(name) for name in "abc"], submit(SMALL, finals={"devices": 3})
    three[0].post(three[0].pull().json)
    for hand in three:
        hand.post(hand.pull().json, rounds=11)
    assert server.get(f"/v1/jobs/{job}")["winner"]["verdict"]["devices"] == 3
    table, remarks = of_devices(server, job)
    assert len(remarks) == 2 and "in two processes" in remarks[0] and DEVICES_AGREE not in remarks[0]
    assert len(re.findall(r"^ +[12] +10[12].00 +1.0[12]00  - +1$", table, re.M)) == 6, "11 rounds have no interval"
    document = by_device(server, job)
    assert document["knows_processes"] is False
    assert {"lower" in f or "upper" in f for d in document["devices"] for f in d["finalists"] if f["config"]} == {False}


def test_problems_of_a_device_in_a_final_are_reported(server, hands, submit, postgres, database):
    one, gone, two, job = hands("one"), hands("gone"), hands("two"), submit(SMALL)
    one.post(one.pull().json)
    first, left = one.pull().json, gone.pull().json
    gone.post(left, configs=[2], done=False)
    release(server, left, {"reason": "the node is taken away"})
    one.post(first, rounds=12), two.work(rounds=12), one.work(rounds=12)
    postgres.sql(f"update measurements set quarantined = true where agent = '{two.id}'", conninfo=database)
    table, remarks = of_devices(server, job)
    assert "gone" not in table
    assert remarks[0].startswith("gone cpu0 measured no process")
    assert remarks[1].startswith("two cpu0 was drained") and "quarantined" in remarks[1]
    assert [(d["name"], d["quarantined"], len(d["finalists"])) for d in by_device(server, job)["devices"]] == \
        [("gone cpu0", False, 0), ("one cpu0", False, 3), ("two cpu0", True, 3)]


def test_a_job_without_samples_cannot_be_shown_by_device(server, hands, submit, postgres, database):
    hand, job = hands("hand"), submit(SMALL)
    done = harness.wavetune(server, "show", job, "--devices", check=False)
    assert done.returncode == 1 and "no winner" in done.stderr
    hand.work()
    postgres.sql(f"delete from measurements where job_id = {job}", conninfo=database)
    done = harness.wavetune(server, "show", job, "--devices", check=False)
    assert done.returncode == 1 and f"samples of job {job}" in done.stderr


def test_a_final_goes_to_the_only_device_in_the_end(server, hands, submit, postgres, database):
    hand, job = hands("only"), submit(SMALL, finals={"devices": 2})
    hand.post(hand.pull().json)
    for _ in range(2):
        hand.post(hand.pull().json)
    assert hand.pull().status == 204
    assert re.search(r"^waiting: 1 of its final's processes .* 2, .* \d\d s more$", harness.wavetune(server, "show", job).stdout, re.M)
    postgres.sql("update leases set apart_until = apart_until - interval '61 s'", conninfo=database)
    assert hand.work() == ["final"]
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["state"] == "done" and summary["waiting"] is None


def test_a_job_without_an_available_device_reports_that(server, hands, submit):
    hand, job = hands("only"), submit(SMALL)
    assert server.get(f"/v1/jobs/{job}")["waiting"] is None
    server.request("POST", f"/v1/agents/{hand.id}/drain", {"reason": "repair"})
    assert server.get(f"/v1/jobs/{job}")["waiting"].endswith("drained: 1")


THOUSAND = {"parameters": {"A": list(range(10)), "B": list(range(10)), "C": list(range(10))}}


@pytest.mark.parametrize("strategy", ["random", "descent", "evolution"])
def test_a_search_continues_in_rounds_until_its_trials_are_used(server, hands, submit, strategy):
    hand = hands("hand")
    job = submit(THOUSAND, search={"strategy": strategy, "trials": 80})
    ratios = {config: 1 + config / 100 for config in range(1000)}
    leases = hand.take_all(ratios=ratios)
    screens = [lease for lease in leases if lease["stage"] == "screen"]
    assert {lease["round"] for lease in screens} >= {0, 1}
    measured = [config for lease in screens for config in configs_of(lease)]
    assert len(measured) == len(set(measured)) == 80
    assert leases[-1]["stage"] == "final"
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["configs"], summary["measured"]) == ("done", 80, 80)
    assert summary["search"] == {"strategy": strategy, "trials": 80}
    assert summary["winner"]["config"] == min(measured)
    assert {m["round"] for m in server.items(f"/v1/jobs/{job}/measurements") if m["stage"] == "screen"} >= {0, 1}


def test_a_round_of_a_search_is_not_cut_for_drained_devices(start, database):
    server = start(harness.Server, database, options=harness.UNHURRIED)
    hand = Hand(server, "one", devices=("cpu0", "cpu1"))
    server.request("POST", "/v1/jobs", {"kernel": register(server), "key": {"n": 64}, "space": THOUSAND, "environment": ENVIRONMENT,
                                        "search": {"strategy": "random", "trials": 1000}})
    drain = server.request("POST", f"/v1/agents/{hand.id}/drain", {"device": "cpu1", "reason": "slow"})
    assert drain.status == 200, drain
    sizes = [(lease["round"], len(configs_of(lease))) for lease in hand.take_all() if lease["stage"] == "screen"]
    assert sizes[:6] == [(0, 16)] * 4 + [(1, 32)] * 2


def test_a_search_ends_with_the_round_that_spends_its_budget(server, hands, submit):
    hand = hands("hand")
    job = submit(THOUSAND, search={"strategy": "random", "trials": 500}, budget={"device_seconds": 0.06})
    leases = hand.take_all(ratios={config: 1 + config / 100 for config in range(1000)})
    assert {lease["round"] for lease in leases if lease["stage"] == "screen"} == {0}
    assert server.get(f"/v1/jobs/{job}")["state"] == "done"


def test_the_baseline_of_a_search_is_a_finalist_that_wins_when_nothing_better_was_found(server, hands, submit):
    hand, job = hands("hand"), submit(THOUSAND, search={"strategy": "random", "trials": 9})
    leases = hand.take_all(ratios={config: 1.0 if config == 0 else 1.5 for config in range(1000)})
    assert sum(lease["stage"] == "screen" and 0 in configs_of(lease) for lease in leases) == 1
    assert 0 in configs_of(leases[-1]) and leases[-1]["stage"] == "final"
    winner = server.get(f"/v1/jobs/{job}")["winner"]
    assert (winner["config"], winner["verdict"]["verdict"]) == (0, "SAME")


def test_a_search_measures_its_incumbent_and_its_default(server, hands, submit):
    hand, space = hands("hand"), THOUSAND | {"default": {"A": 9, "B": 9, "C": 9}}
    submit(space, search={"strategy": "random", "trials": 20})
    hand.work(ratios={config: 0.5 + config / 1000 for config in range(1000)})
    job = submit(space, run="again", search={"strategy": "random", "trials": 5})
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["baseline_from"] == "incumbent" and {summary["baseline"], 999} <= set(configs_of(hand.pull().json))


def test_a_search_begins_with_winners_of_other_keys(server, hands, submit):
    hand, _ = hands("hand"), submit(THOUSAND, search={"strategy": "random", "trials": 20})
    leases = hand.take_all()
    best = min(config for lease in leases for config in configs_of(lease))
    submit(THOUSAND, key={"n": 65}, search={"strategy": "random", "trials": 5})
    lease = hand.pull().json
    assert best in configs_of(lease) and lease["likely"] == [best]


@pytest.mark.parametrize("strategy", ["random", "descent", "evolution"])
def test_searches_of_one_post_begin_with_the_winners_of_those_that_are_done_before_them(server, hands, kernel, strategy):
    search = {"strategy": strategy, "trials": 60}
    falling = {config: 2 - config / 1000 for config in range(1000)}
    (own, other) = in_order(server, hands("hand"), [
        {"kernel": kernel, "key": {"n": n}, "space": THOUSAND, "search": search, "environment": ENVIRONMENT} for n in (64, 65)],
        {64: falling, 65: falling}).values()
    best = server.get(f"/v1/jobs/{own[0]['job']}")["winner"]["config"]
    assert own[0]["likely"] == [] and other[0]["likely"] == [best] and best in configs_of(other[0])
    measured = [config for lease in other for config in configs_of(lease)]
    assert len(measured) == len(set(measured)) <= 60 and measured.count(best) == 1
    if strategy != "descent":
        assert len(measured) == 60, "a search of as many trials as without the winner"


def test_a_space_that_is_searched_may_have_more_points_than_a_job(server, submit):
    parameters = {name: list(range(100)) for name in "ABCDE"}
    job = submit({"parameters": parameters}, search={"strategy": "random", "trials": 10})
    assert server.get(f"/v1/jobs/{job}")["configs"] == 10


def test_submit_requests_a_search_and_devices(server, hands):
    hands("hand")
    submitted = harness.wavetune(server, "submit", harness.QUICK, "--key", "n=5", "--search", "random", "--trials", "7",
                                 "--final-devices", "2", "--environment", json.dumps(ENVIRONMENT), "--json")
    job = server.get(f"/v1/jobs/{json.loads(submitted.stdout)[0]['job']}")
    assert job["search"] == {"strategy": "random", "trials": 7} and job["finals"] == {"devices": 2}
    half = harness.wavetune(server, "submit", harness.QUICK, "--key", "n=5", "--trials", "7", "--environment",
                            json.dumps(ENVIRONMENT), check=False)
    assert half.returncode == 2 and "go together" in half.stderr


def test_show_names_the_baseline_of_a_job(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    hand.work()
    assert "measured against config 0" in harness.wavetune(server, "show", job).stdout


def test_a_measurement_has_the_reason_why_its_sampling_ended(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    lease = hand.pull().json
    measurement = {"seq": 1, "config": 1, "outcome": "correct", "samples_us": [2.0], "baseline_us": [1.0], "end": "far",
                   "conditions": {"rounds": 1, "rounds_rejected": 0, "instruction_flush": True}}
    body = {"epoch": lease["epoch"], "measurements": [measurement]}
    assert server.request("POST", f"/v1/leases/{lease['lease']}/results", body).status == 200
    stored, = server.items(f"/v1/jobs/{job}/measurements")
    assert stored["end"] == "far" and stored["conditions"] == measurement["conditions"]


LONG = {"parameters": {"A": list(range(200))}}  # 6 s of configs that were never measured


@pytest.fixture
def patient(start, database):
    """A server whose leases have more configs: the fixture `server` of the tests that split leases."""
    return start(harness.Server, database, options=(*harness.UNHURRIED, "--poll-ms", "200"))


class Tails:
    """One agent has a lease of a whole job for a while, another one is idle."""

    def __init__(self, server, postgres, submit_to):
        self.server, self.postgres = server, postgres
        self.one, self.two = Hand(server, "one"), Hand(server, "two")
        self.job = submit_to(server, LONG)
        self.lease = self.one.pull().json
        assert configs_of(self.lease) == list(range(200)) and self.lease["renew_every_ms"] == 2000
        self.age(-3600)  # young, however slow the test is

    def age(self, seconds=3):
        """As if it had been granted so long ago."""
        self.postgres.sql(f"update leases set granted_at = now() - interval '{seconds} s' where state = 'held'",
                          conninfo=self.server.database)

    def renewed(self):
        return self.one.renew(self.lease).json


@pytest.fixture
def splits(patient, postgres):
    def submit_to(server, space):
        kernel = register(server)
        answer = server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": 64}, "space": space,
                                                     "environment": ENVIRONMENT})
        assert answer.status == 201, answer
        return answer.json["job"]

    return Tails(patient, postgres, submit_to)


def test_a_lease_is_not_split_for_a_device_that_does_not_measure_in_its_regime(splits):
    splits.age()
    assert Hand(splits.server, "warm", runs=["measure:warm"]).pull().status == 204
    assert "configs" not in splits.renewed()
    assert splits.two.pull().status == 200


def test_an_idle_device_takes_over_the_later_half_of_a_lease_that_has_long_to_go(splits):
    assert "configs" not in splits.renewed()
    splits.age()
    rest = splits.two.pull().json
    assert configs_of(rest) == list(range(100, 200))
    assert rest["job"] == splits.job and rest["stage"] == "screen" and rest["lease"] != splits.lease["lease"]
    assert splits.renewed()["configs"] == [[0, 100]] == splits.renewed()["configs"]
    given = splits.one.post(splits.lease, configs=[99, 150], done=False)
    assert given.status == 200 and given.json == {"accepted": 2, "late": 1, "known": 0, "state": "held"}
    assert splits.one.post(splits.lease, configs=list(range(99))).json["state"] == "done"
    assert splits.two.post(rest).json["state"] == "done"
    rows = splits.server.items(f"/v1/jobs/{splits.job}/measurements")
    assert sorted(row["config"] for row in rows if not row["late"]) == list(range(200))
    assert [row["config"] for row in rows if row["late"]] == [150]
    assert splits.one.work() == ["final"] * 3
    assert splits.server.get(f"/v1/jobs/{splits.job}")["measured"] == 200


def test_remaining_configs_are_split_again_while_it_is_worthwhile(splits):
    sizes = []
    for hand in (splits.two, Hand(splits.server, "three"), Hand(splits.server, "four")):
        splits.age()
        answer = hand.pull()
        sizes.append(len(configs_of(answer.json)) if answer.status == 200 else 0)
    assert sizes == [100, 0, 0], "3 s are left of each half"


def test_a_lease_that_is_young_short_or_the_requesting_devices_own_is_not_split(splits):
    assert splits.two.pull().status == 204, "it was granted just now"
    splits.age()
    assert splits.one.pull().status == 204, "the lease is its own"
    splits.one.post(splits.lease, configs=list(range(190)), done=False, device_us=2000000)
    assert splits.two.pull().status == 204, "10 configs are left, however long they take"


def test_a_parked_device_gets_remaining_configs_as_soon_as_there_are_some(splits):
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(splits.two.pull(wait=60)))
    waiting.start()
    splits.age()
    waiting.join(300)
    assert configs_of(answers[0].json) == list(range(100, 200))


def test_a_lease_that_was_split_and_lost_is_leased_again_without_the_configs_split_off(splits):
    splits.age()
    assert splits.two.pull().status == 200
    assert release(splits.server, splits.lease, {"cause": "stopped"}).json == {"state": "open"}
    again = splits.one.pull().json
    assert configs_of(again) == list(range(100))
    assert "configs" not in splits.one.renew(again).json
