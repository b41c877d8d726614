"""What the environment's variables say, read once in a process."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from typing import Mapping, MutableMapping, Sequence

from .._canonical import Named, digest_bytes
from .environment import find, triton_version
from .log import log

ON_MISS = ("tune", "first", "nearest")
IMPLIED_REGIME = "cold"  # of what states none; the first of common/regime/regime.h
CAPTURE = ("off", "shapes", "source", "raw")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FILE_MAX = 1 << 20


class Settings:
    """Members are None where nothing is stated; `token` may be secret."""

    def __init__(self, variables: Mapping[str, str], token: str | None):
        def get(name: str) -> str | None:
            return variables.get(name) or None

        def digest(name: str) -> str | None:
            text = get(name)
            if text is not None and not _DIGEST.fullmatch(text):
                log(f"{name}={text[:80]} is no digest (sha256: and 64 hex digits)")
                return None
            return text

        def word(name: str, words: Sequence[str], default: str) -> str:
            text = get(name) or default
            if text not in words:
                log(f"{name}={text[:40]} is not one of {', '.join(words)}: {default} is "
                    "used")
                return default
            return text

        self.url = (get("WAVETUNE_URL") or "").rstrip("/") or None
        self.cache = get("WAVETUNE_CACHE")
        self.tables = [path for path in (get("WAVETUNE_TABLES") or "").split(":") if path]
        self.identity_path = get("WAVETUNE_IDENTITY") or "/etc/wavetune/identity.json"
        self.token = token
        self.ca_file = get("WAVETUNE_CA_FILE")
        self.insecure = get("WAVETUNE_INSECURE_HTTP") in ("1", "true")
        self.tag, self.channel = get("WAVETUNE_TAG"), get("WAVETUNE_CHANNEL")
        self.regime = get("WAVETUNE_REGIME")
        self.release = digest("WAVETUNE_RELEASE")
        self.is_pinned = get("WAVETUNE_RELEASE") is not None  # to nothing, where it is no digest
        self.stated_image = digest("WAVETUNE_IMAGE")
        self.on_miss = word("WAVETUNE_ON_MISS", ON_MISS, "tune")
        self.capture = word("WAVETUNE_CAPTURE", CAPTURE, "shapes")
        self.capture_to = get("WAVETUNE_CAPTURE_TO")
        names = (get("WAVETUNE_CAPTURE_FUNCTIONS") or "").split(",")
        self.capture_functions = [name.strip() for name in names if name.strip()]
        keys = (get("WAVETUNE_TRUSTED_KEYS") or "").split(":")
        self.trusted_keys = [path for path in keys if path]
        self.shared_code = get("WAVETUNE_SHARED_CODE") in ("1", "true")
        self.is_ahead = get("WAVETUNE_AHEAD") not in ("0", "false")
        try:
            self.budget_s = max(0.0, min(float(get("WAVETUNE_BUDGET_MS") or 2000), 3.6e6)) / 1000
        except ValueError:
            self.budget_s = 2.0
        self._stated_environment = get("WAVETUNE_ENVIRONMENT")
        self._identity: Named | None = None
        self._environment: Named | None = None

    def identity(self) -> Named:
        """What the image recorded of itself; {} where there is nothing."""
        if self._identity is None:
            self._identity = {}
            try:
                with open(self.identity_path, encoding="utf-8") as file:
                    found = json.load(file)
                self._identity = found if isinstance(found, dict) else {}
            except (OSError, ValueError):
                pass
        return self._identity

    def environment(self) -> Named:
        """The environment whose choices are asked for: as stated, else that of this process."""
        if self._environment is None:
            stated = None
            if self._stated_environment is not None:
                try:
                    stated = json.loads(self._stated_environment)
                except ValueError:
                    log("WAVETUNE_ENVIRONMENT is no JSON: the environment is found out")
            if not isinstance(stated, dict):
                stated = find(self.identity())
            self._environment = stated
        return self._environment

    def image(self) -> str:
        """What compiled code depends on beside Triton's key, as a digest: stated, else found."""
        if self.stated_image is None:
            facts = {"machine": platform.machine(), "python": sys.implementation.cache_tag,
                     "triton": triton_version()}
            text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
            self.stated_image = digest_bytes(text.encode())
        return self.stated_image


_token: str | None = None


def take_token(variables: MutableMapping[str, str]) -> str | None:
    """The token of $WAVETUNE_TOKEN_FILE, else $WAVETUNE_TOKEN, which is removed: programs that are
    started later do not get it. A forked child has it by the fork."""
    global _token
    stated = variables.pop("WAVETUNE_TOKEN", None)
    path = variables.get("WAVETUNE_TOKEN_FILE")
    if path:
        try:
            with open(path, encoding="ascii") as file:
                stated = file.read(_FILE_MAX).strip()
        except (OSError, ValueError) as error:
            log(f"the token's file cannot be read: {error}")
    if stated:
        _token = stated if re.fullmatch(r"[\x21-\x7e]+", stated) else None  # it becomes a header
    return _token


def taken_token() -> str | None:
    """What take_token found before."""
    return _token


_settings: Settings | None = None


def settings() -> Settings | None:
    """Those of this process; None where no variable asks for it (entry.py)."""
    global _settings
    if _settings is None:
        from ..entry import is_on
        if not is_on():
            return None
        _settings = Settings(dict(os.environ), take_token(os.environ))
    return _settings


def forget() -> None:
    """For tests: the variables are read again."""
    global _settings, _token
    _settings = _token = None
