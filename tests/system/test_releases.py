"""Releases, channels and the cache over HTTP and in the database; SQL statements insert the jobs, without an agent."""

import hashlib
import io
import json
import tarfile
import threading
import urllib.parse

import harness
import pytest
from harness import wait_until, wavetune

GPU = {"gpu": "AMD Instinct MI300X", "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
ROCM_64 = {"rocm": "6.4.1", **GPU}
ROCM_63 = {"rocm": "6.3.0", **GPU}
SPACE = {"parameters": {"B": [1, 2, 4, 8]}, "conditions": ["B != 8"]}


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


MANIFEST = '{"name": "softmax", "language": "external", "key": ["M"], "exports": {"dejavu": {}}}'


class Bench:
    """A server with a database into which finished jobs are written."""

    def __init__(self, server, postgres):
        self.server, self.postgres = server, postgres

    def sql(self, text):
        return self.postgres.sql(text, conninfo=self.server.database)

    def job(self, environment, kernel="softmax", m=1, winner=1, run="", tag="default", verdict="FASTER", state="done",
            space=SPACE):
        """Returns the job's id; the kernel's hash is that of its name."""
        hash_, key, identity = sha256(kernel), json.dumps({"M": m}), canonical(environment)
        self.sql(f"""
            INSERT INTO kernels (hash, name, language, manifest)
              VALUES ('\\x{hash_}', '{kernel.split("@")[0]}', 'c', '{MANIFEST}') ON CONFLICT DO NOTHING;
            INSERT INTO environments (digest, hardware_digest, identity)
              VALUES ('\\x{sha256(identity)}', '\\x{sha256(identity)}', '{identity}') ON CONFLICT DO NOTHING;
            INSERT INTO spaces (digest, space)
              VALUES ('\\x{sha256(json.dumps(space))}', '{json.dumps(space)}') ON CONFLICT DO NOTHING""")
        finished = "now()" if state in ("done", "failed") else "NULL"
        job = self.sql(f"""
            INSERT INTO jobs (kernel, key, key_digest, space_digest, environment_id, tag, run, state, reason, finished_at,
                              priority, baseline, seed, configs, runner, device_class)
            SELECT '\\x{hash_}', '{key}', '\\x{sha256(key)}', '\\x{sha256(json.dumps(space))}', id, '{tag}', '{run}', '{state}',
                   'every config crashed', {finished}, 0, 0, 7, 4, 'build', hardware_digest
            FROM environments WHERE digest = '\\x{sha256(identity)}' RETURNING id""")
        if state == "done":
            text = json.dumps({"winner": winner, "verdict": verdict, "equivalence_set": [winner], "winner_us": 203.1})
            self.sql(f"""INSERT INTO winners (job_id, config, config_values, verdict)
                         VALUES ({job}, {winner}, '{json.dumps({"B": 1 << winner})}', '{text}')""")
        return job

    def imported(self, environment, config, m=1, language="external", kernel="softmax", tag="default"):
        """An imported incumbent. The kernel's hash is that of its name."""
        hash_, identity, key = sha256(kernel), canonical(environment), json.dumps({"M": m})
        self.sql(f"""
            INSERT INTO kernels (hash, name, language, manifest)
              VALUES ('\\x{hash_}', '{kernel}', '{language}', '{MANIFEST}') ON CONFLICT DO NOTHING;
            INSERT INTO imports (kernel, key_digest, key, environment_digest, environment, tag, config, ms, provenance, format,
                                 imported_by)
              VALUES ('\\x{hash_}', '\\x{sha256(key)}', '{key}', '\\x{sha256(identity)}', '{identity}', '{tag}',
                      '{json.dumps(config)}', '{{0.5, 0.25, 1}}', '{{"source": "a/cache.json"}}', 'dejavu', 'me')""")

    def release(self, environment, **more):
        return self.server.request("POST", "/v1/releases", {"environment": environment, **more})

    def move(self, release, name="stable", **headers):
        return self.server.request("PUT", f"/v1/channels/{name}", {"release": release}, headers=headers)

    def cache(self, headers=None, **query):
        return self.server.request("GET", "/v1/cache?" + urllib.parse.urlencode(query), headers=headers)


@pytest.fixture(scope="module")
def one_server(postgres, tmp_path_factory):
    server = harness.Server(postgres.database(), tmp_path_factory.mktemp("server"), options=harness.UNHURRIED)
    yield server
    server.kill()


@pytest.fixture
def bench(one_server, postgres):
    """The server of all these tests, with nothing in it."""
    postgres.sql("TRUNCATE environments, kernels, spaces, releases, channels, channel_entries, images CASCADE", conninfo=one_server.database)
    return Bench(one_server, postgres)


@pytest.fixture
def two(bench):
    return two_releases(bench)


def two_releases(bench):
    """Of one environment: .first and .second."""
    bench.job(ROCM_64, winner=1)
    bench.first = bench.release(ROCM_64).json["release"]
    bench.job(ROCM_64, winner=2, m=2)
    bench.second = bench.release(ROCM_64).json["release"]
    return bench


def reasons(answer):
    return {entry["job"]: entry["reason"] for entry in answer.json["skipped"]}


def test_a_release_is_canonical_bytes_under_their_digest(bench):
    job = bench.job(ROCM_64, winner=1)
    answer = bench.release({"rocm": "6.4.1"})
    assert answer.status == 201
    assert answer.json["release"] == "sha256:" + sha256(answer.json["bytes"])
    assert json.loads(answer.json["bytes"]) == {
        "environment": ROCM_64, "tag": "default", "version": 2,
        "kernels": [{"configs": [{"ordinal": 1, "space": "sha256:" + sha256(json.dumps(SPACE)), "values": {"B": 2}}],
                     "kernel": "sha256:" + sha256("softmax"), "key": ["M"], "name": "softmax",
                     "provenance": [{"origin": "tuned"}], "winners": [[[1], 0, 0, [0.2031], int(job)]]}]}
    assert answer.json["included"] == [
        {"name": "softmax", "kernel": "sha256:" + sha256("softmax"), "key": {"M": 1}, "job": job, "origin": "tuned"}]
    assert answer.json["winners"] == 1 and answer.json["skipped"] == []


def test_a_retune_that_changed_nothing_is_the_release_that_is_served(bench):
    bench.job(ROCM_64, winner=1)
    first = bench.release(ROCM_64)
    bench.move(first.json["release"])
    bench.job(ROCM_64, winner=1, run="again")
    second = bench.release(ROCM_64, replaces={})
    assert (first.status, second.status) == (201, 200)
    assert first.json["release"] == second.json["release"]
    assert len(bench.server.items("/v1/releases")) == 1
    assert bench.release(ROCM_64).status == 201  # of the newer job, which states that


def test_an_unreadable_served_release_does_not_prevent_a_new_one(bench):
    bench.job(ROCM_64, winner=1)
    bench.move(bench.release(ROCM_64).json["release"])
    old = canonical({"environment": ROCM_64, "tag": "default", "version": 1, "winners": []})
    bench.sql(f"""INSERT INTO releases (digest, environment_digest, environment, tag, winners, bytes)
                    SELECT '\\x{sha256(old)}', environment_digest, environment, tag, 1, convert_to('{old}', 'UTF8') FROM releases;
                  UPDATE channels SET release = '\\x{sha256(old)}', counter = 2""")
    again = bench.release(ROCM_64, replaces={})
    assert again.status == 200 and not again.json["kept"]
    assert again.json["replaces"]["etag"].startswith('"2.'), "it is replaced"
    assert "not compared with" in bench.server.messages


def test_a_winner_names_the_build_that_was_measured(bench):
    job = bench.job(ROCM_64)
    bench.sql(f"UPDATE jobs SET build = '\\x{sha256('build')}' WHERE id = {job}")
    kernel = json.loads(bench.release(ROCM_64).json["bytes"])["kernels"][0]
    assert kernel["provenance"] == [{"build": "sha256:" + sha256("build"), "origin": "tuned"}]


def test_an_import_is_released_where_nothing_was_tuned(bench):
    job = bench.job(ROCM_64, m=1)
    bench.imported(ROCM_64, {"B": 3}, m=1)
    bench.imported(ROCM_64, {"B": 3}, m=2)
    answer = bench.release(ROCM_64)
    assert [(entry["key"], entry["job"], entry["origin"]) for entry in answer.json["included"]] == [
        ({"M": 1}, job, "tuned"), ({"M": 2}, None, "imported")]
    assert reasons(answer) == {None: f"superseded by job {job}"}
    kernel = json.loads(answer.json["bytes"])["kernels"][0]
    assert kernel["configs"][1] == {"values": {"B": 3}}
    assert kernel["provenance"][0] == {"format": "dejavu", "origin": "imported", "source": "a/cache.json"}
    assert kernel["winners"][1] == [[2], 1, 0, [0.5, 0.25, 1.0], 0]


def test_an_environment_that_only_imports_have_can_be_released(bench):
    table = {"rocm": "6.2.0", "gpu": GPU["gpu"]}  # a table states less than a node
    bench.imported(table, {"B": 3}, tag="old")
    bench.imported(table, {"B": 5}, tag="old", m=2)
    answer = bench.release({"rocm": "6.2.0"}, tag="old", pins=[
        {"kernel": "sha256:" + sha256("softmax"), "key": {"M": 2}, "config": {"anything": 7}}])
    document = json.loads(answer.json["bytes"])
    assert document["environment"] == table
    assert [config["values"] for config in document["kernels"][0]["configs"]] == [{"B": 3}, {"anything": 7}]
    assert [entry["origin"] for entry in answer.json["included"]] == ["imported", "pinned"]
    assert bench.release({"rocm": "6.2.0"}).status == 422


def test_what_is_left_out_is_listed_with_the_reason(bench):
    good = bench.job(ROCM_64, m=1)
    old = bench.job(ROCM_64, m=2)
    bench.sql(f"UPDATE jobs SET finished_at = now() - interval '1 hour' WHERE id = {old}")
    newer = bench.job(ROCM_64, m=2, run="again")
    failed = bench.job(ROCM_64, m=3, state="failed")
    ambiguous = bench.job(ROCM_64, m=4, verdict="AMBIGUOUS")
    bench.job(ROCM_63, m=5)
    bench.job(ROCM_64, m=6, tag="other")
    answer = bench.release(ROCM_64)
    assert [entry["job"] for entry in answer.json["included"]] == [good, newer]
    why = reasons(answer)
    assert why.pop(ambiguous).startswith("ambiguous")
    assert why == {old: f"superseded by job {newer}", failed: "no winner: failed: every config crashed"}


def test_a_release_as_of_a_time_sees_what_was_finished_then(bench):
    old = bench.job(ROCM_64, winner=1)
    bench.sql(f"UPDATE jobs SET finished_at = '2026-01-01T00:00:00Z' WHERE id = {old}")
    bench.job(ROCM_64, winner=1, run="again")
    answer = bench.release(ROCM_64, as_of="2026-01-01T01:00:00+01:00")
    assert [entry["job"] for entry in answer.json["included"]] == [old]
    assert bench.release(ROCM_64, as_of="2025-12-31T23:59:59Z").status == 422


def test_a_pin_replaces_the_winner_and_one_outside_the_space_is_skipped(bench):
    bench.job(ROCM_64, winner=1)
    pin = {"kernel": "sha256:" + sha256("softmax"), "key": {"M": 1}, "config": {"B": 4}}
    answer = bench.release(ROCM_64, pins=[pin])
    assert answer.status == 201
    assert answer.json["included"] == [{"name": "softmax", "kernel": pin["kernel"], "key": {"M": 1}, "job": None,
                                        "origin": "pinned"}]
    kernel = json.loads(answer.json["bytes"])["kernels"][0]
    assert kernel["configs"][0]["ordinal"] == 2 and kernel["winners"] == [[[1], 0, 0, [], 0]]
    refused = bench.release(ROCM_64, pins=[{**pin, "config": {"B": 8}}])
    assert refused.status == 422
    assert "conditions of job" in refused.json["skipped"][0]["reason"]


def test_kernels_limit_a_release(bench):
    bench.job(ROCM_64, kernel="softmax")
    bench.job(ROCM_64, kernel="matmul")
    answer = bench.release(ROCM_64, kernels=["sha256:" + sha256("matmul")])
    assert [entry["name"] for entry in answer.json["included"]] == ["matmul"]


def test_a_partial_environment_must_match_exactly_one(bench):
    bench.job(ROCM_64)
    bench.job(ROCM_63)
    several = bench.release({"arch": "gfx942"})
    assert several.status == 422 and several.json["pointer"] == "/environment"
    assert several.json["environments"] == [ROCM_64, ROCM_63]
    none = bench.release({"rocm": "7.0"})
    assert none.status == 422 and none.json["nearest"]["differences"] == {"rocm": {"asked": "7.0", "there": "6.4.1"}}
    nothing = bench.release(ROCM_64, tag="nobody")
    assert nothing.status == 422 and nothing.json["nearest"] is None


def test_a_release_is_read_back_as_it_was_made(bench):
    bench.job(ROCM_64)
    made = bench.release(ROCM_64).json
    path = f"/v1/releases/{made['release']}"
    for _ in range(2):  # from the database, then from the cache
        answer = bench.server.request("GET", path)
        assert answer.status == 200 and answer.body.decode() == made["bytes"]
        assert answer.headers["ETag"] == f'"{made["release"]}"' and "immutable" in answer.headers["Cache-Control"]
    assert bench.server.request("GET", path, headers={"If-None-Match": answer.headers["ETag"]}).status == 304


def test_an_unknown_release_format_and_digest_are_404(bench):
    bench.job(ROCM_64)
    release = bench.release(ROCM_64).json["release"]
    assert bench.server.request("GET", f"/v1/releases/{release}/export/xml").status == 404
    assert bench.server.request("GET", "/v1/releases/sha256:" + "0" * 64).status == 404
    assert bench.server.request("GET", "/v1/releases/latest").status == 404


def test_the_json_export_is_the_rendered_cache(bench):
    bench.job(ROCM_64, winner=1)
    release = bench.release(ROCM_64).json["release"]
    for _ in range(2):
        exported = bench.server.get(f"/v1/releases/{release}/export/json")
        assert exported["release"] == release
        assert exported["kernels"]["softmax"]["entries"] == [{"config": {"B": 2}, "key": {"M": 1}}]


def moe_config(block):
    return {"BLOCK_SIZE_M": block, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 2}


@pytest.fixture
def moe(bench):
    """.release holds two tables of vLLM, and .skipping one more file that is no table."""
    for name, experts in (("a", 8), ("b", 16)):
        manifest = {"name": name, "language": "external", "key": ["M"],
                    "exports": {"vllm-moe": {"E": str(experts), "N": "384", "M": "M"}}}
        answer = bench.server.request("POST", "/v1/imports", {
            "format": "vllm-moe", "environment": ROCM_64, "kernels": [
                {"manifest": manifest, "entries": [{"key": {"M": m}, "config": moe_config(16 * m)} for m in (1, 2)]}]})
        assert answer.status == 201, answer.json
    bench.first = bench.release(ROCM_64).json["release"]
    bench.imported(ROCM_64, {"B": 3})
    bench.second = bench.release(ROCM_64).json["release"]
    return bench


def export(bench, release, format, query=""):
    return bench.server.request("GET", f"/v1/releases/{release}/export/{format}{query}")


def test_an_export_of_several_files_is_one_tar_that_depends_on_nothing_else(moe):
    first, again = (export(moe, moe.first, "vllm-moe") for _ in range(2))  # from the database, then from the cache
    assert first.status == again.status == 200 and first.body == again.body
    assert first.headers["Content-Type"] == "application/x-tar" and "Wavetune-Skipped" not in first.headers
    with tarfile.open(fileobj=io.BytesIO(first.body)) as tar:
        members = tar.getmembers()
        assert [member.name for member in members] == sorted(member.name for member in members) and len(members) == 3
        assert all((member.mtime, member.uid, member.gid, member.mode) == (0, 0, 0, 0o644) for member in members)
        assert {name: json.load(tar.extractfile(name)) for name in tar.getnames()}[members[0].name]["2"] == moe_config(32)


def test_an_export_counts_the_winners_that_its_format_cannot_hold(moe):
    answer = export(moe, moe.second, "vllm-moe")
    assert answer.status == 200 and answer.headers["Wavetune-Skipped"] == "1"
    assert answer.headers["Cache-Control"] == "private, no-cache"  # another server may state more


def test_an_export_without_winners_is_422(bench):
    bench.job(ROCM_64)
    release = bench.release(ROCM_64).json["release"]
    refused = export(bench, release, "tunableop")
    assert refused.status == 422 and refused.json["pointer"] == "" and refused.json["detail"]


def test_an_export_is_rendered_for_an_image_that_is_known(moe):
    identity = {"version": 1, "gpu": "AMD Instinct MI300X HF", "moe_device_name": "AMD_Instinct_MI300X_HF"}
    digest = "sha256:" + sha256(canonical(identity))
    assert export(moe, moe.first, "vllm-moe", "?identity=mine").status == 422
    unknown = export(moe, moe.first, "vllm-moe", f"?identity={digest}")
    assert unknown.status == 404 and "PUT /v1/images" in unknown.json["detail"]
    assert moe.server.request("PUT", f"/v1/images/{digest}", identity).status == 201
    answer = export(moe, moe.first, "vllm-moe", f"?identity={digest}")
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as tar:
        assert sum("MI300X_HF" in name for name in tar.getnames()) == 2


def test_a_database_that_fails_during_an_export_causes_no_partial_one(moe):
    moe.sql("ALTER TABLE kernels RENAME TO kernels_gone")
    try:
        assert export(moe, moe.second, "vllm-moe").status in (500, 503)
    finally:
        moe.sql("ALTER TABLE kernels_gone RENAME TO kernels")
    moe.sql("""UPDATE kernels SET manifest = '{"key": ["M"]}' WHERE name = 'softmax'""")
    damaged = export(moe, moe.second, "vllm-moe")
    assert damaged.status in (500, 503) and "the stored kernel sha256:" in damaged.json["detail"]
    assert damaged.json["kind"] == "damaged"


def test_of_an_edited_kernel_the_newer_is_released_unless_both_are_named(bench):
    bench.job(ROCM_64, kernel="softmax@1")
    bench.job(ROCM_64, kernel="softmax@2")
    answer = bench.release(ROCM_64)
    assert [entry["kernel"] for entry in answer.json["included"]] == ["sha256:" + sha256("softmax@2")]
    both = bench.release(ROCM_64, kernels=["sha256:" + sha256("softmax@1"), "sha256:" + sha256("softmax@2")]).json
    assert both["winners"] == 2
    exported = bench.server.get(f"/v1/releases/{both['release']}/export/json")
    assert len(exported["kernels"]) == 2


def test_self_timed_winners_are_skipped_on_request(bench):
    bench.job(ROCM_64, kernel="itself", m=1)
    bench.job(ROCM_64, kernel="watched", m=1)
    bench.sql("UPDATE kernels SET language = 'hip' WHERE name = 'watched'")
    assert {entry["name"] for entry in bench.release(ROCM_64).json["included"]} == {"itself", "watched"}

    answer = bench.release(ROCM_64, refuse_self_timed=True).json
    assert [entry["name"] for entry in answer["included"]] == ["watched"]
    assert [entry["name"] for entry in answer["skipped"]] == ["itself"] and answer["skipped"][0]["reason"].startswith("self-timed: ")
    pin = {"kernel": "sha256:" + sha256("itself"), "key": {"M": 1}, "config": {"B": 2}}
    pinned = bench.release(ROCM_64, refuse_self_timed=True, pins=[pin]).json
    assert {entry["name"] for entry in pinned["included"]} == {"itself", "watched"}

    # The answer of a channel with it is not cached.
    both = bench.release(ROCM_64).json["release"]
    assert bench.server.request("PUT", "/v1/channels/timed", {"release": both}).status == 200
    replaced = bench.release(ROCM_64, refuse_self_timed=True, replaces={"channel": "timed"}).json
    assert [entry["name"] for entry in replaced["included"]] == ["watched"] and not replaced["kept"]
    done = wavetune(bench.server, "publish", "--environment", json.dumps(ROCM_64), "--refuse-self-timed", "--json")
    assert json.loads(done.stdout)["release"] == replaced["release"]
    assert bench.release(ROCM_64, refuse_self_timed=None).status == 422


def test_a_winner_stored_with_a_broken_verdict_is_an_error_and_no_release(bench):
    bench.job(ROCM_64, verdict="BETTER")
    assert bench.release(ROCM_64).status in (500, 503)
    assert bench.server.items("/v1/releases") == []


def test_releases_are_listed_newest_first_in_pages(two):
    page = two.server.get("/v1/releases?limit=1")
    assert page["items"][0]["release"] == two.second and page["items"][0]["winners"] == 2
    rest = two.server.get(f"/v1/releases?limit=1&after={page['next']}")
    assert rest["items"][0]["release"] == two.first and rest["next"] is None
    assert two.server.request("GET", "/v1/releases?after=x").status == 422


@pytest.mark.parametrize("path", ["/v1/releases?tag=a", "/v1/channels?name=a", "/v1/channels/stable?channel=a",
                                  "/v1/cache?hip=6.4", "/v1/releases/sha256:" + "0" * 64 + "?x=1"])
def test_an_unknown_query_argument_is_422(bench, path):
    answer = bench.server.request("GET", path)
    assert answer.status == 422 and "unknown query argument" in answer.json["detail"]


def test_a_channel_counts_its_moves_and_a_rollback_is_one_more(two):
    counters = [two.move(release).json["counter"] for release in (two.first, two.second, two.first)]
    assert counters == [1, 2, 3]
    assert two.sql("SELECT counter, encode(release, 'hex'), moved_by LIKE 'admin%' FROM channel_entries ORDER BY counter"
                   ).split() == [f"{i + 1}|{release.removeprefix('sha256:')}|t"
                                 for i, release in enumerate((two.first, two.second, two.first))]


def test_a_move_to_where_the_channel_points_already_changes_nothing(two):
    first = two.move(two.first)
    again = two.move(two.first, **{"If-Match": '"9-00"'})
    assert again.status == 200 and again.json == first.json and again.headers["ETag"] == first.headers["ETag"]
    assert two.sql("SELECT count(*) FROM channel_entries") == "1"


def test_if_match_moves_only_what_was_read(two):
    etag = two.move(two.first).headers["ETag"]
    moved = two.move(two.second, **{"If-Match": etag})
    assert moved.status == 200 and moved.json["counter"] == 2
    late = two.move(two.first, **{"If-Match": etag})
    assert late.status == 412
    assert late.json["etag"] == moved.headers["ETag"] == late.headers["ETag"] and late.json["entry"] == moved.json


def test_if_none_match_star_only_makes_a_channel(two):
    assert two.move(two.first, **{"If-None-Match": "*"}).json["counter"] == 1
    assert two.move(two.second, **{"If-None-Match": "*"}).status == 412


def test_if_match_does_not_make_a_channel(two):
    answer = two.move(two.first, **{"If-Match": "*"})
    assert answer.status == 412 and answer.json["etag"] is None


@pytest.mark.parametrize("headers", [{"If-Match": "1-ab"}, {"If-None-Match": '"1-ab"'}, {"If-Match": "*", "If-None-Match": "*"}])
def test_a_precondition_that_cannot_be_understood_moves_nothing(two, headers):
    assert two.move(two.first, **headers).status == 422
    assert two.server.items("/v1/channels") == []


def test_a_channel_cannot_point_at_a_release_that_is_not_there(two):
    answer = two.move("sha256:" + "0" * 64)
    assert answer.status == 422 and answer.json["pointer"] == "/release"


def test_of_movers_that_race_with_one_etag_exactly_one_wins(two):
    etag = two.move(two.first).headers["ETag"]
    two.job(ROCM_64, winner=2, m=3)
    releases = [two.release(ROCM_64, pins=[{"kernel": "sha256:" + sha256("softmax"), "key": {"M": 3}, "config": {"B": b}}]
                            ).json["release"] for b in (1, 2, 4)]
    statuses = []
    threads = [threading.Thread(target=lambda r=release: statuses.append(two.move(r, **{"If-Match": etag}).status))
               for release in releases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 412, 412]
    assert two.sql("SELECT counter FROM channels") == "2"


def test_movers_without_a_precondition_all_move_one_after_the_other(two):
    def move_often():
        for i in range(10):
            while (answer := two.move((two.first, two.second)[i % 2])).status == 503:
                pass  # it lost against the others 16 times
            assert answer.status == 200

    threads = [threading.Thread(target=move_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counter, entries, newest = two.sql("SELECT c.counter, count(*), max(e.counter) FROM channels c"
                                       " JOIN channel_entries e USING (name) GROUP BY c.counter").split("|")
    assert counter == entries == newest


def test_the_database_refuses_to_decrease_a_counter_or_change_history(two):
    two.move(two.first)
    for statement in ("UPDATE channels SET counter = counter", "DELETE FROM channels", "DELETE FROM channel_entries",
                      "UPDATE channel_entries SET moved_by = 'me'", "UPDATE releases SET tag = 'x'"):
        with pytest.raises(AssertionError, match="counter only grows|append-only"):
            two.sql(statement)


def test_the_cache_finds_the_entry_that_the_stated_members_identify(two):
    two.job(ROCM_63)
    other = two.release(ROCM_63).json["release"]
    two.move(two.first)
    two.move(other)
    for _ in range(2):  # from the database, then from the cache
        answer = two.cache(rocm="6.3.0", gpu=GPU["gpu"])
        assert answer.status == 200 and answer.headers["Wavetune-Match"] == "exact"
        assert answer.json["release"] == other and answer.json["environment"] == ROCM_63
        assert answer.json["channel"] == "stable" and answer.json["tag"] == "default" and answer.json["counter"] == 1
    assert two.cache(rocm="6.3.0", headers={"If-None-Match": answer.headers["ETag"]}).status == 304
    ambiguous = two.cache(arch="gfx942")
    assert ambiguous.status == 422 and ambiguous.json["environments"] == [ROCM_64, ROCM_63]
    nearest = two.cache(rocm="6.3.0", compute_units=38)
    assert nearest.status == 404
    assert nearest.json["nearest"] == {"environment": ROCM_63, "differences": {"compute_units": {"asked": 38, "there": 304}}}
    assert "compute_units (asked 38, there 304)" in nearest.json["detail"]
    assert two.cache(channel="nobody").status == 404
    assert two.cache(compute_units="many").status == 422
    assert two.cache(channel="Not a name").status == 422


def test_a_channel_is_read_by_name_environment_and_tag(two):
    entry = two.move(two.first, name="canary")
    for query in ("", "?rocm=6.4.1&tag=default"):
        answer = two.server.request("GET", f"/v1/channels/canary{query}")
        assert answer.json == entry.json and answer.headers["ETag"] == entry.headers["ETag"]
    assert two.server.request("GET", "/v1/channels/canary?tag=other").status == 404
    assert two.server.items("/v1/channels") == [entry.json]


def test_channels_are_listed_in_pages(two):
    for name in ("a", "b", "c"):
        two.move(two.first, name=name)
    page = two.server.get("/v1/channels?limit=2")
    assert [entry["channel"] for entry in page["items"]] == ["a", "b"]
    assert [entry["channel"] for entry in two.server.get(f"/v1/channels?after={page['next']}")["items"]] == ["c"]


def test_a_move_is_seen_at_once_by_the_server_that_made_it(two):
    two.move(two.first)
    assert two.cache().json["release"] == two.first
    two.move(two.second)
    assert two.cache().json["release"] == two.second


def test_a_move_is_seen_by_another_server(two, start):
    other = Bench(start(harness.Server, two.server.database), two.postgres)
    two.move(two.first)
    wait_until(lambda: other.cache().status == 200, 10, "the other server to see the channel")
    two.move(two.second)
    wait_until(lambda: other.cache().json["release"] == two.second, 10, "the other server to see the move")


def test_a_move_that_loses_every_race_is_answered_with_a_retry(server, postgres):
    two = two_releases(Bench(server, postgres))
    two.move(two.first)
    two.sql("CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
            "CREATE TRIGGER a_nothing BEFORE UPDATE ON channels FOR EACH ROW EXECUTE FUNCTION nothing()")
    answer = two.move(two.second)
    assert answer.status == 503 and answer.headers["Retry-After"] == "1"
