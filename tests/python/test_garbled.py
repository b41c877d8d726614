"""What a server, another container or a file says to a program is garbled at random: each reader takes it or refuses it, with the
exceptions that its callers expect, and a look-up of a choice raises none. $SEED repeats a run, $ROUNDS makes it longer."""

import base64
import contextlib
import copy
import hashlib
import json
import os
import random
import socket
import threading

import pytest
from wavetune import helion
from wavetune._runtime import inductor
from wavetune.client import ApiError, Client
from wavetune._runtime import ahead, code, launchers, start, trust
from wavetune._runtime.choices import Choice, Choices
from wavetune._runtime.found import Bad
from wavetune._runtime.settings import Settings
from wavetune._runtime.wire import Answer

SEED = int(os.environ.get("SEED", 20261127))
ROUNDS = int(os.environ.get("ROUNDS", 600))
DIGEST, CLOSURE = "sha256:" + "a" * 64, "sha256:" + "c" * 64
ODD = [None, True, -1, 2**63, 10**400, 1e308, float("nan"), "", "\ud800", "\0", "a/../b", "x" * 5000, [], {}, [[]], {"": None}]
FOLDER = base64.b32encode(bytes.fromhex("ab" * 32)).decode().rstrip("=")

ENTRY = {"channel": "stable", "counter": 7, "environment": {"gpu": "H200"}, "release": DIGEST, "tag": "default",
         "expires": "2999-01-01T00:00:00Z", "signatures": [{"key": DIGEST, "signature": "A" * 86 + "=="}],
         "choices": {"digest": DIGEST, "signatures": [{"key": DIGEST, "signature": "A" * 86 + "=="}]}}
DOCUMENT = {"version": 1, "release": DIGEST, "regime": "cold", "code": {FOLDER: {"k.json": DIGEST}}, "functions": {CLOSURE: {
    "name": "m:f", "choices": [{"key": ["16", "torch.float16"], "config": {"BLOCK": 64, "num_warps": 4}, "tuning_ms": 12.5}],
    "launchers": [{"backend": "cuda", "warp_size": 32, "signature": {"x": "*fp32"}}]}}}
POSTED = {"choices": [{"function": CLOSURE, "key": ["18"], "config": {"BLOCK": 16}, "tuning_ms": 3}]}
METADATA = {"hash": "ab" * 32, "name": "f", "shared": 0, "num_warps": 4, "num_ctas": 1, "num_stages": 2,
            "target": {"backend": "cuda", "arch": 90, "warp_size": 32}}
AUTOTUNE = {"configs_timings": [[{"kwargs": {"BLOCK": 64}, "num_warps": 4, "num_stages": 2}, [1.0, 0.9, 1.1]]]}
KERNEL = {"attributes": [[[0], [["tt.divisibility", 16]]]], "closure": CLOSURE, "constants": [[[1], {"dtype": "fp16"}], [[2], 4]],
          "module": "m", "name": "f", "options": {"num_warps": 4}, "signature": [["x", "*fp32"], ["y", "i32"]],
          "target": ["cuda", 90, 32]}
LIST = {"version": start.VERSION, "files": [[FOLDER, "k.json", True]], "kernels": [json.dumps(KERNEL)], "launchers": [
    {"backend": "nvidia", "warp_size": 32, "types": ["*fp32", "i32", ["i64"]]}]}
INDUCTOR = {"XBLOCK": 256, "num_warps": 4, "num_stages": 1, "configs_hash": "b" * 64, "found_by_coordesc": False, "time_taken_ms": 12,
            "triton_cache_hash": "X"}
HELION = {"config": json.dumps({"block_sizes": [16, [32]], "num_warps": 4}), "flat_config": "[16, 32]", "backend_cache_key": None,
          "key": {"type": "LooseAutotuneCacheKey", "fields": {"hardware": "H200"}}}


def places(value):
    """Every (container, key) of a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def changed(rng, value):
    """A copy in which members are other, missing, moved or more."""
    root = [copy.deepcopy(value)]
    for _ in range(rng.randint(1, 3)):
        container, key = rng.choice(list(places(root)))
        how = rng.randrange(5)
        if how == 0 and container is not root:
            del container[key]
        elif how == 1:
            container[key] = copy.deepcopy(rng.choice(list(places(root)))[0])
        elif how == 2 and isinstance(container, dict):
            container[rng.choice(["", "é", "__class__", "ir_override", "a.b", "x" * 300])] = container[key]
        else:
            container[key] = copy.deepcopy(rng.choice(ODD))
    return root[0]


def damaged(rng, data):
    """Bytes of which some are cut, doubled, replaced, or far too deeply nested."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(5)
        if how == 0:
            del data[at:at + rng.randint(1, 20)]
        elif how == 1:
            data[at:at] = data[at:at + 30]
        elif how == 2:
            data[at:at] = rng.choice([b"[" * 20000, b"{\"a\":" * 5000, b"9" * 5000, b"\xff", b"\n", b"\0", b"NaN", b"1e999"])
        else:
            data[at:at + 1] = bytes([rng.randrange(256)])
    return bytes(data)


def garbled(rng, *documents):
    """The lines of a body, of which one or all are wrong."""
    bodies = [json.dumps(changed(rng, one) if rng.random() < 0.6 else one).encode() for one in documents]
    body = b"\n".join(bodies)
    return damaged(rng, body) if rng.random() < 0.4 else body


def group(rng):
    body = code.pack({"k.json": json.dumps(METADATA).encode(), "k.cubin": b"\x7fELF"})
    head, _, rest = body.partition(b"\n")
    return damaged(rng, body) if rng.random() < 0.5 else json.dumps(changed(rng, json.loads(head))).encode() + b"\n" + rest


def rounds(what):
    print(f"SEED={SEED}")
    rng = random.Random(f"{SEED} {what}")
    return (rng for _ in range(ROUNDS))


def test_a_look_up_raises_nothing_whatever_the_server_says(tmp_path):
    class Wire:
        """Answers any request with one body."""

        body = b""

        def request(self, method, path, *arguments, **more):
            return Answer(200, {"etag": "x"}, self.body)

        def is_open(self):
            return False

        def garbled(self, what):
            self.refused = what

    taken = set()
    for rng in rounds("choices"):
        own = {"WAVETUNE_CACHE": str(tmp_path)} if rng.random() < 0.5 else {}
        settings = Settings({"WAVETUNE_ENVIRONMENT": "{}", **own}, "wt_x")
        wire = Wire()
        (tmp_path / "choices.json").write_bytes(garbled(rng, DOCUMENT))
        wire.body = garbled(rng, ENTRY, DOCUMENT) if rng.random() < 0.7 else garbled(rng, POSTED)
        found = Choices(settings, wire)
        for key in (("16", "torch.float16"), ("18",), ("19",)):
            choice = found.find(CLOSURE, key)
            assert choice is None or isinstance(choice, Choice) and isinstance(choice.config, dict) and choice.tuning_ms >= 0
            taken.add((bool(own), key[0], choice is not None))
            list(found.nearest(CLOSURE, key))
        found.code(FOLDER)
    assert {(True, "16", True), (False, "16", True), (False, "18", True), (False, "16", False)} <= taken


def test_signatures_are_refused_without_an_exception(tmp_path):
    keys = {DIGEST: b"\1" * 32}
    document = json.dumps(DOCUMENT).encode()
    for rng in rounds("trust"):
        entry = changed(rng, ENTRY)
        if isinstance(entry, dict):
            entry.get("choices", {}) is None or trust.vouches(entry.get("choices"), entry.get("release"), document, keys)
            assert trust.refusal(entry, keys, {"channel": None, "tag": None, "regime": None, "environment": {"gpu": "H200"}})
    (tmp_path / "key").write_bytes(b"")
    for rng in rounds("keys"):
        pem = base64.b64encode(bytes.fromhex("302a300506032b6570032100") + b"\1" * 32)
        (tmp_path / "key").write_bytes(damaged(rng, b"-----BEGIN PUBLIC KEY-----\n" + pem + b"\n-----END PUBLIC KEY-----\n"))
        for name, key in trust.read_keys([str(tmp_path / "key")]).items():
            assert len(key) == 32 and name == "sha256:" + hashlib.sha256(key).hexdigest()


def of_json(document, call):
    """A reader of bytes, and one of what was parsed."""
    def one(rng):
        value = changed(rng, document)
        try:
            call(json.loads(json.dumps(value)))
        except ValueError as error:
            if isinstance(error, (Bad, json.JSONDecodeError)) or type(error) is ValueError:
                raise
            raise AssertionError(f"{type(error).__name__} of {value!r}") from error

    return one


READERS = {
    "group": (lambda rng: code.unpack(group(rng)), code.Bad),
    "metadata": (lambda rng: code.check_metadata(garbled(rng, METADATA), FOLDER), code.Bad),
    "autotune": (lambda rng: code.check_autotune(garbled(rng, AUTOTUNE)), code.Bad),
    "list of a start": (lambda rng: start.read_list(garbled(rng, LIST)), (ValueError, code.Bad, KeyError)),
    "kernel": (lambda rng: ahead.check(garbled(rng, KERNEL).decode(errors="replace")), ValueError),
    "launcher": (of_json(LIST["launchers"][0], launchers.parse), ValueError),
    "inductor": (of_json(INDUCTOR, inductor.check), Bad),
    "helion": (of_json(HELION, helion.check), Bad)}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_a_document_or_refuses_it(name):
    read, refusals = READERS[name]
    n_refused = 0
    for rng in rounds(name):
        try:
            read(rng)
        except refusals:
            n_refused += 1
    assert 0 < n_refused < ROUNDS


class Garbler:
    """A server that answers each connection with the bytes of `answer`, whatever it is asked."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.answer, self.is_over = b"", False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while not self.is_over:
            connection, _ = self.listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(self.answer)

    def end(self):
        self.is_over = True
        socket.create_connection(self.listener.getsockname()).close()
        self.thread.join()
        self.listener.close()


@pytest.fixture
def garbler():
    server = Garbler()
    yield server
    server.end()


def test_the_client_returns_json_or_says_why_it_cannot(garbler):
    client = Client(garbler.url, "wt_x", patience_s=0)
    n_read = n_failed = 0
    for rng in rounds("client"):
        body = garbled(rng, DOCUMENT)
        status = rng.choice([b"200 OK", b"204 No Content", b"404 Not Found", b"503 Away", b"302 Found", b"101 Other", b"999 X", b"-1"])
        head = b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\nRetry-After: " + rng.choice([b"1", b"nan", b"-9", b"x"]) + \
            b"\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
        garbler.answer = damaged(rng, head + body) if rng.random() < 0.7 else head + body
        try:
            client.request("GET", "/v1/policy", timeout_s=5)
            n_read += 1
        except ApiError as error:
            assert str(error)
            n_failed += 1
    assert n_read and n_failed
