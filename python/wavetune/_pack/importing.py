"""Makes a kernel folder of a Python file: its copy, kernel.json and space.json, for editing."""

import argparse
import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Mapping

from .._canonical import Fields, canonical, read_bytes, read_json
from .._errors import PackError
from .configs import decorator_space
from .constants import FILE, from_json
from .decorator import refuse_unfollowed
from .folder import Kernel
from .function import make_manifest
from .versions import describe
from .keys import Key
from .source import load_function
from .spaces import parse_space
from .target import make_backend, make_target, triton_version


def pretty(value: Any, indent: str = "") -> str:
    """JSON for people: one member a line where objects are inside."""
    deeper = indent + "  "
    if isinstance(value, dict) and (not indent or
                                    any(isinstance(v, (dict, list)) for v in value.values())):
        if indent and len(json.dumps(value)) < 100:
            return json.dumps(value, ensure_ascii=False)
        members = [f"{deeper}{json.dumps(name)}: {pretty(member, deeper)}"
                   for name, member in value.items()]
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        return "[\n" + ",\n".join(deeper + pretty(v, deeper) for v in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


def folder_files(manifest: Fields, name: str, space: Fields,
                 sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """What a kernel folder of one version holds, by the file's name; `name` is the version's."""
    own = ("language", "entry", "sources", "launch", "defines")
    version = {member: manifest[member] for member in own if member in manifest}
    version.update(sources=list(sources), space="space.json")
    document = {**{member: value for member, value in manifest.items() if member not in own},
                "versions": {name: version}}
    return {"kernel.json": f"{pretty(document)}\n".encode(),
            "space.json": f"{pretty(space)}\n".encode(), **sources}


def _is_same(path: Path, data: bytes) -> bool:
    if path.suffix == ".json":
        return canonical(read_json(path)) == canonical(json.loads(data))
    return read_bytes(path) == data


@contextmanager
def new_folder(place: Path, files: dict[str, bytes]) -> Iterator[None]:
    """Puts the files at `place` when the block ends well, so that a pack that fails leaves nothing.
    Files that are there must say the same, and stay."""
    missing = {name: data for name, data in files.items() if not (place / name).exists()}
    for name in files:
        if name not in missing and not _is_same(place / name, files[name]):
            raise PackError(f"{place / name} is there and says something else; pack its folder "
                            "itself, or name another one with --kernel")
    if not missing:
        yield
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as scratch:
        made = Path(scratch) / "kernel"
        made.mkdir()
        for name, data in missing.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_bytes(data)
        yield
        if not place.exists():
            made.rename(place)
            return
        for name in missing:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).rename(place / name)


def kernel_of_file(path: Path, function: str | None, arguments: argparse.Namespace,
                   keys: list[Key]) -> tuple[Kernel, dict[str, bytes]]:
    """The kernel that the file and the other flags make, and the files of its folder (--kernel)."""
    needed = {"kernel": "where the kernel folder goes",
              "signature": "what the function is called with", "grid": "how it is launched"}
    for name, what in needed.items():
        if getattr(arguments, name) is None:
            raise PackError(f"--{name} is missing: a file does not say {what}; see pack --help")
    triton_version()
    target = make_target(arguments.arch)
    root = Path(arguments.package_root) if arguments.package_root is not None else None
    decorated = load_function(path, function, target, arguments.module, root, arguments.torch or
                              describe()["torch"])
    refuse_unfollowed(decorated, arguments.ignore or [])
    if arguments.space is not None:
        space = read_json(Path(arguments.space))
    else:
        space = decorator_space(decorated, make_backend(target))
    parsed = parse_space(space, arguments.space or str(path))
    manifest, constants, sources = make_manifest(decorated, arguments.name or
                                                 decorated.jit.__name__, arguments.signature,
                                                 arguments.grid, keys, set(parsed.roles))
    files = folder_files(manifest, "triton", space, sources)
    stated = {name: from_json(value, FILE) for name, value in constants.items()}
    return Kernel({**manifest, "name": f"{manifest['name']}/triton"}, root or path.parent, parsed,
                  stated), files
