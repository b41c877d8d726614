#!/usr/bin/env python3
"""What sharing devices among owners of jobs costs: how long a lease request takes when the open jobs are of one owner, and when
they are of eight.

Two databases of one cluster, a server on each, in turn. 1,000 connections, each an agent of its own, request 40 leases a second
together, get one of 8 configs and post its measurements at once. The jobs of a round are submitted before it begins.

    bench/fair_share.py [ROUNDS [SECONDS [OWNERS]]]        default 5 rounds of 10 s, 8 owners
"""

import statistics
import sys

import driver
import harness

AGENTS, RATE, CONFIGS, LEASE_MOST = 1000, 40, 128, 32
FIGURES = ("lease_p50_us", "lease_p99_us")


class Side:
    def __init__(self, bench, owners):
        self.server = bench.server(options=harness.LEASES_OF_8)
        self.tokens = [harness.make_token(self.server.database, f"owner-{i}", "submitter") for i in range(owners)]
        self.kernel = driver.register(self.server)
        self.agents = driver.enrol(self.server, AGENTS)
        self.key, self.figures = 0, []

    def measure(self, seconds):
        """Each owner gets as many jobs as all leases of the round could be of, so that all have some until its end."""
        jobs = int(RATE * seconds * LEASE_MOST / CONFIGS * 1.2) + 1
        for token in self.tokens:
            keys = [{"n": self.key + i + 1} for i in range(jobs)]
            driver.submit(self.server, self.kernel, keys, driver.space_of(CONFIGS), token)
            self.key += jobs
        before = driver.metrics(self.server)
        figures = driver.run_load("lease_load", self.server, self.agents, AGENTS, seconds, RATE)
        if figures["empty"]:
            sys.exit(f"the leases ran out: {figures}")
        after = driver.metrics(self.server)
        figures["lease_take_us"] = driver.statement_ms(before, after, "lease_take") * 1e3
        self.figures.append(figures)
        return figures


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10
    owners = int(sys.argv[3]) if len(sys.argv) > 3 else 8
    with driver.Bench() as bench:
        bench.print_machine()
        sides = [Side(bench, 1), Side(bench, owners)]
        for i in range(rounds):
            for side in sides if i % 2 == 0 else sides[::-1]:
                f = side.measure(seconds)
                print(f"  round {i + 1}: {len(side.tokens)} owners: {f['leases']:,} leases, p50 {f['lease_p50_us'] / 1e3:.2f} ms, p99 "
                      f"{f['lease_p99_us'] / 1e3:.2f} ms, lease_take {f['lease_take_us'] / 1e3:.2f} ms", flush=True)
        bench.print_machine()
        for side in sides:
            print(f"{len(side.tokens)} owners: " + ", ".join(
                f"{name.removesuffix('_us')} {driver.spread([f[name] / 1e3 for f in side.figures], 2)} ms"
                for name in (*FIGURES, "lease_take_us")))
        p50, p99, take = (statistics.median(f[name] for f in sides[1].figures) / statistics.median(f[name] for f in sides[0].figures)
                          for name in (*FIGURES, "lease_take_us"))
        print(f"ratio: {owners} owners against one: p50 {p50:.2f} x, p99 {p99:.2f} x, lease_take {take:.2f} x")


main()
