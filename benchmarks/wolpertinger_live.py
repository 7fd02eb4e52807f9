"""wolpertinger calls of `Add(int, int)` with 64 callers at a time, beside Python's own XML-RPC; one caller is in `latency.py`.

Client and server are processes of their own, and every sum is checked. wolpertinger has one connection and confirms every message (four
lines a call). `xmlrpc` is the standard library's server with threads; told to speak HTTP/1.1, so that each caller keeps its connection.

Goal: at least 1.5 x XML-RPC.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time

from figures import Figure, Role, main, report
from latency import wolpertinger_server, xmlrpc_server
from rivals import outcome, started, told

CALLERS = 64
CALLS = 6400
WARM = 640
"""Calls before the clock starts."""
TURNS, QUICK_TURNS = 5, 3
TABLE = "Calls, 64 callers"


async def wolpertinger_client(address: str, count: int) -> None:
    from wirelake.peers.wolpertinger import connect

    async with connect(address) as peer:
        add = peer.Demo.Add

        async def caller(calls: int) -> None:
            for number in range(calls):
                assert await add(number, 2) == number + 2

        for calls in (WARM, count):
            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(CALLERS):
                    group.create_task(caller(calls // CALLERS))
            seconds = time.perf_counter() - began
    report(rate=count / seconds)


def xmlrpc_client(address: str, count: int) -> None:
    from xmlrpc.client import ServerProxy

    ready, done = threading.Barrier(CALLERS + 1), threading.Barrier(CALLERS + 1)

    def caller() -> None:
        with ServerProxy(address) as proxy:
            for calls, after in ((WARM, ready), (count, done)):
                for number in range(calls // CALLERS):
                    assert proxy.Add(number, 2) == number + 2
                after.wait()

    threads = [threading.Thread(target=caller) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    done.wait()
    report(rate=count / (time.perf_counter() - began))
    for thread in threads:
        thread.join()


ROLES: dict[str, Role] = {
    "wolpertinger-server": wolpertinger_server,
    "wolpertinger-client": wolpertinger_client,
    "xmlrpc-server": xmlrpc_server,
    "xmlrpc-client": xmlrpc_client,
}


def play(name: str, count: int) -> float:
    """One run, all processes fresh: calls a second."""
    with started(__file__, f"{name}-server") as server:
        return outcome(__file__, f"{name}-client", told(server), count)["rate"]


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    rates: dict[str, list[float]] = {"wolpertinger": [], "xmlrpc": []}
    for _ in range(QUICK_TURNS if quick else TURNS):
        for name, seen in rates.items():
            seen.append(play(name, CALLS // (4 if quick else 1)))
    ours, theirs = (statistics.median(seen) for seen in rates.values())
    return [
        Figure(table=TABLE, name="wolpertinger calls, 64 callers", ours=ours, unit="/s", rival="xmlrpc, kept", theirs=theirs, least=1.5)
    ]


if __name__ == "__main__":
    main(run, __doc__, ROLES)
