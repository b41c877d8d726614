"""Calls a jit function as a captured launch did, with stand-ins for its tensors: Triton's JIT
compiles what the program's own would, with the same hash.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from .._canonical import Fields, Json
from .._pack.compiling import Task
from .._runtime.keys import scalar
from .._runtime.values import decode
from .descriptors import block_shape_of, made, tensor_of
from .documents import Config, Launch, number, value_of
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
        return tensor_of(argument)
    return value_of(argument)


def plain(value: Any) -> Any:
    """The value of a constexpr."""
    return value.value if type(value).__name__ == "constexpr" else value


def defaults_of(jit: Any) -> Json:
    return {parameter.name: parameter.default for parameter in jit.params if parameter.has_default}


def _is_default(argument: Fields, defaults: Fields) -> bool:
    """Whether the program left the argument out: Triton's hash tells a constexpr from its value."""
    if argument["name"] not in defaults or argument["kind"] in ("tensor", "tuple", "function"):
        return False
    default, value = plain(defaults[argument["name"]]), passed(argument)
    return type(value) is type(default) and value == default


def task_of(jit: Any, launch: Launch, one: Config, may_spill: bool) -> Task:
    """The compile of one config of the launch."""
    defaults, call = defaults_of(jit), {}
    for argument in launch.arguments:
        if argument["kind"] == "descriptor":
            call[argument["name"]] = made(argument, tensor_of(argument["base"]),
                                          block_shape_of(argument, one))
        elif not _is_default(argument, defaults):
            call[argument["name"]] = passed(argument)
    options = dict(launch.options)
    for name, value in [*one.config.items(),
                        *((name, decode(value)) for name, value in one.constexprs.items())]:
        (call if name in jit.arg_names else options)[name] = value
    return Task(call, {name: value for name, value in options.items() if value is not None}, {},
                may_spill)


def signature_of(source: Any) -> tuple[dict[str, str], Json]:
    """(Triton's types of passed parameters, values of those compiled in) of what was compiled."""
    signature = {name: kind for name, kind in source.signature.items() if kind != "constexpr"}
    constants = {}
    for place, value in source.constants.items():
        value = scalar(value)
        if isinstance(place, tuple) and len(place) == 1 and (
                value is None or isinstance(value, (bool, int, float, str))):
            constants[source.fn.arg_names[place[0]]] = number(value)
    return signature, constants
