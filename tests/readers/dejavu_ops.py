"""Two functions under triton-dejavu's own decorator."""
import triton
import triton.language as tl
import triton_dejavu

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (256, 512, 1024) for warps in (4, 8)]


@triton_dejavu.autotune(key=["n"], configs=CONFIGS)
@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)


@triton_dejavu.autotune(key=["n"], config_space=triton_dejavu.ConfigSpace(
    {"BLOCK": [256, 512, 1024]}, num_warps=[4, 8], num_stages=[1]), quantiles=(0.5, 0.2, 0.8))
@triton.jit
def fill_kernel(y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.full((BLOCK,), 1.0, tl.float16), mask=offsets < n)
