"""Fixtures: one PostgreSQL per file of tests, and a database, a server and agents per test."""

import contextlib
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness  # noqa: E402


@pytest.fixture(scope="session")
def postgres():
    cluster = harness.Postgres(durable=False)
    yield cluster
    cluster.stop()


@pytest.fixture
def database(postgres):
    return postgres.database()


@pytest.fixture
def empty_database(postgres):
    return postgres.database(migrated=False)


def end(program):
    """Kills it. Under the thread sanitizer it ends in order first, as threads can race at the end too."""
    if program.process.poll() is None and "TSAN_OPTIONS" in os.environ:
        program.stop()
    program.kill()
    assert "WARNING: ThreadSanitizer" not in program.messages, program.messages[-8000:]


@pytest.fixture
def start(tmp_path):
    """Starts programs and ends them after the test: start(harness.Server, database, …)."""
    with contextlib.ExitStack() as ends:

        def begin(kind, first, *arguments, **options):
            program = kind(first, tmp_path, *arguments, **options)
            ends.callback(end, program)
            return program

        yield begin


@pytest.fixture
def server(start, database):
    return start(harness.Server, database, options=harness.UNHURRIED)
