"""What a capture may hold: an 8-bit float, a permutation, bytes, an alias and a float scalar (tests/gpu/captured.py)."""

import triton
import triton.language as tl


@triton.jit
def gather(out, x, index, table, again, scale, n, BLOCK: tl.constexpr, PLANTED: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + tl.load(index + offsets, mask=mask), mask=mask).to(tl.float32)
    row = tl.load(table + offsets % 16, mask=mask) - 2 * tl.load(again + (offsets + 1) % 16, mask=mask)
    if PLANTED:  # one element is wrong
        row += tl.where(offsets == n // 2, 1, 0)
    tl.store(out + offsets, value * scale + row, mask=mask)
