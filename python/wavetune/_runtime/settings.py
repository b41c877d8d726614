"""What the environment's variables say, read once in a process."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from typing import Any, Mapping, MutableMapping

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
            return variables.get("WAVETUNE_" + name) or None

        self.url = (get("URL") or "").rstrip("/") or None
        self.cache, self.identity_path = get(
            "CACHE"), get("IDENTITY") or "/etc/wavetune/identity.json"
        self.token = token
        self.ca_file = get("CA_FILE")
        self.insecure = get("INSECURE_HTTP") in ("1", "true")
        self.tag, self.channel, self.regime = get("TAG"), get("CHANNEL"), get("REGIME")
        self.release = _digest(get("RELEASE"), "WAVETUNE_RELEASE")
        self.is_pinned = get("RELEASE") is not None  # to nothing, where it is no digest
        self.stated_image = _digest(get("IMAGE"), "WAVETUNE_IMAGE")
        self.on_miss = get("ON_MISS") or "tune"
        if self.on_miss not in ON_MISS:
            log(f"WAVETUNE_ON_MISS={self.on_miss[:40]} is not one of {', '.join(ON_MISS)}: tune is "
                f"used")
            self.on_miss = "tune"
        self.capture, self.capture_to = get("CAPTURE") or "shapes", get("CAPTURE_TO")
        if self.capture not in CAPTURE:
            log(f"WAVETUNE_CAPTURE={self.capture[:40]} is not one of {', '.join(CAPTURE)}: shapes "
                f"is used")
            self.capture = "shapes"
        named = variables.get("WAVETUNE_CAPTURE_FUNCTIONS") or ""
        self.capture_functions = [name.strip() for name in named.split(",") if name.strip()]
        self.trusted_keys = [path for path in (get("TRUSTED_KEYS") or "").split(":") if path]
        self.shared_code = get("SHARED_CODE") in ("1", "true")
        self.is_ahead = get("AHEAD") not in ("0", "false")
        self.budget_s = _number(get("BUDGET_MS"), 2000.0) / 1000
        self._stated_environment = get("ENVIRONMENT")
        self._identity: dict[str, Any] | None = None
        self._environment: dict[str, Any] | None = None

    def identity(self) -> dict[str, Any]:
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

    def environment(self) -> dict[str, Any]:
        """The environment whose choices are asked for: as stated, else found in this process
        (environment.py)."""
        if self._environment is None:
            stated = None
            if self._stated_environment is not None:
                try:
                    stated = json.loads(self._stated_environment)
                except ValueError:
                    log("WAVETUNE_ENVIRONMENT is no JSON: the environment is found out")
            if not isinstance(stated, dict):
                from .environment import find
                stated = find(self.identity())
            self._environment = stated
        return self._environment

    def image(self) -> str:
        """The digest that names what compiled code depends on beside Triton's own key: as stated,
        else of this Python."""
        if self.stated_image is None:
            triton = getattr(sys.modules.get("triton"), "__version__", None)
            facts = {
                "machine": platform.machine(), "python": sys.implementation.cache_tag,
                "triton": triton
            }
            text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
            self.stated_image = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        return self.stated_image


def _digest(text: str | None, name: str) -> str | None:
    if text is not None and not _DIGEST.fullmatch(text):
        log(f"{name}={text[:80]} is no digest (sha256: and 64 hex digits)")
        return None
    return text


def _number(text: str | None, default: float) -> float:
    try:
        return max(0.0, min(float(text), 3.6e6)) if text is not None else default
    except ValueError:
        return default


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
    """Those of this process; None without $WAVETUNE_URL, $WAVETUNE_CACHE and
    $WAVETUNE_CAPTURE_TO."""
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
