"""Choices: the configs of a release, read in one request or for some keys; and what programs count. The builds and the winners are
written by hand."""

import base64
import json
import re
import time
import urllib.parse

import harness
import pytest
from harness import make_token, wavetune
from test_builds import MI300X, canonical, sha

CLOSURE, OTHER = "sha256:" + "b" * 64, "sha256:" + "c" * 64
FOLDER = "LJRKDJI2OBMAZKYNPTGZ7GWDEXQ2H6345JVO4N5ZD6MLTWYCLTIQ"
SPACE = {"configs": [{"BLOCK": 64, "num_warps": 4}, {"BLOCK": 128, "num_warps": 8}]}
ENVIRONMENT = {**MI300X, "triton": "3.6.0"}


@pytest.fixture
def options():
    return ()


@pytest.fixture
def server(start, database, options):
    return start(harness.Server, database, options=(*harness.UNHURRIED, *options))


@pytest.fixture
def reader(server, database):
    return make_token(database, "container", "reader,demand")


def query(environment=ENVIRONMENT, **more):
    return urllib.parse.urlencode({**environment, **more})


def lines(server, token, **more):
    answer = server.request("GET", f"/v1/choices?{query(**more)}", token=token)
    assert answer.status == 200, answer
    return [json.loads(line) for line in answer.body.decode().splitlines()]


def ask(server, token, *keys, function=CLOSURE):
    answer = server.request("POST", f"/v1/choices?{query()}", {"functions": [{"function": function, "keys": list(keys)}]},
                            token=token)
    assert answer.status == 200, answer
    return answer.json


@pytest.fixture
def publish(server, postgres, tmp_path):
    """Publishes a release in which n = 64 has a config of SPACE; returns its digest."""
    place, code = tmp_path / "add", tmp_path / "build"
    place.mkdir()
    (code / "objects").mkdir(parents=True)
    (place / "add.py").write_text("import triton\n")
    (place / "space.json").write_text(json.dumps(SPACE))
    (place / "kernel.json").write_text(json.dumps({
        "name": "add", "key": ["n"], "arguments": [{"name": "y", "dtype": "float16", "shape": ["n"], "access": "write"}],
        "versions": {"triton": {"language": "triton", "entry": "add", "sources": ["add.py"], "launch": {"grid": ["n"]}}}}))
    kernel = wavetune(None, "kernel", "hash", place).stdout.strip()

    def blob(text):
        (code / "objects" / sha(text.encode()).removeprefix("sha256:")).write_text(text)
        return sha(text.encode())

    record = {"name": "add", "function": {"name": "add", "closure": CLOSURE}, "key_names": ["n"], "tuning_key": ["n"],
              "argument_dtypes": ["torch.float16"]}
    build = {"kernel": kernel, "toolchain": {"triton": "3.6.0"}, "arch": "gfx942", "warp_size": 64, "record": record,
             "variants": [{"signature": {"y": "*fp16"}, "constexprs": {}, "objects": [
                 {"config": config, "digest": blob(f"code {config}"),
                  "metadata": {"name": "add", "cache": {"folder": FOLDER, "files": {"add.json": blob("{}")}}}}
                 for config in SPACE["configs"]]}]}
    (code / "build.json").write_bytes(canonical(build))
    wavetune(server, "kernel", "push", place, "--build", code)
    job = server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": 64}, "space": SPACE, "environment": MI300X}).json["job"]

    def publish(winner):
        verdict = json.dumps({"winner": winner, "verdict": "FASTER", "equivalence_set": [winner]})
        values = json.dumps(SPACE["configs"][winner])
        postgres.sql(f"""UPDATE jobs SET state = 'done', finished_at = now() WHERE id = {job};
                         DELETE FROM winners WHERE job_id = {job};
                         INSERT INTO winners (job_id, config, config_values, verdict)
                           VALUES ({job}, {winner}, '{values}', '{verdict}')""", conninfo=server.database)
        release = json.loads(wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--json").stdout)["release"]
        wavetune(server, "promote", release, "stable")
        return release

    return publish


KEY = ["64", "'torch.float16'"]


def test_one_request_reads_the_entry_and_the_release(server, reader, publish):
    release = publish(1)
    entry, document = lines(server, reader)
    assert (entry["release"], entry["match"]["rule"]) == (release, "exact")
    assert document["functions"] == {CLOSURE: {"name": "add", "choices": [
        {"code": FOLDER, "config": SPACE["configs"][1], "key": KEY}], "launchers": [{"y": "*fp16"}]}}
    assert document["code"] == {FOLDER: {"add.json": sha(b"{}")}}
    exported = server.request("GET", f"/v1/releases/{release}/export/choices", token=reader)
    assert json.loads(exported.body) == document
    assert canonical(document) == exported.body


def test_an_unchanged_answer_is_304_until_the_channel_moves(server, reader, publish):
    publish(1)
    path = f"/v1/choices?{query()}"
    before = server.request("GET", path, token=reader)
    again = {"If-None-Match": before.headers["ETag"]}
    assert server.request("GET", path, token=reader, headers=again).status == 304
    publish(0)
    after = server.request("GET", path, token=reader, headers=again)
    assert after.status == 200 and json.loads(after.body.splitlines()[1])["functions"][CLOSURE]["choices"][0]["config"] == \
        SPACE["configs"][0]


def test_a_pinned_release_is_read_wherever_the_channel_points(server, reader, publish):
    first = publish(1)
    assert publish(0) != first
    answer = server.request("GET", f"/v1/choices?release={first}", token=reader)
    entry, document = map(json.loads, answer.body.splitlines())
    assert set(entry) == {"choices"} and document["release"] == first
    for wrong, status in (("sha256:" + "0" * 64, 404), ("none", 422)):
        refused = server.request("GET", f"/v1/choices?release={wrong}", token=reader)
        assert refused.status == status and "release" in refused.json["detail"]


def test_some_keys_are_read_in_one_request(server, reader, publish):
    publish(1)
    answer = ask(server, reader, KEY, ["65", "'torch.float16'"])
    assert answer == {"choices": [{"code": FOLDER, "config": SPACE["configs"][1], "function": CLOSURE, "key": KEY}],
                      "code": {FOLDER: {"add.json": sha(b"{}")}}}
    assert ask(server, reader, KEY, function=OTHER) == {"choices": [], "code": {}}


def test_a_repeated_key_has_one_choice(server, reader, publish):
    publish(1)
    assert len(ask(server, reader, *[KEY] * 100)["choices"]) == 1


def test_a_release_that_programs_pin_counts_as_used(start, database, postgres, publish, reader):
    release, server = publish(1), start(harness.Server, database, options=(*harness.UNHURRIED, "--poll-ms", "10"))

    def is_noted():
        server.request("GET", f"/v1/choices?release={release}", token=reader)
        return postgres.sql("SELECT count(*) FROM release_fetches", conninfo=database) == "1"

    harness.wait_until(is_noted)
    postgres.sql("DELETE FROM release_fetches", conninfo=database)
    harness.wait_until(is_noted, what="a note when the choices are in memory")


def metric(server, name):
    return float(re.search(rf"^{re.escape(name)} (\S+)$", server.request("GET", "/metrics").body.decode(), re.M)[1])


def render_count(server):
    return metric(server, "wavetune_choices_rendered_total")


@pytest.mark.parametrize("options", [("--poll-ms", "10")])
def test_choices_are_rendered_before_they_are_requested(start, server, reader, publish):
    first = publish(1)
    harness.wait_until(lambda: render_count(server) == 1)
    assert lines(server, reader)[1]["release"] == first and render_count(server) == 1
    other = start(harness.Server, server.database, options=(*harness.UNHURRIED, "--poll-ms", "10"))
    harness.wait_until(lambda: render_count(other) == 1, what="a server that starts")
    second = publish(0)
    harness.wait_until(lambda: render_count(other) == 2, what="a server that did not move the channel")
    harness.wait_until(lambda: render_count(server) == 2, what="the server that moved it")
    harness.wait_until(lambda: lines(other, reader)[1]["release"] == second)
    wavetune(server, "promote", first, "stable")
    harness.wait_until(lambda: lines(other, reader)[1]["release"] == first)
    assert (render_count(server), render_count(other)) == (2, 2), "both releases are kept"


@pytest.mark.parametrize("options", [("--poll-ms", "10")])
@pytest.mark.parametrize("table", ["builds", "release_fetches"])
def test_choices_are_prepared_again_after_the_database_failed(server, reader, publish, postgres, table):
    first = publish(1)
    harness.wait_until(lambda: lines(server, reader)[1].get("release") == first)
    postgres.sql(f"ALTER TABLE {table} RENAME TO away", conninfo=server.database)
    second = publish(0) if table == "release_fetches" else None  # which is read when there is something new
    harness.wait_until(lambda: "choices: " in server.messages)
    postgres.sql(f"ALTER TABLE away RENAME TO {table}", conninfo=server.database)
    second = second or publish(0)
    harness.wait_until(lambda: render_count(server) == 2)
    harness.wait_until(lambda: lines(server, reader)[1]["release"] == second)


@pytest.mark.parametrize("options", [("--poll-ms", "10")])
def test_choices_that_were_left_out_are_looked_for_again(server, reader, publish, postgres, tmp_path):
    postgres.sql("CREATE TABLE complete AS SELECT digest, build FROM builds", conninfo=server.database)
    postgres.sql("UPDATE builds SET build = (build::jsonb - 'record')::json", conninfo=server.database)
    publish(1)
    assert lines(server, reader)[1]["functions"] == {}, "the build has no record of its function"
    postgres.sql("UPDATE builds b SET build = c.build FROM complete c WHERE c.digest = b.digest", conninfo=server.database)
    harness.small_kernel(tmp_path / "small")
    wavetune(server, "kernel", "push", tmp_path / "small")  # as whoever completes a release does
    harness.wait_until(lambda: lines(server, reader)[1]["functions"])
    rendered = render_count(server)
    time.sleep(0.5)
    assert render_count(server) <= rendered + 1, "not again while nothing is pushed"


@pytest.mark.parametrize("body, pointer", [
    ({}, "/functions"), ({"functions": []}, "/functions"), ({"functions": [{"function": CLOSURE}]}, "/functions/0/keys"),
    ({"functions": [{"function": "add", "keys": []}]}, "/functions/0/function"),
    ({"functions": [{"function": OTHER, "keys": {}}]}, "/functions/0/keys"),
    ({"functions": [{"function": OTHER, "keys": [["1"], "1"]}]}, "/functions/0/keys/1"),
    ({"functions": [{"function": OTHER, "keys": [["1", 1]]}]}, "/functions/0/keys/0")])
def test_a_wrong_request_is_refused_with_its_place(server, reader, body, pointer):
    refused = server.request("POST", f"/v1/choices?{query()}", body, token=reader)
    assert (refused.status, refused.json["pointer"]) == (422, pointer)


def test_without_an_entry_there_is_nothing_to_use_and_no_error(server, reader):
    why, *rest = lines(server, reader)
    assert rest == [{"functions": {}}] and list(why) == ["why"]
    assert why["why"].startswith('channel "stable" has no entry with tag "default"')
    assert ask(server, reader, KEY) == {"choices": [], "code": {}}


def test_without_an_entry_for_the_environment_the_answer_says_what_differs(server, reader, publish):
    publish(1)
    assert "why" not in lines(server, reader)[0]
    why = lines(server, reader, triton="3.9.0")[0]["why"]
    assert "has no entry for" in why and why.count("triton 3.9.0") + why.count("triton 3.6.0") >= 2, why
    assert "no entry with tag" in lines(server, reader, channel="nosuch")[0]["why"]


# Signatures


def signed(server, tmp_path, release, name="publisher"):
    wavetune(None, "key", "new", tmp_path / name)
    return wavetune(server, "promote", release, "stable", "--sign-key", tmp_path / name)


def test_a_publisher_signs_the_choices_too_and_programs_read_the_signature(server, reader, publish, tmp_path):
    release = publish(1)
    assert lines(server, reader)[0]["choices"]["signatures"] == []
    signed(server, tmp_path, release)
    head, document = lines(server, reader)
    (signature,) = head["choices"]["signatures"]
    assert head["choices"]["digest"] == sha(canonical(document)) and head["signatures"][0]["key"] == signature["key"]
    message = b"wavetune choices 1\n" + canonical({"choices": head["choices"]["digest"], "release": release})
    (tmp_path / "message").write_bytes(message)
    (tmp_path / "signature").write_bytes(base64.b64decode(signature["signature"]))
    done = harness.subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", tmp_path / "publisher.pub", "-rawin",
                                   "-in", tmp_path / "message", "-sigfile", tmp_path / "signature"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pinned = server.request("GET", f"/v1/choices?release={release}", token=reader)
    assert json.loads(pinned.body.splitlines()[0]) == {"choices": head["choices"]}


def test_a_second_key_signs_the_choices_with_the_entry(server, reader, publish, tmp_path):
    signed(server, tmp_path, publish(1))
    wavetune(None, "key", "new", tmp_path / "successor")
    wavetune(server, "sign", "stable", "--environment", json.dumps(ENVIRONMENT), "--sign-key", tmp_path / "successor",
             "--trusted-key", tmp_path / "publisher.pub")
    head = lines(server, reader)[0]
    keys = {s["key"] for s in head["signatures"]}
    assert len(keys) == 2 and {s["key"] for s in head["choices"]["signatures"]} == keys


def test_a_signature_over_other_choices_is_refused(server, database, publish):
    release, publisher = publish(1), make_token(database, "publisher", "publisher", "--channel", "stable")
    signature = {"key": OTHER, "signature": base64.b64encode(b"x" * 64).decode()}
    path = f"/v1/releases/{release}/signatures"
    refused = server.request("POST", path, {"choices": OTHER, "signature": signature}, token=publisher)
    assert (refused.status, refused.json["pointer"]) == (409, "/choices")
    missing = server.request("POST", f"/v1/releases/{OTHER}/signatures", {"choices": OTHER, "signature": signature}, token=publisher)
    assert missing.status == 404
    assert server.request("POST", path, {"choices": OTHER}, token=publisher).status == 422
    digest = sha(server.request("GET", f"/v1/releases/{release}/export/choices").body)
    for i in range(9):
        key = f"sha256:{i:064x}"
        answer = server.request("POST", path, {"choices": digest, "signature": signature | {"key": key}}, token=publisher)
        assert answer.status == (200 if i < 8 else 409), answer


def test_another_server_serves_a_new_signature_too(start, server, reader, publish, tmp_path):
    release = publish(1)
    other = start(harness.Server, server.database, options=(*harness.UNHURRIED, "--poll-ms", "10"))
    signed(server, tmp_path, release)
    harness.wait_until(lambda: len(lines(other, reader)[0].get("signatures", [])) == 1)
    lines(other, reader)
    wavetune(None, "key", "new", tmp_path / "second")
    digest = lines(server, reader)[0]["choices"]["digest"]
    signature = {"key": OTHER, "signature": base64.b64encode(b"x" * 64).decode()}
    answer = server.request("POST", f"/v1/releases/{release}/signatures", {"choices": digest, "signature": signature})
    assert answer.status == 200
    harness.wait_until(lambda: len(lines(other, reader)[0]["choices"]["signatures"]) == 2)


def test_a_publisher_of_other_channels_does_not_sign(server, database, publish):
    release = publish(1)
    digest = sha(server.request("GET", f"/v1/releases/{release}/export/choices").body)
    body = {"choices": digest, "signature": {"key": OTHER, "signature": base64.b64encode(b"x" * 64).decode()}}
    statuses = {}
    for channel in ("dev", "stab*"):
        token = make_token(database, f"of-{channel[:3]}", "publisher", "--channel", channel)
        statuses[channel] = server.request("POST", f"/v1/releases/{release}/signatures", body, token=token).status
    assert statuses == {"dev": 403, "stab*": 200}


def test_publisher_keys_also_hold_for_choices(start, server, reader, publish, tmp_path):
    release = publish(1)
    wavetune(None, "key", "new", tmp_path / "publisher")
    strict = start(harness.Server, server.database, options=(*harness.UNHURRIED, "--publisher-key", tmp_path / "publisher.pub"))
    wavetune(strict, "promote", release, "stable", "--sign-key", tmp_path / "publisher")
    (signature,) = lines(strict, reader)[0]["choices"]["signatures"]
    digest = lines(strict, reader)[0]["choices"]["digest"]
    wrong = base64.b64encode(b"x" * 64).decode()
    for given, word in (({**signature, "signature": wrong}, "not what the key signed"), ({"key": OTHER, "signature": wrong}, "another")):
        refused = strict.request("POST", f"/v1/releases/{release}/signatures", {"choices": digest, "signature": given})
        assert (refused.status, refused.json["pointer"]) == (403, "/signature") and word in refused.json["detail"]


def test_choices_that_cannot_be_rendered_leave_the_entry_signed(start, server, reader, publish, tmp_path, postgres):
    release = publish(1)
    postgres.sql("UPDATE builds SET build = '{}'", conninfo=server.database)
    fresh = start(harness.Server, server.database, options=harness.UNHURRIED)  # has not rendered them before
    done = signed(fresh, tmp_path, release)
    assert "choices of the release were not signed" in done.stderr
    entry = fresh.request("GET", f"/v1/cache?{query()}", token=reader).json
    assert len(entry["signatures"]) == 1
    assert fresh.request("GET", f"/v1/choices?{query()}", token=reader).status == 500, "a damaged build"


# `wavetune why`


def test_why_lists_what_the_release_has_for_a_closure_and_the_overrides_of_a_kernel(server, reader, publish):
    def why(kernel, *more):
        return wavetune(server, "why", kernel, "--environment", json.dumps(ENVIRONMENT), *more, check=False)

    nothing = why("gelu")
    assert nothing.returncode == 1 and nothing.stderr.count("\n") == 1 and "has no entry" in nothing.stderr
    publish(1)
    body = {"kind": "ban", "kernel": "add/triton", "config": {"BLOCK": 256}, "reason": "NaN", "unknown": True}
    ban = server.request("POST", "/v1/overrides", body).json["id"]
    done = why("add/triton")
    assert done.returncode == 0 and f'override {ban}: ban of {{"BLOCK":256}} by ' in done.stdout and ": NaN\n" in done.stdout
    assert "config   add/triton" in done.stdout
    answer = json.loads(why(CLOSURE, "--json").stdout)
    assert answer["overrides"] == []
    assert [(one["function"], one["key"]) for one in answer["served"]] == [(CLOSURE, KEY)], "by the closure, as programs log it"
    unknown = why("sha256:" + "f" * 64)
    assert unknown.returncode == 1 and "`wavetune captures` lists what programs recorded" in unknown.stderr


def test_an_override_of_a_function_which_is_no_kernel_is_refused(server, publish):
    body = {"kind": "ban", "kernel": CLOSURE, "config": {"BLOCK": 256}, "reason": "NaN"}
    refused = server.request("POST", "/v1/overrides", body)
    assert (refused.status, refused.json["pointer"]) == (422, "/kernel") and "no kernel" in refused.json["detail"]


# What programs count


def counted(server, tag="default"):
    """What programs counted, by /metrics of one server."""
    metrics = server.request("GET", "/metrics").body.decode()
    found = re.findall(r'^wavetune_program_(\w+)_total\{tag="((?:[^"\\]|\\.)*)"\} (\S+)$', metrics, re.M)
    return {name: float(value) for name, label, value in found if label == tag}


NOTHING = dict.fromkeys(("choice_hits", "choice_misses", "choice_unfit", "failures", "saved_seconds"), 0)


def count(server, token, **more):
    return server.request("POST", "/v1/counters", more, token=token)


def test_what_programs_count_is_in_the_metrics(server, reader):
    assert counted(server) == counted(server, "") == NOTHING
    assert count(server, reader, hits=17, misses=3, unfit=2, failures=1, saved_ms=1250.5).status == 204
    assert count(server, reader, hits=3).status == 204
    assert counted(server) == {"choice_hits": 20, "choice_misses": 3, "choice_unfit": 2, "failures": 1, "saved_seconds": 1.2505}


def test_each_server_has_what_it_was_told(start, server, reader):
    other = start(harness.Server, server.database, options=harness.UNHURRIED)
    for told, hits in ((server, 1), (other, 2), (server, 4)):
        count(told, reader, hits=hits)
    assert (counted(server)["choice_hits"], counted(other)["choice_hits"]) == (5, 2)


def test_only_tags_of_channels_are_labels(server, reader, publish, postgres):
    publish(1)
    odd = 'a "b" \\'
    for tag in (odd, "invented"):
        assert count(server, reader, tag=tag, hits=1).status == 204
    assert counted(server, "")["choice_hits"] == 2 and counted(server, "invented") == {}
    postgres.sql("""WITH made AS (
                        INSERT INTO releases (digest, environment_digest, environment, tag, winners, bytes, regime,
                                              made_by, made_by_id)
                        SELECT sha256(bytes || n::text::bytea), environment_digest, environment,
                               CASE n WHEN 0 THEN 'a "b" \\' ELSE 'tag' || n END, winners, bytes || n::text::bytea, regime,
                               made_by, made_by_id
                        FROM releases, generate_series(0, 99) n RETURNING *)
                    INSERT INTO channels (name, environment_digest, tag, regime, release, counter)
                    SELECT 'stable', environment_digest, tag, regime, digest, 1 FROM made""", conninfo=server.database)
    for tag in (odd, odd, *(f"tag{n}" for n in range(1, 100))):
        assert count(server, reader, tag=tag, hits=1).status == 204
    assert counted(server, odd.replace("\\", "\\\\").replace('"', '\\"'))["choice_hits"] == 2
    assert counted(server, "tag61")["choice_hits"] == 1 and counted(server, "tag62") == {}, "64 tags at most"
    assert counted(server, "")["choice_hits"] == 2 + 38


@pytest.mark.parametrize("body, pointer", [
    ({"hits": -1}, "/hits"), ({"hits": 100001}, "/hits"), ({"saved_ms": 1.1e9}, "/saved_ms"), ({"hits": None}, "/hits"),
    ({"more": 1}, "/more"), ({"tag": ""}, "/tag"), ({"tag": "two\nlines"}, "/tag")])
def test_wrong_counters_are_refused_with_their_place(server, reader, body, pointer):
    refused = count(server, reader, **body)
    assert (refused.status, refused.json["pointer"]) == (422, pointer) and counted(server) == NOTHING


def test_counters_have_a_limit_of_their_own(server, reader):
    missed = [{"function": OTHER, "name": "own", "key": KEY, "why": "it is new"}]
    refused = None
    while refused is None or refused.status == 202:
        refused = server.request("POST", "/v1/demand", {"environment": ENVIRONMENT, "missed": missed}, token=reader)
    assert refused.status == 429 and int(refused.headers["Retry-After"]) >= 1
    assert count(server, reader, hits=1).status == 204 and counted(server)["choice_hits"] == 1


def test_readers_report_nothing_and_demand_alone_reads_nothing(server, database):
    reads, tells = make_token(database, "reads", "reader"), make_token(database, "tells", "demand")
    assert count(server, reads, hits=1).status == 403
    assert count(server, tells, hits=1).status == 204
    assert server.request("GET", f"/v1/choices?{query()}", token=tells).status == 403
