#!/usr/bin/env python3
"""Runs the blocks of docs/production.md in the page's order, and after each part of the page checks what it says to have reached.

    walk.py WORK        started by ../walk.sh, which says what is needed; the last line counts the checks

A block of commands begins with a line `# on MACHINE[, MACHINE…]`; each of these machines runs it, in a new shell of root that
ends at the first error. `build` is this machine, in this tree. The walk ends at the first block that fails.
"""

import pathlib
import re
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(SOURCE / "deploy/test/walk"))

from machines import Machines, NAMES  # noqa: E402

PAGE = SOURCE / "docs/production.md"
counts = {True: 0, False: 0}


def check(what, is_good, shown=""):
    counts[bool(is_good)] += 1
    print(f"{'ok' if is_good else 'NOT OK'} {what}", flush=True)
    if not is_good and shown:
        print("\n".join("   | " + line for line in shown.splitlines()[-25:]), flush=True)


def parts_of(page):
    """[(heading, [(line, machines, script), …]), …] of the page, for headings that have blocks."""
    parts, lines, i = [], page.splitlines(), 0
    while i < len(lines):
        if lines[i].startswith("#"):
            parts.append((lines[i].lstrip("# "), []))
        elif lines[i].startswith("```"):
            begin, language = i + 1, lines[i][3:]
            i = next(n for n in range(begin, len(lines)) if lines[n] == "```")
            where = re.fullmatch(r"# on ([a-z0-9, ]+)", lines[begin]) if language == "sh" else None
            assert where or language == "text", f"line {begin + 1}: a block names no machine"
            if where:
                machines = where[1].split(", ")
                assert set(machines) <= {*NAMES, "build"}, f"line {begin + 1}: {where[1]}: there is no such machine"
                parts[-1][1].append((begin + 1, machines, "\n".join(lines[begin:i]) + "\n"))
        i += 1
    return [part for part in parts if part[1]]


class Walk:
    def __init__(self, machines):
        self.machines = machines

    def shell(self, name, script):
        """The output of a command that may fail."""
        done = self.machines.run_in(name, script)
        return done.stdout if done.returncode == 0 else f"{done.stdout}\n(exit code {done.returncode})"

    def succeeds(self, what, name, script):
        done = self.machines.run_in(name, script)
        check(what, done.returncode == 0, done.stdout)

    def fails(self, what, name, script, expected):
        """The command fails, and its output has the expected text."""
        done = self.machines.run_in(name, script)
        check(what, done.returncode != 0 and expected in done.stdout, done.stdout)

    def comes(self, what, name, script, seconds=120):
        end, done = time.monotonic() + seconds, None
        while not done or (done.returncode != 0 and time.monotonic() < end):
            if done:
                time.sleep(1)
            done = self.machines.run_in(name, script)
        check(what, done.returncode == 0, done.stdout)

    def run_block(self, line, name, script):
        begin = time.monotonic()
        try:
            done = self.machines.run_in(name, script)
            good, output = done.returncode == 0, f"{done.stdout}\n(exit code {done.returncode})"
        except subprocess.TimeoutExpired as error:
            good, output = False, f"{error.stdout or ''}\n(ran past {error.timeout} s)"
        check(f"line {line} on {name} ({time.monotonic() - begin:.0f} s)", good, output)
        return good


# What a part of the page reached, by its heading.

CHECKS = {}


def main():
    begin, work = time.monotonic(), pathlib.Path(sys.argv[1])
    parts = parts_of(PAGE.read_text())
    strangers = set(CHECKS) - {heading for heading, _ in parts}
    assert not strangers, f"the page has no part with commands named {strangers}"
    machines = Machines(work)
    walk = Walk(machines)
    try:
        machines.prepare()
        machines.start_all()
        print(f"{len(NAMES)} machines are up ({time.monotonic() - begin:.0f} s)", flush=True)
        for heading, blocks in parts:
            print("== " + heading, flush=True)
            if not all(walk.run_block(line, name, script) for line, names, script in blocks for name in names):
                break
            CHECKS.get(heading, lambda walk: None)(walk)
    finally:
        machines.stop_all()
    print(f"{counts[True]} passed, {counts[False]} failed ({time.monotonic() - begin:.0f} s)")
    return 1 if counts[False] or not counts[True] else 0


if __name__ == "__main__":
    sys.exit(main())
