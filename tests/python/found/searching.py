"""A program with a kernel of Helion, on a CPU, where Helion cannot search: its cache's own methods are called as its search
does. Each argument is a step in JSON; each prints a JSON document. A step has a folder of its own, like a fresh container.

    ["get"]            the config that Helion found
    ["put", CONFIG]    stores what a search would have found
    ["list"]           what a search for another shape would begin with"""
import json
import os
import sys
import tempfile
import time

import helion
import helion.language as hl
import torch
from helion.autotuner import remote_cache
from helion.autotuner.base_cache import LooseAutotuneCacheKey
from helion.autotuner.local_cache import LocalAutotuneCache, parse_cache_entry
from helion.runtime.settings import default_autotuner_fn

# Helion names a CPU's runtime only for its own interpreter; the rest of the key is not what is tested.
LocalAutotuneCache._generate_key = lambda self: LooseAutotuneCacheKey(
    specialization_key=("float32", (64, 64)), extra_results=(), kernel_source_hash="s" * 64, hardware="Test GPU",
    runtime_name="13.2", backend="triton", config_spec_hash="c" * 64)


@helion.kernel()
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + y[tile]
    return out


def step(what, config=None):
    inputs = (torch.zeros(64, 64), torch.zeros(64, 64))
    cache = default_autotuner_fn(add.bind(inputs), inputs)
    report = {"cache": type(cache).__name__}
    if what == "get":
        found = cache.get()
        report["config"] = found and dict(found)
    elif what == "put":
        cache.put(helion.Config(**config))
    else:
        backend = remote_cache._load_remote_backend_if_configured()
        report["listed"] = [dict(parse_cache_entry(one).config) for one in (backend.list(max_results=5) if backend else ())]
    return report


def main(*steps):
    for text in steps:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["HELION_CACHE_DIR"] = folder
            report = step(*json.loads(text))
        wavetune = sys.modules.get("wavetune")
        until = time.monotonic() + 60
        while "put" in text and wavetune is not None and wavetune.counters()["sent"] < 1:
            assert time.monotonic() < until
            time.sleep(0.01)
        if wavetune is not None:
            report["counters"] = wavetune.counters()
        print(json.dumps(report), flush=True)


main(*sys.argv[1:])
