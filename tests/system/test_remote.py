"""Compiled code for programs, and configs that autotuners found: code of builds is served to all readers, what containers wrote
only to the same token and image, and only if the operator opened that namespace."""

import json

import harness
import pytest
from harness import make_token
from test_choices import ENVIRONMENT, FOLDER, KEY, OTHER, ask, options, publish, reader  # noqa: F401
from test_builds import MI300X, canonical, sha

IMAGE = "sha256:" + "1" * 64
OTHER_FOLDER = "A" * 52


@pytest.fixture
def server(start, database, options):  # noqa: F811
    return start(harness.Server, database, options=(*harness.UNHURRIED, *options))


SHARED = pytest.mark.parametrize("options", [("--remote-share", f"container/{IMAGE}")])


def place(folder=OTHER_FOLDER, name="add.json", image=IMAGE, group=True, release=None):
    query = "&".join(f"{name}={value}" for name, value in (("image", image), ("release", release)) if value)
    return f"/v1/remote/triton/{folder}/{'group/' if group else ''}{name}" + (f"?{query}" if query else "")


def group(**files):
    files = {name.replace("_", "."): text for name, text in files.items()}
    return (json.dumps([[name, len(text)] for name, text in files.items()]) + "\n" + "".join(files.values())).encode()


BODY = group(add_hsaco="code", add_json="{}")


def put(server, token, body=BODY, **where):
    return server.request("PUT", place(**where), body, token=token)


def get(server, token, **where):
    return server.request("GET", place(**where), token=token)


def test_files_of_a_build_are_read_as_a_group_and_one_by_one(server, reader, publish):  # noqa: F811
    release = publish(1)
    assert ask(server, reader, KEY)["code"] == {FOLDER: {"add.json": sha(b"{}")}}
    answer = get(server, reader, folder=FOLDER, image=None, release=release)
    head, _, rest = answer.body.partition(b"\n")
    assert (json.loads(head), rest) == ([["add.json", 2]], b"{}")
    assert get(server, reader, folder=FOLDER, group=False, release=release).body == b"{}"
    again = server.request("GET", place(folder=FOLDER, image=None, release=release), token=reader,
                           headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status == 304 and answer.headers["Cache-Control"] == "private, no-cache", "a build may be removed"
    assert get(server, reader, folder=FOLDER, name="sub.json", release=release).status == 404
    assert get(server, reader, folder=OTHER_FOLDER, release=release).status == 404


def test_files_of_a_build_are_read_only_where_the_read_names_a_release_of_it(server, reader, publish):  # noqa: F811
    first, second = publish(1), publish(0)
    for release, status in ((first, 200), (second, 200), (None, 404), ("sha256:" + "0" * 64, 404), ("none", 422)):
        assert get(server, reader, folder=FOLDER, release=release).status == status, release


def push_build(server, token, folder, code, name="evil"):
    """Registers a kernel with a build that states the folder of Triton's cache; returns (kernel, build)."""
    def blob(data):
        assert server.request("PUT", f"/v1/blobs/{sha(data)}", data, token=token).status in (200, 201)
        return sha(data)

    manifest = {"name": f"{name}/triton", "language": "triton", "entry": "add", "key": ["n"],
                "sources": [{"path": "add.py", "digest": blob(b"import triton\n")}], "launch": {"grid": ["n"]},
                "arguments": [{"name": "y", "dtype": "float16", "shape": ["n"], "access": "write"}]}
    posted = server.request("POST", "/v1/kernels", manifest, token=token)
    assert posted.status == 201, posted
    cache = {"folder": folder, "files": {"add.json": blob(b'{"evil":1}'), "add.hsaco": blob(code)}}
    record = {"name": name, "function": {"name": name, "closure": OTHER}, "key_names": ["n"], "tuning_key": ["n"],
              "argument_dtypes": ["torch.float16"]}
    build = {"kernel": posted.json["kernel"], "toolchain": {"triton": "3.6.0"}, "arch": "gfx942", "warp_size": 64, "record": record,
             "variants": [{"signature": {"y": "*fp16"}, "constexprs": {}, "objects": [
                 {"config": {"BLOCK": 64}, "digest": blob(code), "metadata": {"name": "add", "cache": cache}}]}]}
    digest = sha(canonical(build))
    put = server.request("PUT", f"/v1/kernels/{posted.json['kernel']}/builds/{digest}", build, token=token)
    assert put.status == 201, put
    return posted.json["kernel"], digest


@SHARED
@pytest.mark.parametrize("role", ["submitter", "builder"])
def test_a_pushed_build_puts_no_code_into_the_containers_of_another_token(server, reader, database, role, start, options):  # noqa: F811
    """Review 3, N1, step by step."""
    attacker, other = make_token(database, "attacker", role), make_token(database, "other", "reader")
    assert put(server, reader).status == 204 and get(server, reader).headers["Wavetune-Origin"] == "shared"
    assert get(server, other).status == 404
    push_build(server, attacker, OTHER_FOLDER, b"EVIL CODE")
    assert (get(server, other).status, get(server, other, image=None).status) == (404, 404)
    another = start(harness.Server, database, options=(*harness.UNHURRIED, *options))  # with nothing in memory
    fleet = get(another, reader)
    assert (fleet.body, fleet.headers["Wavetune-Origin"]) == (BODY, "shared")


def test_a_pushed_build_does_not_keep_a_release_from_its_folder(server, reader, database, publish):  # noqa: F811
    push_build(server, make_token(database, "attacker", "submitter"), FOLDER, b"EVIL CODE")
    release = publish(1)
    answer = get(server, reader, folder=FOLDER, release=release)
    assert answer.status == 200 and answer.body.endswith(b"\n{}")


def test_a_release_with_two_builds_of_one_folder_states_the_code_of_neither(server, reader, publish, postgres):  # noqa: F811
    kernel, _ = push_build(server, server.token, FOLDER, b"EVIL CODE")
    job = server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": 64}, "space": {"configs": [{"BLOCK": 64}]},
                                              "environment": MI300X}).json["job"]
    verdict = json.dumps({"winner": 0, "verdict": "FASTER", "equivalence_set": [0]})
    postgres.sql(f"""UPDATE jobs SET state = 'done', finished_at = now() WHERE id = {job};
                     INSERT INTO winners (job_id, config, config_values, verdict)
                       VALUES ({job}, 0, '{{"BLOCK": 64}}', '{verdict}')""", conninfo=server.database)
    release = publish(1)
    entry, document = map(json.loads, server.request("GET", f"/v1/choices?release={release}", token=reader).body.splitlines())
    assert len(document["functions"]) == 2 and document["code"] == {FOLDER: {}}
    assert get(server, reader, folder=FOLDER, release=release).status == 404


def build_of(server, token):
    kernel, = [one["kernel"] for one in server.request("GET", "/v1/kernels", token=token).json["items"] if one["name"] == "add/triton"]
    return kernel, server.request("GET", f"/v1/kernels/{kernel}/builds", token=token).json["items"][0]["build"]


def promote_without_the_build(server, postgres, release):
    """Points the channel at a release that has another origin for the key."""
    postgres.sql("UPDATE jobs SET build = NULL", conninfo=server.database)
    other = json.loads(harness.wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--json").stdout)["release"]
    assert other != release
    harness.wavetune(server, "promote", other, "stable")


def test_a_build_that_a_channel_serves_is_not_removed_until_it_serves_another_release(server, reader, database, publish,
                                                                                     postgres, start):  # noqa: F811
    release = publish(1)
    other = start(harness.Server, database, options=harness.UNHURRIED)
    kernel, build = build_of(server, reader)
    path = f"/v1/kernels/{kernel}/builds/{build}"
    text = server.request("GET", path, token=reader)
    for role in ("submitter", "builder", "reader,demand"):
        assert server.request("DELETE", path, token=make_token(database, role.partition(",")[0], role)).status == 403
    operator = make_token(database, "operator", "operator")
    refused = server.request("DELETE", path, token=operator)
    assert refused.status == 409 and '["stable"]' in refused.json["detail"] and "roll back" in refused.json["detail"]

    promote_without_the_build(server, postgres, release)
    assert all(get(one, reader, folder=FOLDER, release=release).status == 200 for one in (server, other))
    done = harness.wavetune(server, "kernel", "remove-build", kernel, build, token=operator)
    assert done.stdout == f"removed {build}\n"
    assert server.request("GET", path, token=reader).status == 404
    for one in (server, other):  # the other learns it from the database
        harness.wait_until(lambda: get(one, reader, folder=FOLDER, release=release).status == 404, 30, "the build's end")
        harness.wait_until(lambda: one.request("GET", path, token=reader).status == 404, 30, "the build's end")
    audited = server.request("GET", "/v1/audit?action=remove-build", token=operator).json["items"]
    assert [(one["object"], one["token"], one["detail"]) for one in audited] == [(build, "operator", {"kernel": kernel})]
    missing = server.request("DELETE", path, token=operator)
    assert missing.status == 404 and build in missing.json["detail"]

    again = server.request("PUT", path, json.loads(text.body), token=make_token(database, "again", "builder"))
    assert again.status == 409 and "was removed by operator" in again.json["detail"]
    entry, document = map(json.loads, server.request("GET", f"/v1/choices?release={release}", token=reader).body.splitlines())
    assert (document["code"], document["functions"]) == ({}, {})


def test_a_winner_whose_build_was_removed_is_left_out_of_releases(server, reader, publish, postgres):  # noqa: F811
    release = publish(1)
    promote_without_the_build(server, postgres, release)
    kernel, build = build_of(server, reader)
    postgres.sql(f"UPDATE jobs SET build = '\\x{build.removeprefix('sha256:')}'", conninfo=server.database)
    harness.wavetune(server, "kernel", "remove-build", kernel, build)
    refused = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT})
    assert refused.status == 422 and "build was removed by" in json.dumps(refused.json), refused


def test_a_build_that_an_open_job_runs_is_not_removed(server, reader, publish, postgres):  # noqa: F811
    kernel, build = build_of(server, reader)
    (job,) = server.items("/v1/jobs")
    refused = server.request("DELETE", f"/v1/kernels/{kernel}/builds/{build}")
    assert refused.status == 409 and f'["{job["job"]}"]' in refused.json["detail"] and "cancel" in refused.json["detail"]
    harness.wavetune(server, "cancel", job["job"])
    assert json.loads(harness.wavetune(server, "kernel", "remove-build", kernel, build, "--json").stdout) == {"removed": build}


@pytest.mark.parametrize("arguments", [(), ("sha256:" + "0" * 64,)])
def test_the_command_that_removes_a_build_states_what_it_needs(server, arguments):
    done = harness.wavetune(server, "kernel", "remove-build", *arguments, check=False)
    assert done.returncode == 2 and "kernel builds HASH" in done.stderr


def test_files_of_containers_are_not_served_unless_the_operator_allows_it(server, reader, postgres):  # noqa: F811
    assert put(server, reader).status == 204
    assert get(server, reader).status == 404
    assert postgres.sql("SELECT count(*) FROM remote_files", conninfo=server.database) == "1", "it is kept as evidence"


@SHARED
def test_a_namespace_is_shared_by_one_token_and_image(server, reader, database):  # noqa: F811
    assert put(server, reader).status == put(server, reader, b"{}", group=False, name="add.autotune.json").status == 204
    for _ in range(2):  # from the database, and from memory
        answer = get(server, reader)
        assert (answer.status, answer.body, answer.headers["Wavetune-Origin"]) == (200, BODY, "shared")
    assert get(server, reader, group=False, name="add.autotune.json").body == b"{}"
    assert get(server, reader, image="sha256:" + "2" * 64).status == 404
    assert get(server, make_token(database, "other", "reader,demand")).status == 404
    assert put(server, reader, group(add_json="other")).status == 204 and get(server, reader).body == BODY, "the first stays"


@SHARED
def test_the_list_of_a_start_is_replaced(server, reader):  # noqa: F811
    for body in (b"[1]", b"[2]"):
        assert put(server, reader, body, group=False, name="start.json").status == 204
        assert get(server, reader, group=False, name="start.json").body == body
    refused = put(server, reader, b" " * (256 * 1024 + 1), group=False, name="start.json")
    assert refused.status == 422 and "262144" in refused.json["detail"]
    assert put(server, reader, name="start.json").status == 204 and put(server, reader, group(start_json="x"),
                                                                        name="start.json").status == 204
    assert get(server, reader, name="start.json").body == BODY, "a group of this name is code"


@SHARED
def test_files_of_the_named_release_come_before_those_of_containers(server, reader, publish):  # noqa: F811
    put(server, reader, folder=FOLDER)
    release = publish(1)
    assert get(server, reader, folder=FOLDER, release=release).body.endswith(b"\n{}")
    assert get(server, reader, folder=FOLDER).body == BODY, "the read names no release"


@pytest.mark.parametrize("where, body, word", [
    ({"folder": "x"}, BODY, "folder"), ({"folder": "a" * 52}, BODY, "folder"), ({"name": "..%2Fx"}, BODY, "name of a file"),
    ({"name": "hip_utils.so", "group": False}, b"", "native"), ({}, group(launcher_so="x"), "native"), ({}, b"x", "begins with"),
    ({}, BODY + b"x", "follow"), ({"image": "i" * 300}, BODY, "image")])
def test_wrong_writes_are_refused(server, reader, where, body, word):  # noqa: F811
    refused = put(server, reader, body, **where)
    assert refused.status == 422 and word in refused.json["detail"]


@pytest.mark.parametrize("options", [("--remote-share", f"container/{IMAGE}", "--remote-mib", "1")])
def test_the_files_of_a_token_are_limited(server, reader):  # noqa: F811
    body = group(add_hsaco="x" * (600 << 10))
    assert [put(server, reader, body, name=name).status for name in ("a.json", "b.json")] == [204, 204]
    assert [get(server, reader, name=name).status for name in ("a.json", "b.json")] == [200, 404]


@pytest.mark.parametrize("options", [("--remote-mib", "1")])
def test_small_files_are_limited_too(server, reader, postgres):  # noqa: F811
    for i in range(300):
        assert put(server, reader, b"", group=False, name=f"{i}.json").status == 204
    assert postgres.sql("SELECT count(*) FROM remote_files", conninfo=server.database) == "256"


def used(postgres, server):  # noqa: F811
    """Files and bytes by the running sum, which must be those that are stored."""
    both = postgres.sql("SELECT sum(files), sum(bytes) FROM remote_usage UNION ALL "  # one statement: a server may remove a file
                        "SELECT count(*), COALESCE(sum(size), 0) FROM remote_files", conninfo=server.database)
    found, stored = both.split()
    assert found == stored
    return tuple(map(int, found.split("|")))


@SHARED
def test_the_sum_of_a_tokens_files_follows_each_change(server, reader, database, postgres):  # noqa: F811
    other = make_token(database, "other", "reader,demand")
    for token in (reader, other):
        assert put(server, token, b"12345", group=False, name="a.json").status == 204
    assert used(postgres, server) == (2, 10)
    assert put(server, reader, b"x", group=False, name="a.json").status == 204 and used(postgres, server) == (2, 10), "it stays"
    for body, size in ((b"[1]", 13), (b"[1, 2]", 16), (b"[]", 12)):
        assert put(server, reader, body, group=False, name="start.json").status == 204
        assert used(postgres, server) == (3, size)
    postgres.sql("UPDATE remote_files SET used_at = now()", conninfo=server.database)
    assert used(postgres, server) == (3, 12)
    postgres.sql("DELETE FROM remote_files WHERE name = 'a.json'", conninfo=server.database)
    assert used(postgres, server) == (1, 2)


@pytest.mark.parametrize("options", [("--remote-share", f"container/{IMAGE}", "--remote-mib", "1")])
def test_there_is_room_again_when_old_files_were_removed(server, reader, postgres, start):  # noqa: F811
    body = group(add_hsaco="x" * (600 << 10))
    assert put(server, reader, body).status == 204
    postgres.sql("UPDATE remote_files SET used_at = now() - interval '31 days'", conninfo=server.database)
    start(harness.Server, server.database, options=harness.UNHURRIED)  # it removes them when it starts
    harness.wait_until(lambda: used(postgres, server) == (0, 0), 30, "the file's removal")
    assert put(server, reader, body, name="b.json").status == 204 and get(server, reader, name="b.json").status == 200


@SHARED
def test_code_that_was_not_used_for_a_month_is_removed(server, reader, postgres, start):  # noqa: F811
    put(server, reader)
    age = "UPDATE remote_files SET used_at = now() - interval '{} days'"
    postgres.sql(age.format(29), conninfo=server.database)
    assert get(server, reader).status == 200, "and so it was used"
    postgres.sql("UPDATE remote_files SET used_at = used_at - interval '2 days'", conninfo=server.database)
    start(harness.Server, server.database, options=harness.UNHURRIED).stop()
    assert postgres.sql("SELECT count(*) FROM remote_files", conninfo=server.database) == "1"
    postgres.sql(age.format(31), conninfo=server.database)
    start(harness.Server, server.database, options=harness.UNHURRIED)
    harness.wait_until(lambda: postgres.sql("SELECT count(*) FROM remote_files", conninfo=server.database) == "0", 30)


def test_readers_write_no_code_and_a_wrong_namespace_is_refused(server, database):
    assert put(server, make_token(database, "reads", "reader")).status == 403
    done = harness.subprocess.run([harness.BUILD / "wavetune-server", "serve", "--database", database, "--remote-share", "fleet"],
                                  capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and "--remote-share" in done.stderr


FOUND = {"XBLOCK": 256, "num_warps": 4, "num_stages": 1, "configs_hash": "a" * 64, "found_by_coordesc": False, "time_taken_ms": 9}
BEST = {"config": '{"block_sizes": [64]}', "key": {"type": "LooseAutotuneCacheKey", "fields": {"hardware": "H"}},
        "flat_config": "[64]"}
HARDWARE = "NVIDIA%20H200%3B%20cuda%2013.2"


def value(key="b" * 64, program="inductor", hardware=HARDWARE, image=IMAGE, **more):
    query = {"hardware": hardware, "image": image, **more}
    return f"/v1/remote/{program}" + (f"/{key}" if key else "") + "?" + "&".join(f"{n}={v}" for n, v in query.items() if v)


@SHARED
@pytest.mark.parametrize("program, body, other", [("inductor", FOUND, {**FOUND, "XBLOCK": 1}),
                                                  ("helion", BEST, {**BEST, "config": "{}"})])
def test_what_an_autotuner_found_is_shared_on_one_hardware(server, reader, database, program, body, other):  # noqa: F811
    place = value(program=program)
    assert server.request("GET", place, token=reader).status == 404
    assert [server.request("PUT", place, one, token=reader).status for one in (body, other)] == [204, 204]
    answer = server.request("GET", place, token=reader)
    assert (answer.status, answer.json, answer.headers["Wavetune-Origin"]) == (200, body, "shared"), "the first stays"
    assert server.request("GET", value(program=program, hardware="NVIDIA%20H100"), token=reader).status == 404
    assert server.request("GET", value("helion" if program == "inductor" else "inductor"), token=reader).status in (404, 422)
    assert server.request("GET", value("c" * 64, program=program), token=reader).status == 404


def test_in_a_closed_namespace_a_program_is_told_not_to_ask_again(server, reader, postgres):  # noqa: F811
    assert server.request("PUT", value(), FOUND, token=reader).status == 204
    for place in (value(), value(program="helion"), value(None, "helion", newest=3)):
        refused = server.request("GET", place, token=reader)
        assert refused.status == 403 and "--remote-share" in refused.json["detail"]
    assert postgres.sql("SELECT count(*) FROM remote_files", conninfo=server.database) == "0"


@SHARED
def test_the_newest_files_of_helion_come_first(server, reader, database):  # noqa: F811
    assert server.request("GET", value(None, "helion", newest=3), token=reader).json == []
    server.request("PUT", value(), FOUND, token=reader)
    for i in range(4):
        server.request("PUT", value(f"{i:064x}", "helion"), {**BEST, "backend_cache_key": str(i)}, token=reader)
    listed = server.request("GET", value(None, "helion", newest=3), token=reader).json
    assert [one["backend_cache_key"] for one in listed] == ["3", "2", "1"]


@SHARED
@pytest.mark.parametrize("place, body, word", [
    (value("x"), FOUND, "64 lower-case hex"), (value("B" * 64), FOUND, "64 lower-case hex"),
    (value(hardware=None), FOUND, "hardware"), (value(hardware="h" * 201), FOUND, "hardware"),
    (value(image="i" * 201), FOUND, "hardware"), (value(more=1), FOUND, "more"),
    (value(), {**FOUND, "ir_override": "x"}, "member of this name"), (value(), {**FOUND, "XBLOCK": 0.5}, "must be an integer"),
    (value(), BEST, "string of a config"), (value(program="helion"), FOUND, "unknown member"),
    (value(program="helion"), {**BEST, "config": '{"advanced_controls_file": "x"}'}, "member of this name")], ids=lambda one: "")
def test_values_that_no_autotuner_wrote_are_refused(server, reader, place, body, word):  # noqa: F811
    refused = server.request("PUT", place, body, token=reader)
    assert refused.status == 422 and word in json.dumps(refused.json), refused


@SHARED
def test_a_list_has_a_length_and_a_value_a_size(server, reader):  # noqa: F811
    for newest in (None, "0", "101", "x", "1x", "-1"):
        assert server.request("GET", value(None, "helion", newest=newest), token=reader).status == 422
    assert server.request("GET", value(None, "helion", newest=1, hardware=None), token=reader).status == 422
    assert server.request("PUT", value(), {**FOUND, "x": "y" * 20000}, token=reader).status == 413


def test_readers_store_no_configs(server, database):
    token = make_token(database, "reads", "reader")
    for program, body in (("inductor", FOUND), ("helion", BEST)):
        assert server.request("PUT", value(program=program), body, token=token).status == 403
