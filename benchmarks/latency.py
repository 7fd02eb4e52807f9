"""Requests one by one: how long each takes, of all five protocols and their rivals, p50 and p99.

One client process has a connection to every server, each a process of its own, all asynchronous ones on uvloop. Ours and the rivals take
turns of some hundred requests; the median of the turns' p50 and p99 counts. `raw` is an echo of two bare `asyncio.Protocol`s: less cannot
be done in Python.

All is measured twice: with the client on one core and the servers on another, and with all of them on one core. Left to itself, the system
chooses for each pair, and the same echo takes four times as long on two cores: it wakes a core that sleeps.

Event Mesh has no requests: an event goes there and another comes back, each with an HMAC that is checked. `Relink send` waits until its
message is consumed. xmlrpc is the standard library's, told to keep connections.

Goals, in both places: EMP and YAMP at most 1.5 x raw; a Relink send at most 3 of its own pings; wolpertinger at least 2 x the calls of
xmlrpc a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from figures import Figure, Role, main, report
from rivals import absent, broker, outcome, started, told

BODY = b"x" * 64
TEXT = "x" * (len(BODY) - 2)
"""Takes as many bytes in JSON as the other bodies."""
TURNS, QUICK_TURNS = 11, 5
ASKS = 400
"""Requests of one turn."""
WARM = 100
"""Requests before the first turn."""
TABLE = "Requests one by one, p50"
SLOWEST = "Requests one by one, p99"
RATES = "Calls one by one"

Ask = Callable[[], Awaitable[object]]
KEYS = {name: (name.encode().rjust(16), b"\0\0\0\1", bytes(range(32))) for name in ("asks", "answers")}
"""Node -> its id, key id and secret."""


# Servers. Each prints where it is.


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def raw_server(_: str, _count: int) -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


async def emp_server(_: str, _count: int) -> None:
    from wirelake.peers.emp import serve

    await serving(serve("tcp://127.0.0.1:0", on_request=lambda _, request: request.body))


async def yamp_server(_: str, _count: int) -> None:
    from wirelake.peers.yamp import Service, serve

    service = Service()
    service.request("echo", lambda _, call: call.body)
    await serving(serve("tcp://127.0.0.1:0", service))


async def relink_server(_: str, _count: int) -> None:
    from wirelake.peers.relink import Endpoint, Link, serve

    async def take(link: Link) -> None:
        async for _message in link:
            pass

    await serving(serve("tcp://127.0.0.1:0", {Endpoint("bench", connector_id_size=4): take}))


async def wolpertinger_server(_: str, _count: int) -> None:
    from wirelake.peers.wolpertinger import serve
    from wirelake.peers.wolpertinger.demo_component import Demo

    await serving(serve("tcp://127.0.0.1:0", Demo))


async def event_mesh_server(_: str, _count: int) -> None:
    from wirelake.peers.event_mesh import Node

    async def answer(here: Node, event: Any) -> None:
        await here.publish("answer", BODY, to=[f"udp://127.0.0.1:{event.source[1]}"])

    async with mesh_node("answers") as here:
        here.subscribe("ask", answer)
        print(here.address, flush=True)
        await asyncio.Event().wait()


def mesh_node(name: str, **more: Any) -> Any:
    """A node that proves what it says, and trusts the other."""
    from wirelake.peers.event_mesh import Options, node
    from wirelake.protocols.event_mesh import Credentials, Key, TrustStore

    store = TrustStore([Key(*one) for one in KEYS.values()])
    return node("udp://127.0.0.1:0", credentials=Credentials(*KEYS[name]), options=Options(trust=store), **more)


async def serving(server: Any) -> None:
    """Serve until the process is stopped."""
    async with server as listening:
        print(listening.address, flush=True)
        await asyncio.Event().wait()


async def nats_server(address: str, _count: int) -> None:
    import nats

    connection = await nats.connect(address)

    async def answer(message: Any) -> None:
        await message.respond(message.data)

    await connection.subscribe("echo", cb=answer)
    await connection.flush()
    print(address, flush=True)
    await asyncio.Event().wait()


async def websockets_server(_: str, _count: int) -> None:
    from websockets.asyncio.server import serve

    async def answer(connection: Any) -> None:
        async for message in connection:
            await connection.send(message)

    async with serve(answer, "127.0.0.1", 0, compression=None) as listening:
        print(f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}", flush=True)
        await asyncio.Event().wait()


def xmlrpc_server(_: str, _count: int) -> None:
    from socketserver import ThreadingMixIn
    from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

    class Handler(SimpleXMLRPCRequestHandler):
        protocol_version = "HTTP/1.1"

    class Server(ThreadingMixIn, SimpleXMLRPCServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler, logRequests=False) as server:
        server.register_function(lambda a, b: a + b, "Add")
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()


# The client of all of them.


class Answer(asyncio.Protocol):
    """Waits for what comes back."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.waiting.set_result(data)

    async def ask(self) -> bytes:
        self.waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.transport.write(BODY)
        return await self.waiting


async def connected(addresses: dict[str, str], stack: contextlib.AsyncExitStack) -> dict[str, Ask]:
    """A function for each that asks once and waits for the answer."""
    from wirelake.peers import emp, relink, wolpertinger, yamp

    _, raw = await asyncio.get_running_loop().create_connection(Answer, "127.0.0.1", int(addresses["raw"]))
    one = await stack.enter_async_context(emp.connect(addresses["emp"]))
    two = await stack.enter_async_context(yamp.connect(addresses["yamp"]))
    link = await stack.enter_async_context(relink.connect(addresses["relink"], relink.Endpoint("bench", connector_id_size=4)))
    add = (await stack.enter_async_context(wolpertinger.connect(addresses["wolpertinger"]))).Demo.Add
    mesh = await stack.enter_async_context(mesh_node("asks", peers=[addresses["event_mesh"]]))
    answers, channel = mesh.subscribe("answer"), link.channel(b"line")

    async def there_and_back() -> None:
        await mesh.publish("ask", BODY)
        await anext(answers)

    asks: dict[str, Ask] = {
        "raw": raw.ask,
        "emp": lambda: one.request(BODY),
        "yamp": lambda: two.request("echo", TEXT),
        "relink ping": link.ping,
        "relink send": lambda: channel.send(BODY),
        "event_mesh": there_and_back,
        "wolpertinger": lambda: add(1, 2),
    }
    return asks | await rivals(addresses, stack)


async def rivals(addresses: dict[str, str], stack: contextlib.AsyncExitStack) -> dict[str, Ask]:
    """The same for those rivals that are there."""
    from xmlrpc.client import ServerProxy

    proxy = stack.enter_context(ServerProxy(addresses["xmlrpc"]))

    async def call() -> object:
        return proxy.Add(1, 2)  # nothing else runs meanwhile

    asks: dict[str, Ask] = {"xmlrpc": call}
    if "nats" in addresses:
        import nats

        connection = await nats.connect(addresses["nats"])
        stack.push_async_callback(connection.close)
        asks["nats"] = lambda: connection.request("echo", BODY, timeout=30)
    if "websockets" in addresses:
        from websockets.asyncio.client import connect

        socket = await stack.enter_async_context(connect(addresses["websockets"], compression=None))

        async def echo() -> object:
            await socket.send(BODY)
            return await socket.recv()

        asks["websockets"] = echo
    return asks


async def client(address: str, turns: int) -> None:
    """Ask all of them in turns."""
    async with contextlib.AsyncExitStack() as stack:
        asks = await connected(json.loads(address), stack)
        for ask in asks.values():
            await taken(ask, WARM)
        found: dict[str, list[list[float]]] = {name: [] for name in asks}
        for _ in range(turns):
            for name, ask in asks.items():
                found[name].append(await taken(ask, ASKS))
        report(
            **{
                f"{name} {part}": statistics.median(turn[at] for turn in seen)
                for name, seen in found.items()
                for at, part in enumerate(PARTS)
            }
        )


PARTS = ("p50", "p99", "mean")


async def taken(ask: Ask, count: int) -> list[float]:
    """Microseconds that requests take: p50, p99 and the mean."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await ask()
        times.append(1e6 * (time.perf_counter() - began))
    times.sort()
    return [times[count // 2], times[count * 99 // 100], statistics.mean(times)]


SERVERS: dict[str, Role] = {
    "raw": raw_server,
    "emp": emp_server,
    "yamp": yamp_server,
    "relink": relink_server,
    "event_mesh": event_mesh_server,
    "wolpertinger": wolpertinger_server,
    "xmlrpc": xmlrpc_server,
    "nats": nats_server,
    "websockets": websockets_server,
}


def places() -> dict[str, tuple[int, int]]:
    """Where the client runs, and the servers: name -> a core for each."""
    cores = sorted(os.sched_getaffinity(0))
    apart = {"two cores": (cores[0], cores[1])} if len(cores) > 1 else {}
    return {**apart, "one core": (cores[0], cores[0])}


@contextlib.contextmanager
def on_core(number: int) -> Iterator[None]:
    """Processes that are started meanwhile run on this core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {number})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measured(turns: int, client_core: int, server_core: int) -> dict[str, float]:
    """Microseconds by name and part."""
    lacking = absent()
    with contextlib.ExitStack() as stack:
        addresses = {}
        with on_core(server_core):
            for name in SERVERS:
                if name not in lacking:
                    through = stack.enter_context(broker()) if name == "nats" else "-"
                    addresses[name] = told(stack.enter_context(started(__file__, name, through)))
        with on_core(client_core):
            return outcome(__file__, "client", json.dumps(addresses), turns)


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    figures = []
    for place, (client_core, server_core) in places().items():
        figures += compared(measured(QUICK_TURNS if quick else TURNS, client_core, server_core), place)
    return sorted(figures, key=lambda figure: (TABLE, RATES, SLOWEST).index(figure.table))


def compared(found: dict[str, float], place: str) -> list[Figure]:
    """Figures of one place, beside those of the rivals."""

    def figure(name: str, ours: str, rival: str = "", theirs: str = "", most: float | None = None, part: str = "p50") -> Figure:
        table, named = TABLE if part == "p50" else SLOWEST, f"{name}, {part}, {place}"
        other = found.get(f"{theirs} {part}")
        return Figure(table=table, name=named, ours=found[f"{ours} {part}"], unit="µs", rival=rival, theirs=other, most=most)

    ours, theirs = (1e6 / found[f"{name} mean"] for name in ("wolpertinger", "xmlrpc"))
    rate = f"wolpertinger calls, one caller, {place}"
    rows = [
        ("EMP request", "emp", "raw asyncio.Protocol", "raw", 1.5),
        ("YAMP request", "yamp", "raw asyncio.Protocol", "raw", 1.5),
        ("Relink send until consumed", "relink send", "Relink's own ping", "relink ping", 3),
        ("wolpertinger call", "wolpertinger", "xmlrpc, kept", "xmlrpc", None),
        ("Event Mesh event there and back", "event_mesh", "raw asyncio.Protocol", "raw", None),
        ("EMP request", "emp", "nats-py", "nats", None),
        ("YAMP request", "yamp", "websockets", "websockets", None),
    ]
    return [
        *(figure(*row) for row in rows),
        Figure(table=RATES, name=rate, ours=ours, unit="/s", rival="xmlrpc, kept", theirs=theirs, least=2),
        *(figure(name, one, rival, other, part="p99") for name, one, rival, other, _ in rows),
    ]


if __name__ == "__main__":
    main(run, __doc__, {**SERVERS, "client": client})
