"""Builds captured functions: each a kernel folder with a build, whose variants are the captured
keys (docs/builds.md): planned (plan.py), compiled, and compared with the plan (check.py).

    OUT/NAME/kernel.json space.json kernel.py build/     one folder for each kernel
    OUT/report.json                                      what was built and refused, and why

Equal captures and toolchain give equal bytes.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Mapping

from .._canonical import Fields, Json, canonical
from .._errors import PackError, one_line
from .._pack.artifacts import installed_key
from .._pack.build import SIZE_MAX
from .._pack.compiling import compile_task, store_result
from .._pack.importing import pretty
from .._pack.pool import run_tasks
from .access import is_rounded, written_arguments
from .calling import signature_of, task_of
from .confined import Terms, build_confined
from .descriptors import arguments_of, kind_of
from .documents import Config, Function, Launch, read_folder
from .fills import fills_of
from .interpret import add_values
from .kernel import (
    PRUNED, CapturedKernel, Refused, case_of, left_out, space_of, whole, why_not_filled,
    why_refused)
from .plan import Task, Toolchain, files_of, head_of, kernels_in, refusal, tasks_of
from .steering import steering_arguments


ALSO_MAX = 16  # of a variant (BUILD_ALSO_MAX)


def compile_one(launch: Launch, config: Config, may_spill: bool, jit: Any, toolchain: Toolchain,
                objects: Path) -> Json:
    """An object's entry in the build with what the variant states, or {"error"}."""
    try:
        call = task_of(jit, launch, config, may_spill)
        compiled, options = compile_task(call, jit, toolchain.target, toolchain.backend)
        found = store_result(compiled, options, toolchain.target, toolchain.version, objects,
                             has_descriptors=True)
        signature, constants = signature_of(compiled.src)
        ttir = str(compiled.asm["ttir"])
        written = written_arguments(ttir)
        names = [name for name in jit.arg_names if name in signature]
        passed = arguments_of(launch, names, getattr(compiled.metadata, "tensordesc_meta", None),
                              toolchain.target.backend)
        counts = passed[1] if passed else [1] * len(names)
        if sum(counts) != len(written):
            raise PackError(f"Triton passes {len(written)} arguments, and the signature has "
                            f"{sum(counts)}")
        firsts = [sum(counts[:i]) for i in range(len(names))]
        steering = steering_arguments(ttir)
        return {
            **found,
            "signature": signature,
            "constexprs": constants,
            "rounded": is_rounded(ttir),
            **({"arguments": passed[0]} if passed else {}),
            "written": [name for name, place in zip(names, firsts) if written[place]],
            "steering": [name for name, place in zip(names, firsts) if steering[place]],
        }
    except KeyboardInterrupt:
        raise
    except PackError as error:
        return {"error": one_line(str(error))}
    except BaseException as error:  # whatever a compiler raises belongs to its config
        return {"error": one_line(error)}


def _variant(
    kernel: CapturedKernel, launch: Launch, results: list[Json]
) -> Json:
    """The launch's variant; its own signature is that of the first config that compiles."""
    first = next((one for one in results if "digest" in one), results[0])
    if "error" in first:
        raise Refused(f"none of the program's configs compiles; the first: {first['error']}")
    names = {argument["name"] for argument in kernel.manifest["arguments"]}
    if not set(first["signature"]) <= names:
        unknown = sorted(set(first["signature"]) - names)
        raise Refused(f"the compiled code is passed {', '.join(unknown)}, which the captured "
                      "arguments do not have")
    why = why_not_filled(launch,
                         {name for result in results for name in result.get("steering", ())})
    if why is not None:
        raise Refused(why)
    objects, failed = [], []
    written: set[str] = set()
    for one, result in zip(launch.configs, results):
        config = dict(whole(kernel, one))
        if "digest" in result and kind_of(result["signature"]) == kind_of(first["signature"]):
            filled = fills_of(launch, one)
            written |= {*result["written"], *(name for name, _, _ in filled)}
            objects.append({
                "config": config, "digest": result["digest"], "metadata": result["metadata"],
                "grid": list(one.grid), **({"fills": filled} if filled else {}),
                **({"arguments": result["arguments"]} if "arguments" in result else {})
            })
        else:
            why = result.get("error", "it is passed other arguments than the program's first "
                                      "config")
            failed.append({"config": config, "error": why})
    failed += [{"config": dict(config), "error": PRUNED}
               for config in left_out(kernel, launch)]
    stated = {
        name: value for name, value in first["constexprs"].items()
        if name in names or name not in launch.configs[0].config
    }
    variant = {
        "key": dict(launch.key), "signature": first["signature"], "constexprs": stated,
        "case": case_of(kernel, launch, written,
                        any(result.get("rounded") for result in results)), "objects": objects
    }
    return {**variant, "failed": failed} if failed else variant


def _code_of(result: Fields) -> Any:
    """What tells one code from another, as Triton looks it up."""
    return (result["metadata"].get("cache") or {}).get("folder", result["digest"])


def _also(
    kernel: CapturedKernel, first: Launch, known: set[Any],
    results: Mapping[str, list[tuple[Config, Json]]]
) -> tuple[list[Json], list[Json]]:
    """(a variant's "also", what was refused). `known`: code that the variant has; it grows."""
    found, refused = [], []
    for launch in kernel.also.get(first.path, ()):
        made = [(one, result) for one, result in results[launch.path] if "digest" in result]
        if not made:
            why = next(
                (result["error"] for _, result in results[launch.path]),
                "it has no config of the key's first launch",
            )
            refused.append(refusal(kernel.function, launch, f"its code cannot be made: {why}"))
            continue
        new = [(one, result) for one, result in made if _code_of(result) not in known]
        known.update(_code_of(result) for _, result in new)
        if new and len(found) < ALSO_MAX:
            found.append({
                "signature": new[0][1]["signature"], "objects": [{
                    "config": dict(whole(kernel, one)), "digest": result["digest"],
                    "metadata": result["metadata"]
                } for one, result in new]
            })
        elif new:
            refused.append(
                refusal(
                    kernel.function,
                    launch,
                    f"a build has at most {ALSO_MAX} further specialisations of a key",
                )
            )
    return found, refused


class Compiling:
    """How the configs of a kernel are compiled, and its values computed: here, by some processes.
    `blob`: where the contents with a digest are, if they are here; `step`: called with how many
    configs are compiled, and of how many."""

    def __init__(self, processes: int, timeout_s: float,
                 blob: Callable[[str], str | None] = lambda digest: None,
                 step: Callable[[int, int], None] = lambda done, total: None):
        self.processes, self.timeout_s, self.blob, self.step = processes, timeout_s, blob, step

    def results(self, tasks: list[Task], jit: Any, toolchain: Toolchain,
                objects: Path) -> dict[int, Json]:
        """By the number of the task; files are in `objects`."""
        results: dict[int, Json] = {}

        def done(number: int, result: Any, reason: str | None) -> None:
            results[number] = result if reason is None else {"error": reason}
            self.step(len(results), len(tasks))

        def compile_task_of(number: int) -> Json:
            task = tasks[number]
            return compile_one(task.launch, task.config, task.is_default, jit, toolchain, objects)

        installed_key()  # read once, before the workers are forked
        run_tasks([task.launch.variables for task in tasks], compile_task_of, self.processes,
                  self.timeout_s, done)
        return results

    def values(self, kernel: CapturedKernel, variants: list[tuple[Launch, Json]],
               objects: Path, toolchain: Toolchain) -> tuple[list[str], dict[int, str]]:
        """Adds to variants what the interpreter finds; returns (what their user should know, why a
        variant is wrong)."""
        precisions = getattr(toolchain.backend.parse_options({}), "allowed_dot_input_precisions",
                             ("ieee", ))
        return add_values(kernel, variants, objects, self.blob, self.processes, precisions)


def build_kernel(kernel: CapturedKernel, jit: Any, toolchain: Toolchain, folder: Path,
                 compiling: Compiling) -> tuple[Json, list[Json], list[str]]:
    """Compiles everything into folder/objects; returns the build, what was refused, and what its
    user should know."""
    objects = folder / "objects"
    objects.mkdir(parents=True)
    tasks, n_first = tasks_of(kernel)
    results = compiling.results(tasks, jit, toolchain, objects)

    variants: list[tuple[Launch, Json]] = []
    refused = []
    further: dict[str, list[tuple[Config, Json]]] = {
        one.path: [] for own in kernel.also.values() for one in own
    }
    for number in range(n_first, len(tasks)):
        further[tasks[number].launch.path].append((tasks[number].config, results[number]))
    numbers = iter(range(n_first))
    for launch in kernel.launches:
        own = [results[next(numbers)] for _ in launch.configs]
        try:
            variant = _variant(kernel, launch, own)
        except Refused as error:
            refused += [
                refusal(kernel.function, one, str(error))
                for one in (launch, *kernel.also.get(launch.path, ()))
            ]
            continue
        also, more = _also(kernel, launch,
                           {_code_of(result) for result in own if "digest" in result}, further)
        variants.append((launch, {**variant, "also": also} if also else variant))
        refused += more
    if not variants:
        raise Refused(str(refused[0]["why"]))
    notes, wrong = compiling.values(kernel, variants, objects, toolchain)
    refused += [refusal(kernel.function, one, why) for number, why in sorted(wrong.items())
                for one in (variants[number][0], *kernel.also.get(variants[number][0].path, ()))]
    variants = [one for number, one in enumerate(variants) if number not in wrong]
    if not variants:
        raise Refused(wrong[0])
    build = {**head_of(kernel, jit, toolchain), "variants": [variant for _, variant in variants]}
    return build, refused, notes


def _write(kernel: CapturedKernel, space: Json, build: Json,
           made: Path) -> None:
    for name, data in files_of(kernel, space).items():
        (made / name).write_bytes(data)
    text = canonical(build)
    if len(text.encode()) > SIZE_MAX:
        raise Refused(f"build.json would have {len(text.encode())} bytes, a server takes "
                      f"{SIZE_MAX}")
    (made / "build" / "build.json").write_text(text)


def build_function(function: Function, launches: list[Launch], toolchain: Toolchain, output: Path,
                   compiling: Compiling) -> tuple[list[Json], list[Json]]:
    """Builds the kernels of one function below `output`; (what was built, what was refused)."""
    built: list[Json] = []
    if all(why_refused(launch) is not None for launch in launches):
        return built, [refusal(function, launch, str(why_refused(launch))) for launch in launches]
    with tempfile.TemporaryDirectory(prefix=".wavetune-build.", dir=output) as scratch:
        os.environ["TRITON_CACHE_DIR"] = str(Path(scratch) / "cache")
        jit, constexprs, kernels, refused = kernels_in(function, launches,
                                                       Path(scratch) / "modules")
        for kernel in kernels:
            made = Path(scratch) / kernel.manifest["name"].replace("/", ".")
            try:
                space = space_of(kernel, constexprs)
                build, more, notes = build_kernel(kernel, jit, toolchain, made / "build", compiling)
                refused += more
                _write(kernel, space, build, made)
            except Refused as error:
                refused += [refusal(function, one, str(error)) for one in kernel.all_launches]
                continue
            place = output / made.name
            if place.exists():
                shutil.rmtree(place)
            made.chmod(0o755)
            made.rename(place)
            built.append(
                {
                    "folder": str(place),
                    "notes": notes,
                    "launches": [
                        one.path
                        for one in kernel.all_launches
                        if one.path not in {r["launch"] for r in more}
                    ],
                }
            )
    return built, refused


def build_folder(captures: Path, output: Path, arch: str | None, terms: Terms) -> Json:
    """Builds everything that was captured into a folder; what `build --json` prints."""
    started = time.monotonic()
    output.mkdir(parents=True, exist_ok=True)
    report: Json = {"built": [], "refused": []}

    found = list(read_folder(captures))
    for number, (function, launches) in enumerate(found, 1):
        if function is None:
            report["refused"] += [{
                "function": one.closure, "key": dict(one.key), "launch": one.path,
                "why": "its text was not recorded; capture with WAVETUNE_CAPTURE=source"
            } for one in launches]
            continue
        for own in sorted(
            {arch or str(launch.environment.get("arch", "gfx942")) for launch in launches}):
            mine = (
                launches
                if arch
                else [one for one in launches if one.environment.get("arch", "gfx942") == own]
            )
            built, refused = build_confined(function, mine, own, output, terms, captures / "blobs",
                                            f" (function {number} of {len(found)})")
            report["built"] += built
            report["refused"] += refused
            for one in built:
                for note in one["notes"]:
                    print(f"wavetune build: {one['function']} {note}", file=sys.stderr)
            for one in refused:
                print(f"wavetune build: {one['function']} {canonical(one['key'])}: {one['why']}",
                      file=sys.stderr)
    report["seconds"] = round(time.monotonic() - started, 3)
    (output / "report.json").write_text(pretty(report) + "\n")
    return report
