"""Addresses as users write them, such as `tcp://host:port` or `unix:///path`.

Others are `tls://host`, `ws://[::1]:8080/path`, and `xmpp://user@domain/peer@domain` (RFC 5122): an account, and the peer to connect to.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from wirelake.errors import UsageError

__all__ = ["ENCRYPTED", "UNIX", "XMPP", "Target", "parse"]


UNIX: Final = "unix"
"""The scheme whose host is a path; its port has no meaning."""

XMPP: Final = "xmpp"
"""The scheme whose host is an account, and whose path is another."""

ENCRYPTED: Final = ("tls", "wss")
"""Schemes with TLS under them."""
_WITH_PATH: Final = ("ws", "wss")
"""Schemes whose address goes on after the port."""


class Target(NamedTuple):
    """Where to connect or listen, and how."""

    scheme: str
    host: str
    """A name or an address; of a Unix socket, its path; of XMPP, an account."""
    port: int
    """Of XMPP, 0 if DNS shall say."""
    path: str = ""
    """What follows the port, with its query."""

    def __str__(self) -> str:
        if self.scheme == UNIX:
            return f"{UNIX}://{self.host}"
        if self.scheme == XMPP:
            return f"{XMPP}://{self.host}{f':{self.port}' if self.port else ''}{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse(text: str, default_port: int | None, schemes: tuple[str, ...] = ("tcp", "tls")) -> Target:
    """The target a text names; a bare `host` or `host:port` is the first scheme.

    Without a default port, one must be named.
    """
    if UNIX in schemes and text.startswith(f"{UNIX}:"):
        return _parse_path(text)
    full = text if "://" in text else f"{schemes[0]}://{text}"
    try:
        parts = urlsplit(full)
    except ValueError:
        raise UsageError(f"{text!r} is no address: write an IPv6 address as [::1]") from None
    if parts.scheme not in schemes:
        raise UsageError(f"{text!r}: {parts.scheme!r} is not one of {', '.join(schemes)}")
    try:
        port = parts.port
    except ValueError:
        raise UsageError(f"{text!r} has no valid port: use a number up to 65535, and write an IPv6 address as [::1]") from None
    if parts.scheme == XMPP:
        return _parse_account(text, parts, port or 0)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    if not parts.hostname or (path not in ("", "/") and parts.scheme not in _WITH_PATH) or parts.fragment or "@" in parts.netloc:
        raise UsageError(f"{text!r} is no address: write {schemes[0]}://host:port")
    if port is None and default_port is None:
        raise UsageError(f"{text!r} names no port: write {parts.scheme}://host:port")
    return Target(parts.scheme, parts.hostname, port if port is not None else default_port or 0, path if parts.scheme in _WITH_PATH else "")


def _parse_path(text: str) -> Target:
    """`unix:///path`, `unix:/path` or `unix:path`."""
    path = text.removeprefix(f"{UNIX}:")
    if path.startswith("//"):
        path = path[2:]
    if not path or "\0" in path:
        raise UsageError(f"{text!r} is no address: write {UNIX}:///path/to/socket")
    return Target(UNIX, path, 0)


def _parse_account(text: str, parts: SplitResult, port: int) -> Target:
    """`xmpp://user@domain[:port][/peer@domain]`; a password has no place in an address."""
    user, path = unquote(parts.username or ""), unquote(parts.path)
    if not user or not parts.hostname or parts.password is not None or parts.query or parts.fragment:
        raise UsageError(
            f"{_without_password(text, parts)!r} is no address: write {XMPP}://user@domain, or {XMPP}://user@domain/peer@domain"
        )
    return Target(XMPP, f"{user}@{parts.hostname}", port, "" if path == "/" else path)


def _without_password(text: str, parts: SplitResult) -> str:
    return text.replace(f":{parts.password}@", ":…@") if parts.password else text
