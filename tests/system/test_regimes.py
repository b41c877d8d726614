"""Cold and warm: a regime is part of a job, of the release that its winner is in, of the channel entry that names the release,
and of the request of a deployment. Documents without a regime are cold, and have the same bytes as before regimes existed."""

import json
import os

import harness
import pytest
from hands import ENVIRONMENT, SMALL, hands, kernel, server, submit  # noqa: F401 (fixtures)
from harness import wavetune

FAST = {0: 1.0, 1: 0.5, 2: 2.0}
SLOW = {0: 0.5, 1: 1.0, 2: 2.0}
WHERE = json.dumps(ENVIRONMENT)


def job_body(kernel, **more):
    return {"kernel": kernel, "key": {"n": 64}, "space": SMALL, "environment": ENVIRONMENT} | more


def publish(server, *options):
    return json.loads(wavetune(server, "publish", "--environment", WHERE, "--channel", "stable", "--json", *options).stdout)


def release_of(server, digest):
    return json.loads(server.request("GET", f"/v1/releases/{digest}").body)


@pytest.fixture
def both(server, hands, submit):
    """A job of each regime, with another winner each."""
    hand = hands("hand")
    jobs = {}
    for regime, ratios in (("cold", FAST), ("warm", SLOW)):
        jobs[regime] = submit(SMALL, regime=regime)
        hand.work(ratios=ratios)
        assert server.get(f"/v1/jobs/{jobs[regime]}")["state"] == "done"
    return jobs


def test_jobs_that_differ_in_the_regime_are_two_jobs(server, kernel):
    cold, warm = (server.request("POST", "/v1/jobs", job_body(kernel, regime=regime)).json for regime in ("cold", "warm"))
    assert cold["job"] != warm["job"] and warm["created"]
    unstated = server.request("POST", "/v1/jobs", job_body(kernel))
    assert unstated.status == 200 and unstated.json["job"] == cold["job"]
    assert [server.get(f"/v1/jobs/{it['job']}")["regime"] for it in (cold, warm)] == ["cold", "warm"]


def test_a_lease_has_its_jobs_regime(hands, submit):
    hand, job = hands("hand"), submit(SMALL, regime="warm")
    lease = hand.pull().json
    assert (lease["job"], lease["regime"]) == (job, "warm")


def test_a_measurement_has_its_jobs_regime_stated_or_not_and_no_other(server, hands, submit):
    hand, job = hands("hand"), submit(SMALL, regime="warm")
    lease = hand.pull().json

    def post(n, **more):
        one = {"seq": n + 1, "config": n, "outcome": "compile", "detail": "no such header"} | more
        return server.request("POST", f"/v1/leases/{lease['lease']}/results",
                              {"epoch": lease["epoch"], "measurements": [one]})

    for regime in ("cold", "tepid"):
        refused = post(0, regime=regime)
        assert refused.status == 422 and refused.json["pointer"] == "/measurements/0/regime"
    assert [post(0).status, post(1, regime=None).status, post(2, regime="warm").status] == [200] * 3
    stored = server.items(f"/v1/jobs/{job}/measurements")
    assert [one["regime"] for one in stored] == ["warm"] * 3


def test_an_unknown_regime_is_refused_where_it_is_stated(server, kernel):
    answers = {
        "job": server.request("POST", "/v1/jobs", job_body(kernel, regime="tepid")),
        "release": server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "regime": "tepid"}),
        "demand": server.request("POST", "/v1/demand", {"environment": ENVIRONMENT, "regime": "tepid", "items": []}),
    }
    for what, answer in answers.items():
        assert answer.status == 422 and answer.json["pointer"] == "/regime", what
        assert all(name in answer.json["detail"] for name in ("cold", "warm")), what
    assert "cold or warm" in server.request("GET", "/v1/cache?regime=tepid").json["detail"]


def test_the_incumbent_of_a_job_is_of_its_regime(server, both, submit):
    again = {regime: submit(SMALL, regime=regime, run="again") for regime in both}
    baselines = {regime: server.get(f"/v1/jobs/{job}")["baseline"] for regime, job in again.items()}
    assert baselines == {"cold": 1, "warm": 0}


def test_a_release_has_the_winners_of_its_regime_and_only_warm_ones_state_it(server, both):
    cold, warm = publish(server), publish(server, "--regime", "warm")
    assert [cold["included"][0]["job"], warm["included"][0]["job"]] == [both["cold"], both["warm"]]
    assert "regime" not in release_of(server, cold["release"])
    assert release_of(server, warm["release"])["regime"] == "warm"
    assert {r["release"]: r["regime"] for r in server.items("/v1/releases")} == {cold["release"]: "cold", warm["release"]: "warm"}


def test_a_channel_has_an_entry_for_each_regime(server, both):
    cold, warm = publish(server), publish(server, "--regime", "warm")
    entries = {regime: server.get(f"/v1/cache?cpu=gcc+1&regime={regime}") for regime in both}
    assert [entries["cold"]["release"], entries["warm"]["release"]] == [cold["release"], warm["release"]]
    assert [entries["cold"]["counter"], entries["warm"]["counter"]] == [1, 1]
    assert "regime" not in entries["cold"] and entries["warm"]["regime"] == "warm"
    assert server.get("/v1/cache?cpu=gcc+1")["release"] == cold["release"]
    history = server.items("/v1/channels/stable/entries?cpu=gcc+1&regime=warm")
    assert [entry["release"] for entry in history] == [warm["release"]]


def test_a_signed_channel_is_promoted_signed_again_and_rolled_back_within_its_regime(server, both, tmp_path):
    for name in ("one", "two"):
        wavetune(None, "key", "new", tmp_path / name)
    sign = ("--sign-key", tmp_path / "one")
    cold = publish(server, *sign)["release"]
    first = publish(server, "--regime", "warm", *sign)["release"]
    second = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "regime": "warm", "pins": [
        {"kernel": server.get(f"/v1/jobs/{both['warm']}")["kernel"], "key": {"n": 64}, "config": {"A": 3}}]}).json["release"]
    wavetune(server, "promote", second, "stable", *sign)
    where = ("--environment", WHERE, "--regime", "warm")
    wavetune(server, "rollback", "stable", *where, *sign)
    wavetune(server, "sign", "stable", *where, "--sign-key", tmp_path / "two")
    entry = server.get("/v1/cache?cpu=gcc+1&regime=warm")
    assert (entry["counter"], entry["release"], len(entry["signatures"])) == (3, first, 2)
    assert server.get("/v1/cache?cpu=gcc+1")["release"] == cold
    for name in ("one", "two"):
        fetched = wavetune(server, "fetch", *where, "--to", tmp_path / f"cache-{name}",
                           "--trusted-key", tmp_path / f"{name}.pub")
        assert fetched.stdout.startswith("fresh"), fetched


def test_a_deployment_fetches_the_regime_that_it_requests(server, both, tmp_path):
    releases = {"cold": publish(server)["release"], "warm": publish(server, "--regime", "warm")["release"]}
    for regime, release in releases.items():
        wavetune(server, "fetch", "--environment", WHERE, "--regime", regime, "--to", tmp_path)
        assert os.readlink(tmp_path / "current") == release.removeprefix("sha256:")
        cache = json.loads((tmp_path / "current/json/cache.json").read_text())
        assert cache.get("regime", "cold") == regime
    wrong = wavetune(server, "fetch", "--environment", WHERE, "--regime", "tepid", "--to", tmp_path, check=False)
    assert wrong.returncode == 2 and "cold or warm" in wrong.stderr


def test_a_deployment_refuses_the_entry_of_another_regime(server, both, tmp_path):
    publish(server)
    entry = server.get("/v1/cache?cpu=gcc+1")
    release = server.request("GET", f"/v1/releases/{entry['release']}").body
    with harness.FakeServer(lambda method, path: (200, entry if path.startswith("/v1/cache") else release)) as liar:
        fetched = wavetune(liar, "fetch", "--environment", WHERE, "--regime", "warm", "--to", tmp_path / "cache", check=False)
    assert fetched.returncode == 13 and "regime cold" in fetched.stderr, fetched


def test_misses_of_deployments_are_counted_and_tuned_in_their_regime(server, both):
    token = harness.make_token(server.database, "deployment", "demand")
    for regime in ("cold", "warm"):
        body = {"environment": ENVIRONMENT, "regime": regime, "items": [{"kernel": "test/leases", "key": {"n": 65}, "misses": 2}]}
        assert server.request("POST", "/v1/demand", body, token=token).status == 202
    assert sorted((it["regime"], it["misses"]) for it in server.items("/v1/demand")) == [("cold", 2), ("warm", 2)]
    queued = json.loads(wavetune(server, "demand", "--queue", "2", "--json").stdout)
    assert sorted(server.get(f"/v1/jobs/{it['job']}")["regime"] for it in queued) == ["cold", "warm"]


def test_a_real_agent_measures_a_warm_job_warm(server, start, tmp_path):
    start(harness.Agent, server, options=("--screen-rounds", "2", "--final-rounds", "4"))
    folder = harness.small_kernel(tmp_path / "one", {"REPEAT": [1], "TURN": [0]})
    harness.wait_until(lambda: [a for a in server.items("/v1/agents") if a["state"] == "live"], 30, "a live agent")
    job = json.loads(wavetune(server, "submit", folder, "--key", "n=1000", "--regime", "warm", "--wait", "--json").stdout)[0]
    rows = server.items(f"/v1/jobs/{job['job']}/measurements")
    assert job["state"] == "done" and {row["regime"] for row in rows} == {"warm"}
