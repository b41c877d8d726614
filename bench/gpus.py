"""One campaign of many keys on 1, 2 and 4 devices of one host, through a server: how much of N devices is used?

    bench/gpus.py [--counts 1,2,4] [--kernel matmul] [--keys N] [--copies N] [--postgres-bin DIR] [--cpu | --fake] [--json FILE]

A private server, and one agent with this number of devices. Every count tunes the same keys (--copies times) from the first
lease to the last verdict, under its own tags, so that none begins with the winners of another count as incumbents. The agent
has its code from an earlier campaign. Its first jobs, in which each device starts a process, are timed separately, because an
agent runs for days. Efficiency is the time on one device over N times the time on N. Winners agree when each is in the
other's equivalence set. With --fake the devices are simulated (tests/fake_hip): a launch takes its time and no core. The loss
is then that of the server and the agent, on the cores of this machine; nothing is learned about kernels.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import tuning


class Server:
    """`wavetune-server dev` and the requests to it."""

    def __init__(self, folder, postgres_bin):
        command = [tuning.program("wavetune-server"), "dev", "--folder", folder, "--port", "0", "--json"]
        if postgres_bin:
            command += ["--postgres-bin", postgres_bin]
        if os.geteuid() == 0:
            user = "postgres" if subprocess.run(["id", "postgres"], capture_output=True).returncode == 0 else "nobody"
            command += ["--user", user]
        environment = {**os.environ, "WAVETUNE_MIGRATIONS": str(tuning.ROOT / "migrations")}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        ready = json.loads(self.process.stdout.readline() or sys.exit("the server did not start"))
        self.environment = {**os.environ, "WAVETUNE_URL": ready["url"], "WAVETUNE_TOKEN": ready["token"]}

    def wavetune(self, *arguments):
        done = subprocess.run([tuning.program("wavetune"), *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                              env=self.environment)
        if done.returncode:
            sys.exit(f"wavetune {arguments[0]} ended with status {done.returncode}: {done.stdout[-2000:]}")
        return done.stdout

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def fake_kernel(scratch):
    """A folder with one kernel that tests/fake_hip can run: 96 configs, each of which takes half a percent
    longer than the one before, the first 500 us."""
    folder = pathlib.Path(scratch, "fake")
    folder.mkdir()
    (folder / "add.hip").write_text('extern "C" __global__ void fake_add(float *y, const float *x, int64_t n) {\n'
                                    "  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
                                    "  if (i < n && blockIdx.y == 0) y[i] = x[i] + 1;\n}\n")
    (folder / "reference.c").write_text("#include <stdint.h>\ndouble y_at(int64_t i, float *y, const float *x, int64_t n) {\n"
                                        "  return x[i] + 1.0;\n}\n")
    (folder / "space.json").write_text(json.dumps({"parameters": {"SLOWER": list(range(96))}, "default": {"SLOWER": 95}}))
    (folder / "kernel.json").write_text(json.dumps({
        "name": "fake", "key": ["n"], "reference": {"source": "reference.c", "outputs": {"y": "y_at"}, "rtol": 1e-6, "atol": 1e-6},
        "arguments": [{"name": "y", "dtype": "float32", "shape": ["n"], "access": "write"},
                      {"name": "x", "dtype": "float32", "shape": ["n"], "access": "read"},
                      {"name": "n", "dtype": "int64", "value": "n"}],
        "versions": {"only": {"language": "hip", "entry": "fake_add", "sources": ["add.hip"],
                              "launch": {"grid": ["ceil_div(n, 64)", "1 + 5 * SLOWER"], "block": [64]}}}}))
    return folder


def fake_gpus():
    """The environment of eight simulated GPUs, for which clang-19 compiles."""
    library = pathlib.Path(tuning.program("wavetune-agent")).parent / "tests/fake_hip/libfake_hip.so"
    if not library.exists():
        sys.exit(f"there is no {library}: build the tests")
    return {"WAVETUNE_HIP_LIBRARY": str(library), "WAVETUNE_ARCH": "gfx942", "WAVETUNE_KFD_TOPOLOGY": "/nonexistent",
            "FAKE_HIP_COUNT": "8", "FAKE_HIP_USABLE": "8", "FAKE_HIP_LAUNCH_US": "500", "FAKE_HIP_WAITS": "1"}


def campaign(server, scratch, place, keys, run, devices, copies):
    """The seconds of the agent's first jobs and of the campaign, the jobs, and the times that its devices report."""
    command = [tuning.program("wavetune-agent"), "run", "--state", pathlib.Path(scratch, "agent"), "--name", "bench"]
    for device in devices:
        command += ["--device", device]
    log = open(pathlib.Path(scratch, f"agent-{run}.log"), "w+")
    agent = subprocess.Popen(list(map(str, command)), stderr=log, env={**server.environment, "WAVETUNE_LOG": "info"})
    while "agent: enrolled" not in pathlib.Path(log.name).read_text():
        if agent.poll() is not None:
            sys.exit(f"the agent ended: {pathlib.Path(log.name).read_text()[-1000:]}")
        time.sleep(0.05)
    listed = pathlib.Path(scratch, f"keys-{run}")
    listed.write_text("".join(json.dumps(key) + "\n" for key in keys))
    # More jobs than devices, so that each gets some of them.
    begin, jobs = time.monotonic(), []
    for n in range(2 * len(devices)):
        server.wavetune("submit", place, "--key", tuning.key_text(keys[n % len(keys)]), "--run", run, "--tag", f"{run}-first-{n}")
    for n in range(2 * len(devices)):
        server.wavetune("submit", place, "--key", tuning.key_text(keys[n % len(keys)]), "--run", run, "--tag", f"{run}-first-{n}",
                        "--wait")
    first, begin = time.monotonic() - begin, time.monotonic()
    submit = ["submit", place, "--keys", listed, "--run", run, "--tag"]
    for copy in range(copies):
        server.wavetune(*submit, f"{run}-{copy}")
    for copy in range(copies):
        jobs += json.loads(server.wavetune(*submit, f"{run}-{copy}", "--wait", "--json"))
    seconds = time.monotonic() - begin
    agent.terminate()
    agent.wait(60)
    reports = [line[line.index("device: "):] for line in pathlib.Path(log.name).read_text().splitlines() if " ends after " in line]
    return first, seconds, jobs, reports


def agreement(first, second):
    """How many of the jobs' winners are in the other run's equivalence set."""
    agree = 0
    for a, b in zip(first, second):
        if a["state"] == b["state"] == "done":
            agree += a["winner"]["config"] in b["winner"]["verdict"]["equivalence_set"] and \
                b["winner"]["config"] in a["winner"]["verdict"]["equivalence_set"]
    return agree


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="1,2,4")
    parser.add_argument("--kernel", default="matmul")
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--postgres-bin")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    table = tuning.CPU if arguments.cpu else [k for k in tuning.TRITON if k.name.startswith(arguments.kernel)]
    keys = [{"n": 1024 * n} for n in range(1, 33)] if arguments.fake else table[0].keys
    keys = keys[:arguments.keys]
    if arguments.fake:
        os.environ.update(fake_gpus())
    answer = []
    with tempfile.TemporaryDirectory(prefix="wt-gpus-") as scratch:
        os.chmod(scratch, 0o755)
        place = fake_kernel(scratch) if arguments.fake else table[0].folder(scratch)
        build = None if arguments.cpu or arguments.fake else tuning.pack(table[0], scratch, arguments.arch, keys=keys)[0]
        server = Server(pathlib.Path(scratch, "dev"), arguments.postgres_bin)
        try:
            server.wavetune("kernel", "push", place, *(["--build", build] if build else []))
            names = ["cpu0"] if arguments.cpu else [f"{'hip' if arguments.fake else 'cuda'}{i}" for i in range(8)]
            campaign(server, scratch, place, keys[:1], "first", names[:1], 1)
            for count in map(int, arguments.counts.split(",")):
                first, seconds, jobs, reports = campaign(server, scratch, place, keys, f"on{count}", names[:count], arguments.copies)
                states = [job["state"] for job in jobs]
                answer.append({"devices": count, "first_seconds": first, "seconds": seconds, "jobs": jobs, "said": reports})
                one = answer[0]
                efficiency = one["seconds"] * one["devices"] / (count * seconds)
                print(f"{count} devices: {seconds:.1f} s for {len(jobs)} keys ({states.count('done')} done), efficiency "
                      f"{100 * efficiency:.1f} %, {agreement(one['jobs'], jobs)} of {len(jobs)} winners in both sets; its first "
                      f"{2 * count} jobs, with the starts, took {first:.1f} s", *reports, sep="\n  ", flush=True)
        finally:
            server.stop()
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
