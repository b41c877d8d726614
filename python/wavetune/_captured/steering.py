"""Whether what a kernel loads through an argument may steer it, read out of its TTIR.

Data may be made up; indices, lengths and locks decide what the program touches and how long it
runs, and must be as the program had them. A loaded value steers where it reaches an address, the
mask of an access, a bound of a loop, a branch or the shape of a descriptor. Values are followed
through operations, regions, calls (those of one function are not told apart), and memory. What is
not understood steers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Iterator

from .access import Module

# Operands that decide what is accessed, by operation; all others are data.
_PLACES = {
    "tt.addptr": slice(1, None), "tt.advance": slice(1, None), "tt.gather": slice(1, None),
    "tt.make_tensor_ptr": slice(1, None), "tt.make_tensor_descriptor": slice(1, None),
    "tt.load": slice(1, 2), "tt.store": slice(2, None), "tt.atomic_rmw": slice(2, None),
    "tt.descriptor_load": slice(1, None), "tt.descriptor_gather": slice(1, None),
    "tt.experimental_descriptor_load": slice(1, None), "tt.descriptor_store": slice(1, -1),
    "tt.descriptor_scatter": slice(1, -1), "tt.descriptor_reduce": slice(1, -1),
    "scf.if": slice(0, 1), "scf.condition": slice(0, 1)}
_LOADS = {"tt.load", "tt.descriptor_load", "tt.descriptor_gather",
          "tt.experimental_descriptor_load", "tt.atomic_rmw", "tt.atomic_cas"}
_STORES = {"tt.store", "tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce",
           "tt.atomic_rmw", "tt.atomic_cas"}
_KNOWN = ("arith.", "math.", "tt.", "scf.", "ttg.convert_layout", "ub.")
_VALUE = r"(%[\w$.-]+(?:#\d+)?)"
_BOUNDS = re.compile(f"= {_VALUE} to {_VALUE} step {_VALUE}")


class _Flow(Module):
    """`flows`: the values that a value is part of; `places`: those that decide what is accessed."""

    def __init__(self, text: str):
        self.flows: dict[str, set[str]] = defaultdict(set)
        self.places: set[str] = set()
        self.loads: list[tuple[str, str]] = []  # pointer, loaded value
        self.stores: list[tuple[str, str]] = []  # stored value, pointer
        super().__init__(text)

    def flow(self, source: str, target: str) -> None:
        self.flows[source].add(target)

    def called(self, function: str, operands: list[str], result: str) -> None:
        for value, argument in zip(operands, self.arguments.get(function, ())):
            self.flow(value, argument)
        self.flow(f"result of {function}", result)

    def operation(self, function: str, name: str, rest: str, operands: list[str],
                  result: str) -> None:
        if name == "scf.for":
            found = _BOUNDS.search(rest)
            bounds = found.groups() if found else ()
            self.places.update(f"{function} {value}" for value in bounds)
            self.is_lost = self.is_lost or found is None
            return
        if name == "tt.return":
            for value in operands:
                self.flow(value, f"result of {function}")
            return
        if name in _PLACES:
            self.places.update(operands[_PLACES[name]])
        elif name == "arith.select" and result and self.is_pointer(result):
            self.places.update(operands[:1])
        elif not name.startswith(_KNOWN):
            self.places.update(operands)
        if name in _LOADS and operands and result:
            self.loads.append((operands[0], result))
        if name in _STORES:
            self.stores += [(value, operands[0]) for value in operands[1:]]
        if result and not name.startswith("scf."):
            for value in operands[2:] if name == "tt.load" else operands:
                self.flow(value, result)

    def steers(self) -> Iterator[bool]:
        loaded = defaultdict(set)  # values by the class of their pointers
        stored = defaultdict(set)  # classes of pointers by what is stored there
        for pointer, value in self.loads:
            loaded[self.find(pointer)].add(value)
        for value, pointer in self.stores:
            stored[value].add(self.find(pointer))

        for argument in self.entry:
            seen: set[str] = set()
            waiting = list(loaded[self.find(argument)])
            while waiting:
                value = waiting.pop()
                if value not in seen:
                    seen.add(value)
                    waiting += self.flows.get(value, ())
                    for place in stored.get(value, ()):
                        waiting += loaded[place]
            yield self.is_lost or not seen.isdisjoint(self.places)


def steering_arguments(ttir: str) -> list[bool]:
    """For each argument of the compiled kernel, whether what it points to may steer the program."""
    return list(_Flow(ttir).steers())
