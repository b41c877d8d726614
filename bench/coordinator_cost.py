#!/usr/bin/env python3
"""What the coordinator itself costs for each measurement: a space of 2,000 configs of a no-op kernel, a real agent, the CPU
time of the server process and of its PostgreSQL backends, and how many statements the database saw for how many requests.

    bench/coordinator_cost.py
"""

import re
import time

import driver
import harness


def statements(server):
    """{statement: runs} as the server counts them."""
    text = server.request("GET", "/metrics").body.decode()
    return {name: float(runs) for name, runs in re.findall(r'wavetune_db_runs_total\{statement="(\w+)"\} (\S+)', text)}


def main():
    folder = driver.scratch()
    postgres = harness.Postgres()
    programs = []
    try:
        database = postgres.database()
        postgres.process.terminate()  # started again with the extension that counts statements
        postgres.process.wait(20)
        configuration = postgres.folder / "data/postgresql.auto.conf"
        configuration.write_text("shared_preload_libraries = 'pg_stat_statements'\n")
        postgres.start()
        postgres.sql("create extension pg_stat_statements", conninfo=database)
        server = harness.Server(database, folder)
        programs.append(server)
        agent = harness.Agent(server, folder, options=("--screen-rounds", "3", "--final-rounds", "10"))
        programs.append(agent)
        harness.wait_until(lambda: server.items("/v1/agents"), 30, "the agent")
        postgres.sql("select pg_stat_statements_reset()", conninfo=database)
        before, backends_before = driver.cpu_seconds(server.process.pid), {p: driver.cpu_seconds(p) for p in driver.children(postgres.process.pid)}
        began = time.monotonic()
        harness.wavetune(server, "submit", f"{harness.KERNELS}/noop", "--key", "n=1", "--wait", timeout=600)
        elapsed = time.monotonic() - began
        own = driver.cpu_seconds(server.process.pid) - before
        backends = sum(driver.cpu_seconds(p) - backends_before.get(p, 0) for p in driver.children(postgres.process.pid))
        job = server.items("/v1/jobs")[0]["job"]
        measured = len(server.items(f"/v1/jobs/{job}/measurements"))
        grants = int(postgres.sql("select count(*) from leases where state = 'done'", conninfo=database))
        print(f"{measured} measurements in {grants} leases ({measured / grants:.0f} a lease), {elapsed:.1f} s end to end")
        print(f"server      {own * 1e3 / measured:.3f} ms of one core for each measurement")
        print(f"PostgreSQL  {backends * 1e3 / measured:.3f} ms of one core for each measurement (all its processes)")
        print("statements that the database saw (pg_stat_statements):")
        rows = postgres.sql("select calls, rows, left(regexp_replace(query, '\\s+', ' ', 'g'), 90) from pg_stat_statements "
                            "where dbid = (select oid from pg_database where datname = current_database()) "
                            "order by calls desc limit 14", conninfo=database)
        for row in rows.splitlines():
            calls, touched, text = row.split("|", 2)
            print(f"  {calls:>6} runs {touched:>7} rows  {text}")
        print(f"ratio: {own * 1e3 / measured:.3f} ms against the goal of 1 ms: {own * 1e3 / measured:.2f} x")
    finally:
        for program in reversed(programs):
            program.stop()
        postgres.stop()


main()
