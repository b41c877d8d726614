"""An entry to edit, made of a captured launch: `python3 -m wavetune space` (kernels/tables/README.md).

What looks like a member of a config (entries.py) is a parameter of the space with the value that it
had; whole numbers that are no strides are the key, and numbers that a member of the key has are
stated by its name.
"""

from __future__ import annotations

import json
from typing import Any

from .._canonical import Fields, Json
from .._errors import PackError
from .._pack.importing import pretty
from .._runtime.values import decode
from .documents import Function, Launch
from .entries import OPTIONS, config_members
from .kernel import why_not_compiled


def _is_key(argument: Fields) -> bool:
    return argument["kind"] == "int" and "stride" not in argument["name"].lower()


def _plain(value: Any) -> Any:
    """A constexpr of a document as an expression's text, or None where it has none."""
    value = value["constexpr"] if isinstance(value, dict) and list(value) == ["constexpr"] else value
    return repr(value) if value is None or isinstance(value, (bool, int, str)) else None


def skeleton(function: Function, launch: Launch) -> dict[str, bytes]:
    """The files of its folder: kernel.json and space.json."""
    why = why_not_compiled(launch)
    if why is not None or not launch.configs:
        raise PackError(f"{function.name}: {why or 'its launch has no config'}")
    module, _, qualname = function.name.partition(":")
    members, config = config_members(launch), launch.configs[0].config
    key = {one["name"]: decode(one["value"]) for one in launch.arguments if _is_key(one)}
    names = {value: name for name, value in reversed(key.items()) if value > 1}

    def text(number: int) -> Any:
        return names.get(number, number)

    arguments, defines, constants = [], {}, {}
    values: Json = {name: value for name, value in config.items() if name in OPTIONS}
    for one in launch.arguments:
        name, kind = one["name"], one["kind"]
        if kind == "tensor":
            fill = "normal" if "float" in one["dtype"] else "zeros"
            arguments.append({"name": name, "dtype": one["dtype"], "access": "readwrite",
                              "shape": [text(n) for n in one["shape"]] or [1], "fill": fill})
        elif name in members:
            values[name] = decode(one["value"])
        elif kind in ("int", "bool", "float"):
            dtype = {"int": "int64", "bool": "bool", "float": "float32"}[kind]
            value = decode(one["value"])
            arguments.append({"name": name, "dtype": dtype, "value": name if name in key else
                              text(value) if kind == "int" else str(value)})
        elif kind == "dtype":
            constants[name] = {"dtype": one["value"]}
        elif _plain(one.get("value")) is not None:
            defines[name] = _plain(one.get("value"))
        else:
            constants[name] = one.get("value")
    version = {"language": "triton", "entry": qualname.rpartition(".")[2],
               "from": {"module": module}, "captured": {"key": {name: name for name in key}},
               **({"constexprs": constants} if constants else {})}
    document = {"name": function.entry.strip("_"), "key": list(key), "arguments": arguments,
                **({"defines": defines} if defines else {}),
                "launch": {"grid": [text(n) for n in launch.configs[0].grid]},
                "versions": {module.partition(".")[0]: version}}
    space = {"parameters": {name: [value] for name, value in values.items()},
             "roles": {name: "option" for name in values if name in OPTIONS and name not in
                       {one["name"] for one in launch.arguments}},
             "default": values}
    return {"kernel.json": f"{pretty(document)}\n".encode(),
            "space.json": f"{json.dumps(space, indent=2)}\n".encode()}
