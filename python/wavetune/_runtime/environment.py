"""The environment of this process, as the server names environments (common/node/environment.h)."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import sys
from typing import Any, Mapping


def find(identity: Mapping[str, Any]) -> dict[str, Any]:
    """What torch, Triton and the kernel say, and for what they do not say, the image's record.
    Nothing is guessed."""
    found: dict[str, Any] = {
        "rocm": identity.get("rocm"), "torch": identity.get("torch"), "gpu": identity.get("gpu"),
        "triton": (identity.get("triton") or {}).get("version")
    }
    triton = sys.modules.get("triton")
    if triton is not None:
        found["triton"] = getattr(triton, "__version__", None) or found["triton"]
        with contextlib.suppress(Exception):  # Triton sees no GPU, or several kinds
            found["arch"] = _arch(triton.runtime.driver.active.get_current_target())
    torch = sys.modules.get("torch")
    if torch is not None:
        with contextlib.suppress(Exception):  # torch is built for another driver than there is
            found.update(_of_torch(torch))
    return {
        name: value for name, value in found.items() if value or value =="" and name == "partition"
    }


def _arch(target: Any) -> str:
    return f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch).partition(":")[0]


def _of_torch(torch: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"torch": str(torch.__version__)}
    if not torch.cuda.is_available():
        return found
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    found.update(gpu=torch.cuda.get_device_name(), compute_units=int(device.multi_processor_count))
    if torch.version.hip:
        found.update(rocm=rocm(), arch=device.gcnArchName.partition(":")[0], partition=_partition())
    else:
        found.update(cuda=str(torch.version.cuda), arch=f"sm_{device.major}{device.minor}",
                     partition="")
    return {name: value for name, value in found.items() if value is not None}


def rocm() -> str | None:
    """The version of the installed ROCm, as its packages state it."""
    for name in (".info/version", ".info/version-dev"):
        try:
            with open(os.path.join(os.environ.get("ROCM_PATH", "/opt/rocm"), name),
                      encoding="ascii") as file:
                found = re.match(r"\d+\.\d+\.\d+", file.read(200))
        except (OSError, ValueError):
            continue
        if found:
            return found[0]
    return None


def _partition() -> str | None:
    """How the GPUs are partitioned, where all are alike; "" where they cannot be."""
    modes = set()
    for path in glob.glob("/sys/class/drm/card*/device/current_compute_partition"):
        try:
            with open(path, encoding="ascii") as file:
                modes.add(file.read(100).strip())
        except (OSError, ValueError):
            return None
    return modes.pop() if len(modes) == 1 else "" if not modes else None
