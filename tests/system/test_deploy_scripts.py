"""deploy/test: each script says what it needs and how long it takes, and all.sh makes a table of those that ran."""

import subprocess

import harness
import pytest

FOLDER = harness.SOURCE / "deploy/test"
SOURCED = ("checks.sh", "kubernetes-checks.sh", "slurm-checks.sh")
SCRIPTS = sorted(path for path in FOLDER.glob("*.sh") if path.name not in SOURCED)


def bash(*words):
    return subprocess.run(["bash", *words], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_says_what_a_script_needs_and_how_long_it_takes(script):
    done = bash(script, "--help")
    assert done.returncode == 0 and done.stderr == "", done
    assert f"deploy/test/{script.name}" in done.stdout and "\nNeeds: " in done.stdout and "\nTakes: " in done.stdout, done.stdout


def test_all_knows_every_script():
    listed = (FOLDER / "all.sh").read_text().split("set -- deploy/test/{")[1].split("}")[0].split(",")
    assert sorted(listed) == [path.stem for path in SCRIPTS if path.name != "all.sh"]


def played(folder, name, text):
    path = folder / f"{name}.sh"
    path.write_text(f"# Takes: no time.\n{text}\n")
    return path


def test_all_prints_what_passed_failed_and_was_skipped(tmp_path):
    good = played(tmp_path, "good", "echo '3 passed, 0 failed (1 s)'")
    bad = played(tmp_path, "bad", "echo '2 passed, 1 failed (1 s)'; exit 1")
    lacks = played(tmp_path, "lacks", f". {FOLDER}/checks.sh; needs no-such-program; echo not reached")
    done = bash(FOLDER / "all.sh", good, bad, lacks)
    rows = {line.split()[0]: line.split(None, 3)[1::2] for line in done.stdout.splitlines() if not line.startswith("==")}
    assert done.returncode == 1
    assert rows["good"] == ["passed", "3 passed, 0 failed (1 s)"]
    assert rows["bad"] == ["failed", "2 passed, 1 failed (1 s) (build/deploy-test/bad.log)"]
    assert rows["lacks"] == ["skipped", "there is no program no-such-program"]
    assert bash(FOLDER / "all.sh", good, lacks).returncode == 0 and bash(FOLDER / "all.sh", lacks).returncode == 1


@pytest.mark.parametrize("what, sentence", [("disk:99999999", "99999999 GB of disk"), ("memory:99999999", "99999999 GB of memory"),
                                            ("/no/such/agent", "build it first")])
def test_what_a_machine_lacks_is_said(what, sentence):
    done = bash("-c", f". {FOLDER}/checks.sh; needs {what}; echo not reached")
    assert done.returncode == 77 and done.stdout == "" and done.stderr.startswith("skipped: ") and sentence in done.stderr
