"""c = a * b of row-major matrices of half precision, with sums in float."""

import triton
import triton.language as tl


@triton.jit
def matmul(c, a, b, m, n, k, EVEN_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
           BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr):
    """GROUP_M rows of blocks are walked together, so that blocks of b are still in the L2 cache when they are wanted
    again. Rows and columns beyond an edge wrap around: they are loaded and not stored."""
    blocks_n = tl.cdiv(n, BLOCK_N)
    in_group = tl.program_id(0) % (GROUP_M * blocks_n)
    first_m = tl.program_id(0) // (GROUP_M * blocks_n) * GROUP_M
    group_m = min(tl.cdiv(m, BLOCK_M) - first_m, GROUP_M)
    row = (first_m + in_group % group_m) * BLOCK_M
    column = in_group // group_m * BLOCK_N
    rows = (row + tl.arange(0, BLOCK_M)) % m
    columns = (column + tl.arange(0, BLOCK_N)) % n
    depths = tl.arange(0, BLOCK_K)
    left = a + rows[:, None].to(tl.int64) * k + depths[None, :]
    right = b + depths[:, None].to(tl.int64) * n + columns[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for depth in range(0, k, BLOCK_K):
        if EVEN_K:
            part = tl.load(left)
            other = tl.load(right)
        else:
            part = tl.load(left, mask=depth + depths[None, :] < k, other=0.0)
            other = tl.load(right, mask=depth + depths[:, None] < k, other=0.0)
        sums = tl.dot(part, other, sums)
        left += BLOCK_K
        right += BLOCK_K * n
    rows = row + tl.arange(0, BLOCK_M)
    columns = column + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None].to(tl.int64) * n + columns[None, :], sums.to(tl.float16), mask=mask)
