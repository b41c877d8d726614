"""The document of one launch, made in the program's thread while its arguments are there: what each
argument is, and for every config what heuristics gave, what hooks do (effects.py) and the grid.

Hooks, heuristics and the grid are called as Triton calls them, once for each config, and together
for at most CONFIGS_S of the thread's own time, with many configs CONFIG_S for each, or WAITING
times as long where they wait for something (a device, another thread). What makes the launch
impossible to build elsewhere is a sentence in `refused`, with what would help.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any, Mapping, Sequence

from .._canonical import canonical
from . import keys
from .closure import closure
from .contents import BYTES_MAX, FORMATS, copy_of
from .effects import Effects, is_descriptor
from .texts import Uncapturable, function_document
from .values import dtype_name, encode, is_triton

CONFIGS_S, CONFIG_S, WAITING = 0.1, 0.002, 10
ALIGNMENT_MAX = 256
# what AMD's back end reaches with 32-bit offsets (HIPBackend.is_within_2gb)
RANGE_BYTES = 2**31 - 1
SENTENCES_MAX = 20
TEXT_MAX = 300


class Launch:
    """`document` lacks "closure" and the contents of `integers`: (argument's object, dtype, bytes),
    which the recorder adds."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}
        self.integers: list[tuple[dict[str, Any], str, bytes]] = []
        self.heuristics: list[str] = []
        self.initial: dict[str, Any] = {}  # what the autotuner's own hook fills, by argument
        self.refused: list[str] = []

    def refuse(self, sentence: str) -> None:
        if sentence not in self.refused and len(self.refused) < SENTENCES_MAX:
            self.refused.append(sentence[:TEXT_MAX])


def specialised(value: Any) -> list[Any]:
    """What Triton compiles other code for, about as its own key has it."""
    if is_tensor(value):
        return ["tensor", str(value.dtype), value.data_ptr() % 16 == 0, _is_in_range(value)]
    if is_descriptor(value):
        return [
            "descriptor",
            str(value.base.dtype),
            list(value.block_shape),
            str(getattr(value, "padding", ""))
        ]
    if isinstance(value, bool):
        return ["bool"]
    if isinstance(value, int):
        return [
            "int", 1 if value == 1 else 16 if value % 16 == 0 else 0, -2**31 <= value < 2**31, value
            < 2**63
        ]
    if isinstance(value, float):
        return ["float"]
    if isinstance(value, (tuple, list)):
        return ["tuple", *map(specialised, value)]
    return [str(type(value).__name__), str(value)[:200]]


def _is_in_range(tensor: Any) -> bool:
    try:
        return int(tensor.untyped_storage().nbytes()) <= RANGE_BYTES
    except Exception:  # of another library's tensor; Triton asks the same and says what is wrong
        return True


def name_of(texts: Sequence[str], jit: Any, given: Mapping[str, Any],
            configs: Sequence[Mapping[str, Any]] = ()) -> str:
    """What tells launches of a function apart: 16 hex digits. `configs`: as configs_of() has them,
    where heuristics or hooks give values. The block shapes that hooks set are those of the configs;
    before, those of an earlier launch may be in descriptors."""
    classes = []
    is_set = {name for one in configs for name in one.get("block_shapes", ())}
    for parameter in jit.params:
        value = given.get(parameter.name)
        if parameter.name in is_set:
            value = [
                str(value.base.dtype),
                *(one.get("block_shapes", {}).get(parameter.name) for one in configs)
            ]
        is_value = parameter.is_constexpr and not is_tensor(value)
        classes.append([parameter.name, *([str(value)[:1000]] if is_value else specialised(value))])
    constexprs = [[one["constexprs"]] for one in configs]
    return hashlib.sha256(
        canonical([list(texts), classes, *constexprs]).encode("utf-8", "surrogatepass")
    ).hexdigest()[:16]


def is_tensor(value: Any) -> bool:
    return hasattr(value, "data_ptr") and hasattr(value, "dtype")


def given_to(tuner: Any, jit: Any, positional: Mapping[str, Any],
             keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The launch's values by parameter, with default values, in the function's order. Configs and
    heuristics are not in it."""
    found = {}
    for parameter in jit.params:
        name = parameter.name
        if name in positional or name in keywords:
            found[name] = positional[name] if name in positional else keywords[name]
        elif parameter.has_default:
            found[name] = parameter.default
    return found


def arguments_of(launch: Launch, jit: Any, given: Mapping[str, Any], left_out: Any,
                 has_contents: bool) -> list[dict[str, Any]]:
    """`left_out`: names that configs or heuristics give. `has_contents`: whether integer tensors
    are copied, which waits for the device."""
    own = _Arguments(launch)
    documents = []
    for parameter in jit.params:
        if parameter.name in given and parameter.name not in left_out:
            document = own.document(parameter.name, given[parameter.name], parameter.is_constexpr)
            document["name"] = parameter.name  # in place: copy_integers() knows the object
            documents.append(document)
    missing = [
        parameter.name for parameter in jit.params
        if parameter.name not in given and parameter.name not in left_out
    ]
    if missing:
        launch.refuse(f"nothing gives a value to {', '.join(missing)}")
    if has_contents:
        own.copy_integers()
    return documents


class _Arguments:
    def __init__(self, launch: Launch):
        self.launch = launch
        self.storages: dict[int, int] = {}
        self.integers: list[tuple[int, dict[str, Any], Any]] = []  # bytes, document, tensor

    def document(self, name: str, value: Any, is_constexpr: bool) -> dict[str, Any]:
        if is_triton(value, "dtype"):
            return {"kind": "dtype", "value": dtype_name(value)}
        try:
            if is_triton(value, "constexpr"):  # which Triton's hash tells from the value in it
                return {"kind": "constexpr", "value": encode(value)}
            if is_tensor(value):
                return self.tensor(name, value)
            if type(value).__name__ == "TensorDescriptor" and type(
                    value).__module__ == "triton.tools.tensor_descriptor":
                return self.descriptor(name, value)
            if keys.is_function(value):
                return self.function(name, value)
            if is_constexpr:
                return {"kind": "constexpr", "value": encode(value)}
            if value is None:
                return {"kind": "none", "value": None}
            if type(value) in (tuple, list):
                return {
                    "kind": "tuple",
                    "items": [
                        self.document(f"{name}[{i}]", one, False) for i, one in enumerate(value)
                    ],
                }
            for kind, what in ((bool, "bool"), (int, "int"), (float, "float"), (str, "string")):
                if isinstance(value, kind):
                    return {"kind": what, "value": encode(value)}
            why = _what(value)
        except ValueError as error:
            why = str(error) if type(value) in (tuple, list, str) or is_triton(
                value, "constexpr") else _what(value)
        return self.refused(name, why)

    def function(self, name: str, value: Any) -> dict[str, Any]:
        """A jit function: its document, from which a builder makes it again."""
        own = closure(value)
        if own is None:
            return self.refused(name, "a jit function that has no text")
        try:
            return {
                "kind": "function",
                "document": function_document(value, own, None, [], value.cache_key),
            }
        except (Uncapturable, OSError, SyntaxError, TypeError, ValueError) as error:
            return self.refused(name, f"a jit function that is not captured: {error}")

    def refused(self, name: str, why: str) -> dict[str, Any]:
        self.launch.refuse(f"{name} is {why}")
        return {"kind": "refused", "why": why}

    def tensor(self, name: str, value: Any) -> dict[str, Any]:
        if type(value).__name__ == "MockTensor":
            return self.refused(name, "a stand-in of a warm-up, which has no shape: launch the "
                                      "kernel")
        base = getattr(value, "base", value) if type(value).__name__ == "TensorWrapper" else value
        if is_host(base):
            return self.refused(name, "a tensor in the host's memory: move it to the device")
        try:
            shape, stride = [int(n) for n in base.shape], [int(n) for n in base.stride()]
            dtype, pointer = dtype_name(value.dtype), int(base.data_ptr())
            elements = 0 if 0 in shape else 1 + sum(
                (n - 1) * step for n, step in zip(shape, stride))
            storage = base.untyped_storage() if hasattr(base, "untyped_storage") else None
            place = int(storage.data_ptr()) if storage is not None else pointer
            size = int(
                storage.nbytes()) if storage is not None else elements * int(base.element_size())
            reach = int(value.ptr_range()) if hasattr(value, "ptr_range") else size
            document = {
                "kind": "tensor", "dtype": dtype, "shape": shape, "stride": stride,
                "offset": int(base.storage_offset()) if storage is not None else 0,
                "elements": elements, "alignment": min(pointer & -pointer or ALIGNMENT_MAX,
                                                       ALIGNMENT_MAX),
                "storage": self.storages.setdefault(place, len(self.storages)),
                "storage_bytes": size, "range": reach <= RANGE_BYTES, "contents": None
            }
        except Exception as error:
            return self.refused(name, f"a {type(value).__name__} that does not say its shape, "
                                      f"strides and storage "
                                      f"({type(error).__name__})")
        if dtype in FORMATS and base is value:
            self.integers.append((elements * int(base.element_size()), document, value))
        return document

    def descriptor(self, name: str, value: Any) -> dict[str, Any]:
        base = self.tensor(f"{name}.base", value.base)
        if base["kind"] != "tensor":
            return base
        document = {
            "kind": "descriptor", "base": base, "shape": [int(n) for n in value.shape],
            "strides": [int(n)
                        for n in value.strides], "block_shape": [int(n) for n in value.block_shape],
            "padding": str(getattr(value, "padding", "zero"))
        }
        return (
            {**document, "round_f32_to_tf32": True}
            if getattr(value, "round_f32_to_tf32", False)
            else document
        )

    def copy_integers(self) -> None:
        left = BYTES_MAX
        for size, document, tensor in sorted(self.integers, key=lambda one: one[0]):
            if size > left:
                return
            left -= size
            try:
                data = copy_of(tensor, document["elements"], document["dtype"])
            except Exception:  # a device that is lost, or a stream that captures: not known
                continue
            self.launch.integers.append((document, document["dtype"], data))


def is_host(tensor: Any) -> bool:
    device = getattr(tensor, "device", None)
    return getattr(device, "type", device) == "cpu"


def _what(value: Any) -> str:
    kind = type(value).__name__
    if is_descriptor(value) or hasattr(value, "tma_desc_cpu_ptr"):
        return (f"a descriptor of the host ({type(value).__module__}.{kind}): use "
                f"triton.tools.tensor_descriptor's, or make it in "
                "the kernel (tl.make_tensor_descriptor)")
    if callable(value):
        return f"a callable ({kind}), which a capture has no text of"
    if isinstance(value, tuple):
        return f"a named tuple ({kind}): pass its members"
    return f"a {type(value).__module__}.{kind}, which Triton has no type for"


class _Wrapped:
    """What is between an autotuner and its jit function."""

    def __init__(self, launch: Launch, tuner: Any, jit: Any):
        self.heuristics: list[Any] = []
        inner = tuner.fn if tuner is not None else jit
        while inner is not jit and inner is not None:
            if type(inner).__name__ == "Heuristics":
                self.heuristics.append(inner)
            else:
                launch.refuse(f"a {type(inner).__name__} is between the autotuner and the "
                              f"function; only heuristics are known")
            inner = getattr(inner, "fn", None)
        launch.heuristics = [str(name) for one in self.heuristics for name in one.values]

    def values(self, positional: Sequence[Any], keywords: dict[str, Any]) -> dict[str, Any]:
        """What Heuristics.run does: each sees what the ones before it gave. `keywords` gets their
        values."""
        given = {}
        for one in self.heuristics:
            for name, function in one.values.items():
                given[name] = keywords[name] = function(
                    {**dict(zip(one.arg_names, positional)), **keywords})
        return given


def configs_of(launch: Launch, tuner: Any, jit: Any, positional: Mapping[str, Any],
               keywords: Mapping[str, Any], configs: Sequence[Any]) -> list[dict[str, Any]]:
    """`configs`: those that pruning left, the program's first one first."""
    wrapped = _Wrapped(launch, tuner, jit)
    if any(getattr(config, "ir_override", None) for config in configs):
        launch.refuse("its configs have an ir_override, so its code is not made of its text: tune "
                      "without")
    effects = Effects(tuner, jit, {**positional, **keywords}, configs, launch.refuse)
    found: list[dict[str, Any]] = []
    done: dict[str, Any] = {}  # what hooks do, by config
    most_s = max(CONFIGS_S, CONFIG_S * len(configs))
    end, waiting_end = time.thread_time() + most_s, time.perf_counter() + WAITING * most_s
    for config in configs:
        if found and (time.thread_time() > end or time.perf_counter() > waiting_end):
            launch.refuse(f"not all configs: its hooks, heuristics and grid were evaluated for "
                          f"{len(found)} of {len(configs)} "
                          f"configs in {most_s * 1000:g} ms: make them cheaper, or list fewer "
                          f"configs")
            break
        one = _config(launch, wrapped, effects, jit, positional, keywords, config)
        if one is not None:
            found.append(one)
        if one is None or one["grid"] is None:
            break
        own = [one.get("fills"), one.get("block_shapes")]
        if done.setdefault(canonical(one["config"]), own) != own:
            launch.refuse(f"two of its configs are {one['config']}, and their pre_hooks do not do "
                          f"the same: tell them apart by a "
                          "parameter")
    launch.initial = {name: encode(value) for name, value in (effects.initial or {}).items()}
    return found


def _config(
    launch: Launch,
    wrapped: _Wrapped,
    effects: Effects,
    jit: Any,
    positional: Mapping[str, Any],
    keywords: Mapping[str, Any],
    config: Any,
) -> dict[str, Any] | None:
    own = {**keywords, **config.all_kwargs()} if config is not None else dict(keywords)
    flat = keys.plain(config) if config is not None else {}
    if flat is None:
        launch.refuse("its configs have members that are no numbers, bools or strings: choose "
                      "those by a name or number")
        return None
    done = effects.of_config(config, own)
    if done is None:
        return None
    fills, blocks, descriptors = done
    positional = {name: descriptors.get(name, value) for name, value in positional.items()}
    own.update({name: value for name, value in descriptors.items() if name not in positional})
    try:
        given = wrapped.values(list(positional.values()), own)
    except Exception as error:
        launch.refuse(f"a heuristic fails for the config {flat}: {type(error).__name__}: {error}")
        return None
    constexprs = {}
    for name, value in given.items():
        try:
            constexprs[name] = encode(value)
        except ValueError as error:
            launch.refuse(f"the heuristic of {name} gives {error}")
            return None
    found = {
        "config": flat, "grid": _grid(launch, jit, positional, own, flat), "constexprs": constexprs
    }
    if fills:
        found["fills"] = {name: encode(value) for name, value in fills.items()}
    return {**found, "block_shapes": blocks} if blocks else found


def _grid(launch: Launch, jit: Any, positional: Mapping[str, Any], keywords: Mapping[str, Any],
          flat: Any) -> list[int] | None:
    """As JITFunction.run has it: a callable gets the function's arguments by name, and no
    options."""
    grid = keywords.get("grid")
    try:
        if callable(grid):
            grid = grid(given_to(None, jit, positional, keywords))
        extents = [int(n) for n in grid]  # type: ignore[union-attr]
        if not 1 <= len(extents) <= 3:
            raise ValueError(f"it has {len(extents)} extents")
    except Exception as error:
        launch.refuse(f"its grid cannot be evaluated for the config {flat}: "
                      f"{type(error).__name__}: {error}")
        return None
    return extents + [1] * (3 - len(extents))
