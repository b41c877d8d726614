"""Fixtures: one PostgreSQL for a file of tests, a database, a server and agents for each test."""

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


@pytest.fixture
def start(tmp_path):
    """Starts programs and ends them after the test: start(harness.Server, database, …)."""
    programs = []

    def begin(kind, first, *arguments, **options):
        programs.append(kind(first, tmp_path, *arguments, **options))
        return programs[-1]

    yield begin
    for program in reversed(programs):
        if program.process.poll() is None:
            program.kill()


@pytest.fixture
def server(start, database):
    return start(harness.Server, database, options=harness.UNHURRIED)
