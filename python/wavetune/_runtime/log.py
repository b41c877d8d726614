"""$WAVETUNE_LOG: off, "stderr", or the path of a file (with a "/"). Levels of other programs
(error, info, …) are off."""

from __future__ import annotations

import os
import sys
import time

from . import counters

_LINES_MAX = 1000
_written = 0


def log(sentence: str) -> None:
    """Writes one line where $WAVETUNE_LOG says, at most 1,000 in a process; nothing is raised."""
    global _written
    where = os.environ.get("WAVETUNE_LOG", "")
    if where != "stderr" and "/" not in where or _written >= _LINES_MAX:
        return
    _written += 1
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = f"{now} wavetune[{os.getpid()}]: {sentence}\n"
    try:
        if where == "stderr":
            sys.stderr.write(line)
        else:
            with open(where, "a", encoding="utf-8", errors="replace") as file:
                file.write(line)
    except Exception:
        pass  # there is no other place to say it, as in a program that has closed stderr


def surprised(what: str, error: BaseException) -> None:
    """Counts and logs an exception that must not reach the program."""
    counters.failures += 1
    log(f"{what} failed, and the program goes on without: {text_of(error)}")


class quietly:
    """`with quietly(what)`: an exception is counted and logged, and goes no further."""

    def __init__(self, what: str):
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error, _) -> bool:
        if not isinstance(error, Exception):
            return False
        surprised(self.what, error)
        return True


def text_of(error: BaseException) -> str:
    """An exception in a sentence; its own text is made by code of others, which may fail too."""
    try:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    except Exception:  # what __str__ raises says less than the error's type
        return type(error).__name__
