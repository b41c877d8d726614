"""The agent's scheduling: a process that changes it, where nothing filters its calls, changes it until the next check. What a
sandbox refuses is in test_sandbox.py."""

import os
import re
import subprocess

import harness
import pytest
import test_sandbox
from harness import small_kernel, wait_until

# Policy and CPUs of every thread of the agent, where nothing filters calls; and what each worker begins with.
RESCHEDULE = r"""
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", getppid());
  dprintf(2, "began with policy %d\n", sched_getscheduler(0));
  DIR *threads = opendir(path);
  for (struct dirent *entry; ATTACK && (entry = readdir(threads));) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(CPU, &one);
    sched_setscheduler(atoi(entry->d_name), ATTACK, &(struct sched_param){0});
    sched_setaffinity(atoi(entry->d_name), sizeof one, &one);
  }
"""


def scheduling_of(agent):
    threads = [int(thread) for thread in os.listdir(f"/proc/{agent.process.pid}/task")]
    return {(os.sched_getscheduler(thread), frozenset(os.sched_getaffinity(thread))) for thread in threads}


def scheduling_in_conditions(server, job):
    return {m["conditions"].get("scheduling") for m in server.items(f"/v1/jobs/{job}/measurements") if m["outcome"] == "correct"}


@pytest.mark.parametrize("policy, found", [("SCHED_BATCH", "restored"), ("SCHED_IDLE", "changed")])
def test_the_agent_restores_its_scheduling_or_says_that_it_cannot(server, start, tmp_path, policy, found):
    agent = start(test_sandbox.UnprivilegedAgent, server, environment={"WAVETUNE_SANDBOX": "none"})
    wait_until(lambda: "enrolled" in agent.messages, 30, "the agent to enrol")
    before = scheduling_of(agent)
    attack = RESCHEDULE.replace("CPU,", f"{min(os.sched_getaffinity(0))},")
    job = test_sandbox.submit(server, test_sandbox.attacking_kernel(tmp_path / "kernel", attack.replace("ATTACK", policy)))
    assert test_sandbox.wait_ended(server, job)["state"] == "done", agent.messages[-3000:]
    assert scheduling_in_conditions(server, job) == {found}

    honest = test_sandbox.submit(server, test_sandbox.attacking_kernel(tmp_path / "honest", attack.replace("ATTACK", "0")))
    assert test_sandbox.wait_ended(server, honest)["state"] == "done", agent.messages[-3000:]
    lines = [line for line in agent.messages.splitlines() if " scheduling: another process changed" in line]
    assert len(before) == 1 and lines
    if found == "restored":
        assert scheduling_of(agent) == before and all(" restored to SCHED_OTHER, " in line for line in lines), lines
        assert scheduling_in_conditions(server, honest) == {None}
        began = set(re.findall(r"began with policy (\d+)", agent.messages.split(f" job={honest} ")[-1]))
        assert began == {"0"}
    else:
        assert {cpus for _, cpus in scheduling_of(agent)} == {cpus for _, cpus in before}
        assert len(lines) == 1 and "cannot be restored" in lines[0] and "LimitNICE=+0" in lines[0], lines
        assert scheduling_in_conditions(server, honest) == {"changed"}
    agent.kill()


def test_the_agent_keeps_the_scheduling_that_it_was_started_with_whatever_its_user(server, start, tmp_path):
    policy = os.SCHED_BATCH if os.geteuid() else os.SCHED_IDLE  # which only root may leave
    agent = start(harness.Agent, server, options=test_sandbox.QUICK)
    wait_until(lambda: "enrolled" in agent.messages, 30, "the agent to enrol")
    before = scheduling_of(agent)
    for thread in os.listdir(f"/proc/{agent.process.pid}/task"):
        os.sched_setaffinity(int(thread), {min(os.sched_getaffinity(0))})
        os.sched_setscheduler(int(thread), policy, os.sched_param(0))
    job = test_sandbox.submit(server, small_kernel(tmp_path / "kernel"))
    assert test_sandbox.wait_ended(server, job)["state"] == "done", agent.messages[-3000:]
    assert scheduling_of(agent) == before and "scheduling: another process changed" in agent.messages
    assert scheduling_in_conditions(server, job) == {None}  # restored before the first measurement


CONFINED = """
import ctypes, os, platform
other = os.getppid()
ioprio_set = {"x86_64": 251, "aarch64": 30}[platform.machine()]
library = ctypes.CDLL(None, use_errno=True)

def disk():
    if library.syscall(ioprio_set, 1, other, 3 << 13) < 0:
        raise OSError(ctypes.get_errno(), "refused")

for attempt in (lambda: os.setpriority(os.PRIO_PROCESS, other, 19), lambda: os.sched_setscheduler(other, os.SCHED_IDLE, os.sched_param(0)),
                lambda: os.sched_setparam(other, os.sched_param(0)), disk):
    try:
        attempt()
        print("SUCCEEDED")
    except OSError as error:
        print(error.errno)
before = os.sched_getaffinity(other)
os.sched_setaffinity(other, {min(before)})
print("kept" if os.sched_getaffinity(other) == before else "SUCCEEDED")
os.sched_setaffinity(0, {min(before)})  # its own
print(os.sched_getaffinity(0) == {min(before)})
"""


def test_a_builders_child_reaches_the_scheduling_of_no_other_process(tmp_path):
    done = subprocess.run([harness.BUILD / "wavetune-agent", "confine", str(1 << 30), "4096", "60", tmp_path, "--", "/usr/bin/python3", "-c",
                           CONFINED], capture_output=True, text=True, timeout=600)
    assert done.stderr.split() == ["1", "1", "1", "1", "kept", "True"], done.stderr
