"""Canonical JSON and digests, byte for byte as common/base/json.h writes them: what every identity
is a digest of.

Members are sorted by their UTF-8 bytes, there is no white space, integers are decimal, floats as
repr writes them. Reading is strict: no member twice, no NaN.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any, Mapping

from ._errors import PackError

Json = dict[str, Any]  # an object
Fields = Mapping[str, Any]  # one that is only read
Named = dict[str, Any]  # values by name: the arguments of a launch
_ESCAPED = re.compile(r'[\x00-\x1f"\\]')


def _escape(match: re.Match[str]) -> str:
    c = match.group()
    return f"\\u{ord(c):04x}" if c < " " else "\\" + c


def canonical(value: Any) -> str:
    """The canonical text of a JSON value."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return '"' + _ESCAPED.sub(_escape, value) + '"'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, dict):
        members = sorted(value, key=lambda name: name.encode())
        return "{" + ",".join(f"{canonical(name)}:{canonical(value[name])}"
                              for name in members) + "}"
    raise TypeError(f"{value!r} has no canonical JSON")


def digest_bytes(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest(value: Any) -> str:
    """The digest of a JSON value's canonical text."""
    return digest_bytes(canonical(value).encode())


def _members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the member "{twice}" stands there twice')
    return result


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def parse_json(text: str, place: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_members_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise PackError(f"{place}: {error}") from None


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PackError(f"cannot read {path}: {error.strerror}") from None


def read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise PackError(f"{path} is not UTF-8 text") from None


def read_json(path: Path) -> Any:
    return parse_json(read_text(path), str(path))
