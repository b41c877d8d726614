"""Fused attention forward: a program holds BLOCK_M queries of a head and walks over its keys, BLOCK_N at a time."""

import triton
import triton.language as tl


@triton.jit
def attention(o, q, k, v, heads, sequence, head_dim, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
              BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRE_LOAD_V: tl.constexpr):
    """The maximum and the sum of a query's exponentials are kept up to date block by block, and what was summed is
    scaled down when the maximum rises (FlashAttention; Dao, 2022). Exponentials are powers of two: log2(e) is in the
    scale. HEAD_DIM is the key's head_dim, BLOCK_D the block that holds it."""
    scale: tl.constexpr = 1.4426950408889634 / HEAD_DIM**0.5
    first = tl.program_id(1).to(tl.int64) * sequence * HEAD_DIM
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    depths = tl.arange(0, BLOCK_D)
    row_mask = (rows[:, None] < sequence) & (depths[None, :] < HEAD_DIM)
    row_offsets = rows[:, None] * HEAD_DIM + depths[None, :]
    queries = tl.load(q + first + row_offsets, mask=row_mask, other=0.0)
    maxima = tl.full([BLOCK_M], -3.0e38, tl.float32)
    sums = tl.zeros([BLOCK_M], tl.float32)
    outputs = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(0, sequence, BLOCK_N):
        places = start + columns
        key_mask = (places[None, :] < sequence) & (depths[:, None] < HEAD_DIM)
        keys = tl.load(k + first + places[None, :] * HEAD_DIM + depths[:, None], mask=key_mask, other=0.0)
        value_mask = (places[:, None] < sequence) & (depths[None, :] < HEAD_DIM)
        value_pointers = v + first + places[:, None] * HEAD_DIM + depths[None, :]
        if PRE_LOAD_V:
            values = tl.load(value_pointers, mask=value_mask, other=0.0)
        scores = tl.where(places[None, :] < sequence, tl.dot(queries, keys) * scale, float("-inf"))
        risen = tl.maximum(maxima, tl.max(scores, axis=1))
        weights = tl.exp2(scores - risen[:, None])
        fade = tl.exp2(maxima - risen)
        sums = sums * fade + tl.sum(weights, axis=1)
        maxima = risen
        if not PRE_LOAD_V:
            values = tl.load(value_pointers, mask=value_mask, other=0.0)
        outputs = tl.dot(weights.to(tl.float16), values, outputs * fade[:, None])
    outputs = outputs / sums[:, None]
    tl.store(o + first + row_offsets, outputs.to(tl.float16), mask=row_mask)
