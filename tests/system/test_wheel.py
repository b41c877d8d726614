"""deploy/wheel.py makes the wheels of a release. deploy/test/wheel.sh uses them, with the real
programs, in fresh Debians."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile

import harness
import pytest

PLATFORM = "py3-none-manylinux_2_31_x86_64.whl"


@pytest.fixture
def programs(tmp_path):
    """A folder as deploy/client/build.sh leaves it, whose programs print how they were called."""
    folder = tmp_path / "client"
    (folder / "LICENSES").mkdir(parents=True)
    (folder / "LICENSES/curl").write_text("curl's licence\n")
    for name in ("wavetune", "wavetune-agent"):
        (folder / name).write_text('#!/bin/sh\necho "$@" of "${0##*/}"; exit 7\n')
        (folder / name).chmod(0o755)
    return folder


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def make(to, *arguments, tree=harness.SOURCE, umask=0o022):
    return run(tree / "deploy/wheel.py", to, *arguments, umask=umask,
               env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})


def copied(tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(harness.SOURCE / "python", tree / "python",
                    ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "deploy").mkdir()
    shutil.copy(harness.SOURCE / "deploy/wheel.py", tree / "deploy")
    return tree


def test_the_same_files_make_the_same_wheels_anywhere(tmp_path, programs):
    digests = []
    for to, more in (("one", {}), ("other", {"tree": copied(tmp_path), "umask": 0o077})):
        made = make(tmp_path / to, "--version", "7.8.9", "--programs", programs, **more)
        assert made.returncode == 0, made.stderr
        digests.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                        for path in (tmp_path / to).iterdir()})
    assert digests[0] == digests[1]
    assert sorted(digests[0]) == ["wavetune-7.8.9-py3-none-any.whl", f"wavetune-7.8.9-{PLATFORM}"]


def test_the_wheel_with_programs_has_scripts_that_execute_them(tmp_path, programs):
    assert make(tmp_path, "--version", "7.8.9", "--programs", programs).returncode == 0
    wheel, site = tmp_path / f"wavetune-7.8.9-{PLATFORM}", tmp_path / "site"
    info = "wavetune-7.8.9.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"{info}/METADATA").decode()
        assert archive.read(f"{info}/licenses/curl") == b"curl's licence\n"
        assert b'"from"' in archive.read("wavetune/tables/block_fp8/kernel.json")
    assert "License-Expression: MIT AND Apache-2.0 AND curl" in metadata
    assert "License-File: LICENSE\nLicense-File: curl\n" in metadata
    installed = run(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
                    "--target", site, wheel)
    assert installed.returncode == 0, installed.stderr
    environment = {"PYTHONPATH": str(site)}
    for name in ("wavetune", "wavetune-agent"):
        done = run(site / "bin" / name, "a b", "--c", env=environment)
        assert (done.returncode, done.stdout) == (7, f"a b --c of {name}\n"), done.stderr
    stated = run(sys.executable, "-m", "wavetune", "--version", env=environment, cwd=tmp_path)
    assert stated.stdout == "wavetune 7.8.9\n", stated.stderr


def test_a_member_of_the_project_that_it_would_leave_out_is_refused(tmp_path):
    tree = copied(tmp_path)
    project = tree / "python/pyproject.toml"
    text = project.read_text().replace("[project]\n", '[project]\nkeywords = ["gpu"]\n')
    project.write_text(text)
    made = make(tmp_path / "to", tree=tree)
    assert made.returncode == 1 and "keywords" in made.stderr
    assert not list((tmp_path / "to").iterdir())
