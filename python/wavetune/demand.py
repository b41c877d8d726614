"""Reports to a wavetune server which keys a program's autotuners are asked for: `import
wavetune.demand` and `wavetune.demand.watch()`, or `python3 -m wavetune.demand SCRIPT|-m MODULE …`
(WAVETUNE_DEMAND=0 runs it unwatched).

Only functions that identity.json names are watched. A launch with a known key costs one update of a
dict; a thread of its own posts sums, at most one request a minute. It is never in the way: nothing
here raises into the program, what does not fit into bounded memory is dropped and counted, and a
server that is away is tried again ever more rarely (_runtime/wire.py).

$WAVETUNE_URL, $WAVETUNE_TOKEN (role demand), $WAVETUNE_IDENTITY (/etc/wavetune/identity.json),
$WAVETUNE_ENVIRONMENT (a JSON object; else what the identity says), $WAVETUNE_IMAGE (the identity's
digest), $WAVETUNE_TAG and $WAVETUNE_REGIME (those of the cache that the program was started with).
Over http:// to another host than loopback nothing is reported, because the token would travel
unencrypted, unless $WAVETUNE_INSECURE_HTTP is 1.
"""

from __future__ import annotations

import atexit
import functools
import json
import math
import os
import random
import sys
import time
import weakref
from typing import Any

from ._runtime.patching import when_there
from ._runtime.keys import typed
from ._runtime.log import quietly
from ._runtime.wire import Wire
from ._runtime.worker import Next, Worker

INTERVAL_S = 60.0
LAST_S = 1.0  # for the last report, when the program ends
ITEMS_MAX = 4096  # kept for the next report
BATCH_MAX = 500
_MODULES = ("triton.runtime.autotuner", "triton_dejavu.autotuner")
_SCALARS = (bool, int, float, str, type(None))
Json = dict[str, Any]  # such as a function's record in identity.json


class _Cache(dict):
    """An Autotuner's cache, which counts how often a key is found. `inner`: that of restore.py."""

    def __init__(self, known: dict[Any, Any], watcher: "Watcher", record: Json):
        super().__init__(known)
        self.inner: Any = known if type(known) is not dict else None
        self.watcher, self.record = watcher, record
        self.counts: dict[Any, int] = {}
        self.spent_s = 0.0
        self.best_ms: float | None = None

    def __contains__(self, key: Any) -> bool:
        found = dict.__contains__(self, key)
        if not found and self.inner is not None and key in self.inner:
            dict.__setitem__(self, key, self.inner[key])
            found = True
        if found:
            counts = self.counts
            if key in counts:
                counts[key] += 1
            elif len(counts) < ITEMS_MAX:
                counts[key] = 1
            else:
                self.watcher.dropped += 1
        return found

    def __setitem__(self, key: Any, config: Any) -> None:
        dict.__setitem__(self, key, config)
        if self.inner is not None:
            self.inner[key] = config
        if self.spent_s:
            self.watcher.missed(self.record, key, self.spent_s * 1000, self.best_ms)
            self.spent_s, self.best_ms = 0.0, None

    def benched(self, seconds: float, timing: Any) -> None:
        self.spent_s += seconds
        ms = _ms_of(timing)
        if ms is not None:
            self.best_ms = min(ms, self.best_ms or ms)


def _ms_of(timing: Any) -> float | None:
    ms = timing[0] if isinstance(timing, (list, tuple)) else timing
    return float(ms) if isinstance(ms, (int, float)) and 0 < ms < math.inf else None


def wavetune_key(record: Json, key: Any) -> Json | None:
    """The kernel's key of an autotuner's key tuple; None where the record does not say how."""
    names, members = record.get("key_names", []), record.get("tuning_key", [])
    values = [value for value in key if not (isinstance(value, str) and value.startswith("torch."))]
    if not names or len(values) != len(names) or len(members) != len(names):
        return None
    result: Json = {}
    for member, value in zip(members, map(typed, values)):
        if not member.isidentifier() or type(value) not in _SCALARS or \
                type(value) is float and not math.isfinite(value) or \
                result.setdefault(member, value) != value:
            return None
    return result


class Watcher:
    """`identity`: the parsed identity.json. All but patching happens in a thread of its own."""

    def __init__(self, identity: Json, wire: Wire, environment: Json,
                 image: str | None, interval_s: float = INTERVAL_S, tag: str | None = None,
                 regime: str | None = None):
        self.wire, self.interval_s = wire, interval_s
        stated = {"tag": tag, "regime": regime}
        self.head = {"environment": environment, "image": image} | \
            {name: value for name, value in stated.items() if value}
        self.records = {}
        for record in identity.get("functions") or []:
            function = record["function"]
            self.records[function["module"], function.get("qualname") or function["name"]] = record
        self.caches: list[weakref.ref[_Cache]] = []
        self.events: list[tuple[Any, ...]] = []
        self.pending: dict[tuple[str, str], list[Any]] = {}
        self.dropped = 0
        self.original: list[tuple[Any, str, Any]] = []
        self.finder: Any = None
        self.worker = Worker("demand", self._next)
        self.is_watching, self._due_s = False, 0.0

    # In the program's threads.

    def start(self) -> None:
        self.finder = when_there(_MODULES, self.patch)
        os.register_at_fork(after_in_child=self._after_fork)
        atexit.register(self.stop)
        self.is_watching = True
        self._wait()
        self.worker.wake()

    def _wait(self) -> None:
        # many containers start at once
        self._due_s = time.monotonic() + self.interval_s * random.uniform(0.8, 1.2)

    def _after_fork(self) -> None:
        """The parent reports what it counted; a child counts anew."""
        self.wire.after_fork()
        self.worker.after_fork()
        if self.is_watching:
            for cache in self._alive():
                cache.counts = {}
            self.events, self.pending = [], {}
            self.worker.wake()

    def stop(self) -> None:
        """Posts what is left, in at most LAST_S."""
        self.worker.end(LAST_S)
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)  # type: ignore[arg-type]
        for holder, name, value in self.original:
            setattr(holder, name, value)
        self.original = []

    def patch(self, module: Any) -> None:
        with quietly("watching autotuners"):
            knobs = getattr(sys.modules.get("triton"), "knobs", None)
            self._patch(module.Autotuner, getattr(knobs, "autotuning", None)
                        if module.__name__ == _MODULES[0] else None)

    def _patch(self, tuners: Any, knobs: Any) -> None:
        init, bench = tuners.__init__, tuners._bench

        @functools.wraps(init)
        def watched_init(tuner: Any, *args: Any, **kwargs: Any) -> None:
            init(tuner, *args, **kwargs)
            self.adopt(tuner)

        @functools.wraps(bench)
        def watched_bench(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            timing = bench(tuner, *args, **kwargs)
            with quietly("a benchmark"):
                if type(tuner.cache) is _Cache:
                    tuner.cache.benched(time.perf_counter() - started, timing)
            return timing

        self._replace(tuners, "__init__", watched_init)
        if hasattr(knobs, "listener"):
            self._listen(knobs)
        else:
            self._replace(tuners, "_bench", watched_bench)
        import gc
        for found in gc.get_objects():  # those made before
            if type(found) is tuners:
                self.adopt(found)

    def _replace(self, holder: Any, name: str, value: Any) -> None:
        self.original.append((holder, name, getattr(holder, name)))
        setattr(holder, name, value)

    def _listen(self, knobs: Any) -> None:
        """Triton since 3.8 tells a listener of what it tuned."""
        before = knobs.listener

        def listener(**told: Any) -> None:
            with quietly("what was tuned"):
                record = self._record(told["fn"])
                if record is not None and not told["cache_hit"]:
                    timing = told["configs_timings"][told["best_config"]]
                    self.missed(record, told["key"], told["duration"] * 1000, _ms_of(timing))
            if before is not None:
                before(**told)

        self._replace(knobs, "listener", listener)

    def _record(self, function: Any) -> Json | None:
        while not hasattr(function, "cache_key"):
            function = function.fn
        return self.records.get((function.__module__, function.fn.__qualname__))

    def adopt(self, tuner: Any) -> None:
        with quietly("watching an autotuner"):
            record = self._record(tuner)
            is_ours = type(tuner.cache).__module__ == "wavetune._runtime.restore"
            if record is not None and (type(tuner.cache) is dict or is_ours):
                tuner.cache = _Cache(tuner.cache, self, record)
                self.caches.append(weakref.ref(tuner.cache))

    def missed(self, record: Json, key: Any, tuning_ms: float, kernel_ms: Any) -> None:
        if len(self.events) < ITEMS_MAX:
            self.events.append((record, key, tuning_ms, kernel_ms))
        else:
            self.dropped += 1

    # In the thread.

    def _alive(self) -> list[_Cache]:
        return [cache for cache in (reference() for reference in self.caches) if cache is not None]

    def _add(self, record: Json, key: Any, hits: int, misses: int, tuning_ms: float,
             kernel_ms: Any) -> None:
        own = wavetune_key(record, key)
        if own is None:
            self.dropped += 1
            return
        place = (record.get("kernel") or record["name"], json.dumps(own, sort_keys=True))
        if place not in self.pending and len(self.pending) >= ITEMS_MAX:
            self.dropped += 1
            return
        item = self.pending.setdefault(place, [0, 0, 0.0, None])
        item[0], item[1], item[2] = item[0] + hits, item[1] + misses, item[2] + tuning_ms
        if kernel_ms is not None:
            item[3] = kernel_ms

    def collect(self) -> None:
        """Takes what was counted into the sums that are to be posted."""
        events, self.events = self.events, []
        for record, key, tuning_ms, kernel_ms in events:
            self._add(record, key, 0, 1, tuning_ms, kernel_ms)
        for cache in self._alive():
            counts, cache.counts = cache.counts, {}
            for key, n in list(counts.items()):  # a thread may still hold the old dict
                self._add(cache.record, key, n, 0, 0.0, None)
        self.caches = [reference for reference in self.caches if reference() is not None]

    def post(self) -> bool:
        """Posts the sums; what the server did not take stays. Whether it took all."""
        while self.pending:
            batch = list(self.pending.items())[:BATCH_MAX]
            items = [{"kernel": kernel, "key": json.loads(key), "hits": hits, "misses": misses,
                      "tuning_ms": tuning_ms or None, "kernel_ms": kernel_ms}
                     for (kernel, key), (hits, misses, tuning_ms, kernel_ms) in batch]
            answer = self.wire.request("POST", "/v1/demand",
                                       json.dumps({**self.head, "items": items}).encode(),
                                       {"Content-Type": "application/json"}, background=True)
            if answer is None or answer.status >= 300:
                return False
            for place, _ in batch:
                del self.pending[place]
        return True

    def _next(self) -> Next:
        if self.worker.is_ended:
            is_left, self.is_watching = self.is_watching, False
            return self._report if is_left else None
        wait_s = self._due_s - time.monotonic()
        return wait_s if wait_s > 0 else self._report

    def _report(self) -> None:
        self._wait()
        self.collect()
        self.post()


_watcher: Watcher | None = None


def watch(**more: Any) -> bool:
    """Starts watching, once in a process; whether it does. `more`: identity (parsed), url, token,
    insecure_http, environment, image, tag, regime, interval_s, in place of the variables."""
    global _watcher
    with quietly("watching for demand"):
        if _watcher is None:
            settings = _settings(more)
            if settings is not None:
                _watcher = Watcher(**settings)
                _watcher.start()
        return _watcher is not None
    return False


def _settings(more: Json) -> Json | None:
    variables = os.environ

    def stated(name: str) -> Any:
        return more.get(name) or variables.get(f"WAVETUNE_{name.upper()}")

    url, token = stated("url"), stated("token")
    if not token and "wavetune._runtime.settings" in sys.modules:
        token = sys.modules["wavetune._runtime.settings"].taken_token()  # it took the variable away
    if not url or not token:
        return None
    from ._token_url import insecure_http, refusal
    why = refusal(url, bool(more.get("insecure_http", insecure_http(variables))))
    if why is not None:
        print(f"wavetune.demand: {why}", file=sys.stderr)
        return None
    identity = more.get("identity")
    if identity is None:
        with open(variables.get("WAVETUNE_IDENTITY", "/etc/wavetune/identity.json"),
                  encoding="utf-8") as file:
            identity = json.load(file)
    environment = more.get("environment")
    if environment is None and "WAVETUNE_ENVIRONMENT" in variables:
        environment = json.loads(variables["WAVETUNE_ENVIRONMENT"])
    if environment is None:
        triton = (identity.get("triton") or {}).get("version")
        known = {**{name: identity.get(name) for name in ("rocm", "torch", "gpu")},
                 "triton": triton}
        environment = {name: value for name, value in known.items() if value}
    image = stated("image")
    if image is None:
        from ._canonical import digest
        image = digest(identity)
    wire = Wire(url, token, ca_file=variables.get("WAVETUNE_CA_FILE"), insecure=True)
    return {
        "identity": identity, "wire": wire, "environment": environment, "image": image,
        "tag": stated("tag"), "regime": stated("regime"),
        "interval_s": more.get("interval_s", INTERVAL_S)
    }


def main(argv: list[str]) -> int:
    """Runs a script or a module as python3 would, watched."""
    if not argv or argv[0] == "-m" and len(argv) < 2:
        print("usage: python3 -m wavetune.demand SCRIPT|-m MODULE ARGUMENT…", file=sys.stderr)
        return 2
    if os.environ.get("WAVETUNE_DEMAND") != "0":
        # this module is __main__, the program may import it again
        from wavetune.demand import watch as watch_imported
        watch_imported()
    from ._runtime.running import execute
    return execute("wavetune.demand", argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
