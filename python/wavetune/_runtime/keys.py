"""The texts of an autotuner's key, and the members of its configs, as they are written to and read
from a server."""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any, Sequence

from .._canonical import Named
from .effects import are_alike
from .values import dtype_name, is_torch_dtype, is_triton

TEXT_MAX = 1024
_SCALARS = (bool, int, float, str, type(None))
_INTEGER = re.compile(r"-?\d{1,30}")


def scalar(value):
    """A value of a key or config as None, bool, int, float or str, where it is one."""
    inner = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    for kind in (bool, int, float, str):
        if isinstance(inner, kind):
            return kind(inner)
    return inner


def keyed(value):
    """A value of a key as a job's key has it: what is no scalar of JSON by its name or text."""
    own = scalar(value)
    if isinstance(own, float) and not math.isfinite(own):
        return str(own)
    if is_triton(own, "dtype") or is_torch_dtype(own):
        return dtype_name(own)
    if is_function(own):
        return f"{own.fn.__module__}:{own.fn.__qualname__}"
    return repr(own) if type(own) in (tuple, list) else own


def is_function(value) -> bool:
    """Whether it is a jit function."""
    return hasattr(value, "fn") and hasattr(value, "cache_key")


def typed(text):
    """The value that str() made a text of, as triton-dejavu has keys."""
    if not isinstance(text, str):
        return text
    for value in (True, False, None):
        if text == str(value):
            return value
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            if str(kind(text)) == text:
                return kind(text)
    return text


def key_texts(key, is_text: bool = False) -> tuple[str, ...] | None:
    """repr() of each value of the key; None where another process would write another text."""
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
    """The sum of |log2| differences of the integers of two keys; infinite if more differs."""
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


def members(config) -> Named:
    """All members of a triton.Config, flat."""
    flat = dict(config.kwargs)
    for name in ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override"):
        if getattr(config, name, None) is not None:
            flat[name] = getattr(config, name)
    return {name: scalar(value) for name, value in flat.items()}


def plain(config) -> Named | None:
    """The members of a config as JSON; None where one is no scalar."""
    flat = members(config)
    for value in flat.values():
        if type(value) not in _SCALARS or isinstance(value, float) and not math.isfinite(value):
            return None
    return flat


def _equal(one, other) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and type(one) in _SCALARS and \
        type(other) in _SCALARS and one == other


def fitting(configs: Sequence[Any], stated: Named):
    """The one of the program's configs that has every stated member; None where none or several do.
    Those that are equal in all members, and whose hooks are alike (effects.py), count as one."""
    fits = []
    for config in configs if stated else ():
        own = members(config)
        if all(_equal(own.get(name), value) and (name in own or value is None)
               for name, value in stated.items()):
            fits.append((config, own))
    hooks = [getattr(config, "pre_hook", None) for config, _ in fits]
    is_one = all(own == fits[0][1] and are_alike(hook, hooks[0])
                 for (_, own), hook in zip(fits, hooks))
    return fits[0][0] if fits and is_one else None
