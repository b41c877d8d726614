"""The real server serves a program what releases have, and what another program of its image found and compiled."""

import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import starting
import test_capture
import test_tables
import triton
from conftest import ROOT, TUNED, program, run
from fleet import KERNELS, Fleet, begun, make_library
from starting import ENVIRONMENT, tuned
from test_tables import wheel  # noqa: F401, a fixture

IMAGE = "sha256:" + "1" * 64
VERSION = tuple(map(int, triton.__version__.split(".")[:2]))


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
        options = (*harness.UNHURRIED, "--remote-share", f"container/{IMAGE}")
        made = harness.Server(database, pathlib.Path(tmp_path), options=options)
        try:
            if made.request("GET", "/v1/choices").status == 404:
                pytest.skip("this server has no choices")
            made.postgres = postgres
            made.container = harness.make_token(database, "container", "reader,demand")
            yield made
        finally:
            made.kill()
    finally:
        postgres.stop()


def test_a_second_container_gets_what_the_first_found(harness, server, tmp_path):
    variables = {"server": server.url, "WAVETUNE_TOKEN": server.container, "WAVETUNE_IMAGE": IMAGE, "WAVETUNE_SHARED_CODE": "1"}
    variables["TRITON_CACHE_AUTOTUNING"] = "1"
    (first,) = tuned(4096, cache=tmp_path / "1", **variables)
    assert (first["benchmarked"], first["compiled"]) == (12, 2) and first["counters"]["failures"] == 0
    keeps = hasattr(triton, "knobs")  # from 3.4 on Triton keeps what its autotuner measured
    count = "SELECT count(*) FROM remote_files WHERE is_group OR name LIKE '%.autotune.json'"
    harness.wait_until(lambda: int(server.postgres.sql(count, conninfo=server.database)) >= (4 if keeps else 2), 60, "the code")

    (second,) = tuned(4096, cache=tmp_path / "2", **variables)
    assert (second["used"], second["compiled"], second["counters"]["groups"]) == (first["used"], 0, 2)
    assert second["benchmarked"] == (0 if keeps else 12)
    (other,) = tuned(4096, cache=tmp_path / "3", **{**variables, "WAVETUNE_IMAGE": "sha256:" + "2" * 64})
    assert (other["benchmarked"], other["compiled"]) == (12, 2)  # they are for this image alone


@pytest.mark.skipif(shutil.which("cc") is None or VERSION >= (3, 7), reason="it needs a C compiler and launchers to compile")
def test_a_second_container_compiles_its_launchers_ahead(server, tmp_path):
    fleet = Fleet(server.url, make_library(tmp_path), tmp_path)
    variables = {"WAVETUNE_TOKEN": server.container, "WAVETUNE_IMAGE": IMAGE}
    first = fleet.run("first", **variables)
    assert (first["compiled"], first["used"], begun(first)) == (KERNELS, 0, KERNELS)
    second = fleet.run("second", HOW="ready", TOGETHER="3", **variables)
    assert (second["compiled"], second["used"], begun(second)) == (0, KERNELS, KERNELS)
    assert "alone" not in second["compilers"]


def publish(harness, server, tmp_path, key):
    """Packs the program's add_kernel, and publishes a release with a config that tuning would not find, signed."""
    if VERSION > (3, 6):
        pytest.skip("pack needs Triton 3.3 to 3.6")
    environment = {**ENVIRONMENT, "triton": triton.__version__}
    run("pack", f"{TUNED}/ops.py:add_kernel", "--kernel", tmp_path / "add", "--output", tmp_path / "build", "--key", "n=4096",
        "--arch", "sm_90", "--signature", "x_ptr=*fp16[n], y_ptr=*fp16[n]:write", "--grid",
        "lambda META: (triton.cdiv(n, META['BLOCK']), )")
    space = json.loads((tmp_path / "add/space.json").read_text())
    objects = json.loads((tmp_path / "build/build.json").read_text())["variants"][0]["objects"]
    (chosen,) = [one["config"] for one in objects if one["config"]["BLOCK"] == 512 and one["config"]["num_warps"] == 4]
    harness.wavetune(server, "kernel", "push", tmp_path / "add", "--build", tmp_path / "build")
    kernel = harness.wavetune(None, "kernel", "hash", tmp_path / "add").stdout.strip()
    job = {"kernel": kernel, "key": {"n": 4096}, "space": space, "environment": environment}
    answer = server.request("POST", "/v1/jobs", job)
    assert answer.status < 300, answer.body
    values = json.dumps(chosen)
    index = next(i for i, config in enumerate(configs_of(space)) if config.items() <= chosen.items())
    verdict = json.dumps({"winner": index, "verdict": "FASTER", "equivalence_set": [index]})
    server.postgres.sql(f"""UPDATE jobs SET state = 'done', finished_at = now() WHERE id = {answer.json["job"]};
                            INSERT INTO winners (job_id, config, config_values, verdict)
                              VALUES ({answer.json["job"]}, {index}, '{values}', '{verdict}')""", conninfo=server.database)
    made = harness.wavetune(server, "publish", "--environment", json.dumps(environment), "--json")
    release = json.loads(made.stdout)["release"]
    harness.wavetune(None, "key", "new", key)
    done = harness.wavetune(server, "promote", release, "stable", "--sign-key", key)
    assert "not signed" not in done.stderr
    return release, environment


def configs_of(space):
    if "configs" in space:
        return space["configs"]
    names = list(space["parameters"])
    values = [one["values"] if isinstance(one, dict) else one for one in space["parameters"].values()]
    return [dict(zip(names, chosen)) for chosen in itertools.product(*values)]


def test_a_release_that_a_key_signed_brings_choices_and_code(harness, server, tmp_path):
    release, environment = publish(harness, server, tmp_path, tmp_path / "publisher.key")
    variables = {"server": server.url, "WAVETUNE_TOKEN": server.container, "WAVETUNE_ENVIRONMENT": json.dumps(environment)}
    answer = server.request("GET", f"/v1/choices?release={release}", token=server.container)
    (function,) = json.loads(answer.body.splitlines()[1])["functions"].values()
    assert function["launchers"] == [{"n": "i32", "x_ptr": "*fp16", "y_ptr": "*fp16"}]
    key = {"WAVETUNE_TRUSTED_KEYS": str(tmp_path / "publisher.key.pub")}
    for i, more in enumerate(({}, key, {**key, "WAVETUNE_RELEASE": release})):
        (report,) = tuned(4096, cache=tmp_path / str(i), **variables, **more)
        assert report["used"][0] == [512, 4] and report["benchmarked"] == 6  # the other kernel has no release
        assert (report["compiled"], report["counters"]["groups"]) == ((1, 1) if more else (2, 0))
    harness.wavetune(None, "key", "new", tmp_path / "other.key")
    (report,) = tuned(4096, cache=tmp_path / "other", WAVETUNE_TRUSTED_KEYS=str(tmp_path / "other.key.pub"), **variables)
    assert (report["benchmarked"], report["compiled"]) == (12, 2)


def test_what_a_program_says_of_a_miss_can_be_pasted_and_its_misses_are_counted(harness, server, tmp_path):
    own = starting.environment(tmp_path / "cache", server.url, WAVETUNE_TOKEN=server.container, WAVETUNE_LOG="stderr",
                               WAVETUNE_CHANNEL="nosuch", WAVETUNE_ON_MISS="first")
    done = subprocess.run([sys.executable, "-m", "wavetune", "run", TUNED / "program.py", "4096"], env=own, capture_output=True,
                          text=True, timeout=600)
    said = re.findall(r"miss: (\w+) \[.*\]: (.*); (wavetune why .*)", done.stderr)
    assert [name for name, _, _ in said] == ["add_kernel", "fill_kernel"], done.stderr
    for _, why, pasted in said:
        assert why.startswith('channel "nosuch" has no entry with tag "default"')
        asked = subprocess.run(["bash", "-c", pasted], capture_output=True, text=True, timeout=600, env={
            **os.environ, "PATH": f"{harness.BUILD}:{os.environ['PATH']}", "WAVETUNE_URL": server.url,
            "WAVETUNE_TOKEN": server.container})
        assert asked.returncode == 1 and why in asked.stderr, asked
    missed = harness.wait_until(lambda: server.get("/v1/demand")["missed"], 60, "the report of the misses")
    assert sorted((one["name"], one["misses"], one["why"]) for one in missed) == sorted((name, 1, why) for name, why, _ in said)


def test_a_row_that_a_table_lacks_is_ranked_as_demand_for_its_kernel(harness, server, wheel, tmp_path):  # noqa: F811
    source = b'extern "C" __global__ void f(float *c, long long m, long long n, long long k) {}'
    digest = "sha256:" + hashlib.sha256(source).hexdigest()
    assert server.request("PUT", f"/v1/blobs/{digest}", source).status in (200, 201)
    scalars = [{"name": name.lower(), "dtype": "int64", "value": name} for name in ("M", "N", "K")]
    answer = server.request("POST", "/v1/kernels", {
        "name": "block_fp8/vllm_fnuz", "language": "hip", "entry": "f", "sources": [{"path": "f.hip", "digest": digest}],
        "launch": {"grid": ["1"], "block": ["64"]}, "key": ["M", "N", "K"], "arguments": [{"name": "c", "dtype": "float32", "shape": ["M", "N"], "access": "write"}, *scalars]})
    assert answer.status == 201, answer
    world = test_tables.World(wheel, tmp_path / "world")
    for n in (7168, 1280):
        world.ask(f"""import {test_tables.FP8} as m
for M in (16, 17, 4096):
    m.w8a8_triton_block_scaled_mm(tensor(M, 2048), tensor({n}, 2048), None, None, [128, 128])""", server.url,
                  WAVETUNE_TOKEN=server.container)
    wanted = server.get("/v1/demand")["items"]
    assert sorted((one["name"], one["key"]["N"], one["key"]["M"], one["misses"]) for one in wanted) == [
        ("block_fp8/vllm_fnuz", n, m, 1) for n in (1280, 7168) for m in (16, 4096)]
    assert {json.dumps(one["environment"], sort_keys=True) for one in wanted} == {json.dumps(test_tables.HERE, sort_keys=True)}


def test_what_a_program_records_is_kept(server, tmp_path):
    if server.request("GET", "/v1/captures").status == 404:
        pytest.skip("this server keeps no captures")
    report = test_capture.program("mixed", "biased", "tables", "odd_arguments", "plain", cache=tmp_path, server=server.url,
                                  WAVETUNE_TOKEN=server.container, WAVETUNE_CAPTURE_FUNCTIONS="*:plain_kernel")
    counters = report["counters"]
    assert (counters["captures"], counters["captures_lost"], counters["dropped"], counters["failures"]) == (16, 0, 0, 0)
    answer = server.request("GET", "/v1/captures").body
    for name in ("mixed_kernel", "calling_kernel", "plain_kernel"):
        assert f"package.kernels:{name}".encode() in answer
