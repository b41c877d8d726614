"""Which buffers a compiled kernel may write to, read out of its TTIR.

A capture knows what a kernel was called with, not what it does with it. Every pointer that may
reach a store or an atomic counts as written: pointers that meet in a loop, a branch or a call share
a class, and one written member makes a class written. What is not understood counts as written too,
so the answer can only err on the safe side: a buffer that is restored before each check although
nothing writes to it.
"""

from __future__ import annotations

import re
from typing import Iterator

from .._errors import PackError

# Operations that only compute with a pointer or read through it. All others count as writing.
_HARMLESS = {
    "tt.load", "tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans",
    "tt.bitcast", "tt.make_tensor_ptr", "tt.advance", "tt.make_tensor_descriptor",
    "tt.descriptor_load", "tt.descriptor_gather", "tt.experimental_descriptor_load", "tt.cat",
    "tt.join", "tt.split", "tt.ptr_to_int", "tt.unsplat", "arith.select", "ttg.convert_layout",
    "tt.return", "tt.reinterpret_tensor_descriptor"
}
_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_NAME = r"""@("[^"]*"|[\w$.-]+)\("""
_FUNCTION = re.compile(rf"tt\.func (public |private )?{_NAME}(.*)")
_TYPE = r"!?[\w.]+(?:<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>)?"
_ARGUMENT = re.compile(rf"(%[\w$.-]+): {_TYPE}")
_POINTER = re.compile(r"!tt\.(?:ptr|tensordesc)\b")
_ASSIGNED = re.compile(r"(%[\w$.-]+)\s*=\s*(%[\w$.-]+(?:#\d+)?)")


class Module:
    """Classes of values: `parent` is a forest of them. steering.py derives from this."""

    def __init__(self, text: str):
        self.parent: dict[str, str] = {}
        self.written: set[str] = set()
        self.pointers: set[str] = set()
        self.arguments: dict[str, list[str]] = {}  # of each function, in order
        self.entry: list[str] = []
        # jumps, whose arguments are not followed
        self.is_lost = "cf.br" in text or "cf.cond_br" in text
        for what, why in (("!tt.ptr<!tt.ptr", "reads pointers out of memory"),
                          ("tt.int_to_ptr", "makes pointers of integers")):
            if what in text:
                raise PackError(f"the kernel {why}, so what it writes to is not known before it "
                                "runs")
        lines = [(line if "tt.func" in line else line.split(" loc(", 1)[0]).strip()
                 for line in text.splitlines()]
        for line in lines:
            if line.startswith("tt.func"):
                self._declare(line)
        self._walk(lines)

    def find(self, name: str) -> str:
        while name in self.parent:
            name = self.parent[name]
        return name

    def join(self, one: str, other: str) -> None:
        one, other = self.find(one), self.find(other)
        if one != other:
            self.parent[one] = other

    # For those who derive from this: what each operation, in its function, is given and gives.

    def flow(self, source: str, target: str) -> None:
        """`target` has what `source` has, from another region."""

    def called(self, function: str, operands: list[str], result: str) -> None:
        """A function of the module is called."""

    def operation(self, function: str, name: str, rest: str, operands: list[str],
                  result: str) -> None:
        """Any other operation; `rest`: its text after the result."""

    def _declare(self, line: str) -> None:
        found = _FUNCTION.match(line)
        if found is None:
            self.is_lost = True
            return
        visibility, function, rest = found.groups()
        self.arguments[function] = names = []
        for argument in _ARGUMENT.finditer(rest):
            names.append(f"{function} {argument[1]}")
            if _POINTER.search(argument[0]):
                self.pointers.add(names[-1])
        if visibility == "public " or not self.entry:
            self.entry = names

    def _walk(self, lines: list[str]) -> None:
        function = ""
        regions: list[str | None] = []
        for number, line in enumerate(lines):
            if line.startswith("tt.func"):
                found = _FUNCTION.match(line)
                function, regions = found[2] if found else "?", []
                continue
            is_end, is_begin = line.startswith("}"), line.endswith("{")
            if is_end and not is_begin:
                del regions[-1:]
                continue
            self._line(function, line, number, regions)
            if is_begin and not is_end and not re.search(r"\bscf\.(?:for|if|while)\b", line):
                regions.append(None)

    def _line(self, function: str, line: str, number: int, regions: list[str | None]) -> None:
        head, equals, rest = line.partition(" = ") if line.startswith("%") else ("", "", line)
        operation = re.match(r'"?([a-z_]+\.[\w.]+)"?', rest)
        name = operation[1] if operation else ""
        operands = [f"{function} {value}" for value in _VALUE.findall(rest)]
        result = f"{function} {head.partition(':')[0]}" if equals else ""

        if name in ("scf.for", "scf.if", "scf.while"):
            region = f"region {number}"
            assigned = {"scf.for": rest.partition("iter_args")[2], "scf.while": rest, "scf.if": ""}
            pairs = _ASSIGNED.findall(assigned[name])
            count = max(len(pairs), int(head.partition(":")[2] or 1)) if equals else len(pairs)
            for k in range(count):
                given = f"{result}#{k}" if ":" in head else result or f"{region} result"
                self.join(f"{region} {k}", given)
                self.flow(f"{region} {k}", given)
            for k, (own, initial) in enumerate(pairs):
                self._share(f"{region} {k}", f"{function} {own}", f"{function} {initial}")
                self.flow(f"{region} {k}", f"{function} {own}")
                self.flow(f"{function} {initial}", f"{region} {k}")
            regions.append(region)
            self.operation(function, name, rest, operands, result)
        elif name in ("scf.yield", "scf.condition") or line.startswith("^"):
            region = regions[-1] if regions else None
            values = operands[1:] if name == "scf.condition" else operands
            for k, value in enumerate(values if region else []):
                slot = f"{region} {k}"
                self._share(slot, value)
                self.flow(*((slot, value) if line.startswith("^") else (value, slot)))
            if name == "scf.condition":
                self.operation(function, name, rest, operands, result)
        elif name == "tt.call":
            self._call(function, rest, operands, result)
        else:
            self._operation(name, rest, operands, result)
            self.operation(function, name, rest, operands, result)
        if ":" in head and not name.startswith("scf."):
            for k in range(int(head.partition(":")[2])):
                self.flow(result, f"{result}#{k}")

    def _share(self, slot: str, *values: str) -> None:
        for value in values:
            is_pointer = self.is_pointer(value)
            self.join(value, slot)
            if is_pointer:
                self.pointers |= {value, self.find(slot)}

    def is_pointer(self, value: str) -> bool:
        return value in self.pointers or self.find(value) in self.pointers

    def _call(self, function: str, rest: str, operands: list[str], result: str) -> None:
        found = re.match(rf"tt\.call {_NAME}", rest)
        if found is None or found[1] not in self.arguments or _POINTER.search(
                rest.rpartition("->")[2]):
            self.is_lost = True
            return
        for value, argument in zip(operands, self.arguments[found[1]]):
            self._share(argument, value)
        self.called(found[1], operands, result)

    def _operation(self, name: str, rest: str, operands: list[str], result: str) -> None:
        pointers = [value for value in operands if self.is_pointer(value)]
        if pointers and name not in _HARMLESS:
            self.written.update(pointers)
        types = rest.rpartition("->" if "->" in rest else " : ")[2]
        is_load = name == "tt.load" or name.startswith("tt.descriptor_load")
        if result and not is_load and _POINTER.search(types):
            self.pointers.add(result)
            for value in pointers:
                self.join(result, value)
            self.pointers.add(self.find(result))

    def is_written(self) -> Iterator[bool]:
        roots = {self.find(value) for value in self.written}
        for argument in self.entry:
            yield self.is_lost or self.find(argument) in roots


def is_rounded(ttir: str) -> bool:
    """Whether dots round 32-bit floats (tf32, bfloat16): configs agree to fewer digits then."""
    return re.search(r"inputPrecision = (?:tf32|bf16x)", ttir) is not None


def written_arguments(ttir: str) -> list[bool]:
    """For each argument of the compiled kernel, whether it may write through it."""
    return list(Module(ttir).is_written())
