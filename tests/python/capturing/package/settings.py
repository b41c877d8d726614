"""What a kernel's module imports and no builder can execute: it asks torch and the environment."""
import os

import torch
import triton
import triton.language as tl

torch.cuda.is_available  # fails where there is no torch
IS_FAST = os.environ.get("PACKAGE_FAST") == "1"
exp = tl.exp2 if IS_FAST else tl.exp


def configs(*blocks):
    return [triton.Config({"BLOCK": block}, num_warps=warps) for block in blocks for warps in (2, 4)]
