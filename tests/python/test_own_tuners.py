"""Tuners of a package's own, and pruning that makes configs, are recorded by what they ask and restored without a benchmark."""

import collections
import json
import types

import pytest
from conftest import TUNED
from contract_server import ENVIRONMENT, Contract, document
from starting import python

from wavetune._runtime import restore

PROGRAM = TUNED.parent / "owned/program.py"
NAMES = ("own_kernel", "own_pruned_kernel", "pruned_kernel")
LAST = [1024, 8]  # the stub's last config wins


@pytest.fixture
def server():
    with Contract() as made:
        yield made


def program(*sizes, cache, server=None, **variables):
    (report,) = python("-m", "wavetune", "run", PROGRAM, *sizes, cache=cache, server=server, **variables)
    return report


def recorded(folder):
    """Of each function, its launches' documents in the order of their keys."""
    names = {}
    for path in (folder / "functions").iterdir():
        found = json.loads(path.read_text())
        names[found["closure"]] = found["name"].rpartition(":")[2]
    launches = {}
    for path in sorted((folder / "launches").iterdir()):
        found = json.loads(path.read_text())
        launches.setdefault(names[found["closure"]], []).append(found)
    return {name: sorted(own, key=lambda one: one["key_values"]) for name, own in launches.items()}


@pytest.fixture(scope="module")
def launches(tmp_path_factory):
    place = tmp_path_factory.mktemp("recorded")
    report = program(1000, 100, cache=place / "cache", WAVETUNE_CAPTURE="source", WAVETUNE_CAPTURE_TO=str(place / "to"),
                     WAVETUNE_ENVIRONMENT=json.dumps(ENVIRONMENT))
    return report, recorded(place / "to")


def test_without_choices_they_tune_as_they_do_alone(tmp_path, launches):
    alone = python(PROGRAM, 1000, 100, cache=tmp_path)[0]
    report = launches[0]
    assert {**report, "counters": None} == alone and report["benchmarked"] == 36
    assert report["counters"]["failures"] == report["counters"]["captures_lost"] == 0


def test_the_key_is_the_tuners_own(launches):
    own = launches[1]["own_kernel"]
    assert [one["key_values"] for one in own] == [[128], [1024]] and all(one["key_names"] == ["n"] for one in own)
    assert [one["key"] for one in own] == [["128", "'torch.float16'"], ["1024", "'torch.float16'"]]
    assert [argument["value"] for one in own for argument in one["arguments"] if argument["name"] == "n"] == [100, 1000]


@pytest.mark.parametrize("name", ["own_pruned_kernel", "pruned_kernel"])
def test_the_configs_of_a_key_are_those_that_pruning_makes(launches, name):
    small, large = launches[1][name]
    assert {one["config"]["BLOCK"] for one in small["configs"]} == {128}
    assert {one["config"]["BLOCK"] for one in large["configs"]} == {256, 512, 1024}


def test_choices_are_restored_and_the_packages_store_sees_none(tmp_path, server, launches):
    chosen = []
    for name in NAMES:
        for one in launches[1][name]:
            config = one["configs"][1]["config"]
            chosen.append((one["closure"], name, one["key"], {m: config[m] for m in ("BLOCK", "num_warps")}))
    server.document = document(chosen)
    report = program(1000, 1000, 100, 900, cache=tmp_path, server=server)
    assert report["benchmarked"] == 6, "900 is another key of Triton's own tuner, and only of that"
    assert set(report["stored"].values()) == {0} and set(report["timed"].values()) == {0}
    assert report["used"]["own_kernel"] == [[256, 8]] * 4, "900 has the key of 1000"
    assert report["used"]["own_pruned_kernel"] == [[256, 8], [256, 8], [128, 8], [256, 8]]
    assert report["used"]["pruned_kernel"][:3] == [[256, 8], [256, 8], [128, 8]]
    assert (report["counters"]["hits"], report["counters"]["failures"]) == (6, 0)


def test_a_choice_that_pruning_does_not_make_is_not_taken(tmp_path, server, launches):
    chosen = [(one["closure"], name, one["key"], {"BLOCK": 64, "num_warps": 4})
              for name in NAMES for one in launches[1][name][:1]]
    server.document = document(chosen)
    report = program(100, cache=tmp_path, server=server)
    assert report["counters"]["hits"] == 0 and report["counters"]["unfit"] == 3 and report["benchmarked"] == 18
    assert report["used"]["own_kernel"] == [LAST]


def test_the_first_config_by_policy_is_not_stored_either(tmp_path, server):
    report = program(1000, cache=tmp_path, server=server, WAVETUNE_ON_MISS="first")
    assert report["benchmarked"] == 0 and set(report["stored"].values()) == {0}
    assert list(report["used"].values()) == [[[256, 4]]] * 3


def test_a_store_above_which_choices_are_has_what_it_had():
    rows = collections.UserDict({("1",): "one", ("2",): "two"})
    cache = restore.RestoringStore(types.SimpleNamespace(), rows)
    assert (len(cache), list(cache), bool(cache)) == (2, [("1",), ("2",)], True)
    assert (list(cache.keys()), list(cache.values()), dict(cache.items())) == (list(rows), ["one", "two"], dict(rows))
    assert restore.RestoringStore(types.SimpleNamespace(), object()), "an object is true"
