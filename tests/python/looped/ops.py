"""Kernels that the simulated GPU of tests/fake_hip knows by their name: autotuned, without configs, and with configs that
have no parameters. The config with two warps is wrong there."""
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": 64}, num_warps=warps) for warps in (1, 2, 8)]


def add(y, x, n, BLOCK):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) + 1.0, mask=offsets < n)


add = triton.jit(add)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def fake_add(y, x, n: tl.int64, BLOCK: tl.constexpr):
    add(y, x, n, BLOCK)


class Plain:
    @triton.jit
    def fake_add(y, x, n: tl.int64):
        add(y, x, n, 64)


class Table:
    @triton.jit
    def fake_add(y, x, n: tl.int64, BLOCK: tl.constexpr):
        add(y, x, n, BLOCK)


class Keyed:
    @triton.autotune(configs=[triton.Config({}, num_warps=warps, num_stages=2) for warps in (1, 2)],
                     key=["n", "ratio", "name", "layout", "other"])
    @triton.jit
    def fake_add(y, x, n: tl.int64, ratio: tl.constexpr, name: tl.constexpr = "plain", layout: tl.constexpr = False,
                 other: tl.constexpr = None):
        add(y, x, n, 64)
