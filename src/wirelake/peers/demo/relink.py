"""Relink traffic for the demo: orders over broken connections, transactions, broken rules."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wirelake.capture.record.recorder import Recorder
from wirelake.errors import WirelakeError
from wirelake.peers.backoff import Backoff
from wirelake.peers.demo.raw_bytes import send_raw
from wirelake.peers.relink import Endpoint, Link, Options, connect, serve
from wirelake.transports.address import parse

__all__ = ["record"]

ORDERS: Final = Endpoint("orders", 4, 4)
TILL: Final = Endpoint("till", 4, 4, connector_transactions=True)
SHELVES: Final = (b"teas", b"cafe", b"coco")
"""Channels of orders."""
EVERY: Final = 10
"""One in so many orders goes to all shelves at once, and one in so many is a sale."""
BREAKS: Final = (0.3, 0.7)
"""After which part of the orders the line breaks."""
TROUBLE: Final = (
    bytes.fromhex("ffffffffffffffff"),  # RELINK-1: a version that is none
    bytes(8) + b"\x04nope\x04\x04\x00" + bytes(16),  # an endpoint that is not offered
    bytes(8) + b"\x06orders\x04\x04\x00" + bytes(6 + 16) + b"\xff" * 16,  # packets of a type that is none
    bytes(5),  # cut
)


async def record(folder: Path, messages: int, progress: Callable[[int, int], None]) -> list[Path]:
    """Send about so many messages, and the rest of the show; returns the recordings."""
    with Recorder(folder / "relink.pcapng", protocol="relink") as recorder:
        options = Options(recorder=recorder, close_timeout=0.5)  # a client that left without parting does not come back
        async with serve("tcp://127.0.0.1:0", {ORDERS: _warehouse, TILL: _cashier}, options=options) as listener:
            async with _Line(listener.address) as line, connect(line.address, ORDERS, reconnect=Backoff(first=0.01)) as link:
                await _order(link, line, messages, lambda done: progress(done, messages))
            async with connect(listener.address, TILL) as link:
                await _sell(link, messages // EVERY)
            await _trouble(listener.address)
        progress(messages, messages)
    return list(recorder.paths)


async def _warehouse(link: Link) -> None:
    """Take orders, and say of some that they are on their way."""
    async for order in link:
        if order.body.endswith(b"0"):
            await link.channel(order.channel).post(b"on its way: " + order.body)


async def _cashier(link: Link) -> None:
    """Take what is paid, but no large notes."""
    async for payment in link:
        if payment.body == b"pay 500":
            link.refuse(payment)


async def _order(link: Link, line: _Line, messages: int, made: Callable[[int], None]) -> None:
    reading = asyncio.create_task(_read(link))
    breaks = {int(messages * part) for part in BREAKS}
    for number in range(messages):
        if number in breaks:
            await link.channel(SHELVES[0]).send(b"is anybody there")
            line.breaks()
        if number % EVERY == 0:
            await link.multicast(SHELVES, b"count, for order %d" % number)
        await link.channel(SHELVES[number % len(SHELVES)]).post(b"order %d" % number)
        if number % 200 == 0:
            made(number)
    await link.channel(SHELVES[0]).close()
    await link.channel(SHELVES[0]).send(b"one more")
    await link.close()
    await reading


async def _read(link: Link) -> None:
    """Read all messages: a peer that does not read gets no more answers once the window is full."""
    async for _ in link:
        pass


async def _sell(link: Link, sales: int) -> None:
    till = link.channel(b"till")
    for number in range(sales):
        with contextlib.suppress(WirelakeError, LookupError):
            async with till.transaction() as sale:
                await sale.post(b"sell %d" % number)
                await sale.post(b"pay 500" if number % 7 == 3 else b"pay 5")
                if number % 7 == 5:
                    raise LookupError("the customer has left")


class _Line:
    """A proxy between a connector and its listener; it forwards bytes until the line breaks."""

    def __init__(self, address: str) -> None:
        target = parse(address, None)
        self._target = (target.host, target.port)
        self._ends: list[asyncio.StreamWriter] = []
        self.address = ""

    def breaks(self) -> None:
        """Cut all connections through the proxy."""
        while self._ends:
            self._ends.pop().transport.abort()

    async def __aenter__(self) -> _Line:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.address = "tcp://{}:{}".format(*self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.breaks()
        await self._server.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, back = await asyncio.open_connection(*self._target)
        self._ends += [writer, back]
        await asyncio.gather(_hand_on(reader, back), _hand_on(onward, writer))
        for end in (writer, back):
            end.close()


async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while said := await reader.read(65_536):
            writer.write(said)
            await writer.drain()
        writer.write_eof()


async def _trouble(address: str) -> None:
    """Connections that break rules."""
    for bad in TROUBLE:
        await send_raw(address, bad, finish=True)
