"""Chooses the transport of an address, for connecting and listening."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from wirelake.extras import need_for_address
from wirelake.transports import tcp, udp_stream, unix, websocket
from wirelake.transports.address import UNIX, Target
from wirelake.transports.stream import Stream

__all__ = ["SCHEMES", "Arrival", "Listener", "connect", "listen"]

SCHEMES: Final = ("tcp", "tls", "ws", "wss", UNIX, "udp")
"""What an address may begin with."""


class Listener(Protocol):
    """Something that listens."""

    port: int
    """Where, if it has a port."""

    async def run(self) -> None:
        """What it has to do itself as long as there are connections; returns at once if that is nothing."""

    def close(self) -> None:
        """Stop listening; closing twice does nothing."""


class Arrival(Protocol):
    """A new connection, before the handshake of its transport."""

    host: str
    """The remote host."""

    async def stream(self) -> Stream:
        """The stream, once the transport's own handshake is done; raises OSError if it fails."""

    def close(self) -> None:
        """Reject the connection."""


class SocketArrival:
    """A socket that was accepted."""

    def __init__(self, sock: socket.socket, scheme: str, tls: ssl.SSLContext | None, origins: Sequence[str] = ()) -> None:
        self.host = tcp.remote_host(sock)
        self._sock = sock
        self._scheme = scheme
        self._tls = tls
        self._origins = origins

    async def stream(self) -> Stream:
        """See Arrival."""
        stream = await tcp.accept(self._sock, self._tls, unix.UnixStream if self._scheme == UNIX else tcp.TcpStream)
        return await websocket.accept(stream, self._scheme, origins=self._origins) if self._scheme in ("ws", "wss") else stream

    def close(self) -> None:
        """See Arrival."""
        self._sock.close()


class DatagramArrival:
    """A remote address that sent a first datagram."""

    def __init__(self, stream: udp_stream.DatagramStream) -> None:
        self.host = stream.remote[0]
        self._stream = stream

    async def stream(self) -> Stream:
        """See Arrival."""
        return self._stream

    def close(self) -> None:
        """See Arrival."""
        self._stream.abort()


async def connect(target: Target, tls: ssl.SSLContext | None = None) -> Stream:
    """Open a connection; raises OSError, and MissingExtra before anything is opened."""
    need_for_address(f"{target.scheme}://")
    if target.scheme == UNIX:
        return await unix.connect(target.host)
    if target.scheme == "udp":
        return await udp_stream.connect(target.host, target.port)
    stream = await tcp.connect(target.host, target.port, tls)
    return await websocket.connect(stream, target) if target.scheme in ("ws", "wss") else stream


async def listen(
    target: Target,
    tls: ssl.SSLContext | None,
    accepted: Callable[[Arrival], None],
    screen: udp_stream.Screen | None = None,
    origins: Sequence[str] = (),
) -> Listener:
    """Accept connections until the listener is closed.

    Raises OSError, and MissingExtra before anything listens.

    With `screen`, addresses that send datagrams get no stream before they have shown that they hear the answers. `origins` are those of
    web pages that may connect, beside pages of the same host.
    """
    need_for_address(f"{target.scheme}://")
    if target.scheme == "udp":
        return await udp_stream.listen(target.host, target.port, lambda stream: accepted(DatagramArrival(stream)), screen)

    def take(sock: socket.socket) -> None:
        accepted(SocketArrival(sock, target.scheme, tls, origins))

    if target.scheme == UNIX:
        return await unix.listen(target.host, take)
    return await tcp.listen(target.host, target.port, take)
