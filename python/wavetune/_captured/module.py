"""Makes the jit function of a capture's document again, with the key that it has in the program's
Triton cache, and imports nothing of the program.

Each part is compiled from its own text: decorators, annotations and default values are replaced by
what the document says that they gave, and names mean what it states. A file for each module has the
parts at their lines, because Triton reads texts and line numbers from there. Statements of a part
are executed only if it is a constexpr_function, which Triton calls while it compiles.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import re
import textwrap
import types
from pathlib import Path
from typing import Any

from .._canonical import Fields
from .._errors import PackError, one_line
from .._pack.entries import name_of
from .._runtime.closure import closure, is_of_triton, source
from .._runtime.values import decode

LINE_MAX = 1_000_000
_DECORATOR, _ENCLOSING = "_wavetune_decorator", "_wavetune_enclosing"
_MODULE = re.compile(r"[A-Za-z_0-9][\w]*(\.[\w]+)*", re.ASCII)
_FILLER = "pass\n"  # between parts: an unindented statement ends the function before it
_REAL = ("math", "copy")  # modules beside Triton's that Triton itself knows
# Names that Triton's key of a function does not follow
# (DependenciesFinder.supported_python_builtins).
_UNFOLLOWED = frozenset(
    ("float", "getattr", "int", "isinstance", "len", "list", "max", "min", "print", "range"))


class Unrecorded:
    """What a name without a value in the document means: what needs it does not compile."""

    def __init__(self, name: str, what: str):
        self.name, self.what = name, what

    def __repr__(self) -> str:
        return f"<{self.name}, {self.what}, which a capture does not record>"


def recreate(document: Fields, folder: Path) -> Any:
    """The JITFunction, from files below `folder`; PackError where it is not the program's."""
    import triton
    try:
        function = make_again(document, folder)
        own, key = closure(function), function.cache_key
    except PackError:
        raise
    except Exception as error:
        raise PackError(f"the function of the capture cannot be made again: {one_line(error)}",
                        1) from None
    name = document.get("name")
    if own != document.get("closure"):
        raise PackError(f"{name} of the capture has the closure {own} here and "
                        f"{document.get('closure')} in the document: it "
                        "was changed, or written by another wavetune; capture it again", 1)
    if document.get("triton") == triton.__version__ and \
            document.get("cache_key") not in (None, key):
        raise PackError(f"{name} has another key in Triton's cache than in the program ({key}, not "
                        f"{document['cache_key']}), although both have Triton "
                        f"{triton.__version__}: build it in the program's image", 1)
    return function


def make_again(document: Fields, folder: Path) -> Any:
    """The same without looking at keys: what triton.jit makes in this process."""
    if document.get("version") != 1:
        raise PackError(f"the capture has version {document.get('version')}, and this wavetune "
                        "knows 1")
    modules: dict[str, types.ModuleType] = {}
    texts: dict[str, list[str]] = {}
    for part in document["parts"]:
        name = part["module"]
        if not _MODULE.fullmatch(name) or len(name) > 200:
            raise PackError(f"{name[:200]!r} is no name of a module")
        if name not in modules:
            modules[name] = types.ModuleType(name)
            modules[name].__file__ = str(folder / f"{name}.py")
        _place(texts.setdefault(name, []), part)
    for name, lines in texts.items():
        path = Path(str(modules[name].__file__))
        path.write_bytes("".join(line or _FILLER for line in lines).encode())
        linecache.checkcache(str(path))

    _check_names(document)
    functions = {name_of(part): _function(part, modules[part["module"]])
                 for part in document["parts"]}
    for entry in document["globals"]:
        if entry["module"] in modules:
            _bind(modules[entry["module"]], entry["name"], _meaning(entry, functions))
    for part in document["parts"]:
        fn = functions[name_of(part)].fn
        free = types.ModuleType("free")
        for entry in part.get("free", ()):
            _bind(free, entry["name"], _meaning(entry, functions))
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
            if hasattr(free, name):
                cell.cell_contents = getattr(free, name)
    return functions[name_of(document["parts"][0])]


def _check_names(document: Fields) -> None:
    """Refuses names that Triton's key of a function takes for something else than its compiler."""
    own = set(map(name_of, document["parts"]))
    of_modules = {(entry["module"], entry["name"].partition(".")[0])
                  for entry in document["globals"]}
    for entry in [*document["globals"],
                  *(entry for part in document["parts"] for entry in part.get("free", ()))]:
        if entry["name"] in _UNFOLLOWED and (entry.get("is") in own or "value" in entry):
            raise PackError(f"the capture gives the name {entry['name']} another meaning than "
                            "Python's, which Triton's key of the function does not cover: rename "
                            "it in the program")
    for part in document["parts"]:
        for entry in part.get("free", ()):
            if (part["module"], entry["name"].partition(".")[0]) in of_modules:
                raise PackError(f"the capture has {entry['name']} as a variable of "
                                f"{part['qualname']} and of its module, which "
                                "Triton's key tells apart wrongly: rename one in the program")


def _place(lines: list[str], part: Fields) -> None:
    """Puts the part's text at its line."""
    start, own = part["line"], part["text"].splitlines(keepends=True)
    if any(len(line.splitlines()) > 1 for line in part["text"].split("\n")):
        raise PackError(f"the text of {part['qualname']} in the capture has line ends that are "
                        "none to Python")
    if not isinstance(start, int) or not 1 <= start <= LINE_MAX:
        raise PackError(f"{part['qualname']} of the capture starts in line {start}")
    lines.extend([""] * (start - 1 + len(own) - len(lines)))
    for i, line in enumerate(own, start - 1):
        line = line if line.endswith("\n") else line + "\n"
        if lines[i] not in ("", line):
            raise PackError(f"two functions of the capture have another line {i + 1} in "
                            f"{part['module']}")
        lines[i] = line


def _function(part: Fields, module: types.ModuleType) -> Any:
    """The jit function of a part: names in it mean nothing yet."""
    text = textwrap.dedent(part["text"])
    tree = ast.parse(text)
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise PackError(f"the text of {part['qualname']} in the capture is not one function")
    node = tree.body[0]
    stated = "".join(text.splitlines(keepends=True)[node.lineno - 1:]).rstrip() + "\n"
    ast.increment_lineno(tree, part["line"] - 1)

    # A function starts in the line of its first decorator.
    node.decorator_list = [ast.copy_location(ast.Name(_DECORATOR, ast.Load()), one)
                           for one in node.decorator_list[:1]]
    node.returns, arguments = None, node.args
    annotations = part.get("annotations", {})
    positional = arguments.posonlyargs + arguments.args
    for argument in [*positional, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if argument is not None:
            stand_in = annotations.get(argument.arg)
            argument.annotation = ast.copy_location(ast.Constant(stand_in), argument) if stand_in \
                else None
    arguments.defaults = [ast.copy_location(ast.Constant(None), one) for one in arguments.defaults]
    arguments.kw_defaults = [one and ast.copy_location(ast.Constant(None), one)
                             for one in arguments.kw_defaults]

    free = sorted({entry["name"].partition(".")[0] for entry in part.get("free", ())})
    if free:
        made = ast.FunctionDef(
            _ENCLOSING, ast.arguments([], [ast.arg(name) for name in free], None, [], [], None, []),
            [node, ast.Return(ast.Name(node.name, ast.Load()))], [], None)
        if "type_params" in ast.FunctionDef._fields:
            made.type_params = []  # type: ignore[attr-defined]
        tree.body[0] = made
    ast.fix_missing_locations(tree)
    namespace = vars(module)
    namespace[_DECORATOR] = lambda fn: fn
    exec(compile(tree, str(module.__file__), "exec", dont_inherit=True), namespace)
    fn = namespace.pop(_ENCLOSING)(*[None] * len(free)) if free else namespace.pop(node.name)
    del namespace[_DECORATOR]

    stated_defaults = part.get("defaults", {})

    def default_of(name: str) -> Any:
        return decode(stated_defaults[name]) if name in stated_defaults else \
            Unrecorded(name, "a default value")

    if fn.__defaults__:
        fn.__defaults__ = tuple(default_of(argument.arg)
                                for argument in positional[-len(fn.__defaults__):])
    if fn.__kwdefaults__:
        fn.__kwdefaults__ = {name: default_of(name) for name in fn.__kwdefaults__}
    fn.__qualname__ = part["qualname"]
    jit = _decorated(fn, part)
    if source(jit) != stated:
        raise PackError(f"Triton reads another text of {part['qualname']} than the capture's")
    return jit


def _decorated(fn: Any, part: Fields) -> Any:
    import triton
    kind = part.get("kind", "JITFunction")
    names = ("noinline", "debug", "do_not_specialize", "do_not_specialize_on_alignment")
    options = {name: part[name] for name in names if name in part}
    if kind == "JITFunction":
        return triton.jit(**options)(fn)
    if kind == "ConstexprFunction" and hasattr(triton, "constexpr_function"):
        return triton.constexpr_function(fn)
    if kind == "GluonJITFunction":
        gluon = importlib.import_module("triton.experimental.gluon")
        return gluon.jit(**options)(fn)
    raise PackError(f"{part['qualname']} is a {kind}, which Triton {triton.__version__} does not "
                    "have")


def _meaning(entry: Fields, functions: Fields) -> Any:
    if "value" in entry:
        return decode(entry["value"])
    if "is" not in entry:
        return Unrecorded(entry["name"], str(entry.get("missing")))
    path = entry["is"]
    if path in functions:
        return functions[path]
    if path.partition(".")[0] == "triton":
        return _of_triton(path)
    if path in _REAL:
        return importlib.import_module(path)
    return types.ModuleType(path)


def _of_triton(path: str) -> Any:
    """A module of Triton, or something in one."""
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:n]))
        except ImportError:
            continue
        for attribute in parts[n:]:
            found = getattr(found, attribute, None)
        if is_of_triton(found):
            return found
    raise PackError(f"this Triton has no {path}")


def _bind(module: types.ModuleType, name: str, value: Any) -> None:
    """Gives a name a meaning; "ops.WIDTH" is a member of the stand-in that "ops" means."""
    *way, last = name.split(".")
    holder: Any = module
    for attribute in way:
        if _is_stand_in(holder) and not hasattr(holder, attribute):
            setattr(holder, attribute, types.ModuleType(attribute))
        holder = getattr(holder, attribute, None)
    if _is_stand_in(holder) and (holder is module or not hasattr(holder, last)):
        setattr(holder, last, value)


def _is_stand_in(holder: Any) -> bool:
    """Whether it is a module that was made here: Triton's own are as they are."""
    return isinstance(holder, types.ModuleType) and holder.__spec__ is None
