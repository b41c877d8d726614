"""One line on a terminal, written again and again; nothing where stderr is none."""

import os
import sys


class Line:
    def __init__(self) -> None:
        self.is_there = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, text: str) -> None:
        if self.is_there:
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        self.show("")
