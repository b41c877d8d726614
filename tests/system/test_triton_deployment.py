"""From a file with a decorated function to a container that neither tunes nor compiles: packed, pushed, published, signed,
fetched, and found by an unmodified Triton, which has no GPU here and says by its own listeners what it did."""

import json
import os
import shlex
import subprocess
import sys

import harness
import pytest
from harness import wavetune

pytest.importorskip("triton", reason="build/python has no Triton; tests/python-env.sh makes it")
MI300X = {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X", "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
PYTHON = harness.SOURCE / "tests/python"
SIGNATURE = ("x_ptr=*fp16[n], y_ptr=*fp16[n]:write, stride=i64(1), flag=i1(1), factor=fp32(1), "
             "MODE=constexpr('DOUBLE-S')")
WINNER = 1  # of the decorator's configs
KEYS = [4096, 1000]


def bridge(*arguments):
    environment = {**os.environ, "PYTHONPATH": f"{harness.SOURCE / 'python'}:{PYTHON / 'kernels'}",
                   "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-m", "wavetune", *map(str, arguments)], env=environment, check=True, timeout=300)


@pytest.fixture
def fetched(server, postgres, tmp_path):
    """The variables that fetch prints for a deployment of the packed function."""
    kernel, build = tmp_path / "scale", tmp_path / "build"
    bridge("pack", PYTHON / "kernels/scaled.py", "--kernel", kernel, "--output", build, "--signature", SIGNATURE, "--grid",
           "lambda META: (triton.cdiv(n, META['BLOCK']), )", *(word for n in KEYS for word in ("--key", f"n={n}")))
    bridge("identity", "--arch", "gfx942", "--output", tmp_path / "identity.json", "--function",
           f"{kernel}=scaled:scale_kernel")
    wavetune(server, "kernel", "push", kernel, "--build", build)
    space = json.loads((kernel / "space.json").read_text())
    values = json.dumps(space["configs"][WINNER])
    for n in KEYS:
        job = server.request("POST", "/v1/jobs", {
            "kernel": wavetune(None, "kernel", "hash", kernel).stdout.strip(), "key": {"n": n}, "space": space,
            "environment": MI300X}).json["job"]
        verdict = json.dumps({"winner": WINNER, "verdict": "FASTER", "equivalence_set": [WINNER]})
        postgres.sql(f"""UPDATE jobs SET state = 'done', finished_at = now() WHERE id = {job};
                         INSERT INTO winners (job_id, config, config_values, verdict)
                           VALUES ({job}, {WINNER}, '{values}', '{verdict}')""", conninfo=server.database)
    wavetune(None, "key", "new", tmp_path / "publisher")
    environment = json.dumps({**MI300X, "triton": "3.6.0"})
    wavetune(server, "publish", "--environment", environment, "--channel", "stable", "--sign-key", tmp_path / "publisher")
    said = wavetune(server, "fetch", "--to", tmp_path / "cache", "--format", "triton", "--environment", environment,
                    "--identity", tmp_path / "identity.json", "--trusted-key", tmp_path / "publisher.pub", "--budget-ms",
                    "600000", "--print-env").stdout
    return dict(line.removeprefix("export ").split("=", 1) for line in shlex.split(said, posix=True) if "=" in line)


def deploy(variables, *sizes):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "AMDGCN_"))}
    done = subprocess.run([sys.executable, PYTHON / "deployment.py", "gfx942", "run", *map(str, sizes)], text=True,
                          env={**own, "PYTHONPATH": str(PYTHON / "kernels"), "PYTHONDONTWRITEBYTECODE": "1", **variables},
                          capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_fetched_cache_spares_an_unmodified_triton_all_tuning_and_compiling(fetched):
    assert deploy(fetched, *KEYS) == {
        "benchmarked": 0, "compiled": 0, "from_cache": len(KEYS),
        "best": ["BLOCK: 512, num_warps: 8, num_ctas: 1, num_stages: 1, maxnreg: None"] * len(KEYS)}
