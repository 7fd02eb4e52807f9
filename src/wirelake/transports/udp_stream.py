"""A conversation of two over datagrams, behind the interface of a stream: each message is a datagram, each receipt is one (YAMP-15).

Nothing is repeated, ordered or acknowledged here: who talks over it must take loss. A server has one endpoint, and a stream for each
address that somebody spoke from.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from wirelake.transports import udp
from wirelake.transports.stream import Address

__all__ = ["DatagramListener", "DatagramStream", "connect", "listen"]

MAX_WAITING: Final = 1024
"""Datagrams of one peer that wait to be received; more are dropped, and counted."""
GRACE: Final = 2.0
"""Seconds that an address is remembered after its stream was closed, so that a late datagram does not open another."""


MAX_PAST: Final = 4096
"""Addresses remembered so at most: who floods from many fills no memory."""


class DatagramStream:
    """What two endpoints say to each other."""

    kind = "udp"
    congested = False
    unsent = 0
    unacknowledged = 0

    def __init__(self, endpoint: udp.UdpEndpoint, remote: Address) -> None:
        self.local = endpoint.local
        self.remote = remote
        self.lost = 0
        """Datagrams that found no room, here or in the system."""
        self._endpoint = endpoint
        self._waiting: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._finished = False

    def put(self, data: bytes) -> None:
        """A datagram came from there."""
        if len(self._waiting) >= MAX_WAITING:
            self.lost += 1
            return
        self._waiting.append(data)
        self._changed.set()

    async def receive(self) -> bytes:
        """See Stream: one datagram; nothing once it is finished."""
        while not self._waiting and not self._finished:
            self._changed.clear()
            await self._arrival()
        return self._waiting.popleft() if self._waiting else b""

    def send(self, data: bytes) -> None:
        """See Stream: one datagram, gone or lost."""
        if not self._finished and not self._endpoint.send(data, self.remote):
            self.lost += 1

    def send_messages(self, messages: list[bytes]) -> None:
        """See MessageStream."""
        for message in messages:
            self.send(message)

    async def drain(self) -> None:
        """See Stream: there is nothing to wait for."""

    def finish(self) -> None:
        """See Stream: nobody would hear of it, so nothing more is received either."""
        self._finished = True
        self._changed.set()

    async def close(self) -> None:
        """See Stream."""
        self.abort()

    def abort(self) -> None:
        """See Stream."""
        self.finish()
        self._waiting.clear()

    async def _arrival(self) -> None:
        """Wait until a datagram may have come."""
        await self._changed.wait()


class DialledStream(DatagramStream):
    """A client's stream: it has a socket of its own, and hears only its server."""

    async def _arrival(self) -> None:
        for data, source in await self._endpoint.receive():
            if source == self.remote and data:
                self.put(data)

    def finish(self) -> None:
        """See Stream."""
        super().finish()
        self._endpoint.abort()


class AcceptedStream(DatagramStream):
    """A server's stream to one of many addresses."""

    def __init__(self, endpoint: udp.UdpEndpoint, remote: Address, gone: Callable[[Address], None]) -> None:
        super().__init__(endpoint, remote)
        self._gone = gone

    def abort(self) -> None:
        """See Stream."""
        super().abort()
        self._gone(self.remote)


class DatagramListener:
    """An endpoint whose datagrams are dealt to one stream for each remote address."""

    def __init__(self, endpoint: udp.UdpEndpoint, accepted: Callable[[DatagramStream], None]) -> None:
        self.port = endpoint.local[1]
        self._endpoint = endpoint
        self._accepted = accepted
        self._streams: dict[Address, AcceptedStream] = {}
        self._past: set[Address] = set()
        self._listening = True
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """See Listener: deal what arrives."""
        while datagrams := await self._endpoint.receive():
            for data, source in datagrams:
                if data:  # an empty datagram says nothing
                    self._deal(data, source)

    def close(self) -> None:
        """See Listener: take no new conversations; the socket is closed with the last stream."""
        self._listening = False
        self._end_if_idle()

    # Inside.

    def _deal(self, data: bytes, source: Address) -> None:
        stream = self._streams.get(source)
        if stream is None:
            if not self._listening or source in self._past:
                return
            stream = self._streams[source] = AcceptedStream(self._endpoint, source, self._gone)
            self._accepted(stream)
        stream.put(data)

    def _gone(self, remote: Address) -> None:
        if self._streams.pop(remote, None) is not None and self._listening and len(self._past) < MAX_PAST:
            self._past.add(remote)
            self._loop.call_later(GRACE, self._past.discard, remote)
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self._listening and not self._streams:
            self._endpoint.abort()


async def connect(host: str, port: int) -> DatagramStream:
    """A stream to a host from a socket of its own; raises OSError."""
    remote = await udp.resolve(host, port)
    local = "::" if udp.family_of(remote[0]) == socket.AF_INET6 else "0.0.0.0"  # noqa: S104 - whichever way leads there
    return DialledStream(await udp.listen(local, 0), remote)


async def listen(host: str, port: int, accepted: Callable[[DatagramStream], None]) -> DatagramListener:
    """Deal datagrams that come to a host and port (0: any that is free) to streams until the listener is closed; raises OSError."""
    return DatagramListener(await udp.listen(host, port), accepted)
