"""A server with winners for an MI300X, and what `fetch` brings of them."""

import json
import os
import pathlib
import shlex
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests/system"), str(HERE)]
import harness  # noqa: E402

MI300X = {"gpu": "AMD Instinct MI300X", "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
ENVIRONMENT = {"rocm": "6.4.1", **MI300X}


@pytest.fixture(scope="session")
def postgres():
    cluster = harness.Postgres(durable=False)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def server(postgres, tmp_path_factory):
    made = harness.Server(postgres.database(), tmp_path_factory.mktemp("server"), options=harness.UNHURRIED)
    yield made
    made.kill()


def node():
    """Where `fetch` finds a node of MI300X: gfx942, 304 compute units and SPX/NPS1, ROCm 6.4.1. It prints
    HIP_FORCE_DEV_KERNARG where that is not set."""
    kfd = harness.DATA / "kfd"
    return {"HIP_FORCE_DEV_KERNARG": "1", "WAVETUNE_KFD_TOPOLOGY": str(kfd / "mi300x_spx"), "WAVETUNE_PCI_DEVICES": str(kfd / "pci"),
            "ROCM_PATH": str(kfd / "rocm"), "WAVETUNE_AMDGPU_IDS": str(kfd / "amdgpu.ids")}


def fetch(server, to, *formats, channel="stable", identity=None, tag="default"):
    """What a container's entrypoint does; returns the variables that --print-env prints."""
    options = [part for name in formats for part in ("--format", name)]
    more = ("--identity", identity) if identity else ()
    done = harness.wavetune(server, "fetch", "--to", to, "--channel", channel, "--tag", tag, *options, *more, "--print-env",
                            environment=node())
    lines = [shlex.split(line) for line in done.stdout.splitlines()]
    assert all(line[0] == "export" and len(line) == 2 for line in lines), done.stdout
    return dict(line[1].split("=", 1) for line in lines)


def python(*arguments, variables=None, text=None, timeout=600):
    """Runs the environment's Python without what steers the packages, and returns its stdout."""
    steering = ("VLLM_", "SGLANG_", "TRITON_", "TORCH", "WAVETUNE_", "TEST_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
    done = subprocess.run([sys.executable, *map(str, arguments)], env={**own, **(variables or {})}, input=text,
                          capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


def record_identity(path, names=None):
    """What `python3 -m wavetune identity` records of this image on an MI300X."""
    python(HERE / "mi300x.py", "-m", "wavetune", "identity", "--arch", "gfx942", "--output", path,
           variables={"PYTHONPATH": str(ROOT / "python"), **(names or {})})


@pytest.fixture(scope="session")
def identity(tmp_path_factory):
    path = tmp_path_factory.mktemp("identity") / "identity.json"
    record_identity(path)
    return path


def read(reader, questions, variables):
    """The answers of the reader's own code."""
    out = python(HERE / "read_tables.py", reader, text=json.dumps(questions), variables=variables)
    return json.loads(out.splitlines()[-1])
