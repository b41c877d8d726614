"""Shared by the benchmarks: a private PostgreSQL with servers, simulated agents, medians with their spread.

A benchmark runs both sides in turn and prints the machine, medians with the smallest and the largest figure, and a ratio.
Everything listens on loopback and ends with the benchmark.
"""

import contextlib
import json
import os
import pathlib
import re
import selectors
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
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

    def __init__(self, settings="", shared_buffers="64MB", variables=()):
        """`settings`: more lines for postgresql.conf. `variables`: NAME=VALUE of PostgreSQL's environment."""
        for program in ("wavetune-server", "wavetune"):
            need_build(program)
        self.programs = contextlib.ExitStack()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="wt-bench-", dir="/tmp"))
        self.programs.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.postgres = harness.Postgres(shared_buffers=shared_buffers, variables=variables)
        self.programs.callback(self.postgres.stop)
        if settings:
            self.postgres.process.send_signal(signal.SIGINT)  # SIGTERM waits for sessions to end
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


def submit(server, kernel, keys, space, token="admin"):
    """Submits a job for each key, 500 in a request, and returns the answers."""
    jobs = [{"kernel": kernel, "key": key, "space": space, "environment": ENVIRONMENT} for key in keys]
    answers = []
    for i in range(0, len(jobs), 500):
        answer = server.request("POST", "/v1/jobs", {"jobs": jobs[i:i + 500]}, token=token)
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


def statement_ms(before, after, statement):
    """The mean time of a run between two reads of the metrics; 0 without a run."""
    took, runs = (after.get(name, 0) - before.get(name, 0) for name in (
        f'wavetune_db_seconds_total{{statement="{statement}"}}', f'wavetune_db_runs_total{{statement="{statement}"}}'))
    return took * 1e3 / runs if runs else 0


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


class Recorder:
    """with Recorder(port) as recorder: what connects to recorder.port speaks with `port`; `requests` is what it sent."""

    def __init__(self, port):
        self.upstream, self.chunks = port, []  # (number of the connection, whether the client sent it, bytes)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def __enter__(self):
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def _run(self):
        with selectors.DefaultSelector() as ready, contextlib.ExitStack() as sockets:
            ready.register(self.listener, selectors.EVENT_READ)
            connections = 0
            while True:
                for key, _ in ready.select():
                    if key.fileobj is self.listener:
                        try:
                            client = sockets.enter_context(self.listener.accept()[0])
                        except OSError:
                            return
                        server = sockets.enter_context(socket.create_connection(("127.0.0.1", self.upstream)))
                        for end in (client, server):
                            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        ready.register(client, selectors.EVENT_READ, (server, connections, True))
                        ready.register(server, selectors.EVENT_READ, (client, connections, False))
                        connections += 1
                        continue
                    other, number, is_client = key.data
                    try:
                        data = key.fileobj.recv(1 << 20)
                    except ConnectionResetError:
                        data = b""
                    if data:
                        self.chunks.append((number, is_client, data))
                        other.sendall(data)
                    else:
                        ready.unregister(key.fileobj)
                        with contextlib.suppress(OSError):  # the other end is closed
                            other.shutdown(socket.SHUT_WR)

    @property
    def requests(self):
        """What was sent before each reply; None: on another connection. Connections must follow one another."""
        found, last, was_client = [], 0, False
        for number, is_client, data in self.chunks:
            assert number >= last or not is_client, "two connections are used at once"
            if is_client and number > last:
                found.append(None)
            if is_client and was_client and number == last:
                found[-1] += data
            elif is_client:
                found.append(data)
            last, was_client = max(number, last), is_client
        return found


def get_request(path, token=None):
    """What asks for a path over HTTP."""
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{authorization}\r\n".encode()


def starts(port, requests, n, at_once=None, protocol="http"):
    """Starts `n` programs with these requests (None: another connection), at most `at_once` at a time, and returns what start_load
    prints. `protocol`: http, https or redis."""
    lines = []
    for request in requests:
        replies = 1 if protocol != "redis" else len(re.findall(rb"^\*\d+\r$", request or b"", re.MULTILINE))
        lines.append(b"0 0\n" if request is None else b"%d %d\n%s" % (len(request), replies, request))
    command = [need_build("bench/start_load"), "127.0.0.1", str(port), protocol, str(n), str(at_once or n)]
    done = subprocess.run(command, input=b"".join(lines), capture_output=True)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def percentile(values, share):
    """`values` are sorted."""
    return values[min(len(values) - 1, int(len(values) * share))]


def compare_starts(sides, n, runs, at_once=None):
    """Runs `starts` on each side in turn, prints what its programs waited and what it cost the server, and returns
    {name: {"p50" or "p99" or "last": [ms of each run]}}. `sides`: {name: (pid of the server, port, requests, protocol)}.
    Of a run in which a program did not get every reply the times are those of the others; ends when none did."""
    seen = {name: {"p50": [], "p99": [], "last": []} for name in sides}
    costs, grew, failed, tls = {name: [] for name in sides}, {}, dict.fromkeys(sides, 0), {}

    def run(name):
        pid, port, requests, *protocol = sides[name]
        before = cpu_seconds_of(pid)
        answer = starts(port, requests, n, at_once, *protocol)
        if not answer["ms"]:
            sys.exit(f"{name}: all {n} starts failed")
        failed[name] += answer["failed"]
        tls[name] = f" ({answer['tls']})" if answer["tls"] else ""
        return answer["ms"], (cpu_seconds_of(pid) - before) * 1e3 / n, rss_mib_of(pid)

    for name in sides:
        grew[name] = [run(name)[2]]  # warms up: what is served is in memory
    for i in range(runs):
        for name in list(sides) if i % 2 == 0 else reversed(sides):
            ms, cost, size = run(name)
            costs[name].append(cost)
            grew[name].append(size)
            for label, share in (("p50", 0.5), ("p99", 0.99), ("last", 1)):
                seen[name][label].append(percentile(ms, share))
    for name, labels in seen.items():
        print(f"  {name:9}{tls[name]} " + "; ".join(f"{label} {spread(values)} ms" for label, values in labels.items()) +
              f"; server {spread(costs[name], 2)} ms of CPU a start, {grew[name][0]:.0f} MiB, after {runs} runs {grew[name][-1]:.0f}; "
              f"{failed[name]} of {n * (runs + 1):,} failed", flush=True)
    return seen


def redis_start(bench):
    """redis-server in memory, as a user without rights where this is root: (process, port)."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [need("redis-server", "redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", "/",
               "--tcp-backlog", "4096", "--protected-mode", "no"]  # which knows no loopback address but 127.0.0.1
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *command]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    bench.programs.callback(process.wait, 20)
    bench.programs.callback(process.terminate)
    harness.wait_until(lambda: is_open(port), 10, "redis-server to listen")
    return process, port


def is_open(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    except ConnectionRefusedError:
        return False


def cpu_seconds_of(pid):
    """Of a process and its live children."""
    return sum(map(cpu_seconds, (pid, *children(pid))))


def rss_mib_of(pid):
    return sum(map(rss_mib, (pid, *children(pid))))


def cpu_seconds(pid, waited_for=False):
    """User and system time of a process so far; 0 when it is gone."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    ticks = int(fields[11]) + int(fields[12]) + (int(fields[13]) + int(fields[14]) if waited_for else 0)
    return ticks / os.sysconf("SC_CLK_TCK")


def rss_mib(pid):
    return int(re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def spread(values, digits=0):
    return (f"median {statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})")
