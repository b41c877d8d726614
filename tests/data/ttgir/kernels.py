"""Prints the TTGIR of a small kernel, compiled by Triton for gfx942 with no GPU: kernels.py NAME NUM_STAGES [--plain].

With --plain without places in the source, as transposed_sum.ttgir beside this file was made:
    kernels.py transposed_sum 1 --plain >transposed_sum.ttgir
"""

import re
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def transposed_sum(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    """A transpose and a reduction in a loop, and a store in another layout than the sum's."""
    rows = tl.arange(0, BLOCK)
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for i in range(0, N):
        tile = tl.load(a_ptr + rows[:, None] * N + columns[None, :] + i * BLOCK)
        total += tl.trans(tile)
        total = total * tl.sum(total, 1)[:, None]
    tl.store(c_ptr + rows[:, None] * BLOCK + columns[None, :], total)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    """A loop with one dot of fp16 tiles."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, N, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * N + (k + inner)[None, :])
        b = tl.load(b_ptr + (k + inner)[:, None] * N + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(tl.float16))


@triton.jit
def chained(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    """Two dots, the first one's result the second one's operand."""
    rows = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + rows[:, None] * BLOCK + rows[None, :])
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for i in range(0, N):
        b = tl.load(b_ptr + i * BLOCK * BLOCK + rows[:, None] * BLOCK + rows[None, :])
        first = tl.dot(a, b)
        total = tl.dot(first.to(tl.float16), b, total)
    tl.store(c_ptr + rows[:, None] * BLOCK + rows[None, :], total.to(tl.float16))


@triton.jit
def strided(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    """Loads whose elements do not lie next to each other."""
    rows = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, ), dtype=tl.float32)
    for i in range(0, N):
        total += tl.load(a_ptr + i + rows * N)
    tl.store(c_ptr + rows, total)


KERNELS = {"transposed_sum": (transposed_sum, "fp32"), "matmul": (matmul, "fp16"), "chained": (chained, "fp16"),
           "strided": (strided, "fp32")}

if __name__ == "__main__":
    function, dtype = KERNELS[sys.argv[1]]
    signature = {"a_ptr": f"*{dtype}", "b_ptr": f"*{dtype}", "c_ptr": f"*{dtype}", "N": "i32", "BLOCK": "constexpr"}
    attributes = {(i, ): [["tt.divisibility", 16]] for i in range(4)}
    source = ASTSource(fn=function, signature=signature, constexprs={"BLOCK": 64}, attrs=attributes)
    options = {"num_warps": 4, "num_stages": int(sys.argv[2]), "matrix_instr_nonkdim": 16}
    text = triton.compile(source, target=GPUTarget("hip", "gfx942", 64), options=options).asm["ttgir"]
    if "--plain" in sys.argv:
        text = re.sub(r"^#loc.*\n", "", text, flags=re.M)
        while " loc(" in text:
            begin = text.index(" loc(")
            end, depth = begin + 5, 1
            while depth:
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
            text = text[:begin] + text[end:]
    print(text, end="")
