"""Keys: of a command line ("M=4096,N=4096,dtype=fp16", as common/space/key.h) and of files."""

import ast
import itertools
import math
import re
import sys
from pathlib import Path
from typing import Any

from .._canonical import Json, parse_json, read_text
from .._errors import PackError

Key = Json
KEYS_MAX = 10_000  # that the ranges and lists of one text may name

_WORDS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}


def _value(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    if re.fullmatch(r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?", text):
        return float(text)
    if text[:1] in ("'", '"'):
        try:
            return str(ast.literal_eval(text))
        except (SyntaxError, ValueError):
            raise PackError(f"{text} in a key is not a closed quoted text") from None
    return text


def _range(text: str) -> list[int] | None:
    """The integers of 1..4096, 1..4096*2 or 64..4096+64; None: the text is no range."""
    if not re.match(r"[-+]?\d+\.\.", text):
        return None
    found = re.fullmatch(r"([-+]?\d+)\.\.([-+]?\d+)(?:([*+])(\d+))?", text)
    if not found:
        raise PackError(f"{text} in a key is not a range like 1..4096*2 or 64..4096+64; quote it "
                        "to make it a text")
    number, last, step = int(found[1]), int(found[2]), int(found[4] or 1)
    if number > last or ((number < 1 or step < 2) if found[3] == "*" else step < 1):
        raise PackError(f"the range {text} in a key is empty or does not end: it multiplies by 2 "
                        "or more from 1 or more, or adds 1 or more")
    numbers: list[int] = []
    while number <= last and len(numbers) <= KEYS_MAX:
        numbers.append(number)
        number = number * step if found[3] == "*" else number + step
    return numbers


def parse_keys(text: str) -> list[Key]:
    """The key of a text, or all combinations of the ranges and lists in it."""
    members: dict[str, list[Any]] = {}
    name = ""
    if not re.fullmatch(r"""(?:[^'"]|'[^']*'|"[^"]*")*""", text):
        raise PackError(f"{text} in a key has a quote that is not closed")
    for member in re.findall(r"""(?:[^,'"]|'[^']*'|"[^"]*")+""", text):
        member = member.strip()
        before, equals, value = member.partition("=")
        if members and (not equals or member[0] in "'\""):  # of the member before it
            value = member
        elif not equals or not before.isidentifier():
            raise PackError(f'"{member}" in a key is not NAME=VALUE')
        elif before in members:
            raise PackError(f"{before} stands in the key twice")
        else:
            name, members[before] = before, []
        for one in _range(value.strip()) or [_value(value.strip())]:
            if not any(type(one) is type(known) and one == known for known in members[name]):
                members[name].append(one)
    if not members:
        raise PackError("a key is empty; write it as NAME=VALUE,NAME=VALUE")
    n = math.prod(map(len, members.values()))
    if n > KEYS_MAX:
        raise PackError(f"a key's ranges and lists name more than {KEYS_MAX} keys; 1..4096*2 are "
                        "the powers of two")
    return [dict(zip(members, values)) for values in itertools.product(*members.values())]


def read_keys(texts: list[str], file: str | None) -> list[Key]:
    """The keys of --key and of the lines of --keys ("-": standard input), in this order, each once.
    """
    keys = [key for text in texts for key in parse_keys(text)]
    if file is not None:
        lines = (sys.stdin.read() if file == "-" else read_text(Path(file))).splitlines()
        for number, line in enumerate(map(str.strip, lines), 1):
            if line.startswith("{"):
                keys.append(parse_json(line, f"{file}:{number}"))
            elif line and not line.startswith("#"):
                try:
                    keys.extend(parse_keys(line))
                except PackError as error:
                    raise PackError(f"{file}:{number}: {error}") from None
    if not keys:
        raise PackError("no key to pack for: give --key NAME=VALUE,… (several times for several) "
                        "or --keys FILE")
    return [key for i, key in enumerate(keys) if key not in keys[:i]]


def order_key(key: Key, names: list[str]) -> Key:
    """The key with its members in the kernel's order; it must have exactly those."""
    if set(key) != set(names):
        raise PackError(f"the key {format_key(key)} must have exactly the members "
                        f"{', '.join(names)}")
    return {name: key[name] for name in names}


def format_key(key: Key) -> str:
    """As it is written on a command line."""
    return ",".join(f"{name}={value!r}"
                    if isinstance(value, str) and (re.match(r"[-+]?\d+\.\.", value)
                                                   or _value(value) != value) else f"{name}={value}"
                    for name, value in key.items())
