"""What Triton's interpreter computes for a captured launch, for agents to compare with: a sample of
the grid's programs (sample.py), without a compiler and without a GPU, on the inputs that agents
make, with the program's first config. A process of its own, since Triton asks for TRITON_INTERPRET
when functions are defined:

    python3 -m wavetune._captured.interpret < REQUEST > ANSWER

The answer is a line of JSON {"scale", "around"}, then the blob, or with "reason" in it nothing;
with the status 3: a sentence, why there are no values; with 4: why nobody can launch it. The same
request gives the same values.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from .._canonical import Fields, Json, canonical, digest_bytes
from .._errors import one_line
from .._pack.pool import end_with_parent, run_tasks
from .storages import widen

TIMEOUT_S = 120.0
_REFUSED, _WRONG = 3, 4


class Wrong(str):
    """Why the launch can be made nowhere: memory.WritesOutside."""


@dataclass(frozen=True)
class Expected:
    """`scale`: of the inputs, and `around`: by buffer, (before, behind) elements that programs read
    outside of it, for the case to state. `reason`: why there are no values, and `blob` is empty."""

    blob: bytes
    scale: float
    around: Mapping[str, tuple[int, int]]
    reason: str | None = None


def expected_of(function: Fields, launch: Any, manifest: Fields, case: Fields,
                blob: Callable[[str], str | None], precisions: Sequence[str] = ("ieee", ),
                names: Sequence[str] = ()) -> Expected | str:
    """The values of a variant, or a sentence why there are none. `blob`: where a digest's bytes
    are. `precisions`: that dots may have on the target. `names`: of the space's parameters."""
    fills = [argument.get("fill") for argument in case["arguments"].values()]
    digests = {fill["blob"] for fill in fills if isinstance(fill, dict) and "blob" in fill}
    places = {digest: blob(digest) for digest in digests}
    lost = [digest for digest, place in places.items() if place is None]
    if lost:
        return f"the contents {lost[0]}, which a program reads, are not on this builder"
    request = {
        "function": function, "arguments": launch.arguments,
        "configs": [vars(one) for one in launch.configs], "names": list(names),
        "manifest": manifest["arguments"], "case": case, "blobs": places, "precisions": precisions
    }
    path = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "TRITON_INTERPRET": "1",
                   "PYTHONPATH": os.pathsep.join(filter(None, path)),
                   **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"),
                                   "1")}
    try:
        done = subprocess.run([sys.executable, "-m", "wavetune._captured.interpret"],
                              input=json.dumps(request).encode(), env=environment,
                              capture_output=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"the interpreter took more than {TIMEOUT_S:g} s"
    if done.returncode == 0:
        first, _, data = done.stdout.partition(b"\n")
        stated = json.loads(first)
        stated["around"] = {name: tuple(own) for name, own in stated["around"].items()}
        return Expected(data, **stated)
    if done.returncode in (_REFUSED, _WRONG):
        sentence = one_line(done.stdout.decode(errors="replace"))
        return sentence if done.returncode == _REFUSED else Wrong(sentence)
    return one_line(f"the interpreter's process ended with the status {done.returncode}: "
                    f"{done.stderr.decode(errors='replace')[-200:]}")


def add_values(kernel: Any, variants: list[tuple[Any, Json]], objects: Path,
               blob: Callable[[str], str | None], processes: int,
               precisions: Sequence[str] = ("ieee",)) -> tuple[list[str], dict[int, str]]:
    """Adds to each launch's variant {"expected": DIGEST}, a file of objects, or {"not_interpreted":
    SENTENCE}, and to its case the inputs' scale. Returns (what programs do that they should not, by
    the variant's number why its launch can be made nowhere)."""
    notes: dict[int, str] = {}
    wrong: dict[int, str] = {}

    def done(number: int, found: Expected | str | None, reason: str | None) -> None:
        variant = variants[number][1]
        if isinstance(found, Wrong):
            wrong[number] = found
        elif not isinstance(found, Expected):
            variant["not_interpreted"] = found or reason
        else:
            if found.reason:
                variant["not_interpreted"] = found.reason
            else:
                variant["expected"] = digest_bytes(found.blob)
                (objects / variant["expected"].removeprefix("sha256:")).write_bytes(found.blob)
            if found.scale != 1:
                variant["case"]["scale"] = found.scale
            if found.around:
                notes[number] = f"{canonical(variant['key'])}: it reads outside of " \
                    f"{', '.join(sorted(found.around))}: agents have inputs there, as far as it " \
                    "was seen"
                variant["case"]["arguments"] = widen(variant["case"]["arguments"], found.around)

    def run(number: int) -> Expected | str:
        launch, variant = variants[number]
        return expected_of(kernel.function.document, launch, kernel.manifest, variant["case"], blob,
                           precisions, kernel.configs[0])

    run_tasks([{} for _ in variants], run, processes, 2 * TIMEOUT_S, done)
    return [note for _, note in sorted(notes.items())], wrong


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
    end_with_parent()
    output = os.dup(1)
    os.dup2(2, 1)  # what kernels print
    status = 0
    try:
        import numpy  # noqa: F401
    except ImportError:
        answer, status = \
            b"this builder's Python has no NumPy, which Triton's interpreter needs", _REFUSED
    else:
        from .sample import expected
        try:
            with tempfile.TemporaryDirectory(prefix="wavetune-interpret.") as folder:
                answer = expected(json.load(sys.stdin), Path(folder))
        except Exception as error:  # whatever the kernel or the interpreter raises is the reason
            reason, status = _reason(error)
            answer = reason.encode()
    with os.fdopen(output, "wb") as file:
        file.write(answer)
    sys.exit(status)


if __name__ == "__main__":
    main()
