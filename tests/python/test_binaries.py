"""Where the package finds its programs: the variable, its own folder, $PATH, in this order."""

import pytest
from wavetune import binaries
from wavetune.errors import PackError


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
