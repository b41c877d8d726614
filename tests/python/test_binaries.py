"""Where the package finds its programs: the variable, its own folder, $PATH, in this order."""

import shutil
import subprocess
import sys

import pytest
from conftest import ROOT
from wavetune import _binaries as binaries
from wavetune._errors import PackError


def program(folder):
    folder.mkdir()
    (folder / "wavetune-agent").write_text("#!/bin/sh\n")
    (folder / "wavetune-agent").chmod(0o755)
    return folder


def test_the_order_of_places(tmp_path, monkeypatch):
    for i, (folder, set_place) in enumerate((
            ("path", lambda place: monkeypatch.setenv("PATH", str(place))),
            ("package", lambda place: monkeypatch.setattr(binaries, "FOLDER", place)),
            ("build", lambda place: monkeypatch.setenv("WAVETUNE_BUILD", str(place))))):
        if not i:
            monkeypatch.delenv("WAVETUNE_BUILD", raising=False)
        set_place(program(tmp_path / folder))
        assert binaries.path_of("wavetune-agent") == str(tmp_path / folder / "wavetune-agent")


def test_a_program_that_is_nowhere_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("WAVETUNE_BUILD", raising=False)
    with pytest.raises(PackError, match="wavetune-agent is neither in .* install the wheel"):
        binaries.path_of("wavetune-agent")


@pytest.mark.parametrize("name, entry", [("wavetune", "client"), ("wavetune-agent", "agent")])
def test_a_script_executes_the_program_of_its_package(name, entry, tmp_path):
    folder = tmp_path / "wavetune"
    shutil.copytree(ROOT / "python/wavetune", folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = f"import sys; from wavetune import entry; sys.argv[1:] = ['a b', '--c']; entry.{entry}()"
    script, elsewhere = [sys.executable, "-c", text], str(program(tmp_path / "path"))
    environment = {"PYTHONPATH": str(tmp_path), "PATH": elsewhere, "WAVETUNE_BUILD": elsewhere}
    without = subprocess.run(script, env=environment, capture_output=True, text=True)
    assert without.returncode == 1 and without.stderr.count("\n") == 1
    assert f"{folder}/bin/{name} cannot be executed" in without.stderr

    (folder / "bin").mkdir()
    (folder / "bin" / name).write_text('#!/bin/sh\necho "$0" "$@"; exit 7\n')
    (folder / "bin" / name).chmod(0o755)
    done = subprocess.run(script, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (7, f"{folder}/bin/{name} a b --c\n")
