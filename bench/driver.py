"""What the benchmarks share: the harness of the system tests, hands that play agents, ratios of medians."""

import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/system"))
import harness  # noqa: E402

ENVIRONMENT = {"cpu": "bench", "gpu": "Bench CPU", "arch": "x86_64", "compute_units": 2, "partition": ""}


def scratch():
    return pathlib.Path(tempfile.mkdtemp(prefix="wt-bench-", dir="/tmp"))


def enrol(server, name="bench"):
    answer = server.request("POST", "/v1/agents", {"boot": "b", "name": name, "version": "0", "devices": [
        {"device": "cpu0", "backend": "cpu", "environment": ENVIRONMENT, "facts": {}}]})
    assert answer.status in (200, 201), answer
    return answer.json["agent"]


def submit(server, kernel, keys, *more):
    """Submits one job for each key text and returns the answers."""
    arguments = [argument for key in keys for argument in ("--key", key)]
    return json.loads(harness.wavetune(server, "submit", kernel, *arguments, "--environment", json.dumps(ENVIRONMENT), "--json",
                                       *more).stdout)


def cpu_seconds(pid):
    """User and system time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    import os

    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid):
    import subprocess

    return [int(p) for p in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()]


def spread(values):
    return f"median {statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"
