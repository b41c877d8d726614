"""Puts the parts together, once in a process: what every way in calls."""

from __future__ import annotations

import atexit
import os
import sys

from .._canonical import Named
from . import counters, restore
from .ahead import Ahead
from .choices import ENVIRONMENTS, Choices
from .launchers import Launchers
from .log import log, quietly
from .patching import when_there
from .restore import Restorer
from .sender import Sender, log_counters
from .settings import Settings, settings
from .start import Start
from .wire import Wire
from .worker import Jobs


class Program:
    """`wire` and `sender` are None without a server."""

    def __init__(self, found: Settings):
        self.settings = found
        self.wire: Wire | None = None
        self.sender: Sender | None = None
        if found.url is not None:
            wire = Wire(found.url, found.token, ca_file=found.ca_file, insecure=found.insecure,
                        budget_s=found.budget_s)
            if wire.is_allowed:
                self.wire, self.sender = wire, Sender(wire, self._head)
        if self.sender is None and found.cache is not None:
            atexit.register(log_counters)  # a sender does that itself
        self.is_code_refused = False  # the token may not have it
        self.launchers, self.start = Launchers(), Start(self)
        self.launchers.on_made = self.start.noticed
        self.stating = Jobs("choices", lambda job: self.launchers.prepare_of_choices(*job))
        self.ahead = Ahead(self.start.compiled)
        self.choices = Choices(found, self.wire)
        self.choices.on_launchers = self._prepare
        self.restorer = Restorer(found, self.choices, self.sender, self.start)

    def _head(self) -> Named:
        own = self.settings
        head = {"environment": own.environment(), "tag": own.tag, "regime": own.regime}
        return {name: value for name, value in head.items() if value is not None}

    def _prepare(self, stated: Named) -> None:
        """Compiles the launchers of choices, in the thread that asked for choices."""
        target = sys.modules["triton"].runtime.driver.active.get_current_target()
        self.stating.add((stated, list(restore.adopted), target))

    def after_fork(self) -> None:
        for part in (self.stating, self.restorer, self.launchers, self.ahead, self.start):
            part.after_fork()

    def takes_code(self) -> bool:
        """Whether compiled code may come from the server: with a trusted key, or where the operator
        opened a namespace; never where it could be changed on its way. Or from the folder of
        `python3 -m wavetune tune`, which has no signature."""
        own = self.settings
        if own.cache is not None and not own.trusted_keys and \
                os.path.isdir(os.path.join(own.cache, ENVIRONMENTS)):
            return True
        return self.wire is not None and (bool(own.trusted_keys) or self.gives_code())

    def gives_code(self) -> bool:
        return self.settings.shared_code and self.shares_starts()

    def shares_starts(self) -> bool:
        """Whether lists of starts are taken and given: for code, or for compiling ahead."""
        own = self.settings
        is_wanted = own.shared_code or own.is_ahead and own.token is not None and \
            not own.trusted_keys and not own.is_pinned
        return self.wire is not None and is_wanted and self.wire.is_private and \
            not self.is_code_refused


_program: Program | None = None
_is_tried = False


def program() -> Program | None:
    """That of this process; None where no variable asks for it, or where making it failed."""
    return _program


def start() -> Program | None:
    """Starts it, once; nothing is raised."""
    global _program, _is_tried
    if _is_tried:
        return _program
    _is_tried = True
    with quietly("starting"):
        found = settings()
        if found is None:
            _is_tried = False  # the variables may be set later
            return None
        if os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y"):
            return None  # nothing runs on a GPU
        _program = Program(found)
        os.register_at_fork(after_in_child=_after_fork)
        _start_tables(_program)
        if not (found.url or found.cache or found.capture_to):
            return _program  # tables are all that is asked for
        _start_capture(_program)
        restore.start(_program.restorer)
        when_there(["triton.backends"], _program.launchers.patch)
        if _program.shares_starts():
            when_there(["triton.runtime.cache"], lambda _: _program.start.begin())
            when_there(["triton.compiler"], _program.ahead.patch)
        if _program.takes_code() and "TRITON_CACHE_MANAGER" not in os.environ:
            when_there(["triton.runtime.cache"], _patch_cache)
        _start_demand(_program)
        if _program.wire is not None:
            from .found import start as start_found
            start_found(_program)
    return _program


def _start_tables(own: Program) -> None:
    """Tables that are named, and what others lack."""
    if own.settings.tables or own.sender is not None:
        from . import plugins
        plugins.start(own)


def _start_capture(own: Program) -> None:
    """Where texts may be recorded."""
    found = own.settings
    if found.capture in ("source", "raw"):
        from . import capture
        capture.start(found, own.wire)
    elif found.capture_to is not None or found.capture_functions:
        log(f"no launch is recorded, because WAVETUNE_CAPTURE is {found.capture}: source (or raw) "
            f"records texts too")


def _start_demand(own: Program) -> None:
    """Demand is the same import, where the image's record names functions."""
    found = own.settings
    if own.wire is not None and found.token is not None and own.wire.is_private and \
            os.environ.get("WAVETUNE_DEMAND") != "0" and found.identity().get("functions"):
        from .. import demand
        demand.watch(identity=found.identity(), url=found.url, token=found.token)


def _after_fork() -> None:
    with quietly("what follows a fork"):
        counters.reset()
        _program.after_fork()
        if "wavetune._runtime.capture" in sys.modules:
            sys.modules["wavetune._runtime.capture"].after_fork()


def _patch_cache(module) -> None:
    """Makes get_cache_manager() return ours. Triton's other modules import the function by its
    name, so its class is replaced: in 3.3 a variable of the module, from 3.4 on a knob."""
    with quietly("the cache manager"):
        from ..triton import CacheManager
        if hasattr(module, "__cache_cls"):
            setattr(module, "__cache_cls", CacheManager)
        elif module.knobs.cache.manager_class is None:
            module.knobs.cache.manager_class = CacheManager
