"""Checks what the wheel's files (python/) promise their readers: lines of at most 100 columns, no exception that passes in
silence, and the module that alone reads stack frames and the one that alone starts threads.

A handler of all exceptions uses what it caught, raises, or has a comment on its first line that says why it need not. The
generated api.py may have longer lines.
"""

import ast
import pathlib
import sys

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "python/wavetune"
COLUMNS_MAX = 100
ALL = {"Exception", "BaseException"}
# Names that one module alone uses.
OWNED = {"_getframe": "_runtime/frames.py", "tb_frame": "_runtime/frames.py", "HTTPConnection": "_runtime/wire.py",
         "Thread": "_runtime/worker.py"}
SHOWS_OWN_FRAMES = "_runtime/running.py"  # hides them from tracebacks


def is_silent(handler, lines):
    """Whether nobody learns of an exception that is caught here, nor why."""
    kinds = [kind.id for kind in ast.walk(handler.type) if isinstance(kind, ast.Name)] if handler.type else list(ALL)
    speaks = any(isinstance(node, ast.Raise) or isinstance(node, ast.Name) and node.id == handler.name
                 for statement in handler.body for node in ast.walk(statement))
    return bool(ALL.intersection(kinds)) and not speaks and \
        not any("  # " in line for line in lines[handler.lineno - 1:handler.body[0].lineno])


def findings(path, text):
    name, lines = str(path), text.splitlines()
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX and name != "api.py":
            yield number, f"has {len(line)} columns, and {COLUMNS_MAX} are the most"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler) and is_silent(node, lines):
            yield node.lineno, "catches every exception in silence: log it (log.quietly), catch less, or say why in a comment"
        word = getattr(node, "attr", None) or getattr(node, "name", None) if isinstance(node, (ast.Attribute, ast.alias)) else None
        if word in OWNED and name not in (OWNED[word], SHOWS_OWN_FRAMES):
            yield node.lineno, f"uses {word}, which {OWNED[word]} alone does"


def main():
    found = [f"python/wavetune/{path.relative_to(PACKAGE)}:{number}: {what}"
             for path in sorted(PACKAGE.rglob("*.py"))
             for number, what in findings(path.relative_to(PACKAGE), path.read_text())]
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main()
