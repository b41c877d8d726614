"""Every command of the README, unchanged, and what pages say of files that exist."""

import os
import re
import subprocess
import sys

import harness
import pytest

README = (harness.SOURCE / "README.md").read_text()
PROGRAM = "examples/add_one.py"
INTERPRETER = harness.SOURCE / "build/python/bin/python3"


def commands_of(heading):
    section = re.search(rf"^## {heading}\n(.*?)(?=^## )", README, re.S | re.M)[1]
    return [line for block in re.findall(r"```sh\n(.*?)```", section, re.S) for line in block.splitlines() if line.strip()]


FIVE_MINUTES, TWO = commands_of("Five minutes"), commands_of("Two commands")


def run(command, environment, cwd=harness.SOURCE):
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=900, env=environment, cwd=cwd,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-3000:])
    return done


def test_quickstart_prints_the_table_publishes_and_fetches(tmp_path):
    assert TWO[0] == "deploy/quickstart.sh"
    output = run(TWO[0], {**os.environ, "QUICKSTART_FOLDER": str(tmp_path)}).stdout
    for expected in ("winner (*)", "equivalence set (=)", "against the default", "GB/s", "channel  stable", "fresh ", "unchanged "):
        assert expected in output, (expected, output[-3000:])


def test_the_second_command_is_the_one_that_ci_runs(tmp_path):
    assert TWO[1] == "tests/run.sh"
    assert "tests/run.sh" in (harness.SOURCE / ".ci/run").read_text()
    run(f"bash -n {TWO[1]} && test -x {TWO[1]}", dict(os.environ))


def test_the_program_of_the_five_minutes_is_one_that_knows_nothing_of_wavetune():
    program = (harness.SOURCE / PROGRAM).read_text()
    shown, = re.findall(r"```python\n(.*?)```", README, re.S)
    assert shown in program and "@triton.autotune" in shown and "wavetune" not in program
    assert "**without a GPU**" in README and "made up" in README, "it says what is simulated"


@pytest.mark.skipif(not list(INTERPRETER.parents[1].glob("lib/python*/site-packages/triton")),
                    reason="build/python has no Triton: tests/python-env.sh makes it where pip can reach a package index")
def test_the_five_minutes_tune_a_program_which_then_starts_tuned(tmp_path):
    """In a folder of the test's own, in which its results are left."""
    assert [command.split(" --cache ")[0].split()[:5] for command in FIVE_MINUTES] == [
        ["examples/simulated.sh", "python3", "-m", "wavetune", "tune"], ["examples/simulated.sh", "python3", "-m", "wavetune", "run"]]
    (tmp_path / "examples").symlink_to(harness.SOURCE / "examples")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "WAVETUNE_"))}
    environment |= {"HOME": str(tmp_path), "PATH": f"{INTERPRETER.parent}:{os.environ['PATH']}", "WAVETUNE_LOG": "stderr"}
    tuned, started = [run(command, environment, cwd=tmp_path) for command in FIVE_MINUTES]
    assert "2 keys tuned" in tuned.stderr and "BLOCK=1024, num_warps=4" in tuned.stderr, tuned.stderr
    assert tuned.stdout.count("BLOCK: 64, num_warps: 1,") == 2, "the first config of each"
    assert started.stdout.count("BLOCK: 1024, num_warps: 4,") == 2
    assert "hits 2, misses 0" in started.stderr, started.stderr


@pytest.mark.parametrize("absent, status, says", [("python3", 2, "has no Triton"), ("cmake", 1, "the agent cannot be built")])
def test_the_simulated_gpu_says_what_it_lacks(tmp_path, absent, status, says):
    for name in ("python3", "cmake"):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {int(name == absent)}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run([harness.SOURCE / "examples/simulated.sh", "true"], capture_output=True, text=True,
                          env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == status and "simulated.sh: " in done.stderr and says in done.stderr, done


def test_the_tests_that_the_page_on_security_names_exist():
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", (harness.SOURCE / "docs/security.md").read_text()))
    there = {name for suite in ("system", "browser", "python") for path in (harness.SOURCE / "tests" / suite).glob("test_*.py")
             for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)}
    assert len(named) > 20 and named <= there, named - there


def test_the_tests_and_faults_that_the_page_on_reliability_names_exist():
    """A fragment behind `::` is of a name or an id, one behind `:` begins the name of a unit test."""
    page = (harness.SOURCE / "docs/reliability.md").read_text().split("promise | kept by", 1)[1]
    page += (harness.SOURCE / "tests/bugs.md").read_text()
    absent = []
    for file, fragments in re.findall(r"`((?:python/|faults/)?test_\w+\.py)(?:::([\w,]+))?`", page):
        path = harness.SOURCE / "tests" / (file if "/" in file else f"system/{file}")
        text = path.read_text() if path.exists() else ""
        absent += [f"{file}::{word}" for word in fragments.split(",") if not re.search(rf'def test_\w*{word}|"[^"\n]*{word}', text)]
        absent += [] if text else [file]
    for file, beginning in re.findall(r"`(\w+):(\w+)`", page):
        path = harness.SOURCE / f"tests/unit/test_{file}.c"
        if not path.exists() or not re.search(rf"^\w*Test\(\w+,\s*{beginning}|^\w+_TEST\({beginning}", path.read_text(), re.M):
            absent.append(f"{file}:{beginning}")
    faults = set(re.findall(r'Fault\("(\w+)"', (harness.SOURCE / "tests/faults/faults.py").read_text()))
    named = {fault for cell in re.findall(r"`([a-z]+_[a-z]+(?:,[a-z_]+)*)`", page) for fault in cell.split(",")}
    assert len(page) > 1000 and absent == [] and len(named) > 10 and named <= faults, (absent, named - faults)


def test_links_between_pages_lead_to_a_file_and_a_heading():
    pages = [page for page in harness.SOURCE.rglob("*.md") if not page.is_relative_to(harness.SOURCE / "build")]
    headings = {page: {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in re.findall(r"^#+ (.*)$", page.read_text(), re.M)}
                for page in pages}
    astray, links = [], 0
    for page in pages:
        for link in re.findall(r"\]\((?!http)([^)\s]+)\)", page.read_text()):
            file, _, heading = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            links += 1
            if not target.exists() or (heading and heading not in headings.get(target, ())):
                astray.append(f"{page.name}: {link}")
    assert links > 100 and astray == []


def test_each_block_of_the_page_on_production_names_its_machines_and_is_bash(monkeypatch):
    """deploy/test/walk.sh runs them, for which it needs machines."""
    folder = str(harness.SOURCE / "deploy/test/walk")
    monkeypatch.syspath_prepend(folder)
    for name in ("checks", "machines", "walk"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import walk

    parts = walk.parts_of(walk.PAGE.read_text())
    blocks = [script for _, blocks in parts for _, _, script in blocks]
    assert len(blocks) > 20 and {*walk.AFTER, *walk.BEFORE} <= walk.moments_of(parts)
    for script in blocks:
        checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert checked.returncode == 0 and not checked.stderr, (script, checked.stderr)
    for broken in ("```sh\nls\n```", "```sh\n# on nowhere\nls\n```"):
        with pytest.raises(AssertionError):
            walk.parts_of("# Part\n" + broken)
