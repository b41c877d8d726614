"""What is compiled for: an arch as builds name it (gfx942, sm_90) as Triton's GPUTarget, and its backend.

Only this file and compiling.py know how versions of Triton differ.
"""

import re
from typing import Any

from .errors import PackError

SUPPORTED = ((3, 3), (3, 6))


def triton_version() -> tuple[int, int]:
    """Major and minor of the installed Triton; other versions than those known are refused, not guessed at."""
    try:
        import triton
    except ImportError as error:
        raise PackError(f"this Python cannot import triton ({error}); run pack with one that has it, such as "
                        "build/python/bin/python, which tests/python-env.sh makes") from None
    match = re.match(r"(\d+)\.(\d+)", triton.__version__)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if not SUPPORTED[0] <= version <= SUPPORTED[1]:
        raise PackError(f"Triton {triton.__version__} is installed; pack knows 3.3 to 3.6")
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


def make_backend(target: Any) -> Any:
    from triton.compiler import make_backend as make
    return make(target)


def scratch_pointers(version: tuple[int, int]) -> int:
    """How many null pointers follow the arguments (Triton's launchers: global scratch since 3.3, profile since 3.5)."""
    return 2 if version >= (3, 5) else 1
