"""What recording a launch costs the program's thread, in ms a miss, on a machine without a GPU.

    PYTHONPATH=python build/python/bin/python bench/capture_cost.py [--launches N]

A kernel with 12 tensors, 8 scalars, 4 heuristics and a grid in Python is launched with another key each time, with stand-ins
for tensors whose memory is the host's. Printed for each number of configs, with integer tensors of 256 bytes and of 4 MiB,
recorded in source and raw: least and median of the whole miss (wall), and of the thread's own time; then of the recorder's
thread. What the device takes to copy integers, and what it still has to do before it can, is not in the figures.
"""

import argparse
import importlib.util
import os
import pathlib
import statistics
import sys
import tempfile
import time
import types

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/python/capturing")]
KERNEL = """
import triton
import triton.language as tl

NAMES = [f"x{{i}}_ptr" for i in range(12)]

@triton.autotune(configs=[triton.Config({{"BLOCK": 2**(i % 8)}}, num_warps=2**(i % 3), num_stages=1 + i)
                          for i in range({configs})], key=["n0"])
@triton.heuristics({{
    "HAS_BIAS": lambda args: args["bias_ptr"] is not None,
    "HAS_LENGTHS": lambda args: args["x11_ptr"] is not None,
    "BLOCKS": lambda args: triton.cdiv(args["n0"], args["BLOCK"]),
    "IS_EVEN": lambda args: args["n0"] % args["BLOCK"] == 0,
}})
@triton.jit
def kernel({tensors}, bias_ptr, {scalars}, HAS_BIAS: tl.constexpr, HAS_LENGTHS: tl.constexpr, BLOCKS: tl.constexpr,
           IS_EVEN: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(x0_ptr + tl.arange(0, BLOCK), n0)
"""


def load(folder, configs):
    path = pathlib.Path(folder) / f"kernel_{configs}.py"
    path.write_text(KERNEL.format(configs=configs, tensors=", ".join(f"x{i}_ptr" for i in range(12)),
                                  scalars=", ".join(f"n{i}" for i in range(8))))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module.kernel


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=30)
    arguments = parser.parse_args()
    import launches
    import triton
    torch = types.ModuleType("torch")
    torch.Tensor, torch.cuda = launches.Tensor, launches.CUDA
    sys.modules["torch"] = torch
    triton.runtime.driver.set_active(launches.DRIVER)
    triton.runtime.jit.JITFunction.run = lambda *_, **__: None

    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(WAVETUNE_CAPTURE="source", WAVETUNE_CAPTURE_TO=f"{folder}/captures")
        from wavetune import auto  # noqa: F401
        from wavetune._runtime import capture, restore
        recorder, spent = capture._recorder, []

        def missed(*args):
            started, own = time.perf_counter(), time.thread_time()
            recorder.missed(*args)
            spent.append((1000 * (time.perf_counter() - started), 1000 * (time.thread_time() - own)))

        restore.captured = missed
        heads = ("wall ms", "median", "own ms", "median", "recorder")
        print("configs  integers   mode    " + "".join(f"{head:>12}" for head in heads))
        rows = ((6, 64, False), (24, 64, False), (96, 64, False), (24, 1 << 20, False), (24, 1 << 20, True))
        for row, (configs, words, is_raw) in enumerate(rows, 1):
            kernel, recorder.is_raw = load(folder, configs), is_raw
            tensors = [launches.Tensor("float16", 64, 128) for _ in range(11)]
            lengths = launches.Tensor("int32", words, values=[i * 7919 % 1009 for i in range(words)])
            spent.clear()
            behind = []
            for n in range(arguments.launches):
                kernel.run(*tensors, lengths, None, 1000 * row + n, *range(7), warmup=False,
                           grid=lambda meta: (triton.cdiv(meta["n0"], meta["BLOCK"]), 8))
                started = time.perf_counter()
                while recorder._queue or recorder._is_busy:
                    time.sleep(0.0005)
                behind.append(1000 * (time.perf_counter() - started))
            walls, own = zip(*spent)
            figures = [min(walls), statistics.median(walls), min(own), statistics.median(own), statistics.median(behind)]
            mode = "raw" if is_raw else "source"
            print(f"{configs:7}  {4 * words:8}   {mode:6}  " + "".join(f"{ms:12.2f}" for ms in figures))


if __name__ == "__main__":
    main()
