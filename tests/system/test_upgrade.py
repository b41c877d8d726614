"""A database of an older version with running jobs is upgraded while clients of that version continue to work. The state of the
clients is in tests/data/upgrade/, which make.py in that folder made with the old programs."""

import collections
import json
import subprocess

import hands
import harness
import pytest
from harness import SOURCE, wait_until, wavetune

OLD = SOURCE / "tests/data/upgrade/94dd181"


class Known:
    """What the old clients knew, and the new server on their database."""

    def __init__(self, database, folder):
        self.__dict__.update(json.loads(OLD.with_suffix(".json").read_text()))
        done = subprocess.run([str(harness.postgres_bin() / "psql"), database, "-Xq", "-v", "ON_ERROR_STOP=1", "-f",
                               OLD.with_suffix(".sql")], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        self.server = harness.Server(database, folder, options=(*harness.UNHURRIED, *harness.LEASES_OF_8))
        self.token = self.tokens["agent"]

    def job(self, which):
        return self.server.get(f"/v1/jobs/{self.jobs[which]}")

    def hand(self, name):
        """One of the old agents: it does not enrol again."""
        hand = object.__new__(hands.Hand)
        hand.server, hand.boot, hand.id = self, self.hands[name]["boot"], self.hands[name]["agent"]
        hand.seqs = iter(range(100, 10000))
        return hand

    def request(self, method, path, body=None):
        """With the old agents' token."""
        return self.server.request(method, path, body, token=self.token)

    def get(self, path):
        return self.server.get(path)


@pytest.fixture
def known(empty_database, tmp_path):
    known = Known(empty_database, tmp_path)
    yield known
    known.server.stop()


def test_every_row_is_unchanged(known):
    assert {which: known.job(which)["state"] for which in known.jobs} == {
        "done": "done", "failed": "failed", "cancelled": "cancelled", "running": "running", "queued": "queued"}
    assert known.job("done")["winner"]["config"] == 0
    assert known.job("queued")["priority"] == -5 and known.job("queued")["budget"] == {"device_seconds": 60}
    assert {job["regime"] for job in known.server.items("/v1/jobs")} == {"cold"}
    assert known.server.request("GET", f"/v1/releases/{known.release}").status == 200
    for role, token in known.tokens.items():
        answer = known.server.request("GET", "/v1/jobs", token=token)
        assert answer.status == (200 if role in ("admin", "reader", "submitter") else 403), (role, answer)


def test_older_agents_finish_their_leases_and_nothing_counts_twice(known):
    half, none = known.hand("half"), known.hand("none")
    for hand in (half, none):  # the new server has not looked them up yet
        wait_until(lambda hand=hand: hand.beat().status == 200, 20, "the older agent to be known")
    for hand, name in ((half, "half"), (none, "none")):
        lease, posted = known.hands[name]["lease"], known.hands[name]["posted"]
        assert hand.renew(lease).status == 200
        assert hand.post(lease, [c for c in hands.configs_of(lease) if c not in posted]).status == 200

    half.work()
    none.work()
    job = known.job("running")
    assert job["state"] == "done" and job["winner"]["config"] == 0, job
    screened = collections.Counter(m["config"] for m in known.server.items(f"/v1/jobs/{job['job']}/measurements")
                                   if m["stage"] == "screen" and not m["late"])
    assert screened == dict.fromkeys(range(24), 1)
    assert known.job("queued")["state"] == "done"


def test_results_from_before_the_upgrade_are_known_when_posted_again(known):
    """The answer was lost in the upgrade; the spool posts again, with the numbers that it had."""
    half = known.hand("half")
    lease, posted = known.hands["half"]["lease"], known.hands["half"]["posted"]
    half.seqs = iter(range(1, 100))
    assert half.post(lease, posted, done=False).json["known"] == len(posted)


def test_a_channel_from_before_the_upgrade_verifies_and_moves(known, tmp_path):
    (tmp_path / "old.pub").write_text(known.public_key)
    fetch = ("fetch", "--to", tmp_path / "cache", "--channel", "stable", "--format", "json", "--trusted-key", tmp_path / "old.pub",
             "--environment", json.dumps(hands.ENVIRONMENT))
    wavetune(known.server, *fetch)
    assert (tmp_path / "cache/current").resolve().name == known.release.removeprefix("sha256:")

    half = known.hand("half")
    for name in ("half", "none"):
        lease, posted = known.hands[name]["lease"], known.hands[name]["posted"]
        assert known.hand(name).post(lease, [c for c in hands.configs_of(lease) if c not in posted]).status == 200
    half.work()
    newer = known.server.request("POST", "/v1/releases", {"environment": hands.ENVIRONMENT}).json["release"]
    assert newer != known.release
    wavetune(None, "key", "new", tmp_path / "key")
    wavetune(known.server, "promote", newer, "stable", "--sign-key", tmp_path / "key")
    assert known.server.request("GET", "/v1/channels/stable").json["counter"] == known.channel["counter"] + 1
    refused = wavetune(known.server, *fetch, check=False)
    assert refused.returncode != 0 and "sign" in refused.stderr, refused
    wavetune(known.server, *fetch, "--trusted-key", tmp_path / "key.pub")
    assert (tmp_path / "cache/current").resolve().name == newer.removeprefix("sha256:")
