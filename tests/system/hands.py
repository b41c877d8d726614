"""Agents that a test simulates, and a kernel that only such agents can measure."""

import hashlib
import itertools
import time

import harness
import pytest
from harness import wait_until

ENVIRONMENT = {"cpu": "gcc 1", "gpu": "Test CPU", "arch": "x86_64", "compute_units": 4, "partition": ""}
SMALL = {"parameters": {"A": [1, 2, 3]}}
LARGE = {"parameters": {"A": list(range(24))}}
SOURCE = b"void f(float *y, long long n) { y[n - 1] = 1; }"
REFERENCE = b"double f_at(long long i, float *y, long long n) { return i + n > 0 && y ? 1 : 0; }"
nonces = (f"n{n}" for n in itertools.count())


class Hand:
    """An agent that the test plays."""

    def __init__(self, server, name, boot="b1", agent=None, devices=("cpu0",), environment=ENVIRONMENT, runs=None):
        """`runs`: what its devices state that they run; None: nothing, as of older agents."""
        self.server, self.boot = server, boot
        device = {"backend": "cpu", "environment": environment, "facts": {}} | ({"runs": runs} if runs else {})
        body = {"boot": boot, "name": name, "version": "0.1.0", "devices": [{"device": d} | device for d in devices]}
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

    def post(self, lease, configs=None, done=True, outcomes=None, detail="because", ratios=None, device_us=1000,
             ends=None, rounds=5, baseline_failed=(), opening_us=None, conditions=None):
        """`outcomes`: those of configs that are not correct. `ratios`: times to the baseline's that are not 1 + config / 100.
        `ends`: why sampling ended, for some configs. `baseline_failed`: configs posted as a baseline that failed.
        `conditions`: of some configs. `opening_us`: the reported time of opening the kernel so far; None: not reported, as by older agents."""
        measurements = []
        for config in configs_of(lease) if configs is None else configs:
            outcome = (outcomes or {}).get(config, "correct")
            time_us = 100.0 * ratios[config] if ratios and config in ratios else 100.0 + config
            times = {"samples_us": [time_us] * rounds, "baseline_us": [100.0] * rounds} if outcome == "correct" else {"detail": detail}
            end = {"end": ends[config]} if ends and config in ends else {}
            failed = {"baseline_failed": True} if config in baseline_failed else {}
            state = {"conditions": conditions[config]} if conditions and config in conditions else {}
            measurements.append({"seq": next(self.seqs), "config": config, "outcome": outcome, "device_us": device_us}
                                | times | end | failed | state)
        return self.server.request("POST", f"/v1/leases/{lease['lease']}/results",
                                   {"epoch": lease["epoch"], "measurements": measurements, "done": done}
                                   | ({} if opening_us is None else {"opening_us": opening_us}))

    def has_work(self):
        return any(self.server.get(f"/v1/jobs?state={state}&limit=1")["items"] for state in ("queued", "running"))

    def take_all(self, wait=60, **how):
        """Waits at most `wait` seconds for a lease of a job that is there, which another server may have opened, and completes
        leases until there are none; returns them."""
        leases, answer, end = [], self.pull(), time.monotonic() + wait
        while answer.status == 204 and time.monotonic() < end and self.has_work():
            answer = self.pull(wait=1)
        while answer.status == 200:
            leases.append(answer.json)
            assert self.post(answer.json, **how).status == 200
            answer = self.pull()
        return leases

    def work(self, **how):
        """The same; returns their stages."""
        return [lease["stage"] for lease in self.take_all(**how)]


def configs_of(lease):
    return [config for first, count in lease["configs"] for config in range(first, first + count)]


UNHURRIED_SERVER = (*harness.UNHURRIED, "--poll-ms", "200", *harness.LEASES_OF_8)


@pytest.fixture
def server(start, database):
    return start(harness.Server, database, options=UNHURRIED_SERVER)


@pytest.fixture
def hands(server):
    """Enrols agents."""
    return lambda name, **more: Hand(server, name, **more)


@pytest.fixture
def expire(server, start, postgres, database):
    """Makes an agent's lease expire. The leases of the test's server are too long for that; a second server on the same
    database, whose leases are short, expires all that are overdue."""
    servers = []

    def expire(lease):
        if not servers:
            servers.append(start(harness.Server, database, options=("--lease-ms", "100", "--heartbeat-ms", "600000")))
        lost = f"select count(*) from leases where id = {lease['lease']} and (state <> 'held' or epoch > {lease['epoch']})"
        postgres.sql("update leases set expires_at = now() - interval '1 s', due_at = now() - interval '1 s' "
                     f"where id = {lease['lease']}", conninfo=database)
        wait_until(lambda: postgres.sql(lost, conninfo=database) == "1", 30, "the lease to be lost")

    return expire


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
