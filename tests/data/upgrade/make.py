#!/usr/bin/env python3
"""Makes the database that tests/system/test_upgrade.py adopts, with the programs of 9b92b43d.

    git worktree add --detach OLD 9b92b43d && cd OLD && cmake --preset dev
    cmake --build --preset dev --target wavetune-server wavetune-agent wavetune
    tests/data/upgrade/make.py OLD tests/data/upgrade/9b92b43d

Writes DATABASE.sql (pg_dump of a database with rows in almost every table: jobs in every state,
open leases with half of their results, a signed channel, captures on their way to a proposal, …)
and DATABASE.json (what clients knew at that moment: tokens, leases, ids, a public key, what was
served). Agents are played, so that nothing of the machine is in them."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

OLD, OUT = map(pathlib.Path, sys.argv[1:])
os.environ["WAVETUNE_BUILD"] = str((OLD / "build/dev").absolute())
sys.path.insert(0, str((OLD / "tests/system").absolute()))
import hands  # noqa: E402
import harness  # noqa: E402
import test_imports  # noqa: E402
import test_policy  # noqa: E402
from harness import wait_until, wavetune  # noqa: E402

QUICK = (*harness.UNHURRIED, "--poll-ms", "20", *harness.LEASES_OF_8,
         "--remote-share", f"program/{test_policy.IMAGE}")
ROLES = {"admin": (), "reader": (), "submitter": (), "agent": (), "demand": (), "builder": (),
         "operator": (), "cache-writer": (), "publisher": ("--channel", "stable"),
         "enrol": ("--uses", "3", "--expires", "3650d")}


def asked(server, method, path, body=None, statuses=(200, 201, 202, 204), **more):
    answer = server.request(method, path, body, **more)
    assert answer.status in statuses, (method, path, answer)
    return answer


def job(server, kernel, n, space, **more):
    body = {"kernel": kernel, "key": {"n": n}, "space": space, "environment": hands.ENVIRONMENT}
    return asked(server, "POST", "/v1/jobs", body | more).json["job"]


def lose(server, cluster, folder, kernel, hand):
    """Leases are lost, so that the ledger gets an entry, which an operator releases."""
    short = ("--lease-ms", "100", "--heartbeat-ms", "600000")
    (folder / "short").mkdir()
    other = harness.Server(server.database, folder / "short", options=short)
    for n, values in ((80, [1, 2, 3]), (81, [5, 2, 7])):
        of = job(server, kernel, n, {"parameters": {"A": values}}, run="lost")
        for times in (1, 2):
            lease = hand.pull(wait=60).json
            assert hand.renew(lease, 1).status == 200
            overdue = f"now() - interval '1 s' where id = {lease['lease']}"
            cluster.sql(f"update leases set due_at = now(), expires_at = {overdue}",
                        conninfo=server.database)
            wait_until(lambda of=of, times=times: hands.events(server, of).count(("lease_lost", 1))
                       == times, 20, "the loss")
        asked(server, "DELETE", f"/v1/jobs/{of}")
    entry, = wait_until(lambda: server.items("/v1/poison?in_force=true"), 60, "the entry")
    asked(server, "POST", f"/v1/poison/{entry['id']}/release", {"reason": "the driver was updated"})
    other.stop()


def operate(server, folder, known, worker):
    """What people write: imports, signatures, overrides, declarations, a drained device, shares."""
    imported = {"name": "dejavu/x", "language": "external", "key": ["n"], "exports": {"dejavu": {}}}
    entries = [{"key": {"n": 4096}, "config": {"B": 1}, "ms": [0.2]}]
    asked(server, "POST", "/v1/imports", {
        "format": "dejavu", "environment": hands.ENVIRONMENT,
        "kernels": [{"manifest": imported, "entries": entries}]})
    wavetune(None, "key", "new", folder / "code")
    quick = harness.small_kernel(folder / "quick")
    wavetune(server, "kernel", "push", quick)
    wavetune(server, "kernel", "sign", quick, "--sign-key", folder / "code", "--expires", "3650d")
    asked(server, "POST", "/v1/overrides", {"kind": "ban", "kernel": "other", "config": {"A": 3},
                                            "reason": "NaN"})
    pair = ("--asked", '{"rocm": "7.0"}', "--served", '{"rocm": "6.4.1"}')
    wavetune(server, "compatible", "add", *pair, "--reason", "same code")
    asked(server, "PUT", "/v1/shares/the-submitter", {"weight": 2})
    asked(server, "POST", f"/v1/agents/{worker.id}/drain", {"reason": "dust", "device": "cpu1"})
    image = test_policy.canonical(test_imports.image())
    asked(server, "PUT", f"/v1/images/{test_policy.sha(image)}", image)
    wavetune(server, "retry", known["jobs"]["failed"])
    worker.work(device_us=30000)


def programs(server, database):
    """Captures that become a job, a winner and a proposal; demand, evidence and shared files."""
    server.demand = harness.make_token(database, "program", "demand,reader")
    server.builder = harness.make_token(database, "builds", "builder")
    server.operator = harness.make_token(database, "gone", "operator")
    server.hand = hands.Hand(server, "gpu", environment=test_policy.NODE)
    test_policy.rule(server, "automatic", channel="stable", require="none")
    kernel = test_policy.capture_and_build(server, 64)
    wait_until(lambda: [one for one in server.items("/v1/jobs") if one["run"] == "policy"], 30,
               "the policy's job")
    test_policy.tune(server)
    test_policy.proposed(server)
    test_policy.rule(server, "suggest", channel="stable", require="none")
    test_policy.capture(server, 128)  # waits for a builder
    environment = test_policy.STATED
    item = {"kernel": kernel, "key": {"n": 512}, "misses": 3, "hits": 1, "tuning_ms": 50.0}
    asked(server, "POST", "/v1/demand", {"environment": environment, "image": test_policy.IMAGE,
                                         "items": [item]}, token=server.demand)
    found = {"function": test_policy.sha(b"f"), "name": "own", "key": ["64"], "near": [{"A": 1}],
             "configs": 4, "ms": 0.5, "tuning_ms": 100.0}
    asked(server, "POST", "/v1/evidence", {"environment": environment, "node": "a",
                                           "items": [found]}, token=server.demand)
    path = f"/v1/remote/triton/{'A' * 52}/group/add.json?image={test_policy.IMAGE}"
    asked(server, "PUT", path, b'[["add.json", 2]]\n{}', token=server.demand)
    asked(server, "DELETE", "/v1/tokens/gone")  # what it set stays


def make(server, cluster, folder):
    """Does what clients of a running fleet do and returns what they know then."""
    known = {"tokens": {role: harness.make_token(server.database, f"the-{role}", role, *more)
                        for role, more in ROLES.items()}, "jobs": {}, "hands": {}}
    kernel = known["kernel"] = hands.register(server)

    worker = hands.Hand(server, "worker", devices=("cpu0", "cpu1"))
    lose(server, cluster, folder, kernel, worker)
    known["jobs"]["done"] = job(server, kernel, 64, hands.SMALL)
    worker.work(device_us=30000)
    known["jobs"]["failed"] = job(server, kernel, 65, hands.SMALL)
    worker.work(outcomes=dict.fromkeys(range(3), "compile"), device_us=30000)
    known["jobs"]["cancelled"] = job(server, kernel, 66, hands.SMALL)
    asked(server, "DELETE", f"/v1/jobs/{known['jobs']['cancelled']}")

    release = asked(server, "POST", "/v1/releases", {"environment": hands.ENVIRONMENT})
    known["release"] = release.json["release"]
    wavetune(None, "key", "new", folder / "key")
    known["public_key"] = (folder / "key.pub").read_text()
    wavetune(server, "promote", known["release"], "stable", "--sign-key", folder / "key")
    known["channel"] = server.request("GET", "/v1/channels/stable").json
    operate(server, folder, known, worker)
    programs(server, server.database)

    known["jobs"]["running"] = job(server, kernel, 67, hands.LARGE)
    admin, server.token = server.token, known["tokens"]["agent"]
    for name in ("half", "none"):
        hand = hands.Hand(server, name, boot=f"boot-{name}")
        lease = hand.pull().json
        configs = hands.configs_of(lease)
        posted = configs[:len(configs) // 2] if name == "half" else []
        if posted:
            assert hand.post(lease, posted, done=False).status == 200
        known["hands"][name] = {"agent": hand.id, "boot": hand.boot, "lease": lease,
                                "posted": posted}
    server.token = admin
    known["jobs"]["queued"] = job(server, kernel, 68, hands.SMALL, priority=-5,
                                  budget={"device_seconds": 60})
    known["served"] = {path: server.request("GET", path, token=known["tokens"]["reader"])
                       .body.decode() for path in (
                           f"/v1/releases/{known['release']}",
                           f"/v1/releases/{known['release']}/export/json",
                           "/v1/channels/stable/entries", "/v1/cache?cpu=gcc+1")}
    fetched = "select count(*) from release_fetchers"
    wait_until(lambda: cluster.sql(fetched, conninfo=server.database) != "0", 60, "the counts")
    return known


def main():
    cluster = harness.Postgres(durable=False)
    try:
        database = cluster.database()
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            server = harness.Server(database, folder, options=QUICK)
            try:
                known = make(server, cluster, folder)
            finally:
                server.stop()
        dump = [harness.postgres_bin() / "pg_dump", "--no-owner", "--no-privileges", database]
        dumped = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    finally:
        cluster.stop()
    lines = dumped.splitlines(keepends=True)  # older psql do not know \restrict
    OUT.with_suffix(".sql").write_text(
        "".join(line for line in lines if not line.startswith(("\\restrict", "\\unrestrict"))))
    OUT.with_suffix(".json").write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


main()
