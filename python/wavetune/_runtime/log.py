"""$WAVETUNE_LOG: off, "stderr", or the path of a file (with a "/"). Levels of other programs (error, info, …) are off."""

from __future__ import annotations

import os
import sys
import time

_LINES_MAX = 1000
_written = 0


def log(sentence: str) -> None:
    """Writes one line where it was asked for, never more than 1,000 in a process; nothing is raised."""
    global _written
    where = os.environ.get("WAVETUNE_LOG", "")
    if where != "stderr" and "/" not in where or _written >= _LINES_MAX:
        return
    _written += 1
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} wavetune[{os.getpid()}]: {sentence}\n"
    try:
        if where == "stderr":
            sys.stderr.write(line)
        else:
            with open(where, "a", encoding="utf-8", errors="replace") as file:
                file.write(line)
    except Exception:
        pass
