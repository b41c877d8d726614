"""Builds captured functions: each a kernel folder with a build, whose variants are the captured
keys (docs/builds.md): planned (plan.py), compiled, and compared with the plan (check.py).

    OUT/NAME/kernel.json space.json kernel.py build/     one folder for each kernel
    OUT/report.json                                      what was built and refused, and why

Equal captures and toolchain give equal bytes.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Callable, Mapping

from .._canonical import Json, canonical
from .._errors import PackError
from .._pack.build import write_build
from .._pack.compiling import compile_all, compile_task, store_result
from .._pack.importing import pretty
from .access import is_rounded, written_arguments
from .calling import signature_of, task_of
from .confined import Terms
from .descriptors import arguments_of, kind_of
from .documents import Config, Function, Launch, read_folder
from .entries import build_launches
from .fills import fills_of
from .interpret import add_values
from .kernel import (
    PRUNED, CapturedKernel, Refused, case_of, left_out, space_of, whole, why_not_filled,
    why_refused)
from .plan import Task, Toolchain, files_of, head_of, kernels_in, refusal, refusals, tasks_of
from .steering import steering_arguments

ALSO_MAX = 16  # of a variant (BUILD_ALSO_MAX)

Made = list[tuple[Config, Json]]  # a launch's configs with what compile_one() says, or {"error"}


def compile_one(task: Task, jit: Any, toolchain: Toolchain, objects: Path) -> Json:
    """An object's entry in the build with what the variant states."""
    call = task_of(jit, task.launch, task.config, task.may_spill)
    compiled, options = compile_task(call, jit, toolchain.target, toolchain.backend)
    found = store_result(compiled, options, toolchain.target, toolchain.version, objects,
                         has_descriptors=True)
    signature, constants = signature_of(compiled.src)
    ttir = str(compiled.asm["ttir"])
    written, steering = written_arguments(ttir), steering_arguments(ttir)
    names = [name for name in jit.arg_names if name in signature]
    arguments, counts = arguments_of(task.launch, names,
                                     getattr(compiled.metadata, "tensordesc_meta", None),
                                     toolchain.target.backend)
    *firsts, n_passed = itertools.accumulate(counts, initial=0)
    if n_passed != len(written):
        raise PackError(f"Triton passes {len(written)} arguments, and the signature has {n_passed}")
    return {
        **found, "signature": signature, "constexprs": constants, "rounded": is_rounded(ttir),
        "arguments": arguments,
        "written": [name for name, place in zip(names, firsts) if written[place]],
        "steering": [name for name, place in zip(names, firsts) if steering[place]],
    }


def _with(members: Json, **more: Any) -> Json:
    """An object with those of the further members that say something."""
    return members | {name: value for name, value in more.items() if value}


def _object(kernel: CapturedKernel, config: Config, result: Json) -> Json:
    return {"config": whole(kernel, config), "digest": result["digest"],
            "metadata": result["metadata"]}


def _variant(kernel: CapturedKernel, launch: Launch, made: Made) -> Json:
    """The launch's variant; its own signature is that of the first config that compiles."""
    results = [result for _, result in made]
    first = next((one for one in results if "digest" in one), results[0])
    if "error" in first:
        raise Refused(f"none of the program's configs compiles; the first: {first['error']}")
    names = {argument["name"] for argument in kernel.manifest["arguments"]}
    unknown = sorted(set(first["signature"]) - names)
    if unknown:
        raise Refused(f"the compiled code is passed {', '.join(unknown)}, which the captured "
                      "arguments do not have")
    why = why_not_filled(launch, {name for one in results for name in one.get("steering", ())})
    if why is not None:
        raise Refused(why)
    objects, failed = [], []
    written: set[str] = set()
    for config, result in made:
        if "error" in result:
            failed.append({"config": whole(kernel, config), **result})
        elif kind_of(result["signature"]) != kind_of(first["signature"]):
            failed.append({"config": whole(kernel, config), "error":
                           "it is passed other arguments than the program's first config"})
        else:
            filled = fills_of(launch, config)
            written.update(result["written"], (name for name, *_ in filled))
            objects.append(_with(_object(kernel, config, result), grid=list(config.grid),
                                 fills=filled, arguments=result["arguments"]))
    failed += [{"config": config, "error": PRUNED} for config in left_out(kernel, launch)]
    return _with({
        "key": launch.key, "signature": first["signature"], "objects": objects,
        "constexprs": {name: value for name, value in first["constexprs"].items()
                       if name in names or name not in launch.configs[0].config},
        "case": case_of(kernel, launch, written, any(one.get("rounded") for one in results))
    }, failed=failed)


def _code_of(result: Json) -> Any:
    """What tells one code from another, as Triton looks it up."""
    return (result["metadata"].get("cache") or {}).get("folder", result["digest"])


def _also(kernel: CapturedKernel, first: Launch, made: Mapping[str, Made]
          ) -> tuple[list[Json], list[Json]]:
    """(a variant's "also", what was refused)"""
    found: list[Json] = []
    refused: list[Json] = []
    name = kernel.function.name
    known = {_code_of(result) for _, result in made[first.path] if "digest" in result}
    for launch in kernel.further(first):
        able = [one for one in made[launch.path] if "digest" in one[1]]
        new = [one for one in able if _code_of(one[1]) not in known]
        known.update(_code_of(result) for _, result in new)
        if not able:
            why = next((result["error"] for _, result in made[launch.path]),
                       "it has no config of the key's first launch")
            refused.append(refusal(name, launch, f"its code cannot be made: {why}"))
        elif new and len(found) == ALSO_MAX:
            refused.append(refusal(name, launch, f"a build has at most {ALSO_MAX} further "
                                   "specialisations of a key"))
        elif new:
            found.append({"signature": new[0][1]["signature"],
                          "objects": [_object(kernel, *one) for one in new]})
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
                objects: Path) -> list[Json]:
        """Of each task; files are in `objects`."""
        count = itertools.count(1)
        return compile_all([task.launch.variables for task in tasks],
                           lambda number: compile_one(tasks[number], jit, toolchain, objects),
                           self.processes, self.timeout_s,
                           lambda _: self.step(next(count), len(tasks)))

    def values(self, kernel: CapturedKernel, variants: list[tuple[Launch, Json]], objects: Path,
               toolchain: Toolchain) -> tuple[list[str], dict[int, str]]:
        """As interpret.add_values()."""
        precisions = getattr(toolchain.backend.parse_options({}), "allowed_dot_input_precisions",
                             ("ieee", ))
        return add_values(kernel, variants, objects, self.blob, self.processes, precisions)


def build_kernel(kernel: CapturedKernel, jit: Any, toolchain: Toolchain, folder: Path,
                 compiling: Compiling) -> tuple[Json, list[Json], list[str]]:
    """Compiles everything into folder/objects; (the build, what was refused, what its user should
    know)."""
    objects, name = folder / "objects", kernel.function.name
    objects.mkdir(parents=True)
    tasks = tasks_of(kernel)
    made: dict[str, Made] = defaultdict(list)
    for task, result in zip(tasks, compiling.results(tasks, jit, toolchain, objects)):
        made[task.launch.path].append((task.config, result))

    variants: list[tuple[Launch, Json]] = []
    refused: list[Json] = []
    for launch in kernel.launches:
        try:
            variant = _variant(kernel, launch, made[launch.path])
        except Refused as error:
            refused += refusals(name, [launch, *kernel.further(launch)], str(error))
            continue
        also, more = _also(kernel, launch, made)
        variants.append((launch, _with(variant, also=also)))
        refused += more
    if not variants:
        raise Refused(refused[0]["why"])
    notes, wrong = compiling.values(kernel, variants, objects, toolchain)
    for number, why in sorted(wrong.items()):
        launch = variants[number][0]
        refused += refusals(name, [launch, *kernel.further(launch)], why)
    stated = [variant for number, (_, variant) in enumerate(variants) if number not in wrong]
    if not stated:
        raise Refused(wrong[0])
    return {**head_of(kernel, jit, toolchain), "variants": stated}, refused, notes


def build_function(function: Function, launches: list[Launch], toolchain: Toolchain, output: Path,
                   compiling: Compiling) -> tuple[list[Json], list[Json]]:
    """Builds the kernels of one function below `output`; (what was built, what was refused)."""
    built: list[Json] = []
    whys = list(map(why_refused, launches))
    if None not in whys:
        return built, [refusal(function.name, one, str(why)) for one, why in zip(launches, whys)]
    with tempfile.TemporaryDirectory(prefix=".wavetune-build.", dir=output) as scratch:
        os.environ["TRITON_CACHE_DIR"] = str(Path(scratch) / "cache")
        jit, constexprs, kernels, refused = kernels_in(function, launches,
                                                       Path(scratch) / "modules")
        for kernel in kernels:
            made = Path(scratch) / kernel.folder
            try:
                space = space_of(kernel, constexprs)
                build, more, notes = build_kernel(kernel, jit, toolchain, made / "build", compiling)
                refused += more
                for name, data in files_of(kernel, space).items():
                    (made / name).write_bytes(data)
                write_build(build, made / "build")
            except PackError as error:
                refused += refusals(function.name, kernel.all_launches, str(error))
                continue
            place = output / made.name
            if place.exists():
                shutil.rmtree(place)
            made.chmod(0o755)
            made.rename(place)
            lost = {one["launch"] for one in more}
            built.append({"folder": str(place), "notes": notes,
                          "launches": [one.path for one in kernel.all_launches
                                       if one.path not in lost]})
    return built, refused


def build_folder(captures: Path, output: Path, arch: str | None, terms: Terms) -> Json:
    """Builds everything that was captured into a folder; what `build --json` prints."""
    started = time.monotonic()
    output.mkdir(parents=True, exist_ok=True)
    report: Json = {"built": [], "refused": []}

    found = list(read_folder(captures))
    for number, (function, launches) in enumerate(found, 1):
        if function is None:
            report["refused"] += refusals(launches[0].closure, launches, "its text was not "
                                          "recorded; capture with WAVETUNE_CAPTURE=source")
            continue
        by_arch = defaultdict(list)
        for launch in launches:
            by_arch[arch or launch.arch].append(launch)
        for own, mine in sorted(by_arch.items()):
            built, refused = build_launches(function, mine, own, output, terms, captures / "blobs",
                                            f" (function {number} of {len(found)})")
            report["built"] += built
            report["refused"] += refused
            for line in [*(f"{one['function']} {note}" for one in built for note in one["notes"]),
                         *(f"{one['function']} {canonical(one['key'])}: {one['why']}"
                           for one in refused)]:
                print(f"wavetune build: {line}", file=sys.stderr)
    report["seconds"] = round(time.monotonic() - started, 3)
    (output / "report.json").write_text(pretty(report) + "\n")
    return report
