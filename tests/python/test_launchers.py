"""Launchers of Triton up to 3.6 are compiled before a program asks for them, several at once, and by Triton's own code."""

import json
import shutil
import subprocess
import sys

import pytest
from conftest import TUNED
from contract_server import Contract
from starting import environment

import triton
from wavetune.runtime import code, launchers, start

VERSION = tuple(map(int, triton.__version__.split(".")[:2]))
KERNELS = 6
# Waits until $TOGETHER of it run, and while the file $HELD is there; fails as often as $BROKEN says.
COMPILER = """#!/bin/sh
echo begin >>"$LOG"
if [ -n "$TOGETHER" ]; then
  for i in $(seq 600); do
    [ "$(grep -c begin "$LOG")" -ge "$TOGETHER" ] && break
    sleep 0.05
  done
  [ "$(grep -c begin "$LOG")" -ge "$TOGETHER" ] || echo alone >>"$LOG"
fi
while [ -n "$HELD" ] && [ -e "$HELD" ]; do sleep 0.05; done
echo go >>"$LOG"
[ "$(grep -c go "$LOG")" -le "${BROKEN:-0}" ] && exit 1
exec cc "$@"
"""
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
needs_launchers = pytest.mark.skipif(VERSION >= (3, 7), reason="this Triton has no launchers to compile")


@pytest.fixture
def server():
    with Contract() as made:
        yield made


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A folder with a stand-in for the CUDA driver's library."""
    folder = tmp_path_factory.mktemp("cuda")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1", TUNED / "libcuda.c"],
                   check=True)
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    (folder / "compiler").write_text(COMPILER)
    (folder / "compiler").chmod(0o755)
    return folder


class Fleet:
    """Runs launches.py, each time in a container of its own, with one server."""

    def __init__(self, server, library, folder):
        self.server, self.library, self.folder = server, library, folder

    def start(self, name, **variables):
        log = self.folder / f"{name}.log"
        own = {"WAVETUNE_SHARED_CODE": "1", "SOURCES": str(self.library), "TRITON_LIBCUDA_PATH": str(self.library),
               "LD_LIBRARY_PATH": str(self.library), "CC": str(self.library / "compiler"), "LOG": str(log), "COMPILERS": "3",
               **variables}
        argv = [sys.executable, "-m", "wavetune", "run", str(TUNED / "launches.py")]
        return subprocess.Popen(argv, env=environment(self.folder / name, self.server, **own), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True), log

    def run(self, name, **variables):
        """What it reported, and what its compilers said."""
        running, log = self.start(name, **variables)
        out, err = running.communicate(timeout=120)
        assert (running.returncode, err) == (0, ""), out + err
        return {**json.loads(out), "compilers": log.read_text().split() if log.exists() else []}


@pytest.fixture(scope="module")
def stored(library, tmp_path_factory):
    """What a first program leaves at a server."""
    with Contract() as server:
        first = Fleet(server, library, tmp_path_factory.mktemp("first")).run("first")
        assert (first["compiled"], first["used"], begun(first)) == (KERNELS, 0, KERNELS)
        server.wait_for(lambda: len(server.files) == KERNELS and len(server.lists) == 2)  # by command line and by first folder
        return dict(server.files), dict(server.lists)


@pytest.fixture
def fleet(server, library, stored, tmp_path):
    server.files, server.lists = map(dict, stored)
    return Fleet(server, library, tmp_path)


def begun(report):
    return report["compilers"].count("begin")


@needs_launchers
def test_a_second_container_compiles_its_launchers_at_once_and_before_it_needs_them(server, fleet):
    report = fleet.run("second", HOW="ready", TOGETHER="3")
    assert (report["compiled"], report["used"], begun(report)) == (0, KERNELS, KERNELS)
    assert "alone" not in report["compilers"]
    assert len(server.asked("GET", "/v1/remote")) == KERNELS  # each group once
    assert server.asked("PUT") == [] and all(not path.endswith(".so") for _, path, _ in server.requests)


@needs_launchers
def test_a_program_waits_for_what_is_being_compiled_and_compiles_what_is_not_begun(server, fleet, tmp_path):
    (tmp_path / "held").touch()
    running, log = fleet.start("second", HOW="begun", BEGUN="3", HELD=str(tmp_path / "held"))
    server.wait_for(lambda: log.exists() and log.read_text().count("begin") >= 3)
    (tmp_path / "held").unlink()
    out, err = running.communicate(timeout=120)
    assert (running.returncode, err) == (0, "")
    # None is compiled twice, whoever compiles it.
    report = json.loads(out)
    assert report["compiled"] == 0 and 3 <= report["used"] <= KERNELS and log.read_text().count("begin") == KERNELS


@needs_launchers
def test_a_folder_that_is_chosen_late_gets_the_launchers(fleet, tmp_path):
    report = fleet.run("second", HOW="ready", LATE=str(tmp_path / "late"))
    assert (report["used"], begun(report)) == (KERNELS, KERNELS)
    assert len(list((tmp_path / "late").rglob("*launcher*.so"))) == KERNELS
    assert not list((tmp_path / "second").rglob("*.so"))
    again = fleet.run("late")
    assert (again["compiled"], begun(again)) == (0, 0)  # nothing is compiled ahead that is there


@needs_launchers
def test_a_child_of_a_fork_has_what_its_parent_compiled(fleet):
    report = fleet.run("second", HOW="fork")
    assert (report["used"], begun(report)) == (KERNELS, KERNELS)


@needs_launchers
def test_compilers_end_with_the_program_and_leave_nothing(fleet, tmp_path):
    (tmp_path / "held").touch()
    (tmp_path / "tmp").mkdir()
    running, log = fleet.start("second", HOW="begun", BEGUN="3", HELD=str(tmp_path / "held"), TMPDIR=str(tmp_path / "tmp"),
                               LAUNCHES="0")
    assert (*running.communicate(timeout=120), running.returncode) == ("", "", 0)
    assert "go" not in log.read_text() and list((tmp_path / "tmp").iterdir()) == []


@needs_launchers
def test_a_compiler_that_fails_ahead_is_tried_again_by_triton(fleet):
    report = fleet.run("second", HOW="ready", BROKEN=str(KERNELS))
    assert (report["used"], begun(report)) == (0, 2 * KERNELS)


@needs_launchers
def test_a_garbled_list_is_not_used(server, fleet):
    for place in server.lists:
        server.lists[place] = b"garbage"
    report = fleet.run("second")
    assert (report["compiled"], report["used"], begun(report)) == (0, 0, KERNELS)
    assert len(server.asked_for_lists) == 2


LAUNCHER = {"backend": "nvidia", "types": ["i32"], "warp_size": 32}


@pytest.mark.parametrize("change", [
    {"version": 2}, {"files": 5}, {"files": None}, {"launchers": {}}, {"launchers": [5]}, {"files": [["../../etc", "x.json", True]]},
    {"launchers": [{**LAUNCHER, "types": ["i32; evil()"]}]}, {"files": [["A" * 52, "x.so", False]]},
    {"files": [["A" * 52, "../x.json", False]]}, {"files": [["A" * 52, "x.json", 1]]}, {"files": [["A" * 52, "x.json"]]}])
def test_lists_that_are_not_what_a_program_writes_are_refused(change):
    found = {"files": [["A" * 52, "x.json", True]], "launchers": [LAUNCHER], "version": 1}
    needs, made = start.read_list(json.dumps(found).encode())
    assert json.loads(start.write_list(needs, made)) == found
    with pytest.raises((ValueError, code.Bad)):
        start.read_list(json.dumps({**found, **change}).encode())
    many = {**found, "files": found["files"] * 1000, "launchers": [LAUNCHER] * 1000}
    assert [len(part) for part in start.read_list(json.dumps(many).encode())] == [start.FILES_MAX, launchers.LAUNCHERS_MAX]


@pytest.mark.skipif(VERSION < (3, 7), reason="this Triton has launchers")
def test_without_launchers_nothing_is_wrapped():
    import triton.backends
    own = launchers.Launchers()
    own.patch(triton.backends)
    assert own._drivers == {}
    own.prepare([launchers.Launcher("nvidia", 32, ("i32",))])
    assert own._jobs == {}


@pytest.mark.parametrize("value", [
    None, 5, [], {}, {"backend": "nvidia", "warp_size": 32}, {"backend": "cpu", "warp_size": 32, "types": []},
    {"backend": "nvidia", "warp_size": 33, "types": []}, {"backend": "amd", "warp_size": True, "types": []},
    {"backend": "nvidia", "warp_size": 32, "types": "i32"}, {"backend": "nvidia", "warp_size": 32, "types": ["i33"]},
    {"backend": "nvidia", "warp_size": 32, "types": ["i32\n"]}, {"backend": "nvidia", "warp_size": 32, "types": [5]},
    {"backend": "nvidia", "warp_size": 32, "types": ["*"]}, {"backend": "nvidia", "warp_size": 32, "types": ["tensordesc<fp16[8]>"]},
    {"backend": "nvidia", "warp_size": 32, "types": [[[[["i32"]]]]]}, {"backend": [], "warp_size": 32, "types": []},
    {"backend": "nvidia", "warp_size": 32, "types": ["i32"] * 257}, {"backend": "nvidia", "warp_size": 32, "types": [], "src": ""}])
def test_what_is_no_launcher_is_refused(value):
    with pytest.raises((ValueError, TypeError)):
        launchers.parse(value)


def test_types_may_be_nested_and_come_by_name():
    stated = {"backend": "amd", "warp_size": 64, "types": ["*fp16", ["i32", ["*kbf16", "constexpr"]], "*fp8e4nv", "nvTmaDesc"]}
    found = launchers.parse(stated)
    assert json.loads(json.dumps(found.json())) == stated and launchers.parse(json.loads(json.dumps(found.json()))) == found
    assert launchers.of_names({"n": "i32"}, ["x", "n"], "nvidia", 32).types == ("constexpr", "i32")
    for wrong in ({"y": "i32"}, {"n": 5}, [], None):
        with pytest.raises((ValueError, TypeError)):
            launchers.of_names(wrong, ["x", "n"], "nvidia", 32)
