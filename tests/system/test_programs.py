"""Unmodified programs with the real Triton and a real server: what a release says, and code that containers of one image share.
No GPU: the benchmark is a stand-in (tests/python/tuned/program.py)."""

import json
import os
import re
import shutil
import subprocess

import harness
import pytest
from harness import make_token, wait_until, wavetune

INTERPRETER = harness.SOURCE / "build/python/bin/python"
pytestmark = pytest.mark.skipif(not list(INTERPRETER.parents[1].glob("lib/python*/site-packages/triton")),
                                reason="build/python has no Triton; tests/python-env.sh makes it")
PROGRAM = harness.SOURCE / "tests/python/tuned"
ENVIRONMENT = {"cuda": "13.0", "triton": "3.6.0", "gpu": "Test GPU", "arch": "sm_90", "compute_units": 132, "partition": ""}
IMAGE = "sha256:" + "1" * 64
UNTOUCHED = {"used": [[1024, 8]] * 2, "benchmarked": 12, "compiled": 2}
MIDDLE = {"BLOCK": 512, "num_warps": 4}


@pytest.fixture
def options():
    return ()


@pytest.fixture
def server(start, database, options):
    return start(harness.Server, database, options=(*harness.UNHURRIED, "--poll-ms", "50", *options))


@pytest.fixture
def run(server, database, tmp_path):
    """Runs the program in a fresh container, which is a folder of Triton's cache of its own; returns what it reports."""
    token, containers = make_token(database, "fleet", "reader,demand"), iter(range(100))

    def run(*sizes, container=None, **variables):
        own = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "WAVETUNE_", "TORCH"))}
        folder = tmp_path / (container or f"container{next(containers)}")
        own |= {"PYTHONPATH": f"{harness.SOURCE / 'python'}:{PROGRAM}", "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONWARNINGS": "ignore", "TRITON_CACHE_DIR": str(folder), "WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": token,
                "WAVETUNE_ENVIRONMENT": json.dumps(ENVIRONMENT), "WAVETUNE_IMAGE": IMAGE}
        done = subprocess.run([INTERPRETER, "-m", "wavetune", "run", PROGRAM / "program.py", *map(str, sizes)], env=own | variables,
                              capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return json.loads(done.stdout) | {"container": folder.name}

    return run


def essence(report):
    return {name: report[name] for name in ("used", "benchmarked", "compiled")}


def run_until_spared(run, **more):
    """Fresh containers until one benchmarks nothing: on a busy machine one may go on without an answer after half a second."""
    for _ in range(4):
        report = run(4096, **more)
        if report["benchmarked"] == 0:
            break
    return report


def metrics(server):
    """What programs counted and sent when they ended."""
    text = server.request("GET", "/metrics").body.decode()
    return {name: float(n) for name, n in re.findall(r'^wavetune_program_(\w+)_total\{tag="default"\} (\S+)$', text, re.M)}


def misses(server):
    return server.get("/v1/demand")["missed"]


def test_every_container_tunes_what_no_release_has_and_reports_it(server, run):
    for _ in range(2):
        assert essence(run(4096)) == UNTOUCHED
    wait_until(lambda: [one["misses"] for one in misses(server)] == [2, 2], 30, "the misses")
    assert all(one["tuning_ms"] > 0 for one in misses(server))
    wait_until(lambda: metrics(server)["choice_misses"] == 4, 30, "the counters")


@pytest.mark.parametrize("options", [("--remote-share", f"fleet/{IMAGE}")])
def test_containers_of_one_image_share_what_they_compiled(server, postgres, run):
    shared = {"WAVETUNE_SHARED_CODE": "1", "TRITON_CACHE_AUTOTUNING": "1"}
    assert essence(run(4096, **shared)) == UNTOUCHED
    count = "SELECT count(*) FROM remote_files WHERE is_group OR name LIKE '%.autotune.json'"
    wait_until(lambda: int(postgres.sql(count, conninfo=server.database)) >= 4, 30, "the code and what was tuned")
    second = run_until_spared(run, **shared)
    assert essence(second) == UNTOUCHED | {"benchmarked": 0, "compiled": 0}
    assert essence(run(4096, WAVETUNE_SHARED_CODE="1", WAVETUNE_IMAGE="sha256:" + "2" * 64))["compiled"] == 2, "another image"
    assert essence(run(4096, container=second["container"], WAVETUNE_URL=""))["compiled"] == 0, "plain Triton reads the folder"


@pytest.fixture
def publish(server, postgres, tmp_path):
    """Packs and tunes add_kernel for n = 4096 and publishes MIDDLE as its winner."""
    place = tmp_path / "add"
    own = os.environ | {"PYTHONPATH": str(harness.SOURCE / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([INTERPRETER, "-m", "wavetune", "pack", f"{PROGRAM / 'ops.py'}:add_kernel", "--kernel", place, "--output",
                           tmp_path / "build", "--arch", "sm_90", "--signature", "x_ptr=*fp16[n], y_ptr=*fp16[n]:write, n=i32",
                           "--grid", "lambda META: (triton.cdiv(n, META['BLOCK']), )", "--key", "n=4096"], env=own,
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    wavetune(server, "kernel", "push", place, "--build", tmp_path / "build")
    space = json.loads((place / "space.json").read_text())
    winner = next(i for i, config in enumerate(space["configs"]) if {**config, **MIDDLE} == config)
    job = server.request("POST", "/v1/jobs", {
        "kernel": wavetune(None, "kernel", "hash", place).stdout.strip(), "key": {"n": 4096}, "space": space,
        "environment": {name: value for name, value in ENVIRONMENT.items() if name != "triton"}}).json["job"]
    verdict = json.dumps({"winner": winner, "verdict": "FASTER", "equivalence_set": [winner]})
    postgres.sql(f"""UPDATE jobs SET state = 'done', finished_at = now() WHERE id = {job};
                     INSERT INTO winners (job_id, config, config_values, verdict)
                       VALUES ({job}, {winner}, '{json.dumps(space["configs"][winner])}', '{verdict}')""", conninfo=server.database)

    def publish(*options):
        made = wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--channel", "stable", "--json", *options)
        return json.loads(made.stdout)["release"]

    return publish


def test_a_release_decides_for_the_kernels_that_it_has(server, run, publish):
    publish()
    report = run(4096)
    assert essence(report) == {"used": [[512, 4], [1024, 8]], "benchmarked": 6, "compiled": 2}
    assert (report["counters"]["hits"], report["counters"]["misses"]) == (1, 1)


def test_the_signed_release_brings_the_compiled_code_too(server, run, publish, tmp_path):
    wavetune(None, "key", "new", tmp_path / "publisher")
    publish("--sign-key", tmp_path / "publisher")
    report = run(4096, WAVETUNE_TRUSTED_KEYS=str(tmp_path / "publisher.pub"))
    assert (report["used"][0], report["benchmarked"], report["compiled"]) == ([512, 4], 6, 1), "fill_kernel alone is compiled"
    wavetune(None, "key", "new", tmp_path / "other")
    stranger = run(4096, WAVETUNE_TRUSTED_KEYS=str(tmp_path / "other.pub"))
    assert essence(stranger) == UNTOUCHED, "nothing of what no trusted key signed"


def test_a_program_without_a_network_uses_what_fetch_brought(server, run, publish, tmp_path):
    publish()
    printed = wavetune(server, "fetch", "--to", tmp_path / "cache", "--format", "choices", "--environment", json.dumps(ENVIRONMENT),
                       "--print-env").stdout
    cache = dict(line.removeprefix("export ").split("=", 1) for line in printed.splitlines())["WAVETUNE_CACHE"].strip("'")
    report = run(4096, WAVETUNE_URL="", WAVETUNE_CACHE=cache)
    assert (report["used"][0], report["benchmarked"]) == ([512, 4], 6)


def test_ranks_that_name_a_release_take_that_one(server, run, publish):
    release = publish()
    assert run(4096, WAVETUNE_RELEASE=release)["used"][0] == [512, 4]
    assert essence(run(4096, WAVETUNE_RELEASE="sha256:" + "0" * 64)) == UNTOUCHED, "one that is not there"


def test_the_commands_of_the_page_on_starting_tuned_work(server, database, publish, tmp_path):
    publish()
    tuning, *blocks = re.findall(r"```sh\n(.*?)```", (harness.SOURCE / "docs/start-tuned.md").read_text(), re.S)
    assert len(blocks) == 3
    assert "wavetune tune train.py" in tuning and "run --cache wavetune-cache" in tuning  # python/test_tune.py has a GPU for these
    bin_folder, site = tmp_path / "bin", tmp_path / "site"
    bin_folder.mkdir()
    for name, command in (("python3", f'exec {INTERPRETER} "$@"'),
                          ("pip", f'exec {INTERPRETER} -m pip "$1" --quiet --disable-pip-version-check --no-deps --target {site} "$2"')):
        (bin_folder / name).write_text(f"#!/bin/sh\n{command}\n")
        (bin_folder / name).chmod(0o755)
    (tmp_path / "train.py").write_text(f"import runpy, sys\nsys.argv[1:] = ['4096']\nsys.path.insert(0, '{PROGRAM}')\n"
                                       f"runpy.run_path('{PROGRAM / 'program.py'}', run_name='__main__')\n")
    shutil.copytree(harness.SOURCE / "python", tmp_path / "python", ignore=shutil.ignore_patterns("__pycache__"))
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "WAVETUNE_", "TORCH"))}
    own |= {"PATH": f"{bin_folder}:{harness.BUILD.resolve()}:{os.environ['PATH']}", "PYTHONPATH": str(site), "PYTHONWARNINGS": "ignore",
            "WAVETUNE_ENVIRONMENT": json.dumps(ENVIRONMENT)}

    def sh(block, **more):
        for placeholder, real in (("https://tuning.example", server.url), ("/run/secrets/wavetune", str(tmp_path / "token")),
                                  ("/var/cache/wavetune", str(tmp_path / "fetched"))):
            block = block.replace(placeholder, real)
        return subprocess.run(["bash", "-ec", block], env=own | more, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    made = sh(blocks[0], WAVETUNE_URL=server.url, WAVETUNE_TOKEN=server.token)
    assert made.returncode == 0, made.stderr
    (tmp_path / "token").write_text(made.stdout.split()[-1])
    done = sh(blocks[1], TRITON_CACHE_DIR=str(tmp_path / "first"))
    if "pip" in done.stderr and done.returncode:
        pytest.skip(f"pip cannot install the wheel here: {done.stderr[-200:]}")
    assert json.loads(done.stdout)["used"][0] == [512, 4], done.stderr
    offline = sh(blocks[2] + "unset WAVETUNE_URL\npython3 -m wavetune run train.py\n", WAVETUNE_TOKEN=make_token(database, "fetches", "reader"),
                 WAVETUNE_URL=server.url, TRITON_CACHE_DIR=str(tmp_path / "second"))
    assert json.loads(offline.stdout.splitlines()[-1])["used"][0] == [512, 4], offline.stderr
