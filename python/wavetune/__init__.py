# SPDX-FileCopyrightText: 2026 the wavetune authors
# SPDX-License-Identifier: MIT
"""wavetune in Python. Public are the modules without an underscore:

- wavetune.auto: what imports it starts tuned; wavetune.autotune and wavetune.counters() are here
- wavetune.client: Client and ApiError, which are here too; wavetune.api has the types of its bodies
- wavetune.demand: reports which keys a program's autotuners are asked for
- wavetune.triton, wavetune.helion: classes that environment variables of Triton and Helion name
- wavetune.entry: entry points of torch, vLLM, SGLang and the wheel's scripts

Private, and in this order none imports a later one but where a function needs it:

- _errors, _canonical (JSON and digests), _token_url, _binaries (the wheel's programs): used by all
- _runtime: what is in a program that starts tuned: program.py puts it together, restore.py gives
  autotuners their configs, plugins.py gives packages their tables, capture.py records launches.
  Python 3.9, the standard library alone
- _pack: compiles kernels ahead of time without a GPU: build.py has the steps
- _captured: the same of recorded launches: build.py has the steps, leasing.py those with a server
- _tuning, _cli: the commands of `python3 -m wavetune`

This module imports nothing: each way in looks at the environment first.
"""

# The only place that states it: CMakeLists.txt and pyproject.toml read it here.
__version__ = "0.2.0"

TYPE_CHECKING = False  # type checkers take a variable of this name for true
if TYPE_CHECKING:
    from ._runtime.counters import snapshot as counters
    from ._runtime.decorate import autotune
    from .client import ApiError, Client

__all__ = ["ApiError", "Client", "autotune", "counters"]


def __getattr__(name):
    if name == "autotune":
        from ._runtime.decorate import autotune
        return autotune
    if name in ("Client", "ApiError"):
        from . import client
        return getattr(client, name)
    if name == "counters":
        from ._runtime.counters import snapshot
        return snapshot
    raise AttributeError(f"module 'wavetune' has no attribute {name!r}")
