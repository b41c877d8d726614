"""A GPU that an agent gives back: a process of another program opens it in the middle of a lease (`run.sh yield`).

    tests/gpu/yielding.py PROGRAMS SCRATCH       with WAVETUNE_URL and WAVETUNE_TOKEN of a server
    tests/gpu/yielding.py --hold                 the other program: opens CUDA's first GPU until it is killed

The last line says how long the GPU was still used after the other process had opened it. Exits with 77 where the driver does not
list processes by the ids that they have here.
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

SECONDS = 60


def hold():
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    for code in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)):
        if code != 0:
            sys.exit(f"CUDA returned {code}")
    print(f"{time.monotonic()}", flush=True)
    time.sleep(600)


def wait(condition, what):
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    sys.exit(f"waited {SECONDS} s for {what}")


def users(parent):
    """Children of the agent that have a context on a GPU, by the driver. What looks for other programs has none."""
    found = []
    listed = subprocess.run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"], capture_output=True, text=True)
    for pid in listed.stdout.split():
        path = pathlib.Path("/proc", pid)
        try:
            if int((path / "stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                found.append(path)
        except OSError:
            pass
    return found


def describe(process):
    """What a process that does not end is doing, as far as the kernel tells."""
    texts = []
    for name in ("cmdline", "stat", "wchan", "stack"):
        try:
            texts.append((process / name).read_text().replace("\0", " ")[:300])
        except OSError:
            pass
    return " | ".join(texts)


def wait_for_the_gpu(agent):
    """Until no worker of the agent has it open; says each second which one still has."""
    began = said = time.monotonic()
    while still := users(agent.pid):
        if time.monotonic() > said + 1:
            said = time.monotonic()
            print(f"{said - began:.1f} s:", *(describe(process) for process in still), sep="\n  ")
        if said > began + SECONDS:
            sys.exit(f"waited {SECONDS} s for the workers to leave the GPU")
        time.sleep(0.005)
    return time.monotonic()


def ask(path):
    request = urllib.request.Request(os.environ["WAVETUNE_URL"] + path, headers={"Authorization": f"Bearer {os.environ['WAVETUNE_TOKEN']}"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)


def main(programs, scratch):
    log = scratch / "agent-yield.log"
    environment = {**os.environ, "WAVETUNE_PID_NAMESPACE": os.readlink("/proc/self/ns/pid")}
    agent = subprocess.Popen([programs / "wavetune-agent", "run", "--state", scratch / "agent-yield", "--name", "yield", "--device",
                              "cuda0", "--yield-when-busy", "--free-seconds", "1", "--screen-rounds", "1000"], stderr=open(log, "wb"), env=environment)
    holder = None
    try:
        wait(lambda: agent.poll() is not None or "agent: enrolled" in log.read_text(), "the agent's enrolment")
        job = json.loads(subprocess.run(
            [programs / "wavetune", "submit", "tests/data/kernels/gpu_quick", "--key", "n=16777216", "--run", "yield", "--json"],
            check=True, capture_output=True, text=True).stdout)[0]["job"]
        wait(lambda: "lease: began" in log.read_text() or "is given back" in log.read_text(), "a lease")
        wait(lambda: users(agent.pid) or "is given back" in log.read_text(), "a worker on the GPU")
        if "is given back" in log.read_text():
            print(log.read_text())
            print("the driver lists the agent's own workers by ids of another namespace")
            sys.exit(77)

        time.sleep(2)  # it has opened the GPU and measures
        holder = subprocess.Popen([sys.executable, __file__, "--hold"], stdout=subprocess.PIPE, text=True)
        held_s = float(holder.stdout.readline())
        if "is given back" not in log.read_text():
            time.sleep(3)
        if "is given back" not in log.read_text():
            print(log.read_text())
            print("the driver does not list a process of another program")
            sys.exit(77)
        left_s = wait_for_the_gpu(agent)
        wait(lambda: any(d["yielded_since"] for a in ask("/v1/agents")["items"] for d in a["devices"]), "the state")
        holder.kill()
        holder.wait()
        wait(lambda: ask(f"/v1/jobs/{job}")["state"] == "done", "the job, once the GPU was free again")
        print(log.read_text())
        print(f"its workers were gone at most {max(0.0, left_s - held_s):.2f} s after another process had opened the GPU")
    finally:
        for process in filter(None, (holder, agent)):
            process.terminate()
            process.wait()


if __name__ == "__main__":
    hold() if sys.argv[1:] == ["--hold"] else main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
