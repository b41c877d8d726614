# SPDX-FileCopyrightText: 2026 the wavetune authors
# SPDX-License-Identifier: MIT
"""wavetune in Python: programs that start tuned (wavetune.auto, wavetune.autotune), and the Triton bridge, which packs
@triton.jit kernels ahead of time, with no GPU, into builds.

This module imports nothing: each way in looks at the environment first.
"""

# The only place that states it: CMakeLists.txt and pyproject.toml read it here.
__version__ = "0.2.0"


def __getattr__(name):
    if name == "autotune":
        from .decorate import autotune
        return autotune
    if name in ("Client", "ApiError"):
        from . import client
        return getattr(client, name)
    if name == "counters":
        from .runtime.counters import snapshot
        return snapshot
    raise AttributeError(f"module 'wavetune' has no attribute {name!r}")
