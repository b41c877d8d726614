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
from typing import Any, Iterator, Mapping

from .._canonical import Fields, Json, digest_bytes
from .._errors import PackError
from .artifacts import Image, cache_entry
from .calls import Tensor, heuristic_values
from .options import option_names
from .registers import carried_too_much, looked_at_before_code
from .target import scratch_pointers

_TEXTS = {"hip": ("ttgir", "amdgcn"), "cuda": ("ttgir", "ptx")}


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
        def items(values: Fields) -> tuple[Any, ...]:
            return tuple(
                (name, type(values[name]).__name__, repr(values[name])) for name in sorted(values))

        return (items(self.types or {}), items(self.call), items(self.options),
                items(self.environment), self.may_spill)


def call_task(decorated: Any, backend: Any, call: Fields, config: Any,
              may_spill: bool = True) -> Task:
    """The compile of a call with one of its decorator's configs (a triton.Config, or None where
    there is no autotuner)."""
    chosen = {} if config is None else config.all_kwargs()
    given = {**call, **heuristic_values(decorated, call, chosen)}
    names, options = {p.name for p in decorated.jit.params}, option_names(backend)
    given.update({name: value for name, value in chosen.items() if name in names})
    return Task(given, {n: v for n, v in chosen.items() if n in options and v is not None}, {},
                may_spill)


@contextmanager
def _some_torch() -> Iterator[None]:
    """Triton's AMD backend imports torch to look at an argument."""
    if "torch" in sys.modules:
        yield
        return
    torch = types.ModuleType("torch")
    torch.Tensor = Tensor  # type: ignore[attr-defined]
    sys.modules["torch"] = torch
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


def source_of(task: Task, jit: Any) -> tuple[Any, Any]:
    """What compile_task compiles, with its options, executing nothing of the function's text."""
    def stop(source: Any, **arguments: Any) -> Any:
        raise _Stopped(source, arguments["options"])

    jit.device_caches.clear()
    jit.device_caches[0]
    jit.compile = stop
    ordered, named = _arguments(task, jit)
    try:
        with _some_torch():
            jit.run(*ordered, grid=None, warmup=True, **named)
    except _Stopped as found:
        source, options = found.args
        return source, options
    raise PackError("Triton's JIT compiled nothing")


def compile_task(task: Task, jit: Any, target: Any, backend: Any) -> tuple[Any, Any]:
    """Triton's CompiledKernel, and its options. Any exception is the compiler's answer."""
    from triton.compiler import compile as compile_source
    jit.device_caches.clear()  # of kernels that an earlier task compiled
    jit.device_caches[0]  # binds the JIT to the target, and sets its `compile`
    calls = []

    def compile_and_keep(source: Any, **arguments: Any) -> Any:
        calls.append((source, arguments["options"]))
        return compile_source(source, **arguments)

    def refuse_spilling(ttgir: str) -> None:
        reason = None if task.may_spill else carried_too_much(ttgir, target)
        if reason is not None:
            raise PackError(reason)

    jit.compile = compile_and_keep
    ordered, named = _arguments(task, jit)
    with _some_torch(), looked_at_before_code(type(backend), refuse_spilling):
        compiled = jit.run(*ordered, grid=None, warmup=True, **named)
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
    texts = {}
    for name in _TEXTS[target.backend]:
        if name in compiled.asm:
            text = compiled.asm[name]
            texts[name] = _store(text if isinstance(text, bytes) else str(text).encode(), objects)
    extension = "hsaco" if target.backend == "hip" else "cubin"
    binary = compiled.asm[extension]
    digest = _store(binary, objects)
    entry = cache_entry(compiled, options, target, image)
    cache = {} if entry is None else {"cache": {
        "folder": entry.folder, "files": {f"{entry.name}.json": _store(entry.metadata, objects),
                                          f"{entry.name}.{extension}": digest}}}
    return {
        "digest": digest, "metadata": {
            "name": metadata.name, "shared": metadata.shared, "num_warps": metadata.num_warps,
            "warp_size": target.warp_size, "num_ctas": getattr(metadata, "num_ctas", 1),
            "launch_cooperative_grid": bool(getattr(metadata, "launch_cooperative_grid",
                                                    False)), "scratch": scratch_pointers(version),
            "global_scratch_size": 0, "profile_scratch_size": 0, "files": texts, **cache
        }
    }
