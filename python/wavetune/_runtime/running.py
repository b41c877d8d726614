"""python3 -m wavetune run [--cache FOLDER] PROGRAM ARGUMENT…, or run -m MODULE ARGUMENT…: as
python3 would run it, and it starts tuned."""

from __future__ import annotations

import os
import sys

USAGE = "usage: python3 -m wavetune run [--cache FOLDER] PROGRAM|-m MODULE ARGUMENT…"
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")


def main(arguments: list[str]) -> int:
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if arguments[:1] == ["--cache"] and arguments[1:]:
        os.environ["WAVETUNE_CACHE"], arguments = arguments[1], arguments[2:]
    if not arguments or arguments in (["-m"], ["--cache"]):
        print(USAGE, file=sys.stderr)
        return 2

    from ..entry import is_on
    if is_on():
        from .. import auto  # noqa: F401
    return execute("wavetune run", arguments)


def execute(command: str, arguments: list[str]) -> int:
    """Runs the program; 2, after a sentence on stderr, where there is none."""
    is_module = arguments[0] == "-m"
    sys.argv = arguments[1:] if is_module else arguments
    if not is_module:
        # python3 -m put the working folder there
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    try:
        why = _missing_module(arguments[1]) if is_module else missing_program(arguments[0])
        if why is not None:
            print(f"{command}: {why}", file=sys.stderr)
            return 2
        import runpy
        if is_module:
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(arguments[0], run_name="__main__")
    except BaseException:
        _hide_own_frames()
        raise
    return 0


def missing_program(path: str) -> str | None:
    try:
        if os.path.isdir(path):
            os.stat(os.path.join(path, "__main__.py"))
        else:
            open(path, "rb").close()
    except OSError as error:
        return f"cannot open the program {error.filename}: {error.strerror}"
    return None


def _missing_module(name: str) -> str | None:
    from importlib.util import find_spec
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # of a package's own imports
        spec = None
    return None if spec is not None else f"there is no module {name} that can be run"


def _hide_own_frames() -> None:
    """The traceback of a program that fails begins with the program, as python3 prints it."""
    hook = sys.excepthook

    def excepthook(kind, error, trace):
        own = trace
        while own is not None and _is_ours(own.tb_frame):
            own = own.tb_next
        # Where nothing is left, as after an error in the program's syntax, Python prints no
        # traceback either.
        hook(kind, error.with_traceback(own), own)

    sys.excepthook = excepthook


def _is_ours(frame) -> bool:
    path = frame.f_code.co_filename
    return path.startswith((_PACKAGE, "<frozen ")) or frame.f_globals.get("__name__") == "runpy"
