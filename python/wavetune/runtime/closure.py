"""The closure of a jit function: a hash of everything that its behaviour depends on, and of nothing else.

The SHA-256 of sorted lines joined by "\\n":
    def QUALNAME SHA-256     the dedented text from `def` on, of the function and of each jit function that it reaches
    const NAME=REPR          a constant that one of them reads: a global, a member of a module, a default value
so that it does not change with line numbers, with the file's place, or with text outside of these functions. Triton's own
`cache_key` has the line numbers of the function and of all callees. Functions and constants of Triton itself are left out:
the closure is the same for every Triton, and the environment states the version.

The walk follows names that the text reads and does not bind: in the function's nonlocals, then its globals, and through
attributes of modules and classes. Values that are no constants (tensors, modules) do not enter.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import textwrap
import types
from typing import Any, Iterator

FUNCTIONS_MAX = 1000
_DEF = re.compile(r"^(async\s+)?def\s+\w+\s*\(", re.MULTILINE)


def jit_function(found: Any) -> Any:
    """The jit function below autotuners and heuristics; None where there is none."""
    for _ in range(20):
        inner = getattr(found, "__dict__", {}).get("fn")  # without running code of objects that are something else
        if inner is None or isinstance(found, (types.ModuleType, type)):
            return None
        if inspect.isfunction(inner):
            return found
        found = inner
    return None


def source(jit: Any) -> str:
    """The text that is compiled, from `def` on, dedented."""
    text = getattr(jit, "src", None)
    if not isinstance(text, str):
        text = inspect.getsource(jit.fn)
    text = textwrap.dedent(text)
    found = _DEF.search(text)
    return (text[found.start():] if found else text).rstrip() + "\n"


def closure(function: Any) -> str | None:
    """The closure of a jit function, or of one below autotuners and heuristics: "sha256:…". None: it has no text."""
    jit = jit_function(function)
    if jit is None:
        return None
    try:
        lines = _walk(jit)
    except (OSError, SyntaxError, TypeError, ValueError, RecursionError):
        return None
    return "sha256:" + hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogatepass")).hexdigest()


def _walk(jit: Any) -> set[str]:
    lines: set[str] = set()
    seen, waiting = {id(jit.fn)}, [jit]
    while waiting:
        one = waiting.pop()
        text = source(one)
        lines.add(f"def {one.fn.__qualname__} {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}")
        for name, value in _reached(one.fn, text):
            callee = jit_function(value)
            if callee is not None and not _is_of_triton(callee.fn):
                if id(callee.fn) not in seen:
                    if len(seen) >= FUNCTIONS_MAX:
                        raise ValueError("too many functions")
                    seen.add(id(callee.fn))
                    waiting.append(callee)
                continue
            constant = constant_text(value)
            if constant is not None:
                lines.add(f"const {name}={constant}")
    return lines


def _reached(function: types.FunctionType, text: str) -> Iterator[tuple[str, Any]]:
    """What the names in the text mean."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or ())
    scope = {}
    for name, cell in cells:
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not bound yet
            pass

    for chain in sorted(_chains(ast.parse(text))):
        value = scope[chain[0]] if chain[0] in scope else function.__globals__.get(chain[0], scope)
        if value is scope:
            continue  # a builtin, or a name that does not exist
        for attribute in chain[1:]:
            if _is_of_triton(value):
                break
            member = _member(value, attribute)
            if member is None:
                break
            value = member
        if not _is_of_triton(value):
            yield ".".join(chain), value

    # Default values were taken when the function was defined: what their names mean now does not matter.
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            yield f"{function.__qualname__}.{name}", parameter.default


def _member(value: Any, name: str) -> Any:
    """An attribute of a module or class, without running code for it."""
    if isinstance(value, types.ModuleType):
        return vars(value).get(name)
    if isinstance(value, type):
        return inspect.getattr_static(value, name, None)
    return None


def _chains(tree: ast.AST) -> set[tuple[str, ...]]:
    """The names that the text reads and does not bind, with their attributes: ("x",), ("module", "x")."""
    node = tree.body[0] if isinstance(tree, ast.Module) and tree.body else tree
    body = node.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else [node]
    bound: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            bound.add(part.id)
        elif isinstance(part, ast.arg):
            bound.add(part.arg)
    chains: set[tuple[str, ...]] = set()

    def visit(part: ast.AST) -> None:
        names = []
        inner = part
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            if inner.id not in bound and isinstance(inner.ctx, ast.Load):
                chains.add((inner.id, *reversed(names)))
            return
        for child in ast.iter_child_nodes(inner):
            visit(child)

    for statement in body:  # not decorators, annotations and default values
        visit(statement)
    return chains


def _is_of_triton(value: Any) -> bool:
    """Whether it is a part of Triton itself: a module, a builtin, a function of its library."""
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    if getattr(value, "__triton_builtin__", False) is True:
        return True
    if not isinstance(name, str) or name.partition(".")[0] != "triton":
        return False
    # Instances of its classes (a dtype, a constexpr) have the class's module and are values of the program.
    return isinstance(value, (types.ModuleType, type)) or callable(value) and _text_of_value(value) is None


def _text_of_value(value: Any) -> str | None:
    """A dtype, and what a constexpr holds."""
    kind = type(value)
    if not str(getattr(kind, "__module__", "")).startswith("triton."):
        return None
    if kind.__name__ == "constexpr":
        return constant_text(value.value)
    if kind.__name__ == "dtype":
        return f"dtype {value}"
    return None


def constant_text(value: Any) -> str | None:
    """How a constant is written; None where the value is none."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return repr(kind(value))
    if value is None or isinstance(value, (bytes, complex)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        parts = [constant_text(part) for part in value]
        return None if None in parts else f"({', '.join(parts)})"  # type: ignore[arg-type]
    return _text_of_value(value)
