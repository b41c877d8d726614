"""Kernels compiled before they are needed and several at once, where a program takes choices and no
compiled code.

The list of a start (start.py) states what programs like this one compiled: the function, by module,
name and closure, and what Triton makes a kernel of beside it, as scalars. The source, the compiler
and the folder are this program's own: a wrong list costs only the time of idle cores.

One function is wrapped, triton.compiler.compile: it learns what this program compiles, begins with
the list at the first kernel, and waits for a kernel that is being compiled; one that is not yet
begun is left to the program. The threads compile copies of jit functions, so that the program's own
still take the values of globals at their launch. $WAVETUNE_AHEAD=0 turns all of this off.

Threads: as many as the process has cores. At the program's end they are waited for, because a
thread cannot be ended inside a compiler.
"""

from __future__ import annotations

import atexit
import json
import math
import re
import sys
import time
from typing import Any, Callable

from .._canonical import Named
from .closure import closure, jit_function, walk
from .launchers import check_types
from .log import log, text_of
from .patching import around, is_wrapped
from .values import is_triton
from .worker import Early, threads_max

KERNELS_MAX = 128  # of a list
TEXT_MAX = 4096  # of a kernel
SECONDS_MAX = 30.0  # from the first; none is begun later
WAIT_S = 30.0  # of the program, for one that is being compiled
END_S = 10.0
_MEMBERS = {
    "attributes": list, "closure": str, "constants": list, "module": str, "name": str,
    "options": dict, "signature": list, "target": list
}
_DESCRIPTOR = re.compile(r"tensordesc<[a-z0-9]{1,12}\[\d{1,5}(, ?\d{1,5}){0,4}\]>")  # of the host
_WORD = re.compile(r"[A-Za-z0-9_.:\-]{0,64}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,199}")
_REFUSED = ("ir_override", "pre_hook", "extern_libs", "dump_ir")


def _is_scalar(value) -> bool:
    if type(value) is int:
        return -2**63 <= value < 2**64
    if type(value) is str:
        return _WORD.fullmatch(value) is not None
    return value is None or isinstance(value, bool) or \
        isinstance(value, float) and math.isfinite(value)


def _is_path(value) -> bool:
    return isinstance(value, (list, tuple)) and 0 < len(value) <= 4 and all(
        type(one) is int and 0 <= one < 1024 for one in value)


def check(text) -> Named:
    """A kernel of a list. Raises ValueError where it is none that this module writes."""
    try:
        found = json.loads(text) if isinstance(text, str) and len(text) <= TEXT_MAX else None
        if not isinstance(found, dict) or set(found) != set(_MEMBERS) or \
                not all(isinstance(found[name], kind) for name, kind in _MEMBERS.items()):
            raise ValueError("it is no kernel")
        if not _PATH.fullmatch(found["module"]) or not _PATH.fullmatch(found["name"]) or \
                len(found["target"]) != 3:
            raise ValueError("its function or target has no name")
        check_types([kind for _, kind in found["signature"]
                     if not isinstance(kind, str) or not _DESCRIPTOR.fullmatch(kind)])
        names = [name for name, _ in found["signature"]] + list(found["options"])
        paths = [path for path, _ in found["constants"] + found["attributes"]]
        pairs = [pair for _, listed in found["attributes"] for pair in listed]
        scalars = [value["dtype"] if isinstance(value, dict) and set(value) == {"dtype"} else value
                   for _, value in found["constants"]]
        scalars += [*found["options"].values(), *found["target"]]
        scalars += [one for pair in pairs for one in pair]
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names) or \
                not set(found["options"]).isdisjoint(_REFUSED) or \
                not all(map(_is_path, paths)) or not all(map(_is_scalar, scalars)) or \
                not all(len(pair) == 2 for pair in pairs):
            raise ValueError("a value of it is no scalar")
        return found
    except (TypeError, RecursionError) as error:  # no pair where one is expected; nested too deeply
        raise ValueError(f"it is no kernel: {type(error).__name__}") from None


def find(module: str, name: str):
    """A jit function of this program, or an autotuner above it, by name; None: there is none."""
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found if jit_function(found) is not None else None


class Ahead:
    """`on_compiled`: called with each kernel that this program compiles, as a text of a list."""

    def __init__(self, on_compiled: Callable[[str], None]):
        self.on_compiled = on_compiled
        self._triton: Any = None  # triton.compiler
        self._build: Any = None  # its compile()
        # by the id of the jit function, which is kept
        self._closures: dict[int, tuple[Any, str | None]] = {}
        self._defaults: dict[Any, Named] = {}  # options, by target
        self.used = 0
        self._worker = Early("ahead", self._compile, lambda: threads_max() + 1)
        self.after_fork()
        atexit.register(self.stop)

    def after_fork(self) -> None:
        self._worker.after_fork()
        # not begun: their function may be imported later
        self._listed: dict[str, Named] = {}
        self._compiled = 0

    def stop(self) -> None:
        self._worker.end(END_S)
        if self._compiled:
            log(f"kernels: {self._compiled} were compiled ahead, {self.used} of them used")

    def patch(self, module) -> None:
        """Wraps triton.compiler.compile. `module`: triton.compiler."""
        if not is_wrapped(module.compile):
            self._triton, self._build = module, module.compile
            module.compile = around(module.compile, "compiling ahead", before=self._before)

    def prepare(self, texts) -> None:
        """What the list has, for the next compile. Returns at once. Raises ValueError."""
        listed = {text: check(text) for text in texts}
        with self._worker.condition:
            self._listed.update(listed)

    # In the program's threads.

    def _before(self, src, target=None, options=None, *_, **__) -> None:
        text = self._text(src, target, options) \
            if target is not None and isinstance(options, dict) else None
        if text is not None:
            self.on_compiled(text)
            # before the threads' compilers hash callees, on which Triton's key of this function
            # depends
            src.hash()
        self._begin(target, text)
        if self._worker.result(text or "", WAIT_S):
            self.used += 1

    def _text(self, source, target, options: Named) -> str | None:
        """How a list states the kernel; None where it cannot."""
        jit = getattr(source, "fn", None)
        function = getattr(jit, "fn", None)
        module, name = (getattr(function, part, None) for part in ("__module__", "__qualname__"))
        if not isinstance(module, str) or not isinstance(name, str) or \
                jit_function(find(module, name)) is not jit:
            return None
        if target not in self._defaults:
            self._defaults[target] = self._options(target, {})
        standard = self._defaults[target]
        found = {
            "module": module, "name": name, "closure": self._closure(jit),
            "signature": list(source.signature.items()),
            "constants": [(path, {"dtype": value.name} if is_triton(value, "dtype") else value)
                          for path, value in source.constants.items()],
            "attributes": list(source.attrs.items()),
            "options": {one: value for one, value in options.items()
                        if one not in standard or standard[one] != value},
            "target": _target(target)
        }
        try:
            text = json.dumps(found, sort_keys=True, separators=(",", ":"), allow_nan=False)
            check(text)
        except (TypeError, ValueError):
            return None
        return text

    def _closure(self, jit) -> str | None:
        if id(jit) not in self._closures:
            self._closures[id(jit)] = (jit, closure(jit))
        return self._closures[id(jit)][1]

    def _options(self, target, stated: Named) -> Named:
        """Those of a launch, with Triton's for what it does not state."""
        return dict(vars(self._triton.make_backend(target).parse_options(stated)))

    def _begin(self, target, own: str | None) -> None:
        """Begins with the list's kernels of this program; `own`: what the program compiles now."""
        with self._worker.condition:
            if not self._listed or self._worker.is_ended or target is None:
                return
            self._worker.until = min(self._worker.until, time.monotonic() + SECONDS_MAX)
            listed, self._listed = self._listed, {}
        listed.pop(own or "", None)
        for text, stated in listed.items():
            tuner = find(stated["module"], stated["name"])
            if tuner is None:
                with self._worker.condition:
                    self._listed[text] = stated
                continue
            try:
                work = self._work(tuner, stated, target)
            except Exception as error:  # Triton refuses it: the list is a hint
                log(f"{stated['name']} is not compiled ahead: {text_of(error)}")
                continue
            if work is not None:
                self._worker.begin(text, *work)

    def _work(self, tuner, stated: Named, target) -> tuple[Any, Any, Named] | None:
        """(source, target, options); None: the program would not compile that."""
        jit = jit_function(tuner)
        if stated["target"] != _target(target) or stated["closure"] != self._closure(jit) or \
                [name for name, _ in stated["signature"]] != list(jit.arg_names):
            return None
        dtype = sys.modules["triton.language"].dtype
        constants = {
            tuple(path): dtype(value["dtype"]) if isinstance(value, dict) else value
            for path, value in stated["constants"]
        }
        while tuner is not jit and not hasattr(tuner, "configs"):
            tuner = tuner.fn  # heuristics above an autotuner
        configs = getattr(tuner, "configs", None)
        named = {jit.arg_names[path[0]]: value for path, value in constants.items()
                 if len(path) == 1}
        if configs and not any(config.kwargs.items() <= named.items() for config in configs):
            return None
        attributes = {tuple(path): value for path, value in stated["attributes"]}
        source = self._triton.ASTSource(_copy(jit), dict(stated["signature"]), constants,
                                        attributes)
        return source, target, self._options(target, dict(stated["options"]))

    # In the threads.

    def _compile(self, source, target, options: Named) -> bool:
        try:
            self._build(source, target=target, options=options)
        except Exception as error:  # the program will see it too, if it compiles that
            log(f"{source.name} could not be compiled ahead: {text_of(error)}")
            return False
        self._compiled += 1
        return True


def _target(target) -> list[Any]:
    return [target.backend, target.arch, target.warp_size]


def _copy(jit):
    """A copy with a hash of its globals as they are now; the function and callees stay."""
    callees = [one for one, _, _ in walk(jit) if one.hash is None]
    copy = object.__new__(type(jit))
    copy.__dict__.update(jit.__dict__)
    copy.__dict__.update(hash=None, used_global_vals={})
    try:
        copy.cache_key
    finally:
        for one in callees:
            one.hash, one.used_global_vals = None, {}
    return copy
