"""What configs' hooks fill before each launch, as builds state it: [argument, bytes, word], a
32-bit pattern from where the argument points.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Sequence

from .._canonical import Fields, Json
from .._errors import PackError
from .._runtime.values import decode
from .documents import Config, Launch, tensors_of
from .storages import SIZES

FILLS_MAX = 16
_FORMATS = {"float16": "e", "float32": "f", "float64": "d"}


class NoFill(PackError):
    """A fill that no build states; the text says why."""


def element_of(dtype: str, value: Any) -> bytes:
    """The bytes of an element that has the value, as Tensor.fill_() rounds it."""
    size = SIZES[dtype]
    if dtype in _FORMATS:
        return _packed(_FORMATS[dtype], value)
    if dtype == "bfloat16":
        bits = int.from_bytes(_packed("f", value), "little")
        nearest = bits + 0x7fff + (bits >> 16 & 1) if value == value else bits | 0x400000
        return (nearest >> 16).to_bytes(2, "little")
    if value != 0 and ("float" in dtype or not math.isfinite(value)):
        raise NoFill(f"fills elements of {dtype} with {value}")
    number = bool(value) if dtype == "bool" else int(value)
    return (number % 2**(8 * size)).to_bytes(size, "little")


def _packed(kind: str, value: Any) -> bytes:
    try:
        return struct.pack("<" + kind, value)
    except OverflowError:
        return struct.pack("<" + kind, math.copysign(math.inf, value))


def word_of(dtype: str, value: Any) -> int:
    element = element_of(dtype, value)
    word = (element * 4)[:4]
    if element != (word * 2)[:len(element)]:
        raise NoFill(f"fills elements of {dtype} with {value}, which no 32 bits repeat")
    return int.from_bytes(word, "little")


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for step, extent in sorted(zip(strides, shape)):
        if extent > 1 and step != expected:
            return False
        expected *= extent
    return True


def fills_of(launch: Launch, one: Config) -> list[list[Any]]:
    """Raises NoFill with what the hook of the config does."""
    tensors = {tensor["name"]: tensor for tensor in tensors_of(launch)}
    found, places = [], []  # type: list[list[Any]], list[tuple[str, int, int, int, int]]
    for name, value in sorted(one.fills.items()):
        tensor = tensors.get(name)
        if tensor is None:
            raise NoFill(f"fills {name}, which is no argument that the kernel is passed")
        if tensor["elements"] == 0:
            continue
        size = tensor["elements"] * SIZES[tensor["dtype"]]
        if not _is_dense(tensor["shape"], tensor["stride"]) or size % 4:
            raise NoFill(f"fills {name}, which is not contiguous" if size % 4 == 0 else
                         f"fills {name}, which has {size} bytes, no multiple of 4")
        word = word_of(tensor["dtype"], decode(value))
        start = tensor["offset"] * SIZES[tensor["dtype"]]
        for other, storage, low, high, its in places:
            if storage == tensor["storage"] and start < high and low < start + size and its != word:
                raise NoFill(f"fills {other} and {name}, which overlap, with different values")
        places.append((name, tensor["storage"], start, start + size, word))
        found.append([name, size, word])
    if len(found) > FILLS_MAX:
        raise NoFill(f"fills {len(found)} arguments; a build states at most {FILLS_MAX}")
    return found


def why_refused(launch: Launch) -> str | None:
    """A sentence where a config's hook fills what no build states."""
    for one in launch.configs:
        try:
            fills_of(launch, one)
        except NoFill as error:
            return f"the pre_hook of its configs {error}: fill it in the kernel"
    for name, fill in initial_of(launch.document).items():
        if fill != "zeros" and not math.isfinite(fill["constant"]):
            return f"the pre_hook of its autotuner fills {name} with {fill['constant']}"
    return None


def initial_of(document: Fields) -> Json:
    """The fill of a case for each argument that the autotuner's own hook fills."""
    values = {name: decode(value) for name, value in (document.get("initial") or {}).items()}
    return {name: {"constant": value} if value else "zeros" for name, value in values.items()}
