"""What interpreted programs read and write: buffers at made-up addresses, filled as the agent fills
them (inputs.py). Threads: one.

Every program begins with the inputs, whatever others wrote. A write that is not within a buffer, or
an access that takes its elements for others, ends the interpretation; so does a read outside,
unless the inputs are exact: then the program itself reads there, and Memory.outside() says how far.
"""

from __future__ import annotations

from typing import Any, Iterable

import numpy as np

from .inputs import Contents

# an address is the buffer's number, from 1 on, above its byte, which is counted from _MIDDLE
_SHIFT = 44
_MIDDLE = 1 << (_SHIFT - 1)
_OUTSIDE_MAX = 64 << 20  # bytes
_PAGE = 4096


class NotInterpreted(Exception):
    """Why the interpreter's values cannot be had; a sentence."""


class WritesOutside(NotInterpreted):
    """The program itself writes outside of a tensor: no agent can launch that."""


class Buffer:
    """`pages`: what the program wrote, as (elements, which). `is_sum`: programs add to it."""

    def __init__(self, name: str, contents: Contents, is_written: bool):
        self.name, self.contents, self.is_written = name, contents, is_written
        self.pages: dict[int, tuple[Any, Any]] = {}
        self.read: list[Any] = []
        self.is_sum = False
        self.lowest, self.highest = 0, contents.elements - 1  # that a program read

    def load(self, index: Any) -> Any:
        values = np.array(self.contents.at(index))
        if self.is_written:
            self.read.append(np.unique(index))
        for page in np.unique(index // _PAGE).tolist() if self.pages else ():
            if page in self.pages:
                elements, is_own = self.pages[page]
                here = index // _PAGE == page
                place = index[here] % _PAGE
                values[here] = np.where(is_own[place], elements[place], values[here])
        return values

    def store(self, index: Any, values: Any) -> None:
        for page in np.unique(index // _PAGE).tolist():
            elements, is_own = self.pages.setdefault(
                page, (np.zeros(_PAGE, values.dtype), np.zeros(_PAGE, bool)))
            here = index // _PAGE == page
            place = index[here] % _PAGE
            elements[place], is_own[place] = values[here], True

    def take(self) -> tuple[Any, Any, Any]:
        """(indices read, indices written, values), in order; the next program begins anew."""
        none, no_values = np.zeros(0, np.int64), np.zeros(0, self.contents.stored)
        read = np.unique(np.concatenate([none, *self.read]))
        pages = sorted(self.pages.items())
        index = [page * _PAGE + np.flatnonzero(is_own) for page, (_, is_own) in pages]
        values = [elements[is_own] for _, (elements, is_own) in pages]
        self.read, self.pages = [], {}
        return read, np.concatenate([none, *index]), np.concatenate([no_values, *values])


class Memory:
    """`is_exact`: whether integers are those of the program, so that accesses are."""

    def __init__(self, buffers: Iterable[Buffer], is_exact: bool):
        self.buffers, self.is_exact = list(buffers), is_exact

    def outside(self) -> dict[str, tuple[int, int]]:
        """By buffer, how many elements before it and behind it were read."""
        found = {one.name: (-one.lowest, one.highest - one.contents.elements + 1)
                 for one in self.buffers}
        return {name: around for name, around in found.items() if any(around)}

    def address(self, number: int, element: int = 0) -> int:
        return (number + 1 << _SHIFT) + _MIDDLE + element * self.buffers[number].contents.itemsize

    def _parts(self, what: str, addresses: Any, mask: Any,
               size: int) -> Iterable[tuple[Buffer, Any, Any]]:
        """The buffers that are accessed, indices into them, and these' places in the arrays."""
        numbers = (addresses >> np.uint64(_SHIFT)).astype(np.int64)
        for number in np.unique(numbers[mask]).tolist():
            if not 1 <= number <= len(self.buffers):
                raise NotInterpreted(f"a program {what} outside of its buffers")
            buffer, here = self.buffers[number - 1], mask & (numbers == number)
            offset = (addresses[here] & np.uint64((1 << _SHIFT) - 1)).astype(np.int64) - _MIDDLE
            own = buffer.contents.itemsize
            if size != own or (offset % own).any():
                raise NotInterpreted(f"a program {what} {buffer.name} as if it had elements of "
                                     f"{size} bytes")
            index = offset // own
            low, high, elements = int(index.min()), int(index.max()), buffer.contents.elements
            if low < 0 or high >= elements:
                element = low if low < 0 else high
                if what == "writes" and self.is_exact:
                    raise WritesOutside(f"it writes {buffer.name}[{element}], and what it was "
                                        f"passed has {elements} elements: mend the kernel or its "
                                        f"grid, or pass a larger {buffer.name}")
                is_near = max(-low, high - elements) * own < _OUTSIDE_MAX
                if what != "reads" or not self.is_exact or not is_near:
                    raise NotInterpreted(f"a program {what} {buffer.name}[{element}], which has "
                                         f"{elements} elements")
                buffer.lowest, buffer.highest = min(buffer.lowest, low), max(buffer.highest, high)
            yield buffer, index, here

    def load(self, addresses: Any, mask: Any, other: Any) -> Any:
        """The elements at the addresses; where `mask` is false, those of `other`."""
        found = np.array(other).ravel()
        for buffer, index, here in self._parts("reads", addresses.ravel(), mask.ravel(),
                                               found.itemsize):
            found[here] = buffer.load(index).view(found.dtype)
        return found.reshape(addresses.shape)

    def store(self, addresses: Any, mask: Any, values: Any, is_sum: bool = False) -> None:
        values = np.ascontiguousarray(values).ravel()
        for buffer, index, here in self._parts("writes", addresses.ravel(), mask.ravel(),
                                               values.itemsize):
            if not buffer.is_written:
                raise NotInterpreted(f"a program writes to {buffer.name}, which the compiled code "
                                     "does not")
            buffer.is_sum = buffer.is_sum or is_sum
            buffer.store(index, values[here].view(buffer.contents.stored))
