"""Vector addition under triton-dejavu's decorator, whose package needs a GPU when it is imported."""
import torch
import triton
import triton.language as tl
import triton_dejavu


@triton_dejavu.autotune(
    key=["n_elements"],
    config_space=triton_dejavu.ConfigSpace(
        {"BLOCK_SIZE": [128, 256, 512], "UNUSED": [0, 1]},
        kwarg_conditions=[lambda kwarg: kwarg["BLOCK_SIZE"] >= 256 or kwarg["UNUSED"] == 0],
        conditions=[lambda config: config.num_warps == 4 or config.kwargs["UNUSED"] == 1],
        num_warps=[4, 8],
        num_stages=[1],
    ),
    rep=50,
    quantiles=(0.5, 0.2, 0.8),
)
@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr, UNUSED: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    tl.store(output_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)
