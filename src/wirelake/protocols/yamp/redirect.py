"""0x04 system.close-redirect: the check whether a client may follow a url."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from wirelake.errors import RemoteProtocolError
from wirelake.protocols.yamp.faults import Fault

__all__ = ["ENCRYPTED", "MAX_HOPS", "SCHEMES", "follow"]

MAX_HOPS: Final = 5
"""YAMP-22: redirects in a row that are followed."""
SCHEMES: Final = ("tcp", "tls", "ws", "wss")
"""YAMP-22: where a redirect may lead."""
ENCRYPTED: Final = ("tls", "wss")


def follow(url: str, scheme: str, hops: int = 0) -> str:
    """The url, if a client that is connected by `scheme` and was redirected `hops` times may go there.

    Raises RemoteProtocolError.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as reason:  # an address of IPv6 without brackets, a port that is no number
        raise RemoteProtocolError(Fault.REDIRECT_REFUSED, f"{url!r}: {reason}") from None
    refused = None
    if hops >= MAX_HOPS:
        refused = f"{hops} redirects in a row are enough"
    elif parts.scheme not in SCHEMES:
        refused = f"{parts.scheme!r} is not one of {', '.join(SCHEMES)}"
    elif not parts.hostname or port is None or port == 0:
        refused = "host and port are needed"
    elif parts.username is not None or parts.password is not None or parts.fragment:
        refused = "it names a user or a fragment"
    elif parts.scheme.startswith("t") and (parts.path not in ("", "/") or parts.query):
        refused = f"{parts.scheme}:// has no path"
    elif scheme in ENCRYPTED and parts.scheme not in ENCRYPTED:
        refused = f"it leads from {scheme}:// to one that is not encrypted"
    if refused is not None:
        raise RemoteProtocolError(Fault.REDIRECT_REFUSED, f"{url!r}: {refused}")
    return url
