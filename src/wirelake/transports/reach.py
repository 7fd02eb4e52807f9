"""Any address that streams are spoken at: which transport it means. It refuses to know anything else about them."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

from wirelake.transports import tcp, unix
from wirelake.transports.address import UNIX, Target

__all__ = ["accept", "connect", "listen"]


async def connect(target: Target, tls: ssl.SSLContext | None = None) -> tcp.TcpStream:
    """Open a connection; raises OSError (ssl.SSLError is one)."""
    if target.scheme == UNIX:
        return await unix.connect(target.host, tls)
    return await tcp.connect(target.host, target.port, tls)


async def listen(target: Target, accepted: Callable[[socket.socket], None]) -> tcp.Listener:
    """Accept connections until the listener is closed; raises OSError."""
    if target.scheme == UNIX:
        return await unix.listen(target.host, accepted)
    return await tcp.listen(target.host, target.port, accepted)


async def accept(sock: socket.socket, tls: ssl.SSLContext | None = None) -> tcp.TcpStream:
    """The stream of an accepted socket; raises OSError."""
    if sock.family == socket.AF_UNIX:
        return await tcp.accept(sock, tls, unix.UnixStream)
    return await tcp.accept(sock, tls)
