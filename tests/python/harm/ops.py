"""Kernels that are never compiled: program.py launches them itself, and knows what each does to its tensors."""
import triton
import triton.language as tl


@triton.jit
def doubled(y_ptr, x_ptr, n, flag, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def added(y_ptr, x_ptr, n, flag, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def evenly(y_ptr, x_ptr, n, flag, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


FUNCTIONS = (doubled, added, evenly)
EFFECTS = {"doubled": lambda y, x: 2 * x, "added": lambda y, x: y + x, "evenly": lambda y, x: x}
