"""A small world for live links: a proxy whose connections can be cut at any byte, and raw peers that say whatever bytes they are told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from tests.peers.ends import ANY  # noqa: F401 - tests take it from here
from tests.peers.raw import RawEnd, connecting, listening
from tests.peers.world import Raw, raw_client

from wirelake.peers.backoff import Backoff
from wirelake.peers.relink import Endpoint, Link, Options
from wirelake.protocols.relink.events import SessionEvent
from wirelake.protocols.relink.messages import Reply, Request, Version
from wirelake.protocols.relink.scanner import Stage
from wirelake.protocols.relink.wire import decode, encode

DEMO = Endpoint("demo", 4, 4)
QUICK = Backoff(first=0.01, most=0.05)
HANDSHAKE = len(encode(Version()) + encode(Reply(5, 7)))
"""Bytes that a listener says in its handshake."""
PROMPT = Options(ack_delay=0.01, barrier_delay=0.05)


class Heard:
    """What a link told its owner."""

    def __init__(self) -> None:
        self.events: list[SessionEvent] = []

    def __call__(self, link: Link, event: SessionEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[SessionEvent]) -> list[Any]:
        return [one for one in self.events if isinstance(one, kind)]


def make_options(heard: Heard | None = None, options: Options = PROMPT, **more: Any) -> Options:
    return msgspec.structs.replace(options, **{"on_event": heard, "close_timeout": 5.0, "linger": 0.2, **more})


class Proxy:
    """Between a connector and a listener: passes bytes on, and loses connections when told."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.cut_after: int | None = None
        """Bytes from the connector, from now on, after which its connection is lost, once."""
        self.stalls = False
        """Connections stay open and nothing passes."""
        self.refuses = False
        """Connections are lost as soon as they are made."""
        self.is_muffled = False
        """Connections stay open, and nothing passes of what the listener says after its handshake."""
        self.deaths = 0
        """Connections still to be lost as soon as the listener says something after its handshake."""
        self.connections = 0
        self.writers: set[asyncio.StreamWriter] = set()
        self._listening = listening(RawEnd, self._carry)

    async def __aenter__(self) -> Proxy:
        self.address = await self._listening.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.cut()
        await self._listening.__aexit__(*error)

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def _carry(self, raw: RawEnd) -> None:
        if self.refuses:
            return
        self.connections += 1
        with contextlib.suppress(OSError):  # nobody is there
            async with connecting(RawEnd, self.target) as other:
                self.writers |= {raw.writer, other.writer}
                await asyncio.gather(self.pump(raw.reader, other.writer, counted=True), self.pump(other.reader, raw.writer, counted=False))

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool) -> None:
        with contextlib.suppress(OSError):
            passed = 0
            while data := await reader.read(4096):
                while self.stalls:
                    await asyncio.sleep(0.01)
                passed += len(data)
                if not counted and passed > HANDSHAKE and (self.is_muffled or self.deaths):
                    if self.is_muffled:
                        continue
                    self.deaths -= 1
                    self.cut()
                    return
                if counted and self.cut_after is not None:
                    if len(data) >= self.cut_after:
                        writer.write(data[: self.cut_after])
                        self.cut_after = None
                        await writer.drain()
                        await asyncio.sleep(0.01)
                        self.cut()
                        return
                    self.cut_after -= len(data)
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        with contextlib.suppress(OSError, RuntimeError):
            writer.close()


@contextlib.asynccontextmanager
async def raw_connector(address: str, request: Request | None = None) -> AsyncIterator[Raw]:
    """A raw peer that has shaken hands with a listener of ours."""
    async with raw_client(address) as raw:
        await raw.say(encode(Version()))
        assert await raw.reader.readexactly(8) == encode(Version())
        if request is not None:
            await raw.say(encode(request))
            raw.reply = decode(await raw.reader.readexactly(16), stage=Stage.REPLY)
        yield raw
