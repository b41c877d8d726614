"""Host launchers of Triton up to 3.6, compiled before they are needed and several at once.

For each list of argument types Triton writes a C source, compiles it with the C compiler (0.3 s)
and loads the shared object, one after the other. From the server come types alone, as text that is
checked; source, command line and place in Triton's cache are the installed Triton's.

Two functions of Triton's drivers are wrapped: make_launcher, to learn which types this program
uses, and compile_module_from_src, which waits for a launcher that is being compiled. Triton 3.7.1
and later have neither. What is compiled stays in memory until Triton requests it, and is then
stored by Triton's own cache manager: what no request needs leaves no file.

Threads: as many as the process has cores, less one; each waits for one compiler, which is ended
with the program.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import types
from typing import Any, Callable, NamedTuple, Sequence

from .._canonical import Named, digest_bytes
from .closure import jit_function
from .code import folder_name
from .log import log, quietly, text_of
from .patching import around
from .restore import cache_of
from .worker import Early, threads_max

LAUNCHERS_MAX = 64  # of a program, ahead
TYPES_MAX = 256  # of a launcher
SECONDS_MAX = 30.0  # from the first; none is begun later
WAIT_S = 10.0  # of the program, for one that is being compiled
_NAME = "__triton_launcher"
_CLASSES = {"nvidia": "CudaLauncher", "amd": "HIPLauncher"}
_WARP_SIZES = (32, 64)
_TYPE = re.compile(
    r"constexpr|nvTmaDesc|(\*k?)?([iu](1|8|16|32|64)|fp16|bf16|fp32|f32|fp64)|\*k?fp8[a-z0-9]{1,8}")


class Launcher(NamedTuple):
    """What Triton makes a launcher's C source of."""

    backend: str  # nvidia, amd
    warp_size: int
    types: tuple[Any, ...]  # texts, or tuples of them

    def json(self) -> Named:
        return self._asdict()


def parse(value) -> Launcher:
    """A launcher of JSON. Raises ValueError where it is none that Triton could make."""
    if not isinstance(value, dict) or set(value) != set(Launcher._fields) or \
            value["backend"] not in tuple(_CLASSES) or \
            type(value["warp_size"]) is not int or value["warp_size"] not in _WARP_SIZES:
        raise ValueError("it is no launcher")
    return Launcher(value["backend"], value["warp_size"], check_types(value["types"]))


def check_types(value, depth: int = 0) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > TYPES_MAX or depth > 3:
        raise ValueError("it has no list of types")
    found = []
    for one in value:
        if isinstance(one, (list, tuple)):
            found.append(check_types(one, depth + 1))
        elif isinstance(one, str) and _TYPE.fullmatch(one):
            found.append(one)
        else:
            raise ValueError(f"{str(one)[:40]!r} is no type of an argument")
    return tuple(found)


def of_names(signature, names: Sequence[str], backend: str, warp_size: int) -> Launcher:
    """A launcher of types by the names of arguments; those not stated are compiled in."""
    if not isinstance(signature, dict) or not set(signature) <= set(names):
        raise ValueError("it is of another function")
    stated = [signature.get(name, "constexpr") for name in names]
    return parse({"backend": backend, "warp_size": warp_size, "types": stated})


class _Built(NamedTuple):
    """A shared object, as Triton would store it; without data where it is in the folder."""

    key: str
    name: str
    data: bytes


class _Stop(Exception):
    """Ends a function of Triton's; its argument is what was to be learned."""


def _stop_compile(*args, **kwargs) -> None:
    raise _Stop((args, kwargs))


class _Keeping:
    """In the place of a cache manager of Triton's, for one compile."""

    def __init__(self, key: str):
        self.key = key

    def get_file(self, name: str) -> None:
        if os.path.exists(os.path.join(cache_root(), folder_name(self.key), name)):
            raise _Stop(_Built(self.key, name, b""))

    def put(self, data: bytes, name: str, binary: bool = True) -> None:
        raise _Stop(_Built(self.key, name, data))


def cache_root() -> str:
    """The folder of Triton's cache, as Triton finds it now."""
    module = sys.modules["triton.runtime.cache"]
    if hasattr(module, "knobs"):
        return str(module.knobs.cache.dir)
    return os.getenv("TRITON_CACHE_DIR", "").strip() or module.default_cache_dir()


def _with(function, **other):
    """A copy of a function for which some of its module's names mean something else."""
    names = {**function.__globals__, **other}
    copy = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__,
                              function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


class _Driver(NamedTuple):
    """The functions of one of Triton's drivers, as they were before they were wrapped."""

    scope: Named  # of its module
    make: Any
    compile: Any
    prepare: Any  # the launcher's __init__


class Launchers:
    def __init__(self) -> None:
        self.made: dict[Launcher, None] = {}  # by this program, in order
        self.on_made: Callable[[], None] | None = None
        self.used = 0
        self._drivers: dict[str, _Driver] = {}
        # by the digest of the C source
        self._worker = Early("launchers", self._compile, lambda: threads_max())
        self.after_fork()
        atexit.register(self.stop)

    def after_fork(self) -> None:
        """In the child; the parent's threads wait for its compilers."""
        self._worker.after_fork()
        self._requested: set[str] = set()  # by the program: the digests of C sources
        self._early: list[Launcher] = []  # for drivers that are not there yet
        self._stated: set[Launcher] = set()
        self._processes: set[Any] = set()

    def stop(self) -> None:
        self._worker.end(0.0)
        with self._worker.condition:
            processes = list(self._processes)
        for process in processes:
            _end(process)
        if self._stated:
            log(f"launchers: {len(self._stated)} were compiled ahead or were there, {self.used} of "
                f"them used")

    # Triton's modules.

    def patch(self, module) -> None:
        """Wraps the functions of Triton's drivers. `module`: triton.backends."""
        for name, kind in _CLASSES.items():
            backend = getattr(module, "backends", {}).get(name)
            scope = getattr(getattr(getattr(backend, "driver", None), "__init__", None),
                            "__globals__", {})
            make, build, launcher = (scope.get(one)
                                     for one in ("make_launcher", "compile_module_from_src", kind))
            if make is None or build is None or launcher is None or name in self._drivers:
                continue
            # Which Python fills at the first use, and other threads would see half of.
            sysconfig.get_config_vars()
            self._drivers[name] = _Driver(scope, make, build, launcher.__init__)
            scope["make_launcher"] = around(
                make, "a launcher", after=functools.partial(self._made, name, make))
            scope["compile_module_from_src"] = around(
                build, "a launcher that was compiled ahead",
                before=functools.partial(self._compiles, build),
                after=lambda *_, **__: self._go_on())  # the driver may have found its library
        self._go_on()

    def _compiles(self, build, *args, **kwargs) -> None:
        given = inspect.signature(build).bind(*args, **kwargs).arguments
        if given["name"] == _NAME:
            self._take(given["src"])

    def _made(self, backend: str, make, _: str, *args, **kwargs) -> None:
        """The program makes a launcher's C source."""
        given = inspect.signature(make).bind(*args, **kwargs).arguments
        if len(self.made) >= LAUNCHERS_MAX:
            return
        try:
            made = Launcher(backend, given.get("warp_size", 32),
                            check_types(list(given["signature"].values())))
        except ValueError:
            return  # with a tensor descriptor, whose launchers depend on more than types
        if made not in self.made:
            self.made[made] = None
            if self.on_made is not None:
                self.on_made()

    # Ahead.

    def prepare(self, launchers: Sequence[Launcher]) -> None:
        """Compiles the launchers in threads. Returns at once; nothing is raised."""
        with quietly("launchers"):
            with self._worker.condition:
                for launcher in launchers:
                    if launcher not in self._stated and len(self._stated) < LAUNCHERS_MAX:
                        self._stated.add(launcher)
                        self._early.append(launcher)
            self._go_on()

    def prepare_of_choices(self, stated: Named, tuners: Sequence[Any], target) -> None:
        """Those that choices state, {closure: {"name", "launchers"}}, of this program."""
        with quietly("launchers of choices"):
            backend = {"cuda": "nvidia", "hip": "amd"}.get(target.backend)
            if backend not in self._drivers:
                return
            found = []
            names = {function["name"] for function in stated.values()}
            for tuner in tuners:
                jit, cache = jit_function(tuner), cache_of(tuner)
                if jit is None or cache is None or jit.fn.__name__ not in names:
                    continue  # without the work of finding its closure
                for signature in stated.get(cache.closure() or "", {}).get("launchers", ()):
                    try:
                        found.append(of_names(signature, jit.arg_names, backend, target.warp_size))
                    except ValueError as error:
                        log(f"a launcher of {jit.fn.__name__} is not compiled ahead: {error}")
            self.prepare(found)

    def _go_on(self) -> None:
        """Compiles those whose driver can say now what is to be compiled."""
        with self._worker.condition:
            early, self._early = self._early, []
        for launcher in early:
            driver = self._drivers.get(launcher.backend)
            if driver is None or not _knows_its_library(driver):
                with self._worker.condition:
                    self._early.append(launcher)
                continue
            try:
                self._begin(driver, launcher)
            except Exception as error:  # no compiler, no library to link with
                log(f"a launcher is not compiled ahead: {text_of(error)}")

    def _begin(self, driver: _Driver, launcher: Launcher) -> None:
        prepare = _with(driver.prepare, make_launcher=driver.make,
                        compile_module_from_src=_stop_compile)
        source = types.SimpleNamespace(signature=dict(enumerate(launcher.types)), constants={})
        try:
            prepare(types.SimpleNamespace(), source,
                    types.SimpleNamespace(warp_size=launcher.warp_size))
            return
        except _Stop as stop:
            args, kwargs = stop.args[0]
        text = inspect.signature(driver.compile).bind(*args, **kwargs).arguments["src"]
        digest = digest_bytes(text.encode())
        with self._worker.condition:
            if digest not in self._requested:
                self._worker.until = min(self._worker.until, time.monotonic() + SECONDS_MAX)
                self._worker.begin(digest, driver, args, kwargs)

    def _compile(self, driver: _Driver, args, kwargs) -> _Built | None:
        build = driver.compile
        # nothing is printed, and what runs can be ended
        compilers = types.SimpleNamespace(check_call=self._run, DEVNULL=subprocess.DEVNULL)
        inner = _with(build.__globals__["_build"], subprocess=compilers)
        try:
            _with(build, get_cache_manager=_Keeping, _build=inner)(*args, **kwargs)
        except _Stop as stop:
            return stop.args[0]
        except Exception as error:  # Triton compiles it when it is needed, and says why it fails
            log(f"a launcher could not be compiled ahead: {text_of(error)}")
        return None

    def _run(self, command, **_) -> int:
        """In the place of subprocess.check_call."""
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        with self._worker.condition:
            self._processes.add(process)
            is_late = self._worker.is_ended
        if is_late:
            _end(process)
        try:
            code = process.wait()
        finally:
            with self._worker.condition:
                self._processes.discard(process)
        if code:
            raise subprocess.CalledProcessError(code, command)
        return code

    # In the program's threads.

    def _take(self, source: str) -> None:
        """Stores a launcher that was compiled ahead where Triton will look for it."""
        digest = digest_bytes(source.encode())
        with self._worker.condition:
            self._requested.add(digest)
        built = self._worker.result(digest, WAIT_S)
        if built is None:
            return
        self.used += 1
        if built.data:
            manager = sys.modules["triton.runtime.cache"].get_cache_manager(built.key)
            if manager.get_file(built.name) is None:
                manager.put(built.data, built.name, binary=True)


def _end(process) -> None:
    try:
        # the compiler is several processes, and removes its files
        os.killpg(process.pid, signal.SIGTERM)
    except OSError:
        pass


def _knows_its_library(driver: _Driver) -> bool:
    """Whether AMD's driver has found the HIP library, which the program is to load first."""
    find = driver.scope.get("_get_path_to_hip_runtime_dylib")
    return find is None or find.cache_info().currsize > 0
