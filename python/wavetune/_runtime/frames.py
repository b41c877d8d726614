"""What run() of an autotuner has in its variables, the same in Triton 3.3 to 3.9 and triton-dejavu:
the one module that reads stack frames of others. tests/python/test_frames.py reads them in each
version.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Iterator, Mapping, Optional

DEPTH_MAX = 100  # from a compile up to its autotuner


def _above(depth: int) -> Iterator[FrameType]:
    """The frames above the caller's, the innermost first."""
    frame: Optional[FrameType] = sys._getframe(2)
    for _ in range(depth):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def running(tuner: Any) -> Mapping[str, Any]:
    """The variables of the autotuner's run(), which is what called us; {} where it did not."""
    for frame in _above(sys.maxsize):
        if frame.f_code.co_name == "run" and frame.f_locals.get("self") is tuner:
            return frame.f_locals
    return {}


def running_of(module: str) -> Mapping[str, Any]:
    """The variables of the innermost run() that is defined in a module; {}: none is running."""
    for frame in _above(sys.maxsize):
        if frame.f_code.co_name == "run" and frame.f_globals.get("__name__") == module:
            return frame.f_locals
    return {}


def failed(error: BaseException) -> Mapping[str, Any]:
    """The variables of what the caller called, and which raised the error."""
    inner = error.__traceback__.tb_next if error.__traceback__ is not None else None
    return inner.tb_frame.f_locals if inner is not None else {}


def launching(jit: Any, find: Any) -> Optional[Mapping[str, Any]]:
    """The variables of the autotuner's run() that launches the function now; None where none does,
    or where it is measuring. `find`: the jit function below an autotuner."""
    is_launched = False
    for frame in _above(DEPTH_MAX):
        if frame.f_code.co_name == "_bench":
            return None
        if frame.f_code.co_name == "run":
            own = frame.f_locals.get("self")
            is_launched = is_launched or own is jit
            if is_launched and len(getattr(own, "configs", ())) > 1 and find(own) is jit:
                return frame.f_locals
    return None


def is_tuned() -> bool:
    """Whether an autotuner with several configs launches: its misses are recorded."""
    return any(frame.f_code.co_name in (
        "run", "_bench") and len(getattr(frame.f_locals.get("self"), "configs", ())) > 1
               for frame in _above(sys.maxsize))
