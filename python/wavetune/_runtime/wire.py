"""HTTP to the server: Transport, and Wire above it for a program that must not notice it.

With Wire a request takes 0.5 s at most to the answer's headers: name, connection, TLS and a server
that sends a byte at a time included. The body must then arrive at 256 KiB/s or faster, and what a
program waits for bodies has a budget ($WAVETUNE_BUDGET_MS a minute). Whatever goes wrong, the
answer is None, and for 30 s, then for twice as long up to 15 minutes, no request is made: a
breaker. A background thread that reaches the server closes it (sender.py), so that a program waits
for an absent server once, not every 30 s.

Each thread keeps a connection.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import socket
import threading
import time
from typing import Any, Callable, Mapping, NamedTuple
from urllib.parse import urlsplit

from .._token_url import refusal
from . import counters
from .log import log, text_of
from .worker import Worker

FIRST_BYTE_S = 0.5
BACKGROUND_S = 5.0
BYTES_PER_S = 256 * 1024
BODY_MAX = 16 * 1024 * 1024
BREAK_S, BREAK_MAX_S = 30.0, 900.0
ADDRESSES_S = 60.0
JSON = {"Content-Type": "application/json"}
# What reading a document raises that is not as it should be.
GARBLED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_CHUNK = 65536


class Bad(Exception):
    """What the server sent is not what it should be; the text says why."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def text(self) -> str:
        return self.body[:200].decode("utf-8", "replace")

    def log(self, request: str) -> None:
        log(f"{request}: status {self.status}: {self.text()}")


class _Timed:
    """A socket, with one deadline for whatever is done with it."""

    def __init__(self, sock, deadline: float):
        self.sock, self.deadline = sock, deadline
        self.readers, self.is_closed = 0, False

    def arm(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout("the time is up")
        self.sock.settimeout(left)

    def sendall(self, data) -> None:
        self.arm()
        self.sock.sendall(data)

    def makefile(self, *_, **__) -> io.BufferedReader:
        self.readers += 1
        return io.BufferedReader(_Reader(self), _CHUNK)

    def close(self) -> None:
        """At once, or after the last answer: http.client closes before it reads that."""
        self.is_closed = True
        if self.readers == 0:
            self.sock.close()


class _Reader(io.RawIOBase):
    def __init__(self, timed: _Timed):
        super().__init__()
        self.timed = timed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        self.timed.arm()
        return self.timed.sock.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            self.timed.readers -= 1
            if self.timed.is_closed:
                self.timed.close()
        super().close()


class _Resolver:
    """Addresses of the host. A name server that does not answer keeps a thread, not the program."""

    def __init__(self, host: str, port: int):
        self.host, self.port = host, port
        self.found: list[Any] = []
        self.until = 0.0
        self.worker = Worker("resolver", lambda: self._resolve if self.is_asked else None)
        self.is_asked = False

    def addresses(self, deadline: float) -> list[Any]:
        if time.monotonic() < self.until:
            return self.found
        try:
            return socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM,
                                      flags=socket.AI_NUMERICHOST)
        except OSError:
            pass  # a name
        with self.worker.condition:
            self.is_asked = True
            if not self.worker.wake():
                # the interpreter is ending, and only the sender's thread still asks
                self._resolve()
            self.worker.condition.wait_for(lambda: not self.is_asked,
                                           max(0.0, deadline - time.monotonic()))
        if time.monotonic() >= self.until:
            raise OSError(f"the name {self.host} was not resolved")
        return self.found

    def _resolve(self) -> None:
        try:
            self.found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            self.until = time.monotonic() + ADDRESSES_S
        except (OSError, UnicodeError):
            pass  # the program's thread says so
        with self.worker.condition:
            self.is_asked = False
            self.worker.condition.notify_all()


class Transport:
    """HTTP to one server, with a deadline for whatever is done; each thread keeps a connection.
    `proxy`: (host, port) of an HTTP proxy. Raises ValueError where the URL is none."""

    def __init__(self, url: str, token: str | None, ca_file: str | None = None,
                 proxy: tuple[str, int] | None = None):
        self.token, self.ca_file, self.proxy = token, ca_file, proxy
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query \
                or parts.username is not None:
            raise ValueError(f"{url[:80]} is no http:// or https:// URL of a server")
        self.is_tls, self.host = parts.scheme == "https", parts.hostname
        self.prefix = parts.path.rstrip("/")
        self.port = parts.port or (443 if self.is_tls else 80)
        if proxy is not None and not self.is_tls:
            self.prefix = f"http://{parts.netloc}{self.prefix}"
        self._context: Any = None
        self.forget()

    def forget(self) -> None:
        """All connections: in a child of a fork they are the parent's."""
        self._pid = os.getpid()
        self._local = threading.local()  # .connection, .body_s: how long the last body took
        self._resolver = _Resolver(*self.proxy or (self.host, self.port))

    def body_s(self) -> float:
        """How long this thread's last body took."""
        return getattr(self._local, "body_s", 0.0)

    def close(self) -> None:
        """This thread's connection."""
        connection = getattr(self._local, "connection", None)
        self._local.connection = None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()

    def exchange(self, method: str, path: str, body: bytes | None,
                 headers: Mapping[str, str] | None, *, limit: int, first_s: float,
                 body_s: float = math.inf) -> Answer:
        """`first_s`: to the headers; `body_s`: then. Raises OSError, ValueError, HTTPException."""
        from http.client import BadStatusLine
        started = time.monotonic()
        self._local.body_s = 0.0
        headers = dict(headers or {})
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        for is_again in (False, True):
            connection = getattr(self._local, "connection", None)
            is_kept = connection is not None and connection.sock is not None
            if not is_kept:
                connection = self._local.connection = self._connect(started + first_s)
            timed = connection.sock
            timed.deadline = started + first_s
            try:
                connection.request(method, self.prefix + path, body=body, headers=headers)
                response = connection.getresponse()
                break
            except (ConnectionError, BadStatusLine):
                # The server closes idle connections: once more, on a new one.
                self.close()
                if not is_kept or is_again:
                    raise
        return self._read(timed, response, limit, started + first_s, body_s)

    def _connect(self, deadline: float):
        from http.client import HTTPConnection
        error: Exception = OSError(f"{self.host} has no address")
        addresses = self._resolver.addresses(deadline)[:4]
        for i, (family, kind, protocol, _, address) in enumerate(addresses):
            sock = socket.socket(family, kind, protocol)
            try:
                share = (deadline - time.monotonic()) / (len(addresses) - i)
                if share <= 0:
                    raise socket.timeout("the time is up")
                sock.settimeout(share)
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self.is_tls:
                    sock = self._with_tls(sock, deadline)
                connection = HTTPConnection(self.host, self.port)
                connection.auto_open = 0
                connection.sock = _Timed(sock, deadline)
                return connection
            except (OSError, ValueError) as failure:
                sock.close()
                error = failure
        raise error

    def _with_tls(self, sock, deadline: float):
        if self._context is None:
            import ssl
            self._context = ssl.create_default_context(cafile=self.ca_file)
        if self.proxy is not None:
            from http.client import HTTPResponse
            place = f"{self.host}:{self.port}"
            sock.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
            answer = HTTPResponse(sock, method="CONNECT")
            answer.begin()
            if answer.status != 200:
                raise OSError(f"the proxy {self.proxy[0]}:{self.proxy[1]} answered {answer.status}")
        sock = self._context.wrap_socket(sock, server_hostname=self.host,
                                         do_handshake_on_connect=False)
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        sock.do_handshake()  # its time-out is for the whole handshake
        return sock

    def _read(self, timed: _Timed, response, limit: int, grace: float, body_s: float) -> Answer:
        first = time.monotonic()
        if response.length is not None and response.length > limit:
            raise ValueError(f"a body of {response.length} bytes is too long")
        parts, size = [], 0
        try:
            while True:
                timed.deadline = min(grace + size / BYTES_PER_S, first + body_s)
                part = response.read1(_CHUNK)
                if not part:
                    break
                size += len(part)
                if size > limit:
                    raise ValueError(f"a body of more than {limit} bytes is too long")
                parts.append(part)
        finally:
            self._local.body_s = time.monotonic() - first
        if response.length:
            raise OSError(f"the body ended after {size} bytes")
        response.close()  # which frees the connection for the next request
        if response.will_close:
            self.close()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, names, b"".join(parts))


class Wire:
    """For programs. `budget_s`: for bodies that a program waits for, a minute. `is_allowed`: no
    token would travel unencrypted, and the URL is one; else the log says so."""

    def __init__(self, url: str, token: str | None, *, ca_file: str | None = None,
                 insecure: bool = False, budget_s: float = 2.0):
        self.token, self.budget_s = token, budget_s
        self.wake: Callable[[], Any] | None = None  # asks a background thread to try the server
        try:
            self.transport, why = Transport(url, token, ca_file), refusal(url, insecure)
            self.is_private = why is None
            self.is_allowed = self.is_private or token is None
        except ValueError as error:
            self.is_allowed = self.is_private = False
            why = f"WAVETUNE_URL: {error}"
        # The breaker: 0.0 while the server answers; for ever after 401, an unknown token.
        self._open_until, self._break_s = 0.0, BREAK_S
        if self.is_allowed:
            self.after_fork()
        else:
            self._open_until = math.inf
            log(f"nothing is asked for: {why}")

    def after_fork(self) -> None:
        """In the child, where threads that are gone may hold locks."""
        if self.is_allowed:
            self.transport.forget()
            self._lock = threading.Lock()
            self._window, self._spent_s = 0.0, 0.0
            if self._open_until == math.inf:
                self._open_until = 0.0

    def is_open(self) -> bool:
        """Whether the breaker holds requests back."""
        return self._open_until > 0.0

    def may_try(self) -> bool:
        """Whether a background thread may find out if the server is back."""
        return time.monotonic() >= self._open_until

    def request(self, method: str, path: str, body: bytes | None = None,
                headers: Mapping[str, str] | None = None, *, limit: int = BODY_MAX,
                background: bool = False, is_waited_for: bool = True) -> Answer | None:
        """The answer, whatever its status below 500 (429 too: one limit says nothing of other
        requests), or None. `background`: with more time, and also to find out whether the server is
        back; `is_waited_for`: by the program."""
        if self.is_allowed and self.transport._pid != os.getpid():
            self.after_fork()
        if not self.may_try():
            return None
        if self.is_open() and not background:
            if self.wake is not None:
                self.wake()
            return None
        started = time.monotonic()
        is_waited_for = is_waited_for and not background
        if is_waited_for and self.budget_left_s() <= 0:
            return None
        counters.requests += 1
        try:
            answer = self.transport.exchange(
                method, path, body, headers, limit=limit,
                first_s=BACKGROUND_S if background else FIRST_BYTE_S,
                body_s=self.budget_s - self._spent_s if is_waited_for else math.inf)
        except Exception as error:  # also what http.client raises for what is no HTTP
            self.garbled(f"{method} {path[:100]}: {text_of(error)}")
            return None
        finally:
            if is_waited_for:
                self._spent_s += self.transport.body_s()
                counters.lost_ms += (time.monotonic() - started) * 1000
        if answer.status >= 500:
            self._failed(f"{method} {path[:100]}: status {answer.status}")
            return None
        with self._lock:
            if self._open_until < math.inf:
                self._open_until, self._break_s = 0.0, BREAK_S
        if answer.status == 401:
            self._open_until = math.inf
            log("the server does not know the token: nothing more is asked for")
        return answer

    def budget_left_s(self) -> float:
        """How long the program may still wait for bodies in this minute."""
        now = time.monotonic()
        if now - self._window >= 60:
            self._window, self._spent_s = now, 0.0
        return self.budget_s - self._spent_s

    def waited(self, seconds: float) -> None:
        """The program waited for a request of another thread."""
        self._spent_s += seconds
        counters.lost_ms += seconds * 1000

    def garbled(self, what: str) -> None:
        """An answer is not what it should be, or none: the server is treated as one that fails."""
        self.transport.close()
        self._failed(what)

    def _failed(self, why: str) -> None:
        counters.failures += 1
        with self._lock:
            if not self.may_try():
                return  # several threads asked at once
            self._open_until = time.monotonic() + self._break_s
            log(f"{why}; nothing is asked for {self._break_s:.0f} s")
            self._break_s = min(2 * self._break_s, BREAK_MAX_S)
