#!/usr/bin/env python3
"""Runs schemathesis against a server on a database with a little of everything, and prints what each operation answered.

    tests/schemathesis.py [--seconds 240] [--examples 10] [--seed 1] [--without-links]

The programs are those of $WAVETUNE_BUILD (default build/dev; build/asan finds more). Without a `schemathesis` in $PATH it is
installed into a virtual environment in a temporary folder. The exit status is 1 when an answer was 5xx or was not what
/openapi.json states, or when a server's sanitizer reported something.
"""

import argparse
import collections
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "system"))
import hands  # noqa: E402
import harness  # noqa: E402

VERSION = "4.32.5"
# What schemathesis assumes of an API and this one does not promise: the body of a PUT is named by its digest in the path, any
# other method of a path may be one that needs another role, and a token that was revoked is an id that exists.
UNPROMISED = "positive_data_acceptance,use_after_free,ensure_resource_availability,unsupported_method"
# What may refuse a body that a schema forbids: the defaults, and 413 where it is also over the limit of its route.
CONFIG = """[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"]
"""
ANSWERS = re.compile(r'wavetune_http_answers_total\{route="(\w+)",status="(\d+)"\} (\d+)')


def program(folder):
    found = shutil.which("schemathesis")
    if found:
        return found
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    subprocess.run([folder / "venv/bin/pip", "-q", "install", f"schemathesis=={VERSION}"], check=True)
    return folder / "venv/bin/schemathesis"


CLOSURE = "sha256:" + "a" * 64
FUNCTION = {"version": 1, "closure": CLOSURE, "name": "package.module:f", "globals": [], "autotune": None,
            "parts": [{"module": "package.module", "qualname": "f", "line": 1, "text": "def f(): pass\n"}]}
LAUNCH = {"version": 1, "closure": CLOSURE, "key": ["64"], "key_names": ["n"], "key_values": [64], "image": None, "triton": "3.6.0",
          "environment": {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X", "arch": "gfx942", "triton": "3.6.0"}, "arguments": [],
          "configs": [], "refused": []}


def populate(server):
    """A tuned job with its release and channel, a job whose leases are open, an agent, a launch that was recorded, a compatibility."""
    kernel = hands.register(server)

    def submit(n, space):
        return server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": n}, "space": space,
                                                   "environment": hands.ENVIRONMENT})

    hand = hands.Hand(server, "played")
    assert submit(64, hands.SMALL).status == 201
    hand.work()
    release = server.request("POST", "/v1/releases", {"environment": hands.ENVIRONMENT, "tag": "default"})
    assert release.status == 201, release
    moved = server.request("PUT", "/v1/channels/stable", {"release": release.json["release"]}, headers={"If-None-Match": "*"})
    assert moved.status == 200, moved
    assert submit(128, {"parameters": {"A": list(range(512))}}).status == 201
    assert hand.pull().status == 200
    captured = server.request("POST", "/v1/captures", {"functions": [FUNCTION], "launches": [LAUNCH]})
    assert captured.status == 202 and captured.json["launches"] == 1, captured
    declared = server.request("POST", "/v1/compatibilities", {"asked": {"cpu": "a"}, "served": {"cpu": "b"}, "reason": "the same code"})
    assert declared.status == 201, declared


def keep_token(postgres, server):
    """The token of the run outlives every DELETE, which then finds no such token."""
    postgres.sql("create function keep() returns trigger language plpgsql as 'begin return null; end'; "
                 "create trigger keep before update on tokens for each row "
                 f"when (old.digest = decode('{hashlib.sha256(server.token.encode()).hexdigest()}', 'hex') "
                 "and new.revoked_at is not null) execute function keep()", conninfo=server.database)


def answers(server):
    answer = server.request("GET", "/metrics")
    assert answer.status == 200, answer
    text = answer.body.decode()
    counts = collections.defaultdict(collections.Counter)
    for route, status, n in ANSWERS.findall(text):
        counts[route][status] += int(n)
    return counts


def without_waits(document):
    """No long poll waits."""
    text = json.dumps(document)
    wait = json.dumps(next(p["schema"] for p in document["paths"]["/v1/jobs/{id}/events"]["get"]["parameters"] if p["name"] == "wait"))
    document = json.loads(text.replace(wait, json.dumps({"const": 0})))
    document["components"]["schemas"]["LeaseRequest"]["properties"]["wait"] = {"const": 0}
    return document


def without_links(document):
    for operations in document["paths"].values():
        for operation in operations.values():
            for response in operation["responses"].values():
                response.pop("links", None)
    return document


def report(before, after):
    total, reached = collections.Counter(), 0
    for route in sorted(after):
        counts = after[route] - before[route]
        total += counts
        reached += any(status[0] == "2" for status in counts)
        print(f"{route:24} " + "  ".join(f"{status} {n}" for status, n in sorted(counts.items())))
    print(f"{'all':24} " + "  ".join(f"{status} {n}" for status, n in sorted(total.items())))
    print(f"{total.total()} requests; {reached} of {len(after.keys() - {'none'})} operations answered 2xx")
    return sum(n for status, n in total.items() if status[0] == "5")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=240)
    parser.add_argument("--examples", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-links", action="store_true", help="do not follow the links of /openapi.json")
    options = parser.parse_args()

    folder = pathlib.Path(tempfile.mkdtemp(prefix="wt-schemathesis-"))
    postgres = harness.Postgres(durable=False)
    server = None
    try:
        server = harness.Server(postgres.database(), folder, options=("--heartbeat-ms", "600000", "--lease-ms", "3600000"))
        populate(server)
        keep_token(postgres, server)
        document = server.get("/openapi.json", token=None)
        if options.without_links:
            document = without_links(document)
        (folder / "openapi.json").write_text(json.dumps(document))
        (folder / "unhurried.json").write_text(json.dumps(without_waits(document)))
        (folder / "schemathesis.toml").write_text(CONFIG)
        before = answers(server)
        command = [program(folder), "--config-file", folder / "schemathesis.toml", "run", "--url", server.url, "--header",
                   f"Authorization: Bearer {server.token}", "--max-examples", str(options.examples), "--seed", str(options.seed),
                   "--max-time", str(options.seconds // 2), "--exclude-checks", UNPROMISED, "--continue-on-failure",
                   "--request-timeout", "70", "--generation-database", "none", "--no-color", "--warnings", "off",
                   "--suppress-health-check", "all"]
        # Half of the time each, as the first phases would take all of it.
        ends = [subprocess.run([*command, *more], cwd=folder).returncode for more in (
            (folder / "openapi.json", "--phases", "coverage,fuzzing"),
            (folder / "unhurried.json", "--phases", "stateful", "--mode", "positive"))]
        failed = report(before, answers(server))
        ended = server.stop()
        print(f"schemathesis ended with {ends}, the server with {ended}; answers of 5xx: {failed}")
        if "Sanitizer" in server.messages or ended:
            print(server.messages[-20000:])
        return int(bool(failed or ended or any(ends) or "Sanitizer" in server.messages))
    finally:
        if server:
            server.kill()
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
