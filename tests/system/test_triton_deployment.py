"""From a file with a decorated function to a container that neither tunes nor compiles: the kernel is packed, pushed, published,
signed and fetched, and an unmodified Triton finds it. Triton has no GPU here, and reports its work by its own listeners.
WAVETUNE_TRITONS: the versions to do it with; the first and the last one that wavetune knows, and that of build/python."""

import json
import os
import re
import shlex
import shutil
import subprocess

import harness
import pytest
from harness import make_token, wavetune

MAIN = "3.6.0"
VERSIONS = os.environ.get("WAVETUNE_TRITONS", f"3.3.1 {MAIN} 3.9.0").split()
MI300X = {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X", "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
PYTHON = harness.SOURCE / "tests/python"
SIGNATURE = ("x_ptr=*fp16[n], y_ptr=*fp16[n]:write, stride=i64(1), flag=i1(1), factor=fp32(1), "
             "MODE=constexpr('DOUBLE-S')")
WINNER = 1  # of the decorator's configs
KEYS = [4096, 1000]


def find_interpreter(version):
    """Its Python; skips the test where it has none."""
    folder = harness.SOURCE / "build" / ("python" if version == MAIN else f"triton-{version}")
    if not list(folder.glob("lib/python*/site-packages/triton")):
        pytest.skip(f"{folder} has no Triton; tests/python-env.sh makes it")
    return folder / "bin/python"


def own_environment(version):
    """Triton before 3.5 links by a program that its wheels lack and that images have from ROCm."""
    linker = {"TRITON_HIP_LLD_PATH": shutil.which("ld.lld-19") or ""} if version < "3.5" else {}
    return {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "AMDGCN_"))} | linker


def bridge(version, *arguments, **more):
    environment = {**own_environment(version), "PYTHONPATH": f"{harness.SOURCE / 'python'}:{PYTHON / 'kernels'}",
                   "PYTHONDONTWRITEBYTECODE": "1", **more}
    done = subprocess.run([find_interpreter(version), "-m", "wavetune", *map(str, arguments)], env=environment, text=True, timeout=900,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture(scope="module")
def packed(version, tmp_path_factory):
    """A folder with the function's kernel folder `scale`, its `build` and the `identity.json` of an image that has it."""
    place = tmp_path_factory.mktemp("packed")
    bridge(version, "pack", PYTHON / "kernels/scaled.py", "--kernel", place / "scale", "--output", place / "build", "--signature",
           SIGNATURE, "--grid", "lambda META: (triton.cdiv(n, META['BLOCK']), )",
           *(word for n in KEYS for word in ("--key", f"n={n}")))
    bridge(version, "identity", "--arch", "gfx942", "--output", place / "identity.json", "--function",
           f"{place / 'scale'}=scaled:scale_kernel")
    return place


@pytest.fixture
def fetched(server, postgres, version, packed, tmp_path):
    """The variables that fetch prints for a deployment of the packed function."""
    wavetune(server, "kernel", "push", packed / "scale", "--build", packed / "build")
    space = json.loads((packed / "scale/space.json").read_text())
    values = json.dumps(space["configs"][WINNER])
    for n in KEYS:
        job = server.request("POST", "/v1/jobs", {
            "kernel": wavetune(None, "kernel", "hash", packed / "scale").stdout.strip(), "key": {"n": n}, "space": space,
            "environment": MI300X}).json["job"]
        verdict = json.dumps({"winner": WINNER, "verdict": "FASTER", "equivalence_set": [WINNER]})
        postgres.sql(f"""UPDATE jobs SET state = 'done', finished_at = now() WHERE id = {job};
                         INSERT INTO winners (job_id, config, config_values, verdict)
                           VALUES ({job}, {WINNER}, '{values}', '{verdict}')""", conninfo=server.database)
    wavetune(None, "key", "new", tmp_path / "publisher")
    environment = json.dumps({**MI300X, "triton": version})
    wavetune(server, "publish", "--environment", environment, "--channel", "stable", "--sign-key", tmp_path / "publisher")
    keeps = version >= "3.4"  # results of autotuning; otherwise the wheel restores them
    output = wavetune(server, "fetch", "--to", tmp_path / "cache", "--format", "triton",
                      *([] if keeps else ["--format", "choices"]), "--environment", environment, "--identity",
                      packed / "identity.json", "--trusted-key", tmp_path / "publisher.pub", "--budget-ms", "600000",
                      "--print-env").stdout
    return dict(line.removeprefix("export ").split("=", 1) for line in shlex.split(output) if "=" in line)


def deploy(version, variables, *sizes, watched=()):
    done = subprocess.run([find_interpreter(version), *watched, PYTHON / "deployment.py", "gfx942", "run", *map(str, sizes)],
                          env={**own_environment(version), "PYTHONPATH": f"{PYTHON / 'unhurried'}:{harness.SOURCE / 'python'}:{PYTHON / 'kernels'}",
                               "PYTHONDONTWRITEBYTECODE": "1", **variables}, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_fetched_cache_spares_an_unmodified_triton_all_tuning_and_compiling(version, fetched):
    seen = deploy(version, fetched, *KEYS, watched=() if version >= "3.4" else ("-m", "wavetune", "run"))
    assert (seen["benchmarked"], seen["compiled"], seen["from_cache"]) == (0, 0, len(KEYS))
    assert all(best.startswith("BLOCK: 512, num_warps: 8, num_ctas: 1, num_stages: 1, ") for best in seen["best"])


@pytest.mark.parametrize("version", [MAIN], indirect=True)
def test_the_identity_of_an_image_and_the_demand_of_its_program_reach_the_server(server, packed, tmp_path):
    wavetune(server, "kernel", "push", packed / "scale")
    there = {"WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": make_token(server.database, "image", "submitter")}
    digest = json.loads(bridge(MAIN, "identity", "--arch", "gfx942", "--json", "--put", "--function",
                               "scale_kernel/triton=scaled:scale_kernel", **there))["digest"]
    identity = server.get(f"/v1/images/{digest}")
    (tmp_path / "identity.json").write_text(json.dumps(identity))
    seen = deploy(MAIN, {"WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": make_token(server.database, "fleet", "demand"),
                   "WAVETUNE_IDENTITY": str(tmp_path / "identity.json"), "TRITON_CACHE_DIR": str(tmp_path / "cache"),
                   "WAVETUNE_ENVIRONMENT": json.dumps(MI300X)}, 64, 64, watched=("-m", "wavetune.demand"))
    assert seen["benchmarked"] == 2
    (wanted,) = server.items("/v1/demand")
    assert (wanted["name"], wanted["key"], wanted["environment"], wanted["hits"], wanted["misses"], wanted["kernel_ms"]) == (
        "scale_kernel/triton", {"n": 64}, MI300X, 1, 1, 1.0)


def typed(text, replaced, server):
    """Runs a command that a refusal prints, with its placeholders replaced, as a person types it."""
    for placeholder, place in replaced.items():
        text = text.replace(placeholder, str(place))
    text = text.replace("python3 ", f"{find_interpreter(MAIN)} ", 1).replace("wavetune kernel", f"{harness.BUILD / 'wavetune'} kernel", 1)
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=900, env={
        **os.environ, "PYTHONPATH": str(harness.SOURCE / "python"), "PYTHONDONTWRITEBYTECODE": "1", "WAVETUNE_URL": server.url,
        "WAVETUNE_TOKEN": server.token})
    assert done.returncode == 0, (text, done.stderr)


@pytest.mark.parametrize("causal, value", [("true", True), ("True", True)])
def test_the_commands_that_a_refusal_prints_make_the_build_that_was_missing(server, tmp_path, causal, value):
    (tmp_path / "masked.py").write_text("""import triton, triton.language as tl
@triton.autotune(configs=[triton.Config({"B": 64})], key=["n"])
@triton.jit
def masked(x_ptr, n, CAUSAL: tl.constexpr, MODE: tl.constexpr, B: tl.constexpr):
    offsets = tl.arange(0, B)
    if CAUSAL:
        n = n // 2
    tl.store(x_ptr + offsets, 1.0, mask=offsets < n)
""")
    folder, build = tmp_path / "masked", tmp_path / "build"
    bridge(MAIN, "pack", tmp_path / "masked.py", "--kernel", folder, "--output", tmp_path / "first", "--signature",
           "x_ptr=*fp32[n]:write", "--grid", "1", "--key", "n=64,CAUSAL=false,MODE=plain")
    wavetune(server, "kernel", "push", folder)

    def submit():
        key = f"n=64,CAUSAL={causal},MODE=\"it's $HOME\""
        return wavetune(server, "submit", folder, "--key", key, "--environment", json.dumps({**MI300X, "triton": "3.6.0"}),
                        check=False)

    refused = submit()
    assert refused.returncode == 4 and "no build" in refused.stderr
    wavetune(server, "kernel", "push", folder, "--build", tmp_path / "first")
    refused = submit()
    assert refused.returncode == 4 and "no variant of the build for gfx942" in refused.stderr
    pack, push = re.findall(r"`((?:python3|wavetune) .*?)`(?: and push|$|\s)", refused.stderr, re.MULTILINE)
    typed(pack, {" DIR ": f" {folder} ", " FOLDER": f" {build}"}, server)
    typed(push, {" DIR ": f" {folder} ", " FOLDER": f" {build}"}, server)
    done = submit()
    assert done.returncode == 0, done.stderr
    (job,) = server.items("/v1/jobs")
    assert job["key"] == {"n": 64, "CAUSAL": value, "MODE": "it's $HOME"} and job["key"]["CAUSAL"] is value
