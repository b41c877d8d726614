"""Calls a jit function as a captured launch did, with stand-ins for its tensors: Triton's JIT
compiles what the program's own would, with the same hash.
"""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

from .._canonical import Fields, Json
from .._pack.calls import Tensor
from .._pack.compiling import Task
from .._runtime.keys import scalar
from .._runtime.values import decode
from .descriptors import base_of, block_shape_of, descriptors_of, made
from .documents import Config, Launch
from .module import recreate


_functions: Json = {}  # by closure: of the build that this process makes


def passed(argument: Fields) -> Any:
    """A recorded argument as Triton's JIT is to see it."""
    kind = argument["kind"]
    if kind == "function":
        document = argument["document"]
        if document["closure"] not in _functions:  # beside Triton's cache, which lasts as long
            place = tempfile.mkdtemp(prefix="function.",
                                     dir=Path(os.environ["TRITON_CACHE_DIR"]).parent)
            _functions[document["closure"]] = recreate(document, Path(place))
        return _functions[document["closure"]]
    if kind == "tensor":
        return Tensor(argument["dtype"], tuple(argument["shape"]), tuple(argument["stride"]),
                      argument["alignment"], bool(argument.get("range")))
    if kind == "none":
        return None
    return decode({"dtype": argument["value"]} if kind == "dtype" else argument["value"])


def _is_default(argument: Fields, defaults: Fields) -> bool:
    """Whether the program left the argument out: Triton's hash tells a constexpr from its value."""
    if argument["name"] not in defaults or argument["kind"] in ("tensor", "tuple", "function"):
        return False
    default = defaults[argument["name"]]
    default = getattr(default, "value",
                      default) if type(default).__name__ == "constexpr" else default
    value = passed(argument)
    return type(value) is type(default) and value == default


def task_of(jit: Any, launch: Launch, one: Config, may_spill: bool) -> Task:
    """The compile of one config of the launch."""
    defaults = {
        parameter.name: parameter.default for parameter in jit.params if parameter.has_default
    }
    call = {argument["name"]: passed(argument) for argument in launch.arguments
            if argument["kind"] != "descriptor" and not _is_default(argument, defaults)}
    call.update({
        name: made(own, base_of(own), block_shape_of(own, one))
        for name, own in descriptors_of(launch).items()
    })
    given = {**one.config, **{name: decode(value) for name, value in one.constexprs.items()}}
    call.update({name: value for name, value in given.items() if name in jit.arg_names})
    options = {
        **launch.options,
        **{name: value for name, value in given.items() if name not in jit.arg_names}
    }
    return Task(call, {name: value for name, value in options.items() if value is not None}, {},
                may_spill)


def signature_of(source: Any) -> tuple[dict[str, str], Json]:
    """(Triton's types of passed parameters, values of those compiled in) of what was compiled."""
    signature = {name: kind for name, kind in source.signature.items() if kind != "constexpr"}
    constants = {}
    for place, value in source.constants.items():
        value = scalar(value)
        name = (
            source.fn.arg_names[place[0]] if isinstance(place, tuple) and len(place) == 1 else None
        )
        if name is not None and (value is None or isinstance(value, (bool, int, float, str))):
            is_finite = not isinstance(value, float) or math.isfinite(value)
            constants[name] = value if is_finite else str(value)  # as a case has it
    return signature, constants
