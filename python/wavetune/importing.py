"""Makes a kernel folder of a Python file: its copy, kernel.json and space.json, which can then be edited and packed."""

import argparse
import json
from pathlib import Path
from typing import Any

from .canonical import canonical, read_bytes, read_json, read_text
from .configs import decorator_space
from .errors import PackError
from .folder import Kernel, load_kernel
from .function import make_manifest
from .keys import Key
from .source import load_function
from .spaces import parse_space
from .target import make_backend, make_target, triton_version


def _pretty(value: Any, indent: str = "") -> str:
    """JSON for people: an object or array of objects one member a line, anything else on one line."""
    deeper = indent + "  "
    if isinstance(value, dict) and (not indent or any(isinstance(v, (dict, list)) for v in value.values())):
        if indent and len(json.dumps(value)) < 100:
            return json.dumps(value, ensure_ascii=False)
        members = [f"{deeper}{json.dumps(name)}: {_pretty(member, deeper)}" for name, member in value.items()]
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        return "[\n" + ",\n".join(deeper + _pretty(v, deeper) for v in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


def _write_once(path: Path, text: str, is_same: bool) -> None:
    if path.exists() and not is_same:
        raise PackError(f"{path} is there and says something else; pack its folder itself, or name another one with "
                        "--kernel")
    path.write_text(text)


def write_folder(folder: Path, manifest: dict[str, Any], space: dict[str, Any], source: Path) -> None:
    own = ("language", "entry", "sources", "launch", "defines")
    version = {name: manifest[name] for name in own if name in manifest}
    version.update(sources=[source.name], space="space.json")
    document = {**{name: value for name, value in manifest.items() if name not in own},
                "versions": {"triton": version}}
    folder.mkdir(parents=True, exist_ok=True)
    copy, kernel, own_space = folder / source.name, folder / "kernel.json", folder / "space.json"
    for path, value in ((kernel, document), (own_space, space)):
        _write_once(path, _pretty(value) + "\n", path.exists() and canonical(read_json(path)) == canonical(value))
    if copy.resolve() != source.resolve():
        _write_once(copy, read_text(source), copy.exists() and read_bytes(copy) == read_bytes(source))


def kernel_of_file(path: Path, function: str | None, arguments: argparse.Namespace, keys: list[Key]) -> Kernel:
    """The kernel folder of --kernel, written from the file and the other flags."""
    for name, what in (("kernel", "where the kernel folder goes"), ("signature", "what the function is called with"),
                       ("grid", "how it is launched")):
        if getattr(arguments, name) is None:
            raise PackError(f"--{name} is missing: a file does not say {what}; see pack --help")
    triton_version()
    target = make_target(arguments.arch)
    decorated = load_function(path, function, target, arguments.module)
    if arguments.space is not None:
        space = read_json(Path(arguments.space))
        names = set(parse_space(space, arguments.space).roles)
    else:
        space = decorator_space(decorated, make_backend(target))
        names = set(space["default"])
    manifest = make_manifest(decorated, arguments.name or decorated.jit.__name__, arguments.signature, arguments.grid,
                             keys, names)
    write_folder(Path(arguments.kernel), manifest, space, path)
    return load_kernel(arguments.kernel)
