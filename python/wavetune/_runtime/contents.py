"""The contents of integer tensors, which may decide what a kernel does (lengths, offsets, page
tables). They are copied from the device in the program's thread; the recorder's finds the class of
values of which others like them can be made:

    {"class": "constant", "value": 0}               all alike
    {"class": "ramp", "start": 0, "step": 512}      equal steps, such as offsets of equal sequences
    {"class": "permutation"}                        0 … n-1, each once
    {"class": "sorted", "low": 0, "high": 4096}     never falling
    {"class": "integers", "low": 0, "high": 31}     anything else; low and high occur in it
"""

from __future__ import annotations

import ctypes
import struct
from typing import Iterator

from .._canonical import Named

BYTES_MAX = 4 << 20  # of one launch
FORMATS = {
    "bool": "b", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i",
    "uint32": "I", "int64": "q", "uint64": "Q"
}
_CHUNK = 16384  # elements: another thread waits for a chunk at most


def copy_of(tensor, elements: int, dtype: str) -> bytes:
    """What the tensor's memory holds from its first element on. Waits for the device."""
    if elements == 0:
        return b""
    flat = tensor.detach().as_strided((elements,), (1,)).cpu()
    return ctypes.string_at(flat.data_ptr(), elements * struct.calcsize(FORMATS[dtype]))


def class_of(data: bytes, dtype: str) -> Named:
    """The class of the values; the first one that fits in the order above."""
    values = memoryview(data).cast(FORMATS[dtype])
    n = len(values)
    if n == 0:
        return {"class": "constant", "value": 0}
    first = low = high = last = values[0]
    step = values[1] - first if n > 1 else 0
    if all(part == [first + step * i for i in range(at, at + len(part))]
           for at, part in _chunks(values)):
        return {"class": "ramp", "start": first, "step": step} if step else \
            {"class": "constant", "value": first}
    is_sorted = True
    for _, part in _chunks(values):
        low, high = min(low, min(part)), max(high, max(part))
        is_sorted = is_sorted and part[0] >= last and part == sorted(part)
        last = part[-1]
    if is_sorted:
        return {"class": "sorted", "low": low, "high": high}
    if low == 0 and high == n - 1:
        seen = set()
        for _, part in _chunks(values):
            seen.update(part)
        if len(seen) == n:
            return {"class": "permutation"}
    return {"class": "integers", "low": low, "high": high}


def _chunks(values) -> Iterator[tuple[int, list[int]]]:
    for at in range(0, len(values), _CHUNK):
        yield at, values[at:at + _CHUNK].tolist()
