"""Keys: of a command line ("M=4096,N=4096,dtype=fp16", as common/space/key.h) and of files."""

import ast
import re
from pathlib import Path
from typing import Any

from .._canonical import Json, parse_json, read_text
from .._errors import PackError

Key = Json


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


def parse_key(text: str) -> Key:
    key: Key = {}
    for member in re.findall(r"""(?:[^,'"]|'[^']*'|"[^"]*")+""", text):
        name, equals, value = member.strip().partition("=")
        if not equals or not name.isidentifier():
            raise PackError(f'"{member.strip()}" in a key is not NAME=VALUE')
        if name in key:
            raise PackError(f"{name} stands in the key twice")
        key[name] = _value(value.strip())
    if not key:
        raise PackError("a key is empty; write it as NAME=VALUE,NAME=VALUE")
    return key


def read_keys(texts: list[str], file: str | None) -> list[Key]:
    """The keys of --key and of the lines of --keys, in this order, each once."""
    keys = [parse_key(text) for text in texts]
    if file is not None:
        for number, line in enumerate(read_text(Path(file)).splitlines(), 1):
            if line.strip():
                key = parse_json(line, f"{file}:{number}")
                if not isinstance(key, dict):
                    raise PackError(f"{file}:{number}: a key is an object, like {{\"M\": 4096}}")
                keys.append(key)
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
                    if isinstance(value, str) and _value(value) != value else f"{name}={value}"
                    for name, value in key.items())
