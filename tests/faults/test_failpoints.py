"""Failpoints (server/db/failpoints.h): what each action does to requests, and that no release has them."""

import json
import shlex
import signal
import subprocess

import harness
import pytest
from hands import ENVIRONMENT
from harness import wait_until

TABLE = {"format": "dejavu", "environment": ENVIRONMENT,
         "kernels": [{"manifest": {"name": "dejavu/x", "language": "external", "key": ["n"], "exports": {"dejavu": {}}},
                      "entries": [{"key": {"n": 4096}, "config": {"BLOCK": 1}, "ms": [0.2]}]}]}


def has_failpoints(path):
    return b"WAVETUNE_FAILPOINTS" in path.read_bytes()


needs_failpoints = pytest.mark.skipif(not has_failpoints(harness.BUILD / "wavetune-server"),
                                      reason="this build has no failpoints, as is right for a release")


@pytest.fixture
def rules(tmp_path):
    """Replaces the rules of the server."""
    def rules(*lines):
        (tmp_path / "new").write_text("".join(f"{line}\n" for line in ("seed 1", *lines)))
        (tmp_path / "new").rename(tmp_path / "rules")
    rules()
    return rules


@pytest.fixture
def server(start, database, tmp_path, rules):
    return start(harness.Server, database, environment={"WAVETUNE_FAILPOINTS": str(tmp_path / "rules")})


def imports(server):
    return server.request("POST", "/v1/imports", TABLE).status


def stored(postgres, database):
    return postgres.sql("select count(*) from imports", conninfo=database)


@needs_failpoints
def test_a_connection_lost_before_a_commit_stores_nothing_and_is_answered_503(server, rules, postgres, database):
    rules("before_commit * drop 1000000")
    assert imports(server) == 503
    assert stored(postgres, database) == "0"
    assert "failpoint: reached action=drop place=before_commit" in server.messages
    rules()
    wait_until(lambda: imports(server) in (200, 201), 30, "the server to reconnect")


@needs_failpoints
def test_a_connection_lost_after_a_commit_is_answered_503_though_all_is_stored(server, rules, postgres, database):
    rules("after_commit * drop 1000000")
    assert imports(server) == 503
    assert stored(postgres, database) == "1"


@needs_failpoints
@pytest.mark.parametrize("place", ["before_statement", "after_statement"])
def test_a_connection_lost_at_one_statement_leaves_others_alone(server, rules, place):
    rules(f"{place} jobs_list drop 1000000")
    assert server.request("GET", "/v1/jobs").status == 503
    assert server.get("/v1/environments") is not None


@needs_failpoints
def test_a_sleep_between_two_statements_holds_the_locks_of_the_first(server, rules, postgres, database):
    """It sleeps before the commit, when PostgreSQL has done all that was sent."""
    rules("before_commit * sleep 1000000 600000")
    connection = harness.http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/v1/imports", json.dumps(TABLE), {"Authorization": f"Bearer {server.token}"})
    idle = "select count(*) from pg_stat_activity where state = 'idle in transaction' and datname = current_database()"
    wait_until(lambda: postgres.sql(idle, conninfo=database) != "0", 30, "a transaction between its statements and its commit")
    connection.close()
    server.kill()


@needs_failpoints
def test_an_abort_ends_the_server(server, rules):
    rules("before_statement jobs_list abort 1000000")
    with pytest.raises((OSError, harness.http.client.HTTPException)):
        server.request("GET", "/v1/jobs")
    assert server.wait() == -signal.SIGABRT
    assert "failpoint: reached action=abort place=before_statement statement=jobs_list" in server.messages


@needs_failpoints
@pytest.mark.parametrize("line, message", [("before_lunch * drop 1", '"before_lunch" is no place or action of a failpoint'),
                                           ("before_commit * eat 1", '"eat" is no place or action of a failpoint'),
                                           ("before_commit drop", "not a rule of a failpoint")])
def test_rules_that_cannot_be_parsed_end_the_server(server, rules, line, message):
    rules(line)
    wait_until(lambda: server.process.poll() is not None, 30, "the housekeeper to read them")
    assert message in server.messages


def objects(build, sources):
    """Compiles some sources as the build folder would, and yields the objects."""
    commands = json.loads((build / "compile_commands.json").read_text())
    for command in commands:
        if any(command["file"].endswith(source) for source in sources):
            words = shlex.split(command["command"])
            target = build / words[words.index("-o") + 1]
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(words, cwd=command["directory"], check=True)
            yield target


def test_a_release_has_no_failpoints(tmp_path):
    """The objects in which they would be, compiled as a release is. The same look finds them in a debug build."""
    for preset, finds in (("release", False), ("dev", True)):
        build = tmp_path / preset
        subprocess.run(["cmake", "--preset", preset, "-B", build, "-S", harness.SOURCE], check=True, capture_output=True,
                       timeout=600)
        found = list(objects(build, ["server/db/db.c", "server/db/failpoints.c"]))
        assert len(found) == 2
        symbols = "".join(subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout for path in found)
        assert "db_commit" in symbols
        assert ("failpoint" in symbols) == finds
        assert any(has_failpoints(path) or b"before_commit" in path.read_bytes() for path in found) == finds
    if "CMAKE_BUILD_TYPE:STRING=Release" in (harness.BUILD / "CMakeCache.txt").read_text():
        assert not has_failpoints(harness.BUILD / "wavetune-server")
