#!/usr/bin/env python3
"""How long a lease request takes while clients flood the server, compared with a quiet server.

200 agents request leases at a modest rate and post their results. Beside them, one at a time:
  idle        16,000 connections that send nothing
  slow        500 connections that send a byte of a header now and then
  strangers   new connections without a token, as many as one process makes
  token       one token that sends requests for the database on 64 connections, pipelined
  imports     one token that posts imports of 30 MiB of "[]," on 4 connections
Each is measured between two quiet rounds, and the ratio is to their mean. An attack begins 3 s after the agents, when each has
sent a request: real agents send one at once, but those of the load connect first, and would be among the strangers.

    bench/floods.py [SECONDS [CASE]…]        default 10 s, all cases
"""

import contextlib
import multiprocessing
import os
import socket
import statistics
import sys
import threading
import time

import driver
import harness

AGENTS, RATE, CONFIGS, LEASE_MOST = 200, 100, 128, 32
IDLE, SLOW, BEGINS_AFTER_S = 16_000, 500, 3


def connect(port):
    return socket.create_connection(("127.0.0.1", port))


def idle(server, token):
    connections = [connect(server.port) for _ in range(IDLE)]
    time.sleep(3600)
    del connections


def slow(server, token):
    def begin():
        connection = connect(server.port)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        return connection

    connections = [begin() for _ in range(SLOW)]
    while True:
        time.sleep(1)
        for i, connection in enumerate(connections):
            try:
                connection.sendall(b"x")
            except OSError:
                connections[i] = begin()


def strangers(server, token):
    connections = []
    while True:
        try:
            connections.append(connect(server.port))
            connections[-1].sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        except OSError:
            connections = connections[len(connections) // 2:]
        if len(connections) > 5000:
            for connection in connections[:2500]:
                connection.close()
            connections = connections[2500:]


def flood(server, token):
    request = f"GET /v1/jobs?limit=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    connections = [connect(server.port) for _ in range(64)]
    for connection in connections:
        connection.setblocking(False)
    while True:
        for connection in connections:
            with contextlib.suppress(BlockingIOError):
                connection.send(request * 4)
            with contextlib.suppress(BlockingIOError):
                connection.recv(1 << 20)
        time.sleep(0.02)


def imports(server, token):
    body = b'{"format": "json", "environment": {}, "kernels": [' + b"[]," * 10_000_000 + b"0]}"
    while True:
        server.request("POST", "/v1/imports", body, token=token)


CASES = {"idle": (idle, 1), "slow": (slow, 1), "strangers": (strangers, 1), "token": (flood, 1), "imports": (imports, 4)}


@contextlib.contextmanager
def attack(server, case):
    """Runs the processes of the attack on the server, after a while."""
    run, n = CASES[case]
    token = harness.make_token(server.database, f"{case}-{time.monotonic_ns()}", "submitter")
    processes = []

    def begin():
        for _ in range(n):
            processes.append(multiprocessing.Process(target=run, args=(server, token), daemon=True))
            processes[-1].start()

    timer = threading.Timer(BEGINS_AFTER_S, begin)
    timer.start()
    try:
        yield
    finally:
        timer.join()
        for process in processes:
            process.kill()
            process.join()


def rss_mib(server, name):
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024


class Load:
    def __init__(self, bench):
        self.bench, self.key = bench, 0
        self.server = bench.server(options=harness.LEASES_OF_8)
        self.kernel = driver.register(self.server)
        self.agents = driver.enrol(self.server, AGENTS)

    def prepare(self, seconds):
        jobs = int(RATE * seconds * LEASE_MOST / CONFIGS * 1.2) + 1
        driver.submit(self.server, self.kernel, [{"n": self.key + i + 1} for i in range(jobs)], driver.space_of(CONFIGS))
        self.key += jobs

    def run(self, seconds):
        self.prepare(seconds)
        return self.measure(seconds)

    def measure(self, seconds):
        return driver.run_load("lease_load", self.server, self.agents, AGENTS, seconds, RATE)


def describe(figures):
    return f"p50 {figures['lease_p50_us'] / 1e3:.2f} ms, p99 {figures['lease_p99_us'] / 1e3:.2f} ms, {figures['failed']} failed"


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    rows = []
    with driver.Bench() as bench:
        bench.print_machine()
        load = Load(bench)
        load.run(2)
        before = load.run(seconds)
        for case in sys.argv[2:] or CASES:
            counts = driver.metrics(load.server)
            load.prepare(BEGINS_AFTER_S + seconds)
            with attack(load.server, case):
                beside = load.measure(BEGINS_AFTER_S + seconds)
                others = [load.server.request("GET", "/readyz").status for _ in range(5)]
            after = load.run(seconds)
            changed = {name.removeprefix("wavetune_"): int(value - counts.get(name, 0)) for name, value in driver.metrics(load.server).items()
                       if value > counts.get(name, 0) and ("closed_total" in name or "refused_total" in name)}
            p50, p99 = (beside[name] / statistics.mean((before[name], after[name])) for name in ("lease_p50_us", "lease_p99_us"))
            print(f"{case}: {describe(beside)} (quiet: {describe(before)}; {describe(after)}); /readyz {others}; "
                  f"most memory {rss_mib(load.server, 'VmHWM'):.0f} MiB, now {rss_mib(load.server, 'VmRSS'):.0f}; {changed}; load "
                  f"{os.getloadavg()[0]:.1f}", flush=True)
            rows.append(f"ratio: {case} against quiet: p50 {p50:.2f} x, p99 {p99:.2f} x")
            before = after
        bench.print_machine()
    print("\n".join(rows))


main()
