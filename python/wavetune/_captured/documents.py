"""The documents of a capture: what a program's launch recorded (docs/capture.md), read strictly:
they come from other machines, and the rest of the package relies on what is checked here.

A folder of captures has functions/, launches/ and blobs/, each file under its digest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping

from .._canonical import Fields, canonical, read_json
from .._errors import PackError
from .._runtime.values import decode

VERSION = 1
ARGUMENTS_MAX = 256
CONFIGS_MAX = 65536
TEXT_MAX = 1 << 20
KINDS = ("tensor", "int", "float", "bool", "none", "string", "constexpr", "dtype", "tuple",
         "function", "descriptor", "refused")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# what Triton takes where a launch states no option; a space has no config without members
_UNSTATED = {"num_warps": 4}
_SCALARS = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Function:
    """`document`: as it was recorded, for _captured/module.py. `name`: module:qualname."""

    closure: str
    name: str
    autotune: Fields | None
    document: Fields

    @property
    def entry(self) -> str:
        return self.name.rpartition(":")[2].rpartition(".")[2]


@dataclass(frozen=True)
class Config:
    """One of the program's configs. `constexprs`: what heuristics gave, in the place of the
    config's
    own; `fills`: what its hook fills, by argument; `block_shapes`: those it sets, by descriptor."""

    config: Fields
    grid: tuple[int, int, int]
    constexprs: Fields
    fills: Fields = field(default_factory=dict)
    block_shapes: Mapping[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Launch:
    """`key`: by the names of arguments; `texts`: the whole tuple as choices write it."""

    closure: str
    key: Fields
    texts: tuple[str, ...]
    arguments: tuple[Fields, ...]
    configs: tuple[Config, ...]
    refused: tuple[str, ...]
    environment: Fields
    options: Fields  # keyword arguments that are no parameters, such as debug
    variables: Mapping[str, str]  # of the program, which its Triton makes its key of
    image: str | None
    triton: str
    is_further: bool  # another launch of the key was before it, of another specialisation
    path: str
    document: Fields  # as it was recorded

    def argument(self, name: str) -> Fields:
        return next(argument for argument in self.arguments if argument["name"] == name)


def tensors_of(launch: Any) -> list[Fields]:
    """The tensors that arguments point to; a descriptor may reach beyond its own."""
    found = []
    for one in launch.arguments:
        if one["kind"] == "tensor":
            found.append(one)
        elif one["kind"] == "descriptor":
            reach = 1 + sum((n - 1) * step for n, step in zip(one["shape"], one["strides"]))
            found.append({
                **one["base"], "name": one["name"], "elements": max(one["base"]["elements"], reach)
            })
    return found


class _Reader:
    """Takes members out of one document; an error names the file and the member."""

    def __init__(self, document: Any, place: str):
        self.place = place
        if not isinstance(document, dict):
            raise PackError(f"{place} is no JSON object")
        self.document = document

    def error(self, name: str, what: str) -> PackError:
        return PackError(f'{self.place}: "{name}" {what}')

    def take(self, name: str, kind: type | tuple[type, ...],
             is_right: Callable[[Any], bool] = lambda value: True,
             what: str = "has another type or value than captures have") -> Any:
        value = self.document.get(name)
        is_kind = isinstance(value, kind) and (kind is not int or not isinstance(value, bool))
        if not is_kind or not is_right(value):
            raise self.error(name, "is missing" if name not in self.document else what)
        return value

    def digest(self, name: str) -> str:
        return self.take(
            name,
            str,
            lambda text: bool(_DIGEST.fullmatch(text)),
            "is no digest (sha256: and 64 hex digits)",
        )


def _is_scalars(values: Any) -> bool:
    return isinstance(values, dict) and all(
        isinstance(value, _SCALARS) for value in values.values())


def _version(reader: _Reader) -> None:
    reader.take("version", int, lambda version: version == VERSION,
                f"is not {VERSION}, the version of captures that this wavetune reads")


def function_of(document: Any, place: str) -> Function:
    reader = _Reader(document, place)
    _version(reader)
    name = reader.take("name", str,
                       lambda text: bool(re.fullmatch(r"[\w.]{1,500}:[\w.<>]{1,500}", text)),
                       "is not MODULE:QUALNAME")
    parts = reader.take(
        "parts", list, lambda found: 0 < len(found) <= 1000, "must have 1 to 1000 texts"
    )
    for i, part in enumerate(parts):
        own = _Reader(part, f"{place}, /parts/{i}")
        for member in ("module", "qualname", "text"):
            own.take(member, str)
        own.take("line", int, lambda line: 0 < line < 10_000_000)
    if sum(len(part["text"]) for part in parts) > TEXT_MAX:
        raise reader.error("parts", f"have more than {TEXT_MAX} bytes of text")
    reader.take("globals", list)
    autotune = reader.take("autotune", (dict, type(None)))
    return Function(reader.digest("closure"), name, autotune, document)


def _argument(document: Any, place: str) -> Fields:
    reader = _Reader(document, place)
    kind = reader.take("kind", str, lambda text: text in KINDS, f"is none of {', '.join(KINDS)}")
    if kind == "tensor":
        reader.take("dtype", str)
        for member in ("elements", "alignment", "storage", "offset"):
            reader.take(member, int, lambda n: 0 <= n < 2**62)
        for member in ("stride", "storage_bytes"):
            reader.take(member, list if member == "stride" else int)
        contents = reader.take("contents", (dict, type(None)))
        if contents is not None and not isinstance(contents.get("class"), str):
            raise reader.error("contents", 'has no "class"')
    elif kind in ("int", "float", "bool", "string", "constexpr", "dtype"):
        try:
            decode({"dtype": document.get("value")} if kind == "dtype" else document.get("value"))
        except ValueError:
            raise reader.error("value", "is no value of a capture") from None
    elif kind == "function":
        function_of(reader.take("document", dict), f"{place}/document")
    elif kind == "descriptor":
        _argument(
            reader.take("base", dict, lambda base: base.get("kind") == "tensor", "is no tensor"),
            f"{place}/base")
        rank = len(reader.take("shape", list, _is_extents, "is not 1 to 5 extents"))
        for member, least in (("strides", 0), ("block_shape", 1)):
            reader.take(member, list,
                        lambda found, least=least: _is_extents(found, least) and len(found) == rank,
                        "is not one for each extent")
        reader.take("padding", str, lambda text: text in ("zero", "nan"), "is neither zero nor nan")
    elif kind == "refused":
        reader.take("why", str)
    elif kind == "tuple":
        for i, item in enumerate(reader.take("items", list)):
            _argument(item, f"{place}/items/{i}")
    return document


def _is_extents(found: Any, least: int = 1) -> bool:
    return isinstance(found, list) and 1 <= len(found) <= 5 and all(
        type(n) is int and least <= n < 2**62 for n in found)


def _config(document: Any, place: str) -> Config:
    reader = _Reader(document, place)
    reader.take("config", dict, _is_scalars, "has a member that is no scalar")
    grid = reader.take(
        "grid", list, lambda found: 0 < len(found) <= 3 and all(
            isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**31 for n in found),
        "is not 1 to 3 extents")
    return Config(document["config"] or _UNSTATED, tuple([*grid, 1, 1][:3]),
                  document.get("constexprs") or {}, _numbers(reader, "fills"),
                  _block_shapes(reader))


def _block_shapes(reader: _Reader) -> Mapping[str, list[int]]:
    found = reader.document.get("block_shapes") or {}
    if not isinstance(found, dict) or not all(map(_is_extents, found.values())):
        raise reader.error("block_shapes", "has a value that is not 1 to 5 extents")
    return found


def _numbers(reader: _Reader, member: str) -> Fields:
    """Numbers by argument, as hooks fill with them."""
    found = reader.document.get(member) or {}
    try:
        if isinstance(found, dict) and all(
                isinstance(decode(value), (bool, int, float)) for value in found.values()):
            return found
    except ValueError:
        pass
    raise reader.error(member, "has a value that is no number")


def _options(reader: _Reader) -> Fields:
    options = reader.document.get("options") or {}
    if not _is_scalars(options):
        raise reader.error("options", "has a member that is no scalar")
    return options


def _variables(reader: _Reader) -> Mapping[str, str]:
    variables = reader.document.get("variables") or {}
    if not isinstance(variables, dict) or not all(
            isinstance(value, str) and len(value) <= 1000 for value in variables.values()):
        raise reader.error("variables", "has a member that is no text")
    return variables


def _configs(stated: list[Any], place: str) -> tuple[Config, ...]:
    """Each once: programs list some twice, and Triton measures them twice."""
    found: dict[str, Config] = {}
    for i, one in enumerate(stated):
        config = _config(one, f"{place}, /configs/{i}")
        found.setdefault(canonical(dict(config.config)), config)
    return tuple(found.values())


def launch_of(document: Any, place: str) -> Launch:
    reader = _Reader(document, place)
    _version(reader)
    names = reader.take("key_names", list,
                        lambda found: all(isinstance(name, str) for name in found))
    values = reader.take(
        "key_values",
        list,
        lambda found: len(found) == len(names),
        "is not one value for each of key_names",
    )
    arguments = reader.take("arguments", list, lambda found: len(found) <= ARGUMENTS_MAX)
    values = [
        value["dtype"] if isinstance(value, dict) and list(value) == ["dtype"] else value
        for value in values
    ]
    _numbers(reader, "initial")
    odd = [f"the autotuner's key has {name} = {canonical(value)}, which no key of a job can have"
           for name, value in zip(names, values) if not isinstance(value, _SCALARS)]
    refused = tuple(map(str, [*reader.take("refused", list), *odd]))
    configs = reader.take("configs", list, lambda found: len(found) <= CONFIGS_MAX and
                          (found or refused), "must have at least one config")
    for i, argument in enumerate(arguments):
        _Reader(argument, f"{place}, /arguments/{i}").take(
            "name", str, str.isidentifier, "is no name"
        )
        _argument(argument, f"{place}, /arguments/{i}")
    return Launch(reader.digest("closure"), dict(zip(names, values)),
                  tuple(map(str, reader.take("key", list))), tuple(arguments),
                  () if refused else _configs(configs, place), refused,
                  reader.take("environment", dict), _options(reader), _variables(reader),
                  document.get("image"), reader.take("triton", str),
                  document.get("further") is True, place, document)


def read_folder(folder: Path) -> Iterator[tuple[Function | None, list[Launch]]]:
    """Each captured function with its launches; None where its text was not recorded."""
    if not (folder / "launches").is_dir():
        raise PackError(f"{folder} has no launches/: name the folder that WAVETUNE_CAPTURE_TO "
                        "named for a program")
    functions, launches = {}, {}
    for path in sorted((folder / "functions").glob("*.json")):
        function = function_of(read_json(path), str(path))
        functions[function.closure] = function
    for path in sorted((folder / "launches").glob("*.json")):
        launch = launch_of(read_json(path), str(path))
        launches.setdefault(launch.closure, []).append(launch)
    for closure in sorted(launches, key=lambda one: (functions[one].name
                                                     if one in functions else "", one)):
        yield functions.get(closure), sorted(launches[closure],
                                             key=lambda launch: canonical(dict(launch.key)))
