"""What the autotuners of Inductor and Helion find, from and for containers that share it: one
namespace for a token, an image and the hardware, which the operator opened (serve --remote-share).
Compiled code and pickles never go this way.

A value is a small JSON document, from which a reader builds a config: inductor.py and helion.py
check each member of what comes and goes.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

from . import counters, environment
from .log import log, quietly
from .patching import when_there
from .sender import path_of
from .wire import Bad

BYTES_MAX = {"inductor": 16 << 10, "helion": 64 << 10}
NEWEST_MAX = 100
HARDWARE_MAX = 200


class Found:
    """The values of other containers, for one process."""

    def __init__(self, program):
        self.program = program
        # the operator did not open the namespace; that will not change while the program runs
        self.is_closed = False
        self._hardware: str | None = None
        self._is_told = False

    def is_on(self) -> bool:
        """Not beside what trusted keys signed or a pinned release, nor unencrypted."""
        own, wire = self.program.settings, self.program.wire
        return not self.is_closed and wire is not None and wire.is_private and \
            own.token is not None and not own.trusted_keys and not own.is_pinned

    def get(self, tool: str, key: str):
        """The value, parsed; None where there is none."""
        return self._ask(tool, key, BYTES_MAX[tool])

    def newest(self, tool: str, n: int) -> list[Any]:
        n = max(1, min(n, NEWEST_MAX))
        found = self._ask(tool, None, n * (BYTES_MAX[tool] + 1) + 2, newest=str(n))
        return found[:n] if isinstance(found, list) else []

    def put(self, tool: str, key: str, value) -> None:
        """Sends it in the background."""
        hardware, sender = self.hardware(), self.program.sender
        if self.is_on() and hardware is not None and sender is not None:
            body = json.dumps(value, separators=(",", ":")).encode()
            if len(body) <= BYTES_MAX[tool]:
                sender.file(self._path(tool, key, hardware), body)

    def hardware(self) -> str | None:
        """The hardware that values are for; None: it is not known, and nothing is shared."""
        self._hardware = self._hardware or hardware()
        if self._hardware is None and not self._is_told:
            self._is_told = True
            log("configs of Inductor and Helion are not shared: the GPU's model is not known")
        return self._hardware

    def _path(self, tool: str, key: str | None, stated: str, **query: str) -> str:
        names = ("v1", "remote", tool) if key is None else ("v1", "remote", tool, key)
        return path_of(*names, hardware=stated, image=self.program.settings.image(), **query)

    def _ask(self, tool: str, key: str | None, limit: int, **query: str):
        stated = self.hardware() if self.is_on() else None
        if stated is None:
            return None
        path = self._path(tool, key, stated, **query)
        answer = self.program.wire.request("GET", path, limit=limit)
        if answer is not None and answer.status == 403:
            self.is_closed = True
            log("configs of Inductor and Helion are not shared: the operator did not open this "
                "namespace")
        if answer is None or answer.status != 200:
            return None
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            self.program.wire.garbled(f"GET {path[:100]}: the answer is no JSON")
            return None


def is_hash(key) -> bool:
    return isinstance(key, str) and re.fullmatch("[0-9a-f]{64}", key) is not None


def check_scalar(name: str, value) -> None:
    """That it is null, a boolean, an integer of 32 bits or a short word. Raises Bad."""
    if not (value is None or isinstance(value, bool) or
            type(value) is int and -2**31 <= value < 2**31 or
            isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.:\-]{0,128}", value)):
        raise Bad(f"{name[:80]} has no value of a config")


def check_name(name) -> None:
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,63}", name) or \
            name in ("ir_override", "pre_hook", "extra_options", "advanced_controls_file"):
        raise Bad(f"a config has no member {str(name)[:80]!r}")


def refuse(tool: str, key: str, why: Bad) -> None:
    counters.refused += 1
    log(f"the config {key[:12]} of {tool} is not used: {why}")


# The hardware, without initialising a GPU runtime: Inductor asks in processes that compile and have
# none.

def hardware() -> str | None:
    """The GPU's model, its partition and the version of CUDA or ROCm. Keys of Inductor lack them
    (they do have the number of compute units); keys of Helion have the first and the last."""
    try:
        stated = json.loads(os.environ.get("WAVETUNE_ENVIRONMENT") or "{}")
    except ValueError:
        stated = {}
    if not isinstance(stated, dict):
        stated = {}
    gpu = stated.get("gpu") or _gpu() or _gpu_of_torch()
    partition = stated.get("partition") if "partition" in stated else \
        "+".join(sorted(environment.partitions()))
    version = getattr(sys.modules.get("torch"), "version", None)
    names = [str(one) for one in (gpu, partition) if one]
    for name, attribute in (("cuda", "cuda"), ("rocm", "hip")):
        runtime = stated.get(name) or getattr(version, attribute, None)
        if runtime:
            names.append(f"{name} {runtime}")
    text = "; ".join(names)
    return text if gpu and text.isprintable() and len(text.encode()) <= HARDWARE_MAX else None


def _gpu() -> str | None:
    """The model of all GPUs, as NVIDIA's driver names it, or AMD's by its PCI id."""
    found = set()
    for kind, text in environment.gpu_texts():
        if kind == "nvidia":
            found.update(re.findall(r"^Model:\s*(\S.*?)\s*$", text, re.MULTILINE))
            continue
        facts = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
        if facts.get("simd_count", "0") != "0":  # a node with none is a CPU
            vendor, device = (int(facts.get(name, "0")) for name in ("vendor_id", "device_id"))
            found.add(f"PCI {vendor:04x}:{device:04x}")
    return found.pop() if len(found) == 1 else None


def _gpu_of_torch() -> str | None:
    """As torch names it, where it uses one already: NVIDIA's names are those of the driver."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return cuda.get_device_name() if cuda is not None and cuda.is_initialized() else None
    except Exception:  # whatever torch raises for a device that is lost: its model is not known
        return None


_found: Found | None = None


def found() -> Found | None:
    """That of this process; None where nothing is shared."""
    return _found if _found is not None and _found.is_on() else None


def start(program) -> None:
    """Watches for the modules that ask, and patches those that are there."""
    global _found
    _found = Found(program)
    if _found.is_on():
        when_there(MODULES, patch)


MODULES = ("torch._inductor.runtime.autotune_cache", "helion.runtime.settings",
           "helion.autotuner.remote_cache")


def patch(module) -> None:
    with quietly(f"patching {module.__name__}"):
        if module.__name__ == MODULES[0]:
            from . import inductor
            inductor.patch(module)
            return
        from .. import helion
        (helion.patch_settings if module.__name__ == MODULES[1] else helion.patch_cache)(module)
