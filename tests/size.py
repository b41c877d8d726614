"""Counts the programs' code and the documents: how much there is, and in what shape.

    tests/size.py [REVISION]…           default: the tree as it is; a column for each, e.g. 94dd181 HEAD

Code is the C of the programs (common, server, agent, inspect, cli) without what is generated; SQL,
migrations, the Python wheel (without its generated api.py), tests and hand-written documents have
rows of their own. A token is an identifier, a number, a literal or an operator; comments are not
counted, but those of Python are. A function begins on a line without indentation that ends with
`{`, and ends with `}` at the line's beginning: clang-format sees to that.
"""

import pathlib
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = ("common", "server", "agent", "inspect", "cli")
COLUMNS_MAX = 100
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*|'
                   r"->|\+\+|--|<<=|>>=|<<|>>|[<>=!+*/%&|^-]=|&&|\|\||\.\.\.|##|[^\s\w]")
COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|/\*.*?\*/|//[^\n]*', re.DOTALL)
FUNCTION = re.compile(r"^(?![#\s}])[^\n;=]*\([^;]*?\)\s*(?:__attribute__[^\n]*)?\{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
ONE_LINE = re.compile(r"^(?![#\s}])[^\n;=]*\w\([^;\n]*\)\s*\{.*\}$", re.MULTILINE)
STATIC = re.compile(r"^static (?:inline )?(?:must_check )?[^=;(]*?(\w+)\(", re.MULTILINE)


def files_below(tree, folders, ends):
    return sorted(path for folder in folders for path in (tree / folder).rglob("*") if path.suffix in ends and path.is_file())


def without_comments(text):
    return COMMENT.sub(lambda match: match[1] or " ", text)


def percentile(values, share):
    return sorted(values)[int(share * (len(values) - 1))] if values else 0


def count(tree):
    """Name -> figure, in the order in which they are printed."""
    paths = files_below(tree, PROGRAMS, (".c", ".h"))
    texts = [path.read_text() for path in paths]
    lines = [line for text in texts for line in text.splitlines()]
    lengths, blank, in_functions, statics, once = [], 0, 0, 0, 0
    for text in texts:
        bodies = [match[1].splitlines() for match in FUNCTION.finditer(text)]
        lengths += [len(body) + 2 for body in bodies] + [1] * len(ONE_LINE.findall(text))
        blank += sum(not line.strip() for body in bodies for line in body)
        in_functions += sum(len(body) for body in bodies)
        bare = without_comments(text)
        names = set(STATIC.findall(bare))
        uses = [len(re.findall(rf"\b{name}\b", bare)) for name in names]
        statics, once = statics + len(names), once + sum(n == 2 for n in uses)

    sql = files_below(tree, ("server",), (".sql",))
    migrations = [line for path in files_below(tree, ("migrations",), (".sql",))
                  for line in path.read_text().splitlines() if line.strip()]
    wheel = [path for path in files_below(tree, ("python",), (".py",)) if path.name != "api.py"]
    pages = [page for page in (tree / "README.md", *files_below(tree, ("docs",), (".md",))) if page.parent.name != "reference"]
    return {
        "files": len(paths),
        "files under 60 lines": sum(text.count("\n") < 60 for text in texts),
        "longest file, lines": max(text.count("\n") for text in texts),
        "lines that are not blank": sum(bool(line.strip()) for line in lines),
        "tokens": sum(len(TOKEN.findall(without_comments(text))) for text in texts),
        f"lines over {COLUMNS_MAX} columns": sum(len(line) > COLUMNS_MAX for line in lines),
        "longest line, columns": max(map(len, lines)),
        "functions": len(lengths),
        "function's lines: median": statistics.median(lengths),
        "function's lines: 95 of 100": percentile(lengths, 0.95),
        "function's lines: longest": max(lengths),
        "blank lines in functions, %": round(100 * blank / in_functions, 1),
        "static functions used once, %": round(100 * once / statics, 1),
        "SQL beside it, lines that are not blank": sum(bool(line.strip()) for path in sql for line in path.read_text().splitlines()),
        "migrations, lines that are not blank": len(migrations),
        "migrations, lines without comments": sum(
            not line.lstrip().startswith("--") for line in migrations),
        "wheel, tokens": sum(len(TOKEN.findall(path.read_text())) for path in wheel),
        "tests, lines that are not blank": sum(bool(line.strip()) for path in files_below(tree, ("tests",), (".c", ".h", ".py"))
                                               if "data" not in path.parts for line in path.read_text().splitlines()),
        "documents, words": sum(len(path.read_text().split()) for path in pages),
    }


def counted(revision, scratch):
    if not revision:
        return count(ROOT)
    tree = pathlib.Path(scratch) / revision.replace("/", "-")
    archive = subprocess.Popen(["git", "-C", ROOT, "archive", revision], stdout=subprocess.PIPE)
    with tarfile.open(fileobj=archive.stdout, mode="r|") as tar:
        tar.extractall(tree, filter="data")
    if archive.wait():
        sys.exit(f"there is no revision {revision}")
    return count(tree)


def main():
    revisions = sys.argv[1:] or [""]
    with tempfile.TemporaryDirectory() as scratch:
        columns = [counted(revision, scratch) for revision in revisions]
    print(f"{'':40}" + "".join(f"{revision or 'this tree':>12}" for revision in revisions))
    for name in columns[0]:
        print(f"{name:40}" + "".join(f"{column[name]:>12,}" for column in columns))


if __name__ == "__main__":
    main()
