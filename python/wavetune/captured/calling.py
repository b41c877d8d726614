"""Calls a jit function as a captured launch did, with stand-ins for its tensors, so that Triton's JIT compiles what the
program's own JIT would: the same specialisation, the same hash."""

from __future__ import annotations

from typing import Any, Mapping

from ..compiling import Tensor, compile_call, ordered_call
from .documents import Config, Launch
from .kernel import Refused


def _value(value: Any) -> Any:
    """A <value> of the documents as Python has it."""
    import triton.language as tl
    if not isinstance(value, dict):
        return value
    (kind, inner), = value.items()
    if kind == "dtype":
        return _dtype(inner)
    if kind == "constexpr":
        return tl.constexpr(_value(inner))
    if kind == "tuple":
        return tuple(map(_value, inner))
    raise Refused(f"a value of the kind {kind} is not known; record the launch with the wheel of this version")


def _dtype(name: str) -> Any:
    import triton.language as tl
    names = {"float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5", "float8_e4m3fnuz": "float8e4b8",
             "float8_e5m2fnuz": "float8e5b16", "bool": "int1"}
    found = getattr(tl, names.get(name, name), None)
    if found is None:
        raise Refused(f"this Triton has no dtype {name}")
    return found


def _passed(argument: Mapping[str, Any]) -> Any:
    kind = argument["kind"]
    if kind == "tensor":
        return Tensor(argument["dtype"], bool(argument.get("range")), argument["alignment"])
    if kind == "none":
        return None
    if kind == "dtype":
        return _dtype(argument["value"])
    return _value(argument["value"])


def compile_launch(jit: Any, target: Any, backend: Any, launch: Launch, one: Config, may_spill: bool) -> tuple[Any, Any, Any]:
    """What compile_call returns for one config of the launch."""
    values = {argument["name"]: _passed(argument) for argument in launch.arguments}
    values.update({name: _value(value) for name, value in one.constexprs.items()})
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
