"""A program that `tune` runs: it takes first configs, and its launches are recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Mapping, NoReturn, Sequence

from .._canonical import Json
from .._pack.terminal import Line

POLL_S = 0.02
OWN_S, KILL_S = 3.0, 10.0  # after Ctrl-C: until SIGTERM, until SIGKILL


class Interrupted(Exception):
    """The user wants to leave."""


class RecordedProgram:
    """Use as a context, which kills the program with the processes that it started. Takes the
    signals of this process."""
    def __init__(self, words: Sequence[str], captures: Path, environment: Mapping[str, str],
                 is_json: bool):
        self.n_interrupts, self.was_stopped = 0, False
        signal.signal(signal.SIGINT, self._on_interrupt)
        signal.signal(signal.SIGTERM, self._on_term)
        self.status: int | None = None
        self.started, self.captures = time.monotonic(), captures
        variables = {
            **environment, "WAVETUNE_CAPTURE": "source", "WAVETUNE_CAPTURE_TO": str(captures),
            "WAVETUNE_ON_MISS": "first"}
        self._process = subprocess.Popen([sys.executable, "-m", "wavetune", "run", *words],
                                         env=variables,
                                         stdout=sys.stderr.fileno() if is_json else None)

    def __enter__(self) -> RecordedProgram:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
            self._signal_left(signal.SIGKILL)

    def _signal_left(self, number: int) -> bool:
        """Signals what the program started, known by its environment; whether any is left."""
        own, found = b"WAVETUNE_CAPTURE_TO=" + os.fsencode(self.captures), False
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if own in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    os.kill(int(name), number)
                    found = True
            except OSError:
                continue  # of another user, or it has ended
        return found

    def _on_interrupt(self, number: int, frame: Any) -> None:
        self.n_interrupts += 1

    def _on_term(self, number: int, frame: Any) -> NoReturn:
        raise SystemExit(128 + number)

    def wait(self, limit_s: float | None) -> None:
        """Until it has ended, by the limit or an interrupt; a second: Interrupted."""
        stopped_s = term_s = None
        while True:
            try:
                self.status = self._process.wait(POLL_S)
                break
            except subprocess.TimeoutExpired:
                pass
            now = time.monotonic()
            is_late = limit_s is not None and now - self.started > limit_s
            if stopped_s is None and (is_late or self.n_interrupts):
                self.was_stopped, stopped_s = True, now
                # A terminal has sent its Ctrl-C to the program too, which gets a moment for it.
                term_s = now + (OWN_S if sys.stdin.isatty() and not is_late else 0.0)
            if term_s is not None and now >= term_s:
                self._process.terminate()
                term_s = None
            if stopped_s is not None and now > stopped_s + KILL_S:
                self._process.kill()
            if self.n_interrupts > 1:
                raise Interrupted
        self.was_stopped = self.was_stopped or self.n_interrupts > 0
        if self.was_stopped:
            self._end_left()
        self.n_interrupts = 0  # what comes now is about tuning

    def _end_left(self) -> None:
        """Processes of a program that was stopped would use the GPU while it is measured."""
        end = time.monotonic() + OWN_S
        if self._signal_left(signal.SIGTERM):
            while time.monotonic() < end and self._signal_left(0):
                time.sleep(POLL_S)
            self._signal_left(signal.SIGKILL)

    def has_failed(self) -> bool:
        """Whether it ended badly, and not because it was stopped."""
        return self.status != 0 and not self.was_stopped

    def outcome(self) -> Json:
        return {"status": self.status, "was_stopped": self.was_stopped}

    def ending(self) -> str:
        if self.status is not None and self.status < 0:
            return f"it was ended by signal {-self.status} ({signal.Signals(-self.status).name})"
        return f"it ended with the status {self.status}"

    def documents(self, kind: str) -> list[Json]:
        """What it recorded: "functions" or "launches"."""
        return [json.loads(path.read_text())
                for path in sorted(self.captures.glob(f"{kind}/[!.]*.json"))]


class Progress:
    """A line on a terminal, which is the program's while it runs; elsewhere one for each text."""
    def __init__(self, is_quiet: bool = True):
        self._line = Line()
        self._is_quiet, self._text, self._started = is_quiet, "", time.monotonic()

    def show(self, text: str) -> None:
        line = f"wavetune tune: {text}, {time.monotonic() - self._started:.0f} s"
        self._line.show(line[:120])
        if text != self._text and not self._line.is_there and not self._is_quiet:
            print(f"wavetune tune: {text}", file=sys.stderr, flush=True)
        self._text = text

    def end(self) -> None:
        if self._text:
            self._line.end()


def table(rows: Sequence[Sequence[str]], wide: int) -> list[str]:
    """Lines of columns; a cell of the column `wide` that is long goes over the next ones."""
    widths = [min(48, max(len(row[i]) for row in rows
                          if i != wide or not row[i].startswith("none: ")))
              for i in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip()
            for row in rows]
