"""The texts of an autotuner's key, and the members of its configs, as they are written to and read
from a server."""

from __future__ import annotations

import math
import re
from typing import Any, Mapping, Sequence

from .effects import are_alike
from .values import dtype_name, is_torch_dtype, is_triton

TEXT_MAX = 1024
_INTEGER = re.compile(r"-?\d{1,30}")


def scalar(value: Any) -> Any:
    """A value of a key or config as None, a bool, an int, a float or a string; `value` itself where
    it is none of them."""
    inner = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    for kind in (bool, int, float, str):
        if isinstance(inner, kind):
            return kind(inner)
    return inner


def keyed(value: Any) -> Any:
    """A value of a key as the key of a job has it: what is no scalar of JSON by its name or
    text."""
    own = scalar(value)
    if isinstance(own, float) and not math.isfinite(own):
        return str(own)
    if is_triton(own, "dtype") or is_torch_dtype(own):
        return dtype_name(own)
    if is_function(own):
        return f"{own.fn.__module__}:{own.fn.__qualname__}"
    return repr(own) if type(own) in (tuple, list) else own


def is_function(value: Any) -> bool:
    """Whether it is a jit function."""
    return hasattr(value, "fn") and hasattr(value, "cache_key")


def typed(text: Any) -> Any:
    """The value that str() made a text of, as triton-dejavu has keys."""
    if not isinstance(text, str):
        return text
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    for kind in (int, float):
        try:
            if str(kind(text)) == text:
                return kind(text)
        except ValueError:
            pass
    return text


def key_texts(key: Any, is_text: bool = False) -> tuple[str, ...] | None:
    """repr() of each value of the key; None where one has no text that another process would write
    too."""
    texts = []
    for value in key if isinstance(key, tuple) else (key,):
        try:
            text = repr(keyed(typed(value) if is_text else value))
        except Exception:  # of the program's class
            return None
        if len(text) > TEXT_MAX or " at 0x" in text:
            return None
        texts.append(text)
    return tuple(texts) or None


def distance(one: Sequence[str], other: Sequence[str]) -> float:
    """The sum of |log2| differences of the integers of two keys; infinite where they differ in
    anything else."""
    if len(one) != len(other):
        return math.inf
    total = 0.0
    for a, b in zip(one, other):
        if a == b:
            continue
        if not _INTEGER.fullmatch(a) or not _INTEGER.fullmatch(b):
            return math.inf
        m, n = int(a), int(b)
        if m == 0 or n == 0 or (m < 0) != (n < 0):
            return math.inf  # what a program means by 0 or a negative number is no length
        total += abs(math.log2(abs(m)) - math.log2(abs(n)))
    return total


def members(config: Any) -> dict[str, Any]:
    """All members of a triton.Config, flat."""
    flat = dict(config.kwargs)
    for name in ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override"):
        if getattr(config, name, None) is not None:
            flat[name] = getattr(config, name)
    return {name: scalar(value) for name, value in flat.items()}


def plain(config: Any) -> dict[str, Any] | None:
    """The members of a config as JSON; None where one is no scalar."""
    flat = members(config)
    for value in flat.values():
        if value is not None and type(value) not in (bool, int, float, str):
            return None
        if isinstance(value, float) and not math.isfinite(value):
            return None
    return flat


def _equal(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and \
        type(one) in (bool, int, float, str, type(None)) and \
        type(other) in (bool, int, float, str, type(None)) and one == other


def fitting(configs: Sequence[Any], stated: Mapping[str, Any]) -> Any:
    """The one of the program's configs that has every stated member; None where none or several do.

    Configs that are equal in all members, and whose hooks are alike (effects.py), count as one.
    """
    if not isinstance(stated, Mapping) or not stated:
        return None
    fits = []
    for config in configs:
        own = members(config)
        if all(
                _equal(own.get(name), value) and (name in own or value is None)
                for name, value in stated.items()):
            fits.append((config, own))
    if len(fits) > 1:
        first = fits[0]
        hooks = [getattr(config, "pre_hook", None) for config, _ in fits]
        if any(own != first[1]
               for _, own in fits) or not all(are_alike(hook, hooks[0]) for hook in hooks):
            return None
    return fits[0][0] if fits else None
