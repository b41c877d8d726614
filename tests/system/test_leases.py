"""What becomes of leases, configs and jobs when things go wrong on purpose: agents are played by the test."""

import hashlib
import itertools
import json
import threading

import harness
import pytest
from harness import wait_until
from test_interleavings import Session

ENVIRONMENT = {"cpu": "gcc 1", "gpu": "Test CPU", "arch": "x86_64", "compute_units": 4, "partition": ""}
SMALL = {"parameters": {"A": [1, 2, 3]}}
LARGE = {"parameters": {"A": list(range(24))}}
SOURCE = b"void f(float *y, long long n) { y[n - 1] = 1; }"
REFERENCE = b"double f_at(long long i, float *y, long long n) { return i + n > 0 && y ? 1 : 0; }"
nonces = (f"n{n}" for n in itertools.count())


class Hand:
    """An agent that does what it is told, alive as long as the test beats for it."""

    def __init__(self, server, name, boot="b1", agent=None):
        self.server, self.boot = server, boot
        body = {"boot": boot, "name": name, "version": "0.1.0",
                "devices": [{"device": "cpu0", "backend": "cpu", "environment": ENVIRONMENT, "facts": {}}]}
        self.enrolment = server.request("POST", "/v1/agents", body | ({"agent": agent} if agent else {})).json
        self.id = self.enrolment["agent"]
        self.seqs = itertools.count(1)

    def beat(self):
        return self.server.request("POST", f"/v1/agents/{self.id}/heartbeat", {"boot": self.boot})

    def pull(self, wait=0):
        return self.server.request("POST", "/v1/leases",
                                   {"agent": self.id, "device": "cpu0", "nonce": next(nonces), "wait": wait})

    def renew(self, lease, config=None):
        return self.server.request("POST", f"/v1/leases/{lease['lease']}/renew", {"epoch": lease["epoch"], "config": config})

    def post(self, lease, configs=None, done=True, outcomes=None, detail="because", ratios=None, device_us=1000):
        """`outcomes`: those of configs that are not correct. `ratios`: times to the baseline's that are not 1 + config / 100."""
        measurements = []
        for config in configs_of(lease) if configs is None else configs:
            outcome = (outcomes or {}).get(config, "correct")
            time_us = 100.0 * ratios[config] if ratios and config in ratios else 100.0 + config
            times = {"samples_us": [time_us] * 5, "baseline_us": [100.0] * 5} if outcome == "correct" else {"detail": detail}
            measurements.append({"seq": next(self.seqs), "config": config, "outcome": outcome, "device_us": device_us} | times)
        return self.server.request("POST", f"/v1/leases/{lease['lease']}/results",
                                   {"epoch": lease["epoch"], "measurements": measurements, "done": done})

    def take_all(self, **how):
        """Takes and completes leases until there are none; returns them."""
        leases = []
        while (answer := self.pull()).status == 200:
            leases.append(answer.json)
            assert self.post(answer.json, **how).status == 200
        return leases

    def work(self, **how):
        """The same; returns their stages."""
        return [lease["stage"] for lease in self.take_all(**how)]


def configs_of(lease):
    return [config for first, count in lease["configs"] for config in range(first, first + count)]


@pytest.fixture
def server(start, database):
    return start(harness.Server, database, options=("--lease-ms", "700", "--heartbeat-ms", "300", "--poll-ms", "200",
                                                    *harness.LEASES_OF_8))


@pytest.fixture
def hands(server):
    """Enrols agents and beats for them until the test ends."""
    alive, is_over = [], threading.Event()

    def beat():
        while not is_over.wait(0.3):
            for hand in list(alive):
                hand.beat()

    thread = threading.Thread(target=beat)
    thread.start()

    def enrol(name, **more):
        alive.append(Hand(server, name, **more))
        return alive[-1]

    yield enrol
    is_over.set()
    thread.join()


def register(server):
    def blob(data):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        assert server.request("PUT", f"/v1/blobs/{digest}", data).status in (200, 201)
        return digest

    manifest = {"name": "test/leases", "language": "c", "entry": "f", "sources": [{"path": "f.c", "digest": blob(SOURCE)}],
                "key": ["n"],
                "arguments": [{"name": "y", "dtype": "float32", "shape": ["n"], "access": "write"},
                              {"name": "n", "dtype": "int64", "value": "n"}],
                "reference": {"source": {"path": "r.c", "digest": blob(REFERENCE)}, "outputs": {"y": "f_at"}, "rtol": 0.0,
                              "atol": 0.0, "samples": 0}}
    answer = server.request("POST", "/v1/kernels", manifest)
    assert answer.status == 201, answer
    return answer.json["kernel"]


@pytest.fixture
def kernel(server):
    return register(server)


@pytest.fixture
def submit(server, kernel):
    def submit(space, **more):
        answer = server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": 64}, "space": space,
                                                     "environment": ENVIRONMENT} | more)
        assert answer.status == 201, answer
        return answer.json["job"]

    return submit


def events(server, job):
    return [(e["kind"], e["detail"].get("config")) for e in server.get(f"/v1/jobs/{job}/events")["items"]]


def lose(server, hand, job, config, times):
    """Takes the lease with `config`, says that it measures it, and is silent until the lease is lost."""
    lost = sum(kind == "lease_lost" for kind, _ in events(server, job))
    for n in range(1, times + 1):
        lease = hand.pull(wait=5).json
        assert hand.renew(lease, config).status == 200
        wait_until(lambda: sum(kind == "lease_lost" for kind, _ in events(server, job)) == lost + n, 20, "the lease to be lost")


def measurement_of(server, job, config):
    return [m for m in server.items(f"/v1/jobs/{job}/measurements") if m["config"] == config and not m["late"]]


def test_a_config_that_the_only_agent_loses_twice_is_poisoned_and_the_job_goes_on(server, hands, submit):
    hand, job = hands("only"), submit(SMALL)
    lose(server, hand, job, 1, 2)
    assert ("poisoned", 1) in events(server, job)
    lease = hand.pull(wait=5).json
    assert configs_of(lease) == [0, 2]
    hand.post(lease)
    poisoned, = measurement_of(server, job, 1)
    assert poisoned["outcome"] == "runtime" and "poisoned" in poisoned["detail"]
    assert hand.work() == ["final"] * 3
    assert server.get(f"/v1/jobs/{job}")["state"] == "done"


def test_a_config_lost_twice_by_one_agent_goes_to_another_one_alone(server, hands, submit):
    unlucky, other, job = hands("unlucky"), hands("other"), submit(SMALL)
    lose(server, unlucky, job, 2, 2)
    assert configs_of(unlucky.pull(wait=5).json) == [0, 1]
    assert unlucky.pull().status == 204
    apart = other.pull(wait=5).json
    assert configs_of(apart) == [2]
    assert other.post(apart).json["state"] == "done"
    assert measurement_of(server, job, 2)[0]["outcome"] == "correct"


def test_a_config_lost_on_two_devices_is_poisoned_for_the_environment(server, hands, submit):
    one, two, job = hands("one"), hands("two"), submit(SMALL)
    lose(server, one, job, 2, 1)
    lose(server, two, job, 2, 1)
    assert ("poisoned", 2) in events(server, job)
    assert configs_of(one.pull(wait=5).json) == [0, 1]


def test_a_config_that_only_dead_agents_might_measure_is_given_up(server, hands, submit):
    hand, other, job = hands("alive"), hands("soon dead"), submit(SMALL)
    lose(server, hand, job, 2, 2)
    other.boot = "dead"  # its heartbeats count no more
    assert hand.work() == ["screen"], "the config waits for the other agent"
    wait_until(lambda: ("poisoned", None) in events(server, job), 30, "the config to be given up")
    wait_until(lambda: server.get(f"/v1/jobs/{job}")["stage"] == "final", 10, "the job to go on without it")
    assert hand.work() == ["final"] * 3
    assert server.get(f"/v1/jobs/{job}")["state"] == "done"


def test_a_loss_without_a_config_blames_none(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    assert hand.pull().status == 200
    wait_until(lambda: ("lease_lost", None) in events(server, job), 20, "the lease to be lost")
    assert configs_of(hand.pull(wait=5).json) == [0, 1, 2]


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


def test_a_lease_that_is_always_given_back_unmeasured_is_given_up(server, hands, submit):
    hand, job = hands("idle"), submit(SMALL)
    grants = 0
    while (answer := hand.pull()).status == 200:
        assert hand.post(answer.json, configs=[]).json["state"] == "open"
        grants += 1
        assert grants < 50
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["state"] == "failed" and "given up" in summary["reason"]


def test_a_job_whose_baseline_fails_fails_with_its_sentence(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE)
    lease = hand.pull().json
    hand.post(lease, configs=[0], done=False, outcomes={0: "runtime"}, detail="baseline: it crashed")
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["reason"]) == ("failed", "baseline: it crashed")
    assert hand.pull().status == 204
    assert hand.renew(lease).status == 409


def test_a_job_without_a_correct_config_fails_and_says_what_happened(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    hand.post(hand.pull().json, outcomes={0: "compile", 1: "compile", 2: "timeout"}, detail="no such header")
    assert server.get(f"/v1/jobs/{job}")["reason"] == \
        "none of 3 configs was measured correctly (compile 2, timeout 1); one of them: no such header"


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


def test_a_job_is_cut_by_how_long_the_kernels_configs_took_before(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE)
    assert [len(configs_of(lease)) for lease in hand.take_all(device_us=60000) if lease["stage"] == "screen"] == [8, 8, 8]
    submit(LARGE, run="known to be slow")
    assert len(configs_of(hand.pull().json)) == 8
    hand.server.request("DELETE", f"/v1/jobs/{int(job) + 1}")
    submit(SMALL, run="quick")
    hand.work(device_us=10)
    submit(LARGE, run="of both")
    assert len(configs_of(hand.pull().json)) == 8, "the mean over the kernel's jobs"


def test_who_won_before_is_the_baseline_where_it_is_a_point_that_holds(server, hands, submit):
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


def test_what_won_elsewhere_is_tried_first_and_is_in_the_first_lease(server, hands, submit):
    hand, _ = hands("hand"), submit(LARGE)
    hand.work(ratios={20: 0.5}, device_us=30000)
    job = submit(LARGE, key={"n": 128})
    leases = hand.take_all(device_us=30000)
    assert configs_of(leases[0]) == [*range(8), 20] and leases[0]["likely"] == [20]
    assert leases[1]["likely"] == leases[2]["likely"] == []
    summary = server.get(f"/v1/jobs/{job}")
    assert (summary["state"], summary["measured"]) == ("done", 24)


def test_a_lease_tells_the_best_ratio_so_far(server, hands, submit):
    hand, _ = hands("hand"), submit(LARGE)
    told = [lease["best_ratio"] for lease in hand.take_all(ratios={12: 0.75})]
    assert told[:3] == [None, 1.0, 0.75]


SPENT = "the device time is spent"  # common/outcome.h


def release(server, lease, reason):
    return server.request("POST", f"/v1/leases/{lease['lease']}/release", {"epoch": lease["epoch"], "reason": reason})


def test_a_lease_gets_its_share_of_the_budget_and_is_not_leased_again_when_that_is_spent(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE, budget={"device_seconds": 1.2})
    first = hand.pull().json
    assert first["device_us"] == 400000
    hand.post(first, configs=[0, 1], done=False, device_us=200000)
    assert release(server, first, SPENT).json == {"state": "cancelled"}
    assert ("budget", None) in events(server, job)
    second = hand.pull().json
    assert configs_of(second) == list(range(8, 16)) and second["device_us"] == 400000
    assert release(server, second, SPENT).json == {"state": "cancelled"}, "though it measured nothing"
    assert hand.post(hand.pull().json).status == 200
    leases = hand.take_all()
    assert [(lease["stage"], lease["device_us"]) for lease in leases] == [("final", None)] * 3
    assert server.get(f"/v1/jobs/{job}")["measured"] == 10


def test_a_lease_without_a_budget_has_none_to_spend(server, hands, submit):
    hand, _ = hands("hand"), submit(SMALL)
    lease = hand.pull().json
    assert lease["device_us"] is None
    assert release(server, lease, SPENT).json == {"state": "open"}


CLOSE = {config: 1 + config / 1000 for config in range(24)}


def test_many_close_configs_of_several_leases_race_once_more_together(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE)
    leases = hand.take_all(ratios=CLOSE)
    assert [lease["stage"] for lease in leases] == ["screen"] * 3 + ["halving"] + ["final"] * 3
    assert configs_of(leases[3]) == list(range(24)) and configs_of(leases[4]) == list(range(16))
    assert server.get(f"/v1/jobs/{job}")["winner"]["config"] == 0


def test_a_halving_that_fails_leaves_what_the_screen_said(server, hands, submit):
    hand, _ = hands("hand"), submit(LARGE)
    for _ in range(3):
        hand.post(hand.pull().json, ratios=CLOSE)
    hand.post(hand.pull().json, outcomes=dict.fromkeys(range(24), "runtime"))
    final = hand.pull().json
    assert final["stage"] == "final" and configs_of(final) == list(range(16))


def test_the_default_is_a_finalist_wherever_it_stands(server, hands, submit):
    hand, _ = hands("hand"), submit(SMALL | {"default": {"A": 3}})
    hand.post(hand.pull().json, ratios={2: 7.0})
    assert 2 in configs_of(hand.pull().json)


def test_a_final_is_spread_over_devices_and_waits_a_while_for_them(server, hands, submit, postgres, database):
    one, two, job = hands("one"), hands("two"), submit(SMALL, finals={"devices": 2})
    one.post(one.pull().json)
    first = one.pull().json
    assert first["process"] == 0
    assert one.pull().json["process"] == 2, "any device may have it"
    assert one.pull().status == 204
    other = submit(SMALL, tag="later")
    assert one.pull().json["job"] == other, "what waits for another device holds nobody up"
    second = two.pull().json
    assert second["process"] == 1
    two.post(second)
    summary = server.get(f"/v1/jobs/{job}")
    assert summary["finals"] == {"devices": 2}


def test_a_final_goes_to_the_only_device_in_the_end(server, hands, submit, postgres, database):
    hand, job = hands("only"), submit(SMALL, finals={"devices": 2})
    hand.post(hand.pull().json)
    for _ in range(2):
        hand.post(hand.pull().json)
    assert hand.pull().status == 204
    postgres.sql("update leases set apart_until = apart_until - interval '61 s'", conninfo=database)
    assert hand.work() == ["final"]
    assert server.get(f"/v1/jobs/{job}")["state"] == "done"


THOUSAND = {"parameters": {"A": list(range(10)), "B": list(range(10)), "C": list(range(10))}}


@pytest.mark.parametrize("strategy", ["random", "descent", "evolution"])
def test_a_search_goes_on_in_rounds_until_its_trials_are_used(server, hands, submit, strategy):
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


def test_a_search_ends_with_the_round_that_spends_its_budget(server, hands, submit):
    hand = hands("hand")
    job = submit(THOUSAND, search={"strategy": "random", "trials": 500}, budget={"device_seconds": 0.06})
    leases = hand.take_all(ratios={config: 1 + config / 100 for config in range(1000)})
    assert {lease["round"] for lease in leases if lease["stage"] == "screen"} == {0}
    assert server.get(f"/v1/jobs/{job}")["state"] == "done"


def test_a_search_begins_with_what_won_elsewhere(server, hands, submit):
    hand, _ = hands("hand"), submit(THOUSAND, search={"strategy": "random", "trials": 20})
    leases = hand.take_all()
    best = min(config for lease in leases for config in configs_of(lease))
    submit(THOUSAND, key={"n": 65}, search={"strategy": "random", "trials": 5})
    lease = hand.pull().json
    assert best in configs_of(lease) and lease["likely"] == [best]


def test_a_space_that_is_searched_may_have_more_points_than_a_job(server, submit):
    parameters = {name: list(range(100)) for name in "ABCDE"}
    job = submit({"parameters": parameters}, search={"strategy": "random", "trials": 10})
    assert server.get(f"/v1/jobs/{job}")["configs"] == 10


def test_submit_asks_for_a_search_and_for_devices(server, hands):
    hands("hand")
    submitted = harness.wavetune(server, "submit", harness.QUICK, "--key", "n=5", "--search", "random", "--trials", "7",
                                 "--final-devices", "2", "--environment", json.dumps(ENVIRONMENT), "--json")
    job = server.get(f"/v1/jobs/{json.loads(submitted.stdout)[0]['job']}")
    assert job["search"] == {"strategy": "random", "trials": 7} and job["finals"] == {"devices": 2}
    half = harness.wavetune(server, "submit", harness.QUICK, "--key", "n=5", "--trials", "7", "--environment",
                            json.dumps(ENVIRONMENT), check=False)
    assert half.returncode == 2 and "go together" in half.stderr


def test_show_says_what_a_job_was_measured_against(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    hand.work()
    assert "measured against config 0, the first of the space" in harness.wavetune(server, "show", job).stdout


def test_a_measurement_says_why_its_sampling_ended(server, hands, submit):
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
    """A server whose leases are long: what `server` names in the tests of tails."""
    return start(harness.Server, database, options=("--lease-ms", "20000", "--heartbeat-ms", "300", "--poll-ms", "200"))


class Tails:
    """One agent holds a lease of a whole job for a while, another one is idle."""

    def __init__(self, server, postgres, submit_to):
        self.server, self.postgres = server, postgres
        self.one, self.two = Hand(server, "one"), Hand(server, "two")
        self.job = submit_to(server, LONG)
        self.lease = self.one.pull().json
        assert configs_of(self.lease) == list(range(200)) and self.lease["renew_every_ms"] == 2000

    def age(self, seconds=3):
        self.postgres.sql(f"update leases set granted_at = granted_at - interval '{seconds} s' where state = 'held'",
                          conninfo=self.server.database)

    def renewed(self):
        return self.one.renew(self.lease).json


@pytest.fixture
def tails(patient, postgres):
    def submit_to(server, space):
        kernel = register(server)
        answer = server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": 64}, "space": space,
                                                     "environment": ENVIRONMENT})
        assert answer.status == 201, answer
        return answer.json["job"]

    return Tails(patient, postgres, submit_to)


def test_an_idle_device_takes_over_the_later_half_of_a_lease_that_has_long_to_go(tails):
    assert "configs" not in tails.renewed()
    tails.age()
    tail = tails.two.pull().json
    assert configs_of(tail) == list(range(100, 200))
    assert tail["job"] == tails.job and tail["stage"] == "screen" and tail["lease"] != tails.lease["lease"]
    assert tails.renewed()["configs"] == [[0, 100]] == tails.renewed()["configs"]
    given = tails.one.post(tails.lease, configs=[99, 150], done=False)
    assert given.status == 200 and given.json == {"accepted": 2, "late": 1, "known": 0, "state": "held"}
    assert tails.one.post(tails.lease, configs=list(range(99))).json["state"] == "done"
    assert tails.two.post(tail).json["state"] == "done"
    rows = tails.server.items(f"/v1/jobs/{tails.job}/measurements")
    assert sorted(row["config"] for row in rows if not row["late"]) == list(range(200))
    assert [row["config"] for row in rows if row["late"]] == [150]
    assert tails.one.work() == ["final"] * 3
    assert tails.server.get(f"/v1/jobs/{tails.job}")["measured"] == 200


def test_a_tail_is_split_again_while_it_is_worth_it(tails):
    sizes = []
    for hand in (tails.two, Hand(tails.server, "three"), Hand(tails.server, "four")):
        tails.age()
        answer = hand.pull()
        sizes.append(len(configs_of(answer.json)) if answer.status == 200 else 0)
    assert sizes == [100, 0, 0], "3 s are left of each half"


def test_no_lease_is_split_that_is_young_short_or_the_asking_devices_own(tails):
    assert tails.two.pull().status == 204, "it was granted just now"
    tails.age()
    assert tails.one.pull().status == 204, "it is its own"
    tails.one.post(tails.lease, configs=list(range(190)), done=False, device_us=2000000)
    assert tails.two.pull().status == 204, "10 configs are left, whatever they take"


def test_a_parked_device_gets_a_tail_as_soon_as_there_is_one(tails):
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(tails.two.pull(wait=30)))
    waiting.start()
    tails.age()
    waiting.join(20)
    assert configs_of(answers[0].json) == list(range(100, 200))


def test_a_lease_that_was_split_and_lost_is_leased_again_without_its_tail(tails):
    tails.age()
    assert tails.two.pull().status == 200
    assert release(tails.server, tails.lease, "the agent ends").json == {"state": "open"}
    again = tails.one.pull().json
    assert configs_of(again) == list(range(100))
    assert "configs" not in tails.one.renew(again).json


def finals(hand, hand_post):
    """Completes final leases until there are none, each as `hand_post(lease)` says; returns their (process, round)."""
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
    last.join(20)
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


def test_a_priority_that_was_raised_but_not_on_the_leases_is_when_asked_again(server, hands, submit, postgres, database):
    hand, _, later = hands("hand"), submit(SMALL), submit(SMALL, tag="later", priority=5)
    postgres.sql(f"update leases set priority = 0 where job_id = {later}", conninfo=database)  # a crash between the two
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


def test_a_cancelled_job_is_leased_no_more_and_says_so_to_who_follows_it(server, hands, submit):
    hand, job = hands("hand"), submit(LARGE)
    answers = []
    follower = threading.Thread(target=lambda: answers.append(server.get(f"/v1/jobs/{job}/events?after=1&wait=30")))
    follower.start()
    assert server.request("DELETE", f"/v1/jobs/{job}").json["state"] == "cancelled"
    follower.join(20)
    assert [e["kind"] for e in answers[0]["items"]] == ["cancelled"] and answers[0]["next"] == "2"
    assert hand.pull().status == 204
    assert server.request("DELETE", f"/v1/jobs/{job}").status == 200


def test_a_done_job_cannot_be_cancelled(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL)
    hand.work()
    assert server.request("DELETE", f"/v1/jobs/{job}").status == 409
