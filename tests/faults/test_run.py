"""run.py for a minute: FAULTS_SECONDS and FAULTS_SEED choose another time and a seed. Its output has the seed."""

import os
import pathlib
import subprocess
import sys


def test_nothing_is_lost_or_counted_twice_whatever_fails():
    seed = ["--seed", os.environ["FAULTS_SEED"]] if "FAULTS_SEED" in os.environ else []
    run = [sys.executable, pathlib.Path(__file__).parent / "run.py", "--seconds", os.environ.get("FAULTS_SECONDS", "60"), *seed]
    done = subprocess.run([str(word) for word in run], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout.splitlines()[0]
