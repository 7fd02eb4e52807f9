"""A small world for live YAMP: every transport with its address, and raw sockets that say whatever bytes they are told."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.peers.raw import RawEnd, connecting, listening

from wirelake.peers.yamp import Options, Peer, Service
from wirelake.protocols.yamp.messages import Handshake, Message
from wirelake.protocols.yamp.state_machine import Speaker
from wirelake.protocols.yamp.wire import buffer, encode, message
from wirelake.transports.memory import pair

ANY = "tcp://127.0.0.1:0"
HANDSHAKE = encode(Handshake())


class Way(NamedTuple):
    """A transport as a test uses it."""

    address: str
    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None


def ways(folder: Path, server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Way]:
    """Every transport there is, by its scheme."""
    return {
        "tcp": Way(ANY),
        "tls": Way("tls://127.0.0.1:0", server, client),
        "ws": Way("ws://127.0.0.1:0/some/where?x=1"),
        "wss": Way("wss://127.0.0.1:0", server, client),
        "unix": Way(f"unix://{folder}/yamp.sock"),
        "udp": Way("udp://127.0.0.1:0"),
    }


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


@contextlib.asynccontextmanager
async def two_peers(client: Options, server: Options, cut: int | None = None) -> AsyncIterator[tuple[Peer, Peer]]:
    """Both ends of a conversation in memory, opened; the client closes at the end."""
    one, two = pair(cut)
    ends = Peer(Speaker.CLIENT, one, client), Peer(Speaker.SERVER, two, server)
    async with asyncio.TaskGroup() as group:
        for end in ends:
            group.create_task(end.run())
        await asyncio.gather(*(end.opened() for end in ends))
        try:
            yield ends
        finally:
            ends[0].close()


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
