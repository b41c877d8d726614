"""Many small programs with autotuners, made from a seed, where there is no GPU: Triton's Autotuner and Heuristics are the real ones,
and a launch raises what the scenario says for its config, or does to its tensors what the kernel would.

    program.py run SEED COUNT       a line of JSON for each: what every launch ended with, and what it left behind
    program.py choices SEED COUNT   what a server or a file may say of them: [closure, name, key, config], good and bad
"""
import ast
import json
import os
import random
import sys
import threading
import types

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import standin  # noqa: E402
import triton  # noqa: E402
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure  # noqa: E402
from triton.runtime.autotuner import Autotuner  # noqa: E402
from triton.runtime.errors import OutOfResources, PTXASError  # noqa: E402


def launch(jit, *args, grid, warmup, **kwargs):
    """In the place of JITFunction.run."""
    scenario = STATE.scenario
    given = dict(zip(jit.arg_names, args))
    if set(given) & set(kwargs):
        raise TypeError(f"{jit.__name__} got several values for an argument")
    given.update(kwargs)
    if callable(grid):
        grid = grid(given)
    fault = scenario.faults.get((given["BLOCK"], given["num_warps"]))
    if fault is not None and (fault != "unaligned" or given["x_ptr"].offset):
        raise ERRORS.get(fault, ERRORS["resources"])()
    y, x = given["y_ptr"], given["x_ptr"]
    y.held = [ops.EFFECTS[jit.__name__](*pair) for pair in zip(y.held, x.held)]


triton.runtime.jit.JITFunction.run = launch
import ops  # noqa: E402

NODE = ast.parse("x").body[0]
ERRORS = {"resources": lambda: OutOfResources(279552, 232448, "shared memory"),
          "assertion": lambda: CompileTimeAssertionFailure(None, NODE, "BLOCK"), "ptxas": lambda: PTXASError("fatal"),
          "compile": lambda: CompilationError(None, NODE, "no such member"), "runtime": lambda: RuntimeError("PassManager::run failed"),
          "value": lambda: ValueError("a value")}
SKIPPED = ("resources", "assertion", "ptxas")
STATE = threading.local()  # .scenario: that of this thread


class Tensor(standin.Tensor):
    """One with values."""

    def __init__(self, values, offset=0):
        super().__init__("float32", len(values), offset=offset)
        self.held = list(values)

    def zero_(self):
        self.held = [0.0] * len(self.held)

    def clone(self):
        return Tensor(self.held)

    def copy_(self, other):
        self.held = list(other.held)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Nasty:
    """An argument whose text cannot be had."""

    def __repr__(self):
        raise Unspeakable


class Filters(Autotuner):
    """Prunes after Triton has."""

    def prune_configs(self, kwargs):
        return [config for config in super().prune_configs(kwargs) if config.num_warps != 8] or self.configs[:1]


class Runs(Autotuner):
    """Has a run() of its own, as packages do."""

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args))
        place = tuple(str(self.nargs.get(name, kwargs.get(name))) for name in self.keys)
        if place not in self.cache:
            times = {one: self._bench(*args, config=one, **kwargs) for one in self.prune_configs(kwargs)}
            self.cache[place] = min(times, key=times.get)
        best = self.best_config = self.cache[place]
        if best.pre_hook is not None:
            best.pre_hook({**self.nargs, **kwargs, **best.all_kwargs()})
        return self.fn.run(*args, **kwargs, **best.all_kwargs())


class Cache(dict):
    pass


class Keeps(Autotuner):
    """Has a cache that is no dict."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cache = Cache()


class Scenario:
    def __init__(self, seed, number):
        rng = self.rng = random.Random(f"{seed} {number}")
        self.number, self.n_benchmarks = number, 0
        self.kind = rng.choice([Autotuner] * 5 + [Filters, Runs, Keeps])
        # A run() without reset_only leaves what was measured last in a tensor that the kernel adds to.
        self.function = rng.choice(ops.FUNCTIONS if self.kind is not Runs else (ops.doubled, ops.evenly))
        self.configs = [(rng.choice((16, 32, 64, 128)), rng.choice((1, 2, 4, 8))) for _ in range(rng.choice((0, 1, 2, 3, 4, 6)))]
        n_faults = rng.choice((0, 0, 1, 2, 9))
        # What fails later than at a key's first launch is recovered where run() has Triton's names.
        kinds = rng.choice((SKIPPED, SKIPPED, (*ERRORS, "unaligned"), ("unaligned",)) if self.kind is not Runs else (SKIPPED, tuple(ERRORS)))
        self.faults = {pair: rng.choice(kinds) for pair in self.configs[:n_faults]}
        if not self.configs and n_faults == 9:
            self.faults[16, 4] = rng.choice(kinds)
        self.keys = rng.choice((["n"], ["n"], ["n", "flag"], ["n", "x_ptr"] if self.kind is not Runs else ["n"], []))
        flags = (1, "a", None, 1.5, (1, 2), float("nan"), [1], Nasty())
        self.flag = rng.choice(flags) if "flag" in self.keys else 1
        self.pruning = rng.choice((None,) * 6 + ("filter", "generator", "none", "raises", "new", "model", "half", "model raises"))
        if self.pruning == "generator" and tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 8):
            self.pruning = "filter"  # these ask for its length
        self.bench = rng.choice((None,) * 5 + ("number", "swallows", "interrupted", "infinite", "nan", "raises"))
        self.hooks = rng.choice((None,) * 5 + ("pre", "post", "both", "pre raises", "post raises"))
        self.config_hook = rng.choice((None,) * 5 + ("works", "raises"))
        self.restores = rng.choice((None, "reset_to_zero", "restore_value")) if self.function is ops.added else None
        if self.function is ops.added and self.restores is None and self.hooks is None:
            self.restores = "restore_value"  # without one the number of benchmarks is in the result
        self.grid = rng.choice(("tuple", "tuple", "function", "raises"))
        self.stores = rng.random() < 0.2 and self.pruning != "generator"  # which Triton then reads twice
        self.where = rng.choice(("here",) * 6 + ("thread", "fork", "graph"))
        self.launches = [(8 * number + rng.randrange(3), rng.random() < 0.3) for _ in range(rng.choice((1, 2, 3, 4)))]
        self.twice = rng.random() < 0.5

    # What the decorator is given.

    def early(self, configs, named, **kwargs):
        kept = configs[1:] or configs
        if self.pruning == "generator":
            return (config for config in kept)
        if self.pruning == "none":
            return []
        if self.pruning == "raises":
            raise ValueError("pruning")
        if self.pruning == "new":
            return [triton.Config(dict(config.kwargs), num_warps=config.num_warps) for config in kept]
        return kept

    def model(self, **kwargs):
        if self.pruning == "model raises":
            raise ValueError("the model")
        return kwargs["BLOCK"]

    def do_bench(self, kernel_call, quantiles):
        self.n_benchmarks += 1
        if self.bench == "raises":
            raise ValueError("the benchmark")
        self.n_of_launch += 1
        if self.bench == "interrupted" and self.n_of_launch == 2:
            raise KeyboardInterrupt("during a benchmark")
        try:
            for _ in range(2):
                kernel_call()
        except Exception:
            if self.bench != "swallows":
                raise
            return [float("inf")] * 3
        ms = {"infinite": float("inf"), "nan": float("nan")}.get(self.bench, 1.0 / self.n_benchmarks)
        return ms if self.bench == "number" else [ms] * 3

    def before(self, named, reset_only=False):
        if self.function is ops.added:
            named["y_ptr"].zero_()
        if self.hooks == "pre raises" and named["BLOCK"] == 32:
            raise ValueError("the hook")

    def after(self, named, exception):
        if self.function is ops.added:
            named["y_ptr"].zero_()
        if self.hooks == "post raises" and (exception is not None or named["BLOCK"] == 32):
            raise ValueError("the hook after")

    def of_config(self, named):
        if self.config_hook == "raises" and named["BLOCK"] == 64:
            raise ValueError("the config's hook")

    def tuner(self):
        hooks = {}
        if self.hooks in ("pre", "both", "pre raises"):
            hooks["pre_hook"] = self.before
        if self.hooks in ("post", "both", "post raises"):
            hooks["post_hook"] = self.after
        pruning = None
        if self.pruning in ("filter", "generator", "none", "raises", "new"):
            pruning = {"early_config_prune": self.early}
        elif self.pruning is not None:
            pruning = {"perf_model": self.model, "top_k": 0.5 if self.pruning == "half" else 2}
        if self.stores and hasattr(triton, "knobs"):
            hooks["cache_results"] = True
        configs = [triton.Config({"BLOCK": block}, num_warps=warps, pre_hook=self.of_config if self.config_hook else None)
                   for block, warps in self.configs]
        function = self.function
        if function is ops.evenly:
            function = triton.heuristics({"EVEN": lambda named: named["n"] % named["BLOCK"] == 0})(function)
        restores = ["y_ptr"]
        return self.kind(function, self.function.arg_names, configs, self.keys,
                         restores if self.restores == "reset_to_zero" else None,
                         restores if self.restores == "restore_value" else None, prune_configs_by=pruning,
                         do_bench=self.do_bench, **hooks)

    def one(self, tuner, n, is_unaligned):
        self.n_of_launch = 0
        y, x = Tensor([0.0] * 3), Tensor([1.0, 2.0, 3.0], offset=int(is_unaligned))
        grid = {"tuple": (1,), "function": lambda named: (-(-named["n"] // named["BLOCK"]),)}.get(self.grid, self.raises)
        more = {} if self.configs else {"BLOCK": 16}
        try:
            tuner.run(y, x, n, self.flag, grid=grid, warmup=False, **more)
        except BaseException as error:
            return [type(error).__name__, "" if isinstance(error, Unspeakable) else str(error)]
        return ["well", y.held]

    def raises(self, named):
        if named["BLOCK"] == 128:
            raise ValueError("the grid")
        return (1,)

    def run(self):
        STATE.scenario = self
        sys.modules["torch"].is_capturing = self.where == "graph"
        tuner = self.tuner()
        ends = [self.one(tuner, *launched) for launched in self.launches * (2 if self.twice else 1)]
        best = getattr(tuner, "best_config", None)
        return {"ends": ends, "stores": getattr(tuner, "cache_results", None), "n": len(tuner.cache),
                "best": best and [best.kwargs["BLOCK"], best.num_warps] if self.configs else None,
                "benchmarked": self.n_benchmarks, "warmed": self.warmed(tuner)}

    def warmed(self, tuner):
        """How many configs a warm-up asks for, whatever happened before."""
        tuner.nargs = {"n": 1}
        try:
            return len(list(tuner.prune_configs({})))
        except Exception as error:
            return type(error).__name__

    def apart(self):
        if self.where == "thread":
            found = []
            thread = threading.Thread(target=lambda: found.append(self.run()))
            thread.start()
            thread.join()
            return found[0]
        if self.where != "fork":
            return self.run()
        end, own = os.pipe()
        child = os.fork()
        if child == 0:
            with os.fdopen(own, "w") as pipe:
                pipe.write(json.dumps(self.run()))
            os._exit(0)
        os.close(own)
        with os.fdopen(end) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        return json.loads(text)

    def choices(self):
        """Of a config that works, of one that does not, and of none."""
        from wavetune._runtime.closure import closure
        if "x_ptr" in self.keys or isinstance(self.flag, (list, Nasty)) or not self.configs:
            return
        for n, _ in self.launches:
            key = [repr({"n": n, "flag": self.flag}[name]) for name in self.keys] + ["'torch.float32'"] * 2
            if self.kind is Runs:
                key = [repr(str({"n": n, "flag": self.flag}[name])) for name in self.keys]
            block, warps = self.rng.choice([*self.configs, (256, 4)])
            yield [closure(self.function), self.function.__name__, key, {"BLOCK": block, "num_warps": warps}]


def main(what, seed, count):
    driver = standin.Driver()
    cuda = types.SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: sys.modules["torch"].is_capturing)
    standin.use(driver, cuda=cuda, is_capturing=False)
    if what == "choices":
        print(json.dumps([one for number in range(count) for one in Scenario(seed, number).choices()]))
        return
    for number in range(count):
        print(json.dumps(Scenario(seed, number).apart()), flush=True)
    counters = sys.modules.get("wavetune._runtime.counters")
    print(json.dumps(counters.snapshot() if counters else {}))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
