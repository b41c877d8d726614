"""Killed agents, servers and databases: nothing is lost, nothing counts twice, late results are refused."""

import itertools
import json
import signal
import socket
import threading
import time

import harness
import pytest
from harness import wait_until, wavetune

KERNEL = harness.QUICK
KEY = "n=100003"
QUICK = ("--screen-rounds", "3", "--final-rounds", "10")
PATIENT = (*QUICK, "--config-timeout", "3600")  # for a kernel that waits at a gate
ENVIRONMENT = {"cpu": "gcc 1", "gpu": "Test CPU", "arch": "x86_64", "compute_units": 4, "partition": ""}


def submit(server, key=KEY, *more):
    return json.loads(wavetune(server, "submit", KERNEL, "--key", key, "--json", *more).stdout)[0]


def wait_done(server, job, seconds=180):
    def over():
        summary = server.get(f"/v1/jobs/{job}")
        return summary if summary["state"] in ("done", "failed", "cancelled") else None

    return wait_until(over, seconds, f"job {job} to end")


def counted(server, job):
    """(config, stage, process) of every measurement that counts."""
    return [(m["config"], m["stage"], m["process"]) for m in server.items(f"/v1/jobs/{job}/measurements") if not m["late"]]


def assert_complete(server, job):
    """Every config screened exactly once, every finalist measured once in each process, a winner."""
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["state"] == "done", summary
    rows = counted(server, job)
    assert len(rows) == len(set(rows)), "something was counted twice"
    assert sum(stage == "screen" for _, stage, _ in rows) == summary["configs"], "something was lost"
    assert summary["winner"]


class Hand:
    """An agent played by the test itself, so that it can be late, forgetful or greedy."""

    def __init__(self, server, name="hand", environment=ENVIRONMENT):
        self.server = server
        answer = server.request("POST", "/v1/agents", {
            "boot": f"boot-{name}", "name": name, "version": "0.1.0",
            "devices": [{"device": "cpu0", "backend": "cpu", "environment": environment, "facts": {}}]})
        assert answer.status in (200, 201), answer
        self.id = answer.json["agent"]

    def lease(self, nonce, wait=0):
        return self.server.request("POST", "/v1/leases", {"agent": self.id, "device": "cpu0", "nonce": nonce, "wait": wait})

    def results(self, lease, configs, seq=1, done=True, time_us=100.0, **changes):
        measurements = [{"seq": seq + i, "config": config, "process": lease["process"], "round": lease["round"],
                         "outcome": "correct", "timer": "test", "samples_us": [time_us + config] * 3,
                         "baseline_us": [time_us] * 3, "device_us": 1000, **changes} for i, config in enumerate(configs)]
        return self.server.request("POST", f"/v1/leases/{lease['lease']}/results",
                                   {"epoch": lease["epoch"], "measurements": measurements, "done": done})


def configs_of(lease):
    return [config for first, count in lease["configs"] for config in range(first, first + count)]


@pytest.fixture
def server(start, database):
    return start(harness.Server, database, options=(*harness.UNHURRIED, *harness.LEASES_OF_8))


def submit_for(server, environment=ENVIRONMENT):
    return submit(server, KEY, "--environment", json.dumps(environment))


def metric(server, name):
    return next((float(l.split()[-1]) for l in server.request("GET", "/metrics").body.decode().splitlines()
                 if l.split(" ")[0] == name), None)


def test_two_agents_on_one_job_never_measure_the_same_config_twice(server, start):
    for name in ("a", "b"):
        start(harness.Agent, server, name=name, options=QUICK)
    wait_until(lambda: sum(a["state"] == "live" for a in server.items("/v1/agents")) == 2, 30, "two agents")
    job = submit(server)["job"]
    wait_done(server, job)
    assert_complete(server, job)


@pytest.fixture
def gated(tmp_path):
    """A kernel of three leases. Of the second, four configs do not compile, which is reported at once, and one waits at the
    gate."""
    gated = harness.GatedKernel(tmp_path / "kernel", {"REPEAT": [40, 24, 0, 16, 1], "TURN": [0, 1, 2, 3]}, "REPEAT == 16")
    source = gated.folder / "quick.c"
    source.write_text("#if REPEAT == 0\n#error nothing to do\n#endif\n" + source.read_text())
    return gated


def in_the_middle(server, gated):
    """A job of which one lease was measured and some of the next, and the rest cannot be yet."""
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
    job = json.loads(wavetune(server, "submit", gated.folder, "--key", KEY, "--json").stdout)[0]["job"]
    gated.wait_reached()
    wait_until(lambda: len(counted(server, job)) == 12, 60, "what was measured before the gate")
    return job


def test_an_agent_killed_in_mid_lease_loses_nothing_and_counts_nothing_twice(server, start, gated):
    first = start(harness.Agent, server, name="a", options=PATIENT)
    job = in_the_middle(server, gated)
    first.kill()
    gated.open()
    start(harness.Agent, server, name="a", options=QUICK)  # the same state folder: the same agent, restarted
    wait_done(server, job)
    assert_complete(server, job)


def test_a_server_killed_in_mid_campaign_loses_nothing_and_counts_nothing_twice(start, database, gated):
    server = start(harness.Server, database, options=harness.LEASES_OF_8)
    start(harness.Agent, server, options=PATIENT)
    job = in_the_middle(server, gated)
    port = server.port
    server.kill()
    gated.open()
    again = start(harness.Server, database, port=port)
    wait_done(again, job)
    assert_complete(again, job)


def test_a_database_killed_in_mid_campaign_loses_nothing_and_counts_nothing_twice(start, postgres, database, gated):
    server = start(harness.Server, database, options=harness.LEASES_OF_8)
    start(harness.Agent, server, options=PATIENT)
    job = in_the_middle(server, gated)
    postgres.kill()
    gated.open()
    assert server.request("GET", "/v1/jobs").status == 503
    postgres.start()
    wait_until(lambda: server.request("GET", "/readyz").status == 200, 30, "the server to find its database again")
    wait_done(server, job)
    assert_complete(server, job)


def test_a_late_result_is_refused_with_the_current_epoch_and_kept_as_evidence(start, database):
    server = start(harness.Server, database, options=("--lease-ms", "1000"))
    slow, quick = Hand(server, "slow"), Hand(server, "quick")
    job = submit_for(server)["job"]  # one lease
    lease = slow.lease("n1").json
    nonces = itertools.count(2)
    taken = wait_until(lambda: next((l.json for l in [quick.lease(f"n{next(nonces)}", wait=1)] if l.status == 200), None), 30,
                       "the lease to expire")
    assert (taken["lease"], taken["epoch"]) == (lease["lease"], lease["epoch"] + 1)
    late = slow.results(lease, configs_of(lease))
    assert late.status == 409 and late.json["epoch"] == taken["epoch"], late
    rows = server.items(f"/v1/jobs/{job}/measurements")
    assert len([r for r in rows if r["late"]]) == len(configs_of(lease))
    assert not [r for r in rows if not r["late"]]
    assert "lease_lost" in [e["kind"] for e in server.get(f"/v1/jobs/{job}/events?after=0")["items"]]


def test_results_posted_again_are_known_and_with_another_body_refused(server):
    hand = Hand(server)
    job = submit_for(server)["job"]
    lease = hand.lease("n1").json
    configs = configs_of(lease)
    assert hand.results(lease, configs[:2], done=False).json["accepted"] == 2
    again = hand.results(lease, configs[:2], done=False)
    assert again.status == 200 and again.json == {**again.json, "accepted": 0, "known": 2}
    other = hand.results(lease, configs[:3], done=False, time_us=55.0)
    assert other.status == 409, other
    assert len(server.items(f"/v1/jobs/{job}/measurements")) == 2, "a refused request stores nothing"


def test_a_lease_whose_answer_was_lost_is_granted_again_by_its_nonce(server):
    hand = Hand(server)
    submit_for(server)
    first = hand.lease("the same").json
    again = hand.lease("the same").json
    submit(server, "n=7", "--environment", json.dumps(ENVIRONMENT))  # a job is one lease while no other agent works
    other = hand.lease("another").json
    assert (again["lease"], again["epoch"]) == (first["lease"], first["epoch"])
    assert other["lease"] != first["lease"]


def test_the_same_job_submitted_fifty_times_at_once_is_one_job(server):
    Hand(server)
    submit_for(server)  # registers the kernel
    folder = json.loads(wavetune(server, "jobs", "--json").stdout)[0]
    body = server.get(f"/v1/jobs/{folder['job']}")
    request = {"kernel": body["kernel"], "key": {"n": 7}, "space": body["space"], "environment": ENVIRONMENT}
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(server.request("POST", "/v1/jobs", request))) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {a.status for a in answers} == {200, 201} and sum(a.status == 201 for a in answers) == 1
    assert len({a.json["job"] for a in answers}) == 1


def test_a_done_job_submitted_again_is_the_same_job(server, start):
    start(harness.Agent, server, options=QUICK)
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
    job = submit(server)["job"]
    wait_done(server, job)
    again = submit(server)
    assert again["job"] == job and again["state"] == "done" and not again["created"]
    fresh = submit(server, KEY, "--run", "again")
    assert fresh["job"] != job and fresh["created"]


def test_a_lease_renewed_at_one_server_is_not_expired_by_another(start, database, postgres):
    one = start(harness.Server, database, options=(*harness.UNHURRIED, *harness.LEASES_OF_8))
    hand = Hand(one)
    job = submit_for(one)["job"]
    kept, lost = hand.lease("n1").json, hand.lease("n2").json
    postgres.sql("update leases set expires_at = now() - interval '1 s', due_at = now() - interval '1 s' where state = 'held'",
                 conninfo=database)
    renewed = one.request("POST", f"/v1/leases/{kept['lease']}/renew", {"epoch": kept["epoch"], "config": None})
    assert renewed.status == 200, renewed
    two = start(harness.Server, database, options=("--lease-ms", "100"))
    wait_until(lambda: postgres.sql(f"select state from leases where id = {lost['lease']}", conninfo=database) == "open", 30,
               "the other server to expire what was not renewed")
    assert hand.results(kept, configs_of(kept)).status == 200
    assert not [m for m in two.items(f"/v1/jobs/{job}/measurements") if m["late"]]


def test_a_server_that_was_paused_expires_nothing_before_agents_can_renew(start, database, postgres):
    lease_s = 6
    server = start(harness.Server, database, options=("--lease-ms", str(1000 * lease_s)))
    hand = Hand(server)
    submit_for(server)
    time.sleep(lease_s + 0.5)  # a lease time after its start a server expires what is due
    lease = hand.lease("n1").json
    server.process.send_signal(signal.SIGSTOP)
    postgres.sql("update leases set expires_at = now() - interval '1 s', due_at = now() - interval '1 s' where state = 'held'",
                 conninfo=database)
    time.sleep(lease_s / 2 + 1)
    server.process.send_signal(signal.SIGCONT)
    wait_until(lambda: "stood still" in server.messages, 30, "the server to look at its leases")
    renewed = server.request("POST", f"/v1/leases/{lease['lease']}/renew", {"epoch": lease["epoch"], "config": None})
    assert renewed.status == 200, renewed


def test_work_submitted_at_one_server_reaches_an_agent_waiting_at_another(start, database):
    one, two = start(harness.Server, database), start(harness.Server, database)
    hand = Hand(one)
    Hand(two)
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(hand.lease("n1", wait=60)))
    waiting.start()
    submit_for(two)
    waiting.join(300)
    assert answers and answers[0].status == 200


def test_a_parked_agent_is_woken_by_work(server):
    hand = Hand(server)
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(hand.lease("n1", wait=60)))
    waiting.start()
    submit_for(server)
    waiting.join(300)
    assert answers and answers[0].status == 200


def test_a_parked_agent_that_hung_up_is_not_granted_a_lease(server):
    hand = Hand(server)
    body = json.dumps({"agent": hand.id, "device": "cpu0", "nonce": "gone", "wait": 30}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as gone:
        gone.sendall(b"POST /v1/leases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + server.token.encode() +
                     b"\r\nContent-Type: application/json\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
        wait_until(lambda: metric(server, "wavetune_parked") == 1, 10, "the request to be parked")
    other = Hand(server, "other")
    submit_for(server)
    assert other.lease("n1", wait=60).json["epoch"] == 1, "no lease was granted to a client that is gone"


def test_a_restarted_agent_releases_its_leases_at_once(server):
    hand = Hand(server)
    submit_for(server)
    lease = hand.lease("n1").json
    answer = server.request("POST", "/v1/agents", {
        "agent": hand.id, "boot": "another boot", "name": "hand", "version": "0.1.0",
        "devices": [{"device": "cpu0", "backend": "cpu", "environment": ENVIRONMENT, "facts": {}}]})
    assert answer.status == 200 and answer.json["reclaimed"] == 1
    again = hand.lease("n2").json
    assert again["lease"] == lease["lease"] and again["epoch"] == lease["epoch"] + 1


def test_what_was_measured_before_a_lease_was_lost_is_not_leased_again(server):
    hand = Hand(server)
    submit_for(server)
    lease = hand.lease("n1").json
    configs = configs_of(lease)
    hand.results(lease, configs[:3], done=False)
    assert server.request("POST", f"/v1/leases/{lease['lease']}/release", {"epoch": lease["epoch"], "reason": "test"}).status == 200
    again = hand.lease("n2").json
    assert again["lease"] == lease["lease"]
    assert configs_of(again) == configs[3:]
