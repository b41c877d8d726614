"""`tune` with a server: posts what the program recorded, makes jobs of what builders have built,
and waits until each key is tuned and, where a policy makes releases, served. It says what is left,
and whose move that is.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Sequence

from .._canonical import Fields, Json, canonical
from .._errors import PackError
from .._runtime.capture import POST_MAX, body_of
from .._runtime.wire import BODY_MAX
from ..client import ApiError, Client
from .program import Interrupted, Progress, RecordedProgram, table

_ASK_S = (0.5, 5.0)  # between looks, the first and at most
_GOES_ON = ("waiting", "building", "queued", "tuning")
_BAD = ("refused", "failed", "cancelled", "undecided")
TIMED_OUT, INTERRUPTED = 9, 130


class _Asking:
    def __init__(self, client: Client, functions: Sequence[Fields],
                 launches: Sequence[Fields]):
        self.client, self.functions, self.launches = client, functions, launches
        self.may_tune = True
        self.wanted: dict[str, set[Any]] = collections.defaultdict(set)  # by closure
        self.names: dict[str, set[Any]] = collections.defaultdict(set)  # of the keys' members
        for one in launches:
            self.names[one["closure"]].add(frozenset(one["key_names"]))
            key = canonical(dict(zip(one["key_names"], one["key_values"])))
            self.wanted[one["closure"]].add(
                (key, str(one["environment"].get("arch", "")), str(one["triton"])))

    def post(self) -> None:
        documents = [(kind, one) for kind in ("functions", "launches")
                     for one in getattr(self, kind)]
        while documents:
            n = min(POST_MAX, len(documents))
            while n > 1 and len(body_of(documents[:n])) > BODY_MAX:
                n //= 2
            self.client.request("POST", "/v1/captures", json.loads(body_of(documents[:n])))
            del documents[:n]

    def look(self) -> list[Json]:
        """The keys as the server has them, and jobs for those that are built."""
        found, built = [], []
        for item in self.client.captures():
            if item["closure"] not in self.wanted:
                continue
            try:
                launches = self.client.request("GET", f"/v1/captures/{item['id']}")["launches"]
            except ApiError as error:
                if error.status in (403, 404):
                    continue  # of another token
                raise
            own = [{**one, "function": item["name"]} for one in launches
                   if self._is_wanted(item["closure"], one)]
            found += own
            if any(one["state"] == "built" for one in own):
                built.append(item["id"])
        if built and self.may_tune:
            try:
                self.client.tune_captures(*built)
            except ApiError as error:
                if error.status != 403:
                    raise
                self.may_tune = False  # a submitter's move
        return found

    def _is_wanted(self, closure: str, launch: Fields) -> bool:
        """Also where a builder gave it the key of an entry, in place of what was recorded."""
        own = canonical(launch["key"]), str(launch["arch"] or ""), str(launch["triton"])
        return own in self.wanted[closure] or \
            frozenset(launch["key"]) not in self.names[closure] and \
            own[1:] in {one[1:] for one in self.wanted[closure]}

    def is_open(self, one: Fields) -> bool:
        """Whether something goes on that needs nobody."""
        state = one["state"]
        return state in _GOES_ON or state == "built" and self.may_tune or \
            state == "tuned" and one["move"] == "policy"


def _summary(keys: Sequence[Fields]) -> str:
    """All keys in a line."""
    counts = collections.Counter(one["waits_for"] or one["state"] for one in keys)
    if not keys:
        return "the server has no key yet"
    waits = "; ".join(f"{n} for {what}" for what, n in sorted(counts.items()))
    return f"{len(keys)} keys wait: {waits}"


def _wait(asking: _Asking, program: RecordedProgram,
          limit_s: float | None) -> tuple[list[Json], int]:
    """(the keys, the status)"""
    started, progress, between_s = time.monotonic(), Progress(is_quiet=False), _ASK_S[0]
    keys: list[Json] = []
    try:
        while True:
            keys = asking.look()
            progress.show(_summary(keys))
            if keys and not any(map(asking.is_open, keys)):
                return keys, int(any(one["state"] in _BAD for one in keys))
            until = time.monotonic() + between_s
            while time.monotonic() < until:
                if program.n_interrupts:
                    return keys, INTERRUPTED
                if limit_s is not None and time.monotonic() - started > limit_s:
                    return keys, TIMED_OUT
                time.sleep(0.05)
            between_s = min(_ASK_S[1], 1.2 * between_s)
    finally:
        progress.end()


def _report(arguments: argparse.Namespace, program: RecordedProgram,
            keys: Sequence[Fields], status: int) -> None:
    keys = sorted(keys, key=lambda one: (one["function"], canonical(one["key"])))
    if arguments.json:
        members = ("function", "key", "state", "job", "channel", "refused", "reason", "waits_for",
                   "move")
        print(
            json.dumps({
                "server": os.environ["WAVETUNE_URL"], "program": program.outcome(),
                "status": status, "keys": [{name: one[name]
                                            for name in members if name in one} for one in keys]
            }))
        return
    rows = [("function", "key", "state", "served by", "whose move", "waits for")]
    for one in keys:
        key = ", ".join(f"{name}={value}" for name, value in one["key"].items())
        rows.append((one["function"], key, one["state"], one.get("channel") or "", one["move"] or
                     "", one["waits_for"] or one.get("refused") or one.get("reason") or ""))
    nothing = ["wavetune tune: nothing new: every key that the program launched has a choice"]
    for line in table(rows, 5) if keys else nothing:
        print(line, file=sys.stderr)


def tune_served(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    scratch = Path(tempfile.mkdtemp(prefix="wavetune-tune."))
    keys: list[Json] = []
    try:
        client = Client()
        with RecordedProgram(words, scratch, os.environ, arguments.json) as program:
            program.wait(arguments.seconds)
            asking = _Asking(client, program.documents("functions"), program.documents("launches"))
            status = 0
            if asking.launches:
                asking.post()
                keys, status = _wait(asking, program, arguments.wait)
    except ApiError as error:
        raise PackError(error.detail, 4 if 400 <= error.status < 500 else 3) from None
    except ValueError as error:  # a token for a URL that is not private
        raise PackError(str(error)) from None
    except Interrupted:
        return INTERRUPTED
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if program.has_failed():
        status = status or 1
    _report(arguments, program, keys, status)
    if program.has_failed():
        print(f"wavetune tune: the program failed: {program.ending()}", file=sys.stderr)
    return status
