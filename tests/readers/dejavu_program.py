"""Launches dejavu_ops.py's functions for each size: dejavu_program.py N…; the last line that it prints is what happened.

Triton's driver is a stand-in that knows its target, and what triton-dejavu times a launch with measures nothing: each time is
less than the one before, so that the last config wins. Triton, its compiler, torch and triton-dejavu are the real ones.
"""
import json
import sys
import types

import mi300x

mi300x.for_torch()
mi300x.for_hip()
import torch  # noqa: E402
import triton  # noqa: E402

benchmarked = 0


def do_bench(call, quantiles=None, **how):
    global benchmarked
    benchmarked += 1
    call()
    return 1.0 / benchmarked if quantiles is None else [1.0 / benchmarked] * 3


def main():
    import triton_dejavu.autotuner

    import dejavu_ops
    if hasattr(triton_dejavu.autotuner, "do_bench"):
        triton_dejavu.autotuner.do_bench = do_bench
    used, y = [], torch.zeros(1 << 16, dtype=torch.float16)
    for n in map(int, sys.argv[1:]):
        for kernel, arguments in ((dejavu_ops.add_kernel, (y, y, n)), (dejavu_ops.fill_kernel, (y, n))):
            kernel.run(*arguments, grid=(1,), warmup=True)
            config = kernel.best_config
            used.append([config.kwargs["BLOCK"], config.num_warps])
    counters = sys.modules.get("wavetune._runtime.counters")
    print(json.dumps({"used": used, "benchmarked": benchmarked, "counters": counters.snapshot() if counters else None}))


main()
