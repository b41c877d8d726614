"""The document of a function that a program launched: its text, that of all jit functions that it
reaches, and the values of what they read, so that another process can make a function of it whose
key in Triton's cache is the same (_captured/module.py).

The key has the text from `def` on, the number of the first line (that of the first decorator), the
keys of callees, and, in newer Tritons, the names and values of constexprs that are read; where
functions call each other, also the module's name. Decorators, annotations and default values are
not executed again: what they gave is stated.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import types

from .._canonical import Named, digest_bytes
from .closure import Read, callee, constant_text, defaults, is_of_triton, reads_of, source, walk
from .environment import triton_version
from .values import encode

TEXT_MAX = 1 << 20


class Uncapturable(Exception):
    """A sentence that says why there is no document."""


def name_of(jit) -> str:
    return f"{jit.fn.__module__}:{jit.fn.__qualname__}"


def function_document(jit, closure: str, tuner, heuristics: list[str],
                      cache_key: str | None) -> Named:
    """`tuner`: the autotuner above, or None. `cache_key`: as the program's Triton made it."""
    parts = []
    entries = {}
    names = {}
    for one, text, reads in walk(jit):
        if names.setdefault(name_of(one), id(one.fn)) != id(one.fn):
            raise Uncapturable(f"it reaches two functions that are both named {name_of(one)}")
        part, free = _part(one, text), {}
        # Triton evaluates default values once more
        for read in [*reads, *reads_of(one.fn, text, of_signature=True)]:
            _add(free if read.is_free else entries, one.fn.__module__, read)
        if free:
            part["free"] = [{name: value for name, value in entry.items() if name != "module"}
                            for entry in free.values()]
        parts.append(part)
    joined = "".join(part["text"] for part in parts).encode()
    if len(joined) > TEXT_MAX:
        raise Uncapturable(f"it and the functions that it reaches have {len(joined)} bytes of "
                           f"text; at most {TEXT_MAX} are recorded")
    return {
        "version": 1, "closure": closure, "name": name_of(jit)[:1024], "parts": parts,
        "globals": [entries[place] for place in sorted(entries)],
        "autotune": _autotune(tuner) if tuner else None, "heuristics": heuristics,
        "triton": triton_version(), "cache_key": cache_key, "source": digest_bytes(joined)
    }


def _part(jit, text: str) -> Named:
    """`text`: what is compiled, from `def` on."""
    fn, parameters = jit.fn, getattr(jit, "params", [])
    lines, line = getattr(jit, "raw_src", None), getattr(jit, "starting_line_number", None)
    if lines is None or line is None:
        lines, line = inspect.getsourcelines(fn)
    whole = "".join(lines)
    if source(types.SimpleNamespace(src=whole)) != text:
        raise Uncapturable(f"the text of {name_of(jit)} is not that of its file any more")
    try:
        whole.encode()
    except UnicodeError:
        raise Uncapturable(f"the text of {name_of(jit)} is not UTF-8") from None
    part = {
        "module": fn.__module__, "qualname": fn.__qualname__, "line": line, "text": whole
    }
    if type(jit).__name__ != "JITFunction":
        part["kind"] = type(jit).__name__
    for name in ("noinline", "debug"):
        if getattr(jit, name, None):
            part[name] = True
    for listed in ("do_not_specialize", "do_not_specialize_on_alignment"):
        found = [parameter.name for parameter in parameters if getattr(parameter, listed)]
        if found:
            part[listed] = found
    part["annotations"] = {
        parameter.name: parameter.annotation for parameter in parameters
        if parameter.annotation and isinstance(parameter.annotation, str)
    }
    part["defaults"] = {}
    for name, value in defaults(fn):
        with contextlib.suppress(ValueError):  # a launch states what it was called with
            part["defaults"][name] = encode(value)
    return part


def _add(entries: dict[tuple[str, str], Named], module: str, read: Read) -> None:
    """The entries that a name needs: one for each module on its way, and one for what it means."""
    for i, value in enumerate(read.values):
        name = ".".join(read.chain[:i + 1])
        entries[module, name] = {"module": module, "name": name,
                                 **_meaning(value, i + 1 < len(read.values))}


def _meaning(value, is_on_way: bool) -> Named:
    kind, found = type(value), callee(value)
    if found is not None:
        return {"is": name_of(found)}
    if is_of_triton(value):
        path = triton_path(value)
        return {"is": path} if path else {"missing": "a part of Triton that has no name"}
    if isinstance(value, types.ModuleType):
        return {"is": value.__name__}
    if isinstance(value, type):
        return {"is": f"{value.__module__}.{value.__qualname__}"} if is_on_way else \
            {"missing": f"the class {value.__qualname__}"}
    if constant_text(value) is None:
        return {"missing": f"a {kind.__module__}.{kind.__qualname__}"}
    try:
        return {"value": encode(value)}
    except ValueError as error:
        return {"missing": str(error)}


def triton_path(value) -> str | None:
    """The dotted name by which a module, class or function of Triton is found again."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    inner = getattr(value, "fn", value)
    path = f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', '')}"
    if resolve(path) is value:
        return path
    attribute = getattr(inner, "__name__", "")
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "triton" and \
                getattr(module, "__dict__", {}).get(attribute) is value:
            return f"{name}.{attribute}"
    return None


def resolve(path: str):
    """The object of a dotted name among the modules that are imported; None where there is none."""
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        found = sys.modules.get(".".join(parts[:n]))
        if found is None:
            continue
        for attribute in parts[n:]:
            found = getattr(found, attribute, None)
        return found
    return None


def _autotune(tuner) -> Named:
    def stated(name: str):
        return getattr(tuner, name, None)

    def number(name: str):
        return stated(name) if isinstance(stated(name), (int, float)) else None

    return {
        "key": list(map(str, tuner.keys)),
        "reset_to_zero": list(map(str, stated("reset_to_zero") or [])),
        "restore_value": list(map(str, stated("restore_value") or [])),
        "hooks": {
            "pre": bool(stated("user_defined_pre_hook")),
            "post": bool(stated("user_defined_post_hook")),
            "config_pre": any(getattr(config, "pre_hook", None) is not None
                              for config in tuner.configs)
        },
        "prunes": stated("early_config_prune") is not None or stated("perf_model") is not None,
        "use_cuda_graph": bool(stated("use_cuda_graph")),
        "warmup": number("num_warmups"), "rep": number("num_reps")
    }
