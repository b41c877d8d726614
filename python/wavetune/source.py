"""Reads a @triton.jit function out of a file without importing it.

The file's syntax tree says which module-level statements the function needs: its imports, constants, helper functions,
what its decorators read. Those are executed, in the file's order and with its line numbers, nothing else is: no
wrapper, no benchmark, no test. Of imports only triton and the standard library are real (stubs.py, dejavu.py).
Line numbers and text stay the file's, because Triton's own cache keys are made from them.
"""

import __future__
import ast
import dis
import inspect
import linecache
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

from . import dejavu
from .canonical import read_text
from .errors import PackError, one_line
from .stubs import Driver, Stub, make_torch

_MUTATORS = {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "add", "sort", "reverse"}


@dataclass(frozen=True)
class Decorated:
    """The function and its decorators: `autotuner` is Triton's or dejavu's, `heuristics` name to the lambda's tree."""

    jit: Any  # triton.runtime.JITFunction
    autotuner: Any
    heuristics: dict[str, ast.Lambda | None]
    path: Path
    line: int  # of the autotune decorator, else of the function
    constants: dict[str, Any]  # plain values of the module that were executed

    @property
    def place(self) -> str:
        """Where a person looks for the decorator."""
        return f"{self.path}:{self.line}"

    @property
    def is_dejavu(self) -> bool:
        return isinstance(self.autotuner, dejavu.Autotuner)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


class _Statement:
    """A module-level statement: which names of the module it reads and which it binds."""

    def __init__(self, node: ast.stmt, filename: str, flags: int):
        self.node = node
        self.code = compile(ast.Module([node], []), filename, "exec", flags, dont_inherit=True)
        self.reads: set[str] = set()
        for code in _codes(self.code):
            for instruction in dis.get_instructions(code):
                if instruction.opname == "LOAD_GLOBAL" or (instruction.opname == "LOAD_NAME" and code is self.code):
                    self.reads.add(instruction.argval)
        self.binds = {i.argval for i in dis.get_instructions(self.code) if i.opname in ("STORE_NAME", "STORE_GLOBAL")}
        self.is_function = isinstance(node, (ast.FunctionDef, ast.ClassDef))

    def changes(self, names: set[str]) -> bool:
        """Whether it changes an object that one of the names means: configs.append(…), table[1] = …"""
        if self.is_function or not (self.reads & names):
            return False
        for node in ast.walk(self.node):
            target = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
                target = node.func.value
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                target = node.value
            if isinstance(target, ast.Name) and target.id in names:
                return True
        return False


def _decorator_name(node: ast.expr) -> str:
    """"jit" of @triton.jit, @jit, @triton.jit(…)."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_jit(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and any(_decorator_name(d) == "jit" for d in node.decorator_list)


class _File:
    def __init__(self, path: Path):
        self.path, self.text = path, read_text(path)
        try:
            tree = ast.parse(self.text, str(path))
        except (SyntaxError, ValueError) as error:
            raise PackError(f"{path} is not Python: {one_line(error)}") from None
        flags = 0
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                for alias in node.names:
                    flags |= getattr(__future__, alias.name).compiler_flag
        self.statements = [_Statement(node, str(path), flags) for node in tree.body]

    def find(self, wanted: str | None) -> ast.FunctionDef:
        functions = {s.node.name: s for s in self.statements if _is_jit(s.node)}
        if not functions:
            raise PackError(f"{self.path} has no function under @triton.jit at its top level")
        if wanted is None:
            called = {name for own, s in functions.items() for name in s.reads if name != own}
            tuned = [n for n, s in functions.items()
                     if any(_decorator_name(d) == "autotune" for d in s.node.decorator_list)]
            free = tuned or [name for name in functions if name not in called]
            if len(free) != 1:
                raise PackError(f"{self.path} has several kernels: name one of {', '.join(free or functions)}, like "
                                f"{self.path}:{(free or list(functions))[0]}")
            wanted = free[0]
        if wanted not in functions:
            raise PackError(f"{self.path} has no function {wanted} under @triton.jit; it has {', '.join(functions)}")
        return functions[wanted].node

    def needed(self, name: str) -> list[_Statement]:
        """The statements that the name needs, in the file's order."""
        names, chosen = {name}, set()
        while True:
            more = [i for i, s in enumerate(self.statements) if i not in chosen and
                    (s.binds & names or s.changes(names - {name}))]
            if not more:
                return [self.statements[i] for i in sorted(chosen)]
            for i in more:
                chosen.add(i)
                names |= self.statements[i].reads


def _import(node: ast.Import | ast.ImportFrom, statement: _Statement, namespace: dict[str, Any], backend: str) -> None:
    """Executes an import of triton or of the standard library, and binds stand-ins for any other."""
    def is_real(module: str) -> bool:
        return module.split(".")[0] in ("triton", "wavetune", *sys.stdlib_module_names)

    def stand_in(module: str) -> Any:
        root = module.split(".")[0]
        if root == "triton_dejavu":
            return dejavu.make_module()
        return make_torch(backend) if root == "torch" else Stub(root, module=module)

    if isinstance(node, ast.Import):
        for alias in node.names:
            root = alias.name.split(".")[0]
            if is_real(alias.name):
                exec(compile(ast.Module([ast.Import([alias], lineno=node.lineno, col_offset=0)], []), "import", "exec"),
                     namespace)
            elif alias.asname and "." in alias.name:
                value = stand_in(alias.name)
                for part in alias.name.split(".")[1:]:
                    value = getattr(value, part)
                namespace[alias.asname] = value
            else:
                namespace[alias.asname or root] = stand_in(alias.name)
        return
    if not node.level and is_real(node.module or ""):
        exec(statement.code, namespace)
        return
    name = "." * node.level + (node.module or "")
    value = Stub(name, module=name) if node.level else stand_in(name)
    for part in (node.module or "").split(".")[1:] if not node.level else []:
        value = getattr(value, part)
    for alias in node.names:
        if alias.name == "*":
            raise PackError(f"line {node.lineno}: from {node.module} import * cannot be read without executing "
                            f"{node.module}; import the names that the kernel uses")
        try:
            namespace[alias.asname or alias.name] = getattr(value, alias.name)
        except AttributeError:
            raise PackError(f"line {node.lineno}: the stand-in for {node.module} has no {alias.name}") from None


def _execute(file: _File, name: str, namespace: dict[str, Any], backend: str) -> None:
    for statement in file.needed(name):
        node = statement.node
        try:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                _import(node, statement, namespace, backend)
            else:
                exec(statement.code, namespace)
        except PackError as error:
            raise PackError(f"{file.path}:{node.lineno}: {error}") from None
        except Exception as error:
            raise PackError(f"{file.path}:{node.lineno} cannot be executed without what the rest of the file sets up: "
                            f"{one_line(error)}") from None


def _check_globals(jit: Any, file: _File, namespace: dict[str, Any]) -> None:
    """A kernel that reads a stand-in would compile to nonsense or to an error far from its cause."""
    seen: set[Any] = set()
    waiting = [jit]
    while waiting:
        function = waiting.pop()
        if function.fn in seen:
            continue
        seen.add(function.fn)
        for code in _codes(function.fn.__code__):
            for instruction in dis.get_instructions(code):
                if instruction.opname != "LOAD_GLOBAL":
                    continue
                value = namespace.get(instruction.argval)
                if isinstance(value, Stub):
                    raise PackError(f"{file.path}: the kernel reads {instruction.argval}, which is {value!r} and is "
                                    "not executed here; move it, or the jit function of that name, into this file")
                if isinstance(value, type(jit)):
                    waiting.append(value)


def _heuristics(node: ast.FunctionDef) -> dict[str, ast.Lambda | None]:
    """The lambdas of @triton.heuristics({...}) by the constexpr they give; None where the text is no lambda."""
    result: dict[str, ast.Lambda | None] = {}
    for decorator in node.decorator_list:
        if _decorator_name(decorator) != "heuristics" or not isinstance(decorator, ast.Call):
            continue
        values = [*decorator.args, *(k.value for k in decorator.keywords)]
        table = values[0] if values else None
        if not isinstance(table, ast.Dict):
            continue
        for name, value in zip(table.keys, table.values):
            if isinstance(name, ast.Constant):
                result[str(name.value)] = value if isinstance(value, ast.Lambda) else None
    return result


def load_function(path: Path, wanted: str | None, target: Any, module: str | None = None) -> Decorated:
    """The jit function of a file. `target`: a GPUTarget, what the stand-in of the driver answers with."""
    import triton
    file = _File(path)
    node = file.find(wanted)
    triton.runtime.driver.set_active(Driver(target))
    namespace: dict[str, Any] = {"__name__": module or path.stem, "__file__": str(path),
                                 "__builtins__": __builtins__, "__doc__": None}
    linecache.cache[str(path)] = (len(file.text), None, file.text.splitlines(keepends=True), str(path))
    _execute(file, node.name, namespace, target.backend)
    found, autotuner = namespace[node.name], None
    heuristics = _heuristics(node)
    while not isinstance(found, triton.runtime.JITFunction):
        if type(found).__name__ == "Autotuner":
            if autotuner is not None:
                raise PackError(f"{path}: {node.name} has two autotune decorators")
            autotuner = found
        elif type(found).__name__ == "Heuristics":
            heuristics = {**dict.fromkeys(found.values), **heuristics}
        if not hasattr(found, "fn") or inspect.isfunction(found):
            raise PackError(f"{path}: {node.name} is under a decorator that gives {type(found).__name__}; only jit, "
                            "autotune and heuristics are known")
        found = found.fn
    _check_globals(found, file, namespace)
    constants = {name: value for name, value in namespace.items() if isinstance(value, (bool, int, str))}
    line = next((d.lineno for d in node.decorator_list if _decorator_name(d) == "autotune"), node.lineno)
    return Decorated(found, autotuner, heuristics, path, line, constants)
