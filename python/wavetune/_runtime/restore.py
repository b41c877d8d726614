"""Gives autotuners the choices: on a key that one has not seen, before it benchmarks anything.

Two things of Triton's Autotuner are used, the same in 3.3 to 3.9: `cache`, a dict of which it asks
`key in cache`, and `prune_configs`, which it calls when the key was not there. `cache` becomes a
dict whose misses look for a choice; only one of the program's own configs is ever put into it.
After SETTLED look-ups without a miss `in` is the dict's own, so that a warm look-up costs what it
costs without wavetune, until a miss calls prune_configs. `_bench` is watched for what tuning takes.

Where a function leaves out configs by the arguments of a launch, or makes others
(early_config_prune), the choice must be among those that it gives: prune_configs returns that one
alone, and nothing is benchmarked for it. A class that derives from Triton's may have a run() and a
store of its own: the store gets a cache above it. It never sees what was not measured, and neither
does the storage of triton_dejavu's Autotuner.

A config that was chosen and not measured may not compile, fit or run here. `run` is watched for
that: the launch is repeated with the next config of the policy after what Triton's autotuner skips,
and after any other exception of a key's first launch with what the program tunes itself. So
exceptions are the program's own.
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
from typing import Any, Callable, Sequence

from .._canonical import Named
from . import counters, frames, keys
from .choices import Choices, stated
from .closure import closure as closure_of
from .closure import jit_function
from .effects import are_alike
from .log import log, quietly, text_of
from .patching import around, is_wrapped, when_there
from .sender import Sender
from .settings import Settings

MODULES = ("triton.runtime.autotuner", "triton_dejavu.autotuner")
NAME_MAX = 200
WHY_MAX = 300  # bytes may be three times as many
SAID_MAX = 200  # misses in the log, of whose lines there are at most 1,000
SETTLED = 1000
# What Triton's autotuner skips a config for; each is raised before the kernel is launched.
SKIPPED = {"OutOfResources", "CompileTimeAssertionFailure", "PTXASError"}


class Miss:
    """A key that is being tuned, or for which one config was chosen after all."""

    chosen: Any = None  # the config that is to win without being benchmarked
    is_hit = False  # counted as one
    is_pruned = False
    keeps = False  # whether the autotuner would store what was not measured
    seconds = 0.0  # of benchmarks

    def __init__(self, key_texts=None, policy: str | None = None, refused: Sequence[Any] = (),
                 key=None):
        self.key_texts, self.policy, self.key = key_texts, policy, key
        self.refused = refused  # configs that do not run for the key
        self.wanted: Any = None  # the choice's config, which may be one that pruning makes
        self.needs: dict[int, list[Any]] = {}  # files of Triton's cache, by the id of the config


class Restoring(dict):
    """An autotuner's cache (key to config)."""

    is_text = False  # whether keys are str() of their values
    settles = True
    is_late = False  # whether run() has pruned when it looks a key up
    on_miss: str | None = None  # in place of $WAVETUNE_ON_MISS
    looks = 0  # without a miss
    _closure: tuple = ()  # (it,) where it is known

    def __init__(self, tuner, known):
        super().__init__(known)
        self.tuner = tuner
        self.misses: dict[int, Miss] = {}  # by thread
        # by key: what was not measured here, and whether it was a hit
        self.chosen: dict[Any, tuple[Any, bool]] = {}
        # by thread: the key of the last miss, where a config was chosen for it
        self.latest: dict[int, Any] = {}
        self.refused: dict[Any, list[Any]] = {}  # by key: what was chosen and does not run here
        self.tuned: set[Any] = set()  # keys that the program tunes itself, after such configs

    def __reduce__(self):
        return dict, (dict(self),)  # a copy is a plain cache

    def __contains__(self, key, has=dict.__contains__) -> bool:
        if has(self, key):
            self.looks += 1
            if self.looks == SETTLED and self.settles:
                self.__class__ = Settled
            return True
        self.looks = 0
        with quietly("a look-up"):
            return _restorer.restore(self, key)
        return False

    def __setitem__(self, key, config) -> None:
        dict.__setitem__(self, key, config)
        with quietly("what was tuned"):
            miss = self.end_miss()
            if miss is None:
                return
            if miss.chosen is not None:
                if miss.chosen is config:
                    self.choose(key, config, miss.is_hit)
            elif miss.key_texts is not None and miss.seconds:
                _restorer.measured(self, miss, config)

    def miss(self) -> Miss | None:
        """That of this thread."""
        return self.misses.get(threading.get_ident())

    def begin_miss(self, miss: Miss) -> Miss:
        self.misses[threading.get_ident()] = miss
        return miss

    def end_miss(self) -> Miss | None:
        miss = self.misses.pop(threading.get_ident(), None)
        if miss is not None and miss.keeps:
            self.tuner.cache_results = True
        return miss

    def choose(self, key, config, is_hit: bool) -> None:
        self.chosen[key], self.latest[threading.get_ident()] = (config, is_hit), key

    def keep(self, key, config, is_hit: bool) -> None:
        self.choose(key, config, is_hit)
        dict.__setitem__(self, key, config)

    def forget(self, key) -> None:
        # the latter: that of wavetune.demand, above this one
        for cache in (self, self.tuner.cache):
            dict.pop(cache, key, None)

    def closure(self) -> str | None:
        if not self._closure:
            self._closure = (closure_of(self.tuner),)
        return self._closure[0]


class Settled(Restoring):
    """One that looks for nothing."""

    __contains__ = dict.__contains__


class RestoringDejavu(Restoring):
    """Its items, which triton-dejavu stores with timings, lack the restored configs."""

    is_text = True
    settles = False

    def __init__(self, tuner, known):
        super().__init__(tuner, known)
        self.restored: dict[Any, Any] = {}

    def __contains__(self, key, has=dict.__contains__) -> bool:
        return has(self, key) or key in self.restored or super().__contains__(key)

    def __missing__(self, key):
        return self.restored[key]

    def keep(self, key, config, is_hit: bool) -> None:
        self.choose(key, config, is_hit)
        self.restored[key] = config

    def forget(self, key) -> None:
        super().forget(key)
        self.restored.pop(key, None)


class RestoringStore(Restoring):
    """Above a store of the package's own; what was chosen and not measured is here alone."""

    settles = False
    is_late = True

    def __init__(self, tuner, store):
        super().__init__(tuner, {})
        self.store = store

    def __reduce__(self):
        return _itself, (self.store,)

    def __contains__(self, key, has=dict.__contains__) -> bool:
        if super().__contains__(key):
            return True
        if key not in self.store:
            return False
        self.end_miss()
        dict.__setitem__(self, key, self.store[key])  # asked once
        return True

    def __missing__(self, key):
        return self.store[key]

    def __setitem__(self, key, config) -> None:
        self.store[key] = config
        super().__setitem__(key, config)

    def get(self, key, default=None):
        return dict.get(self, key) or self.store.get(key, default)

    def __getattr__(self, name: str):
        return getattr(object.__getattribute__(self, "store"), name)

    # What a dict has of its own, which __getattr__ is not asked for.

    def __bool__(self) -> bool:
        return bool(self.store)

    def __len__(self) -> int:
        return len(self.store)

    def __iter__(self):
        return iter(self.store)

    def keys(self):
        return self.store.keys()

    def values(self):
        return self.store.values()

    def items(self):
        return self.store.items()


def _itself(store):
    return store


def cache_of(tuner) -> Restoring | None:
    """Our cache of an autotuner, below that of wavetune.demand."""
    cache = getattr(tuner, "cache", None)
    if not isinstance(cache, Restoring):
        cache = getattr(cache, "inner", None)
    return cache if isinstance(cache, Restoring) else None


class Restorer:
    """`start` keeps a list of the files that the program needed (start.py)."""

    def __init__(self, settings: Settings, choices: Choices, sender: Sender | None, start):
        self.settings, self.choices, self.sender, self.start = settings, choices, sender, start
        self._missed: dict[tuple[str, Any], Named] = {}  # what is reported of each key

    def restore(self, cache: Restoring, key) -> bool:
        """Whether there is a config for the key now."""
        if self.sender is not None:
            self.sender.counted()
        cache.latest.pop(threading.get_ident(), None)
        key_texts = keys.key_texts(key, cache.is_text)
        closure = cache.closure() if key_texts is not None else None
        if closure is None:
            counters.misses += 1
            return False
        if key in cache.tuned:
            cache.begin_miss(Miss(key_texts, "tune"))
            return False

        tuner, configs = cache.tuner, cache.tuner.configs
        prunes = getattr(tuner, "early_config_prune", None) is not None or \
            tuner.prune_configs.__module__ not in MODULES
        must_prune = prunes and not cache.is_late  # the config is chosen in _pruned()
        # triton_dejavu benchmarks what its prune_configs leaves
        choice = self.choices.find(closure, key_texts) if not (prunes and cache.is_text) else None
        if prunes and cache.is_late:
            try:
                configs = list(tuner.prune_configs(frames.running(tuner).get("kwargs")))
            except Exception:  # the program's own call raises it
                return False
        miss = Miss(key_texts, cache.on_miss or self.settings.on_miss, cache.refused.get(key, ()),
                    key)
        config = None
        if choice is not None and not must_prune:
            config = keys.fitting(configs, choice.config)
            if config is None:
                counters.unfit += 1
                log(f"a choice for {_name(cache)} is not one config of the program: "
                    f"{str(choice.config)[:200]}")
            elif is_among(config, miss.refused):
                config = None

        is_hit = config is not None or must_prune and choice is not None
        if is_hit:
            counters.hits += 1
            counters.saved_ms += choice.tuning_ms
            miss.wanted = choice.config
        else:
            if not miss.refused:
                counters.misses += 1
                self._explain(cache, closure, key_texts, choice)
            config = self._by_policy(miss, tuner, closure, must_prune, configs)
            if captured is not None and not must_prune and (config is not None or cache.is_late):
                captured(tuner, key_texts, frames.running(tuner).get("kwargs"), configs, key)
        if config is not None and not must_prune:
            cache.keep(key, config, is_hit)
            return True
        miss.chosen = config if not cache.is_text else None
        miss.is_hit, miss.is_pruned = is_hit, cache.is_late
        cache.begin_miss(miss)
        return False

    def _explain(self, cache: Restoring, closure: str, key_texts, choice) -> None:
        """Says once for each function and key why there is no config for it."""
        if (closure, key_texts) in self._missed:
            return
        name, why = _name(cache), "its choice is not one config of the program"
        if choice is None:
            why = self.choices.why(closure, key_texts)
        item = self._missed[closure, key_texts] = {
            "function": closure, "name": name, "key": list(key_texts), "why": why[:WHY_MAX]
        }
        if self.sender is not None:
            self.sender.missed(item)
        if len(self._missed) <= SAID_MAX:
            log(f"miss: {name} [{', '.join(key_texts)}]: {why}{self._asks(closure)}")
        elif len(self._missed) == SAID_MAX + 1:
            log("further misses are not printed")

    def _asks(self, closure: str) -> str:
        """The command that asks the server, where there is one."""
        settings = self.settings
        if settings.url is None:
            return ""
        options = "".join(f" --{name} {shlex.quote(value)}" for name in ("channel", "tag", "regime")
                          if (value := getattr(settings, name)) is not None)
        environment = json.dumps(stated(settings.environment()), separators=(",", ":"))
        return f"; wavetune why {closure}{options} --environment {shlex.quote(environment)}"

    def _by_policy(self, miss: Miss, tuner, closure: str, must_prune: bool, configs):
        """The config that is used without tuning."""
        if miss.policy == "nearest":
            for choice in self.choices.nearest(closure, miss.key_texts):
                config = _fitting(configs, choice.config, miss.refused)
                if config is not None:
                    return config
        if miss.policy == "first" and not must_prune and tuner.perf_model is None:
            return _first(configs, miss.refused)
        return None  # else prune_configs says which is the first

    def measured(self, cache: Restoring, miss: Miss, best) -> None:
        """The program tuned a key: how long that took is reported with its miss."""
        if self.sender is None:
            return
        self.start.used(miss.needs.get(id(best), []))
        item = self._missed.get((cache.closure(), miss.key_texts))
        if item is not None:
            self.sender.tuned(item, miss.seconds * 1000)

    def after_fork(self) -> None:
        self.choices.after_fork()
        if self.sender is not None:
            self.sender.after_fork()
            self.sender.wire.after_fork()


def is_among(config, configs: Sequence[Any]) -> bool:
    """Whether one of the configs is this one, or equal: pruning may make new objects."""
    return any(config is one or keys.members(config) == keys.members(one) and
               are_alike(getattr(config, "pre_hook", None), getattr(one, "pre_hook", None))
               for one in configs)


def _fitting(configs: Sequence[Any], wanted, refused: Sequence[Any]):
    config = keys.fitting(configs, wanted)
    return config if config is not None and not is_among(config, refused) else None


def _first(configs: Sequence[Any], refused: Sequence[Any]):
    return next((config for config in configs if not is_among(config, refused)), None)


def _name(cache: Restoring) -> str:
    return getattr(getattr(jit_function(cache.tuner), "fn", None), "__qualname__", "?")[:NAME_MAX]


_restorer: Restorer  # that of start()
# What records launches (capture.py), None without: called on a miss, in the program's thread, with
# the autotuner, the key's texts, the keyword arguments of its run() or None, the configs that
# pruning left, and the key. It raises nothing.
captured: Callable[[Any, Sequence[str], Any, Sequence[Any], Any], None] | None = None
adopted: weakref.WeakSet[Any] = weakref.WeakSet()  # autotuners whose cache restores


def start(restorer: Restorer) -> None:
    """Patches the modules with autotuners, now or when the program has imported them."""
    global _restorer
    _restorer = restorer
    when_there(MODULES, patch)


def patch(module) -> None:
    """Wraps four functions of the module's Autotuner, once, if it is one that we know."""
    try:
        tuners = module.Autotuner
        init, bench, _, _ = tuners.__init__, tuners._bench, tuners.prune_configs, tuners.run
        if is_wrapped(init):
            return
    except AttributeError as error:
        log(f"{module.__name__} is not one that this wavetune knows "
            f"(python/wavetune/_runtime/restore.py, patch): {error}")
        return

    @functools.wraps(bench)
    def _bench(tuner, *args, **kwargs):
        cache, config = cache_of(tuner), kwargs.get("config")
        miss = cache.miss() if cache is not None else None
        if miss is None:
            return bench(tuner, *args, **kwargs)
        if miss.chosen is not None and miss.is_pruned:
            return [0.0 if config is miss.chosen else math.inf] * 3
        started = time.perf_counter()
        _restorer.start.set_provisional(miss.needs.setdefault(id(config), []))
        try:
            timing = bench(tuner, *args, **kwargs)
        finally:
            _restorer.start.set_provisional(None)
        miss.seconds += time.perf_counter() - started
        return timing

    tuners.__init__ = around(init, "an autotuner", after=lambda _, tuner, *__, **___: adopt(tuner))
    tuners._bench = _bench
    with quietly("finding autotuners"):
        _wrap_own(tuners)
        _adopt_existing(tuners)
        _adopt_running()


def _wrap_own(kind) -> None:
    """Wraps what a class of autotuners, or a base of it, has in the place of Triton's."""
    for name, wrapped in (("prune_configs", _wrapped_prune), ("run", _wrapped_run)):
        holder = next(one for one in kind.__mro__ if name in vars(one))
        function = vars(holder)[name]
        if isinstance(function, types.FunctionType) and not is_wrapped(function):
            setattr(holder, name, wrapped(function))
            vars(holder)[name].is_of_wavetune = True


def _wrapped_prune(prune):
    @functools.wraps(prune)
    def prune_configs(tuner, *args, **kwargs):
        found = prune(tuner, *args, **kwargs)
        if type(tuner).prune_configs is not prune_configs:
            return found  # to a derived class, which may prune further
        if hasattr(found, "__next__"):
            found = list(found)  # which is read once
        with quietly("choosing"):
            return _pruned(tuner, found, args[0] if args else kwargs.get("kwargs"))
        return found

    return prune_configs


def _wrapped_run(run):
    @functools.wraps(run)
    def watched(tuner, *args, **kwargs):
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


def _launched(cache: Restoring, own: Named) -> tuple[Any, Any]:
    """Key and config of a launch by a run() with these variables; of one that names them otherwise
    where the key is new."""
    if own.get("config") is not None or cache.looks:
        return own.get("key"), own.get("config")
    key = cache.latest.get(threading.get_ident())
    return key, cache.chosen.get(key, (None,))[0]


def _may_repeat(tuner, error: BaseException, repeats: int) -> bool:
    """Whether a launch that failed is made again, without the config that was chosen for it."""
    with quietly("repeating a launch"):
        cache = cache_of(tuner)
        if cache is None:
            return False
        cache.end_miss()
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
            cache.tuned.add(key)
        cache.forget(key)
        del cache.chosen[key]
        if is_hit:
            _count_unfit()
        log(f"a config of {_name(cache)} that was chosen does not run: {keys.members(config)}: "
            f"{text_of(error)}; "
            f"{'the program tunes' if key in cache.tuned else 'the next one is tried'}")
        return True
    return False


def _count_unfit() -> None:
    """Of a choice that was counted as a hit."""
    counters.hits -= 1
    counters.misses += 1
    counters.unfit += 1


def _pruned(tuner, found, launch):
    cache = cache_of(tuner)
    if type(cache) is Settled:
        cache.__class__, cache.looks = Restoring, 0
        _look_late(tuner, frames.running(tuner))
    miss = cache.miss() if cache is not None else None
    if miss is None or miss.is_pruned or not found:
        return found  # a warm-up, which asks for all of them
    miss.is_pruned = True
    if miss.wanted is not None:
        miss.chosen = _fitting(found, miss.wanted, miss.refused)
    elif not any(config is miss.chosen for config in found):
        miss.chosen = None
    if miss.chosen is None and miss.is_hit:  # not for these arguments
        miss.is_hit = False
        _count_unfit()
        log(f"a choice for {_name(cache)} is not one config that the program considers for this "
            f"key: {str(miss.wanted)[:200]}")
    if captured is not None and not miss.is_hit:
        captured(tuner, miss.key_texts, launch, found, miss.key)
    if miss.chosen is None and miss.policy == "first":
        miss.chosen = _first(found, miss.refused)
    if miss.chosen is None:
        return found
    if getattr(tuner, "cache_results", False):
        tuner.cache_results, miss.keeps = False, True  # until the key is set
    return [miss.chosen]


def adopt(tuner) -> None:
    """Gives the autotuner a cache that restores."""
    with quietly("an autotuner"):
        cache = tuner.cache
        if cache_of(tuner) is not None:
            return
        kind = RestoringDejavu if type(tuner).__module__.startswith("triton_dejavu") else Restoring
        if type(cache) is dict:
            tuner.cache = kind(tuner, cache)
        elif type(cache).__module__ == "wavetune.demand":
            cache.inner = kind(tuner, {})
        elif all(hasattr(type(cache), name)
                 for name in ("__contains__", "__getitem__", "__setitem__")):
            tuner.cache = RestoringStore(tuner, cache)
        if cache_of(tuner) is not None:
            _wrap_own(type(tuner))
        adopted.add(tuner)


def _adopt_existing(tuners) -> None:
    """Autotuners that were made before this module was imported."""
    import gc
    classes = [tuners]
    for kind in classes:  # which grows
        classes.extend(found for found in kind.__subclasses__() if found not in classes)
    for found in gc.get_referrers(*classes):  # an object refers to its class
        if type(found) in classes:
            adopt(found)


def _adopt_running() -> None:
    """An autotuner whose run() imported this module, by compiling its first config: the other
    configs need no benchmark where there is a choice."""
    own = frames.running_of(MODULES[0])
    tuner = own.get("self")
    cache = cache_of(tuner)
    if cache is None:
        return
    late = _look_late(tuner, own)
    if late is not None:
        late.is_pruned = True
        return
    miss = cache.end_miss()  # the first config's time is not known
    if captured is not None and miss is not None and own.get("pruned_configs"):
        captured(tuner, miss.key_texts, own.get("kwargs"), own["pruned_configs"], miss.key)


def _look_late(tuner, own: Named) -> Miss | None:
    """Looks for a choice for the key of an autotuner's run() with these variables, which has asked
    already whether the key is there: it takes the best of the timings."""
    cache, key = cache_of(tuner), own.get("key")
    if cache is None or not isinstance(key, tuple) or dict.__contains__(cache, key) or \
            not _restorer.restore(cache, key):
        return None
    miss = cache.begin_miss(Miss())
    miss.chosen, miss.is_hit = dict.pop(cache, key), True
    return miss
