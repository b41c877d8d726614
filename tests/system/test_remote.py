"""Compiled code for programs, and configs that autotuners found: code of builds is served to all readers, what containers wrote
only to the same token and image, and only if the operator opened that namespace."""

import json

import harness
import pytest
from harness import make_token
from test_choices import FOLDER, KEY, ask, options, publish, reader  # noqa: F401
from test_builds import sha

IMAGE = "sha256:" + "1" * 64
OTHER_FOLDER = "A" * 52


@pytest.fixture
def server(start, database, options):  # noqa: F811
    return start(harness.Server, database, options=(*harness.UNHURRIED, *options))


SHARED = pytest.mark.parametrize("options", [("--remote-share", f"container/{IMAGE}")])


def place(folder=OTHER_FOLDER, name="add.json", image=IMAGE, group=True):
    return f"/v1/remote/triton/{folder}/{'group/' if group else ''}{name}" + (f"?image={image}" if image else "")


def group(**files):
    files = {name.replace("_", "."): text for name, text in files.items()}
    return (json.dumps([[name, len(text)] for name, text in files.items()]) + "\n" + "".join(files.values())).encode()


BODY = group(add_hsaco="code", add_json="{}")


def put(server, token, body=BODY, **where):
    return server.request("PUT", place(**where), body, token=token)


def get(server, token, **where):
    return server.request("GET", place(**where), token=token)


def test_files_of_a_build_are_read_as_a_group_and_one_by_one(server, reader, publish):  # noqa: F811
    publish(1)
    assert ask(server, reader, KEY)["code"] == {FOLDER: {"add.json": sha(b"{}")}}
    answer = get(server, reader, folder=FOLDER, image=None)
    head, _, rest = answer.body.partition(b"\n")
    assert (json.loads(head), rest) == ([["add.json", 2]], b"{}")
    assert get(server, reader, folder=FOLDER, group=False).body == b"{}"
    again = server.request("GET", place(folder=FOLDER, image=None), token=reader, headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status == 304 and "immutable" not in answer.headers["Cache-Control"], "a build may be removed"
    assert get(server, reader, folder=FOLDER, name="sub.json").status == 404


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
def test_files_of_a_build_come_before_those_of_containers(server, reader, publish):  # noqa: F811
    put(server, reader, folder=FOLDER)
    publish(1)
    assert get(server, reader, folder=FOLDER).body.endswith(b"\n{}")


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


def test_the_sum_begins_with_what_was_stored_before_it(empty_database, postgres):
    migrations = harness.SOURCE / "migrations"
    for path in sorted(migrations.glob("*.sql")):
        if path.name.startswith("0025"):
            postgres.sql("""INSERT INTO remote_files (token_id, image, folder, name, is_group, bytes)
                            SELECT i % 2, '', 'f', i::text, false, 'abc' FROM generate_series(1, 5) i""", conninfo=empty_database)
        postgres.sql(path.read_text(), conninfo=empty_database)
    sums = "SELECT token_id, sum(files), sum(bytes) FROM remote_usage GROUP BY 1 ORDER BY 1"
    assert postgres.sql(sums, conninfo=empty_database).split() == ["0|2|6", "1|3|9"]


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
                                  capture_output=True, text=True, timeout=60)
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
