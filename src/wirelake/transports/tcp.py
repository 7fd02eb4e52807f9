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
import sys
import termios
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from wirelake.transports.stream import CHUNK, Address

__all__ = ["Listener", "TcpStream", "accept", "connect", "listen", "plain", "remote_host", "watch_path"]

log = logging.getLogger("wirelake.tcp")

WRITE_HIGH: Final = 1024 * 1024
"""Bytes queued for a peer that does not read, above which writers wait."""
READ_HIGH: Final = 2 * CHUNK
"""Bytes that arrived and nothing took, above which the socket is not read."""
BACKLOG: Final = 512
"""Connections that wait to be accepted, and how many are accepted in one go."""
ACCEPT_PAUSE: Final = 1.0
"""Seconds without accepting when the system has no descriptor left."""
PROBES: Final = 5
"""Keep-alive probes without an answer, after which the other host counts as unreachable."""
LONGEST_IDLE: Final = 32_767
"""Seconds that Linux takes at most between two probes."""
TLS_TIMEOUT: Final = 10.0
"""Seconds a client may take for the handshake of TLS."""
_CLIENT_CERTIFICATE: Final = ("alert certificate required", "alert unknown ca", "alert bad certificate", "alert certificate expired")
"""Alerts with which a server refuses the certificate of a client.

With TLS 1.3 they come after the client's handshake.
"""
_ACKED: Final = struct.Struct("@120xQ")
"""What `TCP_INFO` says on Linux, up to the bytes that were acknowledged."""
_INT: Final = struct.Struct("@i")
_ZERO: Final = bytes(_INT.size)


class TcpStream(asyncio.Protocol):
    """A connected socket; asyncio calls it when something happens to the connection."""

    congested = False
    """See Stream."""

    def __init__(self) -> None:
        self.kind = "tcp"
        self.abandoned = 0
        """See Stream. After a reset inside TLS the system's own queue is unknown, and counts as sent."""
        self._written = 0
        """Bytes given to the transport."""
        self._queued = 0
        """Bytes that waited here after the last of them: a reset throws away what still does."""
        self._acked = 0
        """Bytes that the system had seen acknowledged before ours."""
        self.local: Address = ("unknown", 0)
        self.remote: Address = ("unknown", 0)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._socket: socket.socket
        self._unread: deque[bytes] = deque()
        """What arrived and was not handed out."""
        self._unread_size = 0
        self._is_over = False
        """The peer sends no more."""
        self._is_lost = False
        self._is_finished = False
        """We send no more."""
        self._error: Exception | None = None
        """Why the connection broke, if it did."""
        self._arrived: Callable[[bytes], None] | None = None
        self._ended: Callable[[OSError | None], None] = _ignore_end
        self._is_paused = False
        """Our reader does not want more now."""
        self._is_stopped = False
        """The transport does not read."""
        self._reader: asyncio.Future[None] | None = None
        self._writers: set[asyncio.Future[None]] = set()
        self._gone = asyncio.Event()

    async def receive(self) -> bytes:
        """See Stream."""
        while not self._unread:
            if self._error is not None:
                raise _as_os_error(self._error)
            if self._is_over:
                return b""
            self._read_on()
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = self._unread.popleft() if len(self._unread) == 1 else self._join()
        self._unread_size -= len(data)
        self._read_on()
        return data

    def attach(self, arrived: Callable[[bytes], None], ended: Callable[[OSError | None], None]) -> None:
        """See PushStream."""
        self._arrived, self._ended, self._is_paused = arrived, ended, False
        self._loop.call_soon(self._hand_out)

    def detach(self) -> None:
        """See PushStream."""
        self._arrived, self._ended, self._is_paused = None, _ignore_end, False

    def pause(self) -> None:
        """See PushStream."""
        self._is_paused = True
        self._stop_reading()

    def resume(self) -> None:
        """See PushStream."""
        if self._is_paused:
            self._is_paused = False
            self._loop.call_soon(self._hand_out)

    def send(self, data: bytes) -> None:
        """See Stream."""
        if self._is_finished or self._transport.is_closing():
            self.abandoned += len(data)
            return
        self._transport.write(data)
        self._written += len(data)
        self._queued = self._transport.get_write_buffer_size()

    @property
    def unsent(self) -> int:
        """See Stream."""
        return self._transport.get_write_buffer_size()

    @property
    def unacknowledged(self) -> int:
        """See Stream: known on Linux."""
        return 0 if self._transport.is_closing() else self._in_system()  # its descriptor may belong to another file by now

    async def drain(self) -> None:
        """See Stream."""
        while True:
            if self._error is not None:
                raise _as_os_error(self._error)
            if self._is_lost:
                raise ConnectionResetError("the connection is closed")
            if not self.congested:
                return
            writer: asyncio.Future[None] = self._loop.create_future()
            self._writers.add(writer)
            try:
                await writer
            finally:
                self._writers.discard(writer)

    def finish(self) -> None:
        """See Stream; TLS cannot say so."""
        self._is_finished = True
        if self._transport.can_write_eof() and not self._transport.is_closing():
            with contextlib.suppress(OSError):
                self._transport.write_eof()

    def watch_path(self, seconds: float) -> None:
        """See Stream."""
        if not self._transport.is_closing():
            watch_path(self._socket, seconds)

    async def close(self) -> None:
        """See Stream."""
        self._transport.close()
        await self._gone.wait()

    def abort(self) -> None:
        """See Stream."""
        if not self._is_lost:
            self._abandon(self._transport.get_write_buffer_size() + self._in_system())
        self._transport.abort()

    # Calls of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshakes of TCP and TLS are done."""
        self._transport = cast(asyncio.Transport, transport)
        self._socket = transport.get_extra_info("socket")
        self._transport.set_write_buffer_limits(WRITE_HIGH)
        if transport.get_extra_info("ssl_object") is not None:
            self.kind = "tls"
        self.local = _address(transport.get_extra_info("sockname"))
        self.remote = _address(transport.get_extra_info("peername"))
        self._acked = self._acknowledged() or 0

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if self._arrived is not None and not self._is_paused and not self._unread:
            self._arrived(data)
            return
        self._unread.append(data)
        self._unread_size += len(data)
        if self._unread_size > READ_HIGH:
            self._stop_reading()
        self._wake_reader()

    def eof_received(self) -> bool:
        """The peer sends no more; it may still read, unless TLS is spoken."""
        self._end()
        return self.kind != "tls"

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is closed."""
        if error is not None and not self._is_lost:
            self._abandon(self._unacked())
        self._error, self._is_lost = self._error or error, True
        self.congested = False
        self._end()
        self._wake_writers()
        self._gone.set()

    def pause_writing(self) -> None:
        """More than WRITE_HIGH bytes wait to be sent."""
        self.congested = True

    def resume_writing(self) -> None:
        """A quarter of that is left."""
        self.congested = False
        self._queued = self._transport.get_write_buffer_size()
        self._wake_writers()

    # Inside.

    def _abandon(self, size: int) -> None:
        """Count what did not leave: once, by whatever ends the connection first."""
        self.abandoned += max(0, min(size, self._written))
        self._written = 0

    def _in_system(self) -> int:
        """Bytes in the system's queue; 0 where that is unknown."""
        try:
            size: int = _INT.unpack(fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, _ZERO))[0]
        except (AttributeError, OSError, ValueError):  # another system, or the socket is closed
            return 0
        return size

    def _unacked(self) -> int:
        """What was not acknowledged when the connection broke. The transport has thrown away its own queue by now."""
        acked = self._acknowledged() if self.kind == "tcp" else None
        return self._queued + self._in_system() if acked is None else self._written - (acked - self._acked)

    def _acknowledged(self) -> int | None:
        """Bytes that the other system acknowledged; None where that is unknown."""
        try:
            known = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED.size)
            acked: int = _ACKED.unpack(known)[0]
        except (AttributeError, OSError, struct.error):  # another system, another kind of socket, or it is closed
            return None
        return acked

    def _join(self) -> bytes:
        """As much as was asked for of what arrived."""
        whole = b"".join(self._unread)
        self._unread.clear()
        if len(whole) > CHUNK:
            self._unread.append(whole[CHUNK:])
        return whole[:CHUNK]

    def _hand_out(self) -> None:
        """Pass on what arrived while nothing took it, then the end."""
        while self._unread and self._arrived is not None and not self._is_paused:
            data = self._unread.popleft()
            self._unread_size -= len(data)
            self._arrived(data)
        if self._arrived is None or self._is_paused:
            return
        if self._is_over:
            ended, self._ended = self._ended, _ignore_end
            ended(None if self._error is None else _as_os_error(self._error))
        else:
            self._read_on()

    def _end(self) -> None:
        self._is_over = True
        self._wake_reader()
        if self._arrived is not None and not self._is_paused:
            self._hand_out()

    def _stop_reading(self) -> None:
        if not self._is_stopped and not self._transport.is_closing():
            self._is_stopped = True
            self._transport.pause_reading()

    def _read_on(self) -> None:
        if self._is_stopped and self._unread_size <= READ_HIGH and not self._transport.is_closing():
            self._is_stopped = False
            self._transport.resume_reading()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_writers(self) -> None:
        for writer in self._writers:
            if not writer.done():
                writer.set_result(None)


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
        stream = TcpStream()
        await asyncio.get_running_loop().create_connection(lambda: stream, host, port, ssl=tls, server_hostname=named)
    except OSError:
        raise
    except ValueError as reason:  # a name that no name can be, for instance with an empty label
        raise OSError(f"{host!r} is no host name: {reason}") from None
    return stream


async def accept(sock: socket.socket, tls: ssl.SSLContext | None = None, kind: type[TcpStream] = TcpStream) -> TcpStream:
    """The stream of an accepted socket; raises OSError, also when there is no TLS handshake in time."""
    stream = kind()
    async with asyncio.timeout(TLS_TIMEOUT):
        await asyncio.get_running_loop().connect_accepted_socket(lambda: stream, sock, ssl=tls)
    return stream


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


def watch_path(sock: socket.socket, seconds: float) -> None:
    """Let the system end a TCP connection when the other host was unreachable for so long.

    Bytes that were sent must be acknowledged in this time (`TCP_USER_TIMEOUT`, RFC 5482). A silent connection is probed after half of it
    (`SO_KEEPALIVE`). Systems other than Linux only probe, at times of their own.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        interval = max(1, round(seconds / 2 / PROBES))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, round(1000 * seconds)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, min(round(seconds / 2), LONGEST_IDLE)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, min(interval, LONGEST_IDLE))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)


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


def _as_os_error(reason: Exception) -> OSError:
    return reason if isinstance(reason, OSError) else ConnectionResetError(str(reason))


def _ignore_end(_: OSError | None) -> None:
    """Nothing wants to know."""


def _address(name: object) -> Address:
    if isinstance(name, tuple) and len(name) >= 2:
        return (str(name[0]), int(name[1]))
    return (str(name or "unknown"), 0)  # a path
