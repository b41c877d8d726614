#!/usr/bin/env python3
"""What the Python wheel costs a program that runs with it: a warm launch, the import, a closure, a signature.

    build/python/bin/python bench/wheel_cost.py [--rounds N] [--launches N] [--imports N]

- A warm launch: one process launches an autotuned kernel whose config is known, without a GPU (tests/python/tuned/program.py, so
  that nothing is timed but Python). The wheel changes nothing of it but the autotuner's cache, so that with the same
  autotuner the wheel's cache and a dict take turns, in random order, for N rounds. Printed are the median of the rounds'
  differences in CPU time, with its bootstrap interval, and that of two dicts.
- The import: `import wavetune.auto` in new processes in turn, with and without WAVETUNE_URL, after `import triton`, compiled as
  pip leaves it.
- The closures of the kernels of tests/python/kernels and kernels/, and the verification of an Ed25519 signature in Python: the
  median of 200.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "python")]
from contract_server import canonical, document  # noqa: E402
from starting import choices, environment  # noqa: E402

LAUNCHES = """
import json, random, sys, time, types
import program, triton, wavetune.auto
from triton.runtime.autotuner import Autotuner
from wavetune._runtime import restore
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].Tensor = program.Tensor
triton.runtime.driver.set_active(program.DRIVER)
import ops
x, y, tuner = program.Tensor(), program.Tensor(), ops.add_kernel
tuner.run(x, y, 4096, grid=(1,), warmup=True)
assert program.DRIVER.benchmarked == 0 and Autotuner.run.__module__ == "triton.runtime.autotuner"
rounds, n = map(int, sys.argv[1:])
caches = {"own": dict(tuner.cache), "again": dict(tuner.cache), "first": tuner.cache, "settled": restore.Restoring(tuner, tuner.cache)}
caches["settled"].__class__ = restore.Settled
restore.SETTLED = 1 << 60
times = {kind: [] for kind in caches}
draw = random.Random(7)
for i in range(rounds + 3):
    for kind in draw.sample(list(caches), len(caches)):
        tuner.cache = caches[kind]
        run = types.MethodType(Autotuner.run.__wrapped__, tuner) if kind in ("own", "again") else tuner.run
        started = time.thread_time_ns()
        for _ in range(n):
            run(x, y, 4096, grid=(1,), warmup=True)
        if i >= 3:
            times[kind].append((time.thread_time_ns() - started) / n)
print(json.dumps(times))
"""
IMPORT = """
import time, triton
started = time.perf_counter()
import wavetune.auto
print((time.perf_counter() - started) * 1e3)
"""
CLOSURES = """
import importlib.util, json, pathlib, statistics, sys, time, types
import program, triton
triton.runtime.driver.set_active(program.DRIVER)
class Torch(types.ModuleType):
    def __getattr__(self, name):
        return Torch(name)
sys.modules["torch"] = Torch("torch")
from wavetune._runtime.closure import closure, jit_function
found = {}
for path in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception:
        continue
    for name, value in vars(module).items():
        if jit_function(value) is not None:
            times = []
            for _ in range(200):
                started = time.perf_counter()
                assert closure(value)
                times.append((time.perf_counter() - started) * 1e3)
            found[f"{pathlib.Path(path).parent.name}/{name}"] = statistics.median(times)
print(json.dumps(found))
"""
VERIFY = """
import statistics, time
from wavetune._runtime.ed25519 import verify
key, text = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"), bytes.fromhex("72")
signature = bytes.fromhex("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
                          "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00")
times = []
for _ in range(200):
    started = time.perf_counter()
    assert verify(key, text, signature)
    times.append((time.perf_counter() - started) * 1e3)
print(statistics.median(times))
"""


def output(text, *arguments, **variables):
    own = environment("/nonexistent", patience=0, **variables)
    return subprocess.run([sys.executable, "-c", text, *map(str, arguments)], env=own, capture_output=True, text=True,
                          check=True).stdout


def interval(values, draw, n=10000):
    """The median and its bootstrap interval of 95 %."""
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(n))
    return statistics.median(values), medians[n // 40], medians[-n // 40]


def launches(rounds, n, draw):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "choices.json").write_bytes(canonical(document(choices(4096))))
        times = json.loads(output(LAUNCHES, rounds, n, WAVETUNE_CACHE=folder, TRITON_CACHE_DIR=folder))
    own = times["own"]
    print(f"a warm launch, {rounds} rounds of {n}: {statistics.median(own):.0f} ns with the autotuner's own cache, least {min(own):.0f} ns")
    for kind, what in (("first", "that of the wheel, the first 1,000 times"), ("settled", "that of the wheel, later"),
                       ("again", "another of its own")):
        more, low, high = interval([a - b for a, b in zip(times[kind], own)], draw)
        print(f"  {what}: {more:+.0f} ({low:+.0f} to {high:+.0f}) ns, least {min(times[kind]) - min(own):+.0f} ns", flush=True)


def imports(n, draw):
    kinds = {"without": {}, "with": {"WAVETUNE_URL": "http://127.0.0.1:9", "WAVETUNE_TOKEN": "none"}}
    times = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        compiled = {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}  # as pip leaves it
        for i in range(n + 1):
            for kind in draw.sample(list(kinds), 2):
                ms = float(output(IMPORT, **kinds[kind], **compiled))
                if i > 0:
                    times[kind].append(ms)
    for kind, ms in times.items():
        print("importing wavetune.auto {} the variables: {:.2f} ({:.2f} to {:.2f}) ms, least {:.2f} ms".format(
            kind, *interval(ms, draw), min(ms)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--imports", type=int, default=20)
    arguments = parser.parse_args()
    draw = random.Random(7)
    load = os.getloadavg()[0]
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {load:.1f}, {time.strftime('%FT%TZ', time.gmtime())}")
    launches(arguments.rounds, arguments.launches, draw)
    imports(arguments.imports, draw)
    sources = [*ROOT.glob("tests/python/kernels/*.py"), *ROOT.glob("kernels/*/*.py"), ROOT / "tests/python/tuned/ops.py"]
    found = json.loads(output(CLOSURES, *sources))
    print(f"a closure, of {len(found)} kernels: {statistics.median(found.values()):.2f} ms, at most "
          f"{max(found.values()):.2f} ms ({max(found, key=found.get)})")
    print(f"a signature verified: {float(output(VERIFY)):.2f} ms")


main()
