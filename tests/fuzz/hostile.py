"""Hostile peers over real sockets, and a well-behaved client that must be served afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import struct
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from tests.fuzz.seeds import REQUEST, frame
from tests.peers.nodes import proven
from tests.peers.raw import place
from tests.peers.wolpertinger.world import Shop
from tests.peers.world import run, until
from tests.peers.yamp.world import demo

from wirelake.peers import emp, relink, wolpertinger, yamp
from wirelake.protocols.relink.options import Endpoint

PATIENCE = 120.0
"""Seconds for one input; only an input that hangs takes so long."""
WHATS = (
    *("emp tcp", "yamp tcp", "yamp ws", "yamp wsopen", "yamp udp", "relink tcp", "wolpertinger tcp", "event_mesh udp"),
    *("yamp unix", "relink unix", "wolpertinger unix"),
)
"""Protocol and transport; `wsopen` is a WebSocket after its handshake."""
STYLES = ("close", "reset", "mute", "stay")
"""What the hostile peer does after its bytes: closes, resets, never reads, or stays and reads."""
DEMO = Endpoint("demo", 4, 4)
LINGER = 0.05
STALL = 1.0
"""Seconds after which a hostile peer sends no more: a server is right to read nothing from one that reads nothing."""


def meet(words: list[str], data: bytes) -> None:
    """A server hears a hostile peer, which stays if its style says so, and then serves an honest client."""
    protocol, transport, *style = words
    dice = random.Random(zlib.crc32(data))
    how = style[0] if style else dice.choice(STYLES)

    async def main() -> None:
        async with _server(protocol, transport) as address, _attack(address, transport, how, data, dice):
            await _honest(protocol, address)

    with _errors() as errors:
        run(main, seconds=PATIENCE)
    assert not errors, errors[0]


@contextlib.contextmanager
def _errors() -> Iterator[list[str]]:
    """What servers log as errors: a handler or a peer that broke down."""
    found: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    keep, log = Keep(logging.ERROR), logging.getLogger("wirelake")
    log.addHandler(keep)
    try:
        yield found
    finally:
        log.removeHandler(keep)


@contextlib.asynccontextmanager
async def _server(protocol: str, transport: str) -> AsyncIterator[Any]:
    scheme = "ws" if transport == "wsopen" else transport
    address = f"unix://{Path.cwd()}/server.sock" if scheme == "unix" else f"{scheme}://127.0.0.1:0"
    match protocol:
        case "emp":
            server: Any = emp.serve(
                address, options=emp.Options(on_request=lambda _, request: request.body, on_data=_ignore, linger=LINGER)
            )
        case "yamp":
            server = yamp.serve(address, demo(), options=yamp.Options(linger=LINGER))
        case "relink":
            server = relink.serve(address, {DEMO: _take}, options=relink.Options(linger=LINGER, close_timeout=0.5))
        case "wolpertinger":
            server = wolpertinger.serve(address, Shop, options=wolpertinger.Options(linger=LINGER))
        case _:
            server = proven("me", "friend", address=address)
    async with server:
        yield server.address


async def _ignore(*_: Any) -> None:
    pass


async def _take(link: Any) -> None:
    async for _ in link:
        pass


@contextlib.asynccontextmanager
async def _attack(address: str, transport: str, how: str, data: bytes, dice: random.Random) -> AsyncIterator[None]:
    if transport == "udp":
        await _datagrams(address, how, data, dice)
        yield
        return
    loop = asyncio.get_running_loop()
    family = socket.AF_UNIX if transport == "unix" else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, "server.sock" if transport == "unix" else place(address))
        with contextlib.suppress(OSError, TimeoutError):
            if transport == "wsopen":
                await loop.sock_sendall(sock, REQUEST)
                await loop.sock_recv(sock, 4096)
            for piece in _pieces(data, dice):
                async with asyncio.timeout(STALL):
                    await loop.sock_sendall(sock, piece)
                await asyncio.sleep(0)
            if how != "mute":
                async with asyncio.timeout(STALL / 10):
                    await loop.sock_recv(sock, 65536)
        if how == "reset" and family == socket.AF_INET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how in ("close", "reset"):
            sock.close()
        yield


def _pieces(data: bytes, dice: random.Random) -> Iterator[bytes]:
    """One after the other: the memory that is measured must be the server's."""
    size = dice.choice([1, 16, 1024]) if len(data) < 1_000 else 65536
    return (data[at : at + size] for at in range(0, len(data), size))


async def _datagrams(address: str, how: str, data: bytes, dice: random.Random) -> None:
    """`many`: datagrams of 8 bytes, each from a port of its own; otherwise of any size from one port."""
    size = 8 if how == "many" else dice.choice([7, 100, 500, 1400, 60_000])
    target = place(address)
    with contextlib.ExitStack() as sockets:
        sock = None
        for number, at in enumerate(range(0, len(data), size)):
            if sock is None or how == "many":
                sock = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                sock.setblocking(False)
            with contextlib.suppress(OSError):
                sock.sendto(data[at : at + size], target)
            if number % 20 == 0:
                await asyncio.sleep(0.001)  # so that the server reads them before its socket is full


async def _honest(protocol: str, address: str) -> None:
    match protocol:
        case "emp":
            async with emp.connect(address, options=emp.Options(linger=LINGER)) as client:
                assert await client.request(b"next") == b"next"
        case "yamp":
            async with yamp.connect(address, options=yamp.Options(linger=LINGER)) as client:
                assert await client.request("echo", 7) == 7
        case "relink":
            async with relink.connect(address, DEMO, options=relink.Options(linger=LINGER, close_timeout=5.0)) as link:
                await link.channel(b"chan").send(b"next")
        case "wolpertinger":
            async with wolpertinger.connect(address, options=wolpertinger.Options(linger=LINGER)) as client:
                assert await client.Shop.Slowly("abc") == "cba"
        case _:
            async with proven("friend", "me", peers=[address]) as friend:
                await until(lambda: friend.peers)


def framed(dice: random.Random, data: bytes) -> bytes:
    """Bytes in WebSocket frames of any kind, masked as a client's are."""
    out, at = b"", 0
    while at < len(data):
        size = dice.choice([1, 20, 125, 126, 3000])
        out += frame(dice.choice([0, 1, 2, 2, 2, 2, 8, 9, 10, 11]), data[at : at + size], dice.randbytes(4))
        at += size
    return out
