"""Entries: versions of kernel folders that state "from", the package that has the function, in
place of "sources" (kernels/tables/README.md).

An entry and the function's text make an ordinary kernel folder. Its source, kernel.py, has the
texts of the function and of the jit functions that it reaches, as captured kernels have it: a
function that is read out of a package and the same one of a captured launch make one kernel.
"""

import argparse
import dataclasses
import json
import math
import tempfile
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Mapping, Sequence

from .._canonical import Fields, Json, canonical, parse_json, read_json, read_text
from .._errors import PackError
from .._runtime.texts import Uncapturable, function_document
from .constants import FILE
from .folder import Kernel, find_version, load_kernel, with_arguments
from .importing import pretty
from .source import load_function
from .spaces import parse_space
from .target import make_target, triton_version
from .versions import describe

SOURCE = "kernel.py"
TABLES = Path(__file__).resolve().parents[1] / "tables"  # kernels/tables
_OWN = ("from", "captured", "constexprs")  # members that only a version with "from" has


def name_of(part: Fields) -> str:
    """Of a function in a document (_runtime/texts.py)."""
    return f"{part['module']}:{part['qualname']}"


def kernel_text(document: Fields) -> str:
    """The texts for people to read, and for the kernel's hash: without their lines' numbers."""
    first = document["name"]
    parts = sorted(document["parts"], key=lambda part: name_of(part) != first)
    texts = [f"# {name_of(part)}\n{part['text'].rstrip()}\n" for part in parts]
    constants = sorted(f"# {one['module']}: {one['name']} = {canonical(one['value'])}\n"
                       for one in document["globals"] if "value" in one)
    return "\n\n".join([*texts, "".join(constants)] if constants else texts)


@dataclass(frozen=True)
class Entry:
    """`place`: DIR:VERSION; `document`: kernel.json with this version only; `files`: the texts of
    its space and its reference, by path."""

    place: str
    document: Json
    files: Mapping[str, str]

    @property
    def version(self) -> str:
        return next(iter(self.document["versions"]))

    @property
    def own(self) -> Json:
        """The version's members."""
        return self.document["versions"][self.version]

    @property
    def module(self) -> str:
        return self.own["from"]["module"]

    @property
    def function(self) -> str:
        return self.own["entry"]

    @property
    def constants(self) -> Json:
        """Constexprs that expressions cannot say, as in constexprs.json."""
        return self.own.get("constexprs", {})

    @property
    def space(self) -> Json:
        return json.loads(self.files[self.own.get("space", "space.json")])

    @property
    def members(self) -> list[str]:
        """The names of a config."""
        space = self.space
        return list(space["configs"][0] if "configs" in space else space["parameters"])

    @property
    def size(self) -> int:
        """Configs before conditions."""
        space = self.space
        return len(space["configs"]) if "configs" in space else math.prod(
            map(len, space["parameters"].values()))

    def folder(self, text: str, space: str | None = None) -> dict[str, bytes]:
        """The kernel folder with the function's text; `space`: in place of the entry's."""
        sources = {SOURCE: text.encode()}
        if self.constants:
            sources[FILE] = f"{json.dumps(self.constants, indent=2)}\n".encode()
        version = {name: value for name, value in self.own.items() if name not in _OWN}
        version = {**version, "sources": list(sources)}
        document = {**self.document, "versions": {self.version: version}}
        files = {path: content.encode() for path, content in self.files.items()}
        if space is not None:
            files[version.get("space", "space.json")] = space.encode()
        return {"kernel.json": f"{pretty(document)}\n".encode(), **files, **sources}

    def is_of(self, module: str, function: str) -> bool:
        """Whether it is for this function, also where the package has moved the module."""
        own, other = self.module.split("."), module.split(".")
        return function == self.function and (own[0], own[-1]) == (other[0], other[-1])

    def find(self, root: Path) -> Path:
        """The function's file below the folder of installed packages."""
        package, *_, last = parts = self.module.split(".")
        place = root.joinpath(*parts)
        for path in chain((place.with_suffix(".py"), place / "__init__.py"),
                          (root / package).rglob(f"{last}.py")):
            if path.is_file() and f"def {self.function}(" in read_text(path):
                return path
        raise PackError(f"{root} has no {self.module} with a function {self.function}, for which "
                        f"{self.place} is: --package-root names the folder that holds {package}")


def load_entry(place: str) -> Entry | None:
    """None: the place is an ordinary kernel folder's."""
    folder, document, name = find_version(place)
    version = document["versions"][name]
    if "from" not in version:
        return None
    where = f"{folder}/kernel.json, version {name}"
    module = version["from"].get("module") if isinstance(version["from"], dict) else None
    if not isinstance(module, str) or not isinstance(version.get("entry"), str):
        raise PackError(f'{where}: an entry states its function as "entry" and its module as '
                        '"from": {"module": "package.module"}')
    if "sources" in version:
        raise PackError(f'{where}: has both "from" and "sources": remove one')
    version = with_arguments(document, version, where)
    reference = {**document, **version}.get("reference") or {}
    paths = [version.get("space", "space.json"), *filter(None, [reference.get("source")])]
    files = {path: read_text(folder / path) for path in paths}
    parse_space(parse_json(files[paths[0]], f"{folder}/{paths[0]}"), f"{folder}/{paths[0]}")
    return Entry(f"{folder}:{name}", {**document, "versions": {name: version}}, files)


def load_entries(folders: Sequence[str]) -> tuple[Entry, ...]:
    """Those of the folders, then those that come with the package."""
    found: list[Entry] = []
    for place in [*map(Path, folders), TABLES]:
        paths = sorted([*place.glob("kernel.json"), *place.glob("*/kernel.json")])
        if not paths and place != TABLES:
            raise PackError(f"{place} has no entries: name a folder with a kernel.json, or one of "
                            "such folders")
        for path in paths:
            versions = read_json(path).get("versions", {})
            entries = [load_entry(f"{path.parent}:{name}") for name, version in versions.items()
                       if isinstance(version, dict) and "from" in version]
            found += [entry for entry in entries if entry is not None]
    return tuple(found)


def kernel_in(entry: Entry, files: Mapping[str, bytes], decorated: Any, place: Path) -> Kernel:
    """The kernel of the folder `place` that has these files, and of the function."""
    unstated = sorted(set(decorated.heuristics) - {*entry.constants, *{
        **entry.document, **entry.own}.get("defines", {})})
    if decorated.autotuner is not None or unstated:
        why = f"gives {', '.join(unstated)} by heuristics: state them as defines" if unstated \
            else "has an autotuner, whose configs are its space: pack its file"
        raise PackError(f"{entry.place}: {entry.function} {why}")
    with tempfile.TemporaryDirectory(prefix="wavetune-pack.") as scratch:
        for path, data in files.items():
            file = Path(scratch) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        kernel = load_kernel(f"{scratch}:{entry.version}")
    return dataclasses.replace(kernel, folder=place, function=decorated)


def kernel_of_entry(entry: Entry, arguments: argparse.Namespace) -> tuple[Kernel, dict[str, bytes]]:
    """The kernel that the entry and the package's text make, and the files of its folder."""
    needed = {"kernel": "where the kernel folder goes",
              "package_root": "the folder of installed packages (site-packages) that has it"}
    for name, what in needed.items():
        if getattr(arguments, name) is None:
            raise PackError(f"--{name.replace('_', '-')} is missing: {entry.place} is an entry for "
                            f"{entry.function} of {entry.module}; give {what}")
    triton_version()
    root = Path(arguments.package_root)
    decorated = load_function(entry.find(root), entry.function, make_target(arguments.arch),
                              arguments.module, root, arguments.torch or describe()["torch"])
    try:
        document = function_document(decorated.jit, "", None, [], None)
    except (Uncapturable, OSError, SyntaxError, TypeError, ValueError) as error:
        raise PackError(f"{decorated.place}: {error}") from None
    space = read_text(Path(arguments.space)) if arguments.space is not None else None
    files = entry.folder(kernel_text(document), space)
    return kernel_in(entry, files, decorated, Path(arguments.kernel)), files
