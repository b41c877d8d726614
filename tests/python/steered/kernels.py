"""Kernels that read integers as data and as what steers them; each argument's name says which."""

import triton
import triton.language as tl


@triton.jit
def unpack(data_ptr, scale_ptr, out_ptr, n, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    packed = tl.load(data_ptr + place // 2, mask=place < n, other=0)
    value = (packed >> (place % 2 * 4)) & 15
    tl.store(out_ptr + place, value.to(tl.float32) * tl.load(scale_ptr), mask=place < n)


@triton.jit
def multiply(x_ptr, data_ptr, out_ptr, k, BLOCK: tl.constexpr):
    row, column = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for _ in range(0, k, BLOCK):
        x = tl.load(x_ptr + row * BLOCK + column)
        total += tl.dot(x, tl.load(data_ptr + row * BLOCK + column).to(tl.float16))
    tl.store(out_ptr + row * BLOCK + column, total)


@triton.jit
def gather(steer_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    index = tl.load(steer_ptr + place)
    tl.store(out_ptr + place, tl.load(x_ptr + index * 2 + 1))


@triton.jit
def rows(steer_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    place, total = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    for i in range(tl.load(steer_ptr), tl.load(steer_ptr + 1)):
        total += tl.load(x_ptr + i * BLOCK + place)
    tl.store(out_ptr + place, total)


@triton.jit
def masked(steer_ptr, data_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    is_there = tl.load(steer_ptr + place) != 0
    x = tl.load(x_ptr + place, mask=is_there, other=0.0)
    tl.store(out_ptr + place, tl.where(tl.load(data_ptr + place) != 0, x, -1.0))


@triton.jit
def branch(steer_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place)
    if tl.load(steer_ptr) > 0:
        tl.store(out_ptr + place, x)


@triton.jit
def pointed(ptr, index):
    return tl.load(ptr + index)


@triton.jit(noinline=True)
def apart(value):
    return value * 2


@triton.jit(noinline=True)
def beside(value):  # calls of one function are not told apart
    return value * 3


@triton.jit
def called(steer_ptr, data_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    x = pointed(x_ptr, apart(tl.load(steer_ptr)))
    tl.store(out_ptr + place, x + beside(tl.load(data_ptr)).to(tl.float32))


@triton.jit
def carried(steer_ptr, data_ptr, x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    place, offset, total = tl.arange(0, BLOCK), 0, tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        total += tl.load(x_ptr + offset + place) * tl.load(data_ptr + i).to(tl.float32)
        offset += tl.load(steer_ptr + i)
    tl.store(out_ptr + place, total)


@triton.jit
def stored(steer_ptr, room_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(room_ptr + place, tl.load(steer_ptr + place))
    tl.debug_barrier()
    tl.store(out_ptr + place, tl.load(x_ptr + tl.load(room_ptr + place)))


@triton.jit
def largest(x_ptr, data_out_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    value, index = tl.max(tl.load(x_ptr + place), 0, return_indices=True)
    tl.store(data_out_ptr, index + value.to(tl.int32))


@triton.jit
def locked(steer_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    while tl.atomic_cas(steer_ptr, 0, 1) == 1:
        pass
    place = tl.arange(0, BLOCK)
    tl.store(out_ptr + place, tl.load(out_ptr + place) + tl.load(x_ptr + place))
    tl.atomic_xchg(steer_ptr, 0)


@triton.jit
def counted(steer_ptr, data_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    index, other = tl.sort(tl.load(steer_ptr + place)), tl.cumsum(tl.load(data_ptr + place), 0)
    tl.store(out_ptr + place, tl.load(x_ptr + index) + other.to(tl.float32))
