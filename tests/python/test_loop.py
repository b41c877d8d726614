"""The whole loop with a real server, builder and agent, on a simulated GPU: what a program launched becomes a signed release,
with which it starts in an empty folder without a benchmark and without a compile."""

import json
import os
import subprocess
import sys

import operating
import pytest
import triton
from conftest import ROOT, program
from starting import environment
from test_build_leases import build
from test_real_server import harness  # noqa: F401
from wavetune.client import Client

LOOPED = ROOT / "tests/python/looped/program.py"
SIZES = (1000, 4096)


@pytest.fixture(scope="module")
def server(harness, tmp_path_factory):  # noqa: F811
    """With an agent on the simulated GPU. `hardware`: what programs on it state; `key`: its publisher's."""
    folder = tmp_path_factory.mktemp("server")
    fake = program("tests/fake_hip/libfake_hip.so")
    (folder / "fake").mkdir()
    harness.wavetune(None, "key", "new", folder / "publisher.key")
    postgres = harness.Postgres(durable=False)
    started = []
    try:
        options = ("--publisher-key", folder / "publisher.key.pub")
        server = harness.Server(postgres.database(), folder, options=(*harness.UNHURRIED, *options))
        started.append(server)
        server.container = harness.make_token(server.database, "container", "demand,reader")
        server.builder = harness.make_token(server.database, "builder", "builder")
        server.agent = harness.Agent(
            server, folder,
            options=("--device", "hip0", "--screen-rounds", "3", "--final-rounds", "5", "--config-timeout", "5"),
            environment={"WAVETUNE_HIP_LIBRARY": str(fake), "WAVETUNE_ARCH": "gfx942", "FAKE_HIP_LAUNCH_US": "100",
                         "WAVETUNE_KFD_TOPOLOGY": str(folder / "none"), "FAKE_HIP_BROKEN": str(folder / "fake/broken"),
                         "WAVETUNE_WORKER_WRITES": str(folder / "fake")})
        started.append(server.agent)
        harness.wait_until(lambda: "agent: enrolled" in server.agent.messages, 30, "the agent's enrolment")
        (found,) = harness.wait_until(lambda: server.items("/v1/environments"), 30, "the environment of the GPU")
        server.hardware = {name: found["environment"][name] for name in ("gpu", "arch")}
        server.key = folder / "publisher.key"
        yield server
    finally:
        for one in reversed(started):
            one.kill()
        postgres.stop()


def run(server, cache, stated, sizes=SIZES, **variables):
    """A container of its own, with an empty folder."""
    linker = {name: value for name, value in os.environ.items() if name == "TRITON_HIP_LLD_PATH"}  # conftest.py
    own = environment(cache, server, WAVETUNE_TOKEN=server.container, WAVETUNE_ENVIRONMENT=json.dumps(stated), **linker,
                      **variables)
    done = subprocess.run([sys.executable, "-m", "wavetune", "run", LOOPED, *map(str, sizes)], env=own, capture_output=True,
                          text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_what_a_program_launched_comes_back_tuned_and_compiled(harness, server, tmp_path):  # noqa: F811
    stated = {**server.hardware, "triton": triton.__version__}
    first = run(server, tmp_path / "first", stated, WAVETUNE_CAPTURE="source", WAVETUNE_CAPTURE_FUNCTIONS="ops:*fake_add")
    assert (first["benchmarked"], first["counters"]["captures"], first["counters"]["captures_lost"]) == (6, 8, 0)
    assert first["used"] == [8, 8], "the stub measures nothing: the last config wins"

    assert build(server, "--arch", "gfx942") | {"seconds": 0} == {"built": 8, "refused": 0, "stale": 0, "seconds": 0}
    listed = json.loads(harness.wavetune(server, "captures", "--json").stdout)
    assert [(one["keys"], one["built"]) for one in listed] == [(2, 2)] * 2, "launches of one key are one key"
    client = Client(server.url, server.token)
    posted = operating.jobs(client, stated)
    assert sorted(name for name, _ in posted) == ["ops:Plain.fake_add"] * 2 + ["ops:fake_add"] * 2
    done = client.wait(*(job["job"] for _, job in posted), timeout_s=300)
    assert [job["state"] for job in done] == ["done"] * 4, server.agent.messages
    wrong = [job["outcomes"] for job in done if job["name"].startswith("ops.fake_add")]
    assert wrong == [{"correct": 2, "correctness": 1}] * 2, "two warps are wrong on this GPU"
    assert {job["winner"]["agreement"] for job in done} == {"bitwise"}

    made = json.loads(harness.wavetune(server, "publish", "--environment", json.dumps(stated), "--json").stdout)
    assert len(made["included"]) == 4 and made["skipped"] == []
    promoted = harness.wavetune(server, "promote", made["release"], "stable", "--sign-key", server.key)
    assert "not signed" not in promoted.stderr

    key = {"WAVETUNE_TRUSTED_KEYS": f"{server.key}.pub"}
    restored = run(server, tmp_path / "restored", stated, **key)
    assert (restored["benchmarked"], restored["compiled"]) == (0, 0), restored
    assert restored["counters"]["hits"] == 2 and restored["counters"]["refused"] == 0
    assert restored["counters"]["groups"] >= 2  # one of each kernel at least: sizes may share code
    winners = {job["key"]["n"]: job["winner"]["config_values"] for job in done if job["name"].startswith("ops.fake_add")}
    assert restored["used"] == [winners[n]["num_warps"] for n in SIZES] and 2 not in restored["used"]


def test_keys_of_every_kind_are_tuned_and_restored(harness, server, tmp_path):  # noqa: F811
    """Texts, floats, infinity, types, None and booleans, left out of some launches; and configs that have no parameters."""
    stated = {**server.hardware, "triton": triton.__version__}
    first = run(server, tmp_path / "first", stated, (), WAVETUNE_CAPTURE="source")
    assert (first["benchmarked"], first["counters"]["captures"], first["used"]) == (8, 4, [2, 2, 2, 2])
    assert build(server, "--arch", "gfx942") | {"seconds": 0} == {"built": 4, "refused": 0, "stale": 0, "seconds": 0}

    client = Client(server.url, server.token)
    posted = [job["job"] for name, job in operating.jobs(client, stated) if name.endswith("Keyed.fake_add")]
    done = client.wait(*posted, timeout_s=300)
    assert [(job["state"], job["outcomes"]) for job in done] == [("done", {"correct": 1, "correctness": 1})] * 4, done
    made = json.loads(harness.wavetune(server, "publish", "--environment", json.dumps(stated), "--json").stdout)
    harness.wavetune(server, "promote", made["release"], "stable", "--sign-key", server.key)
    restored = run(server, tmp_path / "restored", stated, (), WAVETUNE_TRUSTED_KEYS=f"{server.key}.pub")
    assert (restored["benchmarked"], restored["compiled"], restored["used"]) == (0, 0, [1, 1, 1, 1]), restored
