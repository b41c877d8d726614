"""Records launches, so that kernels can be built, tuned and restored without anybody describing
them (docs/capture.md).

In the program's threads: on an autotuner's miss, when Triton makes another specialisation of a key,
and at the first launch of each specialisation (_watch) of the functions that
$WAVETUNE_CAPTURE_FUNCTIONS names, the launch becomes a document (launch.py). In the recorder's own
thread: texts are collected (texts.py), contents are classed (contents.py), documents are written to
the folder $WAVETUNE_CAPTURE_TO, which several processes may share, and posted to the server.

Nothing is raised into the program; what is not recorded is counted and logged. Nothing happens
while a stream is captured.
"""

from __future__ import annotations

import atexit
import contextlib
import fnmatch
import functools
import gc
import hashlib
import json
import os
import sys
import time
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from .._canonical import Named, canonical, digest
from . import counters, frames, keys, restore
from .closure import closure as closure_of
from .closure import jit_function
from .contents import class_of
from .effects import is_descriptor, is_tensor
from .environment import triton_version
from .launch import Launch, arguments_of, configs_of, given_to, name_of, specialised
from .log import log, quietly
from .patching import around, is_wrapped, when_there
from .settings import Settings
from .texts import Uncapturable, function_document
from .texts import name_of as function_name
from .values import encode
from .wire import BODY_MAX, JSON, Wire
from .worker import Next, Worker

KEYS_MAX = 4096  # launches of one function, those of all its keys and their specialisations
SPECIALISATIONS_MAX = 16  # launches of one key
VALUES_MAX = 32  # of a number that a table's function is called with
LEFT_OUT_MAX = 4096  # launches that were not recorded, each of which is counted once
QUEUE_MAX, QUEUE_BYTES_MAX = 256, 64 << 20
FOLDER_S, LAST_S = 10.0, 0.5  # at the program's end, for the folder, and then for the server
POST_MAX = 64  # documents in a request
GATHER_S, RETRY_S = 10.0, 30.0
_JIT, _COMPILER = "triton.runtime.jit", "triton.compiler.compiler"


class _losing(quietly):
    """Where an exception costs a capture."""

    def __exit__(self, kind, error, trace) -> bool:
        counters.captures_lost += isinstance(error, Exception)
        return super().__exit__(kind, error, trace)


class _Call(NamedTuple):
    """What is recorded, in the program's thread."""

    tuner: Any  # None without an autotuner
    jit: Any
    closure: str
    key_texts: Sequence[str]
    positional: Mapping[str, Any]
    keywords: Named
    configs: Sequence[Any]
    key: Any = None  # the tuner's, which may state an argument rounded; None: the arguments' values
    is_further: bool = False  # not the first launch of its key: it tells only what to compile


class _Recorded(NamedTuple):
    """A launch that is to be written."""

    closure: str
    jit: Any
    tuner: Any
    cache_key: Any
    launch: Launch


class Recorder:
    """`wire`: None without a server, and where texts would travel unencrypted."""

    def __init__(self, settings: Settings, wire: Wire | None):
        self.settings, self.wire = settings, wire
        self.is_raw = settings.capture == "raw"
        self.folder = settings.capture_to
        self.unmet = set(settings.capture_functions)  # patterns that no function has met
        identity = settings.identity()
        self.image = settings.stated_image or (digest(identity) if identity else None)
        self._worker = Worker("capture", self._next)
        self.after_fork()
        atexit.register(self.stop)

    def after_fork(self) -> None:
        """In the child: the parent writes what it queued."""
        self._worker.after_fork()
        self._queue: list[_Recorded] = []
        self._is_watched = self._is_writing = False
        self._seen: dict[str, set[str]] = {}  # names of launches by closure
        # number of launches, and configs of the first one
        self._keys: dict[tuple[str, tuple[str, ...]], list[Any]] = {}
        self._left_out: set[tuple[str, str]] = set()  # launches that are counted as lost
        # closures whose document was tried, and whether there is one
        self._functions: dict[str, bool] = {}
        self._places: dict[str, int] = {}  # launches in the folder by closure
        self._closures: dict[int, tuple[Any, str | None]] = {}  # of functions without an autotuner
        self._unposted: list[tuple[str, Any]] = []
        self._may_post, self._post_after = self.wire is not None, 0.0
        self._broken_until = 0.0  # the folder

    # In the program's threads.

    def missed(self, tuner, key_texts: Sequence[str], keywords, configs: Sequence[Any],
               key=None) -> None:
        """restore.captured: an autotuner is about to tune a key, or takes a config by policy."""
        with _losing("capturing a launch"):
            cache, jit = restore.cache_of(tuner), jit_function(tuner)
            positional = getattr(tuner, "nargs", None)
            closure = cache.closure() if cache is not None else None
            if closure is None or jit is None or not isinstance(positional, Mapping) or \
                    not isinstance(keywords, Mapping):
                counters.captures_lost += 1
                return
            self._record(_Call(tuner, jit, closure, key_texts, positional, dict(keywords), configs,
                               None if cache.is_text else key))

    def compiles(self, jit, is_new: bool) -> None:
        """Triton needs a specialisation of a function that this process did not have, for the
        launch that calls us; `is_new`: and no cache has it. It is recorded where another launch of
        the autotuner's key was, and where the key has a choice whose signed code lacks it."""
        with _losing("capturing a specialisation"):
            run = frames.launching(jit, jit_function)
            if run is None:
                # compiled by none of this autotuner's launches, or measured: missed() has that one
                return
            tuner, key, args, keywords = map(run.get, ("self", "key", "args", "kwargs"))
            cache, closure, key_texts = restore.cache_of(tuner), None, None
            if cache is not None and key is not None:
                closure, key_texts = cache.closure(), keys.key_texts(key, cache.is_text)
            if closure is None or key_texts is None or not isinstance(args, tuple) or \
                    not isinstance(keywords, Mapping):
                counters.captures_lost += 1
                return
            known, config = self._keys.get((closure, key_texts)), run.get("config")
            if known is not None:
                configs = known[1]
            elif not is_new or not self.settings.trusted_keys:
                return
            elif config is not None and tuner.early_config_prune is not None:
                configs = [config]
            else:
                configs = tuner.configs
            self._record(_Call(tuner, jit, closure, key_texts, dict(zip(tuner.arg_names, args)),
                               dict(keywords), configs, None if cache.is_text else key, True))

    def launched(self, jit, positional: Named, keywords: Named) -> None:
        """A function that $WAVETUNE_CAPTURE_FUNCTIONS names is launched with a specialisation that
        it was not launched with before. Its key is all that it is called with beside tensors."""
        if id(jit) not in self._closures:
            self._closures[id(jit)] = jit, closure_of(jit)
        closure = self._closures[id(jit)][1]
        if closure is None:
            counters.captures_lost += 1
            return
        given = given_to(jit, positional, keywords)
        key_texts = keys.key_texts(tuple(value for value in given.values() if not is_tensor(value)))
        self._record(_Call(None, jit, closure, key_texts or (), positional, keywords, [None]))

    def _record(self, call: _Call) -> None:
        started, launch = time.perf_counter(), Launch()
        tuner, jit, keywords = call.tuner, call.jit, call.keywords
        of_configs = (launch, tuner, jit, call.positional, keywords, call.configs)
        given = given_to(jit, call.positional, keywords)
        configs = []
        is_in_graph = is_capturing()
        if not is_in_graph and tuner is not None and \
                (tuner.fn is not jit or any(map(is_descriptor, given.values()))):
            # Heuristics and block shapes may tell it from others.
            configs = configs_of(*of_configs)
        name = name_of(call.key_texts, jit, given, configs)
        n_before = self._admit(call, name, is_in_graph)
        if n_before is None:
            return

        configs = configs or configs_of(*of_configs)
        is_further = call.is_further or n_before > 0
        left_out = {name for config in call.configs if config is not None
                    for name in config.kwargs}.union(launch.heuristics)
        arguments = arguments_of(launch, jit, given, left_out, not is_further)
        no_options = {parameter.name for parameter in jit.params} | {"grid", "warmup"}
        options = {name: _typed(value) for name, value in keywords.items()
                   if name not in no_options}
        if tuner is None:
            values, configs[0]["config"], options = given, options, {}
            key_names = [name for name, value in given.items() if not is_tensor(value)]
        else:
            values = {**call.positional, **keywords}
            key_names = [str(name) for name in tuner.keys
                         if name in values and name in tuner.arg_names]
            if isinstance(call.key, tuple) and len(call.key) >= len(key_names):
                values.update(zip(key_names, call.key))
        launch.document = {
            "version": 1, "key": list(call.key_texts), "key_names": key_names,
            "key_values": [_typed(values[name]) for name in key_names],
            "environment": self.settings.environment(), "image": self.image,
            "triton": triton_version(), "options": options, "variables": _variables(),
            "arguments": arguments, "configs": configs, "initial": launch.initial,
            "all": len(tuner.configs) if tuner is not None else 1, "refused": launch.refused,
            "specialisation": name, "further": is_further
        }
        counters.capture_ms += (time.perf_counter() - started) * 1000
        try:
            cache_key = jit.cache_key  # which Triton makes next, and keeps
        except Exception:  # Triton says so when it compiles; the builder makes the key itself
            cache_key = None
        with self._worker.condition:
            launches = [launch, *(item.launch for item in self._queue)]
            size = sum(len(data) for one in launches for _, _, data in one.integers)
            if len(launches) > QUEUE_MAX or size > QUEUE_BYTES_MAX:
                counters.captures_lost += 1
                self._seen[call.closure].discard(name)
                return
            self._queue.append(_Recorded(call.closure, jit, tuner, cache_key, launch))
            if not self._is_watched:
                self._is_watched = True
                _when_child_ends(self.stop)
            self._worker.wake()

    def _admit(self, call: _Call, name: str, is_in_graph: bool) -> int | None:
        """How many launches of the key were recorded; None: this one is not to be."""
        with self._worker.condition:
            seen = self._seen.setdefault(call.closure, set())
            place = call.closure, tuple(call.key_texts)
            of_key = self._keys.get(place, [0, list(call.configs)])
            if name in seen:
                return None
            if len(seen) >= KEYS_MAX or of_key[0] >= SPECIALISATIONS_MAX or is_in_graph:
                if (call.closure, name) not in self._left_out:
                    counters.captures_lost += 1
                    if len(self._left_out) < LEFT_OUT_MAX:
                        self._left_out.add((call.closure, name))
                return None
            seen.add(name)
            self._keys[place] = of_key
            of_key[0] += 1
            return of_key[0] - 1

    def stop(self) -> None:
        """Writes for FOLDER_S and posts for LAST_S at most; the rest is lost and counted."""
        unmet, self.unmet = self.unmet, set()
        for pattern in sorted(unmet):
            log(f"WAVETUNE_CAPTURE_FUNCTIONS: {pattern[:200]} matches no function; names are "
                f"MODULE:FUNCTION, and * stands for any text")
        if self.folder is not None:
            self._worker.end(FOLDER_S, lambda: not self._queue and not self._is_writing)
        self._worker.end(LAST_S)
        with self._worker.condition:
            left = len(self._queue)
            self._queue.clear()
        if left:
            counters.captures_lost += left
            log(f"{left} launches were captured and not written before the program's end")

    # In the thread.

    def _next(self) -> Next:
        if self._queue:
            items, self._queue, self._is_writing = self._queue, [], True
            return lambda: self._write_all(items)
        if not self._unposted or not self._may_post:
            return None
        wait_s = self._post_after - time.monotonic()
        return wait_s if wait_s > 0 and not self._worker.is_ended else self._post

    def _write_all(self, items: Sequence[_Recorded]) -> None:
        for item in items:
            with _losing("writing a capture"):
                self._write(item)
        with self._worker.condition:
            self._is_writing = False
            self._worker.condition.notify_all()

    def _write(self, item: _Recorded) -> None:
        closure, launch = item.closure, item.launch
        hexdigits = closure.partition(":")[2]
        if closure not in self._functions:
            self._functions[closure] = False
            try:
                document = function_document(item.jit, closure, item.tuner, launch.heuristics,
                                             item.cache_key)
            except (Uncapturable, OSError, SyntaxError, TypeError, ValueError) as error:
                log(f"{function_name(item.jit)} is not captured: {error}")
            else:
                self._functions[closure] = True
                self._keep("functions", f"{hexdigits}.json", document)
        if not self._functions[closure]:
            counters.captures_lost += 1
            return
        for argument, dtype, data in launch.integers:
            argument["contents"] = class_of(data, dtype)
            if self.is_raw and argument["contents"]["class"] not in ("constant", "ramp"):
                blob = hashlib.sha256(data).hexdigest()
                argument["contents"] = {"class": "blob", "digest": f"sha256:{blob}"}
                self._store("blobs", blob, data)
        name = f"{hexdigits}-{launch.document['specialisation']}.json"
        if self._keep("launches", name, {**launch.document, "closure": closure}, closure):
            counters.captures += 1
        else:
            counters.captures_lost += 1

    def _keep(self, kind: str, name: str, document, closure: str | None = None) -> bool:
        """Whether the document is in the folder or will be posted."""
        is_kept = False
        if self._may_post:
            if not self._unposted:
                # a start launches many
                self._post_after = max(self._post_after, time.monotonic() + GATHER_S)
            if len(self._unposted) < 2 * QUEUE_MAX:
                self._unposted.append((kind, document))
                is_kept = True
        if self.folder is not None and (closure is None or self._has_place(closure, name)):
            is_kept = self._store(kind, name, canonical(document).encode()) or is_kept
        return is_kept

    def _has_place(self, closure: str, name: str) -> bool:
        """Whether the folder has room for a launch of the function, from any process."""
        folder = os.path.join(str(self.folder), "launches")
        if closure not in self._places:
            start = closure.partition(":")[2] + "-"
            try:
                self._places[closure] = sum(one.startswith(start) for one in os.listdir(folder))
            except OSError:
                self._places[closure] = 0
        if self._places[closure] >= KEYS_MAX and not os.path.exists(os.path.join(folder, name)):
            return False
        self._places[closure] += 1
        return True

    def _store(self, kind: str, name: str, data: bytes) -> bool:
        """Writes a file whole, unless it is there."""
        if self.folder is None or time.monotonic() < self._broken_until:
            return False
        folder = os.path.join(self.folder, kind)
        path, part = os.path.join(folder, name), os.path.join(folder, f".{name}.{os.getpid()}.part")
        try:
            if os.path.exists(path):
                return True
            os.makedirs(folder, mode=0o700, exist_ok=True)
            with open(part, "wb") as file:
                file.write(data)
            os.replace(part, path)
            return True
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(part)
            self._broken_until = time.monotonic() + RETRY_S
            log(f"the folder of captures cannot be written: {error}; nothing is written for "
                f"{RETRY_S:.0f} s")
            return False

    def _post(self) -> None:
        batch = POST_MAX
        while self._unposted and self._may_post:
            batch = min(batch, len(self._unposted))
            body = body_of(self._unposted[:batch])
            if len(body) > BODY_MAX and batch > 1:
                batch //= 2
                continue
            answer = self.wire.request("POST", "/v1/captures", body, JSON, background=True)
            if answer is None or answer.status == 429:
                self._post_after = time.monotonic() + RETRY_S
                self._may_post = not self._worker.is_ended  # at the end it is tried once
                return
            if answer.status < 300:
                counters.sent += batch
            elif answer.status in (403, 404):  # a token that may not, or a server without captures
                self._may_post = False
                batch = len(self._unposted)
                counters.dropped += batch
            elif batch > 1:
                batch //= 2  # one of them is not taken: the others are
                continue
            else:
                counters.dropped += 1
            if answer.status >= 300 and answer.status != 404:
                answer.log("POST /v1/captures")
            del self._unposted[:batch]
            batch = POST_MAX


def _when_child_ends(stop: Callable[[], None]) -> None:
    """In a process that multiprocessing has forked: before Python 3.13 it ends without atexit."""
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, stop, exitpriority=0)


def body_of(documents: Sequence[tuple[str, Any]]) -> bytes:
    """What is posted: the documents of the folder, functions before launches."""
    body = {"functions": [], "launches": []}
    for kind, document in documents:
        body[kind].append(document)
    return json.dumps(body, separators=(",", ":")).encode()


def _variables() -> dict[str, str]:
    """Those that Triton makes its key of beside what is compiled, as it reads them."""
    try:
        from triton._C.libtriton import get_cache_invalidating_env_vars
        return {str(name): str(value) for name, value in get_cache_invalidating_env_vars().items()}
    except (ImportError, AttributeError):  # of an older Triton
        return {}


def _typed(value):
    """A member of a key: a type by its name, as keys have scalars only."""
    try:
        return encode(keys.keyed(value))
    except ValueError:
        return {"text": repr(value)[:1000]}


def is_capturing() -> bool:
    """Whether the launch goes into a CUDA or HIP graph."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda is not None and bool(cuda.is_initialized()) and bool(
        cuda.is_current_stream_capturing())


# Further specialisations of an autotuner's key.

def _patch_compiling(recorder: Recorder, holder: str, name: str, is_new: bool, module) -> None:
    """Calls the recorder before a method of module.holder, called for each specialisation."""
    methods = getattr(module, holder, None)
    method = getattr(methods, name, None)
    if method is None:
        log(f"further specialisations are not recorded: {module.__name__} has no {holder}.{name}")
    elif not is_wrapped(method):
        setattr(methods, name, around(
            method, "capturing a specialisation",
            before=lambda own, *_, **__: recorder.compiles(
                getattr(own, "fn", None) if is_new else own, is_new)))


# Functions without an autotuner, by name.

def _watch(jit, recorder: Recorder) -> None:
    """Replaces run() of this one function. One whose config comes from a table has constexprs in
    capitals, and another key for each shape: of its numbers the first values are told apart too,
    then powers of two."""
    if "run" in vars(jit):
        return
    run, names = jit.run, [parameter.name for parameter in jit.params]
    constexprs = {parameter.name for parameter in jit.params if parameter.is_constexpr}
    is_of_table = any(len(name) > 1 and name.isupper() for name in constexprs)
    seen: set[str] = set()
    values: dict[str, set[int]] = {name: set() for name in names}

    def told_apart(name: str, value):
        if name in constexprs:
            return str(value)
        if not is_of_table or type(value) is not int or name not in values:
            return specialised(value)
        known = values[name]
        if len(known) < VALUES_MAX:
            known.add(value)
        return value if value in known else [*specialised(value), value.bit_length()]

    @functools.wraps(run)
    def watched(*args, **kwargs):
        with _losing("capturing a launch"):
            key = str([told_apart(name, value) for name, value in zip(names, args)] +
                      [(name, told_apart(name, value)) for name, value in kwargs.items()
                       if name != "grid"])
            if key not in seen and len(seen) < KEYS_MAX and not is_capturing():
                seen.add(key)
                if not frames.is_tuned():
                    recorder.launched(jit, dict(zip(names, args)), dict(kwargs))
        return run(*args, **kwargs)

    jit.run = watched


def _patch(recorder: Recorder, module) -> None:
    """Watches those functions that are named, whenever they are made."""
    patterns = recorder.settings.capture_functions
    functions = module.JITFunction

    def consider(jit) -> None:
        with quietly("a function to capture"):
            name = function_name(jit)
            met = [pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern)]
            recorder.unmet.difference_update(met)
            if met:
                _watch(jit, recorder)

    functions.__init__ = around(functions.__init__, "a function to capture",
                                after=lambda _, jit, *__, **___: consider(jit))
    for found in gc.get_referrers(functions):
        if type(found) is functions:
            consider(found)


_recorder: Recorder | None = None


def start(settings: Settings, wire: Wire | None) -> None:
    """Starts recording, where there is somewhere to record to."""
    global _recorder
    may_post = wire is not None and wire.is_private and wire.token is not None
    if settings.capture_to is None and not may_post:
        log("no launch is recorded: there is neither WAVETUNE_CAPTURE_TO nor a server to which a "
            "token goes encrypted")
        return
    recorder = _recorder = Recorder(settings, wire if may_post else None)
    restore.captured = recorder.missed
    # What the process does not have in memory, and what it has in no folder.
    for name, *method in ((_JIT, "JITFunction", "_call_hook", False),
                          (_COMPILER, "ASTSource", "make_ir", True)):
        when_there([name], functools.partial(_patch_compiling, recorder, *method))
    if settings.capture_functions:
        when_there([_JIT], functools.partial(_patch, recorder))


def after_fork() -> None:
    if _recorder is not None:
        _recorder.after_fork()
