#!/usr/bin/env python3
"""What compiled code from the server saves a fresh container: kernels for gfx942, launched once each by a real Triton (bench/
many_kernels.py; no GPU), in turn

    cold      compiled, in an empty folder
    server    from a server's namespace of one token and image, in an empty folder
    redis     by Triton's own RemoteCacheManager from redis-server, in an empty folder (Triton 3.3.1, the last where it works)
    warm      in the folder that `cold` filled

    WAVETUNE_BUILD=build/release bench/kernels_start.py [--triton VERSION] [--kind additions|mixed] [--kernels N]
                                                    [--processes N] [--rounds N]

Default: Triton 3.6.0, 24 additions, one process, 7 rounds. Several processes are started first, then go on together once all have
imported Triton. Environments: tests/python-env.sh VERSION; for redis: build/triton-3.3.1/bin/pip install redis, package redis-server.
"""

import argparse
import random
import shutil
import statistics
import time

import driver
import harness
import many_kernels


class Side:
    """A way to get code. `folder(i)`: the cache of process i; `rounds`: what each reported."""

    def __init__(self, bench, name, arguments, variables, is_fresh=True, compiles=0):
        self.bench, self.name, self.arguments, self.variables = bench, name, arguments, variables
        self.is_fresh, self.compiles, self.runs, self.rounds = is_fresh, compiles, 0, []

    def run(self, more=None):
        """Starts the processes together; `more`: variables."""
        n, folders = self.arguments.kernels, []
        for i in range(self.arguments.processes):
            folders.append(self.bench.folder / f"{self.name}-{self.runs if self.is_fresh else 'kept'}-{i}")
        processes = [many_kernels.start(self.arguments.triton, self.bench.folder / "program", n, folder,
                                        {**self.variables, **(more or {})}, wait=True) for folder in folders]
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        began = time.perf_counter()
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        reports = [many_kernels.finish(process) for process in processes]
        seconds = time.perf_counter() - began
        self.runs += 1
        if self.is_fresh:
            for folder in folders:
                shutil.rmtree(folder)
        return seconds, reports

    def measure(self):
        seconds, reports = self.run()
        if self.compiles is not None:
            assert all(report["compiled"] == self.compiles for report in reports), (self.name, reports)
        self.rounds.append((seconds, reports))

    def figures(self):
        """Of each round, ms a kernel: the mean over all kernels and the median of those after the first of its process; CPU time."""
        return {"all": [statistics.mean(ms for report in reports for ms in report["ms"]) for _, reports in self.rounds],
                "later": [statistics.median(ms for report in reports for ms in report["ms"][1:]) for _, reports in self.rounds],
                "CPU": [statistics.mean(report["cpu_ms"] for report in reports) / self.arguments.kernels for _, reports in self.rounds]}

    def print_figures(self):
        figures = self.figures()
        first = [statistics.median(report["ms"][0] for report in reports) for _, reports in self.rounds]
        text = (f"  {self.name:7} {driver.spread(figures['all'], 1)} ms a kernel, {driver.spread(figures['CPU'], 1)} of CPU; the first "
                f"{driver.spread(first)}, a later one {driver.spread(figures['later'], 1)}")
        if self.arguments.processes > 1:
            times = sorted(ms for _, reports in self.rounds for report in reports for ms in report["ms"])
            text += (f"; p50 {driver.percentile(times, 0.5):.1f}, p99 {driver.percentile(times, 0.99):.0f} ms; all after "
                     f"{driver.spread([seconds for seconds, _ in self.rounds], 1)} s")
        counters = [report["counters"] for _, reports in self.rounds for report in reports if report["counters"]]
        if counters:
            text += (f"; {sum(c['requests'] for c in counters) / len(counters):.1f} requests a process, waiting "
                     f"{statistics.median(c['lost_ms'] for c in counters) / self.arguments.kernels:.1f} ms a kernel; "
                     f"{sum(c['failures'] for c in counters)} failures, {sum(c['refused'] for c in counters)} refused, "
                     f"{sum(report['compiled'] for _, reports in self.rounds for report in reports)} compiled")
        print(text, flush=True)


def ratios(slow, fast, n=10000):
    """The median of the rounds' ratios, with its bootstrap interval of 95 %, of each figure."""
    draw, texts = random.Random(7), []
    for label, values in slow.figures().items():
        pairs = [a / b for a, b in zip(values, fast.figures()[label])]
        drawn = sorted(statistics.median(draw.choices(pairs, k=len(pairs))) for _ in range(n))
        texts.append(f"{label} {statistics.median(pairs):.2f} ({drawn[n // 40]:.2f} to {drawn[-n // 40]:.2f}) x")
    return ", ".join(texts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--triton", default="3.6.0")
    parser.add_argument("--kind", choices=many_kernels.KINDS, default="additions")
    for name, default in (("kernels", 24), ("processes", 1), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    has_redis = arguments.triton == "3.3.1" and arguments.processes == 1
    many_kernels.python(arguments.triton, *(["redis"] if has_redis else []))
    with driver.Bench() as bench:
        (bench.folder / "program").mkdir()
        many_kernels.write(bench.folder / "program", arguments.kernels, arguments.kind)
        server = bench.server(options=("--remote-share", f"container/{many_kernels.IMAGE}"))
        remote = many_kernels.remote(server.port, harness.make_token(server.database, "container", "reader,demand"))
        sides = [Side(bench, "cold", arguments, {}, compiles=arguments.kernels), Side(bench, "server", arguments, remote, compiles=None)]
        if has_redis:
            redis, port = driver.redis_start(bench)
            sides.append(Side(bench, "redis", arguments, {**many_kernels.REDIS, "TRITON_REDIS_PORT": str(port)}))
        sides.append(Side(bench, "warm", arguments, {}, is_fresh=False))
        for side in sides:  # fills the server, redis and the folders; and what is read is in memory
            side.run(many_kernels.PATIENT)
        stored = int(bench.postgres.sql("select count(*) from remote_files", conninfo=server.database))
        assert stored == arguments.kernels, stored
        bench.print_machine()
        print(f"Triton {arguments.triton}, {arguments.kernels} kernels ({arguments.kind}) for gfx942, {arguments.processes} processes, "
              f"{arguments.rounds} rounds in turn", flush=True)
        pid = server.process.pid
        used = [driver.cpu_seconds(pid), bench.postgres_cpu_seconds(), driver.rss_mib(pid)]
        for i in range(arguments.rounds):
            for side in sides if i % 2 == 0 else sides[::-1]:
                side.measure()
        starts = arguments.rounds * arguments.processes
        for side in sides:
            side.print_figures()
        print(f"  the server used {(driver.cpu_seconds(pid) - used[0]) * 1e3 / starts:.1f} ms of CPU a start, PostgreSQL "
              f"{(bench.postgres_cpu_seconds() - used[1]) * 1e3 / starts:.1f}; its memory {used[2]:.1f} MiB, then "
              f"{driver.rss_mib(pid):.1f}; load {driver.os.getloadavg()[0]:.1f}")
        for side in sides:
            if side is not sides[1]:
                print(f"ratio: {side.name} to server: {ratios(side, sides[1])}", flush=True)


main()
