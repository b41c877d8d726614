"""Compiled code comes from the server only when it may and when it is what it should be; the folder stays plain Triton's."""

import base64
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from urllib.parse import parse_qs, urlsplit

import pytest
import triton
from conftest import TUNED
from contract_server import ENVIRONMENT, Contract, canonical, document
from starting import MIDDLE, UNTOUCHED, choices, environment, essence, python, tuned

from wavetune._runtime import code, ed25519, trust, wire

CHOSEN = [512, 4]
SECRET = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """What runs in the process of the tests waits for its server, however slow the machine is; programs have their own times."""
    monkeypatch.setattr(wire, "FIRST_BYTE_S", 60.0)
    monkeypatch.setattr(wire, "BACKGROUND_S", 60.0)


@pytest.fixture
def server():
    with Contract() as made:
        yield made


def shared(*sizes, cache, server, **variables):
    return tuned(*sizes, cache=cache, server=server, WAVETUNE_SHARED_CODE="1", **variables)[-1]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """What a first program leaves at a server: the compiled kernels of the chosen configs."""
    with Contract() as server:
        server.document = document(choices(4096))
        report = shared(4096, cache=tmp_path_factory.mktemp("first"), server=server)
        assert (report["used"], report["benchmarked"], report["compiled"]) == ([CHOSEN] * 2, 0, 2)
        server.wait_for(lambda: len(server.files) == 2)
        return dict(server.files)


def test_a_second_container_compiles_and_benchmarks_nothing(server, stored, tmp_path):
    server.document, server.files = document(choices(4096)), dict(stored)
    report = shared(4096, cache=tmp_path, server=server)
    assert essence(report) == {"used": [CHOSEN] * 2, "benchmarked": 0, "compiled": 0}
    assert report["counters"]["groups"] == 2 and len(server.asked("GET")) == 3
    # The folder is one that plain Triton reads, and has nothing of ours in it.
    (tmp_path / "choices").mkdir()
    (tmp_path / "choices.json").write_bytes(canonical(document(choices(4096))))
    (plain,) = tuned(4096, cache=tmp_path, WAVETUNE_CACHE=str(tmp_path))
    assert plain["compiled"] == 0 and not [name for name in os.listdir(tmp_path) if name.startswith("tmp")]
    again = shared(4096, cache=tmp_path, server=server)
    assert again["compiled"] == 0 and len(server.asked("GET")) == 4  # its choices alone


def test_what_an_empty_server_got_serves_a_program_that_tunes_the_same(server, tmp_path):
    first = shared(4096, cache=tmp_path / "1", server=server, TRITON_CACHE_AUTOTUNING="1")
    assert essence(first) == UNTOUCHED
    server.wait_for(lambda: len(server.asked("PUT")) >= 2)
    second = shared(4096, cache=tmp_path / "2", server=server, TRITON_CACHE_AUTOTUNING="1")
    assert second["used"] == first["used"] and second["compiled"] == 0
    if hasattr(triton, "knobs"):  # from 3.4 on Triton keeps what its autotuner measured
        assert second["benchmarked"] == 0


def test_a_start_is_listed_without_the_configs_that_lost(server, tmp_path):
    first = shared(4096, cache=tmp_path / "1", server=server, COMPILE_ALL="1")
    assert (first["benchmarked"], first["compiled"]) == (12, 12)
    server.wait_for(lambda: len(server.files) == 12 and len(server.lists) == 2)
    (listed,) = {body for body in server.lists.values()}
    winners = [folder for folder, _, _ in json.loads(listed)["files"]]
    assert len(winners) == 2
    server.document = document(choices(4096, config={"BLOCK": first["used"][0][0], "num_warps": first["used"][0][1]}))
    server.requests.clear()
    second = shared(4096, cache=tmp_path / "2", server=server)
    assert (second["benchmarked"], second["compiled"]) == (0, 0)
    assert sorted(path.split("/")[4] for path in server.asked("GET", "/v1/remote")) == sorted(winners)
    # What the list has is there already: nothing is asked for, and a list that fits is not sent again.
    server.requests.clear()
    server.lists = dict.fromkeys(server.lists, listed)
    assert shared(4096, cache=tmp_path / "2", server=server)["compiled"] == 0
    assert server.asked("GET", "/v1/remote") == server.asked("PUT") == [] and set(server.lists.values()) == {listed}


def named(server):
    """The releases that reads of code name."""
    queries = [parse_qs(urlsplit(path).query) for path in server.asked("GET", "/v1/remote") if "/group/" in path]
    return [query["release"][0] if "release" in query else None for query in queries]


def test_reads_name_the_release_that_states_the_code_and_no_other(server, stored, tmp_path):
    server.document, server.files = document(choices(4096)), dict(stored)
    shared(4096, cache=tmp_path / "1", server=server)
    assert named(server) == [None, None], "the release states no code"
    server.document = with_code(stored)
    for cache in ("2", "3"):  # the third begins with the list of the second's start
        server.requests.clear()
        report = shared(4096, cache=tmp_path / cache, server=server)
        assert (report["compiled"], report["counters"]["groups"]) == (0, 2)
        assert named(server) == [server.document["release"]] * 2
    server.files = {place: body[:-1] + bytes([body[-1] ^ 1]) for place, body in stored.items()}
    report = shared(4096, cache=tmp_path / "4", server=server)
    assert (report["compiled"], report["counters"]["refused"]) == (2, 2), "its digests are compared without a key, too"


def test_without_a_key_or_an_open_namespace_no_code_is_asked_for_or_sent(server, stored, tmp_path):
    server.document, server.files = document(choices(4096)), dict(stored)
    for variables in ({}, {"TRITON_CACHE_MANAGER": "wavetune.triton:CacheManager"}):
        (report,) = tuned(4096, cache=tmp_path / str(len(variables)), server=server, **variables)
        assert report["compiled"] == 2 and server.asked("PUT") == [] and server.asked("GET", "/v1/remote") == []


# A trusted key

def sign(message):
    """RFC 8032, section 5.1.6."""
    digest = hashlib.sha512(SECRET).digest()
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | 1 << 254
    public = compress(ed25519._multiply(scalar, ed25519._BASE))
    r = int.from_bytes(hashlib.sha512(digest[32:] + message).digest(), "little") % ed25519._L
    point = compress(ed25519._multiply(r, ed25519._BASE))
    k = int.from_bytes(hashlib.sha512(point + public + message).digest(), "little") % ed25519._L
    return public, point + ((r + k * scalar) % ed25519._L).to_bytes(32, "little")


def compress(point):
    z = pow(point[2], ed25519._P - 2, ed25519._P)
    x, y = point[0] * z % ed25519._P, point[1] * z % ed25519._P
    return (y | (x & 1) << 255).to_bytes(32, "little")


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "publisher.key.pub"
    der = bytes.fromhex("302a300506032b6570032100") + sign(b"")[0]
    path.write_text(f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(der).decode()}\n-----END PUBLIC KEY-----\n")
    return path


def signature(message):
    public, text = sign(message)
    return {"key": "sha256:" + hashlib.sha256(public).hexdigest(), "signature": base64.b64encode(text).decode()}


def signed(found, **members):
    """A channel's entry for the document's release, and the signature of the document as the server adds it."""
    entry = {"channel": "stable", "counter": 1, "environment": {"arch": "sm_90"}, "release": found["release"], "tag": "default",
             **members}
    digest = "sha256:" + hashlib.sha256(canonical(found)).hexdigest()
    return {**entry, "signatures": [signature(trust.signed_bytes(entry))],
            "choices": {"digest": digest, "signatures": [signature(trust.choices_bytes(found["release"], digest))]}}


def with_code(stored):
    """The document, with the digests of what is stored."""
    found = {}
    for (_, folder, _, _), body in stored.items():
        found[folder] = {name: "sha256:" + hashlib.sha256(data).hexdigest() for name, data in code.unpack(body).items()}
    return document(choices(4096), found)


def test_a_trusted_key_lets_in_the_code_that_the_release_states(server, stored, key, tmp_path):
    server.document, server.files = with_code(stored), dict(stored)
    server.entry = signed(server.document)
    (report,) = tuned(4096, cache=tmp_path / "1", server=server, WAVETUNE_TRUSTED_KEYS=str(key))
    assert (report["used"], report["compiled"], server.asked("PUT")) == ([CHOSEN] * 2, 0, [])
    assert named(server) == [server.document["release"]] * 2
    poisoned = {place: body[:-1] + bytes([body[-1] ^ 1]) for place, body in stored.items()}
    server.files = poisoned
    (report,) = tuned(4096, cache=tmp_path / "2", server=server, WAVETUNE_TRUSTED_KEYS=str(key))
    assert (report["used"], report["compiled"], report["counters"]["refused"]) == ([CHOSEN] * 2, 2, 2)
    assert not list((tmp_path / "2").rglob("tmp*"))
    # An entry that is signed, and a document that is not.
    server.entry = {**signed(server.document), "choices": {"digest": "sha256:" + "0" * 64, "signatures": []}}
    server.files, server.requests[:] = dict(stored), []
    (report,) = tuned(4096, cache=tmp_path / "3", server=server, WAVETUNE_TRUSTED_KEYS=str(key))
    assert (report["benchmarked"], report["compiled"], server.asked("GET", "/v1/remote")) == (12, 2, [])
    # A release that the operator pinned needs no entry, and a signature of its choices.
    pinned = {"WAVETUNE_TRUSTED_KEYS": str(key), "WAVETUNE_RELEASE": server.document["release"]}
    server.entry = {"choices": signed(server.document)["choices"]}
    (report,) = tuned(4096, cache=tmp_path / "4", server=server, **pinned)
    assert (report["used"], report["compiled"]) == ([CHOSEN] * 2, 0)
    server.entry = {}
    (report,) = tuned(4096, cache=tmp_path / "5", server=server, **pinned)
    assert report["benchmarked"] == 12


@pytest.mark.one_triton
@pytest.mark.parametrize("change", [
    {"expires": "2020-01-01T00:00:00Z"}, {"channel": "other"}, {"tag": "other"},
    {"regime": "warm"}, {"environment": {"arch": "sm_100"}}, {"environment": 5}, {"expires": "soon"}])
def test_an_entry_that_is_not_for_this_program_brings_no_choices(change, key):
    entry = signed(document(), **change)
    wanted = {"environment": ENVIRONMENT}
    keys = trust.read_keys([str(key)])
    assert trust.refusal(entry, keys, wanted) is not None
    assert trust.refusal(signed(document()), keys, wanted) is None
    assert trust.refusal(signed(document(), expires="2999-01-01T00:00:00Z"), keys, wanted) is None
    assert trust.refusal({**signed(document()), "counter": 2}, keys, wanted) is not None
    assert trust.refusal(signed(document()), {}, wanted) is not None
    for signatures in (None, 5, [], [5], [{}], [{"key": "x"}], [{"key": next(iter(keys)), "signature": "!"}]):
        assert trust.refusal({**signed(document()), "signatures": signatures}, keys, wanted) is not None
        assert not trust.vouches({**signed(document())["choices"], "signatures": signatures}, document()["release"],
                                 canonical(document()), keys)


@pytest.mark.one_triton
def test_only_a_signature_of_these_choices_of_this_release_vouches_for_them(key):
    keys, found = trust.read_keys([str(key)]), document()
    stated, text, release = signed(found)["choices"], canonical(found), found["release"]
    assert trust.vouches(stated, release, text, keys)
    assert not trust.vouches(stated, release, text + b" ", keys) and not trust.vouches(stated, "sha256:" + "b" * 64, text, keys)
    assert not trust.vouches(stated, release, text, {}) and not trust.vouches(None, release, text, keys)
    assert not trust.vouches(stated, None, text, keys) and not trust.vouches({}, release, text, keys)
    # A signature of one kind is none of the other.
    of_entry = {"digest": stated["digest"], "signatures": signed(found)["signatures"]}
    assert not trust.vouches(of_entry, release, text, keys)


@pytest.mark.one_triton
def test_unsigned_choices_are_not_taken_where_a_key_is_trusted(server, key, tmp_path):
    for entry in ({}, {**signed(document()), "counter": 5}, signed(document(), release="sha256:" + "b" * 64)):
        server.document, server.entry = document(choices(4096)), entry
        server.later = {(closure, tuple(own)): config for closure, _, own, config in choices(4096)}
        (report,) = tuned(4096, cache=tmp_path / "cache", server=server, WAVETUNE_TRUSTED_KEYS=str(key))
        assert report["benchmarked"] == 12


@pytest.mark.one_triton
def test_what_is_signed_is_canonical_as_the_server_writes_it():
    entry = {"tag": "a\tb\x1f", "channel": 'sta"ble', "counter": 1, "release": "é", "regime": "cold", "match": {}}
    assert trust.signed_bytes(entry).partition(b"\n")[2].decode() == \
        '{"channel":"sta\\"ble","counter":1,"release":"é","tag":"a\\u0009b\\u001f"}'


@pytest.mark.one_triton
def test_a_key_file_that_is_none_is_left_out(key, tmp_path):
    (tmp_path / "none.pub").write_text("-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----\n")
    (tmp_path / "text.pub").write_text("hello")
    paths = [str(tmp_path / name) for name in ("none.pub", "text.pub", "absent.pub")]
    assert trust.read_keys(paths) == {} and len(trust.read_keys([*paths, str(key)])) == 1


# RFC 8032, section 7.1
@pytest.mark.one_triton
@pytest.mark.parametrize("public, message, signature", [
    ("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
     "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"),
    ("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
     "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"),
    ("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
     "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"),
    ("ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
     "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
     "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
     "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b589"
     "09351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704")])
def test_the_signatures_of_the_standard_are_valid_and_no_others(public, message, signature):
    public, message, signature = map(bytes.fromhex, (public, message, signature))
    assert ed25519.verify(public, message, signature)
    assert not ed25519.verify(public, message + b"x", signature)
    for i in (0, 31, 32, 63):
        assert not ed25519.verify(public, message, signature[:i] + bytes([signature[i] ^ 1]) + signature[i + 1:])
    assert not ed25519.verify(public[:-1] + bytes([public[-1] ^ 1]), message, signature)
    assert not ed25519.verify(public, message, signature[:-1]) and not ed25519.verify(b"", message, signature)
    too_large = (int.from_bytes(signature[32:], "little") + ed25519._L).to_bytes(32, "little")
    assert not ed25519.verify(public, message, signature[:32] + too_large)  # the same s, and not canonical
    assert not ed25519.verify(b"\xff" * 32, message, signature)


# What a server may not send

@pytest.mark.one_triton
@pytest.mark.parametrize("name", [
    "a.so", "a.SO", "a.so.1", "__triton_launcher.cpython-311-x86_64-linux-gnu.so", "../a.json", "a/b.json", "..", ".json", "",
    "a\\b.json", "a\n.json", "a\0.json", "__grp__a.json", "tmp.pid_1", "x" * 300, 5, None, "a.py", "a.pyd", "a.dll"])
def test_names_that_are_not_those_of_code_are_refused(name):
    with pytest.raises(code.Bad):
        code.check_name(name)


@pytest.mark.one_triton
@pytest.mark.parametrize("body", [
    b"", b"\n", b"{}\n", b"[]\n", b"[[\"a.json\", 5]]\nabc", b"[[\"a.json\", 2]]\nabc", b"[[\"a.json\", -1]]\nabc",
    b"[[\"a.json\", true]]\na", b"[[\"a.json\", 1], [\"a.json\", 1]]\nab", b"[\"a.json\"]\n", b"[[\"a.so\", 1]]\na",
    b"[[\"a.json\", 1e0]]\na", b"\xff\n", b"no line"])
def test_groups_that_are_garbled_are_refused(body):
    with pytest.raises(code.Bad):
        code.unpack(body)


def change(stored, edit):
    """The groups, each with what `edit` makes of its files."""
    return {place: code.pack(edit(code.unpack(body), place)) for place, body in stored.items()}


def without(ending):
    return lambda files, _: {name: data for name, data in files.items() if not name.endswith(ending)}


def metadata(**members):
    def edit(files, place):
        name = place[-1]
        found = {**json.loads(files[name]), **members}
        return {**files, name: json.dumps({n: v for n, v in found.items() if v is not None}).encode()}
    return edit


@pytest.mark.parametrize("edit", [
    without(".cubin"), without(".json"), metadata(hash="0" * 64), metadata(hash=None), metadata(target=None),
    metadata(target={}),
    metadata(shared="many"), metadata(num_warps=None), metadata(**{"no name": 1}), lambda files, _: {**files, "evil.so": b"x"},
    lambda files, place: {**files, place[-1]: b"garbage"}, lambda files, place: {**files, "other_kernel.ttir": b"x"},
    lambda files, _: {name: b"" if name.endswith(".cubin") else data for name, data in files.items()}])
def test_a_poisoned_group_is_not_stored_and_the_program_compiles(server, stored, tmp_path, edit, monkeypatch):
    poisoned = change(stored, edit)
    monkeypatch.setattr(code.counters, "refused", 0)
    for (image, folder, _, name), body in poisoned.items():
        server.files[image, folder, "group", name] = body
        (tmp_path / folder).mkdir()
        program = _Stand(server)
        assert code.Folder(program, folder, str(tmp_path / folder)).get_group(name) is None
        assert os.listdir(tmp_path / folder) == []
    assert code.counters.refused == 2


class _Stand:
    """As much of a program as a folder needs."""

    def __init__(self, server):
        from contract_server import TOKEN

        from wavetune._runtime.choices import Choices
        from wavetune._runtime.settings import Settings
        from wavetune._runtime.start import Start
        from wavetune._runtime.wire import Wire
        self.wire = Wire(server.url, TOKEN)
        (image,) = {place[0] for place in server.files} or {"sha256:" + "0" * 64}
        self.settings = Settings({"WAVETUNE_IMAGE": image, "WAVETUNE_SHARED_CODE": "1"}, TOKEN)
        self.choices, self.sender = Choices(self.settings, None), None
        self.is_code_refused = False
        self.start = Start(self)

    def gives_code(self):
        return True


def test_a_program_that_is_sent_a_poisoned_group_compiles(server, stored, tmp_path):
    server.document, server.files = document(choices(4096)), change(stored, without(".cubin"))
    report = shared(4096, cache=tmp_path, server=server)
    assert (report["used"], report["compiled"], report["counters"]["refused"]) == ([CHOSEN] * 2, 2, 2)


@pytest.mark.parametrize("timings, is_taken", [
    ([[{"kwargs": {"BLOCK": 64}, "num_warps": 4, "ir_override": None}, [1.0, 1.0, 1.0]]], True),
    ([[{"kwargs": {"BLOCK": 64}, "ir_override": "/tmp/evil.ttgir"}, [1.0]]], False),
    ([[{"kwargs": {}, "evil": 1}, [1.0]]], False),
    ([[{"num_warps": 4}, [1.0]]], False), ([[{"kwargs": {}}, ["fast"]]], False), ([], False), (5, False)])
def test_a_file_of_autotuning_has_configs_that_triton_can_make(server, tmp_path, timings, is_taken):
    key = "A" * 52
    program = _Stand(server)
    text = json.dumps({"key": [], "configs_timings": timings})
    server.files[program.settings.image(), key, "f.autotune.json"] = text.encode()
    path = code.Folder(program, key, str(tmp_path)).get_file("f.autotune.json")
    assert (path is not None) == is_taken and bool(os.listdir(tmp_path)) == is_taken


def test_shared_objects_are_neither_asked_for_nor_sent(server, tmp_path):
    program = _Stand(server)
    folder = code.Folder(program, "A" * 52, str(tmp_path))
    (tmp_path / "hip_utils.so").write_bytes(b"x")
    assert folder.get_file("hip_utils.cpython-311-x86_64-linux-gnu.so") is None and folder.get_group("a.so") is None
    folder.program.sender = None
    folder.put_group("a.json", {"hip_utils.so": str(tmp_path / "hip_utils.so")})
    folder.put(b"x", "hip_utils.so")
    assert server.requests == []


def test_a_full_folder_makes_a_program_lose_nothing_that_it_would_have(server, stored, tmp_path):
    """No file may have more than 100 bytes, so that nothing can be stored, as on a full disk: neither files of the group
    nor what Triton would write itself."""
    server.document, server.files = document(choices(4096)), dict(stored)
    (folder, name), = {(place[1], place[-1]) for place in stored if "add" in place[-1]}
    text = f"""import resource, signal, json
from wavetune._runtime import program
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
import triton, wavetune.triton as ours, os
manager = ours.CacheManager({folder!r})
print(json.dumps([manager.get_group({name!r}), os.listdir(manager.cache_dir)]))"""
    assert python("-c", text, cache=tmp_path, server=server, WAVETUNE_SHARED_CODE="1") == [[None, []]]
    assert len(server.asked("GET", "/v1/remote")) == 1


def test_two_containers_fill_one_folder_at_once(server, stored, tmp_path):
    server.document, server.files = document(choices(4096)), dict(stored)
    argv = [sys.executable, "-m", "wavetune", "run", str(TUNED / "program.py"), "4096"]
    own = environment(tmp_path, server, WAVETUNE_SHARED_CODE="1")
    running = [subprocess.Popen(argv, env=own, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    reports = [json.loads(process.communicate(timeout=600)[0]) for process in running]
    assert all(essence(report) == {"used": [CHOSEN] * 2, "benchmarked": 0, "compiled": 0} for report in reports)
    assert not [path for path in tmp_path.rglob("tmp*")]


@pytest.mark.one_triton
def test_what_is_on_its_way_when_the_program_ends_arrives():
    """The last file is in no queue any more while it is sent."""
    import threading
    import types

    from wavetune._runtime.sender import Sender
    begun, arrived = threading.Event(), []

    class SlowWire:
        wake = None

        def may_try(self):
            return True

        def is_open(self):
            return False

        def request(self, method, path, *_, **__):
            begun.set()
            time.sleep(0.2)
            arrived.append(path)
            return types.SimpleNamespace(status=204, headers={}, body=b"")

    sender = Sender(SlowWire(), dict)
    sender.file("/v1/remote/triton/X/group/add.json", b"code")
    assert begun.wait(30)
    sender.stop()
    assert arrived[:1] == ["/v1/remote/triton/X/group/add.json"]
