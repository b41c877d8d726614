"""Inductor's autotuner (torch.compile) starts with what other containers found, and sends what it
finds.

Three methods of torch._inductor.runtime.autotune_cache.AutotuneCache are wrapped: `create`,
`read_best`, which asks the server where the local file has nothing, and `save`. Inductor's own
remote cache builds a config of whatever it reads; here only a config is taken that the program
itself would try, compared member by member, or that Inductor's coordinate descent, where it is on,
could reach from one. Results of FX, AOTAutograd and PGO are pickles: they are never asked for.

Inductor looks configs up in processes that compile: they need the installed wheel and
$WAVETUNE_TOKEN_FILE.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import sys
from typing import Any, Sequence

from .._canonical import Named
from . import counters
from .found import Bad, check_name, check_scalar, found, is_hash, refuse
from .log import quietly
from .patching import around

TOOL = "inductor"
MEMBERS_MAX = 64
# What Inductor stores beside a config.
NOTES = {"configs_hash", "found_by_coordesc", "time_taken_ms", "triton_cache_hash"}
# Of warp specialisation, which only some Tritons have; 0 where it is off.
WARP_SPECIALISED = ("num_consumer_groups", "num_buffers_warp_spec")
# Kernels with further rules for their blocks: of them, only configs that the program would try are
# taken.
RULED = ("RSPLIT_SIZE", "uses_tma", "combo_grid_meta", "native_matmul_persistent_rblock",
         "strict_reduction_rblock", "fixed_grid")
# Modes in which the order of sums must not depend on what was measured.
FIXED = ("deterministic", "batch_invariant", "are_deterministic_algorithms_enabled")


def check(value) -> Named:
    """That a value is what Inductor writes. Raises Bad."""
    if not isinstance(value, dict) or len(value) > MEMBERS_MAX:
        raise Bad("it is no config")
    for name, one in value.items():
        check_name(name)
        check_scalar(name, one)
    if type(value.get("num_warps")) is not int or type(value.get("num_stages")) is not int or \
            not is_hash(value.get("configs_hash")):
        raise Bad("it lacks num_warps, num_stages or configs_hash")
    return value


def members(config) -> Named:
    """A config of the program, as Inductor would store it."""
    return {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}


def limits(meta: Named) -> dict[str, int]:
    """What a descent may change in a kernel that Inductor generated, with the largest value. Such a
    kernel is right for each power of two up to it: its masks are left out by the same bounds. {}:
    the kernel has further rules."""
    if any(meta.get(name) for name in RULED):
        return {}
    blocks = getattr(sys.modules.get("torch._inductor.runtime.hints"), "TRITON_MAX_BLOCK", {})
    warps = (meta.get("max_threads_per_block") or 1024) // (meta.get("warp_size") or 32)
    return {
        **{f"{name}BLOCK": most for name, most in blocks.items()}, "num_warps": warps,
        "waves_per_eu": 8
    }


def choose(value: Named, configs: Sequence[Any], configs_hash: str, meta: Named):
    """The one of `configs` that a checked value names, or reached by a descent. Raises Bad."""
    if value["configs_hash"] != configs_hash:
        raise Bad("it was chosen from other configs")
    stated = {name: one for name, one in value.items() if name not in NOTES and
              not (name in WARP_SPECIALISED and one == 0)}
    is_descended = value.get("found_by_coordesc") is True and bool(
        meta.get("coordinate_descent_tuning"))
    for reaches in (_is_same, _is_reached) if is_descended else (_is_same,):
        fitting = [
            config for config in configs if reaches(_filled(stated, config), members(config), meta)
        ]
        if reaches is _is_same and len(fitting) > 1:
            raise Bad("it fits several of the program's configs")
        if fitting:
            return _made(fitting[0], stated) if is_descended else fitting[0]
    raise Bad("it is none of the program's configs")


def _filled(stated: Named, config) -> Named:
    """Inductor takes XBLOCK out of the configs of kernels that have no such argument, after it
    looked them up and before it saves one."""
    return {"XBLOCK": 1, **stated} if config.kwargs.get("XBLOCK") == 1 else stated


def _is_same(stated: Named, own: Named, _: Named) -> bool:
    return set(stated) == set(own) and all(
        _is_equal(one, own[name]) for name, one in stated.items())


def _is_equal(one, other) -> bool:
    return type(one) is type(other) and one == other  # True is not 1


def _is_reached(stated: Named, own: Named, meta: Named) -> bool:
    added = set(stated) - set(own)  # on ROCm a descent adds waves_per_eu
    if set(own) - set(stated) or added - ({"waves_per_eu"} if meta.get("is_hip") else set()):
        return False
    most = limits(meta)
    for name, one in stated.items():
        if name in own and _is_equal(one, own[name]):
            continue
        least = {"XBLOCK": meta.get("min_xblock"), "R0_BLOCK": meta.get("min_rblock")
                 }.get(name) or 1
        if type(one) is not int or not least <= one <= most.get(name, 0) or one & (one - 1):
            return False
    return True


def _made(config, stated: Named):
    """A copy with the stated members; Inductor will not descend from it again."""
    made = copy.deepcopy(config)
    for name, one in stated.items():
        if name in ("num_warps", "num_stages"):
            setattr(made, name, one)
        else:
            made.kwargs[name] = one
    made.found_by_coordesc = True
    return made


# What is wrapped. An AutotuneCache is pickled between processes, and into the local cache of FX
# graphs: what is remembered in it is plain text, which a process without wavetune ignores.

def remember(cache, inductor_meta: Named, filename: str, *_, **__) -> None:
    """Gives the cache its key on the server. Like Inductor's own, it has torch, Triton and its
    backend, the kernel's text, and the list of configs."""
    meta, backend = inductor_meta, inductor_meta.get("backend_hash")
    if cache is None or found() is None or not isinstance(backend, str) or \
            meta.get("autotune_remote_cache") is False or any(map(meta.get, FIXED)):
        return
    from torch._inductor.codecache import torch_key
    parts = (torch_key().hex(), backend, cache.configs_hash, type(cache)._prepare_key(filename))
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    cache.wavetune = (key, bool(meta.get("coordinate_descent_tuning")))


def _remembered(cache) -> tuple[str, bool]:
    """The key on the server, "" where there is none, and whether a descent follows."""
    return getattr(cache, "wavetune", ("", False))


def look_up(cache, meta: Named, configs: Sequence[Any]):
    shared, (key, _) = found(), _remembered(cache)
    if shared is None or not is_hash(key):
        return None
    value = shared.get(TOOL, key)
    if value is None:
        counters.misses += 1
        return None
    try:
        config = choose(check(value), configs, cache.configs_hash, meta)
    except Bad as why:
        counters.unfit += 1
        refuse(TOOL, key, why)
        return None
    counters.hits += 1
    taken = value.get("time_taken_ms")
    counters.saved_ms += max(0, taken) if isinstance(taken, int) else 0
    return config


def send(cache, config, time_taken_ns: int, found_by_coordesc: bool = False,
         triton_cache_hash=None) -> None:
    shared, (key, descends) = found(), _remembered(cache)
    # Where a descent follows, Inductor saves twice: what it descends from, with a hash of the
    # compiled code, and what it reached.
    is_last = found_by_coordesc and triton_cache_hash is None if descends else not found_by_coordesc
    if shared is None or not is_hash(key) or not is_last or getattr(config, "extra_options", None):
        return
    value = {
        **members(config), "configs_hash": cache.configs_hash,
        "found_by_coordesc": bool(found_by_coordesc),
        "time_taken_ms": min(int(time_taken_ns) // 1000000, 2**31 - 1)
    }
    try:
        check(value)
    except Bad:
        return  # nobody would take it
    shared.put(TOOL, key, value)


def patch(module) -> None:
    """Wraps the methods of torch._inductor.runtime.autotune_cache.AutotuneCache."""
    owner = module.AutotuneCache
    read_best = owner.read_best

    @functools.wraps(read_best)
    def read(self, inductor_meta, configs):
        best = read_best(self, inductor_meta, configs)
        if best is None:
            with quietly("Inductor's look_up"):
                return look_up(self, inductor_meta, configs)
        return best

    owner.create = staticmethod(around(owner.create, "Inductor's remember", after=remember))
    owner.read_best = read
    owner.save = around(owner.save, "Inductor's send",
                        after=lambda _, *args, **kwargs: send(*args, **kwargs))
