"""Whether a token may be sent to a URL: over http:// to loopback only, where nobody is between who
could read it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def insecure_http(variables: Mapping[str, str]) -> bool:
    """Whether $WAVETUNE_INSECURE_HTTP says that the network between is trusted."""
    return variables.get("WAVETUNE_INSECURE_HTTP") in ("1", "true")


def refusal(url: str, insecure: bool) -> str | None:
    """Why a token is not sent there, in one sentence; None: it may be."""
    parts = urlsplit(url)
    if insecure or parts.scheme != "http":
        return None
    host = parts.hostname or ""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if is_loopback:
        return None
    return (f"the token would travel unencrypted to http://{host}: give an https:// URL, or set "
            "WAVETUNE_INSECURE_HTTP=1 where you trust the network between")
