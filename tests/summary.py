#!/usr/bin/env python3
"""Sums up a run of tests/run.sh: what was skipped and why, what failed, where the time went, and how many tests passed.

    tests/summary.py BUILD_FOLDER…     e.g. build/dev build/asan, after their tests ran

Reads BUILD_FOLDER/results: ctest.status (the exit status of ctest), ctest.xml (ctest's report: one entry for each program) and
what each program reported of its tests: unit/NAME.tap from Criterion, NAME.xml in system, faults, python and browser from pytest. An entry of
another suite (fuzz, lint) is one test. Criterion's JUnit report omits the reasons of skips and its JSON report does not escape
quotes, so its TAP report is read.

A program that failed without a failed test (it crashed, timed out, leaked or never ran) counts as one failed test, and so do a
program without a report, a test that was announced and has no result, and a ctest that did not end by itself.
Ends with the line `N passed, N failed, N skipped`; the exit status is 0 if tests passed and none failed."""

import collections
import pathlib
import re
import sys
import textwrap
import xml.etree.ElementTree as ET

SUITES = ("unit", "system", "faults", "python", "browser", "fuzz", "lint")
REPORTS = {"unit": ".tap", "system": ".xml", "faults": ".xml", "python": ".xml", "browser": ".xml"}
Test = collections.namedtuple("Test", "program name outcome why seconds")


def read_tap(path):
    """The tests of a Criterion program: `ok - suite::name  (0.01s)`, `ok - suite::name  # SKIP why`, `not ok - …` and details."""
    tests, planned = [], 0
    for line in path.read_text(errors="replace").splitlines():
        if plan := re.fullmatch(r"1\.\.(\d+)", line):
            planned = int(plan[1])
        elif result := re.fullmatch(r"(not )?ok - (\S+)\s*(.*)", line):
            is_failed, name, rest = result.groups()
            seconds = re.search(r"\((\d+\.\d+)s\)$", rest)
            outcome = "failed" if is_failed else "skipped" if rest.startswith("# SKIP") else "passed"
            why = rest.removeprefix("# SKIP").strip() if outcome != "passed" else ""
            tests.append(Test(path.stem, name, outcome, why, float(seconds[1]) if seconds else 0))
    if len(tests) < planned:
        tests.append(Test(path.stem, "", "failed", f"{planned - len(tests)} of its {planned} tests have no result", 0))
    return tests


def read_junit(path):
    """The tests of a pytest file. A test that failed and could not be cleaned up occurs twice."""
    tests = {}
    for case in ET.parse(path).iter("testcase"):
        outcome, why = "passed", ""
        for kind in ("failure", "error", "skipped"):
            if (found := case.find(kind)) is not None:
                outcome, why = "skipped" if kind == "skipped" else "failed", found.get("message", "")
                break
        test = Test(path.stem, case.get("name") or "(the whole file)", outcome, why, float(case.get("time", 0)))
        if test.name not in tests or outcome == "failed":
            tests[test.name] = test
    return list(tests.values())


def read_report(path):
    try:
        return read_tap(path) if path.suffix == ".tap" else read_junit(path)
    except (OSError, ET.ParseError) as error:
        return [Test(path.stem, "", "failed", f"its report cannot be read: {error}", 0)]


def read_entry(results, entry):
    """The tests of one entry of ctest's report."""
    suite, _, program = entry.get("name").partition("/")
    seconds = float(entry.get("time", 0))
    output = (entry.findtext("system-out") or "").strip()
    notrun = entry.find("skipped")
    if notrun is not None and notrun.get("message", "").startswith("SKIP_"):
        return [Test(program, "(the whole file)", "skipped", output.removeprefix("skipped: "), seconds)]

    report = results / f"{suite}/{program}{REPORTS[suite]}" if suite in REPORTS else None
    tests = read_report(report) if report and report.exists() else []
    if entry.get("status") != "run":
        if not any(test.outcome == "failed" for test in tests):
            last = output.splitlines()[-1] if output else "no output"
            tests.append(Test(program, "", "failed", f"failed, though none of its tests did: {last}", seconds))
    elif not report:
        tests = [Test(program, "", "passed", "", seconds)]
    elif not tests:
        tests = [Test(program, "", "failed", f"reported no tests ({report})", seconds)]
    return tests


def read_folder(folder):
    """The tests of a preset, as (suite, test), and the seconds of each suite's programs."""
    results = folder / "results"
    tests, seconds = [], collections.Counter()
    status = (results / "ctest.status").read_text().strip() if (results / "ctest.status").exists() else "unknown"
    try:
        entries = ET.parse(results / "ctest.xml").findall("testcase")
    except (OSError, ET.ParseError):  # it writes its report last: earlier reports of programs still count
        for path in sorted(p for suite, suffix in REPORTS.items() for p in results.glob(f"{suite}/*{suffix}")):
            tests += [(path.parent.name, test) for test in read_report(path)]
        tests.append(("ctest", Test("ctest", "", "failed", f"ended before its report, with exit status {status}", 0)))
        return tests, seconds
    for entry in entries:
        suite = entry.get("name").partition("/")[0]
        tests += [(suite, test) for test in read_entry(results, entry)]
        seconds[suite] += float(entry.get("time", 0))
    if status != "0" and not any(test.outcome == "failed" for _, test in tests):
        tests.append(("ctest", Test("ctest", "", "failed", f"ended with exit status {status}, though no test failed", 0)))
    return tests, seconds


def shown(preset, suite, test):
    return f"{preset} {suite}/{test.program}" + (f" {test.name}" if test.name else "")


def print_skipped(ran):
    """Grouped by reason: how many, and which tests of which programs."""
    reasons = collections.defaultdict(lambda: collections.defaultdict(list))
    for preset, suite, test in ran:
        if test.outcome == "skipped":
            reasons[" ".join(test.why.split()) or "no reason given"][f"{preset} {suite}/{test.program}"].append(test.name)
    if reasons:
        print("\nskipped:")
    for why, programs in sorted(reasons.items()):
        print(f"  {sum(map(len, programs.values()))}: {why}")
        for program, names in programs.items():
            print(textwrap.fill(f"{program}: " + ", ".join(name.split("::")[-1] for name in sorted(names)), 120,
                                initial_indent=" " * 6, subsequent_indent=" " * 10, break_long_words=False))


def print_failed(ran):
    failed = [(preset, suite, test) for preset, suite, test in ran if test.outcome == "failed"]
    if failed:
        print("\nfailed:")
    for preset, suite, test in failed:
        why = (test.why.strip().splitlines() or [""])[0]
        print(f"  {shown(preset, suite, test)}" + (f": {why}" if why else ""))


def print_minutes(minutes):
    print("\nminutes, of programs that ran side by side:")
    print(f"  {'':8}" + "".join(f"{suite:>8}" for suite in SUITES) + f"{'all':>8}")
    for preset, seconds in minutes.items():
        columns = [*(seconds[suite] for suite in SUITES), sum(seconds.values())]
        print(f"  {preset:8}" + "".join(f"{value / 60:8.1f}" for value in columns))


def print_slowest(ran, n=10):
    print(f"\nthe {n} slowest tests, seconds:")
    for preset, suite, test in sorted(ran, key=lambda r: -r[2].seconds)[:n]:
        print(f"  {test.seconds:7.1f}  {shown(preset, suite, test)}")


def main(folders):
    if not folders:
        sys.exit("usage: tests/summary.py BUILD_FOLDER…")
    ran, minutes = [], {}
    for folder in map(pathlib.Path, folders):
        tests, minutes[folder.name] = read_folder(folder)
        ran += [(folder.name, suite, test) for suite, test in tests]
    print_minutes(minutes)
    print_slowest(ran)
    print_skipped(ran)
    print_failed(ran)
    n = collections.Counter(test.outcome for _, _, test in ran)
    print(f"\n{n['passed']} passed, {n['failed']} failed, {n['skipped']} skipped")
    return 0 if n["passed"] and not n["failed"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
