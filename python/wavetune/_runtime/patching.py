"""What is called back: when a module has been imported, and around a function of another."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Sequence

from .log import quietly, surprised


class Finder:
    """A finder of sys.meta_path. It finds what the next one that knows the module finds."""

    def __init__(self, names: Sequence[str], imported: Callable[[Any], None]):
        self.names, self.imported = frozenset(names), imported

    def find_spec(self, name: str, path=None, target=None):
        if name not in self.names:
            return None
        try:
            others = sys.meta_path[sys.meta_path.index(self) + 1:]
            specs = (finder.find_spec(name, path, target) for finder in others)
            spec = next((one for one in specs if one is not None), None)
            if spec is None or spec.loader is None:
                return spec
            execute = spec.loader.exec_module

            def exec_module(module) -> None:
                execute(module)
                with quietly(f"what waited for {name}"):
                    self.imported(module)

            spec.loader.exec_module = exec_module
            return spec
        except Exception as error:  # of another finder: the module is looked for as without us
            surprised(f"waiting for {name}", error)
            return None


def when_there(names: Sequence[str], call: Callable[[Any], Any]) -> Finder:
    """Calls with each of the modules: now, or when the program has imported it."""
    finder = Finder([name for name in names if name not in sys.modules], call)
    if finder.names:
        sys.meta_path.insert(0, finder)
    for name in names:
        if name not in finder.names:
            call(sys.modules[name])
    return finder


def nothing(*_, **__) -> None:
    pass


def around(function, what: str, before: Callable[..., Any] = nothing,
           after: Callable[..., Any] = nothing):
    """The function, with `before`, which gets its arguments, and `after`, which gets its result and
    them. Neither raises anything; `what`: they do."""
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        with quietly(what):
            before(*args, **kwargs)
        result = function(*args, **kwargs)
        with quietly(what):
            after(result, *args, **kwargs)
        return result

    wrapped.is_of_wavetune = True
    return wrapped


def is_wrapped(function) -> bool:
    return getattr(function, "is_of_wavetune", False)
