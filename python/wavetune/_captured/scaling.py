"""The scale of a captured kernel's float inputs with which it converges.

A recurrence multiplies its state by inputs at every step, which its program has normalised before.
With the deviates of 1 that agents fill buffers with, values grow with every step, to infinity: no
two ways to compute agree there, and short of it the largest values decide what all others may
differ by. So a builder takes the first of SCALES with which what the programs write is stable:

- all is finite and, with inputs of 1, at most LARGE, which sums of a million squares are; or
- inputs a 16th as large leave NaN and infinity where they are, which therefore do not come from the
  size of inputs (logarithms, masked rows), and make the largest of the values that change at most
  POWER times smaller, as products of four inputs become. n steps of a recurrence multiply about 2n.

A kernel that diverges with 1 must shrink so with 1/16, too: over 128 chunks of 64 a delta rule of
1/16 grows to 700, and the order of sums alone makes it differ by three times what is allowed.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, TypeVar

import numpy as np

from .memory import NotInterpreted

STEP = 16
SCALES = (1.0, 1 / STEP, 1 / STEP**2)
LARGE = 2.0**20
POWER = 2 * STEP**4

Written = Mapping[str, tuple[Any, Any]]  # by buffer: rising indices, values
Found = TypeVar("Found")


def largest_sums(values: Any, programs: int) -> Any:
    """Twice what so many programs add up to that each add `values`, in the elements' type: infinite
    where one order of the programs overflows. bfloat16 has the range of float32, and is left."""
    if values.dtype.kind != "f":
        return values
    with np.errstate(over="ignore"):
        return (values.astype(np.float64) * (2.0 * programs)).astype(values.dtype)


def is_moderate(values: Any) -> bool:
    return bool((np.abs(values) <= LARGE).all())  # NaN is not


def _is_power(larger: Any, smaller: Any) -> bool:
    """Whether values could be a power of the inputs. `smaller`: with inputs a 16th as large."""
    is_finite = np.isfinite(larger)
    if not np.array_equal(larger[~is_finite], smaller[~is_finite], equal_nan=True):
        return False
    changes = is_finite & np.isfinite(smaller) & (larger != smaller)
    largest, own = (float(np.abs(values[changes]).max(initial=0)) for values in (larger, smaller))
    return largest <= 1 or largest <= own * POWER


def is_stable(larger: Written, smaller: Written) -> bool:
    """`smaller` may have more elements."""
    for name, (index, values) in larger.items():
        others, own = smaller.get(name, (index[:0], values[:0]))
        if not np.isin(index, others).all() or not _is_power(values, own[np.searchsorted(
                others, index)]):
            return False
    return True


def find_scale(
        execute: Callable[[float, bool], tuple[Found, Written, bool]]) -> tuple[float, Found]:
    """`execute` runs the programs with inputs of a scale; also (the floats that they wrote, whether
    all are moderate). With True it ends with the first program whose values are not."""
    found, floats, is_good = execute(SCALES[0], True)
    if is_good:
        return SCALES[0], found
    for scale, next_scale in zip(SCALES, SCALES[1:]):
        next_found, smaller, is_next_good = execute(next_scale, True)
        if is_stable(floats, smaller):
            return scale, found if is_good else execute(scale, False)[0]
        found, floats, is_good = next_found, smaller, is_next_good
    if is_good:
        return SCALES[-1], found
    raise NotInterpreted(f"its values overflow or grow with inputs of 1, of 1/{STEP} and of "
                         f"1/{STEP**2}")
