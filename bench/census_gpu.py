#!/usr/bin/env python3
"""How many of the autotuned functions of packages are captured where their modules run, and how many of these a builder without
a GPU builds for another arch.

    bench/census_gpu.py run [--wheels DIR] [--processes N] [--seconds S] [--amd] --output DIR     on a GPU: census.json, captures.tgz
    bench/census_gpu.py build --output DIR [--arch gfx942] [--keys N]                     anywhere: reads these

`run` starts bench/census_model.py N times (default: three for four cores); WAVETUNE_CAPTURE=source, and the first config of
each function, so that nothing is benchmarked. With --amd flash-linear-attention is made to believe that the GPU is one of AMD, as
what is built then for such a GPU has its texts and configs. `build` writes census-build.json: it builds the first config of at
most N keys of each function. The wheels lie in DIR where they are not installed.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("fla", "liger_kernel", "cut_cross_entropy")


def stated(paths):
    """The autotuned functions that the texts of the packages have, by package."""
    sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "python")]
    from census import autotuned
    return {package: sorted({f"{path.relative_to(root).with_suffix('').as_posix().replace('/', '.')}:{node.name}"
                             for root in paths if (root / package).is_dir() for path, node in autotuned(root, package)})
            for package in PACKAGES}


def run(arguments):
    output, started = arguments.output, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="wt-census-", dir="/tmp") as folder:
        scratch, paths = pathlib.Path(folder), []
        for wheel in sorted(arguments.wheels.glob("*.whl")) if arguments.wheels else []:
            paths.append(scratch / wheel.name.split("-")[0])
            subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, paths[-1]], check=True)
        (scratch / "taken").mkdir()
        own = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "WAVETUNE_"))}
        own |= {"PYTHONPATH": os.pathsep.join([str(ROOT / "python"), *map(str, paths), *filter(None, [own.get("PYTHONPATH")])]),
                "WAVETUNE_CAPTURE": "source", "WAVETUNE_CAPTURE_TO": str(scratch / "captures"), "WAVETUNE_ON_MISS": "first",
                "TRITON_CACHE_DIR": str(scratch / "cache"), "CCE_AUTOTUNE": "1", "WAVETUNE_LOG": "stderr",
                **({"CENSUS_AMD": "1"} if arguments.amd else {})}
        processes = []
        for i in range(arguments.processes or max(1, os.cpu_count() * 3 // 4)):
            command = [sys.executable, ROOT / "bench/captured_model.py", scratch / f"{i}.json", ROOT / "bench/census_model.py",
                       scratch / "taken", arguments.seconds - 25]
            with open(scratch / f"{i}.out", "w") as out, open(scratch / f"{i}.err", "w") as err:
                processes.append(subprocess.Popen([str(word) for word in command], env=own, stdout=out, stderr=err))
        for process in processes:
            try:
                process.wait(max(1.0, arguments.seconds - (time.monotonic() - started)))
            except subprocess.TimeoutExpired:
                process.terminate()
        for process in processes:
            process.wait(30)
        report = gathered(scratch, len(processes), paths)
        (output / "census.json").write_text(json.dumps({**report, "is_amd": arguments.amd, "seconds": time.monotonic() - started}))
        with tarfile.open(output / "captures.tgz", "w:gz") as archive:
            if (scratch / "captures").is_dir():
                archive.add(scratch / "captures", "captures")
    print_run(report)
    print(f"{len(processes)} processes, {time.monotonic() - started:.0f} s", flush=True)


def gathered(scratch, n, paths):
    cases, counters, lost = [], collections.Counter(), collections.Counter()
    launched = collections.defaultdict(lambda: [0, 0, 0])
    for i in range(n):
        for line in (scratch / f"{i}.out").read_text().splitlines():
            cases.append(json.loads(line)) if line.startswith('{"case"') else None
        for line in (scratch / f"{i}.err").read_text().splitlines():
            found = re.search(r"wavetune\[\d+\]: (.*)", line)
            if found and "captur" in found[1] and "program ends" not in found[1]:
                lost[found[1][:200]] += 1
        if not (scratch / f"{i}.json").exists():
            print(f"process {i} left no list: {(scratch / f'{i}.err').read_text()[-500:]}", flush=True)
            continue
        found = json.loads((scratch / f"{i}.json").read_text())
        counters.update(found["counters"] or {})
        for row in found["launches"]:
            own = launched[row["function"]]
            own[0], own[1], own[2] = own[0] + 1, own[1] + row["launches"], max(own[2], row["configs"])
    captured = set()
    for path in (scratch / "captures/functions").glob("*.json"):
        captured.add(json.loads(path.read_text())["name"])
    return {"cases": cases, "launched": launched, "captured": sorted(captured), "counters": counters, "lost": lost,
            "stated": stated(paths)}


def print_run(report):
    for case in report["cases"]:
        if case["why"]:
            print(f"  not run: {case['case']}: {case['why'][:150]}")
    kinds = collections.Counter(case["case"].split()[0] for case in report["cases"] if not case["why"])
    print(f"cases that ran: {dict(kinds)} of {len(report['cases'])}; {report['counters'].get('captures', 0):.0f} launches recorded, "
          f"{report['counters'].get('captures_lost', 0):.0f} lost, {report['counters'].get('capture_ms', 0):.0f} ms")
    for package in PACKAGES:
        reached = {name: own for name, own in report["launched"].items() if name.startswith(package)}
        choosing = {name for name, own in reached.items() if own[2] > 1}
        missing = sorted(choosing - set(report["captured"]))
        print(f"{package}: {len(report['stated'][package])} autotuned functions, {len(reached)} reached, {len(choosing)} of them with "
              f"several configs; {len(choosing) - len(missing)} of these captured")
        for name in missing:
            print(f"  not captured: {name}")
    for text, n in report["lost"].most_common(10):
        print(f"  {n}: {text}")


def thinned(captures, keys):
    """Leaves the first config of so many launches of each function."""
    seen = collections.Counter()
    for path in sorted((captures / "launches").glob("*.json")):
        document = json.loads(path.read_text())
        seen[document["closure"]] += not document["refused"]
        if seen[document["closure"]] > keys and not document["refused"]:
            path.unlink()
            continue
        document["configs"] = document["configs"][:1]
        path.write_text(json.dumps(document))


def build(arguments):
    found = json.loads((arguments.output / "census.json").read_text())
    with tempfile.TemporaryDirectory(prefix="wt-census-", dir="/tmp") as folder:
        with tarfile.open(arguments.output / "captures.tgz") as archive:
            archive.extractall(folder, filter="data")
        thinned(pathlib.Path(folder) / "captures", arguments.keys)
        command = [sys.executable, "-m", "wavetune", "build", f"{folder}/captures", "--output", f"{folder}/out", "--arch",
                   arguments.arch, "--json", "-j", str(arguments.processes or os.cpu_count())]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        report = json.loads(done.stdout)
    built, refused = {one["function"] for one in report["built"]}, collections.defaultdict(set)
    for one in report["refused"]:
        refused[one["function"]].add(one["why"])
    print(f"for {arguments.arch}, {'flags of AMD, ' if found.get('is_amd') else ''}the first config of at most {arguments.keys} keys of a "
          f"function, {report['seconds']:.0f} s on {os.cpu_count()} cores")
    for package in PACKAGES:
        reached = sorted(name for name in found["launched"] if name.startswith(package))
        choosing = [name for name in reached if found["launched"][name][2] > 1]
        good = [name for name in choosing if name in built]
        print(f"{package}: {len(found['stated'][package])} autotuned functions, {len(reached)} reached, {len(choosing)} of them with "
              f"several configs, {sum(name in found['captured'] for name in choosing)} captured, {len(good)} built "
              f"({100 * len(good) / max(1, len(choosing)):.1f} %)")
        for name in choosing:
            if name not in built:
                print(f"  {name}: {'; '.join(sorted(refused.get(name, {'not captured'})))[:250]}")
    (arguments.output / "census-build.json").write_text(json.dumps(report))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("run", "build"))
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--wheels", type=pathlib.Path)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--amd", action="store_true", help="run: the flags of flash-linear-attention are those of an AMD GPU")
    parser.add_argument("--arch", default="gfx942")
    parser.add_argument("--keys", type=int, default=2)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    {"run": run, "build": build}[arguments.step](arguments)


main()
