#!/usr/bin/env python3
"""Makes the database that tests/system/test_upgrade.py upgrades, with the programs of an older commit.

    git worktree add --detach OLD 94dd181 && cd OLD && cmake --preset dev && cmake --build --preset dev
    tests/data/upgrade/make.py OLD tests/data/upgrade/94dd181

Writes DATABASE.sql (pg_dump of a database with jobs in every state, open leases with half of their results, a release, a
signed channel, an import, demand) and DATABASE.json (what clients knew at that moment: tokens, leases, ids, a public key).
Agents are played, so that nothing of the machine is in them."""

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


def job(server, kernel, n, space, **more):
    answer = server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": n}, "space": space,
                                                 "environment": hands.ENVIRONMENT} | more)
    assert answer.status == 201, answer
    return answer.json["job"]


def make(server, folder):
    """Does what clients of a running fleet do and returns what they know then."""
    known = {"tokens": {role: harness.make_token(server.database, f"the-{role}", role)
                        for role in ("admin", "reader", "submitter", "agent", "demand")}, "jobs": {}, "hands": {}}
    kernel = known["kernel"] = hands.register(server)

    worker = hands.Hand(server, "worker")
    known["jobs"]["done"] = job(server, kernel, 64, hands.SMALL)
    worker.work(device_us=30000)
    known["jobs"]["failed"] = job(server, kernel, 65, hands.SMALL)
    worker.work(outcomes=dict.fromkeys(range(3), "compile"), device_us=30000)
    known["jobs"]["cancelled"] = job(server, kernel, 66, hands.SMALL)
    assert server.request("DELETE", f"/v1/jobs/{known['jobs']['cancelled']}").status in (200, 204)

    release = server.request("POST", "/v1/releases", {"environment": hands.ENVIRONMENT})
    assert release.status == 201, release
    known["release"] = release.json["release"]
    harness.wavetune(None, "key", "new", folder / "key")
    known["public_key"] = (folder / "key.pub").read_text()
    harness.wavetune(server, "promote", known["release"], "stable", "--sign-key", folder / "key")
    known["channel"] = server.request("GET", "/v1/channels/stable").json

    imported = {"name": "dejavu/x", "language": "external", "key": ["n"], "exports": {"dejavu": {}}}
    answer = server.request("POST", "/v1/imports", {
        "format": "dejavu", "environment": hands.ENVIRONMENT,
        "kernels": [{"manifest": imported, "entries": [{"key": {"n": 4096}, "config": {"B": 1}, "ms": [0.2]}]}]})
    assert answer.status in (200, 201), answer

    known["jobs"]["running"] = job(server, kernel, 67, hands.LARGE)
    for name in ("half", "none"):
        hand = hands.Hand(server, name, boot=f"boot-{name}")
        answer = hand.pull()
        assert answer.status == 200, (name, answer, server.get(f"/v1/jobs/{known['jobs']['running']}"))
        lease = answer.json
        configs = hands.configs_of(lease)
        posted = configs[:len(configs) // 2] if name == "half" else []
        if posted:
            assert hand.post(lease, posted, done=False).status == 200
        known["hands"][name] = {"agent": hand.id, "boot": hand.boot, "lease": lease, "posted": posted}
    known["jobs"]["queued"] = job(server, kernel, 68, hands.SMALL, priority=-5, budget={"device_seconds": 60})
    return known


def main():
    cluster = harness.Postgres(durable=False)
    database = cluster.database()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        server = harness.Server(database, folder, options=(*harness.UNHURRIED, "--poll-ms", "200", *harness.LEASES_OF_8))
        known = make(server, folder)
        server.stop()
    dumped = subprocess.run([harness.postgres_bin() / "pg_dump", "--no-owner", "--no-privileges", database],
                            capture_output=True, text=True, check=True).stdout
    cluster.stop()
    lines = [line for line in dumped.splitlines(keepends=True) if not line.startswith(("\\restrict", "\\unrestrict"))]
    OUT.with_suffix(".sql").write_text("".join(lines))  # those are commands that older psql do not know
    OUT.with_suffix(".json").write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


main()
