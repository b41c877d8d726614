#!/usr/bin/env python3
"""A program of bench/ as it is (unmodified_model.py, census_model.py), and a list of what it launched.

    bench/captured_model.py FILE PROGRAM ARGUMENTS…     writes FILE: {"functions": […], "launches": […], "compiled": [names],
                                                        "counters": {…}}

Functions are those with a tuner, of Triton or of a package, in the modules that were imported before the first launch: name, file,
number of configs and class of the tuner. Of each autotuned function and key that was launched, also where the launch failed: how often it was launched, the config, and whether that came from a release ("restored"), was
benchmarked ("tuned"), taken by policy ("first") or is the only one ("only"). At the end it waits until what was recorded is sent,
as a real program's hours do. The program's clock counts what this costs: some microseconds a launch.
"""

import json
import os
import runpy
import signal
import sys
import time

from triton.runtime.autotuner import Autotuner

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/python"))
from standin import Compiles  # noqa: E402

seen = {}  # by the autotuner's id: [autotuner, {key: launches}]
functions = {}  # by name: what has a tuner


def jit_of(tuner):
    while hasattr(tuner, "fn") and not hasattr(tuner, "params"):
        tuner = tuner.fn
    return tuner


def list_functions():
    """Tuners in the globals of all modules, and below heuristics: what has a function, configs and a run()."""
    for module in list(sys.modules.values()):
        for value in list((getattr(module, "__dict__", None) or {}).values()):
            while isinstance(getattr(value, "__dict__", None), dict) and "fn" in value.__dict__:
                configs, fn = value.__dict__.get("configs"), getattr(jit_of(value), "fn", None)
                if isinstance(configs, (list, tuple)) and hasattr(type(value), "run") and hasattr(fn, "__code__"):
                    functions[f"{fn.__module__}:{fn.__qualname__}"] = {
                        "file": fn.__code__.co_filename, "configs": len(configs), "tuner": type(value).__qualname__}
                value = value.__dict__["fn"]


def watch():
    """Also classes that derive from Triton's and have a run() of their own, whenever they are made."""
    init = Autotuner.__init__

    def made(tuner, *args, **kwargs):
        init(tuner, *args, **kwargs)
        for kind in type(tuner).__mro__:
            if "run" in vars(kind) and not hasattr(kind.run, "is_counted") and issubclass(kind, Autotuner):
                kind.run = counting(kind.run)

    Autotuner.__init__ = made
    return Compiles()


def counting(run):
    def counted(tuner, *args, **kwargs):
        if not functions:
            list_functions()
        try:
            return run(tuner, *args, **kwargs)
        finally:
            count(tuner, args, kwargs)

    def count(tuner, args, kwargs):
        given = {**dict(zip(tuner.arg_names, args)), **kwargs}
        values = {name: value for name, value in given.items() if name in tuner.arg_names}
        if hasattr(tuner, "get_key"):
            key = tuner.get_key(values)
        else:
            key = tuple([values[name] for name in tuner.keys if name in values] +
                        [str(value.dtype) for value in values.values() if hasattr(value, "dtype")])
        own = seen.setdefault(id(tuner), [tuner, {}])[1]
        own[key] = own.get(key, 0) + 1

    counted.is_counted = True
    return counted


def members(config):
    found = {name: getattr(config, name, None) for name in ("num_warps", "num_ctas", "num_stages", "maxnreg")}
    return {name: getattr(value, "value", value) for name, value in {**config.kwargs, **found}.items() if value is not None}


def origin(tuner, key):
    """How the config of this key was found."""
    runtime = sys.modules.get("wavetune._runtime.program")
    if len(tuner.configs) == 1:
        return "only"
    if runtime is None or runtime.program() is None:
        return "tuned"
    from wavetune._runtime import keys, restore
    cache = restore.cache_of(tuner)
    texts = keys.key_texts(key)
    choice = runtime.program().choices._known(cache.closure(), texts) if cache is not None and texts is not None else None
    chosen = tuner.cache.get(key)
    if choice is not None and chosen is not None and keys.fitting([chosen], choice.config) is chosen:
        return "restored"
    return "first" if runtime.program().settings.on_miss == "first" else "tuned"


def listed():
    rows = []
    for tuner, launched in seen.values():
        jit = jit_of(tuner)
        name = f"{jit.fn.__module__}:{jit.fn.__qualname__}"
        for key, n in launched.items():
            config = tuner.configs[0] if len(tuner.configs) == 1 else tuner.cache.get(key)
            rows.append({"function": name, "key": [repr(value) for value in key], "launches": n, "configs": len(tuner.configs),
                         "config": members(config) if config is not None else None, "origin": origin(tuner, key)})
    return rows


def wait_until_sent(seconds=40):
    capture = sys.modules.get("wavetune._runtime.capture")
    recorder = getattr(capture, "_recorder", None)
    until = time.monotonic() + seconds
    while recorder is not None and time.monotonic() < until and (
            recorder._queue or recorder._is_busy or recorder._may_post and recorder._unposted):
        time.sleep(0.05)


def main():
    file, program = sys.argv[1:3]
    sys.argv = sys.argv[2:]
    compiles = watch()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the list is written
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        wait_until_sent()
        counters = sys.modules.get("wavetune._runtime.counters")
        with open(file, "w") as out:
            json.dump({"functions": [{"function": name, **functions[name]} for name in sorted(functions)], "launches": listed(), "compiled": compiles.names, "compiled_n": compiles.n,
                       "counters": counters.snapshot() if counters else None}, out)


main()
