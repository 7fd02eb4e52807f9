"""A small world for live YAMP: a service, and raw sockets that say whatever bytes they are told."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from tests.peers.ends import ANY, two_ends  # noqa: F401 - tests take both from here
from tests.peers.raw import RawEnd, connecting, listening

from wirelake.peers.yamp import Peer, Service
from wirelake.protocols.yamp.messages import Handshake, Message
from wirelake.protocols.yamp.wire import buffer, encode, message

HANDSHAKE = encode(Handshake())


def demo() -> Service:
    """A service with a bit of everything."""
    service = Service()
    service.request("echo", lambda _, call: call.body)

    @service.request("sum", of=list[int])
    async def add(_, call: Any) -> int:
        total = 0
        for number in call.body:
            total += number
            await call.progress(total)
        return total

    return service


two_peers = functools.partial(two_ends, Peer)


class Raw(RawEnd):
    """One that knows YAMP, to follow it or not."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._buffer = buffer()
        self._heard: list[Message] = []

    async def say(self, *said: Message | bytes) -> None:
        """Send messages, or any bytes."""
        for one in said:
            self.writer.write(one if isinstance(one, bytes) else encode(one))
        await self.writer.drain()

    async def hear(self) -> Message | None:
        """The next message; None at the end of the stream."""
        while not self._heard:
            data = await self.reader.read(65_536)
            if not data:
                assert self._buffer.rest == b""
                return None
            self._heard += [message(whole, row) for whole, rows, _ in self._buffer.feed(data) for row in rows]
        return self._heard.pop(0)

    async def hear_rest(self) -> list[Message]:
        """Everything up to the end of the stream."""
        heard = []
        while (one := await self.hear()) is not None:
            heard.append(one)
        return heard

    async def greet(self, said: bytes = HANDSHAKE) -> None:
        """Say a handshake and hear it back."""
        await self.say(said)
        assert encode(await self.hear()) == said


raw_client = functools.partial(connecting, Raw)
raw_server = functools.partial(listening, Raw)
