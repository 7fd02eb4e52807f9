"""YAMP traffic for the demo: requests, progress, cancellation, and clients that break rules."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from wirelake.capture.record.recorder import Recorder
from wirelake.errors import RequestFailed, WirelakeError
from wirelake.peers.demo.raw_bytes import send_raw
from wirelake.peers.yamp import Call, Options, Peer, Service, connect, serve

__all__ = ["record"]

CLIENTS: Final = ("json", "msgpack")
"""What each client's bodies are in."""
IN_FLIGHT: Final = 8


async def record(folder: Path, requests: int, progress: Callable[[int, int], None]) -> list[Path]:
    """Make about so many requests, and the rest of the show; returns the recordings."""
    with Recorder(folder / "yamp.pcapng", protocol="yamp") as recorder:
        async with serve("tcp://127.0.0.1:0", _service(), options=Options(recorder=recorder)) as server:
            done = 0

            def made() -> None:
                nonlocal done
                done += 1
                if done % 200 == 0:
                    progress(done, requests)

            async with asyncio.TaskGroup() as group:
                for serializer in CLIENTS:
                    group.create_task(_client(server.address, serializer, requests // len(CLIENTS), made))
            await _trouble(server.address)
        progress(requests, requests)
    return list(recorder.paths)


def _service() -> Service:
    service = Service()

    @service.request("stock.price")
    async def price(_: Peer, call: Call) -> Any:
        if call.body.get("item") == "unicorn":
            raise RequestFailed({"why": "there are none"})
        return {"item": call.body["item"], "price": len(call.body["item"]) * 1.5}

    @service.request("stock.count")
    async def count(_: Peer, call: Call) -> Any:
        for shelf in range(call.body["shelves"]):
            await call.progress({"shelf": shelf})
            await asyncio.sleep(0.002)
        return {"items": 42 * call.body["shelves"]}

    @service.on("till.*")
    def heard(_: Peer, _event: Any) -> None:
        """Whatever happens at the till."""

    return service


async def _client(address: str, serializer: str, requests: int, made: Callable[[], None]) -> None:
    chance = random.Random(serializer)  # noqa: S311 - a demo wants the same traffic every time
    async with connect(address, options=Options(serializer=serializer)) as peer:

        async def worker(number: int) -> None:
            for index in range(requests // IN_FLIGHT):
                await peer.request("stock.price", {"item": chance.choice(["tea", "coffee", "cocoa"])})
                made()
                if index % 10 == 0:
                    await peer.send("till.open", {"till": number})

        async with asyncio.TaskGroup() as group:
            for number in range(IN_FLIGHT):
                group.create_task(worker(number))
        await _wishes(peer)


async def _wishes(peer: Peer) -> None:
    """A long job that is watched, one that is taken back, one that is killed, and one that fails."""
    watched = await peer.ask("stock.count", {"shelves": 5})
    async for _ in watched:
        pass
    taken_back = await peer.ask("stock.count", {"shelves": 500})
    await anext(taken_back)
    taken_back.cancel()
    with contextlib.suppress(WirelakeError):
        await taken_back.answer()
    killed = await peer.ask("stock.count", {"shelves": 500})
    await anext(killed)
    killed.kill()
    with contextlib.suppress(RequestFailed):
        await peer.request("stock.price", {"item": "unicorn"})


async def _trouble(address: str) -> None:
    """Misbehaving peers: each breaks one rule."""
    hello = bytes.fromhex("000001046a736f6e")
    for bad in (
        b"GET / HTTP/1.1\r\n\r\n",  # no handshake
        hello + b"\x09",  # a message type that is none
        hello + hello,  # a second handshake
        hello + b"\x06",  # cut
    ):
        await send_raw(address, bad)
