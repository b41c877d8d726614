"""Descriptors of the host (triton.tools.tensor_descriptor): what a kernel is passed for one, as the
installed Triton's own launcher makes it, and as builds state it (an object's "arguments").

Where the GPU has tensor maps, that is one, the shape and the strides; elsewhere the compiler has
lowered it to a pointer, and shape and strides are passed before and after flags.
"""

from __future__ import annotations

import importlib
import inspect
import types
from typing import Any, Mapping, Sequence

from .._canonical import Fields
from .._errors import PackError
from .._pack.calls import Tensor
from .._pack.signature import BYTES
from .documents import Config, Launch

_BACKENDS = {"cuda": "nvidia", "hip": "amd"}
_FILLERS = ("fill_tma_descriptor", "fill_tma_descriptor_tiled")
_OF_COMPILE = ("type", "box", "swizzle")  # members of a tensor map that only a compile gives
_BLANK = {"swizzle": 0, "elem_size": 0, "elem_type": 0, "block_size": (), "fp4_padded": False}

Descriptor = Fields  # an argument as launches have it


def descriptors_of(launch: Launch) -> dict[str, Descriptor]:
    return {one["name"]: one for one in launch.arguments if one["kind"] == "descriptor"}


def block_shape_of(descriptor: Descriptor, one: Config) -> list[int]:
    return list(one.block_shapes.get(descriptor["name"], descriptor["block_shape"]))


def made(descriptor: Descriptor, base: Any, block_shape: list[int]) -> Any:
    """Triton's own object, without the checks that ask for a tensor of torch."""
    try:
        kind = importlib.import_module("triton.tools.tensor_descriptor").TensorDescriptor
    except (ImportError, AttributeError):
        raise PackError("this Triton has no descriptors of the host") from None
    found = kind.__new__(kind)
    for name in ("shape", "strides"):
        setattr(found, name, list(descriptor[name]))
    found.base, found.block_shape, found.padding = base, block_shape, descriptor["padding"]
    if descriptor.get("round_f32_to_tf32"):
        found.round_f32_to_tf32 = True
    return found


def tensor_of(argument: Fields) -> Tensor:
    return Tensor(argument["dtype"], tuple(argument["shape"]), tuple(argument["stride"]),
                  argument["alignment"], bool(argument.get("range")))


def elements_of(descriptor: Descriptor, meta: Any, backend: str) -> list[Any]:
    """What is passed for one. `meta`: the compiled kernel's for it; None: lowered to a pointer."""
    driver = importlib.import_module(f"triton.backends.{_BACKENDS[backend]}.driver")
    call = getattr(driver, "make_tensordesc_arg", None)
    if call is None:
        raise PackError("how this Triton passes descriptors of the host is not known here; see "
                        "_captured/descriptors.py")
    active = importlib.import_module("triton.runtime").driver.active
    own = made(descriptor, tensor_of(descriptor["base"]), [])
    maps = []

    def fill(_: Any, swizzle: int, size: int, kind: int, box: Any, shape: Any, strides: Any,
             padding: int = 0) -> Any:
        maps.append({"tensormap": {
            "base": descriptor["name"], "type": kind, "shape": list(shape),
            "strides": [size * step for step in strides[:-1]], "box": list(box),
            "swizzle": swizzle, "fill": padding}})
        return maps[-1]

    named = inspect.signature(call).parameters
    given = {name: meta if name in ("metadata", "tensordesc_metadata") else None for name in named}
    utils = active.utils
    active.utils = types.SimpleNamespace(**dict.fromkeys(_FILLERS, fill))
    try:
        first, *rest = call(**{**given, "arg": own})
    finally:
        active.utils = utils
    rank = len(descriptor["shape"])
    flags, last = rest[:-2 * rank], rest[-2 * rank:]
    found: list[Any] = [first if maps else descriptor["name"]]
    found += [{"i1": int(one)} if isinstance(one, bool) else {"i64": one} for one in flags]
    found += [{"i32": one} for one in last[:rank]] + [{"i64": one} for one in last[rank:]]
    return found


def arguments_of(launch: Launch, passed: Sequence[str], metas: Any, backend: str
                 ) -> tuple[list[Any] | None, list[int]]:
    """(an object's "arguments", which is None without a descriptor, how many each passed parameter
    has). `metas`: the compiled kernel's, in the order of descriptors, or none."""
    own, waiting = descriptors_of(launch), iter(metas or ())
    elements = [elements_of(own[name], next(waiting, None), backend) if name in own else [name]
                for name in passed]
    found = [one for some in elements for one in some]
    return found if not own.keys().isdisjoint(passed) else None, list(map(len, elements))


def planned_arguments(launch: Launch, passed: Sequence[str], backend: str) -> list[Any]:
    """The two forms that a compile may give an object's "arguments", without what only it knows."""
    own = descriptors_of(launch)
    metas = [{**_BLANK, "elem_size": BYTES[own[name]["base"]["dtype"]]} for name in passed
             if name in own]
    return [without_compiled(arguments_of(launch, passed, one, backend)[0])
            for one in ((None, metas) if backend == "cuda" else (None, ))]


def without_compiled(arguments: Any) -> Any:
    """An object's "arguments" without what only a compile gives."""
    if arguments is None:
        return None
    return [{"tensormap": {name: value for name, value in one["tensormap"].items()
                           if name not in _OF_COMPILE}}
            if isinstance(one, dict) and "tensormap" in one else one for one in arguments]


def kind_of(signature: Mapping[str, str]) -> dict[str, str]:
    """A signature without the block shapes of descriptors, which differ between configs."""
    return {name: kind.partition("[")[0] if kind.startswith("tensordesc<") else kind
            for name, kind in signature.items()}
