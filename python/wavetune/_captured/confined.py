"""Builds one captured function in a process that is confined like a compiler
(agent/compile/confine.h): what a stranger's text does while it compiles, it does there. It has no
network, sees this Python, Triton and its own scratch folder, and costs its own function.

Another confined process plans before, without executing the text. The builder takes kernels from
the plan, and builds that are the planned ones, of regular files with the digests of their names.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

from .._binaries import path_of
from .._canonical import Fields, Json, canonical, digest_bytes
from .._errors import PackError, last_line, one_line
from .._pack.artifacts import installed_key, set_installed_key
from .._pack.entries import Entry
from .._pack.options import KEPT
from .._pack.signing import SigningKey
from .._pack.terminal import Line
from .._runtime.worker import Next, Worker
from .check import check_build, check_packed, given, named_files
from .documents import Function, Launch, function_of, launch_of, tensors_of
from .kernel import failures
from .plan import refusals

PROGRAM = "wavetune-agent"
MEMORY_MAX = 4 << 30  # of one process
# processes and threads: of all, and of each compiler with its linker
TASKS_BESIDE, TASKS_EACH = 64, 32
STARTING_S = 120
FILE_MAX = 64 << 20
ANSWER_MAX = 64 << 20
EXIT_MACHINE, EXIT_LATE = 75, 124
_COMPILERS = tuple(name for name in KEPT if name != "TRITON_HOME")  # variables: where one is
_OWN = Path(__file__).resolve().parents[1]
# In the scratch folder of a confined process.
_REQUEST, _ANSWER, _KERNELS, _BLOBS, _PROGRESS = \
    "request.json", "answer.json", "kernels", "blobs", "progress"
END_S = 10.0  # for a line that is being written
LINE_S = 10.0  # between lines of progress; on a terminal one line is written again and again


@dataclass(frozen=True)
class Terms:
    """How a builder compiles. `launcher`: the program that confines; None: without a sandbox.
    `stated`: torch and rocm of the deployment, where known. `key`: signs what is pushed.
    `entries`: for functions without an autotuner."""

    processes: int
    timeout_s: float
    stated: Mapping[str, str]
    launcher: str | None
    key: SigningKey | None = None
    entries: tuple[Entry, ...] = ()

    def time_s(self, configs: int) -> int:
        """More than the configs take if each takes all its time."""
        return int(min(STARTING_S + (configs // self.processes + 1) * (self.timeout_s + 5), 604800))


def find_launcher(is_unconfined: bool) -> str | None:
    """The program that confines; None where the user chose none."""
    if is_unconfined:
        print("wavetune build: --no-sandbox: captured text is compiled with all rights of this "
              "user: it could read this user's files and use the network", file=sys.stderr)
        return None
    try:
        found = path_of(PROGRAM)
    except PackError as error:
        raise PackError(f"captured text is compiled in a sandbox, and {error}; or give "
                        "--no-sandbox on a machine that has nothing to protect", 1) from None
    with tempfile.TemporaryDirectory(prefix="wavetune-build.") as scratch:
        done = _run(found, Path(scratch), 4, 60, [sys.executable, "-S", "-c", ""])
    if done.returncode:
        raise PackError(
            f"{found} confines no program here: "
            f"{one_line(done.stdout) or f'status {done.returncode}'}; give --no-sandbox "
            "to compile captured text without a sandbox, on a machine that has nothing to protect",
            1)
    return found


def _readable() -> list[str]:
    """This Python with its packages, and what the variables of compilers name."""
    named = [os.path.dirname(os.environ.get(name, "")) for name in _COMPILERS]
    named += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    places = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.realpath(sys.executable),
              str(_OWN), _packages(), *(place for place in named if place.startswith("/"))]
    return sorted({form for place in places for form in (place, os.path.realpath(place))})


def _packages() -> str:
    """The folder of packages that Triton is in: its path is part of Triton's keys."""
    import triton
    return str(Path(str(triton.__file__)).parents[1])


def _tasks_of_user() -> int:
    """What this user runs already, which the limit counts. Root's child is another user."""
    if os.geteuid() == 0:
        return 0
    count = 0
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == os.geteuid():
                count += len(os.listdir(f"/proc/{entry}/task"))
        except OSError:
            continue
    return count


def command_of(
    launcher: str | None, scratch: Path, processes: int, seconds: int, argv: Sequence[str],
    readable: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    """Command line and environment for a program in the scratch folder, with nothing of this
    environment but what compilers need. `readable`: folders beside those of this Python."""
    path = scratch / "path"  # the folder that this package is in may have other things, too
    path.mkdir(exist_ok=True)
    (path / _OWN.name).symlink_to(_OWN)
    kept = ("PATH", "LD_LIBRARY_PATH", "TRITON_DISABLE_LINE_INFO", *_COMPILERS)
    environment = {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PYTHONPATH": f"{path}:{_packages()}", "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(scratch), "TMPDIR": str(scratch), "LC_ALL": "C.UTF-8"}
    if launcher is None:
        return list(argv), environment
    tasks = TASKS_BESIDE + TASKS_EACH * processes + _tasks_of_user()
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if most != resource.RLIM_INFINITY:
        tasks = min(tasks, most)
    limits = map(str, (MEMORY_MAX, tasks, seconds))
    return [launcher, "confine", *limits, str(scratch), *_readable(), *readable, "--",
            *argv], environment


def _run(launcher: str | None, scratch: Path, processes: int, seconds: int,
         argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    words, environment = command_of(launcher, scratch, processes, seconds, argv)
    try:
        return subprocess.run(words, env=environment, cwd=scratch, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=None if launcher else seconds)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, EXIT_LATE, "")


class Progress:
    """Tells on stderr how many configs the confined process has compiled, as its file says."""

    def __init__(self, what: str, path: Path, line_s: float = LINE_S):
        self.what, self.path = what, path
        self._line = Line()
        self._line_s = 0.5 if self._line.is_there else line_s
        self._started = self._told = time.monotonic()
        self._worker = Worker("progress", self._next)

    def __enter__(self) -> None:
        self._tell(self.what)
        self._worker.wake()

    def __exit__(self, *_: Any) -> None:
        self._worker.end(END_S)
        self._line.end()

    def _next(self) -> Next:
        wait_s = self._told + self._line_s - time.monotonic()
        return wait_s if wait_s > 0 or self._worker.is_ended else self._show

    def _show(self) -> None:
        self._told = time.monotonic()
        # Not there yet; or what a stranger's text wrote.
        with contextlib.suppress(OSError, ValueError):
            done, total = map(int, _file(self.path, 100).split())
            self._tell(f"{self.what}: {done} of {total} configs compiled, "
                       f"{self._told - self._started:.0f} s")

    def _tell(self, text: str) -> None:
        self._line.show(text[:120])
        if not self._line.is_there:
            print(f"wavetune build: {text}", file=sys.stderr, flush=True)


def build_confined(function: Function, launches: Sequence[Launch], arch: str, output: Path,
                   terms: Terms, blobs: Path | None = None, which: str = "",
                   of: tuple[Entry, list[Json]] | None = None) -> tuple[list[Json], list[Json]]:
    """build.build_function in a process of its own; kernel folders come to `output`. `blobs`:
    contents by digest. `which`: of the functions, for the progress. `of`: the entry that the
    launches are of, with their keys."""
    request = {
        "function": function.document, "launches": [[one.path, one.document] for one in launches],
        "arch": arch, "processes": terms.processes, "timeout_s": terms.timeout_s,
        "stated": dict(terms.stated), "triton": installed_key(),
        **({"entry": vars(of[0]), "keys": of[1]} if of else {})
    }
    seconds = terms.time_s(len(launches) * of[0].size if of else
                           sum(len(one.configs) for one in launches))
    known = {one.path for one in launches}
    try:
        with tempfile.TemporaryDirectory(prefix="wavetune-build.") as made:
            plan = _answer(Path(made), "plan", request, seconds, terms)
        with tempfile.TemporaryDirectory(prefix="wavetune-build.") as made:
            if blobs is not None:
                _copy_contents(launches, blobs, Path(made) / _BLOBS)
            with Progress(f"{function.name} for {arch}, {len(launches)} launches{which}",
                          Path(made) / _PROGRESS):
                answer = _answer(Path(made), "build", request, seconds, terms)
            built: list[Json] = []
            for one in answer["built"]:
                name = Path(one["folder"]).name
                given(name in plan, "another kernel")
                given(set(one["launches"]) <= known, "another launch")
                built.append({"function": function.name, **_taken(
                    one, name, plan.pop(name), Path(made) / _KERNELS, output)})
            return built, [_refusal(function, one, known) for one in answer["refused"]]
    except _Failed as error:
        why = str(error)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"the process that builds the function left what is no build: {one_line(error)}"
    return [], refusals(function.name, launches, why)


class _Failed(Exception):
    """Why a confined process has no answer."""


def _answer(scratch: Path, part: str, request: Fields, seconds: int,
            terms: Terms) -> Any:
    """What a confined process answers that plans or builds in its scratch folder."""
    (scratch / _REQUEST).write_text(json.dumps(request))
    done = _run(terms.launcher, scratch, terms.processes, seconds,
                [sys.executable, "-m", "wavetune._captured.confined", part])
    if done.returncode == EXIT_MACHINE:
        raise PackError(f"the sandbox does not work: {one_line(done.stdout)}", 1)
    if done.returncode == EXIT_LATE:
        raise _Failed(f"building the function took more than {seconds} s")
    if done.returncode:
        raise _Failed(f"the process that builds the function ended with the status "
                      f"{done.returncode}; it said last: {last_line(done.stdout)}")
    return json.loads(_file(scratch / _ANSWER, ANSWER_MAX))


def _copy_contents(launches: Sequence[Launch], blobs: Path, place: Path) -> None:
    """Contents that launches name, as far as they are here."""
    place.mkdir()
    for digest in {str(one["contents"]["digest"]) for launch in launches
                   for one in tensors_of(launch) if "digest" in (one.get("contents") or {})}:
        name = Path(digest.removeprefix("sha256:")).name
        if name and (blobs / name).is_file():
            shutil.copyfile(blobs / name, place / name)


def _contents(digest: str) -> str | None:
    """In the confined process: where the contents with a digest are."""
    path = Path.cwd() / _BLOBS / digest.removeprefix("sha256:")
    return str(path) if path.is_file() else None


def _file(path: Path, most: int) -> bytes:
    """The bytes of a regular file: a link could lead out of the scratch folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not os.path.isfile(f"/proc/self/fd/{descriptor}"):
            raise ValueError(f"{path.name} is no file")
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{path.name} has more than {most} bytes")
    return data


def _refusal(function: Function, one: Fields, known: set[str]) -> Json:
    if one["launch"] not in known:
        raise ValueError("it refuses a launch that it was not given")
    return {
        "function": function.name, "key": dict(one["key"]), "launch": one["launch"],
        "why": one_line(str(one["why"]), 900)
    }


def _taken(one: Fields, name: str, plan: Fields, made: Path,
           output: Path) -> Json:
    """Puts a kernel folder in its place, with the plan's files; what the report says of it."""
    place, source = output / name, made / name / "build"
    text = _file(source / "build.json", FILE_MAX)
    build = json.loads(text)
    if "keys" in plan:  # of an entry
        check_packed(build, plan)
    else:
        given(set(one["launches"]) <= {planned["launch"] for planned in plan["objects"]},
              "another launch")
        check_build(build, plan)
    named = named_files(build["variants"])
    with tempfile.TemporaryDirectory(prefix=".wavetune-build.", dir=output) as beside:
        copy = Path(beside) / name
        (copy / "build" / "objects").mkdir(parents=True)
        for file, content in plan["files"].items():
            (copy / file).write_bytes(content.encode())
        (copy / "build" / "build.json").write_bytes(text)
        for path in sorted((source / "objects").iterdir()):
            data = _file(path, FILE_MAX)
            if digest_bytes(data) != f"sha256:{path.name}":
                raise ValueError(f"the object {path.name} has other bytes than its name says")
            given(f"sha256:{path.name}" in named, f"the file {path.name}")
            (copy / "build" / "objects" / path.name).write_bytes(data)
        if place.exists():
            shutil.rmtree(place)
        copy.rename(place)
    every = [also for variant in build["variants"] for also in (variant, *variant.get("also", ()))]
    return {
        "kernel": plan["head"]["kernel"], "name": plan["name"], "build": digest_bytes(text),
        "folder": str(place),
        "keys": plan.get("keys") or [variant["key"] for variant in build["variants"]],
        "launches": list(one["launches"]), "objects": sum(len(also["objects"]) for also in every),
        "notes": [one_line(str(note), 900) for note in one["notes"]], **failures(build)
    }


def _step(done: int, total: int) -> None:
    """In the confined process, after each compile."""
    part = Path(_PROGRESS + ".part")
    part.write_text(f"{done} {total}")
    part.replace(_PROGRESS)


def main(part: str) -> int:
    """In the confined process, which plans or builds."""
    from .build import Compiling, build_function
    from .entries import build_entry, plan_entry
    from .plan import plan_function, toolchain_for
    request = json.loads(Path(_REQUEST).read_text())
    set_installed_key(request["triton"])
    launches = [launch_of(document, path) for path, document in request["launches"]]
    function = function_of(request["function"], "the function")
    toolchain = toolchain_for(request["arch"], request["stated"])
    kernels = Path.cwd() / _KERNELS
    kernels.mkdir()
    if "entry" in request:
        entry, keys = Entry(**request["entry"]), request["keys"]
        answer = plan_entry(function, entry, keys, toolchain, request, Path.cwd()) \
            if part == "plan" else \
            build_entry(function, launches, entry, keys, toolchain, request, kernels, _step)
    elif part == "plan":
        answer = plan_function(function, launches, toolchain, Path.cwd(), request["processes"],
                               request["timeout_s"])
    else:
        compiling = Compiling(request["processes"], request["timeout_s"], _contents, _step)
        built, refused = build_function(function, launches, toolchain, kernels, compiling)
        answer = {"built": built, "refused": refused}
    Path(_ANSWER).write_text(canonical(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
