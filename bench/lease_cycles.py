#!/usr/bin/env python3
"""Durable lease + complete cycles against a one-row SKIP LOCKED loop in pgbench, on the same PostgreSQL, in one run.

The loop is what most queues on PostgreSQL do: one row is taken with FOR UPDATE SKIP LOCKED and committed, then marked done
and committed. Here a cycle is POST /v1/leases and POST …/results with a measurement for every config of the lease, each
durable before it is answered (fsync and synchronous_commit are on for both). The batch (configs of a lease) is printed: per
cycle we compare requests with rows, per measurement we compare what is stored.

    bench/lease_cycles.py [SECONDS [JOBS]]        default 5 s a figure, 400 jobs
"""

import json
import pathlib
import re
import subprocess
import sys

import driver
import harness

LOOP = """
with taken as (select id from queue where state = 0 order by priority desc, id limit 1 for update skip locked)
update queue set state = 1, attempts = attempts + 1 from taken where queue.id = taken.id returning queue.id \\gset
update queue set state = 2 where id = :id;
"""


def pgbench(postgres, conninfo, folder, clients, seconds):
    script = folder / "loop.sql"
    script.write_text(LOOP)
    postgres.sql("drop table if exists queue; create table queue (id bigint generated always as identity primary key, state int "
                 "not null default 0, priority int not null default 0, attempts int not null default 0, payload text) "
                 "with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01); "
                 "insert into queue (payload) select repeat('x', 100) from generate_series(1, 300000); "
                 "create index on queue (priority desc, id) where state = 0; analyze queue", conninfo=conninfo)
    parts = dict(p.split("=", 1) for p in conninfo.split())
    out = subprocess.run([harness.postgres_bin() / "pgbench", "-n", "-M", "prepared", "-h", parts["host"], "-U", parts["user"],
                          "-f", script, "-c", str(clients), "-j", "2", "-T", str(seconds), parts["dbname"]],
                         capture_output=True, text=True, check=True).stdout
    return float(re.search(r"tps = ([0-9.]+) \(without", out)[1])


def load(server, agent, connections, seconds):
    out = subprocess.run([harness.BUILD / "bench/lease_load", "127.0.0.1", str(server.port), server.token, agent,
                          str(connections), str(seconds)], capture_output=True, text=True)
    assert out.returncode == 0, out.stdout + out.stderr
    return json.loads(out.stdout)


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else 400
    folder = driver.scratch()
    postgres = harness.Postgres()
    server = None
    try:
        base = postgres.database()
        loops = {clients: pgbench(postgres, base, folder, clients, seconds) for clients in (1, 4, 8, 16)}
        for clients, rate in loops.items():
            print(f"one-row loop, {clients:2} clients     {rate:9,.0f} cycles/s")
        server = harness.Server(postgres.database(), folder)
        agent = driver.enrol(server)
        best_loop = max(loops.values())
        best = None
        job = 0
        for connections in (1, 16, 64, 256):
            driver.submit(server, f"{harness.KERNELS}/noop", [f"n={n + 1}" for n in range(job, job + jobs)])
            job += jobs
            figures = load(server, agent, connections, seconds)
            batch = figures["measurements"] / max(1, figures["cycles"])
            print(f"wavetune, {connections:3} connections   {figures['cycles_per_s']:9,.0f} cycles/s  "
                  f"{figures['measurements_per_s']:9,.0f} measurements/s  (batch {batch:.0f}; lease p50 "
                  f"{figures['lease_p50_us']:,.0f} us, p99 {figures['lease_p99_us']:,.0f} us)")
            if best is None or figures["measurements_per_s"] > best["measurements_per_s"]:
                best = figures
        print(f"ratio: measurements stored {best['measurements_per_s'] / loops[1]:.1f} x the loop at 1 client, "
              f"{best['measurements_per_s'] / best_loop:.1f} x at its best; lease requests "
              f"{best['cycles_per_s'] / loops[1]:.2f} x and {best['cycles_per_s'] / best_loop:.2f} x")
    finally:
        if server:
            server.stop()
        postgres.stop()


main()
