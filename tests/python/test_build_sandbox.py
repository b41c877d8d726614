"""What captured text does while it compiles costs its own launch, with the reason stored; without a sandbox nothing is built
unless a person asked for it."""

import json
import os
import pathlib

import pytest
import triton
from conftest import run as wavetune
from contract_server import ENVIRONMENT
from test_capture import program

WAYS = ("none", "socket", "read", "write", "memory", "time", "signal", "environment")  # as launches.py counts them
SAID = {"socket": "Operation not permitted", "read": "Permission denied: '/etc/shadow'", "write": "Permission denied",
        "memory": "Cannot allocate memory", "time": "more than 15 s", "signal": "signal 9", "environment": "WAVETUNE_TOKEN"}
needs_constexpr_functions = pytest.mark.skipif(not hasattr(triton, "constexpr_function"), reason="Triton 3.3 has no constexpr_function")


def recorded(place, *names, **variables):
    program(*names, cache=place / "cache", to=place / "captures", HARMLESS="1",
            WAVETUNE_ENVIRONMENT=json.dumps({**ENVIRONMENT, "arch": "sm_90", "triton": triton.__version__}), **variables)
    return place / "captures"


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("small"), "small")


@needs_constexpr_functions
def test_hostile_text_costs_its_own_launch(tmp_path):
    captures = recorded(tmp_path, "hostile")
    out, _ = wavetune("build", captures, "--output", tmp_path / "built", "--json", "--timeout", 15, WAVETUNE_TOKEN="secret")
    report = json.loads(out)
    why = {WAYS[one["key"]["n"]]: one["why"] for one in report["refused"]}
    assert [one["keys"] for one in report["built"]] == [[{"n": 0}]], why
    assert set(why) == set(SAID)
    assert [why[way] for way, part in SAID.items() if part not in why[way]] == []
    assert not pathlib.Path("/tmp/wavetune-hostile").exists()


@needs_constexpr_functions
def test_text_that_starts_processes_without_end_costs_its_own_function(tmp_path):
    captures = recorded(tmp_path, "forking", "small")
    out, _ = wavetune("build", captures, "--output", tmp_path / "built", "--json", "--timeout", 8)
    report = json.loads(out)
    assert [one["function"].partition(":")[2] for one in report["built"]] == ["mixed_kernel"]
    assert [one["function"].partition(":")[2] for one in report["refused"] if one["why"]] == ["hostile_kernel"]


def test_without_the_program_that_confines_nothing_is_built(captures, tmp_path):
    path = tmp_path / "bin"
    path.mkdir()
    _, err = wavetune("build", captures, "--output", tmp_path / "built", status=1, PATH=str(path))
    assert "wavetune-agent is neither in " in err and "--no-sandbox" in err and not (tmp_path / "built").exists()


def test_a_machine_that_cannot_confine_builds_nothing(captures, tmp_path):
    (tmp_path / "wavetune-agent").write_text("#!/bin/sh\necho this Linux confines programs by: none; exit 75\n")
    (tmp_path / "wavetune-agent").chmod(0o755)
    _, err = wavetune("build", captures, "--output", tmp_path / "built", status=1, PATH=f"{tmp_path}:/usr/bin:/bin")
    assert "confines no program here" in err and "none" in err and "--no-sandbox" in err and not (tmp_path / "built").exists()


def test_no_sandbox_is_chosen_and_said(captures, tmp_path):
    out, err = wavetune("build", captures, "--output", tmp_path / "built", "--json", "--no-sandbox", PATH="/usr/bin:/bin")
    assert "--no-sandbox" in err and "all rights of this user" in err and json.loads(out)["built"]


def _answering(tmp_path, script):
    """A wavetune-agent that leaves what a process that was taken over could leave."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "wavetune-agent").write_text(f"#!/bin/bash\nwhile [ $# -gt 0 ] && [ \"$1\" != -- ]; do shift; done\n[ \"$3\" = -S ] && exit 0\n{script}\n")
    (place / "wavetune-agent").chmod(0o755)
    return f"{place}:{os.environ['PATH']}"


@pytest.mark.parametrize("script, part", [
    ("ln -s /etc/hostname answer.json", "is no build"),
    ("mkfifo answer.json", "answer.json is no file"),
    ("echo '[]' > answer.json", "is no build"),
    ('echo \'{"built": [], "refused": [{"launch": "other", "key": {}, "why": ""}]}\' > answer.json', "was not given"),
    ('echo \'{"built": [{"folder": "..", "launches": []}], "refused": []}\' > answer.json', "is no build"),
    ("echo taken over; exit 3", "status 3; it said last: taken over"),
    ("exit 124", "more than"),
])
def test_what_the_confined_process_leaves_is_not_believed(captures, tmp_path, script, part):
    out, _ = wavetune("build", captures, "--output", tmp_path / "built", "--json", status=1, PATH=_answering(tmp_path, script))
    report = json.loads(out)
    assert not report["built"] and all(part in one["why"] for one in report["refused"]), report
    assert [path.name for path in (tmp_path / "built").iterdir()] == ["report.json"]


def test_a_sandbox_that_breaks_later_ends_the_builder(captures, tmp_path):
    _, err = wavetune("build", captures, "--output", tmp_path / "built", status=1, PATH=_answering(tmp_path, "echo gone; exit 75"))
    assert "the sandbox does not work: gone" in err
