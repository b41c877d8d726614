"""The folder of `python3 -m wavetune tune`: what programs start tuned with, for each environment
apart.

    FOLDER/environments/ENVIRONMENT/
        choices.json     winners, as programs read them (_runtime/choices.py)
        code/            the files of Triton's cache that they name
        results.jsonl    a line for each key that was tuned, or that cannot be
        built/           kernel folders with keys that are not tuned yet
        environment.json

A line is written as soon as a key is decided, and all else is made of the lines; the last one of a
key counts. One process writes the folder at a time.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Iterator, Mapping

from .._canonical import Fields, Json, canonical, digest, digest_bytes
from .._errors import PackError
from .._runtime.choices import CODE, ENVIRONMENTS, LAUNCHERS_MAX, NAME, VERSION, place_of

_OF, _RUN = "of.json", ".run."
_MODE = 0o755  # whatever the umask: programs take no code from where every user may write


class TunedFolder:
    """Opens it, and makes it. PackError where it is something else, or another process has it."""
    def __init__(self, path: Path):
        self.path = path
        if (path / NAME).exists():
            raise PackError(f"{path} has a {NAME} that `wavetune fetch` or a person wrote: name "
                            "another folder with --cache")
        if path.exists() and not (path / ENVIRONMENTS).is_dir() and (
                not path.is_dir() or any(path.iterdir())):
            raise PackError(f"{path} is there and is no folder of `wavetune tune`: name another "
                            "one with --cache")
        try:
            for made in (path, path / ENVIRONMENTS):
                made.mkdir(mode=_MODE, parents=True, exist_ok=True)
            self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PackError(f"another `wavetune tune` works in {path}: wait for it, or name "
                            "another folder with --cache", 1) from None
        except OSError as error:
            raise PackError(f"cannot use {path}: {error.strerror}; name another folder with "
                            "--cache") from None
        for left in path.glob(f"{_RUN}*"):  # of a run that was killed
            shutil.rmtree(left, ignore_errors=True)

    def scratch(self) -> Path:
        """A new folder for one run, which its user removes."""
        return Path(tempfile.mkdtemp(prefix=_RUN, dir=self.path))

    def environments(self) -> Iterator[Environment]:
        for place in sorted((self.path / ENVIRONMENTS).iterdir()):
            if (place / "environment.json").exists():
                yield Environment(self.path, json.loads((place / "environment.json").read_text()))

    def environment(self, stated: Fields) -> Environment:
        return Environment(self.path, stated)


class Environment:
    """What is of one environment. Names nothing that is not there."""
    def __init__(self, folder: Path, stated: Fields):
        self.stated, self.digest = dict(stated), digest(stated)
        self.place = Path(place_of(str(folder), stated))
        self.results: dict[tuple[str, tuple[str, ...]], Json] = {}
        path = self.place / "results.jsonl"
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                self._take(json.loads(line))
            except ValueError:
                continue  # the machine went down while it was written

    def _take(self, result: Json) -> None:
        self.results[result["closure"], tuple(result["texts"])] = result

    def is_tuned(self, closure: str, texts: Any) -> bool:
        return self.results.get((closure, tuple(texts)), {}).get("state") == "tuned"

    def add(self, result: Json) -> None:
        """Keeps a result for good."""
        self._make()
        with open(self.place / "results.jsonl", "ab+") as file:
            if file.tell() and not os.pread(file.fileno(), 1, file.tell() - 1) == b"\n":
                file.write(b"\n")
            file.write(canonical(result).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._take(result)

    def _make(self) -> None:
        self.place.mkdir(mode=_MODE, parents=True, exist_ok=True)
        _replace(self.place / "environment.json", canonical(self.stated).encode())

    # Kernel folders with builds.

    def keep_built(self, made: Path, of: list[Any]) -> Built:
        """Takes a kernel folder; `of`: [closure, texts, key] of its launches."""
        self._make()
        own = digest_bytes((made / "build/build.json").read_bytes()).partition(":")[2]
        name = f"{made.name[-60:].lstrip('.')}.{own[:12]}"
        place = self.place / "built" / name
        if not place.exists():
            part = place.with_name(f".{name}.part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(made, part)
            (part / _OF).write_text(json.dumps(of))
            part.rename(place)
        return Built(place)

    def built(self) -> list[Built]:
        return [Built(path.parent) for path in sorted((self.place / "built").glob(f"[!.]*/{_OF}"))]

    # What programs read.

    def keep_code(self, built: Built, files: Mapping[str, Mapping[str, str]]) -> None:
        """The files of folders of Triton's cache, before a result names them."""
        for folder, names in files.items():
            place = self.place / CODE / folder
            place.mkdir(parents=True, exist_ok=True)
            for name, stated in names.items():
                _replace(place / name,
                         (built.place / "build/objects" / stated.partition(":")[2]).read_bytes())

    def write_choices(self) -> None:
        """Makes choices.json of the results."""
        functions: Json = {}
        code: Json = {}
        for (closure, texts), result in sorted(self.results.items()):
            if result["state"] != "tuned":
                continue
            function = functions.setdefault(
                closure, {"name": result["function"].rpartition(":")[2], "choices": []})
            function["choices"].append({"config": result["winner"], "key": texts,
                                        "tuning_ms": round(1000 * result["seconds"])})
            code.update(result["code"])
            launchers = function.setdefault("launchers", [])
            launchers += [one for one in result["launchers"] if one not in launchers]
            del launchers[LAUNCHERS_MAX:]
        if functions:
            _replace(self.place / NAME, canonical({
                "version": VERSION, "environment": self.stated, "functions": functions,
                "code": code}).encode())


class Built:
    """A kernel folder with its build."""
    def __init__(self, place: Path):
        self.place = place
        # By the text of a key: the closure and the texts of its choice.
        self.made_for = {canonical(key): (closure, tuple(texts))
                         for closure, texts, key in json.loads((place / _OF).read_text())}

    def document(self, name: str) -> Any:
        return json.loads((self.place / name).read_text())

    def remove(self) -> None:
        shutil.rmtree(self.place)

    def result_of(self, report: Fields, function: str, seconds: float) -> Json:
        """A result of what `wavetune-agent tune --json` reported of a key."""
        key = canonical(report["key"])
        closure, texts = self.made_for[key]
        result: Json = {
            "closure": closure, "texts": texts, "function": function, "key": report["key"],
            "seconds": round(seconds, 3)
        }
        if "winner" not in report:
            return {**result, "state": "failed", "why": report.get("error", "no reason was stated")}
        verdict, winner = report["verdict"], report["winner"]["config_values"]
        variant = next(one for one in self.document("build/build.json")["variants"]
                       if canonical(one["key"]) == key)
        launchers, code = [], {}
        for one in (variant, *variant.get("also", ())):
            if one["signature"] not in launchers:
                launchers.append(one["signature"])
            for made in one["objects"]:
                cache = made["metadata"].get("cache")
                if cache is not None and canonical(made["config"]) == canonical(winner):
                    code[cache["folder"]] = cache["files"]
        return {
            **result, "state": "tuned", "winner": winner, "configs": report["configs"],
            "first": self.document("space.json")["configs"][report["baseline"]],
            "gain": verdict["speedup"], "verdict": verdict["verdict"], "launchers": launchers,
            "interval": [1 / verdict[name] for name in ("baseline_upper", "baseline_lower")],
            "code": code
        }


def _replace(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)
