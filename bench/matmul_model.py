#!/usr/bin/env python3
"""A program as people have it: a matrix product under triton.autotune with 108 configs, for three
keys. It knows nothing of wavetune.

    bench/matmul_model.py      prints one line of JSON

The line has the seconds of the imports and of the first product of each key, what Triton did for
them, and the configs.
"""

import json
import os
import sys
import time

from unmodified_model import seen, watch  # imports torch and triton
import torch
import triton
import tuning

sys.path.insert(0, str(tuning.ROOT / "kernels/matmul"))
watch()
if os.environ.get("WAVETUNE_CACHE"):
    import wavetune.auto  # noqa: F401, E402  as the entry point of an installed wheel does
from matmul import matmul  # noqa: E402


def configs():
    space = [{}]
    for name, values in tuning.MATMUL_SPACE["parameters"].items():
        space = [{**one, name: value} for one in space for value in values]
    options = ("num_warps", "num_stages")
    return [
        triton.Config({name: value
                       for name, value in one.items() if name not in options},
                      **{name: one[name]
                         for name in options}) for one in space
    ]


def main(started):
    product = triton.heuristics({"EVEN_K": lambda given: given["k"] % given["BLOCK_K"] == 0
                                 })(matmul)
    product = triton.autotune(configs(), ["m", "n", "k"])(product)
    report = {
        "model": "matmul", "import_s": time.perf_counter() - started, "first_s": [], "configs": []
    }
    for m, n, k in tuning.MATMUL_NAMED:
        a, b = (torch.randn(shape, device="cuda", dtype=torch.float16)
                for shape in ((m, k), (k, n)))
        c = torch.empty((m, n), device="cuda", dtype=torch.float16)
        torch.cuda.synchronize()
        began = time.perf_counter()
        product[lambda given, m=m, n=n:
                (triton.cdiv(m, given["BLOCK_M"]) * triton.cdiv(n, given["BLOCK_N"]), )](c, a, b, m,
                                                                                         n, k)
        torch.cuda.synchronize()
        report["first_s"].append(time.perf_counter() - began)
        best = product.best_config
        report["configs"].append(
            {**best.kwargs, "num_warps": best.num_warps, "num_stages": best.num_stages})
        rows = slice(0, min(m, 64))
        expected = (a[rows].float() @ b.float()).half()
        assert torch.allclose(c[rows], expected, rtol=1e-2, atol=0.5), "the product is wrong"
    print(json.dumps({**report, **seen}))


main(time.perf_counter())
