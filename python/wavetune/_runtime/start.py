"""Prefetches what a program needs at its start, in a namespace that the operator opened.

A program that has been started writes a list into the namespace: the files and groups of Triton's
cache that it used and the launchers and kernels that it compiled, in this order, without those of
configs that lost. The next program gets the list while it imports its modules, and prepares all of
it in the background: with WAVETUNE_SHARED_CODE=1 it fetches the files, otherwise it compiles the
kernels (ahead.py). Lists are found by the command line and the GPUs; where that has none, by the
first folder that the program requests. A list is a hint: what no request needed is dropped.

{"files": [[FOLDER, NAME, IS_GROUP], …], "kernels": ["{…}", …],
"launchers": [{"backend", "types", "warp_size"}, …], "version": 1}

Threads: one that gets the list and later sends the own one, and FETCHERS.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import sys
import threading
import time
from typing import Any

from . import ahead, counters, environment
from .code import check_name, code_path, folder_name
from .launchers import LAUNCHERS_MAX, Launcher, cache_root, parse
from .log import log, quietly, text_of
from .wire import Answer, Bad
from .worker import Early, Next, Worker

NAME = "start.json"
VERSION = 1
FILES_MAX = 256
LIST_MAX = 256 * 1024  # bytes
BYTES_MAX = 64 * 1024 * 1024  # of what is fetched and not taken
FETCHERS = 4
FIRST_S = 600.0  # how long the list waits for a first folder
QUIET_S = 30.0  # without a new need, the start is over
_FOLDER = re.compile(r"[A-Z2-7]{52}")
Need = tuple  # folder, name, is_group


def read_list(body: bytes) -> tuple[list[Need], list[Launcher], list[str]]:
    """Needs, launchers and kernels. Raises ValueError, Bad or KeyError where it is garbled."""
    try:
        found = json.loads(body)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ValueError("it is no list of this version")
    files, launchers, kernels = found["files"], found["launchers"], found.get("kernels", [])
    if not all(isinstance(part, list) for part in (files, launchers, kernels)):
        raise ValueError("it is no list of this version")
    needs = []
    for one in files[:FILES_MAX]:
        if not isinstance(one, list) or len(one) != 3 or not isinstance(one[0], str) or \
                not _FOLDER.fullmatch(one[0]) or type(one[2]) is not bool or \
                not check_name(one[1]).endswith(".json"):
            raise ValueError("a file of it has no folder, name or kind")
        needs.append(tuple(one))
    for text in kernels[:ahead.KERNELS_MAX]:
        ahead.check(text)
    return needs, list(map(parse, launchers[:LAUNCHERS_MAX])), kernels[:ahead.KERNELS_MAX]


def write_list(needs, launchers, kernels) -> bytes:
    found = {
        "files": list(needs), "kernels": list(kernels),
        "launchers": [one.json() for one in launchers], "version": VERSION
    }
    return json.dumps(found, sort_keys=True, separators=(",", ":")).encode()


def folder_of(*texts: str) -> str:
    """A name like that of a folder of Triton's cache."""
    text = "\0".join(("wavetune start", *texts))
    return folder_name(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def _gpus() -> str:
    """The models of the node's GPUs."""
    return "\n".join(sorted({line.strip() for _, text in environment.gpu_texts()
                             for line in text.splitlines()
                             if line.startswith(("Model", "gfx_target_version"))}))


class Start:
    def __init__(self, program):
        self.program = program
        self._worker = Worker("start", self._next)
        self._fetchers = Early("fetch", self._fetch_one, lambda: FETCHERS)  # by path
        self.after_fork()
        atexit.register(self._end)

    def after_fork(self) -> None:
        """In the child, which has a start of its own only if it begins to compile."""
        self._worker.after_fork()
        self._fetchers.after_fork()
        self._lock = self._worker.condition
        self.here = threading.local()  # `needs`: of the config that this thread benchmarks
        self._needs: dict[Need, None] = {}
        self._kernels: dict[str, None] = {}
        self._listed_needs: list[Need] = []
        self._listed: set[Any] = set()
        self._last_s = 0.0
        self._is_begun = self._is_looked_up = self._is_sent = False
        # a first folder is waited for, whose list is requested
        self._first_until: float | None = None
        self._command: str | None = None

    # In the program's threads.

    def begin(self) -> None:
        """Triton is being imported. Returns at once; nothing is raised."""
        if not self._is_begun and self.program.shares_starts():
            self._is_begun = True
            self._worker.wake()

    def need(self, folder: str, name: str, is_group: bool) -> None:
        """The program looks up a file or a group of Triton's cache."""
        self._needed((folder, name, is_group), self._needs)
        self._last_s = time.monotonic()

    def compiled(self, kernel: str) -> None:
        """The program compiles a kernel, or finds it in its folder."""
        self._needed(kernel, self._kernels)

    def _needed(self, one, known) -> None:
        provisional = getattr(self.here, "needs", None)
        if provisional is not None:
            provisional.append(one)
        elif one not in known:
            self._add([one])

    def set_provisional(self, needs: list[Any] | None) -> None:
        """What this thread needs from now on is of a config that may lose; None: no longer."""
        self.here.needs = needs

    def used(self, needs: list[Any]) -> None:
        """Those of a config that won: files and kernels."""
        self._add([one for one in needs if one not in self._needs and one not in self._kernels])

    def _add(self, needs: list[Any]) -> None:
        self.begin()
        with self._lock:
            self._last_s = time.monotonic()  # before there is a need: the thread looks at both
            for one in needs:
                if isinstance(one, str):
                    if len(self._kernels) < ahead.KERNELS_MAX:
                        self._kernels[one] = None
                elif len(self._needs) < FILES_MAX and _FOLDER.fullmatch(one[0]) and \
                        one[1].endswith(".json"):
                    self._needs[one] = None
        self.noticed()

    def noticed(self) -> None:
        self._last_s = time.monotonic()
        if self._is_begun:
            self._worker.wake()

    def take(self, path: str) -> Answer | None:
        """The answer for a path that was requested before; waits for one that is on its way."""
        if path not in self._fetchers.named:
            return None
        started, wire = time.monotonic(), self.program.wire
        answer = self._fetchers.result(path, max(0.0, wire.budget_left_s()))
        wire.waited(time.monotonic() - started)
        return answer

    # In the thread.

    def _next(self) -> Next:
        now = time.monotonic()
        if self._is_sent or self._worker.is_ended:
            return None
        if not self._is_looked_up:
            return self._look_up
        if self._needs and now < (self._first_until or 0.0):
            return self._look_up_first
        if not self._needs and not self._kernels:
            return None
        return self._send if now >= self._last_s + QUIET_S else self._last_s + QUIET_S - now

    def _look_up(self) -> None:
        self._is_looked_up = True
        # Waits until the program has imported it; the image's name has its version.
        import triton  # noqa: F401
        self._command = folder_of(_gpus(), os.path.basename(sys.argv[0]), *sys.argv[1:])
        if not self._get(self._command) and self.program.gives_code():
            self._first_until = time.monotonic() + FIRST_S

    def _look_up_first(self) -> None:
        self._first_until = None
        self._get(folder_of(next(iter(self._needs))[0]))

    def _get(self, folder: str) -> bool:
        """Whether there is a list; begins with what it has."""
        program = self.program
        if not program.shares_starts():
            return False
        answer = program.wire.request("GET", code_path(program, folder, NAME), limit=LIST_MAX,
                                      is_waited_for=False)
        if answer is not None and answer.status == 403:
            program.is_code_refused = True
        if answer is None or answer.status != 200:
            return False
        try:
            needs, launchers, kernels = read_list(answer.body)
        except (Bad, KeyError, TypeError, ValueError) as error:
            counters.refused += 1
            log(f"the list of a start is not used: {text_of(error)}")
            return False
        log(f"a start like this one needed {len(needs)} files, {len(kernels)} kernels and "
            f"{len(launchers)} launchers")
        self._listed = {*needs, *launchers, *kernels}
        program.launchers.prepare(launchers)
        if program.gives_code():
            self._fetch(needs)
        else:
            self._listed_needs = needs
            program.ahead.prepare(kernels)
        return True

    def _fetch(self, needs: list[Need]) -> None:
        root, choices = cache_root(), self.program.choices
        stated = {folder: choices.code(folder, is_waited_for=False)
                  for folder, _, is_group in needs if is_group}
        self._fetchers.until = time.monotonic() + self.program.settings.budget_s
        for need in needs:
            folder, name, is_group = need
            local = os.path.join(root, folder, f"__grp__{name}" if is_group else name)
            if need not in self._needs and not os.path.exists(local):
                found = stated.get(folder) if is_group else None
                path = code_path(self.program, folder, *(["group"] if is_group else []), name,
                                 release=found.release if found is not None else None)
                self._fetchers.begin(path, path)

    def _fetch_one(self, path: str) -> Answer | None:
        waiting = [job.result.body for job in list(self._fetchers.named.values())
                   if job.result is not None]
        if sum(map(len, waiting)) >= BYTES_MAX or not self.program.gives_code() or \
                self.program.wire.is_open():
            return None
        return self.program.wire.request("GET", path, is_waited_for=False)

    # The own list.

    def _end(self) -> None:
        """The program ends: its start is over too."""
        self._fetchers.end(0.0)
        with quietly("the list of a start"):
            self._send()
        self._worker.end(0.0)

    def _send(self) -> None:
        """Sends the list where there was none, or one that fits badly."""
        with self._lock:
            if self._is_sent or not (self._needs or self._kernels):
                return
            self._is_sent = True
            self._fetchers.named.clear()
            # What takes no code knows no files, and keeps those of the list.
            needs = list(self._needs) if self.program.gives_code() else self._listed_needs
            kernels = list(self._kernels)
        launchers = list(self.program.launchers.made)
        own = {*needs, *launchers, *kernels}
        n_unexpected = len(own ^ self._listed)
        if not self.program.shares_starts() or self.program.sender is None or \
                4 * n_unexpected <= len(own):
            return
        body = write_list(needs, launchers, kernels)
        if len(body) > LIST_MAX:
            return
        for folder in (self._command, folder_of(needs[0][0]) if needs else None):
            if folder is not None:
                self.program.sender.file(code_path(self.program, folder, NAME), body)
