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

from .._canonical import Named, canonical
from . import keys
from .closure import closure
from .contents import BYTES_MAX, FORMATS, copy_of
from .effects import Effects, Refused, is_descriptor, is_tensor
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
        self.document: Named = {}
        self.integers: list[tuple[Named, str, bytes]] = []
        self.heuristics: list[str] = []
        self.initial: Named = {}  # what the autotuner's own hook fills, by argument
        self.refused: list[str] = []

    def refuse(self, sentence: str) -> None:
        if sentence not in self.refused and len(self.refused) < SENTENCES_MAX:
            self.refused.append(sentence[:TEXT_MAX])


def specialised(value) -> list[Any]:
    """What Triton compiles other code for, about as its own key has it."""
    if is_tensor(value):
        return ["tensor", str(value.dtype), value.data_ptr() % 16 == 0, _is_in_range(value)]
    if is_descriptor(value):
        return ["descriptor", str(value.base.dtype), list(value.block_shape),
                str(getattr(value, "padding", ""))]
    if isinstance(value, bool):
        return ["bool"]
    if isinstance(value, int):
        multiple = 1 if value == 1 else 16 if value % 16 == 0 else 0
        return ["int", multiple, -2**31 <= value < 2**31, value < 2**63]
    if isinstance(value, float):
        return ["float"]
    if isinstance(value, (tuple, list)):
        return ["tuple", *map(specialised, value)]
    return [type(value).__name__, str(value)[:200]]


def _is_in_range(tensor) -> bool:
    try:
        return int(tensor.untyped_storage().nbytes()) <= RANGE_BYTES
    except Exception:  # of another library's tensor; Triton asks the same and says what is wrong
        return True


def name_of(key_texts: Sequence[str], jit, given: Named, configs: Sequence[Named] = ()) -> str:
    """What tells launches of a function apart: 16 hex digits. `configs`: as configs_of() has them,
    where heuristics or hooks give values. The block shapes that hooks set are those of the configs;
    before, those of an earlier launch may be in descriptors."""
    classes = []
    is_set = {name for config in configs for name in config.get("block_shapes", ())}
    for parameter in jit.params:
        name, value = parameter.name, given.get(parameter.name)
        if name in is_set:
            value = [str(value.base.dtype),
                     *(config.get("block_shapes", {}).get(name) for config in configs)]
        is_value = parameter.is_constexpr and not is_tensor(value)
        classes.append([name, *([str(value)[:1000]] if is_value else specialised(value))])
    text = canonical([list(key_texts), classes, *([config["constexprs"]] for config in configs)])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def given_to(jit, positional: Mapping[str, Any], keywords: Named) -> Named:
    """The values by parameter, with defaults, without those of configs and heuristics."""
    given = {**keywords, **positional}
    return {parameter.name: given.get(parameter.name, parameter.default)
            for parameter in jit.params if parameter.name in given or parameter.has_default}


def arguments_of(launch: Launch, jit, given: Named, left_out, has_contents: bool) -> list[Named]:
    """`left_out`: names that configs or heuristics give. `has_contents`: whether integer tensors
    are copied, which waits for the device."""
    arguments, documents, missing = _Arguments(launch), [], []
    for parameter in jit.params:
        name = parameter.name
        if name in left_out:
            continue
        if name not in given:
            missing.append(name)
            continue
        document = arguments.document(name, given[name], parameter.is_constexpr)
        document["name"] = name  # in place: copy_integers() knows the object
        documents.append(document)
    if missing:
        launch.refuse(f"nothing gives a value to {', '.join(missing)}")
    if has_contents:
        arguments.copy_integers()
    return documents


class _Arguments:
    def __init__(self, launch: Launch):
        self.launch = launch
        self.storages: dict[int, int] = {}
        self.integers: list[tuple[int, Named, Any]] = []  # bytes, document, tensor

    def document(self, name: str, value, is_constexpr: bool) -> Named:
        if is_triton(value, "dtype"):
            return {"kind": "dtype", "value": dtype_name(value)}
        # which Triton's hash tells from the value in it
        is_own_constexpr = is_triton(value, "constexpr")
        kind = type(value)
        try:
            if not is_own_constexpr:
                if is_tensor(value):
                    return self.tensor(name, value)
                if kind.__name__ == "TensorDescriptor" and \
                        kind.__module__ == "triton.tools.tensor_descriptor":
                    return self.descriptor(name, value)
                if keys.is_function(value):
                    return self.function(name, value)
            if is_own_constexpr or is_constexpr:
                return {"kind": "constexpr", "value": encode(value)}
            if value is None:
                return {"kind": "none", "value": None}
            if kind in (tuple, list):
                items = [self.document(f"{name}[{i}]", one, False) for i, one in enumerate(value)]
                return {"kind": "tuple", "items": items}
            for base, what in ((bool, "bool"), (int, "int"), (float, "float"), (str, "string")):
                if isinstance(value, base):
                    return {"kind": what, "value": encode(value)}
            why = _what(value)
        except ValueError as error:
            why = str(error) if kind in (tuple, list, str) or is_own_constexpr else _what(value)
        return self.refused(name, why)

    def function(self, name: str, value) -> Named:
        """A jit function: its document, from which a builder makes it again."""
        own = closure(value)
        if own is None:
            return self.refused(name, "a jit function that has no text")
        try:
            document = function_document(value, own, None, [], value.cache_key)
        except (Uncapturable, OSError, SyntaxError, TypeError, ValueError) as error:
            return self.refused(name, f"a jit function that is not captured: {error}")
        return {"kind": "function", "document": document}

    def refused(self, name: str, why: str) -> Named:
        self.launch.refuse(f"{name} is {why}")
        return {"kind": "refused", "why": why}

    def tensor(self, name: str, value) -> Named:
        kind = type(value).__name__
        if kind == "MockTensor":
            return self.refused(name, "a stand-in of a warm-up, which has no shape: launch the "
                                      "kernel")
        base = getattr(value, "base", value) if kind == "TensorWrapper" else value
        if is_host(base):
            return self.refused(name, "a tensor in the host's memory: move it to the device")
        try:
            shape, stride = list(map(int, base.shape)), list(map(int, base.stride()))
            dtype, pointer = dtype_name(value.dtype), int(base.data_ptr())
            elements = 0 if 0 in shape else \
                1 + sum((n - 1) * step for n, step in zip(shape, stride))
            if hasattr(base, "untyped_storage"):
                storage, offset = base.untyped_storage(), int(base.storage_offset())
                place, size = int(storage.data_ptr()), int(storage.nbytes())
            else:
                place, size, offset = pointer, elements * int(base.element_size()), 0
            reach = int(value.ptr_range()) if hasattr(value, "ptr_range") else size
        except Exception as error:
            return self.refused(name, f"a {kind} that does not say its shape, strides and storage "
                                      f"({type(error).__name__})")
        document = {
            "kind": "tensor", "dtype": dtype, "shape": shape, "stride": stride, "offset": offset,
            "elements": elements,
            "alignment": min(pointer & -pointer or ALIGNMENT_MAX, ALIGNMENT_MAX),
            "storage": self.storages.setdefault(place, len(self.storages)), "storage_bytes": size,
            "range": reach <= RANGE_BYTES, "contents": None
        }
        if dtype in FORMATS and base is value:
            self.integers.append((elements * int(base.element_size()), document, value))
        return document

    def descriptor(self, name: str, value) -> Named:
        base = self.tensor(f"{name}.base", value.base)
        if base["kind"] != "tensor":
            return base
        document = {
            "kind": "descriptor", "base": base,
            **{part: list(map(int, getattr(value, part)))
               for part in ("shape", "strides", "block_shape")},
            "padding": str(getattr(value, "padding", "zero"))
        }
        if getattr(value, "round_f32_to_tf32", False):
            document["round_f32_to_tf32"] = True
        return document

    def copy_integers(self) -> None:
        left = BYTES_MAX
        for size, document, tensor in sorted(self.integers, key=lambda one: one[0]):
            left -= size
            if left < 0:
                return
            try:
                data = copy_of(tensor, document["elements"], document["dtype"])
            except Exception:  # a device that is lost, or a stream that captures: not known
                continue
            self.launch.integers.append((document, document["dtype"], data))


def is_host(tensor) -> bool:
    device = getattr(tensor, "device", None)
    return getattr(device, "type", device) == "cpu"


def _what(value) -> str:
    kind = type(value).__name__
    if is_descriptor(value) or hasattr(value, "tma_desc_cpu_ptr"):
        return (f"a descriptor of the host ({type(value).__module__}.{kind}): use "
                "triton.tools.tensor_descriptor's, or make it in the kernel "
                "(tl.make_tensor_descriptor)")
    if callable(value):
        return f"a callable ({kind}), which a capture has no text of"
    if isinstance(value, tuple):
        return f"a named tuple ({kind}): pass its members"
    return f"a {type(value).__module__}.{kind}, which Triton has no type for"


def _heuristics_of(launch: Launch, tuner, jit) -> list[Any]:
    """Those between an autotuner and its jit function."""
    found, inner = [], tuner.fn if tuner is not None else jit
    while inner is not jit and inner is not None:
        if type(inner).__name__ == "Heuristics":
            found.append(inner)
            launch.heuristics += map(str, inner.values)
        else:
            launch.refuse(f"a {type(inner).__name__} is between the autotuner and the function; "
                          "only heuristics are known")
        inner = getattr(inner, "fn", None)
    return found


def configs_of(launch: Launch, tuner, jit, positional: Mapping[str, Any], keywords: Named,
               configs: Sequence[Any]) -> list[Named]:
    """`configs`: those that pruning left, the program's first one first."""
    launch.heuristics = []
    heuristics = _heuristics_of(launch, tuner, jit)
    if any(getattr(config, "ir_override", None) for config in configs):
        launch.refuse("its configs have an ir_override, so its code is not made of its text: tune "
                      "without")
    effects = Effects(tuner, jit, {**positional, **keywords}, configs)
    found = []
    done = {}  # what hooks do, by config
    most_s = max(CONFIGS_S, CONFIG_S * len(configs))
    end, waiting_end = time.thread_time() + most_s, time.perf_counter() + WAITING * most_s
    for config in configs:
        if found and (time.thread_time() > end or time.perf_counter() > waiting_end):
            launch.refuse(f"not all configs: its hooks, heuristics and grid were evaluated for "
                          f"{len(found)} of {len(configs)} configs in {most_s * 1000:g} ms: make "
                          "them cheaper, or list fewer configs")
            break
        try:
            one = _config(launch, heuristics, effects, jit, positional, keywords, config)
        except Refused as why:
            launch.refuse(str(why))
            break
        found.append(one)
        if one["grid"] is None:
            break
        own = [one.get("fills"), one.get("block_shapes")]
        if done.setdefault(canonical(one["config"]), own) != own:
            launch.refuse(f"two of its configs are {one['config']}, and their pre_hooks do not do "
                          "the same: tell them apart by a parameter")
    launch.initial = {name: encode(value) for name, value in (effects.initial or {}).items()}
    return found


def _config(launch: Launch, heuristics: Sequence[Any], effects: Effects, jit,
            positional: Mapping[str, Any], keywords: Named, config) -> Named:
    own = {**keywords, **config.all_kwargs()} if config is not None else dict(keywords)
    flat = keys.plain(config) if config is not None else {}
    if flat is None:
        raise Refused("its configs have members that are no numbers, bools or strings: choose "
                       "those by a name or number")
    fills, blocks, descriptors = effects.of_config(config, own)
    positional = {name: descriptors.get(name, value) for name, value in positional.items()}
    own.update({name: value for name, value in descriptors.items() if name not in positional})

    # As Heuristics.run does: each sees what the ones before it gave.
    constexprs = {}
    for one in heuristics:
        for name, function in one.values.items():
            try:
                own[name] = function({**dict(zip(one.arg_names, positional.values())), **own})
            except Exception as error:
                raise Refused(f"a heuristic fails for the config {flat}: {type(error).__name__}: "
                               f"{error}") from None
            constexprs[name] = own[name]
    for name, value in constexprs.items():
        try:
            constexprs[name] = encode(value)
        except ValueError as error:
            raise Refused(f"the heuristic of {name} gives {error}") from None
    found = {
        "config": flat, "grid": _grid(launch, jit, positional, own, flat), "constexprs": constexprs
    }
    if fills:
        found["fills"] = {name: encode(value) for name, value in fills.items()}
    return {**found, "block_shapes": blocks} if blocks else found


def _grid(launch: Launch, jit, positional: Named, keywords: Named, flat) -> list[int] | None:
    """As JITFunction.run has it: a callable gets the arguments by name, and no options."""
    grid = keywords.get("grid")
    try:
        if callable(grid):
            grid = grid(given_to(jit, positional, keywords))
        extents = list(map(int, grid))
        if not 1 <= len(extents) <= 3:
            raise ValueError(f"it has {len(extents)} extents")
    except Exception as error:
        launch.refuse(f"its grid cannot be evaluated for the config {flat}: "
                      f"{type(error).__name__}: {error}")
        return None
    return extents + [1] * (3 - len(extents))
