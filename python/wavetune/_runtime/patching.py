"""Calls back when a module has been imported, without importing it."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from typing import Any, Callable, Sequence

from .log import quietly, surprised


class Finder:
    """A finder of sys.meta_path. It finds what the next one that knows the module finds."""

    def __init__(self, names: Sequence[str], imported: Callable[[Any], None]):
        self.names, self.imported = frozenset(names), imported

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.names:
            return None
        try:
            spec = None
            others = sys.meta_path[sys.meta_path.index(self) + 1:]  # type: ignore[arg-type]
            for finder in others or [PathFinder]:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    break
            if spec is None or spec.loader is None:
                return spec
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                with quietly(f"what waited for {name}"):
                    self.imported(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
            return spec
        except Exception as error:  # of another finder: the module is looked for as without us
            surprised(f"waiting for {name}", error)
            return None


def when_there(names: Sequence[str], call: Callable[[Any], Any]) -> Finder:
    """Calls with each of the modules: now, or when the program has imported it."""
    finder = Finder([name for name in names if name not in sys.modules], call)
    if finder.names:
        sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    for name in names:
        if name not in finder.names:
            call(sys.modules[name])
    return finder
