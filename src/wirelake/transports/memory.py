"""Streams and datagrams inside one process, for tests and for programs that hold both sides."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from typing import Final

from wirelake.transports.datagram import BATCH, Datagram
from wirelake.transports.stream import Address

__all__ = ["MemoryEndpoint", "MemoryNetwork", "MemoryStream", "pair"]

HIGH: Final = 256 * 1024
"""Bytes in flight above which a stream is congested."""


class MemoryStream:
    """One end of a pair."""

    unacknowledged = 0

    def __init__(self, port: int, cut: int | None = None) -> None:
        self.kind = "memory"
        self.local: Address = ("memory", port)
        self.remote: Address = ("memory", 3 - port)
        self._cut = cut
        self._incoming = bytearray()
        self._finished = False
        """This end sends no more."""
        self._closed = False
        self._broken = False
        self._changed = asyncio.Event()
        self._other: MemoryStream = self
        self.abandoned = 0
        """See Stream: what the other end had not taken."""

    async def receive(self) -> bytes:
        """See Stream; gives at most `cut` bytes at a time."""
        while not self._incoming and not (self._other._finished or self._closed or self._broken):
            await self._change()
        if self._broken:
            raise ConnectionResetError("the connection was aborted")
        size = len(self._incoming) if self._cut is None else min(self._cut, len(self._incoming))
        data = bytes(self._incoming[:size])
        del self._incoming[:size]
        self._other._changed.set()
        return data

    def send(self, data: bytes) -> None:
        """See Stream."""
        if not (self._finished or self._broken or self._other._closed):
            self._other._incoming += data
            self._other._changed.set()
        else:
            self.abandoned += len(data)

    @property
    def congested(self) -> bool:
        """See Stream."""
        return self.unsent > HIGH

    @property
    def unsent(self) -> int:
        """See Stream."""
        return len(self._other._incoming)

    async def drain(self) -> None:
        """See Stream."""
        while self.congested and not self._broken:
            await self._change()
        if self._broken:
            raise ConnectionResetError("the connection was aborted")

    def finish(self) -> None:
        """See Stream."""
        self._finished = True
        self._other._changed.set()

    def watch_path(self, seconds: float) -> None:
        """See Stream."""

    async def close(self) -> None:
        """See Stream."""
        self.finish()
        self._closed = True
        self._incoming.clear()
        self._changed.set()

    def abort(self) -> None:
        """See Stream; what is closed already stays as it is."""
        for end in (self, self._other) if not self._closed else ():
            end._broken = True
            end._other.abandoned += len(end._incoming)
            end._incoming.clear()
            end._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def pair(cut: int | None = None) -> tuple[MemoryStream, MemoryStream]:
    """Two connected ends; with `cut`, bytes arrive in pieces of that size."""
    one, two = MemoryStream(1, cut), MemoryStream(2, cut)
    one._other, two._other = two, one
    return one, two


class MemoryNetwork:
    """Datagrams inside one process: endpoints by address.

    A datagram to an unknown address is dropped, as anywhere else.
    """

    def __init__(self, max_queue: int = 8192) -> None:
        self.max_queue = max_queue
        self.endpoints: dict[Address, MemoryEndpoint] = {}

    def endpoint(self, name: str, port: int = 1) -> MemoryEndpoint:
        """A new endpoint at an address that must be free."""
        if (name, port) in self.endpoints:
            raise OSError(errno.EADDRINUSE, f"{name}:{port} is in use")
        self.endpoints[name, port] = found = MemoryEndpoint(self, (name, port))
        return found


class MemoryEndpoint:
    """One place in a network of memory."""

    def __init__(self, network: MemoryNetwork, local: Address) -> None:
        self.kind = "memory"
        self.local = local
        self.lost = 0
        self.unsent = 0
        self._network = network
        self._queue: deque[Datagram] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    async def receive(self) -> list[Datagram]:
        """See Endpoint."""
        while not self._queue and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        return [self._queue.popleft() for _ in range(min(len(self._queue), BATCH))]

    def send(self, data: bytes, to: Address) -> bool:
        """See Endpoint."""
        other = self._network.endpoints.get(to)
        if self._closed:
            self.unsent += 1
        elif other is not None:
            if len(other._queue) < self._network.max_queue:
                other._queue.append((data, self.local))
                other._changed.set()
            else:
                other.lost += 1
        return True

    async def ready(self) -> None:
        """See Endpoint: it never waits."""

    async def close(self) -> None:
        """See Endpoint."""
        self._closed = True
        self._queue.clear()
        self._network.endpoints.pop(self.local, None)
        self._changed.set()
