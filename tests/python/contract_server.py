"""A server for tests of the runtime: it speaks the part of the HTTP interface that programs use, and can misbehave.

    with Contract() as server: …     server.url; server.requests: (method, path, body) of what was asked

The same tests run against the real one where a test only needs `url` and what was stored before.
"""
import hashlib
import http.server
import json
import threading
import time
from urllib.parse import parse_qs, unquote, urlsplit

ENVIRONMENT = {"cuda": "12.8", "triton": "any", "gpu": "Test GPU", "arch": "sm_90", "compute_units": 132, "partition": ""}
TOKEN = "secret-token"
MISSED = {"environment", "tag", "regime", "missed", "items"}
MISS = {"function", "name", "key", "why"}
ITEM = {"kernel", "key", "misses"}
COUNTERS = {"tag", "hits", "misses", "unfit", "failures", "saved_ms"}


def document(choices=(), code=None, **more):
    """A choices document: `choices` are (closure, name, key, config)."""
    functions = {}
    for closure, name, key, config in choices:
        function = functions.setdefault(closure, {"name": name, "choices": []})
        function["choices"].append({"key": list(key), "config": config})
    return {"version": 1, "release": "sha256:" + "a" * 64, "environment": ENVIRONMENT, "tag": "default", "regime": "cold",
            "functions": functions, "code": code or {}, **more}


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


class Contract(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, context=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.server_port}"
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.requests, self.authorizations = [], []
        self.entry, self.document = {}, {"functions": {}}
        self.later = {}  # (closure, key) to what only POST answers
        self.counted, self.missed, self.files = [], [], {}
        self.lists, self.asked_for_lists = {}, []  # of starts, and the folders that were asked for
        self.trouble = None  # called with the handler; true: it has answered
        self.is_shared = True
        self._closing = threading.Event()

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._closing.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # a client that gave up

    def lines(self):
        return b"".join(part + b"\n" for part in (canonical(self.entry), canonical(self.document)))

    def tuned(self):
        """The misses of keys that programs then tuned."""
        return [one for report in self.missed for one in report["missed"] if one.get("tuning_ms", 0) > 0]

    def asked(self, method, start=""):
        return [path for one, path, _ in self.requests if one == method and path.startswith(start)]

    def wait(self, seconds):
        self._closing.wait(seconds)

    def wait_for(self, condition, seconds=20.0):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "what was waited for did not come"
            time.sleep(0.01)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _serve(self):
        server, parts = self.server, urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # the client is gone
            self.close_connection = True
            return
        if not parts.path.endswith("/start.json"):
            server.requests.append((self.command, self.path, body))
        server.authorizations.append(self.headers.get("Authorization"))
        if server.trouble is not None and server.trouble(self):
            return
        segments = [unquote(segment) for segment in parts.path.strip("/").split("/")]
        query = parse_qs(parts.query)
        if segments == ["readyz"]:
            self.answer(200)
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, b"{}")
        elif segments == ["v1", "choices"]:
            self._get_choices(query) if self.command == "GET" else self._post_choices(json.loads(body))
        elif segments == ["v1", "counters"]:
            report = json.loads(body)
            if COUNTERS.issuperset(report):
                server.counted.append(report)
            self.answer(204 if COUNTERS.issuperset(report) else 422)
        elif segments == ["v1", "demand"]:
            report = json.loads(body)
            known = MISSED.issuperset(report) and all(set(one) - {"tuning_ms"} == MISS for one in report.get("missed", ())) and \
                all(set(one) == ITEM for one in report.get("items", ()))
            if known:
                server.missed.append({"missed": [], **report})
            self.answer(202 if known else 422, b"{}")
        elif segments[:3] == ["v1", "remote", "triton"] and "image" in query:
            self._remote((query["image"][0], *segments[3:]), body)
        else:
            self.answer(404, b"{}")

    do_GET = do_POST = do_PUT = _serve

    def _get_choices(self, query):
        release = query.get("release")
        if release and release[0] != self.server.document.get("release"):
            self.answer(404, b"{}")
            return
        body = self.server.lines()
        etag = f'"{hashlib.sha256(body).hexdigest()}"'
        if self.headers.get("If-None-Match") == etag:
            self.answer(304, ETag=etag)
        else:
            self.answer(200, body, ETag=etag, Content_Type="application/x-ndjson")

    def _post_choices(self, wanted):
        choices = []
        if set(wanted) != {"functions"}:  # the environment is in the query
            self.answer(422, b"{}")
            return
        for function in wanted["functions"]:
            for key in function["keys"]:
                config = self.server.later.get((function["function"], tuple(key)))
                if config is not None:
                    choices.append({"function": function["function"], "key": key, "config": config})
        self.answer(200, canonical({"choices": choices, "code": {}}))

    def _remote(self, place, body):
        if place[-1] == "start.json":
            self._list(place, body)
        elif self.command == "PUT":
            if len(body) > 16 * 1024 * 1024:
                self.answer(413, b"{}")
                return
            if self.server.is_shared:
                self.server.files.setdefault(place, body)
            self.answer(204)
        elif place in self.server.files:
            self.answer(200, self.server.files[place], Wavetune_Origin="shared")
        else:
            self.answer(404, b"{}")

    def _list(self, place, body):
        server = self.server
        if self.command == "PUT":
            server.lists[place] = body
            self.answer(204)
        else:
            server.asked_for_lists.append(place[1])
            self.answer(200 if place in server.lists else 404, server.lists.get(place, b"{}"))
