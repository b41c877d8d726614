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
import hashlib
import time
from typing import Any, Mapping, Sequence

from .._canonical import canonical
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
            if lines[1] != "BEGIN PUBLIC KEY" or not der.startswith(_DER_OF_ED25519) or len(
                    der) != 44:
                raise ValueError("it is no Ed25519 public key in PEM")
            keys["sha256:" + hashlib.sha256(der[12:]).hexdigest()] = der[12:]
        except (OSError, ValueError, IndexError) as error:
            log(f"the trusted key {path} cannot be read: {error}")
    return keys


def signed_bytes(entry: Mapping[str, Any]) -> bytes:
    members = {name: entry[name] for name in _SIGNED if name in entry}
    if members.get("regime") == IMPLIED_REGIME:
        del members["regime"]
    return b"wavetune channel entry 1\n" + canonical(members).encode()


def choices_bytes(release: str, digest: str) -> bytes:
    return b"wavetune choices 1\n" + canonical({"choices": digest, "release": release}).encode()


def _is_signed(message: bytes, signatures: Any, keys: Mapping[str, bytes]) -> bool:
    from .ed25519 import verify
    for one in (signatures or [])[:_SIGNATURES_MAX]:
        key = keys.get(one["key"])
        if key is not None and verify(
            key, message, base64.b64decode(one["signature"], validate=True)
        ):
            return True
    return False


def vouches(stated: Any, release: Any, document: bytes, keys: Mapping[str, bytes]) -> bool:
    """Whether a trusted key signed these bytes as the choices of the release. `stated`: {"digest",
    "signatures"}."""
    try:
        digest = "sha256:" + hashlib.sha256(document).hexdigest()
        return stated["digest"] == digest and isinstance(release, str) and \
            _is_signed(choices_bytes(release, digest), stated["signatures"], keys)
    except (KeyError, TypeError, ValueError):
        return False


def refusal(entry: Mapping[str, Any], keys: Mapping[str, bytes], wanted: Mapping[str, Any],
            now_s: float | None = None) -> str | None:
    """Why the entry is not taken; None: a trusted key signed it, it has not expired, and it is what
    was asked for.

    `wanted`: channel, tag, regime, and the environment, of which the GPU must be the same.
    """
    try:
        if not _is_signed(signed_bytes(entry), entry["signatures"], keys):
            return "no trusted key signed the channel's entry"
        expires = entry.get("expires")
        if expires is not None and \
                calendar.timegm(time.strptime(expires, "%Y-%m-%dT%H:%M:%SZ")) <= \
                (time.time() if now_s is None else now_s):
            return f"the channel's entry expired at {expires}"
        for name, default in (("channel", "stable"), ("tag", "default"), ("regime", IMPLIED_REGIME)):
            if entry.get(name, default) != (wanted.get(name) or default):
                return f"the entry is for another {name} than was asked for"
        environment, own = entry["environment"], wanted["environment"]
        for name in ("gpu", "arch"):
            if name in environment and name in own and environment[name] != own[name]:
                return f"the entry is for another {name} than was asked for"
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f"the channel's entry is not what it should be: {type(error).__name__}"
    return None
