"""A tuner as packages have their own: it derives from Triton's, and has its own run(), key, store and entry above it."""
import math

import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner

STORED = {}  # by table: what the package keeps in a file


class Store:
    """Configs by key, and nothing of a dict's other methods."""

    def __init__(self, table):
        self.rows = STORED.setdefault(table, {})

    def __contains__(self, key):
        return key in self.rows

    def __getitem__(self, key):
        return self.rows[key]

    def __setitem__(self, key, config):
        self.rows[key] = config


class Tuner(Autotuner):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cache, self.times = Store(self.base_fn.__name__), {}

    def get_key(self, args):
        return tuple(2 ** math.ceil(math.log2(args[name])) for name in self.keys) + \
            tuple(str(arg.dtype) for arg in args.values() if hasattr(arg, "dtype"))

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args))
        key = self.get_key({**self.nargs, **{name: one for name, one in kwargs.items() if name in self.arg_names}})
        if key not in self.cache:
            for config in self.prune_configs(kwargs):
                self.times[key, str(config)] = self._bench(*args, config=config, **kwargs)
                best = self.cache[key] if key in self.cache.rows else None
                if best is None or self.times[key, str(config)] < self.times[key, str(best)]:
                    self.cache[key] = config
        self.best_config = config = self.cache[key]
        result = self.fn.run(*args, **kwargs, **config.all_kwargs())
        self.nargs = None
        return result


class Entry:
    """What a package has above its tuners: it asks them once for each set of arguments."""

    def __init__(self, tuner):
        self.fn, self.seen = tuner, {}

    def run(self, *args, **kwargs):
        kernel = self.fn.run(*args, **kwargs)
        self.seen[str(args[1:])] = kernel, self.fn.best_config
        return kernel


def tuner(configs, key, prune=None):
    def decorate(fn):
        by = {"early_config_prune": prune} if prune else None
        return Entry(Tuner(fn, fn.arg_names, configs, key, None, None, prune_configs_by=by))
    return decorate


def made(configs, named_args, **kwargs):
    """Configs by shape, which the decorator does not list."""
    for config in configs:
        yield triton.Config({"BLOCK": min(config.kwargs["BLOCK"], triton.next_power_of_2(named_args["n"]))}, num_warps=config.num_warps)


CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (256, 512, 1024) for warps in (4, 8)]


@tuner(CONFIGS, ["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def own_kernel(x_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 1.0, mask=at < n)


@tuner(CONFIGS, ["n"], prune=made)
@triton.jit
def own_pruned_kernel(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 2.0, mask=at < n)


@triton.autotune(configs=CONFIGS, key=["n"],
                 prune_configs_by={"early_config_prune": lambda configs, args, **more: list(made(configs, args, **more))})
@triton.jit
def pruned_kernel(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, 3.0, mask=at < n)
