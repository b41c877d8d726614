"""The real server serves a program what another found: choices that containers agree on, and the code that they compiled."""

import os
import pathlib
import sys
import time

import pytest
from conftest import ROOT, program
from starting import ENVIRONMENT, tuned

IMAGE = "sha256:" + "1" * 64


@pytest.fixture(scope="module")
def harness():
    program("wavetune-server")  # skips where it is not built
    sys.path.insert(0, str(ROOT / "tests/system"))
    os.environ.setdefault("WAVETUNE_BUILD", str(ROOT / "build/dev"))
    try:
        import harness
        return harness
    except ImportError as error:
        pytest.skip(f"tests/system/harness.py needs {error.name}")
    finally:
        sys.path.pop(0)


@pytest.fixture
def server(harness, tmp_path):
    """A server with its database; `container` is a token that programs have."""
    postgres = harness.Postgres(durable=False)
    try:
        database = postgres.database()
        made = harness.Server(database, pathlib.Path(tmp_path), options=(*harness.UNHURRIED, "--agreed", "1/1", "--remote-share",
                                                                        f"container/{IMAGE}"))
        try:
            if made.request("GET", "/v1/choices").status == 404:
                pytest.skip("this server has no choices")
            made.container = harness.make_token(database, "container", "reader,demand")
            yield made
        finally:
            made.kill()
    finally:
        postgres.stop()


def test_a_second_container_gets_what_the_first_found(server, tmp_path):
    variables = {"server": server.url, "WAVETUNE_TOKEN": server.container, "WAVETUNE_IMAGE": IMAGE, "WAVETUNE_SHARED_CODE": "1"}
    (first,) = tuned(4096, cache=tmp_path / "1", **variables)
    assert (first["benchmarked"], first["compiled"]) == (12, 2) and first["counters"]["failures"] == 0
    query = "&".join(f"{name}={str(value).replace(' ', '%20')}" for name, value in ENVIRONMENT.items())
    until = time.monotonic() + 60
    while b"add_kernel" not in server.request("GET", f"/v1/choices?{query}", token=server.container).body:
        assert time.monotonic() < until
        time.sleep(0.1)

    (second,) = tuned(4096, cache=tmp_path / "2", **variables)
    assert (second["used"], second["benchmarked"], second["compiled"]) == (first["used"], 0, 0)
    assert second["counters"]["hits"] == 2 and second["counters"]["groups"] == 2 and second["counters"]["requests"] == 3
    (other,) = tuned(4096, cache=tmp_path / "3", **{**variables, "WAVETUNE_IMAGE": "sha256:" + "2" * 64})
    assert (other["benchmarked"], other["compiled"]) == (0, 2)  # code is for this image alone
