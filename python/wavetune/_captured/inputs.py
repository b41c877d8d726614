"""What the agent fills buffers with, element by element: a port of agent/measure/reference.c, which
must give the same bytes. Elements are computed where a program reads them, so that a buffer of any
size costs nothing. Arrays hold them as memory does: bfloat16 as uint16, 8-bit floats as uint8.
"""

from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np

from .floats import FLOAT8, bfloat16_of, bfloat16_widened, float8_of, float8_widened

BLOCK = 65536
PERIOD = 16777259
STORED = {"bool": np.uint8, "bfloat16": np.uint16, **dict.fromkeys(FLOAT8, np.uint8),
          **{name: getattr(np, name) for name in (
              "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64").split()}}
_GAMMA, _OF_BLOCK, _OF_ARGUMENT = 0x9e3779b97f4a7c15, 0xd1342543de82ef95, 0xa0761d6478bd642f
_U64 = (1 << 64) - 1
# The integers that each type holds, as doubles that convert to it.
_ENDS = {"int64": (-2.0**63, 2.0**63 - 1024), "uint64": (0.0, 2.0**64 - 2048)}
for _bits in (8, 16, 32):
    _ENDS[f"int{_bits}"] = -2.0**(_bits - 1), 2.0**(_bits - 1) - 1
    _ENDS[f"uint{_bits}"] = 0.0, 2.0**_bits - 1


def _mixed(bits: Any) -> Any:
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
    return bits ^ bits >> np.uint64(31)


def _draw(seed: Any, number: Any) -> Any:
    """What a generator with this seed gives as its draw `number`, from 1 on (splitmix64)."""
    with np.errstate(over="ignore"):
        return _mixed(
            np.asarray(seed, np.uint64) + np.asarray(number, np.uint64) * np.uint64(_GAMMA))


def _unit(bits: Any) -> Any:
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _below(bits: Any, bound: int) -> Any:
    """The upper half of the 128 bits of bits * bound."""
    low, high = np.uint64(bound & 0xffffffff), np.uint64(bound >> 32)
    own_low, own_high, shift = bits & np.uint64(0xffffffff), bits >> np.uint64(32), np.uint64(32)
    middle = own_high * low + (own_low * low >> shift)
    other = own_low * high + (middle & np.uint64(0xffffffff))
    return own_high * high + (middle >> shift) + (other >> shift)


def stored(dtype: str, values: Any) -> Any:
    """Doubles as elements of the type: rounded to nearest, integers and 8-bit floats saturate."""
    values = np.asarray(values, np.float64)
    if dtype == "bool":
        return (values != 0).astype(np.uint8)
    if dtype in _ENDS:
        return np.clip(np.rint(values), *_ENDS[dtype]).astype(STORED[dtype])
    if dtype == "bfloat16":
        return bfloat16_of(values)
    if dtype in FLOAT8:
        return float8_of(dtype, values)
    with np.errstate(over="ignore"):
        return values.astype(STORED[dtype])


def _modulus(dtype: str) -> int:
    """How many integers from 0 on the type holds exactly."""
    if dtype in FLOAT8:
        return 1 << FLOAT8[dtype].integer_bits
    bits = {
        "bool": 1, "bfloat16": 8, "float16": 11, "float32": 24, "float64": 53, "int64": 53,
        "uint64": 53
    }.get(dtype, 8 * np.dtype(STORED[dtype]).itemsize - dtype.startswith("int"))
    return 1 << bits


def _permuted(index: Any, n: int, seed: int) -> Any:
    half = 1
    while half < 31 and n > 1 << 2 * half:
        half += 1
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    value, key = index % np.uint64(n), np.uint64(seed) + index // np.uint64(n) * np.uint64(_GAMMA)
    is_open = np.ones(value.shape, bool)
    while is_open.any():
        left, right = value >> shift, value & mask
        for number in range(4):
            left, right = right, (left ^ _mixed(_mixed(key + np.uint64(number)) ^ right)) & mask
        value = np.where(is_open, left << shift | right, value)
        is_open &= value >= np.uint64(n)
    return value


class Contents:
    """What the buffer of argument number `index` holds; `fill`: as a case states it; `blob` gives
    the bytes of a digest; `before`, `after`: elements outside of the view; `scale`: of normal
    deviates."""

    def __init__(self, dtype: str, fill: Any, index: int, elements: int, seed: int,
                 blob: Callable[[str], bytes], scale: float = 1, before: int = 0, after: int = 0):
        self._stated = dtype, fill, index, elements, seed, blob
        self.scale, self.dtype, self.elements = scale, dtype, elements
        self.stored = np.dtype(STORED[dtype])
        self.itemsize = self.stored.itemsize
        (self.kind, self.value), = ({fill: None} if isinstance(fill, str) else fill).items()
        self.before, self.own = before, elements - before - after  # elements of the view
        is_random = self.kind in ("normal", "uniform", "integers")
        self.period = min(elements, PERIOD) if is_random else elements
        self.seed = int(_draw(seed ^ (_OF_ARGUMENT * (index + 1) & _U64), 1))
        # elements from, to, with what, whatever they were before
        self.filled: list[tuple[int, int, Any]] = []
        self.table: Any = None
        if self.kind == "normal":
            self.table = self._normal_block(min(self.period, BLOCK))
        elif self.kind == "blob":
            self.table = np.frombuffer(blob(self.value), self.stored)

    def scaled(self, scale: float) -> Contents:
        if self.kind != "normal" or self.scale == scale:
            return self
        found = Contents(*self._stated, scale, self.before, self.elements - self.before - self.own)
        found.filled = self.filled
        return found

    @property
    def is_float(self) -> bool:
        return "float" in self.dtype

    def widened(self, elements: Any) -> Any:
        """Elements as memory has them, as doubles."""
        if self.dtype == "bfloat16":
            elements = bfloat16_widened(elements)
        elif self.dtype in FLOAT8:
            elements = float8_widened(self.dtype, elements)
        return elements.astype(np.float64)

    def _normal_block(self, n: int) -> Any:
        """The deviates of the first block, with the C library's functions."""
        units = _unit(_draw(self.seed, np.arange(1, n + n % 2 + 1, dtype=np.uint64))).tolist()
        values = []
        for first, second in zip(units[::2], units[1::2]):
            radius, angle = self.scale * math.sqrt(-2 * math.log(1 - first)), 2 * math.pi * second
            values += [radius * math.cos(angle), radius * math.sin(angle)]
        return stored(self.dtype, values[:n])

    def at(self, indices: Any) -> Any:
        """The elements at these indices, any array of them."""
        values = self._before_fills(indices)
        for start, end, element in self.filled:
            values = np.where((np.asarray(indices) >= start) & (np.asarray(indices) < end), element,
                              values)
        return values

    def _before_fills(self, indices: Any) -> Any:
        with np.errstate(over="ignore"):
            index = np.asarray(indices).astype(np.int64)
            if self.kind == "ramp":
                return stored(self.dtype, self._ramp(index - self.before))
            if self.kind in ("sorted", "permutation", "index", "blob"):
                index = np.clip(index - self.before, 0, self.own - 1)
            index = index.astype(np.uint64) % np.uint64(self.period)
            values = getattr(self, f"_{self.kind}")(index)
            return values if self.table is not None else stored(self.dtype, values)

    # By kind of fill: as doubles, or out of the table.

    def _drawn(self, index: Any, each: int = 1) -> Any:
        """64 random bits for each `each` elements."""
        block, own = np.divmod(index, np.uint64(BLOCK))
        return _draw(np.uint64(self.seed) + block * np.uint64(_OF_BLOCK),
                     own // np.uint64(each) + np.uint64(1))

    def _normal(self, index: Any) -> Any:
        block, own = np.divmod(index, np.uint64(BLOCK))
        bits = self._drawn(index, 4)
        picked = bits >> (own % np.uint64(4) * np.uint64(16)) & np.uint64(BLOCK - 1)
        return self.table[np.where(block == 0, own, picked).astype(np.int64)]

    def _blob(self, index: Any) -> Any:
        return self.table[index.astype(np.int64)]

    def _uniform(self, index: Any) -> Any:
        low, high = self.value or (0.0, 1.0)
        return low + (high - low) * _unit(self._drawn(index))

    def _integers(self, index: Any) -> Any:
        low, high = self.value
        return float(low) + _below(self._drawn(index), high - low + 1).astype(np.float64)

    def _sorted(self, index: Any) -> Any:
        low, high = map(float, self.value)
        part = (index.astype(np.float64) + _unit(self._drawn(index))) / float(self.own)
        values = np.minimum(low + np.floor((high - low + 1) * part), high)
        values = np.where(index == np.uint64(self.own - 1), high, values)
        return np.where(index == 0, low, values)

    def _ramp(self, index: Any) -> Any:
        start, step = self.value
        return start + index.astype(np.float64) * step

    def _permutation(self, index: Any) -> Any:
        return _permuted(index, self.value, self.seed)

    def _index(self, index: Any) -> Any:
        return index % np.uint64(_modulus(self.dtype))

    def _constant(self, index: Any) -> Any:
        return np.full(index.shape, float(self.value))

    def _zeros(self, index: Any) -> Any:
        return np.zeros(index.shape)
