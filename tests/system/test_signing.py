"""Signed channels: the command line, and the openssl commands of docs/signing.md, with a real server. SQL statements insert the
jobs."""

import json
import os
import re
import shutil
import subprocess
import threading
import urllib.parse

import harness
import pytest
from harness import BUILD, FakeServer, wait_until, wavetune
from test_releases import ROCM_63, ROCM_64, Bench, sha256

PAGE = harness.SOURCE / "docs/signing.md"


class World(Bench):
    """A server with three releases of one environment, and a channel of the test's own. .run calls the command line."""

    def __init__(self, server, postgres, folder, channel):
        super().__init__(server, postgres)
        self.folder, self.channel, self.path = folder, channel, f"/v1/channels/{channel}"

    def make_releases(self):
        for m in range(1, 4):
            self.job(ROCM_64, m=m)
            assert self.release(ROCM_64).status == 201
        return self

    @property
    def releases(self):
        return [item["release"] for item in self.server.items("/v1/releases")][::-1]

    def key(self, name):
        """Makes name and name.pub; returns (path, id)."""
        made = json.loads(wavetune(None, "key", "new", self.folder / name, "--json").stdout)
        return self.folder / name, made["key"]

    def run(self, *words, **how):
        return wavetune(self.server, *words, **how)

    def document(self, *words):
        return json.loads(self.run(*words, "--json").stdout)

    def put(self, release, **more):
        return self.server.request("PUT", self.path, {"release": release} | more)

    def entry(self, **query):
        return self.server.request("GET", f"{self.path}?{urllib.parse.urlencode(query)}").json

    def history(self):
        return self.server.get(f"{self.path}/entries")["items"]

    def cache(self, **headers):
        return self.server.request("GET", f"/v1/cache?arch=gfx942&channel={self.channel}", headers=headers)


@pytest.fixture(scope="module")
def place(postgres, tmp_path_factory):
    server = harness.Server(postgres.database(), tmp_path_factory.mktemp("server"), options=harness.UNHURRIED)
    World(server, postgres, None, "none").make_releases()
    yield server
    server.stop()


@pytest.fixture
def world(place, postgres, tmp_path, request):
    return World(place, postgres, tmp_path, sha256(request.node.name)[:20])


def signed_by(entry):
    return {signature["key"] for signature in entry["signatures"]}


def run_page(folder, environment):
    """The page's commands, in their order, in one shell that stops at the first failure."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S)
    return subprocess.run(["bash", "-c", "set -eu -o pipefail\n" + "".join(blocks)], capture_output=True, text=True, cwd=folder,
                          timeout=600, env={**os.environ, **environment, "PATH": f"{BUILD.resolve()}:{os.environ['PATH']}"})


@pytest.mark.skipif(not (shutil.which("openssl") and shutil.which("curl")), reason="no openssl or curl program")
def test_the_commands_of_the_page_verify_with_openssl_alone(world):
    done = run_page(world.folder, {"WAVETUNE_URL": world.server.url, "WAVETUNE_TOKEN": world.server.token})
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    assert "Signature Verified Successfully" in done.stdout
    shown = wavetune(None, "key", "show", world.folder / "publisher.key.pub").stdout
    key, kind, *_ = shown.splitlines()
    assert kind.startswith("public ") and key.split()[1].removeprefix("sha256:") + "  -" in done.stdout
    assert world.releases[2].removeprefix("sha256:") + "  -" in done.stdout
    world.path = "/v1/channels/stable"
    assert [len(entry["signatures"]) for entry in world.history()] == [2, 1], "two keys sign what one signed"


def test_a_key_is_made_once_and_shown(tmp_path):
    made = wavetune(None, "key", "new", tmp_path / "k").stdout
    shown = json.loads(wavetune(None, "key", "show", tmp_path / "k", "--json").stdout)
    assert shown["kind"] == "private" and shown["key"] in made and f"public   {tmp_path}/k.pub" in made
    for words, what in ((("new", tmp_path / "k"), "is there already"), (("show", tmp_path / "none"), "No such file"),
                        (("show",), "name one file"), (("new", "a", "b"), "name one file")):
        refused = wavetune(None, "key", *words, check=False)
        assert refused.returncode == 2 and what in refused.stderr, refused


def test_a_signed_promotion_raises_the_counter_by_one_and_prints_what_it_signs(world):
    key, identity = world.key("k")
    world.run("promote", world.releases[0], world.channel)
    done = world.run("promote", world.releases[1], world.channel, "--sign-key", key)
    assert "counter 2" in done.stdout and f"by       {identity} ({key})" in done.stderr
    signing = json.loads(re.search("^signing  (.*)$", done.stderr, re.M)[1])
    assert signing == {"channel": world.channel, "counter": 2, "environment": ROCM_64, "release": world.releases[1], "tag": "default"}
    entry = world.entry()
    assert signed_by(entry) == {identity} and "expires" not in entry


def test_an_entry_that_is_signed_already_is_left_and_a_second_key_is_a_move(world):
    a, b = world.key("a")[0], world.key("b")[0]
    for keys, counter in (((a,), 1), ((a,), 1), ((a, b), 2), ((b,), 2)):
        environment = {"WAVETUNE_SIGN_KEYS": ":".join(map(str, keys))}
        done = world.run("promote", world.releases[0], world.channel, environment=environment)
        assert f"counter {counter}" in done.stdout, (keys, done)


def test_publishing_signs_and_a_lost_race_is_refused_with_the_present_entry(world):
    key, identity = world.key("k")
    published = world.document("publish", "--environment", json.dumps(ROCM_64), "--channel", world.channel, "--sign-key", key)
    assert published["release"] == world.releases[2] and signed_by(published["channel"]) == {identity}
    before = published["channel"]["etag"]
    assert world.put(world.releases[0]).status == 200
    lost = world.run("promote", world.releases[1], world.channel, "--sign-key", key, "--if-match", before, "--json", check=False)
    assert lost.returncode == 4 and "decide again" in lost.stderr
    assert (json.loads(lost.stdout)["counter"], json.loads(lost.stdout)["release"]) == (2, world.releases[0])


def test_of_moves_to_one_counter_exactly_one_wins(world):
    world.put(world.releases[0])
    answers = []

    def move(release):
        answers.append(world.put(release, counter=2))

    threads = [threading.Thread(target=move, args=(world.releases[1 + n % 2],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = world.entry()
    assert won["counter"] == 2
    for answer in answers:
        there = answer.json if answer.status == 200 else answer.json["entry"]
        assert answer.status in (200, 412) and (there["release"], there["counter"]) == (won["release"], 2)
    assert {a.status for a in answers} == {200, 412}


def test_a_new_key_takes_over(world, start):
    a, a_id = world.key("a")
    b, b_id = world.key("b")
    other = start(harness.Server, world.server.database, options=("--poll-ms", "50"))

    def elsewhere():
        return other.get(f"/v1/cache?arch=gfx942&channel={world.channel}")

    world.run("promote", world.releases[0], world.channel, "--sign-key", a)
    before = world.cache().headers["ETag"]
    assert len(elsewhere()["signatures"]) == 1
    refused = world.run("sign", world.channel, "--sign-key", b, "--trusted-key", f"{b}.pub", check=False)
    assert refused.returncode == 4 and "not trusted here" in refused.stderr
    assert "2 signatures" in world.run("sign", world.channel, "--sign-key", b, "--trusted-key", f"{a}.pub").stdout
    answer = world.cache(**{"If-None-Match": before})
    assert answer.status == 200 and signed_by(answer.json) == {a_id, b_id} and answer.json["counter"] == 1
    wait_until(lambda: len(elsewhere()["signatures"]) == 2, 20, "the other server to notice")
    again = world.cache().headers["ETag"]
    world.run("sign", world.channel, "--sign-key", b)
    assert world.cache().headers["ETag"] == again


def test_signing_needs_a_private_key_a_channel_and_an_entry(world):
    key, _ = world.key("k")
    for words, code, what in (
            (("sign", world.channel), 2, "no key to sign with"), (("sign",), 2, "name a channel"), (("rollback",), 2, "name a channel"),
            (("sign", world.channel, "--sign-key", f"{key}.pub"), 2, "the private one"),
            (("sign", world.channel, "--sign-key", key, "--trusted-key", key), 2, "private key"),
            (("promote", world.releases[0], world.channel, *(("--sign-key", key) * 9)), 2, "8 sign an entry"),
            (("publish", "--sign-key", key), 2, "give --channel"), (("publish", "--expires", "7d"), 2, "give --channel"),
            (("sign", world.channel, "--sign-key", key), 4, "no entry"), (("rollback", world.channel), 4, "no entry")):
        done = world.run(*words, check=False)
        assert done.returncode == code and what in done.stderr, (words, done)
    done = world.run("promote", world.releases[0], world.channel, environment={"WAVETUNE_SIGN_KEYS": "/none"}, check=False)
    assert done.returncode == 2 and "WAVETUNE_SIGN_KEYS: cannot read /none" in done.stderr


def test_a_server_with_false_answers_gets_no_signature(world):
    key, _ = world.key("k")
    bytes_of = {r: world.server.request("GET", f"/v1/releases/{r}").body for r in world.releases[:2]}
    entry = {**world.put(world.releases[0]).json, "signatures": []}
    false_answers = {
            "the digest": (world.releases[1], entry),
            "another tag, regime or environment": (world.releases[0], {**entry, "tag": "night"}),
            "answered with beta": (world.releases[0], {**entry, "channel": "beta"}), "is not a channel entry": (world.releases[0], {})}
    for what, (sent, shown) in false_answers.items():
        with FakeServer(lambda _, path: (200, bytes_of[sent] if "/releases/" in path else shown)) as fake:
            done = wavetune(fake, "sign", world.channel, "--sign-key", key, check=False)
            assert {r[0] for r in fake.requests} == {"GET"}, "nothing was signed"
        assert done.returncode == 4 and what in done.stderr and "signing" not in done.stderr, (what, done)


def test_each_rollback_raises_the_counter_and_goes_back_one_release(world):
    key, identity = world.key("k")
    one, two, three = world.releases
    for release in world.releases:
        world.run("promote", release, world.channel, "--sign-key", key)
    for expected, counter in ((two, 4), (one, 5)):
        entry = world.document("rollback", world.channel, "--sign-key", key)
        assert (entry["release"], entry["counter"], signed_by(entry)) == (expected, counter, {identity})
    nothing = world.run("rollback", world.channel, "--sign-key", key, check=False)
    assert nothing.returncode == 1 and f"rolled back already: nothing was served before {one}; --to {two} goes" in nothing.stderr
    assert world.document("rollback", world.channel, "--to", three)["counter"] == 6
    history = world.history()
    assert [e["release"] for e in history] == [three, one, two, three, two, one]
    assert [e["counter"] for e in history] == [6, 5, 4, 3, 2, 1] and all(e["moved_by"].startswith("admin-") for e in history)
    page = world.server.get(f"{world.path}/entries?limit=4")
    assert world.server.get(f"{world.path}/entries?after={page['next']}")["items"] == history[4:]


def test_a_rollback_never_returns_to_what_a_rollback_left(world):
    """History A, B, A: the second A may have been a rollback from B."""
    a, b, _ = world.releases
    world.run("promote", a, world.channel)
    alone = world.run("rollback", world.channel, check=False)
    assert alone.returncode == 1 and f"served nothing before {a}; name the release" in alone.stderr
    world.run("promote", b, world.channel)
    world.run("promote", a, world.channel)
    again = world.run("rollback", world.channel, check=False)
    assert again.returncode == 1 and again.stderr.endswith(f"rolled back already: nothing was served before {a}; --to {b} goes "
                                                           "forward again\n"), again
    assert world.document("rollback", world.channel, "--to", b)["counter"] == 4
    assert world.document("rollback", world.channel)["release"] == a


def test_only_the_history_that_the_publisher_signed_is_rolled_back_to(world):
    key, _ = world.key("k")
    world.run("promote", world.releases[0], world.channel)
    world.run("promote", world.releases[1], world.channel, "--sign-key", key)
    done = world.run("rollback", world.channel, "--sign-key", key, check=False)
    assert done.returncode == 4 and "name the release" in done.stderr
    # Entries that were signed for another channel are no history of this one.
    elsewhere = f"{world.channel}.2"
    world.run("promote", world.releases[0], elsewhere, "--sign-key", key)
    borrowed = world.server.get(f"/v1/channels/{elsewhere}/entries")["items"][0]
    present = world.entry()
    shown = {"items": [{**present}, borrowed], "next": None}
    with FakeServer(lambda _, path: (200, shown if "/entries" in path else present)) as fake:
        done = wavetune(fake, "rollback", world.channel, "--sign-key", key, check=False)
        assert {r[0] for r in fake.requests} == {"GET"}
    assert done.returncode == 4 and "none of these keys" in done.stderr, done
    assert world.entry() == present
    assert world.document("rollback", world.channel, "--to", world.releases[0], "--sign-key", key)["counter"] == 3


def test_an_unsigned_counter_is_reported_as_the_servers(world):
    key, _ = world.key("k")
    world.run("promote", world.releases[0], world.channel)
    done = world.run("promote", world.releases[1], world.channel, "--sign-key", key)
    assert "only the server states that" in done.stderr
    assert "only the server" not in world.run("promote", world.releases[0], world.channel, "--sign-key", key).stderr


def test_only_the_counter_after_the_one_that_the_publisher_states_is_signed(world):
    key, _ = world.key("k")
    signed = ("--sign-key", key, "--follow")
    first, second = world.releases[:2]
    publish = ("publish", "--environment", json.dumps(ROCM_64), "--channel", world.channel)
    assert world.document(*publish, *signed, "0")["channel"]["counter"] == 1
    for words in (("promote", first, world.channel), ("rollback", world.channel, "--to", first), ("sign", world.channel)):
        for wrong in ("7", "3"):
            refused = world.run(*words, *signed, wrong, check=False)
            assert refused.returncode == 4 and f"does not follow counter {wrong}" in refused.stderr, (words, refused)
            assert "signing " not in refused.stderr and world.entry()["counter"] == 1, (words, refused)
    assert world.document("promote", first, world.channel, *signed, "1")["counter"] == 2
    for last in ("1", "2"):
        assert world.document("promote", first, world.channel, *signed, last)["counter"] == 2, "again, it is there already"
    refused = world.run("promote", first, world.channel, *signed, "3", check=False)
    assert refused.returncode == 4 and "does not follow counter 3" in refused.stderr, "an older entry that is shown again"
    assert world.document("rollback", world.channel, "--to", second, *signed, "2")["counter"] == 3
    other, _ = world.key("other")
    for last in ("2", "3"):
        assert world.document("sign", world.channel, "--sign-key", other, "--follow", last)["counter"] == 3
    world.job(ROCM_64, m=4, tag=world.channel)
    refused = world.run(*publish, "--tag", world.channel, *signed, "1", check=False)
    assert refused.returncode == 4 and "does not follow counter 1" in refused.stderr


def test_a_stated_counter_avoids_the_warning_about_the_servers_counter(world):
    key, _ = world.key("k")
    world.run("promote", world.releases[0], world.channel)
    assert "only the server" not in world.run("promote", world.releases[1], world.channel, "--sign-key", key, "--follow", "1").stderr


@pytest.mark.parametrize("words, what", [(("--follow", "1"), "give --sign-key"),
                                         *((("--sign-key", "k", "--follow", text), "signed last")
                                           for text in ("", "x", "-1", "1x", "99999999999999999999"))])
def test_an_invalid_counter_is_refused_before_any_request(tmp_path, words, what):
    wavetune(None, "key", "new", tmp_path / "k")
    words = [tmp_path / word if word == "k" else word for word in words]
    for command in (("promote", "sha256:" + "0" * 64, "stable"), ("publish", "--channel", "stable")):
        refused = wavetune(None, *command, *words, "--url", "http://127.0.0.1:9", check=False)
        assert refused.returncode == 2 and what in refused.stderr, refused
    assert "give --channel" in wavetune(None, "publish", *words, "--url", "http://127.0.0.1:9", check=False).stderr


def test_the_last_counter_has_no_successor(world):
    key, _ = world.key("k")
    shown = {**world.put(world.releases[0]).json, "counter": 2**63 - 1}
    bytes_of = world.server.request("GET", f"/v1/releases/{world.releases[1]}").body
    with FakeServer(lambda _, path: (200, bytes_of if "/v1/releases/" in path else shown)) as fake:
        done = wavetune(fake, "promote", world.releases[1], world.channel, "--sign-key", key, check=False)
    assert done.returncode == 4 and "last counter" in done.stderr and "signing" not in done.stderr


def test_a_rollback_stays_in_its_environment_and_tag(server, postgres, tmp_path):
    world = World(server, postgres, tmp_path, "stable").make_releases()
    world.job(ROCM_63)
    elsewhere = world.release(ROCM_63).json["release"]
    for release in (*world.releases[:2], elsewhere):
        world.run("promote", release, world.channel)
    done = world.run("rollback", world.channel, check=False)
    assert done.returncode == 4 and "state the members" in done.stderr
    here = ("--environment", '{"rocm": "6.4.1"}')
    done = world.run("rollback", world.channel, *here, "--to", elsewhere, check=False)
    assert done.returncode == 2 and "another tag, regime or environment" in done.stderr
    assert world.document("rollback", world.channel, *here)["release"] == world.releases[0]
    assert world.entry(rocm="6.3.0")["release"] == elsewhere


def test_an_unsigned_move_of_a_signed_channel_causes_a_warning(world):
    key, _ = world.key("k")
    world.run("promote", world.releases[0], world.channel, "--sign-key", key)
    done = world.run("promote", world.releases[1], world.channel)
    assert "counter 2" in done.stdout and "deployments that verify" in done.stderr
    assert world.run("promote", world.releases[2], world.channel).stderr == ""


def test_an_expiry_is_stored_and_renewed(world):
    key, _ = world.key("k")
    moved = world.document("promote", world.releases[0], world.channel, "--expires", "2035-01-02T03:04:05Z", "--sign-key", key)
    assert (moved["counter"], moved["expires"]) == (1, "2035-01-02T03:04:05Z")
    assert world.cache().json["expires"] == "2035-01-02T03:04:05Z"
    for text, counter in (("7d", 2), ("36h", 3)):
        moved = world.document("promote", world.releases[0], world.channel, "--expires", text)
        assert moved["counter"] == counter and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", moved["expires"])
    assert "2035-01-02T03:04:05Z" in [e.get("expires") for e in world.history()]
    assert moved["expires"] in world.run("channels").stdout
    for text, what in (("7", "write 7d"), ("soon", "write 7d"), ("0d", "in the future"), ("2001-01-01T00:00:00Z", "in the future"),
                       ("4000d", "not beyond"), ("2035-01-02", "write 7d"), ("99999999999d", "write 7d")):
        done = world.run("promote", world.releases[0], world.channel, "--expires", text, check=False)
        assert done.returncode == 2 and what in done.stderr, (text, done)


def test_a_server_may_accept_only_what_its_publishers_signed(world, start):
    key, identity = world.key("k")
    thief, _ = world.key("thief")
    strict = start(harness.Server, world.server.database, options=("--publisher-key", f"{key}.pub"))
    done = wavetune(strict, "promote", world.releases[0], world.channel, check=False)
    assert done.returncode == 4 and "publisher signed" in done.stderr and "--sign-key" in done.stderr
    done = wavetune(strict, "promote", world.releases[0], world.channel, "--sign-key", thief, check=False)
    assert done.returncode == 4 and "not trusted here" in done.stderr
    assert strict.request("GET", world.path).status == 404, "nothing was moved"
    wavetune(strict, "promote", world.releases[0], world.channel, "--sign-key", key)
    done = wavetune(strict, "sign", world.channel, "--sign-key", thief, check=False)
    assert done.returncode == 4 and "not trusted here" in done.stderr and signed_by(world.entry()) == {identity}
    forged = {**world.entry(), "counter": 2}
    body = {name: forged[name] for name in ("release", "counter", "signatures")}
    answer = strict.request("PUT", world.path, body)
    assert answer.status == 403 and "is not what key" in answer.json["detail"]


@pytest.mark.parametrize("name, what", [("k", "private key"), ("none", "No such file")])
def test_a_server_accepts_public_keys_only(tmp_path, name, what):
    wavetune(None, "key", "new", tmp_path / "k")
    done = subprocess.run([BUILD / "wavetune-server", "serve", "--database", "dbname=none", "--port", "0", "--publisher-key",
                           tmp_path / name], capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and what in done.stderr


def test_signatures_are_checked_before_they_are_stored(world):
    key, identity = world.key("k")
    world.run("promote", world.releases[0], world.channel, "--sign-key", key)
    entry = world.entry()
    good = entry["signatures"][0]

    def post(**change):
        body = {"environment": ROCM_64, "tag": "default", "counter": 1, "signature": good} | change
        return world.server.request("POST", f"{world.path}/signatures", body)

    assert post().status == 200 and post().json == entry, "a signature that is there"
    assert post(counter=2).status == 412 and post(counter=2).json["entry"] == entry
    assert post(tag="night").status == 404 and post(environment={"rocm": "6.4.1"}).status == 404
    assert post(signature={"key": identity, "signature": "AAAA"}).status == 422
    for n in range(7):
        assert post(signature={"key": f"sha256:{n:064x}", "signature": good["signature"]}).status == 200
    full = post(signature={"key": f"sha256:{7:064x}", "signature": good["signature"]})
    assert full.status == 422 and "8 signatures" in full.json["detail"]
    refused = world.run("sign", world.channel, "--sign-key", world.key("late")[0], check=False)
    assert refused.returncode == 4 and "8 signatures" in refused.stderr
    other = good["signature"][:-4] + "AA=="
    assert {s["signature"] for s in post(signature={"key": identity, "signature": other}).json["signatures"]} == {
        other, good["signature"]}, "a key's signature is replaced"
    reader = harness.make_token(world.server.database, "reader", "reader")
    assert world.server.request("POST", f"{world.path}/signatures", {}, token=reader).status == 403


def test_a_signature_that_loses_every_race_is_answered_with_a_retry(server, postgres, tmp_path):
    world = World(server, postgres, tmp_path, "stable").make_releases()
    world.put(world.releases[0])
    world.sql("CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
              "CREATE TRIGGER a_nothing BEFORE UPDATE ON channels FOR EACH ROW EXECUTE FUNCTION nothing()")
    done = world.run("sign", "stable", "--sign-key", world.key("k")[0], check=False)
    assert done.returncode == 3 and "keep changing" in done.stderr


@pytest.mark.parametrize("words", [("rollback", "stable"), ("rollback", "stable", "--to", "sha256:" + "0" * 64), ("sign", "stable"),
                                   ("promote", "sha256:" + "0" * 64, "stable")], ids=" ".join)
def test_a_temporary_error_of_a_server_is_3_and_a_refusal_is_4(words, tmp_path):
    wavetune(None, "key", "new", tmp_path / "k")
    for status, code in ((503, 3), (403, 4)):
        with FakeServer(lambda *_: (status, {"detail": "because I say so", "status": status})) as fake:
            done = wavetune(fake, *words, "--sign-key", tmp_path / "k", check=False)
        assert done.returncode == code and "because I say so" in done.stderr, done
    done = wavetune(None, *words, "--sign-key", tmp_path / "k", "--url", "http://127.0.0.1:9", check=False)
    assert done.returncode == 3 and "http://127.0.0.1:9" in done.stderr


def test_the_entry_that_a_move_follows_is_found_by_the_release(world):
    def of(release):
        return world.server.request("GET", f"{world.path}?release={release}")

    assert of(world.releases[1]).status == 404
    moved = world.put(world.releases[0])
    assert of(world.releases[1]).json == moved.json and of(world.releases[1]).headers["ETag"] == moved.headers["ETag"]
    assert of("sha256:" + "0" * 64).status == 422 and of("x").status == 422
    assert world.server.request("GET", f"{world.path}?release={world.releases[0]}&tag=x").status == 422


def test_the_database_refuses_another_release_at_the_same_count(world):
    world.put(world.releases[0])
    for change in (f"release = '\\x{world.releases[1].removeprefix('sha256:')}', signings = 1", "signings = 0"):
        with pytest.raises(AssertionError, match="a channel"):
            world.sql(f"update channels set {change} where name = '{world.channel}'")
