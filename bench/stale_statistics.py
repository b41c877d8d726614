#!/usr/bin/env python3
"""Lease + complete cycles a second right after a large submit that follows a quiet time, against the same after ANALYZE.

After a quiet time PostgreSQL's statistics contain no open lease, because autovacuum analysed the tables while none was open.
A large submit opens many, and until autovacuum runs again, about a minute later, plans are made for the old contents. Each
round ends open jobs and leases, analyses the tables (as in a quiet time), submits JOBS jobs of 200 leases of 8 configs, and
has 16 connections lease and complete for SECONDS: with those statistics, and again after ANALYZE. Autovacuum is off for the
tables, so that it does not end the first part early. The time of the housekeeper's pass over all jobs is measured too.

    bench/stale_statistics.py [ROUNDS [SECONDS [JOBS]]]        default 3 rounds of 4 s, 450 jobs: 90,000 open leases
"""

import statistics
import sys

import driver
import harness

CONNECTIONS, LEASES_A_JOB, CONFIGS = 16, 200, 8
TABLES = ("jobs", "leases", "measurements")
STATEMENTS = ("lease_take", "results_insert", "jobs_ready", "jobs_ready_all")


class Side:
    def __init__(self, bench, jobs):
        self.bench, self.jobs, self.key = bench, jobs, 0
        self.server = bench.server(options=(*harness.UNHURRIED, *harness.LEASES_OF_8))
        self.kernel = driver.register(self.server)
        self.agents = driver.enrol(self.server, CONNECTIONS)
        for table in ("jobs", "leases", *self.sql("select partition from measurement_partitions").split()):
            self.sql(f"alter table {table} set (autovacuum_enabled = off)")

    def sql(self, text):
        return self.bench.postgres.sql(text, conninfo=self.server.database)

    def submit(self):
        keys = [{"n": self.key + i + 1} for i in range(self.jobs)]
        self.key += self.jobs
        driver.submit(self.server, self.kernel, keys, driver.space_of(LEASES_A_JOB * CONFIGS))

    def end_all(self):
        self.sql("update jobs set state = 'cancelled', finished_at = now() where state in ('queued', 'running')")
        self.sql("update leases set state = 'cancelled' where state in ('open', 'held')")
        for table in TABLES:
            self.sql(f"vacuum analyze {table}")

    def load(self, seconds):
        before = driver.metrics(self.server)
        figures = driver.run_load("lease_load", self.server, self.agents, CONNECTIONS, seconds)
        if figures["empty"]:
            sys.exit(f"the leases ran out: {figures}; give more JOBS")
        after = driver.metrics(self.server)
        for statement in STATEMENTS:
            figures[statement] = driver.statement_ms(before, after, statement)
        return figures


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 4
    jobs = int(sys.argv[3]) if len(sys.argv) > 3 else 450
    with driver.Bench() as bench:
        bench.print_machine()
        side = Side(bench, jobs)
        side.submit()  # a history, so that there are statistics
        stale, fresh = [], []
        for i in range(rounds):
            side.end_all()
            side.submit()
            stale.append(side.load(seconds))
            side.sql("analyze")
            fresh.append(side.load(seconds))
            print(f"  round {i + 1}: {stale[-1]['cycles_per_s']:,.0f} cycles/s with the statistics of the quiet time, "
                  f"{fresh[-1]['cycles_per_s']:,.0f} after ANALYZE", flush=True)
        bench.print_machine()
        for name, figures in (("statistics of a quiet time", stale), ("after ANALYZE", fresh)):
            print(f"{jobs * LEASES_A_JOB:,} open leases, {name}: "
                  f"{driver.spread([f['cycles_per_s'] for f in figures])} cycles/s, lease p50 "
                  f"{driver.spread([f['lease_p50_us'] / 1e3 for f in figures], 1)} ms; statements: "
                  + ", ".join(f"{s} {statistics.median(f[s] for f in figures):.2f} ms" for s in STATEMENTS))
        print(f"ratio: stale statistics against fresh ones: "
              f"{statistics.median(s['cycles_per_s'] / f['cycles_per_s'] for s, f in zip(stale, fresh)):.2f} x (goal 0.80)")


main()
