"""Shared by the benchmarks: a private PostgreSQL with servers, simulated agents, medians with their spread.

A benchmark runs both sides in turn and prints the machine, medians with the smallest and the largest figure, and a ratio.
Everything listens on loopback and ends with the benchmark.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/system"))
import harness  # noqa: E402

ENVIRONMENT = {"cpu": "bench", "gpu": "Bench CPU", "arch": "x86_64", "compute_units": 2, "partition": ""}


def need(program, package):
    """The path of a program. If it is not installed, exits with a sentence that names the package."""
    found = harness.postgres_bin() / program if (harness.postgres_bin() / program).exists() else shutil.which(program)
    if not found:
        sys.exit(f"{program} is not installed: apt-get install {package}")
    return str(found)


def need_build(program):
    path = harness.BUILD / program
    if not path.exists():
        sys.exit(f"{path} is not built: build it, or name the folder with WAVETUNE_BUILD=…")
    return str(path)


class Bench:
    """with Bench() as bench: a cluster, a scratch folder, and servers and agents that end with it."""

    def __init__(self, settings=""):
        """`settings`: lines for postgresql.conf."""
        for program in ("wavetune-server", "wavetune"):
            need_build(program)
        self.programs = contextlib.ExitStack()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="wt-bench-", dir="/tmp"))
        self.programs.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.postgres = harness.Postgres()
        self.programs.callback(self.postgres.stop)
        if settings:
            self.postgres.process.terminate()
            self.postgres.process.wait(20)
            with open(self.postgres.folder / "data/postgresql.auto.conf", "a") as file:
                file.write(settings)
            self.postgres.start()

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        return self.programs.__exit__(*reason)

    def server(self, database=None, options=()):
        server = harness.Server(database or self.postgres.database(), self.folder, options=options)
        self.programs.callback(server.stop)
        return server

    def agent(self, server, **more):
        agent = harness.Agent(server, self.folder, **more)
        self.programs.callback(agent.stop)
        return agent

    def print_machine(self):
        """Prints the machine and the versions for which the figures are valid."""
        setting = {name: self.postgres.sql(f"show {name}", database="postgres")
                   for name in ("server_version", "fsync", "synchronous_commit", "shared_buffers")}
        times = fsync_us(self.folder)
        print(f"machine: {os.cpu_count()} cores shared by client, server and database, load {os.getloadavg()[0]:.1f}; "
              f"PostgreSQL {setting['server_version'].split()[0]}, fsync {setting['fsync']}, synchronous_commit "
              f"{setting['synchronous_commit']}, shared_buffers {setting['shared_buffers']}; fdatasync of 8 KiB p50 "
              f"{times[len(times) // 2]:,.0f} us, p99 {times[len(times) * 99 // 100]:,.0f} us", flush=True)

    def postgres_cpu_seconds(self):
        """CPU time of the postmaster, its live children and the children that it has waited for."""
        pid = self.postgres.process.pid
        return cpu_seconds(pid, waited_for=True) + sum(cpu_seconds(child) for child in children(pid))


def fsync_us(folder, n=200):
    """Sorted times of writing 8 KiB over and over and making it durable, as a commit does."""
    times = []
    with open(folder / "fsync", "wb", buffering=0) as file:
        for _ in range(n):
            began = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 8192, 0)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1e6)
    return sorted(times)


def agent_body(name):
    return {"boot": "b", "name": name, "version": "0", "devices": [
        {"device": "cpu0", "backend": "cpu", "environment": ENVIRONMENT, "facts": {}}]}


def enrol(server, n=1):
    """Enrols `n` agents and returns their ids."""
    ids = []
    for i in range(n):
        answer = server.request("POST", "/v1/agents", agent_body(f"bench-{i}"))
        assert answer.status in (200, 201), answer
        ids.append(answer.json["agent"])
    return ids


def register(server, kernel="noop"):
    """Registers a kernel by submitting a job, which is cancelled, and returns its hash."""
    folder = harness.KERNELS / kernel
    key = ",".join(f"{name}=1" for name in json.loads((folder / "kernel.json").read_text())["key"])
    done = harness.wavetune(server, "submit", f"{folder}:c", "--key", key, "--environment", json.dumps(ENVIRONMENT), "--json", "--run",
                            "register")
    job = json.loads(done.stdout)[0]["job"]
    assert server.request("DELETE", f"/v1/jobs/{job}").status == 200
    return server.get(f"/v1/jobs/{job}")["kernel"]


def submit(server, kernel, keys, space):
    """Submits a job for each key in one request and returns the answers."""
    jobs = [{"kernel": kernel, "key": key, "space": space, "environment": ENVIRONMENT} for key in keys]
    answers = []
    for i in range(0, len(jobs), 500):
        answer = server.request("POST", "/v1/jobs", {"jobs": jobs[i:i + 500]})
        assert answer.status in (200, 201), answer
        answers += answer.json["jobs"]
    return answers


def space_of(configs):
    """A space with this number of configs."""
    return {"parameters": {"P": list(range(configs))}, "default": {"P": 0}}


def metrics(server):
    """{name or name{labels}: value}"""
    text = server.request("GET", "/metrics").body.decode()
    return {name: float(value) for name, value in re.findall(r"^(wavetune\S+) (\S+)$", text, re.MULTILINE)}


def run_load(program, server, agents, *arguments):
    """Runs one of the loads in C with a file of the agents' ids and returns the JSON that it printed."""
    file = pathlib.Path(server.folder) / "agents"
    file.write_text("".join(f"{agent}\n" for agent in agents))
    command = [need_build(f"bench/{program}"), "127.0.0.1", str(server.port), server.token, str(file),
               *[str(a) for a in arguments]]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def cpu_seconds(pid, waited_for=False):
    """User and system time of a process so far; 0 when it is gone."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except FileNotFoundError:
        return 0.0
    ticks = int(fields[11]) + int(fields[12]) + (int(fields[13]) + int(fields[14]) if waited_for else 0)
    return ticks / os.sysconf("SC_CLK_TCK")


def rss_mib(pid):
    return int(re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def spread(values, digits=0):
    return (f"median {statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})")
