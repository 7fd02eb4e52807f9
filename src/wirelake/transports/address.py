"""Addresses as people write them: `tcp://host:port`, `tls://host`, `tcp://[::1]:5040`, `unix:/path` where that is spoken."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from wirelake.errors import UsageError

__all__ = ["UNIX", "Target", "parse"]


UNIX: Final = "unix"
"""The scheme whose host is a path and whose port says nothing."""


class Target(NamedTuple):
    """Where to connect or listen, and how."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        if self.scheme == UNIX:
            return f"{UNIX}:{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse(text: str, default_port: int, schemes: tuple[str, ...] = ("tcp", "tls")) -> Target:
    """The target a text names; a bare `host` or `host:port` is tcp."""
    if UNIX in schemes and text.startswith(f"{UNIX}:"):
        return _parse_path(text)
    full = text if "://" in text else f"tcp://{text}"
    try:
        parts = urlsplit(full)
    except ValueError:
        raise UsageError(f"{text!r} is no address: write an IPv6 address as [::1]") from None
    try:
        port = parts.port
    except ValueError:
        raise UsageError(f"{text!r} has no valid port: use a number up to 65535, and write an IPv6 address as [::1]") from None
    if parts.scheme not in schemes:
        raise UsageError(f"{text!r}: {parts.scheme!r} is not one of {', '.join(schemes)}")
    if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(f"{text!r} is no address: write {schemes[0]}://host:port")
    return Target(parts.scheme, parts.hostname, default_port if port is None else port)


def _parse_path(text: str) -> Target:
    """`unix:/path`, `unix:path` or `unix:///path`."""
    path = text.removeprefix(f"{UNIX}:")
    if path.startswith("//"):
        path = path[2:]
    if not path or "\0" in path:
        raise UsageError(f"{text!r} is no address: write {UNIX}:/path/to/socket")
    return Target(UNIX, path, 0)
