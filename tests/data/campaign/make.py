#!/usr/bin/env python3
"""Records campaigns of a real server with real agents on this machine's CPU, for tests/unit/test_server_campaigns.c.

    WAVETUNE_BUILD=build/dev tests/data/campaign/make.py tests/data/campaign

Writes NAME.json of each job: what was asked for, every measurement that counts in the order in which it arrived, and what
the server decided after every stage. The kernels and the machine's noise are real, so a second recording has other times
and other winners; the test asks whether the same measurements lead to the same decisions, whatever they are. The recording that is
here was made by a server from before common/campaign/ decided for it."""

import json
import os
import pathlib
import sys
import tempfile

OUT = pathlib.Path(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parents[3]
os.environ.setdefault("WAVETUNE_BUILD", str(ROOT / "build/dev"))
sys.path.insert(0, str(ROOT / "tests/system"))
import harness  # noqa: E402

# Few rounds and small problems: what counts here is how many configs are close, not how well that is known.
ROUNDS = ("--screen-rounds", "4", "--final-rounds", "12")
JOBS = [  # name, kernel, key, options of submit; in this order, so that a job finds the winners of those before
    ("softmax", "kernels/softmax:naive", "rows=64,columns=512", ()),
    ("softmax_warm", "kernels/softmax:naive", "rows=64,columns=1024", ()),
    ("softmax_search", "kernels/softmax:naive", "rows=128,columns=512", ("--search", "descent", "--trials", "24")),
    ("layernorm", "kernels/layernorm:c", "rows=64,columns=512", ()),
    ("vector_add", "kernels/vector_add:c", "n=100000", ()),
    ("matmul_search", "kernels/matmul:c", "M=48,N=48,K=64", ("--search", "evolution", "--trials", "150")),
    ("misbehaving", "tests/data/kernels/misbehaving", "n=1000", ()),
    ("alike", None, "n=100003", ()),  # 40 configs that do the same: more than a final takes are close
]
MEMBERS = ("config", "stage", "round", "process", "lease", "outcome", "end", "vgprs", "spills", "lds_bytes", "detail")


def record(server, cluster, name, job):
    summary = server.get(f"/v1/jobs/{job}")
    items = [m for m in server.items(f"/v1/jobs/{job}/measurements") if not m["late"]]
    rows = cluster.sql(f"select id, ratio from measurements where job_id = {job}", conninfo=server.database)
    ratios = dict(line.split("|") for line in rows.splitlines())
    devices = sorted({(m["agent"], m["device"]) for m in items})
    leases = sorted({int(m["lease"]) for m in items})
    measurements = [{k: m[k] for k in MEMBERS if m[k] is not None}
                    | {"lease": leases.index(int(m["lease"])), "device": devices.index((m["agent"], m["device"])) + 1}
                    | ({"ratio": float(ratios[m["id"]])} if ratios[m["id"]] else {})
                    | {k: m[k] for k in ("samples_us", "baseline_us") if m[k]} for m in items]
    decisions = [e["detail"] for e in server.get(f"/v1/jobs/{job}/events?limit=1000")["items"] if e["kind"] == "stage"]
    likely = cluster.sql(f"select array_to_json(likely) from jobs where id = {job}", conninfo=server.database)
    recorded = {"name": name, "kernel": summary["name"]} | {k: summary[k] for k in (
        "key", "space", "baseline", "baseline_from", "seed", "search", "finals", "state", "reason")}
    recorded |= {"likely": json.loads(likely), "stages": decisions,
                 "winner": summary["winner"] and {k: summary["winner"][k] for k in ("config", "config_values", "verdict")}}
    lines = ",\n".join(json.dumps(m) for m in measurements)
    (OUT / f"{name}.json").write_text(f'{json.dumps(recorded)[:-1]},\n"measurements": [\n{lines}]}}\n')
    stages = [d["stage"] for d in decisions]
    print(f"{name}: {len(measurements)} measurements, {stages}, {summary['state']}", summary["reason"] or "")


def main():
    cluster = harness.Postgres(durable=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            folder.chmod(0o755)
            alike = harness.small_kernel(folder / "alike", {"REPEAT": [1], "TURN": list(range(40))})
            server = harness.Server(cluster.database(), folder, options=(*harness.UNHURRIED, *harness.LEASES_OF_8))
            agent = harness.Agent(server, folder, options=ROUNDS)
            try:
                harness.wait_until(lambda: server.items("/v1/agents"), 30, "the agent to enrol")
                for name, kernel, key, options in JOBS:
                    done = harness.wavetune(server, "submit", ROOT / kernel if kernel else alike, "--key", key, "--wait", "--json", *options,
                                            check=False)
                    record(server, cluster, name, json.loads(done.stdout)[0]["job"])
            finally:
                agent.kill()
                server.kill()
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
