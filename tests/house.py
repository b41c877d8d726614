"""Holds the includes of every C file against the table of docs/house.md: a folder includes itself and what its row says.

    tests/house.py

A name in the last column is a folder beside the row's own (`space` in a row of common/) or a path; `common` stands for all
below it, as `agent/*` and `server/*` do. Run by ctest.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOPS = ("common", "server", "agent", "cli")
ROW = re.compile(r"\| `([a-z_/]+)/` \|.*\| ([^|]*) \|$")
INCLUDE = re.compile(r'^#include "((?:common|server|agent|cli)/[^"]+)"', re.MULTILINE)


def rules():
    """Folder -> the folders that it may include."""
    answer = {}
    for row in map(ROW.match, (ROOT / "docs/house.md").read_text().splitlines()):
        top = row[1].split("/")[0] if row else None
        if top in TOPS:
            answer[row[1]] = {row[1]}
            for name in re.findall(r"`([^`]+)`", row[2]):
                place = next((p for p in (f"{top}/{name}", name) if (ROOT / p.removesuffix("/*")).is_dir()), None)
                if not place:
                    sys.exit(f"docs/house.md: there is no folder {name}, which {row[1]}/ may include")
                below = ROOT / place.removesuffix("/*")
                answer[row[1]] |= ({str(p.relative_to(ROOT)) for p in below.rglob("*") if p.is_dir()} | {str(below.relative_to(ROOT))}
                                   if place == "common" or place.endswith("/*") else {place})
    return answer


def main():
    allowed, wrong, n = rules(), [], 0
    for path in sorted(path for top in TOPS for path in (ROOT / top).rglob("*.[ch]")):
        folder = str(path.parent.relative_to(ROOT))
        if folder not in allowed:
            wrong.append(f"{folder}/ has no row in docs/house.md")
            continue
        for include in INCLUDE.findall(path.read_text()):
            n += 1
            if str(pathlib.Path(include).parent) not in allowed[folder]:
                wrong.append(f"{path.relative_to(ROOT)} includes {include}, which docs/house.md does not let {folder}/ do")
    print("\n".join(dict.fromkeys(wrong)) or f"{n} includes, each as docs/house.md has it")
    return 1 if wrong or not n else 0


if __name__ == "__main__":
    sys.exit(main())
