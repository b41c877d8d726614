"""The environment of this process, as the server names environments (common/node/environment.h)."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import sys

from .._canonical import Named


def find(identity: Named) -> Named:
    """What torch, Triton and the kernel say, else the image's record. Nothing is guessed."""
    found = {
        "rocm": identity.get("rocm"), "torch": identity.get("torch"), "gpu": identity.get("gpu"),
        "triton": (identity.get("triton") or {}).get("version")
    }
    triton = sys.modules.get("triton")
    if triton is not None:
        found["triton"] = triton_version() or found["triton"]
        with contextlib.suppress(Exception):  # Triton sees no GPU, or several kinds
            found["arch"] = _arch(triton.runtime.driver.active.get_current_target())
    torch = sys.modules.get("torch")
    if torch is not None:
        with contextlib.suppress(Exception):  # torch is built for another driver than there is
            found.update(_of_torch(torch))
    return {name: value for name, value in found.items()
            if value or value == "" and name == "partition"}


def triton_version() -> str | None:
    return getattr(sys.modules.get("triton"), "__version__", None)


def _arch(target) -> str:
    return f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch).partition(":")[0]


def _of_torch(torch) -> Named:
    found = {"torch": str(torch.__version__)}
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
    place = os.environ.get("ROCM_PATH", "/opt/rocm")
    for name in (".info/version", ".info/version-dev"):
        found = re.match(r"\d+\.\d+\.\d+", read(os.path.join(place, name)))
        if found:
            return found[0]
    return None


def _partition() -> str | None:
    """Of all GPUs; "" where they cannot be partitioned, None where they are not alike."""
    modes = partitions()
    return "" if not modes else modes.pop() if len(modes) == 1 and "" not in modes else None


def partitions() -> set[str]:
    """How this machine's GPUs are partitioned, as agents state it (common/node/node.c): SPX/NPS1,
    or SPX where the memory's mode is not known."""
    found = set()
    for path in glob.glob("/sys/class/drm/card*/device/current_compute_partition")[:64]:
        compute = read(path).strip()
        memory = read(path.replace("_compute_", "_memory_")).strip()
        found.add(f"{compute}/{memory}" if compute and memory else compute)
    return found


def gpu_texts() -> list[tuple[str, str]]:
    """What the drivers state of the GPUs, without starting a runtime: (nvidia or amd, text)."""
    return [("nvidia", text) for text in texts("/proc/driver/nvidia/gpus/*/information")] + \
        [("amd", text) for text in texts("/sys/class/kfd/kfd/topology/nodes/*/properties")]


def texts(pattern: str) -> list[str]:
    return [read(path) for path in glob.glob(pattern)[:64]]


def read(path: str) -> str:
    """The beginning of a file of the kernel; "" where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""
