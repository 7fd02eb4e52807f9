"""Raw ends of connections, which follow no rules, and who connects and listens for them; each socket is closed when its test is over.

A task that is cancelled before it has begun runs none of its code, so whoever listens closes what it accepted by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar


class RawEnd:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def reset(self) -> None:
        """Close so that the other side gets a reset: SO_LINGER with no time to linger."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        """Close; twice does nothing."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


R = TypeVar("R", bound=RawEnd)


def place(address: str) -> tuple[str, int]:
    """Host and port of an IPv4 address."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    return host, int(port)


@contextlib.asynccontextmanager
async def connecting(kind: type[R], address: str) -> AsyncIterator[R]:
    """A raw end that connects."""
    raw = kind(*await asyncio.open_connection(*place(address)))
    try:
        yield raw
    finally:
        await raw.close()


@contextlib.asynccontextmanager
async def listening(kind: type[R], talk: Callable[[R], Awaitable[None]]) -> AsyncIterator[str]:
    """Raw ends that are connected to: `talk` is what each of them does, and then it closes. Gives the address."""
    loop = asyncio.get_running_loop()
    accepted: list[socket.socket] = []
    tasks: list[asyncio.Task[None]] = []

    async def one(connection: socket.socket) -> None:
        raw = kind(*await asyncio.open_connection(sock=connection))
        try:
            await talk(raw)
        finally:
            await raw.close()

    def accept() -> None:
        connection, _ = listener.accept()
        accepted.append(connection)
        tasks.append(group.create_task(one(connection)))

    with contextlib.ExitStack() as ends, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        ends.callback(lambda: [connection.close() for connection in accepted])
        async with asyncio.TaskGroup() as group:
            loop.add_reader(listener, accept)
            try:
                yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                loop.remove_reader(listener)
                for task in tasks:
                    task.cancel()
