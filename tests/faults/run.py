#!/usr/bin/env python3
"""Random faults against two servers on one PostgreSQL, with real and played agents; then the checker reads what happened.

    tests/faults/run.py [--seconds S] [--seed N] [--keep] [--only FAULT,…]

Prints the seed, which decides which faults come when; threads and processes still interleave as they like. Each fault happens
once before they are chosen by weight. When they have ended, everything is repaired and must come to its end: all jobs, all
spools. The exit status is 1 if a rule is broken; logs and history are kept then.
$WAVETUNE_BUILD names the build, whose server has failpoints if it is a debug build.
"""

import argparse
import collections
import heapq
import itertools
import json
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import checker
import history
from clients import CHANNEL, Mover, Played, Submitter
from faults import FAULTS, Faults
from world import World, harness

CALM_S = 120 * harness.PATIENCE  # for all jobs to end after the last fault
TICK_S = 0.05


def isolate():
    """Runs this program again in namespaces of its own, where that is possible."""
    if os.geteuid() or "FAULTS_ISOLATED" in os.environ:
        return
    unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") and subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
        # The shell is process 1, which reaps what killed programs leave.
        os.execvpe("unshare", [*unshare, "sh", "-c", '"$@"; exit $?', "sh", sys.executable, *sys.argv],
                   {**os.environ, "FAULTS_ISOLATED": "1"})


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long faults happen (default 60)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="default: a new one")
    parser.add_argument("--keep", action="store_true", help="keep logs and history of a good run, too")
    parser.add_argument("--only", help="only these faults: " + ", ".join(f.name for f in FAULTS))
    return parser.parse_args()


class Schedule:
    """What is to be done when, in one thread."""

    def __init__(self):
        self.due, self.order = [], itertools.count()

    def after(self, seconds, do):
        heapq.heappush(self.due, (time.monotonic() + seconds, next(self.order), do))

    def run_due(self):
        while self.due and self.due[0][0] <= time.monotonic():
            again = heapq.heappop(self.due)[2]()
            if isinstance(again, tuple):
                self.after(*again)


def chosen(faults, randomness, only):
    """Each fault once, in any order, then by weight."""
    usable = [f for f in faults.usable() if not only or f.name in only]
    yield from randomness.sample(usable, len(usable))
    while True:
        yield randomness.choices(usable, [f.weight for f in usable])[0]


def sample_leases(world, is_over):
    while not is_over():
        rows = world.postgres.sql(
            "SELECT id, job_id, stage, round, process, (SELECT json_agg(json_build_array(lower(r), upper(r)))"
            " FROM unnest(remaining) AS r) FROM leases WHERE state IN ('open', 'held')", check=False)
        if rows:
            world.history.add("live", leases=[[*row[:5], json.loads(row[5] or "[]")] for row in rows])
        time.sleep(0.5)


def watch_recovery(world, is_over, recoveries):
    """How long no server was ready, each time."""
    down_since = None
    while not is_over():
        is_up = any(world.is_ready(server) for server in world.servers)
        if not is_up:
            down_since = down_since or time.monotonic()
        elif down_since:
            recoveries.append(time.monotonic() - down_since)
            down_since = None
        time.sleep(0.1)


def injure(world, faults, options, randomness, counts):
    """Faults until the time is over, and then until all are undone."""
    schedule = Schedule()
    end, next_at = time.monotonic() + options.seconds, time.monotonic() + 3
    only = options.only.split(",") if options.only else None
    for fault in chosen(faults, randomness, only):
        while time.monotonic() < min(next_at, end):
            schedule.run_due()
            world.tend()
            time.sleep(TICK_S)
        if time.monotonic() >= end:
            break
        done = fault.do(faults)
        if done:
            detail, seconds, undo = done
            world.history.add("fault", name=fault.name, detail=detail)
            counts[fault.name] += 1
            if undo:
                schedule.after(seconds, undo)
        if counts.total() % 20 == 0:
            world.resume_drifted()
        next_at = time.monotonic() + randomness.uniform(0.3, 3)
    while schedule.due:
        schedule.run_due()
        world.tend()
        time.sleep(TICK_S)


def calm_down(world):
    """Waits until all jobs have ended and all results were posted; returns how long that took."""
    began = time.monotonic()

    def is_calm():
        world.tend()
        world.resume_drifted()
        open_jobs = world.postgres.sql("SELECT count(*) FROM jobs WHERE state IN ('queued', 'running')", check=False)
        return open_jobs == [["0"]] and not any(world.spool_pending(agent) for agent in world.agents)

    while not is_calm() and time.monotonic() < began + CALM_S:
        time.sleep(0.5)
    return time.monotonic() - began


def end_programs(world):
    """SIGTERM to agents, then to servers."""
    for programs in (world.agents, world.servers):
        early = {program: program.terminate() for program in programs}
        for program in programs:
            try:
                status = program.process.wait(30 * harness.PATIENCE)
            except subprocess.TimeoutExpired:
                status = None
                program.kill()
            world.history.add("exit", who=program.name, status=status, early=early[program])


def dump(world):
    """The database as it is at the end."""
    sql, add = world.postgres.sql, world.history.add
    for what, id_, was, now in sql(
            "SELECT what, id, COALESCE(was, 'null'), COALESCE(now, 'null') FROM faults_changes ORDER BY n"):
        add("change", row=what, id=id_, was=json.loads(was), now=json.loads(now))
    for lease, epoch, seq, config, job, stage, round_, process, late, quarantined, sample in sql(
            "SELECT lease_id, epoch, seq, config, job_id, stage, round, process, late, quarantined, samples_us[1]"
            " FROM measurements"):
        add("measurement", lease=lease, epoch=int(epoch), seq=int(seq), config=int(config), job=job, stage=stage,
            round=int(round_), process=int(process), late=late == "t", quarantined=quarantined == "t",
            sample=float(sample) if sample else None)
    for id_, state, reason, configs, events, kinds, winner in sql(
            "SELECT j.id, state, reason, configs, events, (SELECT json_agg(kind ORDER BY event) FROM job_events e WHERE e.job_id = j.id),"
            " EXISTS (SELECT FROM winners w WHERE w.job_id = j.id) FROM jobs j"):
        add("job", id=id_, state=state, reason=reason or "", configs=int(configs), events=int(events), kinds=json.loads(kinds or "[]"),
            winner=winner == "t")
    for counter, release in sql(
            f"SELECT counter, 'sha256:' || encode(release, 'hex') FROM channel_entries WHERE name = '{CHANNEL}'"):
        add("entry", counter=int(counter), release=release)
    for agent in world.agents:
        add("spool", agent=agent.name, pending=len(world.spool_pending(agent)), refused=world.refused(agent))
    add("end")


def play(world, options):
    """The run itself: clients and faults, the calm after them, the end. Returns what is to be printed of it."""
    seed, over = options.seed, threading.Event()
    submitter = Submitter(world, seed)
    harness.wait_until(lambda: len((world.request(world.servers[0], "GET", "/v1/environments")[1] or {}).get("items", [])), 60,
                       "an agent's environment")
    submitter.prepare()
    releases = Mover.make_releases(submitter, submitter.first["environment"])
    clients = [submitter, *(Played(world, i, seed) for i in range(len(world.played))),
               *(Mover(world, i, seed, releases) for i in range(2))]
    recoveries, counts = [], collections.Counter()
    loops = [threading.Thread(target=client.run, args=(over.is_set,)) for client in clients]
    loops += [threading.Thread(target=sample_leases, args=(world, over.is_set)),
              threading.Thread(target=watch_recovery, args=(world, over.is_set, recoveries))]
    for loop in loops:
        loop.start()
    randomness = random.Random(seed)
    faults = Faults(world, randomness)
    for need, why in faults.skipped.items():
        print(f"skipped: {', '.join(f.name for f in FAULTS if f.needs == need)}: {why}")
    try:
        injure(world, faults, options, randomness, counts)
    finally:
        over.set()
        for loop in loops:
            loop.join(60 * harness.PATIENCE)
    calm_s = calm_down(world)
    end_programs(world)
    dump(world)
    requests = collections.Counter()
    for client in clients:
        requests.update(client.counts)
    proxied = collections.Counter()
    for proxy in world.proxies:
        proxied.update(proxy.counts)
    failpoints = collections.Counter()
    for server in world.servers:
        for line in server.log.read_text(errors="replace").splitlines():
            if "failpoint: reached" in line:
                failpoints[line.split("action=")[1].split(" statement")[0].replace("place=", "")] += 1
    return [f"{sum(counts.values())} faults: " + listed(counts), "failpoints: " + listed(failpoints),
            "requests through proxies: " + listed(proxied), "answers to clients: " + listed(requests),
            f"no server was ready {len(recoveries)} times, for " +
            (f"{statistics.median(recoveries):.1f} s (median), {max(recoveries):.1f} s (most)" if recoveries else "0 s"),
            f"all jobs ended and all results were posted {calm_s:.1f} s after the last fault"]


def listed(counts):
    return ", ".join(f"{name} {n}" for name, n in sorted(counts.items())) or "none"


def main():
    options = arguments()
    isolate()
    unknown = set((options.only or FAULTS[0].name).split(",")) - {f.name for f in FAULTS}
    if unknown:
        sys.exit(f"there is no fault {', '.join(unknown)}")
    print(f"tests/faults/run.py --seconds {options.seconds:g} --seed {options.seed}", flush=True)
    isolated = "FAULTS_ISOLATED" in os.environ
    if isolated:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        # PostgreSQL and libfaketime leave files there when they are killed.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "faults", "/dev/shm"], check=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="wt-faults-"))
    folder.chmod(0o755)
    os.environ |= {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "none")}
    record = history.History(folder / "history")
    world = None
    try:
        world = World(folder, options, record, isolated)
        summary = play(world, options)
    finally:
        record.close()
        for program in world.programs() if world else ():
            if program.is_up():
                program.kill()
        if world:
            world.postgres.stop()
            if isolated:
                subprocess.run(["umount", "-l", world.postgres.folder], check=False)
    kinds, acknowledged, late = collections.Counter(), 0, 0
    for event in history.read(record.path):
        kinds[event["kind"]] += 1
        if event["kind"] == "post" and event["status"] == 200:
            acknowledged += len(event["measurements"])
        late += event["kind"] == "measurement" and event["late"]
    print("\n".join(summary))
    print(f"{acknowledged} measurements were acknowledged, some again; {kinds['measurement']} are stored, {late} of them late")
    print("history: " + listed(kinds))
    is_good = checker.report(checker.check(history.read(record.path)))
    print(f"{'GOOD' if is_good else 'BAD'}, seed {options.seed}")
    if is_good and not options.keep:
        shutil.rmtree(folder)
    else:
        print(f"logs and history: {folder}")
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
