#!/usr/bin/env python3
"""How long leases take while another program's session leaves its transaction open, against before it began.

Such a session (BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1, then nothing) keeps PostgreSQL from removing the old versions of
rows, of which every grant and every post of results makes some: what looks for the next open lease must not pass over them all.
CONNECTIONS connections take RATE leases of 8 configs a second and post their results, for a quarter of the time without the
session, then for SECONDS with it, in windows of WINDOW seconds. Their agents send heartbeats. Prints for each window p50 and p99
of granted lease requests, and PostgreSQL's CPU time and the index entries of leases that it read for a cycle; at the end the
ratio of the medians of the last quarter with the session to those without it.

    bench/forgotten_transaction.py [SECONDS [RATE [GRANTED]]]        default 120 s, 300 leases/s; 600 for ten minutes

GRANTED leases are granted and done by SQL when the session begins, so that a short run with few requests shows what a long one
would: 40 30 180000 is the state after ten minutes at 300 leases/s.
"""

import contextlib
import statistics
import subprocess
import sys
import threading

import driver
import harness

CONNECTIONS, LEASES_A_JOB, CONFIGS, WINDOW = 16, 200, 8, 10
STATEMENTS = ("lease_take", "lease_held", "results_lock", "lease_change_state", "results_insert", "jobs_ready", "jobs_ready_all",
              "leases_expire", "leases_expire_due", "leases_defer", "agents_seen", "job_change_state")


class Side:
    def __init__(self, bench):
        self.bench = bench
        self.server = bench.server(options=harness.LEASES_OF_8)
        self.kernel = driver.register(self.server)
        self.agents = driver.enrol(self.server, CONNECTIONS)

    def sql(self, text):
        return self.bench.postgres.sql(text, conninfo=self.server.database)

    def submit(self, leases):
        keys = [{"n": n + 1} for n in range(-(-leases // LEASES_A_JOB))]
        for first in range(0, len(keys), 200):  # a request has at most 4 MiB
            driver.submit(self.server, self.kernel, keys[first:first + 200], driver.space_of(LEASES_A_JOB * CONFIGS))

    def entries_read(self):
        """What scans of the indexes of leases returned, entries of dead rows included."""
        return int(self.sql("select sum(idx_tup_read) from pg_stat_user_indexes where relname = 'leases'"))

    def grant(self, leases):
        """Grants and completes the first leases by SQL, and ends their jobs."""
        if leases:
            first = f"(select id from jobs where state in ('queued', 'running') order by id limit {leases // LEASES_A_JOB})"
            self.sql(f"update leases set state = 'held', epoch = epoch + 1, agent = 'bench', device = 'cpu0', nonce = id::text, "
                     "granted_at = now(), expires_at = now() + interval '1 h', due_at = now() - random() * interval '10 min' "
                     f"where state = 'open' and job_id in {first}; "
                     "update leases set state = 'done', remaining = '{}' where agent = 'bench'")
            self.sql(f"update jobs set state = 'cancelled', finished_at = now() where id in {first}")

    @contextlib.contextmanager
    def heartbeats(self):
        """The agents' heartbeats, as often as the server asks for them."""
        is_over = threading.Event()

        def send():
            while not is_over.wait(5):
                for agent in self.agents:
                    self.server.request("POST", f"/v1/agents/{agent}/heartbeat", {"boot": "b"})

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def windows(self, seconds, rate, what):
        found = []
        for _ in range(max(1, round(seconds / WINDOW))):
            before, cpu, read = driver.metrics(self.server), self.bench.postgres_cpu_seconds(), self.entries_read()
            figures = driver.run_load("lease_load", self.server, self.agents, CONNECTIONS, WINDOW, rate)
            if figures["empty"]:
                sys.exit(f"the leases ran out: {figures}")
            after = driver.metrics(self.server)
            figures["database_us"] = (self.bench.postgres_cpu_seconds() - cpu) * 1e6 / figures["cycles"]
            figures["entries"] = (self.entries_read() - read) / figures["cycles"]
            for statement in STATEMENTS:
                figures[statement] = driver.statement_ms(before, after, statement)
            dead = self.sql("select string_agg(relname || ' ' || n_dead_tup, ', ' order by relname) from pg_stat_user_tables "
                            "where relname in ('agents', 'jobs', 'leases')")
            found.append(figures)
            print(f"  {what}, window {len(found)}: {figures['cycles_per_s']:,.0f} of {rate:g} cycles/s, lease p50 "
                  f"{figures['lease_p50_us'] / 1e3:.1f} ms, p99 {figures['lease_p99_us'] / 1e3:.1f} ms; a cycle: PostgreSQL "
                  f"{figures['database_us']:,.0f} us, {figures['entries']:,.0f} entries; dead rows: {dead}", flush=True)
        return found


@contextlib.contextmanager
def forgotten_transaction(database):
    command = [harness.postgres_bin() / "psql", database, "-XAtq"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as session:
        session.stdin.write("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;\n")
        session.stdin.flush()
        assert session.stdout.readline() == "1\n"
        yield
        session.stdin.close()


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120
    rate = float(sys.argv[2]) if len(sys.argv) > 2 else 300
    granted = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    with driver.Bench() as bench:
        bench.print_machine()
        side = Side(bench)
        side.submit(int(rate * (1.25 * seconds + 3 * WINDOW)) + granted)
        side.sql("vacuum analyze")
        with side.heartbeats():
            side.windows(WINDOW, rate, "warming up")
            without = side.windows(seconds / 4, rate, "without it")
            with forgotten_transaction(side.server.database):
                side.grant(granted)
                with_it = side.windows(seconds, rate, "with it")
        bench.print_machine()
        last = with_it[-max(1, len(with_it) // 4):]

        def median(figures, name):
            return statistics.median(f[name] for f in figures)

        for name, figures in (("without a forgotten transaction", without), (f"with one, after {seconds:g} s", last)):
            print(f"{name}: {median(figures, 'cycles_per_s'):,.0f} of {rate:g} cycles/s, lease p50 "
                  f"{driver.spread([f['lease_p50_us'] / 1e3 for f in figures], 1)} ms, p99 "
                  f"{driver.spread([f['lease_p99_us'] / 1e3 for f in figures], 1)} ms; statements, mean: "
                  + ", ".join(f"{s} {median(figures, s):.2f} ms" for s in STATEMENTS))
        print("ratio: with a forgotten transaction against without: "
              + ", ".join(f"{label} {median(last, name) / median(without, name):.2f} x"
                          for label, name in (("p50", "lease_p50_us"), ("p99", "lease_p99_us"),
                                               ("PostgreSQL's CPU time", "database_us"))) + " (goal: p50 2, floor 5)")


main()
