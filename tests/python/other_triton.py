"""Runs tests of packs and of programs that start tuned with another Triton than that of build/python."""
import os
import pathlib
import subprocess

import pytest
from conftest import ROOT

TESTS = ("closure", "restore", "ways_in", "code", "launchers", "pack", "deployment", "record", "decorator", "capture", "hooks",
         "descriptors", "contents", "loop", "interpret", "unharmed", "frames")


def run(version, name):
    python = pathlib.Path(ROOT / f"build/triton-{version}/bin/python")
    if not python.exists():
        reason = python.parents[1].with_name(f"triton-{version}.reason")
        pytest.skip(reason.read_text().strip() if reason.exists() else f"tests/python-env.sh makes {python.parents[1]}")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "PYTEST_"))}
    own.update(PYTHONPATH=str(ROOT / "python"), PYTHONDONTWRITEBYTECODE="1", UNHARMED_COUNT="60")
    argv = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / f"tests/python/test_{name}.py"]
    done = subprocess.run(argv, env=own, capture_output=True, text=True, timeout=600)
    if done.returncode == 5:  # all of it is skipped
        pytest.skip(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    print(done.stdout.splitlines()[-1])
