"""Calls a jit function as a captured launch did, with stand-ins for its tensors, so that Triton's JIT compiles what the
program's own JIT would: the same specialisation, the same hash."""

from __future__ import annotations

from typing import Any, Mapping

from ..compiling import Tensor, compile_call, ordered_call
from ..runtime.values import decode
from .documents import Config, Launch


def passed(argument: Mapping[str, Any]) -> Any:
    """A recorded argument as Triton's JIT is to see it."""
    kind = argument["kind"]
    if kind == "tensor":
        return Tensor(argument["dtype"], bool(argument.get("range")), argument["alignment"])
    if kind == "none":
        return None
    return decode({"dtype": argument["value"]} if kind == "dtype" else argument["value"])


def _is_default(argument: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    """Whether the program left the argument out, as far as can be told: a default value may be a constexpr object, which
    Triton's hash tells from its value."""
    if argument["name"] not in defaults or argument["kind"] in ("tensor", "tuple"):
        return False
    default = defaults[argument["name"]]
    default = getattr(default, "value", default) if type(default).__name__ == "constexpr" else default
    value = passed(argument)
    return type(value) is type(default) and value == default


def compile_launch(jit: Any, target: Any, backend: Any, launch: Launch, one: Config, may_spill: bool) -> tuple[Any, Any, Any]:
    """What compile_call returns for one config of the launch."""
    defaults = {parameter.name: parameter.default for parameter in jit.params if parameter.has_default}
    values = {argument["name"]: passed(argument) for argument in launch.arguments
              if not _is_default(argument, defaults)}
    values.update({name: decode(value) for name, value in one.constexprs.items()})
    values.update({name: value for name, value in one.config.items() if value is not None or name in jit.arg_names})
    ordered, named = ordered_call(jit, values, one.config)
    return compile_call(jit, target, backend, ordered, named, may_spill)


def signature_of(source: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """(passed parameters with Triton's types, values of those that are compiled in) of what was compiled."""
    signature = {name: kind for name, kind in source.signature.items() if kind != "constexpr"}
    constants = {}
    for place, value in source.constants.items():
        name = source.fn.arg_names[place[0]] if isinstance(place, tuple) and len(place) == 1 else None
        if name is not None and (value is None or isinstance(value, (bool, int, float, str))):
            constants[name] = value
    return signature, constants
