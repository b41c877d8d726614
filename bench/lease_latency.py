#!/usr/bin/env python3
"""How long a lease request takes with 1,000 agents at a modest rate of requests, with few and with many measurements stored.

Two databases of one cluster, a server on each, in turn: one with 10^4 measurements in its tables, one with 10^6 (done jobs
of 2,000 configs in 16 leases, written by SQL into the real tables with all their indexes). 1,000 connections, each an agent
of its own, request one every 5 s (200 lease requests a second), get a lease of 8 configs and post its measurements at once. The
latency is that of the request for the lease, committed before it is answered.

    bench/lease_latency.py [ROUNDS [SECONDS [MANY]]]        default 3 rounds of 10 s, 1,000,000 measurements
"""

import statistics
import sys

import driver
import harness

AGENTS, RATE = 1000, 200
FEW = 10_000
CONFIGS = 128  # of a job, in leases of 8, or in larger ones once the server knows how short these configs are
LEASE_MOST = 32
STATEMENTS = ("lease_take", "lease_held", "lease_change_state", "results_insert", "jobs_ready")
P99_GOAL_MS, WORSE_GOAL = 10, 1.10

# Done jobs like the existing one, with done leases and a measurement for each config of a lease.
FILL = """
insert into jobs (kernel, key, key_digest, space_digest, environment_id, tag, run, state, priority, baseline, seed, configs,
                  runner, device_class, events, finished_at)
  select kernel, key, sha256(('filled ' || g)::bytea), space_digest, environment_id, 'filled', '', 'done', 0, 0, 7, 2000, runner,
         device_class, 1, now() from (select * from jobs order by id limit 1) j, generate_series(1, {jobs}) g;
insert into leases (job_id, stage, round, process, configs, remaining, state, epoch, device_class, priority, agent, device,
                    nonce, posts)
  select id, 'screen', 0, 0, int8multirange(int8range(g * 125, g * 125 + 125)), '{{}}', 'done', 1, device_class, 0, 'filled',
         'cpu0', 'filled', 1 from jobs, generate_series(0, 15) g where tag = 'filled';
insert into measurements (job_id, lease_id, epoch, seq, body_digest, config, stage, round, process, agent, device, outcome,
                          timer, regime, samples_us, baseline_us, ratio, device_us, late)
  select l.job_id, l.id, 1, s, sha256(int8send(s)), lower(l.configs) + s - 1, 'screen', 0, 0, l.agent, l.device, 'correct',
         'bench', 'cold', '{{100.5,100.25,100.125}}', '{{100.5,100.25,100.125}}', 1, 300, false
  from leases l, generate_series(1, 125) s where l.agent = 'filled' order by l.id, s;
vacuum analyze;
"""


class Side:
    def __init__(self, bench, measurements):
        self.bench, self.key = bench, 0
        self.server = bench.server(options=harness.LEASES_OF_8)
        self.kernel = driver.register(self.server)
        for statement in FILL.format(jobs=measurements // 2000).split(";\n"):
            self.sql(statement)
        self.agents = driver.enrol(self.server, AGENTS)
        self.stored = int(self.sql("select count(*) from measurements"))
        self.figures = []

    def sql(self, text):
        return self.bench.postgres.sql(text, conninfo=self.server.database) if text.strip() else ""

    def measure(self, seconds):
        jobs = int(RATE * seconds * LEASE_MOST / CONFIGS * 1.2) + 1
        driver.submit(self.server, self.kernel, [{"n": self.key + i + 1} for i in range(jobs)], driver.space_of(CONFIGS))
        self.key += jobs
        self.sql("checkpoint")
        before = driver.metrics(self.server)
        figures = driver.run_load("lease_load", self.server, self.agents, AGENTS, seconds, RATE)
        if figures["empty"]:
            sys.exit(f"the leases ran out: {figures}")
        after = driver.metrics(self.server)
        for statement in STATEMENTS:
            figures[statement] = driver.statement_ms(before, after, statement)
        self.figures.append(figures)
        return figures


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10
    many = int(sys.argv[3]) if len(sys.argv) > 3 else 1_000_000
    with driver.Bench() as bench:
        bench.print_machine()
        sides = [Side(bench, FEW), Side(bench, many)]
        for i in range(rounds):
            for side in sides if i % 2 == 0 else sides[::-1]:
                f = side.measure(seconds)
                print(f"  round {i + 1}: {side.stored:9,} measurements: {f['leases']:,} leases of {f['measurements'] / f['leases']:.0f}"
                      f" configs, p50 {f['lease_p50_us'] / 1e3:.2f} ms, p99 {f['lease_p99_us'] / 1e3:.2f} ms, longest "
                      f"{f['lease_max_us'] / 1e3:.1f} ms, {f['busy']} turns found their agent busy", flush=True)
        bench.print_machine()
        for side in sides:
            print(f"{side.stored:9,} measurements, {AGENTS:,} agents, {RATE} requests/s: lease p50 "
                  f"{driver.spread([f['lease_p50_us'] / 1e3 for f in side.figures], 2)} ms, p99 "
                  f"{driver.spread([f['lease_p99_us'] / 1e3 for f in side.figures], 2)} ms; "
                  "statements: " + ", ".join(f"{name} {statistics.median(f[name] for f in side.figures):.2f} ms"
                                             for name in STATEMENTS))
        p50, p99 = ([statistics.median(f[name] for f in side.figures) / 1e3 for side in sides]
                    for name in ("lease_p50_us", "lease_p99_us"))
        print(f"ratio: {sides[1].stored:,} against {sides[0].stored:,} measurements: p50 {p50[1] / p50[0]:.2f} x, p99 "
              f"{p99[1] / p99[0]:.2f} x (goal {WORSE_GOAL:.2f}); p99 {p99[1]:.2f} ms against the goal of {P99_GOAL_MS} ms: "
              f"{p99[1] / P99_GOAL_MS:.2f} x")


main()
