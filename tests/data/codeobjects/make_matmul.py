"""Writes matmul_gfx942.hsaco beside this file: the kernel below as Triton compiles it for gfx942 with no GPU, without its debug
sections. It was made with triton 3.6.0 of PyPI and llvm-strip 19; tests assert what that compiler made of it:

    build/python/bin/python tests/data/codeobjects/make_matmul.py
"""

import pathlib
import subprocess

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul_kernel(a, b, c, m, n, k, row_a, row_b, row_c, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                  BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr):
    """c = a * b of row-major fp16 matrices whose rows begin row_… elements apart; GROUP_M rows of blocks are walked together."""
    blocks_n = tl.cdiv(n, BLOCK_N)
    in_group = tl.program_id(0) % (GROUP_M * blocks_n)
    first_m = tl.program_id(0) // (GROUP_M * blocks_n) * GROUP_M
    group_m = min(tl.cdiv(m, BLOCK_M) - first_m, GROUP_M)
    rows = (first_m + in_group % group_m) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = in_group // group_m * BLOCK_N + tl.arange(0, BLOCK_N)
    depths = tl.arange(0, BLOCK_K)
    left = a + (rows % m)[:, None] * row_a + depths[None, :]
    right = b + depths[:, None] * row_b + (columns % n)[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for depth in range(0, k, BLOCK_K):
        part = tl.load(left, mask=depth + depths[None, :] < k, other=0.0)
        other = tl.load(right, mask=depth + depths[:, None] < k, other=0.0)
        sums = tl.dot(part, other, sums)
        left += BLOCK_K
        right += BLOCK_K * row_b
    tl.store(c + rows[:, None] * row_c + columns[None, :], sums.to(tl.float16),
             mask=(rows[:, None] < m) & (columns[None, :] < n))


if __name__ == "__main__":
    signature = {**dict.fromkeys("abc", "*fp16"), **dict.fromkeys(("m", "n", "k", "row_a", "row_b", "row_c"), "i32")}
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}
    source = ASTSource(fn=matmul_kernel, signature={**signature, **dict.fromkeys(blocks, "constexpr")}, constexprs=blocks,
                       attrs={(i, ): [["tt.divisibility", 16]] for i in range(len(signature))})
    compiled = triton.compile(source, target=GPUTarget("hip", "gfx942", 64),
                              options={"num_warps": 4, "num_stages": 2, "matrix_instr_nonkdim": 16})
    path = pathlib.Path(__file__).parent / "matmul_gfx942.hsaco"
    path.write_bytes(compiled.asm["hsaco"])
    subprocess.run(["llvm-strip-19", "--strip-debug", path], check=True)
    print(f"{path}: {compiled.metadata.shared} bytes of LDS are asked for with the launch")
