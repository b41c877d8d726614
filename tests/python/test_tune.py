"""`python3 -m wavetune tune` on a simulated GPU, with Triton and without a server: from a program
to a folder with which it starts without a benchmark and without a compile; called again, it goes on
where it was."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import triton
from conftest import ROOT, program
from starting import environment

ACTS = ROOT / "tests/python/looped/acts.py"
STATED = {"gpu": "Simulated", "arch": "gfx942", "triton": triton.__version__}


class Machine:
    """A simulated GPU, with a folder for the winners."""
    def __init__(self, folder):
        (folder / "fake").mkdir()
        self.folder, self.cache, self.n = folder, folder / "winners", 0
        self.gpu = {
            "WAVETUNE_HIP_LIBRARY": str(program("tests/fake_hip/libfake_hip.so")),
            "WAVETUNE_ARCH": "gfx942", "FAKE_HIP_LAUNCH_US": "100",
            "WAVETUNE_KFD_TOPOLOGY": str(folder / "none"),
            "FAKE_HIP_BROKEN": str(folder / "fake/broken"),
            "WAVETUNE_WORKER_WRITES": str(folder / "fake"), "WAVETUNE_SCREEN_ROUNDS": "3",
            "WAVETUNE_FINAL_ROUNDS": "5", "WAVETUNE_BUILD": str(program("wavetune-agent").parent)
        }

    def begin(self, *words, stated=STATED, **variables):
        """`python3 -m wavetune WORDS…`, with an empty folder of Triton."""
        self.n += 1
        linker = {
            name: value
            for name, value in os.environ.items() if name == "TRITON_HIP_LLD_PATH"
        }  # conftest.py
        own = environment(self.folder / f"triton-{self.n}",
                          WAVETUNE_ENVIRONMENT=json.dumps(stated),
                          **linker,
                          **{**self.gpu, **variables})
        return subprocess.Popen([sys.executable, "-m", "wavetune", *map(str, words)],
                                env=own,
                                cwd=self.folder,
                                stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE,
                                text=True)

    @staticmethod
    def end(process, status=0):
        out, err = process.communicate(timeout=300)
        assert process.returncode == status, out + err
        return out, err

    def tune(self, *acts, options=(), status=0, **more):
        """The document of `tune --json`."""
        words = ("tune", "--cache", self.cache, "--json", *options, ACTS, *acts)
        out, err = self.end(self.begin(*words, **more), status)
        assert out.count("\n") == 1, out
        return {**json.loads(out), "said": err}

    def run(self, *acts, **more):
        """What the program prints that starts with the folder."""
        out, _ = self.end(self.begin("run", "--cache", self.cache, ACTS, *acts, **more))
        return json.loads(out)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def states(document):
    return sorted(
        (one["key"].get("n", one["key"].get("name")), one["state"]) for one in document["keys"])


def test_a_program_becomes_one_that_starts_tuned(machine):
    first = machine.tune("1000", "4096", "keyed")
    assert [one["state"] for one in first["keys"]] == ["tuned"] * 3, first
    assert [one["key"]["n"]
            for one in first["keys"]] == [1000, 1000, 4096] and first["environment"] == STATED
    assert all(one["gain"] > 0 and len(one["interval"]) == 2 and one["seconds"] > 0
               for one in first["keys"])
    assert '"benchmarked": 0' in first["said"], "the program's own output goes to stderr"

    started = machine.run("1000", "4096", "keyed")
    assert (started["benchmarked"], started["compiled"]) == (0, 0), started
    assert (started["counters"]["hits"], started["counters"]["refused"],
            started["counters"]["groups"]) == (3, 0, 3)
    assert started["used"][:2] == [
        one["winner"]["num_warps"] for one in first["keys"] if "BLOCK" in one["winner"]
    ]
    assert 2 not in started["used"], "two warps are wrong on this GPU"


def test_a_second_call_tunes_what_is_new_and_nothing_else(machine):
    machine.tune("1000")
    again = machine.tune("1000")
    assert again["keys"] == [] and again["program"]["status"] == 0
    more = machine.tune("1000", "4096")
    assert [(one["key"], one["state"]) for one in more["keys"]] == [({"n": 4096}, "tuned")]
    assert machine.run("1000", "4096")["benchmarked"] == 0


def test_a_call_that_was_killed_before_it_wrote_the_choices_is_made_good(machine):
    machine.tune("1000")
    (choices, ) = machine.cache.glob("environments/*/choices.json")
    choices.unlink()
    assert machine.tune("1000")["keys"] == []
    assert machine.run("1000")["benchmarked"] == 0


def test_a_folder_that_cannot_be_written_is_said_in_a_sentence(machine):
    machine.tune("1000")
    (place, ) = machine.cache.glob("environments/*")
    shutil.rmtree(place)
    place.write_text("in the way")
    out, err = machine.end(machine.begin("tune", "--cache", machine.cache, ACTS, "1000"), 1)
    assert f"wavetune tune: {place}" in err and "Traceback" not in err, err


def test_the_table_is_on_stderr_and_stdout_is_the_programs(machine):
    out, err = machine.end(machine.begin("tune", "--cache", machine.cache, ACTS, "1000"))
    assert json.loads(out)["benchmarked"] == 0
    lines = err.splitlines()
    assert lines[0].split() == ["function", "key", "first", "config", "winner", "gain",
                                "seconds"], err
    assert lines[1].startswith("fake_add") and "n=1000" in lines[1]
    assert lines[2].startswith(
        "wavetune tune: 1 key tuned in ") and f"run --cache {machine.cache} PROGRAM" in lines[2]
    _, err = machine.end(machine.begin("tune", "--cache", machine.cache, ACTS, "1000"))
    assert err == "wavetune tune: nothing new: every key that the program launched has a choice\n"


def test_a_module_and_the_default_folder(machine):
    out, _ = machine.end(
        machine.begin("tune",
                      "--json",
                      "-m",
                      "acts",
                      "1000",
                      PYTHONPATH=f"{ROOT / 'python'}:{ACTS.parent}"))
    assert [one["state"] for one in json.loads(out)["keys"]] == ["tuned"]
    machine.cache = machine.folder / "wavetune-cache"
    assert machine.run("1000")["benchmarked"] == 0


def test_what_a_program_launched_before_it_failed_is_tuned(machine):
    found = machine.tune("1000", "fail", status=1)
    assert states(found) == [(1000, "tuned")
                             ] and found["program"] == {"status": 1, "was_stopped": False}
    assert "ValueError: as it was told" in found["said"]
    _, err = machine.end(machine.begin("tune", "--cache", machine.cache, ACTS, "fail"), 1)
    assert "wavetune tune: the program failed: it ended with the status 1\n" in err


def test_a_key_without_a_winner_is_said_once(machine):
    found = machine.tune("host", "1000", status=1)
    (refused, ) = [one for one in found["keys"] if one["state"] == "refused"]
    assert "host" in refused["why"] and len(found["keys"]) == 2
    assert machine.tune("host", "1000")["keys"] == []
    assert states(machine.tune("host", options=["--again"], status=1)) == [(512, "refused")]


def begin_waiting(machine, *options, acts=("1000", "wait")):
    process = machine.begin("tune", "--cache", machine.cache, *options, ACTS, *acts)
    assert process.stdout.readline() == "waiting\n"
    return process


def test_a_function_whose_config_is_in_its_arguments_is_not_tuned_with_that_one(machine):
    said = machine.tune("1000", "table", status=1, WAVETUNE_CAPTURE_FUNCTIONS="ops:Table.*")
    tuned, refused = sorted(said["keys"], key=lambda one: one["state"], reverse=True)
    assert (tuned["state"], refused["state"], refused["key"]["BLOCK"]) == ("tuned", "refused", 64)
    assert "no autotuner and no entry say which configs it could have: BLOCK, num_warps look" in refused["why"]


def test_an_interrupt_ends_the_program_and_tunes_what_it_launched(machine):
    process = begin_waiting(machine)
    process.send_signal(signal.SIGINT)
    _, err = machine.end(process)
    assert "1 key tuned" in err and "failed" not in err
    assert machine.run("1000")["benchmarked"] == 0


def test_an_interrupt_ends_processes_that_the_program_started(machine):
    process = begin_waiting(machine, acts=("1000", "child", "wait"))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)  # which waits for all that have its stdout
    assert process.returncode == 0 and "1 key tuned" in err, out + err


def test_a_program_is_ended_after_some_seconds(machine):
    found = machine.tune("1000", "wait", options=["--seconds", "8"])
    assert found["program"]["was_stopped"] and states(found) in ([
        (1000, "tuned")
    ], [])  # a slow machine has launched nothing yet


BLOCKING = """#!/bin/bash
[ "$1" = tune ] && [ ! -e {0}/free ] || exec {1} "$@"
{{ read -r line; echo "$line"; read -r line; echo > {0}/blocked; cat > /dev/null; }} | {1} "$@"
"""  # the second kernel does not reach the agent


def test_an_interrupt_while_tuning_keeps_what_is_decided_and_built(machine):
    agent = machine.folder / "bin/wavetune-agent"
    agent.parent.mkdir()
    agent.write_text(BLOCKING.format(machine.folder, program("wavetune-agent")))
    agent.chmod(0o755)
    os.mkfifo(machine.folder / "blocked")
    variables = {"WAVETUNE_BUILD": str(agent.parent)}
    process = machine.begin("tune", "--cache", machine.cache, "--json", ACTS, "1000", "keyed",
                            **variables)
    assert (machine.folder / "blocked").read_text() == "\n"  # the second kernel waits
    process.send_signal(signal.SIGINT)
    out, _ = machine.end(process, 130)
    assert [one["state"] for one in json.loads(out)["keys"]] == ["tuned"]
    (built, ) = machine.cache.glob("environments/*/built/*")

    (machine.folder / "free").touch()
    more = machine.tune("1000", "keyed", **variables)
    assert [one["state"] for one in more["keys"]] == ["tuned"] and not built.exists()
    started = machine.run("1000", "keyed")
    assert (started["benchmarked"], started["compiled"]) == (0, 0)


def test_a_second_interrupt_leaves_at_once(machine):
    process = begin_waiting(machine)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
    process.wait(60)
    assert process.returncode in (0, 130)  # both may be one, which begins to tune
    machine.end(process, process.returncode)
    assert not list(machine.cache.glob(".run.*"))


def test_environments_are_apart(machine):
    other = {**STATED, "torch": "9.9.9"}
    machine.tune("1000")
    assert machine.run("1000", stated=other)["benchmarked"] == 3
    assert [one["state"] for one in machine.tune("1000", stated=other)["keys"]] == ["tuned"]
    assert len(list(machine.cache.glob("environments/*/choices.json"))) == 2
    assert machine.run("1000")["benchmarked"] == machine.run("1000",
                                                             stated=other)["benchmarked"] == 0


def test_code_that_was_changed_is_not_used(machine):
    machine.tune("1000")
    for path in machine.cache.glob("environments/*/code/*/*.hsaco"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    started = machine.run("1000")
    assert (started["benchmarked"], started["compiled"], started["counters"]["refused"]) == (0, 1,
                                                                                             1)


def test_no_other_user_may_write_a_folder(machine):
    mask = os.umask(0)
    try:
        machine.tune("1000")
    finally:
        os.umask(mask)
    started = machine.run("1000")
    assert (started["benchmarked"], started["compiled"]) == (0, 0)


def test_code_that_every_user_may_change_is_not_used(machine):
    machine.tune("1000")
    machine.cache.chmod(0o777)
    started = machine.run("1000", WAVETUNE_LOG=str(machine.folder / "log"))
    assert (started["benchmarked"], started["compiled"]) == (0, 1)
    assert f"chmod o-w {machine.cache}" in (machine.folder / "log").read_text()


def test_what_is_wrong_is_said_in_a_sentence(machine):
    def refused(*words, status=2, **variables):
        out, err = machine.end(machine.begin("tune", *words, **variables), status)
        assert out == "" and err.count("\n") == 1 and err.startswith("wavetune tune: "), err
        return err

    assert "name a program" in refused()
    assert "cannot open the program" in refused(machine.folder / "none.py")
    assert "at least 1" in refused("-j", "0", ACTS)
    assert "wavetune-agent is neither in" in refused(ACTS,
                                                     status=1,
                                                     WAVETUNE_BUILD="",
                                                     PATH="/usr/bin:/bin")
    (machine.folder / "other").mkdir()
    (machine.folder / "other/choices.json").write_text("{}")
    assert "fetch" in refused("--cache", "other", ACTS)
    assert "no folder of `wavetune tune`" in refused("--cache", ACTS.parent, ACTS)


def test_one_process_uses_a_folder_at_a_time(machine):
    process = begin_waiting(machine)
    _, err = machine.end(machine.begin("tune", "--cache", machine.cache, ACTS, "1000"), 1)
    assert "another `wavetune tune` works in" in err
    process.send_signal(signal.SIGINT)
    machine.end(process)
