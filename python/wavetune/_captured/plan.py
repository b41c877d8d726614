"""What is to be built of a captured function, made without executing any of its text: kernels, and
for each config of each launch the folder of Triton's cache. What is built is compared with it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

from .._canonical import Fields, Json, canonical
from .._errors import PackError, one_line
from .._pack.artifacts import cache_place, installed_key
from .._pack.compiling import source_of
from .._pack.importing import folder_files
from .._pack.pool import run_tasks
from .._pack.record import function_members, triton_record
from .._pack.stubs import Driver
from .._pack.target import make_backend, make_target, triton_version
from .calling import signature_of, task_of
from .descriptors import planned_arguments
from .documents import Config, Function, Launch
from .fills import fills_of
from .kernel import (
    SOURCE, CapturedKernel, Refused, by_key, kernels_of, space_of, whole, why_refused)
from .module import recreate


@dataclass(frozen=True)
class Toolchain:
    """What compiles. `arch` as builds name it."""

    arch: str
    target: Any
    backend: Any
    version: tuple[int, int]
    stated: Mapping[str, str]  # torch and rocm of the deployment, where known


def toolchain_for(arch: str, stated: Mapping[str, str]) -> Toolchain:
    """Also makes the target the one that Triton finds where it asks its driver."""
    import triton
    target = make_target(arch)
    triton.runtime.driver.set_active(Driver(target))
    return Toolchain(arch, target, make_backend(target), triton_version(), stated)


@dataclass(frozen=True)
class Task:
    kernel: CapturedKernel
    launch: Launch
    config: Config
    is_default: bool


def further_configs(kernel: CapturedKernel, first: Launch, launch: Launch) -> list[Config]:
    """Those configs of a further launch that the first one of its key has."""
    known = {canonical(dict(whole(kernel, one))) for one in first.configs}
    return [one for one in launch.configs if canonical(dict(whole(kernel, one))) in known]


def tasks_of(kernel: CapturedKernel) -> tuple[list[Task], int]:
    """All compiles of a kernel: (first those of its launches, how many these are)."""
    tasks = [Task(kernel, launch, one, i == 0) for launch in kernel.launches
             for i, one in enumerate(launch.configs)]
    n_first = len(tasks)
    tasks += [Task(kernel, launch, one, True) for first in kernel.launches
              for launch in kernel.also.get(first.path, ())
              for one in further_configs(kernel, first, launch)]
    return tasks, n_first


def _record(kernel: CapturedKernel, jit: Any, toolchain: Toolchain) -> Json:
    """The function record, by which choices and Triton's cache find the winners."""
    import triton
    fixed = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")
    configs = [triton.Config({n: v for n, v in one.items() if n not in fixed},
                             **{n: v for n, v in one.items() if n in fixed and v is not None})
               for one in kernel.configs]
    launch, names = kernel.launches[0], list(kernel.manifest["key"])
    autotune = kernel.function.autotune
    return {"kernel": kernel.hash, "name": kernel.manifest["name"],
            "triton": triton_record(toolchain.backend),
            "function": {**function_members(jit), "closure": kernel.function.closure},
            "key_names": names, "tuning_key": names,
            "argument_dtypes": [text.strip("'") for text in launch.texts[len(names):]],
            "configs": [str(config) for config in configs],
            "autotune": None if autotune is None else {"decorator": "triton", **{
                name: autotune.get(name)
                for name in ("warmup", "rep", "use_cuda_graph", "reset_to_zero", "restore_value",
                             "prunes")}}}


def head_of(kernel: CapturedKernel, jit: Any, toolchain: Toolchain) -> Json:
    """A build without its variants."""
    import triton
    return {"kernel": kernel.hash, "toolchain": {"triton": triton.__version__, **toolchain.stated},
            "arch": toolchain.arch, "warp_size": toolchain.target.warp_size,
            "record": _record(kernel, jit, toolchain)}


def refusal(function: Function, launch: Launch, why: str) -> Json:
    return {"function": function.name, "key": dict(launch.key), "launch": launch.path, "why": why}


def kernels_in(function: Function, launches: list[Launch], modules: Path
               ) -> tuple[Any, set[str], list[CapturedKernel], list[Json]]:
    """(the jit function, its constexprs, the kernels of the launches, what was refused)"""
    try:
        modules.mkdir()
        jit = recreate(function.document, modules)
        constexprs = {parameter.name for parameter in jit.params if parameter.is_constexpr}
    except PackError as error:
        return None, set(), [], [refusal(function, one, why_refused(one) or str(error))
                                 for one in launches]
    able, also, left = by_key(launches, constexprs)
    refused = [refusal(function, launch, why) for launch, why in left]
    try:
        return jit, constexprs, kernels_of(function, able, also, constexprs), refused
    except PackError as error:
        return jit, constexprs, [], refused + [refusal(function, one, str(error)) for first in able
                                               for one in (first, *also[first.path])]


def files_of(kernel: CapturedKernel, space: Fields) -> dict[str, bytes]:
    """Those of the kernel folder, without its build."""
    document, _, version = kernel.manifest["name"].partition("/")
    return folder_files({**kernel.manifest, "name": document}, version, dict(space),
                        {SOURCE: kernel.source.encode()})


def _planned(task: Task, jit: Any, toolchain: Toolchain) -> Json:
    try:
        source, options = source_of(task_of(jit, task.launch, task.config, task.is_default), jit)
        folder, stem = cache_place(source, options, toolchain.target)
        signature, constants = signature_of(source)
        names = [name for name in jit.arg_names if name in signature]
        return {"folder": folder, "stem": stem, "signature": signature, "constexprs": constants,
                "arguments": planned_arguments(task.launch, names, toolchain.target.backend)}
    except Exception as error:  # it does not compile either
        return {"error": one_line(error)}


def plan_function(function: Function, launches: list[Launch], toolchain: Toolchain, scratch: Path,
                  processes: int, timeout_s: float) -> Json:
    """By the names of kernel folders: "head", "files", and "objects", what each states."""
    # functions that are arguments lie beside
    os.environ["TRITON_CACHE_DIR"] = str(scratch / "cache")
    jit, constexprs, kernels, _ = kernels_in(function, launches, scratch / "modules")
    found: Json = {}
    for kernel in kernels:
        try:
            space = space_of(kernel, constexprs)
        except Refused:
            continue
        tasks, n_first = tasks_of(kernel)
        results: dict[int, Json] = {}

        def done(number: int, result: Any, reason: str | None) -> None:
            results[number] = result if reason is None else {"error": reason}

        installed_key()  # read once, before the workers are forked
        run_tasks([task.launch.variables for task in tasks],
                  lambda number: _planned(tasks[number], jit, toolchain), processes, timeout_s,
                  done)
        objects = [{"launch": task.launch.path, "key": dict(task.launch.key),
                    "config": dict(whole(kernel, task.config)), "is_first": number < n_first,
                    "grid": list(task.config.grid), "fills": fills_of(task.launch, task.config),
                    **results[number]}
                   for number, task in enumerate(tasks)]
        files = files_of(kernel, space)
        found[kernel.manifest["name"].replace("/", ".")] = {
            "name": kernel.manifest["name"], "head": head_of(kernel, jit, toolchain),
            "objects": objects, "files": {name: data.decode() for name, data in files.items()}}
    return found
