"""Helion's remote cache over HTTP. Where programs start tuned, kernels use it without a variable;
by hand: HELION_AUTOTUNE_CACHE=RemoteAutotuneCache
HELION_REMOTE_CACHE_BACKEND=wavetune.helion.Backend.

Helion searches each kernel for minutes, and shares a file of JSON by a key that has the GPU's name
and the version of CUDA or ROCm. It makes a config of whatever the file says. So a value is given to
it only if each member is one that a search could choose, and the kernel's own specification accepts
the config.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import threading
from typing import Any

from ._runtime import counters
from ._runtime.found import BYTES_MAX, Bad, check_name, check_scalar, found, is_hash, refuse
from ._runtime.log import quietly
from .entry import is_on

TOOL = "helion"
VARIABLE, BACKEND = "HELION_AUTOTUNE_CACHE", "HELION_REMOTE_CACHE_BACKEND"
MEMBERS = {"config", "key", "flat_config", "backend_cache_key"}
MEMBERS_MAX, LEVELS_MAX = 64, 3
LIST_DEFAULT = 40

_asking = threading.local()  # .cache: the RemoteAutotuneCache whose get is running


def check(value: Any) -> dict[str, Any]:
    """That a value is what Helion writes; returns its config. Raises Bad."""
    if not isinstance(value, dict) or not {"config", "key"} <= set(value) <= MEMBERS:
        raise Bad("it is not the file of a config")
    key, flat = value["key"], _inner(value.get("flat_config"))
    if not isinstance(key, dict) or not isinstance(key.get("type"), str) or \
            not isinstance(key.get("fields"), dict) or \
            not all(isinstance(field, str) for field in key["fields"].values()):
        raise Bad("its key is not one of Helion")
    if not isinstance(value.get("backend_cache_key"), (str, type(None))):
        raise Bad("backend_cache_key is no string")
    if flat is not None:
        _check_value("flat_config", flat if isinstance(flat, list) else {}, LEVELS_MAX + 1)

    config = _inner(value["config"]) if isinstance(value["config"], str) else None
    if not isinstance(config, dict) or len(config) > MEMBERS_MAX:
        raise Bad("it has no config")
    for name, one in config.items():
        check_name(name)
        _check_value(name, one, LEVELS_MAX)
    return config


def _inner(value: Any) -> Any:
    """Helion stores JSON in strings."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise Bad("it has a text that is no JSON") from None


def _check_value(name: str, value: Any, levels: int) -> None:
    if isinstance(value, list) and levels > 0:
        for one in value:
            _check_value(name, one, levels - 1)
    else:
        check_scalar(name, value)


def get(key: str) -> str | None:
    shared, cache = found(), getattr(_asking, "cache", None)
    if shared is None or cache is None or not is_hash(key):
        return None
    value = shared.get(TOOL, key)
    if value is None:
        counters.misses += 1
        return None
    try:
        config = check(value)
        try:
            cache.kernel.config_spec.normalize(copy.deepcopy(config))
            cache._validate_config_policy(value)
        except Exception as error:
            raise Bad(f"the kernel's specification refuses it: {type(error).__name__}: "
                      f"{str(error)[:200]}") from None
    except Bad as why:
        refuse(TOOL, key, why)
        return None
    counters.hits += 1
    return json.dumps(value)


def put(key: str, data: str) -> None:
    shared = found()
    if shared is None or not is_hash(key) or len(data) > 4 * BYTES_MAX[TOOL]:
        return
    try:
        value = json.loads(data)
        check(value)
    except (Bad, ValueError, RecursionError):
        return  # has what nobody would take, such as a path
    shared.put(TOOL, key, value)


def newest(n: int) -> list[str]:
    shared = found()
    good = []
    for value in [] if shared is None else shared.newest(TOOL, n):
        try:
            check(value)
            good.append(json.dumps(value))
        except Bad as why:
            refuse(TOOL, "listed", why)
    return good


def _make_backend() -> type:
    """A subclass of Helion's class, which is only there when Helion is."""
    from helion.autotuner.remote_cache import RemoteCacheBackend

    class Backend(RemoteCacheBackend):
        """Nothing raises; without a server, every look-up is a miss."""

        def __init__(self) -> None:
            if is_on():
                from ._runtime.program import start
                start()  # which raises nothing

        def get(self, key: str) -> str | None:
            with quietly("a config of Helion"):
                return get(key)
            return None  # it raised

        def put(self, key: str, data: str) -> None:
            with quietly("a config of Helion to send"):
                put(key, data)

        def list(self, max_results: int | None = None) -> list[str]:
            with quietly("configs of Helion"):
                return newest(LIST_DEFAULT if max_results is None else max_results)
            return []  # it raised

    return Backend


def __getattr__(name: str) -> Any:
    if name == "Backend":
        globals()[name] = made = _make_backend()
        return made
    raise AttributeError(f"module 'wavetune.helion' has no attribute {name!r}")


# What found.py calls when Helion's modules have been imported.

def _is_free(variable: str) -> bool:
    return not os.environ.get(variable, "").strip()


def patch_settings(module: Any) -> None:
    """Kernels whose settings name no cache use the remote one. The environment stays as it is: a
    child may lack wavetune."""
    init = module.Settings.__init__

    @functools.wraps(init)
    def __init__(self: Any, *arguments: Any, **settings: Any) -> None:
        if _is_free(VARIABLE) and _is_free(BACKEND) and found() is not None:
            settings.setdefault("autotune_cache", "RemoteAutotuneCache")
        init(self, *arguments, **settings)

    module.Settings.__init__ = __init__


def patch_cache(module: Any) -> None:
    """Its backend is ours where no variable names one, and ours learns which kernel asks."""
    for name in ("_load_remote_backend", "_load_remote_backend_if_configured"):
        setattr(module, name, _loading(getattr(module, name)))
    for name in ("RemoteAutotuneCache", "StrictRemoteAutotuneCache"):
        cache = getattr(module, name)
        cache.get = _telling(cache.get)


def _loading(load: Any) -> Any:
    @functools.wraps(load)
    def loaded() -> Any:
        if _is_free(BACKEND) and found() is not None:
            return (globals().get("Backend") or __getattr__("Backend"))()
        return load()
    return loaded


def _telling(get_of: Any) -> Any:
    @functools.wraps(get_of)
    def got(self: Any) -> Any:
        before = getattr(_asking, "cache", None)
        _asking.cache = self
        try:
            return get_of(self)
        finally:
            _asking.cache = before
    return got
