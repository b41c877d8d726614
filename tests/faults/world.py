"""The processes of a run: PostgreSQL, two servers, agents, proxies between them, and ways to reach each of them.

As root everything is in namespaces of its own (run.py starts itself in them): network, so that packets can be dropped; mounts,
so that PostgreSQL's disk is a small one in memory; processes, so that all end with the run. Then each server has a way of its
own to PostgreSQL, an address of the loopback device.
"""

import glob
import http.client
import json
import os
import pathlib
import pwd
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import harness  # noqa: E402
from proxy import Proxy  # noqa: E402

BUILD = harness.BUILD
DISK_MIB = 400  # and some for each second of the run
POSTGRES_PORT = 7432
SERVERS, AGENTS = 2, 3
SQL_S = 20  # for a statement of the test; PostgreSQL may be stopped
LEASE_MS = 4000
EARLY_S = 1  # by which a program is in its main, also on a busy machine
RESTART_S = 0.5  # between attempts to start PostgreSQL

# Each committed change of a state, in its order: a row's changes are ordered by its lock.
TRIGGERS = """
CREATE TABLE faults_changes (n bigint GENERATED ALWAYS AS IDENTITY, what text, id bigint, was json, now json);
CREATE FUNCTION faults_job(j jobs) RETURNS json LANGUAGE sql IMMUTABLE AS $$
  SELECT json_build_object('state', j.state, 'stage', j.stage, 'round', j.round, 'events', j.events) $$;
CREATE FUNCTION faults_lease(l leases) RETURNS json LANGUAGE sql IMMUTABLE AS $$
  SELECT json_build_object('state', l.state, 'epoch', l.epoch) $$;
CREATE FUNCTION faults_channel(c channels) RETURNS json LANGUAGE sql IMMUTABLE AS $$
  SELECT json_build_object('counter', c.counter) $$;
"""
TRIGGER = """
CREATE FUNCTION faults_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE was json; now json;
BEGIN
  IF TG_OP <> 'INSERT' THEN was := faults_{row}(OLD); END IF;
  IF TG_OP <> 'DELETE' THEN now := faults_{row}(NEW); END IF;
  IF was::text IS DISTINCT FROM now::text THEN
    INSERT INTO faults_changes (what, id, was, now) VALUES (TG_TABLE_NAME, COALESCE(NEW.id, OLD.id), was, now);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER faults_{table} AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION faults_{table}();
"""
# Measurements that count for a lease whose epoch is another by then.
STALE_TRIGGER = """
CREATE FUNCTION faults_stale() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE now_at bigint := (SELECT epoch FROM leases WHERE id = NEW.lease_id);
BEGIN
  IF NOT NEW.late AND now_at IS DISTINCT FROM NEW.epoch THEN
    INSERT INTO faults_changes (what, id, was, now)
    VALUES ('measurements', NEW.lease_id, json_build_object('epoch', now_at), json_build_object('epoch', NEW.epoch, 'seq', NEW.seq));
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER faults_stale AFTER INSERT ON measurements FOR EACH ROW EXECUTE FUNCTION faults_stale();
"""


def send(pid, signal_):
    try:
        os.kill(pid, signal_)
    except ProcessLookupError:
        pass


class Postgres:
    """A cluster with fsync, of which any process may be killed or stopped. The run keeps it up: `tend` starts it again when it
    should be up. Its clock is the text of the file `clock`, if libfaketime is there."""

    def __init__(self, folder, isolated, seconds):
        self.folder, self.isolated = folder / "pg", isolated
        self.data, self.log = self.folder / "data", folder / "postgres.log"
        self.folder.mkdir()
        if isolated:
            size_mib = DISK_MIB + int(seconds) // 2
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "faults", self.folder], check=True)
        self.as_postgres = []
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self.as_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        self.clock = folder / "clock"
        self.clock_set("+0")
        found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
        self.faketime = found[0] if found else None
        subprocess.run([*self.as_postgres, harness.postgres_bin() / "initdb", "-D", self.data, "-A", "trust", "-U", "postgres",
                        "-E", "UTF8", "--locale=C", "--no-instructions"], check=True, capture_output=True, cwd="/")
        self.process, self.is_wanted, self.hogs, self.filler = None, True, [], None
        self.start()

    def clock_set(self, offset):
        new = self.clock.with_suffix(".new")
        new.write_text(offset + "\n")
        new.chmod(0o644)
        new.rename(self.clock)

    def start(self):
        self.started = time.monotonic()
        faked = ["env", f"LD_PRELOAD={self.faketime}", f"FAKETIME_TIMESTAMP_FILE={self.clock}", "FAKETIME_DONT_FAKE_MONOTONIC=1",
                 "FAKETIME_NO_CACHE=1", "NO_FAKE_STAT=1"] if self.faketime else []
        addresses = ",".join(["127.0.0.1", *map(self.address, range(SERVERS))]) if self.isolated else ""
        settings = {"listen_addresses": addresses, "port": POSTGRES_PORT, "max_connections": 100, "shared_buffers": "64MB",
                    "max_wal_size": "96MB", "min_wal_size": "32MB", "log_statement": "none", "restart_after_crash": "on"}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.as_postgres, *faked, str(harness.postgres_bin() / "postgres"), "-D", str(self.data), "-k", str(self.folder),
                 *(word for name, value in settings.items() for word in ("-c", f"{name}={value}"))],
                stdout=log, stderr=log, cwd="/")

    def address(self, server):
        return f"127.0.0.{server + 2}"

    def conninfo(self, server=None, database="wavetune"):
        host = self.address(server) if self.isolated and server is not None else self.folder
        return f"host={host} port={POSTGRES_PORT} user=postgres dbname={database}"

    def sql(self, text, database="wavetune", check=True):
        """Its rows as lists of texts. Without `check` None where the database does not answer."""
        try:
            done = subprocess.run([harness.postgres_bin() / "psql", self.conninfo(database=database), "-XAtq", "-F", "\t", "-v",
                                   "ON_ERROR_STOP=1", "-c", text], capture_output=True, text=True, timeout=300 if check else SQL_S)
        except subprocess.TimeoutExpired:
            if check:
                raise
            return None
        if check and done.returncode:
            raise RuntimeError(done.stderr)
        return None if done.returncode else [line.split("\t") for line in done.stdout.splitlines()]

    def processes(self):
        """The postmaster, and every process that works in the cluster's folder, also those that a killed postmaster left."""
        found = []
        for folder in glob.glob("/proc/[0-9]*"):
            try:
                if os.readlink(f"{folder}/cwd") == str(self.data):
                    found.append(int(folder[6:]))
            except OSError:
                pass
        return found

    def backends(self):
        """Processes that serve clients."""
        titles = {}
        for pid in self.processes():
            try:
                titles[pid] = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                pass
        return [pid for pid, title in titles.items() if title.startswith(b"postgres: postgres ")]

    def hog(self):
        """Takes all connections that are free and keeps them: (how many)."""
        while len(self.hogs) < 100:
            hog = socket.socket(socket.AF_UNIX)
            hog.settimeout(5)
            try:
                hog.connect(f"{self.folder}/.s.PGSQL.{POSTGRES_PORT}")
                start = struct.pack("!i", 196608) + b"user\0postgres\0database\0wavetune\0\0"
                hog.sendall(struct.pack("!i", len(start) + 4) + start)
                if hog.recv(1) != b"R":  # R: authenticated; E: refused
                    raise OSError
            except OSError:
                hog.close()
                break
            self.hogs.append(hog)
        return len(self.hogs)

    def unhog(self):
        for hog in self.hogs:
            hog.close()
        self.hogs = []

    def fill(self):
        """Takes all room on its disk, down to the last page."""
        self.filler = self.folder / "filler"
        step, size = 64 << 20, 0
        with open(self.filler, "wb") as file:
            while step >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), size, step)
                    size += step
                except OSError:
                    step //= 2

    def unfill(self):
        self.filler.unlink(missing_ok=True)

    def tend(self):
        """Starts it again when it ended and should be up. Stopped processes of the one before would keep its memory in use."""
        if not self.is_wanted or self.process.poll() is None or time.monotonic() < self.started + RESTART_S:
            return
        for pid in self.processes():
            send(pid, signal.SIGCONT)
        self.start()

    def stop(self):
        self.is_wanted = False
        for pid in self.processes():
            send(pid, signal.SIGCONT)
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60 * harness.PATIENCE)


class Program:
    """A server or an agent that the run keeps up. `expected`: it may have ended by a fault."""

    def __init__(self, name, command, log, environment):
        self.name, self.command, self.log, self.environment = name, [str(word) for word in command], log, environment
        self.process, self.is_wanted, self.is_stopped = None, True, False
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={**os.environ, **self.environment})
        self.started = time.monotonic()
        self.is_wanted, self.is_stopped = True, False

    def is_up(self):
        return self.process.poll() is None

    def kill(self):
        self.is_wanted = False
        self.process.kill()
        self.process.wait()

    def terminate(self):
        """Sends SIGTERM. Returns whether that was too early for the program: it blocks the signal first thing in main, until when
        the signal kills it."""
        self.is_wanted = False
        is_young = time.monotonic() - self.started < EARLY_S
        is_early = is_young and self.is_up() and not harness.blocks(self.process.pid, signal.SIGTERM)
        self.process.send_signal(signal.SIGTERM)
        return is_early

    def stop(self):
        self.is_stopped = True
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.is_stopped = False
        if self.is_up():
            self.process.send_signal(signal.SIGCONT)


class Server(Program):
    def __init__(self, index, folder, postgres, options):
        self.index, self.port = index, 7201 + index if postgres.isolated else free_port()
        self.failpoints = folder / f"failpoints-{index}"
        self.aborts = 0
        super().__init__(f"server{index}", [BUILD / "wavetune-server", "serve", "--migrate", "--database", postgres.conninfo(index),
                                            "--port", self.port, *options],
                         folder / f"server{index}.log", {"WAVETUNE_FAILPOINTS": str(self.failpoints)})

    def failpoints_set(self, text):
        new = self.failpoints.with_suffix(".new")
        new.write_text(text)
        new.rename(self.failpoints)

    def has_aborted(self):
        """Whether a failpoint ended it since the last call."""
        aborts = self.log.read_bytes().count(b"reached action=abort")
        new, self.aborts = aborts > self.aborts, aborts
        return new


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class World:
    def __init__(self, folder, options, history, isolated):
        self.folder, self.history, self.isolated = folder, history, isolated
        self.postgres = Postgres(folder, isolated, options.seconds)
        harness.wait_until(lambda: self.postgres.sql("select 1", "postgres", check=False), 60, "PostgreSQL to start")
        self.postgres.sql("create database wavetune", "postgres")
        database = self.postgres.conninfo()
        subprocess.run([BUILD / "wavetune-server", "migrate", "--database", database], check=True, capture_output=True)
        self.postgres.sql(TRIGGERS)
        for table, row in (("jobs", "job"), ("leases", "lease"), ("channels", "channel")):
            self.postgres.sql(TRIGGER.format(table=table, row=row))
        self.postgres.sql(STALE_TRIGGER)
        self.admin = harness.make_token(database, "admin", "admin")
        # The first keeps this token; the second gets one of its own by enrolling.
        self.played = [harness.make_token(database, "shared", "agent"),
                       harness.make_token(database, "played", "enrol", "--uses", "1000000")]
        enrol = harness.make_token(database, "nodes", "enrol", "--uses", "1000000")

        serve = ["--lease-ms", LEASE_MS, "--heartbeat-ms", "1000", "--lease-target-ms", "1500", "--poll-ms", "300",
                   "--database-timeout-ms", "5000"]
        self.servers = [Server(i, folder, self.postgres, serve) for i in range(SERVERS)]
        ends = [("127.0.0.1", s.port) for s in self.servers]
        self.proxies, self.agents = [], []
        for i in range(AGENTS):
            upstreams = [ends[i % SERVERS], ends[(i + 1) % SERVERS]]
            listen = (f"127.0.0.{11 + i}", 7301) if isolated else ("127.0.0.1", free_port())
            self.proxies.append(Proxy(f"agent{i}", listen, upstreams, options.seed + i, history))
            self.agents.append(Program(
                f"agent{i}", ["nice", "-n", "5", BUILD / "wavetune-agent", "run", "--url", f"http://{listen[0]}:{listen[1]}",
                              "--state", folder / f"agent{i}", "--name", f"agent{i}", "--screen-rounds", "2", "--final-rounds", "6",
                              "--compilers", "1"], folder / f"agent{i}.log", {"WAVETUNE_TOKEN": enrol}))
        harness.wait_until(lambda: all(self.is_ready(s) for s in self.servers), 60, "both servers to be ready")

    def is_ready(self, server):
        return self.request(server, "GET", "/readyz", timeout=2)[0] == 200

    def request(self, server, method, path, body=None, token=None, headers=None, timeout=15):
        """(status, JSON or None, headers); status 0: no answer, so the outcome is unknown."""
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Authorization": f"Bearer {token or self.admin}", "Content-Type": "application/json",
                                **(headers or {})})
            answer = connection.getresponse()
            data = answer.read()
            is_json = data and "json" in (answer.getheader("Content-Type") or "")
            return answer.status, json.loads(data) if is_json else None, answer.headers
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None, {}
        finally:
            connection.close()

    def programs(self):
        return [*self.servers, *self.agents]

    def tend(self):
        """Restarts what ended by itself, and says so."""
        self.postgres.tend()
        for program in self.programs():
            if program.is_wanted and not program.is_up():
                status = program.process.returncode
                if not (isinstance(program, Server) and status == -signal.SIGABRT and program.has_aborted()):
                    self.history.add("died", who=program.name, status=status)
                program.start()

    def resume_drifted(self):
        """As an operator who knows that the load of this machine changes: a device that drifted would get no leases again."""
        for server in self.servers:
            status, answer, _ = self.request(server, "GET", "/v1/agents?limit=1000", timeout=2)
            if status != 200:
                continue
            for agent in answer["items"]:
                for device in agent["devices"]:
                    if (device.get("drain_reason") or "").startswith("drift"):
                        self.request(server, "POST", f"/v1/agents/{agent['agent']}/drain",
                                     {"device": device["device"], "reason": None})
            return

    def spool_pending(self, agent):
        """Records that the server has not acknowledged, by the folder of an agent that has ended or is idle."""
        folder = self.folder / agent.name
        acknowledged = folder / "spool.acknowledged"
        done = int(acknowledged.read_text().split()[0]) if acknowledged.exists() else 0
        return [n for n in spool_numbers(folder / "spool") if n > done]

    def refused(self, agent):
        path = self.folder / agent.name / "refused.jsonl"
        return path.read_text().splitlines() if path.exists() else []


SPOOL_HEAD = struct.Struct("<IIQQ")


def spool_numbers(path):
    """Numbers of the records in an agent's spool (agent/run/spool.c)."""
    data, at, numbers = path.read_bytes() if path.exists() else b"", 0, []
    while at + SPOOL_HEAD.size <= len(data):
        _, length, number, _ = SPOOL_HEAD.unpack_from(data, at)
        numbers.append(number)
        at += SPOOL_HEAD.size + length
    return numbers
