"""A program as people have it, where there is no GPU: it launches the kernels of ops.py for the GPU of tests/fake_hip.

    program.py N…     prints one line of JSON: the configs that it used, and what Triton did for them; without N it launches
                      the function with keys of every kind
"""
import json
import os
import sys

import triton

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import standin  # noqa: E402


def main(sizes):
    driver, compiles = standin.Driver("gfx942"), standin.Compiles()
    standin.use(driver)
    import ops
    used = []
    for n in sizes:
        for offset in (0, 1):  # Triton compiles other code for a tensor that is not aligned, and the key is the same
            y, x = standin.Tensor("float32", n), standin.Tensor("float32", n, offset=offset)
            ops.fake_add.run(y, x, n, grid=lambda meta: (-(-n // meta["BLOCK"]),), warmup=True)
            ops.Plain.fake_add.run(y, x, n, num_warps=1, grid=(-(-n // 64),), warmup=True)
        used.append(ops.fake_add.best_config.num_warps)
    for more in ({}, {"layout": True, "other": None}, {"name": "it's", "other": False},
                 {"ratio": float("inf"), "other": triton.language.float32}) if not sizes else ():
        y, x = standin.Tensor("float32", 1000), standin.Tensor("float32", 1000)
        ops.Keyed.fake_add.run(y, x, 1000, grid=(16,), warmup=True, **{"ratio": 1e-6, **more})
        used.append(ops.Keyed.fake_add.best_config.num_warps)
    counters = sys.modules.get("wavetune._runtime.counters")
    print(json.dumps({"used": used, "benchmarked": driver.benchmarked, "compiled": compiles.n,
                      "counters": counters.snapshot() if counters else None}))


main([int(text) for text in sys.argv[1:]])
