"""Which config a function is to use for a key: from the document that `fetch` brought, then from
the server.

A start that hits makes one request, GET /v1/choices, for all that there is; keys that neither
document has are asked for with POST /v1/choices, twice at most in the first minute and once a
minute later. A later GET takes the place of all answers before it: the channel may have moved. With
$WAVETUNE_RELEASE only that release's document counts, so that all ranks of a job agree.

A garbled document is left alone as a whole. Threads: one asks the server at a time, and the keys of
those that wait meanwhile go into one request.
"""

from __future__ import annotations

import glob
import json
import math
import os
import stat
import threading
import time
from typing import Any, Callable, Iterator, NamedTuple
from urllib.parse import quote

from .._canonical import Named, digest
from . import keys
from .log import log, quietly
from .settings import IMPLIED_REGIME, Settings
from .wire import GARBLED, JSON, Wire

DOCUMENT_MAX = 16 * 1024 * 1024
VERSION = 1
NAME, CODE = "choices.json", "code"
ENVIRONMENTS = "environments"  # of a folder that `tune` writes: one for each
REFRESH_S = 600.0
POSTS_AT_START, POST_S = 2, 60.0
KEYS_OF_A_POST = 500
LAUNCHERS_MAX = 16  # of a function
_MEMBERS = ("rocm", "cuda", "cpu", "torch", "triton", "gpu", "arch", "compute_units", "partition")
Key = tuple  # texts


def place_of(cache: str, environment: Named) -> str:
    """Where a folder of `python3 -m wavetune tune` has what is of one environment."""
    return os.path.join(cache, ENVIRONMENTS, digest(environment).partition(":")[2][:16])


class Choice(NamedTuple):
    config: Named
    tuning_ms: float


class Code(NamedTuple):
    """The files of a folder of Triton's cache: those of a release, or of a folder here."""

    release: str | None
    digests: dict[str, str]  # by the files' names
    place: str | None = None  # the folder


class Document:
    """The choices of a release, by closure and key; and the digests of code files, by folder of
    Triton's cache. `place`: the folder that has code of no release."""

    def __init__(self, functions, code, release=None, place: str | None = None):
        """Raises what GARBLED has."""
        self.release = release if isinstance(release, str) else None
        self.place = place
        self.functions: dict[str, dict[Key, Choice]] = {}
        self.launchers: Named = {}  # of functions, as the document has them
        for closure, function in _object(functions).items():
            self.functions[closure] = {_key(one["key"]): _choice(one)
                                       for one in _list(_object(function).get("choices", []))}
            if function.get("launchers"):
                launchers = _list(function["launchers"])[:LAUNCHERS_MAX]
                self.launchers[closure] = {"name": function["name"], "launchers": launchers}
        self.code = {folder: {name: digest for name, digest in _object(files).items()
                              if isinstance(digest, str)}
                     for folder, files in _object(code).items()}


def stated(environment: Named) -> Named:
    """The members of an environment that the server tells environments by."""
    return {name: value for name, value in environment.items() if name in _MEMBERS}


def _object(value) -> Named:
    if not isinstance(value, dict):
        raise ValueError("an object is missing")
    return value


def _list(value) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("an array is missing")
    return value


def _key(value) -> Key:
    if not all(isinstance(text, str) for text in _list(value)):
        raise ValueError("a key has a value that is no string")
    return tuple(value)


def _choice(stated: Named) -> Choice:
    ms = stated.get("tuning_ms")
    is_ms = isinstance(ms, (int, float)) and 0 <= ms < 1e12
    return Choice(_object(stated["config"]), float(ms) if is_ms else 0.0)


class Choices:
    def __init__(self, settings: Settings, wire: Wire | None):
        self.settings, self.wire = settings, wire
        self._released: Document | None = None  # by the server
        self._posted: dict[tuple[str, Key], Choice | None] = {}  # answers of POST
        self._file: Document | None = None
        self._is_file_read = False
        self._etag: str | None = None
        self._got_s: float | None = None
        self._may_get = self._may_post = True
        self._posted_s = -math.inf
        self._posts = 0
        self._trusted: dict[str, bytes] | None = None
        self._why: str | None = None  # why the server's choices are none
        # called with the launchers of a new document
        self.on_launchers: Callable[[Named], None] | None = None
        self.after_fork()

    def after_fork(self) -> None:
        self._lock, self._waiting_lock = threading.Lock(), threading.Lock()
        self._waiting: dict[tuple[str, Key], None] = {}

    # In the program's threads, on a miss.

    def find(self, closure: str, key: Key) -> Choice | None:
        """The choice for a key; may ask the server."""
        found = self._known(closure, key)
        if found is not None or self.wire is None:
            return found
        place = (closure, key)
        with self._waiting_lock:
            self._waiting[place] = None
        try:
            with self._lock:
                self._read_file()
                self._get()
                found = self._known(closure, key)
                if found is None and place not in self._posted:
                    self._post()
                    found = self._known(closure, key)
        finally:
            with self._waiting_lock:
                self._waiting.pop(place, None)
        return found

    def why(self, closure: str, key: Key) -> str:
        """Why find() found nothing."""
        released = next(iter(self._all()), None)
        if released is not None:
            others = len(released.functions.get(closure, {}))
            has = f"{others} other keys of this function" if others else "nothing of this function"
            where = f"the release {released.release}" if released.release else self.settings.cache
            return f"{where} has {has}"
        if self._why is not None:
            return self._why
        if self.wire is not None:
            return "the server did not answer"
        if self.settings.cache is None:
            return ("there is no server that it may ask, and no folder of choices (WAVETUNE_URL, "
                    "WAVETUNE_CACHE)")
        return self._why_not_here(self.settings.cache)

    def _why_not_here(self, cache: str) -> str:
        """Why the folder has no choices."""
        if not os.path.isdir(cache):
            return f"there is no folder {cache}"
        own, differences = self.settings.environment(), []
        for path in glob.glob(os.path.join(glob.escape(cache), ENVIRONMENTS, "*", NAME)):
            try:
                with open(path, "rb") as file:
                    other = _object(json.loads(file.read(DOCUMENT_MAX)))["environment"]
                differences.append([f"{name} {other.get(name)} (here {own.get(name)})"
                                    for name in sorted({*own, *other})
                                    if own.get(name) != other.get(name)])
            except (OSError, *GARBLED):
                continue
        nearest = min(differences, key=len, default=[])
        return f"{cache} has no choices of this environment" + \
            (f"; the nearest is of {', '.join(nearest)}" if nearest else "")

    def nearest(self, closure: str, key: Key) -> Iterator[Choice]:
        """Choices of the same function for other keys, the nearest first."""
        near = [(keys.distance(key, other), i, other, choice)
                for i, document in enumerate(self._all())
                for other, choice in document.functions.get(closure, {}).items()]
        for far, _, _, choice in sorted(near, key=lambda one: one[:3]):
            if far == math.inf:
                return
            yield choice

    def code(self, folder: str, is_waited_for: bool = True) -> Code | None:
        """What the release that the program uses states of a folder of Triton's cache; where keys
        are trusted, only what one of them vouches for. May ask the server."""
        found = self._known_code(folder)
        if found is None and self.wire is not None and self._got_s is None:
            with self._lock:
                self._read_file()
                self._get(is_waited_for)
            found = self._known_code(folder)
        return found

    def _known_code(self, folder: str) -> Code | None:
        for document in self._all():
            is_signed = document is not self._file or not self.settings.trusted_keys
            if is_signed and folder in document.code and \
                    (document.release is not None or document.place is not None):
                return Code(document.release, document.code[folder], document.place)
        return None

    def _all(self) -> list[Document]:
        self._read_file()
        return [document for document in (self._file, self._released) if document is not None]

    def _known(self, closure: str, key: Key) -> Choice | None:
        for document in self._all():
            found = document.functions.get(closure, {}).get(key)
            if found is not None:
                return found
        return self._posted.get((closure, key))

    # The file that fetch brought, or that of `python3 -m wavetune tune` for this environment.

    def _read_file(self) -> None:
        cache = self.settings.cache
        if self._is_file_read or cache is None:
            return
        path, place = os.path.join(cache, NAME), None
        try:
            if not os.path.exists(path):
                place = place_of(cache, self.settings.environment())
                path = os.path.join(place, NAME)
            with open(path, "rb") as file:
                text = file.read(DOCUMENT_MAX + 1)
            if len(text) > DOCUMENT_MAX:
                raise ValueError(f"it has more than {DOCUMENT_MAX} bytes")
            has_code = place is not None and _is_private(cache) and _is_private(place)
            code = os.path.join(place, CODE) if has_code else None
            self._file = self._parse(json.loads(text), code)
            self._tell(self._file)
        except FileNotFoundError:
            pass
        except (OSError, *GARBLED) as error:
            log(f"{path} is not used: {type(error).__name__}: {error}")
        # after it was: two threads may both read it, and none goes on without
        self._is_file_read = True

    def _parse(self, found, place: str | None = None) -> Document | None:
        """The document, if it is of the wanted release and regime. Raises GARBLED."""
        if not _object(found).get("functions") and "version" not in found:
            return None  # the channel has no release for this environment
        if found.get("version") != VERSION:
            raise ValueError(f"its version is {found.get('version')!r}, and {VERSION} is what this "
                             f"wavetune reads")
        if found.get("regime", IMPLIED_REGIME) != (self.settings.regime or IMPLIED_REGIME):
            raise ValueError("it is of another regime")
        release = found.get("release")
        wanted = self.settings.release
        if self.settings.is_pinned and (wanted is None or release != wanted):
            log(f"choices of release {str(release)[:80]} are not used: WAVETUNE_RELEASE is another")
            return None
        return Document(found["functions"], found.get("code", {}), release, place)

    def _tell(self, document: Document | None) -> None:
        if document is not None and document.launchers and self.on_launchers is not None:
            with quietly("compiling launchers ahead"):
                self.on_launchers(document.launchers)

    # The server.

    def _query(self) -> str:
        settings = self.settings
        members = stated(settings.environment())
        for name in ("tag", "channel", "regime"):
            if getattr(settings, name) is not None:
                members[name] = getattr(settings, name)
        return "&".join(f"{name}={quote(str(value), safe='')}" for name, value in members.items())

    def _get(self, is_waited_for: bool = True) -> None:
        now_s, settings, wire = time.monotonic(), self.settings, self.wire
        if not self._may_get or self._got_s is not None and now_s - self._got_s < REFRESH_S:
            return
        if settings.is_pinned and settings.release is None:
            self._why = "WAVETUNE_RELEASE is no digest"
            self._may_get = self._may_post = False
            return
        query = f"release={quote(settings.release, safe='')}" if settings.release else self._query()
        headers = {"If-None-Match": self._etag} if self._etag else {}
        answer = wire.request("GET", f"/v1/choices?{query}", headers=headers, limit=DOCUMENT_MAX,
                              is_waited_for=is_waited_for)
        if answer is None:
            return
        self._got_s = now_s
        if answer.status == 304:
            return
        if answer.status != 200:
            # 403, a query that this server does not take, an environment that it cannot tell from
            # others: not again.
            answer.log("GET /v1/choices")
            self._why = f"the server refused the request for choices, status {answer.status}"
            self._may_get = answer.status == 429
            self._may_post = self._may_post and answer.status not in (403, 404)
            return
        try:
            self._take(answer.body)
            self._etag = answer.headers.get("etag")
        except GARBLED as error:
            self._may_get = False
            wire.garbled(f"GET /v1/choices: the answer is not what it should be: "
                         f"{type(error).__name__}: {str(error)[:200]}")

    def _take(self, body: bytes) -> None:
        lines = body.split(b"\n")
        if len(lines) < 2:
            raise ValueError("a line is missing")
        entry, document = _object(json.loads(lines[0])), json.loads(lines[1])
        if self.settings.trusted_keys and _object(document).get("version") is not None:
            why = self._refusal(entry, document.get("release"), lines[1])
            if why is not None:
                self._why = f"the server's choices are not used: {why}"
                log(self._why)
                self._released = None
                return
        why = entry.get("why")  # there is no release for this channel and environment
        self._why = " ".join(why.split())[:640] if isinstance(why, str) else \
            "the server has no release that this program may use"
        self._released = self._parse(document)
        self._posted = {}
        self._tell(self._released)

    def _refusal(self, entry: Named, release, text: bytes) -> str | None:
        """Why a document is not used; None: it and, unless pinned, its entry are signed."""
        from . import trust
        settings = self.settings
        if self._trusted is None:
            self._trusted = trust.read_keys(settings.trusted_keys)
        if not trust.vouches(entry.get("choices"), release, text, self._trusted):
            return "no trusted key signed them"
        if settings.is_pinned:
            return None
        if entry.get("release") != release:
            return "they are of another release than the channel's entry names"
        wanted = {name: getattr(settings, name) for name in ("channel", "tag", "regime")}
        return trust.refusal(entry, self._trusted,
                             {**wanted, "environment": settings.environment()})

    def _post(self) -> None:
        """Asks for all keys that threads wait for."""
        now_s, settings, wire = time.monotonic(), self.settings, self.wire
        # an answer names no release and has no signature
        if settings.is_pinned or settings.trusted_keys or not self._may_post or wire.is_open():
            return
        if self._posts >= POSTS_AT_START and now_s - self._posted_s < POST_S:
            return
        with self._waiting_lock:
            places = [place for place in self._waiting
                      if place not in self._posted][:KEYS_OF_A_POST]
        functions = {}
        for closure, key in places:
            functions.setdefault(closure, []).append(key)
        self._posts, self._posted_s = self._posts + 1, now_s
        body = {"functions": [{"function": closure, "keys": wanted}
                              for closure, wanted in functions.items()]}
        answer = wire.request("POST", f"/v1/choices?{self._query()}", json.dumps(body).encode(),
                              JSON, limit=DOCUMENT_MAX)
        if answer is None:
            return
        if answer.status != 200:
            self._may_post = answer.status == 429
            answer.log("POST /v1/choices")
            return
        try:
            for one in _list(_object(json.loads(answer.body)).get("choices")):
                place = (one["function"], _key(one["key"]))
                if place in places:
                    self._posted[place] = _choice(one)
            for place in places:
                self._posted.setdefault(place, None)
        except GARBLED as error:
            self._may_post = False
            wire.garbled(f"POST /v1/choices: the answer is not what it should be: "
                         f"{type(error).__name__}")


def _is_private(path: str) -> bool:
    """Whether code may come from the folder, which has no signature."""
    if os.stat(path).st_mode & stat.S_IWOTH:
        log(f"no code is taken from {path}, which every user may write: chmod o-w {path}")
        return False
    return True
