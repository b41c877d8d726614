"""The real triton-dejavu reads what `fetch --format dejavu` brings for an MI300X, and starts tuned by the wheel."""

import importlib.util
import itertools
import json
import shutil

import harness
import pytest
from conftest import ENVIRONMENT, HERE, ROOT, fetch, python, record_identity
from hands import Hand
from harness import wait_until, wavetune

if importlib.util.find_spec("triton_dejavu") is None:
    pytest.skip("triton-dejavu is not installed", allow_module_level=True)
import triton  # noqa: E402

LAST = [1024, 8]  # what the program's own tuning finds: the last config wins
TAG = {"_TRITON_DEJAVU_DETERMINED_ROCM_VERSION": "6.4.1"}
SIGNATURES = {"add_kernel": "x_ptr=*fp16[n], y_ptr=*fp16[n]:write", "fill_kernel": "y_ptr=*fp16[n]:write"}


def lld():
    """Triton 3.3 runs ROCm's linker when it makes a cache key."""
    found = next((path for path in map(shutil.which, ("ld.lld", "ld.lld-19", "ld.lld-18", "ld.lld-17")) if path), None)
    if found is None:
        pytest.skip("there is no ld.lld; install lld")
    return found


def variables(tmp_path, **more):
    (tmp_path / "storage").mkdir(exist_ok=True)
    return {"PYTHONPATH": str(ROOT / "python"), "TRITON_CACHE_DIR": str(tmp_path / "triton"), "TRITON_HIP_LLD_PATH": lld(),
            "TRITON_DEJAVU_STORAGE": str(tmp_path / "storage"), **TAG, **more}


def launched(*sizes, how=("-m", "wavetune", "run"), **own):
    """What the program did; `how`: how it is started."""
    out = python(*how, HERE / "dejavu_program.py", *sizes, variables=own)
    return json.loads(out.splitlines()[-1])


def stored(storage):
    """What triton-dejavu has in its folder: {function: {key: config}}."""
    found = {}
    for path in storage.rglob("cache.json"):
        document = json.loads(path.read_text())
        assert set(document["cache"]) == set(document["timings"])
        found[document["signature"].split(":")[1][:-1]] = document["cache"]
    return found


@pytest.fixture(scope="module")
def winners(server, tmp_path_factory):
    """Both functions packed as they are, tuned for two sizes with an agent that the tests play, and published; returns the
    image's identity and {(function, n): [BLOCK, num_warps]}."""
    folder, found = tmp_path_factory.mktemp("packed"), {}
    own, best = variables(folder), itertools.cycle((2, 1, 4, 3))
    hand = Hand(server, "node", environment=ENVIRONMENT)
    environment = {**ENVIRONMENT, "triton": triton.__version__}
    for name, signature in SIGNATURES.items():
        kernel, build = folder / name, folder / f"{name}-build"
        python("-m", "wavetune", "pack", f"{HERE}/dejavu_ops.py:{name}", "--kernel", kernel, "--output", build, "--key", "n=4096",
               "--key", "n=1000", "--arch", "gfx942", "--signature", signature, "--grid",
               "lambda META: (triton.cdiv(n, META['BLOCK']), )", variables=own)
        wavetune(server, "kernel", "push", kernel, "--build", build)
        hash_ = wavetune(None, "kernel", "hash", kernel).stdout.strip()
        for n in (4096, 1000):
            answer = server.request("POST", "/v1/jobs", {"kernel": hash_, "key": {"n": n}, "environment": environment,
                                                         "space": json.loads((kernel / "space.json").read_text())})
            assert answer.status == 201, answer.body
            hand.work(ratios={next(best): 0.3})
            wait_until(lambda: server.get(f"/v1/jobs/{answer.json['job']}")["state"] == "done", 30, "the job to be done")
            config = server.get(f"/v1/jobs/{answer.json['job']}")["winner"]["config_values"]
            found[name, n] = [config["BLOCK"], config["num_warps"]]
    wavetune(server, "publish", "--environment", json.dumps(environment), "--channel", "stable")
    identity = folder / "identity.json"
    functions = [part for name in SIGNATURES for part in ("--function", f"{folder / name}=dejavu_ops:{name}")]
    python(HERE / "mi300x.py", "-m", "wavetune", "identity", "--arch", "gfx942", "--output", identity, *functions,
           variables={**own, "PYTHONPATH": f"{ROOT / 'python'}:{HERE}"})
    assert LAST not in found.values()
    return identity, found


def expected(found, *sizes):
    return [found[name, n] for n in sizes for name in SIGNATURES]


def test_dejavu_restores_the_winners_of_a_release(server, winners, tmp_path):
    identity, found = winners
    printed = fetch(server, tmp_path / "to", "dejavu", identity=identity)
    assert set(printed) == {"TRITON_DEJAVU_STORAGE", "TRITON_DEJAVU_TAG"}
    report = launched(4096, 1000, how=(), **variables(tmp_path, **printed))
    assert report == {"used": expected(found, 4096, 1000), "benchmarked": 0, "counters": None}


def test_dejavu_adds_to_the_fetched_tables_what_it_tunes(server, winners, tmp_path):
    identity, found = winners
    printed = fetch(server, tmp_path / "to", "dejavu", identity=identity)
    report = launched(4096, 64, how=(), **variables(tmp_path, **printed))
    assert report["used"] == [*expected(found, 4096), LAST, LAST] and report["benchmarked"] == 12
    assert {name: len(cache) for name, cache in stored(tmp_path / "to/current/dejavu").items()} == {
        "add_kernel": 3, "fill_kernel": 3}
    again = launched(4096, 64, how=(), **variables(tmp_path, **printed))
    assert again["used"] == report["used"] and again["benchmarked"] == 0


def test_the_wheel_restores_choices_for_dejavus_autotuners(server, winners, tmp_path):
    identity, found = winners
    printed = fetch(server, tmp_path / "to", "choices", identity=identity)
    report = launched(4096, 64, **variables(tmp_path, **printed))
    assert report["used"] == [*expected(found, 4096), LAST, LAST] and report["benchmarked"] == 12
    counters = report["counters"]
    assert (counters["hits"], counters["misses"], counters["failures"]) == (2, 2, 0)
    # What was restored was not measured: dejavu stores what it measured, and finds that again by itself.
    cache = stored(tmp_path / "storage")
    assert {name: len(entries) for name, entries in cache.items()} == {"add_kernel": 1, "fill_kernel": 1}
    again = launched(64, 4096, **variables(tmp_path, **printed))
    assert again["used"] == [LAST, LAST, *expected(found, 4096)] and again["benchmarked"] == 0
    assert stored(tmp_path / "storage") == cache


def test_without_variables_the_wheel_leaves_dejavu_alone(tmp_path):
    report = launched(4096, **variables(tmp_path))
    assert report == {"used": [LAST, LAST], "benchmarked": 12, "counters": None}
