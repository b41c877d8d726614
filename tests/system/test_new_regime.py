"""A regime that is only a row of the table (tests/new_regime.c): server, client and agent know it, without another line."""

import json
import os
import re

import harness
import pytest
from hands import ENVIRONMENT, SMALL, Hand, register
from harness import wavetune

WHERE = json.dumps(ENVIRONMENT)
SLOW = {0: 0.5, 1: 1.0, 2: 2.0}
NAMES = ["cold", "warm", "tepid"]


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    monkeypatch.setattr(harness, "BUILD", harness.BUILD / "tests/new_regime")


@pytest.fixture
def server(start, database):
    return start(harness.Server, database, options=harness.UNHURRIED)


@pytest.fixture
def job(server):
    """A done one of the new regime."""
    body = {"kernel": register(server), "key": {"n": 64}, "space": SMALL, "environment": ENVIRONMENT, "regime": "tepid"}
    answer = server.request("POST", "/v1/jobs", body)
    assert answer.status == 201, answer
    hand = Hand(server, "hand", runs=["measure:tepid"])
    lease = hand.pull().json
    assert lease["regime"] == "tepid"
    assert hand.post(lease, ratios=SLOW).status == 200
    hand.work(ratios=SLOW)
    assert server.get(f"/v1/jobs/{answer.json['job']}")["state"] == "done"
    return answer.json["job"]


def publish(server, *options):
    words = ("publish", "--environment", WHERE, "--regime", "tepid", "--channel", "stable", "--json", *options)
    return json.loads(wavetune(server, *words).stdout)


def test_the_schema_and_the_options_name_it(server):
    schemas = server.get("/openapi.json")["components"]["schemas"]
    assert schemas["Regime"] == {"type": "string", "enum": NAMES, "default": "cold"}
    help_of_publish = wavetune(None, "publish", "--help").stdout
    assert "cold|warm|tepid" in help_of_publish
    refused = server.request("POST", "/v1/demand", {"environment": ENVIRONMENT, "regime": "hot", "items": []})
    assert refused.status == 422 and all(name in refused.json["detail"] for name in NAMES)


def test_a_job_is_measured_and_shown_in_it(server, job):
    assert server.get(f"/v1/jobs/{job}")["regime"] == "tepid"
    assert {row["regime"] for row in server.items(f"/v1/jobs/{job}/measurements")} == {"tepid"}


def test_release_entry_url_and_cache_state_it(server, job, tmp_path):
    wavetune(None, "key", "new", tmp_path / "key")
    release = publish(server, "--sign-key", tmp_path / "key")["release"]
    assert json.loads(server.request("GET", f"/v1/releases/{release}").body)["regime"] == "tepid"
    assert server.request("GET", "/v1/cache?cpu=gcc+1").status == 404
    assert server.get("/v1/cache?cpu=gcc+1&regime=tepid")["regime"] == "tepid"
    wavetune(server, "fetch", "--environment", WHERE, "--regime", "tepid", "--to", tmp_path / "cache",
             "--trusted-key", tmp_path / "key.pub")
    assert os.readlink(tmp_path / "cache/current") == release.removeprefix("sha256:")
    assert json.loads((tmp_path / "cache/current/json/cache.json").read_text())["regime"] == "tepid"


def test_what_programs_miss_is_counted_and_tuned_in_it(server, job):
    body = {"environment": ENVIRONMENT, "regime": "tepid", "items": [{"kernel": "test/leases", "key": {"n": 65}, "misses": 2}]}
    token = harness.make_token(server.database, "deployment", "demand")
    assert server.request("POST", "/v1/demand", body, token=token).status == 202
    queued = json.loads(wavetune(server, "demand", "--queue", "1", "--json").stdout)
    assert server.get(f"/v1/jobs/{queued[0]['job']}")["regime"] == "tepid"


def test_an_agent_states_it_and_measures_in_it(server, start, tmp_path):
    start(harness.Agent, server, options=("--screen-rounds", "2", "--final-rounds", "4"))
    harness.wait_until(lambda: [a for a in server.items("/v1/agents") if a["state"] == "live"], 30, "a live agent")
    agent, = server.items("/v1/agents")
    assert agent["devices"][0]["runs"] == [f"measure:{name}" for name in NAMES]
    folder = harness.small_kernel(tmp_path / "one", {"REPEAT": [1], "TURN": [0]})
    job = json.loads(wavetune(server, "submit", folder, "--key", "n=1000", "--regime", "tepid", "--wait", "--json").stdout)[0]
    rows = server.items(f"/v1/jobs/{job['job']}/measurements")
    assert job["state"] == "done" and {row["regime"] for row in rows} == {"tepid"}


def test_an_older_agent_gets_no_job_of_it_and_ends_none(server, start):
    older = Hand(server, "older")
    body = {"kernel": register(server), "key": {"n": 64}, "space": SMALL, "environment": ENVIRONMENT, "regime": "tepid"}
    answer = server.request("POST", "/v1/jobs", body).json
    assert "do not measure in the regime tepid" in answer["agents"]["refusing"]["reason"]
    assert [older.pull().status for _ in range(12)] == [204] * 12
    assert server.get(f"/v1/jobs/{answer['job']}")["state"] == "queued"
    assert Hand(server, "newer", runs=["measure:tepid"]).work(ratios=SLOW)
    assert server.get(f"/v1/jobs/{answer['job']}")["state"] == "done"


def test_no_other_code_names_a_regime():
    named = re.compile(r"""["'](cold|warm)["']|REGIME_(COLD|WARM)""")
    comment = re.compile(r"\s*(\*|/\*|//|--)")
    folders = ("agent", "cli", "common", "inspect", "server", "web", "python/wavetune")
    allowed = {"common/regime/regime.h", "python/wavetune/_runtime/settings.py", "python/wavetune/api.py"}
    for path in (path for folder in folders for path in (harness.SOURCE / folder).rglob("*")):
        where = str(path.relative_to(harness.SOURCE))
        if path.suffix not in (".c", ".h", ".sql", ".json", ".js", ".py") or where in allowed:
            continue
        for line in path.read_text().splitlines():
            assert comment.match(line) or not named.search(line), f"{where}: {line}"
    assert 'IMPLIED_REGIME = "cold"' in (harness.SOURCE / "python/wavetune/_runtime/settings.py").read_text()


def test_tune_without_a_server_measures_in_it(tmp_path):
    folder = harness.small_kernel(tmp_path / "one", {"REPEAT": [1], "TURN": [0]})
    tuned = harness.subprocess.run(
        [harness.BUILD / "wavetune-agent", "tune", folder, "--key", "n=1000", "--regime", "tepid", "--state", tmp_path / "state",
         "--screen-rounds", "2", "--final-rounds", "4", "--json"], capture_output=True, text=True)
    assert tuned.returncode == 0, tuned
    assert json.loads(tuned.stdout)["regime"] == "tepid"
