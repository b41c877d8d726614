#!/usr/bin/env python3
"""Durable lease + complete cycles against a one-row SKIP LOCKED loop in pgbench: the same cluster, one run, in turn.

The loop is what most queues on PostgreSQL do: one row is taken with FOR UPDATE SKIP LOCKED and committed, then marked done
and committed. A cycle of wavetune is POST /v1/leases and POST …/results over HTTP with JSON, both committed before they
are answered, and it stores a measurement (three pairs of samples, two unique indexes) for every config of the lease.
fsync and synchronous_commit are on for both. Two kinds of leases:

    1 config     a cycle is one row leased and one measurement stored: requests against rows, like for like
    125 configs  about four predicted seconds of a kernel that was never measured: what is stored, against rows

    bench/lease_cycles.py [ROUNDS [SECONDS]]        default 3 rounds, 4 s a figure

pgbench comes with PostgreSQL (package postgresql).
"""

import re
import statistics
import subprocess
import sys

import driver
import harness

LOOP = """
with taken as (select id from queue where state = 0 order by priority desc, id limit 1 for update skip locked)
update queue set state = 1, attempts = attempts + 1 from taken where queue.id = taken.id returning queue.id \\gset
update queue set state = 2 where id = :id;
"""
LOOP_CLIENTS = (1, 4, 16, 48)
SINGLE, CUT = 1, 125
POINTS = ((SINGLE, 1), (SINGLE, 64), (SINGLE, 256), (SINGLE, 1000), (CUT, 1), (CUT, 16), (CUT, 64))
RATE_MAX = {SINGLE: 12000, CUT: 1000}  # leases prepared for each second; the benchmark ends when they run out


class Loop:
    def __init__(self, bench):
        self.bench, self.database = bench, bench.postgres.database()
        self.script = bench.folder / "loop.sql"
        self.script.write_text(LOOP)

    def rate(self, clients, seconds):
        """Cycles/s on a fresh table of more rows than can be taken."""
        self.bench.postgres.sql(
            "drop table if exists queue; create table queue (id bigint generated always as identity primary key, "
            "state int not null default 0, priority int not null default 0, attempts int not null default 0, payload text) "
            "with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01); "
            f"insert into queue (payload) select repeat('x', 100) from generate_series(1, {15000 * seconds}); "
            "create index on queue (priority desc, id) where state = 0; analyze queue", conninfo=self.database)
        parts = dict(part.split("=", 1) for part in self.database.split())
        done = subprocess.run([driver.need("pgbench", "postgresql"), "-n", "-M", "prepared", "-h", parts["host"], "-U",
                               parts["user"], "-f", self.script, "-c", str(clients), "-j", "2", "-T", str(seconds),
                               parts["dbname"]], capture_output=True, text=True)
        failed = re.search(r"number of failed transactions: (\d+)", done.stdout)
        if done.returncode != 0 or (failed and failed[1] != "0"):
            sys.exit(f"pgbench failed:\n{done.stdout}{done.stderr}")
        return float(re.search(r"tps = ([0-9.]+) \(without", done.stdout)[1])


class Side:
    """A server whose leases have this number of configs each."""

    def __init__(self, bench, configs):
        self.bench, self.configs, self.key = bench, configs, 0
        self.server = bench.server()
        self.kernel = driver.register(self.server)
        self.agents = driver.enrol(self.server, 256)

    def sql(self, text):
        return self.bench.postgres.sql(text, conninfo=self.server.database)

    def prepare(self, leases):
        """Adds open leases until there are `leases` of them."""
        missing = leases - int(self.sql("select count(*) from leases where state = 'open'"))
        jobs = -(-missing * self.configs // 2000)
        if missing > 0:
            driver.submit(self.server, self.kernel, [{"n": self.key + i + 1} for i in range(jobs)], driver.space_of(2000))
            self.key += jobs
        if missing > 0:  # cut here, because the server would cut for the number of live devices
            self.sql("with cut as (delete from leases where job_id in (select id from jobs where state = 'queued') returning *), "
                     "job as (select distinct job_id, device_class, priority from cut) "
                     "insert into leases (job_id, stage, round, process, configs, remaining, device_class, priority, config_us) "
                     "select job_id, 'screen', 0, 0, piece, piece, device_class, priority, "
                     f"case when {self.configs} > 16 then 30000 end from job, "
                     f"lateral (select int8multirange(int8range(c, c + {self.configs})) "
                     f"from generate_series(0, 1999, {self.configs}) c) as p(piece) order by job_id, piece")
        self.sql("vacuum analyze leases")
        self.sql("vacuum analyze measurements")

    def measure(self, connections, seconds):
        self.prepare(int(RATE_MAX[self.configs] * seconds))
        cpu = driver.cpu_seconds(self.server.process.pid)
        database = self.bench.postgres_cpu_seconds()
        figures = driver.run_load("lease_load", self.server, self.agents, connections, seconds)
        if figures["empty"]:
            sys.exit(f"the leases ran out: {figures}; raise RATE_MAX")
        if not figures["cycles"]:
            sys.exit(f"no cycle of {connections} connections ended within {seconds:g} s; give it more SECONDS")
        figures["server_us"] = (driver.cpu_seconds(self.server.process.pid) - cpu) * 1e6 / figures["cycles"]
        figures["database_us"] = (self.bench.postgres_cpu_seconds() - database) * 1e6 / figures["cycles"]
        return figures


def median_of(figures, name):
    return statistics.median(f[name] for f in figures)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 4
    driver.need_build("bench/lease_load")
    with driver.Bench() as bench:
        bench.print_machine()
        loop, sides = Loop(bench), {configs: Side(bench, configs) for configs in (SINGLE, CUT)}
        loops, ours = {clients: [] for clients in LOOP_CLIENTS}, {point: [] for point in POINTS}
        for i in range(rounds):
            for clients in LOOP_CLIENTS:
                loops[clients].append(loop.rate(clients, int(seconds)))
                print(f"  round {i + 1}: loop, {clients:2} clients: {loops[clients][-1]:,.0f} cycles/s", flush=True)
            for configs, connections in POINTS:
                figures = sides[configs].measure(connections, seconds)
                ours[configs, connections].append(figures)
                print(f"  round {i + 1}: wavetune, {configs:3} configs, {connections:4} connections: "
                      f"{figures['cycles_per_s']:,.0f} cycles/s", flush=True)
        bench.print_machine()
        for clients, rates in loops.items():
            print(f"loop,     1 row,       {clients:4} clients      {driver.spread(rates)} cycles/s")
        for (configs, connections), figures in ours.items():
            print(f"wavetune, {configs:3} config{'s' if configs > 1 else ' '}, {connections:4} connections  "
                  f"{driver.spread([f['cycles_per_s'] for f in figures])} cycles/s, "
                  f"{median_of(figures, 'measurements_per_s'):,.0f} measurements/s; "
                  f"lease p50 {median_of(figures, 'lease_p50_us') / 1e3:.1f} ms, p99 "
                  f"{median_of(figures, 'lease_p99_us') / 1e3:.1f} ms; CPU a cycle: server "
                  f"{median_of(figures, 'server_us'):,.0f} us, PostgreSQL {median_of(figures, 'database_us'):,.0f} us")
        one = statistics.median(loops[1])
        best_clients = max(loops, key=lambda clients: statistics.median(loops[clients]))
        best = statistics.median(loops[best_clients])
        for name, unit, configs in (("lease requests (1 config a lease)", "cycles_per_s", SINGLE),
                                    ("measurements stored (125 configs a lease)", "measurements_per_s", CUT)):
            point = max((p for p in POINTS if p[0] == configs), key=lambda p: median_of(ours[p], unit))
            rate = median_of(ours[point], unit)
            print(f"ratio: {name}, {point[1]} connections: {rate / one:.2f} x the loop at 1 client (goal 10), "
                  f"{rate / best:.2f} x the loop at its best, {best_clients} clients (goal 4)")


main()
