"""Whether a channel entry was signed by a key that the deployment trusts (docs/signing.md), in the program itself.

What is signed is the line "wavetune channel entry 1" and the entry's canonical JSON. The entry names the release; its member
"choices", once entries have it, the digest of the release's choices document, and that document the digests of code.
"""

from __future__ import annotations

import base64
import calendar
import hashlib
import json
import time
from typing import Any, Mapping, Sequence

from .log import log

_SIGNED = ("channel", "choices", "counter", "environment", "expires", "regime", "release", "tag")
_DER_OF_ED25519 = bytes.fromhex("302a300506032b6570032100")
_SIGNATURES_MAX = 8


def read_keys(paths: Sequence[str]) -> dict[str, bytes]:
    """Public keys (PEM) by their id; a file that is none is left out, which the log says."""
    keys = {}
    for path in paths[:64]:
        try:
            with open(path, encoding="ascii") as file:
                lines = file.read(10000).split("-----")
            der = base64.b64decode("".join(lines[2].split()), validate=True)
            if lines[1] != "BEGIN PUBLIC KEY" or not der.startswith(_DER_OF_ED25519) or len(der) != 44:
                raise ValueError("it is no Ed25519 public key in PEM")
            keys["sha256:" + hashlib.sha256(der[12:]).hexdigest()] = der[12:]
        except (OSError, ValueError, IndexError) as error:
            log(f"the trusted key {path} cannot be read: {error}")
    return keys


def signed_bytes(entry: Mapping[str, Any]) -> bytes:
    members = {name: entry[name] for name in _SIGNED if name in entry}
    if members.get("regime") == "cold":
        del members["regime"]
    text = json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return b"wavetune channel entry 1\n" + text.encode()


def refusal(entry: Mapping[str, Any], keys: Mapping[str, bytes], wanted: Mapping[str, Any],
            now_s: float | None = None) -> str | None:
    """Why the entry is not taken; None: a trusted key signed it, it has not expired, and it is what was asked for.

    `wanted`: channel, tag, regime, and the environment, of which the GPU must be the same.
    """
    from .ed25519 import verify
    try:
        if not any(key in keys and verify(keys[key], signed_bytes(entry), base64.b64decode(text, validate=True))
                   for key, text in [(one.get("key"), one.get("signature", "")) for one in
                                     entry.get("signatures", [])[:_SIGNATURES_MAX]]):
            return "no trusted key signed the channel's entry"
        expires = entry.get("expires")
        if expires is not None and calendar.timegm(time.strptime(expires, "%Y-%m-%dT%H:%M:%SZ")) <= \
                (time.time() if now_s is None else now_s):
            return f"the channel's entry expired at {expires}"
        for name, default in (("channel", "stable"), ("tag", "default"), ("regime", "cold")):
            if entry.get(name, default) != (wanted.get(name) or default):
                return f"the entry is for another {name} than was asked for"
        environment, own = entry["environment"], wanted["environment"]
        for name in ("gpu", "arch"):
            if name in environment and name in own and environment[name] != own[name]:
                return f"the entry is for another {name} than was asked for"
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f"the channel's entry is not what it should be: {type(error).__name__}"
    return None
