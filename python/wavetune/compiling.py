"""Compiles one config of one variant, and makes of the result what a build says of it.

Runs in a worker process. The environment of the compile was set before; objects and texts go to the build's folder
under their digests, written beside and renamed, so that two workers may write the same one.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

from .canonical import digest_bytes
from .errors import PackError
from .specialise import Variant
from .target import scratch_pointers, uses_buffer_ops

_TEXTS = {"hip": ("ttgir", "amdgcn"), "cuda": ("ttgir", "ptx")}


@dataclass(frozen=True)
class Task:
    """`constexprs`: every constexpr of the function, `environment`: variables that the compile sees."""

    variant: Variant
    constexprs: Mapping[str, Any]
    options: Mapping[str, Any]
    environment: Mapping[str, str]

    def identity(self) -> tuple[Any, ...]:
        """Tasks of one identity compile to the same object."""
        def items(values: Mapping[str, Any]) -> tuple[Any, ...]:
            return tuple((name, type(values[name]).__name__, values[name]) for name in sorted(values))

        return (self.variant.when, items(self.constexprs), items(self.options), items(self.environment))


def _attributes(task: Task, jit: Any, backend: Any, version: tuple[int, int]) -> dict[tuple[int], list[list[Any]]]:
    uses_range = uses_buffer_ops(version, os.environ)
    attributes = {}
    for index, name in enumerate(jit.arg_names):
        text = task.variant.attributes.get(name, "")
        if not uses_range:
            text = text.replace("S", "")
        if text:
            attributes[(index,)] = backend.parse_attr(text)
    return attributes


def compile_task(task: Task, jit: Any, target: Any, version: tuple[int, int]) -> Any:
    """Triton's CompiledKernel. Any exception is the compiler's answer to this config."""
    import triton
    from triton.compiler import ASTSource, make_backend
    compiled_in = {**task.variant.constexprs, **task.constexprs}
    signature = {name: "constexpr" if name in compiled_in else task.variant.signature[name] for name in jit.arg_names}
    source = ASTSource(fn=jit, signature=signature,
                       constexprs={(jit.arg_names.index(name),): value for name, value in compiled_in.items()},
                       attrs=_attributes(task, jit, make_backend(target), version))
    options = dict(task.options)
    if jit.debug:
        options["debug"] = True
    return triton.compile(source, target=target, options=options)


def _store(data: bytes, objects: Path) -> str:
    digest = digest_bytes(data)
    path = objects / digest.removeprefix("sha256:")
    if not path.exists():
        beside = objects / f".{path.name}.{os.getpid()}"
        beside.write_bytes(data)
        beside.rename(path)
    return digest


def store_result(compiled: Any, target: Any, version: tuple[int, int], objects: Path) -> dict[str, Any]:
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
    binary = compiled.asm["hsaco" if target.backend == "hip" else "cubin"]
    return {"digest": _store(binary, objects),
            "metadata": {"name": metadata.name, "shared": metadata.shared, "num_warps": metadata.num_warps,
                         "warp_size": target.warp_size, "num_ctas": getattr(metadata, "num_ctas", 1),
                         "launch_cooperative_grid": bool(getattr(metadata, "launch_cooperative_grid", False)),
                         "scratch": scratch_pointers(version), "global_scratch_size": 0, "profile_scratch_size": 0,
                         "files": texts}}
