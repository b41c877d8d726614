#!/usr/bin/env python3
"""What the web page costs: CPU of the server with ten pages open on a live campaign and with none, in turn; bytes over the
wire, time to first paint and memory of a tab, for each page. Over the demo fleet: 40 nodes of 8 devices, 6,000 jobs.

    tests/browser/run.sh bench/page_cost.py [PAGES [SECONDS [ROUNDS]]]        default 10 pages, 20 s a side, 3 rounds
    bench/page_cost.py --leases [PAGES [SECONDS [ROUNDS]]]                    default 50 pages, 10 s a side, 3 rounds

--leases: how long lease requests take while so many fleet pages are open and without any; the pages are clients that send what
the page sends, so that no browser takes the CPU. No browser is needed.
"""

import http.client
import os
import pathlib
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/browser"), str(ROOT / "tests/system"), str(ROOT / "bench")]
import driver  # noqa: E402
import harness  # noqa: E402

AGENTS, RATE, CONFIGS = 320, 100, 128


class Reader(threading.Thread):
    """What a fleet page sends: the summary every 2 s, the nodes every 4 s."""

    def __init__(self, server, stop, delay):
        super().__init__(daemon=True)
        self.server, self.stop, self.delay = server, stop, delay

    def run(self):
        http_ = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        self.stop.wait(self.delay)
        turn = 0
        while not self.stop.is_set():
            for path in ("/v1/fleet", "/v1/fleet/nodes?limit=1000")[:2 - turn % 2]:
                http_.request("GET", path, headers={"Authorization": f"Bearer {self.server.token}"})
                http_.getresponse().read()
            turn += 1
            self.stop.wait(2)


def leases(pages, seconds, rounds):
    with driver.Bench() as bench:
        bench.print_machine()
        server = bench.server(options=harness.LEASES_OF_8)
        kernel, agents, key = driver.register(server), driver.enrol(server, AGENTS), 0
        figures = {0: [], pages: []}
        for i in range(rounds):
            for n in (0, pages) if i % 2 == 0 else (pages, 0):
                jobs = int(RATE * seconds * 32 / CONFIGS * 1.2) + 1
                driver.submit(server, kernel, [{"n": key + k + 1} for k in range(jobs)], driver.space_of(CONFIGS))
                key += jobs
                stop = threading.Event()
                readers = [Reader(server, stop, 4 * k / max(1, n)) for k in range(n)]
                for reader in readers:
                    reader.start()
                figures[n].append(driver.run_load("lease_load", server, agents, AGENTS, seconds, RATE))
                stop.set()
                for reader in readers:
                    reader.join()
                print(f"  round {i + 1}, {n} pages: p99 {figures[n][-1]['lease_p99_us'] / 1e3:.2f} ms", flush=True)
        p99 = {n: [f["lease_p99_us"] / 1e3 for f in all_] for n, all_ in figures.items()}
        print(f"lease p99, {AGENTS} agents, {RATE} requests/s: {driver.spread(p99[0], 2)} ms without pages, {driver.spread(p99[pages], 2)} ms "
              f"with {pages}: {statistics.median(p99[pages]) / statistics.median(p99[0]):.2f} x (goal 1.10)")


def weigh(browsers, browser, fleet, name, address):
    """(first paint in ms, content shown in ms, KiB of the first load, KiB a minute, MiB of heap) of a page in a new tab."""
    tab = browsers.Tab(browser, fleet.server).sign_in(fleet.tokens["dashboard"])
    session = tab.context.new_cdp_session(tab.page)
    session.send("Network.enable")
    session.send("Performance.enable")
    received = [0]
    session.on("Network.loadingFinished", lambda event: received.__setitem__(0, received[0] + event["encodedDataLength"]))
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    began = time.monotonic()
    tab.page.goto(f"{fleet.server.url}/{address}")  # the same document with another part: load it anew
    tab.page.reload()
    tab.page.locator("main h1").first.wait_for()
    shown = time.monotonic() - began
    tab.settle()
    paint = tab.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN")
    first = received[0] / 1024
    tab.page.wait_for_timeout(10_000)
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    print(f"{name:10} first paint {paint:6.0f} ms   heading {shown * 1e3:6.0f} ms   first load {first:7.0f} KiB   then {(received[0] / 1024 - first) * 6:7.0f} KiB a minute   "
          f"heap {metrics['JSHeapUsedSize'] / 2**20:5.1f} MiB   nodes {metrics['Nodes']:.0f}   {' '.join(tab.complaints)}")
    tab.close()


def share_of_a_core(fleet, seconds):
    cpu, began = driver.cpu_seconds(fleet.server.process.pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (driver.cpu_seconds(fleet.server.process.pid) - cpu) / (time.monotonic() - began)


def main():
    is_leases = sys.argv[1:2] == ["--leases"]
    if is_leases:
        numbers = [int(word) for word in sys.argv[2:]]
        return leases(*numbers, *(50, 10, 3)[len(numbers):])
    pages, seconds, rounds = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((1, 10), (2, 20), (3, 3)))
    import browser as browsers  # not for --leases: playwright is in build/browser only
    import demo_fleet
    from screenshots import addresses
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    with demo_fleet.Fleet() as fleet, browsers.chromium() as browser:
        where = addresses(fleet)
        for name, address in where.items():
            weigh(browsers, browser, fleet, name, address)

        none, some = [], []
        for _ in range(rounds):
            none.append(share_of_a_core(fleet, seconds))
            tabs = [browsers.Tab(browser, fleet.server).sign_in(fleet.tokens["dashboard"]) for _ in range(pages)]
            for i, tab in enumerate(tabs):
                tab.page.evaluate("address => { location.hash = address; }", ["#/fleet", "#/jobs"][i % 2])
            time.sleep(3)
            # playwright must be served while the pages work.
            cpu, began = driver.cpu_seconds(fleet.server.process.pid), time.monotonic()
            tabs[0].page.wait_for_timeout(seconds * 1000)
            some.append(100 * (driver.cpu_seconds(fleet.server.process.pid) - cpu) / (time.monotonic() - began))
            for tab in tabs:
                tab.close()
        print(f"server's CPU, % of a core: {statistics.median(none):.1f} ({min(none):.1f} to {max(none):.1f}) without pages, "
              f"{statistics.median(some):.1f} ({min(some):.1f} to {max(some):.1f}) with {pages}; goal: 2 more at most")


if __name__ == "__main__":
    main()
