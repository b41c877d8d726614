"""The outcome of leases, configs and jobs when agents fail in chosen ways. The test plays the agents."""

import re
import threading
import time

import harness
import pytest
from hands import ENVIRONMENT, LARGE, SMALL, Hand, configs_of, events, expire, hands, kernel, register, server, submit  # noqa: F401
from harness import wait_until
from test_interleavings import Session


@pytest.fixture
def lose(server, expire):
    """Pulls leases with a config, reports each time that it is being measured, and sends nothing more until the lease is lost."""
    def lose(hand, job, config, times):
        for _ in range(times):
            lost = events(server, job).count(("lease_lost", config))
            lease = hand.pull(wait=60).json
            assert hand.renew(lease, config).status == 200
            expire(lease)
            wait_until(lambda: events(server, job).count(("lease_lost", config)) == lost + 1, 20, "the loss to be reported")

    return lose


def measurement_of(server, job, config):
    return [m for m in server.items(f"/v1/jobs/{job}/measurements") if m["config"] == config and not m["late"]]


def test_a_config_that_the_only_agent_loses_twice_is_poisoned_and_the_job_continues(server, hands, submit, lose):
    hand, job = hands("only"), submit(SMALL)
    lose(hand, job, 1, 2)
    assert ("poisoned", 1) in events(server, job)
    lease = hand.pull(wait=60).json
    assert configs_of(lease) == [0, 2]
    hand.post(lease)
    poisoned, = measurement_of(server, job, 1)
    assert poisoned["outcome"] == "runtime" and "poisoned" in poisoned["detail"]
    assert hand.work() == ["final"] * 3
    assert server.get(f"/v1/jobs/{job}")["state"] == "done"


def test_a_config_lost_twice_by_one_agent_goes_to_another_one_alone(server, hands, submit, lose):
    unlucky, other, job = hands("unlucky"), hands("other"), submit(SMALL)
    lose(unlucky, job, 2, 2)
    assert configs_of(unlucky.pull(wait=60).json) == [0, 1]
    assert unlucky.pull().status == 204
    apart = other.pull(wait=60).json
    assert configs_of(apart) == [2]
    assert other.post(apart).json["state"] == "done"
    assert measurement_of(server, job, 2)[0]["outcome"] == "correct"


def test_a_config_lost_on_two_devices_is_poisoned_for_the_environment(server, hands, submit, lose):
    one, two, job = hands("one"), hands("two"), submit(SMALL)
    lose(one, job, 2, 1)
    lose(two, job, 2, 1)
    assert ("poisoned", 2) in events(server, job)
    assert configs_of(one.pull(wait=60).json) == [0, 1]


def test_a_config_that_only_dead_agents_might_measure_is_given_up(server, hands, submit, lose, postgres, database):
    hand, other, job = hands("alive"), hands("soon dead"), submit(SMALL)
    lose(hand, job, 2, 2)
    postgres.sql(f"update agents set last_seen = now() - interval '1 day' where id = '{other.id}'", conninfo=database)
    assert hand.work() == ["screen"], "the config waits for the other agent"
    wait_until(lambda: ("poisoned", None) in events(server, job), 30, "the config to be given up")
    wait_until(lambda: server.get(f"/v1/jobs/{job}")["stage"] == "final", 10, "the job to go on without it")
    assert hand.work() == ["final"] * 3
    assert server.get(f"/v1/jobs/{job}")["state"] == "done"


def test_a_loss_without_a_config_blames_none(server, hands, submit, expire):
    hand, job = hands("hand"), submit(SMALL)
    expire(hand.pull().json)
    assert ("lease_lost", None) in events(server, job)
    assert configs_of(hand.pull(wait=60).json) == [0, 1, 2]


def test_results_that_are_refused_are_refused_again(server, hands, submit, expire):
    hand, job = hands("hand"), submit(SMALL)
    lease = hand.pull().json
    failed = [{"seq": n + 1, "config": n, "outcome": "compile", "detail": "no such header"} for n in range(3)]
    body = {"epoch": lease["epoch"], "measurements": failed[:1]}
    results = f"/v1/leases/{lease['lease']}/results"
    assert server.request("POST", results, body).json["accepted"] == 1
    expire(lease)
    assert server.request("POST", results, body).status == 200, "the answer was lost, and its measurement counts"
    body["measurements"] = failed[:2]
    answers = [server.request("POST", results, body) for _ in range(2)]
    assert [answer.status for answer in answers] == [409, 409] and answers[0].json["detail"] == answers[1].json["detail"]
    assert [(m["config"], m["late"]) for m in server.items(f"/v1/jobs/{job}/measurements")] == [(0, False), (1, True)]


def test_results_of_a_config_that_has_been_measured_are_accepted_again_after_the_lease(server, hands, submit):
    """They are late, but its holder had the lease."""
    hand, job = hands("hand"), submit(SMALL)
    lease = hand.pull().json
    failed = [{"seq": n + 1, "config": n % 3, "outcome": "compile", "detail": "no such header"} for n in range(4)]
    body = {"epoch": lease["epoch"], "measurements": failed[3:]}
    results = f"/v1/leases/{lease['lease']}/results"
    assert server.request("POST", results, {"epoch": lease["epoch"], "measurements": failed[:1]}).status == 200
    assert server.request("POST", results, body).json["late"] == 1
    assert server.request("POST", results, {"epoch": lease["epoch"], "measurements": failed[1:3], "done": True}).status == 200
    assert server.get(f"/v1/jobs/{job}")["state"] == "failed", "the lease is over"
    assert server.request("POST", results, body).json["known"] == 1


def test_a_restarted_agent_hands_back_its_leases_and_blames_the_config_it_measured(server, hands, submit):
    job = submit(SMALL)
    before = Hand(server, "restarted")
    lease = before.pull().json
    before.renew(lease, 1)
    after = hands("restarted", boot="b2", agent=before.id)
    assert after.enrolment["reclaimed"] == 1
    assert events(server, job)[-1] == ("lease_lost", 1)
    assert before.beat().status == 404
    assert after.pull().json["epoch"] == lease["epoch"] + 1


def test_a_lease_that_is_always_released_unmeasured_is_given_up(server, hands, submit):
    hand, job = hands("idle"), submit(SMALL)
    grants = 0
    while (answer := hand.pull()).status == 200:
        assert hand.post(answer.json, configs=[]).json["state"] == "open"
        grants += 1
        assert grants < 50
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["state"] == "failed" and "given up" in summary["reason"]


def hand_back(server, lease, reason):
    return server.request("POST", f"/v1/leases/{lease['lease']}/release", {"epoch": lease["epoch"], "reason": reason})


def test_a_lease_that_is_handed_back_for_one_reason_is_given_up_with_it_and_measures_nothing(server, hands, submit):
    hand, job, reason = hands("node7"), submit(SMALL), 'argument "y" needs 4000 GiB; choose a smaller key'
    assert hand_back(server, hand.pull().json, reason).json == {"state": "open"}
    assert server.get(f"/v1/jobs/{job}")["handed_back"] == reason
    assert f"handed back by an agent: {reason}\n" in harness.wavetune(server, "show", job).stdout
    for free in range(6):
        hand_back(server, hand.pull().json, reason.replace("4000", f"{free}.5"))
    hand_back(server, hand.pull().json, reason)
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["reason"]) == ("failed", f"none of its configs was measured; one was given up: {reason}")
    assert (summary["measured"], summary["outcomes"], summary["configs"]) == (0, {}, 3)
    assert harness.wavetune(server, "show", job, check=False).stdout.count(reason) == 1
    told, = [e["detail"] for e in server.get(f"/v1/jobs/{job}/events")["items"] if e["kind"] == "handed_back"]
    assert (told["agent"], told["device"], told["reason"]) == (hand.id, "cpu0", reason)
    assert {m["agent"] for m in server.items(f"/v1/jobs/{job}/measurements")} == {None}, "no agent ran a config"


def test_a_lease_that_is_handed_back_for_several_reasons_is_given_up_with_the_last(server, hands, submit):
    hand, job = hands("node7"), submit(SMALL)
    for reason in "aaaabbab":
        hand_back(server, hand.pull().json, f"reason {reason}")
    summary = server.get(f"/v1/jobs/{job}")
    assert "leased 8 times in a row without a result; it was handed back last because reason b" in summary["reason"]
    assert [kind for kind, _ in events(server, job)].count("handed_back") == 2, "an event for each"


@pytest.mark.parametrize("why", [{"cause": "unreadable"}, {}], ids=["cause", "old agent"])
def test_a_lease_that_agents_cannot_read_waits_for_one_that_can(server, hands, submit, why):
    older, job, reason = hands("older"), submit(SMALL), "the lease cannot be executed: /space: no such member"
    for _ in range(12):
        lease = older.pull().json
        body = {"epoch": lease["epoch"], "reason": reason} | why
        assert server.request("POST", f"/v1/leases/{lease['lease']}/release", body).json == {"state": "open"}
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["handed_back"]) == ("running", reason)
    assert hands("newer").work() and server.get(f"/v1/jobs/{job}")["state"] == "done"


def test_a_reason_is_forgotten_when_the_configs_are_measured_and_those_of_other_programs_are_none(server, hands, submit):
    hand, job = hands("node7"), submit(SMALL)
    hand_back(server, hand.pull().json, "the device was given back: another program")
    assert server.get(f"/v1/jobs/{job}")["handed_back"] is None
    hand_back(server, hand.pull().json, "no compiler")
    assert server.get(f"/v1/jobs/{job}")["handed_back"] == "no compiler"
    hand.work()
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["measured"], summary["handed_back"]) == ("done", 3, None)


FITS_NOT = "needs 279552 bytes of shared memory, the device has 232448"


def fail_baseline(hand, lease, outcome, detail, done=True):
    """As an agent does: it reports the baseline, and that it measures nothing else."""
    config = lease["baseline"]
    return hand.post(lease, configs=[config], done=done, outcomes={config: outcome}, detail=detail, baseline_failed=[config])


@pytest.mark.parametrize("outcome", ["compile", "constraints", "runtime"])
def test_the_first_config_that_runs_is_the_baseline(server, hands, submit, outcome):
    """The default does not run, nor does the first config; what another device measures with the old baseline is late."""
    hand, other = hands("hand"), hands("other")
    job = submit({**LARGE, "default": {"A": 5}})
    lease, elsewhere = hand.pull().json, other.pull().json
    assert lease["baseline"] == elsewhere["baseline"] == 5
    assert fail_baseline(hand, lease, outcome, FITS_NOT).status == 200
    assert other.renew(elsewhere).status == 409 and other.post(elsewhere).status == 409
    assert fail_baseline(other, elsewhere, outcome, FITS_NOT).status == 409
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["baseline"], summary["baseline_from"]) == ("running", 0, "first")
    (event,) = [one for one in server.get(f"/v1/jobs/{job}/events")["items"] if "baseline" in one["detail"]]
    assert event["detail"] == {"stage": "screen", "baseline": 0, "baseline_before": 5, "reason": FITS_NOT}
    assert fail_baseline(hand, hand.pull().json, outcome, FITS_NOT).status == 200
    lease = hand.pull().json
    assert lease["baseline"] == 1
    assert hand.post(lease, outcomes={0: outcome, 5: outcome}, ratios={3: 0.5}).status == 200
    hand.work(outcomes={0: outcome, 5: outcome}, ratios={3: 0.5})
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["state"] == "done" and summary["winner"]["config"] == 3 and summary["baseline"] == 1


def test_a_job_of_which_no_config_runs_fails_with_the_last_ones_reason(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    reasons = []
    while (answer := hand.pull()).status == 200:
        reasons.append(f"config {answer.json['baseline']} does not fit")
        fail_baseline(hand, answer.json, "constraints", reasons[-1])
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["state"] == "failed" and reasons == [f"config {i} does not fit" for i in range(3)]
    assert summary["reason"] == reasons[-1]


def test_a_baseline_that_fails_after_something_was_measured_stays_the_baseline(server, hands, submit):
    hand, other, job = hands("hand"), hands("other"), submit(LARGE)
    lease, elsewhere = hand.pull().json, other.pull().json
    assert hand.post(lease).status == 200
    fail_baseline(other, elsewhere, "runtime", "it crashed")
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["reason"], summary["baseline"]) == ("failed", "it crashed", 0)


def test_a_job_whose_baseline_fails_fails_with_the_baselines_error(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE)
    lease = hand.pull().json
    hand.post(lease, configs=[0], done=False, outcomes={0: "correctness"}, detail="it is wrong", baseline_failed=[0])
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["reason"]) == ("failed", "it is wrong")
    assert hand.pull().status == 204
    assert hand.renew(lease).status == 409


def test_an_older_agent_reports_a_failed_baseline_in_its_detail(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE)
    hand.post(hand.pull().json, configs=[0], done=False, outcomes={0: "correctness"}, detail="baseline: it is wrong")
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["reason"]) == ("failed", "baseline: it is wrong")


def test_a_job_outlives_a_config_that_fails_in_a_file_called_baseline(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE)
    lease = hand.pull().json
    assert lease["baseline"] == 0
    failed = {1: "compile", 2: "compile"}
    assert hand.post(lease, configs=[1], done=False, outcomes=failed, detail="baseline.hip:12:5: error: expected ;").status == 200
    assert hand.post(lease, configs=[2], done=False, outcomes=failed, detail="baseline: no such file").status == 200
    assert server.get(f"/v1/jobs/{job}")["state"] == "running"


def test_only_the_jobs_baseline_can_be_the_baseline_that_failed(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE)
    lease = hand.pull().json
    answer = hand.post(lease, configs=[1], done=False, outcomes={1: "runtime"}, detail="it crashed", baseline_failed=[1])
    assert answer.status == 422 and answer.json["pointer"] == "/measurements/0"
    assert "baseline is config 0" in answer.json["detail"]
    assert server.get(f"/v1/jobs/{job}")["state"] == "running"


def test_a_job_without_a_correct_config_fails_with_the_outcomes(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    hand.post(hand.pull().json, outcomes={0: "compile", 1: "compile", 2: "timeout"}, detail="no such header")
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["state"] == "failed" and "(compile 2, timeout 1)" in summary["reason"] and "no such header" in summary["reason"]


def test_a_spent_budget_ends_the_screen_and_the_best_so_far_go_to_the_final(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE, budget={"device_seconds": 0.004})
    hand.post(hand.pull().json)
    assert [kind for kind, _ in events(server, job)] == ["queued", "running", "budget", "stage"]
    assert hand.work() == ["final"] * 3
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["state"] == "done" and summary["measured"] == 8


def test_a_finalist_that_fails_in_one_process_drops_out(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    hand.post(hand.pull().json)
    for n in range(3):
        hand.post(hand.pull().json, outcomes={0: "correctness"} if n == 1 else {})
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["state"] == "done" and summary["winner"]["config"] == 1


def finals(hand, hand_post):
    """Completes final leases with `hand_post(lease)` until there are none; returns their (process, round)."""
    taken = []
    while (answer := hand.pull()).status == 200:
        taken.append((answer.json["process"], answer.json["round"]))
        assert hand.post(answer.json, **hand_post(answer.json)).status == 200
    return taken


def unsteady(lease):
    """Config 1 wins, a tenth faster than the baseline in one process, as fast in the next, a tenth slower in the third."""
    return {"ratios": {0: 1.5, 1: 0.9 + 0.1 * (lease["process"] % 3), 2: 1.4}}


def test_an_ambiguous_verdict_gets_processes_up_to_six_one_at_a_time(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    hand.post(hand.pull().json)
    assert finals(hand, unsteady) == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 2), (5, 3)]
    winner = server.get(f"/v1/jobs/{job}")["winner"]
    assert (winner["config"], winner["verdict"]["verdict"]) == (1, "AMBIGUOUS")
    assert "the same verdict" in harness.wavetune(server, "show", job, "--recompute").stdout


def test_a_finalist_that_fails_in_an_added_process_is_left_out_by_recompute_too(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    hand.post(hand.pull().json)
    finals(hand, lambda lease: unsteady(lease) | ({"outcomes": {1: "runtime"}} if lease["process"] == 3 else {}))
    assert server.get(f"/v1/jobs/{job}")["winner"]["config"] == 2
    assert "the same verdict" in harness.wavetune(server, "show", job, "--recompute").stdout


def test_a_job_whose_finalists_all_fail_fails(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    hand.post(hand.pull().json)
    for _ in range(3):
        hand.post(hand.pull().json, outcomes=dict.fromkeys(range(3), "runtime"))
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["state"] == "failed" and "every finalist failed" in summary["reason"]


def test_a_job_that_another_server_moved_on_is_not_failed_by_what_was_seen_before(server, hands, submit, postgres, database):
    hand, job = hands("hand"), submit(SMALL)
    hand.post(hand.pull().json)
    for _ in range(2):
        hand.post(hand.pull().json, outcomes=dict.fromkeys(range(3), "runtime"))
    session = Session(database)
    session.run("begin")
    session.run(f"select 1 from jobs where id = {job} for update")
    last = threading.Thread(target=hand.post, args=[hand.pull().json], kwargs={"outcomes": dict.fromkeys(range(3), "runtime")})
    last.start()
    wait_until(lambda: postgres.sql("select count(*) from pg_stat_activity where wait_event_type = 'Lock' "
                                    "and datname = current_database()", conninfo=database) != "0", 20, "the job's end to wait")
    session.run(f"update jobs set round = round + 1 where id = {job}")
    session.run("insert into leases (job_id, stage, round, process, configs, remaining, device_class, priority) select job_id, "
                f"stage, 1, 3, configs, configs, device_class, priority from leases where job_id = {job} order by id desc limit 1")
    session.run("commit")
    session.close()
    last.join(300)
    assert server.get(f"/v1/jobs/{job}")["state"] == "running"
    assert hand.pull().json["process"] == 3


def test_a_page_of_measurements_is_cut_before_their_samples_are_too_many(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE)
    lease = hand.pull().json
    measurements = [{"seq": 1 + config, "config": config, "outcome": "correct", "samples_us": [1.5] * 10000,
                     "baseline_us": [2.5] * 10000} for config in configs_of(lease)]
    assert server.request("POST", f"/v1/leases/{lease['lease']}/results",
                          {"epoch": lease["epoch"], "measurements": measurements, "done": True}).status == 200
    first = server.get(f"/v1/jobs/{job}/measurements")
    assert 0 < len(first["items"]) < 8 and first["next"] == first["items"][-1]["id"]
    assert [m["config"] for m in server.items(f"/v1/jobs/{job}/measurements")] == configs_of(lease)
    whole = server.get(f"/v1/jobs/{job}/measurements?after={int(first['items'][-1]['id']) + 4}")
    assert whole["next"] is None


def test_a_drained_agent_gets_no_lease_until_the_draining_ends(server, hands, submit):
    hand, _ = hands("hand"), submit(SMALL)
    drain = f"/v1/agents/{hand.id}/drain"
    assert server.request("POST", drain, {"reason": "a new driver"}).status == 200
    refused = hand.pull()
    assert refused.status == 403 and "a new driver" in refused.json["detail"]
    assert hand.beat().json["draining"] is True
    assert server.get("/v1/agents")["items"][0]["state"] == "draining"
    assert server.request("POST", drain, {"reason": None}).status == 200
    assert hand.pull().status == 200


def test_a_raised_priority_is_leased_first(server, hands, submit):
    hand, _, later = hands("hand"), submit(SMALL), submit(SMALL, tag="later")
    server.request("POST", "/v1/jobs", {"kernel": server.get(f"/v1/jobs/{later}")["kernel"], "key": {"n": 64}, "space": SMALL,
                                        "environment": ENVIRONMENT, "tag": "later", "priority": 5})
    assert hand.pull().json["job"] == later


def test_a_raised_priority_missing_on_the_leases_is_set_by_the_next_submission(server, hands, submit, postgres, database):
    hand, _, later = hands("hand"), submit(SMALL), submit(SMALL, tag="later", priority=5)
    postgres.sql(f"update leases set priority = 0 where job_id = {later}", conninfo=database)  # as after a crash between both
    again = {"kernel": server.get(f"/v1/jobs/{later}")["kernel"], "key": {"n": 64}, "space": SMALL,
             "environment": ENVIRONMENT, "tag": "later", "priority": 5}
    assert server.request("POST", "/v1/jobs", again).status == 200
    assert hand.pull().json["job"] == later


def test_a_jobs_final_is_leased_before_the_screens_of_later_jobs(server, hands, submit):
    hand, first, second = hands("hand"), submit(SMALL), submit(SMALL, tag="later")
    hand.post(hand.pull().json)
    assert [hand.post(hand.pull().json).status for _ in range(3)] == [200] * 3
    assert server.get(f"/v1/jobs/{first}")["state"] == "done"
    assert hand.pull().json["job"] == second


def test_a_nonce_gives_another_device_no_lease(server, hands, submit):
    hand, _ = hands("hand"), submit(LARGE)
    two = {"boot": hand.boot, "agent": hand.id, "name": "hand", "version": "0.1.0", "devices": [
        {"device": device, "backend": "cpu", "environment": ENVIRONMENT, "facts": {}} for device in ("cpu0", "cpu1")]}
    assert server.request("POST", "/v1/agents", two).status == 200

    def pull(device):
        return server.request("POST", "/v1/leases", {"agent": hand.id, "device": device, "nonce": "same", "wait": 0})

    lease = pull("cpu0").json["lease"]
    assert pull("cpu1").status == 204
    assert pull("cpu0").json["lease"] == lease


def test_a_cancelled_job_is_leased_no_more_and_its_followers_are_notified(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE)
    answers = []
    follower = threading.Thread(target=lambda: answers.append(server.get(f"/v1/jobs/{job}/events?after=1&wait=30")))
    follower.start()
    assert server.request("DELETE", f"/v1/jobs/{job}").json["state"] == "cancelled"
    follower.join(300)
    assert [e["kind"] for e in answers[0]["items"]] == ["cancelled"] and answers[0]["next"] == "2"
    assert hand.pull().status == 204
    assert server.request("DELETE", f"/v1/jobs/{job}").status == 200


def test_a_done_job_cannot_be_cancelled(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    hand.work()
    assert server.request("DELETE", f"/v1/jobs/{job}").status == 409


def metric(server, name):
    found = re.search(rf"^{re.escape(name)} (.*)$", server.request("GET", "/metrics").body.decode(), re.M)
    return float(found[1]) if found else 0


def runs_of(server, statement):
    return metric(server, f'wavetune_db_runs_total{{statement="{statement}"}}')


def test_of_many_idle_devices_few_query_for_leases_and_each_gets_an_available_one(server, hands, submit):
    idle = [hands(f"idle {n}") for n in range(24)]
    answers = []
    threads = [threading.Thread(target=lambda hand=hand: answers.append(hand.pull(wait=50))) for hand in idle]
    for thread in threads:
        thread.start()
    wait_until(lambda: metric(server, "wavetune_parked") == len(idle), 30, "all to wait")
    before, began = runs_of(server, "lease_asker"), time.monotonic()
    time.sleep(2)
    looked, polls = runs_of(server, "lease_asker") - before, (time.monotonic() - began) / 0.2
    assert 2 < looked < len(idle) * polls / 2, f"{looked} looks of {len(idle)} devices in {polls:.0f} poll intervals"

    submit({"parameters": {"A": list(range(8 * len(idle)))}})
    for thread in threads:
        thread.join(300)
    assert sorted(answer.status for answer in answers) == [200] * len(idle)
    assert len({answer.json["lease"] for answer in answers}) == len(idle)


def test_one_nonce_requested_many_times_at_once_gives_one_lease(server, hands, submit):
    submit({"parameters": {"A": list(range(64))}})
    hand = hands("a")
    for n in range(5):
        body = {"agent": hand.id, "device": "cpu0", "nonce": f"same {n}"}
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(server.request("POST", "/v1/leases", body)))
                   for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        answers.append(server.request("POST", "/v1/leases", body))
        # One that comes while another is granted the last open lease may get none, and asks again.
        assert {answer.status for answer in answers} <= {200, 204} and answers[-1].status == 200, answers
        assert len({(answer.json["lease"], answer.json["epoch"]) for answer in answers if answer.status == 200}) == 1


# As another transaction could, between the split and the grant: opens a better lease for the devices here.
OPEN_BETTER = """
create function better() returns trigger language plpgsql as $$ begin
  update leases set device_class = new.device_class where job_id = {better}; return new; end $$;
create trigger better before insert on leases for each row when (new.job_id = {job}) execute function better()"""


def test_a_split_lease_that_the_splitting_device_does_not_get_wakes_another_device(start, database, postgres):
    server = start(harness.Server, database, options=(*harness.UNHURRIED, "--poll-ms", "60000"))
    kernel = register(server)
    holder, splitter, waiter = (Hand(server, name) for name in ("holder", "splitter", "waiter"))
    job, better = (server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": n}, "space": LARGE, "priority": priority,
                                                       "environment": ENVIRONMENT}).json["job"] for n, priority in ((64, 0), (65, 5)))
    postgres.sql(f"update leases set device_class = sha256('') where job_id = {better}", conninfo=database)
    assert holder.pull().json["job"] == job

    answers = []
    thread = threading.Thread(target=lambda: answers.append(waiter.pull(wait=60)))
    thread.start()
    wait_until(lambda: metric(server, "wavetune_parked") == 1, 30, "it to wait")
    postgres.sql(f"update leases set config_us = 1000000, granted_at = now() - interval '10 s' where job_id = {job}", conninfo=database)
    postgres.sql(OPEN_BETTER.format(job=job, better=better), conninfo=database)

    assert splitter.pull().json["job"] == better
    thread.join(300)
    assert answers[0].status == 200 and answers[0].json["job"] == job
    assert f"lease: split lease={answers[0].json['lease'].split('.')[0]} " in server.messages
