"""A lease lasts as long as its holder renews it: past its first term, over several searches for
leases that have expired."""

import json

import harness
import pytest
from hands import ENVIRONMENT, LARGE, Hand, events, kernel  # noqa: F401
from harness import wait_until, wavetune
from test_leases import metric

SEARCHES = 2


@pytest.fixture
def server(start, database):
    """Its leases are short, and it forgets no agent that is played."""
    options = ("--lease-ms", "1500", "--heartbeat-ms", "600000", "--poll-ms", "200")
    return start(harness.Server, database, options=(*options, *harness.LEASES_OF_8))


@pytest.fixture
def submit(server, kernel):  # noqa: F811
    """Submits a job for CPUs with so many compute units."""
    def submit(units):
        job = {"kernel": kernel, "key": {"n": units}, "space": LARGE,
               "environment": ENVIRONMENT | {"compute_units": units}}
        return server.request("POST", "/v1/jobs", job).json["job"]

    return submit


@pytest.fixture
def lose(server, submit):
    """Has another agent, which renews nothing, lose leases one after another: each time the server
    has looked for expired leases a term after those that were granted before. Calls `renew`
    meanwhile."""
    def lose(renew=lambda: None):
        silent, job = Hand(server, "silent"), submit(ENVIRONMENT["compute_units"])
        for n in range(SEARCHES):
            def is_lost():
                renew()
                return events(server, job).count(("lease_lost", None)) == n + 1

            assert silent.pull(wait=60).status == 200
            wait_until(is_lost, 60, "the silent agent's lease to be lost")

    return lose


def assert_nothing_else_lost(server, job):
    assert "lease_lost" not in [kind for kind, _ in events(server, job)]
    assert metric(server, "wavetune_leases_lost_total") == SEARCHES
    assert not [m["config"] for m in server.items(f"/v1/jobs/{job}/measurements") if m["late"]]


def test_results_of_a_renewed_lease_count(server, submit, lose):
    hand = Hand(server, "renews", environment=ENVIRONMENT | {"compute_units": 8})
    job = submit(8)
    lease = hand.pull(wait=60).json

    def renew():
        answer = hand.renew(lease, 0)
        assert answer.status == 200, (answer, events(server, job))

    lose(renew)
    answer = hand.post(lease)
    assert answer.status == 200, answer
    assert answer.json == {"accepted": 8, "late": 0, "known": 0, "state": "done"}
    assert_nothing_else_lost(server, job)


def test_an_agent_renews_the_lease_of_a_config_that_outlasts_it(server, start, lose, tmp_path):
    gated = harness.GatedKernel(tmp_path / "kernel", when="REPEAT == 64")
    patient = ("--screen-rounds", "3", "--final-rounds", "10", "--config-timeout", "3600")
    start(harness.Agent, server, options=patient)
    wait_until(lambda: server.items("/v1/agents"), 60, "the agent")
    submitted = wavetune(server, "submit", gated.folder, "--key", "n=100003", "--json")
    path = f"/v1/jobs/{json.loads(submitted.stdout)[0]['job']}"

    def has_ended():
        return server.get(path)["state"] in ("done", "failed")

    wait_until(lambda: gated.reached.exists() or has_ended(), 60, "the config")
    lose()
    gated.open()
    wait_until(has_ended, 120, "the job to end")
    summary = server.get(path)
    assert (summary["state"], summary["measured"]) == ("done", 2), summary
    assert_nothing_else_lost(server, summary["job"])
