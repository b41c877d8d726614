"""Inductor's own cache object, of the torch that is installed, reads what `fetch --format inductor` brings for an MI300X."""

import importlib.util
import json
import shutil

import pytest
from conftest import ENVIRONMENT, HERE, fetch, python
from harness import wavetune

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)


def inductor(how, folder):
    out = python(HERE / "inductor_cache.py", how, variables={"TORCHINDUCTOR_CACHE_DIR": str(folder)})
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder that torch has filled, and what it found."""
    folder = tmp_path_factory.mktemp("saved")
    return folder, inductor("save", folder)


def test_inductor_reads_in_another_container_what_it_saved_in_the_first(server, saved, tmp_path):
    folder, report = saved
    environment = {**ENVIRONMENT, "torch": report["torch"]}
    done = wavetune(server, "import", "inductor", folder, "--environment", json.dumps(environment), "--json")
    assert json.loads(done.stdout)["added"] == len(report["found"])
    wavetune(server, "publish", "--environment", json.dumps(environment), "--channel", "inductor")
    variables = fetch(server, tmp_path, "inductor", channel="inductor")
    assert list(variables) == ["TORCHINDUCTOR_CACHE_DIR"]
    original = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.best_config")}
    place = tmp_path / "current/inductor"
    assert {path.relative_to(place): path.read_bytes() for path in place.rglob("*.best_config")} == original
    assert inductor("read", variables["TORCHINDUCTOR_CACHE_DIR"])["found"] == report["found"]


def test_inductor_takes_nothing_where_there_is_nothing_or_for_other_candidates(saved, tmp_path):
    folder, report = saved
    assert inductor("read", tmp_path)["found"] == [None] * len(report["found"])
    shutil.copytree(folder, tmp_path / "other")
    for path in (tmp_path / "other").rglob("*.best_config"):
        path.write_text(path.read_text().replace("c" * 64, "d" * 64))
    assert inductor("read", tmp_path / "other")["found"] == [None] * len(report["found"])
