"""Counts what the wheel makes of the autotuners of a package: census.py PACKAGE…; the last line is the counts by package.

Every module of the package is imported, as far as it can be without a GPU, after `import wavetune.auto`.
"""
import gc
import importlib
import inspect
import json
import pkgutil
import sys
import types

import triton
from triton.backends.compiler import GPUTarget

triton.runtime.driver.set_active(types.SimpleNamespace(
    get_current_target=lambda: GPUTarget("hip", "gfx942", 64), get_current_device=lambda: 0,
    get_current_stream=lambda device: 0, get_benchmarker=lambda: None, get_device_interface=lambda: None,
    get_active_torch_device=lambda: "cpu"))

import wavetune.auto  # noqa: E402, F401
from wavetune._runtime import closure, restore  # noqa: E402


def import_all(name):
    """The modules that could not be imported, with why."""
    package, failed = importlib.import_module(name), {}
    for found in pkgutil.walk_packages(package.__path__, f"{name}.", onerror=lambda name: None):
        try:
            importlib.import_module(found.name)
        except BaseException as error:  # some modules end the process, or skip their tests
            failed[found.name] = f"{type(error).__name__}: {error}"[:160]
    return failed


def why_none(tuner):
    jit = closure.jit_function(tuner)
    if jit is None:
        return f"no jit function below: {type(tuner.fn)}"
    try:
        closure._walk(jit)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:160]
    return "none"


def place(tuner):
    jit = closure.jit_function(tuner)
    return f"{jit.fn.__module__}.{jit.fn.__qualname__}" if jit is not None else repr(tuner.fn)


counts = {}
for name in sys.argv[1:]:
    failed = import_all(name)
    gc.collect()
    tuners = [one for one in gc.get_objects() if isinstance(one, triton.runtime.autotuner.Autotuner) and
              place(one).startswith(f"{name}.")]
    without = {place(one): why_none(one) for one in tuners if closure.closure(one) is None}
    functions = [one for one in gc.get_objects() if isinstance(one, triton.runtime.jit.JITFunction) and
                 str(one.fn.__module__).startswith(f"{name}.")]
    counts[name] = {
        "autotuners": len(tuners), "adopted": sum(restore.cache_of(one) is not None for one in tuners),
        "closures": len({closure.closure(one) for one in tuners} - {None}), "without": without,
        "same": len(tuners) - len(without) - len({closure.closure(one) for one in tuners} - {None}),
        "functions": len(functions), "functions_without": [f"{one.fn.__module__}.{one.fn.__qualname__}" for one in functions
                                                           if closure.closure(one) is None],
        "failed": failed}
print(json.dumps(counts))
