"""Streams over Unix sockets: like TCP, but the address is a path on this machine.

A socket file left by a dead process is replaced; one with a listener is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

from wirelake.transports.tcp import BACKLOG, Listener, TcpStream

__all__ = ["UnixListener", "UnixStream", "connect", "listen"]


class UnixStream(TcpStream):
    """A connected Unix socket."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See TcpStream."""
        super().connection_made(transport)
        if self.kind == "tcp":
            self.kind = "unix"


class UnixListener(Listener):
    """A path that listens; it is removed when it does no more."""

    def __init__(self, sock: socket.socket, path: Path, accepted: Callable[[socket.socket], None]) -> None:
        super().__init__([sock], accepted)
        self._path = path

    def close(self) -> None:
        """See Listener."""
        if self._sockets:
            with contextlib.suppress(OSError):
                self._path.unlink()
        super().close()


async def connect(path: str, tls: ssl.SSLContext | None = None) -> UnixStream:
    """Open a connection; raises OSError."""
    named = "localhost" if tls is not None else None
    stream = UnixStream()
    await asyncio.get_running_loop().create_unix_connection(lambda: stream, path, ssl=tls, server_hostname=named)
    return stream


async def listen(path: str, accepted: Callable[[socket.socket], None]) -> UnixListener:
    """Accept connections at a path until the listener is closed.

    Raises OSError, also if the path has a listener already.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        place = Path(path)
        _clear(place)
        sock.bind(path)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return UnixListener(sock, place, accepted)


def _clear(path: Path) -> None:
    """Remove a socket file without a listener; any other file stays, and binding then fails."""
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(str(path)) == errno.ECONNREFUSED:
            path.unlink()
