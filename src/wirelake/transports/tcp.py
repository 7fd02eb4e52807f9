"""Streams over TCP, plain or inside TLS, on asyncio's own transports."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

from wirelake.transports.stream import CHUNK, Address

__all__ = ["TcpStream", "connect", "listen"]

WRITE_HIGH: Final = 1024 * 1024
"""Bytes queued for a peer that does not read, above which writers wait."""


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
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

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
        with contextlib.suppress(OSError, ssl.SSLError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        """See Stream."""
        self._writer.transport.abort()


async def connect(host: str, port: int, tls: ssl.SSLContext | None = None, server_name: str | None = None) -> TcpStream:
    """Open a connection; raises OSError (ssl.SSLError is one)."""
    named = (server_name or host) if tls is not None else None
    return TcpStream(*await asyncio.open_connection(host, port, ssl=tls, server_hostname=named, limit=CHUNK))


async def listen(host: str, port: int, accepted: Callable[[TcpStream], None], tls: ssl.SSLContext | None = None) -> asyncio.Server:
    """Accept connections until the server is closed; port 0 lets the system choose."""

    def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted(TcpStream(reader, writer))

    return await asyncio.start_server(taken, host, port, ssl=tls, limit=CHUNK)


def _address(name: object) -> Address:
    if isinstance(name, tuple) and len(name) >= 2:
        return (str(name[0]), int(name[1]))
    return (str(name or "unknown"), 0)
