"""Kernels for test_interpret.py, whose results are known."""
import triton
import triton.language as tl
from triton.language.extra import libdevice

exp = tl.exp
tanh = libdevice.tanh
HALF = tl.constexpr(0.5)


@triton.jit
def scaled(x, FACTOR: tl.constexpr = 2.0):
    return x * FACTOR


@triton.jit
def least(KIND: tl.constexpr, FACTOR: tl.constexpr):
    kind: tl.constexpr = KIND.value
    return tl.full([], -1.0 if kind.is_floating() else 0, kind) * FACTOR.value


@triton.jit
def rows(x_ptr, y_ptr, n, scale, MODE: tl.constexpr, BLOCK: tl.constexpr):
    """Row by row; each program writes its own."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    if MODE == "softmax":
        x = exp(x - tl.max(x, axis=0))
        x = tl.where(at < n, x, 0.0)
        x = x / tl.sum(x, axis=0)
    elif MODE == "scaled":
        x = scaled(x) * scale * HALF
    elif MODE == "tanh":
        x = libdevice.tanh(x)
    elif MODE == "typed":
        x += least(x_ptr.dtype.element_ty, 2)
    elif MODE == "named":
        x = tanh(x)
    elif MODE == "loop":
        for i in range(3):
            x += i.to(tl.float32)
    tl.store(y_ptr + row * n + at, x, mask=at < n)


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BLOCKS: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr = None):
    """C = A B; with BLOCKS one operand has a block pointer, which Triton 3.9 does not know any more."""
    m, n = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    rows_, columns, depth = m + tl.arange(0, BLOCK), n + tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    if BLOCKS:
        b_block = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, n), (BLOCK, BLOCK), (1, 0))
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for k in range(0, K, BLOCK):
        a = tl.load(a_ptr + rows_[:, None] * K + (k + depth)[None, :])
        if BLOCKS:
            b = tl.load(b_block)
            b_block = tl.advance(b_block, (BLOCK, 0))
        else:
            b = tl.load(b_ptr + (k + depth)[:, None] * N + columns[None, :])
        total += tl.dot(a, b) if PRECISION is None else tl.dot(a, b, input_precision=PRECISION)
    tl.store(c_ptr + rows_[:, None] * N + columns[None, :], total.to(c_ptr.dtype.element_ty))


@triton.jit
def split(a_ptr, b_ptr, s_ptr, c_ptr, M, N, K, ATOMIC: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    """C = A B of integers, times a factor for each column; the programs of the last axis add up parts of K."""
    m, n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], tl.int32)
    for k in range(tl.program_id(2) * BLOCK, K, SPLITS * BLOCK):
        depth = k + tl.arange(0, BLOCK)
        total += tl.dot(tl.load(a_ptr + m[:, None] * K + depth[None, :]), tl.load(b_ptr + depth[:, None] * N + n[None, :]))
    c = (total.to(tl.float32) * tl.load(s_ptr + n)[None, :]).to(c_ptr.dtype.element_ty)
    if ATOMIC:
        tl.atomic_add(c_ptr + m[:, None] * N + n[None, :], c, sem="relaxed")
    else:
        tl.store(c_ptr + m[:, None] * N + n[None, :], c)


@triton.jit
def adding(x_ptr, y_ptr, z_ptr, MODE: tl.constexpr, BLOCK: tl.constexpr):
    """Atomic additions of up to about 8,000, whose sums and what they return overflow 16 bits in some modes."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = (tl.abs(tl.load(x_ptr + at)) * 2000).to(y_ptr.dtype.element_ty)
    if MODE == "once":
        tl.atomic_add(y_ptr + at, x)
    elif MODE == "masked":
        tl.atomic_add(y_ptr + at, x * 0 + 60000.0, mask=x < 0)
        tl.store(z_ptr + at, x)
    elif MODE == "again":
        for i in range(16):
            tl.atomic_add(y_ptr + at, x)
    elif MODE == "lanes":
        tl.atomic_add(y_ptr + at - tl.arange(0, BLOCK), x)
    elif MODE == "scalar":
        for i in range(16):
            tl.atomic_add(y_ptr + tl.program_id(0), tl.max(x, axis=0))
    elif MODE == "old":
        tl.atomic_add(y_ptr + at, x)
        tl.store(z_ptr + at, tl.atomic_add(y_ptr + at, x) * 100)


@triton.jit
def narrow(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """Arithmetic in the type of the buffer, and its bits."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    x = (x.to(tl.int16, bitcast=True) + 1).to(x.dtype, bitcast=True)
    tl.store(y_ptr + at, x * x + x)


@triton.jit
def delta(k_ptr, v_ptr, y_ptr, T, factor, SIZE: tl.constexpr):
    """The delta rule: h = h - k (k^T h) + k v^T for T steps. Grows as soon as a k is longer than the square root of 2."""
    program, at = tl.program_id(0), tl.arange(0, SIZE)
    h = tl.zeros([SIZE, SIZE], tl.float32)
    for step in range(T):
        row = (program * T + step) * SIZE + at
        k = tl.load(k_ptr + row).to(tl.float32) * factor
        v = tl.load(v_ptr + row).to(tl.float32) - tl.sum(k[:, None] * h, axis=0)
        h += k[:, None] * v[None, :]
        tl.store(y_ptr + row, v.to(y_ptr.dtype.element_ty))


@triton.jit
def sized(x_ptr, y_ptr, MODE: tl.constexpr, BLOCK: tl.constexpr):
    """What is large or not finite whatever the size of inputs is; and what is so because of it."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    if MODE == "log":
        x = tl.log(x)
    elif MODE == "less":
        x = tl.log(x - 0.5)
    elif MODE == "masked":
        x = tl.where(x > 0, x, -1e30)
    elif MODE == "powers":
        x = x * x * x * x * 1e9
    elif MODE == "exp":
        x = exp(x * 40)
    elif MODE == "both":
        x = tl.where(x > 0, exp(x * 40), float("-inf"))
    tl.store(y_ptr + at, x)


@triton.jit
def logic(x_ptr, y_ptr, n, FLAG: tl.constexpr, BLOCK: tl.constexpr):
    """Words for elementwise operators; constants end them early."""
    rows_, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = rows_ < n and columns < n - 1
    x = tl.load(x_ptr + rows_ * BLOCK + columns, mask=inside and FLAG, other=5.0)
    tl.store(y_ptr + rows_ * BLOCK + columns, x, mask=not (rows_ == 0 or columns == 1) and (n > 0 and FLAG is not None))


@triton.jit
def wrong(x_ptr, y_ptr, z_ptr, n, MODE: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    if MODE == "counter":
        tl.atomic_add(y_ptr.to(tl.pointer_type(tl.int32)), 1)
    elif MODE == "greatest":
        tl.atomic_max(y_ptr + at, tl.load(x_ptr + at))
    elif MODE == "exchange":
        tl.atomic_xchg(y_ptr + at, tl.load(x_ptr + at))
    elif MODE == "compare":
        tl.atomic_cas(y_ptr, 0.0, 1.0)
    elif MODE == "outside":
        tl.store(y_ptr + at + n, tl.load(x_ptr + at))
    elif MODE == "added":
        tl.atomic_add(y_ptr + at + n, tl.load(x_ptr + at))
    elif MODE == "behind":
        tl.store(y_ptr + at, tl.load(x_ptr + at + n))
    elif MODE == "reading":
        tl.store(y_ptr + at, tl.load(y_ptr + (at + BLOCK) % n))
    elif MODE == "same":
        tl.store(y_ptr + tl.arange(0, BLOCK), program.to(tl.float32) + tl.zeros([BLOCK], tl.float32))
    elif MODE == "assembly":
        tl.store(y_ptr + at, tl.inline_asm_elementwise("mov.b32 $0, 1;", "=r", [], tl.float32, True, 1))
    elif MODE == "input":
        tl.store(x_ptr + at, 0.0)
    elif MODE == "long":
        total = tl.zeros([65536], tl.float32)
        for i in range(1000000):
            total += i
        tl.store(y_ptr + at, tl.sum(total))
    elif MODE == "libdevice":
        tl.store(y_ptr + at, libdevice.j0(tl.load(x_ptr + at)))


@triton.jit
def drawn(y_ptr, n, BY_ELEMENT: tl.constexpr, BLOCK: tl.constexpr):
    """Random numbers: four of a draw, a block apart from each other, or one for each element."""
    if BY_ELEMENT:
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.rand(7, at), mask=at < n)
    else:
        own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        at = tl.program_id(0) * BLOCK * 4 + tl.arange(0, BLOCK)
        a, b, c, d = tl.rand4x(7, own)
        tl.store(y_ptr + at, a, mask=at < n)
        tl.store(y_ptr + at + BLOCK, b, mask=at + BLOCK < n)
        tl.store(y_ptr + at + 2 * BLOCK, c, mask=at + 2 * BLOCK < n)
        tl.store(y_ptr + at + 3 * BLOCK, d, mask=at + 3 * BLOCK < n)
