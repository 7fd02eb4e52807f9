"""How long an honest client waits beside greedy ones, on uvloop and asyncio.

The server has a process of its own. Greedy clients send valid YAMP events as fast as they can: 500 bytes each, of JSON that takes long to
check. An honest client then connects, asks, and asks again. The median of several tries counts.

Goals: answered within 0.2 s beside one greedy client, within 2 s beside 50.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import statistics
import struct
import threading
import time
from collections.abc import Iterator

from figures import Figure, Role, main
from rivals import started, told

TABLE = "An honest client beside greedy ones"
BODY = b"[" * 255 + b"]" * 255
HANDSHAKE = b"\0\0\1\4json"
GOALS = {1: 0.2, 50: 2.0}
TRIES, QUICK_TRIES = 15, 5
WARM_UP = 1.0
"""Seconds of flooding before the first try."""


def event(number: int) -> bytes:
    """YAMP 0x05."""
    return b"\x05" + number.to_bytes(16, "big") + b"\4echo" + struct.pack(">I", len(BODY)) + BODY


async def serve_yamp() -> None:
    """Print the address, and serve until the process is ended."""
    from wirelake.peers.yamp import Service, serve

    service = Service()
    service.request("echo", lambda _, call: call.body)
    async with serve("tcp://127.0.0.1:0", service) as server:
        print(server.address, flush=True)
        await asyncio.Event().wait()


async def uvloop_server(_: str, _count: int) -> None:
    await serve_yamp()


def asyncio_server(_: str, _count: int) -> None:
    asyncio.run(serve_yamp())


ROLES: dict[str, Role] = {"uvloop": uvloop_server, "asyncio": asyncio_server}


@contextlib.contextmanager
def greedy(address: str, count: int) -> Iterator[None]:
    """So many clients that send as fast as they can, and never read."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    block, is_over = b"".join(map(event, range(500))), threading.Event()

    def flood(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not is_over.is_set():
                sock.sendall(block)

    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(count)]
        for sock in sockets:
            sock.sendall(HANDSHAKE)
        threads = [threading.Thread(target=flood, args=(sock,)) for sock in sockets]
        for thread in threads:
            thread.start()
        try:
            time.sleep(WARM_UP)
            yield
        finally:
            is_over.set()
            for sock in sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


async def honest(address: str, tries: int) -> tuple[float, float]:
    """Seconds until a new client is answered, and one that is connected."""
    from wirelake.peers.yamp import connect

    new, known = [], []
    for _ in range(tries):
        began = time.perf_counter()
        async with connect(address, connect_timeout=60) as peer:
            await peer.request("echo", "hi", timeout=60)
            new.append(time.perf_counter() - began)
            began = time.perf_counter()
            await peer.request("echo", "hi", timeout=60)
            known.append(time.perf_counter() - began)
    return statistics.median(new), statistics.median(known)


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    figures = []
    for loop in ROLES:
        for count, goal in GOALS.items():
            with started(__file__, loop) as server:
                address = told(server)
                with greedy(address, count):
                    seconds = asyncio.run(honest(address, QUICK_TRIES if quick else TRIES))
            for what, found in zip(("connecting and asking", "asking"), seconds, strict=True):
                figures.append(Figure(table=TABLE, name=f"{loop}, beside {count}: {what}", ours=found, unit="s", most=goal))
    return figures


if __name__ == "__main__":
    main(run, __doc__, ROLES)
