#!/usr/bin/env python3
"""Unmodified programs on a GPU, with flash-linear-attention: how long a fresh container's first step takes, and what wavetune
costs in later steps.

    bench/unmodified_gpu.py [--postgres-bin DIR] [--wheels DIR] [--models NAME,…] [--kinds NAME,…] [--processes N] [--steps N] [--shapes N]
                            [--json FILE]

For each model, every process in an empty folder of its own:
  alone    without wavetune
  first    with an empty server, under one token and image, which share code; it tunes as ever
  second   the same again: everything comes from the server, what Triton measured too
Outputs are compared between first and second. Then N processes take 200 steps with the choices of `alone` (of `first` where that
was not run), without the wheel in their launches, and 200 with what the server gives, with it, in one process and in turns
(unmodified_model.py --turns): the ratio, with a bootstrap interval over the processes. For how many keys the two have different
configs is printed; where that is none, the ratio is the wheel's cost in a launch and the noise.

The wheels of fla-core, flash-linear-attention and einops lie in DIR where they are not installed. Programs are those of
$WAVETUNE_BUILD. Nothing but loopback is used.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("WAVETUNE_BUILD", ROOT / "build/release"))
IMAGE = "sha256:" + "1" * 64
sys.path.insert(0, str(ROOT / "python"))
from turns import print_ratio  # noqa: E402
from wavetune.client import Client  # noqa: E402


class Server:
    """`wavetune-server dev`, and a token for containers."""

    def __init__(self, folder, postgres_bin):
        command = [BUILD / "wavetune-server", "dev", "--folder", folder, "--port", "0", "--json",
                   "--remote-share", f"fleet/{IMAGE}"]
        if postgres_bin:
            command += ["--postgres-bin", postgres_bin]
        if os.geteuid() == 0:
            command += ["--user", "postgres" if subprocess.run(["id", "postgres"], capture_output=True).returncode == 0 else "nobody"]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "WAVETUNE_MIGRATIONS": str(ROOT / "migrations")})
        ready = json.loads(self.process.stdout.readline() or sys.exit("the server did not start"))
        self.url = ready["url"]
        self.token = Client(ready["url"], ready["token"]).request("POST", "/v1/tokens", {"name": "fleet", "role": "reader,demand"})["token"]

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def begin(model, cache, wheels, server=None, steps=0, shapes=None, go=None, turns=False):
    """A process of the model; `go`: a file that it waits for when its imports are done."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "WAVETUNE_"))}
    own |= {"TRITON_CACHE_DIR": str(cache), "TRITON_CACHE_AUTOTUNING": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), *map(str, wheels)])}
    if server is not None:
        own |= {"WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": server.token, "WAVETUNE_IMAGE": IMAGE, "WAVETUNE_LOG": "stderr",
                "WAVETUNE_SHARED_CODE": "1"}
    command = [sys.executable, str(ROOT / "bench/unmodified_model.py"), model, "--steps", str(steps)]
    command += ["--shapes", str(shapes)] if shapes else []
    command += ["--go", str(go)] if go else []
    command += ["--turns"] if turns else []
    if model == "GatedDeltaNet":
        command.append("--forward")  # fla refuses its backward under Triton 3.4 to 3.7 on Hopper
    return subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process):
    out, err = process.communicate(timeout=580)
    if process.returncode != 0:
        print(err[-3000:], file=sys.stderr, flush=True)
        return None
    lines = [line for line in err.splitlines() if "wavetune" in line]
    return {**json.loads(out.splitlines()[-1]), "log": lines[-5:]}


def run(*arguments, **options):
    return end(begin(*arguments, **options))


def print_run(kind, report):
    if report is None:
        print(f"  {kind:8} failed; its message is above", flush=True)
        return
    firsts = ", ".join(f"{seconds:.2f}" for seconds in report["first_s"])
    counters = report["counters"] or {}
    print(f"  {kind:8} first steps {firsts} s; {report['benchmarked']} benchmarks ({report['benchmark_s']:.1f} s), "
          f"{report['compiled']} compiles ({report['compile_s']:.1f} s), {report['from_cache']} from the cache, "
          f"{report['launchers']} launchers; hits {counters.get('hits', 0)}, misses {counters.get('misses', 0)}, requests "
          f"{counters.get('requests', 0)}, dropped {counters.get('dropped', 0)}; imports {report['import_s']:.1f} s", flush=True)


def measure_steps(model, scratch, wheels, server, arguments, own):
    """Steps with the folder of `own` and with what the server gives; returns the processes' reports."""
    begun, reports = [], []
    for i in range(arguments.processes):  # their imports at once, and then one after the other on the GPU
        go, folder = scratch / f"{model}-{i}.go", scratch / f"{model}-turns-{i}"
        shutil.copytree(scratch / f"{model}-{own}", folder)
        begun.append((go, begin(model, folder, wheels, server, steps=arguments.steps, shapes=1, go=go, turns=True)))
    for go, process in begun:
        go.touch()
        report = end(process)
        if report:
            assert report["benchmark_s"] < 0.1, report["benchmark_s"]
            reports.append(report)
    if not reports:
        return reports
    print_ratio(model, reports, f"the choices of {own}", arguments.steps)
    return reports


def measure(model, scratch, wheels, server, arguments):
    reports = {}
    print(f"{model}:", flush=True)
    for kind, options in (("alone", {}), ("first", {"server": server}), ("second", {"server": server})):
        if kind not in arguments.kinds.split(","):
            continue
        reports[kind] = run(model, scratch / f"{model}-{kind}", wheels, shapes=arguments.shapes, **options)
        print_run(kind, reports[kind])
        if kind == "first":
            time.sleep(2)  # what it sent is stored
    first, second = reports.get("first"), reports.get("second")
    if first and second:
        for what in ("outputs", "gradients"):
            pairs = [(a, b) for a, b in zip(first[what], second[what]) if a is not None]
            if pairs:
                print(f"  {what}: largest relative difference of the means "
                      f"{max(abs(a - b) / max(abs(a), 1e-30) for a, b in pairs):.2e}", flush=True)
    own = next((kind for kind in ("alone", "first") if reports.get(kind)), None)
    if first and own and arguments.processes:
        reports["steps"] = measure_steps(model, scratch, wheels, server, arguments, own)
    return reports


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgres-bin")
    parser.add_argument("--wheels", type=pathlib.Path)
    parser.add_argument("--models", default="DeltaNet,GatedLinearAttention,RWKV7Attention,GatedDeltaNet")
    parser.add_argument("--kinds", default="alone,first,second")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--shapes", type=int, help="only the first N shapes")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    wheels = sorted(arguments.wheels.glob("*.whl")) if arguments.wheels else []
    with tempfile.TemporaryDirectory(prefix="wt-unmodified-", dir="/tmp") as folder:
        scratch = pathlib.Path(folder)
        scratch.chmod(0o755)
        unpacked = []
        for wheel in wheels:  # Triton reads a kernel's text from its file
            place = scratch / wheel.name.split("-")[0]
            subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, place], check=True)
            unpacked.append(place)
        server = Server(scratch / "server", arguments.postgres_bin)
        try:
            found = {model: measure(model, scratch, unpacked, server, arguments) for model in arguments.models.split(",")}
        finally:
            server.stop()
    if arguments.json:
        arguments.json.write_text(json.dumps(found))


main()
