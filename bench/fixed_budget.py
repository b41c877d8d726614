"""A usual autotuner, for kernels in C: one config after the other is warmed up and called for fixed times (25 ms and 100 ms,
as in Triton's do_bench), and the lowest mean wins. The counterpart of Triton's autotuner for GPUs.

    fixed_budget.py FOLDER:VERSION KEYS.jsonl [--repeat N]      one JSON line a key, as triton_autotune.py prints
"""

import argparse
import ctypes
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from wavetune._pack.expressions import expression  # noqa: E402
from wavetune._pack.spaces import parse_space  # noqa: E402

WARM_UP_S, REPEAT_S = 0.025, 0.100
TYPES = {"float32": ctypes.c_float, "float64": ctypes.c_double}


def compile_config(folder, version, config, key, scratch):
    """The entry point compiled as the agent does: optimised for this processor, the config as macros."""
    values = dict(config)
    values |= {name: expression(str(text)).evaluate({**key, **config}) for name, text in version.get("defines", {}).items()}
    defines = [f"-D{name}={int(value) if isinstance(value, bool) else value}" for name, value in values.items()]
    place = pathlib.Path(scratch, f"{abs(hash(tuple(sorted(values.items()))))}.so")
    if not place.exists():
        subprocess.run(["cc", "-O3", "-march=native", "-Wno-psabi", "-shared", "-fPIC", *defines, "-o", place,
                        folder / version["sources"][0], "-lm"], check=True)
    return getattr(ctypes.CDLL(str(place)), version["entry"])


def mean_of(call):
    call()
    until = time.perf_counter() + WARM_UP_S
    while time.perf_counter() < until:
        call()
    begin, n = time.perf_counter(), 0
    while time.perf_counter() < begin + REPEAT_S:
        call()
        n += 1
    return (time.perf_counter() - begin) / n


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place")
    parser.add_argument("keys")
    parser.add_argument("--repeat", type=int, default=1)
    arguments = parser.parse_args()
    folder, _, name = arguments.place.rpartition(":")
    folder = pathlib.Path(folder)
    manifest = json.loads((folder / "kernel.json").read_text())
    version = manifest["versions"][name]
    space = parse_space(json.loads((folder / version["space"]).read_text()), "space")
    random.seed(1)
    with tempfile.TemporaryDirectory() as scratch:
        for line in pathlib.Path(arguments.keys).read_text().splitlines():
            key = json.loads(line)
            configs = list(space.points([{**key, "gpu_name": "", "arch": ""}]))
            functions = [compile_config(folder, version, config, key, scratch) for config in configs]
            values = []
            for argument in version.get("arguments", manifest["arguments"]):
                if "shape" in argument:
                    n = math.prod(expression(extent).evaluate(key) for extent in argument["shape"])
                    values.append((TYPES[argument["dtype"]] * n)(*[random.gauss(0, 1) for _ in range(n)]))
                else:
                    values.append(ctypes.c_int64(expression(argument["value"]).evaluate(key)))
            for repeat in range(arguments.repeat):
                begin = time.monotonic()
                times = [mean_of(lambda f=function: f(*values)) for function in functions]
                seconds = time.monotonic() - begin
                best = times.index(min(times))
                print(json.dumps({"key": key, "repeat": repeat, "seconds": seconds, "config": configs[best],
                                  "times_ms": [[c, 1000 * t] for c, t in zip(configs, times)]}), flush=True)


if __name__ == "__main__":
    main()
