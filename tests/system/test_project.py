"""What the whole tree states once: its licence, its version, its address."""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import tomllib

import harness
import pytest

TREE = harness.SOURCE
sys.path.insert(0, str(TREE / "tests"))
import wheel_lint  # noqa: E402

VERSION = re.search(r'__version__ = "(.*)"', (TREE / "python/wavetune/__init__.py").read_text())[1]


def tracked():
    names = subprocess.run(["git", "-C", TREE, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    return [TREE / name for name in names.split("\0") if name]


def test_every_copy_of_the_licence_is_the_same():
    licence = (TREE / "LICENSE").read_text()
    assert "Copyright (c) 2026 the wavetune authors" in licence
    for copy in ("LICENSES/MIT.txt", "python/LICENSE"):
        assert (TREE / copy).read_text() == licence, copy
    # The packages' file has the text in the form of Debian: indented, an empty line is a dot.
    debian = re.sub(r"^ \.?", "", (TREE / "deploy/debian/copyright").read_text(), flags=re.M)
    assert licence.split("\n", 4)[4].strip() in debian


def test_packages_wheel_and_images_name_the_licence():
    assert "License: Expat" in (TREE / "deploy/debian/copyright").read_text()
    project = tomllib.loads((TREE / "python/pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("MIT", ["LICENSE"])
    for name in ("server", "agent"):
        image = (TREE / f"deploy/container/{name}.Containerfile").read_text().rpartition("\nFROM ")[2]
        assert 'org.opencontainers.image.licenses="MIT"' in image and "\nCOPY LICENSE " in image, name
    # The client's image is its user's; it has the texts of all that is linked into the client.
    assert 'cp "$source/LICENSE" "$work/LICENSES/wavetune"' in (TREE / "deploy/client/build.sh").read_text()


def test_one_place_states_the_version():
    """python/wavetune/__init__.py, because the wheel is built of its own folder; CMakeLists.txt and the wheel read it there."""
    for program in ("wavetune", "wavetune-agent", "wavetune-server"):
        printed = subprocess.run([harness.BUILD / program, "--version"], capture_output=True, text=True, check=True).stdout
        assert printed.splitlines()[0] == f"{program} {VERSION}"
    states = re.compile(rf"(?<![\d.]){re.escape(VERSION)}(?![\d.])")
    folders = {"CMakeLists.txt", "CMakePresets.json", "python", "deploy", "common", "server", "agent", "cli", "inspect", "web"}
    assert ["python/wavetune/__init__.py"] == [
        str(path.relative_to(TREE)) for path in tracked() if path.relative_to(TREE).parts[0] in folders and path.is_file()
        and states.search(path.read_text(errors="replace"))]
    assert 'dynamic = ["version"]' in (TREE / "python/pyproject.toml").read_text()
    assert "\nversion: 0.0.0 " in (TREE / "deploy/helm/wavetune/Chart.yaml").read_text()
    assert f"\n## [{VERSION}] - " in (TREE / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("url, shown", [("", "see CONTRIBUTING.md"), ("https://git.example/wavetune", "https://git.example/wavetune")])
def test_the_address_of_the_project_is_one_setting_of_the_build(tmp_path, url, shown):
    subprocess.run(["cmake", "--preset", "dev", "-B", tmp_path, f"-DWAVETUNE_PROJECT_URL={url}"], cwd=TREE, check=True,
                   capture_output=True)
    compiled = json.loads((tmp_path / "compile_commands.json").read_text())[0]["command"]
    assert f'-DWAVETUNE_REPORT_TO="{shown}"' in shlex.split(compiled)


@pytest.mark.parametrize("text, words", [
    ("try:\n    f()\nexcept Exception:\n    pass\n", "in silence"), ("try:\n    f()\nexcept:\n    x = 1\n", "in silence"),
    ("try:\n    f()\nexcept Exception as error:\n    g(error)\n", None), ("try:\n    f()\nexcept Exception:  # as f says\n    pass\n", None),
    ("try:\n    f()\nexcept BaseException:\n    g()\n    raise\n", None), ("try:\n    f()\nexcept OSError:\n    pass\n", None),
    ("import sys\nsys._getframe()\n", "frames.py"), ("from threading import Thread\n", "worker.py"), (f"x = '{'a' * 95}'\n", "101 columns")])
def test_the_lint_of_the_wheel_finds_what_it_looks_for(text, words):
    found = [what for _, what in wheel_lint.findings(pathlib.Path("_pack/any.py"), text)]
    assert [words in what for what in found] == ([True] if words else []), found
