"""Adds one to the elements of two tensors."""
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (64, 256, 1024) for warps in (1, 4)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def add_one(y, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) + 1.0, mask=offsets < n)


for n in (50_000, 200_000):
    x = torch.zeros(n, device="cuda")
    y = torch.empty_like(x)
    add_one[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](y, x, n)
    print(f"n = {n}: {add_one.best_config}")
