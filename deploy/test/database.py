#!/usr/bin/env python3
"""What happens to servers, agents and containers in the great events of a database's life, with real programs and PostgreSQL:
a dump is restored while agents work (backup), servers are replaced under load (upgrade), a replica takes over (replica).

Started by backup.sh, upgrade.sh and replica.sh, which build the programs first. Each check prints a line; the last one counts them.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/system"))
os.environ.setdefault("WAVETUNE_BUILD", str(SOURCE / "build/release"))

import harness  # noqa: E402
from harness import Agent, GatedKernel, Postgres, Server, wait_until, wavetune  # noqa: E402

AGENT_OPTIONS = ("--screen-rounds", "3", "--final-rounds", "10", "--config-timeout", "3600")
SERVER_OPTIONS = ("--heartbeat-ms", "500", "--lease-ms", "10000")
counts = {True: 0, False: 0}


def check(what, is_good, shown=""):
    is_good = bool(is_good)
    counts[is_good] += 1
    print(f"{'ok' if is_good else 'NOT OK'} {what}{f' ({shown})' if shown else ''}", flush=True)


class Urls:
    """In place of a server, for Agent and wavetune(): several servers on one database."""

    def __init__(self, *servers):
        self.url, self.token = ",".join(s.url for s in servers), servers[0].token


class Fleet:
    """A folder, and the programs that were started in it."""

    def __init__(self, folder):
        self.folder, self.programs, self.clusters = folder, [], []

    def start(self, kind, *arguments, **options):
        self.programs.append(kind(*arguments, **options))
        return self.programs[-1]

    def server(self, database, port=0):
        return self.start(Server, database, self.folder, port=port, options=SERVER_OPTIONS)

    def agent(self, server, name, **options):
        return self.start(Agent, server, self.folder, name=name, options=AGENT_OPTIONS, **options)

    def end(self):
        for program in reversed(self.programs):
            program.kill()
        for cluster in self.clusters:
            cluster.stop()


def run(program, *arguments):
    done = subprocess.run([str(harness.postgres_bin() / program), *map(str, arguments)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (program, done.stderr)
    return done.stdout


def submit(server, kernel, name):
    return json.loads(wavetune(server, "submit", kernel, "--key", "n=1003", "--run", name, "--json").stdout)[0]["job"]


def is_done(server, job):
    return server.get(f"/v1/jobs/{job}")["state"] == "done"


def tune(server, kernel, name):
    job = submit(server, kernel, name)
    wait_until(lambda: is_done(server, job), 60, f"job {job}")
    return job


def names_of_agents(server, state="live"):
    return {agent["name"] for agent in server.items("/v1/agents") if agent["state"] == state}


def counted_twice(server, job):
    """Measurements of the job that count, less their different (config, stage, process)."""
    rows = [(m["config"], m["stage"], m["process"]) for m in server.items(f"/v1/jobs/{job}/measurements") if not m["late"]]
    assert rows
    return len(rows) - len(set(rows))


def environment_of(server):
    return json.dumps(server.items("/v1/environments")[0]["environment"])


def publish(server, environment):
    wavetune(server, "publish", "--environment", environment, "--channel", "stable")


def fetch(server, folder, environment):
    """Exit code and the digest of the release in use."""
    done = wavetune(server, "fetch", "--channel", "stable", "--environment", environment, "--to", folder, check=False)
    return done.returncode, os.readlink(folder / "current"), done.stderr


def lease_ids(postgres, database):
    return {int(row) for row in postgres.sql("SELECT id FROM leases", conninfo=database).split()}


def documented_sql():
    """What docs/production.md says to run after a restore."""
    section = (SOURCE / "docs/production.md").read_text().split("## Restore")[1]
    return re.search(r"psql [^\n]* <<'END'\n(.*?)^END$", section, re.S | re.M).group(1)


def backup(fleet):
    postgres = Postgres()
    fleet.clusters.append(postgres)
    database = postgres.database()
    name = re.search("dbname=(.*)", database).group(1)
    server = fleet.server(database)
    port = server.port
    enrol = harness.make_token(database, "node", "enrol", "--uses", "9")
    quick = harness.small_kernel(fleet.folder / "quick")
    gated = GatedKernel(fleet.folder / "gated", {"REPEAT": [1, 2, 4, 8], "TURN": [0, 1]})

    print("== before the dump: an agent, a job, a release, a container that fetched it")
    early = fleet.agent(server, "early", token=enrol)
    wait_until(lambda: names_of_agents(server) == {"early"}, 60, "the agent")
    environment = environment_of(server)
    first = tune(server, quick, "first")
    publish(server, environment)
    cache = fleet.folder / "cache"
    _, release_of_dump, _ = fetch(server, cache, environment)
    dump = fleet.folder / "wavetune.dump"
    run("pg_dump", "--format=custom", f"--file={dump}", database)
    check("pg_dump", dump.stat().st_size > 0, f"{dump.stat().st_size} bytes")

    print("== after it: a job, a release that the container fetches, an agent that enrols, a lease that is held")
    tune(server, quick, "second")
    other = harness.small_kernel(fleet.folder / "other", name="other/quick")
    tune(server, other, "second")
    publish(server, environment)
    status, release_lost, _ = fetch(server, cache, environment)
    assert status == 0 and release_lost != release_of_dump
    lost_job = submit(server, gated.folder, "lost")
    gated.wait_reached()
    held = re.findall(r"lease: began lease=(\S+) epoch=(\d+)", early.messages)[-1]
    late = fleet.agent(server, "late", token=enrol)
    leases = lease_ids(postgres, database)
    lost_measurements = int(postgres.sql("SELECT count(*) FROM measurements", conninfo=database))
    wait_until(lambda: names_of_agents(server) == {"early", "late"}, 60, "both agents")

    print("== the servers stop, the older dump is restored; both agents still run")
    server.stop()
    begin = time.monotonic()
    run("pg_restore", "--create", "--clean", "--if-exists", f"--dbname=host={postgres.folder} user=postgres dbname=postgres", dump)
    check("pg_restore", int(postgres.sql("SELECT count(*) FROM measurements", conninfo=database)) < lost_measurements,
          f"{time.monotonic() - begin:.1f} s")

    forgotten = leases - lease_ids(postgres, database)

    # What the SQL of the page is for: a server that no agent knows shows it to the container.
    hidden = fleet.server(database)
    status, used, message = fetch(hidden, cache, environment)
    check("without the SQL of the page the container refuses the older counter, and keeps its cache",
          status != 0 and used == release_lost, message.strip())
    hidden.stop()
    postgres.sql(documented_sql(), conninfo=database)

    print("== the servers start")
    server = fleet.server(database, port)
    wait_until(lambda: "early" in names_of_agents(server), 60, "the agent that the dump knows")
    check("the agent that the dump knows works on", early.process.poll() is None)
    check("the agent that it does not know ends, for its unit to start it again", late.wait(60) == 4, "its token is unknown")
    late = fleet.agent(server, "late", token=enrol)
    wait_until(lambda: names_of_agents(server) == {"early", "late"}, 60, "both agents to be live")
    wait_until(lambda: "enrolled agent" in late.messages, 60, "its enrolment")
    check("started again it enrols anew", True)
    check("the job of the dump is still done", is_done(server, first))
    status, used, _ = fetch(server, cache, environment)
    check("the container takes the restored release", status == 0 and used == release_of_dump)
    check("the job that was lost is unknown", server.request("GET", f"/v1/jobs/{lost_job}").status == 404)
    answer = server.request("POST", f"/v1/leases/{held[0]}/results", {"epoch": int(held[1]), "measurements": [], "done": True},
                            token=(early.state / "token").read_text().strip())
    check("results for the lease that was held are refused", answer.status in (404, 409), answer)
    wait_until(lambda: held[0] in early.messages.split("not renewed")[-1], 60, "the agent to notice")
    gated.open()
    again = submit(server, gated.folder, "lost")
    wait_until(lambda: is_done(server, again), 120, "the lost job, submitted again")
    check("submitted again it is another job, and done", int(again) > int(lost_job) + 999_000, f"{lost_job}, then {again}")
    stored = {int(row) for row in postgres.sql("SELECT DISTINCT lease_id FROM measurements", conninfo=database).split()}
    check("no id of a forgotten lease was used again", forgotten and not forgotten & lease_ids(postgres, database),
          f"{len(forgotten)} forgotten")
    check("no result of a forgotten lease was stored", stored and not forgotten & stored)
    check("nothing counts twice", counted_twice(server, again) == 0 and counted_twice(server, first) == 0)
    tune(server, other, "second")
    publish(server, environment)
    status, used, _ = fetch(server, cache, environment)
    check("a new release reaches the container", status == 0 and used != release_of_dump)
    check("the agents end in order", early.stop() == 0 and late.stop() == 0)


class Load:
    """Clients that repeat a command from several threads until stopped; each repetition must succeed."""

    def __init__(self, server, commands):
        self.ran, self.failed, self.is_over = 0, [], threading.Event()
        self.program = harness.BUILD / "wavetune"
        self.environment = {**os.environ, "WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": server.token}
        self.threads = [threading.Thread(target=self.repeat, args=(command,)) for command in commands]
        for thread in self.threads:
            thread.start()

    def repeat(self, command):
        while not self.is_over.is_set():
            done = subprocess.run([self.program, *command], capture_output=True, text=True, env=self.environment, timeout=600)
            self.ran += 1
            if done.returncode != 0:
                self.failed.append((command[0], done.returncode, done.stderr))

    def stop(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def upgrade(fleet, old):
    postgres = Postgres()
    fleet.clusters.append(postgres)
    database = postgres.database(migrated=False)
    new, harness.BUILD = harness.BUILD, old
    versions = [subprocess.run([build / "wavetune-server", "--version"], capture_output=True, text=True).stdout.splitlines()[0] for build in (old, new)]
    print(f"== two servers of {versions[0]}, two agents, clients with both URLs")
    servers = [fleet.server(database) for _ in range(2)]
    both = Urls(*servers)
    agents = [fleet.agent(both, f"node{i}") for i in range(2)]
    wait_until(lambda: len(names_of_agents(servers[0])) == 2, 60, "the agents")
    environment = environment_of(servers[0])
    kernel = harness.sleeping_kernel(fleet.folder / "sleeping")
    first = tune(servers[0], kernel, "first")
    publish(servers[0], environment)
    load = Load(both, [("jobs", "--json"), ("show", str(first), "--json"), ("agents", "--json"),
                       ("fetch", "--channel", "stable", "--environment", environment, "--to", fleet.folder / "cache")])
    wait_until(lambda: load.ran > 20, 60, "some requests")
    jobs = [submit(both, kernel, f"during{i}") for i in range(3)]

    downs = []
    for i, server in enumerate(servers):
        print(f"== server {i + 1} is replaced by {versions[1]}")
        before, begin = load.ran, time.monotonic()
        check("SIGTERM ends it with 0", server.stop() == 0)
        harness.BUILD = new
        servers[i] = fleet.server(database, server.port)
        harness.BUILD = old  # the clients' programs are replaced after the servers'
        downs.append(time.monotonic() - begin)
        wait_until(lambda: load.ran > before + 20, 60, "more requests")  # noqa: B023
    job = submit(both, kernel, "after")
    wait_until(lambda: all(is_done(servers[0], j) for j in (*jobs, job)), 120, "the jobs")
    load.stop()
    check("no request of a client failed", not load.failed, f"{load.ran} commands, {len(load.failed)} failed; servers were away for "
          + " and ".join(f"{s:.1f} s" for s in downs))
    for failure in load.failed[:5]:
        print("   |", *failure)
    check("the jobs before, during and after are done, and nothing counts twice",
          not any(counted_twice(servers[1], j) for j in (first, *jobs, job)))
    check("no measurement was late", not any(m["late"] for j in jobs for m in servers[0].items(f"/v1/jobs/{j}/measurements")))
    print("== the agents are replaced")
    harness.BUILD = new
    for i, agent in enumerate(agents):
        check(f"agent {i + 1} ends with 0", agent.stop() == 0)
        agents[i] = fleet.agent(both, f"node{i}")
    tune(servers[0], kernel, "last")
    check("they are the same agents", len(servers[0].items("/v1/agents")) == 2)


class Cluster(Postgres):
    """A cluster whose commits wait for a replica, or a replica of another one, or of the one that took over."""

    def __init__(self, primary=None):
        self.primary = primary
        super().__init__()

    def _make_cluster(self):
        if self.primary:
            subprocess.run(self._command("pg_basebackup", "-D", f"{self.folder}/data", "-R", "-C", "-S", f"s{self.folder.name[6:]}".lower(),
                                         "-c", "fast", "-d", f"host={self.primary.folder} user=postgres application_name=replica"),
                           check=True, capture_output=True, timeout=600, cwd="/")
        else:
            super()._make_cluster()

    def conninfo(self, *others):
        """Of whichever of these clusters is the primary."""
        return f"host={','.join(str(c.folder) for c in (self, *others))} user=postgres dbname=wavetune target_session_attrs=read-write"


def replica(fleet):
    print("== a primary, a replica that commits wait for, two servers, an agent")
    primary = Cluster()
    fleet.clusters.append(primary)
    primary.sql("create database wavetune", database="postgres")
    standby = Cluster(primary)
    fleet.clusters.append(standby)
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'replica'", database="postgres")
    primary.sql("SELECT pg_reload_conf()", database="postgres")
    wait_until(lambda: primary.sql("SELECT sync_state FROM pg_stat_replication", database="postgres") == "sync", 30, "the replica")
    check("the replica streams, synchronously", True)
    database = primary.conninfo(standby)
    servers = [fleet.server(database) for _ in range(2)]
    both = Urls(*servers)
    agent = fleet.agent(both, "node")
    wait_until(lambda: names_of_agents(servers[0]) == {"node"}, 60, "the agent")
    kernel = harness.sleeping_kernel(fleet.folder / "sleeping")
    first = tune(servers[0], kernel, "first")
    publish(servers[0], environment_of(servers[0]))
    job = submit(servers[0], kernel, "during")
    wait_until(lambda: servers[0].items(f"/v1/jobs/{job}/measurements") or is_done(servers[0], job), 60, "the first results")
    acknowledged = len(servers[0].items(f"/v1/jobs/{job}/measurements"))

    print("== the primary is lost, the replica is promoted")
    begin = time.monotonic()
    primary.kill()
    standby.sql("SELECT pg_promote()", database="postgres")
    promoted = time.monotonic() - begin
    for i, server in enumerate(servers):
        wait_until(lambda: wavetune(server, "submit", kernel, "--key", "n=1003", "--run", f"new{i}", check=False).returncode == 0,  # noqa: B023
                   60, "a job to be accepted")
        check(f"server {i + 1} follows without a restart", server.process.poll() is None,
              f"promoted after {promoted:.1f} s, the first job accepted after {time.monotonic() - begin:.1f} s")
    wait_until(lambda: is_done(servers[0], job), 120, "the job")
    rows = [m for m in servers[0].items(f"/v1/jobs/{job}/measurements") if not m["late"]]
    check("the job is done, with every result that was acknowledged", len(rows) >= acknowledged, f"{acknowledged} before, {len(rows)} now")
    check("nothing counts twice", counted_twice(servers[0], job) == 0)
    check("the agent never ended", agent.process.poll() is None)

    print("== the lost machine comes back as a replica")
    fleet.clusters.append(Cluster(standby))
    back = fleet.clusters[-1]
    wait_until(lambda: standby.sql("SELECT count(*) FROM pg_stat_replication", database="postgres") == "1", 30, "the new replica")
    third = fleet.server(back.conninfo(standby))
    check("a server that names the replica first uses the primary", third.request("GET", "/readyz").status == 200)
    tune(third, kernel, "after")
    check("new work is done", is_done(third, first))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["backup", "upgrade", "replica"])
    what = parser.parse_args().what
    begin = time.monotonic()
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"wavetune-{what}-"))
    fleet = Fleet(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if what == "upgrade":
            upgrade(fleet, pathlib.Path(os.environ.get("OLD_BUILD", harness.BUILD)))
        else:
            {"backup": backup, "replica": replica}[what](fleet)
    except AssertionError as error:
        check(f"the rest: {error}", False)
    finally:
        fleet.end()
    print(f"{counts[True]} passed, {counts[False]} failed ({time.monotonic() - begin:.0f} s)")
    if counts[False]:
        print(f"logs are in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if counts[False] else 0


if __name__ == "__main__":
    sys.exit(main())
