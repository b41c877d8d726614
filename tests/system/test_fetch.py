"""`wavetune fetch` as a container's entrypoint calls it, against servers that send correct, false and incomplete answers, or
are killed."""

import base64
import concurrent.futures
import fcntl
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import socket
import struct
import subprocess
import threading
import time

import harness
import pytest
from harness import BUILD, SOURCE, FakeServer, wavetune
from test_releases import Bench

KFD = SOURCE / "tests/data/kfd"
ENVIRONMENT = {"rocm": "6.4.1", "torch": "2.9.0", "triton": "3.3.1", "gpu": "AMD Instinct MI300X", "arch": "gfx942",
               "compute_units": 304, "partition": "SPX/NPS1"}
KERNEL = "sha256:" + "5" * 64
RECORD = {"kernel": KERNEL, "name": "add/triton", "triton": {"version": "3.3.1"},
          "function": {"module": "m", "name": "add", "qualname": "add", "signature": "JITFunction(m:add)"},
          "key_names": ["n", "m"], "tuning_key": ["n", "m"], "argument_dtypes": ["torch.float16"],
          "configs": ["BLOCK: 256, num_warps: 4", "BLOCK: 1024, num_warps: 8"],
          "dejavu": {"layout": "dejavu_0.7", "autotune_config": "a" * 64, "code_version": "b" * 64}}
IDENTITY = {"version": 1, "torch": "2.9.0", "triton": {"version": "3.3.1", "key": "k", "backend_hash": "b"},
            "gpu": "AMD Instinct MI300X", "functions": [RECORD],
            "dejavu": {"layout": "dejavu_0.7", "triton": "3.3.1", "runtime": "rocm_6.4.1", "gpu": "AMD_Instinct_MI300X"}}


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def release_of(block=256, environment=None, tag="default", kernel=KERNEL, provenance=None):
    """The canonical bytes of a release of one winner."""
    return canonical({
        "environment": environment or ENVIRONMENT, "tag": tag, "version": 2,
        "kernels": [{"configs": [{"values": {"BLOCK": block, "num_warps": 4 if block == 256 else 8}}], "kernel": kernel,
                     "key": ["n", "m"], "name": "add/triton", "provenance": [provenance or {"origin": "pinned"}],
                     "winners": [[[4096, 1], 0, 0, [0.5], 0]]}]})


class Publisher:
    """A key pair of openssl's, and channel entries signed with it."""

    def __init__(self, folder, name):
        self.private, self.public = folder / name, folder / f"{name}.pub"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", self.private], check=True, capture_output=True)
        subprocess.run(["openssl", "pkey", "-in", self.private, "-pubout", "-out", self.public], check=True,
                       capture_output=True)
        der = base64.b64decode("".join(self.public.read_text().splitlines()[1:-1]))
        self.id = digest(der[-32:])

    def sign(self, entry):
        """The entry with this key's signature over its signed members."""
        signed = {k: v for k, v in entry.items() if k in ("channel", "counter", "environment", "expires", "release", "tag")}
        message = self.private.with_suffix(".message")
        message.write_bytes(b"wavetune channel entry 1\n" + canonical(signed))
        signature = subprocess.run(["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", self.private, "-in", message],
                                   check=True, capture_output=True).stdout
        one = {"key": self.id, "signature": base64.b64encode(signature).decode()}
        return {**entry, "signatures": entry.get("signatures", []) + [one]}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return Publisher(folder, "a"), Publisher(folder, "b")


class World:
    """A fake server with a channel, and fetches into a folder from it. The answers of the server are plain data that a test
    changes."""

    def __init__(self, folder):
        self.cache, self.folder = folder / "cache", folder
        self.releases, self.entry, self.other = {}, None, {}
        self.publish(release_of())
        self.fake = FakeServer(self.answer)
        self.url = self.fake.url

    def publish(self, release, counter=1, publisher=None, **changes):
        self.releases[digest(release)] = release
        entry = {"channel": "stable", "counter": counter, "environment": ENVIRONMENT, "release": digest(release),
                 "tag": "default", "updated_at": "2026-01-01T00:00:00Z", **changes}
        self.entry = publisher.sign(entry) if publisher else entry
        return self.entry

    def answer(self, method, path):
        path = path.split("?")[0]
        if path in self.other:
            return self.other[path]
        if path == "/v1/cache":
            etag = '"' + hashlib.sha256(canonical(self.entry)).hexdigest() + '"'
            is_known = self.fake.requests[-1][2].get("If-None-Match") == etag
            return (304, b"", {"ETag": etag}) if is_known else (200, self.entry, {"ETag": etag})
        release = self.releases.get(path.removeprefix("/v1/releases/"))
        return (200, release) if release else (404, {"detail": "not there"})

    def fetch(self, *more, expect=0, url=None, environment=None, trust=(), given=ENVIRONMENT):
        """The finished program; `expect` is its exit code."""
        arguments = ["fetch", "--to", self.cache, "--url", url or self.url, *more]
        for publisher in trust:
            arguments += ["--trusted-key", publisher.public]
        if given is not None:
            arguments += ["--environment", json.dumps(given)]
        machine = {"WAVETUNE_KFD_TOPOLOGY": "/nowhere", **(environment or {})}
        done = wavetune(None, *arguments, check=False, environment=machine)
        assert expect in (None, done.returncode), (done.returncode, done.stdout, done.stderr)
        return done

    def current(self):
        return "sha256:" + os.readlink(self.cache / "current")

    def block(self):
        """The one winner's block in the json cache."""
        rendered = json.loads((self.cache / "current/json/cache.json").read_text())
        return rendered["kernels"]["add/triton"]["entries"][0]["config"]["BLOCK"]

    def requests(self):
        """Paths requested since the last call."""
        paths = [path.split("?")[0] for _, path, _ in self.fake.requests]
        self.fake.requests.clear()
        return paths

    def files(self, format):
        return sorted(str(p.relative_to(self.cache / "current" / format)) for p in (self.cache / "current" / format).rglob("*")
                      if p.is_file() and not p.name.startswith(".wavetune"))


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    (tmp_path / "identity.json").write_text(json.dumps(IDENTITY))
    with world.fake:
        yield world


class Raw:
    """A server of one thread that sends the bytes that `answer(path)` returns, then ends the connection, with a reset if
    `reset` is set."""

    def __init__(self, answer, resets=False):
        self.answer, self.resets = answer, resets
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                request = connection.recv(65536).decode()
                connection.sendall(self.answer(request.split()[1].split("?")[0]))
                if self.resets:  # what arrived before the reset can be read after it
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def __enter__(self):
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


# Correct answers

def test_a_release_is_kept_in_a_folder_of_its_digest_that_current_points_at(world, keys):
    release = release_of()
    world.publish(release, publisher=keys[0])
    done = world.fetch(trust=keys[:1])
    assert done.stdout.split() == ["fresh", f"{world.cache}/current", digest(release)] and done.stderr == ""
    assert world.current() == digest(release) and world.block() == 256
    assert (world.cache / "current/release.json").read_bytes() == release
    assert json.loads((world.cache / "current/entry.json").read_text()) == world.entry
    assert sorted(p.name for p in world.cache.iterdir()) == sorted([".fetch.json", ".lock", "current", digest(release)[7:]])


def test_without_a_trusted_key_stderr_says_what_is_not_verified(world):
    done = world.fetch()
    assert done.stdout.startswith("fresh") and "nothing but digests" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unchanged_channel_costs_one_304_for_all_formats(world, keys):
    arguments = ("--format", "json", "--format", "dejavu", "--identity", world.folder / "identity.json")
    world.publish(release_of(), publisher=keys[0])
    world.fetch(*arguments, trust=keys[:1])
    before = {p: p.lstat().st_mtime_ns for p in world.cache.rglob("*")}
    world.requests()
    assert world.fetch(*arguments, trust=keys[:1]).stdout.startswith("unchanged")
    assert world.requests() == ["/v1/cache"]
    assert world.fetch(*arguments, "--exit-code", trust=keys[:1], expect=7).stdout.startswith("unchanged")
    assert {p: p.lstat().st_mtime_ns for p in world.cache.rglob("*")} == before


def test_several_formats_are_rendered_at_once_and_another_one_later_into_the_same_folder(world):
    identity = ("--identity", world.folder / "identity.json")
    world.fetch()
    world.requests()
    assert world.fetch("--format", "json", "--format", "dejavu", *identity).stdout.startswith("fresh")
    assert world.requests() == ["/v1/cache"], "the release was there"
    assert world.files("json") == ["cache.json"] and len(world.files("dejavu")) == 1
    assert world.fetch("--format", "dejavu", *identity).stdout.startswith("unchanged")


def test_files_that_tools_write_to_have_the_modes_that_the_format_states(world):
    mask = os.umask(0o077)
    try:
        world.fetch("--format", "dejavu", "--identity", world.folder / "identity.json")
    finally:
        os.umask(mask)
    root = world.cache / "current/dejavu"
    paths = [root, *(p for p in root.rglob("*"))]
    assert len(paths) > 5 and {p.stat().st_mode & 0o777 for p in paths} == {0o777}


def test_another_image_or_place_renders_again(world):
    identity = world.folder / "identity.json"
    arguments = ("--format", "dejavu", "--identity", identity)
    world.fetch(*arguments)
    first = world.files("dejavu")
    identity.write_text(json.dumps({**IDENTITY, "dejavu": {**IDENTITY["dejavu"], "runtime": "rocm_6.4.2"}}))
    assert world.fetch(*arguments).stdout.startswith("fresh")
    assert world.files("dejavu") == [first[0].replace("6.4.1", "6.4.2")]
    world.cache = world.cache.rename(world.folder / "moved")
    assert world.fetch(*arguments).stdout.startswith("fresh"), "caches may hold absolute paths"
    assert world.fetch(*arguments).stdout.startswith("unchanged")


def test_a_format_that_cannot_hold_the_release_is_named_and_does_not_stop_the_others(world):
    identity = world.folder / "identity.json"
    identity.write_text(json.dumps({**IDENTITY, "functions": []}))
    arguments = ("--format", "json", "--format", "dejavu", "--identity", identity)
    done = world.fetch(*arguments)
    assert done.stdout.startswith("fresh") and "dejavu: no winner" in done.stderr
    world.requests()
    done = world.fetch(*arguments)
    assert done.stdout.startswith("unchanged") and "dejavu: no winner" in done.stderr and world.requests() == ["/v1/cache"]


def test_a_release_that_no_format_can_hold_has_an_exit_code_of_its_own(world):
    identity = world.folder / "identity.json"
    identity.write_text(json.dumps({**IDENTITY, "functions": []}))
    arguments = ("--format", "dejavu", "--identity", identity)
    assert "no cache to fall back" in world.fetch(*arguments, expect=8).stderr
    world.fetch("--format", "json")
    alone = world.fetch(*arguments, expect=8)
    assert "no winner" in alone.stderr and "last good cache" in alone.stderr and world.block() == 256
    assert json.loads(world.fetch(*arguments, "--json", expect=8).stdout)["outcome"] == "stale"
    world.fetch(*arguments, url="http://127.0.0.1:9", expect=5)


def test_winners_that_are_left_out_are_counted_on_stderr_and_listed_with_json(world):
    release = json.loads(release_of())
    release["kernels"][0]["winners"].append([[8192, 1], 1, 0, [], 0])
    release["kernels"][0]["configs"].append({"values": {"BLOCK": 512, "num_warps": 4}})
    world.publish(canonical(release))
    arguments = ("--format", "dejavu", "--identity", world.folder / "identity.json", "--json")
    done = world.fetch(*arguments)
    assert "dejavu: 1 winner " in done.stderr and "add/triton [8192,1]" in done.stderr
    for done in (done, world.fetch(*arguments)):
        (format,) = json.loads(done.stdout)["formats"]
        assert [(s["name"], s["key"]) for s in format["skipped"]] == [("add/triton", "[8192,1]")]


def test_json_has_outcome_entry_variables_and_times(world):
    answer = json.loads(world.fetch("--format", "dejavu", "--identity", world.folder / "identity.json", "--json").stdout)
    assert (answer["outcome"], answer["folder"]) == ("fresh", f"{world.cache}/current")
    assert answer["entry"] == world.entry and answer["asked"] == ENVIRONMENT
    assert answer["variables"] == {"TRITON_DEJAVU_STORAGE": f"{world.cache}/current/dejavu", "TRITON_DEJAVU_TAG": "default",
                                   "HIP_FORCE_DEV_KERNARG": "1"}
    assert set(answer["took_ms"]) == {"download", "verify", "read", "render", "write"}
    kept = json.loads(world.fetch("--json", url="http://127.0.0.1:9", expect=5).stdout)
    assert kept["outcome"] == "stale" and "127.0.0.1:9" in kept["reason"] and kept["entry"] == world.entry
    world.cache = world.folder / "none"
    assert json.loads(world.fetch("--json", url="http://127.0.0.1:9", expect=6).stdout)["outcome"] == "nothing"


# Refusals, each with its own exit code

def expect_refused(world, code, sentence, **more):
    """The fetch is refused, alone and beside a cache that is kept."""
    kept, block = world.current(), world.block()
    done = world.fetch(expect=code, **more)
    assert sentence in done.stderr and "last good cache" in done.stderr.splitlines()[-1], done.stderr
    assert (world.current(), world.block()) == (kept, block)
    cache, world.cache = world.cache, world.folder / f"empty-{time.monotonic_ns()}"
    done = world.fetch(expect=code, **more)
    assert sentence in done.stderr and "no cache to fall back" in done.stderr, done.stderr
    assert not (world.cache / "current").exists()
    world.cache = cache


def test_a_release_with_one_changed_byte_is_refused_as_tampered(world, keys):
    world.publish(release_of(), publisher=keys[0])
    world.fetch(trust=keys[:1])
    release = release_of(1024)
    entry = world.publish(release, 2, keys[0])
    world.releases[entry["release"]] = release.replace(b"4096", b"4097")
    expect_refused(world, 10, "other bytes", trust=keys[:1])


def test_a_release_for_another_gpu_than_its_entry_is_refused_as_tampered(world):
    world.fetch()
    world.publish(release_of(1024, {**ENVIRONMENT, "compute_units": 38, "partition": "CPX/NPS4"}), 2)
    expect_refused(world, 10, "another environment")


def test_an_older_entry_is_a_replay_and_so_is_another_release_with_the_same_counter(world, keys):
    old = world.publish(release_of(), 4, keys[0])
    world.fetch(trust=keys[:1])
    world.publish(release_of(1024), 5, keys[0])
    world.fetch(trust=keys[:1])
    world.entry = old
    done = world.fetch(trust=keys[:1], expect=11)
    assert "entry 4 of channel" in done.stderr and "entry 5 " in done.stderr and world.block() == 1024
    world.publish(release_of(512), 5, keys[0])
    assert "with another release" in world.fetch(trust=keys[:1], expect=11).stderr
    world.publish(release_of(), 6, keys[0])
    assert world.fetch(trust=keys[:1]).stdout.startswith("fresh"), "a rollback is a higher counter"
    other = {**ENVIRONMENT, "torch": "2.8.0"}
    world.publish(release_of(environment=other), 1, keys[0], environment=other)
    assert world.fetch(trust=keys[:1], given=other).stdout.startswith("fresh"), "each entry has a counter of its own"


def test_counters_survive_key_rotation_and_unsigned_entries_do_not_count(world, keys):
    a, b = keys
    world.publish(release_of(), 1000)
    world.fetch()
    world.publish(release_of(), 4, a)
    world.fetch(trust=[a])
    world.publish(release_of(1024), 5, a)
    world.fetch(trust=[a, b])
    older = b.sign(a.sign({k: v for k, v in world.publish(release_of(), 4).items()}))
    world.entry = older
    world.fetch(trust=[a, b], expect=11)
    world.fetch(trust=[b], expect=11)
    world.publish(release_of(1024), 6, b)
    assert world.fetch(trust=[b]).returncode == 0


def test_an_expired_entry_is_refused(world, keys):
    world.publish(release_of(), publisher=keys[0])
    world.fetch(trust=keys[:1])
    world.publish(release_of(1024), 2, keys[0], expires="2026-01-01T00:00:00Z")
    expect_refused(world, 12, "expired at 2026-01-01T00:00:00Z", trust=keys[:1])


def test_a_kept_cache_that_expired_is_still_kept_and_reported(world, keys):
    world.publish(release_of(), publisher=keys[0], expires="9999-01-01T00:00:00Z")
    world.fetch(trust=keys[:1])
    expired = world.publish(release_of(), publisher=keys[0], expires="2026-01-01T00:00:00Z")
    (world.cache / "current/entry.json").write_text(json.dumps(expired))
    away = world.fetch(trust=keys[:1], expect=12, url="http://127.0.0.1:9")
    assert "last good cache" in away.stderr and "2026-01-01T00:00:00Z" in away.stderr and world.block() == 256
    state = json.loads((world.cache / ".fetch.json").read_text())
    state["etag"] = '"' + hashlib.sha256(canonical(expired)).hexdigest() + '"'
    (world.cache / ".fetch.json").write_text(json.dumps(state))
    assert "expired at" in world.fetch(trust=keys[:1], expect=12).stderr
    assert world.fake.requests[-1][2].get("If-None-Match") == state["etag"], "it was a 304"


def test_an_entry_that_no_trusted_key_signed_is_refused(world, keys):
    world.publish(release_of(), publisher=keys[0])
    world.fetch(trust=keys[:1])
    world.publish(release_of(1024), 2, keys[1])
    expect_refused(world, 13, "is not trusted", trust=keys[:1])
    world.publish(release_of(1024), 2)
    expect_refused(world, 13, "is not trusted", trust=keys[:1])
    forged = world.publish(release_of(1024), 2, keys[0])
    forged["counter"] = 3
    expect_refused(world, 13, "is not trusted", trust=keys[:1])


def test_keys_are_files_and_folders_from_options_and_the_variable(world, keys):
    world.publish(release_of(), publisher=keys[1])
    folder = world.folder / "trusted"
    folder.mkdir()
    (folder / "b.pub").write_bytes(keys[1].public.read_bytes())
    variable = {"WAVETUNE_TRUSTED_KEYS": f"{keys[0].public}:{folder}"}
    assert world.fetch(environment=variable).stderr == ""
    world.fetch(environment={"WAVETUNE_TRUSTED_KEYS": f"{keys[0].public}"}, expect=13)
    done = world.fetch(environment={"WAVETUNE_TRUSTED_KEYS": "/nowhere"}, expect=2)
    assert "WAVETUNE_TRUSTED_KEYS: " in done.stderr
    assert "/nowhere" in world.fetch("--trusted-key", "/nowhere", expect=2).stderr


def test_a_cache_that_no_trusted_key_signed_is_no_fallback(world, keys):
    world.fetch()
    done = world.fetch("--print-env", trust=keys[:1], url="http://127.0.0.1:9", expect=6)
    assert "no trusted key" in done.stderr and done.stdout == ""
    world.requests()
    world.entry = keys[0].sign(world.entry)
    assert world.fetch(trust=keys[:1]).returncode == 0
    assert world.fake.requests[0][2].get("If-None-Match") is None, "a 304 would have made it the trusted one"


def test_an_entry_for_another_request_is_refused(world):
    world.fetch()
    for changes in ({"channel": "other"}, {"tag": "other"}, {"environment": {**ENVIRONMENT, "compute_units": 38}},
                    {"environment": {**ENVIRONMENT, "torch": "2.8.0"}}, {"environment": {**ENVIRONMENT, "rocm": "6.4.0"}}):
        world.publish(release_of(1024), 2, **changes)
        done = world.fetch(expect=13)
        assert "not requested" in done.stderr or "another environment" in done.stderr
    assert world.block() == 256


@pytest.mark.parametrize("rule,changes,code", [
    ("minor", {"rocm": "6.4.0"}, 0), ("minor", {"rocm": "6.3.1"}, 13), ("minor", {"torch": "2.8.0"}, 13),
    ("compatible", {"rocm": "6.3.1", "torch": "2.8.0"}, 0), ("compatible", {"arch": "gfx90a"}, 13),
    ("compatible", {"compute_units": 38}, 13), ("compatible", {"partition": "CPX/NPS4"}, 13)])
def test_wider_rules_are_requested_and_never_give_another_gpu(world, rule, changes, code):
    other = {**ENVIRONMENT, **changes}
    world.publish(release_of(environment=other), environment=other)
    world.fetch(expect=13)
    assert "match=" not in world.fake.requests[-1][1]
    world.fetch("--match", rule, expect=code)
    assert any(f"match={rule}" in path for _, path, _ in world.fake.requests)


TABLE = {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X"}


def test_an_entry_that_states_less_is_accepted_unless_an_exact_one_was_requested(world):
    world.publish(release_of(environment=TABLE), environment=TABLE)
    for rule in ("unstated", "minor", "compatible"):
        world.fetch("--match", rule)
    assert "match=" not in world.fake.requests[0][1], "a parameter that older servers do not have is sent only on request"
    world.fetch("--match", "exact", expect=13)
    assert "match=exact" in world.fake.requests[-1][1]


@pytest.mark.parametrize("served, changes", [
    (TABLE, {"rocm": "6.4.0"}), (TABLE, {"gpu": "AMD Instinct MI308X"}), (TABLE, {"partition": "CPX/NPS4", "compute_units": 38}),
    (TABLE, {"partition": None}), ({"rocm": "6.4.1"}, {}), ({"rocm": "6.4.1", "gpu": "AMD Radeon Graphics"}, {})])
def test_an_entry_that_states_less_is_checked_here_as_the_server_does(world, served, changes):
    """False answers: an entry that states another GPU, none, or a whole one where this node has a part."""
    world.publish(release_of(environment=served), environment=served)
    node = {name: value for name, value in {**ENVIRONMENT, **changes}.items() if value is not None}
    for rule in ("unstated", "minor", "compatible"):
        done = world.fetch("--match", rule, given=node, expect=13)
        assert "another environment" in done.stderr


def http(body, length=None):
    return f"HTTP/1.1 200 OK\r\nContent-Length: {length or len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
def test_an_answer_that_ends_early_is_truncated(world, resets):
    world.fetch()
    release, entry = release_of(1024), json.dumps(world.publish(release_of(1024), 2)).encode()
    with Raw(lambda path: http(entry) if path == "/v1/cache" else http(release[:200], len(release)), resets) as raw:
        expect_refused(world, 14, "ended after 200 bytes", url=raw.url)
    with Raw(lambda _: http(entry[:50], len(entry)), resets) as raw:
        expect_refused(world, 14, "ended after 50 bytes", url=raw.url)


def test_a_server_that_is_killed_in_the_middle_of_a_download_leaves_the_last_good_cache(world, keys):
    world.publish(release_of(), publisher=keys[0])
    world.fetch(trust=keys[:1])
    release = release_of(1024)
    entry = json.dumps(world.publish(release, 2, keys[0])).encode()
    program = f"""
import socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
for body, length in (({entry!r}, {len(entry)}), ({release[:100]!r}, {len(release)})):
    connection, _ = listener.accept()
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n" % length + body)
    if len(body) < length:
        print("half", flush=True)
        time.sleep(600)
    connection.close()
"""
    server = subprocess.Popen(["python3", "-c", program], stdout=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(world.fetch, expect=14, trust=keys[:1], url=url)
        assert server.stdout.readline() == "half\n"
        server.kill()
        assert "last good cache" in fetched.result().stderr
    server.wait()
    assert world.block() == 256


def test_meaningless_answers_leave_the_cache_unchanged(world):
    world.fetch()
    for status, body in ((200, b"not json"), (200, {"release": "sha256:short"}), (500, b""), (304, b""),
                         (404, b"no such page: a proxy's answer"), (404, {"detail": "not there"})):
        world.other["/v1/cache"] = (status, body)
        done = world.fetch("--tag", f"t{status}", expect=5)
        assert done.stderr.count("\n") == 1 and "last good cache" in done.stderr
    world.other["/v1/cache"] = (200, b" " * (65 << 20))
    assert "larger than" in world.fetch("--tag", "large", expect=5).stderr
    del world.other["/v1/cache"]
    world.publish(canonical({"version": 1}), 2)
    assert "release sha256:" in world.fetch(expect=5).stderr
    world.releases.clear()
    assert "answered 404: not there" in world.fetch(expect=5).stderr
    assert world.block() == 256


def test_a_channel_tag_or_environment_without_an_entry_is_no_outage(start, database, postgres, tmp_path):
    """It is a mistake, with an exit code of its own: a start that is tried again after 5 and 6 would try for ever."""
    server = start(harness.Server, database)
    bench = Bench(server, postgres)
    bench.job(ENVIRONMENT)
    wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--channel", "stable")

    def fetch(*more, environment=ENVIRONMENT):
        return wavetune(server, "fetch", "--to", tmp_path / "cache", "--environment", json.dumps(environment), *more, check=False)

    mistakes = ((("--channel", "stabel"), ENVIRONMENT), (("--tag", "nigthly"), ENVIRONMENT), (("--regime", "warm"), ENVIRONMENT),
                ((), ENVIRONMENT | {"gpu": "MI999"}))
    for kept in (False, True):
        for more, environment in mistakes:
            done = fetch(*more, environment=environment)
            assert done.returncode == 15 and "has no entry" in done.stderr, done
            assert ("the last good cache is kept" if kept else "no cache to fall back on") in done.stderr
        assert json.loads(fetch("--channel", "stabel", "--json").stdout)["outcome"] == ("stale" if kept else "nothing")
        assert fetch().returncode == 0 and (tmp_path / "cache/current/json/cache.json").exists()


@pytest.mark.parametrize("format", ["dejavu", "inductor", "triton", "tunableop", "vllm-moe"])
def test_kernels_that_renderers_need_are_verified_too(world, format):
    provenance = {"build": "sha256:" + "7" * 64, "origin": "tuned"}
    manifest = {"name": "add/triton", "language": "external", "key": ["n", "m"]}
    release = release_of(kernel=digest(canonical(manifest)), provenance=provenance)
    (world.folder / "identity.json").write_text(json.dumps({**IDENTITY, "functions": []}))
    world.fetch()
    world.publish(release, 2)
    kernel = f"/v1/kernels/{digest(canonical(manifest))}"
    arguments = ("--format", format, "--format", "json", "--identity", world.folder / "identity.json")
    world.other[kernel] = (200, {"manifest": {**manifest, "name": "other"}})
    done = world.fetch(*arguments, expect=10)
    assert f"kernel {digest(canonical(manifest))} " in done.stderr and "other bytes" in done.stderr and world.block() == 256
    world.other[kernel] = (200, b"{")
    world.fetch(*arguments, expect=10)
    world.other[kernel] = (503, b"")
    assert "answered 503" in world.fetch(*arguments, expect=5).stderr
    world.other[kernel] = (404, b"")
    assert f"{format}: no winner" in world.fetch(*arguments).stderr, "a kernel that the server does not have is left out"


def test_the_exit_code_of_export_follows_the_servers_answer_for_a_kernel(world, tmp_path):
    manifest = {"name": "add/triton", "language": "external", "key": ["n", "m"]}
    kernel = digest(canonical(manifest))
    (world.folder / "identity.json").write_text(json.dumps({**IDENTITY, "functions": []}))
    world.publish(release_of(kernel=kernel, provenance={"build": "sha256:" + "7" * 64, "origin": "tuned"}), 2)
    arguments = (world.entry["release"], "--format", "dejavu", "--identity", world.folder / "identity.json")
    for status, code in ((401, 4), (403, 4), (422, 4), (429, 4), (302, 3), (408, 3), (500, 3), (503, 3)):
        world.other[f"/v1/kernels/{kernel}"] = (status, b"")
        done = wavetune(None, "export", *arguments, "--to", tmp_path / "x", "--url", world.url, check=False)
        assert done.returncode == code and f"answered {status} to /v1/kernels/" in done.stderr, (status, done)


# The start is not blocked

def test_a_server_that_hangs_is_given_up_when_the_budget_is_used(world):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world.fetch("--budget-ms", "200", url=f"http://127.0.0.1:{listener.getsockname()[1]}", expect=6)


def test_a_fetch_that_waits_too_long_for_another_gives_up(world):
    world.fetch()
    with open(world.cache / ".lock", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another fetch" in world.fetch("--budget-ms", "50", expect=5).stderr


def test_of_two_fetches_at_once_one_does_the_work(world):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: world.fetch(), range(4)))
    assert sorted(d.stdout.split()[0] for d in done) == ["fresh", "unchanged", "unchanged", "unchanged"]
    assert world.requests().count("/v1/releases/" + world.current()) == 1


def test_a_folder_that_cannot_be_made_or_written_blocks_no_start(world):
    cache, world.cache = world.cache, world.folder / "file/cache"
    (world.folder / "file").write_text("")
    assert "cannot make" in world.fetch(expect=6).stderr
    world.cache = cache
    world.fetch()
    (cache / ".lock").unlink()
    (cache / ".lock").mkdir()  # like a read-only folder, for root too
    assert "cannot write to" in world.fetch(expect=5).stderr
    (cache / ".lock").rmdir()
    (cache / "current").unlink()
    (cache / "current").mkdir()
    assert "cannot point" in world.fetch(expect=5).stderr


# A disk that is slow or broken: the test replaces calls of the C library. A call that blocks makes
# the file DISK_REACHED first.
DISK = r"""
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, name))
static int chosen = -1; /* DISK_FILE, while it is written */
static int fail(int reason) { errno = reason; return -1; }
static int ends(const char *text, const char *end) {
  return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}
static int is(const char *what) { return getenv("DISK") && strcmp(getenv("DISK"), what) == 0; }
static void reach(void) { close(open(getenv("DISK_REACHED"), O_CREAT | O_WRONLY, 0600)); }
int syncfs(int fd) {
  (void)fd;
  if (is("hangs"))
    for (reach(); access(getenv("DISK_GATE"), F_OK) != 0;)
      usleep(10000);
  errno = EIO;
  return is("broken") ? -1 : 0;
}
int openat(int folder, const char *path, int flags, ...) {
  if (is("slow") && (flags & O_CREAT)) {
    reach();
    usleep(1000 * atoi(getenv("DISK_MS")));
  }
  int file = NEXT(int (*)(int, const char *, int, int), "openat")(folder, path, flags, 0644);
  if ((flags & O_CREAT) && getenv("DISK_FILE") && ends(path, getenv("DISK_FILE")))
    chosen = file;
  return file;
}
ssize_t write(int file, const void *bytes, size_t size) {
  return is("full") && file == chosen ? fail(ENOSPC) : NEXT(ssize_t (*)(int, const void *, size_t), "write")(file, bytes, size);
}
int close(int file) {
  int done = NEXT(int (*)(int), "close")(file), is_chosen = is("late") && file == chosen;
  chosen = file == chosen ? -1 : chosen;
  return is_chosen ? fail(EDQUOT) : done;
}
int mkdirat(int folder, const char *path, mode_t mode) {
  return is("folderless") ? fail(ENOSPC) : NEXT(int (*)(int, const char *, mode_t), "mkdirat")(folder, path, mode);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*begin)(void *), void *context) {
  typedef int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  return is("threadless") ? EAGAIN : NEXT(create, "pthread_create")(thread, attributes, begin, context);
}
int rename(const char *from, const char *to) {
  if (is("stuck") && ends(to, "/dejavu") && !ends(from, ".old") && access(to, F_OK) != 0)
    return fail(EIO);
  return NEXT(int (*)(const char *, const char *), "rename")(from, to);
}
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
  (void)from_folder, (void)from, (void)to_folder, (void)to, (void)flags;
  errno = EINVAL;
  return -1;
}
"""


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """disk(what): variables of a fetch whose disk is like that."""
    folder = tmp_path_factory.mktemp("disk")
    (folder / "disk.c").write_text(DISK)
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", folder / "disk.so", folder / "disk.c", "-ldl"], check=True)
    asan = f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0"
    return lambda what, file="": {"LD_PRELOAD": str(folder / "disk.so"), "DISK": what, "ASAN_OPTIONS": asan,
                                  **({"DISK_FILE": file} if file else {})}


def held_up(world, variables):
    """A fetch whose disk needs longer than the budget, which is just large enough for this machine to reach the disk."""
    for budget in (300 << n for n in range(11)):
        reached = world.folder / f"{variables['DISK']}-{budget}"
        more = {"DISK_REACHED": str(reached), "DISK_GATE": str(world.folder / "gate"), "DISK_MS": str(budget)}
        done = world.fetch("--budget-ms", str(budget), environment=variables | more, expect=5)
        assert world.block() == 256
        if reached.exists():
            return done
    raise AssertionError(f"the disk was never reached: {done.stderr}")


def test_a_disk_that_takes_no_new_cache_leaves_the_old_one(world, disk):
    world.fetch()
    world.publish(release_of(1024), 2)
    assert "cannot sync" in world.fetch(environment=disk("broken"), expect=5).stderr
    try:
        assert "within the budget" in held_up(world, disk("hangs")).stderr
    finally:
        (world.folder / "gate").touch()
    assert "budget" in held_up(world, disk("slow")).stderr
    assert world.fetch().stdout.startswith("fresh") and world.block() == 1024


@pytest.mark.parametrize("what, file, sentence", [
    ("full", "release.json", "release.json: No space left"),
    ("full", "cache.json", "json/cache.json: No space left"),
    ("late", "cache.json", "json/cache.json: Disk quota exceeded"),
    ("late", ".wavetune.json", "json/.wavetune.json: Disk quota exceeded"),
    ("folderless", "", "json: No space left"),
    ("threadless", "", "thread")])
def test_a_cache_that_cannot_be_written_leaves_the_old_one_and_nothing_else(world, disk, what, file, sentence):
    world.fetch()
    world.publish(release_of(1024), 2)
    before = sorted(os.listdir(world.cache))
    assert sentence in world.fetch(environment=disk(what, file), expect=5).stderr
    assert sorted(os.listdir(world.cache)) == before and world.block() == 256


def test_a_rendering_that_cannot_be_moved_into_place_leaves_the_one_that_was_there(world, disk):
    identity = world.folder / "identity.json"
    arguments = ("--format", "dejavu", "--identity", identity)
    world.fetch(*arguments)
    identity.write_text(json.dumps({**IDENTITY, "dejavu": {**IDENTITY["dejavu"], "runtime": "rocm_6.4.2"}}))
    assert "cannot rename" in world.fetch(*arguments, environment=disk("stuck"), expect=5).stderr
    assert "rocm_6.4.1" in world.files("dejavu")[0]


def test_a_cache_of_megabytes_is_written_while_it_is_rendered_as_export_writes_it_at_once(world, tmp_path):
    release = json.loads(release_of())
    winners = sorted(([n, 1] for n in range(50000)), key=canonical)
    release["kernels"][0]["winners"] = [[key, 0, 0, [0.5], 0] for key in winners]
    world.publish(canonical(release), 2)
    arguments = ("--format", "json", "--format", "dejavu", "--identity", world.folder / "identity.json")
    world.fetch(*arguments)
    file = world.cache / "current/release.json"
    assert file.read_bytes() == canonical(release)
    for format in ("json", "dejavu"):
        export(file, "--to", tmp_path / format, *arguments[arguments.index(format) - 1:][:2], *arguments[-2:])
        for path in world.files(format):
            content = (tmp_path / format / path).read_bytes()
            assert len(content) > 16 * 65536 and (world.cache / "current" / format / path).read_bytes() == content


def test_a_file_system_without_exchange_still_gets_the_new_rendering(world, disk):
    identity = world.folder / "identity.json"
    arguments = ("--format", "dejavu", "--identity", identity)
    world.fetch(*arguments)
    identity.write_text(json.dumps({**IDENTITY, "dejavu": {**IDENTITY["dejavu"], "runtime": "rocm_6.4.2"}}))
    assert world.fetch(*arguments, environment=disk("good")).stdout.startswith("fresh")
    assert "rocm_6.4.2" in world.files("dejavu")[0]
    assert folders(world.cache) == [world.entry["release"][7:]]


# Contents of the folder

def test_leftovers_of_a_killed_fetch_do_not_matter_and_are_removed(world):
    name = world.entry["release"][7:]
    half = world.cache / f".{name}.0123456789abcdef"
    half.mkdir(parents=True)
    (half / "release.json").write_text("{half")
    (world.cache / ".current.0123456789abcdef").symlink_to(name)
    (world.cache / ".fetch.json.0123456789abcdef").write_text("half")
    (world.cache / ".fetch.json").write_text('{"question": ')
    assert world.fetch().stdout.startswith("fresh")
    assert world.fetch().stdout.startswith("unchanged")
    assert sorted(p.name for p in world.cache.iterdir()) == sorted([".fetch.json", ".lock", "current", name])


def test_a_release_that_was_damaged_on_the_disk_is_fetched_again(world):
    world.fetch()
    (world.cache / "current/release.json").write_text("{}")
    (world.cache / "current/json/.wavetune.json").unlink()
    assert world.fetch().stdout.startswith("fresh")
    assert (world.cache / "current/release.json").read_bytes() == release_of() and world.block() == 256


@pytest.mark.parametrize("is_current", [True, False])
def test_a_link_or_a_file_in_a_releases_place_is_replaced_and_not_written_through(world, is_current):
    name = digest(release_of())[7:]
    elsewhere = world.folder / "elsewhere"
    if is_current:  # the link points to a whole release, which is still no folder of this cache
        world.fetch()
        (world.cache / name).rename(elsewhere)
    else:
        world.cache.mkdir()
        elsewhere.mkdir()
        (elsewhere / "file").write_text("mine")
    before = sorted((p.relative_to(elsewhere), p.read_bytes()) for p in elsewhere.rglob("*") if p.is_file())
    for make in (lambda place: place.symlink_to(elsewhere), lambda place: place.symlink_to("/nowhere"),
                 lambda place: place.write_text("mine")):
        make(world.cache / name)
        assert world.fetch().stdout.startswith("fresh")
        assert (world.cache / name).is_dir() and not (world.cache / name).is_symlink()
        assert (world.cache / "current/release.json").read_bytes() == release_of() and world.block() == 256
        assert world.fetch().stdout.startswith("unchanged")
        assert sorted(p.name for p in world.cache.iterdir()) == sorted([".fetch.json", ".lock", "current", name])
        shutil.rmtree(world.cache / name)
    after = sorted((p.relative_to(elsewhere), p.read_bytes()) for p in elsewhere.rglob("*") if p.is_file())
    assert after == before and before


def test_an_entity_tag_is_not_used_for_another_request_nor_without_its_cache(world):
    world.fetch()
    assert world.fetch().stdout.startswith("unchanged")
    assert world.fetch(given={**ENVIRONMENT, "partition": "SPX/NPS1"}).stdout.startswith("unchanged")
    world.fetch(given={"arch": "gfx942"})
    assert world.fake.requests[-1][2].get("If-None-Match") is None
    (world.cache / "current").unlink()
    assert world.fetch(given={"arch": "gfx942"}).stdout.startswith("fresh") and world.block() == 256


def age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then), follow_symlinks=False)


def folders(cache):
    return sorted(p.name for p in cache.iterdir() if p.is_dir() and not p.is_symlink())


def test_replaced_releases_are_removed_after_an_hour_but_for_the_last_one(world):
    cache, ancient, recent = world.cache, "a" * 64, "b" * 64
    first, second = world.entry["release"][7:], digest(release_of(1024))[7:]
    world.fetch()
    for name in (ancient, recent):
        (cache / name).mkdir()
        (cache / name / "cache.json").write_text("{}")
    kept, treasure = world.folder / "kept", world.folder / "treasure"
    for place in (kept, treasure):
        place.mkdir()
        (place / "file").write_text("mine")
    (cache / ("c" * 64)).symlink_to(kept)
    (cache / ancient / "link").symlink_to(treasure)
    (cache / "notes").mkdir()
    for path in cache.iterdir():
        if path.name != recent:
            age(path, 7200)
    world.fetch()
    assert folders(cache) == sorted([recent, first, "notes"])
    assert (kept / "file").read_text() == (treasure / "file").read_text() == "mine"
    assert (cache / ("c" * 64)).is_symlink()
    age(cache / first, 7200)
    world.publish(release_of(1024), 2)
    world.fetch()
    assert first in folders(cache), "its hour began when it was replaced"
    age(cache / first, 7200)
    world.fetch()
    assert first in folders(cache), "the one before current stays"
    age(cache / recent, 7200)
    world.fetch()
    assert folders(cache) == sorted([first, second, "notes"])


def test_a_link_that_no_fetch_made_is_replaced(world):
    world.fetch()
    target = os.readlink(world.cache / "current")
    (world.cache / "current").unlink()
    (world.cache / "current").symlink_to(world.cache / target)
    assert world.fetch().stdout.startswith("fresh")
    assert os.readlink(world.cache / "current") == target


# Variables

def test_print_env_prints_what_a_shell_evaluates_and_nothing_else(world):
    world.cache = world.folder / "it's $HOME here"
    arguments = ("--format", "json", "--format", "dejavu", "--identity", world.folder / "identity.json", "--print-env")
    expected = f"{world.cache}/current/dejavu\n"
    show = 'eval "$1"; printf "%s\\n" "$TRITON_DEJAVU_STORAGE"'
    for done in (world.fetch(*arguments), world.fetch(*arguments), world.fetch(*arguments, expect=5, url="http://127.0.0.1:9")):
        assert all(line.startswith(("export TRITON_DEJAVU_", "export HIP_")) for line in done.stdout.splitlines())
        assert subprocess.run(["sh", "-uc", show, "sh", done.stdout], capture_output=True, text=True).stdout == expected
    as_json = json.loads(world.fetch(*arguments, "--json").stdout)
    assert as_json == {"TRITON_DEJAVU_STORAGE": expected.strip(), "TRITON_DEJAVU_TAG": "default", "HIP_FORCE_DEV_KERNARG": "1"}
    world.cache = world.folder / "none"
    assert world.fetch(*arguments, expect=6, url="http://127.0.0.1:9").stdout == ""


def test_programs_on_rocm_get_the_variable_with_which_agents_measure(world):
    def printed(*more, **environment):
        return world.fetch("--format", "json", "--print-env", *more, environment=environment).stdout

    assert printed() == "export HIP_FORCE_DEV_KERNARG='1'\n"
    assert printed(HIP_FORCE_DEV_KERNARG="0") == "", "the image's own choice stays"
    world.cache = world.folder / "none"
    assert world.fetch("--print-env", expect=6, url="http://127.0.0.1:9").stdout == "", "without a cache nothing changes"


def test_programs_on_cuda_get_no_variable_of_rocm(world):
    given = {"cuda": "13.0", "gpu": "NVIDIA H200", "arch": "sm_90", "compute_units": 132, "partition": ""}
    assert "HIP" not in world.fetch("--format", "json", "--print-env", given=given, expect=None).stdout


# The environment that is requested

def requested(world, given, *more, expect=0, **folders):
    variables = {"WAVETUNE_KFD_TOPOLOGY": KFD / "mi300x_spx", "WAVETUNE_PCI_DEVICES": KFD / "pci", "ROCM_PATH": KFD / "rocm",
                 "WAVETUNE_AMDGPU_IDS": KFD / "amdgpu.ids", **folders}
    done = world.fetch("--json", *more, given=given, expect=expect,
                       environment={name: str(path) for name, path in variables.items()})
    return json.loads(done.stdout)["asked"]


def test_members_that_are_not_given_are_read_from_the_node_and_the_identity(world):
    identity = ("--identity", world.folder / "identity.json")
    assert requested(world, None, *identity) == ENVIRONMENT
    assert requested(world, {"torch": "2.9.0"}) == {k: v for k, v in ENVIRONMENT.items() if k != "triton"}
    assert requested(world, None, *identity, WAVETUNE_AMDGPU_IDS="/nowhere") == ENVIRONMENT, "the image has the name"
    given = {"rocm": "6.4.0", "gpu": "other"}
    assert requested(world, given, expect=13) == {**given, "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
    assert requested(world, {"cpu": "gcc 12"}, expect=13) == {"cpu": "gcc 12"}, "not the values of this node's GPU"


# Export

def export(*arguments, **more):
    return wavetune(None, "export", *arguments, **more)


def test_export_writes_a_folder_or_a_tar_from_a_file_a_digest_or_a_channel(world, tmp_path):
    file = tmp_path / "release.json"
    file.write_bytes(release_of())
    assert export(file, "--to", tmp_path / "out").stdout.startswith("1 file of sha256:")
    content = (tmp_path / "out/cache.json").read_bytes()
    world.other["/v1/channels/stable"] = (200, world.entry)
    for what in (world.entry["release"], "stable"):
        to = tmp_path / what[:6]
        to.mkdir()
        export(what, "--to", to, "--url", world.url)
        assert (to / "cache.json").read_bytes() == content and sorted(os.listdir(to)) == ["cache.json"]
    for name in ("a.tar", "b.tar"):
        export(file, "--to", tmp_path / name)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    untarred = subprocess.run(["tar", "-xOf", tmp_path / "a.tar", "cache.json"], capture_output=True, check=True)
    assert untarred.stdout == content


def test_export_reports_what_it_left_out_and_the_values_of_the_variables(world, tmp_path):
    file = tmp_path / "release.json"
    file.write_bytes(release_of())
    answer = json.loads(export(file, "--format", "dejavu", "--to", tmp_path / "dejavu/", "--identity",
                               world.folder / "identity.json", "--json").stdout)
    assert answer["files"] == 1 and answer["skipped"] == []
    assert answer["variables"]["TRITON_DEJAVU_STORAGE"] == str(tmp_path / "dejavu")
    assert (tmp_path / "dejavu").stat().st_mode & 0o777 == 0o777


def test_a_place_whose_name_is_no_utf8_is_refused(world, tmp_path):
    (tmp_path / "release.json").write_bytes(release_of())
    place = os.fsdecode(bytes(tmp_path) + b"/x\xff")
    for arguments, code in ((("fetch", "--url", world.url, "--environment", json.dumps(ENVIRONMENT)), 6),
                            (("export", tmp_path / "release.json", "--json"), 2)):
        done = subprocess.run([harness.BUILD / "wavetune", *arguments, "--to", place], capture_output=True)
        assert done.returncode == code and b"no UTF-8" in done.stderr, done


def test_export_refuses_what_it_cannot_do(world, tmp_path):
    file = tmp_path / "release.json"
    file.write_bytes(release_of())
    (tmp_path / "bad.json").write_bytes(release_of() + b" ")
    world.releases[world.entry["release"]] = release_of(1024)
    for arguments, code, sentence in (
            ((file, "--to", tmp_path), 2, "is there already"), ((file,), 2, "what and where"),
            ((file, "--to", "/"), 2, "is there already"), ((file, "--to", tmp_path / "release.json/x"), 2, "cannot make"),
            ((tmp_path / "bad.json", "--to", tmp_path / "x"), 2, "bad.json: "),
            ((file, "--to", tmp_path / "x", "--format", "json", "--format", "dejavu"), 2, "one format"),
            ((file, "--to", tmp_path / "x", "--format", "dejavu"), 1, "dejavu: "),
            ((file, "--to", tmp_path / "no/x.tar"), 1, "cannot write"),
            ((world.entry["release"], "--to", tmp_path / "x", "--url", world.url), 10, "other bytes"),
            (("sha256:" + "0" * 64, "--to", tmp_path / "x", "--url", world.url), 4, "not there"),
            (("nowhere", "--to", tmp_path / "x", "--url", world.url), 4, "not there"),
            (("stable", "--to", tmp_path / "x", "--url", "http://127.0.0.1:9"), 3, "127.0.0.1:9")):
        done = export(*arguments, check=False)
        assert done.returncode == code and sentence in done.stderr, (arguments, done)
        assert not (tmp_path / "x").exists()
