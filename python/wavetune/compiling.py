"""Compiles one config of one variant, and makes of the result what a build says of it.

Runs in a worker process. The environment of the compile was set before; objects and texts go to the build's folder
under their digests, written beside and renamed, so that two workers may write the same one.
What is compiled is what Triton's JIT makes of a call with stand-ins of tensors, so that its cache finds it later.
"""

import os
import sys
import types
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping

from .artifacts import Image, cache_entry
from .canonical import digest_bytes
from .errors import PackError
from .registers import carried_too_much, looked_at_before_code
from .specialise import Variant
from .target import scratch_pointers

_TEXTS = {"hip": ("ttgir", "amdgcn"), "cuda": ("ttgir", "ptx")}


@dataclass(frozen=True)
class Task:
    """`constexprs`: those that are given (not the function's defaults), `scalars`: values of the passed arguments that
    are no buffers, `environment`: variables that the compile sees, `may_spill`: compiled whatever its loops carry."""

    variant: Variant
    scalars: Mapping[str, Any]
    constexprs: Mapping[str, Any]
    options: Mapping[str, Any]
    environment: Mapping[str, str]
    may_spill: bool = True

    def identity(self) -> tuple[Any, ...]:
        """Tasks of one identity compile to the same object."""
        def items(values: Mapping[str, Any]) -> tuple[Any, ...]:
            return tuple((name, type(values[name]).__name__, values[name]) for name in sorted(values))

        return (self.variant.when, items(self.constexprs), items(self.options), items(self.environment), self.may_spill)


class Tensor:
    """What the JIT asks of a tensor: its type, its alignment, on AMD whether 32 bits reach all of it. `pointer`: an address
    that is aligned as the tensor is."""

    def __init__(self, dtype: str, is_small: bool, pointer: int = 0):
        self.dtype, self.is_small, self.pointer = dtype, is_small, pointer

    def data_ptr(self) -> int:
        return self.pointer

    def ptr_range(self) -> int:
        return 0 if self.is_small else 2**31


@contextmanager
def _some_torch() -> Iterator[None]:
    """Triton's AMD backend imports torch to look at an argument; where there is none, a stand-in is enough."""
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


def _arguments(task: Task, jit: Any) -> tuple[list[Any], dict[str, Any]]:
    values = {**task.scalars, **task.constexprs}
    for name, kind in task.variant.signature.items():
        if kind.startswith("*"):
            dtype = kind.removeprefix("*").removeprefix("k")
            values[name] = Tensor(dtype, "S" in task.variant.attributes.get(name, ""))
    ordered, named = ordered_call(jit, values, task.options)
    return ordered, {**named, **task.options}


def ordered_call(jit: Any, values: dict[str, Any], stop: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """How the kernel is called: in the function's order as far as that goes, by name from the first one that is left out
    or that `stop` names."""
    ordered = []
    for name in jit.arg_names:
        if name not in values or name in stop:
            break
        ordered.append(values.pop(name))
    return ordered, values


def compile_call(jit: Any, target: Any, backend: Any, ordered: list[Any], named: Mapping[str, Any],
                 may_spill: bool) -> tuple[Any, Any, Any]:
    """What Triton's JIT compiles for a call with these arguments, options among the named ones: its CompiledKernel, the
    source, and the options that it passed to the compiler. Any exception is the compiler's answer to this config."""
    from triton.compiler import compile as compile_source
    jit.device_caches.clear()  # of kernels that an earlier task compiled
    jit.device_caches[0]  # binds the JIT to the target, and sets its `compile`
    calls = []

    def compile_and_keep(source: Any, **arguments: Any) -> Any:
        calls.append((source, arguments["options"]))
        return compile_source(source, **arguments)

    def refuse_spilling(ttgir: str) -> None:
        reason = None if may_spill else carried_too_much(ttgir, target)
        if reason is not None:
            raise PackError(reason)

    jit.compile = compile_and_keep
    with _some_torch(), looked_at_before_code(type(backend), refuse_spilling):
        compiled = jit.run(*ordered, grid=None, warmup=True, **named)
    refuse_spilling(str(compiled.asm.get("ttgir", "")))  # one from the cache had its stages before
    (source, options), = calls
    return compiled, source, options


def compile_task(task: Task, jit: Any, target: Any, backend: Any) -> tuple[Any, Any]:
    """Triton's CompiledKernel, and the options that its JIT compiled it with."""
    ordered, named = _arguments(task, jit)
    compiled, source, options = compile_call(jit, target, backend, ordered, named, task.may_spill)
    wanted = {name: task.variant.signature.get(name, "constexpr") for name in jit.arg_names}
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
                 image: Image | None = None) -> dict[str, Any]:
    """{"digest", "metadata"} of docs/builds.md; what a launch without Triton cannot do is a PackError."""
    metadata = compiled.metadata
    for member in ("global_scratch_size", "profile_scratch_size"):
        if getattr(metadata, member, 0):
            raise PackError(f"the kernel needs {member} = {getattr(metadata, member)} bytes of scratch memory, which "
                            "only Triton's own launcher gives")
    if getattr(metadata, "tensordesc_meta", None):
        raise PackError("the kernel takes tensor descriptors, which only Triton's own launcher makes")
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
    return {"digest": digest,
            "metadata": {"name": metadata.name, "shared": metadata.shared, "num_warps": metadata.num_warps,
                         "warp_size": target.warp_size, "num_ctas": getattr(metadata, "num_ctas", 1),
                         "launch_cooperative_grid": bool(getattr(metadata, "launch_cooperative_grid", False)),
                         "scratch": scratch_pointers(version), "global_scratch_size": 0, "profile_scratch_size": 0,
                         "files": texts, **cache}}
