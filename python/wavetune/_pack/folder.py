"""Folders of kernels/ (common/kernel/kernel_folder.h): a version of a kernel.json made into its
flat manifest, and its space. The C programs check a manifest to the last member; here stands what
packing reads, and the hash that both compute.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._canonical import Json, canonical, digest, digest_bytes, read_bytes, read_json
from .._errors import PackError
from . import constants
from .expressions import expression
from .signature import EXACT_MAX, INTEGERS
from .spaces import Space, parse_space


@dataclass(frozen=True)
class Kernel:
    """`hash`: the digest of the manifest, of a captured kernel without its reference."""

    manifest: Json
    folder: Path
    space: Space
    constants: Json = field(default_factory=dict)  # constexprs.json
    function: Any = None  # of an entry: the Decorated that its source is the text of

    @property
    def root(self) -> Path | None:
        """The folder of the package, where the function's file is of one."""
        return self.folder if "/" in self.manifest["sources"][0]["path"] else None

    @property
    def hash(self) -> str:
        return digest({name: value for name, value in self.manifest.items()
                       if name != "reference" or "cases" not in self.manifest})

    @property
    def source(self) -> Path:
        """The file that holds the function."""
        return self.folder / self.manifest["sources"][0]["path"]

    @property
    def entry(self) -> str:
        return self.manifest["entry"]

    @property
    def key_names(self) -> list[str]:
        return self.manifest["key"]


def split_place(place: str) -> tuple[Path, str | None]:
    """"DIR" or "DIR:VERSION"; a folder whose own name has a colon is meant."""
    head, colon, tail = place.rpartition(":")
    if not colon or "/" in tail or Path(place).is_dir():
        return Path(place), None
    return Path(head), tail


def _source(folder: Path, path: Any) -> dict[str, str]:
    if not isinstance(path, str):
        raise PackError(f"{folder}/kernel.json: a source must be the path of a file, a string")
    real = (folder / path).resolve()
    if Path(path).is_absolute() or folder.resolve() not in real.parents:
        raise PackError(f"{folder}/{path} leads out of its folder; put a copy of the file there")
    return {"path": path, "digest": digest_bytes(read_bytes(real))}


def _find_version(folder: Path, versions: Json, wanted: str | None) -> str:
    if wanted is None and len(versions) == 1:
        return next(iter(versions))
    if wanted is None:
        packable = [name for name, version in versions.items()
                    if version.get("language") == "triton"]
        if len(packable) == 1:
            return packable[0]
        first = (packable or list(versions))[0]
        raise PackError(f"{folder} has several versions: name one of {', '.join(versions)}, like "
                        f"{folder}:{first}")
    if wanted not in versions:
        raise PackError(f"{folder} has no version {wanted}; it has {', '.join(versions)}")
    return wanted


def _integer_range(dtype: str) -> tuple[int, int]:
    """Which integers a fill may have: those that the dtype holds, and a double without rounding."""
    exact = {
        "float8_e4m3fn": 448, "float8_e5m2": 57344, "float8_e4m3fnuz": 240,
        "float8_e5m2fnuz": 57344, "float8e4b15": 1
    }.get(dtype, EXACT_MAX)
    return INTEGERS.get(dtype, (-exact, exact))


# Expressions of a routed fill, beside an optional "by_row".
_ROUTED = ("tokens", "top_k", "experts", "block")


def _is_routed(fill: Any) -> bool:
    members = {"what", *_ROUTED}
    return isinstance(fill, dict) and members <= set(fill) <= {*members, "by_row", "skew"} and \
        fill["what"] in ("tokens", "experts", "count") and \
        all(isinstance(fill.get(name, 0), (str, int)) for name in (*_ROUTED, "by_row")) and \
        isinstance(fill.get("skew", 0), (int, float)) and 0 <= fill.get("skew", 0) <= 8


def _is_fill(fill: Any) -> bool:
    if isinstance(fill, dict) and len(fill) == 1:
        (kind, ends), = fill.items()
        if kind == "routed":
            return _is_routed(ends)
        if kind == "constant":
            return isinstance(ends, (int, float))
        if kind == "permutation":
            return type(ends) is int and ends >= 1
        kinds = {"integers": {int}, "sorted": {int}, "uniform": {int, float},
                 "ramp": {int, float}}.get(kind, set())
        return isinstance(ends, list) and len(ends) == 2 and set(map(type, ends)) <= kinds
    return fill in ("normal", "uniform", "zeros", "index")


def check_fills(arguments: list[Json]) -> None:
    """Refuses before hours of compiling what a server would: fills are part of the hash."""
    for argument in arguments:
        if "shape" not in argument:
            continue
        name, dtype, fill = argument["name"], argument["dtype"], argument.get("fill", "normal")
        kind, ends = next(iter(fill.items())) if isinstance(fill, dict) and fill else (fill, None)
        if argument.get("access") == "write":
            if "fill" in argument:
                raise PackError(f"argument {name} is only written, so it has no fill; make its "
                                "access readwrite where the kernel reads it")
        elif not _is_fill(fill):
            raise PackError(f"argument {name} has the fill {canonical(fill)}; known are normal, "
                            'uniform, zeros, index, {"uniform": [LOW, HIGH]}, {"integers": [LOW, '
                            'HIGH]}, {"sorted": [LOW, HIGH]}, {"ramp": [START, STEP]}, '
                            '{"permutation": N}, {"constant": VALUE} and {"routed": {…}}')
        elif kind == "routed" and dtype not in ("int32", "int64"):
            raise PackError(f"argument {name} is a buffer of {dtype}, which cannot hold routed "
                            "tokens; make it int32")
        elif kind in ("normal", "uniform") and "float" not in dtype:
            raise PackError(f"argument {name} is a buffer of {dtype}, which needs a fill of zeros, "
                            "index or integers, like :integers(0,9) behind its access in "
                            '--signature, "fill": {"integers": [0, 9]} in kernel.json')
        elif kind in ("uniform", "integers", "sorted") and ends is not None and (
                ends[0] > ends[1] or kind == "uniform" and ends[0] == ends[1]):
            raise PackError(f"argument {name} has a fill from {ends[0]} to {ends[1]}; the low end "
                            "comes first")
        elif kind in ("integers", "sorted"):
            least, most = _integer_range(dtype)
            if ends[0] < least or ends[1] > most:
                raise PackError(f"argument {name} has a fill of integers from {ends[0]} to "
                                f"{ends[1]}, and a buffer of {dtype} takes {least} to {most}")


def check_segments(kernel: Kernel) -> None:
    """Refuses buffers whose extents or contents depend on more of the config than the member that
    their segments are for (common/kernel/segments.h)."""
    for argument in kernel.manifest["arguments"]:
        name, member = argument["name"], argument.get("segments")
        if "shape" not in argument:
            if member is not None:
                raise PackError(f"argument {name} is a scalar, which has no segments")
            continue
        if member is not None and member not in kernel.space.roles:
            raise PackError(f"argument {name} has a segment for each value of {member}, which is "
                            "no parameter of the space")
        if member is not None and argument.get("access") != "read":
            raise PackError(f"argument {name} is written, so it has no segments")
        fill = argument.get("fill")
        routed = fill.get("routed", {}) if isinstance(fill, dict) else {}
        texts = [*argument["shape"],
                 *(routed[one] for one in (*_ROUTED, "by_row") if one in routed)]
        for text in texts:
            other = expression(text).names & set(kernel.space.roles) - {member}
            if other:
                raise PackError(f"argument {name}: {text} reads {min(other)}, a member of the "
                                'config; state "segments": "' + min(other) + '" or leave it out')


def with_arguments(document: Json, version: Json, where: str) -> Json:
    """The version with the folder's arguments, where it changes them by name."""
    shared, changes = document.get("arguments"), version.get("arguments")
    if not isinstance(changes, dict) or not isinstance(shared, list):
        return version
    names = [argument.get("name") for argument in shared]
    for name, change in changes.items():
        if name not in names or not isinstance(change, (dict, type(None))):
            raise PackError(f'{where}: "arguments" has {name}, which is none of the folder\'s '
                            "arguments with an object of changes, or null")
    return {**version, "arguments": [
        {**argument, **changes.get(name, {})} for name, argument in zip(names, shared)
        if changes.get(name, {}) is not None]}


def find_version(place: str) -> tuple[Path, Json, str]:
    """The folder, its kernel.json and the triton version that "DIR" or "DIR:VERSION" means."""
    folder, wanted = split_place(place)
    document = read_json(folder / "kernel.json")
    versions = document.get("versions") if isinstance(document, dict) else None
    if not isinstance(versions, dict) or not versions or not all(
            isinstance(v, dict) for v in versions.values()):
        raise PackError(f'{folder}/kernel.json must have "versions", at least one')
    name = _find_version(folder, versions, wanted)
    version = versions[name]
    if version.get("language") != "triton":
        raise PackError(f"{folder}:{name} is in {version.get('language')}; only kernels in triton "
                        "are packed, agents compile the others")
    own = with_arguments(document, version, f"{folder}/kernel.json, version {name}")
    return folder, {**document, "versions": {**versions, name: own}}, name


def load_kernel(place: str) -> Kernel:
    """The version's manifest and space; its sources must be there."""
    folder, document, name = find_version(place)
    version, where = document["versions"][name], f"{folder}/kernel.json, version {name}"
    if "from" in version:
        raise PackError(f"{folder}:{name} is an entry for a function of an installed package: "
                        f"`python3 -m wavetune pack {folder}:{name} --package-root SITE-PACKAGES "
                        "--kernel FOLDER …` makes its kernel folder, which stands for it")
    manifest = {**document, **version, "name": f"{document.get('name')}/{name}"}
    del manifest["versions"]
    space_path = manifest.pop("space", "space.json")
    for member, kind in (("name", str), ("entry", str), ("key", list), ("sources", list),
                         ("arguments", list)):
        if not isinstance(manifest.get(member), kind) or member == "sources" and not manifest[
                member]:
            raise PackError(f'{where}: "{member}" is missing or of another type')
    manifest["sources"] = [_source(folder, path) for path in manifest["sources"]]
    if "reference" in manifest:
        manifest["reference"] = {**manifest["reference"],
                                 "source": _source(folder, manifest["reference"].get("source"))}
    _source(folder, space_path)
    stated = {}
    if any(source["path"] == constants.FILE for source in manifest["sources"]):
        path = folder / constants.FILE
        stated = {name: constants.from_json(value, str(path))
                  for name, value in dict(read_json(path)).items()}
    return Kernel(manifest, folder,
                  parse_space(read_json(folder / space_path), f"{folder}/{space_path}"), stated)
