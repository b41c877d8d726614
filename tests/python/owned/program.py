"""Launches the kernels of tuners.py for each N, where there is no GPU (standin.py); prints one line of JSON."""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
import standin  # noqa: E402
from standin import Driver, Tensor  # noqa: E402

DRIVER = Driver()
standin.use(DRIVER)
import tuners  # noqa: E402

used = {}
for n in map(int, sys.argv[1:]):
    for name in ("own_kernel", "own_pruned_kernel", "pruned_kernel"):
        kernel = getattr(tuners, name)
        kernel.run(Tensor("float16", 4096), n, grid=(4,), warmup=True)
        config = getattr(kernel, "fn", kernel).best_config if name != "pruned_kernel" else kernel.best_config
        used.setdefault(name, []).append([config.kwargs["BLOCK"], config.num_warps])
counters = sys.modules.get("wavetune._runtime.counters")
print(json.dumps({"used": used, "benchmarked": DRIVER.benchmarked,
                  "stored": {table: len(rows) for table, rows in tuners.STORED.items()},
                  "timed": {name: len(getattr(tuners, name).fn.times) for name in ("own_kernel", "own_pruned_kernel")},
                  "counters": counters.snapshot() if counters else None}))
