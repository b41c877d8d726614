"""Tunes kernel folders on this machine's devices, each with a process of `wavetune-agent tune`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Sequence

from .._binaries import path_of
from .._canonical import Fields
from .._captured.following import Lines
from .._errors import PackError, last_line, one_line
from .._pack.pool import end_with_parent
from .folder import Built

PROGRAM = "wavetune-agent"
ROUNDS = {
    "WAVETUNE_SCREEN_ROUNDS": "6", "WAVETUNE_FINAL_ROUNDS": "15", "WAVETUNE_CONFIG_TIMEOUT": "20"
}  # unless they are set
_STOP_S = 30.0


class Probe:
    """The GPUs of this machine, while something else goes on."""
    def __init__(self) -> None:
        self._process = subprocess.Popen([path_of(PROGRAM), "probe"], stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                         start_new_session=True, preexec_fn=end_with_parent)

    def devices(self, stated: Fields) -> list[str]:
        """Those of an environment, by arch and, of several models, by name. Waits."""
        out, err = self._process.communicate()
        if self._process.returncode:
            raise PackError(f"{PROGRAM} finds no devices: {one_line(err or 'it said nothing')}", 1)
        found = json.loads(out)
        arch = stated.get("arch")
        able = [one for one in found["devices"]
                if one["backend"] != "cpu" and one["environment"].get("arch") == arch]
        if not able:
            why = "; ".join(str(one["reason"]) for one in found["absent"])
            raise PackError(f"there is no GPU of {arch} here to tune on ({one_line(why)})", 1)
        same = [one for one in able if one["environment"].get("gpu") == stated.get("gpu")]
        return [str(one["device"]) for one in same or able]


class _Agent:
    """The process of one device, which tunes one part after another; `part`: the one it has."""
    def __init__(self, device: str, scratch: Path):
        self.device = device
        self.part: _Part | None = None
        self._place = Path(tempfile.mkdtemp(prefix="agent.", dir=scratch))
        words = [path_of(PROGRAM), "tune", "--stdin", "--device", device, "--json", "--state",
                 str(scratch / f"state.{device}")]
        with open(self._place / "out", "wb") as out, open(self._place / "err", "wb") as err:
            self._process = subprocess.Popen(words, env={**ROUNDS, **os.environ},
                                             stdin=subprocess.PIPE, stdout=out, stderr=err,
                                             start_new_session=True, preexec_fn=end_with_parent)
        # Of a key; {"campaign"} or {"error"} at a part's end.
        self.reports = Lines(self._place / "out")

    def begin(self, part: _Part) -> None:
        self.part = part
        line = {"folder": str(part.built.place), "build": str(part.built.place / "build"),
                "keys": part.keys}
        with suppress(BrokenPipeError):  # it has died, which its status says
            self._stdin.write(json.dumps(line).encode() + b"\n")
            self._stdin.flush()

    @property
    def _stdin(self) -> Any:
        return self._process.stdin

    def is_dead(self) -> bool:
        return self._process.poll() is not None

    def said(self) -> str:
        """Why it died."""
        return last_line((self._place / "err").read_text(errors="replace"),
                         f"{PROGRAM} ended with the status {self._process.returncode}")

    def stop(self, is_waited_for: bool) -> None:
        """Ends it; what it decided before is reported."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        if not is_waited_for and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class _Part:
    """Keys of a kernel folder that one device tunes."""
    def __init__(self, built: Built, keys: Sequence[Any]):
        self.built, self.keys = built, list(keys)


class Agents:
    """Shares keys of kernel folders out among devices. `decided`: called with the folder and the
    report of each key, which has "error" where it has no winner."""
    def __init__(self, devices: Sequence[str], scratch: Path,
                 decided: Callable[[Built, Fields], None]):
        self.scratch, self.decided = scratch, decided
        self._agents = [_Agent(device, scratch) for device in devices]
        self._waiting: list[_Part] = []
        self._left: dict[Path, int] = {}  # keys of each folder that have no report

    def add(self, built: Built, keys: Sequence[Any]) -> None:
        """Keys of one folder share processes: parts are made for devices that would wait."""
        n_idle = sum(agent.part is None for agent in self._agents) - len(self._waiting)
        n = max(1, min(len(keys), n_idle))
        self._waiting += [_Part(built, keys[i::n]) for i in range(n)]
        self._left[built.place] = len(keys)

    def is_busy(self) -> bool:
        return bool(self._waiting) or any(agent.part is not None for agent in self._agents)

    def work(self) -> None:
        """Takes what is decided, and gives each device its next part; returns at once."""
        for i, agent in enumerate(self._agents):
            is_dead = agent.is_dead()  # before the look at what it said
            self._take(agent)
            if is_dead:
                if agent.part is not None:
                    self._lose(agent.part, agent.said())
                    agent.part = None
                if self._waiting:
                    agent = self._agents[i] = _Agent(agent.device, self.scratch)
            if agent.part is None and self._waiting and not agent.is_dead():
                agent.begin(self._waiting.pop(0))

    def _take(self, agent: _Agent) -> None:
        for report in agent.reports.new():
            if agent.part is None:
                continue
            if "key" in report:
                self._report(agent.part, report)
                continue
            if "error" in report:
                self._lose(agent.part, report["error"])
            agent.part = None

    def _report(self, part: _Part, report: Fields) -> None:
        if report["key"] not in part.keys:
            return
        part.keys.remove(report["key"])
        self.decided(part.built, report)
        self._left[part.built.place] -= 1
        if self._left[part.built.place] == 0:
            part.built.remove()

    def _lose(self, part: _Part, why: str) -> None:
        """Its keys were not tried; the kernel folder stays for another call."""
        for key in part.keys:
            self.decided(part.built, {"key": key, "error": why, "is_lost": True})
        part.keys = []

    def stop(self) -> None:
        is_done = not self.is_busy()
        for agent in self._agents:
            agent.stop(is_done)
            for report in agent.reports.new():
                if agent.part is not None and "winner" in report:
                    self._report(agent.part, report)
        self._agents, self._waiting = [], []
