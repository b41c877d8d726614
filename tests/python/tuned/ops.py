"""Kernels of a program that knows nothing of wavetune: one plain, one with heuristics and a callee."""
import triton
import triton.language as tl

SCALE = tl.constexpr(2)
CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (256, 512, 1024) for warps in (4, 8)]


@triton.jit
def scaled(x):
    return x * SCALE


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, scaled(x), mask=offsets < n)


@triton.autotune(configs=list(CONFIGS), key=["n"])
@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def fill_kernel(y_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(y_ptr + offsets, scaled(offsets).to(tl.float16))
    else:
        tl.store(y_ptr + offsets, scaled(offsets).to(tl.float16), mask=offsets < n)
