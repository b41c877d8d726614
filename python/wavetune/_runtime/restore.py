"""Gives autotuners the choices: on a key that one has not seen, before it benchmarks anything.

Two things of Triton's Autotuner are used, the same in 3.3 to 3.9: `cache`, a dict of which it asks
`key in cache`, and `prune_configs`, which it calls when the key was not there. `cache` becomes a
dict whose misses look for a choice; only one of the program's own configs is ever put into it.
`_bench` is watched for what tuning takes.

A cache that has had all of the last SETTLED keys does no longer look for choices, so that a warm
look-up costs what it costs without wavetune: `in` is the dict's own then. On the next miss
prune_configs looks for one, and the cache does so again.

Where a function leaves out configs by the arguments of a launch, or makes others
(early_config_prune), the choice must be among those that it gives: prune_configs returns that one
alone, and nothing is benchmarked for it.

A class that derives from Triton's may have a run() and a store of its own, which it asks as
Triton's asks its dict. The store gets a cache above it, and never sees what was not measured.

A config that was chosen and not measured may not compile, fit or run here, where the program's own
tuning would have skipped it. `run` is watched for that: the launch is repeated with the next config
of the policy after what Triton's autotuner skips, and after any other exception of a key's first
launch with what the program tunes itself. So exceptions are the program's own.

The same for triton_dejavu's Autotuner, whose storage must not see keys that it did not measure.
"""

from __future__ import annotations

import functools
import json
import math
import shlex
import threading
import time
import types
import weakref
from typing import Any, Callable, Mapping, Sequence

from . import counters, frames, keys
from .choices import Choices, stated
from .closure import closure, jit_function
from .effects import are_alike
from .hooks import when_there
from .log import log, quietly, surprised, text_of
from .sender import Sender
from .settings import Settings

MODULES = ("triton.runtime.autotuner", "triton_dejavu.autotuner")
NAME_MAX = 200
WHY_MAX = 300  # bytes may be three times as many
SAID_MAX = 200  # misses in the log, of whose lines there are at most 1,000
SETTLED = 1000
# What Triton's autotuner skips a config for; each is raised before the kernel is launched.
SKIPPED = {"OutOfResources", "CompileTimeAssertionFailure", "PTXASError"}
_INFINITE = [math.inf] * 3


class Miss:
    """A key that is being tuned, or for which one config was chosen after all."""

    __slots__ = ("texts", "stated", "chosen", "is_hit", "is_pruned", "seconds", "needs", "keeps",
                 "refused", "wanted", "key")

    def __init__(self, texts: Any, stated: Any, refused: Sequence[Any] = (), wanted: Any = None,
                 key: Any = None):
        self.texts, self.stated, self.key = texts, stated, key
        self.wanted = wanted  # the choice's config, which may be one that pruning makes
        self.chosen: Any = None  # the config that is to win without being benchmarked
        self.is_hit = False  # counted as one
        self.is_pruned = False
        self.seconds = 0.0  # of benchmarks
        self.needs: dict[int, list[Any]] = {}  # files of Triton's cache, by the id of the config
        self.keeps = False  # whether the autotuner would store what was not measured
        self.refused = refused  # configs that do not run for the key


class Restoring(dict):
    """An autotuner's cache (key to config)."""

    __slots__ = ("tuner", "misses", "on_miss", "looks", "chosen", "latest", "refused", "own",
                 "_closure")
    is_text = False  # whether keys are str() of their values
    settles = True

    def __init__(self, tuner: Any, known: dict[Any, Any]):
        super().__init__(known)
        self.tuner = tuner
        self.misses: dict[int, Miss] = {}  # by thread
        self.on_miss: str | None = None  # in place of $WAVETUNE_ON_MISS
        self.looks = 0  # without a miss
        # by key: what was not measured here, and whether it was a hit
        self.chosen: dict[Any, tuple[Any, bool]] = {}
        # by thread: the key of the last miss, where a config was chosen for it
        self.latest: dict[int, Any] = {}
        self.refused: dict[Any, list[Any]] = {}  # by key: what was chosen and does not run here
        self.own: set[Any] = set()  # keys that the program tunes itself, after such configs
        self._closure: Any = False

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # a copy is a plain cache

    def __contains__(self, key: Any, has: Any = dict.__contains__) -> bool:
        if has(self, key):
            self.looks += 1
            if self.looks == SETTLED and self.settles:
                self.__class__ = Settled  # type: ignore[assignment]
            return True
        self.looks = 0
        try:
            return _restorer is not None and _restorer.restore(self, key)
        except Exception as error:
            surprised("a look-up", error)
            return False

    def __setitem__(self, key: Any, config: Any) -> None:
        dict.__setitem__(self, key, config)
        try:
            miss = self.misses.pop(threading.get_ident(), None)
            if miss is not None and miss.keeps:
                self.tuner.cache_results = True
            if miss is not None and miss.chosen is not None and miss.chosen is config:
                self.choose(key, config, miss.is_hit)
            if miss is not None and miss.texts is not None and miss.chosen is None and \
                    miss.seconds and _restorer is not None:
                _restorer.measured(self, miss, config)
        except Exception as error:
            surprised("what was tuned", error)

    def choose(self, key: Any, config: Any, is_hit: bool) -> None:
        self.chosen[key], self.latest[threading.get_ident()] = (config, is_hit), key

    def keep(self, key: Any, config: Any, is_hit: bool) -> None:
        self.choose(key, config, is_hit)
        dict.__setitem__(self, key, config)

    def forget(self, key: Any) -> None:
        # the latter: that of wavetune.demand, above this one
        for cache in (self, self.tuner.cache):
            dict.pop(cache, key, None)

    def closure(self) -> str | None:
        if self._closure is False:
            self._closure = closure(self.tuner)
        return self._closure


class Settled(Restoring):
    """One that looks for nothing."""

    __slots__ = ()
    __contains__ = dict.__contains__  # type: ignore[assignment]


class RestoringDejavu(Restoring):
    """Restored configs are found, and are not among the items, which triton-dejavu stores with
    timings that it has."""

    __slots__ = ("restored",)
    is_text = True
    settles = False

    def __init__(self, tuner: Any, known: dict[Any, Any]):
        super().__init__(tuner, known)
        self.restored: dict[Any, Any] = {}

    def __contains__(self, key: Any, has: Any = dict.__contains__) -> bool:
        return has(self, key) or key in self.restored or super().__contains__(key)

    def __missing__(self, key: Any) -> Any:
        return self.restored[key]

    def keep(self, key: Any, config: Any, is_hit: bool) -> None:
        self.choose(key, config, is_hit)
        self.restored[key] = config

    def forget(self, key: Any) -> None:
        super().forget(key)
        self.restored.pop(key, None)


class RestoringStore(Restoring):
    """Above a store of the package's own, which has what the program measured; what was chosen is
    here alone."""

    __slots__ = ("store",)
    settles = False

    def __init__(self, tuner: Any, store: Any):
        super().__init__(tuner, {})
        self.store = store

    def __reduce__(self) -> Any:
        return _itself, (self.store,)

    def __contains__(self, key: Any, has: Any = dict.__contains__) -> bool:
        if super().__contains__(key):
            return True
        if key not in self.store:
            return False
        self.misses.pop(threading.get_ident(), None)
        dict.__setitem__(self, key, self.store[key])  # asked once
        return True

    def __missing__(self, key: Any) -> Any:
        return self.store[key]

    def __setitem__(self, key: Any, config: Any) -> None:
        self.store[key] = config
        super().__setitem__(key, config)

    def get(self, key: Any, default: Any = None) -> Any:
        return dict.get(self, key) or self.store.get(key, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "store"), name)

    # What a dict has of its own, which __getattr__ is not asked for.

    def __bool__(self) -> bool:
        return bool(self.store)

    def __len__(self) -> int:
        return len(self.store)

    def __iter__(self) -> Any:
        return iter(self.store)

    def keys(self) -> Any:
        return self.store.keys()

    def values(self) -> Any:
        return self.store.values()

    def items(self) -> Any:
        return self.store.items()


def _itself(store: Any) -> Any:
    return store


def cache_of(tuner: Any) -> Restoring | None:
    """Our cache of an autotuner, below that of wavetune.demand."""
    cache = getattr(tuner, "cache", None)
    if not isinstance(cache, Restoring):
        cache = getattr(cache, "inner", None)
    return cache if isinstance(cache, Restoring) else None


class Restorer:
    """`start` keeps a list of the files that the program needed (start.py)."""

    def __init__(self, settings: Settings, choices: Choices, sender: Sender | None, start: Any):
        self.settings, self.choices, self.sender, self.start = settings, choices, sender, start
        self._missed: dict[tuple[str, Any], dict[str, Any]] = {}  # what is reported of each key

    def restore(self, cache: Restoring, key: Any) -> bool:
        """Whether there is a config for the key now."""
        if self.sender is not None:
            self.sender.counted()
        cache.latest.pop(threading.get_ident(), None)
        texts, refused = keys.key_texts(key, cache.is_text), cache.refused.get(key, ())
        own = cache.closure() if texts is not None else None
        if own is None:
            counters.misses += 1
            return False
        tuner = cache.tuner
        if key in cache.own:
            cache.misses[threading.get_ident()] = Miss(texts, "tune")
            return False
        prunes = getattr(tuner, "early_config_prune", None) is not None or \
            tuner.prune_configs.__module__ not in MODULES
        # triton_dejavu benchmarks what its prune_configs leaves
        choice = self.choices.find(own, texts) if not (prunes and cache.is_text) else None
        configs = tuner.configs
        if prunes and isinstance(cache, RestoringStore):
            try:
                prunes, configs = False, list(
                    tuner.prune_configs(frames.running(tuner).get("kwargs")))
            except Exception:  # the program's own call raises it
                return False
        config = self._fitting(cache, choice, configs) if not prunes else None
        if config is not None and is_among(config, refused):
            config = None
        is_hit = config is not None or prunes and choice is not None
        if is_hit:
            counters.hits += 1
            counters.saved_ms += choice.tuning_ms  # type: ignore[union-attr]
        else:
            counters.misses += not refused
            if not refused and (own, texts) not in self._missed:
                self._explain(cache, own, texts, choice)
            config = self._on_miss(cache, own, texts, refused, prunes, configs)
            is_late = isinstance(cache, RestoringStore)  # prune_configs was called already
            if not prunes and captured is not None and (config is not None or is_late):
                captured(tuner, texts or (), frames.running(tuner).get("kwargs"), configs, key)

        if config is not None and not prunes:
            cache.keep(key, config, is_hit)
            return True
        miss = Miss(texts, cache.on_miss or self.settings.on_miss, refused,
                    choice.config if is_hit else None, key)
        miss.chosen = config if not cache.is_text else None
        miss.is_hit = is_hit
        miss.is_pruned = isinstance(cache, RestoringStore)
        cache.misses[threading.get_ident()] = miss
        return False

    def _fitting(self, cache: Restoring, choice: Any, configs: Sequence[Any]) -> Any:
        if choice is None:
            return None
        config = keys.fitting(configs, choice.config)
        if config is None:
            counters.unfit += 1
            log(f"a choice for {_name(cache)} is not one config of the program: "
                f"{str(choice.config)[:200]}")
        return config

    def _explain(self, cache: Restoring, own: str, texts: Any, choice: Any) -> None:
        """Says once for each function and key why there is no config for it."""
        why = self.choices.why(
            own, texts) if choice is None else "its choice is not one config of the program"
        item = self._missed[own, texts] = {
            "function": own, "name": _name(cache), "key": list(texts), "why": why[:WHY_MAX]
        }
        if self.sender is not None:
            self.sender.missed(item)
        if len(self._missed) > SAID_MAX:
            if len(self._missed) == SAID_MAX + 1:
                log("further misses are not printed")
            return
        log(f"miss: {_name(cache)} [{', '.join(texts)}]: {why}{self._asks(own)}")

    def _asks(self, own: str) -> str:
        """The command that asks the server, where there is one."""
        settings = self.settings
        if settings.url is None:
            return ""
        options = "".join(f" --{name} {shlex.quote(value)}" for name in ("channel", "tag", "regime")
                          if (value := getattr(settings, name)) is not None)
        environment = json.dumps(stated(settings.environment()), separators=(",", ":"))
        return f"; wavetune why {own}{options} --environment {shlex.quote(environment)}"

    def _on_miss(self, cache: Restoring, own: str, texts: Any, refused: Sequence[Any], prunes: bool,
                 configs: Sequence[Any]) -> Any:
        """The config that is used without tuning, by policy."""
        policy, tuner = cache.on_miss or self.settings.on_miss, cache.tuner
        if policy == "nearest":
            for choice in self.choices.nearest(own, texts):
                config = keys.fitting(configs, choice.config)
                if config is not None and not is_among(config, refused):
                    return config
        if policy == "first" and not prunes and tuner.perf_model is None:
            return _first(configs, refused)
        return None  # else prune_configs says which is the first

    def measured(self, cache: Restoring, miss: Miss, best: Any) -> None:
        """The program tuned a key: how long that took is reported with its miss."""
        if self.sender is None:
            return
        self.start.used(miss.needs.get(id(best), []))
        item = self._missed.get((cache.closure(), miss.texts))
        if item is not None:
            self.sender.tuned(item, miss.seconds * 1000)

    def after_fork(self) -> None:
        self.choices.after_fork()
        if self.sender is not None:
            self.sender.after_fork()
            self.sender.wire.after_fork()


def is_among(config: Any, configs: Sequence[Any]) -> bool:
    """Whether one of the configs is this one; a function that prunes may make new objects each
    time."""
    return any(
        config is one or are_alike(getattr(config, "pre_hook", None), getattr(
            one, "pre_hook", None)) and keys.members(config) == keys.members(one)
        for one in configs)


def _first(configs: Sequence[Any], refused: Sequence[Any]) -> Any:
    return next((config for config in configs if not refused or not is_among(config, refused)),
                None)


def _name(cache: Restoring) -> str:
    return getattr(getattr(jit_function(cache.tuner), "fn", None), "__qualname__", "?")[:NAME_MAX]


_restorer: Restorer | None = None
# What records launches (capture.py), None without: called on a miss, in the program's thread, with
# the autotuner, the key's texts, the keyword arguments of its run() or None, the configs that
# pruning left, and the key. It raises nothing.
captured: Callable[[Any, Sequence[str], Any, Sequence[Any], Any], None] | None = None
_patched: list[tuple[Any, str, Any]] = []
adopted: weakref.WeakSet[Any] = weakref.WeakSet()  # autotuners whose cache restores


def start(restorer: Restorer) -> None:
    """Patches the modules with autotuners, now or when the program has imported them."""
    global _restorer
    _restorer = restorer
    when_there(MODULES, patch)


def stop() -> None:
    """For tests: autotuners that are made from now on are Triton's own."""
    global _restorer
    _restorer = None
    while _patched:
        holder, name, value = _patched.pop()
        setattr(holder, name, value)


def patch(module: Any) -> None:
    """Wraps four functions of the module's Autotuner, once; leaves one that it does not know
    alone."""
    try:
        tuners = module.Autotuner
        init, bench, _, _ = tuners.__init__, tuners._bench, tuners.prune_configs, tuners.run
        if _is_ours(init):
            return
    except AttributeError as error:
        log(f"{module.__name__} is not one that this wavetune knows "
            f"(python/wavetune/_runtime/restore.py, patch): {error}")
        return

    @functools.wraps(init)  # torch looks at the signature
    def __init__(tuner: Any, *args: Any, **kwargs: Any) -> None:
        init(tuner, *args, **kwargs)
        adopt(tuner)

    @functools.wraps(bench)
    def _bench(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        cache = cache_of(tuner)
        miss = cache.misses.get(threading.get_ident()) if cache is not None else None
        if miss is None:
            return bench(tuner, *args, **kwargs)
        if miss.chosen is not None and miss.is_pruned:
            return [0.0] * 3 if kwargs.get("config") is miss.chosen else list(_INFINITE)
        started = time.perf_counter()
        start = _restorer.start if _restorer is not None else None
        if start is not None:
            start.set_apart(miss.needs.setdefault(id(kwargs.get("config")), []))
        try:
            timing = bench(tuner, *args, **kwargs)
        finally:
            if start is not None:
                start.set_apart(None)
        miss.seconds += time.perf_counter() - started
        return timing

    _wrap(tuners, "__init__", __init__)
    _wrap(tuners, "_bench", _bench)
    with quietly("finding autotuners"):
        _wrap_own(tuners)
        _adopt_existing(tuners)
        _adopt_running()


def _is_ours(function: Any) -> bool:
    return getattr(function, "is_of_wavetune", False)


def _wrap(holder: Any, name: str, function: Any) -> None:
    function.is_of_wavetune = True
    _patched.append((holder, name, vars(holder)[name]))
    setattr(holder, name, function)


def _wrap_own(kind: Any) -> None:
    """Wraps what a class of autotuners, or one that it derives from, has of its own in the place of
    Triton's."""
    for name, wrapped in (("prune_configs", _wrapped_prune), ("run", _wrapped_run)):
        holder = next(one for one in kind.__mro__ if name in vars(one))
        function = vars(holder)[name]
        if isinstance(function, types.FunctionType) and not _is_ours(function):
            _wrap(holder, name, wrapped(function))


def _wrapped_prune(prune: Any) -> Any:
    @functools.wraps(prune)
    def prune_configs(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        found = prune(tuner, *args, **kwargs)
        if type(tuner).prune_configs is not prune_configs:
            return found  # to a class that has a word in it
        if hasattr(found, "__next__"):
            found = list(found)  # which is read once
        with quietly("choosing"):
            return _pruned(tuner, found, args[0] if args else kwargs.get("kwargs"))
        return found

    return prune_configs


def _wrapped_run(run: Any) -> Any:
    @functools.wraps(run)
    def watched(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        repeats = 0
        if cache_of(tuner) is None:
            adopt(tuner)  # its class has replaced the cache since it was made
        while True:
            try:
                return run(tuner, *args, **kwargs)
            except BaseException as error:
                if not _may_repeat(tuner, error, repeats):
                    raise
            repeats += 1

    return watched


def _launched(cache: Restoring, own: Any) -> tuple[Any, Any]:
    """Key and config of a launch by a run() with these variables; of one that names them otherwise
    where the key is new."""
    if own.get("config") is not None or cache.looks:
        return own.get("key"), own.get("config")
    key = cache.latest.get(threading.get_ident())
    return key, cache.chosen.get(key, (None,))[0]


def _may_repeat(tuner: Any, error: BaseException, repeats: int) -> bool:
    """After a launch that failed: whether it is made again, without the config that was chosen for
    it."""
    with quietly("repeating a launch"):
        cache = cache_of(tuner)
        if cache is None:
            return False
        miss = cache.misses.pop(threading.get_ident(), None)
        if miss is not None and miss.keeps:
            tuner.cache_results = True
        key, config = _launched(cache, frames.failed(error))
        if config is None or not isinstance(error, Exception):
            return False
        is_skipped = any(kind.__name__ in SKIPPED and kind.__module__.startswith("triton.")
                         for kind in type(error).__mro__)
        chosen, is_hit = cache.chosen.get(key, (None, False))
        if chosen is not config:  # another thread may have dropped it
            return is_skipped and repeats == 0 and is_among(config, cache.refused.get(key, ()))
        if not is_skipped and cache.looks:
            return False  # it ran before

        refused = cache.refused.setdefault(key, [])
        refused.append(config)
        if not is_skipped or len(refused) >= len(tuner.configs):
            cache.own.add(key)
        cache.forget(key)
        del cache.chosen[key]
        counters.unfit += is_hit
        counters.hits, counters.misses = counters.hits - is_hit, counters.misses + is_hit
        log(f"a config of {_name(cache)} that was chosen does not run: {keys.members(config)}: "
            f"{text_of(error)}; "
            f"{'the program tunes' if key in cache.own else 'the next one is tried'}")
        return True
    return False


def _pruned(tuner: Any, found: Any, launch: Any) -> Any:
    cache = cache_of(tuner)
    if type(cache) is Settled:
        cache.__class__, cache.looks = Restoring, 0
        _look_late(tuner, frames.running(tuner))
    miss = cache.misses.get(threading.get_ident()) if cache is not None else None
    if miss is None or miss.is_pruned or not found:
        return found  # a warm-up, which asks for all of them
    miss.is_pruned = True
    if miss.wanted is not None:
        miss.chosen = keys.fitting(found, miss.wanted)
        if miss.chosen is not None and is_among(miss.chosen, miss.refused):
            miss.chosen = None
    if miss.chosen is not None and not any(config is miss.chosen for config in found):
        miss.chosen = None
    if miss.chosen is None and miss.is_hit:  # not for these arguments
        miss.is_hit = False
        counters.hits, counters.misses, counters.unfit = \
            counters.hits - 1, counters.misses + 1, counters.unfit + 1
        log(f"a choice for {_name(cache)} is not one config that the program considers for this "
            f"key: {str(miss.wanted)[:200]}")
    if captured is not None and not (miss.is_hit and miss.chosen is not None):
        captured(tuner, miss.texts, launch, found, miss.key)
    if miss.chosen is None and miss.stated == "first":
        miss.chosen = _first(found, miss.refused)
    if miss.chosen is None:
        return found
    if getattr(tuner, "cache_results", False):
        tuner.cache_results, miss.keeps = False, True  # until the key is set
    return [miss.chosen]


def adopt(tuner: Any) -> Restoring | None:
    """Gives the autotuner a cache that restores."""
    with quietly("an autotuner"):
        if cache_of(tuner) is not None:
            return cache_of(tuner)
        kind = RestoringDejavu if type(tuner).__module__.startswith("triton_dejavu") else Restoring
        if type(tuner.cache) is dict:
            tuner.cache = kind(tuner, tuner.cache)
        elif type(tuner.cache).__module__ == "wavetune.demand":
            tuner.cache.inner = kind(tuner, {})
        elif all(
                hasattr(type(tuner.cache), name)
                for name in ("__contains__", "__getitem__", "__setitem__")):
            tuner.cache = RestoringStore(tuner, tuner.cache)
        if cache_of(tuner) is not None:
            _wrap_own(type(tuner))
        adopted.add(tuner)
        return cache_of(tuner)
    return None


def _adopt_existing(tuners: Any) -> None:
    """Autotuners that were made before this module was imported."""
    import gc
    classes, i = [tuners], 0
    while i < len(classes):
        classes.extend(found for found in classes[i].__subclasses__() if found not in classes)
        i += 1
    for found in gc.get_referrers(*classes):  # an object refers to its class
        if type(found) in classes:
            adopt(found)


def _adopt_running() -> None:
    """An autotuner whose run() imported this module, by compiling its first config: the other
    configs need no benchmark where there is a choice."""
    own = frames.running_of(MODULES[0])
    tuner = own.get("self")
    cache = cache_of(tuner)
    if cache is not None and _look_late(tuner, own):
        cache.misses[threading.get_ident()].is_pruned = True
    elif cache is not None:
        one = cache.misses.pop(threading.get_ident(), None)  # the first config's time is not known
        if captured is not None and one is not None and own.get("pruned_configs"):
            captured(tuner, one.texts, own.get("kwargs"), own["pruned_configs"], one.key)


def _look_late(tuner: Any, own: Mapping[str, Any]) -> bool:
    """Looks for a choice for the key of an autotuner's run() with these variables, which has asked
    already whether the key is there: it takes the best of the timings. Whether there is one."""
    cache, key = cache_of(tuner), own.get("key")
    if cache is None or not isinstance(key, tuple) or dict.__contains__(cache, key) or \
            _restorer is None or not _restorer.restore(cache, key):
        return False
    miss = cache.misses[threading.get_ident()] = Miss(None, None)
    miss.chosen, miss.is_hit = dict.pop(cache, key), True
    return True
