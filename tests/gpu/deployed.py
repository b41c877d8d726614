"""What a deployment runs on a GPU, with the real torch and Triton, unmodified. Prints one JSON document.

    deployed.py scale N     scaled.scale_kernel under its @triton.autotune: what Triton's own listener and print variable say
    deployed.py linear M    a bf16 linear under TunableOp: its validators and the results that it has
"""

import contextlib
import io
import json
import os
import sys
import time

import torch


def scale(n):
    os.environ["TRITON_PRINT_AUTOTUNING"] = "1"
    import triton
    from scaled import scale_kernel
    seen = {"compiled": 0, "from_cache": 0}

    def listener(*, cache_hit, **_):
        seen["from_cache" if cache_hit else "compiled"] += 1

    triton.knobs.compilation.listener = listener
    x, y = torch.randn(n, device="cuda", dtype=torch.float16), torch.empty(n, device="cuda", dtype=torch.float16)
    torch.cuda.synchronize()
    said, begin = io.StringIO(), time.perf_counter()
    with contextlib.redirect_stdout(said):
        scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, 1, True, 0.25, "DOUBLE-S")
    torch.cuda.synchronize()
    expected = (x.float() * 0.25 + 3 + n).half()
    return seen | {"benchmarked": said.getvalue().count("Autotuning kernel"), "seconds": time.perf_counter() - begin,
                   "best": str(scale_kernel.best_config), "right": bool(torch.equal(y, expected))}


def linear(m):
    a = torch.randn(m, 512, device="cuda", dtype=torch.bfloat16)
    weights = torch.randn(1024, 512, device="cuda", dtype=torch.bfloat16)
    torch.nn.functional.linear(a, weights)
    torch.cuda.synchronize()
    return {"validators": torch.cuda.tunable.get_validators(), "results": torch.cuda.tunable.get_results(),
            "accepted": torch.cuda.tunable.read_file(torch.cuda.tunable.get_filename())}


if __name__ == "__main__":
    print(json.dumps({"scale": scale, "linear": linear}[sys.argv[1]](int(sys.argv[2]))))
