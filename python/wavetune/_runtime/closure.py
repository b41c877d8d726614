"""The closure of a jit function: a hash of everything that its behaviour depends on, and of nothing
else.

The SHA-256 of sorted lines joined by "\\n":
    def QUALNAME SHA-256     the dedented text from `def` on, of each jit function that it reaches
    const NAME=REPR          a constant that one reads: of a module, or a default value
so that unlike Triton's own `cache_key` it does not change with line numbers, with the file's
place, or with text outside of these functions. Those of Triton itself are left out: the closure is
the same for every Triton, and the environment states the version.

The walk follows names that the text reads and does not bind: in the function's nonlocals, then its
globals, and through attributes of modules and classes. Other values (tensors) do not enter.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import re
import textwrap
import types
from typing import Any, Iterator, NamedTuple

FUNCTIONS_MAX = 1000
_ABSENT = object()
_DEF = re.compile(r"^(async\s+)?def\s+\w+\s*\(", re.MULTILINE)


def jit_function(found):
    """The jit function below autotuners and heuristics; None where there is none."""
    for _ in range(20):
        # without running code of objects that are something else
        inner = getattr(found, "__dict__", {}).get("fn")
        if inner is None or isinstance(found, (types.ModuleType, type)):
            return None
        if inspect.isfunction(inner):
            return found
        found = inner
    return None


def source(jit) -> str:
    """The text that is compiled, from `def` on, dedented."""
    text = getattr(jit, "src", None)
    if not isinstance(text, str):
        text = inspect.getsource(jit.fn)
    text = textwrap.dedent(text)
    found = _DEF.search(text)
    return (text[found.start():] if found else text).rstrip() + "\n"


def closure(function) -> str | None:
    """Of a jit function, or of one below autotuners and heuristics; None: it has no text."""
    jit = jit_function(function)
    if jit is None:
        return None
    try:
        lines = "\n".join(sorted(_lines(jit)))
    except (OSError, SyntaxError, TypeError, ValueError, RecursionError):
        return None
    return "sha256:" + _sha256(lines)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _lines(jit) -> set[str]:
    lines = set()
    for one, text, reads in walk(jit):
        function = one.fn.__qualname__
        lines.add(f"def {function} {_sha256(text)}")
        meanings = [(".".join(read.chain), read.value) for read in reads
                    if not is_of_triton(read.value)]
        meanings += [(f"{function}.{name}", value) for name, value in defaults(one.fn)]
        for name, value in meanings:
            constant = constant_text(value) if callee(value) is None else None
            if constant is not None:
                lines.add(f"const {name}={constant}")
    return lines


class Read(NamedTuple):
    """A name that a function's text reads and does not bind, with its attributes."""

    chain: tuple[str, ...]
    values: list[Any]  # of the name, and of each attribute that was followed
    is_free: bool  # a variable of an enclosing function, else a global of the function's module

    @property
    def value(self):
        return self.values[-1]


def walk(jit) -> Iterator[tuple[Any, str, list[Read]]]:
    """The function and each jit function that it reaches, its text from `def` on, and its reads."""
    seen, waiting = {id(jit.fn)}, [jit]
    while waiting:
        one = waiting.pop()
        text = source(one)
        reads = list(reads_of(one.fn, text))
        yield one, text, reads
        for value in [read.value for read in reads] + [value for _, value in defaults(one.fn)]:
            found = callee(value)
            if found is not None and id(found.fn) not in seen:
                if len(seen) >= FUNCTIONS_MAX:
                    raise ValueError("too many functions")
                seen.add(id(found.fn))
                waiting.append(found)


def callee(value):
    """The jit function that a value is; None where it is none, or one of Triton's own."""
    found = jit_function(value)
    return found if found is not None and not is_of_triton(found.fn) else None


def reads_of(function: types.FunctionType, text: str, of_signature: bool = False) -> Iterator[Read]:
    """What the names in the body mean; `of_signature`: those in annotations and default values."""
    scope = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # not bound yet
            scope[name] = cell.cell_contents
    for chain in sorted(_chains(ast.parse(text), of_signature)):
        is_free = chain[0] in scope
        value = scope[chain[0]] if is_free else function.__globals__.get(chain[0], scope)
        if value is scope:
            continue  # a builtin, or a name that does not exist
        values = [value]
        for attribute in chain[1:]:
            member = _member(values[-1], attribute) if not is_of_triton(values[-1]) else _ABSENT
            if member is _ABSENT:
                break
            values.append(member)
        yield Read(chain, values, is_free)


def defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Default values as they were taken when the function was defined, by name."""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            yield name, parameter.default


def _member(value, name: str):
    """An attribute of a module or class, which may be None, without running code for it."""
    if isinstance(value, types.ModuleType):
        return vars(value).get(name, _ABSENT)
    if isinstance(value, type):
        return inspect.getattr_static(value, name, _ABSENT)
    return _ABSENT


def _chains(tree: ast.Module, of_signature: bool) -> set[tuple[str, ...]]:
    """The names that the text reads and does not bind, with attributes: ("module", "x")."""
    node, chains = tree.body[0] if tree.body else tree, set()
    bound = {part.arg if isinstance(part, ast.arg) else part.id for part in ast.walk(node)
             if isinstance(part, ast.arg) or
             isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}

    def visit(part: ast.AST) -> None:
        names = []
        while isinstance(part, ast.Attribute):
            names.append(part.attr)
            part = part.value
        if isinstance(part, ast.Name):
            if part.id not in bound:
                chains.add((part.id, *reversed(names)))
            return
        for child in ast.iter_child_nodes(part):
            visit(child)

    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        visit(node)
    else:
        for statement in [node.args] if of_signature else node.body:  # never decorators
            visit(statement)
    return chains


def is_of_triton(value) -> bool:
    """Whether it is a part of Triton itself: a module, a builtin, a function of its library."""
    if getattr(value, "__triton_builtin__", False) is True:
        return True
    is_module = isinstance(value, types.ModuleType)
    name = value.__name__ if is_module else getattr(value, "__module__", None)
    if not isinstance(name, str) or name.partition(".")[0] != "triton":
        return False
    # Instances of its classes (a dtype, a constexpr) have the class's module and are values of the
    # program.
    return is_module or isinstance(value, type) or \
        callable(value) and _text_of_value(value) is None


def _text_of_value(value) -> str | None:
    """A dtype, and what a constexpr holds."""
    kind = type(value)
    if not str(getattr(kind, "__module__", "")).startswith("triton."):
        return None
    if kind.__name__ == "constexpr":
        return constant_text(value.value)
    if kind.__name__ == "dtype":
        return f"dtype {value}"
    return None


def constant_text(value) -> str | None:
    """How a constant is written; None where the value is none."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return repr(kind(value))
    if value is None or isinstance(value, (bytes, complex)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        parts = [constant_text(part) for part in value]
        return None if None in parts else f"({', '.join(parts)})"
    return _text_of_value(value)
