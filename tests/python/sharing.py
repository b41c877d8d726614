"""What the tests of Inductor and Helion share: a real server with an open namespace, and programs with a real torch."""

import json
import os
import pathlib
import subprocess
import time

import pytest
from conftest import ROOT
from contract_server import TOKEN
from starting import STEERING
from test_real_server import harness  # noqa: F401

from wavetune._runtime import counters, found
from wavetune._runtime.program import Program
from wavetune._runtime.settings import Settings

IMAGE = "sha256:" + "1" * 64
ENVIRONMENT = {"gpu": "Test GPU", "partition": "", "cuda": "13.2"}
FOUND = pathlib.Path(__file__).resolve().parent / "found"


@pytest.fixture(scope="module")
def server(harness, tmp_path_factory):  # noqa: F811
    """`container` is a token that shares, `closed` one that does not."""
    postgres = harness.Postgres(durable=False)
    try:
        database = postgres.database()
        made = harness.Server(database, tmp_path_factory.mktemp("server"),
                              options=(*harness.UNHURRIED, "--remote-share", f"container/{IMAGE}"))
        try:
            made.container, made.closed = (harness.make_token(database, name, "reader,demand") for name in ("container", "closed"))
            yield made
        finally:
            made.kill()
    finally:
        postgres.stop()


@pytest.fixture
def share(monkeypatch):
    """Makes this process share, as a program does; returns what it shares with."""
    monkeypatch.setenv("WAVETUNE_ENVIRONMENT", json.dumps(ENVIRONMENT))
    counters.reset()

    def made(url, token=TOKEN, **variables):
        own = Settings({"WAVETUNE_URL": url, "WAVETUNE_IMAGE": IMAGE, **variables}, token)
        monkeypatch.setattr(found, "_found", found.Found(Program(own)))
        return found._found
    yield made


def wait_until_sent(server, path, token):  # noqa: F811
    """Waits until the server has what the sender sends."""
    until = time.monotonic() + 60
    while server.request("GET", path, token=token).status != 200:
        assert time.monotonic() < until
        time.sleep(0.02)


def with_torch(version, program, *steps, url=None, token=TOKEN, way=("-m", "wavetune", "run"), **variables):
    """Runs a program of found/ with that torch; returns what its steps printed."""
    python = ROOT / f"build/torch-{version}/bin/python"
    if not python.exists():
        pytest.skip(f"tests/python/torch-env.sh {version} makes {python.parents[1]}")
    own = {name: value for name, value in os.environ.items() if not name.startswith((*STEERING, "HELION_"))}
    own.update(PYTHONPATH=f"{ROOT / 'python'}", PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore")
    if url is not None:
        own.update(WAVETUNE_URL=url, WAVETUNE_TOKEN=token, WAVETUNE_IMAGE=IMAGE, WAVETUNE_ENVIRONMENT=json.dumps(ENVIRONMENT))
    argv = [python, *way, FOUND / f"{program}.py", *map(json.dumps, steps)]
    done = subprocess.run(list(map(str, argv)), env={**own, **variables}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
