"""`tune --only` and `tune --profile`, with a script in place of rocprofv3: it records its arguments and runs the given command,
as the profiler does."""
import json
import os
import pathlib
import stat
import subprocess

import harness

QUICK = harness.SOURCE / "tests/data/kernels/quick"


def tune(state, *arguments, path=None, **more):
    environment = dict(os.environ, **more)
    if path:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    return subprocess.run([harness.BUILD / "wavetune-agent", "tune", QUICK, "--key", "n=1000", "--device", "cpu0", "--state", state,
                           "--final-rounds", "3", *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=600)


def profiler(folder, name, body):
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text("#!/bin/sh\n" + body)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_only_measures_one_config_beside_the_default(tmp_path):
    whole = json.loads(tune(tmp_path / "state", "--json").stdout)
    other = next(f["config"] for f in whole["verdict"]["finalists"] if f["config"] != whole["baseline"])
    one = tune(tmp_path / "state", "--json", "--only", other)
    assert one.returncode == 0, one.stderr
    answer = json.loads(one.stdout)
    assert answer["winner"]["config"] == other and answer["configs"] == 1


def test_only_refuses_a_config_that_the_space_does_not_have(tmp_path):
    answer = tune(tmp_path / "state", "--only", 123456)
    assert answer.returncode == 2
    assert "config 123456 of --only" in answer.stderr


def test_the_winner_is_run_once_under_rocprofv3(tmp_path):
    profiler(tmp_path / "bin", "rocprofv3",
             'echo "$@" >"$ROCPROF_CALLS"\nwhile [ "$1" != -- ]; do shift; done; shift\nexec "$@" --json >"$ROCPROF_OUTPUT"\n')
    answer = tune(tmp_path / "state", "--json", "--profile", tmp_path / "profile", path=tmp_path / "bin",
                  ROCPROF_CALLS=str(tmp_path / "calls"), ROCPROF_OUTPUT=str(tmp_path / "output"))
    assert answer.returncode == 0, answer.stderr
    winner = json.loads(answer.stdout)["winner"]["config"]
    calls = (tmp_path / "calls").read_text()
    assert calls.startswith(f"--kernel-trace --stats --output-format csv -d {tmp_path}/profile -- ")
    assert f"--only={winner}" in calls
    assert json.loads((tmp_path / "output").read_text())["winner"]["config"] == winner
    assert f"profile is in {tmp_path}/profile" in answer.stderr


def test_the_older_rocprof_works_too(tmp_path):
    profiler(tmp_path / "bin", "rocprof", 'echo "$@" >"$ROCPROF_CALLS"\n')
    answer = tune(tmp_path / "state", "--only", 0, "--profile", tmp_path / "profile", path=tmp_path / "bin", ROCPROF_CALLS=str(tmp_path / "calls"))
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "calls").read_text().startswith(f"--stats -o {tmp_path}/profile/profile.csv ")


def test_a_profiler_that_fails_is_reported(tmp_path):
    profiler(tmp_path / "bin", "rocprofv3", "echo no GPU for me\nexit 3\n")
    answer = tune(tmp_path / "state", "--only", 0, "--profile", tmp_path / "profile", path=tmp_path / "bin")
    assert answer.returncode == 1
    assert "did not profile config" in answer.stderr and "no GPU for me" in answer.stderr


def test_without_a_profiler_the_error_names_what_to_install(tmp_path):
    if pathlib.Path("/opt/rocm/bin/rocprofv3").exists():
        return
    answer = tune(tmp_path / "state", "--only", 0, "--profile", tmp_path / "profile")
    assert answer.returncode == 1
    assert "install rocprofiler-sdk" in answer.stderr
    assert "winner" in answer.stdout  # the results are printed before
