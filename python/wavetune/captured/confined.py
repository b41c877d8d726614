"""Builds one captured function in a process that is confined like a compiler (agent/compile/confine.h): what a stranger's text does
while it compiles, it does there. It has no network, sees this Python, Triton and its own scratch folder, and costs its own function.

In the builder: Terms, check() and build_confined(). In the confined process: main(), which reads the request from the scratch
folder and leaves kernel folders and an answer there. The builder copies only regular files whose bytes have the digests that they
are named by.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

from ..canonical import canonical, digest_bytes
from ..errors import PackError, one_line
from ..options import KEPT
from ..signing import SigningKey
from .documents import Function, Launch, function_of, launch_of

PROGRAM = "wavetune-agent"
MEMORY_MAX = 4 << 30  # of one process
TASKS_BESIDE, TASKS_EACH = 64, 32  # processes and threads: of all, and of each compiler with its linker
STARTING_S = 120
FILE_MAX = 64 << 20
ANSWER_MAX = 16 << 20
EXIT_MACHINE, EXIT_LATE = 75, 124
_OWN = Path(__file__).resolve().parents[1]
_REQUEST, _ANSWER, _KERNELS, _BLOBS, _PROGRESS = "request.json", "answer.json", "kernels", "blobs", "progress"
LINE_S = 10.0  # between lines of progress; on a terminal one line is written again and again


@dataclass(frozen=True)
class Terms:
    """How a builder compiles. `launcher`: the program that confines; None: without a sandbox. `stated`: torch and rocm of the
    deployment, where known. `key`: signs what is pushed."""

    processes: int
    timeout_s: float
    stated: Mapping[str, str]
    launcher: str | None
    key: SigningKey | None = None

    def time_s(self, configs: int) -> int:
        """More than the configs take if each takes all its time."""
        return int(min(STARTING_S + (configs // self.processes + 1) * (self.timeout_s + 5), 604800))


def find_launcher(is_unconfined: bool) -> str | None:
    """The program that confines; None where the user chose to have none. PackError where it is not there or cannot."""
    if is_unconfined:
        print("wavetune build: --no-sandbox: captured text is compiled with all rights of this user: it could read this user's files "
              "and use the network", file=sys.stderr)
        return None
    found = shutil.which(PROGRAM)
    if found is None:
        raise PackError(f"captured text is compiled in the sandbox of {PROGRAM}, which is not in $PATH: install it, or give "
                        "--no-sandbox on a machine that has nothing to protect", 1)
    with tempfile.TemporaryDirectory(prefix="wavetune-build.") as scratch:
        done = _run(found, Path(scratch), 4, 60, [sys.executable, "-S", "-c", ""])
    if done.returncode:
        raise PackError(f"{found} confines no program here: {one_line(done.stdout) or f'status {done.returncode}'}; give --no-sandbox "
                        "to compile captured text without a sandbox, on a machine that has nothing to protect", 1)
    return found


def _readable() -> list[str]:
    """This Python with its packages, and what the variables of compilers name."""
    places = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.realpath(sys.executable), str(_OWN), _packages()]
    places += [os.path.dirname(os.environ[name]) for name in KEPT if os.environ.get(name, "").startswith("/") and name != "TRITON_HOME"]
    places += [place for place in os.environ.get("LD_LIBRARY_PATH", "").split(":") if place.startswith("/")]
    return sorted({form for place in places for form in (place, os.path.realpath(place))})


def _packages() -> str:
    """The folder of packages that Triton is in. Its path is part of what Triton makes its keys of."""
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


def _run(launcher: str | None, scratch: Path, processes: int, seconds: int, argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Runs a program in the scratch folder, with nothing of this environment but what compilers need."""
    path = scratch / "path"  # the folder that this package is in may have other things, too
    path.mkdir(exist_ok=True)
    (path / _OWN.name).symlink_to(_OWN)
    environment = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TRITON_DISABLE_LINE_INFO", *KEPT)
                   if name in os.environ and name != "TRITON_HOME"}
    environment.update(PYTHONPATH=f"{path}:{_packages()}", PYTHONDONTWRITEBYTECODE="1", HOME=str(scratch), TMPDIR=str(scratch), LC_ALL="C.UTF-8")
    words = list(argv)
    if launcher is not None:
        tasks = TASKS_BESIDE + TASKS_EACH * processes + _tasks_of_user()
        words = [launcher, "confine", str(MEMORY_MAX), str(tasks), str(seconds), str(scratch), *_readable(), "--", *words]
    try:
        return subprocess.run(words, env=environment, cwd=scratch, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=None if launcher else seconds)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, EXIT_LATE, "")


class Progress:
    """Tells on stderr how many configs the confined process has compiled, as its file says."""

    def __init__(self, what: str, path: Path, line_s: float = LINE_S):
        self.what, self.path = what, path
        self._is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._line_s = 0.5 if self._is_terminal else line_s
        self._is_over, self._started = threading.Event(), time.monotonic()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> None:
        self._tell(self.what)
        self._thread.start()

    def __exit__(self, *_: Any) -> None:
        self._is_over.set()
        self._thread.join()
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _work(self) -> None:
        while not self._is_over.wait(self._line_s):
            try:
                done, total = map(int, _file(self.path, 100).split())
            except (OSError, ValueError):  # not there yet; or what a stranger's text wrote
                continue
            self._tell(f"{self.what}: {done} of {total} configs compiled, {time.monotonic() - self._started:.0f} s")

    def _tell(self, text: str) -> None:
        if self._is_terminal:
            print(f"\r{text[:120]}\x1b[K", end="", file=sys.stderr, flush=True)
        else:
            print(f"wavetune build: {text}", file=sys.stderr, flush=True)


def build_confined(function: Function, launches: Sequence[Launch], arch: str, output: Path,
                   terms: Terms, blobs: Path | None = None, which: str = "") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """build.build_function in a process of its own; its kernel folders come to `output`. `blobs`: a folder of contents by
    digest. `which`: of the functions, for the progress."""
    def refused(why: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return [], [{"function": function.name, "key": dict(one.key), "launch": one.path, "why": why} for one in launches]

    with tempfile.TemporaryDirectory(prefix="wavetune-build.") as made:
        scratch = Path(made)
        (scratch / _REQUEST).write_text(json.dumps({
            "function": function.document, "launches": [[one.path, one.document] for one in launches], "arch": arch,
            "processes": terms.processes, "timeout_s": terms.timeout_s, "stated": dict(terms.stated)}))
        if blobs is not None:
            _copy_contents(launches, blobs, scratch / _BLOBS)
        seconds = terms.time_s(sum(len(one.configs) for one in launches))
        with Progress(f"{function.name} for {arch}, {len(launches)} launches{which}", scratch / _PROGRESS):
            done = _run(terms.launcher, scratch, terms.processes, seconds, [sys.executable, "-m", "wavetune.captured.confined"])
        if done.returncode == EXIT_MACHINE:
            raise PackError(f"the sandbox does not work: {one_line(done.stdout)}", 1)
        if done.returncode == EXIT_LATE:
            return refused(f"building the function took more than {seconds} s")
        if done.returncode:
            last = done.stdout.strip().splitlines()[-1:] or ["nothing"]
            return refused(f"the process that builds the function ended with the status {done.returncode}; it said last: "
                           f"{one_line(last[0])}")
        try:
            answer = json.loads(_file(scratch / _ANSWER, ANSWER_MAX))
            known = {one.path for one in launches}
            built = [_taken(one, scratch / _KERNELS, output, known) for one in answer["built"]]
            return built, [_refusal(function, one, known) for one in answer["refused"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return refused(f"the process that builds the function left what is no build: {one_line(error)}")


def _copy_contents(launches: Sequence[Launch], blobs: Path, place: Path) -> None:
    """Contents that launches name, as far as they are here."""
    place.mkdir()
    for digest in {str(one["contents"]["digest"]) for launch in launches for one in launch.arguments
                   if "digest" in (one.get("contents") or {})}:
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


def _refusal(function: Function, one: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    if one["launch"] not in known:
        raise ValueError("it refuses a launch that it was not given")
    return {"function": function.name, "key": dict(one["key"]), "launch": one["launch"], "why": one_line(str(one["why"]), 900)}


def _taken(one: Mapping[str, Any], made: Path, output: Path, known: set[str]) -> dict[str, Any]:
    """Copies a kernel folder to its place; returns what the report says of it."""
    name = Path(one["folder"]).name
    if not name or name.startswith(".") or not set(one["launches"]) <= known:
        raise ValueError("it builds what it was not given")
    place, source = output / name, made / name
    with tempfile.TemporaryDirectory(prefix=".wavetune-build.", dir=output) as beside:
        copy = Path(beside) / name
        (copy / "build" / "objects").mkdir(parents=True)
        for file in ("kernel.json", "space.json", "kernel.py", "build/build.json"):
            (copy / file).write_bytes(_file(source / file, FILE_MAX))
        for path in sorted((source / "build" / "objects").iterdir()):
            data = _file(path, FILE_MAX)
            if digest_bytes(data) != f"sha256:{path.name}":
                raise ValueError(f"the object {path.name} has other bytes than its name says")
            (copy / "build" / "objects" / path.name).write_bytes(data)
        if place.exists():
            shutil.rmtree(place)
        copy.rename(place)
    build = digest_bytes((place / "build" / "build.json").read_bytes())
    return {**one, "folder": str(place), "build": build}


def _step(done: int, total: int) -> None:
    """In the confined process, after each compile."""
    Path(_PROGRESS).with_suffix(".part").write_text(f"{done} {total}")
    os.replace(Path(_PROGRESS).with_suffix(".part"), _PROGRESS)


def main() -> int:
    """In the confined process."""
    from .build import build_function, toolchain_for
    request = json.loads(Path(_REQUEST).read_text())
    launches = [launch_of(document, path) for path, document in request["launches"]]
    kernels = Path.cwd() / _KERNELS
    kernels.mkdir()
    built, refused = build_function(function_of(request["function"], "the function"), launches,
                                    toolchain_for(request["arch"], request["stated"]), kernels, request["processes"],
                                    request["timeout_s"], _contents, _step)
    Path(_ANSWER).write_text(canonical({"built": built, "refused": refused}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
