"""The clients of a run: a submitter, played agents, movers of a channel. Each is a loop in a thread that records
what it was answered; none expects that a server is there."""

import json
import os
import random
import subprocess
import time

from proxy import post_members
from world import harness

OPEN_JOBS = 3
SIZES = (1, 4, 20)  # of the parameter that makes spaces of 50, 200 and 1,000 configs
CHANNEL = "c"
# What a server may answer: 0 is a lost connection, 503 a database that is away.
ALLOWED = {"submit": {0, 200, 201, 503}, "unpoison": {0, 200, 409, 503}, "cancel": {0, 200, 409, 503}, "read": {0, 200, 404, 503}, "enrol": {0, 200, 201, 503},
           "heartbeat": {0, 200, 204, 404, 409, 503}, "lease": {0, 200, 204, 503}, "renew": {0, 200, 409, 503},
           "results": {0, 200, 409, 503}, "release": {0, 200, 201, 503}, "move": {0, 200, 412, 503}, "import": {0, 200, 201, 503}}


class Client:
    def __init__(self, world, name, seed):
        self.world, self.name, self.random = world, name, random.Random(f"{seed} {name}")
        self.counts, self.tolerated = {}, set()

    def ask(self, what, method, path, body=None, server=None, **more):
        server = server or self.random.choice(self.world.servers)
        status, answer, headers = self.world.request(server, method, path, body, **more)
        self.counts[f"{what} {status}"] = self.counts.get(f"{what} {status}", 0) + 1
        if status not in ALLOWED[what] | self.tolerated:
            self.world.history.add("answer", who=self.name, what=f"{method} {path}", status=status, detail=str(answer)[:300])
        return status, answer, headers

    def run(self, is_over):
        while not is_over():
            self.step(is_over)


class Submitter(Client):
    """Keeps a few jobs open, of spaces of three sizes; submits some twice, and cancels some."""

    def __init__(self, world, seed):
        super().__init__(world, "submitter", seed)
        self.made, self.tolerated = 0, {409}

    def prepare(self):
        """The first job, whose kernel the command line registers; the others are made like it."""
        url = f"http://127.0.0.1:{self.world.servers[0].port}"
        done = subprocess.run([harness.BUILD / "wavetune", "submit", harness.KERNELS / "noop:c", "--key", "n=1", "--json"],
                              capture_output=True, text=True, check=True,
                              env={**os.environ, "WAVETUNE_URL": url, "WAVETUNE_TOKEN": self.world.admin})
        job = json.loads(done.stdout)[0]["job"]
        self.world.history.add("submit", job=job)
        status, self.first, _ = self.ask("read", "GET", f"/v1/jobs/{job}", server=self.world.servers[0])
        assert status == 200, status

    def body(self):
        size = self.random.choice(SIZES)
        space = {**self.first["space"], "parameters": {**self.first["space"]["parameters"], "PLACE": list(range(size))}}
        return {"kernel": self.first["kernel"], "key": {"n": 1 + self.made % 3}, "space": space, "run": f"r{self.made}",
                "environment": self.first["environment"]}

    def step(self, is_over):
        status, page, _ = self.ask("read", "GET", "/v1/jobs?limit=50")
        if status == 200 and sum(j["state"] in ("queued", "running") for j in page["items"]) < OPEN_JOBS:
            body = self.body()
            job = None
            while job is None and not is_over():  # until it knows
                status, answer, _ = self.ask("submit", "POST", "/v1/jobs", body)
                job = answer["job"] if status in (200, 201) else None
                if status == 409:
                    self.release_poison(answer)
                time.sleep(0.2)
            if job is not None:
                self.made += 1
                self.world.history.add("submit", job=job)
                if self.random.random() < 0.2:
                    status, answer, _ = self.ask("submit", "POST", "/v1/jobs", body)
                    if status in (200, 201):
                        self.world.history.add("submit", job=answer["job"])
                if self.random.random() < 0.1:
                    time.sleep(self.random.uniform(0, 3))
                    if self.ask("cancel", "DELETE", f"/v1/jobs/{job}")[0] == 200:
                        self.world.history.add("cancel", job=job)
        time.sleep(0.4)


    def release_poison(self, refusal):
        """Agents that are killed again and again with the same configs look like configs that kill them."""
        if "is poisoned on this hardware" not in refusal.get("detail", ""):
            self.world.history.add("answer", who=self.name, what="POST /v1/jobs", status=409, detail=str(refusal)[:300])
        status, page, _ = self.ask("read", "GET", "/v1/poison?in_force=true")
        for entry in page["items"] if status == 200 else ():
            self.ask("unpoison", "POST", f"/v1/poison/{entry['id']}/release", {"reason": "it was a fault"})


class Played(Client):
    """An agent that leases, posts in parts, posts again, posts late, and forgets leases."""

    def __init__(self, world, index, seed):
        super().__init__(world, f"played{index}", seed)
        self.token, self.agent, self.nonce = world.played[index], None, 0
        # Another agent may have the lease by now, and a token that agents share does not show who had it.
        self.tolerated = {403} if index == 0 else set()

    def results(self, lease, configs, seq, done):
        measurements = []
        for i, config in enumerate(configs):
            time_us = 100.0 * (0.9 + config * 7919 % 1000 / 2000)
            measurements.append({"seq": seq + i, "config": config, "process": lease["process"], "round": lease["round"],
                                 "outcome": "correct", "timer": "test", "samples_us": [time_us] * 3, "baseline_us": [100.0] * 3,
                                 "device_us": 300, "detail": None})
        return {"epoch": lease["epoch"], "measurements": measurements, "done": done}

    def post(self, lease, body):
        status, answer, _ = self.ask("results", "POST", f"/v1/leases/{lease['lease']}/results", body, token=self.token)
        if status in (200, 409):
            self.world.history.add("post", who=self.name, **post_members(lease["lease"], body, status, answer))
        return status

    def step(self, is_over):
        if self.agent is None:
            status, page, _ = self.ask("read", "GET", "/v1/environments")
            if status != 200 or not page["items"]:
                time.sleep(0.3)
                return
            body = {"boot": self.name, "name": self.name, "version": "0",
                    "devices": [{"device": "cpu0", "backend": "cpu", "environment": page["items"][0]["environment"], "facts": {}}]}
            status, answer, _ = self.ask("enrol", "POST", "/v1/agents", body, token=self.token)
            if status in (200, 201):
                self.agent, self.token = answer["agent"], answer.get("token") or self.token
            time.sleep(0.2)
            return
        self.ask("heartbeat", "POST", f"/v1/agents/{self.agent}/heartbeat", {"boot": self.name}, token=self.token)
        self.nonce += 1
        status, lease, _ = self.ask("lease", "POST", "/v1/leases", {"agent": self.agent, "device": "cpu0", "wait": 0,
                                                                    "nonce": f"{self.name}-{self.nonce}"}, token=self.token)
        if status == 200 and self.random.random() > 0.05:
            self.work(lease, is_over)
        else:
            time.sleep(0.3)

    def work(self, lease, is_over):
        configs = [c for first, n in lease["configs"] for c in range(first, first + n)]
        posted = []
        for at in range(0, len(configs), 20):
            if self.random.random() < 0.1:
                time.sleep(self.random.uniform(0, 6))  # at times longer than the lease
            elif self.random.random() < 0.2:
                self.ask("renew", "POST", f"/v1/leases/{lease['lease']}/renew",
                         {"epoch": lease["epoch"], "config": configs[at]}, token=self.token)
            body = self.results(lease, configs[at:at + 20], 1 + at, at + 20 >= len(configs))
            posted.append(body)
            status = 0
            while status in (0, 503) and not is_over():
                status = self.post(lease, body)
                if status in (0, 503):
                    time.sleep(0.3)
            if status != 200:
                return
            if self.random.random() < 0.2:
                self.post(lease, self.random.choice(posted))  # one of those that were posted before


class Mover(Client):
    """Moves a channel between releases of imported tables, by If-Match, and reads it. Two of them compete."""

    def __init__(self, world, index, seed, releases):
        super().__init__(world, f"mover{index}", seed)
        self.releases = releases

    @staticmethod
    def make_releases(client, environment):
        """Four releases of one environment; before the faults begin."""
        releases = []
        for block in range(1, 5):
            kernel = {"manifest": {"name": "dejavu/x", "language": "external", "key": ["n"], "exports": {"dejavu": {}}},
                      "entries": [{"key": {"n": 4096}, "config": {"BLOCK": block}, "ms": [0.2]}]}
            client.ask("import", "POST", "/v1/imports", {"format": "dejavu", "environment": environment, "kernels": [kernel]})
            status, answer, _ = client.ask("release", "POST", "/v1/releases", {"environment": environment})
            assert status in (200, 201), (status, answer)
            releases.append(answer["release"])
        assert len(set(releases)) == 4, releases
        return releases

    def step(self, is_over):
        server = self.random.choice(self.world.servers)
        status, entry, headers = self.ask("read", "GET", f"/v1/channels/{CHANNEL}?release={self.releases[0]}", server=server)
        if status == 200:
            self.world.history.add("channel_read", reader=self.name, server=server.name, counter=entry["counter"])
        if status in (200, 404):
            if self.random.random() < 0.3:
                time.sleep(self.random.uniform(0, 1))  # the other one moves it meanwhile
            release, counter = self.random.choice(self.releases), entry["counter"] if status == 200 else 0
            condition = {"If-Match": headers["ETag"]} if status == 200 else {"If-None-Match": "*"}
            server = self.random.choice(self.world.servers)
            status, answer, _ = self.ask("move", "PUT", f"/v1/channels/{CHANNEL}", {"release": release}, server=server,
                                         headers=condition)
            if status in (0, 200, 412, 503):  # 503 may be of a commit whose answer was lost
                self.world.history.add("move", who=self.name, server=server.name, if_match=counter, release=release,
                                       status=0 if status == 503 else status, counter=answer["counter"] if status == 200 else 0)
        time.sleep(self.random.uniform(0.1, 0.6))
