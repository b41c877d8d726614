"""Which measurements and winners count: devices that drift, winners that are slower than the default, and the gain that
replaces a served config. The test plays the agents, with times that it chooses."""

import itertools
import json
import random
import re
import threading

import harness
import pytest
from harness import wait_until, wavetune
from test_interleavings import Session
from hands import ENVIRONMENT, configs_of, register

PAIR = {"parameters": {"A": [1, 2]}}
TRIPLE = {"parameters": {"A": [1, 2, 3]}}
WIDE = {"parameters": {"A": list(range(32))}}  # four screen leases
ROUNDS = 12
nonces = (f"t{n}" for n in itertools.count())


class Node:
    """An agent with two devices that the test plays."""

    def __init__(self, server, agent=None):
        self.server, self.seqs, self.noise = server, itertools.count(1), random.Random(7)
        devices = [{"device": d, "backend": "cpu", "environment": ENVIRONMENT, "facts": {}} for d in ("cpu0", "cpu1")]
        answer = server.request("POST", "/v1/agents", {"agent": agent, "boot": "b", "name": "node", "version": "0.1.0",
                                                       "devices": devices})
        self.id = answer.json["agent"]

    def pull(self, device="cpu0"):
        return self.server.request("POST", "/v1/leases",
                                   {"agent": self.id, "device": device, "nonce": next(nonces), "wait": 0})

    def times(self, us, spread):
        return [us * (1 + spread * self.noise.gauss(0, 1)) for _ in range(ROUNDS)]

    def post(self, lease, ratios=None, baseline_us=100.0, spread=0.001, configs=None):
        """`ratios`: times to the baseline's, of configs that are not 1 + config / 10; one number for all."""
        ratio_of = (lambda c: ratios) if isinstance(ratios, float) else lambda c: (ratios or {}).get(c, 1 + c / 10)
        measurements = [{"seq": next(self.seqs), "config": config, "outcome": "correct", "timer": "test", "device_us": 1000,
                         "samples_us": self.times(baseline_us * ratio_of(config), spread),
                         "baseline_us": self.times(baseline_us, spread)}
                        for config in (configs_of(lease) if configs is None else configs)]
        return self.server.request("POST", f"/v1/leases/{lease['lease']}/results",
                                   {"epoch": lease["epoch"], "measurements": measurements, "done": configs is None})

    def work(self, device="cpu0", stage=None, most=99, **how):
        """Pulls and completes leases until there are none (of the stage); returns them."""
        done = []
        while len(done) < most and (answer := self.pull(device)).status == 200:
            if stage and answer.json["stage"] != stage:
                path = f"/v1/leases/{answer.json['lease']}/release"
                assert self.server.request("POST", path, {"epoch": answer.json["epoch"]}).status == 200
                break
            assert self.post(answer.json, **how).status == 200
            done.append(answer.json)
        return done


@pytest.fixture(scope="module")
def server(postgres, tmp_path_factory):
    it = harness.Server(postgres.database(), tmp_path_factory.mktemp("server"),
                        options=(*harness.UNHURRIED, "--lease-target-ms", "1"))
    it.kernel = register(it)
    yield it
    it.stop()


@pytest.fixture
def tag(request):
    """A tag for each test, because the tests share a server."""
    return request.node.name


@pytest.fixture
def node(server):
    return Node(server)


@pytest.fixture
def submit(server, tag):
    jobs = []

    def submit(space, **more):
        answer = server.request("POST", "/v1/jobs", {"kernel": server.kernel, "key": {"n": 64}, "space": space, "tag": tag,
                                                     "run": str(len(jobs)), "environment": ENVIRONMENT} | more)
        assert answer.status == 201, answer
        jobs.append(answer.json["job"])
        return jobs[-1]

    yield submit
    for job in jobs:
        server.request("DELETE", f"/v1/jobs/{job}")


@pytest.fixture
def age(server, postgres):
    """Moves all measurements so far into the past: leases five minutes apart, the newest an hour ago."""
    def age():
        postgres.sql("UPDATE device_baselines b SET at = now() - interval '1 hour' - o.n * interval '5 minutes' FROM (SELECT *, "
                     "row_number() OVER (ORDER BY at DESC, lease_id DESC) AS n FROM device_baselines) o WHERE o.lease_id = b.lease_id;"
                     "UPDATE measurements SET at = at - interval '1 day'; UPDATE jobs SET created_at = created_at - "
                     "interval '1 day', finished_at = finished_at - interval '1 day'", conninfo=server.database)

    return age


def events(server, job, kind):
    return [e["detail"] for e in server.get(f"/v1/jobs/{job}/events")["items"] if e["kind"] == kind]


def drained(node):
    """The reasons for which the agent's devices are drained."""
    agent, = [a for a in node.server.items("/v1/agents") if a["agent"] == node.id]
    return [d["drain_reason"] for d in agent["devices"]]


def counter(server, name):
    return int(re.search(rf"^wavetune_{name}_total (\d+)$", server.request("GET", "/metrics").body.decode(), re.M).group(1))


# Drift

def test_a_device_that_drifts_is_drained_and_others_measure_again_what_it_measured(server, node, submit, age):
    calm, before = (submit(WIDE), submit(WIDE)), [counter(server, n) for n in ("devices_drained", "measurements_quarantined")]
    node.work(ratios={0: 0.9})
    age()
    job = submit(WIDE)
    slow, late = node.pull().json, node.pull("cpu0").json
    assert node.post(slow, baseline_us=130.0).status == 200
    assert drained(node) == [None, None], "one lease is no evidence"
    assert node.post(late, baseline_us=130.0).status == 200
    reason, others = drained(node)
    noted, = server.items(f"/v1/audit?action=drain&object={node.id}")
    assert (noted["token"], noted["token_id"], noted["peer"]) == ("(server)", None, None) and noted["detail"]["reason"] == reason
    agent, = [a for a in server.items("/v1/agents") if a["agent"] == node.id]
    assert [d["drained_by"] for d in agent["devices"]] == ["(server)", None]
    assert others is None
    assert re.match(r'drift: baseline 0 of test/leases \{"n":\s*64\} took 130 us .*, 30 % .* 100 us', reason), reason
    refused = node.pull("cpu0")
    assert refused.status == 403 and refused.json["pointer"] == "/device" and "drift: baseline 0" in refused.json["detail"]

    taken = node.work("cpu1", stage="screen")
    assert sorted(c for lease in taken for c in configs_of(lease)) == list(range(32))
    node.work("cpu1")
    assert server.get(f"/v1/jobs/{job}")["state"] == "done"
    assert server.get(f"/v1/jobs/{job}")["measured"] == 32
    assert server.get(f"/v1/jobs/{job}")["quarantined"] is None, "no sample of the drifted device decided it"
    detail, = events(server, job, "quarantined")
    assert (detail["device"], detail["measurements"], detail["leased_again"]) == ("cpu0", 16, 16)
    rows = server.items(f"/v1/jobs/{job}/measurements")
    assert {(m["quarantined"], m["late"]) for m in rows if m["device"] == "cpu0"} == {(True, True)}
    assert {(m["quarantined"], m["late"]) for m in rows if m["device"] == "cpu1"} == {(False, False)}
    for earlier in calm:
        assert not any(m["quarantined"] for m in server.items(f"/v1/jobs/{earlier}/measurements"))
    assert counter(server, "devices_drained") == before[0] + 1
    assert counter(server, "measurements_quarantined") == before[1] + 16
    shown = re.compile(rf"^node +1 idle, 1 drifted +drift: baseline 0 .* {node.id}$", re.M)
    wait_until(lambda: shown.search(wavetune(server, "agents").stdout), 30, "the summary of the fleet has the drained device")


def test_the_time_of_a_baseline_is_stored_with_the_results_that_end_its_lease(server, node, submit, postgres):
    """By the same transaction: it costs no commit of its own, and is not lost when the database crashes."""
    job = submit(PAIR)
    node.work()
    apart = postgres.sql("SELECT count(*), count(*) FILTER (WHERE NOT b.xmin::text = ANY (m.by)) FROM device_baselines b JOIN "
                         "(SELECT lease_id, epoch, array_agg(xmin::text) AS by FROM measurements "
                         f"WHERE job_id = {job} GROUP BY 1, 2) m USING (lease_id, epoch)", conninfo=server.database)
    n, n_apart = map(int, apart.split("|"))
    assert n > 0 and n_apart == 0


def test_leases_of_a_drifting_device_are_taken_away(server, node, submit, age):
    submit(WIDE), submit(WIDE)
    node.work(ratios={0: 0.9})
    age()
    submit(WIDE)
    leases = [node.pull().json for _ in range(3)]
    node.post(leases[2], baseline_us=130.0, configs=configs_of(leases[2])[:3])
    for lease in leases[:2]:
        node.post(lease, baseline_us=130.0)
    assert node.post(leases[2]).status == 409
    taken = node.work("cpu1", stage="screen")
    assert sorted(c for lease in taken for c in configs_of(lease)) == list(range(32))


def test_results_of_a_lease_granted_while_the_device_was_drained_are_quarantined_too(server, node, submit, age, postgres):
    submit(WIDE), submit(WIDE)
    node.work(ratios={0: 0.9})
    age()
    submit(WIDE)
    leases = [node.pull().json for _ in range(3)]
    for lease in leases[:2]:
        node.post(lease, baseline_us=130.0)
    postgres.sql(f"UPDATE leases SET state = 'held', expires_at = now() + interval '1 minute' WHERE id = {leases[2]['lease']}",
                 conninfo=server.database)
    assert node.post(leases[2], baseline_us=130.0).status == 200
    assert sorted(c for lease in node.work("cpu1", stage="screen") for c in configs_of(lease)) == list(range(32))


def test_a_job_is_decided_again_when_its_samples_are_quarantined_while_it_is_decided(server, node, submit, postgres):
    submit(PAIR)
    first = submit(PAIR)
    node.work(stage="screen", most=2)
    finals = [node.pull().json for _ in range(3)]
    assert {lease["job"] for lease in finals} == {str(int(first) - 1)}
    job = finals[0]["job"]
    for lease in finals[:2]:
        node.post(lease)
    session = Session(server.database)
    session.run("begin")
    session.run(f"select 1 from jobs where id = {job} for update")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(node.post(finals[2])))
    thread.start()
    wait_until(lambda: int(postgres.sql("select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like "
                                        "'%job_state%' and datname = current_database()", conninfo=server.database)) > 0, 20,
               "the job to be decided")
    session.run(f"update measurements set quarantined = true, late = true where lease_id = {finals[0]['lease']}")
    session.run(f"update leases set state = 'open', remaining = configs where id = {finals[0]['lease']}")
    session.run("commit")
    session.close()
    thread.join(300)
    assert answers[0].status == 200
    assert "quarantined while it was decided" in server.messages
    assert server.get(f"/v1/jobs/{job}")["state"] == "running"
    # Not always first: the server learns later of what another program opens.
    assert finals[0]["lease"] in [lease["lease"] for lease in node.work()]
    wait_until(lambda: server.get(f"/v1/jobs/{job}")["state"] == "done", 20, "the job to be decided again")
    assert "the same verdict" in wavetune(server, "show", job, "--recompute").stdout


def test_a_search_keeps_the_results_it_used_when_they_are_quarantined(server, node, submit, age):
    space = {"parameters": {"A": list(range(96))}}
    submit(space)
    node.work()
    age()
    job = submit(space, search={"strategy": "evolution", "trials": 48})
    assert node.post(node.pull("cpu0").json, baseline_us=130.0).status == 200
    node.work("cpu1", most=1)
    second = node.pull("cpu0").json
    assert second["round"] == 1 and node.post(second, baseline_us=130.0).status == 200
    assert drained(node)[0].startswith("drift: ")
    detail, = events(server, job, "quarantined")
    assert (detail["measurements"], detail["leased_again"]) == (16, 8), "the results of the round before were used already"
    node.work("cpu1", ratios={config: 2 - config / 100 for config in range(96)})
    assert server.get(f"/v1/jobs/{job}")["state"] == "done"
    screened = [m["config"] for m in server.items(f"/v1/jobs/{job}/measurements") if m["stage"] == "screen" and not m["late"]]
    assert len(screened) == len(set(screened)) == 48, "no config is named twice"


def test_a_resumed_device_works_and_begins_a_new_history(server, node, submit, age):
    submit(WIDE), submit(WIDE)
    node.work(ratios={0: 0.9})
    age()
    submit(WIDE)
    node.work(most=2, baseline_us=130.0)
    assert node.pull().status == 403
    done = wavetune(server, "agents", "resume", node.id, "--device", "cpu0")
    assert done.stdout.startswith(f"cpu0 of agent {node.id} ")
    assert len(node.work(baseline_us=130.0)) >= 4 and drained(node) == [None, None]


def test_one_device_is_drained_and_resumed_by_hand(server, node, submit):
    submit(PAIR)
    assert wavetune(server, "agents", "drain", node.id, "--device", "cpu1", check=False).returncode == 2
    assert wavetune(server, "agents", "drain", check=False).returncode == 2
    done = wavetune(server, "agents", "drain", node.id, "--device", "cpu1", "--reason", "a new fan", "--json")
    assert json.loads(done.stdout) == {"agent": node.id, "device": "cpu1", "drain_reason": "a new fan"}
    assert "a new fan" in node.pull("cpu1").json["detail"]
    assert Node(server, agent=node.id).id == node.id
    assert node.pull("cpu1").status == 403, "another start of the agent changes nothing"
    assert node.pull("cpu0").status == 200
    assert wavetune(server, "agents", "drain", node.id, "--device", "gpu9", "--reason", "x", check=False).returncode == 4
    wavetune(server, "agents", "resume", node.id, "--device", "cpu1")
    assert node.pull("cpu1").status == 204


def test_winners_decided_from_a_drifting_device_are_not_released(server, node, submit, age, tag):
    good, before = (submit(PAIR), submit(PAIR)), counter(server, "winners_quarantined")
    node.work("cpu0", ratios={0: 0.9})
    age()
    doubtful = submit(PAIR)
    node.work("cpu1", stage="screen")
    node.work("cpu0", most=1, baseline_us=130.0)
    node.work("cpu1")
    assert server.get(f"/v1/jobs/{doubtful}")["state"] == "done"
    job = submit(PAIR)
    node.work("cpu1", stage="screen")
    node.work("cpu0", most=1, baseline_us=130.0)
    summary = server.get(f"/v1/jobs/{doubtful}")
    assert summary["quarantined"].startswith("drift: baseline 0") and server.get(f"/v1/jobs/{good[0]}")["quarantined"] is None
    detail, = events(server, doubtful, "quarantined")
    assert detail["measurements"] == 1 and detail["leased_again"] == 0
    assert wavetune(server, "show", doubtful, "--recompute").returncode == 0, "the evidence stays"
    node.work("cpu1")
    assert server.get(f"/v1/jobs/{job}")["quarantined"] is None
    assert "quarantined: drift: baseline 0" in wavetune(server, "show", doubtful).stdout
    answer = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "tag": tag}).json
    assert [i["job"] for i in answer["included"]] == [job]
    assert {s["job"]: s["reason"] for s in answer["skipped"]}[doubtful].startswith("quarantined: drift: baseline 0")
    assert counter(server, "winners_quarantined") == before + 1


# Never worse

def test_a_winner_that_later_measures_slower_than_the_default_is_flagged_and_released_no_more(server, node, submit, tag):
    space, before = TRIPLE | {"default": {"A": 1}}, counter(server, "winners_flagged")
    promoted = submit(space)
    node.work(ratios={1: 0.8, 2: 1.1})
    assert server.get(f"/v1/jobs/{promoted}")["winner"]["config"] == 1
    assert server.get(f"/v1/jobs/{promoted}")["flagged"] is None
    first = json.loads(wavetune(server, "publish", "--tag", tag, "--channel", "stable", "--json").stdout)
    assert first["replaces"] == {"channel": "stable", "min_gain": 0.02, "etag": None} and first["channel"]["counter"] == 1

    later = submit(space)
    assert server.get(f"/v1/jobs/{later}")["baseline"] == 1
    node.work(ratios={0: 0.99, 1: 1.0, 2: 1.1})
    flagged = server.get(f"/v1/jobs/{promoted}")["flagged"]
    assert flagged["job"] == later and 1 < flagged["lower"] < flagged["ratio"] < flagged["upper"] < 1.02
    assert f"flagged: job {later} " in wavetune(server, "show", promoted).stdout
    assert events(server, promoted, "flagged") == [flagged] and counter(server, "winners_flagged") == before + 1
    done = wavetune(server, "publish", "--tag", tag, "--channel", "stable")
    assert f'skipped  test/leases {{"n":64}}: flagged: job {later} ' in done.stderr
    assert "kept" not in done.stderr and "counter 2" in done.stdout, "a gain of 1 % is enough against a flagged one"


def test_an_older_winner_is_compared_with_the_default_as_a_finalist(server, node, submit):
    space = TRIPLE | {"default": {"A": 1}}
    older = submit(space)
    node.work(ratios={1: 0.8, 2: 0.82})
    newer = submit(space)
    node.work(ratios={0: 1.3, 1: 1.0, 2: 0.97})
    assert [server.get(f"/v1/jobs/{job}")["winner"]["config"] for job in (older, newer)] == [1, 2]
    submit(space)
    node.work(ratios={0: 0.98, 1: 1.01, 2: 0.97})
    assert server.get(f"/v1/jobs/{older}")["flagged"]["ratio"] == pytest.approx(1.01 / 0.98, rel=0.01)
    assert server.get(f"/v1/jobs/{newer}")["flagged"]["ratio"] == pytest.approx(1 / 0.98, rel=0.01)


def test_a_winner_that_stays_faster_than_the_default_is_not_flagged(server, node, submit):
    space = TRIPLE | {"default": {"A": 1}}
    promoted = submit(space)
    node.work(ratios={1: 0.8, 2: 1.1})
    submit(space)
    node.work(ratios={0: 1.2, 1: 1.0, 2: 0.9})
    assert server.get(f"/v1/jobs/{promoted}")["flagged"] is None


# Replacing a served config

@pytest.fixture
def publish(server, node, submit, tag):
    """The channel stable serves A = 1, which the next job has as its baseline. Calling it publishes there, and returns the
    output, the A that is served then and how often the channel was moved."""
    def publish(*options):
        done = wavetune(server, "publish", "--tag", tag, "--channel", "stable", *options)
        entry = server.get(f"/v1/channels/stable?tag={tag}")
        released = server.get(f"/v1/releases/{entry['release']}")["kernels"][0]
        config = released["configs"][released["winners"][0][1]]
        return done.stderr, config["values"]["A"], entry["counter"]

    submit(PAIR)
    node.work(ratios={0: 1.0, 1: 1.3})
    assert publish() == ("", 1, 1)
    return publish


def test_a_gain_of_five_percent_replaces_what_is_served(node, submit, publish):
    submit(TRIPLE)
    node.work(ratios={0: 1.0, 1: 1.3, 2: 0.95})
    output, config, moves = publish()
    assert (config, moves) == (3, 2) and "kept" not in output


def test_a_gain_of_one_percent_does_not(node, submit, publish):
    submit(TRIPLE)
    node.work(ratios={0: 1.0, 1: 1.3, 2: 0.99})
    output, config, moves = publish()
    assert (config, moves) == (1, 1)
    assert 'kept     test/leases {"n":64}: the served config 0 ' in output and "equivalence set" in output


def test_the_minimum_gain_is_the_option_of_publish(node, submit, publish):
    submit(TRIPLE)
    node.work(ratios={0: 1.0, 1: 1.3, 2: 0.96})
    output, config, _ = publish("--min-gain", "0.1")
    assert config == 1 and "less than the 10.00 %" in output
    assert publish("--min-gain", "0")[1] == 3


def test_a_doubtful_gain_replaces_nothing_even_without_a_minimum(node, submit, publish):
    submit(TRIPLE)
    for n in range(99):
        if (lease := node.pull()).status != 200:
            break
        ratio = (0.8, 1.1)[n % 2] if lease.json["stage"] == "final" else 0.9
        node.post(lease.json, ratios={0: 1.0, 1: 1.3, 2: ratio})
    output, config, _ = publish("--min-gain", "0")
    assert config == 1 and "ambiguous" in output


def test_jobs_whose_configs_are_all_the_same_replace_nothing(node, submit, publish):
    for _ in range(4):
        submit(TRIPLE)
        node.work(ratios=1.0, spread=0.02)
        assert publish()[1:] == (1, 1)


def test_a_channel_that_was_moved_after_it_was_compared_is_not_moved(server, node, submit, publish, tag):
    submit(TRIPLE)
    node.work(ratios={0: 1.0, 1: 1.3, 2: 0.9})
    mine = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "tag": tag, "replaces": {}}).json
    theirs = {"kernel": server.kernel, "key": {"n": 64}, "config": {"A": 2}}
    pinned = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "tag": tag, "pins": [theirs]}).json
    assert server.request("PUT", "/v1/channels/stable", {"release": pinned["release"]}).status == 200
    moved = server.request("PUT", "/v1/channels/stable", {"release": mine["release"]},
                           headers={"If-Match": mine["replaces"]["etag"]})
    assert moved.status == 412
