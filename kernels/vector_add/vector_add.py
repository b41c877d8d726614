"""sum = a + b, BLOCK elements a program."""

import triton
import triton.language as tl


@triton.jit
def vector_add(sum, a, b, n, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n - first
    total = tl.load(a + first + offsets, mask=mask) + tl.load(b + first + offsets, mask=mask)
    tl.store(sum + first + offsets, total, mask=mask)
