"""A program that runs with wavetune, in whatever mode, ends as it does without: a fuzz over tuners, configs, hooks, and what fails.

UNHARMED_SEED chooses other programs, UNHARMED_COUNT how many each mode runs (bounded here for CI).
"""
import functools
import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT
from contract_server import Contract, canonical, document
from starting import environment

PROGRAM = ROOT / "tests/python/harm/program.py"
SEED, COUNT = os.environ.get("UNHARMED_SEED", "1"), int(os.environ.get("UNHARMED_COUNT", 200))
FIRST = {"WAVETUNE_ON_MISS": "first"}
IDENTITY = {"functions": [{"kernel": name, "name": name, "function": {"module": "ops", "name": name}, "key_names": ["n"], "tuning_key": ["n"]}
                          for name in ("doubled", "added", "evenly")]}


def run(*argv, cache, server=None, **variables):
    argv = [sys.executable, *argv, SEED, str(COUNT)]
    done = subprocess.run(argv, env=environment(cache, server, **variables), capture_output=True, text=True, timeout=800)
    assert done.returncode == 0 and done.stderr == "", (done.stdout[-300:], done.stderr[-3000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What each scenario ends with where there is no wavetune."""
    *found, counters = run(PROGRAM, "run", cache=tmp_path_factory.mktemp("alone"))
    assert counters == {} and len(found) == COUNT
    assert {end[0] for one in found for end in one["ends"]} >= {"well", "OutOfResources", "KeyboardInterrupt", "ValueError", "TypeError"}
    return found


@functools.lru_cache(None)
def chosen():
    return run(PROGRAM, "choices", cache="/nonexistent")[0]


def judge(alone, found, may_choose):
    """A launch that ended well must end well with the same values. One that did not may end well too, where a config was chosen that
    works and the others were not tried; it must end with the program's own exception otherwise."""
    for number, (own, other) in enumerate(zip(alone, found, strict=True)):
        if not may_choose:
            assert other == own, f"UNHARMED_SEED={SEED}, scenario {number}"
            continue
        assert (other["stores"], other["warmed"]) == (own["stores"], own["warmed"]), f"UNHARMED_SEED={SEED}, scenario {number}"
        right = {tuple(end[1]) for end in own["ends"] + other["ends"] if end[0] == "well"}
        assert len(right) < 2, f"UNHARMED_SEED={SEED}, scenario {number}: {right}"
        for i, (end, with_ours) in enumerate(zip(own["ends"], other["ends"], strict=True)):
            assert with_ours[0] == "well" or with_ours == end, f"UNHARMED_SEED={SEED}, scenario {number}, launch {i}"


MODES = {
    "away": (False, {"WAVETUNE_URL": "http://127.0.0.1:1"}), "nothing": (False, {}),
    "shapes": (False, {"WAVETUNE_CAPTURE": "shapes"}), "off": (False, {"WAVETUNE_CAPTURE": "off"}),
    "source": (False, {"WAVETUNE_CAPTURE": "source"}), "raw": (False, {"WAVETUNE_CAPTURE": "raw", "WAVETUNE_CAPTURE_FUNCTIONS": "*:*"}),
    "first": (True, FIRST), "recorded": (True, {**FIRST, "WAVETUNE_CAPTURE": "source", "WAVETUNE_CAPTURE_FUNCTIONS": "*:*"}),
    "file": (True, {"FILE": "1"}), "nearest": (True, {"FILE": "1", "WAVETUNE_ON_MISS": "nearest"}), "both": (True, {"FILE": "1", **FIRST}),
    "server": (True, {"SERVER": "1"}), "shared": (True, {"SERVER": "1", "WAVETUNE_SHARED_CODE": "1", **FIRST}),
    "demand": (False, {"SERVER": "", "DEMAND": "1"}), "demanded": (True, {"SERVER": "1", "DEMAND": "1", **FIRST})}


@pytest.mark.parametrize("mode", MODES)
def test_a_program_ends_as_it_does_without_wavetune(mode, alone, tmp_path):
    may_choose, variables = MODES[mode][0], dict(MODES[mode][1])
    is_filled = variables.pop("FILE", None)
    asks, has_choices = "SERVER" in variables, variables.pop("SERVER", None)
    if variables.pop("DEMAND", None):
        (tmp_path / "identity.json").write_bytes(canonical(IDENTITY))
        variables["WAVETUNE_IDENTITY"] = str(tmp_path / "identity.json")
    if "WAVETUNE_URL" not in variables and not asks:
        variables.update(WAVETUNE_CACHE=str(tmp_path), WAVETUNE_CAPTURE_TO=str(tmp_path / "captures"))
    if is_filled:
        (tmp_path / "choices.json").write_bytes(canonical(document(chosen())))
    with Contract() as server:
        if has_choices:
            server.document = document(chosen())
        *found, counters = run("-m", "wavetune", "run", PROGRAM, "run", cache=tmp_path / "cache", server=server if asks else None,
                               **variables)
    judge(alone, found, may_choose)
    assert counters["misses"] > 0
    assert counters["failures"] == 0 or mode in ("away", "raw", "recorded"), "no server; arguments that have no text"
    assert not (is_filled or has_choices) or counters["hits"] > 0
