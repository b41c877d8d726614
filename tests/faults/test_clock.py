"""Steps of the database's clock, by which leases expire. Only the test's PostgreSQL sees them (libfaketime)."""

import pathlib
import shutil
import tempfile
import types

import harness
import pytest
from hands import ENVIRONMENT, Hand, configs_of, register
from harness import wait_until
from world import Postgres

LEASE_S = 10


@pytest.fixture
def cluster():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="wt-clock-"))
    folder.chmod(0o755)
    postgres = Postgres(folder, False, 0)
    try:
        if not postgres.faketime:
            pytest.skip("libfaketime is not there (Debian: faketime)")
        wait_until(lambda: postgres.sql("select 1", "postgres", check=False), 60, "PostgreSQL to start")
        postgres.sql("create database wavetune", "postgres")
        yield postgres
    finally:
        postgres.stop()
        shutil.rmtree(folder)


def step(cluster, server, offset, direction):
    cluster.clock_set(offset)
    wait_until(lambda: f"clock was stepped {direction}" in server.messages, 30, "the server to notice the step")


@pytest.fixture
def lease(cluster, start):
    """A server, and the lease of an agent on it. Agents take the server's lease time as it is."""
    server = start(harness.Server, cluster.conninfo(), options=("--lease-ms", str(1000 * LEASE_S), "--heartbeat-ms", "600000"))
    kernel, hand = register(server), Hand(server, "a")
    job = {"kernel": kernel, "key": {"n": 1}, "space": {"parameters": {"A": [1, 2, 3]}}, "environment": ENVIRONMENT}
    assert server.request("POST", "/v1/jobs", job).status == 201

    def take(by=hand):
        answer = by.pull()
        return answer.json if answer.status == 200 else None

    return types.SimpleNamespace(server=server, hand=hand, take=take)


def test_no_lease_is_lost_when_the_databases_clock_is_stepped_forward(cluster, lease):
    held = lease.take()
    wait_until(lambda: lease.hand.renew(held).status == 200 and looks(lease.server) > 2 * LEASE_S, 60,
               "a lease time, after which leases expire")
    step(cluster, lease.server, "+3600s", "forward by 3")
    assert lease.hand.renew(held).status == 200
    assert lease.hand.post(held).status == 200


def test_an_agent_that_died_does_not_keep_its_lease_for_as_long_as_a_step_back(cluster, lease):
    cluster.clock_set("+3600s")
    wait_until(lambda: "clock was stepped forward" in lease.server.messages, 30, "the step forward")
    held = lease.take()
    step(cluster, lease.server, "+0", "back by 3")
    other = Hand(lease.server, "b")
    again = wait_until(lambda: lease.take(other), 60, "the lease to be lost")
    assert (again["lease"], again["epoch"]) == (held["lease"], held["epoch"] + 1)
    assert configs_of(again) == configs_of(held)


def looks(server):
    """How often the server looked for expired leases, which is twice a second."""
    lines = server.request("GET", "/metrics").body.decode().splitlines()
    return next((int(line.split()[-1]) for line in lines if line.startswith('wavetune_db_runs_total{statement="leases_clock"}')), 0)
