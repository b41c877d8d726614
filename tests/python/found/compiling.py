"""A program that uses Inductor on a CPU, where its own objects look configs up as they do on a GPU. Each argument is a step in
JSON; each prints a JSON document. A step has a folder of its own, like a fresh container.

    ["look", DESCENDS, [XBLOCK, …]]            the configs that Inductor would then try
    ["save", DESCENDS, [XBLOCK, …], XBLOCK]    the same, and saves one as what was found
    ["compile"]                                torch.compile of a small function, with autotuning where there is a GPU"""
import copy
import json
import os
import pickle
import sys
import tempfile
import time


def sent():
    return sys.modules["wavetune"].counters()["sent"] if os.environ.get("WAVETUNE_URL") else 0


def cached(folder, descends, blocks):
    from torch._inductor.runtime import triton_heuristics
    from torch._inductor.runtime.triton_compat import Config
    configs = [Config({"XBLOCK": block}, num_warps=4, num_stages=1) for block in blocks]
    meta = {"autotune_local_cache": True, "backend_hash": "B" * 64, "coordinate_descent_tuning": descends}
    own, cache, _ = triton_heuristics.check_autotune_cache(configs, os.path.join(folder, "c" * 52 + ".py"), meta)
    return configs[0], own, cache


def step(folder, what, descends=False, blocks=(), found=None):
    import torch
    if what == "compile":
        device = "cuda" if torch.cuda.is_available() else "cpu"
        function = torch.compile(lambda x: (torch.softmax(x, -1) * 2).sum(0), mode="max-autotune-no-cudagraphs")
        started = time.monotonic()
        total = float(function(torch.arange(4096.0, device=device).reshape(4, 1024)).sum())
        return {"sum": round(total, 3), "seconds": round(time.monotonic() - started, 3)}

    config, own, cache = cached(folder, descends, blocks)
    report = {"configs": [[one.kwargs["XBLOCK"], getattr(one, "found_by_coordesc", False)] for one in own]}
    if what == "save":
        before, until = sent(), time.monotonic() + 60
        cache = pickle.loads(pickle.dumps(cache))  # from the process that compiles
        if descends:  # what it descends from is saved too
            cache.save(config, 1, found_by_coordesc=True, triton_cache_hash="A" * 52)
            cache.save(config, 1, found_by_coordesc=False, triton_cache_hash="A" * 52)
        best = copy.deepcopy(config)
        best.kwargs["XBLOCK"] = found
        cache.save(best, 5 * 10**6, found_by_coordesc=descends, triton_cache_hash=None if descends else "A" * 52)
        while os.environ.get("WAVETUNE_URL") and sent() == before:
            assert time.monotonic() < until
            time.sleep(0.01)
    return report


def main(*steps):
    for text in steps:
        with tempfile.TemporaryDirectory() as folder:
            report = step(folder, *json.loads(text))
        wavetune = sys.modules.get("wavetune")
        if wavetune is not None:
            report["counters"] = wavetune.counters()
        print(json.dumps(report), flush=True)
    assert "redis" not in sys.modules


main(*sys.argv[1:])
