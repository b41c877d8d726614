"""Whether what the server says was signed by a key that the deployment trusts (docs/signing.md), in
the program itself.

Two things are signed, each as a line that names its kind and canonical JSON:
    "wavetune channel entry 1\\n"   the channel's entry, which names the release
    "wavetune choices 1\\n"         {"choices": DIGEST, "release": DIGEST}: the bytes of the
                                    release's choices document, which names code by digests
"""

from __future__ import annotations

import base64
import calendar
import time
from typing import Mapping, Sequence

from .._canonical import Named, canonical, digest_bytes
from .log import log
from .settings import IMPLIED_REGIME

_SIGNED = ("channel", "counter", "environment", "expires", "regime", "release", "tag")
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
            if lines[1] != "BEGIN PUBLIC KEY" or not der.startswith(_DER_OF_ED25519) or \
                    len(der) != 44:
                raise ValueError("it is no Ed25519 public key in PEM")
            keys[digest_bytes(der[12:])] = der[12:]
        except (OSError, ValueError, IndexError) as error:
            log(f"the trusted key {path} cannot be read: {error}")
    return keys


def signed_bytes(entry: Named) -> bytes:
    members = {name: entry[name] for name in _SIGNED if name in entry}
    if members.get("regime") == IMPLIED_REGIME:
        del members["regime"]
    return b"wavetune channel entry 1\n" + canonical(members).encode()


def choices_bytes(release: str, digest: str) -> bytes:
    return b"wavetune choices 1\n" + canonical({"choices": digest, "release": release}).encode()


def _is_signed(message: bytes, signatures, keys: Mapping[str, bytes]) -> bool:
    from .ed25519 import verify
    for one in (signatures or [])[:_SIGNATURES_MAX]:
        key = keys.get(one["key"])
        if key is not None and \
                verify(key, message, base64.b64decode(one["signature"], validate=True)):
            return True
    return False


def vouches(stated, release, document: bytes, keys: Mapping[str, bytes]) -> bool:
    """Whether a trusted key signed a release's choices; `stated`: {"digest", "signatures"}."""
    try:
        digest = digest_bytes(document)
        return stated["digest"] == digest and isinstance(release, str) and \
            _is_signed(choices_bytes(release, digest), stated["signatures"], keys)
    except (KeyError, TypeError, ValueError):
        return False


def refusal(entry: Named, keys: Mapping[str, bytes], wanted: Named,
            now_s: float | None = None) -> str | None:
    """Why a channel's entry is not taken. `wanted`: channel, tag, regime, and the environment, of
    which the GPU must be the same."""
    try:
        if not _is_signed(signed_bytes(entry), entry["signatures"], keys):
            return "no trusted key signed the channel's entry"
        expires, now_s = entry.get("expires"), time.time() if now_s is None else now_s
        if expires is not None and \
                calendar.timegm(time.strptime(expires, "%Y-%m-%dT%H:%M:%SZ")) <= now_s:
            return f"the channel's entry expired at {expires}"
        implied = {"channel": "stable", "tag": "default", "regime": IMPLIED_REGIME}
        for name, default in implied.items():
            if entry.get(name, default) != (wanted.get(name) or default):
                return f"the entry is for another {name} than was asked for"
        environment, own = entry["environment"], wanted["environment"]
        for name in ("gpu", "arch"):
            if name in environment and name in own and environment[name] != own[name]:
                return f"the entry is for another {name} than was asked for"
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f"the channel's entry is not what it should be: {type(error).__name__}"
    return None
