"""To whom releases are served: which token fetched which release, by which requests and how often."""

import hashlib
import json
import threading
import urllib.parse

import harness
import pytest
from harness import make_token, wait_until, wavetune
from test_interleavings import session  # noqa: F401
from test_releases import ROCM_64, Bench

FAST = (*harness.UNHURRIED, "--poll-ms", "10")  # fetches are stored every 600 ms
SLOW = (*harness.UNHURRIED, "--poll-ms", "60000")  # every hour
NEWER = ROCM_64 | {"rocm": "6.4.9"}


def make_bench(server, postgres):
    bench = Bench(server, postgres)
    bench.job(ROCM_64)
    bench.digest = bench.release(ROCM_64).json["release"]
    assert bench.move(bench.digest).status == 200
    bench.one, bench.two = (make_token(server.database, name, "reader") for name in ("one", "two"))
    return bench


@pytest.fixture
def bench(start, database, postgres):
    """A server with a release, that the channel stable serves, and two tokens of readers."""
    return make_bench(start(harness.Server, database, options=FAST), postgres)


@pytest.fixture
def slow(start, database, postgres):
    """The same, but what requests of the test fetch is not stored."""
    return make_bench(start(harness.Server, database, options=SLOW), postgres)


def get(server, path, token, **query):
    headers = {"If-None-Match": query.pop("etag")} if "etag" in query else None
    answer = server.request("GET", path + ("?" + urllib.parse.urlencode(query) if query else ""), token=token, headers=headers)
    assert answer.status in (200, 304), answer
    return answer


def fetches(bench, digest=None):
    """{(token, kind, channel, rule): requests}"""
    rows = bench.server.items(f"/v1/releases/{digest or bench.digest}/fetches")
    assert all(row["first_at"] <= row["last_at"] for row in rows)
    return {(row["fetched_by"], row["kind"], row["channel"], row["rule"]): row["requests"] for row in rows}


def wait_for(bench, expected):
    wait_until(lambda: fetches(bench) == expected, 60, f"{expected}, after {fetches(bench)}")


def test_what_two_tokens_fetch_from_two_servers_adds_up(bench, start, database):
    other = start(harness.Server, database, options=FAST)
    release = f"/v1/releases/{bench.digest}"
    for server in (bench.server, other):
        entry = get(server, "/v1/cache", bench.one, **ROCM_64)
        for _ in range(2):  # from memory
            assert get(server, "/v1/cache", bench.one, **ROCM_64).json["release"] == bench.digest
        assert get(server, "/v1/cache", bench.one, etag=entry.headers["ETag"], **ROCM_64).status == 304
        get(server, "/v1/cache", bench.two, match="minor", **NEWER)
        for token in (bench.two, bench.two, bench.one):
            get(server, release + "/export/json", token)
        get(server, release, bench.two)
    wait_for(bench, {("one", "entry", "stable", "exact"): 8, ("two", "entry", "stable", "minor"): 2,
                     ("one", "files", None, None): 2, ("two", "files", None, None): 4, ("two", "release", None, None): 2})
    ids = {row["name"]: row["id"] for row in bench.server.items("/v1/tokens")}
    assert {row["fetched_by_id"] for row in bench.server.items(release + "/fetches")} == {ids["one"], ids["two"]}


def test_requests_of_many_clients_at_once_are_all_counted(bench):
    twenty = lambda: [get(bench.server, "/v1/cache", bench.one, **ROCM_64) for _ in range(20)]
    threads = [threading.Thread(target=twenty) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for(bench, {("one", "entry", "stable", "exact"): 160})


def test_choices_that_programs_ask_for_are_counted(bench):
    for _ in range(2):
        get(bench.server, "/v1/choices", bench.one, **ROCM_64)
    get(bench.server, "/v1/choices", bench.one, release=bench.digest)
    wanted = {"functions": [{"function": "sha256:" + "1" * 64, "keys": [["1"]]}]}
    query = urllib.parse.urlencode(ROCM_64)
    assert bench.server.request("POST", f"/v1/choices?{query}", wanted, token=bench.two).status == 200
    wait_for(bench, {("one", "choices", "stable", "exact"): 2, ("one", "choices", None, None): 1,
                     ("two", "choices", "stable", "exact"): 1})


def test_a_release_that_somebody_looks_at_in_the_page_is_not_fetched(bench):
    """Also for answers from memory; a later request that is not of the page is counted."""
    paths = (f"/v1/releases/{bench.digest}", "/v1/cache?" + urllib.parse.urlencode(ROCM_64), f"/v1/releases/{bench.digest}/export/json")
    for _ in range(2):
        for path in paths:
            assert bench.server.request("GET", path, token=bench.one, headers={"X-Wavetune": "page"}).status == 200
    for path in paths:
        get(bench.server, path, bench.two)
    wait_for(bench, {("two", "release", None, None): 1, ("two", "entry", "stable", "exact"): 1, ("two", "files", None, None): 1})


def test_a_refused_request_is_not_counted(bench, database):
    get(bench.server, "/v1/cache", bench.one, **ROCM_64)
    agent = make_token(database, "an-agent", "agent")
    query = "/v1/cache?" + urllib.parse.urlencode(ROCM_64)
    for token, status in ((None, 401), ("wt_unknown", 401), (agent, 403)):
        assert bench.server.request("GET", query, token=token).status == status
    assert bench.server.request("GET", f"/v1/releases/{bench.digest}/export/nothing", token=bench.one).status == 404
    get(bench.server, "/v1/cache", bench.two, **ROCM_64)
    wait_for(bench, {("one", "entry", "stable", "exact"): 1, ("two", "entry", "stable", "exact"): 1})


def test_each_signed_in_user_of_a_token_has_a_row(bench, start, database, tmp_path):
    secret = "a-secret-of-the-proxy-0123456789"
    (tmp_path / "secret").write_text(secret)
    server = start(harness.Server, database, options=(*FAST, "--trusted-proxy", "127.0.0.1", "--sign-in", "user:*=one",
                                                      "--sign-in-secret", tmp_path / "secret"))
    stated = lambda user: {"X-Forwarded-User": user, "X-Wavetune-Proxy": secret}
    known = lambda: server.request("GET", "/v1/sign-in", token=None, headers=stated("alice")).json["user"]
    wait_until(known, 60, "the new server to read the tokens")
    for user in ("alice", "bob", "bob"):
        assert server.request("GET", f"/v1/releases/{bench.digest}", token=None, headers=stated(user)).status == 200
    wait_for(bench, {("one:alice", "release", None, None): 1, ("one:bob", "release", None, None): 2})


def test_what_the_database_could_not_store_is_stored_later(bench):
    bench.sql("ALTER TABLE release_fetchers RENAME TO away")
    get(bench.server, "/v1/cache", bench.one, **ROCM_64)
    wait_until(lambda: "fetches: " in bench.server.messages, 60, "a failure")
    get(bench.server, "/v1/cache", bench.one, **ROCM_64)
    bench.sql("ALTER TABLE away RENAME TO release_fetchers")
    wait_for(bench, {("one", "entry", "stable", "exact"): 2})


def test_a_server_that_ends_stores_what_it_counted(slow, start, database):
    for _ in range(3):
        get(slow.server, "/v1/cache", slow.one, **ROCM_64)
    assert fetches(slow) == {} and slow.server.stop() == 0
    slow.server = start(harness.Server, database, options=SLOW)
    assert fetches(slow) == {("one", "entry", "stable", "exact"): 3}


def test_of_a_release_the_thousand_latest_rows_are_kept(bench):
    insert(bench, 1, 1005, "now() - n * interval '1 min'")
    get(bench.server, "/v1/cache", bench.one, **ROCM_64)
    count = lambda: bench.sql("SELECT count(*), count(*) FILTER (WHERE fetched_by = 'one') FROM release_fetchers")
    wait_until(lambda: count() == "1000|1", 60, "the oldest to be removed")
    assert bench.sql("SELECT max(fetched_by_id) FROM release_fetchers WHERE fetched_by <> 'one'") == "999"
    assert len(bench.server.items(f"/v1/releases/{bench.digest}/fetches")) == 1000


def test_old_rows_are_collected_and_those_of_a_removed_release_go_with_it(bench):
    get(bench.server, "/v1/cache", bench.one, **ROCM_64)
    get(bench.server, f"/v1/releases/{bench.digest}", bench.two)
    wait_for(bench, {("one", "entry", "stable", "exact"): 1, ("two", "release", None, None): 1})
    bench.sql("UPDATE release_fetchers SET first_at = now() - interval '32 d', last_at = now() - interval '31 d'"
              " WHERE fetched_by = 'one'")
    dry = bench.server.request("POST", "/v1/gc", {"dry_run": True}).json
    assert dry["fetches"] == 1 and len(fetches(bench)) == 2
    assert bench.server.request("POST", "/v1/gc", {}).json["fetches"] == 1
    assert fetches(bench) == {("two", "release", None, None): 1}
    noted = next(row for row in bench.server.items("/v1/audit") if row["action"] == "collect")
    assert noted["detail"] == {"releases": 0, "files": 0, "demand": 0, "fetches": 1}

    bench.job(ROCM_64, m=2)
    second = bench.release(ROCM_64).json["release"]
    get(bench.server, f"/v1/releases/{second}", bench.one)
    wait_until(lambda: fetches(bench, second), 60, "the row")
    bench.sql(f"DELETE FROM releases WHERE digest = '\\x{second[7:]}'")
    assert bench.sql("SELECT count(*) FROM release_fetchers") == "1"


def test_a_collection_that_waits_for_a_transaction_which_waits_for_it_is_tried_again(start, database, postgres, session):  # noqa: F811
    name = database.split("dbname=")[1]
    postgres.sql(f"alter database {name} set deadlock_timeout = '8 s'", database="postgres")  # the time to make them wait for each other
    bench = make_bench(start(harness.Server, database, options=SLOW), postgres)
    insert(bench, 1, 1, "now() - interval '31 d'")
    content = b"nothing refers to it"
    digest = hashlib.sha256(content).hexdigest()
    assert bench.server.request("PUT", f"/v1/blobs/sha256:{digest}", content).status == 201
    bench.sql("UPDATE blobs SET created_at = now() - interval '31 d'")

    session.run("set deadlock_timeout = '10 min'")
    session.run("begin")
    session.run("select from release_fetchers for update")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(bench.server.request("POST", "/v1/gc", {})))
    thread.start()
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%release_fetchers%'"
    wait_until(lambda: bench.sql(waits) == "1", 30, "the collection, which has locked the file, to wait")
    session.run(f"select from blobs where digest = '\\x{digest}' for update")
    session.run("commit")
    thread.join()
    assert answers[0].status == 200 and answers[0].json["fetches"] == 1 and answers[0].json["files"]["n"] == 1, answers
    assert "deadlock detected" in (postgres.folder / "log").read_text()


def test_fetches_of_a_release_that_was_removed_meanwhile_are_dropped(bench):
    bench.job(ROCM_64, m=2)
    second = bench.release(ROCM_64).json["release"]
    bench.sql("ALTER TABLE release_fetchers RENAME TO away")
    get(bench.server, f"/v1/releases/{second}", bench.one)
    get(bench.server, f"/v1/releases/{bench.digest}", bench.one)
    wait_until(lambda: "fetches: " in bench.server.messages, 60, "a failure")
    bench.sql(f"DELETE FROM releases WHERE digest = '\\x{second[7:]}'")
    bench.sql("ALTER TABLE away RENAME TO release_fetchers")
    wait_for(bench, {("one", "release", None, None): 1})


def test_the_fetches_of_an_unknown_release_are_404(bench):
    for name in ("sha256:" + "0" * 64, "stable"):
        answer = bench.server.request("GET", f"/v1/releases/{name}/fetches")
        assert answer.status == 404 and name in answer.json["detail"], answer
    assert bench.server.request("GET", f"/v1/releases/{bench.digest}/fetches?since=1").status == 422


# The command line


def insert(bench, first, last, last_at):
    """A row for each token-n; `last_at` is SQL for n."""
    bench.sql(f"""
        INSERT INTO release_fetchers (release, fetched_by_id, fetched_by, kind, channel, rule, requests, first_at, last_at)
        SELECT '\\x{bench.digest[7:]}', n, 'token-' || n, 'release', '', '', n, '2026-11-01', {last_at}
        FROM generate_series({first}, {last}) n""")


def test_why_says_to_whom_the_release_is_served(bench):
    for _ in range(3):
        get(bench.server, "/v1/cache", bench.one, **ROCM_64)
    get(bench.server, f"/v1/releases/{bench.digest}/export/json", bench.two)
    wait_for(bench, {("one", "entry", "stable", "exact"): 3, ("two", "files", None, None): 1})
    asked = ("why", "softmax", "--environment", json.dumps(ROCM_64))
    shown = wavetune(bench.server, *asked).stdout
    assert "fetched  by one: entry of stable, exact, 3 times, last " in shown, shown
    assert "fetched  by two: files, by its digest, 1 time, last " in shown and " ago\n" in shown, shown
    document = json.loads(wavetune(bench.server, *asked, "--json").stdout)
    assert {row["fetched_by"]: row["requests"] for row in document["fetches"] if row["fetched_by"] in ("one", "two")} == {
        "one": 3, "two": 1}


def test_why_says_that_no_fetch_is_stored_yet(slow):
    shown = wavetune(slow.server, "why", "softmax", "--environment", json.dumps(ROCM_64)).stdout
    assert "fetched  not yet, or not stored yet\n" in shown


def test_the_latest_fetches_come_first_and_further_ones_are_in_the_list(slow):
    insert(slow, 1, 12, "'2026-11-02 00:00:00Z'::timestamptz + n * interval '1 min'")
    shown = wavetune(slow.server, "why", "softmax", "--environment", json.dumps(ROCM_64)).stdout
    assert shown.count("fetched  by ") == 10 and f"and 2 more: wavetune releases fetches {slow.digest}\n" in shown
    assert shown.index("by token-12: release, by its digest, 12 times") < shown.index("by token-3:") and "token-2:" not in shown
    table = wavetune(slow.server, "releases", "fetches", slow.digest).stdout.splitlines()
    assert table[0].split() == ["by", "what", "channel", "rule", "requests", "first", "last"] and len(table) == 13
    assert table[1].split()[:5] == ["token-12", "release", "-", "-", "12"]
    lines = wavetune(slow.server, "releases", "fetches", slow.digest, "-o", "csv").stdout.splitlines()
    assert lines[0] == "fetched_by,kind,channel,rule,requests,first_at,last_at"
    assert lines[12].startswith("token-1,release,,,1,") and lines[12].endswith("T00:01:00.000Z")


@pytest.mark.parametrize("arguments,code,sentence", [
    ((), 2, "name one release"), (("sha256:" + "0" * 64,), 4, "there is no release"),
    (("sha256:" + "0" * 64, "-o", "xml"), 2, "xml")])
def test_the_list_of_an_unknown_release_says_why(slow, arguments, code, sentence):
    done = wavetune(slow.server, "releases", "fetches", *arguments, check=False)
    assert done.returncode == code and sentence in done.stderr and done.stderr.count("\n") == 1, done
