"""The agent's programs as people call them: what they print, how they end, and that they end in order."""

import json
import os
import shutil
import signal
import subprocess
import threading
import time

import harness
from harness import small_kernel, wait_until, wavetune

AGENT = harness.BUILD / "wavetune-agent"
QUICK = ("--screen-rounds", "3", "--final-rounds", "10")


def agent(*arguments, environment=None, timeout=120):
    full = {k: v for k, v in os.environ.items() if not k.startswith("WAVETUNE_")}
    # A config that crashes on purpose is a signal here, also where a sanitizer would print a page about it.
    full["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"
    return subprocess.run([str(a) for a in (AGENT, *arguments)], capture_output=True, text=True, timeout=timeout,
                          stdin=subprocess.DEVNULL, env={**full, **(environment or {})})


def tune(place, key, state, *more, **options):
    return agent("tune", place, "--key", key, "--state", state, *QUICK, *more, **options)


def test_probe_prints_devices_and_env_the_environment_of_one():
    devices = json.loads(agent("probe").stdout)["devices"]
    cpu = next(d for d in devices if d["device"] == "cpu0")
    environment = json.loads(agent("env", "--device", "cpu0").stdout)
    assert environment == cpu["environment"]
    query = agent("env", "--device", "cpu0", "--query").stdout.strip()
    assert f"compute_units={environment['compute_units']}" in query and " " not in query


def test_an_unknown_device_is_refused_with_those_there_are():
    done = agent("env", "--device", "gpu77")
    assert done.returncode == 2 and "gpu77" in done.stderr and "cpu0" in done.stderr


def test_tune_gives_every_misbehaving_config_its_outcome_and_finds_the_good_one(tmp_path):
    done = tune(harness.MISBEHAVING, "n=1000", tmp_path, "--json", "--config-timeout", "1")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    outcomes = answer["outcomes"]
    assert sum(outcomes.values()) == answer["configs"] == 8
    assert outcomes["compile"] == outcomes["timeout"] == 1 and outcomes["correct"] == 2
    assert answer["winner"]["config_values"] == {"MODE": "good"}
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


def test_tune_lets_no_config_win_that_died_in_one_of_the_finals(tmp_path):
    folder = tmp_path / "kernel"
    shutil.copytree(harness.MISBEHAVING, folder)
    (folder / "misbehaving.c").write_text(MOODY)
    (folder / "space.json").write_text('{"parameters": {"MODE": ["good", "moody"]}, "default": {"MODE": "good"}}')
    processes = tmp_path / "processes"  # the screen's, then five finals: it dies in the last one
    done = tune(folder, "n=100000", tmp_path / "state", "--json", "--processes", "5",
                environment={"MOODY_FILE": str(processes)})
    assert done.returncode == 0, done.stderr
    assert processes.stat().st_size == 6
    answer = json.loads(done.stdout)
    assert answer["winner"]["config_values"] == {"MODE": "good"}
    assert answer["outcomes"] == {"correct": 1, "runtime": 1}
    assert [f["config"] for f in answer["verdict"]["finalists"]] == [0]


def test_tune_prints_a_table_with_the_winner(tmp_path):
    done = tune(small_kernel(tmp_path / "kernel"), "n=1003", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "winner (*)" in done.stdout and "equivalence set (=)" in done.stdout and "regret bound" in done.stdout


def test_tune_measures_again_without_compiling_again(tmp_path):
    kernel = small_kernel(tmp_path / "kernel")
    assert tune(kernel, "n=1003", tmp_path).returncode == 0
    objects = {p: p.stat().st_mtime_ns for p in (tmp_path / "objects").iterdir()}
    assert objects
    assert tune(kernel, "n=1003", tmp_path).returncode == 0
    assert objects == {p: p.stat().st_mtime_ns for p in (tmp_path / "objects").iterdir()}


def test_tune_refuses_what_it_cannot_read_with_one_sentence(tmp_path):
    for arguments, said in (
        (("tune",), "give one folder"),
        (("tune", tmp_path, "--key", "n=1"), "kernel.json"),
        (("tune", harness.QUICK), "--key"),
        (("tune", harness.QUICK, "--key", "m=1"), "m"),
        (("tune", harness.QUICK, "--key", "n=1", "--regime", "tepid"), "tepid"),
        (("tune", harness.QUICK, "--key", "n=1", "--device", "gpu77"), "gpu77"),
        (("tune", harness.QUICK, "--key", "n=1", "--processes", "2"), "processes"),
    ):
        done = agent(*arguments)
        assert done.returncode == 2, (arguments, done)
        assert said in done.stderr and done.stderr.count("\n") == 1, (arguments, done.stderr)


VECTOR_ADD = harness.SOURCE / "kernels/vector_add"


def as_triton(folder):
    """The quick kernel's folder, its manifest in triton."""
    shutil.copytree(harness.QUICK, folder)
    kernel = json.loads((folder / "kernel.json").read_text())
    kernel["versions"]["c"].update(language="triton", launch={"grid": ["n"]})
    (folder / "kernel.json").write_text(json.dumps(kernel))
    return folder


def test_tune_refuses_a_kernel_that_the_device_cannot_run():
    done = agent("tune", f"{VECTOR_ADD}:hip", "--key", "n=1024", "--device", "cpu0")
    assert done.returncode == 2
    assert "cannot be tuned on cpu0: kernels in hip run on GPUs" in done.stderr, done.stderr


def test_tune_takes_a_build_for_kernels_that_need_one_and_for_no_other(tmp_path):
    kernel = as_triton(tmp_path / "kernel")
    for arguments, said in (
        ((harness.QUICK, "--build", tmp_path), "takes no --build"),
        ((kernel,), "python3 -m wavetune pack"),
        ((kernel, "--build", tmp_path / "absent"), "absent/build.json"),
    ):
        done = agent("tune", *arguments, "--key", "n=10")
        assert done.returncode == 2 and said in done.stderr, done.stderr


def test_tune_says_that_the_default_does_not_work(tmp_path):
    folder = tmp_path / "kernel"
    folder.mkdir()
    for file in harness.MISBEHAVING.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    space = json.loads((folder / "space.json").read_text())
    space["default"] = {"MODE": "crash"}
    (folder / "space.json").write_text(json.dumps(space))
    done = tune(folder, "n=1000", tmp_path / "state")
    assert done.returncode == 1 and "baseline: killed by signal 11" in done.stderr
    space["conditions"] = ["MODE == 'good'"]
    (folder / "space.json").write_text(json.dumps(space))
    done = tune(folder, "n=1000", tmp_path / "state")
    assert done.returncode == 2 and "excluded by a condition" in done.stderr
    space = {"parameters": {"MODE": ["wrong", "slow"]}, "default": {"MODE": "slow"}, "conditions": ["MODE == 'none'"]}
    del space["default"]
    (folder / "space.json").write_text(json.dumps(space))
    done = tune(folder, "n=1000", tmp_path / "state")
    assert done.returncode == 2 and "no point of the space" in done.stderr


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def hanging_tune(state):
    """A `tune` whose worker hangs in a config: a process and its worker's id."""
    process = subprocess.Popen([str(a) for a in (AGENT, "tune", harness.MISBEHAVING, "--key", "n=1000", "--state", state)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(3)
    return process, wait_until(lambda: children_of(process.pid), 20, "a worker")[0]


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_tune_told_to_end_takes_its_worker_with_it(tmp_path):
    process, worker = hanging_tune(tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 1
    assert "stopped before the end" in process.stderr.read()
    wait_until(lambda: is_gone(worker), 10, "the worker's end")


def test_a_killed_tune_takes_its_worker_with_it(tmp_path):
    process, worker = hanging_tune(tmp_path)
    process.kill()
    process.wait(20)
    wait_until(lambda: is_gone(worker), 10, "the worker's end")


def test_run_needs_a_url_and_a_token_that_the_server_knows(server, tmp_path):
    done = agent("run", "--state", tmp_path)
    assert done.returncode == 2 and "--url" in done.stderr
    done = agent("run", "--state", tmp_path, "--url", server.url, environment={"WAVETUNE_TOKEN": "wt_wrong"})
    assert done.returncode == 4 and "401" in done.stderr
    assert "wt_wrong" not in done.stderr


def test_run_with_a_device_that_is_not_there_is_refused(server, tmp_path):
    done = agent("run", "--state", tmp_path, "--url", server.url, "--device", "gpu77")
    assert done.returncode == 2 and "gpu77" in done.stderr


def test_two_agents_cannot_share_a_state_folder(server, start):
    first = start(harness.Agent, server, name="a")
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
    done = agent("run", "--state", first.state, "--url", server.url, environment={"WAVETUNE_TOKEN": server.token})
    assert done.returncode == 2 and "another agent works in" in done.stderr


def test_an_agent_keeps_its_id_over_restarts(server, start):
    for _ in range(2):
        one = start(harness.Agent, server, name="a")
        wait_until(lambda: "enrolled" in one.messages, 30, "the enrolment")
        assert one.stop() == 0
    assert len(server.items("/v1/agents")) == 1


def test_an_agent_without_work_ends_when_it_was_told_to(server, start):
    one = start(harness.Agent, server, options=("--idle-exit", "1"))
    assert one.process.wait(30) == 0


def test_an_agent_told_to_end_hands_its_lease_back_at_once(server, start, tmp_path):
    one = start(harness.Agent, server, name="a", options=("--config-timeout", "3600"))
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
    job = json.loads(wavetune(server, "submit", harness.MISBEHAVING, "--key", "n=1000", "--json").stdout)[0]["job"]
    wait_until(lambda: server.get(f"/v1/jobs/{job}")["measured"] >= 1, 60, "a first measurement, then the hang")
    assert one.stop(10) == 0
    hand = server.items("/v1/agents")[0]["agent"]
    answer = server.request("POST", "/v1/leases", {"agent": hand, "device": "cpu0", "nonce": "next", "wait": 5})
    assert answer.status == 200, "the rest of the lease is there for the next one, long before it would have expired"
    assert not [m for m in server.items(f"/v1/jobs/{job}/measurements") if m["late"]]


def test_an_agent_that_waits_for_its_server_works_when_it_comes(start, database, tmp_path):
    server = start(harness.Server, database)
    port = server.port
    server.stop()
    one = start(harness.Agent, server, name="a")
    wait_until(lambda: "cannot enrol yet" in one.messages, 30, "a try in vain")
    again = start(harness.Server, database, port=port)
    wait_until(lambda: again.items("/v1/agents"), 30, "the enrolment")
    assert one.process.poll() is None


def test_an_agent_told_to_end_while_it_enrols_again_does_not_wait_for_the_answer(tmp_path):
    asked, answered = threading.Event(), threading.Event()

    def answer(method, path):
        asked.set()
        answered.wait(60)
        return 503, {}

    with harness.FakeServer(answer) as fake:
        state = tmp_path / "agent-a"
        state.mkdir()
        (state / "agent").write_text("0123456789abcdef0123456789abcdef\n")
        one = harness.Agent(fake, tmp_path, name="a")
        assert asked.wait(30)
        assert one.stop() == 0
        assert "was cancelled" in one.messages
        answered.set()


def test_what_was_measured_while_the_server_was_away_is_posted_by_the_next_run(start, database):
    server = start(harness.Server, database)
    one = start(harness.Agent, server, name="a", options=QUICK)
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
    job = json.loads(wavetune(server, "submit", harness.QUICK, "--key", "n=100003", "--json").stdout)[0]["job"]
    wait_until(lambda: server.get(f"/v1/jobs/{job}")["measured"] >= 1, 60, "a first measurement")
    port = server.port
    server.kill()
    wait_until(lambda: "wait in the spool" in one.messages, 60, "results that wait")
    one.kill()
    again = start(harness.Server, database, port=port)
    two = start(harness.Agent, again, name="a", options=QUICK)
    wait_until(lambda: "posted before anything else" in two.messages, 30, "the replay")
    wait_until(lambda: again.get(f"/v1/jobs/{job}")["state"] == "done", 120, "the job")
    rows = [(m["config"], m["stage"], m["process"]) for m in again.items(f"/v1/jobs/{job}/measurements") if not m["late"]]
    assert len(rows) == len(set(rows))


def test_the_environment_that_env_prints_is_what_submit_takes(server, tmp_path):
    """Before any agent enrolled: the server knows no environment then, so it must be whole."""
    printed = agent("env", "--device", "cpu0").stdout
    (tmp_path / "environment.json").write_text(printed)
    kernel = small_kernel(tmp_path / "kernel")
    answers = [json.loads(wavetune(server, "submit", kernel, "--key", "n=5", "--environment", given, "--json").stdout)[0]
               for given in (printed, f"@{tmp_path}/environment.json")]
    assert answers[0]["environment"] == json.loads(printed)
    assert [a["created"] for a in answers] == [True, False]


def test_a_state_folder_that_cannot_be_made_or_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "spool").mkdir()  # in the way of the file of that name, for root too
    (closed / "agent.lock").mkdir()
    for state in (tmp_path / "file/state", "/proc/state", closed):
        done = agent("run", "--url", "http://127.0.0.1:9", "--state", state)
        assert done.returncode == 2 and str(state) in done.stderr and done.stderr.count("\n") == 1, (state, done)


def small_job(server, kernel, run=""):
    return json.loads(wavetune(server, "submit", kernel, "--key", "n=1003", "--run", run, "--json").stdout)[0]["job"]


def state_of(server, job):
    return server.get(f"/v1/jobs/{job}")["state"]


def test_a_drained_agent_gets_no_lease_until_it_is_undrained(start, database, tmp_path):
    server = start(harness.Server, database, options=("--heartbeat-ms", "200"))
    kernel = small_kernel(tmp_path / "kernel")
    one = start(harness.Agent, server, name="a", options=QUICK)
    enrolled = wait_until(lambda: server.items("/v1/agents"), 30, "the agent")[0]
    path = f"/v1/agents/{enrolled['agent']}/drain"
    assert server.request("POST", path, {"reason": "new disks"}).status == 200
    wait_until(lambda: "drained: it gets no more leases" in one.messages, 20, "the agent to hear of it")
    job = small_job(server, kernel)
    assert "draining: new disks" in wavetune(server, "agents").stdout
    answer = server.request("POST", "/v1/leases", {"agent": enrolled["agent"], "device": "cpu0", "nonce": "n", "wait": 1})
    assert answer.status == 403 and state_of(server, job) == "queued" and "lease: began" not in one.messages
    assert server.request("POST", path, {"reason": None}).status == 200
    wait_until(lambda: state_of(server, job) == "done", 60, "the job")
    assert "no longer drained" in one.messages


def test_an_agent_whose_token_was_revoked_says_so_and_works_again_with_another(start, database, tmp_path):
    server = start(harness.Server, database, options=("--heartbeat-ms", "200"))
    kernel = small_kernel(tmp_path / "kernel")
    tokens = [harness.make_token(database, name, "agent") for name in ("first", "second")]
    one = start(harness.Agent, server, name="a", options=QUICK, token=tokens[0])
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
    assert server.request("DELETE", "/v1/tokens/first").status == 204
    wait_until(lambda: "no heartbeat: the server answered 401" in one.messages, 30, "a refused heartbeat")
    assert one.process.poll() is None and tokens[0] not in one.messages
    job = small_job(server, kernel)
    assert one.stop() == 0
    assert state_of(server, job) == "queued", "its long poll, begun with the token, got no lease either"
    start(harness.Agent, server, name="a", options=QUICK, token=tokens[1])
    wait_until(lambda: state_of(server, job) == "done", 60, "the job")
    assert len(server.items("/v1/agents")) == 1


def test_what_an_agent_with_a_revoked_token_measured_is_not_lost(start, database, tmp_path):
    server = start(harness.Server, database, options=("--heartbeat-ms", "200", "--lease-ms", "3000"))
    kernel = small_kernel(tmp_path / "kernel", {"REPEAT": [1, 8], "TURN": list(range(8))})
    tokens = [harness.make_token(database, name, "agent") for name in ("first", "second")]
    one = start(harness.Agent, server, name="a", options=QUICK, token=tokens[0])
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
    job = small_job(server, kernel)
    wait_until(lambda: "lease: began" in one.messages, 30, "the lease")
    server.request("DELETE", "/v1/tokens/first")
    wait_until(lambda: "401" in one.messages, 60, "a refusal")
    one.kill()  # told to end, it would try to post for some seconds more
    start(harness.Agent, server, name="a", options=QUICK, token=tokens[1])
    wait_until(lambda: state_of(server, job) == "done", 120, "the job")
    rows = [(m["config"], m["stage"], m["process"]) for m in server.items(f"/v1/jobs/{job}/measurements") if not m["late"]]
    assert len(rows) == len(set(rows))


def test_a_second_agent_gets_the_rest_of_a_lease_when_the_first_is_told_to_end(start, database, tmp_path):
    """Without waiting for the lease to expire: here that would take ten minutes."""
    server = start(harness.Server, database, options=("--lease-ms", "600000"))
    kernel = tmp_path / "kernel"
    small_kernel(kernel, {"REPEAT": [1, 2, 4, 8], "TURN": [0, 1, 2]})
    one = start(harness.Agent, server, name="a", options=QUICK)
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
    job = small_job(server, kernel)
    wait_until(lambda: "lease: began" in one.messages, 30, "the lease")
    assert one.stop() == 0
    start(harness.Agent, server, name="b", options=QUICK)
    wait_until(lambda: state_of(server, job) == "done", 60, "the job")
