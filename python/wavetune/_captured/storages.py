"""The buffers that a captured launch's tensors make: views as the program had them, in their
storages, since a kernel may access any byte of a storage.

A buffer is the whole storage, up to WHOLE_BYTES; of a larger one MARGIN_BYTES on both sides of what
the launch was passed. Tensors of one storage, type and kind of contents share the buffer; others
have one each, and are refused where they overlap.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Sequence

from .._canonical import Fields, Json, canonical
from .._pack.signature import BYTES as SIZES
from .._pack.signature import EXACT_MAX, INTEGERS
from .._runtime.launch import ALIGNMENT_MAX
from .documents import Launch, tensors_of

WHOLE_BYTES, MARGIN_BYTES = 256 << 20, 64 << 20
PADDING_BYTES = 64 << 10
# fills of a view's elements, whose sequence counts
_OF_VIEW = ("ramp", "sorted", "permutation", "blob")

Tensor = Fields


def fill_of(argument: Tensor) -> Any:
    contents, dtype = argument["contents"], argument["dtype"]
    if contents is None:
        return {"integers": list(INTEGERS[dtype])} if dtype in INTEGERS else "normal"
    # What is beyond, also in a bool, is the data of an output or a hash, and steers nothing.
    low, high = INTEGERS.get(dtype, (-EXACT_MAX, EXACT_MAX))
    contents = {name: max(low, min(value, high)) if type(value) is int else value
                for name, value in contents.items()}
    kind = contents["class"]
    if kind in ("sorted", "integers"):
        return {kind: [int(contents["low"]), int(contents["high"])]}
    return {kind: {"constant": lambda: contents["value"],
                   "ramp": lambda: [contents["start"], contents["step"]],
                   "permutation": lambda: argument["elements"],
                   "blob": lambda: contents["digest"]}[kind]()}


def _bytes_of(argument: Tensor) -> tuple[int, int]:
    """Where the view is in its storage: the first byte, and the one behind its last."""
    size = SIZES[argument["dtype"]]
    return argument["offset"] * size, (argument["offset"] + argument["elements"]) * size


def _groups(tensors: Iterable[Tensor], initial: Fields) -> list[tuple[Any, list[Tensor]]]:
    """(fill, the tensors that share a buffer)"""
    tensors = list(tensors)
    filled = {_place(one): initial[one["name"]] for one in tensors if one["name"] in initial}
    found: dict[str, tuple[Any, list[Tensor]]] = {}
    for one in tensors:
        fill = filled[_place(one)] if _place(one) in filled else fill_of(one)
        is_of_view = isinstance(fill, dict) and next(iter(fill)) in _OF_VIEW
        place = canonical(
            [one["storage"], one["dtype"], fill, *(_place(one) if is_of_view else ())])
        found.setdefault(place, (fill, []))[1].append(one)
    return list(found.values())


def _place(argument: Tensor) -> tuple[int, str, int, int]:
    return argument["storage"], argument["dtype"], argument["offset"], argument["elements"]


def why_refused(launch: Launch) -> str | None:
    """A sentence where tensors overlap that cannot share a buffer."""
    tensors = tensors_of(launch)
    for one in tensors:
        if any(step < 0 for step in one["stride"]):
            return f"argument {one['name']} has a negative stride"
    before: list[Tensor] = []
    for _, own in _groups(tensors, {}):
        for other in before:
            first, behind = _bytes_of(other)
            for one in own:
                start, end = _bytes_of(one)
                if one["storage"] == other["storage"] and start < behind and first < end:
                    return (f"arguments {other['name']} and {one['name']} overlap in memory, "
                            "and are of other types or contents")
        before += own
    return None


def _window(tensors: Sequence[Tensor]) -> tuple[int, int]:
    """(the first element of their storage that the buffer has, the one behind its last). The first
    may be below 0: a storage need not be as aligned as a buffer."""
    first = tensors[0]
    size = SIZES[first["dtype"]]
    starts, ends = zip(*map(_bytes_of, tensors))
    start, end = min(starts), max(ends)
    whole = max(first["storage_bytes"] // size * size, end)
    if whole <= WHOLE_BYTES:
        start, end = 0, whole
    else:
        start = max(0, start - MARGIN_BYTES) // ALIGNMENT_MAX * ALIGNMENT_MAX
        end = min(whole, end + MARGIN_BYTES)
    offset = _bytes_of(first)[0]
    if first["alignment"] != min(offset & -offset or ALIGNMENT_MAX, ALIGNMENT_MAX):
        start -= (first["alignment"] - offset) % ALIGNMENT_MAX
    return start // size, max(end // size, start // size + 1)


def _row(argument: Tensor) -> int:
    """The elements of all extents but the first; 0: it has no rows, or is not dense."""
    shape, row = argument["shape"], 1
    if "float" not in argument["dtype"] or not shape or shape[0] < 2:
        return 0
    for extent, step in zip(reversed(shape[1:]), reversed(argument["stride"][1:])):
        if step != row:
            return 0
        row *= extent
    return row if row * shape[0] == argument["elements"] else 0


def buffers_of(tensors: Sequence[Tensor], initial: Fields, written: set[str],
               has_grids: bool = False) -> dict[str, Json]:
    """What a case states of each. `initial`: fills by the program; `written`: by the compiled code;
    `has_grids`: configs have several, so that outputs may be partial sums of blocks."""
    found = {}
    for fill, own in _groups(tensors, initial):
        start, end = _window(own)
        is_written = any(one["name"] in written for one in own)
        for one in own:
            stated = {
                "elements": max(one["elements"], 1),
                "access": "readwrite" if is_written else "read", "fill": fill
            }
            before = one["offset"] - start if one["elements"] else 0
            after = end - start - before - stated["elements"]
            if one is not own[0]:
                stated["alias"] = own[0]["name"]
            elif after > 0:
                stated["after"] = after
            if has_grids and is_written and len(own) == 1 and _row(one):
                stated["row"] = _row(one)
            found[one["name"]] = {**stated, "before": before} if before else stated
    return {one["name"]: found[one["name"]] for one in tensors}


def padded(outside: tuple[int, int], itemsize: int) -> tuple[int, int]:
    """How many elements to add where one config reads so many outside: others may read further.
    Those before the buffer keep its alignment."""
    least = PADDING_BYTES // itemsize
    return tuple(-(-max(2 * n, least) // least) * least if n else 0
                 for n in outside)  # type: ignore[return-value]


def widen(arguments: Mapping[str, Fields],
          around: Mapping[str, tuple[int, int]]) -> dict[str, Json]:
    """A case's arguments with (before, behind) more elements around the buffers of owners."""
    found = {name: dict(own) for name, own in arguments.items()}
    for name, own in found.items():
        before, after = around.get(own.get("alias", name), (0, 0))
        if before:
            own["before"] = own.get("before", 0) + before
        if after and "alias" not in own:
            own["after"] = own.get("after", 0) + after
    return found
