"""The documents of a capture: what a program's launch recorded (docs/capture.md), read strictly:
they come from other machines, and the rest of the package relies on what is checked here.

A folder of captures has functions/, launches/ and blobs/, each file under its digest. A launch is
refused where agents cannot repeat it, not compiled where not even its code can be made, and not
filled where contents that steer it were not recorded; a config fails where it does not compile, and
is pruned where the program does not consider it (kernel.py).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Container, Iterator, Mapping

from .._canonical import Fields, Json, canonical, read_json
from .._errors import PackError
from .._runtime.values import decode

VERSION = 1
ARGUMENTS_MAX = 256
CONFIGS_MAX = 65536
TEXT_MAX = 1 << 20
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
    """One of the program's configs. `constexprs`: what heuristics gave, in the place of its own;
    `fills`: what its hook fills, by argument; `block_shapes`: those that it sets, by descriptor."""

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
    is_further: bool  # another launch of the key was before it, of another specialisation
    path: str
    document: Fields  # as it was recorded

    @property
    def arch(self) -> str:
        return str(self.environment.get("arch", "gfx942"))

    def argument(self, name: str) -> Fields:
        return next(argument for argument in self.arguments if argument["name"] == name)


def tensors_of(launch: Any) -> list[Fields]:
    """The tensors that arguments point to; a descriptor may reach beyond its own."""
    found = []
    for one in launch.arguments:
        if one["kind"] == "tensor":
            found.append(one)
        elif one["kind"] == "descriptor":
            base = one["base"]
            reach = 1 + sum((n - 1) * step for n, step in zip(one["shape"], one["strides"]))
            found.append({**base, "name": one["name"], "elements": max(base["elements"], reach)})
    return found


# What a member must be: (type, a condition on it, what an error says of another one).
Rule = tuple[Any, Callable[[Any], bool], str]


def _is(kind: Any, holds: Callable[[Any], bool] = lambda value: True,
        what: str = "has another type or value than captures have") -> Rule:
    return kind, holds, what


def _from(least: int, end: int = 2**62) -> Rule:
    return _is(int, lambda n: least <= n < end)


def _may_be(holds: Callable[[Any], bool], what: str) -> Rule:
    """A member that may lack, or be empty."""
    return _is(object, lambda value: not value or isinstance(value, dict) and holds(value), what)


def _decodes(value: Any, kinds: Any = object) -> bool:
    try:
        return isinstance(decode(value), kinds)
    except ValueError:
        return False


def _is_scalars(values: Json) -> bool:
    return all(isinstance(value, _SCALARS) for value in values.values())


def _is_extents(found: Any, least: int = 1, ranks: Container[int] = range(1, 6),
                end: int = 2**62) -> bool:
    return isinstance(found, list) and len(found) in ranks and all(
        type(n) is int and least <= n < end for n in found)


# As hooks fill with them, by argument.
_NUMBERS = _may_be(lambda found: all(_decodes(value, (bool, int, float))
                                     for value in found.values()), "has a value that is no number")
_DIGEST = _is(str, lambda text: bool(re.fullmatch("sha256:[0-9a-f]{64}", text)),
              "is no digest (sha256: and 64 hex digits)")
_DOCUMENT = {
    "version": _is(int, lambda version: version == VERSION,
                   f"is not {VERSION}, the version of captures that this wavetune reads"),
    "closure": _DIGEST,
}
_FUNCTION = {
    **_DOCUMENT,
    "name": _is(str, lambda text: bool(re.fullmatch(r"[\w.]{1,500}:[\w.<>]{1,500}", text)),
                "is not MODULE:QUALNAME"),
    "parts": _is(list, lambda found: 0 < len(found) <= 1000, "must have 1 to 1000 texts"),
    "globals": _is(list), "autotune": _is((dict, type(None))),
}
_PART = {"module": _is(str), "qualname": _is(str), "text": _is(str), "line": _from(1, 10_000_000)}
_VALUE: dict[str, Rule] = {}  # what value_of() decodes
_ARGUMENTS: dict[str, dict[str, Rule]] = {
    "tensor": {
        "dtype": _is(str), "elements": _from(0), "alignment": _from(0), "storage": _from(0),
        "offset": _from(0), "stride": _is(list), "storage_bytes": _is(int),
        "contents": _is((dict, type(None)))},
    "int": _VALUE, "float": _VALUE, "bool": _VALUE, "none": {}, "string": _VALUE,
    "constexpr": _VALUE, "dtype": _VALUE, "tuple": {"items": _is(list)},
    "function": {"document": _is(dict)},
    "descriptor": {
        "base": _is(dict, lambda base: base.get("kind") == "tensor", "is no tensor"),
        "shape": _is(list, _is_extents, "is not 1 to 5 extents"),
        "padding": _is(str, ("zero", "nan").__contains__, "is neither zero nor nan")},
    "refused": {"why": _is(str)},
}
_ARGUMENT = {
    "kind": _is(str, _ARGUMENTS.__contains__, f"is none of {', '.join(_ARGUMENTS)}")}
_CONFIG = {
    "config": _is(dict, _is_scalars, "has a member that is no scalar"),
    "grid": _is(list, lambda found: _is_extents(found, 0, (1, 2, 3), 2**31),
                "is not 1 to 3 extents"),
    "fills": _NUMBERS,
    "block_shapes": _may_be(lambda found: all(map(_is_extents, found.values())),
                            "has a value that is not 1 to 5 extents"),
}
_LAUNCH = {
    **_DOCUMENT,
    "key_names": _is(list, lambda found: all(isinstance(name, str) for name in found)),
    "key_values": _is(list, what="is not one value for each of key_names"), "key": _is(list),
    "arguments": _is(list, lambda found: len(found) <= ARGUMENTS_MAX), "initial": _NUMBERS,
    "refused": _is(list),
    "configs": _is(list, lambda found: len(found) <= CONFIGS_MAX, "must have at least one config"),
    "environment": _is(dict), "triton": _is(str),
    "options": _may_be(_is_scalars, "has a member that is no scalar"),
    "variables": _may_be(lambda found: all(isinstance(value, str) and len(value) <= 1000
                                           for value in found.values()),
                         "has a member that is no text"),
}


def _error(place: str, name: str, what: str) -> PackError:
    return PackError(f'{place}: "{name}" {what}')


def _check(document: Any, place: str, rules: Mapping[str, Rule]) -> None:
    """Raises an error that names the file and the member."""
    if not isinstance(document, dict):
        raise PackError(f"{place} is no JSON object")
    for name, (kind, holds, what) in rules.items():
        value = document.get(name)
        if not isinstance(value, kind) or kind is int and type(value) is bool or not holds(value):
            raise _error(place, name, what if name in document else "is missing")


def function_of(document: Any, place: str) -> Function:
    _check(document, place, _FUNCTION)
    for i, part in enumerate(document["parts"]):
        _check(part, f"{place}, /parts/{i}", _PART)
    if sum(len(part["text"]) for part in document["parts"]) > TEXT_MAX:
        raise _error(place, "parts", f"have more than {TEXT_MAX} bytes of text")
    return Function(document["closure"], document["name"], document.get("autotune"), document)


def value_of(argument: Fields) -> Any:
    """Of an argument that has a value: a number, a text, a constexpr, a dtype."""
    value = argument.get("value")
    return decode({"dtype": value} if argument["kind"] == "dtype" else value)


def number(value: Any) -> Any:
    """A scalar as a case has it: what is not finite is a text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _check_argument(document: Any, place: str) -> None:
    _check(document, place, _ARGUMENT)
    kind = document["kind"]
    _check(document, place, _ARGUMENTS[kind])
    if _ARGUMENTS[kind] is _VALUE:
        try:
            value_of(document)
        except ValueError:
            raise _error(place, "value", "is no value of a capture") from None
    elif kind == "tensor":
        contents = document.get("contents")
        if contents is not None and not isinstance(contents.get("class"), str):
            raise _error(place, "contents", 'has no "class"')
    elif kind == "function":
        function_of(document["document"], f"{place}/document")
    elif kind == "descriptor":
        _check_argument(document["base"], f"{place}/base")
        rank = [len(document["shape"])]
        for member, least in (("strides", 0), ("block_shape", 1)):
            _check(document, place, {member: _is(
                list, lambda found: _is_extents(found, least, rank),
                "is not one for each extent")})
    elif kind == "tuple":
        for i, item in enumerate(document["items"]):
            _check_argument(item, f"{place}/items/{i}")


def _config(document: Any, place: str) -> Config:
    _check(document, place, _CONFIG)
    own = {name: document.get(name) or {} for name in ("constexprs", "fills", "block_shapes")}
    return Config(document["config"] or _UNSTATED, tuple([*document["grid"], 1, 1][:3]), **own)


def launch_of(document: Any, place: str) -> Launch:
    _check(document, place, _LAUNCH)
    names = document["key_names"]
    if len(document["key_values"]) != len(names):
        raise _error(place, "key_values", "is not one value for each of key_names")
    key = {name: value["dtype"] if isinstance(value, dict) and list(value) == ["dtype"] else value
           for name, value in zip(names, document["key_values"])}
    refused = [*document["refused"],
               *(f"the autotuner's key has {name} = {canonical(value)}, which no key of a job can "
                 "have" for name, value in key.items() if not isinstance(value, _SCALARS))]
    if not document["configs"] and not refused:
        raise _error(place, "configs", "must have at least one config")
    for i, argument in enumerate(document["arguments"]):
        own = f"{place}, /arguments/{i}"
        _check(argument, own, {"name": _is(str, str.isidentifier, "is no name")})
        _check_argument(argument, own)
    # Each config once: programs list some twice, and Triton measures them twice.
    configs: dict[str, Config] = {}
    for i, one in enumerate([] if refused else document["configs"]):
        config = _config(one, f"{place}, /configs/{i}")
        configs.setdefault(canonical(config.config), config)
    return Launch(document["closure"], key, tuple(map(str, document["key"])),
                  tuple(document["arguments"]), tuple(configs.values()),
                  tuple(map(str, refused)), document["environment"],
                  document.get("options") or {}, document.get("variables") or {},
                  document.get("further") is True, place, document)


def read_folder(folder: Path) -> Iterator[tuple[Function | None, list[Launch]]]:
    """Each captured function with its launches; None where its text was not recorded."""
    if not (folder / "launches").is_dir():
        raise PackError(f"{folder} has no launches/: name the folder that WAVETUNE_CAPTURE_TO "
                        "named for a program")
    functions: dict[str, Function] = {}
    launches: dict[str, list[Launch]] = {}
    for path in sorted(folder.glob("functions/*.json")):
        function = function_of(read_json(path), str(path))
        functions[function.closure] = function
    for path in sorted(folder.glob("launches/*.json")):
        launch = launch_of(read_json(path), str(path))
        launches.setdefault(launch.closure, []).append(launch)
    for closure in sorted(launches, key=lambda one: (getattr(functions.get(one), "name", ""), one)):
        yield functions.get(closure), sorted(launches[closure],
                                             key=lambda launch: canonical(launch.key))
