"""`python3 -m wavetune tune` with a server, a builder and an agent on a simulated GPU: it posts,
makes jobs, waits, and says whose move is next."""

import json
import os
import signal
import subprocess
import sys

import pytest
import triton
from conftest import ROOT
from starting import environment
from test_build_leases import build
from test_loop import server  # noqa: F401
from test_real_server import harness  # noqa: F401
from wavetune.client import Client

ACTS = ROOT / "tests/python/looped/acts.py"


class Machine:
    """Where a program runs. `role`: of its token."""
    def __init__(self, harness, server, cache, role="demand,reader,submitter"):  # noqa: F811
        self.server, self.cache = server, cache
        self.token = harness.make_token(server.database, f"author-{cache.name}", role)
        self.stated = {**server.hardware, "triton": triton.__version__}

    def begin(self, *words, **variables):
        linker = {
            name: value
            for name, value in os.environ.items() if name == "TRITON_HIP_LLD_PATH"
        }  # conftest.py
        own = environment(self.cache,
                          self.server,
                          WAVETUNE_TOKEN=self.token,
                          WAVETUNE_ENVIRONMENT=json.dumps(self.stated),
                          **linker, **variables)
        return subprocess.Popen([sys.executable, "-m", "wavetune", "tune", *map(str, words)],
                                env=own,
                                stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE,
                                text=True)

    def end(self, process, status=0):
        out, err = process.communicate(timeout=300)
        assert process.returncode == status, out + err
        return json.loads(out)["keys"], err


def said(process, part):
    """Waits until the command says something."""
    for line in process.stderr:
        if part in line:
            return
    pytest.fail(f"it ended without a word of {part}")


def test_a_program_is_tuned_by_the_servers_builders_and_agents(harness, server,
                                                               tmp_path):  # noqa: F811
    machine = Machine(harness, server, tmp_path / "first")
    process = machine.begin("--json", ACTS, "1000", "4096")
    said(process, "a builder")
    assert build(server, "--arch", "gfx942")["built"] == 2
    keys, _ = machine.end(process)
    assert [(one["key"], one["state"], one["move"])
            for one in keys] == [({"n": n}, "tuned", "publisher") for n in (1000, 4096)]
    assert all("release" in one["waits_for"] for one in keys), keys

    made = json.loads(
        harness.wavetune(server, "publish", "--environment", json.dumps(machine.stated),
                         "--json").stdout)
    harness.wavetune(server, "promote", made["release"], "stable", "--sign-key", server.key)
    machine.cache = tmp_path / "second"
    keys, _ = machine.end(machine.begin("--json", ACTS, "1000", "4096"))
    assert keys == []
    process = machine.begin(ACTS, "1000")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "nothing new" in err


def test_a_function_of_an_entry_is_tuned_in_its_space(harness, server, tmp_path):  # noqa: F811
    entry = tmp_path / "entry"
    entry.mkdir()
    buffers = [{"name": name, "dtype": "float32", "shape": ["n"], "access": access}
               for name, access in (("y", "write"), ("x", "read"))]
    (entry / "kernel.json").write_text(json.dumps({
        "name": "table", "key": ["rows"], "arguments": [*buffers, {"name": "n", "dtype": "int64", "value": "rows"}],
        "launch": {"grid": ["ceil_div(rows, BLOCK)"]}, "versions": {"own": {
            "language": "triton", "entry": "fake_add", "from": {"module": "ops"}, "captured": {"key": {"rows": "n"}}}}
    }).replace('"n"]', '"rows"]'))
    space = {"parameters": {"BLOCK": [64], "num_warps": [1, 8]}, "roles": {"num_warps": "option"},
             "default": {"BLOCK": 64, "num_warps": 1}}
    (entry / "space.json").write_text(json.dumps(space))
    machine = Machine(harness, server, tmp_path / "table")
    process = machine.begin("--json", ACTS, "table", WAVETUNE_CAPTURE_FUNCTIONS="ops:Table.*")
    said(process, "a builder")
    assert build(server, "--arch", "gfx942", "--entries", entry)["built"] == 1
    (one, ), _ = machine.end(process)
    assert (one["key"], one["state"], one["move"]) == ({"rows": 64}, "tuned", "publisher")
    job = server.get(f"/v1/jobs/{one['job']}")
    assert (job["space"], job["outcomes"]) == (space, {"correct": 2})


def test_it_leaves_at_an_interrupt_or_after_a_time_and_says_what_is_left(harness, server,
                                                                         tmp_path):  # noqa: F811
    machine = Machine(harness, server, tmp_path / "left")
    process = machine.begin("--json", ACTS, "keyed")
    said(process, "a builder")
    process.send_signal(signal.SIGINT)
    keys, _ = machine.end(process, 130)
    assert [(one["state"], one["move"]) for one in keys] == [("waiting", "builder")]
    keys, _ = machine.end(machine.begin("--json", "--wait", "0.1", ACTS, "keyed"), 9)
    assert [(one["state"], one["move"]) for one in keys] == [("waiting", "builder")]


def test_a_token_that_makes_no_jobs_is_told_whose_move_it_is(harness, server,
                                                             tmp_path):  # noqa: F811
    machine = Machine(harness, server, tmp_path / "reader", "demand,reader")
    process = machine.begin("--json", ACTS, "2048")
    said(process, "a builder")
    build(server, "--arch", "gfx942")
    keys, _ = machine.end(process)
    assert [(one["key"], one["state"], one["move"])
            for one in keys] == [({"n": 2048}, "built", "submitter")]
    refused = Machine(harness, server, tmp_path / "agent", "agent")
    process = refused.begin("--json", ACTS, "512")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 4 and out == "" and err.splitlines()[-1].startswith(
        "wavetune tune: ")


def test_the_servers_list_has_what_was_posted(server):  # noqa: F811
    names = {item["name"] for item in Client(server.url, server.token).captures()}
    assert {"ops:fake_add", "ops:Keyed.fake_add"} <= names
