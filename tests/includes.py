"""Checks the #include lines of the C programs against the table of folders in docs/architecture.md.

    tests/includes.py

A file may include files of its own folder and of the folders in the last column of its folder's row. A name there is a folder
beside the row's own (`space` in a row of common/) or a path from the root; `common` and `server/*` stand for a folder with all
folders below it. No two folders may depend on each other, directly or through a third. A header
NAME_private.h is for its folder alone. A header's guard is made from its path. ctest runs this as lint/includes.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = "docs/architecture.md"
TOPS = ("common", "server", "agent", "inspect", "cli")
# The table of inspect/'s commands is the only header of inspect/ that another folder may include, and only this file may.
TABLES = {("cli/main.c", "inspect/inspect.h")}
ROW = re.compile(r"\| `([a-z_/]+)/` \|.*\| ([^|]*) \|$")
INCLUDE = re.compile(r'^# *include ["<]((?:common|server|agent|inspect|cli)/[^">]+)[">]', re.MULTILINE)
GUARD = re.compile(r"^#ifndef (\w+)\n#define \1$", re.MULTILINE)


def below(folder):
    return {folder} | {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.is_dir()}


def rules():
    """Folder -> the folders that it may include."""
    answer = {}
    for row in map(ROW.match, (ROOT / PAGE).read_text().splitlines()):
        top = row[1].split("/")[0] if row else None
        if top not in TOPS:
            continue
        answer[row[1]] = {row[1]}
        for name in re.findall(r"`([^`]+)`", row[2]):
            folder = name.removesuffix("/*")
            path = next((p for p in (f"{top}/{folder}", folder) if (ROOT / p).is_dir()), None)
            if not path:
                sys.exit(f"{PAGE}: the row of {row[1]}/ allows includes of {folder}/, but there is no such folder")
            answer[row[1]] |= below(path) if name == "common" or name.endswith("/*") else {path}
    return answer


def cycle(allowed, folder, way=()):
    """Folders that depend on one another, from `folder` back to it; None when there are none."""
    if folder in way:
        return way[way.index(folder):] + (folder,)
    return next(filter(None, (cycle(allowed, to, way + (folder,)) for to in sorted(allowed[folder] - {folder})
                              if to in allowed)), None)


def problems(allowed, path):
    """The faults of one file."""
    file, folder, text = str(path.relative_to(ROOT)), str(path.parent.relative_to(ROOT)), path.read_text()
    if folder not in allowed:
        yield f"{PAGE} has no row for the folder {folder}/"
        return
    for include in INCLUDE.findall(text):
        included = str(pathlib.Path(include).parent)
        if included not in allowed[folder] and (file, include) not in TABLES:
            yield f"{file} includes {include}, but {PAGE} does not allow {folder}/ to include {included}/"
        if include.endswith("_private.h") and included != folder:
            yield f"{file} includes {include}, which is private to its folder"
    guard = "WAVETUNE_" + re.sub("[^A-Z0-9]", "_", file.upper())
    if path.suffix == ".h" and guard not in GUARD.findall(text):
        yield f"{file} has no include guard {guard}"


def main():
    allowed = rules()
    files = sorted(path for top in TOPS for path in (ROOT / top).rglob("*.[ch]"))
    wrong = [f"{PAGE} has a row for {folder}/, but there is no such folder" for folder in allowed if not (ROOT / folder).is_dir()]
    wrong += [f"{PAGE} allows folders to depend on one another: {' -> '.join(way)}"
              for way in (cycle(allowed, folder) for folder in allowed) if way][:1]
    wrong += [problem for path in files for problem in problems(allowed, path)]
    print("\n".join(dict.fromkeys(wrong)) or f"{len(files)} files include only what {PAGE} allows")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
