"""A server with small budgets, in a process of its own: `python -m tests.peers.limit_server PROTOCOL`. It prints its address."""

from __future__ import annotations

import asyncio
import importlib
import sys
from functools import partial

from wirelake.peers import driver, emp, event_mesh, relink, wolpertinger, yamp
from wirelake.peers.admission import ServerLimits

HOST = 32_000_000
"""The budget of a host."""
CONNECTION = 8_000_000
"""What may wait for the handlers of one connection, or in the inboxes of a node."""
LIMITS = ServerLimits(max_memory_per_host=HOST, sweep_interval=0.1)
ANY = "tcp://127.0.0.1:0"
DEMO = relink.Endpoint("demo", 4, 4)
DECIDED = relink.Endpoint("decided", 4, 4, connector_transactions=True)


async def answer(_peer, request):
    if request.body.startswith(b"sleep"):
        await asyncio.sleep(3600)
    return bytes(1_000_000) if request.body == b"much" else request.body


def serve_emp():
    options = emp.Options(max_memory=CONNECTION, max_in_flight=10)
    return emp.serve(ANY, limits=LIMITS, options=options, on_request=answer)


def serve_yamp(address=ANY):
    service = yamp.Service()

    @service.request("sleep")
    async def sleep(_peer, _call):
        await asyncio.sleep(3600)

    @service.request("echo")
    async def echo(_peer, call):
        return call.body

    return yamp.serve(address, service, limits=LIMITS, options=yamp.Options(max_memory=CONNECTION))


class Sample:
    @wolpertinger.method(trust=0)
    async def Echo(self, value: str) -> str:  # noqa: N802 - methods are named as on the wire
        return value


async def take(link):
    async for _ in link:
        pass


SERVERS = {
    "emp": serve_emp,
    "yamp": serve_yamp,
    "yamp over WebSocket": partial(serve_yamp, "ws://127.0.0.1:0"),
    "wolpertinger": lambda: wolpertinger.serve(ANY, Sample, limits=LIMITS),
    "relink": lambda: relink.serve(ANY, {DEMO: take, DECIDED: take}, limits=LIMITS, options=relink.Options(max_memory=CONNECTION)),
    "event-mesh": lambda: event_mesh.node("udp://127.0.0.1:0", options=event_mesh.Options(max_memory=CONNECTION)),
}


async def main(protocol):
    # The compiler of scanners takes 170 MB, once for a process, whoever speaks.
    driver.BULK = importlib.import_module("wirelake.peers.event_mesh.node").BULK = 1 << 60
    async with SERVERS[protocol]() as server:
        if protocol == "event-mesh":
            server.subscribe(">")  # and nothing reads it
        watch = asyncio.create_task(subscribe(server)) if protocol.startswith("yamp") else None
        print(server.address, flush=True)
        await asyncio.sleep(60)
        del watch


async def subscribe(server):
    """A subscription to every peer that nothing reads."""
    seen = {}
    while True:
        for peer in server.peers:
            if peer not in seen:
                seen[peer] = peer.subscribe(">")
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
