"""A small world for live peers: a loop that must be left clean, and raw sockets that say whatever bytes they are told."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from tests.peers.ends import ANY, two_ends  # noqa: F401 - tests take both from here
from tests.peers.raw import RawEnd, connecting, listening

from wirelake.peers.emp import Options, Peer
from wirelake.protocols.emp.messages import Bye, Data, Error, Hello, Message, Ping, Pong, RequestResponse
from wirelake.protocols.emp.state_machine import Speaker
from wirelake.protocols.emp.wire import decode, encode
from wirelake.transports.memory import MemoryStream, pair

HELLO, BYE, PING, PONG = (encode(message) for message in (Hello(), Bye(), Ping(), Pong()))
QUIET = Options(ping_interval=None)
"""No pings, so that raw peers hear only what a test is about."""
PATIENCE = 60.0
"""Seconds after which a test is stuck; nothing takes so long even on a machine with ten times as much to do as it has processors."""


def run(main: Callable[[], Awaitable[Any]], *, seconds: float = PATIENCE, loop_factory: Callable[[], Any] | None = None) -> Any:
    """Run a test to its end, and see that it left nothing behind: no task, no exception that nobody saw."""
    unseen: list[dict[str, Any]] = []

    async def whole() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        async with asyncio.timeout(seconds):
            result = await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks were left behind: {left}"
        return result

    gc.freeze()  # so that the collection below looks at this test only, and is quick
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            result = runner.run(whole())
            gc.collect()  # what nobody saw is said when it is thrown away
    finally:
        gc.unfreeze()
    assert unseen == []
    return result


class Raw(RawEnd):
    """One that knows EMP, to follow it or not."""

    async def say(self, *said: Message | bytes) -> None:
        """Send messages, or any bytes."""
        for one in said:
            self.writer.write(one if isinstance(one, bytes) else encode(one))
        await self.writer.drain()

    async def hear(self) -> Message:
        """The next message."""
        head = await self.reader.readexactly(4)
        return decode(head + await self.reader.readexactly(int.from_bytes(head) - 4))

    async def hear_rest(self) -> list[Message]:
        """Everything up to the end of the stream; a reset is an error."""
        heard, data = [], await self.reader.read()
        while data:
            size = int.from_bytes(data[:4])
            heard.append(decode(data[:size]))
            data = data[size:]
        return heard

    async def greet(self) -> None:
        """Handshake: both hellos."""
        await self.say(HELLO)
        assert await self.hear() == Hello()

    async def answer(self, body: bytes | None = None) -> int:
        """Wait for a request and answer it, with its own body unless told otherwise; gives its identifier."""
        request = await self.hear()
        assert isinstance(request, Data)
        (block,) = request.extensions
        assert isinstance(block, RequestResponse)
        assert block.request
        await self.say(Data(request.body if body is None else body, (RequestResponse(False, block.request_id),)))
        return block.request_id


raw_client = functools.partial(connecting, Raw)
raw_server = functools.partial(listening, Raw)


two_peers = functools.partial(two_ends, Peer)


@contextlib.asynccontextmanager
async def facing(options: Options, speaker: Speaker = Speaker.SERVER) -> AsyncIterator[tuple[Peer, MemoryStream]]:
    """A peer in memory whose other end is a bare stream."""
    stream, other = pair()
    peer = Peer(speaker, stream, options)
    async with asyncio.TaskGroup() as group:
        group.create_task(peer.run())
        try:
            yield peer, other
        finally:
            peer.close()
            other.abort()


async def until(true: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait for something that has no event of its own."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.005)


async def heard(reading: Awaitable[Message], kind: type[Message]) -> Message:
    """The message just read, which must be of this kind."""
    message = await reading
    assert isinstance(message, kind), message
    return message


async def error_of(raw: Raw) -> Error:
    """Whatever else is said first, the conversation ends with an error and a clean end of the stream."""
    said = await raw.hear_rest()
    assert said, "closed without a word"
    assert isinstance(said[-1], Error), said
    return said[-1]


@contextlib.contextmanager
def quick(seconds: float) -> Iterator[None]:
    """What happens inside must not wait for any of the long timers."""
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < seconds


@contextlib.contextmanager
def log_of(name: str) -> Iterator[list[str]]:
    """The lines a logger writes, which are expected here."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    keep, log = Keep(), logging.getLogger(name)
    log.addHandler(keep)
    try:
        yield lines
    finally:
        log.removeHandler(keep)
