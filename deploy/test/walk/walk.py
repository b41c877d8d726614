#!/usr/bin/env python3
"""Runs the blocks of docs/production.md in the page's order, and after each part of the page checks what it says to have reached.

    walk.py WORK        started by ../walk.sh, which says what is needed; the last line counts the checks

A block of commands begins with a line `# on MACHINE[, MACHINE…]`; each of these machines runs it, in a new shell of root that
ends at the first error. `build` is this machine, in this tree. The walk ends at the first block that fails.
"""

import pathlib
import re
import signal
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(SOURCE / "deploy/test/walk"))

from checks import AFTER, BEFORE  # noqa: E402
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
    """The machines, and what one check keeps for a later one."""

    def __init__(self, machines):
        self.machines, self.kept = machines, {}

    def output(self, name, script):
        return self.machines.run_in(name, script).stdout

    def succeeds(self, what, name, script, seconds=0):
        """The commands succeed, at the latest when they have been repeated for so long."""
        end, done = time.monotonic() + seconds, None
        while not done or (done.returncode != 0 and time.monotonic() < end):
            if done:
                time.sleep(1)
            done = self.machines.run_in(name, script)
        check(what, done.returncode == 0, done.stdout)

    def fails(self, what, name, script, expected):
        """The last of the commands fails, and their output has the expected text."""
        done = self.machines.run_in(name, script)
        check(what, done.returncode != 0 and expected in done.stdout, f"{done.stdout}\n(expected: {expected})")

    def equal(self, what, one, other):
        check(what, one == other, f"{one}\n{other}")

    def differ(self, what, one, other):
        check(what, one != other, one)

    def run_block(self, line, name, script):
        begin = time.monotonic()
        try:
            done = self.machines.run_in(name, script)
            good, output = done.returncode == 0, f"{done.stdout}\n(exit code {done.returncode})"
        except subprocess.TimeoutExpired as error:
            good, output = False, f"{error.stdout or ''}\n(ran past {error.timeout} s)"
        check(f"line {line} on {name} ({time.monotonic() - begin:.0f} s)", good, output)
        return good



def moments_of(parts):
    """The names of what may be checked: after a part, and after the n-th block of a part with several."""
    return {heading for heading, _ in parts} | {f"{heading}/{n + 1}" for heading, blocks in parts for n in range(len(blocks) - 1)}


def walk_through(walk, parts):
    for heading, blocks in parts:
        print("== " + heading, flush=True)
        BEFORE.get(heading, lambda walk: None)(walk)
        for n, (line, names, script) in enumerate(blocks, 1):
            if not all(walk.run_block(line, name, script) for name in names):
                return
            moment = heading if n == len(blocks) else f"{heading}/{n}"
            AFTER.get(moment, lambda walk: None)(walk)


def main():
    begin, work = time.monotonic(), pathlib.Path(sys.argv[1])
    parts = parts_of(PAGE.read_text())
    assert moments_of(parts) >= {*AFTER, *BEFORE}, f"no part of the page is named {({*AFTER, *BEFORE}) - moments_of(parts)}"
    machines = Machines(work)
    walk = Walk(machines)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        machines.prepare()
        machines.start_all()
        print(f"{len(NAMES)} machines are up ({time.monotonic() - begin:.0f} s)", flush=True)
        walk_through(walk, parts)
    finally:
        machines.stop_all()
    print(f"{counts[True]} passed, {counts[False]} failed ({time.monotonic() - begin:.0f} s)")
    return 1 if counts[False] or not counts[True] else 0


if __name__ == "__main__":
    sys.exit(main())
