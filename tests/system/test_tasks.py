"""A kind of task that only the tests know, `echo` (tests/echo.c): it is claimed, renewed, answered, expired and lost by
server/lease/, which has no line of it. The server runs with that kind in its table."""

import subprocess

import harness
import pytest
from harness import BUILD, wait_until


class EchoServer(harness.Server):
    PROGRAM = "tests/echo_server"


@pytest.fixture
def server(start, database, postgres):
    postgres.sql("""create table echoes (id bigint generated always as identity primary key, text text not null, answer text,
                                         epoch bigint not null default 0, leased_until timestamptz, leased_by text);
                    create table echo_notes (n bigint generated always as identity primary key, what text, task bigint);
                    insert into echoes (text) values ('one'), ('two'), ('three')""", conninfo=database)
    return start(EchoServer, database, options=("--lease-ms", "1000"))


@pytest.fixture
def sql(server, postgres):
    return lambda text: postgres.sql(text, conninfo=server.database).split("\n")


def holder(server, *arguments):
    done = subprocess.run([str(a) for a in (BUILD / "tests/echo_holder", server.database, *arguments)], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_a_task_is_held_by_one_holder_until_it_answers(server, sql):
    assert holder(server, "claim", "a", 2) == ["1 1 one", "2 1 two"]
    assert holder(server, "claim", "b", 2) == ["3 1 three"]
    assert holder(server, "claim", "b", 2) == []
    assert holder(server, "renew", 1, 1) == ["1"]
    assert holder(server, "answer", 1, 1, "one!") == ["1"]
    assert holder(server, "answer", 1, 1, "again") == ["0"]
    assert holder(server, "renew", 1, 1) == ["0"]
    assert sql("select id, answer, leased_by from echoes order by id") == ["1|one!|a", "2||a", "3||b"]
    assert sql("select what, task from echo_notes") == ["settled|1"]


def test_a_task_that_expires_is_lost_and_its_former_holder_is_refused(server, sql):
    assert holder(server, "claim", "a", 1) == ["1 1 one"]
    sql("update echoes set leased_until = now() - interval '1 s' where id = 1")
    wait_until(lambda: "loss settled|1" in sql("select what, task from echo_notes"), 60, "the loss")
    assert holder(server, "renew", 1, 1) == ["0"]
    assert holder(server, "answer", 1, 1, "late") == ["0"]
    assert holder(server, "claim", "b", 1) == ["1 2 one"]
    assert holder(server, "answer", 1, 1, "late") == ["0"]
    assert holder(server, "answer", 1, 2, "one!") == ["1"]
    assert sql("select what, task from echo_notes order by n") == ["lost|1", "loss settled|1", "settled|1"]
    assert sql("select answer, leased_by from echoes where id = 1") == ["one!|b"]
