#!/usr/bin/env python3
"""What open pages cost: the demo fleet (demo_fleet.py) with a live campaign, and in turn no page and PAGES pages that poll as the
web page does: the summary and the first nodes every second, campaigns every two. Printed: CPU time of server and PostgreSQL in
percent of a core, how often the summary was made, its time, and the bytes of the answers.

    bench/fleet_pages.py [PAGES [ROUNDS [SECONDS [JOBS]]]]        default 10 pages, 3 rounds of 10 s, 6,000 jobs
"""

import statistics
import sys
import threading
import time

import demo_fleet
import driver

PATHS = ("/v1/fleet", "/v1/fleet/nodes?limit=100", "/v1/campaigns?limit=50")


def poll(fleet, stop, sizes, number):
    connection = demo_fleet.Connection(fleet.server.port)
    turn = number
    while not stop.wait(1):
        for path in PATHS[:2 + turn % 2]:
            status, answer, size = connection.get(path, fleet.tokens["dashboard"])
            assert status == 200, (path, status, answer)
            sizes[path] = size
        turn += 1


def main():
    pages, rounds, seconds, jobs = (int(word) for word in (*sys.argv[1:], *("10", "3", "10", "6000")[len(sys.argv) - 1:]))
    with demo_fleet.Fleet(jobs=jobs, live=jobs // 2) as fleet:
        pid, postgres = fleet.server.process.pid, fleet.postgres.process.pid
        sizes, used = {}, {0: [], pages: []}
        time.sleep(5)  # the first leases

        def cpu():
            return driver.cpu_seconds(pid), driver.cpu_seconds_of(postgres)

        for i in range(2 * rounds):
            n = pages if i % 2 else 0
            stop = threading.Event()
            threads = [threading.Thread(target=poll, args=(fleet, stop, sizes, k)) for k in range(n)]
            for thread in threads:
                thread.start()
            before, began = cpu(), time.monotonic()
            time.sleep(seconds)
            after, passed = cpu(), time.monotonic() - began
            stop.set()
            for thread in threads:
                thread.join()
            used[n].append([100 * (b - a) / passed for a, b in zip(before, after)])
        made = driver.metrics(fleet.server)
        for n, shares in used.items():
            server, database = zip(*shares)
            print(f"{n:3} pages: server {driver.spread(server, 1)} % of a core, PostgreSQL {driver.spread(database, 1)} %")
        difference = [statistics.median(s[i] for s in used[pages]) - statistics.median(s[i] for s in used[0]) for i in (0, 1)]
        print(f"{pages} pages more: server {difference[0]:+.1f} % of a core, PostgreSQL {difference[1]:+.1f} %")
        for statement in ("fleet_open", "fleet_devices", "fleet_campaigns", "fleet_device_seconds"):
            runs, took = (made[f'wavetune_db_{of}_total{{statement="{statement}"}}'] for of in ("runs", "seconds"))
            print(f"{statement}: {runs:.0f} runs, {1000 * took / runs:.1f} ms each")
        print("bytes: " + ", ".join(f"{path} {size:,}" for path, size in sorted(sizes.items())))


if __name__ == "__main__":
    main()
