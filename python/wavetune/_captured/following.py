"""Compiles what a program launches while it still runs, for `python3 -m wavetune tune`: each
config of each launch from the moment that its document is in the folder of captures, by processes
that have Triton loaded. Kernel folders with builds are made when the program is over.

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
from .._errors import PackError, one_line
from .._pack.artifacts import installed_key
from .._pack.pool import end_with_parent, run_tasks
from .build import Compiling, build_function, compile_one
from .check import named_files
from .documents import Config, Function, Launch, function_of, launch_of
from .kernel import CapturedKernel, why_not_compiled, why_refused
from .module import recreate
from .plan import Task, Toolchain, toolchain_for

REQUEST, EVENTS, PROGRESS, OVER, KERNELS = "request.json", "events", "progress", "over", "kernels"
_NICE = 10
_SECONDS_MAX = 604800
_PROCESSES_MAX = 4096  # of the user, with their threads: the program's own count too


def identity_of(launch: Launch) -> tuple[str, tuple[str, ...]]:
    """What a choice is found by."""
    return launch.closure, launch.texts


class _Compiled(Compiling):
    """Takes results that are there, and no values: configs are compared with the first one."""
    def __init__(self, made: Mapping[tuple[str, str], Json], objects: Path):
        super().__init__(1, 0.0)
        self.made, self.objects = made, objects

    def results(self, tasks: list[Task], jit: Any, toolchain: Toolchain,
                objects: Path) -> dict[int, Json]:
        results = {}
        for number, task in enumerate(tasks):
            place = task.launch.path, canonical(dict(task.config.config))
            results[number] = self.made.get(place, {"error": "it was not compiled"})
            for name in named_files(results[number]):
                file = objects / name.partition(":")[2]
                if not file.exists():
                    os.link(self.objects / file.name, file)
        return results

    def values(self, kernel: CapturedKernel, variants: list[tuple[Launch, Json]],
               objects: Path, toolchain: Toolchain) -> tuple[list[str], dict[int, str]]:
        return [], {}


class _Task:
    """A config of a launch that is compiled; without a launch, a function that is built."""
    def __init__(self,
                 closure: str,
                 launch: Launch | None = None,
                 config: Config | None = None,
                 may_spill: bool = True):
        self.closure, self.launch, self.config, self.may_spill = closure, launch, config, may_spill


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
        self.tasks: list[_Task] = []
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
                launch = launch_of(read_json(self.captures / "launches" / name), name)
                self._add(launch)
            except PackError as error:
                self._tell({
                    "function": name, "built": [],
                    "refused": [{"function": name, "key": {}, "launch": name, "why": str(error)}]
                })
        if is_over and not self.is_over:
            self.is_over = True
            for closure in [closure for closure, n in self.left.items() if n == 0]:
                self._build(closure)
        return not self.is_over

    def _new(self) -> list[str]:
        try:
            return [
                name for name in os.listdir(self.captures / "launches")
                if name.endswith(".json") and name[0] != "." and name not in self.seen
            ]
        except FileNotFoundError:
            return []

    def _add(self, launch: Launch) -> None:
        if self.environment is None:
            self.environment = launch.environment
            self.settled = {
                (closure, tuple(texts))
                for closure, texts in self.request["settled"].get(digest(launch.environment), ())
            }
            self.toolchain = toolchain_for(str(launch.environment.get("arch", "gfx942")),
                                           self.request["stated"])
        if launch.environment != self.environment:
            raise PackError(
                "the program launches on GPUs of several environments: tune for each of them, "
                "with the others hidden")
        if identity_of(launch) in self.settled:
            return
        function = self.functions.get(launch.closure)
        if function is None:
            path = self.captures / "functions" / f"{launch.closure.partition(':')[2]}.json"
            function = self.functions[launch.closure] = function_of(read_json(path), path.name)
            self.left[launch.closure], self.launches[launch.closure] = 0, []
            try:
                place = self.scratch / "modules" / str(len(self.functions))
                place.mkdir()
                self.jits[launch.closure] = recreate(function.document, place)
            except PackError:
                pass  # which building it says
        self.launches[launch.closure].append(launch)
        why = why_not_compiled(launch) if launch.is_further else why_refused(launch)
        if why is None and launch.closure in self.jits:
            for i, config in enumerate(launch.configs):
                self._append(_Task(launch.closure, launch, config, launch.is_further or i == 0),
                             launch.variables)
                self.left[launch.closure] += 1
                self.n_configs += 1

    def _append(self, task: _Task, variables: Mapping[str, str]) -> None:
        self.tasks.append(task)
        self.variables.append(variables)

    def _build(self, closure: str) -> None:
        self._append(_Task(closure), {})

    def done(self, number: int, result: Any, reason: str | None) -> None:
        task = self.tasks[number]
        if task.launch is None or task.config is None:
            why = reason or (result or {}).get("error")
            refused = [{
                "function": self.functions[task.closure].name, "key": dict(one.key),
                "launch": one.path, "why": why
            } for one in self.launches[task.closure]] if why else result["refused"]
            self._tell({
                "function": self.functions[task.closure].name,
                "built": [] if why else result["built"], "refused": refused
            })
            return
        self.made[task.launch.path,
                  canonical(dict(task.config.config))] = result if reason is None else {
                      "error": reason
                  }
        self.left[task.closure] -= 1
        if self.is_over and self.left[task.closure] == 0:
            self._build(task.closure)
        part = self.scratch / f"{PROGRESS}.part"
        part.write_text(f"{len(self.made)} {self.n_configs}")
        part.replace(self.scratch / PROGRESS)

    def _tell(self, event: Fields) -> None:
        launches = {one.path: one for own in self.launches.values() for one in own}
        for one in [*event["built"], *event["refused"]]:
            paths = one["launches"] if "launches" in one else [one["launch"]]
            one["of"] = [
                [launches[path].closure, list(launches[path].texts), dict(launches[path].key)]
                for path in paths
                if path in launches
            ]
        with open(self.scratch / EVENTS, "a") as file:
            file.write(json.dumps({**event, "environment": self.environment}) + "\n")

    # In a worker.

    def run(self, number: int) -> Any:
        task, toolchain = self.tasks[number], self.toolchain
        assert toolchain is not None
        os.environ["TRITON_CACHE_DIR"] = str(self.scratch / "cache")
        if task.launch is not None and task.config is not None:
            return compile_one(task.launch, task.config, task.may_spill, self.jits[task.closure],
                               toolchain, self.objects)
        try:
            built, refused = build_function(self.functions[task.closure],
                                            self.launches[task.closure], toolchain,
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


class Follower:
    """The process, for the command that starts it. `scratch`: an empty folder. Use as a context: it
    ends the process."""
    def __init__(self, scratch: Path, captures: Path, launcher: str | None, processes: int,
                 timeout_s: float, stated: Mapping[str, str], settled: Fields):
        from . import confined
        self.scratch, self._at = scratch, 0
        request = {
            "captures": str(captures), "processes": processes, "timeout_s": timeout_s,
            "stated": dict(stated), "settled": settled
        }
        (scratch / REQUEST).write_text(json.dumps(request))
        words, environment = confined.command_of(launcher, scratch, _PROCESSES_MAX, _SECONDS_MAX,
                                                 [sys.executable, "-m", __name__], [str(captures)])
        environment["TRITON_DISABLE_LINE_INFO"] = "1"  # as clean_environment() has it
        self._said = open(scratch.with_name(scratch.name + ".log"), "w+")
        self.process = subprocess.Popen(words,
                                        env=environment,
                                        cwd=scratch,
                                        stdin=subprocess.DEVNULL,
                                        stdout=self._said,
                                        stderr=subprocess.STDOUT,
                                        start_new_session=True,
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

    def events(self) -> list[Json]:
        """Those since the last call."""
        try:
            with open(self.scratch / EVENTS) as file:
                file.seek(self._at)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text.rpartition("\n")[0]
        self._at += len((whole + "\n").encode()) if whole else 0
        return [json.loads(line) for line in whole.splitlines()]

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
        last = self._said.read()[-2000:].strip().splitlines()[-1:] or ["nothing"]
        return (f"the process that compiles ended with the status {self.process.returncode}; it "
                f"said last: {one_line(last[0])}")


if __name__ == "__main__":
    sys.exit(main())
