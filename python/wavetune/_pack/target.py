"""What is compiled for: an arch as builds name it (gfx942, sm_90) as Triton's GPUTarget, and its
backend. Only this file knows how versions of Triton differ.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Any

from .._canonical import Fields
from .._errors import PackError

# raise the second after tests/python/every-triton.sh passes with a newer one
SUPPORTED = ((3, 3), (3, 9))


def triton_version() -> tuple[int, int]:
    """Major and minor of the installed Triton; unknown versions are refused."""
    try:
        import triton
    except ImportError as error:
        raise PackError(f"this Python cannot import triton ({error}); run pack with one that has "
                        "it, such as build/python/bin/python, which tests/python-env.sh "
                        "makes") from None
    match = re.match(r"(\d+)\.(\d+)", triton.__version__)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if not SUPPORTED[0] <= version <= SUPPORTED[1]:
        raise PackError(f"Triton {triton.__version__} is installed; pack knows 3.3 to 3.9. To try "
                        f"a newer one, raise SUPPORTED in {__file__}")
    return version


def make_target(arch: str) -> Any:
    from triton.backends.compiler import GPUTarget
    match = re.fullmatch(r"gfx([0-9]+)[0-9a-f]{2}", arch)
    if match:
        return GPUTarget("hip", arch, 32 if int(match[1]) >= 10 else 64)
    match = re.fullmatch(r"sm_([0-9]+)", arch)
    if match:
        return GPUTarget("cuda", int(match[1]), 32)
    raise PackError(f'the arch must be like gfx942 or sm_90, not "{arch}"')


def _find_linker(backend: Any) -> None:
    """Before 3.5 Triton links for AMD by a program that its wheels lack; any LLVM's will do."""
    if not hasattr(backend, "path_to_rocm_lld"):
        return
    try:
        backend.path_to_rocm_lld()
        return
    except Exception:  # of several kinds, by version: there is no linker
        pass
    names = ("ld.lld", *(f"ld.lld-{number}" for number in range(30, 17, -1)))
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        raise PackError("Triton before 3.5 needs ld.lld to link for AMD: install lld (apt-get "
                        "install lld-19), or name one with TRITON_HIP_LLD_PATH")
    os.environ["TRITON_HIP_LLD_PATH"] = str(Path(found))


def make_backend(target: Any) -> Any:
    from triton.compiler import make_backend as make
    backend = make(target)
    _find_linker(backend)
    return backend


def scratch_pointers(version: tuple[int, int]) -> int:
    """Null pointers behind the arguments: global scratch since 3.3, profile since 3.5."""
    return 2 if version >= (3, 5) else 1


def hashes_library_paths(version: tuple[int, int]) -> bool:
    """Whether AMD's options are hashed with paths of libraries, or their contents."""
    return version < (3, 9)


def uses_buffer_ops(version: tuple[int, int], environment: Fields) -> bool:
    """Whether AMD's backend specialises on 32-bit buffers: a variable, on by default since 3.6."""
    value = environment.get("AMDGCN_USE_BUFFER_OPS")
    if value is None:
        return version >= (3, 6)
    return str(value).lower() in ("1", "true", "yes", "on", "y")
