"""python3 -m wavetune run PROGRAM ARGUMENT…, or run -m MODULE ARGUMENT…: as python3 would run it, and it starts tuned."""

from __future__ import annotations

import os
import sys

USAGE = "usage: python3 -m wavetune run PROGRAM|-m MODULE ARGUMENT…"


def main(arguments: list[str]) -> int:
    import runpy
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if not arguments or arguments == ["-m"]:
        print(USAGE, file=sys.stderr)
        return 2

    from .entry import is_on
    if is_on():
        from . import auto  # noqa: F401
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))  # python3 -m put the working folder there
        runpy.run_path(arguments[0], run_name="__main__")
    return 0
