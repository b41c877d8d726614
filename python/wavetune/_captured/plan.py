"""What is to be built of a captured function, made without executing any of its text: kernels, and
for each config of each launch the folder of Triton's cache. What is built is compared with it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Mapping

from .._canonical import Fields, Json, canonical
from .._errors import PackError
from .._pack.artifacts import cache_place
from .._pack.compiling import compile_all, source_of
from .._pack.entries import SOURCE
from .._pack.importing import folder_files
from .._pack.record import function_members, triton_record
from .._pack.stubs import Driver
from .._pack.target import make_backend, make_target, triton_version
from .calling import signature_of, task_of
from .descriptors import planned_arguments
from .documents import Config, Function, Launch
from .fills import fills_of
from .kernel import (
    CapturedKernel, Refused, by_key, kernels_of, space_of, whole, why_refused)
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
    """A compile; `is_first`: of a launch that is measured, and not of a further one of its key."""

    launch: Launch
    config: Config
    may_spill: bool
    is_first: bool = True


def further_configs(kernel: CapturedKernel, first: Launch, launch: Launch) -> list[Config]:
    """Those configs of a further launch that the first one of its key has."""
    known = {canonical(whole(kernel, one)) for one in first.configs}
    return [one for one in launch.configs if canonical(whole(kernel, one)) in known]


def tasks_of(kernel: CapturedKernel) -> list[Task]:
    return [Task(launch, one, i == 0) for launch in kernel.launches
            for i, one in enumerate(launch.configs)] + [
        Task(launch, one, True, False) for first in kernel.launches
        for launch in kernel.further(first) for one in further_configs(kernel, first, launch)]


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


def refusal(function: str, launch: Launch, why: str) -> Json:
    return {"function": function, "key": launch.key, "launch": launch.path, "why": why}


def refusals(function: str, launches: Iterable[Launch], why: str) -> list[Json]:
    return [refusal(function, one, why) for one in launches]


def kernels_in(function: Function, launches: list[Launch], modules: Path
               ) -> tuple[Any, set[str], list[CapturedKernel], list[Json]]:
    """(the jit function, its constexprs, the kernels of the launches, what was refused)"""
    try:
        modules.mkdir()
        jit = recreate(function.document, modules)
    except PackError as error:
        return None, set(), [], [refusal(function.name, one, why_refused(one) or str(error))
                                 for one in launches]
    constexprs = {parameter.name for parameter in jit.params if parameter.is_constexpr}
    able, also, left = by_key(launches, constexprs)
    refused = [refusal(function.name, one, why) for one, why in left]
    return jit, constexprs, kernels_of(function, able, also, constexprs), refused


def files_of(kernel: CapturedKernel, space: Fields) -> dict[str, bytes]:
    """Those of the kernel folder, without its build."""
    document, _, version = kernel.manifest["name"].partition("/")
    return folder_files({**kernel.manifest, "name": document}, version, space,
                        {SOURCE: kernel.source.encode()})


def _planned(task: Task, jit: Any, toolchain: Toolchain) -> Json:
    source, options = source_of(task_of(jit, task.launch, task.config, task.may_spill), jit)
    folder, stem = cache_place(source, options, toolchain.target)
    signature, constants = signature_of(source)
    names = [name for name in jit.arg_names if name in signature]
    return {"folder": folder, "stem": stem, "signature": signature, "constexprs": constants,
            "arguments": planned_arguments(task.launch, names, toolchain.target.backend)}


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
        tasks = tasks_of(kernel)
        results = compile_all([task.launch.variables for task in tasks],
                              lambda number: _planned(tasks[number], jit, toolchain), processes,
                              timeout_s)
        objects = [{"launch": task.launch.path, "key": task.launch.key,
                    "config": whole(kernel, task.config), "is_first": task.is_first,
                    "grid": list(task.config.grid), "fills": fills_of(task.launch, task.config),
                    **result} for task, result in zip(tasks, results)]
        found[kernel.folder] = {
            "name": kernel.manifest["name"], "head": head_of(kernel, jit, toolchain),
            "objects": objects,
            "files": {name: data.decode() for name, data in files_of(kernel, space).items()}}
    return found
