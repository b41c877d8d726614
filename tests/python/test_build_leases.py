"""A program posts what it launched to a real server, a builder leases it and pushes kernels and builds, and the server has a kernel
like any other."""

import json
import subprocess
import sys

import forks
import pytest
import triton
from conftest import command
from contract_server import ENVIRONMENT
from starting import environment
from test_capture import CAPTURING
from test_real_server import harness  # noqa: F401

FULL = {**ENVIRONMENT, "arch": "sm_90", "triton": triton.__version__}


@pytest.fixture(scope="module")
def server(harness, tmp_path_factory):
    postgres = harness.Postgres(durable=False)
    try:
        started = harness.Server(postgres.database(), tmp_path_factory.mktemp("server"), options=harness.UNHURRIED)
        try:
            started.container = harness.make_token(started.database, "container", "demand,reader")
            started.builder = harness.make_token(started.database, "builder", "builder")
            yield started
        finally:
            started.kill()
    finally:
        postgres.stop()


def launch(server, cache, *names, **variables):
    own = environment(cache, server, **{"WAVETUNE_LOG": "stderr", "WAVETUNE_TOKEN": server.container, "WAVETUNE_CAPTURE": "source",
                                        "WAVETUNE_ENVIRONMENT": json.dumps(FULL), **variables})
    own["PYTHONPATH"] += f":{CAPTURING}"
    done = subprocess.run([sys.executable, "-m", "wavetune", "run", CAPTURING / "launches.py", *names], env=own,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout.splitlines()[-1])["counters"]
    assert counted["captures_lost"] == 0 and counted["sent"] >= counted["captures"], (counted, done.stderr)
    return counted


def build(server, *arguments, token=None, status=0):
    argv, env = command("build", "--url", server.url, "--json", *arguments)
    done = forks.run(argv, env={**env, "WAVETUNE_TOKEN": token or server.builder}, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout) if status == 0 else done.stderr


def test_what_a_program_launched_becomes_kernels_of_the_server(harness, server, tmp_path):
    counted = launch(server, tmp_path / "cache", "mixed", "biased", "hooked")
    assert counted["captures"] == 3
    assert build(server, "--arch", "gfx942")["built"] == 0, "they are of another GPU"
    report = build(server, "--arch", "sm_90")
    assert {name: report[name] for name in ("built", "refused", "stale")} == {"built": 2, "refused": 1, "stale": 0}
    items = {one["name"].partition(":")[2]: one for one in json.loads(harness.wavetune(server, "captures", "--json").stdout)}
    mixed, hooked = items["mixed_kernel"], items["hooked_kernel"]
    assert (mixed["built"], mixed["waiting"], hooked["refused"]) == (2, 0, 1) and "pre_hook" in hooked["why"]
    found = server.request("GET", f"/v1/captures/{mixed['id']}", token=server.builder).json["launches"]
    kernels = {one["kernel"] for one in found}
    assert len(kernels) == 2, "one without the bias, one with it"
    for kernel in kernels:
        shown = harness.wavetune(server, "kernel", "show", kernel).stdout
        assert "mixed_kernel" in shown
    assert build(server, "--arch", "sm_90")["built"] == 0, "all is built"


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_a_server_takes_builds_with_fills_and_descriptors(server, tmp_path, arch):
    names = ("hooked_split", "hooked_sum", *(["described"] if not triton.__version__.startswith("3.3.") else []))
    launch(server, tmp_path / "cache", *names, WAVETUNE_ENVIRONMENT=json.dumps({**FULL, "arch": arch}))
    report = build(server, "--arch", arch)
    assert (report["built"], report["refused"]) == (len(names), 0)
    stated = set()
    for kernel in server.items("/v1/kernels"):
        if "package.hooked" in kernel["name"]:
            path = f"/v1/kernels/{kernel['kernel']}/builds"
            for one in server.items(path):
                for variant in server.request("GET", f"{path}/{one['build']}").json["variants"]:
                    stated.update(*variant["objects"])
    assert {"fills", "arguments"} <= stated or len(names) == 2


def states(harness, server, function):
    item, = [one for one in json.loads(harness.wavetune(server, "captures", "--json").stdout)
             if one["name"].endswith(":" + function)]
    found = server.request("GET", f"/v1/captures/{item['id']}", token=server.builder).json["launches"]
    return [(one["state"], one.get("refused", "")) for one in found]


def test_keys_and_configs_of_every_kind_are_built(harness, server, tmp_path):
    """Configs without parameters, keys with None, booleans, floats and texts, of which some launches leave members out."""
    counted = launch(server, tmp_path / "cache", "keyed", "optionless", WAVETUNE_CAPTURE_FUNCTIONS="package.kernels:optionless_*")
    assert counted["captures"] == 6
    report = build(server, "--arch", "sm_90")
    assert {name: report[name] for name in ("built", "refused", "stale")} == {"built": 6, "refused": 0, "stale": 0}
    assert states(harness, server, "keyed_kernel") == [("built", "")] * 5
    assert states(harness, server, "optionless_kernel") == [("built", "")]


def test_a_launch_that_the_server_refuses_ends_no_builder(harness, server, tmp_path):
    launch(server, tmp_path / "cache", "accented", "misaligned")
    report = build(server, "--arch", "sm_90")
    assert {name: report[name] for name in ("built", "refused", "stale")} == {"built": 1, "refused": 1, "stale": 0}
    (state, why), = states(harness, server, "accented_kernel")
    assert state == "refused" and "BLÖCK" in why and "the build has no code for the launch" in why, why


def test_what_was_built_is_not_built_again_and_a_new_key_is(server, tmp_path):
    launch(server, tmp_path / "one", "upside_down")
    assert build(server, "--arch", "sm_90")["built"] == 1
    launch(server, tmp_path / "two", "upside_down", "tables")
    assert build(server, "--arch", "sm_90")["built"] == 3


def test_a_build_that_a_server_does_not_take_and_a_server_that_is_away(server):
    err = build(server, token=server.container, status=4)
    assert "role" in err
    argv, env = command("build", "--url", "http://127.0.0.1:9", "--patience", "0")
    done = forks.run(argv, env={**env, "WAVETUNE_TOKEN": server.builder}, text=True)
    assert done.returncode == 3 and "does not answer" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("folder",), ("folder", "--url", "http://127.0.0.1:9"), ("folder", "-o", "x", "--wait")])
def test_the_command_line_says_what_it_needs(arguments):
    argv, env = command("build", *arguments)
    done = forks.run(argv, env=env, text=True)
    assert done.returncode == 2 and "--url" in done.stderr


def test_a_builder_signs_what_it_pushes_with_a_key_of_its_own(harness, server, tmp_path):
    harness.wavetune(server, "key", "new", tmp_path / "builder.key")
    launch(server, tmp_path / "cache", "small")
    assert build(server, "--arch", "sm_90", "--sign-key", str(tmp_path / "builder.key"))["built"] == 1
    shown = harness.wavetune(server, "key", "show", tmp_path / "builder.key.pub").stdout
    found = [one for one in server.request("GET", "/v1/kernels", token=server.builder).json["items"] if one["signatures"]]
    kernel, = found
    signed, = [one for one in server.request("GET", f"/v1/kernels/{kernel['kernel']}/builds", token=server.builder).json["items"]
               if one["signatures"]]
    assert {one["key"] for one in [*kernel["signatures"], *signed["signatures"]]} == {kernel["signatures"][0]["key"]}
    assert kernel["signatures"][0]["key"].removeprefix("sha256:") in shown


def test_a_key_that_is_none_is_refused_before_anything_is_leased(server, tmp_path):
    (tmp_path / "public.key").write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    for path, part in (("public.key", "no private Ed25519 key"), ("missing.key", "cannot be read")):
        assert part in build(server, "--sign-key", str(tmp_path / path), status=2)
