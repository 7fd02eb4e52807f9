"""EMP traffic for the demo: recorded clients and servers on loopback; some break rules."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from wirelake.capture.record.recorder import Recorder
from wirelake.errors import RequestTimeout, WirelakeError
from wirelake.peers.demo.raw_bytes import send_raw
from wirelake.peers.emp import Options, Peer, connect, serve
from wirelake.protocols.emp.events import RequestReceived
from wirelake.protocols.emp.messages import Data, Hello, OtherExtension, Ping, RequestResponse
from wirelake.protocols.emp.wire import encode

__all__ = ["record"]

CLIENTS: Final = 4
IN_FLIGHT: Final = 16
SENSOR_TYPE: Final = 128
"""The message type our imaginary application introduced."""
SEED: Final = 5040


async def record(folder: Path, requests: int, progress: Callable[[int, int], None]) -> list[Path]:
    """Make about so many requests, and the rest of the show; returns the recordings."""
    chance = random.Random(SEED)  # noqa: S311 - a demo wants the same traffic every time
    with Recorder(folder / "emp.pcapng") as recorder:
        options = Options(ping_interval=0.2, application_types=frozenset([SENSOR_TYPE]))
        options = msgspec.structs.replace(options, on_request=lambda peer, request: _answer(peer, request, chance), recorder=recorder)
        async with serve("tcp://127.0.0.1:0", options=options) as server:
            done = 0

            def made() -> None:
                nonlocal done
                done += 1
                if done % 200 == 0:
                    progress(done, requests)

            async with asyncio.TaskGroup() as group:
                for number in range(CLIENTS):
                    group.create_task(_client(server.address, number, requests // CLIENTS, made))
                group.create_task(_trouble(server.address))
        progress(requests, requests)
    return list(recorder.paths)


async def _answer(_peer: Peer, request: RequestReceived, chance: random.Random) -> bytes:
    asked = msgspec.json.decode(request.body)
    if asked.get("slow"):
        await asyncio.sleep(0.3)
    elif chance.random() < 0.02:
        await asyncio.sleep(chance.expovariate(1 / 0.01))
    return msgspec.json.encode({"id": asked["id"], "ok": True, "price": round(chance.uniform(1, 100), 2)})


async def _client(address: str, number: int, requests: int, made: Callable[[], None]) -> None:
    """A well-behaved client: concurrent requests, some compressed, some data, pings, and a bye."""
    chance = random.Random(number)  # noqa: S311 - see record
    options = Options(ping_interval=0.2, application_types=frozenset([SENSOR_TYPE]))
    async with connect(address, options=options) as peer:

        async def worker(count: int) -> None:
            for index in range(count):
                body = msgspec.json.encode({"id": index, "client": number, "item": chance.choice(["tea", "coffee", "cocoa"])})
                await peer.request(body, compress=index % 10 == 0)
                made()
                if index % 25 == 0:
                    await peer.send(b"reading %d" % index, type_id=SENSOR_TYPE if index % 50 == 0 else 5)

        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(worker(requests // IN_FLIGHT))
        with contextlib.suppress(RequestTimeout):
            await peer.request(b'{"id": 0, "slow": true}', timeout=0.05)  # its answer will come late
        await asyncio.sleep(0.5)


async def _trouble(address: str) -> None:
    """Misbehaving peers: each breaks one rule, and each is answered as the rulings say."""
    hello = encode(Hello())
    request = encode(Data(b'{"id": 1, "slow": true}', (RequestResponse(True, 1),)))
    for bad in (
        encode(Data(b"no hello first")),  # EMP-26
        encode(Hello(9)),  # EMP-27
        hello + hello,  # EMP-25
        hello + request + request,  # EMP-18
        hello + encode(Data(b"", (RequestResponse(False, 77),))),  # EMP-16
        hello + encode(Ping((RequestResponse(True, 3),))),  # EMP-14
        hello + encode(Data(b"?", (OtherExtension(99, b""),))),  # EMP-9
        hello + bytes.fromhex("00000015058000000000000c010000000100000078"),  # EMP-37: not gzip
        hello + bytes.fromhex("000000084d000000"),  # EMP-24: a reserved type
        hello + b"\xff\xff\xff\xff garbage",  # EMP-35
        hello + encode(Data(b"cut"))[:-2],  # EMP-43
    ):
        await send_raw(address, bad, seconds=0.5)
    with contextlib.suppress(WirelakeError):
        async with connect(address, options=Options(application_types=frozenset([200]))) as peer:
            await peer.send(b"nobody knows this type", type_id=200)  # EMP-24
            await asyncio.sleep(0.1)
