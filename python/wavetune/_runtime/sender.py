"""What is sent in the background: evidence, misses, compiled code, counters, and the attempt to reach a server that was away.

One thread, started when there is something to send. What does not fit into the queue is dropped and counted. When the program
ends, the thread gets 0.5 s for what is left, and none where the server did not answer before.

Counters go with evidence, else alone: every few minutes, and when the program ends. A report without an answer may have
arrived: its evidence is sent again, its counters are not, so that nothing is counted twice.
"""

from __future__ import annotations

import atexit
import json
import math
import random
import time
from collections import deque
from typing import Any, Callable
from urllib.parse import quote

from . import counters
from .log import log
from .wire import BODY_MAX, Wire
from .worker import Next, Worker

EVIDENCE_MAX = 1000  # pieces, waiting and in a request
MISSES_MAX = 1000
FILES_MAX, FILES_BYTES_MAX = 256, 64 * 1024 * 1024
GATHER_S = 1.0
COUNTERS_S = 300.0
LAST_S = 0.5


def log_counters() -> None:
    """When the program ends."""
    log("the program ends: " + ", ".join(f"{name} {value:.6g}" for name, value in counters.snapshot().items()))


class Sender:
    """`head`: what every report of evidence states beside its items."""

    def __init__(self, wire: Wire, head: Callable[[], dict[str, Any]]):
        self.wire, self.head = wire, head
        wire.wake = self.probe
        self._worker = Worker("sender", self._next)
        self.after_fork()
        atexit.register(self.stop)

    def after_fork(self) -> None:
        """In the child: the parent sends what it queued."""
        self._worker.after_fork()
        self._condition = self._worker.condition
        self._evidence: deque[dict[str, Any]] = deque()
        self._misses: list[dict[str, Any]] = []
        self._files: deque[tuple[str, bytes]] = deque()
        self._file_bytes = 0
        self._is_probing = False
        self._may_send_evidence = self._may_send_misses = self._may_send_files = True
        self._gather_until = 0.0
        self._counters_at = math.inf  # when counters are to be sent, at the latest

    # In the program's threads.

    def evidence(self, item: dict[str, Any]) -> None:
        with self._condition:
            if not self._may_send_evidence or len(self._evidence) >= EVIDENCE_MAX:
                counters.dropped += 1
                return
            if not self._evidence:
                self._gather_until = time.monotonic() + GATHER_S  # a start measures many
            self._evidence.append(item)
            self._worker.wake()

    def missed(self, item: dict[str, Any]) -> None:
        """Is sent with the next report."""
        with self._condition:
            if self._may_send_misses and len(self._misses) < MISSES_MAX:
                self._misses.append(item)

    def counted(self) -> None:
        """Something is in the counters, or will be at once."""
        if self._counters_at == math.inf:
            with self._condition:
                if self._may_send_evidence:
                    # Many containers start at once.
                    self._counters_at = time.monotonic() + COUNTERS_S * random.uniform(0.8, 1.2)
                    self._worker.wake()

    def file(self, path: str, body: bytes) -> None:
        with self._condition:
            if not self._may_send_files or len(body) > BODY_MAX or len(self._files) >= FILES_MAX or \
                    self._file_bytes + len(body) > FILES_BYTES_MAX:
                counters.dropped += 1
                return
            self._files.append((path, body))
            self._file_bytes += len(body)
            self._worker.wake()

    def probe(self) -> None:
        with self._condition:
            self._is_probing = True
            self._worker.wake()

    def stop(self) -> None:
        """Sends what is left, in at most LAST_S."""
        self._worker.end(0.0 if self.wire.is_open() else LAST_S)
        log_counters()

    def _has_counters(self) -> bool:
        return self._may_send_evidence and counters.is_pending()

    # In the thread.

    def _next(self) -> Next:
        due = min(self._gather_until if self._evidence else math.inf, self._counters_at)
        if self._worker.is_ended and (self._evidence or self._has_counters()):
            due = 0.0
        if not (self._files or self._is_probing) and due == math.inf:
            return None
        if not self.wire.may_try():
            return 5.0
        wait_s = 0.0 if self._files or self._is_probing else due - time.monotonic()
        return wait_s if wait_s > 0 else self._send

    def _send(self) -> None:
        if self._is_probing:
            self._is_probing = False
            self.wire.request("GET", "/readyz", background=True)
        elif self._files:
            self._send_file()
        else:
            self._send_misses()
            self._send_report()

    def _send_file(self) -> None:
        with self._condition:
            path, body = self._files.popleft()
            self._file_bytes -= len(body)
        answer = self.wire.request("PUT", path, body, {"Content-Type": "application/octet-stream"}, background=True)
        if answer is not None and answer.status < 300:
            counters.sent += 1
            return
        counters.dropped += 1
        if answer is not None and answer.status == 403:
            with self._condition:
                counters.dropped += len(self._files)
                self._may_send_files, self._file_bytes = False, 0
                self._files.clear()

    def _send_misses(self) -> None:
        with self._condition:
            if not self._misses or self.wire.is_open():
                return
            missed, self._misses = self._misses, []
        report = {name: value for name, value in self.head().items() if name != "node"}
        body = json.dumps({**report, "missed": missed}, separators=(",", ":")).encode()
        answer = self.wire.request("POST", "/v1/demand", body, {"Content-Type": "application/json"}, background=True)
        if answer is None or answer.status < 300:
            return  # without an answer they may have been counted
        with self._condition:
            if answer.status == 429:
                self._misses = missed + self._misses[:MISSES_MAX - len(missed)]
                return
            self._may_send_misses, self._misses = False, []  # a server that is older, or a token without the role
        log(f"POST /v1/demand: status {answer.status}: {answer.body[:200].decode('utf-8', 'replace')}")

    def _send_report(self) -> None:
        with self._condition:
            items = list(self._evidence)
            is_away = self.wire.is_open()
            counted = {} if is_away else counters.take()
            if not is_away:
                self._counters_at = math.inf
            elif not items:
                self._is_probing = True
        if not items and not counted:
            return
        report = {**self.head(), **({"items": items} if items else {}), **({"counters": counted} if counted else {})}
        body = json.dumps(report, separators=(",", ":")).encode()
        answer = self.wire.request("POST", "/v1/evidence", body, {"Content-Type": "application/json"}, background=True)
        if answer is None:
            return  # evidence is kept for when the server is back
        with self._condition:
            if answer.status == 429 and not self._worker.is_ended:  # many containers report under one token
                self._gather_until = time.monotonic() + random.uniform(30, 90)
                if counted:
                    counters.give_back(counted)
                    self._counters_at = self._gather_until
                return
            for _ in items:
                self._evidence.popleft()
            if answer.status < 300:
                counters.sent += len(items)
                return
            counters.dropped += len(items)
            log(f"POST /v1/evidence: status {answer.status}: {answer.body[:200].decode('utf-8', 'replace')}")
            if answer.status in (403, 404):
                counters.dropped += len(self._evidence)
                self._may_send_evidence, self._counters_at = False, math.inf
                self._evidence.clear()


def path_of(*segments: str, **query: str) -> str:
    """A path of the server, with every segment and value quoted."""
    text = "/" + "/".join(quote(segment, safe="") for segment in segments)
    if query:
        text += "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return text
