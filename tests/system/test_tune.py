"""`wavetune-agent tune`, one key and campaigns of many. Kernels sleep for the milliseconds of their config. Where the winner
matters, the others sleep four times as long as the best, so that the result does not depend on the load of the machine."""

import json
import os
import shutil
import signal
import subprocess
import types

import harness
import pytest
from harness import small_kernel, wait_until

AGENT = harness.BUILD / "wavetune-agent"
QUICK = ("--screen-rounds", "3", "--final-rounds", "4")


def agent(*arguments, environment=None, timeout=600):
    full = {k: v for k, v in os.environ.items() if not k.startswith("WAVETUNE_")}
    # A config that crashes on purpose ends by its signal, also under a sanitizer, which would print a report.
    full["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"
    # Kernels of these tests write to files that such a variable names.
    traces = [os.path.dirname(v) for k, v in (environment or {}).items() if k in ("CALLS", "MOODY_FILE", "BANDS")]
    full["WAVETUNE_WORKER_WRITES"] = ":".join(traces)
    return subprocess.run([str(a) for a in (AGENT, *arguments)], capture_output=True, text=True, timeout=timeout,
                          stdin=subprocess.DEVNULL, env={**full, **(environment or {})})


def tune(place, key, state, *more, **options):
    return agent("tune", place, "--key", key, "--state", state, *QUICK, *more, **options)


# y = 2 x after US microseconds; wrong for n = 13. $CALLS gets a line for each time that an object is loaded and called.
SLEEPER = """#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
void quick(float *y, const float *x, int64_t n) {
  static int calls;
  const char *log = getenv("CALLS");
  if (log && calls++ == 0) {
    FILE *file = fopen(log, "a");
    fprintf(file, "%d %d %d\\n", (int)getpid(), (int)n, US);
    fclose(file);
  }
  nanosleep(&(struct timespec){.tv_nsec = US * 1000L}, NULL);
  for (int64_t i = 0; i < n; i++)
    y[i] = (n == 13 ? 3 : 2) * x[i];
}
"""


def sleeper(folder, us, **space):
    """A kernel whose configs sleep `us` microseconds, with `turns` configs (parameter TURN) of each time."""
    turns = space.pop("turns", 1)
    small_kernel(folder)
    (folder / "quick.c").write_text(SLEEPER)
    parameters = {"US": list(us), "TURN": list(range(turns))}
    (folder / "space.json").write_text(json.dumps({"parameters": parameters, **space}))
    return folder


def campaign(folder, keys, state, *more, **options):
    """Tunes `keys` (lines of a file): (the finished process, the keys' lines, the campaign's)."""
    listed = state.with_suffix(".keys")
    listed.write_text("\n".join(keys) + "\n")
    done = agent("tune", folder, "--keys", listed, "--state", state, "--json", *QUICK, *more, **options)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done, lines[:-1], lines[-1]["campaign"] if lines else None


def winner_of(line):
    return line["winner"]["config_values"]


def test_every_misbehaving_config_gets_its_outcome_and_the_good_one_is_found(tmp_path):
    done = tune(harness.MISBEHAVING, "n=1000", tmp_path, "--json", "--config-timeout", "4")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    outcomes = answer["outcomes"]
    assert sum(outcomes.values()) == answer["configs"] == answer["measured"] == 8 and answer["unmeasured"] == 0
    assert outcomes["compile"] == outcomes["timeout"] == 1 and outcomes["correct"] == 2
    assert winner_of(answer) == {"MODE": "good"}
    assert set(answer["seconds"]) == {"screen", "halving", "final"} and answer["device_seconds"] > 0
    assert done.stderr == "", "no bar and no log on a pipe"


MOODY = """#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#define good 0
#define moody 1
void misbehaving(float *y, const float *x, int64_t n) {
  static int calls;
  for (int64_t i = 0; i < n; i++)
    y[i] = 2 * x[i];
  if (MODE == good)
    for (volatile int i = 0; i < 300000; i++); /* many times the rest: the default is a finalist, and moody the best */
  if (MODE == moody && calls++ == 0) {
    FILE *file = fopen(getenv("MOODY_FILE"), "a");
    fputc('.', file);
    fflush(file);
    if (ftell(file) == 6)
      abort();
    fclose(file);
  }
}
"""


def test_a_config_that_died_in_one_of_the_finals_does_not_win(tmp_path):
    folder = tmp_path / "kernel"
    shutil.copytree(harness.MISBEHAVING, folder)
    (folder / "misbehaving.c").write_text(MOODY)
    (folder / "space.json").write_text('{"parameters": {"MODE": ["good", "moody"]}, "default": {"MODE": "good"}}')
    processes = tmp_path / "processes"  # one screen, then five finals: it dies in the last one
    five = ("--json", "--processes", "5")
    done = tune(folder, "n=1000", tmp_path / "state", *five, environment={"MOODY_FILE": str(processes)})
    assert done.returncode == 0, done.stderr
    assert processes.stat().st_size == 6
    answer = json.loads(done.stdout)
    assert winner_of(answer) == {"MODE": "good"}
    assert answer["outcomes"] == {"correct": 1, "runtime": 1}
    assert [f["config"] for f in answer["verdict"]["finalists"]] == [0]

    processes.unlink()  # now without the default among the finalists
    done = tune(folder, "n=1000", tmp_path / "state", *five, "--only", "1", environment={"MOODY_FILE": str(processes)})
    assert done.returncode == 1 and "every finalist failed" in done.stderr and "signal 6" in done.stderr
    assert "every finalist failed" in json.loads(done.stdout)["error"]


SPOILT = """#include <stdint.h>
#define right 0
#define spoilt 1
void misbehaving(float *y, const float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = 2 * x[i];
  if (MODE == spoilt)
    y[54321] = 9;
}
"""


@pytest.mark.parametrize("default", ["right", "spoilt"])
def test_a_wrong_element_outside_the_samples_fails_its_config_and_in_the_default_the_key(tmp_path, default):
    folder = tmp_path / "kernel"
    shutil.copytree(harness.MISBEHAVING, folder)
    (folder / "misbehaving.c").write_text(SPOILT)
    (folder / "space.json").write_text(json.dumps({"parameters": {"MODE": ["right", "spoilt"]}, "default": {"MODE": default}}))
    done = tune(folder, "n=100000", tmp_path / "state", "--json")
    answer = json.loads(done.stdout)
    if default == "right":
        assert done.returncode == 0, done.stderr
        assert answer["outcomes"] == {"correct": 1, "correctness": 1} and winner_of(answer) == {"MODE": "right"}
        assert "y[54321] is 9, " in answer["examples"]["correctness"]
    else:
        assert done.returncode == 1
        assert "baseline: y[54321] is 9, " in answer["error"] and "another default" in done.stderr


def test_a_table_shows_the_winner(tmp_path):
    done = tune(small_kernel(tmp_path / "kernel"), "n=1003", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "winner (*)" in done.stdout and "equivalence set (=)" in done.stdout and "regret bound" in done.stdout


def test_a_second_tune_does_not_compile_again(tmp_path):
    kernel = small_kernel(tmp_path / "kernel")
    assert tune(kernel, "n=1003", tmp_path).returncode == 0
    objects = {p: p.stat().st_mtime_ns for p in (tmp_path / "objects").iterdir()}
    assert objects
    assert tune(kernel, "n=1003", tmp_path).returncode == 0
    assert objects == {p: p.stat().st_mtime_ns for p in (tmp_path / "objects").iterdir()}


def test_what_cannot_be_read_is_refused_with_one_sentence(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("n=1\n")
    for arguments, word in (
        (("tune",), "name one kernel folder"),
        (("tune", tmp_path, "--key", "n=1"), "kernel.json"),
        (("tune", harness.QUICK), "--key"),
        (("tune", harness.QUICK, "--key", "m=1"), "m"),
        (("tune", harness.QUICK, "--key", "n=1", "--regime", "tepid"), "tepid"),
        (("tune", harness.QUICK, "--key", "n=1", "--device", "gpu77"), "gpu77"),
        (("tune", harness.QUICK, "--key", "n=1", "--processes", "2"), "processes"),
        (("tune", harness.QUICK, "--key", "n=1", "--budget", "0"), "a number of seconds"),
        (("tune", harness.QUICK, "--key", "n=1", "--budget", "2s"), "a number of seconds"),
        (("tune", harness.QUICK, "--key", "n=1", "--budget", "0.0017"), "from 0.0018"),
        (("tune", harness.QUICK, "--key", "n=1", "--search", "divining"), "random, descent or evolution"),
        (("tune", harness.QUICK, "--key", "n=1", "--search", "random", "--only", "1"), "--only"),
        (("tune", harness.QUICK, "--key", "n=1", "--exhaustive", "5", "--budget", "1"), "--exhaustive"),
        (("tune", harness.QUICK, "--key", "n=1", "--margin", "5"), "--margin"),
        (("tune", harness.QUICK, "--key", "n=1", "--exhaustive", "5", "--margin", "101"), "--margin"),
        (("tune", harness.QUICK, "--key", "n=1", "--samples", tmp_path / "absent/file"), "--samples"),
        (("tune", harness.QUICK, "--keys", keys, "--profile", tmp_path), "--profile"),
        (("tune", harness.QUICK, "--key", "n=1..2", "--profile", tmp_path), "--profile"),
        (("tune", harness.QUICK, "--key", "n=1", "--space", tmp_path / "absent"), "absent"),
        (("tune", harness.QUICK, "--keys", "-"), "standard input has no key"),
    ):
        done = agent(*arguments)
        assert done.returncode == 2, (arguments, done)
        assert word in done.stderr and done.stderr.count("\n") == 1, (arguments, done.stderr)


def test_a_bad_line_of_keys_is_refused_with_its_number(tmp_path):
    keys = tmp_path / "keys"
    for text, place, word in (
        ("n=1\n\n# n=2\nm=5\n", "keys:4: ", "\"m\""),
        ("n=1\n{\"n\": }\n", "keys:2: ", ""),
        ("\n# none\n", "keys", "no key"),
    ):
        keys.write_text(text)
        done = agent("tune", harness.QUICK, "--keys", keys)
        assert done.returncode == 2 and place in done.stderr and word in done.stderr and done.stdout == "", (text, done)
    done = agent("tune", harness.QUICK, "--keys", tmp_path / "absent")
    assert done.returncode == 2 and "absent" in done.stderr


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    """A campaign of five keys, of which n = 13 and n = 7 cannot be tuned."""
    folder = tmp_path_factory.mktemp("five")
    kernel = sleeper(folder / "kernel", (20000, 40000, 5000), conditions=["n != 7"])
    (folder / "samples").write_text("of an earlier run\n")
    it = types.SimpleNamespace()
    it.done, it.lines, it.whole = campaign(
        kernel, ["n=1000", '{"n": 4000}', "# n=8", "n=13", "n=7", "n=1100  # the last"], folder / "state", "--samples",
        folder / "samples", environment={"CALLS": str(folder / "calls")})
    it.calls = [tuple(map(int, line.split())) for line in (folder / "calls").read_text().splitlines()]
    it.samples = [json.loads(line) for line in (folder / "samples").read_text().splitlines()]
    it.good = [it.lines[0], it.lines[1], it.lines[4]]
    return it


def test_every_key_has_its_line_in_its_order(five):
    assert [line["key"]["n"] for line in five.lines] == [1000, 4000, 13, 7, 1100]
    for line in five.good:
        assert winner_of(line) == {"US": 5000, "TURN": 0} and line["verdict"]["verdict"] == "FASTER"
        assert line["finalists"] == 2, "the best and the default"
    assert five.whole["keys"] == 5 and five.whole["seconds"] > 0
    assert set(five.whole["spent"]) == {"start", "reference", "inputs", "baseline", "load", "check", "warm_up", "timing"}


def test_a_key_that_fails_does_not_end_the_campaign(five):
    assert five.done.returncode == 1 and five.whole["failed"] == 2
    assert "baseline: " in five.lines[2]["error"] and "no config of the space" in five.lines[3]["error"]
    assert all("verdict" not in line and "winner" not in line for line in five.lines[2:4])
    assert all(word in five.done.stderr for word in ("tune: n=13: nothing can be compared", "tune: n=7: no config of the space"))
    assert five.done.stderr.count("\n") == 2


def test_keys_share_the_processes_of_their_finals(five):
    processes = {pid for pid, n, _ in five.calls if n != 13}
    assert five.whole["processes"] >= 3
    # Three for finals and two for screens: that of n = 13 ended one. Open finals need a further process, which may
    # be the second of the screens: n = 1000 has not been in it.
    assert 3 + 2 <= len(processes) <= five.whole["processes"] + 2


def test_the_winner_of_the_nearest_key_is_tried_first(five):
    assert [us for _, n, us in five.calls if n == 1100][:2] == [20000, 5000], "the default opens, then the likely one"


def test_samples_are_written_as_they_come(five):
    assert {line["stage"] for line in five.samples} == {"screen", "final"}
    for line in five.samples:
        assert line["baseline"] == 0 and line["config_values"] == {"US": (20000, 40000, 5000)[line["config"]], "TURN": 0}
        if line["key"] == {"n": 13}:
            assert line["outcome"] == "correctness" and line["detail"] and line["samples_us"] == []
        else:
            assert line["outcome"] == "correct" and line["timer"] and line["end"]
            assert len(line["samples_us"]) == len(line["baseline_us"]) > 0
            assert line["device_us"] > 0 and line["conditions"]["rounds"] >= len(line["samples_us"]), "its conditions"
        assert line["seed"] == 1 + line["process"], "of its inputs"
    for answer in five.good:
        mine = [line for line in five.samples if line["key"] == answer["key"]]
        assert sorted(line["config"] for line in mine if line["stage"] == "screen") == [0, 1, 2]
        assert answer["verdict"]["samples"] == sum(len(line["samples_us"]) for line in mine if line["stage"] == "final")


def test_a_campaign_prints_its_tables_in_the_order_of_the_keys(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("n=2000\nn=1000\n")
    done = agent("tune", sleeper(tmp_path / "kernel", (100,)), "--keys", keys, "--state", tmp_path / "state", *QUICK)
    assert done.returncode == 0, done.stderr
    heads = [line for line in done.stdout.splitlines() if line.startswith("quick/c")]
    assert heads == ["quick/c  n=2000", "quick/c  n=1000"]
    assert done.stdout.splitlines()[-1].startswith("2 of 2 keys have a winner")


def test_ranges_name_the_keys_of_a_campaign_each_once_and_a_file_has_the_space(tmp_path):
    space, keys = tmp_path / "space.json", tmp_path / "keys"
    kernel = sleeper(tmp_path / "kernel", (100, 200))
    space.write_text(json.dumps({"parameters": {"US": [100], "TURN": [0]}}))
    keys.write_text("n=1000  # again\nn=2000..3000+500\n")
    done = agent("tune", kernel, "--key", "n=1000,1500", "--keys", keys, "--space", space, "--json", "--state", tmp_path / "state",
                 *QUICK)
    *lines, whole = map(json.loads, done.stdout.splitlines())
    assert [line["key"]["n"] for line in lines] == [1000, 1500, 2000, 2500, 3000], done.stderr
    assert whole["campaign"]["keys"] == 5 and done.returncode == 0
    assert [winner_of(line) for line in lines] == [{"US": 100, "TURN": 0}] * 5, "its one config"


def test_samples_that_cannot_be_written_end_the_campaign(tmp_path):
    done, lines, whole = campaign(sleeper(tmp_path / "kernel", (100,)), ["n=1000", "n=2000"], tmp_path / "state", "--samples",
                                  "/dev/full")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "/dev/full: No space left" in done.stderr
    assert all("No space left" in line["error"] for line in lines) and whole["failed"] == 2


def test_exhaustive_races_every_config_in_every_process_to_the_end(tmp_path):
    samples = tmp_path / "samples"
    done = tune(sleeper(tmp_path / "kernel", (1600, 400, 100)), "n=1000", tmp_path / "state", "--json", "--exhaustive", "9",
                "--processes", "4", "--samples", samples)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["finalists"] == len(answer["verdict"]["finalists"]) == 3 and answer["seconds"]["screen"] == 0
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    assert sorted((line["process"], line["config"]) for line in lines) == [(p, c) for p in range(4) for c in range(3)]
    for line in lines:  # less than half is rejected because of a falling clock
        assert line["stage"] == "final" and 5 <= len(line["samples_us"]) <= 9


def test_with_a_margin_only_slow_configs_leave_the_exhaustive_race(tmp_path):
    samples = tmp_path / "samples"
    done = tune(sleeper(tmp_path / "kernel", (1600, 100)), "n=1000", tmp_path / "state", "--json", "--exhaustive", "30",
                "--margin", "100", "--samples", samples)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    counts = {(line["process"], line["config"]): len(line["samples_us"]) for line in lines}
    assert len(counts) == 6
    assert all(counts[process, 0] < counts[process, 1] for process in range(3))
    assert json.loads(done.stdout)["winner"]["config"] == 1


def opening_of(tmp_path):
    """The device seconds that opening such a kernel takes in one process, on this machine as busy as it is now."""
    done = tune(sleeper(tmp_path / "opened", (1000,), turns=2), "n=1000", tmp_path / "opened state", "--json")
    answer = json.loads(done.stdout)
    return answer["opening_seconds"] / (1 + answer["verdict"]["processes"])


def test_a_budget_ends_the_screen_and_leaves_some_for_the_finals(tmp_path):
    budget = max(3, round(15 * opening_of(tmp_path)))
    turns = round(1000 * budget / 3)  # 5 s or more of device time
    folder = sleeper(tmp_path / "kernel", (1000,), turns=turns)
    done = tune(folder, "n=1000", tmp_path / "state", "--json", "--budget", str(budget), "--finalists", "1")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["measured"] + answer["unmeasured"] == answer["configs"] == turns
    assert answer["unmeasured"] > 0 and answer["outcomes"] == {"correct": answer["measured"]}
    assert answer["verdict"]["processes"] >= 3
    assert answer["device_seconds"] < budget * 1.5, "no more than a round for each lease above it; a config sleeps 5 ms"


def test_a_budget_that_is_too_small_decides_with_the_smallest_final_and_prints_the_excess(tmp_path):
    # The screen, which has 0.6 of it, may open the kernel; the configs take as much longer as there is more to spend.
    budget = max(1.5, round(10 * opening_of(tmp_path), 1))
    folder = sleeper(tmp_path / "kernel", (round(5000 * budget / 1.5),), turns=200)
    done, lines, _ = campaign(folder, ["n=1000", "n=2000"], tmp_path / "state", "--budget", str(budget))
    assert done.returncode == 0, done.stderr
    for line in lines:
        assert line["unmeasured"] > 0 and line["measured"] + line["unmeasured"] == 200
        assert line["finalists"] <= 2 and line["verdict"]["processes"] == 3 and line["device_seconds"] > budget
        assert 0.02 * 4 < line["opening_seconds"] < line["device_seconds"], "four processes, 20 ms of warm-up in each"
    output = tune(folder, "n=1000", tmp_path / "state", "--budget", str(budget)).stdout
    assert f"never tried: the budget of {budget:g} device-seconds" in output
    assert "was exceeded by" in output and "on opening the kernel\n" in output


def test_a_search_finds_the_best_of_a_large_space(tmp_path):
    folder = sleeper(tmp_path / "kernel", (3200, 800, 200), turns=5000)
    for strategy in ("descent", "evolution", "random"):
        done = tune(folder, "n=1000", tmp_path / "state", "--json", "--search", strategy, "--trials", "40", "--finalists", "2")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert winner_of(answer)["US"] == 200 and answer["configs"] == answer["measured"] == 40, strategy


def test_a_search_of_a_space_without_valid_configs_is_refused(tmp_path):
    folder = sleeper(tmp_path / "kernel", (100,), conditions=["US < 0"])
    done = tune(folder, "n=1000", tmp_path / "state", "--search", "random")
    assert done.returncode == 2 and "no config of the space" in done.stderr


# US 0: 2 ms in one process, 8 ms in the next.
BANDS = SLEEPER.replace("  nanosleep(", """  static int us = US;
  if (us == 0) {
    FILE *file = fopen(getenv("BANDS"), "a");
    fputc('.', file);
    us = ftell(file) % 2 ? 2000 : 8000;
    fclose(file);
  }
  nanosleep(""").replace("tv_nsec = US", "tv_nsec = us")


def test_an_ambiguous_verdict_is_measured_in_more_processes(tmp_path):
    folder = sleeper(tmp_path / "kernel", (4000, 0))
    (folder / "quick.c").write_text(BANDS)
    done = tune(folder, "n=1000", tmp_path / "state", "--json", environment={"BANDS": str(tmp_path / "bands")})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"]["processes"] == 6


@pytest.mark.parametrize("search", [(), ("--search", "descent", "--trials", "6")])
def test_more_candidates_than_a_final_takes_race_once_more_before_it(tmp_path, search):
    samples = tmp_path / "samples"  # a search gets its configs in several batches, each of which is a lease
    done = tune(sleeper(tmp_path / "kernel", (60000,), turns=6), "n=1000", tmp_path / "state", "--json", "--finalists", "2",
                "--samples", samples, *search)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    halved = {line["config"] for line in lines if line["stage"] == "halving"}
    assert len(halved) > 2 if search else not halved
    assert len({line["config"] for line in lines if line["stage"] == "final"}) == json.loads(done.stdout)["finalists"] == 2
    assert (json.loads(done.stdout)["seconds"]["halving"] > 0) == bool(search)


VECTOR_ADD = harness.SOURCE / "kernels/vector_add"


def as_triton(folder):
    """The quick kernel's folder, its manifest in triton."""
    shutil.copytree(harness.QUICK, folder)
    kernel = json.loads((folder / "kernel.json").read_text())
    kernel["versions"]["c"].update(language="triton", launch={"grid": ["n"]})
    (folder / "kernel.json").write_text(json.dumps(kernel))
    return folder


def test_a_kernel_that_the_device_cannot_run_is_refused():
    done = agent("tune", f"{VECTOR_ADD}:hip", "--key", "n=1024", "--device", "cpu0")
    assert done.returncode == 2
    assert "cannot be tuned on cpu0" in done.stderr, done.stderr


def test_a_build_is_for_kernels_that_need_one_and_for_no_other(tmp_path):
    kernel = as_triton(tmp_path / "kernel")
    for arguments, word in (
        ((harness.QUICK, "--build", tmp_path), "leave out --build"),
        ((kernel,), "python3 -m wavetune pack"),
        ((kernel, "--build", tmp_path / "absent"), "absent/build.json"),
    ):
        done = agent("tune", *arguments, "--key", "n=10")
        assert done.returncode == 2 and word in done.stderr, done.stderr


@pytest.mark.parametrize("search", [(), ("--search", "random")])
def test_the_first_config_that_runs_is_the_baseline_where_the_default_does_not(tmp_path, search):
    folder = tmp_path / "kernel"
    shutil.copytree(harness.MISBEHAVING, folder)
    (folder / "space.json").write_text(json.dumps({"parameters": {"MODE": ["no_compile", "crash", "good", "slow"]}, "default": {"MODE": "crash"}}))
    done = tune(folder, "n=1000", tmp_path / "state", *search, "--json")
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout.splitlines()[0])
    assert line["winner"]["config_values"] == {"MODE": "good"} and line["baseline"] == 2
    assert done.stderr.count("does not run") == 2 and "killed by signal 11" in done.stderr


def test_a_default_that_does_not_work_is_reported(tmp_path):
    folder = tmp_path / "kernel"
    shutil.copytree(harness.MISBEHAVING, folder)
    space = json.loads((folder / "space.json").read_text())
    space["default"] = {"MODE": "wrong"}
    (folder / "space.json").write_text(json.dumps(space))
    done = tune(folder, "n=1000", tmp_path / "state")
    assert done.returncode == 1 and "baseline: y[" in done.stderr
    space["conditions"] = ["MODE == 'good'"]
    (folder / "space.json").write_text(json.dumps(space))
    for search in ((), ("--search", "random")):
        done = tune(folder, "n=1000", tmp_path / "state", *search)
        assert done.returncode == 2 and "excluded by a condition" in done.stderr
    space = {"parameters": {"MODE": ["wrong", "slow"]}, "conditions": ["MODE == 'none'"]}
    (folder / "space.json").write_text(json.dumps(space))
    done = tune(folder, "n=1000", tmp_path / "state")
    assert done.returncode == 2 and "no config of the space" in done.stderr


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def hanging_tune(folder, *more):
    """A `tune` whose worker hangs in a config: a process and its workers' ids."""
    gated = harness.GatedKernel(folder / "kernel")
    process = subprocess.Popen([str(a) for a in (AGENT, "tune", gated.folder, "--state", folder / "state", "--config-timeout",
                                                 "3600", *more)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "WAVETUNE_WORKER_WRITES": str(gated.gate.parent)})
    gated.wait_reached()
    return process, children_of(process.pid)


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_stopped_campaign_ends_its_workers(tmp_path):
    (tmp_path / "keys").write_text("n=1000\nn=2000\n")
    process, workers = hanging_tune(tmp_path, "--keys", tmp_path / "keys", "--json")
    process.send_signal(signal.SIGTERM)
    out, messages = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "stopped before the end" in messages and messages.count("\n") == 1
    lines = [json.loads(line) for line in out.splitlines()]
    assert ["stopped before the end" in line.get("error", "") for line in lines] == [True, True, False]
    assert lines[2]["campaign"]["failed"] == 2
    assert workers
    for worker in workers:
        wait_until(lambda: is_gone(worker), 10, "the worker's end")


def test_a_killed_tune_leaves_no_workers(tmp_path):
    process, workers = hanging_tune(tmp_path, "--key", "n=1000")
    process.kill()
    process.wait(300)
    assert workers
    for worker in workers:
        wait_until(lambda: is_gone(worker), 10, "the worker's end")
