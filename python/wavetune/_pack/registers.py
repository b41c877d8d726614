"""Which configs cannot keep in registers what their loops carry from turn to turn.

Where a thread's share of a loop's accumulator is twice all the registers that a thread can have,
every turn stores and loads at least half of it: the config is no winner, and the register
allocator, which cannot know, searches long (ptxas: 8 to 22 s for a tile of 256 x 256 on 4 warps,
0.7 s on 8). That is known after Triton's own passes and before the allocator runs.

A lower bound: only floating-point tensors count (what is counted or addressed can be computed
again), only the largest of a loop, and each as if its layout repeated nothing.
"""

import math
import re
from contextlib import contextmanager
from typing import Any, Callable, Iterator

from .._canonical import Json

# A lane's registers of 32 bits and how many lanes share a file of them: CUDA C++ Programming Guide,
# "Technical specifications per compute capability" (255 a thread, 65,536 a block); AMD's CDNA 2 and
# 3 ISA guides, "Vector registers" (512 a lane of a SIMD with the accumulation registers, four SIMDs
# a compute unit), RDNA's: 256 a wave at the most; LLVM's AMDGPU.td (Feature1024AddressableVGPRs of
# gfx1250 and gfx1251).
_CUDA_THREAD, _CUDA_BLOCK = 255, 65536
_CDNA_LANE, _CDNA_SIMDS, _RDNA_WAVE, _GFX125_WAVE = 512, 4, 256, 1024

# what it carries stands in its first line, last
_LOOP = re.compile(r"= scf\.(?:for|while)\b[^\n]*?->([^\n]*)")
_TENSOR = re.compile(r"tensor<((?:\d+x)+)(?:f|bf)(\d+)\s*[,>]")


def _attribute(ttgir: str, name: str, otherwise: int | None = None) -> int | None:
    found = re.search(rf'"ttg\.{name}"\s*=\s*(\d+)', ttgir)
    return int(found[1]) if found else otherwise


def registers_a_thread(target: Any, warps: int) -> int:
    """The most that a thread of a block of so many warps can have."""
    if target.backend == "cuda":
        return min(_CUDA_THREAD, _CUDA_BLOCK // (warps * target.warp_size))
    if target.warp_size == 32:
        return _GFX125_WAVE if target.arch.startswith("gfx125") else _RDNA_WAVE
    return _CDNA_LANE // math.ceil(warps / _CDNA_SIMDS)


def carried_too_much(ttgir: str, target: Any) -> str | None:
    """A sentence when a loop carries twice a thread's registers or more, else None."""
    warps = _attribute(ttgir, "num-warps")
    if warps is None or "warp_specialize" in ttgir:  # there partitions have warps of their own
        return None
    threads = warps * target.warp_size * (_attribute(ttgir, "num-ctas", 1) or 1)
    there_are = registers_a_thread(target, warps)
    for loop in _LOOP.finditer(ttgir):
        for tensor in _TENSOR.finditer(loop[1]):
            extents = [int(extent) for extent in tensor[1].rstrip("x").split("x")]
            needed = math.prod(extents) * int(tensor[2]) // 32 // threads
            if needed >= 2 * there_are:
                return (f"a loop carries {' x '.join(map(str, extents))} values, {needed} "
                        f"registers of a thread, and there are {there_are}: every turn would store "
                        "and load half of them; pack --keep-spilling compiles it")
    return None


@contextmanager
def looked_at_before_code(backend: type, look: Callable[[str], None]) -> Iterator[None]:
    """The backend shows `look` each kernel's TTGIR, and goes on when it raises nothing."""
    original = backend.add_stages  # type: ignore[attr-defined]

    def add_stages(self: Any, stages: Json, *rest: Any) -> None:
        original(self, stages, *rest)
        lower = stages.get("ttgir")

        def stage(source: Any, metadata: Any) -> Any:
            module = lower(source, metadata)
            look(str(module))
            return module

        if lower is not None:
            stages["ttgir"] = stage

    backend.add_stages = add_stages  # type: ignore[attr-defined]
    try:
        yield
    finally:
        backend.add_stages = original  # type: ignore[attr-defined]
