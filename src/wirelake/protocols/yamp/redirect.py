"""0x04 system.close-redirect: the check whether a client may follow a url.

A client asks for itself (`follow`), an observer for all clients (`objection`). `at_end` finds the form with one byte of size.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import msgspec

from wirelake.errors import RemoteProtocolError
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.limits import Limits
from wirelake.protocols.yamp.messages import MessageType

__all__ = ["ENCRYPTED", "MAX_HOPS", "SCHEMES", "at_end", "follow", "objection"]

MAX_HOPS: Final = 5
"""YAMP-22: redirects in a row that are followed."""
SCHEMES: Final = ("tcp", "tls", "ws", "wss")
"""YAMP-22: where a redirect may lead from any connection."""
LIKE: Final = ("udp", "unix")
"""YAMP-22: where a redirect may lead only from a connection of the same scheme."""
ENCRYPTED: Final = ("tls", "wss")
SHORT_HEADER: Final = 2
"""Bytes before the url, if its size has one byte."""
_WITH_PATH: Final = ("ws", "wss")


def at_end(left: bytes, limits: Limits) -> Limits | None:
    """YAMP-1: limits for the last bytes of a stream, if they are a redirect with one byte of size; None if they are not.

    With two bytes of size, the first is 0 for all urls under 256 bytes.
    """
    if limits.one_byte_redirect_size or len(left) < SHORT_HEADER or left[0] != MessageType.CLOSE_REDIRECT:
        return None
    is_whole = left[1] == len(left) - SHORT_HEADER and b"://" in left
    return msgspec.structs.replace(limits, one_byte_redirect_size=True) if is_whole else None


def objection(url: str) -> str | None:
    """YAMP-22: why no client may follow a url; None if some client may."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as reason:  # an address of IPv6 without brackets, a port that is no number
        return str(reason)
    if parts.scheme not in SCHEMES + LIKE:
        return f"{parts.scheme!r} is not one of {', '.join(SCHEMES + LIKE)}"
    if parts.scheme == "unix":
        return None if parts.path and not parts.netloc else "a path is needed, as in unix:///path"
    if not parts.hostname or port is None or port == 0:
        return "host and port are needed"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "it names a user or a fragment"
    return None


def follow(url: str, scheme: str, hops: int = 0) -> str:
    """The address, if a client that is connected by `scheme` and was redirected `hops` times may go there.

    A path after a port is ignored where the transport has none. Raises RemoteProtocolError.
    """
    refused = f"{hops} redirects in a row are enough" if hops >= MAX_HOPS else objection(url)
    if refused is None:
        parts = urlsplit(url)
        if parts.scheme in LIKE and parts.scheme != scheme:
            refused = f"it leads from {scheme}:// to {parts.scheme}://, which only a client of its like follows"
        elif scheme in ENCRYPTED and parts.scheme not in ENCRYPTED:
            refused = f"it leads from {scheme}:// to one that is not encrypted"
        else:
            return url if parts.scheme in ("unix", *_WITH_PATH) else f"{parts.scheme}://{parts.netloc}"
    raise RemoteProtocolError(Fault.REDIRECT_REFUSED, f"{url!r}: {refused}")
