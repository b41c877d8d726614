"""Floats that NumPy has no type for, as arrays of their bits: bfloat16 as uint16, 8-bit floats as
uint8. The same formats as agent/measure/float8.c."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Float8:
    """`special`: codes of NaN and infinity; without infinities, larger values saturate."""

    mantissa: int
    bias: int
    largest: int
    nan: int
    special: dict[int, float]
    has_negative_zero: bool
    integer_bits: int


_INF, _NAN = float("inf"), float("nan")
FLOAT8 = {
    "float8_e4m3fn": Float8(3, 7, 0x7e, 0x7f, {0x7f: _NAN, 0xff: _NAN}, True, 4),
    "float8_e5m2": Float8(
        2, 15, 0x7b, 0x7f, {
            0x7c: _INF, 0xfc: -_INF,
            **{code + sign: _NAN for code in (0x7d, 0x7e, 0x7f) for sign in (0, 0x80)}
        }, True, 3),
    "float8_e4m3fnuz": Float8(3, 8, 0x7f, 0x80, {0x80: _NAN}, False, 4),
    "float8_e5m2fnuz": Float8(2, 16, 0x7f, 0x80, {0x80: _NAN}, False, 3),
    "float8e4b15": Float8(3, 15, 0x7e, 0x7e, {}, True, 1),
}


def bfloat16_of(values: Any) -> Any:
    """To nearest, ties to even, by way of float32."""
    with np.errstate(over="ignore"):
        wide = np.ascontiguousarray(values, np.float32)
    bits = wide.view(np.uint32)
    rounded = np.where(np.isnan(wide), bits | np.uint32(0x400000),
                       bits + np.uint32(0x7fff) + (bits >> np.uint32(16) & np.uint32(1)))
    return (rounded >> np.uint32(16)).astype(np.uint16).reshape(np.shape(values))


def bfloat16_widened(bits: Any) -> Any:
    return (np.ascontiguousarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(
        np.float32).reshape(np.shape(bits))


def float8_of(dtype: str, values: Any) -> Any:
    """To nearest, ties to even; what is too large saturates."""
    own, values = FLOAT8[dtype], np.asarray(values, np.float64)
    magnitude = np.where(np.isfinite(values), np.abs(values), 0.0)
    exponent = np.where(magnitude > 0, np.frexp(magnitude)[1] - 1, 1 - own.bias)
    exponent = np.maximum(exponent, 1 - own.bias)
    steps = np.rint(np.ldexp(magnitude, own.mantissa - exponent))
    code = np.minimum((exponent + own.bias - 1) * float(1 << own.mantissa) + steps,
                      own.largest).astype(np.int64)
    infinity = next((code for code, value in own.special.items() if value == _INF), own.largest)
    code = np.where(np.isinf(values), infinity, code)
    sign = np.where(np.signbit(values) & ((code != 0) | own.has_negative_zero), 0x80, 0)
    return np.where(np.isnan(values), own.nan, code | sign).astype(np.uint8)


def _decoded(dtype: str) -> Any:
    own = FLOAT8[dtype]
    codes = np.arange(128)
    exponent, mantissa = codes >> own.mantissa, codes & (1 << own.mantissa) - 1
    scaled = np.where(exponent > 0, mantissa + (1 << own.mantissa), mantissa).astype(np.float64)
    values = np.ldexp(scaled, np.maximum(exponent, 1) - own.bias - own.mantissa)
    both = np.concatenate([values, -values]).astype(np.float32)
    for code, value in own.special.items():
        both[code] = value
    return both


_DECODED = {dtype: _decoded(dtype) for dtype in FLOAT8}


def float8_widened(dtype: str, codes: Any) -> Any:
    return _DECODED[dtype][codes]
