"""Compares the shape of C source trees: ours and those of peers that are checked out beside it.

    tests/shape.py NAME=FOLDER…        e.g. wavetune=. pgbouncer=../pgbouncer/src varnishd=../varnish-cache/bin/varnishd

FOLDER may be several, joined by commas; of this tree (.) only the programs are counted. Functions, their ends and their parameters
are what universal-ctags finds. Folders with generated files are not counted. A function is used once when its
name occurs in its file twice, not counting declarations: where it is defined and where it is used.
"""

import collections
import json
import pathlib
import re
import statistics
import subprocess
import sys

import size

OURS = ("common", "server", "agent", "inspect", "cli")


def tags(paths):
    """Path -> the functions in it, as ctags describes them."""
    answer = collections.defaultdict(list)
    done = subprocess.run(["ctags", "--languages=C", "--langmap=C:.c.h", "--kinds-C=f", "--fields=+neSkf", "--output-format=json", "-L", "-"],
                          input="\n".join(map(str, paths)), capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        tag = json.loads(line)
        if "end" in tag:
            answer[tag["path"]].append(tag)
    return answer


def nesting(body):
    """Depth of braces within a function's own."""
    depth = most = 0
    for brace in re.findall(r"[{}]", body):
        depth += 1 if brace == "{" else -1
        most = max(most, depth)
    return max(most - 1, 0)


def parameters(signature):
    inside = signature.strip()[1:-1].strip()
    return 0 if inside in ("", "void") else 1 + len(re.findall(r",(?![^(]*\))", inside))


def spread(values):
    return f"{statistics.median(values):.0f} / {size.percentile(values, 0.95):.0f} / {max(values)}"


def shape(folders):
    paths = [path for folder in folders for path in sorted(pathlib.Path(folder).rglob("*.[ch]"))]
    found = tags(paths)
    lengths, depths, counts, lines_in, blank, characters, statics, once = [], [], [], 0, 0, 0, 0, 0
    texts = {path: path.read_text(errors="replace") for path in paths}
    for path, text in texts.items():
        lines = text.splitlines()
        bare = size.without_comments(text)
        for tag in found[str(path)]:
            body = lines[tag["line"] - 1:tag["end"]]
            lengths.append(len(body))
            depths.append(nesting(size.without_comments("\n".join(body))))
            counts.append(parameters(tag.get("signature", "()")))
            inner = body[1:-1]
            lines_in += len(inner)
            blank += sum(not line.strip() for line in inner)
            characters += sum(len(line.strip()) for line in inner if line.strip())
            if tag.get("file") is not None or tag.get("extras") == "fileScope":
                name = re.escape(tag["name"])
                declared = len(re.findall(rf"^static [^={{;]*\b{name}\([^{{;]*\);", bare, re.M))
                statics, once = statics + 1, once + (len(re.findall(rf"\b{name}\b", bare)) - declared == 2)
    everything = [line for text in texts.values() for line in text.splitlines()]
    comments = sum(bool(was.strip()) and not is_left.strip() for text in texts.values() for was, is_left in zip(
        text.splitlines(), size.COMMENT.sub(lambda match: match[1] or re.sub(r"[^\n]", "", match[0]), text).splitlines()))
    sources = [text.count("\n") for path, text in texts.items() if path.suffix == ".c"]
    headers = [text.count("\n") for path, text in texts.items() if path.suffix == ".h"]
    return {
        ".c files": len(sources),
        ".c files' lines: median / 95 of 100 / most": spread(sources),
        "functions": len(lengths),
        "functions' lines: median / 95 of 100 / most": spread(lengths),
        "nesting: median / 95 of 100 / most": spread(depths),
        "parameters: median / 95 of 100 / most": spread(counts),
        "static functions used once, %": round(100 * once / max(statics, 1)),
        "blank lines in functions, %": round(100 * blank / lines_in, 1),
        "characters a line in functions": round(characters / (lines_in - blank)),
        "lines over 100 columns, %": round(100 * sum(len(line.expandtabs()) > 100 for line in everything) / len(everything), 1),
        "whole lines of comments, %": round(100 * comments / len(everything)),
        "header's lines: mean": round(statistics.mean(headers)),
        "files under 60 lines, %": round(100 * sum(n < 60 for n in sources + headers) / len(paths)),
        "tokens, thousands": round(sum(len(size.TOKEN.findall(size.without_comments(text))) for text in texts.values()) / 1000),
    }


def main():
    if not sys.argv[1:] or not all("=" in argument for argument in sys.argv[1:]):
        sys.exit(__doc__)
    named = dict(argument.split("=", 1) for argument in sys.argv[1:])
    columns = {name: shape([size.ROOT / top for top in OURS] if folder == "." else folder.split(",")) for name, folder in named.items()}
    print(f"{'':46}" + "".join(f"{name:>18}" for name in columns))
    for row in next(iter(columns.values())):
        print(f"{row:46}" + "".join(f"{column[row]!s:>18}" for column in columns.values()))


if __name__ == "__main__":
    main()
