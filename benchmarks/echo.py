"""Echo requests of 64 bytes with 64 in flight: EMP and YAMP against NATS, gRPC and a bare WebSocket, a second.

Both sides are processes of their own, on uvloop, and every answer is checked. Ours and the rivals take turns; the median counts. NATS goes
through its server, because that is what it is; gRPC has bytes for messages, so that no codec is measured; the bare `websockets` echo
has JSON in and out, as YAMP has.

Goals: EMP at least 2 x NATS and 10 x gRPC; YAMP over TCP at least 1.5 x NATS and 3 x gRPC, over WebSocket at least the bare echo.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from figures import Figure, Role, main, report
from rivals import absent, broker, outcome, started, told

IN_FLIGHT = 64
BODY = b"x" * 64
TEXT = "x" * (len(BODY) - 2)
"""Takes as many bytes in JSON as the other bodies."""
SUBJECT = "echo"
METHOD = "/bench.Echo/Say"
REQUESTS = 20_000
FEW = {"grpc": 4000}
"""Requests of rivals that are slow."""
TURNS, QUICK_TURNS = 5, 2
TABLE = "Echo requests, 64 in flight"

Ask = Callable[[], Awaitable[object]]


# Both sides of each. A server prints where it is; a client reports what it saw.


async def emp_server(_: str, _count: int) -> None:
    from wirelake.peers.emp import serve

    async with serve("tcp://127.0.0.1:0", on_request=lambda _, request: request.body) as server:
        print(server.address, flush=True)
        await asyncio.Event().wait()


async def emp_client(address: str, count: int) -> None:
    from wirelake.peers.emp import connect

    async with connect(address) as peer:
        await measure(lambda: peer.request(BODY), count)


def yamp(scheme: str) -> tuple[Role, Role]:
    """Server and client over one transport."""

    async def server(_: str, _count: int) -> None:
        from wirelake.peers.yamp import Service, serve

        service = Service()
        service.request("echo", lambda _, call: call.body)
        with tempfile.TemporaryDirectory() as folder:
            place = f"unix://{folder}/echo.sock" if scheme == "unix" else f"{scheme}://127.0.0.1:0"
            async with serve(place, service) as listening:
                print(listening.address, flush=True)
                await asyncio.Event().wait()

    async def client(address: str, count: int) -> None:
        from wirelake.peers.yamp import connect

        async with connect(address) as peer:
            await measure(lambda: peer.request("echo", TEXT), count, as_bytes)

    return server, client


def as_bytes(answer: Any) -> bytes:
    """What `measure` compares."""
    assert answer == TEXT
    return BODY


async def nats_server(address: str, _count: int) -> None:
    import nats

    connection = await nats.connect(address)

    async def answer(message: Any) -> None:
        await message.respond(message.data)

    await connection.subscribe(SUBJECT, cb=answer)
    await connection.flush()
    print(address, flush=True)
    await asyncio.Event().wait()


async def nats_client(address: str, count: int) -> None:
    import nats

    connection = await nats.connect(address)
    await measure(lambda: connection.request(SUBJECT, BODY, timeout=30), count, lambda answer: answer.data)
    await connection.close()


async def grpc_server(_: str, _count: int) -> None:
    import grpc.aio

    async def answer(request: bytes, _context: object) -> bytes:
        return request

    server = grpc.aio.server()
    handlers = {METHOD.rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(METHOD.split("/")[1], handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


async def grpc_client(address: str, count: int) -> None:
    import grpc.aio

    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(METHOD)
        await measure(lambda: call(BODY), count)


async def websockets_server(_: str, _count: int) -> None:
    import msgspec
    from websockets.asyncio.server import serve

    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode

    async def answer(connection: Any) -> None:
        async for message in connection:
            await connection.send(encode(decode(message)))

    async with serve(answer, "127.0.0.1", 0, compression=None) as listening:
        print(f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}", flush=True)
        await asyncio.Event().wait()


async def websockets_client(address: str, count: int) -> None:
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
        await measure(ask, count, as_bytes)
        reading.cancel()


async def measure(ask: Ask, count: int, body: Callable[[Any], bytes] = lambda answer: answer) -> None:
    """Keep 64 requests in flight until `count` are answered, after as many to warm up."""

    async def asker(each: int) -> None:
        for _ in range(each):
            assert body(await ask()) == BODY

    for _ in range(2):
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(asker(count // IN_FLIGHT))
        seconds = time.perf_counter() - began
    report(rate=count // IN_FLIGHT * IN_FLIGHT / seconds)


PAIRS: dict[str, tuple[Role, Role]] = {
    "emp": (emp_server, emp_client),
    "yamp-tcp": yamp("tcp"),
    "yamp-ws": yamp("ws"),
    "yamp-unix": yamp("unix"),
    "nats": (nats_server, nats_client),
    "grpc": (grpc_server, grpc_client),
    "websockets": (websockets_server, websockets_client),
}
ROLES = {f"{name}-{side}": role for name, pair in PAIRS.items() for side, role in zip(("server", "client"), pair, strict=True)}


def play(name: str, count: int) -> float:
    """One run, all processes fresh: requests a second."""
    with contextlib.ExitStack() as stack:
        through = stack.enter_context(broker()) if name == "nats" else "-"
        server = stack.enter_context(started(__file__, f"{name}-server", through))
        return outcome(__file__, f"{name}-client", told(server), count)["rate"]


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    lacking = absent()
    names = [name for name in PAIRS if name not in lacking]
    rates: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(QUICK_TURNS if quick else TURNS):
        for name in names:
            rates[name].append(play(name, FEW.get(name, REQUESTS) // (4 if quick else 1)))
    found = {name: statistics.median(seen) for name, seen in rates.items()}

    def figure(name: str, ours: str, rival: str = "", theirs: str = "", least: float | None = None) -> Figure:
        return Figure(table=TABLE, name=name, ours=found[ours], unit="/s", rival=rival, theirs=found.get(theirs), least=least)

    return [
        figure("EMP", "emp", "nats-py", "nats", 2),
        figure("EMP", "emp", "grpc.aio", "grpc", 10),
        figure("YAMP over TCP", "yamp-tcp", "nats-py", "nats", 1.5),
        figure("YAMP over TCP", "yamp-tcp", "grpc.aio", "grpc", 3),
        figure("YAMP over WebSocket", "yamp-ws", "websockets, JSON", "websockets", 1),
        figure("YAMP over a Unix socket", "yamp-unix"),
    ]


if __name__ == "__main__":
    main(run, __doc__, ROLES)
