"""Holds the C files of the programs against docs/house.md: each includes its own folder and what its folder's row says.

    tests/house.py

A name in the last column is a folder beside the row's own (`space` in a row of common/) or a path; `common` stands for all
below it, as `server/*` does. No two folders may include each other, directly or through a third; server/ alone is exempt, which has
both main() and what all of its folders share. A header's guard is its path. Run by ctest.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOPS = ("common", "server", "agent", "inspect", "cli")
# The table of inspect/'s commands is the only header of it that another folder includes, in one file.
TABLES = {("cli/main.c", "inspect/inspect.h")}
BOTH_ENDS = "server"  # the folder with main(), which includes all, and with headers that all include
# Answers with a status of HTTP's own: only server/http/ gives them, elsewhere the status follows from an error's kind.
PRIVATE = {"server/http/response.h", "server/http/request_private.h"}
ROW = re.compile(r"\| `([a-z_/]+)/` \|.*\| ([^|]*) \|$")
INCLUDE = re.compile(r'^# *include ["<]((?:common|server|agent|inspect|cli)/[^">]+)[">]', re.MULTILINE)
GUARD = re.compile(r"^#ifndef (\w+)\n#define \1$", re.MULTILINE)


def below(folder):
    return {folder} | {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.is_dir()}


def rules():
    """Folder -> the folders that it may include."""
    answer = {}
    for row in map(ROW.match, (ROOT / "docs/house.md").read_text().splitlines()):
        top = row[1].split("/")[0] if row else None
        if top not in TOPS:
            continue
        answer[row[1]] = {row[1]}
        for name in re.findall(r"`([^`]+)`", row[2]):
            folder = name.removesuffix("/*")
            place = next((p for p in (f"{top}/{folder}", folder) if (ROOT / p).is_dir()), None)
            if not place:
                sys.exit(f"docs/house.md: there is no folder {folder}/, which {row[1]}/ may include")
            answer[row[1]] |= below(place) if name == "common" or name.endswith("/*") else {place}
    return answer


def circle(allowed, folder, way=()):
    """Folders that include one another, from `folder` back to it."""
    if folder in way:
        return way[way.index(folder):] + (folder,)
    return next(filter(None, (circle(allowed, to, way + (folder,)) for to in sorted(allowed[folder] - {folder})
                              if to in allowed and to != BOTH_ENDS)), None)


def problems(allowed, path):
    """What is wrong with one file."""
    folder, text = str(path.parent.relative_to(ROOT)), path.read_text()
    if folder not in allowed:
        yield f"{folder}/ has no row in docs/house.md"
        return
    for include in INCLUDE.findall(text):
        place = str(path.relative_to(ROOT))
        if str(pathlib.Path(include).parent) not in allowed[folder] and (place, include) not in TABLES:
            yield f"{place} includes {include}, which docs/house.md does not let {folder}/ do"
        if include in PRIVATE and pathlib.Path(include).parent != path.relative_to(ROOT).parent:
            yield f"{place} includes {include}, which is for its own folder only"
    guard = "WAVETUNE_" + re.sub("[^A-Z0-9]", "_", str(path.relative_to(ROOT)).upper())
    if path.suffix == ".h" and guard not in GUARD.findall(text):
        yield f"{path.relative_to(ROOT)} has no guard {guard}"


def main():
    allowed = rules()
    files = sorted(path for top in TOPS for path in (ROOT / top).rglob("*.[ch]"))
    wrong = [f"docs/house.md has a row of {folder}/, which is not there" for folder in allowed if not (ROOT / folder).is_dir()]
    wrong += [f"docs/house.md lets folders include one another: {' -> '.join(way)}"
              for way in (circle(allowed, folder) for folder in allowed if folder != BOTH_ENDS) if way][:1]
    wrong += [problem for path in files for problem in problems(allowed, path)]
    print("\n".join(dict.fromkeys(wrong)) or f"{len(files)} files, as docs/house.md has them")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
