"""The modules that a kernel's text leads to: its file, and with a package root those of its
package.

Of a file only those module-level statements are executed that a wanted name needs, by the file's
syntax tree, in its order and with its line numbers. Every import goes through here: triton and the
standard library are real, modules below the package root are files that are read the same way, when
a name of theirs is needed, and all others are stand-ins (stubs.py). A package's __init__ is not
executed as an import would do it.
"""

import __future__
import ast
import builtins
import dis
import importlib
import linecache
import logging
import sys
import types
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

from .._canonical import Json, read_text
from .._errors import PackError, one_line
from . import dejavu
from .stubs import Needed, Stub, known_elsewhere, known_members, make_packaging, make_torch

_MUTATORS = {
    "append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "add", "sort",
    "reverse"
}
# also where a package root has them
_NEVER_READ = ("torch", "torchvision", "triton", "triton_dejavu", "numpy", "packaging")


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_of(constant)


class Statement:
    """A module-level statement: which names of the module it reads and which it binds."""

    def __init__(self, node: ast.stmt, filename: str, flags: int):
        self.node = node
        self.code = compile(ast.Module([node], []), filename, "exec", flags, dont_inherit=True)
        self.reads: set[str] = set()
        for code in codes_of(self.code):
            for instruction in dis.get_instructions(code):
                if instruction.opname == "LOAD_GLOBAL" or \
                        instruction.opname == "LOAD_NAME" and code is self.code:
                    self.reads.add(instruction.argval)
        self.binds = {one.argval for one in dis.get_instructions(self.code)
                      if one.opname in ("STORE_NAME", "STORE_GLOBAL")}
        self.is_function = isinstance(node, (ast.FunctionDef, ast.ClassDef))

    def changes(self, names: set[str]) -> bool:
        """Whether it changes an object that one of the names means: x.append(…), x[1] = …"""
        if self.is_function or not (self.reads & names):
            return False
        for node in ast.walk(self.node):
            target = None
            if isinstance(node, ast.Call) and isinstance(
                    node.func, ast.Attribute) and node.func.attr in _MUTATORS:
                target = node.func.value
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                target = node.value
            if isinstance(target, ast.Name) and target.id in names:
                return True
        return False


def _apart(node: ast.stmt) -> list[ast.stmt]:
    """An import of several names as several statements: a name is imported when it is needed."""
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
        return [node]
    own = dict(ast.iter_fields(node))
    return [ast.copy_location(type(node)(**{**own, "names": [alias]}), node)
            for alias in node.names]


def file_of(value: Any) -> "SourceFile | None":
    """Of a module that is read here."""
    return vars(value).get("__wavetune_file__") if type(value) is types.ModuleType else None


def _make_module(name: str, find: Callable[[str], Any]) -> types.ModuleType:
    """A module that finds attributes when asked. (No class of its own: Triton wants the type.)"""
    def lacking(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(f"module {name} has no {attribute}")
        return find(attribute)

    module = types.ModuleType(name)
    module.__getattr__ = lacking  # type: ignore[method-assign]
    return module


class SourceFile:
    """One file, and what of it was executed."""

    def __init__(self, path: Path, module: str, modules: "Modules"):
        self.path, self.text, self.modules = path, read_text(path), modules
        try:
            tree = ast.parse(self.text, str(path))
        except (SyntaxError, ValueError) as error:
            raise PackError(f"{path} is not Python: {one_line(error)}") from None
        flags = 0
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                for alias in node.names:
                    flags |= getattr(__future__, alias.name).compiler_flag
        self.statements = [Statement(part, str(path), flags)
                           for node in tree.body for part in _apart(node)]
        self.executed: set[int] = set()
        self.module = _make_module(module, self.value)
        self.is_package = path.name == "__init__.py"
        self.namespace = vars(self.module)
        self.namespace.update(__file__=str(path),
                              __package__=module if self.is_package else module.rpartition(".")[0],
                              __builtins__={**vars(builtins), "__import__": modules.import_module
                                            }, __wavetune_file__=self)
        linecache.cache[str(path)] = (len(self.text), None, self.text.splitlines(keepends=True),
                                      str(path))

    def needed(self, name: str) -> list[int]:
        """The statements that the name needs, in the file's order; those that were executed too."""
        names, chosen = {name}, set()
        while True:
            more = [i for i, s in enumerate(self.statements) if i not in chosen and
                    (s.binds & names or s.changes(names - {name}) or self._imports_all(s, names))]
            if not more:
                return sorted(chosen)
            chosen.update(more)
            names.update(*(self.statements[i].reads for i in more))

    def _imports_all(self, statement: Statement, names: set[str]) -> bool:
        """Whether `from module import *` of the package binds one of the names."""
        node = statement.node
        if not isinstance(node, ast.ImportFrom) or node.names[0].name != "*":
            return False
        found = self._imported(node)
        file = file_of(found)
        if file is not None:
            return any(file.binds(name) for name in names)
        return found is not None and any(hasattr(found, name) for name in names)

    def _imported(self, node: ast.ImportFrom) -> Any:
        """The module of a `from … import *`; None where only executing it would say what it has."""
        if not node.level and self.modules.is_real(node.module or ""):
            return importlib.import_module(node.module or "")
        return self.modules.find(self._absolute(node))

    def _absolute(self, node: ast.ImportFrom) -> str:
        package = self.namespace["__package__"].split(".")
        kept = package[:len(package) - node.level + 1] if node.level else []
        return ".".join([*kept, *([node.module] if node.module else [])])

    def binds(self, name: str) -> bool:
        return any(name in statement.binds for statement in self.statements)

    def bind(self, name: str) -> None:
        """Executes what the name needs and was not executed before."""
        for index in self.needed(name):
            if index in self.executed:
                continue
            self.executed.add(index)
            statement = self.statements[index]
            try:
                if isinstance(statement.node,
                              ast.ImportFrom) and statement.node.names[0].name == "*":
                    self._import_all(statement.node)
                else:
                    exec(statement.code, self.namespace)
            except (PackError, Needed) as error:
                is_placed = str(self.modules.root or self.path) in str(error)
                place = "" if is_placed else f"{self.path}:{statement.node.lineno}: "
                raise PackError(f"{place}{error}") from None
            except Exception as error:
                raise PackError(f"{self.path}:{statement.node.lineno} cannot be executed without "
                                f"what the rest of the file sets up: {one_line(error)}") from None

    def _import_all(self, node: ast.ImportFrom) -> None:
        found = self._imported(node)
        file, names = file_of(found), dir(found)
        if file is not None:
            names = sorted(name for statement in file.statements for name in statement.binds)
        for name in names:
            if not name.startswith("_"):
                self.namespace.setdefault(name, getattr(found, name))

    def value(self, name: str) -> Any:
        """The module's attribute; one that cannot be executed is a stand-in that says why."""
        if name not in self.namespace and self.binds(name):
            try:
                self.bind(name)
            except PackError as error:
                self.namespace[name] = Stub(f"{self.module.__name__}.{name}",
                                            module=self.module.__name__, why=str(error))
        if name not in self.namespace and self.is_package:
            found = self.modules.find(f"{self.module.__name__}.{name}")
            if found is not None:
                return found
        if name not in self.namespace:
            for index, statement in enumerate(self.statements):
                if self._imports_all(statement, {name}) and index not in self.executed:
                    self.executed.add(index)
                    self._import_all(statement.node)  # type: ignore[arg-type]
        if name not in self.namespace:
            raise AttributeError(f"module {self.module.__name__} has no {name}")
        return self.namespace[name]


class Modules:
    """The modules of one reading; `root`: the folder that holds the kernel's package, or None."""

    def __init__(self, target: Any, root: Path | None = None, torch: str | None = None):
        self.target, self.root, self.torch = target, root, torch
        self.known: Json = {}

    def add(self, path: Path, name: str) -> SourceFile:
        file = SourceFile(path, name, self)
        file.namespace.update(known_members(self.target).get(name, {}))
        self.known[name] = file.module
        return file

    def find(self, name: str) -> Any:
        """The module of that name below the root, or None."""
        if name in self.known or self.root is None or name.split(".")[0] in (
                *_NEVER_READ, *sys.stdlib_module_names):
            return self.known.get(name)
        place = self.root.joinpath(*name.split("."))
        for path in (place / "__init__.py", place.with_suffix(".py")):
            if path.is_file():
                return self.add(path, name).module
        if place.is_dir():  # a namespace package
            self.known[name] = _make_module(name, lambda inner: self._inside(name, inner))
        return self.known.get(name)

    def _inside(self, package: str, name: str) -> Any:
        """What a folder without an __init__.py has."""
        found = self.find(f"{package}.{name}")
        if found is None:
            raise AttributeError(f"module {package} has no {name}")
        return found

    def files(self) -> list[SourceFile]:
        """Those of which something was executed."""
        return [file for file in map(file_of, self.known.values()) if file and file.executed]

    def _stand_in(self, name: str) -> Any:
        root = name.split(".")[0]
        makers = {"triton_dejavu": dejavu.make_module, "packaging": make_packaging,
                  "torch": lambda: make_torch(self.target, self.torch)}
        if root not in self.known:
            self.known[root] = makers[root]() if root in makers else \
                Stub(root, known_elsewhere().get(root), root)
        return self.known[root]

    @staticmethod
    def is_real(name: str) -> bool:
        """Whether the module is imported as any program does it."""
        return name.split(".")[0] in ("triton", "wavetune", *sys.stdlib_module_names)

    def import_module(self, name: str, globals_: Any = None, locals_: Any = None,
                      fromlist: Any = (), level: int = 0) -> Any:
        """What __import__ is to the statements."""
        if not level and self.is_real(name):
            return importlib.__import__(name, globals_, locals_, fromlist, level)
        if level:
            package = str((globals_ or {}).get("__package__", "")).split(".")
            written = "." * level + name
            name = ".".join([*package[:len(package) - level + 1], *([name] if name else [])])
            if self.find(name) is None:
                return Stub(written, module=written)
        found = self.find(name)
        if found is None:
            value = self._stand_in(name)
            for part in name.split(".")[1:] if fromlist else []:
                value = getattr(value, part)
            return value._imported_from(name) if fromlist and isinstance(value, Stub) else value
        return found if fromlist else self.find(name.split(".")[0])


@contextmanager
def quietly() -> Iterator[None]:
    """Files that are read do not print what they warn of when a program imports them."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
