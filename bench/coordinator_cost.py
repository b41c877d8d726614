#!/usr/bin/env python3
"""What the coordinator itself costs for each measurement: a job of 2,000 configs of a no-op kernel, measured by a real agent;
the CPU time of the server process, of PostgreSQL beside it, and how many statements the database saw for how many requests.

    bench/coordinator_cost.py [ROUNDS]        default 3 rounds, a job each

pg_stat_statements is in Debian's postgresql package, elsewhere in postgresql-contrib.
"""

import re
import statistics
import sys
import time

import driver
import harness

GOAL_MS = 1.0
SETTINGS = "shared_preload_libraries = 'pg_stat_statements'\npg_stat_statements.track_utility = on\n"
# Each is one statement of the server, recognised by words that no other one has.
STATEMENTS = (("lease requests", "%avoid_agents @>%FOR UPDATE SKIP LOCKED%"), ("results", "%INSERT INTO measurements%"))


def statements_of(bench, server):
    """{what: (calls, rows)} and the number of all statements."""
    def ask(sql):
        return bench.postgres.sql(f"{sql} and dbid = (select oid from pg_database where datname = current_database())",
                                  conninfo=server.database)

    found = {}
    for what, pattern in STATEMENTS:
        calls, rows = ask("select coalesce(sum(calls), 0), coalesce(sum(rows), 0) from pg_stat_statements where query like "
                          f"'{pattern}'").split("|")
        found[what] = int(calls), int(rows)
    return found, int(ask("select coalesce(sum(calls), 0) from pg_stat_statements where true"))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    driver.need_build("wavetune-agent")
    with driver.Bench(SETTINGS) as bench:
        bench.print_machine()
        server = bench.server()
        bench.postgres.sql("create extension pg_stat_statements", conninfo=server.database)
        bench.agent(server, options=("--screen-rounds", "3", "--final-rounds", "10"))
        harness.wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
        own, database = [], []
        for i in range(rounds):
            before, metrics = statements_of(bench, server), driver.metrics(server)
            cpu, postgres_cpu = driver.cpu_seconds(server.process.pid), bench.postgres_cpu_seconds()
            began = time.monotonic()
            harness.wavetune(server, "submit", f"{harness.KERNELS}/noop:c", "--key", f"n={i + 1}", "--wait", timeout=600)
            elapsed = time.monotonic() - began
            cpu, postgres_cpu = driver.cpu_seconds(server.process.pid) - cpu, bench.postgres_cpu_seconds() - postgres_cpu
            after = {name: value - metrics.get(name, 0) for name, value in driver.metrics(server).items()}
            statements = statements_of(bench, server)
            measured = int(after["wavetune_measurements_accepted_total"])
            leases = int(after["wavetune_leases_granted_total"])
            own.append(cpu * 1e3 / measured)
            database.append(postgres_cpu * 1e3 / measured)
            print(f"round {i + 1}: {measured:,} measurements in {leases} leases ({measured / leases:.0f} a lease), "
                  f"{elapsed:.1f} s end to end; CPU a measurement: server {own[-1]:.3f} ms, PostgreSQL {database[-1]:.3f} ms")
            for what, (calls, rows) in statements[0].items():
                calls, rows = calls - before[0][what][0], rows - before[0][what][1]
                print(f"  {what}: {calls} statements, {rows} rows; {measured / calls:.0f} measurements a statement")
            print(f"  statements of all kinds: {statements[1] - before[1]}, {(statements[1] - before[1]) / measured:.3f} a "
                  "measurement", flush=True)
        print("statements by their number of runs (pg_stat_statements, all rounds):")
        listed = bench.postgres.sql(
            "select calls, rows, left(regexp_replace(query, '\\s+', ' ', 'g'), 80) from pg_stat_statements where dbid = "
            "(select oid from pg_database where datname = current_database()) order by calls desc limit 8",
            conninfo=server.database)
        for row in listed.splitlines():
            calls, touched, text = row.split("|", 2)
            print(f"  {calls:>6} runs {touched:>7} rows  {re.sub(' +', ' ', text)}")
        print(f"server     {driver.spread(own, 3)} ms of one core a measurement")
        print(f"PostgreSQL {driver.spread(database, 3)} ms of one core a measurement (all its processes)")
        print(f"ratio: the server's {statistics.median(own):.3f} ms against the goal of {GOAL_MS:g} ms: "
              f"{statistics.median(own) / GOAL_MS:.3f} x")


main()
