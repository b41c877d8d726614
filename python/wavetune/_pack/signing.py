"""Signs kernels and builds with an Ed25519 key as `wavetune kernel sign` does (docs/signing.md,
security.md). It takes a few milliseconds, and not the same time for all keys: the key belongs to a
machine that nobody else measures.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Mapping

from .._canonical import canonical
from .._errors import PackError
from .._runtime.ed25519 import public_key_of, sign

# PrivateKeyInfo of an Ed25519 key (RFC 8410): all but the 32 bytes at its end.
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")


class SigningKey:
    def __init__(self, path: str):
        try:
            lines = Path(path).read_text(encoding="ascii").split("\n")
            data = base64.b64decode("".join(line for line in lines if not line.startswith("-----")),
                                    validate=True)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no PEM file"
            raise PackError(f"the key {path} cannot be read: {reason}") from None
        if len(data) != len(_PKCS8) + 32 or not data.startswith(
                _PKCS8) or lines[0] != "-----BEGIN PRIVATE KEY-----":
            raise PackError(f"{path} is no private Ed25519 key: make one with `wavetune key new "
                            f"{path}`")
        self._seed = data[len(_PKCS8):]
        self.public = public_key_of(self._seed)
        self.id = "sha256:" + hashlib.sha256(self.public).hexdigest()

    def code_signature(self, kernel: str, build: str | None = None) -> Mapping[str, str]:
        """The body that posts the signature of a kernel, or of a build of it."""
        what = {"kernel": kernel} if build is None else {"build": build, "kernel": kernel}
        text = f"wavetune {'kernel' if build is None else 'build'} 1\n{canonical(what)}".encode()
        return {
            "public_key": base64.b64encode(self.public).decode(),
            "signature": base64.b64encode(sign(self._seed, text)).decode()
        }
