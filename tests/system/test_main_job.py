"""The main job, end to end: a kernel tuned over its whole space by a real agent, published, promoted, fetched."""

import json
import os
import pathlib
import subprocess

import harness
import pytest
from harness import wait_until, wavetune

KEY = "n=100003"
KERNEL = harness.QUICK


def agent_ready(server):
    return wait_until(lambda: [a for a in server.items("/v1/agents") if a["state"] == "live"], 30, "a live agent")


def tune(server, kernel=KERNEL, key=KEY, *more):
    done = wavetune(server, "submit", kernel, "--key", key, "--wait", "--json", *more)
    return json.loads(done.stdout)[0]


@pytest.fixture
def one_config(tmp_path):
    """A kernel whose winner is its default, however noisy the machine is: so it can be published."""
    return harness.small_kernel(tmp_path / "one", {"REPEAT": [1], "TURN": [0]})


def test_a_job_that_no_agent_can_measure_shows_the_agents_sentence(server, start, one_config):
    start(harness.Agent, server)
    agent_ready(server)
    wavetune(server, "submit", one_config, "--key", "n=1000000000000")
    job = wait_until(lambda: (job := server.get("/v1/jobs/1"))["handed_back"] and job, 60, "the agent to hand it back")
    assert "its buffers need " in job["handed_back"] and job["measured"] == 0, job
    assert f"handed back by an agent: {job['handed_back']}\n" in wavetune(server, "show", "1").stdout


def test_a_kernel_is_tuned_published_promoted_and_fetched(server, start, tmp_path):
    kernel = harness.sleeping_kernel(tmp_path / "kernel")
    start(harness.Agent, server, options=("--screen-rounds", "3", "--final-rounds", "10"))
    agent_ready(server)
    job = tune(server, kernel)
    assert job["state"] == "done", job
    assert job["measured"] == job["configs"] > 1
    assert job["outcomes"] == {"correct": job["configs"]}
    winner = job["winner"]
    assert winner["config"] in winner["verdict"]["equivalence_set"]
    assert winner["verdict"]["processes"] >= 3

    order = list(json.loads((kernel / "space.json").read_text())["parameters"])
    assert order != sorted(order), "the order of parameters matters, so it must not be alphabetical here"
    assert list(job["space"]["parameters"]) == list(winner["config_values"]) == order
    expanded = dict(line.split(None, 1) for line in wavetune(None, "space", "expand", kernel).stdout.splitlines())
    assert expanded[str(winner["config"])].strip() == " ".join(f"{n}={v}" for n, v in winner["config_values"].items())

    table = wavetune(server, "show", job["job"]).stdout
    assert "equivalence set" in table and "GB/s" in table and "against the default" in table
    assert "the same verdict" in wavetune(server, "show", job["job"], "--recompute").stdout

    published = json.loads(wavetune(server, "publish", "--channel", "stable", "--json").stdout)
    assert published["winners"] == 1 and published["included"][0]["job"] == job["job"]

    cache = tmp_path / "cache"
    first = wavetune(server, "fetch", "--to", cache)
    assert first.stdout.startswith("fresh"), first.stdout
    rendered = json.loads((cache / "current/json/cache.json").read_text())
    assert rendered["kernels"]["quick/c"]["entries"] == [{"key": job["key"], "config": winner["config_values"]}]
    assert os.readlink(cache / "current") == published["release"].removeprefix("sha256:")


def test_a_second_fetch_is_one_304(database, start, tmp_path, one_config):
    server = start(harness.Server, database, options=("--poll-ms", "50", *harness.UNHURRIED))
    agent = start(harness.Agent, server, options=("--screen-rounds", "3", "--final-rounds", "10"))
    agent_ready(server)
    tune(server, one_config)
    wavetune(server, "publish", "--channel", "stable")
    wavetune(server, "fetch", "--to", tmp_path / "cache")

    def metric(name):
        metrics = server.request("GET", "/metrics").body.decode()
        return sum(float(l.split()[-1]) for l in metrics.splitlines() if l.startswith(f"{name} "))

    assert agent.stop() == 0  # it requests work now and then
    wait_until(lambda: metric("wavetune_suspended") == 0, 30, "its last poll to end, which counts as a request")
    before = metric("wavetune_http_requests_total")
    again = wavetune(server, "fetch", "--to", tmp_path / "cache")
    assert again.stdout.startswith("unchanged"), again.stdout
    assert metric("wavetune_http_requests_total") - before == 2, "one request for the fetch and one for reading the counter"


def test_the_same_winners_give_the_same_release(server, start, one_config):
    start(harness.Agent, server, options=("--screen-rounds", "3", "--final-rounds", "10"))
    agent_ready(server)
    tune(server, one_config)
    first = json.loads(wavetune(server, "publish", "--json").stdout)
    second = json.loads(wavetune(server, "publish", "--json").stdout)
    assert first["release"] == second["release"] and first["bytes"] == second["bytes"]
    nothing = json.loads(wavetune(server, "diff", first["release"], second["release"], "--json").stdout)
    assert nothing == {"added": [], "removed": [], "changed": [], "same": 1}


def test_an_agent_spends_no_more_on_a_job_than_its_budget_and_the_round_that_each_lease_ends_with(server, start, tmp_path):
    kernel = harness.sleeping_kernel(tmp_path / "kernel")
    opening = tuned_alone(kernel, tmp_path / "state", "--screen-rounds", "3", "--final-rounds", "10")["opening_seconds"]
    budget = max(3, round(4 * opening))  # a busy machine takes seconds to open the kernel in the four processes
    start(harness.Agent, server, options=("--final-rounds", "10000"))
    agent_ready(server)
    job = tune(server, kernel, KEY, "--budget", str(budget))
    assert job["state"] == "done" and job["winner"]["verdict"]["processes"] >= 3
    assert job["spent_device_seconds"] < budget * 2, "10000 rounds would take minutes"
    assert "valid configs: " in wavetune(server, "show", job["job"]).stdout


def tuned_alone(kernel, state, *more):
    done = subprocess.run([harness.BUILD / "wavetune-agent", "tune", kernel, "--key", KEY, "--state", state, "--json", *more],
                          capture_output=True, text=True, timeout=600)
    return json.loads(done.stdout)


def test_a_tune_checks_each_config_with_the_tokens_of_its_own_block_size(tmp_path):
    """The reference runs in another process, with the baseline's segments."""
    done = subprocess.run([harness.BUILD / "wavetune-agent", "tune", harness.QUICK.parent / "routed", "--key", "n=500", "--json",
                           "--state", tmp_path, "--screen-rounds", "3", "--final-rounds", "3"],
                          capture_output=True, text=True, timeout=600)
    found = json.loads(done.stdout)
    assert found["outcomes"] == {"correct": 3, "correctness": 3} and found["failed"] == {"correctness": [1, 3, 5]}
    assert "WRONG=1: y[" in found["examples"]["correctness"]


def test_a_job_and_a_tune_whose_opening_alone_exceeds_the_budget_end_before_anything_is_measured(server, start, tmp_path):
    """The screen may spend 0.6 of 1 s; its baseline takes that long when it is called once to be checked."""
    kernel = harness.sleeping_kernel(tmp_path / "kernel")
    source = kernel / "quick.c"
    source.write_text(source.read_text().replace("usleep(500 * REPEAT)", "usleep(700000)", 1))
    start(harness.Agent, server)
    agent_ready(server)
    done = wavetune(server, "submit", kernel, "--key", KEY, "--wait", "--json", "--budget", "1", check=False)
    job = json.loads(done.stdout)[0]
    assert (job["state"], job["measured"]) == ("failed", 0)
    assert "before any config was measured" in job["reason"]
    assert job["spent_device_seconds"] == job["opening_device_seconds"] > 0.7
    alone = tuned_alone(kernel, tmp_path / "state", "--budget", "1")
    assert (alone["measured"], alone["finalists"]) == (0, 0)
    assert "before any config was measured" in alone["error"]
    assert alone["device_seconds"] == alone["opening_seconds"] > 0.7


def test_a_job_and_a_tune_spend_the_time_of_their_measurements_and_openings(server, start, tmp_path):
    kernel, samples = harness.sleeping_kernel(tmp_path / "kernel"), tmp_path / "samples.jsonl"
    quick = ("--screen-rounds", "3", "--final-rounds", "10")
    start(harness.Agent, server, options=quick)
    agent_ready(server)
    job = tune(server, kernel)
    measured = [m for m in server.items(f"/v1/jobs/{job['job']}/measurements") if not m["late"]]
    processes = 1 + len({m["process"] for m in measured if m["stage"] == "final"})
    assert job["opening_device_seconds"] > 0.02 * processes, "each of them warms the baseline up for 20 ms"
    sum_us = sum(m["device_us"] for m in measured) + round(job["opening_device_seconds"] * 1e6)
    assert round(job["spent_device_seconds"] * 1e6) == sum_us
    assert "opening the kernel" in wavetune(server, "show", job["job"]).stdout

    alone = tuned_alone(kernel, tmp_path / "state", "--samples", samples, *quick)
    taken = [json.loads(line) for line in samples.read_text().splitlines()]
    assert alone["opening_seconds"] > 0.02 * (1 + alone["verdict"]["processes"])
    assert alone["device_seconds"] > alone["opening_seconds"] + sum(sum(m["samples_us"]) for m in taken) * 1e-6


def test_configs_that_misbehave_get_their_outcome_and_the_run_continues(server, start):
    start(harness.Agent, server, options=("--config-timeout", "5", "--screen-rounds", "3", "--final-rounds", "10"))
    agent_ready(server)
    place = str(harness.MISBEHAVING)
    key = ",".join(f"{name}=64" for name in json.loads((harness.MISBEHAVING / "kernel.json").read_text())["key"])
    job = tune(server, place, key)
    assert job["state"] == "done", job
    measured = server.items(f"/v1/jobs/{job['job']}/measurements")
    names = {row["ordinal"]: row["config"]["MODE"] for row in map(
        json.loads, wavetune(None, "space", "expand", place, "--key", key, "--json").stdout.splitlines())}
    outcomes = {names[m["config"]]: m["outcome"] for m in measured if m["stage"] == "screen"}
    assert outcomes["good"] == "correct"
    assert outcomes["crash"] == "runtime"
    assert outcomes["hang"] == "timeout"
    assert outcomes["no_compile"] == "compile"
    for mode in ("wrong", "unwritten", "out_of_bounds"):
        assert outcomes[mode] in ("correctness", "runtime"), (mode, outcomes)
    assert names[job["winner"]["config"]] in ("good", "slow")


def test_tune_works_without_a_server(tmp_path):
    done = subprocess.run([harness.BUILD / "wavetune-agent", "tune", KERNEL, "--key", KEY, "--state", tmp_path, "--json"],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout)
    assert answer["verdict"]["winner"] in answer["verdict"]["equivalence_set"]


def test_a_bar_is_drawn_on_a_terminal_and_never_on_a_pipe(server, start):
    """The pipe's half; the terminal's is a unit test of common/program/progress."""
    start(harness.Agent, server, options=("--screen-rounds", "3", "--final-rounds", "10"))
    agent_ready(server)
    done = wavetune(server, "submit", KERNEL, "--key", KEY, "--wait")
    assert done.stderr == ""
