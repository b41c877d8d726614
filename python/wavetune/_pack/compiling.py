"""Compiles one call with one config, and makes of the result what a build says of it.

Runs in a worker process, in the environment of the compile; objects and texts go to the build's
folder under their digests, by rename, so that two workers may write the same one. A call with
stand-ins of tensors goes through Triton's own JIT, so that its cache finds the code later.
"""

import os
import sys
import types
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence

from .._canonical import Fields, Json, digest_bytes
from .._errors import PackError, one_line
from .artifacts import Image, cache_entry, installed_key
from .calls import Tensor
from .pool import run_tasks
from .registers import carried_too_much, looked_at_before_code
from .target import scratch_pointers

_TEXTS = {"hip": ("ttgir", "amdgcn", "hsaco"), "cuda": ("ttgir", "ptx", "cubin")}  # code last


@dataclass(frozen=True)
class Task:
    """One compile. `call`: values by parameter, but for defaults; `options`: of the back end;
    `environment`: that the compile sees; `may_spill`: compiled whatever its loops carry; `types`:
    Triton's types of the parameters that are passed, when they are known before."""

    call: Fields
    options: Fields
    environment: Mapping[str, str] = field(default_factory=dict)
    may_spill: bool = True
    types: Mapping[str, str] | None = None

    def identity(self) -> tuple[Any, ...]:
        """Tasks of one identity compile to the same object."""
        members = self.types or {}, self.call, self.options, self.environment
        return self.may_spill, *(tuple((name, type(value).__name__, repr(value))
                                       for name, value in sorted(one.items())) for one in members)


@contextmanager
def _some_torch() -> Iterator[None]:
    """Triton's AMD backend imports torch to look at an argument."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = types.ModuleType("torch")
    vars(sys.modules["torch"])["Tensor"] = Tensor
    try:
        yield
    finally:
        del sys.modules["torch"]


def _arguments(task: Task, jit: Any) -> tuple[list[Any], Json]:
    """In the function's order as far as that goes, by name from the first one left out."""
    values, ordered = dict(task.call), []
    for name in jit.arg_names:
        if name not in values or name in task.options:
            break
        ordered.append(values.pop(name))
    return ordered, {**values, **task.options}


class _Stopped(Exception):
    """`args`: the source and the options that Triton's JIT was about to compile."""


def _run(task: Task, jit: Any, compile_source: Callable[..., Any]) -> Any:
    jit.device_caches.clear()  # of kernels that an earlier task compiled
    jit.device_caches[0]  # binds the JIT to the target, and sets its `compile`
    jit.compile = compile_source
    ordered, named = _arguments(task, jit)
    with _some_torch():
        return jit.run(*ordered, grid=None, warmup=True, **named)


def source_of(task: Task, jit: Any) -> tuple[Any, Any]:
    """What compile_task compiles, with its options, executing nothing of the function's text."""
    def stop(source: Any, **arguments: Any) -> Any:
        raise _Stopped(source, arguments["options"])

    try:
        _run(task, jit, stop)
    except _Stopped as found:
        source, options = found.args
        return source, options
    raise PackError("Triton's JIT compiled nothing")


def compile_task(task: Task, jit: Any, target: Any, backend: Any) -> tuple[Any, Any]:
    """Triton's CompiledKernel, and its options. Any exception is the compiler's answer."""
    from triton.compiler import compile as compile_source
    calls = []

    def compile_and_keep(source: Any, **arguments: Any) -> Any:
        calls.append((source, arguments["options"]))
        return compile_source(source, **arguments)

    def refuse_spilling(ttgir: str) -> None:
        reason = None if task.may_spill else carried_too_much(ttgir, target)
        if reason is not None:
            raise PackError(reason)

    with looked_at_before_code(type(backend), refuse_spilling):
        compiled = _run(task, jit, compile_and_keep)
    refuse_spilling(str(compiled.asm.get("ttgir", "")))  # one from the cache had its stages before
    (source, options), = calls
    if task.types is None:
        return compiled, options
    wanted = {name: task.types.get(name, "constexpr") for name in jit.arg_names}
    bools = ("i1", "u1")  # which of them it is differs by version
    if any(kind != wanted[name] and not (kind in bools and wanted[name] in bools)
           for name, kind in source.signature.items()):
        raise PackError(f"Triton compiles for {source.signature}, and the variant is {wanted}")
    return compiled, options


def attempted(run: Callable[[], Json]) -> Json:
    """What `run` gives, or {"error"}: whatever a compiler raises belongs to its config."""
    try:
        return run()
    except KeyboardInterrupt:
        raise
    except PackError as error:
        return {"error": one_line(str(error))}
    except BaseException as error:
        return {"error": one_line(error)}


def compile_all(environments: Sequence[Mapping[str, str]], run: Callable[[int], Json],
                processes: int, timeout_s: float,
                step: Callable[[Json], None] = lambda result: None) -> list[Json]:
    """What run(i) gives in a worker with environments[i], or {"error"}; step() sees each."""
    results: dict[int, Json] = {}

    def done(number: int, result: Any, reason: str | None) -> None:
        results[number] = result if reason is None else {"error": reason}
        step(results[number])

    installed_key()  # read once, before the workers are forked
    run_tasks(environments, lambda number: attempted(lambda: run(number)), processes, timeout_s,
              done)
    return [results[number] for number in range(len(environments))]


def _store(data: bytes, objects: Path) -> str:
    digest = digest_bytes(data)
    path = objects / digest.removeprefix("sha256:")
    if not path.exists():
        beside = objects / f".{path.name}.{os.getpid()}"
        beside.write_bytes(data)
        beside.rename(path)
    return digest


def store_result(compiled: Any, options: Any, target: Any, version: tuple[int, int], objects: Path,
                 image: Image | None = None, has_descriptors: bool = False) -> Json:
    """{"digest", "metadata"} of docs/builds.md; PackError for what only Triton's launcher can do.
    `has_descriptors`: the build states what is passed for descriptors of the host."""
    metadata = compiled.metadata
    for member in ("global_scratch_size", "profile_scratch_size"):
        if getattr(metadata, member, 0):
            raise PackError(f"the kernel needs {member} = {getattr(metadata, member)} bytes of "
                            "scratch memory, which only Triton's own launcher gives")
    if getattr(metadata, "tensordesc_meta", None) and not has_descriptors:
        raise PackError("the kernel takes tensor descriptors, which only Triton's own launcher "
                        "makes")
    *texts, extension = _TEXTS[target.backend]
    digest = _store(compiled.asm[extension], objects)
    stated = {
        "name": metadata.name, "shared": metadata.shared, "num_warps": metadata.num_warps,
        "warp_size": target.warp_size, "num_ctas": getattr(metadata, "num_ctas", 1),
        "launch_cooperative_grid": bool(getattr(metadata, "launch_cooperative_grid", False)),
        "scratch": scratch_pointers(version), "global_scratch_size": 0, "profile_scratch_size": 0,
        "files": {name: _store(compiled.asm[name].encode(), objects) for name in texts
                  if name in compiled.asm}
    }
    entry = cache_entry(compiled, options, target, image)
    if entry is not None:
        files = {f"{entry.name}.json": _store(entry.metadata, objects),
                 f"{entry.name}.{extension}": digest}
        stated["cache"] = {"folder": entry.folder, "files": files}
    return {"digest": digest, "metadata": stated}
