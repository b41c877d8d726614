"""Inductor's cache object on generated kernels: inductor_cache.py save|read, in $TORCHINDUCTOR_CACHE_DIR.

`save` writes what its autotuner found, as torch does after it tuned; `read` prints what the object gives another process, a JSON
list of the configs' members (null: none, and Inductor would tune).
"""
import inspect
import json
import sys

import torch
from torch._inductor.codecache import write
from torch._inductor.runtime.autotune_cache import AutotuneCache
from torch._inductor.runtime.triton_compat import Config

META = {"autotune_local_cache": True, "autotune_remote_cache": False, "is_hip": True}
CONFIGS = [Config({"XBLOCK": x, "RBLOCK": r}, num_warps=w, num_stages=s) for x in (1, 64, 512) for r in (8, 128)
           for w, s in ((4, 1), (8, 2))]
BY_DESCENT = {"XBLOCK": 2048, "RBLOCK": 16}  # none of the candidates: coordinate descent went on from them
KERNELS = {  # text of the generated kernel: (index of the winner, more of what is saved)
    "def triton_poi_fused_add_0(): pass  # on gfx942\n": (5, {}),
    "def triton_red_fused_sum_1(): pass  # on gfx942\n": (0, {"triton_cache_hash": "A" * 52}),
    "def triton_per_fused_softmax_2(): pass  # on gfx942\n": (None, {"found_by_coordesc": True}),
    "def triton_tem_fused_mm_3(): pass  # on gfx942\n": (11, {"extra_options": {"zeta": {"nested": [1, 2.5]}, "alpha": "x"}}),
}

SAVE = inspect.getsource(AutotuneCache.save)  # older ones save less


def members(config):
    return config and {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages,
                       **({"extra_options": config.extra_options} if getattr(config, "extra_options", None) else {})}


found = []
for text, (winner, more) in KERNELS.items():
    _, path = write(text, "py")  # where Inductor writes the kernels that it generates
    meta = {**META, "coordinate_descent_tuning": winner is None}
    cache = AutotuneCache.create(meta, path, configs_hash="c" * 64)
    if sys.argv[1] == "save":
        config = CONFIGS[winner] if winner is not None else Config(BY_DESCENT, num_warps=2, num_stages=3)
        if "extra_options" in more and "extra_options" in SAVE:
            config.extra_options = more["extra_options"]
        cache.save(config, 1234567890, **{name: value for name, value in more.items() if f"{name}:" in SAVE})
        found.append(members(config))
    else:
        found.append(members(cache.read_best(meta, CONFIGS)))
print(json.dumps({"torch": torch.__version__, "found": found}))
