#!/usr/bin/env python3
"""Builds folders of captures for several targets, on this machine and without a GPU, and counts what was built, refused and
executed by Triton's interpreter, by package.

    bench/captured_archs.py FOLDER… [--arch NAME,…] [--configs N] [--launches N] [--processes N] [--output FOLDER]

FOLDER is what WAVETUNE_CAPTURE_TO named; its name is that of the package. Of each launch the first N configs are compiled (0: all
of them), of each function N launches. Prints a line for each folder and target, and each refusal. `configs` are those that
compiled, of those that were tried. `executed` are keys with the interpreter's values.
"""

import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = pathlib.Path(os.environ.get("WAVETUNE_BUILD", ROOT / "build/release")).resolve()
PRUNED = "the program does not consider it for this key"


def reduced(folder, scratch, n_configs, n_launches):
    """A copy of the captures with fewer configs and launches."""
    made = scratch / folder.name
    shutil.copytree(folder, made, ignore=shutil.ignore_patterns("launches"))
    (made / "launches").mkdir()
    seen = collections.Counter()
    for path in sorted((folder / "launches").glob("*.json")):
        launch = json.loads(path.read_text())
        seen[launch["closure"]] += 1
        if n_launches and seen[launch["closure"]] > n_launches:
            continue
        launch["configs"] = launch["configs"][:n_configs or None]
        (made / "launches" / path.name).write_text(json.dumps(launch))
    return made


def built(captures, output, arch, processes):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-m", "wavetune", "build", captures, "--output", output, "--arch", arch, "--json",
                           "-j", str(processes)], env=environment, stdout=subprocess.PIPE, text=True)
    if not (output / "report.json").exists():
        sys.exit(f"bench/captured_archs.py: the build of {captures.name} for {arch} ended with the status {done.returncode}")
    return json.loads((output / "report.json").read_text())


def counted(output):
    """Keys, keys with values, why others have none, configs that compiled and that did not."""
    n, why = collections.Counter(), collections.Counter()
    for path in sorted(output.glob("*/build/build.json")):
        for variant in json.loads(path.read_text())["variants"]:
            n["keys"] += 1
            n["executed"] += "expected" in variant
            n["good"] += len(variant["objects"])
            n["bad"] += sum(one["error"] != PRUNED for one in variant.get("failed", []))
            if "not_interpreted" in variant:
                why[f"{path.parts[-3]}: {variant['not_interpreted']}"] += 1
    return n, why


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--arch", default="gfx942,sm_90")
    parser.add_argument("--configs", type=int, default=0)
    parser.add_argument("--launches", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=pathlib.Path)
    given = parser.parse_args()
    rows, reasons = [], collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for folder in given.folders:
            captures = reduced(folder.resolve(), pathlib.Path(scratch), given.configs, given.launches)
            n_launches = len(list((captures / "launches").iterdir()))
            for arch in given.arch.split(","):
                output = (given.output or pathlib.Path(scratch)) / f"{folder.name}-{arch}"
                report = built(captures, output, arch, given.processes)
                n, why = counted(output)
                rows.append((folder.name, arch, n_launches, n_launches - len(report["refused"]), n["keys"], n["executed"],
                             f"{n['good']} of {n['good'] + n['bad']}", round(report["seconds"])))
                for one in report["refused"]:
                    reasons[f"{folder.name} {arch} refused {one['function']}: {one['why']}"] += 1
                for one, times in why.items():
                    reasons[f"{folder.name} {arch} not executed {one}"] += times
                print(rows[-1], file=sys.stderr, flush=True)
    print("| package | target | launches | built | keys | executed | configs | s |\n|---|---|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    for reason, n in sorted(reasons.items()):
        print(f"{n} × {reason}")


if __name__ == "__main__":
    main()
