"""Packing 108 configs of a matrix product in N processes, against compiling the same one after another in one process.

    build/python/bin/python bench/pack.py [ROUNDS] [PROCESSES]     3 rounds, as many processes as CPUs

Both sides begin with Triton imported and an empty cache, compile the same variant and store the same objects; they take
turns in one run. "One after another" is what an autotuner does before it can time anything.
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from wavetune._pack.build import Request, clean_environment, compile_all, make_plan, make_task  # noqa: E402
from wavetune._canonical import canonical  # noqa: E402
from wavetune._pack.compiling import compile_task, store_result  # noqa: E402
from wavetune._pack.folder import load_kernel  # noqa: E402
from wavetune._pack.importing import write_folder  # noqa: E402
from wavetune._pack.function import make_manifest  # noqa: E402
from wavetune._pack.artifacts import installed_key  # noqa: E402
from wavetune._pack.source import load_function  # noqa: E402
from wavetune._pack.target import make_target  # noqa: E402

SPACE = {"parameters": {"BLOCK_SIZE_M": [32, 64, 128], "BLOCK_SIZE_N": [32, 64, 128], "BLOCK_SIZE_K": [32, 64],
                        "GROUP_SIZE_M": [8], "num_warps": [4, 8], "waves_per_eu": [0, 2, 3]},
         "roles": {"num_warps": "option", "waves_per_eu": "option"}}
SIGNATURE = ("a_ptr=*fp16[M,K], b_ptr=*fp16[K,N], c_ptr=*fp16[M,N]:write, stride_am=i64(K), stride_ak=i64(1), "
             "stride_bk=i64(N), stride_bn=i64(1), stride_cm=i64(N), stride_cn=i64(1), ACTIVATION=constexpr('')")
GRID = "lambda META: (triton.cdiv(M, META['BLOCK_SIZE_M']) * triton.cdiv(N, META['BLOCK_SIZE_N']), )"
KEY = {"M": 4096, "N": 4096, "K": 4096}


def make(folder, processes):
    """The plan and the tasks of the 108 configs."""
    source = ROOT / "tests/python/kernels/matmul.py"
    decorated = load_function(source, None, make_target("gfx942"))
    manifest = make_manifest(decorated, "matmul", SIGNATURE, GRID, [KEY], set(SPACE["parameters"]))
    write_folder(folder, manifest, SPACE, source)
    plan = make_plan(Request(load_kernel(str(folder)), [KEY], "gfx942", processes, 600.0, keep_spilling=True))
    return plan, [make_task(plan, plan.variants[0], config) for config in plan.configs[0]]


def one_after_another(plan, tasks, objects):
    return [store_result(*compile_task(task, plan.decorated.jit, plan.target, plan.backend), plan.target, plan.version, objects)
            for task in tasks]


def timed(compile_them, plan, tasks):
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder + "/cache"
        objects = pathlib.Path(folder, "objects")
        objects.mkdir()
        started, before = time.monotonic(), os.times()
        results = compile_them(plan, tasks, objects)
        after = os.times()
        return time.monotonic() - started, sum(after[:4]) - sum(before[:4]), results


def spread(values):
    return f"{statistics.median(values):7.2f} ({min(values):.2f} to {max(values):.2f})"


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    processes = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
    clean_environment()
    with tempfile.TemporaryDirectory() as folder:
        plan, tasks = make(pathlib.Path(folder), processes)
        installed_key()
        print(f"{len(tasks)} configs for gfx942, Triton {__import__('triton').__version__}, {os.cpu_count()} CPUs, load "
              f"{os.getloadavg()[0]:.1f}")
        serial, parallel = [], []
        for number in range(rounds):
            *one, wanted = timed(one_after_another, plan, tasks)
            *many, got = timed(compile_all, plan, tasks)
            serial.append(one[0])
            parallel.append(many[0])
            if canonical(wanted) != canonical(got):
                sys.exit("the two sides did not compile the same objects")
            print(f"round {number + 1}: one process {one[0]:.2f} s (CPU {one[1]:.2f} s), {processes} processes "
                  f"{many[0]:.2f} s (CPU {many[1]:.2f} s); load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"{'':28}{'s, median (least to most)':>28}  s a config")
    for what, values in (("one after another", serial), (f"pack, {processes} processes", parallel)):
        print(f"{what:28}{spread(values):>28}  {statistics.median(values) / len(tasks):.3f}")
    ratio = statistics.median(a / b for a, b in zip(serial, parallel))
    print(f"ratio: {processes} processes are {ratio:.2f} x as fast as one process that compiles one after another")


if __name__ == "__main__":
    main()
