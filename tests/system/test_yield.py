"""Devices that an agent gives back to others: what is measured, who measures the rest, and what people see of it."""

import os
import re
import signal
import subprocess

import harness
import pytest
from harness import wait_until, wavetune
from test_agent import PATIENT, QUICK, agent, assert_nothing_twice, small_job, state_of

FAKE_HIP = harness.BUILD / "tests/fake_hip/libfake_hip.so"
BEATS = ("--heartbeat-ms", "200", "--lease-ms", "600000")  # no lease expires during a test: it is handed back
MANY = {"REPEAT": [1, 2, 4, 8], "TURN": [0, 1, 2]}


def device_of(server, name):
    found = [a for a in server.items("/v1/agents") if a["name"] == name]
    return found[0]["devices"][0] if found else None


def is_yielded(server, name):
    return (device_of(server, name) or {}).get("yielded_since")


def measured_by(postgres, database, name):
    """How many measurements of the agent are stored."""
    return int(postgres.sql(f"select count(*) from measurements m join agents a on a.id = m.agent where a.name = '{name}'",
                            conninfo=database))


def test_a_device_is_given_back_in_the_middle_of_a_lease_and_another_agent_measures_the_rest(start, postgres, database, tmp_path):
    server = start(harness.Server, database, options=BEATS)
    gated = harness.GatedKernel(tmp_path / "kernel", MANY)
    busy = tmp_path / "busy"
    first = start(harness.Agent, server, name="first", options=(*PATIENT, "--busy-file", busy, "--free-seconds", "1"))
    wait_until(lambda: server.items("/v1/agents"), 60, "the agent")
    job = small_job(server, gated.folder)
    gated.wait_reached()
    busy.write_text("slurm job 4711\nof someone\n")
    wait_until(lambda: "is given back: slurm job 4711" in first.messages, 30, "the look")
    wait_until(lambda: re.search(r"lease: stopped lease=\d+", first.messages), 30, "the end of its lease")
    wait_until(lambda: is_yielded(server, "first"), 30, "the state that people see")
    device = device_of(server, "first")
    assert device["yield_reason"] == "slurm job 4711" and "yielded" not in device["facts"]
    wait_until(lambda: re.search(r"1 yielded +slurm job 4711 ", wavetune(server, "agents").stdout), 30, "the node's line")
    assert 'lease: handed back lease=1 epoch=1 cause=yielded reason="slurm job 4711"' in server.messages

    gated.open()
    start(harness.Agent, server, name="second", options=QUICK)
    wait_until(lambda: state_of(server, job) == "done", 120, "the job")
    assert measured_by(postgres, database, "first") == 0, "its first config was being measured when the file appeared"
    assert measured_by(postgres, database, "second") >= 12
    assert_nothing_twice(server, job)
    assert first.messages.count("lease: began") == 1, "it took no other lease"

    busy.unlink()
    wait_until(lambda: "it works again" in first.messages, 30, "the first agent's device to be free")
    wait_until(lambda: not is_yielded(server, "first"), 30, "the state to be live again")
    assert device_of(server, "first")["yield_reason"] is None
    wait_until(lambda: "yielded" not in wavetune(server, "agents").stdout, 30, "the node's line to be as before")


def test_what_was_measured_on_the_free_device_is_kept_and_the_rest_of_the_lease_is_not(start, database, tmp_path):
    """The kernel waits at the gate in its last configs, when the results of the first have been posted."""
    server = start(harness.Server, database, options=BEATS)
    gated = harness.GatedKernel(tmp_path / "kernel", {"REPEAT": [1, 2, 3, 4, 64], "TURN": [0, 1]}, when="REPEAT == 64")
    busy = tmp_path / "busy"
    busy.mkdir()
    options = (*PATIENT, "--busy-file", busy, "--free-seconds", "1")
    first = start(harness.Agent, server, name="first", options=options)
    wait_until(lambda: server.items("/v1/agents"), 60, "the agent")
    job = small_job(server, gated.folder)
    gated.wait_reached()
    before = server.items(f"/v1/jobs/{job}/measurements")
    (busy / "gpu7").touch()  # another device's
    (busy / "cpu0").touch()
    wait_until(lambda: "cpu0 is given back: the busy file exists" in first.messages, 30, "the look")
    wait_until(lambda: re.search(r"lease: stopped lease=\d+", first.messages), 30, "the end of its lease")
    gated.open()
    wait_until(lambda: is_yielded(server, "first"), 30, "the heartbeat")
    after = server.items(f"/v1/jobs/{job}/measurements")
    assert len(after) >= len(before) and not [m for m in after if m["outcome"] != "correct"], "a killed worker is no config's failure"

    (busy / "cpu0").unlink()
    wait_until(lambda: state_of(server, job) == "done", 120, "the job, by the same agent")
    assert_nothing_twice(server, job)
    assert first.stop() == 0


def test_a_device_that_is_busy_from_the_start_takes_no_lease_until_it_is_free(start, database, tmp_path):
    server = start(harness.Server, database, options=BEATS)
    kernel = harness.small_kernel(tmp_path / "kernel")
    busy = tmp_path / "busy"
    busy.write_text("")
    one = start(harness.Agent, server, name="one", options=(*QUICK, "--busy-file", busy, "--free-seconds", "0"))
    wait_until(lambda: is_yielded(server, "one"), 30, "the state")
    job = small_job(server, kernel)
    another = start(harness.Agent, server, name="another", options=QUICK)
    wait_until(lambda: state_of(server, job) == "done", 120, "the job, by the other agent")
    assert "lease: began" not in one.messages and another.messages.count("lease: began") > 0
    assert another.stop() == 0
    busy.unlink()
    job = small_job(server, kernel, run="again")
    wait_until(lambda: state_of(server, job) == "done", 120, "the job, once the device is free")
    assert one.stop() == 0


def test_a_device_that_waits_for_work_is_given_back_too(start, database, tmp_path):
    """Its long poll ends: a lease that it got would be handed back."""
    server = start(harness.Server, database, options=BEATS)
    busy = tmp_path / "busy"
    one = start(harness.Agent, server, name="one", options=(*QUICK, "--busy-file", busy, "--free-seconds", "0"))
    wait_until(lambda: "\nwavetune_parked 1\n" in server.request("GET", "/metrics").body.decode(), 30, "its long poll")
    busy.write_text("a\tb\u00e9\n")
    wait_until(lambda: is_yielded(server, "one"), 30, "the state")
    assert device_of(server, "one")["yield_reason"] == "a?b??", "what is no plain text is replaced"
    job = small_job(server, harness.small_kernel(tmp_path / "kernel"))
    assert state_of(server, job) == "queued"
    busy.unlink()
    wait_until(lambda: state_of(server, job) == "done", 120, "the job")
    assert "gets no lease" not in one.messages, "a poll that it ended itself is no trouble"


def test_the_state_moves_with_an_agent_from_one_server_to_another(start, database, tmp_path):
    """What the first server knew of it must not hide what the second gets."""
    servers = [start(harness.Server, database, options=BEATS) for _ in range(2)]
    hands = servers[0].request("POST", "/v1/agents", {
        "boot": "b", "name": "one", "version": "1",
        "devices": [{"device": d, "backend": "cpu", "environment": {"cpu": "c", "gpu": "g", "arch": "a", "compute_units": 1, "partition": ""},
                     "facts": {"cpus": 1}} for d in ("d0", "d1")]}).json["agent"]

    def beat(server, yielded):
        body = {"boot": "b"} | ({} if yielded is None else {"yielded": yielded})

        def answer():
            got = server.request("POST", f"/v1/agents/{hands}/heartbeat", body)
            return got if got.status != 503 else None  # this server looks the agent up

        assert wait_until(answer, 30, "the heartbeat").status == 200

    def state(server):
        return [d["yield_reason"] for d in server.items("/v1/agents")[0]["devices"]]

    one = {"device": "d1", "reason": "someone", "for_ms": 5000}
    beat(servers[0], [one])
    wait_until(lambda: state(servers[1]) == [None, "someone"], 30, "the state")
    since = servers[1].items("/v1/agents")[0]["devices"][1]["yielded_since"]
    beat(servers[1], [one | {"for_ms": 6000}])
    beat(servers[1], None)
    beat(servers[1], [])
    wait_until(lambda: state(servers[0]) == [None, None], 30, "the end of it")
    beat(servers[0], [one])
    wait_until(lambda: state(servers[1]) == [None, "someone"], 30, "the same again")
    assert servers[1].items("/v1/agents")[0]["devices"][1]["yielded_since"] > since
    assert servers[0].items("/v1/agents")[0]["devices"][1]["facts"] == {"cpus": 1}
    for bad in ([one | {"reason": "a\nb"}], [one | {"for_ms": -1}], [{"device": "d0"}], "d0"):
        got = servers[0].request("POST", f"/v1/agents/{hands}/heartbeat", {"boot": "b", "yielded": bad})
        assert got.status in (400, 422) and got.json["pointer"].startswith("/yielded"), got


def test_yield_when_busy_is_refused_where_nothing_can_be_seen(server, tmp_path):
    done = agent("run", "--state", tmp_path, "--url", server.url, "--yield-when-busy", environment={"WAVETUNE_TOKEN": server.token})
    assert done.returncode == 2 and "--busy-file" in done.stderr.splitlines()[-1]


def kfd(tmp_path, pci="ffff:ff:1f.0"):
    """What AMD's driver shows of one GPU and no process."""
    node = tmp_path / "topology/0"
    node.mkdir(parents=True)
    domain, bus, device, function = (int(part, 16) for part in re.split("[:.]", pci))
    (node / "gpu_id").write_text("4242\n")
    (node / "properties").write_text(
        f"simd_count 1216\nsimd_per_cu 4\nwave_front_size 64\ngfx_target_version 90402\nnum_xcc 8\ndomain {domain}\n"
        f"location_id {bus << 8 | device << 3 | function}\n")
    processes = tmp_path / "processes"
    processes.mkdir()
    return {"WAVETUNE_KFD_TOPOLOGY": str(tmp_path / "topology"), "WAVETUNE_KFD_PROCESSES": str(processes),
            "WAVETUNE_PID_NAMESPACE": os.readlink("/proc/self/ns/pid")}, processes


def process_put(processes, pid, bytes_):
    folder = processes / f"new-{pid}"
    folder.mkdir()
    (folder / "vram_4242").write_text(f"{bytes_}\n")
    folder.rename(processes / str(pid))


@pytest.mark.skipif(not FAKE_HIP.exists(), reason="the fake HIP runtime was not built")
def test_a_process_that_appears_on_a_gpu_gets_it(start, database, tmp_path):
    """The HIP runtime is tests/fake_hip; the driver's list of processes is a folder of files."""
    server = start(harness.Server, database, options=BEATS)
    files, processes = kfd(tmp_path)
    environment = {"WAVETUNE_HIP_LIBRARY": str(FAKE_HIP), "WAVETUNE_ARCH": "gfx942", **files}
    one = start(harness.Agent, server, name="one", environment=environment,
                options=("--device", "hip0", *QUICK, "--yield-when-busy", "--free-seconds", "0"))
    wait_until(lambda: "agent: enrolled" in one.messages, 60, "the agent")
    own = subprocess.run(["pgrep", "-P", str(one.process.pid)], capture_output=True, text=True).stdout.split()
    assert own, "the worker that looks"
    for pid in own:
        process_put(processes, pid, 4096)
    other = subprocess.Popen(["sleep", "600"])
    try:
        process_put(processes, other.pid, 0)
        assert not is_yielded(server, "one") and "is given back" not in one.messages
        os.kill(int(own[0]), signal.SIGKILL)  # the next look is made by a new worker
        wait_until(lambda: "cannot be seen: the process that looks was killed by signal 9" in one.messages, 30, "the log")
        (processes / str(other.pid) / "vram_4242").write_text("8192\n")
        wait_until(lambda: f"hip0 is given back: process {other.pid} (sleep) uses it" in one.messages, 30, "the look")
        wait_until(lambda: is_yielded(server, "one"), 30, "the state")
    finally:
        other.kill()
        other.wait()
    wait_until(lambda: "it works again" in one.messages, 30, "the end of that process, whose folder remains")
    wait_until(lambda: not is_yielded(server, "one"), 30, "the state")


@pytest.mark.skipif(not FAKE_HIP.exists(), reason="the fake HIP runtime was not built")
def test_a_gpu_whose_processes_cannot_be_seen_any_more_is_given_back(start, database, tmp_path):
    server = start(harness.Server, database, options=BEATS)
    files, processes = kfd(tmp_path)
    environment = {"WAVETUNE_HIP_LIBRARY": str(FAKE_HIP), "WAVETUNE_ARCH": "gfx942", **files}
    options = ("--device", "hip0", "--device", "cpu0", *QUICK, "--yield-when-busy", "--free-seconds", "0")
    one = start(harness.Agent, server, name="one", environment=environment, options=options)
    wait_until(lambda: "agent: enrolled" in one.messages, 60, "the agent")
    processes.rmdir()
    wait_until(lambda: "cannot be seen: hip0: the driver lists no processes" in one.messages, 30, "the log")
    wait_until(lambda: "hip0 is given back: the processes that use it cannot be seen" in one.messages, 30, "the device")
    processes.mkdir()
    wait_until(lambda: "it works again" in one.messages, 30, "the device to be seen again")
    assert "cpu0 is given back" not in one.messages, "that concerns GPUs only"
    assert one.stop() == 0
    processes.rmdir()
    done = agent("run", "--state", tmp_path / "other", "--url", server.url, *options,
                 environment={"WAVETUNE_TOKEN": server.token, **environment})
    assert done.returncode == 2 and "the driver lists no processes" in done.stderr
