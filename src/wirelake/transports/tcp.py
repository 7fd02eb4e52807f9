"""Streams over TCP, plain or inside TLS, on asyncio's own transports."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import re
import socket
import ssl
import struct
import termios
from collections.abc import Callable
from typing import Final

from wirelake.transports.stream import CHUNK, Address

__all__ = ["Listener", "TcpStream", "accept", "connect", "listen", "plain", "remote_host"]

log = logging.getLogger("wirelake.tcp")

WRITE_HIGH: Final = 1024 * 1024
"""Bytes queued for a peer that does not read, above which writers wait."""
BACKLOG: Final = 512
"""Connections that wait to be accepted, and how many are accepted in one go."""
ACCEPT_PAUSE: Final = 1.0
"""Seconds without accepting when the system has no descriptor left."""
TLS_TIMEOUT: Final = 10.0
"""Seconds a client may take for the handshake of TLS."""
_CLIENT_CERTIFICATE: Final = ("alert certificate required", "alert unknown ca", "alert bad certificate", "alert certificate expired")
"""Alerts with which a server refuses the certificate of a client.

With TLS 1.3 they come after the client's handshake.
"""
_INT: Final = struct.Struct("@i")


class TcpStream:
    """A connected socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        transport = writer.transport
        transport.set_write_buffer_limits(WRITE_HIGH)
        self.kind = "tls" if transport.get_extra_info("ssl_object") is not None else "tcp"
        self.local: Address = _address(transport.get_extra_info("sockname"))
        self.remote: Address = _address(transport.get_extra_info("peername"))

    async def receive(self) -> bytes:
        """See Stream."""
        return await self._reader.read(CHUNK)

    def send(self, data: bytes) -> None:
        """See Stream."""
        if not self._writer.is_closing():
            self._writer.write(data)

    @property
    def congested(self) -> bool:
        """See Stream."""
        return self.unsent > WRITE_HIGH

    @property
    def unsent(self) -> int:
        """See Stream."""
        return self._writer.transport.get_write_buffer_size()

    @property
    def unacknowledged(self) -> int:
        """See Stream: known on Linux."""
        sock = self._writer.get_extra_info("socket")
        try:
            size: int = _INT.unpack(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(_INT.size)))[0]
        except (AttributeError, OSError, ValueError):  # another system, or closed
            return 0
        return size

    async def drain(self) -> None:
        """See Stream."""
        await self._writer.drain()

    def finish(self) -> None:
        """See Stream; TLS cannot say so."""
        if self._writer.can_write_eof() and not self._writer.is_closing():
            with contextlib.suppress(OSError):
                self._writer.write_eof()

    async def close(self) -> None:
        """See Stream."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        """See Stream."""
        self._writer.transport.abort()


class Listener:
    """Listening sockets; accepted ones are passed on without a task in between that could be lost."""

    def __init__(self, sockets: list[socket.socket], accepted: Callable[[socket.socket], None]) -> None:
        name = sockets[0].getsockname()
        self.port: int = name[1] if isinstance(name, tuple) else 0
        self._sockets = sockets
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        for sock in sockets:
            self._loop.add_reader(sock, self._take, sock)

    async def run(self) -> None:
        """The loop accepts: there is nothing to do."""

    def close(self) -> None:
        """Stop listening; closing twice does nothing."""
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()
        self._sockets = []

    def _take(self, sock: socket.socket) -> None:
        for _ in range(BACKLOG):
            try:
                connection, _name = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as reason:  # no descriptor left: what waits is accepted when there may be one again
                log.warning("cannot accept: %s", plain(reason))
                self._loop.remove_reader(sock)
                self._loop.call_later(ACCEPT_PAUSE, self._resume, sock)
                return
            connection.setblocking(False)
            self._accepted(connection)

    def _resume(self, sock: socket.socket) -> None:
        if sock in self._sockets:
            self._loop.add_reader(sock, self._take, sock)


async def connect(host: str, port: int, tls: ssl.SSLContext | None = None, server_name: str | None = None) -> TcpStream:
    """Open a connection; raises OSError (ssl.SSLError is one)."""
    named = (server_name or host) if tls is not None else None
    try:
        return TcpStream(*await asyncio.open_connection(host, port, ssl=tls, server_hostname=named, limit=CHUNK))
    except OSError:
        raise
    except ValueError as reason:  # a name that no name can be, for instance with an empty label
        raise OSError(f"{host!r} is no host name: {reason}") from None


async def accept(sock: socket.socket, tls: ssl.SSLContext | None = None, kind: type[TcpStream] = TcpStream) -> TcpStream:
    """The stream of an accepted socket; raises OSError, also when there is no TLS handshake in time."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    async with asyncio.timeout(TLS_TIMEOUT):
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=tls)
    return kind(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def listen(host: str, port: int, accepted: Callable[[socket.socket], None]) -> Listener:
    """Accept connections at every address of a host until the listener is closed.

    Port 0 lets the system choose.
    """
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except ValueError as reason:
        raise OSError(f"{host!r} is no host name: {reason}") from None
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, name in dict.fromkeys(addresses):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            chosen = port or (sockets[0].getsockname()[1] if len(sockets) > 1 else 0)  # one port, whatever the address
            sock.bind((name[0], chosen, *name[2:]))
            sock.listen(BACKLOG)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return Listener(sockets, accepted)


def remote_host(sock: socket.socket) -> str:
    """Where an accepted socket comes from; empty if it is gone already, and for a Unix socket."""
    try:
        return _address(sock.getpeername())[0]
    except OSError:
        return ""


def plain(reason: OSError) -> str:
    """What went wrong, in words for people."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({reason.verify_message})"
    if isinstance(reason, ssl.SSLError):
        words = str(getattr(reason, "reason", None) or reason).replace("_", " ").lower()
        if any(alert in words for alert in _CLIENT_CERTIFICATE):
            return f"the server wants a certificate from us that it trusts ({words})"
        return f"no TLS there, or none that we accept ({words})"
    if isinstance(reason, socket.gaierror):
        return f"unknown host ({reason.strerror})"
    if reason.errno is not None:
        return os.strerror(reason.errno)
    # asyncio joins the failures of several addresses into one text.
    several = dict.fromkeys(os.strerror(int(number)) for number in re.findall(r"\[Errno (\d+)\]", str(reason)))
    return ", ".join(several) or str(reason) or "no answer in time"


def _address(name: object) -> Address:
    if isinstance(name, tuple) and len(name) >= 2:
        return (str(name[0]), int(name[1]))
    return (str(name or "unknown"), 0)  # a path
