"""YAMP echo requests over TCP, WebSocket and a Unix socket, beside nats-py, grpc.aio and a bare `websockets` echo.

All on uvloop, client and server in processes of their own, 64 in flight, every answer checked; what is sent takes 64 bytes in each of them.

Goals: over TCP at least 3 times grpc.aio and 1.5 times nats-py; over WebSocket at least as fast as the bare echo with JSON in and out.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections import deque
from typing import Any

import echo
from figures import show, verdict

TEXT = "x" * (len(echo.BODY) - 2)
"""Takes as many bytes in JSON as the other bodies."""
GOALS = {"grpc": 3.0, "nats": 1.5}


def yamp(scheme: str) -> tuple[Any, Any]:
    """Server and client over one transport."""

    async def server(_: str) -> None:
        from wirelake.peers.yamp import Service, serve
        from wirelake.protocols.kernel import use_compiled

        use_compiled()
        service = Service()
        service.request("echo", lambda _, call: call.body)
        with tempfile.TemporaryDirectory() as folder:
            place = f"unix://{folder}/echo.sock" if scheme == "unix" else f"{scheme}://127.0.0.1:0"
            async with serve(place, service) as listening:
                print(listening.address, flush=True)
                await asyncio.Event().wait()

    async def client(address: str, count: int) -> None:
        from wirelake.peers.yamp import connect
        from wirelake.protocols.kernel import use_compiled

        use_compiled()
        async with connect(address) as peer:
            await echo.measure(lambda: peer.request("echo", TEXT), count, as_bytes)

    return server, client


def as_bytes(answer: Any) -> bytes:
    """What `measure` compares."""
    assert answer == TEXT
    return echo.BODY


async def bare_server(_: str) -> None:
    import msgspec
    from websockets.asyncio.server import serve

    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode

    async def answer(connection: Any) -> None:
        async for message in connection:
            await connection.send(encode(decode(message)))

    async with serve(answer, "127.0.0.1", 0, compression=None) as listening:
        print(f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}", flush=True)
        await asyncio.Event().wait()


async def bare_client(address: str, count: int) -> None:
    import msgspec
    from websockets.asyncio.client import connect

    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
    waiting: deque[asyncio.Future[Any]] = deque()
    loop = asyncio.get_running_loop()
    async with connect(address, compression=None) as connection:

        async def read() -> None:
            async for message in connection:
                waiting.popleft().set_result(decode(message))

        async def ask() -> Any:
            answer = loop.create_future()
            waiting.append(answer)  # answers come in the order of requests
            await connection.send(encode(TEXT))
            return await answer

        reading = asyncio.create_task(read())
        await echo.measure(ask, count, as_bytes)
        reading.cancel()


ROLES = {"yamp-tcp": yamp("tcp"), "yamp-ws": yamp("ws"), "yamp-unix": yamp("unix"), "websockets": (bare_server, bare_client)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--requests", type=int, default=20_000)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--role", help=argparse.SUPPRESS)
    options.add_argument("--address", default="-", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.role:
        echo.take_part(chosen.role, chosen.address, chosen.requests, ROLES)
        return
    lacking = echo.absent()
    for name, remedy in lacking.items():
        print(f"{name} does not take part: {remedy}", file=sys.stderr)
    scripts = dict.fromkeys(ROLES, __file__) | {name: echo.__file__ for name in GOALS if name not in lacking}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in scripts}
    for _ in range(chosen.times):
        for name, script in scripts.items():
            runs[name].append(echo.play(name, chosen.requests, script))
    rates = {name: statistics.median(run["requests"] / run["seconds"] for run in found) for name, found in runs.items()}
    busy = {name: statistics.median(run["busy"] / run["requests"] for run in found) for name, found in runs.items()}
    lines = [
        [name, f"{rate:,.0f}", f"{1e6 * echo.IN_FLIGHT / rate:,.0f}", f"{1e6 * busy[name]:.0f}", f"{rates['yamp-tcp'] / rate:.1f} x"]
        for name, rate in rates.items()
    ]
    columns = ["echo", "requests/s", "mean latency, µs", "client CPU, µs/request", "YAMP over TCP is"]
    show(
        f"{chosen.requests:,} echo requests of {len(echo.BODY)} bytes, {echo.IN_FLIGHT} in flight, median of {chosen.times}", columns, lines
    )
    for name, goal in GOALS.items():
        if name in rates:
            ratio = rates["yamp-tcp"] / rates[name]
            verdict(f"YAMP echo over TCP >= {goal} x {name}", ratio >= goal, f"{ratio:.1f} x")
    ratio = rates["yamp-ws"] / rates["websockets"]
    verdict("YAMP echo over WebSocket >= a bare websockets echo with JSON", ratio >= 1, f"{ratio:.2f} x")


if __name__ == "__main__":
    main()
