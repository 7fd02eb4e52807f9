"""Streams over Unix sockets: the same as TCP, between processes of one machine that can reach a path."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from wirelake.transports.stream import CHUNK
from wirelake.transports.tcp import BACKLOG, Listener, TcpStream

__all__ = ["UnixListener", "connect", "listen"]


class UnixListener(Listener):
    """A socket that listens at a path, and takes the path away when it is closed."""

    def __init__(self, sock: socket.socket, path: Path, accepted: Callable[[socket.socket], None]) -> None:
        super().__init__([sock], accepted)
        self._path = path

    def close(self) -> None:
        """Stop listening; closing twice does nothing."""
        if self._sockets:
            super().close()
            self._path.unlink(missing_ok=True)


async def connect(path: str) -> TcpStream:
    """Open a connection; raises OSError."""
    try:
        return TcpStream(*await asyncio.open_unix_connection(path, limit=CHUNK), remote=(path, 0))
    except ValueError as reason:  # a path that no path can be
        raise OSError(f"{path!r}: {reason}") from None


async def listen(path: str, accepted: Callable[[socket.socket], None]) -> UnixListener:
    """Accept connections at a path until the listener is closed; a socket that somebody left there is replaced, nothing else is."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await _make_room(Path(path))
        sock.bind(path)
        sock.listen(BACKLOG)
        return UnixListener(sock, Path(path), accepted)
    except BaseException:
        sock.close()
        raise


async def _make_room(path: Path) -> None:
    """Take away a socket that nobody listens at any more."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return
    except FileNotFoundError:
        return
    try:
        stream = await connect(str(path))
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
    else:
        with contextlib.suppress(OSError):
            await stream.close()
        raise OSError(errno.EADDRINUSE, "somebody listens there")
