"""The document of a function that a program launched: its text, that of all jit functions that it
reaches, and the values of what they read, so that another process can make a function of it whose
key in Triton's cache is the same (_captured/module.py).

The key is made of the text from `def` on, the number of the first line (that of the first
decorator), the keys of callees, and, in newer Tritons, the names and values of constexprs that are
read; where functions call each other, also of the module's name. Decorators, annotations and
default values are not executed again: what they gave is stated.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
from typing import Any

from .closure import Read, callee, constant_text, defaults, is_of_triton, reads_of, source, walk
from .values import encode

TEXT_MAX = 1 << 20


class Uncapturable(Exception):
    """A sentence that says why there is no document."""


def name_of(jit: Any) -> str:
    return f"{jit.fn.__module__}:{jit.fn.__qualname__}"


def function_document(jit: Any, closure: str, tuner: Any, heuristics: list[str],
                      cache_key: str | None) -> dict[str, Any]:
    """`tuner`: the autotuner above, or None. `cache_key`: JITCallable.cache_key, where the
    program's Triton could make it."""
    parts: list[dict[str, Any]] = []
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    names: dict[str, int] = {}
    for one, text, reads in walk(jit):
        if names.setdefault(name_of(one), id(one.fn)) != id(one.fn):
            raise Uncapturable(f"it reaches two functions that are both named {name_of(one)}")
        # Triton evaluates default values once more
        reads = reads + list(reads_of(one.fn, text, of_signature=True))
        own: dict[tuple[str, str], dict[str, Any]] = {}
        for read in reads:
            _add(own if read.is_free else entries, one.fn.__module__, read)
        part = _part(one, text)
        if own:
            part["free"] = [{name: value for name, value in entry.items() if name != "module"}
                            for entry in own.values()]
        parts.append(part)
    size = sum(len(part["text"].encode()) for part in parts)
    if size > TEXT_MAX:
        raise Uncapturable(f"it and the functions that it reaches have {size} bytes of text; at "
                           f"most {TEXT_MAX} are recorded")
    joined = "".join(part["text"] for part in parts)
    return {
        "version": 1, "closure": closure, "name": name_of(jit)[:1024], "parts": parts,
        "globals": [entries[place]
                    for place in sorted(entries)], "autotune": _autotune(tuner) if tuner else None,
        "heuristics": heuristics, "triton": getattr(sys.modules.get("triton"), "__version__", None),
        "cache_key": cache_key, "source": "sha256:" + hashlib.sha256(joined.encode()).hexdigest()
    }


def _part(jit: Any, text: str) -> dict[str, Any]:
    """`text`: what is compiled, from `def` on."""
    fn = jit.fn
    lines, line = getattr(jit, "raw_src", None), getattr(jit, "starting_line_number", None)
    if lines is None or line is None:
        lines, line = inspect.getsourcelines(fn)
    whole = "".join(lines)
    if source(_Text(whole)) != text:
        raise Uncapturable(f"the text of {name_of(jit)} is not that of its file any more")
    try:
        whole.encode()
    except UnicodeError:
        raise Uncapturable(f"the text of {name_of(jit)} is not UTF-8") from None
    part: dict[str, Any] = {
        "module": fn.__module__, "qualname": fn.__qualname__, "line": line, "text": whole
    }
    if type(jit).__name__ != "JITFunction":
        part["kind"] = type(jit).__name__
    for name in ("noinline", "debug"):
        if getattr(jit, name, None):
            part[name] = True
    for listed in ("do_not_specialize", "do_not_specialize_on_alignment"):
        found = [
            parameter.name for parameter in getattr(jit, "params", [])
            if getattr(parameter, listed)
        ]
        if found:
            part[listed] = found
    annotations = {parameter.name: parameter.annotation for parameter in getattr(jit, "params", [])}
    part["annotations"] = {
        name: text for name, text in annotations.items() if text and isinstance(text, str)
    }
    part["defaults"] = {}
    for name, value in defaults(fn):
        try:
            part["defaults"][name] = encode(value)
        except ValueError:
            pass  # a launch states what it was called with
    return part


class _Text:
    """What closure.source() reads."""

    def __init__(self, text: str):
        self.src = text


def _add(entries: dict[tuple[str, str], dict[str, Any]], module: str, read: Read) -> None:
    """The entries that a name needs: one for each module on its way, and one for what it means."""
    for i, value in enumerate(read.values):
        name = ".".join(read.chain[:i + 1])
        entry: dict[str, Any] = {"module": module, "name": name}
        found = callee(value)
        if found is not None:
            entry["is"] = name_of(found)
        elif is_of_triton(value):
            path = triton_path(value)
            entry.update({"is": path} if path else {"missing": "a part of Triton that has no name"})
        elif isinstance(value, (types.ModuleType, type)):
            is_on_way = i + 1 < len(read.values)
            if isinstance(value, types.ModuleType):
                entry["is"] = value.__name__
            elif not is_on_way:
                entry["missing"] = f"the class {value.__qualname__}"
            else:
                entry["is"] = f"{value.__module__}.{value.__qualname__}"
        elif constant_text(value) is not None:
            try:
                entry["value"] = encode(value)
            except ValueError as error:
                entry["missing"] = str(error)
        else:
            entry["missing"] = f"a {type(value).__module__}.{type(value).__qualname__}"
        entries[module, name] = entry


def triton_path(value: Any) -> str | None:
    """The dotted name by which a module, class or function of Triton is found again."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    inner = getattr(value, "fn", value)
    path = f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', '')}"
    if resolve(path) is value:
        return path
    attribute = getattr(inner, "__name__", "")
    for name, module in list(sys.modules.items()):
        if (
            name.partition(".")[0] == "triton"
            and getattr(module, "__dict__", {}).get(attribute) is value
        ):
            return f"{name}.{attribute}"
    return None


def resolve(path: str) -> Any:
    """The object of a dotted name among the modules that are imported; None where there is none."""
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        found: Any = sys.modules.get(".".join(parts[:n]))
        if found is None:
            continue
        for attribute in parts[n:]:
            found = getattr(found, attribute, None)
        return found
    return None


def _autotune(tuner: Any) -> dict[str, Any]:
    return {
        "key": [str(name) for name in tuner.keys], "reset_to_zero": _names(tuner, "reset_to_zero"),
        "restore_value": _names(tuner, "restore_value"), "hooks": {
            "pre": bool(getattr(tuner, "user_defined_pre_hook", False)),
            "post": bool(getattr(tuner, "user_defined_post_hook", False)), "config_pre": any(
                getattr(config, "pre_hook", None) is not None for config in tuner.configs)
        }, "prunes": getattr(tuner, "early_config_prune", None) is not None or
        getattr(tuner, "perf_model", None) is not None,
        "use_cuda_graph": bool(getattr(tuner, "use_cuda_graph", False)), "warmup": _number(
            getattr(tuner, "num_warmups", None)), "rep": _number(getattr(tuner, "num_reps", None))
    }


def _names(tuner: Any, listed: str) -> list[str]:
    return [str(name) for name in getattr(tuner, listed, None) or []]


def _number(value: Any) -> Any:
    return value if isinstance(value, (int, float)) else None
