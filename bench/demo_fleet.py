#!/usr/bin/env python3
"""A fleet to look at without GPUs: a real server, 40 stand-in nodes of 8 devices, 6,000 jobs in campaigns of several owners.

    bench/demo_fleet.py [--nodes 40] [--devices 8] [--jobs 6000] [--live 3000] [--port 0] [--seconds S] [--json FILE] [--still]

Stand-ins enrol, send heartbeats, take leases, renew them and post measurements of a model (MODEL below) through the HTTP API, as
agents do; nothing is compiled or timed. What they report lasts as long as they say, so that the live campaign goes on as a real one.
Two nodes stop sending heartbeats (lost), a node and two devices are drained by an operator, some configs and jobs fail, one campaign
was cancelled, releases were made and channels moved: all through the API.

Made by SQL, because they take weeks: the finished campaigns of the last three weeks are copies of jobs that the stand-ins have
tuned, with other keys and earlier times; so are the histories of baselines of each device, and the device that drifted.

It prints the URL and a token of each role, and runs until it is interrupted or --seconds have passed. --still: makes everything,
and no stand-in measures afterwards. Tests and programs use it as

    with demo_fleet.Fleet(nodes=4, devices=2, jobs=60, live=20) as fleet: fleet.server.get("/v1/fleet"); fleet.tokens["reader"]
"""

import argparse
import contextlib
import hashlib
import heapq
import http.client
import itertools
import json
import math
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/system"))
import harness  # noqa: E402

ENVIRONMENT = {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X", "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
SERVER_OPTIONS = ("--heartbeat-ms", "2000", "--lease-ms", "30000", "--lease-target-ms", "40000", "--demand", "suggest")
POSTERS = 4
RENEW_S, POST_S = 8, 10
ROUNDS = 20
OWNERS = {"alice": "submitter", "bob": "submitter", "ci-nightly": "submitter", "release-bot": "publisher", "carol": "operator",
          "dashboard": "reader", "deployments": "demand"}
# The version of a kernel folder, the keys that are tuned, and the space.
ROW_SPACE = {"THREADS": [64, 128, 256, 512], "ROWS": [1, 2], "VECTOR": [1, 2, 4], "KEEP": [False, True]}
MATMUL_SPACE = {"BLOCK_M": [32, 64, 128], "BLOCK_N": [64, 128], "BLOCK_K": [16, 32], "WAVES_M": [1, 2], "WAVES_N": [1, 2]}
ROWS = {"rows": [1024, 4096, 16384, 65536], "columns": [512, 1024, 2048, 4096, 8192]}
MODEL = {
    "matmul:hip_fp16": ({"M": [1024, 2048, 4096, 8192], "N": [1024, 4096, 8192], "K": [512, 1024, 4096, 8192]}, MATMUL_SPACE),
    "matmul:hip": ({"M": [512, 1024, 2048, 4096], "N": [512, 1024, 4096], "K": [512, 1024, 4096]}, MATMUL_SPACE),
    "softmax:hip_online": (ROWS, {"THREADS": [64, 128, 256, 512], "ROWS": [1, 2, 4], "VECTOR": [1, 2, 4], "UNROLL": [1]}),
    "softmax:hip_fused": (ROWS, ROW_SPACE | {"KEEP": ["registers", "lds"], "PROGRAMS": [0]}),
    "layernorm:hip": (ROWS, ROW_SPACE),
    "vector_add:hip": ({"n": [1 << i for i in range(16, 28)]},
                       {"BLOCK": [64, 128, 256, 512, 1024], "VECTOR": [1, 2, 4], "UNROLL": [1, 2, 4], "PROGRAMS": [0]}),
}
ORIGINAL_KEYS = 4  # of each kernel, tuned by the stand-ins
DAY = 86400
# Finished campaigns: tag, run, owner, the share of the finished jobs, days ago that it began, hours that it took.
CAMPAIGNS = (("chat", "rocm-6.4.0", "alice", 0.30, 20, 9), ("batch", "rocm-6.4.0", "bob", 0.20, 17, 7),
             ("chat", "attention-rewrite", "alice", 0.14, 9, 5), ("nightly", "n-4", "ci-nightly", 0.09, 4, 2),
             ("nightly", "n-3", "ci-nightly", 0.09, 3, 2), ("nightly", "n-2", "ci-nightly", 0.09, 2, 2),
             ("nightly", "n-1", "ci-nightly", 0.09, 1, 2))
LIVE = ("chat", "rocm-6.4.1", "alice")


def steady(*words):
    """A random number of [0, 1) that is the same each time for the same words."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, words)).encode()).digest()[:6]) / 2 ** 48


def config_values(space, ordinal):
    """A config by its ordinal: parameters in order, the last one fastest."""
    values = {}
    for name, choices in reversed(space["parameters"].items()):
        ordinal, at = divmod(ordinal, len(choices))
        values[name] = at
    return dict(reversed(values.items()))


def time_us(name, key, space, ordinal, may_fail=True):
    """The time of a config, or why it has none: each parameter has a best value, which depends on the key, and costs more the
    farther a config is from it."""
    at = config_values(space, ordinal)
    size = math.prod(key.values())
    us = 3 + size / (8e7 if "matmul" in name else 4e5)
    if ordinal and may_fail and all(i == len(space["parameters"][p]) - 1 for p, i in list(at.items())[:2]) and steady(name, "large") < 0.8:
        return "compile", "the workgroup needs 73728 bytes of LDS, and the device has 65536"
    chance = steady(name, sorted(key.items()), ordinal)
    if ordinal and may_fail and chance < 0.03:
        return (("correctness", "y[17]: 0.0312 instead of 0.0298, farther than rtol 0.0001") if chance < 0.015 else
                ("runtime", "the GPU reported a memory fault at 0x7f31a4000000") if chance < 0.023 else
                ("timeout", "not measured within 30 s"))
    for parameter, i in at.items():
        choices = space["parameters"][parameter]
        best = steady(name, parameter) * (len(choices) - 1) + 0.5 * math.log2(size + 1) % 1.5
        us *= 1 + 0.12 * (0.5 + steady(name, parameter, "weight")) * abs(i - min(best, len(choices) - 1)) ** 1.4
    return us


class Connection:
    """Requests of one thread over a connection that stays open."""

    def __init__(self, port):
        self.port, self.http = port, None

    def request(self, method, path, body, token):
        """(status, JSON or None)"""
        return self.send(method, path, json.dumps(body).encode(), token)[:2]

    def get(self, path, token):
        """(status, JSON or None, bytes)"""
        return self.send("GET", path, None, token)

    def send(self, method, path, body, token):
        """Sent again over a new connection when the old one was closed."""
        for is_last in (False, True):
            try:
                self.http = self.http or http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                self.http.request(method, path, body, {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
                answer = self.http.getresponse()
                text = answer.read()
                return answer.status, json.loads(text) if text else None, len(text)
            except (OSError, http.client.HTTPException):
                self.http = None
                if is_last:
                    raise


class Device:
    """A stand-in for a device: step() does what is due and returns the seconds until the next step."""

    def __init__(self, fleet, node, name):
        self.fleet, self.node, self.name = fleet, node, name
        self.random = random.Random(f"{node.host} {name}")
        self.speed = 1 + 0.02 * (self.random.random() - 0.5)  # devices of one kind differ
        self.lease, self.nonces, self.seqs = None, itertools.count(), itertools.count(1)
        self.is_over = False

    def step(self, connection, is_hurried):
        if not self.lease:
            status, lease = connection.request("POST", "/v1/leases", {
                "agent": self.node.id, "device": self.name, "nonce": f"{self.name}-{next(self.nonces)}", "wait": 0}, self.node.token)
            if status != 200:
                self.is_over = True
                return 5 + 5 * self.random.random()
            self.is_over = False
            self.begin(lease)
            return 0 if is_hurried else min(RENEW_S, self.ends[0][0])

        now = time.monotonic() - self.began
        done = [config for end, config in self.ends if is_hurried or end <= now]
        left = self.ends[len(done):]
        if done and (not left or now - self.posted >= POST_S):
            self.posted, self.ends = now, left
            if not self.post(connection, done, not left):
                self.lease = None
                return 0
        elif left:
            at = left[0][1]
            status, _ = connection.request("POST", f"/v1/leases/{self.lease['lease']}/renew",
                                           {"epoch": self.lease["epoch"], "config": at}, self.node.token)
            if status != 200:
                self.lease = None
                return 1
        if not left:
            self.lease = None
            return 0 if is_hurried else 0.2 + self.random.random()
        return max(0.5, min(RENEW_S, left[-1][0] - now))

    def begin(self, lease):
        self.lease, self.began, self.posted = lease, time.monotonic(), 0
        self.kernel = lease["manifest"]["name"] + "/" + lease["manifest"]["entry"]
        self.ends, end = [], 1.0
        for first, count in lease["configs"]:
            for config in range(first, first + count):
                end += self.seconds(config)
                self.ends.append((end, config))

    def seconds(self, config):
        return 1.5 + 2.4 * steady(self.kernel, config, self.lease["seed"])

    def post(self, connection, configs, is_done):
        lease = self.lease
        base = time_us(self.kernel, lease["key"], lease["space"], lease["baseline"], may_fail=False)
        measurements = []
        for config in configs:
            us = time_us(self.kernel, lease["key"], lease["space"], config, may_fail=config != lease["baseline"])
            one = {"seq": next(self.seqs), "config": config, "device_us": int(self.seconds(config) * 1e6), "timer": "hip_event",
                   "regime": "cold", "compile_ms": int(400 + 3000 * steady(self.kernel, config, "compile"))}
            if self.fleet.fails(lease) and config == lease["baseline"]:
                one |= {"outcome": "runtime", "detail": "hipErrorInvalidImage: the code object has no kernel image",
                        "baseline_failed": True}
            elif isinstance(us, tuple):
                one |= {"outcome": us[0], "detail": us[1]}
            else:
                both = [self.speed * math.exp(self.random.gauss(0, 0.004)) for _ in range(ROUNDS)]
                one |= {"outcome": "correct", "vgprs": int(32 + 8 * (us * 7 % 24)), "agprs": 0, "spills": 0,
                        "lds_bytes": 4096 * int(1 + us * 3 % 15), "occupancy": int(1 + us * 5 % 8), "clock_mhz": 2100.0,
                        "temperature_c": round(45 + 20 * self.random.random(), 1),
                        "samples_us": [round(us * f * math.exp(self.random.gauss(0, 0.003)), 4) for f in both],
                        "baseline_us": [round(base * f * math.exp(self.random.gauss(0, 0.003)), 4) for f in both]}
            measurements.append(one)
        status, _ = connection.request("POST", f"/v1/leases/{lease['lease']}/results",
                                       {"epoch": lease["epoch"], "measurements": measurements, "done": is_done, "opening_us": 900000},
                                       self.node.token)
        return status in (200, 201)


class Node:
    def __init__(self, fleet, number, devices):
        self.fleet, self.host = fleet, f"mi300x-{number:03}"
        self.boot, self.token, self.is_lost = f"boot-{number}", fleet.server.token, False
        self.devices = [Device(fleet, self, f"hip{i}") for i in range(devices)]
        answer = fleet.server.request("POST", "/v1/agents", {
            "boot": self.boot, "name": self.host, "version": "0.1.0",
            "devices": [{"device": d.name, "backend": "hip", "environment": ENVIRONMENT,
                         "facts": {"memory_bytes": 206158430208, "driver": "6.12.12"}} for d in self.devices]})
        assert answer.status in (200, 201), answer
        self.id = answer.json["agent"]

    def beat(self, connection):
        if not self.is_lost:
            connection.request("POST", f"/v1/agents/{self.id}/heartbeat", {"boot": self.boot}, self.token)


class Fleet:
    def __init__(self, nodes=40, devices=8, jobs=6000, live=3000, port=0, is_still=False, options=(), quiet=True):
        self.n_nodes, self.n_devices, self.n_jobs, self.n_live = nodes, devices, jobs, live
        self.port, self.is_still, self.options, self.quiet = port, is_still, options, quiet
        self.programs, self.tokens = contextlib.ExitStack(), {}
        self.stop, self.threads, self.due = threading.Event(), [], []
        self.lock, self.order = threading.Condition(), itertools.count()

    # Making it

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *reason):
        self.stop.set()
        with self.lock:
            self.lock.notify_all()
        for thread in self.threads:
            thread.join(60)
        self.programs.close()

    def say(self, text):
        if not self.quiet:
            print(f"{time.monotonic() - self.began:6.1f} s  {text}", file=sys.stderr, flush=True)

    def make(self):
        self.began = time.monotonic()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="wt-demo-", dir="/tmp"))
        self.programs.callback(lambda: subprocess.run(["rm", "-rf", str(folder)], check=False))
        self.postgres = harness.Postgres(durable=False, shared_buffers="256MB")
        self.programs.callback(self.postgres.stop)
        self.database = self.postgres.database()
        self.server = harness.Server(self.database, folder, port=self.port, options=(*SERVER_OPTIONS, *self.options))
        self.programs.callback(self.server.kill)
        self.tokens = {"admin": self.server.token} | {
            name: harness.make_token(self.database, name, role, *(("--channel", "*") if role == "publisher" else ()))
            for name, role in OWNERS.items()}
        self.say("server, database, tokens")

        self.kernels = {}
        for name in MODEL:
            harness.wavetune(self.server, "kernel", "push", harness.KERNELS / name, token=self.tokens["ci-nightly"])
            self.kernels[name] = harness.wavetune(None, "kernel", "hash", harness.KERNELS / name).stdout.strip()
        self.nodes = [Node(self, n + 1, self.n_devices) for n in range(self.n_nodes)]
        self.start_beats()
        self.say(f"{self.n_nodes} nodes of {self.n_devices} devices")

        self.tune_originals()
        self.copy_history()
        # Another server process: the rates of this one would count the copies as work of the last minutes.
        admin, port = self.server.token, self.server.port
        assert self.server.stop() == 0, self.server.messages[-3000:]
        self.server = harness.Server(self.database, folder, port=port, options=(*SERVER_OPTIONS, *self.options))
        self.programs.callback(self.server.kill)
        self.server.token = admin
        self.publish()
        self.go_live()

    def submit(self, owner, jobs):
        ids = []
        for i in range(0, len(jobs), 500):
            answer = self.server.request("POST", "/v1/jobs", {"jobs": jobs[i:i + 500]}, token=self.tokens[owner])
            assert answer.status in (200, 201), answer
            ids += [job["job"] for job in answer.json["jobs"]]
        return ids

    def job(self, name, key, tag, run, **more):
        space = MODEL[name][1]
        return {"kernel": self.kernels[name], "key": key, "space": {"parameters": space, "default": {p: v[0] for p, v in space.items()}},
                "environment": ENVIRONMENT, "tag": tag, "run": run} | more

    @staticmethod
    def keys(name):
        """The keys of a kernel, without end: those of the model, then others near them."""
        names, values = zip(*MODEL[name][0].items())
        for step in itertools.count():
            for choice in itertools.product(*values):
                yield {n: v + 16 * step for n, v in zip(names, choice)}

    def fails(self, lease):
        """Jobs of these keys cannot be measured: their baseline fails."""
        return steady(sorted(lease["key"].items()), lease["tag"] if "tag" in lease else "", "fails") < 0.012

    def tune_originals(self):
        """A few jobs of each kernel, tuned by all devices as fast as the server answers."""
        jobs = [self.job(name, key, "default", "first") for name in MODEL
                for key in itertools.islice((k for k in self.keys(name) if not self.fails({"key": k})), 0, ORIGINAL_KEYS * 3, 3)]
        self.originals = self.submit("bob", jobs)
        # One whose baseline fails, one that is cancelled.
        failing = next(k for k in self.keys("vector_add:hip") if self.fails({"key": k}))
        self.failed, = self.submit("bob", [self.job("vector_add:hip", failing, "default", "first")])
        self.cancelled, = self.submit("bob", [self.job("layernorm:hip", {"rows": 8, "columns": 8}, "default", "mistake")])
        assert self.server.request("DELETE", f"/v1/jobs/{self.cancelled}", token=self.tokens["bob"]).status == 200

        devices = [d for node in self.nodes for d in node.devices][:max(24, len(self.originals))]
        def work(share):
            connection = Connection(self.server.port)
            while not self.stop.is_set():
                for device in share:
                    device.step(connection, True)
                if all(device.is_over for device in share) and not self.server.get("/v1/jobs?state=running&limit=1")["items"] and \
                        not self.server.get("/v1/jobs?state=queued&limit=1")["items"]:
                    return

        threads = [threading.Thread(target=work, args=(devices[i::POSTERS],)) for i in range(POSTERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        states = [self.server.get(f"/v1/jobs/{job}")["state"] for job in (*self.originals, self.failed, self.cancelled)]
        assert states == ["done"] * len(self.originals) + ["failed", "cancelled"], states
        self.say(f"{len(states)} jobs were tuned by the stand-ins")

    def copy_history(self):
        """The finished campaigns: rows of the originals again, with other keys, owners and times."""
        n_finished = self.n_jobs - self.n_live - len(self.originals) - 2
        kernel_of = [name for name in MODEL for _ in range(ORIGINAL_KEYS)]
        rows, now = [], time.time()
        for tag, run, owner, share, days, hours in CAMPAIGNS:
            keys = {name: self.keys(name) for name in MODEL}
            is_last = run == CAMPAIGNS[-1][1]
            n = n_finished - len(rows) if is_last else int(n_finished * share)
            for i in range(n):
                original = i % len(self.originals)
                source, key = self.originals[original], next(keys[kernel_of[original]])
                if steady(tag, run, i) < 0.02:
                    source, key = self.failed, next(keys["vector_add:hip"])
                elif run == "attention-rewrite" and i > 0.8 * n:
                    source, key = self.cancelled, next(keys["layernorm:hip"])
                text = json.dumps(key, sort_keys=True, separators=(",", ":"))
                began = now - days * DAY
                rows.append((source, json.dumps(key), hashlib.sha256(text.encode()).hexdigest(), tag, run, owner, began,
                             began + (i + 1) / n * hours * 3600))
        with tempfile.NamedTemporaryFile("w", prefix="wt-demo-", suffix=".sql") as file:
            file.write(COPY + "copy wanted (source, key, key_digest, tag, run, owner, began, ended) from stdin;\n")
            file.writelines("\t".join(map(str, row)) + "\n" for row in rows)
            file.write("\\.\n" + HISTORY)
            file.flush()
            done = subprocess.run([str(harness.postgres_bin() / "psql"), self.database, "-XAtq", "-v", "ON_ERROR_STOP=1", "-f",
                                   file.name], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        self.say(f"{len(rows)} finished jobs, copied: {done.stdout.strip()}")

    def publish(self):
        """Releases of each tag, and the channels that people moved to them."""
        def move(channel, release, etag=None):
            answer = self.server.request("PUT", f"/v1/channels/{channel}", {"release": release}, token=self.tokens["release-bot"],
                                         headers={"If-Match": "*"} if etag else {"If-None-Match": "*"})
            assert answer.status in (200, 201), answer

        def release(tag, **more):
            answer = self.server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "tag": tag} | more,
                                         token=self.tokens["release-bot"])
            assert answer.status in (200, 201), answer
            return answer.json["release"]

        before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 12 * DAY))
        old, self.releases = release("chat", as_of=before), {tag: release(tag) for tag in ("chat", "batch", "nightly")}
        self.releases["chat-old"] = old
        move("stable", old)
        move("canary", self.releases["chat"])
        move("stable", self.releases["chat"], True)
        move("stable", old, True)  # rolled back
        move("stable", self.releases["batch"])
        move("nightly", self.releases["nightly"])

        missed = [{"kernel": self.kernels[name], "key": key, "hits": 0, "misses": 3 + 4 * i, "kernel_ms": 0.2}
                  for name in list(MODEL)[:3] for i, key in enumerate(itertools.islice(self.keys(name), 400, 406))]
        answer = self.server.request("POST", "/v1/demand", {"environment": ENVIRONMENT, "tag": "chat", "items": missed},
                                     token=self.tokens["deployments"])
        assert answer.status == 202, answer
        self.say("releases, channels, demand")

    def go_live(self):
        tag, run, owner = LIVE
        keys = {name: self.keys(name) for name in MODEL}
        names = list(MODEL)
        self.submit(owner, [self.job(names[i % len(names)], next(keys[names[i % len(names)]]), tag, run) for i in range(self.n_live)])
        self.submit("ci-nightly", [self.job("layernorm:hip", key, "nightly", "n-0", priority=5)
                                   for key in itertools.islice(self.keys("layernorm:hip"), max(1, self.n_live // 100))])

        def drain(node, reason, device=None):
            answer = self.server.request("POST", f"/v1/agents/{node.id}/drain", {"reason": reason} | ({"device": device} if device else {}),
                                         token=self.tokens["carol"])
            assert answer.status == 200, answer

        if self.n_nodes >= 4:
            drain(self.nodes[-1], "a new fan on Thursday")
            drain(self.nodes[1], "ECC errors, ticket 4711", "hip0")
            connection = Connection(self.server.port)
            for node in self.nodes[2:3] if self.n_nodes < 20 else (self.nodes[2], self.nodes[-4]):
                for device in node.devices[::2]:
                    device.step(connection, False)
                node.is_lost = True
        # Devices begin one after the other, because agents do not start at one moment.
        base = time.monotonic()
        self.due = [(base + 0.02 * i, next(self.order), device)
                    for i, device in enumerate(device for node in self.nodes for device in node.devices)]
        heapq.heapify(self.due)
        if not self.is_still:
            self.threads += [threading.Thread(target=self.work, daemon=True) for _ in range(POSTERS)]
            for thread in self.threads[-POSTERS:]:
                thread.start()
        self.say(f"live: {self.n_live} jobs of {owner}, tag {tag}, run {run}")

    # While it runs

    def start_beats(self):
        def beat():
            connection = Connection(self.server.port)
            while not self.stop.wait(2):
                for node in self.nodes:
                    if self.stop.is_set():
                        return
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        node.beat(connection)

        self.threads.append(threading.Thread(target=beat, daemon=True))
        self.threads[-1].start()

    def work(self):
        """Steps the devices that are due, one at a time for each device."""
        connection = Connection(self.server.port)
        while not self.stop.is_set():
            with self.lock:
                while not self.due or self.due[0][0] > time.monotonic():
                    self.lock.wait(max(0.01, min(1, self.due[0][0] - time.monotonic())) if self.due else 1)
                    if self.stop.is_set():
                        return
                _, _, device = heapq.heappop(self.due)
            if device.node.is_lost:
                continue
            try:
                delay = device.step(connection, False)
            except (OSError, http.client.HTTPException):
                delay = 2
            with self.lock:
                heapq.heappush(self.due, (time.monotonic() + delay, next(self.order), device))
                self.lock.notify()


# Rows of `wanted` become jobs that are copies of their source. Columns are those of the tables, whatever they are.
COPY = """
set client_min_messages = warning;
create temp table wanted (n bigint generated always as identity, source bigint, key text, key_digest text, tag text, run text,
                          owner text, began float8, ended float8);
"""
HISTORY = """
create function pg_temp.others(name text, own text[]) returns text language sql as $$
  select string_agg(format('%I', attname), ', ' order by attnum) from pg_attribute
  where attrelid = name::regclass and attnum > 0 and not attisdropped and attname <> all (own)
$$;
create function pg_temp.of(name text, own text[], alias text) returns text language sql as $$
  select string_agg(alias || '.' || c, ', ') from unnest(string_to_array(pg_temp.others(name, own), ', ')) c
$$;
create temp table copied as
  select w.*, nextval(pg_get_serial_sequence('jobs', 'id')) as id, j.finished_at as old_end,
         to_timestamp(w.ended) - j.finished_at as shift, t.id as owner_id
  from wanted w join jobs j on j.id = w.source left join tokens t on t.name = w.owner order by w.n;
create index on copied (source);
analyze copied;
create temp table copied_leases as
  select c.id as job, l.id as old, nextval(pg_get_serial_sequence('leases', 'id')) as id, c.shift
  from copied c join leases l on l.job_id = c.source order by c.n, l.id;
analyze copied_leases;
do $$
begin
  execute format('insert into jobs (id, key, key_digest, tag, run, submitted_by, submitted_by_id, created_at, finished_at, %1$s)
    overriding system value
    select c.id, c.key::json, decode(c.key_digest, ''hex''), c.tag, c.run, c.owner, c.owner_id, to_timestamp(c.began),
           to_timestamp(c.ended), %2$s
    from copied c join jobs j on j.id = c.source order by c.id',
    pg_temp.others('jobs', '{id,key,key_digest,tag,run,submitted_by,submitted_by_id,created_at,finished_at}'),
    pg_temp.of('jobs', '{id,key,key_digest,tag,run,submitted_by,submitted_by_id,created_at,finished_at}', 'j'));
  execute format('insert into leases (id, job_id, granted_at, %1$s) overriding system value
    select c.id, c.job, l.granted_at + c.shift, %2$s from copied_leases c join leases l on l.id = c.old order by c.id',
    pg_temp.others('leases', '{id,job_id,granted_at}'), pg_temp.of('leases', '{id,job_id,granted_at}', 'l'));
  execute format('insert into measurements (job_id, lease_id, at, %1$s)
    select c.job, c.id, m.at + c.shift, %2$s
    from copied_leases c join measurements m on m.lease_id = c.old order by c.id, m.id',
    pg_temp.others('measurements', '{id,job_id,lease_id,at}'), pg_temp.of('measurements', '{id,job_id,lease_id,at}', 'm'));
  execute format('insert into winners (job_id, at, %1$s) select c.id, to_timestamp(c.ended), %2$s
    from copied c join winners w on w.job_id = c.source', pg_temp.others('winners', '{job_id,at}'),
    pg_temp.of('winners', '{job_id,at}', 'w'));
  execute format('insert into job_events (job_id, at, %1$s) select c.id, e.at + c.shift, %2$s
    from copied c join job_events e on e.job_id = c.source', pg_temp.others('job_events', '{job_id,at}'),
    pg_temp.of('job_events', '{job_id,at}', 'e'));
end $$;

-- Three weeks of each device's baselines, around what it measured, once in two hours; one device became slower two days ago.
create temp table drifting as
  select d.agent, d.device from devices d join agents a on a.id = d.agent order by a.name, d.device offset 1 limit 1;
insert into device_baselines (agent, device, subject, at, lease_id, epoch, median_us)
  select d.agent, d.device, s.subject, now() - g * interval '2 hours', -row_number() over (), 1,
         s.median_us * (1 + 0.01 * (random() - 0.5))
             * case when r.agent is not null and g < 24 then 1.12 + 0.004 * (24 - g) else 1 end
  from devices d
  cross join (select subject, min(median_us) as median_us from device_baselines group by subject order by subject limit 2) s
  cross join generate_series(1, 250) g
  left join drifting r on r.agent = d.agent and r.device = d.device;
update devices d
set suspect_since = now() - interval '46 hours', drained_by = '(server)',
    drain_reason = 'its baseline takes 17.4 % longer than in the last 3 weeks (213.9 us, before 182.2 us)'
from drifting r where r.agent = d.agent and r.device = d.device;

do $$
begin
  if to_regproc('job_usage_rebuild') is not null then
    perform job_usage_rebuild();
  end if;
end $$;
analyze;
select count(*) || ' jobs, ' || (select count(*) from leases) || ' leases, ' || (select count(*) from measurements)
       || ' measurements' from jobs;
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=6000, help="in all")
    parser.add_argument("--live", type=int, default=3000, help="jobs of the campaign that is being tuned")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="ends after this time")
    parser.add_argument("--json", help="writes the URL and the tokens to this file")
    parser.add_argument("--still", action="store_true")
    options = parser.parse_args()
    if options.live + len(MODEL) * ORIGINAL_KEYS + 2 + len(CAMPAIGNS) > options.jobs:
        parser.error("--jobs must be some 40 more than --live")
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with Fleet(options.nodes, options.devices, options.jobs, options.live, options.port, options.still, quiet=False) as fleet:
        known = {"url": fleet.server.url, "tokens": fleet.tokens, "database": fleet.database}
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(known))
        print(f"url    {fleet.server.url}")
        for name, token in fleet.tokens.items():
            print(f"token  {name:12} {OWNERS.get(name, 'admin'):10} {token}")
        sys.stdout.flush()
        ended.wait(options.seconds)


if __name__ == "__main__":
    main()
