"""Reads a @triton.jit function out of a file without importing it: only the module-level statements
that it needs are executed (modules.py). Line numbers and text stay the file's, because Triton's own
cache keys are made from them.
"""

import ast
import dis
import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator

from .._canonical import Json
from .._errors import PackError
from . import dejavu
from .modules import Modules, SourceFile, codes_of, file_of, quietly
from .stubs import Driver, Stub


@dataclass(frozen=True)
class Heuristic:
    """What gives a constexpr. `tree`: its lambda; `sees_config`: it is given the config's members
    too."""

    function: Callable[[Json], Any]
    tree: ast.Lambda | None
    sees_config: bool = True


@dataclass(frozen=True)
class Decorated:
    """`autotuner`: Triton's (or a package's own kind of it) or dejavu's; `heuristics` in the order
    in which they are called."""

    jit: Any  # triton.runtime.JITFunction
    autotuner: Any
    heuristics: dict[str, Heuristic]
    path: Path
    line: int  # of the autotune decorator, else of the function
    constants: Json  # plain values of the module that were executed
    # what was executed, by its path below the package root
    files: dict[str, Path] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where a person looks for the decorator."""
        return f"{self.path}:{self.line}"

    @property
    def is_dejavu(self) -> bool:
        return isinstance(self.autotuner, dejavu.Autotuner)


def _decorator_name(node: ast.expr) -> str:
    """"jit" of @triton.jit, @jit, @triton.jit(…)."""
    node = node.func if isinstance(node, ast.Call) else node
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _is_jit(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and any(
        _decorator_name(d) == "jit" for d in node.decorator_list)


def _functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """The jit functions at the top level, also those under a condition."""
    for node in body:
        if _is_jit(node):
            yield node  # type: ignore[misc]
        elif isinstance(node, (ast.If, ast.Try)):
            handled = [s for handler in getattr(node, "handlers", []) for s in handler.body]
            yield from _functions([*node.body, *node.orelse, *handled])


def _is_tuned(node: ast.FunctionDef) -> bool:
    return any(_decorator_name(d).endswith("autotune") for d in node.decorator_list)


def find_name(file: SourceFile, wanted: str | None) -> str:
    """The function that is meant: the wanted one, else the only kernel."""
    nodes = list(_functions([s.node for s in file.statements]))
    names = list(dict.fromkeys(node.name for node in nodes))
    if not names:
        raise PackError(f"{file.path} has no function under @triton.jit at its top level")
    if wanted is None:
        called = {name for s in file.statements for name in s.reads - s.binds
                  if any(_functions([s.node]))}
        free = list(dict.fromkeys(node.name for node in nodes if _is_tuned(node))) or [
            name for name in names if name not in called]
        if len(free) != 1:
            free = free or names
            raise PackError(f"{file.path} has several kernels: name one of {', '.join(free)}, like "
                            f"{file.path}:{free[0]}")
        wanted = free[0]
    if wanted not in names:
        raise PackError(f"{file.path} has no function {wanted} under @triton.jit; it has "
                        f"{', '.join(names)}")
    return wanted


def _node_of(file: SourceFile, function: Any) -> ast.FunctionDef | None:
    """The definition that made the function."""
    line = function.__code__.co_firstlineno
    return next((node for node in _functions([s.node for s in file.statements])
                 if min([node.lineno, *(d.lineno for d in node.decorator_list)]) == line), None)


def _read_globals(function: Any) -> list[tuple[str, Any]]:
    """The globals that a function reads, with attributes of modules as "module.name"."""
    found = []
    for code in codes_of(function.__code__):
        instructions = list(dis.get_instructions(code))
        for instruction, after in zip(instructions, [*instructions[1:], None]):
            if instruction.opname != "LOAD_GLOBAL" or \
                    instruction.argval not in function.__globals__:
                continue
            name, value = instruction.argval, function.__globals__[instruction.argval]
            if file_of(value) is not None and after is not None and after.opname in (
                    "LOAD_ATTR", "LOAD_METHOD"):
                name, value = f"{name}.{after.argval}", getattr(value, after.argval, None)
            found.append((name, value))
    return found


def _check_globals(jit: Any, path: Path) -> None:
    """A kernel that reads a stand-in would compile to nonsense, or to a far error."""
    seen: set[Any] = set()
    waiting = [jit]
    while waiting:
        function = waiting.pop()
        if function.fn in seen:
            continue
        seen.add(function.fn)
        for name, value in _read_globals(function.fn):
            if isinstance(value, Stub):
                why = vars(value)["_why"]
                raise PackError(
                    why or f"{path}: the kernel reads {name}, which is {value!r} and is not "
                    "executed here; name the folder of its package with --package-root, or move "
                    "it into this file")
            if isinstance(value, type(jit)):
                waiting.append(value)


def _lambdas(node: ast.FunctionDef) -> dict[str, ast.Lambda]:
    """The lambdas of @triton.heuristics({...}) by the constexpr they give."""
    result: dict[str, ast.Lambda] = {}
    for decorator in node.decorator_list:
        if _decorator_name(decorator) != "heuristics" or not isinstance(decorator, ast.Call):
            continue
        values = [*decorator.args, *(k.value for k in decorator.keywords)]
        table = values[0] if values else None
        if isinstance(table, ast.Dict):
            result.update({str(name.value): value for name, value in zip(table.keys, table.values)
                           if isinstance(name, ast.Constant) and isinstance(value, ast.Lambda)})
    return result


def module_name(path: Path, root: Path) -> str:
    """Of a file below a package root."""
    try:
        parts = path.resolve().relative_to(root.resolve()).with_suffix("").parts
    except ValueError:
        raise PackError(f"{path} is not below the package root {root}") from None
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def load_function(path: Path, wanted: str | None, target: Any, module: str | None = None,
                  root: Path | None = None, torch: str | None = None) -> Decorated:
    """The jit function of a file. `target`: what the stand-in of the driver answers with; `root`:
    the folder of its package, of which other files may be read; `torch`: the deployment's
    version."""
    import triton
    modules = Modules(target, root, torch)
    file = modules.add(path, module or (module_name(path, root) if root else path.stem))
    wanted = find_name(file, wanted)
    triton.runtime.driver.set_active(Driver(target))
    with quietly():
        file.bind(wanted)
    found, autotuner, layers = file.namespace[wanted], None, []
    while not isinstance(found, triton.runtime.JITFunction):
        if isinstance(found, (triton.runtime.Autotuner, dejavu.Autotuner)):
            if autotuner is not None:
                raise PackError(f"{path}: {wanted} has two autotune decorators")
            autotuner = found
        elif isinstance(found, triton.runtime.Heuristics):
            layers.append((found.values, autotuner is not None))
        if not hasattr(found, "fn") or inspect.isfunction(found):
            raise PackError(f"{path}: {wanted} is under a decorator that gives "
                            f"{type(found).__name__}; only jit, autotune and heuristics are known")
        found = found.fn
    with quietly():
        _check_globals(found, path)
    constants = {name: value for name, value in file.namespace.items()
                 if isinstance(value, (bool, int, str))}
    node = _node_of(file, found.fn)
    lambdas = _lambdas(node) if node else {}
    heuristics = {name: Heuristic(function, lambdas.get(name), is_inside or autotuner is None)
                  for values, is_inside in layers for name, function in values.items()}
    line = next((d.lineno for d in node.decorator_list
                 if _decorator_name(d).endswith("autotune")), node.lineno) if node else 1
    base = root.resolve() if root else path.resolve().parent
    files = {str(own.path.resolve().relative_to(base)): own.path for own in modules.files()}
    return Decorated(found, autotuner, heuristics, path, line, constants, files)
