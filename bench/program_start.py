#!/usr/bin/env python3
"""Programs that start at once and ask for choices and compiled code, against nginx serving the same bytes: 1,000 connections
opened in one moment, each of which asks for GET /v1/choices and then for the code of 50 kernels, a group of files each, as the
wheel does in a fresh container whose release is signed.

    WAVETUNE_BUILD=build/release bench/program_start.py [RUNS [STARTS [KERNELS]]]      default 5 runs of 1,000 starts of 50 kernels

The kernels' files are random bytes of the sizes that Triton 3.9.0 wrote for an addition for gfx942. Needs nginx (package
nginx-light). PostgreSQL, server and load share the machine's cores.
"""

import base64
import hashlib
import json
import os
import statistics
import subprocess
import sys
import urllib.parse

import driver
import harness
from cached_get import nginx_start

HARDWARE = {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X", "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
ENVIRONMENT = {**HARDWARE, "triton": "3.9.0"}
SPACE = {"configs": [{"BLOCK": 256, "num_warps": 4}]}
SIZES = {"source": 3302, "ttir": 2161, "ttgir": 2570, "llir": 10251, "amdgcn": 13452, "hsaco": 5800, "json": 1255}


def sha(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def push(server, bench, i):
    """A kernel with a build of one config, whose code is in a folder of Triton's cache; returns (kernel, that folder)."""
    name = f"kernel{i}"
    place, code = bench.folder / name, bench.folder / f"{name}.build"
    place.mkdir()
    (code / "objects").mkdir(parents=True)
    (place / "k.py").write_text(f"# {name}\n")
    (place / "space.json").write_text(json.dumps(SPACE))
    (place / "kernel.json").write_text(json.dumps({
        "name": name, "key": ["n"], "arguments": [{"name": "y", "dtype": "float16", "shape": ["n"], "access": "write"}],
        "versions": {"triton": {"language": "triton", "entry": name, "sources": ["k.py"], "launch": {"grid": ["n"]}}}}))
    kernel = harness.wavetune(None, "kernel", "hash", place).stdout.strip()

    def blob(size):
        data = os.urandom(size)
        (code / "objects" / hashlib.sha256(data).hexdigest()).write_bytes(data)
        return sha(data)

    files = {f"{name}.{ending}": blob(size) for ending, size in SIZES.items()}
    folder = base64.b32encode(hashlib.sha256(name.encode()).digest()).decode().rstrip("=")
    record = {"name": name, "function": {"name": name, "closure": sha(name.encode())}, "key_names": ["n"], "tuning_key": ["n"],
              "argument_dtypes": ["torch.float16"]}
    build = {"kernel": kernel, "toolchain": {"triton": "3.9.0"}, "arch": "gfx942", "warp_size": 64, "record": record, "variants": [
        {"signature": {"y": "*fp16"}, "constexprs": {}, "objects": [{"config": SPACE["configs"][0], "digest": files[f"{name}.hsaco"],
                                                                   "metadata": {"name": name, "cache": {"folder": folder, "files": files}}}]}]}
    (code / "build.json").write_bytes(json.dumps(build, sort_keys=True, separators=(",", ":")).encode())
    harness.wavetune(server, "kernel", "push", place, "--build", code)
    return kernel, f"/v1/remote/triton/{folder}/group/{name}.json"


def publish(server, bench, kernels):
    """A release with a winner for each kernel."""
    jobs = [{"kernel": kernel, "key": {"n": 4096}, "space": SPACE, "environment": HARDWARE} for kernel in kernels]
    for job in server.request("POST", "/v1/jobs", {"jobs": jobs}).json["jobs"]:
        bench.postgres.sql(f"""UPDATE jobs SET state = 'done', finished_at = now() WHERE id = {job['job']};
                               INSERT INTO winners (job_id, config, config_values, verdict) VALUES
                                 ({job['job']}, 0, '{json.dumps(SPACE["configs"][0])}',
                                  '{{"winner": 0, "verdict": "FASTER", "equivalence_set": [0]}}')""", conninfo=server.database)
    harness.wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--channel", "stable")


def starts(port, token, n, paths):
    command = [driver.need_build("bench/start_load"), "127.0.0.1", str(port), token, str(n), *paths]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done
    answer = json.loads(done.stdout)
    assert answer["failed"] == 0 and len(answer["ms"]) == n, answer
    return answer


def main():
    runs, n, kernels = (int(text) for text in (*sys.argv[1:], *("5", "1000", "50")[len(sys.argv) - 1:]))
    driver.need("nginx", "nginx-light")
    with driver.Bench() as bench:
        server = bench.server()
        pushed = [push(server, bench, i) for i in range(kernels)]
        publish(server, bench, [kernel for kernel, _ in pushed])
        paths = [f"/v1/choices?{urllib.parse.urlencode(ENVIRONMENT)}", *(path for _, path in pushed)]
        bodies = [server.request("GET", path).body for path in paths]
        _, port = nginx_start(bench, b"")
        names = []
        for i, body in enumerate(bodies):
            (bench.folder / f"www/{i}").write_bytes(body)
            names.append(f"/{i}")
        bench.print_machine()
        sides = {"nginx": (port, "", n, names), "wavetune": (server.port, server.token, n, paths)}
        seen = {name: {"p50": [], "p99": [], "last": []} for name in sides}
        size = sum(map(len, bodies))
        for side in sides.values():
            starts(*side)  # warm: what is served is in memory
        for i in range(runs):
            for name in sorted(sides, reverse=i % 2):
                ms = starts(*sides[name])["ms"]
                for label, share in (("p50", 0.5), ("p99", 0.99), ("last", 1)):
                    seen[name][label].append(ms[min(n - 1, int(n * share))])
        print(f"{n:,} starts at once, {len(paths)} requests and {size:,} bytes each, {runs} runs in turn")
        for name, labels in seen.items():
            print(f"  {name:9} " + "; ".join(f"{label} {driver.spread(values)} ms" for label, values in labels.items()), flush=True)
        print("ratio: " + ", ".join(
            f"{label} {statistics.median(seen['wavetune'][label]) / statistics.median(seen['nginx'][label]):.2f} x nginx's"
            for label in ("p50", "p99")))


main()
