"""python3 -m wavetune tune PROGRAM ARGUMENT…: from a program to a folder with which it starts tuned
(docs/start-tuned.md).

The program takes the first config of each function, and records what it launches (program.py).
Meanwhile a process compiles that (_captured/following.py). When the program is over, it is tuned on
this machine's GPUs (agents.py), and each winner goes into the folder at once (folder.py). served.py
has what a server does instead.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Sequence

from .._binaries import path_of
from .._canonical import Fields, Json
from .._captured.confined import find_launcher
from .._captured.following import Follower
from .._errors import PackError
from .._cli import Parser, add_compilers, add_options, toolchain
from .._runtime import running
from .agents import PROGRAM, Agents, Probe
from .folder import Built, Environment, TunedFolder
from .program import POLL_S, Interrupted, Progress, RecordedProgram, table

INTERRUPTED = 130
_OF_SERVER = ("WAVETUNE_URL", "WAVETUNE_TOKEN", "WAVETUNE_TOKEN_FILE")
_EPILOG = """
The program runs with the first config of each autotuned function; what it launches is compiled on
all cores while it runs. When it ends, after --seconds, or at an interrupt (Ctrl-C), the configs are
measured on this machine's GPUs. A second interrupt ends the command; what was decided is kept. A
further call goes on where this one was: keys that have a winner are not tuned again. Then start the
program with
  WAVETUNE_CACHE=FOLDER python3 PROGRAM          where the wheel is installed, or
  python3 -m wavetune run --cache FOLDER PROGRAM
With $WAVETUNE_URL (and a token of the roles demand, reader and submitter) the server's builders and
agents do the work: what was recorded is posted, jobs are made of what is built, and the command
waits and says what each key waits for, and whose move that is. --cache, --device, --again,
--processes and --timeout are for tuning here.
"""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python3 -m wavetune tune",
                     usage="python3 -m wavetune tune [OPTIONS] PROGRAM|-m MODULE ARGUMENT…",
                     description="Tune what a program launches: on this machine, or by a server.",
                     epilog=_EPILOG,
                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(
        parser,
        ("--cache", "FOLDER", "where the winners go, with their code (%(default)s)",
         {"default": "wavetune-cache"}),
        ("--seconds", "N", "end the program after N seconds (SIGTERM) and tune what it launched",
         {"type": float}),
        ("--device", "NAME", "as `wavetune-agent probe` names it; may be repeated (all GPUs)",
         {"action": "append", "default": []}),
        ("--again", None, "also try keys that had no winner before"))
    add_compilers(parser)
    add_options(
        parser,
        ("--local", None, "tune here although $WAVETUNE_URL is set"),
        ("--wait", "S", "with a server: leave after S seconds, with status 9; jobs go on",
         {"type": float}),
        ("--json", None,
         "print one JSON document on stdout; what the program prints there goes to stderr"),
        ("-m", None, "run a module, as `python3 -m` does", {"dest": "is_module"}))
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM",
                        help=argparse.SUPPRESS)
    return parser


class _Tuning:
    """One call of the command."""
    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.started = time.monotonic()
        self.folder = TunedFolder(Path(arguments.cache).absolute())
        self.seconds: dict[str, float] = {}
        self.environment: Environment  # of the launches, once there are some
        self.results: list[Json] = []
        self.names: dict[Path, str] = {}  # of the functions of kernel folders
        self.progress = Progress()

    # What was recorded.

    def settled(self) -> Json:
        """Of each environment, keys that have a result, or a build that waits."""
        return {environment.digest: [
            *(place for place, result in environment.results.items()
              if result["state"] == "tuned" or not self.arguments.again),
            *(place for built in environment.built() for place in built.made_for.values())
        ] for environment in self.folder.environments()}

    def take(self, event: Fields, agents: Agents) -> None:
        """A function that was built, or refused."""
        for one in event["built"]:
            self.queue(self.environment.keep_built(Path(one["folder"]), one["of"]), agents)
        for one in event["refused"]:
            for closure, texts, key in one["of"]:
                if not self.environment.is_tuned(closure, texts):  # by another launch of the key
                    self.add({
                        "closure": closure, "texts": texts, "function": event["function"],
                        "key": key, "state": "refused", "why": one["why"], "seconds": 0.0
                    })
            if not one["of"]:
                print(f"wavetune tune: {one['function']}: {one['why']}", file=sys.stderr)

    def queue(self, built: Built, agents: Agents) -> None:
        """Its keys that have no winner are tuned."""
        keys = [json.loads(key) for key, place in built.made_for.items()
                if not self.environment.is_tuned(*place)]
        if not keys:
            built.remove()
            return
        record = built.document("build/build.json")["record"]
        self.names[built.place] = record["function"].get("name", record["name"])
        agents.add(built, keys)

    def decided(self, built: Built, report: Fields) -> None:
        result = built.result_of(report, self.names[built.place],
                                 float(report.get("device_seconds", 0.0)))
        if report.get("is_lost"):
            self.results.append(result)  # it was not tried, which another call will do
            return
        if result["state"] == "tuned":
            self.environment.keep_code(built, result["code"])
        self.add(result)

    def add(self, result: Json) -> None:
        self.environment.add(result)
        self.results.append(result)
        if result["state"] == "tuned":
            self.environment.write_choices()

    # All of it.

    def run(self) -> int:
        scratch = self.folder.scratch()
        captures, place = scratch / "captures", scratch / "build"
        for made in (captures, place):
            made.mkdir()
        variables = {name: value for name, value in os.environ.items() if name not in _OF_SERVER}
        variables["WAVETUNE_CACHE"] = str(self.folder.path)
        try:
            with RecordedProgram(words_of(self.arguments), captures, variables,
                                 self.arguments.json) as self.program:
                probe = Probe() if not self.arguments.device else None
                with Follower(place, captures, _launcher(), self.arguments.processes,
                              self.arguments.timeout, toolchain(self.arguments),
                              self.settled()) as follower:
                    self.program.wait(self.arguments.seconds)
                    self.seconds["program"] = time.monotonic() - self.started
                    self.tune(follower, scratch, probe)
            status = self.status()
        except Interrupted:
            status = INTERRUPTED
        finally:
            self.progress.end()
            shutil.rmtree(scratch, ignore_errors=True)
        self.report(status)
        return status

    def tune(self, follower: Follower, scratch: Path, probe: Probe | None) -> None:
        """Builds and tunes what was recorded, as it comes."""
        launches = self.program.documents("launches")
        if not launches:
            return
        follower.end()
        stated = launches[0]["environment"]
        self.environment = self.folder.environment(stated)
        self.environment.write_choices()  # a call that was killed may not have
        waiting = self.environment.built()  # of an earlier call
        recorded = {(one["closure"], tuple(one["key"])) for one in launches}
        if not waiting and recorded.issubset(self.settled().get(self.environment.digest, ())):
            return
        # Agents open their devices while functions are built.
        devices = self.arguments.device or probe.devices(stated)  # type: ignore[union-attr]
        agents = Agents(devices, scratch, self.decided)
        try:
            for built in waiting:
                self.queue(built, agents)
            while True:
                is_over = follower.process.poll() is not None
                for event in follower.events.new():
                    self.take(event, agents)
                agents.work()
                if is_over:
                    self.seconds.setdefault("built", time.monotonic() - self.started)
                if is_over and not agents.is_busy():
                    break
                if self.program.n_interrupts:
                    raise Interrupted
                self._show(follower, is_over)
                time.sleep(POLL_S)
        finally:
            agents.stop()
        why = follower.failure()
        if why is not None:
            raise PackError(why, 1)

    def _show(self, follower: Follower, is_built: bool) -> None:
        done, total = follower.progress()
        tuned = sum(one["state"] == "tuned" for one in self.results)
        compiled = "" if is_built else f"{done} of {total} configs compiled, "
        self.progress.show(f"{compiled}{tuned} keys tuned")

    # What it says.

    def status(self) -> int:
        return int(self.program.has_failed() or
                   any(one["state"] != "tuned" for one in self.results))

    def report(self, status: int) -> None:
        self.seconds["all"] = time.monotonic() - self.started
        results = sorted(self.results, key=lambda one: (one["function"], json.dumps(one["key"])))
        tuned = [one for one in results if one["state"] == "tuned"]
        environment = getattr(self, "environment", None)
        if self.arguments.json:
            members = ("function", "key", "state", "first", "winner", "verdict", "gain", "interval",
                       "configs", "seconds", "why")
            print(json.dumps({
                "cache": str(self.folder.path), "program": self.program.outcome(),
                "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
                "status": status, "environment": environment and environment.stated,
                "keys": [{name: one[name] for name in members if name in one} for one in results]
            }))
            return
        for line in _table(results):
            print(line, file=sys.stderr)
        if self.program.has_failed():
            print(f"wavetune tune: the program failed: {self.program.ending()}", file=sys.stderr)
        if not results and status == 0:
            left = sum(one["state"] != "tuned" for one in environment.results.values()) \
                if environment else 0
            print("wavetune tune: nothing new:",
                  f"{left} keys had no winner before (--again tries them again)"
                  if left else "every key that the program launched has a choice",
                  file=sys.stderr)
        elif tuned:
            words = "-m MODULE" if self.arguments.is_module else "PROGRAM"
            print(f"wavetune tune: {len(tuned)} {'key' if len(tuned) == 1 else 'keys'} tuned in "
                  f"{self.seconds['all']:.1f} s; start with: python3 -m wavetune run --cache "
                  f"{self.arguments.cache} {words}", file=sys.stderr)


def _launcher() -> str | None:
    """What confines compilers, where this Linux can: this user runs the program's text anyway."""
    try:
        return find_launcher(False)
    except PackError:
        return None


def _words(config: Fields, other: Fields) -> str:
    """The members of a config that another does not have."""
    return ", ".join(f"{name}={value}" for name, value in config.items()
                     if value is not None and (other.get(name) != value or config == other))


def _table(results: Sequence[Fields]) -> list[str]:
    """A line for each function and key; of configs, what differs."""
    if not results:
        return []
    rows = [("function", "key", "first config", "winner", "gain", "seconds")]
    for one in results:
        key = ", ".join(f"{name}={value}" for name, value in one["key"].items())
        if one["state"] != "tuned":
            rows.append((one["function"], key, "", f"none: {one['why']}", "", ""))
            continue
        low, high = one["interval"]
        gain = (
            f"{one['gain']:.2f} x ({low:.2f} to {high:.2f})"
            if one["winner"] != one["first"]
            else "1 x"
        )
        winner = "the same" if one["winner"] == one["first"] else _words(
            one["winner"], one["first"])
        rows.append(
            (one["function"], key, _words(one["first"],
                                          one["winner"]), winner, gain, f"{one['seconds']:.1f}"))
    return table(rows, 3)


def words_of(arguments: argparse.Namespace) -> list[str]:
    """The program, as `run` takes it."""
    return [*(["-m"] if arguments.is_module else []), *arguments.program]


def main(argv: list[str]) -> int:
    try:
        arguments = _parser().parse_args(argv)
        program = arguments.program
        if program[:1] == ["--"]:
            program = arguments.program = program[1:]
        if not program:
            raise PackError("name a program, or a module with -m; see --help")
        if arguments.processes < 1 or arguments.seconds is not None and arguments.seconds <= 0:
            raise PackError("--processes is at least 1, and --seconds more than 0")
        why = None if arguments.is_module else running.missing_program(program[0])
        if why is not None:
            raise PackError(why)
        if os.environ.get("WAVETUNE_URL") and not arguments.local:
            from .served import tune_served
            return tune_served(arguments, words_of(arguments))
        path_of(PROGRAM)
        return _Tuning(arguments).run()
    except PackError as error:
        print(f"wavetune tune: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:
        return 0
    except OSError as error:
        print(f"wavetune tune: {error.filename or arguments.cache}: {error.strerror}; what was "
              "decided before is kept, and another call goes on", file=sys.stderr)
        return 1
