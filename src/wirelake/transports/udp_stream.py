"""Messages over UDP behind the stream interface: one message per datagram (YAMP-15).

Nothing is repeated, ordered or acknowledged: protocols on top must accept loss. A server has one endpoint, and a stream for each remote
address.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from wirelake.transports import udp
from wirelake.transports.stream import Address

__all__ = ["DatagramListener", "DatagramStream", "Screen", "Screened", "connect", "listen"]

log = logging.getLogger("wirelake.udp")

MAX_WAITING: Final = 1024
"""Datagrams of one peer that wait to be received; more are dropped, and counted."""
GRACE: Final = 2.0
"""Seconds that a closed stream's address is kept, so that a late datagram does not open another."""


MAX_PAST: Final = 4096
"""Addresses kept at most, so that a flood from many fills no memory."""
MAX_UNPROVEN: Final = 4096
"""Addresses at most that were answered and are not verified; the oldest is forgotten first."""
PROBE_DELAY: Final = 0.05
"""Seconds after the answer until a probe is sent to an address that has not spoken again."""


class Screened(NamedTuple):
    """What the first datagram of an address is answered with before there is a stream for it."""

    answers: tuple[bytes, ...]
    probe: bytes = b""
    """Asks the address to prove that it receives us; empty if it gets no stream."""
    proof: bytes = b""
    """What a probe is answered with; it is not handed on."""
    farewell: bytes = b""
    """Sent to an address that is still without a stream when the listener is closed."""


Screen = Callable[[bytes], Screened]


class _Unproven(NamedTuple):
    opening: bytes
    screened: Screened


class DatagramStream:
    """What two endpoints say to each other."""

    kind = "udp"
    congested = False
    unsent = 0
    unacknowledged = 0
    abandoned = 0
    """See Stream: the system has every datagram at once."""

    def __init__(self, endpoint: udp.UdpEndpoint, remote: Address) -> None:
        self.local = endpoint.local
        self.remote = remote
        self.lost = 0
        """Datagrams dropped because a queue was full, here or in the system."""
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
        """See Stream: the peer would not notice, so nothing more is received either."""
        self._finished = True
        self._changed.set()

    def watch_path(self, seconds: float) -> None:
        """See Stream."""

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
    """A client's stream: it has a socket of its own, and receives only from its server."""

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
        self.answered: tuple[bytes, ...] = ()
        """Datagrams that were sent before the stream was made; the session says them once more."""

    def send(self, data: bytes) -> None:
        """See Stream."""
        if self.answered and data == self.answered[0]:
            self.answered = self.answered[1:]
        else:
            super().send(data)

    def abort(self) -> None:
        """See Stream."""
        super().abort()
        self._gone(self.remote)


class DatagramListener:
    """An endpoint whose datagrams are distributed to one stream per remote address."""

    def __init__(self, endpoint: udp.UdpEndpoint, accepted: Callable[[DatagramStream], None], screen: Screen | None = None) -> None:
        """With `screen`, an address gets a stream only when it sends again after it was answered.

        The source address of a first datagram may be forged.
        """
        self.port = endpoint.local[1]
        self._endpoint = endpoint
        self._accepted = accepted
        self._streams: dict[Address, AcceptedStream] = {}
        self._past: set[Address] = set()
        self._screen = screen
        self._unproven: dict[Address, _Unproven] = {}
        self._listening = True
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """See Listener: deal what arrives."""
        while datagrams := await self._endpoint.receive():
            for data, source in datagrams:
                if data:  # an empty datagram says nothing
                    self._deal(data, source)
            await asyncio.sleep(0)  # there may be no end of datagrams, and their receivers want to handle them

    def close(self) -> None:
        """See Listener: accept no new sessions; the socket is closed with the last stream."""
        if self._listening:
            for source, known in self._unproven.items():
                self._endpoint.send(known.screened.farewell, source)
            self._unproven.clear()
        self._listening = False
        self._end_if_idle()

    # Inside.

    def _deal(self, data: bytes, source: Address) -> None:
        stream = self._streams.get(source)
        if stream is None:
            if not self._listening or source in self._past:
                return
            first = None if self._screen is None else self._screened(data, source, self._screen)
            if self._screen is not None and first is None:
                return
            stream = self._streams[source] = AcceptedStream(self._endpoint, source, self._gone)
            self._accepted(stream)
            if first is not None:
                stream.answered = first.screened.answers
                stream.put(first.opening)
                if data == first.screened.proof:
                    return
        stream.put(data)

    def _screened(self, data: bytes, source: Address, screen: Screen) -> _Unproven | None:
        """Answer an address without a stream; returns its opening once the address is verified."""
        known = self._unproven.get(source)
        if known is not None and data != known.opening:
            return self._unproven.pop(source)
        screened = screen(data)
        for answer in screened.answers:
            self._endpoint.send(answer, source)
        if screened.probe and known is None:
            while len(self._unproven) >= MAX_UNPROVEN:
                del self._unproven[next(iter(self._unproven))]
            self._unproven[source] = _Unproven(data, screened)
            self._loop.call_later(PROBE_DELAY, self._probe, source)
        elif not screened.probe:
            log.info("answered %s:%d, which gets no stream", *source)
        return None

    def _probe(self, source: Address) -> None:
        if self._listening and (known := self._unproven.get(source)) is not None:
            self._endpoint.send(known.screened.probe, source)

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


async def listen(host: str, port: int, accepted: Callable[[DatagramStream], None], screen: Screen | None = None) -> DatagramListener:
    """Distribute datagrams to a host and port (0: any free one) to streams, until it is closed.

    Raises OSError.
    """
    return DatagramListener(await udp.listen(host, port), accepted, screen)
