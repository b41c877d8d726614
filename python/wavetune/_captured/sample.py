"""The programs of a launch's grid that Triton's interpreter executes, and what they wrote, as a
blob (common/builds/expected.h). In the process of interpret.py.

What programs add atomically is no value of an output, but tells the inputs' scale. A kernel that
draws random numbers by block (FlagGems' randn) has other outputs with another config: the other
configs are executed, too, and have values of their own. It is known by multiplying for the upper
half of products, as Philox does, and by two configs that differ in more than DRAWN_SHARE of the
elements that both wrote.

How many programs are executed depends on their work, never on the time they take.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from pathlib import Path
from typing import Any, Iterator, Mapping

import numpy as np

from .._canonical import Fields, Json, canonical
from .._runtime.values import decode
from .calling import defaults_of, plain
from .documents import value_of
from .emulator import ATOMICS, Emulator
from .fills import element_of
from .inputs import Contents
from .memory import Buffer, Memory, NotInterpreted
from .module import make_again
from .scaling import find_scale, is_moderate, largest_sums
from .storages import padded, widen

SEED = 1  # of the inputs
PROGRAMS_MAX, TRIED_MAX = 12, 64
WORK_MAX = 100_000
SIZE_MAX = 1 << 20
WIDENED_MAX = 4
DRAWN_SHARE = 0.01
CONFIGS_MAX = 256
OTHERS_WORK_MAX = 4 * WORK_MAX  # of the other configs together

Grid = tuple[int, int, int]
Written = dict[str, tuple[Any, Any]]  # by buffer: rising indices, values


def programs(grid: Grid) -> Iterator[Grid]:
    """The corners of the grid, then others at random, each once."""
    seen = set()
    for corner in itertools.product(*({0: None, extent - 1: None} for extent in grid)):
        seen.add(corner)
        yield corner
    total, state = math.prod(grid), SEED
    while len(seen) < total:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        x, rest = divmod((state >> 33) % total, grid[1] * grid[2])
        program = (x, *divmod(rest, grid[2]))
        if program not in seen:
            seen.add(program)
            yield program


def _runs(index: Any) -> Any:
    """[start, count] of the runs of rising indices."""
    starts = np.flatnonzero(np.diff(index, prepend=index[:1] - 2) != 1)
    return np.stack([index[starts], np.diff(starts, append=index.size)], axis=1).astype("<i8")


def _thinned(index: Any, values: Any, size: int) -> tuple[Any, Any, Any]:
    """(runs, index, values) of at most `size` bytes: without every other run, or half of each."""
    runs = _runs(index)
    while runs.nbytes + values.nbytes > size:
        number = np.repeat(np.arange(len(runs)), runs[:, 1])
        place = index - runs[number, 0]
        kept = number % 2 == 0 if len(runs) > 64 else place < np.maximum(runs[number, 1] // 2, 1)
        index, values = index[kept], values[kept]
        runs = _runs(index)
    return runs, index, values


def _joined(own: Any) -> tuple[Any, Any]:
    """All indices and values that programs wrote to a buffer."""
    _, index, values = (np.concatenate(parts) for parts in zip(*own))
    return index, values


def _largest(buffer: Buffer, index: Any, values: Any) -> tuple[Any, Any]:
    """The largest float that a program wrote to each element."""
    order = np.lexsort((np.abs(buffer.contents.widened(values)), index))
    last = np.flatnonzero(np.diff(index[order], append=-1))
    return index[order][last], values[order][last]


def _alike(index: Any, values: Any) -> tuple[Any, Any]:
    """Of elements that several programs write, those that all write alike."""
    bits = values.view(f"u{values.itemsize}")
    order = np.lexsort((bits, index))
    index, values, bits = index[order], values[order], bits[order]
    _, first, count = np.unique(index, return_index=True, return_counts=True)
    kept = first[bits[first] == bits[first + count - 1]]
    return index[kept], values[kept]


class _Run:
    """The programs of one request. `numbers`: of buffers, by their names."""

    def __init__(self, request: Fields):
        self.request = request
        fills = [own.get("fill") for own in request["case"]["arguments"].values()]
        self.memory = Memory([], not any(
            isinstance(fill, dict) and set(fill) & {"integers", "sorted", "permutation"}
            for fill in fills))
        self.emulator = Emulator(self.memory, WORK_MAX, request["precisions"])
        self.fill(request["case"]["arguments"])

    def fill(self, case: Fields) -> None:
        self.case, self.numbers = case, {}
        buffers: list[Buffer] = []
        stated = [one for one in self.request["manifest"] if one["name"] in case]
        for i, (name, dtype) in enumerate((one["name"], one["dtype"]) for one in stated):
            own = case[name]
            if "value" in own or "alias" in own:
                continue
            before, after = own.get("before", 0), own.get("after", 0)
            contents = Contents(dtype, own.get("fill", "normal"), i,
                                before + own["elements"] + after, SEED,
                                lambda digest: Path(self.request["blobs"][digest]).read_bytes(),
                                before=before, after=after)
            self.numbers[name] = len(buffers)
            buffers.append(Buffer(name, contents, own["access"] == "readwrite"))
        self.memory.buffers = buffers

    def number(self, name: str) -> int:
        """Of the buffer that an argument points to."""
        return self.numbers[self.case[name].get("alias", name)]

    def contents(self, name: str) -> Contents:
        return self.memory.buffers[self.number(name)].contents

    def _apply_fills(self, fills: Fields) -> None:
        """What the config's hook fills before its launch."""
        for buffer in self.memory.buffers:
            buffer.contents.filled.clear()
        for name, value in fills.items():
            own, contents = self.case[name], self.contents(name)
            element = np.frombuffer(element_of(contents.dtype, decode(value)), contents.stored)[0]
            start = own.get("before", 0)
            contents.filled.append((start, start + own["elements"], element))

    def arguments(self, config: Fields, fn: Any, folder: Path) -> Json:
        from triton.runtime.jit import JITFunction
        self._apply_fills(config["fills"])
        jit = JITFunction(fn)
        constexprs = {parameter.name for parameter in jit.params if parameter.is_constexpr}
        given = defaults_of(jit)
        for argument in self.request["arguments"]:
            name, kind = argument["name"], argument["kind"]
            if kind in ("tensor", "descriptor"):
                given[name] = self.emulator.pointer(self.number(name),
                                                    argument.get("base", argument)["dtype"],
                                                    self.case[name].get("before", 0))
            elif kind == "function":
                given[name] = make_again(argument["document"], Path(tempfile.mkdtemp(dir=folder)))
            else:
                given[name] = value_of(argument)
            if kind == "descriptor":
                given[name] = self.emulator.descriptor(
                    argument, given[name],
                    config["block_shapes"].get(name, argument["block_shape"]))
        given.update(config["config"])
        given.update({name: decode(value) for name, value in config["constexprs"].items()})
        return {name: plain(value) if name in constexprs or plain(value) is not value else
                self.emulator.argument(value)
                for name, value in given.items() if name in jit.arg_names}

    def _take(self, programs: int) -> list[tuple[Any, Any, Any]]:
        """What a program did with each buffer: (read, written indices, values). To an element of a
        sum add as many programs as they all add elements, if each adds as many as this one."""
        taken = []
        for buffer in self.memory.buffers:
            read, index, values = buffer.take()
            if buffer.is_sum:
                values = largest_sums(values, -(-programs * index.size // buffer.contents.own))
            taken.append((read, index, values))
        return taken

    def _floats(self, written: Written) -> Written:
        return {name: (index, self.contents(name).widened(values))
                for name, (index, values) in written.items() if self.contents(name).is_float}

    def draws_others(self, first: Written, second: Written) -> bool:
        """Whether two configs wrote other values to the same elements, by more than rounding."""
        for name, (index, values) in first.items():
            others, found = second.get(name, (index[:0], values[:0]))
            _, here, there = np.intersect1d(index, others, assume_unique=True, return_indices=True)
            a, b = (np.nan_to_num(self.contents(name).widened(one))
                    for one in (values[here], found[there]))
            far = np.abs(a - b) > 0.05 * (np.abs(a) + np.sqrt(np.mean(a * a)) if a.size else 0)
            if far.sum() > DRAWN_SHARE * far.size:
                return True
        return False

    def execute(self, fn: Any, arguments: Json, grid: Grid, scale: float, is_trial: bool
                ) -> tuple[list[Any], Written, bool]:
        """(programs that wrote, what they wrote by buffer, whether it is moderate), with normal
        deviates of that scale. A trial ends with the first program whose values are not moderate.
        With atomics, what they wrote is for the scale alone."""
        self.emulator.work = 0
        for buffer in self.memory.buffers:
            buffer.contents = buffer.contents.scaled(scale)
            buffer.take()  # what a program left that took too long
        done: list[Any] = []
        found: list[list[tuple[Any, Any, Any]]] = []
        is_good = True
        for program in itertools.islice(programs(grid), TRIED_MAX):
            try:
                self.emulator.run(fn, arguments, grid, program)
            except NotInterpreted:
                if done and self.emulator.work > self.emulator.work_max:  # those before it suffice
                    break
                raise
            taken = self._take(math.prod(grid))
            if any(index.size for _, index, _ in taken):
                done.append(list(program))
                found.append(taken)
            is_good = is_good and all(
                is_moderate(buffer.contents.widened(values))
                for buffer, (_, _, values) in zip(self.memory.buffers, taken)
                if buffer.contents.is_float)
            if len(done) == PROGRAMS_MAX or (is_trial and not is_good):
                break
        if not done:
            raise NotInterpreted("none of the programs that were executed writes anything")
        by_buffer = list(zip(self.memory.buffers, zip(*found)))
        if self.emulator.has_atomics:
            return done, {buffer.name: _largest(buffer, *_joined(own))
                          for buffer, own in by_buffer if buffer.contents.is_float}, is_good

        written = {}
        for buffer, own in by_buffer:
            for i, (read, _, _) in enumerate(own):
                others = [index for k, (_, index, _) in enumerate(own) if k != i]
                if others and np.isin(read, np.concatenate(others)).any():
                    raise NotInterpreted("a program reads what another one writes to "
                                         f"{buffer.name}")
            index, values = _alike(*_joined(own))
            if index.size:
                written[buffer.name] = index, values
        if not written:
            raise NotInterpreted("programs write to the same elements, and not the same")
        return done, written, is_good


def _others(run: _Run, fn: Any, folder: Path, scale: float, first: Written
            ) -> list[tuple[Fields, Written]]:
    """The other configs with what they write, where one draws other numbers; else none."""
    others = run.request["configs"][1:CONFIGS_MAX]
    run.emulator.work_max = min(WORK_MAX, OTHERS_WORK_MAX // max(len(others), 1))
    found = []
    for config in others:
        try:
            arguments = run.arguments(config, fn, folder)
            found.append((config, run.execute(fn, arguments, tuple(config["grid"]), scale,
                                              False)[1]))
        except Exception:  # whatever a config ends with: it has no values
            continue
    return found if any(run.draws_others(first, written) for _, written in found) else []


def expected(request: Fields, folder: Path) -> bytes:
    """What interpret.py answers with the status 0."""
    run = _Run(request)
    fn, own = make_again(request["function"], folder).fn, request["configs"][0]
    around: dict[str, tuple[int, int]] = {}

    def execute(scale: float, is_trial: bool) -> tuple[Any, Written, bool]:
        for _ in range(WIDENED_MAX):
            arguments = run.arguments(own, fn, folder)
            done, written, is_good = run.execute(fn, arguments, tuple(own["grid"]), scale, is_trial)
            outside = run.memory.outside()
            if not outside:
                return (done, written), run._floats(written), is_good
            for name, more in outside.items():
                before, after = around.get(name, (0, 0))
                further = padded(more, run.contents(name).itemsize)
                around[name] = before + further[0], after + further[1]
            run.fill(widen(request["case"]["arguments"], around))
        raise NotInterpreted(f"a program reads outside of {', '.join(sorted(around))}")

    scale, (done, written) = find_scale(execute)
    terms: Json = {"scale": scale, "around": around}
    if run.emulator.has_atomics:
        return f"{canonical({**terms, 'reason': ATOMICS})}\n".encode()
    others = _others(run, fn, folder, scale, written) if run.emulator.has_drawn else []
    configs: list[Mapping[str, Any]] = []
    parts = []
    for config, values in [(own, written), *others]:
        size = (SIZE_MAX - (1 << 14)) // (1 + len(others)) // len(values) - (1 << 9) * bool(others)
        buffers = []
        for name, (index, elements) in sorted(values.items()):
            runs, _, kept = _thinned(index, elements, size)
            buffers.append({"argument": name, "dtype": run.contents(name).dtype,
                            "runs": len(runs), "values": kept.size})
            parts += [runs.tobytes(), kept.tobytes()]
        configs.append({"config": {name: config["config"].get(name) for name in request["names"]},
                        "buffers": buffers})
    head = {"version": 2 if others else 1, "seed": SEED, "grid": own["grid"], "programs": done,
            **({"configs": configs} if others else {"buffers": configs[0]["buffers"]})}
    return f"{canonical(terms)}\n{canonical(head)}\n".encode() + b"".join(parts)
