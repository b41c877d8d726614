"""Kernels as real packages have them: helpers of other modules, heuristics over None, floats, types, pruning, hooks."""
import triton
import triton.language as tl

from package import helpers
from package.helpers import add_three, half
from package.settings import configs, exp

UNIT = tl.constexpr(1)
LOG2E = 1.5


def prune(configs, named_args, **kwargs):
    return [config for config in configs if config.kwargs["BLOCK"] <= max(64, named_args["n"])]


@triton.heuristics({
    "HAS_BIAS": lambda args: args["bias_ptr"] is not None,
})
@triton.autotune(configs=configs(64), key=["n"])
@triton.jit
def upside_down(x_ptr, bias_ptr, n, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0 if HAS_BIAS else 1.0, mask=tl.arange(0, BLOCK) < n)


@triton.autotune(
    configs=configs(64, 128, 256),
    key=["n", "TYPE"],
    prune_configs_by={"early_config_prune": prune},
    reset_to_zero=["y_ptr"],
    restore_value=["x_ptr"],
)
@triton.heuristics({
    "HAS_BIAS": lambda args: args["bias_ptr"] is not None,
    "BLOCKS": lambda args: triton.cdiv(args["n"], args["BLOCK"]),
})
@triton.heuristics({"IS_EVEN": lambda args: args["n"] % args["BLOCK"] == 0 and args["BLOCKS"] > 0})
@triton.jit(do_not_specialize=["n"])
def mixed_kernel(
    x_ptr, y_ptr, bias_ptr, lengths_ptr, n, scale, flag,
    TYPE: tl.constexpr,
    HAS_BIAS: tl.constexpr, BLOCKS: tl.constexpr, IS_EVEN: tl.constexpr, BLOCK: tl.constexpr,
    MODE: tl.constexpr = "plain", DEPTH: tl.constexpr = helpers.WIDTH, pair=None,
    SHIFT: tl.constexpr = 2. * LOG2E,
):
    # A comment stays.
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n).to(TYPE)
    if HAS_BIAS:
        x += tl.load(bias_ptr + offsets, mask=offsets < n)
    x = half(x) * helpers.twice(scale) * helpers.WIDTH + add_three(x) + UNIT + exp(x) + DEPTH
    tl.store(y_ptr + offsets, x, mask=offsets < n)


@triton.autotune(configs=configs(64, 128), key=["n"])
@triton.jit
def pair_kernel(pair, n, BLOCK: tl.constexpr):
    tl.store(pair[0] + tl.arange(0, BLOCK), pair[1], mask=tl.arange(0, BLOCK) < n)


@triton.jit
def plain_kernel(x_ptr, n, D: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), D, mask=tl.arange(0, BLOCK) < n)


def hook(args):
    args["x_ptr"].add_(1)


@triton.autotune(configs=[triton.Config({"BLOCK": block}, pre_hook=hook) for block in (64, 128)], key=["n"])
@triton.jit
def hooked_kernel(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0, mask=tl.arange(0, BLOCK) < n)


@triton.autotune(configs=configs(64, 128), key=["n"])
@triton.jit
def calling_kernel(x_ptr, n, other, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0, mask=tl.arange(0, BLOCK) < n)


@triton.autotune(configs=configs(64, 128), key=["kind"])
@triton.jit
def classed_kernel(x_ptr, n, kind, BLOCK: tl.constexpr):
    """Its key has a class of sizes: launches with one key may differ in what Triton compiles."""
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0, mask=tl.arange(0, BLOCK) < n)


@triton.autotune(configs=configs(32, 64), key=["kind"])
@triton.heuristics({"IS_EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def even_kernel(x_ptr, n, kind, IS_EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 0.0, mask=None if IS_EVEN else offsets < n)


@triton.autotune(configs=[triton.Config({}, num_warps=warps, num_stages=2) for warps in (1, 2)],
                 key=["n", "ratio", "name", "layout", "other"])
@triton.jit
def keyed_kernel(x_ptr, n, ratio, other, name: tl.constexpr = "plain", layout: tl.constexpr = False):
    """Its configs have no parameters, and its keys values of every kind; a default value is not in a key."""
    at = tl.arange(0, 64)
    tl.store(x_ptr + at, ratio if layout else 1.0, mask=at < n)


@triton.jit
def optionless_kernel(x_ptr, n):
    tl.store(x_ptr + tl.arange(0, 64), 1.0, mask=tl.arange(0, 64) < n)


@triton.autotune(configs=[triton.Config({"BLÖCK": block}) for block in (64, 128)], key=["n"])
@triton.jit
def accented_kernel(x_ptr, n, BLÖCK: tl.constexpr):
    """No parameter of a space has such a name."""
    at = tl.arange(0, BLÖCK)
    tl.store(x_ptr + at, 0.0, mask=at < n)


@triton.autotune(configs=configs(64, 128), key=["n"])
@triton.jit
def parts_kernel(q_ptr, k_ptr, o_ptr, n, BLOCK: tl.constexpr):
    """Of one tensor's parts it writes one from those before it, and the element before its own."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q, k = tl.load(q_ptr + at, mask=at < n), tl.load(k_ptr + at, mask=at < n)
    tl.store(o_ptr + at, q + k, mask=at < n)
    tl.store(o_ptr + at - 1, 7.0, mask=at == 0)


@triton.jit
def squared(x, FACTOR: tl.constexpr = 2.0):
    return x * x * FACTOR


@triton.autotune(configs=configs(64, 128), key=["n", "limit", "kind", "out_dtype", "act", "sizes"])
@triton.jit
def constants_kernel(x_ptr, n, limit, act, out_dtype: tl.constexpr, least: tl.constexpr, undefined: tl.constexpr, number: tl.constexpr,
                     kind: tl.constexpr, plain: tl.constexpr, sizes: tl.constexpr, after: tl.constexpr, BLOCK: tl.constexpr):
    """Constants of every kind that Triton compiles in."""
    at = tl.arange(0, BLOCK)
    x = tl.minimum(tl.maximum(after(act(at.to(tl.float32))), least), limit) + number + sizes[1]
    if kind == "one":
        x += 1.0
    if undefined == undefined:
        x += 2.0
    tl.store(x_ptr + at, x, mask=at < n)


@triton.autotune(configs=configs(64), key=["n"])
@triton.jit
def steered_kernel(index_ptr, packed_ptr, x_ptr, n, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    packed = tl.load(packed_ptr + place, mask=place < n, other=0)
    tl.store(x_ptr + tl.load(index_ptr + place), packed.to(tl.float32), mask=place < n)
