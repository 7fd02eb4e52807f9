"""Addresses as people write them: `tcp://host:port`, `tls://host`, `tcp://[::1]:5040`."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from wirelake.errors import UsageError

__all__ = ["Target", "parse"]


class Target(NamedTuple):
    """Where to connect or listen, and how."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse(text: str, default_port: int, schemes: tuple[str, ...] = ("tcp", "tls")) -> Target:
    """The target a text names; a bare `host` or `host:port` is tcp."""
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
