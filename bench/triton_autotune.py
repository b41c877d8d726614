"""Triton's own autotuner over the configs of a space: one JSON line a key. Needs a GPU, torch and Triton.

    triton_autotune.py FOLDER:VERSION KEYS.jsonl [--repeat N] [--warm PROCESSES]

The kernel is the folder's own function under @triton.autotune with exactly the space's valid configs for the GPU.
A line: {"key", "repeat", "seconds", "config", "times_ms"}: the wall time of the first call with this key (do_bench of
every config, and compiling where that was not done before), its choice, and its own figure of each config.
With --warm the configs are compiled for every key by that many processes first, then each is launched once before its
key is timed, so that they are in memory and only measuring is timed.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import math
import multiprocessing
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from wavetune._pack.expressions import expression  # noqa: E402
from wavetune._pack.folder import load_kernel  # noqa: E402
from wavetune._pack.specialise import define_values  # noqa: E402

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # of every back end: the rest is AMD's


def function_of(kernel):
    spec = importlib.util.spec_from_file_location("kernel_under_test", kernel.source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kernel.entry)


def keywords_of(kernel, config):
    """The config in the form of the function on this GPU: constexprs and options."""
    return {name: value for name, value in config.items()
            if kernel.space.roles[name] == "constexpr" or name in OPTIONS}


def arguments_of(kernel, key, make):
    """The function's arguments for a key; `make(argument, shape)` gives buffers."""
    arguments = []
    for argument in kernel.manifest["arguments"]:
        if "shape" in argument:
            arguments.append(make(argument, [expression(extent).evaluate(key) for extent in argument["shape"]]))
        else:
            arguments.append(expression(argument["value"]).evaluate(key))
    return arguments


def keys_of_distinct_code(kernel, keys):
    """One key for each code that Triton compiles: keys share code if they define the same values and the same arguments are 1
    or multiples of 16."""
    found = {}
    for key in keys:
        values = arguments_of(kernel, key, lambda *_: None)
        shapes = tuple((value == 1, value % 16 == 0) for value in values if isinstance(value, int))
        found.setdefault((shapes, json.dumps(define_values(kernel.manifest, key, {}), sort_keys=True)), key)
    return list(found.values())


def compile_one(task):
    """In a separate process: compiles one config for one key into Triton's disk cache."""
    import torch

    place, key, config = task
    kernel = load_kernel(place)
    arguments = arguments_of(kernel, key, lambda argument, _: getattr(torch, argument["dtype"]))
    function_of(kernel).warmup(*arguments, grid=(1,), **keywords_of(kernel, config),
                               **define_values(kernel.manifest, key, config))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place")
    parser.add_argument("keys")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--warm", type=int, default=0, metavar="PROCESSES")
    arguments = parser.parse_args()
    import torch
    import triton

    kernel = load_kernel(arguments.place)
    keys = [json.loads(line) for line in pathlib.Path(arguments.keys).read_text().splitlines()]
    arch = "sm_%d%d" % torch.cuda.get_device_capability() if torch.version.cuda else \
        torch.cuda.get_device_properties(0).gcnArchName.split(":")[0]
    scope = {"gpu_name": torch.cuda.get_device_name(), "arch": arch}
    configs = list(kernel.space.points([{**scope, **keys[0]}]))
    if arguments.warm:
        tasks = [(arguments.place, key, config) for key in keys_of_distinct_code(kernel, keys) for config in configs]
        with concurrent.futures.ProcessPoolExecutor(arguments.warm, multiprocessing.get_context("spawn")) as pool:
            list(pool.map(compile_one, tasks))

    function = function_of(kernel)
    candidates, values_of = [], {}
    for config in configs:
        keywords = keywords_of(kernel, config)
        options = {name: keywords.pop(name) for name in OPTIONS if name in keywords and kernel.space.roles[name] == "option"}
        candidates.append(triton.Config(keywords, **options))
        values_of[candidates[-1]] = config
    tuned = triton.autotune(configs=candidates, key=[a["name"] for a in kernel.manifest["arguments"] if "value" in a])(function)
    generator = torch.Generator("cuda").manual_seed(1)

    def make(argument, shape):
        dtype = getattr(torch, argument["dtype"])
        if argument["access"] == "write":
            return torch.empty(shape, dtype=dtype, device="cuda")
        return torch.randn(shape, generator=generator, device="cuda").to(dtype)

    for key in keys:
        tensors = arguments_of(kernel, key, make)
        defines = define_values(kernel.manifest, key, {})
        extents = [expression(extent) for extent in kernel.manifest["launch"]["grid"]]
        grid = lambda meta, key=key: tuple(extent.evaluate({**key, **meta}) for extent in extents)  # noqa: E731
        if arguments.warm:
            for config in configs:
                keywords = keywords_of(kernel, config)
                try:
                    function[grid(keywords)](*tensors, **keywords, **defines)
                except triton.runtime.errors.OutOfResources:
                    pass
        torch.cuda.synchronize()
        for repeat in range(arguments.repeat):
            tuned.cache.clear()
            begin = time.monotonic()
            tuned[grid](*tensors, **defines)
            torch.cuda.synchronize()
            seconds = time.monotonic() - begin
            figures = {config: times[0] if isinstance(times, (list, tuple)) else times
                       for config, times in tuned.configs_timings.items()}
            print(json.dumps({"key": key, "repeat": repeat, "seconds": seconds, "config": values_of[tuned.best_config],
                              "times_ms": [[values_of[config], time_ms] for config, time_ms in figures.items()
                                           if math.isfinite(time_ms)]}), flush=True)
        del tensors


if __name__ == "__main__":
    main()
