"""Softmax of each row, three ways, a program a row (fused: programs walk over the rows)."""

import triton
import triton.language as tl


@triton.jit
def softmax_naive(y, x, rows, columns, BLOCK: tl.constexpr):
    """Three passes over memory: the maximum, the exponentials and their sum, the division."""
    row = tl.program_id(0).to(tl.int64)
    x += row * columns
    y += row * columns
    offsets = tl.arange(0, BLOCK)
    maxima = tl.full([BLOCK], -3.0e38, tl.float32)
    for first in range(0, columns, BLOCK):
        mask = first + offsets < columns
        maxima = tl.maximum(maxima, tl.load(x + first + offsets, mask=mask, other=float("-inf")))
    maximum = tl.max(maxima, axis=0)
    sums = tl.zeros([BLOCK], tl.float32)
    for first in range(0, columns, BLOCK):
        mask = first + offsets < columns
        sums += tl.exp(tl.load(x + first + offsets, mask=mask, other=float("-inf")) - maximum)
    scale = 1 / tl.sum(sums, axis=0)
    for first in range(0, columns, BLOCK):
        mask = first + offsets < columns
        exponentials = tl.exp(tl.load(x + first + offsets, mask=mask) - maximum)
        tl.store(y + first + offsets, exponentials * scale, mask=mask)


@triton.jit
def softmax_online(y, x, rows, columns, BLOCK: tl.constexpr):
    """Maximum and sum in one pass, rescaled when the maximum rises (Milakov, Gimelshein, 2018)."""
    row = tl.program_id(0).to(tl.int64)
    x += row * columns
    y += row * columns
    offsets = tl.arange(0, BLOCK)
    maxima = tl.full([BLOCK], -3.0e38, tl.float32)
    sums = tl.zeros([BLOCK], tl.float32)
    for first in range(0, columns, BLOCK):
        mask = first + offsets < columns
        values = tl.load(x + first + offsets, mask=mask, other=float("-inf"))
        risen = tl.maximum(maxima, values)
        sums = sums * tl.exp(maxima - risen) + tl.exp(values - risen)
        maxima = risen
    maximum = tl.max(maxima, axis=0)
    scale = 1 / tl.sum(sums * tl.exp(maxima - maximum), axis=0)
    for first in range(0, columns, BLOCK):
        mask = first + offsets < columns
        exponentials = tl.exp(tl.load(x + first + offsets, mask=mask) - maximum)
        tl.store(y + first + offsets, exponentials * scale, mask=mask)


@triton.jit
def softmax_fused(y, x, rows, columns, BLOCK: tl.constexpr, num_stages: tl.constexpr):
    """A row is one block of registers: memory is read once and written once. As many programs as the GPU holds walk
    over the rows, num_stages loads ahead."""
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=num_stages):
        first = tl.cast(row, tl.int64) * columns
        values = tl.load(x + first + offsets, mask=mask, other=float("-inf"))
        exponentials = tl.exp(values - tl.max(values, axis=0))
        tl.store(y + first + offsets, exponentials / tl.sum(exponentials, axis=0), mask=mask)
