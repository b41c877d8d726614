"""What Triton's interpreter computes for a captured launch, for agents to compare with
(common/builds/expected.h): a sample of the grid's programs, without a compiler and without a GPU,
on
the inputs that agents make, with the program's first config. A process of its own, since Triton
asks
for TRITON_INTERPRET when functions are defined:

    python3 -m wavetune._captured.interpret < REQUEST > ANSWER

The answer is a line of JSON {"scale", "around"}, then the blob, or with "reason" in it nothing;
with the status 3: a sentence, why there are no values; with 4: why nobody can launch it.

What programs add atomically is no value of an output, but tells the inputs' scale. A kernel that
draws random numbers by block (FlagGems' randn) has other outputs with another config: the other
configs are executed, too, and have values of their own. It is known by multiplying for the upper
half of products, as Philox does, and by two configs that differ in more than DRAWN_SHARE of the
elements that both wrote.

The same request gives the same values: how many programs are executed depends on their work, never
on the time they take.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence

from .._canonical import Fields, Json, canonical, digest_bytes
from .._errors import one_line
from .._pack.pool import run_tasks
from .storages import padded, widen

SEED = 1  # of the inputs
PROGRAMS_MAX, TRIED_MAX = 12, 64
WORK_MAX = 100_000
TIMEOUT_S = 120.0
SIZE_MAX = 1 << 20
WIDENED_MAX = 4
DRAWN_SHARE = 0.01
CONFIGS_MAX = 256
OTHERS_WORK_MAX = 4 * WORK_MAX  # of the other configs together
_REFUSED, _WRONG = 3, 4


class Wrong(str):
    """Why the launch can be made nowhere: memory.WritesOutside."""


@dataclass(frozen=True)
class Expected:
    """`scale`: of the inputs, and `around`: by buffer, (before, behind) elements that programs read
    outside of it, for the case to state. `reason`: why there are no values; then `blob` is
    empty."""

    blob: bytes
    scale: float
    around: Mapping[str, tuple[int, int]]
    reason: str | None


def expected_of(
    function: Fields, launch: Any, manifest: Fields, case: Fields,
    blob: Callable[[str],
                   str | None], precisions: Sequence[str] = ("ieee", ), names: Sequence[str] = ()
) -> Expected | str:
    """The values of a variant, or a sentence why there are none. `blob`: where a digest's bytes
    are.
    `precisions`: that dots may have on the target. `names`: of the space's parameters."""
    fills = [argument.get("fill") for argument in case["arguments"].values()]
    digests = {fill["blob"] for fill in fills if isinstance(fill, dict) and "blob" in fill}
    places = {digest: blob(digest) for digest in digests}
    lost = [digest for digest, place in places.items() if place is None]
    if lost:
        return f"the contents {lost[0]}, which a program reads, are not on this builder"
    configs = [{
        "config": dict(one.config), "constexprs": dict(one.constexprs), "grid": list(one.grid),
        "fills": dict(one.fills), "block_shapes": dict(one.block_shapes)
    } for one in launch.configs]
    request = {
        "function": function, "arguments": list(launch.arguments), "configs": configs,
        "names": list(names), "manifest": list(manifest["arguments"]), "case": case,
        "blobs": places, "precisions": list(precisions)
    }
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(
        [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]),
        **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")}
    try:
        done = subprocess.run([sys.executable, "-m", "wavetune._captured.interpret"],
                              input=json.dumps(request).encode(), env=environment,
                              capture_output=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"the interpreter took more than {TIMEOUT_S:g} s"
    if done.returncode == 0:
        first, _, data = done.stdout.partition(b"\n")
        stated = json.loads(first)
        around = {name: (before, after) for name, (before, after) in stated["around"].items()}
        return Expected(data, float(stated["scale"]), around, stated.get("reason"))
    if done.returncode in (_REFUSED, _WRONG):
        return (str if done.returncode == _REFUSED else Wrong)(one_line(
            done.stdout.decode(errors="replace")))
    return one_line(f"the interpreter's process ended with the status {done.returncode}: "
                    f"{done.stderr.decode(errors='replace')[-200:]}")


def add_values(
    kernel: Any,
    variants: list[tuple[Any, Json]],
    objects: Path,
    blob: Callable[[str], str | None],
    processes: int,
    precisions: Sequence[str] = ("ieee",),
) -> tuple[list[str], dict[int, str]]:
    """Adds to each launch's variant {"expected": DIGEST}, a file of objects, or {"not_interpreted":
    SENTENCE}, and to its case the inputs' scale. Returns (what programs do that they should not, by
    the
    variant's number why its launch can be made nowhere)."""
    notes: dict[int, str] = {}
    wrong: dict[int, str] = {}

    def done(number: int, found: Expected | str | None, reason: str | None) -> None:
        variant = variants[number][1]
        if isinstance(found, Expected):
            if found.reason:
                variant["not_interpreted"] = found.reason
            else:
                variant["expected"] = digest_bytes(found.blob)
                (objects / variant["expected"].removeprefix("sha256:")).write_bytes(found.blob)
            if found.scale != 1:
                variant["case"]["scale"] = found.scale
            if found.around:
                notes[number] = f"it reads outside of {', '.join(sorted(found.around))}: agents " \
                    "have inputs there, as far as it was seen"
                variant["case"]["arguments"] = widen(variant["case"]["arguments"], found.around)
        elif isinstance(found, Wrong):
            wrong[number] = found
        else:
            variant["not_interpreted"] = found or reason or "the interpreter gave no answer"

    run_tasks(
        [{} for _ in variants],
        lambda number: expected_of(
            kernel.function.document,
            variants[number][0],
            kernel.manifest,
            variants[number][1]["case"],
            blob,
            precisions,
            kernel.configs[0],
        ),
        processes,
        2 * TIMEOUT_S,
        done,
    )
    return [
        f"{canonical(variants[number][1]['key'])}: {note}" for number, note in sorted(notes.items())
    ], wrong


def programs(grid: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    """The corners of the grid, then others at random, each once."""
    seen = set()
    for corner in itertools.product(*({0: None, extent - 1: None} for extent in grid)):
        seen.add(corner)
        yield corner
    total, state = grid[0] * grid[1] * grid[2], SEED
    while len(seen) < total:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        x, rest = divmod((state >> 33) % total, grid[1] * grid[2])
        program = (x, *divmod(rest, grid[2]))
        if program not in seen:
            seen.add(program)
            yield program


def _runs(index: Any) -> Any:
    """[start, count] of the runs of rising indices."""
    import numpy as np
    starts = np.flatnonzero(np.diff(index, prepend=index[:1] - 2) != 1)
    return np.stack([index[starts], np.diff(starts, append=index.size)], axis=1).astype("<i8")


def _thinned(index: Any, values: Any, size: int) -> tuple[Any, Any, Any]:
    """(runs, index, values) of at most `size` bytes: without every other run, or half of each."""
    import numpy as np
    runs = _runs(index)
    while runs.nbytes + values.nbytes > size:
        number = np.repeat(np.arange(len(runs)), runs[:, 1])
        place = index - runs[number, 0]
        kept = number % 2 == 0 if len(runs) > 64 else place < np.maximum(runs[number, 1] // 2, 1)
        index, values = index[kept], values[kept]
        runs = _runs(index)
    return runs, index, values


class _Run:
    """The programs of one request."""

    def __init__(self, request: Fields):
        from .emulator import Emulator
        from .memory import Memory
        fills = [own.get("fill") for own in request["case"]["arguments"].values()]
        self.memory = Memory([], not any(
            isinstance(fill, dict) and set(fill) & {"integers", "sorted", "permutation"}
            for fill in fills))
        self.emulator = Emulator(self.memory, WORK_MAX, request["precisions"])
        self.fill(request, request["case"]["arguments"])

    def fill(self, request: Fields, case: Fields) -> None:
        from .inputs import Contents
        from .memory import Buffer
        self.case, self.buffers = case, {}
        buffers: list[Buffer] = []
        for i, stated in enumerate(one for one in request["manifest"] if one["name"] in self.case):
            own = self.case[stated["name"]]
            if "value" in own or "alias" in own:
                continue
            before, after = own.get("before", 0), own.get("after", 0)
            contents = Contents(stated["dtype"], own.get("fill", "normal"), i,
                                before + own["elements"] + after, SEED,
                                lambda digest: Path(request["blobs"][digest]).read_bytes(),
                                before=before, after=after)
            self.buffers[stated["name"]] = len(buffers)
            buffers.append(Buffer(stated["name"], contents, own["access"] == "readwrite"))
        self.memory.buffers = buffers

    def _apply_fills(self, fills: Fields) -> None:
        """What the config's hook fills before its launch."""
        import numpy as np

        from .._runtime.values import decode
        from .fills import element_of
        from .inputs import STORED
        for buffer in self.memory.buffers:
            buffer.contents.filled.clear()
        for name, value in fills.items():
            own = self.case[name]
            contents = self.memory.buffers[self.buffers[own.get("alias", name)]].contents
            element = np.frombuffer(element_of(contents.dtype, decode(value)),
                                    STORED[contents.dtype])[0]
            contents.filled.append((own.get("before",
                                            0), own.get("before", 0) + own["elements"], element))

    def arguments(self, request: Fields, config: Fields, fn: Any,
                  folder: Path) -> Json:
        from triton.runtime.jit import JITFunction

        from .._runtime.values import decode
        from .module import make_again
        self._apply_fills(config["fills"])
        jit = JITFunction(fn)
        constexprs = {parameter.name for parameter in jit.params if parameter.is_constexpr}
        given = {
            parameter.name: parameter.default for parameter in jit.params if parameter.has_default
        }
        for argument in request["arguments"]:
            name, kind = argument["name"], argument["kind"]
            if kind == "tensor":
                owner = self.case[name].get("alias", name)
                given[name] = self.emulator.pointer(self.buffers[owner], argument["dtype"],
                                                    self.case[name].get("before", 0))
            elif kind == "descriptor":
                owner = self.case[name].get("alias", name)
                given[name] = self.emulator.descriptor(
                    argument,
                    self.emulator.pointer(self.buffers[owner], argument["base"]["dtype"],
                                          self.case[name].get("before", 0)),
                    config["block_shapes"].get(name, argument["block_shape"]))
            elif kind == "function":
                given[name] = make_again(argument["document"], Path(tempfile.mkdtemp(dir=folder)))
            elif kind != "none":
                given[name] = decode({"dtype": argument["value"]} if kind ==
                                     "dtype" else argument["value"])
            else:
                given[name] = None
        given.update(config["config"])
        given.update({name: decode(value) for name, value in config["constexprs"].items()})
        own = {name: value for name, value in given.items() if name in jit.arg_names}
        return {
            name: getattr(value, "value", value) if type(value).__name__ == "constexpr" else
            value if name in constexprs else self.emulator.argument(value)
            for name, value in own.items()
        }

    def _take(self, programs: int) -> list[tuple[Any, Any, Any]]:
        """What a program did with each buffer; to a sum, as if all added what this one did."""
        from .scaling import largest_sums
        taken = []
        for buffer in self.memory.buffers:
            read, index, values = buffer.take()
            if buffer.is_sum:
                values = largest_sums(values, -(-programs * index.size // buffer.contents.own))
            taken.append((read, index, values))
        return taken

    def _largest(self, found: list[list[tuple[Any, Any, Any]]]) -> dict[str, tuple[Any, Any]]:
        """By buffer, the largest float that a program wrote to each element."""
        import numpy as np
        largest = {}
        for buffer, own in zip(self.memory.buffers, zip(*found)):
            if buffer.contents.is_float:
                index, values = (np.concatenate([one[part] for one in own]) for part in (1, 2))
                order = np.lexsort((np.abs(buffer.contents.widened(values)), index))
                last = np.flatnonzero(np.diff(index[order], append=-1))
                largest[buffer.name] = index[order][last], values[order][last]
        return largest

    def _is_moderate(self, taken: list[tuple[Any, Any, Any]]) -> bool:
        from .scaling import is_moderate
        return all(
            is_moderate(buffer.contents.widened(values))
            for buffer, (_, _, values) in zip(self.memory.buffers, taken)
            if buffer.contents.is_float)

    def draws_others(self, first: Mapping[str, tuple[Any, Any]],
                     second: Mapping[str, tuple[Any, Any]]) -> bool:
        """Whether two configs wrote other values to the same elements, by more than rounding."""
        import numpy as np
        for name, (index, values) in first.items():
            others, found = second.get(name, (index[:0], values[:0]))
            _, here, there = np.intersect1d(index, others, assume_unique=True, return_indices=True)
            widened = self.memory.buffers[self.buffers[name]].contents.widened
            a, b = (np.nan_to_num(widened(one)) for one in (values[here], found[there]))
            far = np.abs(a - b) > 0.05 * (np.abs(a) + np.sqrt(np.mean(a * a)) if a.size else 0)
            if far.sum() > DRAWN_SHARE * far.size:
                return True
        return False

    def execute(self, fn: Any, arguments: Json, grid: Sequence[int], scale: float,
                is_trial: bool) -> tuple[list[Any], dict[str, tuple[Any, Any]], bool]:
        """(programs that wrote, what they wrote by buffer, whether it is moderate), with normal
        deviates of
        that scale. A trial ends with the first program whose values are not moderate. With atomics,
        what
        they wrote is for the scale alone."""
        import numpy as np

        from .memory import NotInterpreted
        self.emulator.work = 0
        for buffer in self.memory.buffers:
            buffer.contents = buffer.contents.scaled(scale)
            buffer.take()  # what a program left that took too long
        done: list[Any] = []
        found: list[list[tuple[Any, Any, Any]]] = []
        is_good = True
        for program in itertools.islice(programs(tuple(grid)), TRIED_MAX):  # type: ignore[arg-type]
            try:
                self.emulator.run(fn, arguments, tuple(grid), program)  # type: ignore[arg-type]
            except NotInterpreted:
                if done and self.emulator.work > self.emulator.work_max:  # those before it suffice
                    break
                raise
            taken = self._take(math.prod(grid))
            if any(index.size for _, index, _ in taken):
                done.append(list(program))
                found.append(taken)
            is_good = is_good and self._is_moderate(taken)
            if len(done) == PROGRAMS_MAX or (is_trial and not is_good):
                break
        if not done:
            raise NotInterpreted("none of the programs that were executed writes anything")
        if self.emulator.has_atomics:
            return done, self._largest(found), is_good

        written = {}
        for number, buffer in enumerate(self.memory.buffers):
            own = [taken[number] for taken in found]
            for i, (read, _, _) in enumerate(own):
                others = [index for k, (_, index, _) in enumerate(own) if k != i]
                if others and np.isin(read, np.concatenate(others)).any():
                    raise NotInterpreted("a program reads what another one writes to "
                                         f"{buffer.name}")
            index, values = (np.concatenate([one[part] for one in own]) for part in (1, 2))
            bits = values.view(f"u{values.itemsize}")
            order = np.lexsort((bits, index))
            index, values, bits = index[order], values[order], bits[order]
            # Of elements that several programs write, those that all write alike.
            _, first, count = np.unique(index, return_index=True, return_counts=True)
            is_alike = bits[first] == bits[first + count - 1]
            if is_alike.any():
                written[buffer.name] = index[first][is_alike], values[first][is_alike]
        if not written:
            raise NotInterpreted("programs write to the same elements, and not the same")
        return done, written, is_good


def _others(
    run: _Run, request: Fields, fn: Any, folder: Path, scale: float,
    first: Mapping[str, tuple[Any,
                              Any]]) -> list[tuple[Fields, dict[str, tuple[Any, Any]]]]:
    """The other configs with what they write, where one draws other numbers; else none."""
    others = request["configs"][1:CONFIGS_MAX]
    run.emulator.work_max = min(WORK_MAX, OTHERS_WORK_MAX // max(len(others), 1))
    found = []
    for config in others:
        try:
            arguments = run.arguments(request, config, fn, folder)
            found.append((config, run.execute(fn, arguments, config["grid"], scale, False)[1]))
        except Exception:  # whatever a config ends with: it has no values
            continue
    return found if any(run.draws_others(first, written) for _, written in found) else []


def _expected(request: Fields, folder: Path) -> bytes:
    run = _Run(request)
    from .emulator import ATOMICS
    from .memory import NotInterpreted
    from .module import make_again
    from .scaling import find_scale
    function = make_again(request["function"], folder)
    own = request["configs"][0]
    around: dict[str, tuple[int, int]] = {}

    def execute(scale: float, is_trial: bool) -> tuple[Any, dict[str, tuple[Any, Any]], bool]:
        for _ in range(WIDENED_MAX):
            arguments = run.arguments(request, own, function.fn, folder)
            done, written, is_good = run.execute(function.fn, arguments, own["grid"], scale,
                                                 is_trial)
            outside = run.memory.outside()
            if not outside:
                break
            for name, more in outside.items():
                sizes = padded(more, run.memory.buffers[run.buffers[name]].contents.itemsize)
                before, after = around.get(name, (0, 0))
                around[name] = before + sizes[0], after + sizes[1]
            run.fill(request, widen(request["case"]["arguments"], around))
        else:
            raise NotInterpreted(f"a program reads outside of {', '.join(sorted(around))}")
        contents = {buffer.name: buffer.contents for buffer in run.memory.buffers}
        floats = {
            name: (index, contents[name].widened(values))
            for name, (index, values) in written.items() if contents[name].is_float
        }
        return (done, written), floats, is_good

    scale, (done, written) = find_scale(execute)
    terms: Json = {"scale": scale, "around": around}
    if run.emulator.has_atomics:
        return f"{canonical({**terms, 'reason': ATOMICS})}\n".encode()
    head: Json = {"version": 1, "seed": SEED, "grid": own["grid"], "programs": done}
    others = _others(run, request, function.fn, folder, scale,
                     written) if run.emulator.has_drawn else []
    stated, parts = [], []
    for config, values in [(own, written), *others]:
        names = sorted(values)
        size = (SIZE_MAX - (1 << 14)) // (1 + len(others)) // len(names) - (1 << 9) * bool(others)
        stated.append({
            "config": {name: config["config"].get(name) for name in request["names"]},
            "buffers": []
        })
        for name in names:
            runs, _, own_values = _thinned(*values[name], size)
            stated[-1]["buffers"].append({
                "argument": name, "dtype": run.memory.buffers[run.buffers[name]].contents.dtype,
                "runs": len(runs), "values": own_values.size
            })
            parts += [runs.tobytes(), own_values.tobytes()]
    head.update({"version": 2, "configs": stated} if others else {"buffers": stated[0]["buffers"]})
    return f"{canonical(terms)}\n{canonical(head)}\n".encode() + b"".join(parts)


def _reason(error: BaseException) -> tuple[str, int]:
    """(why the interpretation ended, the status), under what Triton makes of it."""
    from .memory import NotInterpreted, WritesOutside
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, NotInterpreted):
            return str(found), _WRONG if isinstance(found, WritesOutside) else _REFUSED
        found = found.__cause__
    return f"the interpreter cannot execute it: {one_line(error)}", _REFUSED


def main() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # with the builder (PR_SET_PDEATHSIG)
    output = os.dup(1)
    os.dup2(2, 1)  # what kernels print
    status = 0
    try:
        import numpy  # noqa: F401
    except ImportError:
        answer, status = \
            b"this builder's Python has no NumPy, which Triton's interpreter needs", _REFUSED
    else:
        try:
            with tempfile.TemporaryDirectory(prefix="wavetune-interpret.") as folder:
                answer = _expected(json.load(sys.stdin), Path(folder))
        except Exception as error:  # whatever the kernel or the interpreter raises is the reason
            reason, status = _reason(error)
            answer = reason.encode()
    with os.fdopen(output, "wb") as file:
        file.write(answer)
    sys.exit(status)


if __name__ == "__main__":
    main()
