#!/usr/bin/env python3
"""Lease requests while commits take long, by the number of database workers.

1,000 connections, each an agent of its own, together request 300 leases a second, and post the measurements at once, so that
600 transactions a second are committed. PostgreSQL runs with a library (bench/slow_disk.c) in which each fdatasync and fsync
takes at least DELAY ms. A server for each number of workers, with a database of its own, in turn; all of them with each delay.

    bench/slow_disk.py [ROUNDS [SECONDS [WORKERS,… [DELAY,… [RATE]]]]]     default 3 rounds of 10 s; 4,8,16 workers; 0,3 ms; 300/s
"""

import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile

import driver
import harness

AGENTS, CONFIGS, LEASE_MOST = 1000, 128, 32  # a job's configs; a lease has 8 of them, or more once the server knows their times
GOAL_MS = 10


class Side:
    def __init__(self, bench, workers):
        self.bench, self.workers, self.key = bench, workers, 0
        self.server = bench.server(options=(*harness.LEASES_OF_8, "--workers", str(workers)))
        self.kernel = driver.register(self.server)
        self.agents = driver.enrol(self.server, AGENTS)
        self.figures = {}

    def measure(self, delay, rate, seconds):
        jobs = int(rate * seconds * LEASE_MOST / CONFIGS * 1.2) + 1
        driver.submit(self.server, self.kernel, [{"n": self.key + i + 1} for i in range(jobs)], driver.space_of(CONFIGS))
        self.key += jobs
        self.bench.postgres.sql("checkpoint", conninfo=self.server.database)
        figures = driver.run_load("lease_load", self.server, self.agents, AGENTS, seconds, rate)
        if figures["empty"]:
            sys.exit(f"the leases ran out: {figures}")
        self.figures.setdefault(delay, []).append(figures)
        return figures

    def connections(self):
        """How many it has, and what their processes of PostgreSQL alone use, in MiB."""
        name = re.search(r"dbname=(\S+)", self.server.database)[1]
        pids = self.bench.postgres.sql(f"select pid from pg_stat_activity where datname = '{name}' and pid <> pg_backend_pid()",
                                       database="postgres").split()
        kib = [sum(int(n) for n in re.findall(r"^Private_\w+:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M))
               for pid in pids]
        return len(pids), sum(kib) / 1024

    def median_ms(self, delay, name):
        return statistics.median(f[name] for f in self.figures[delay]) / 1e3


def main():
    arguments = dict(enumerate(sys.argv[1:]))
    rounds, seconds, rate = int(arguments.get(0, 3)), float(arguments.get(1, 10)), float(arguments.get(4, 300))
    workers = [int(n) for n in arguments.get(2, "4,8,16").split(",")]
    delays = [float(ms) for ms in arguments.get(3, "0,3").split(",")]
    with tempfile.TemporaryDirectory(prefix="wt-bench-", dir="/tmp") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)  # PostgreSQL may be another user
        disk = folder / "delay"
        disk.write_bytes(struct.pack("=I", 0))
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", folder / "slow_disk.so", pathlib.Path(__file__).with_suffix(".c"), "-ldl"],
                       check=True)
        with driver.Bench(variables=(f"LD_PRELOAD={folder}/slow_disk.so", f"SLOW_DISK={disk}")) as bench:
            bench.print_machine()
            sides = [Side(bench, n) for n in workers]
            for i in range(rounds):
                for delay in delays:
                    for side in sides if i % 2 == 0 else sides[::-1]:
                        with open(disk, "r+b") as file:
                            file.write(struct.pack("=I", round(delay * 1000)))
                        f = side.measure(delay, rate, seconds)
                        print(f"  round {i + 1}, {delay:g} ms, {side.workers:2} workers: {f['leases'] / seconds:.0f} leases a second, p50 "
                              f"{f['lease_p50_us'] / 1e3:.2f} ms, p99 {f['lease_p99_us'] / 1e3:.2f} ms, longest {f['lease_max_us'] / 1e3:.0f}"
                              f" ms, {f['busy']} turns found their agent busy, {f['failed']} failed", flush=True)
            bench.print_machine()
            for delay in delays:
                for side in sides:
                    p50, p99 = (side.median_ms(delay, name) for name in ("lease_p50_us", "lease_p99_us"))
                    few = sides[0].median_ms(delay, "lease_p50_us"), sides[0].median_ms(delay, "lease_p99_us")
                    n, mib = side.connections()
                    print(f"commits of {delay:g} ms, {side.workers:2} workers: p50 {p50:.2f} ms ({p50 / few[0]:.2f} x that of {sides[0].workers}"
                          f"; goal below {GOAL_MS}), p99 {p99:.1f} ms ({p99 / few[1]:.2f} x); {n} connections, {mib:.0f} MiB of PostgreSQL,"
                          f" {driver.rss_mib(side.server.process.pid):.0f} MiB of the server")


main()
