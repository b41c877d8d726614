#!/usr/bin/env python3
"""Agents that wait: 10,000 long polls for a lease parked in one server, on loopback. What they cost (memory, CPU), and how
long it takes from submitting one job of many leases until the last lease was granted; none may be lost, none granted twice.

Once with the server's own poll every second as a fallback (the default) and once with a poll every 60 s, where only the
wake-up of the submission can serve a parked agent.

    bench/parked_agents.py [CONNECTIONS [LEASES [ROUNDS]]]        default 10,000, 1,000 leases a job, 3 rounds
"""

import json
import resource
import statistics
import subprocess
import sys
import time

import driver
import harness

CONFIGS_PER_LEASE = 8  # so few configs that no lease is split
MEMORY_GOAL_MIB = 512


class Crowd:
    """park_load, command by command."""

    def __init__(self, bench, server, agents, connections):
        file = bench.folder / "agents"
        file.write_text("".join(f"{agent}\n" for agent in agents))
        self.process = subprocess.Popen(
            [driver.need_build("bench/park_load"), "127.0.0.1", str(server.port), server.token, str(file), str(connections)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        bench.programs.callback(self.end)

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)

    def start(self, command):
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("park_load ended; its message is above")
        return json.loads(line)

    def run(self, command):
        self.start(command)
        return self.answer()


def wait_for_parked(server, n):
    deadline = time.monotonic() + 30
    while driver.metrics(server)["wavetune_parked"] < n:
        if time.monotonic() > deadline:
            sys.exit(f"{n} requests should be parked; {driver.metrics(server)['wavetune_parked']:.0f} are")
        time.sleep(0.2)


def idle_cost(bench, server, seconds=3):
    """CPU of the server and of PostgreSQL while everything waits, in percent of one core."""
    before = driver.cpu_seconds(server.process.pid), bench.postgres_cpu_seconds()
    time.sleep(seconds)
    return ((driver.cpu_seconds(server.process.pid) - before[0]) * 100 / seconds,
            (bench.postgres_cpu_seconds() - before[1]) * 100 / seconds)


def run(bench, connections, leases, rounds, poll_ms):
    server = bench.server(options=("--poll-ms", str(poll_ms), *harness.LEASES_OF_8))
    kernel, agents = driver.register(server), driver.enrol(server, 100)
    before = driver.rss_mib(server.process.pid)
    crowd = Crowd(bench, server, agents, connections)
    assert crowd.run("park") == {"parked": connections}
    wait_for_parked(server, connections * 0.98)  # a few are always being polled
    parked = driver.rss_mib(server.process.pid)
    own, database = idle_cost(bench, server)
    print(f"poll every {poll_ms / 1000:g} s: {connections:,} parked: server RSS {before:.0f} -> {parked:.0f} MiB "
          f"({(parked - before) * 1024 / connections:.1f} KiB each); meanwhile {own:.0f} % of a core in the server, "
          f"{database:.0f} % in PostgreSQL", flush=True)
    space = {"parameters": {"P": list(range(CONFIGS_PER_LEASE)), "Q": list(range(leases))}, "default": {"P": 0, "Q": 0}}
    lasts, peak = [], parked
    for i in range(rounds):
        crowd.run("park")
        wait_for_parked(server, connections * 0.98)
        cpu = driver.cpu_seconds(server.process.pid), bench.postgres_cpu_seconds()
        crowd.start(f"expect {leases}")
        began = time.monotonic_ns()
        job, = driver.submit(server, kernel, [{"n": i + 1}], space)
        submitted = time.monotonic_ns()
        grants = crowd.answer()
        own, database = ((after - before) * 1e6 / leases for before, after in
                         zip(cpu, (driver.cpu_seconds(server.process.pid), bench.postgres_cpu_seconds())))
        peak = max(peak, driver.rss_mib(server.process.pid))
        after = {name: (grants[f"{name}_ns"] - submitted) / 1e6 for name in ("first", "median", "last")}
        print(f"  round {i + 1}: {leases:,} leases; submitting took {(submitted - began) / 1e6:,.0f} ms; granted "
              f"{grants['granted']:,} ({grants['distinct']:,} distinct, {grants['failed']} failed), after the answer to the "
              f"submission: first {after['first']:,.1f} ms, median {after['median']:,.1f} ms, last {after['last']:,.1f} ms; "
              f"CPU a lease: server {own:.0f} us, PostgreSQL {database:.0f} us", flush=True)
        if (grants["granted"], grants["distinct"], grants["failed"]) != (leases, leases, 0):
            sys.exit("leases were lost, or granted twice")
        lasts.append(after["last"])
        assert server.request("DELETE", f"/v1/jobs/{job['job']}").status == 200
    crowd.end()
    server.stop()
    return peak, lasts


def main():
    connections = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
    leases = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < connections + 512:
        sys.exit(f"this process may open {most} files (ulimit -Hn), {connections} connections need more")
    with driver.Bench() as bench:
        bench.print_machine()
        for poll_ms in (1000, 60000):
            peak, lasts = run(bench, connections, leases, rounds, poll_ms)
            print(f"ratio: poll every {poll_ms / 1000:g} s: {peak:.0f} MiB at the most against the goal of "
                  f"{MEMORY_GOAL_MIB}: {peak / MEMORY_GOAL_MIB:.2f} x; last of {leases:,} leases after "
                  f"{driver.spread(lasts, 0)} ms, {statistics.median(lasts) * 1e3 / leases:.0f} us a lease; 0 of "
                  f"{rounds * leases:,} lost", flush=True)


main()
