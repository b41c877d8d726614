"""Compiles what a program launches while it still runs, for `python3 -m wavetune tune`: each config
of each launch from the moment that its document is in the folder of captures, by processes that
have Triton loaded. Kernel folders with builds are made when the program is over.

In the command: Follower. In the process that it starts: main(), which reads request.json in its
folder ("settled": by environment's digest, [closure, texts] of keys that are not built) and writes
    kernels/NAME        a kernel folder with its build
    events              a line for each function: {"function", "built": […], "refused": […]}
    progress            how many configs are compiled, and of how many
and ends when all is built after the file `over` has appeared. It is confined as a builder's are
(confined.py) where this Linux can; what it makes is not compared with a plan: the text is of a
program that this user has just run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Mapping

from .._canonical import Fields, Json, canonical, digest, read_json
from .._errors import PackError, last_line, one_line
from .._pack.artifacts import installed_key
from .._pack.compiling import attempted
from .._pack.pool import end_with_parent, run_tasks
from .build import Compiling, build_function, compile_one
from .check import named_files
from .documents import Function, Launch, function_of, launch_of
from .entries import why_no_space
from .kernel import CapturedKernel, why_not_compiled, why_refused
from .module import recreate
from .plan import Task, Toolchain, refusals, toolchain_for

REQUEST, EVENTS, PROGRESS, OVER, KERNELS = "request.json", "events", "progress", "over", "kernels"
_NICE = 10
_SECONDS_MAX = 604800
_PROCESSES_MAX = 4096  # of the user, with their threads: the program's own count too


def identity_of(launch: Launch) -> tuple[str, tuple[str, ...]]:
    """What a choice is found by."""
    return launch.closure, launch.texts


def _place_of(task: Task) -> tuple[str, str]:
    return task.launch.path, canonical(task.config.config)


class _Compiled(Compiling):
    """Takes results that are there, and no values: configs are compared with the first one."""

    def __init__(self, made: Mapping[tuple[str, str], Json], objects: Path):
        super().__init__(1, 0.0)
        self.made, self.objects = made, objects

    def results(self, tasks: list[Task], jit: Any, toolchain: Toolchain,
                objects: Path) -> list[Json]:
        results = [self.made.get(_place_of(task), {"error": "it was not compiled"})
                   for task in tasks]
        for name in named_files(results):
            file = name.partition(":")[2]
            os.link(self.objects / file, objects / file)
        return results

    def values(self, kernel: CapturedKernel, variants: list[tuple[Launch, Json]],
               objects: Path, toolchain: Toolchain) -> tuple[list[str], dict[int, str]]:
        return [], {}


class _Following:
    """The process. `environment`: the program's, which all launches must have."""
    def __init__(self, request: Fields, scratch: Path):
        self.request, self.scratch = request, scratch
        self.captures, self.objects = Path(request["captures"]), scratch / "objects"
        self.settled: set[Any] = set()
        self.environment: Fields | None = None
        self.toolchain: Toolchain | None = None
        self.seen: set[str] = set()
        self.functions: dict[str, Function] = {}
        self.jits: Json = {}
        self.launches: dict[str, list[Launch]] = {}
        self.left: dict[str, int] = {}  # configs that are not compiled yet
        # A config that is compiled, or a closure of which kernels are built.
        self.tasks: list[Task | str] = []
        self.variables: list[Mapping[str, str]] = []  # of each task
        self.made: dict[tuple[str, str], Json] = {}
        self.n_configs = 0
        self.is_over = False

    def work(self) -> None:
        for name in ("objects", KERNELS, "modules"):
            (self.scratch / name).mkdir()
        os.environ["TRITON_CACHE_DIR"] = str(self.scratch / "cache")
        installed_key()  # read while the program imports its modules, and before workers are forked
        run_tasks(self.variables, self.run, self.request["processes"], self.request["timeout_s"],
                  self.done, self.more)

    # In the parent of the workers.

    def more(self) -> bool:
        is_over = (self.scratch / OVER).exists()  # before the look at what there is
        for name in sorted(self._new()):
            self.seen.add(name)
            try:
                self._add(launch_of(read_json(self.captures / "launches" / name), name))
            except PackError as error:
                self._tell(name, [], [{"function": name, "key": {}, "launch": name,
                                       "why": str(error)}])
        if is_over:
            self.is_over = True
            for closure in [closure for closure, n in self.left.items() if n == 0]:
                self._append(closure, {})
        return not is_over

    def _new(self) -> set[str]:
        return {path.name for path in self.captures.glob("launches/[!.]*.json")} - self.seen

    def _add(self, launch: Launch) -> None:
        if self.environment is None:
            self.environment = launch.environment
            self.settled = {
                (closure, tuple(texts))
                for closure, texts in self.request["settled"].get(digest(launch.environment), ())
            }
            self.toolchain = toolchain_for(launch.arch, self.request["stated"])
        if launch.environment != self.environment:
            raise PackError(
                "the program launches on GPUs of several environments: tune for each of them, "
                "with the others hidden")
        if identity_of(launch) in self.settled:
            return
        closure = launch.closure
        if closure not in self.functions:
            path = self.captures / "functions" / f"{closure.partition(':')[2]}.json"
            function = self.functions[closure] = function_of(read_json(path), path.name)
            self.left[closure], self.launches[closure] = 0, []
            try:
                place = self.scratch / "modules" / str(len(self.functions))
                place.mkdir()
                self.jits[closure] = recreate(function.document, place)
            except PackError:
                pass  # which building it says
        self.launches[closure].append(launch)
        function = self.functions[closure]
        why = why_no_space(function, launch)
        if why is not None:
            self._tell(function.name, [], refusals(function.name, [launch], why))
            self.launches[closure].remove(launch)
            return
        why = why_not_compiled(launch) if launch.is_further else why_refused(launch)
        if why is None and closure in self.jits:
            for i, config in enumerate(launch.configs):
                self._append(Task(launch, config, launch.is_further or i == 0), launch.variables)
            self.left[closure] += len(launch.configs)
            self.n_configs += len(launch.configs)

    def _append(self, task: Task | str, variables: Mapping[str, str]) -> None:
        self.tasks.append(task)
        self.variables.append(variables)

    def done(self, number: int, result: Any, reason: str | None) -> None:
        task = self.tasks[number]
        if reason is not None:
            result = {"error": reason}
        if isinstance(task, str):
            name = self.functions[task].name
            if "error" in result:
                result = {"built": [],
                          "refused": refusals(name, self.launches[task], result["error"])}
            self._tell(name, **result)
            return
        closure = task.launch.closure
        self.made[_place_of(task)] = result
        self.left[closure] -= 1
        if self.is_over and self.left[closure] == 0:
            self._append(closure, {})
        part = self.scratch / f"{PROGRESS}.part"
        part.write_text(f"{len(self.made)} {self.n_configs}")
        part.replace(self.scratch / PROGRESS)

    def _tell(self, function: str, built: list[Json], refused: list[Json]) -> None:
        launches = {one.path: one for own in self.launches.values() for one in own}
        for one in [*built, *refused]:
            found = [launches[path] for path in one.get("launches", [one.get("launch")])
                     if path in launches]
            one["of"] = [[own.closure, own.texts, own.key] for own in found]
        with open(self.scratch / EVENTS, "a") as file:
            file.write(json.dumps({"function": function, "built": built, "refused": refused,
                                   "environment": self.environment}) + "\n")

    # In a worker.

    def run(self, number: int) -> Any:
        task, toolchain = self.tasks[number], self.toolchain
        assert toolchain is not None
        os.environ["TRITON_CACHE_DIR"] = str(self.scratch / "cache")
        if isinstance(task, Task):
            jit = self.jits[task.launch.closure]
            return attempted(lambda: compile_one(task, jit, toolchain, self.objects))
        try:
            built, refused = build_function(self.functions[task], self.launches[task], toolchain,
                                            self.scratch / KERNELS,
                                            _Compiled(self.made, self.objects))
            return {"built": built, "refused": refused}
        except Exception as error:
            return {"error": one_line(error)}


def main() -> int:
    import triton  # noqa: F401
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Following(json.loads(Path(REQUEST).read_text()), Path.cwd()).work()
    return 0


def _begin() -> None:
    """In the new process, before it is confined: the program goes first."""
    end_with_parent()
    os.nice(_NICE)


class Lines:
    """Objects that another process writes to a file, one a line."""

    def __init__(self, path: Path):
        self._path, self._at = path, 0

    def new(self) -> list[Json]:
        """Those since the last call."""
        if not self._path.exists():
            return []
        with open(self._path, "rb") as file:
            file.seek(self._at)
            whole, end, _ = file.read().rpartition(b"\n")
        self._at += len(whole + end)
        return [json.loads(line) for line in whole.splitlines()]


class Follower:
    """The process, for the command that starts it. `scratch`: an empty folder. Use as a context: it
    ends the process."""
    def __init__(self, scratch: Path, captures: Path, launcher: str | None, processes: int,
                 timeout_s: float, stated: Mapping[str, str], settled: Fields):
        from . import confined
        self.scratch, self.events = scratch, Lines(scratch / EVENTS)
        request = {
            "captures": str(captures), "processes": processes, "timeout_s": timeout_s,
            "stated": dict(stated), "settled": settled
        }
        (scratch / REQUEST).write_text(json.dumps(request))
        words, environment = confined.command_of(launcher, scratch, _PROCESSES_MAX, _SECONDS_MAX,
                                                 [sys.executable, "-m", __name__], [str(captures)])
        environment["TRITON_DISABLE_LINE_INFO"] = "1"  # as clean_environment() has it
        self._said = open(scratch.with_name(scratch.name + ".log"), "w+")
        self.process = subprocess.Popen(words, env=environment, cwd=scratch,
                                        stdin=subprocess.DEVNULL, stdout=self._said,
                                        stderr=subprocess.STDOUT, start_new_session=True,
                                        preexec_fn=_begin)

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._said.close()
        os.unlink(self._said.name)

    def end(self) -> None:
        """The program is over: what is compiled is built, and the process ends."""
        (self.scratch / OVER).touch()

    def progress(self) -> tuple[int, int]:
        """How many configs are compiled, and of how many so far."""
        try:
            done, total = map(int, (self.scratch / PROGRESS).read_text().split())
            return done, total
        except (OSError, ValueError):
            return 0, 0

    def failure(self) -> str | None:
        """A sentence where the process has ended otherwise than it should."""
        if not self.process.poll():
            return None
        self._said.seek(0)
        return (f"the process that compiles ended with the status {self.process.returncode}; it "
                f"said last: {last_line(self._said.read()[-2000:])}")


if __name__ == "__main__":
    sys.exit(main())
