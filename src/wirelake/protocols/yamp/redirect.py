"""0x04 system.close-redirect: the check whether a client may follow a url.

A client asks for itself (`follow`), an observer for all clients (`objection`).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from wirelake.errors import RemoteProtocolError
from wirelake.protocols.yamp.faults import Fault

__all__ = ["ENCRYPTED", "MAX_HOPS", "SCHEMES", "follow", "objection"]

MAX_HOPS: Final = 5
"""YAMP-22: redirects in a row that are followed."""
SCHEMES: Final = ("tcp", "tls", "ws", "wss")
"""YAMP-22: where a redirect may lead."""
ENCRYPTED: Final = ("tls", "wss")


def objection(url: str) -> str | None:
    """YAMP-22: why no client may follow a url; None if some client may."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as reason:  # an address of IPv6 without brackets, a port that is no number
        return str(reason)
    if parts.scheme not in SCHEMES:
        return f"{parts.scheme!r} is not one of {', '.join(SCHEMES)}"
    if not parts.hostname or port is None or port == 0:
        return "host and port are needed"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "it names a user or a fragment"
    if parts.scheme.startswith("t") and (parts.path not in ("", "/") or parts.query):
        return f"{parts.scheme}:// has no path"
    return None


def follow(url: str, scheme: str, hops: int = 0) -> str:
    """The url, if a client that is connected by `scheme` and was redirected `hops` times may go there.

    Raises RemoteProtocolError.
    """
    refused = f"{hops} redirects in a row are enough" if hops >= MAX_HOPS else objection(url)
    if refused is None and scheme in ENCRYPTED and urlsplit(url).scheme not in ENCRYPTED:
        refused = f"it leads from {scheme}:// to one that is not encrypted"
    if refused is not None:
        raise RemoteProtocolError(Fault.REDIRECT_REFUSED, f"{url!r}: {refused}")
    return url
