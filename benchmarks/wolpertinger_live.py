"""wolpertinger calls over lines of TCP, beside Python's own XML-RPC client and server.

All call `Add(int, int)` and check every sum; client and server are processes of their own. One caller waits for each answer; 64 callers
call at the same time. wolpertinger has one connection and confirms every message (four lines a call). `xmlrpc` is the standard library's
server as it comes, which closes the connection after each call, but with threads, so that it serves several; `xmlrpc, kept` is the same
told to speak HTTP/1.1, so that each caller keeps its connection.

Goal: at least 1.5 times XML-RPC, with 1 caller and with 64. It is judged against both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from figures import show, verdict

CALLERS = (1, 64)
GOAL = 1.5
WARM = 200
"""Calls before the clock starts."""


# Both sides of each rival. A server prints where it is; a client prints seconds and its CPU time as JSON.


async def wolpertinger_server() -> None:
    from wirelake.peers.wolpertinger import serve
    from wirelake.peers.wolpertinger.demo_component import Demo
    from wirelake.protocols.kernel import use_compiled

    use_compiled()
    async with serve("tcp://127.0.0.1:0", Demo) as server:
        print(server.address, flush=True)
        await asyncio.Event().wait()


async def wolpertinger_client(address: str, callers: int, count: int) -> None:
    from wirelake.peers.wolpertinger import connect
    from wirelake.protocols.kernel import use_compiled

    use_compiled()
    async with connect(address) as peer:
        add = peer.Demo.Add

        async def caller(calls: int) -> None:
            for number in range(calls):
                assert await add(number, 2) == number + 2

        async def all_of(calls: int) -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(callers):
                    group.create_task(caller(calls // callers))

        await all_of(WARM)
        began, busy = time.perf_counter(), time.process_time()
        await all_of(count)
        report(time.perf_counter() - began, time.process_time() - busy)


def xmlrpc_server(kept: bool) -> None:
    from socketserver import ThreadingMixIn
    from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

    class Handler(SimpleXMLRPCRequestHandler):
        protocol_version = "HTTP/1.1" if kept else "HTTP/1.0"

    class Server(ThreadingMixIn, SimpleXMLRPCServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler, logRequests=False) as server:
        server.register_function(lambda a, b: a + b, "Add")
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()


def xmlrpc_client(address: str, callers: int, count: int) -> None:
    from xmlrpc.client import ServerProxy

    ready, done = threading.Barrier(callers + 1), threading.Barrier(callers + 1)

    def caller() -> None:
        with ServerProxy(address) as proxy:
            for number in range(WARM // callers + 1):
                assert proxy.Add(number, 2) == number + 2
            ready.wait()
            for number in range(count // callers):
                assert proxy.Add(number, 2) == number + 2
            done.wait()

    threads = [threading.Thread(target=caller) for _ in range(callers)]
    for thread in threads:
        thread.start()
    ready.wait()
    began, busy = time.perf_counter(), time.process_time()
    done.wait()
    report(time.perf_counter() - began, time.process_time() - busy)
    for thread in threads:
        thread.join()


def report(seconds: float, busy: float) -> None:
    print(json.dumps({"seconds": seconds, "busy": busy}), flush=True)


@contextlib.contextmanager
def started(name: str) -> Iterator[str]:
    """A server in a process of its own, and where it is."""
    command = [sys.executable, str(Path(__file__).resolve()), "--role", f"{name}-server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def play(name: str, callers: int, count: int) -> dict[str, float]:
    """One run of one rival, all processes fresh."""
    with started(name) as address:
        command = [sys.executable, str(Path(__file__).resolve()), "--role", f"{name}-client", "--address", address]
        told = subprocess.run([*command, "--callers", str(callers), "--calls", str(count)], check=True, capture_output=True, text=True)
    return {**json.loads(told.stdout), "calls": count // callers * callers}


def take_part(chosen: argparse.Namespace) -> None:
    """What a child process does."""
    import uvloop

    with contextlib.suppress(KeyboardInterrupt):
        if chosen.role == "wolpertinger-server":
            uvloop.run(wolpertinger_server())
        elif chosen.role == "wolpertinger-client":
            uvloop.run(wolpertinger_client(chosen.address, chosen.callers, chosen.calls))
        elif chosen.role.endswith("-server"):
            xmlrpc_server(kept="kept" in chosen.role)
        else:
            xmlrpc_client(chosen.address, chosen.callers, chosen.calls)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--calls", type=int, default=10_000)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--callers", type=int, default=1, help=argparse.SUPPRESS)
    options.add_argument("--role", help=argparse.SUPPRESS)
    options.add_argument("--address", default="-", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.role:
        take_part(chosen)
        return
    rivals = [(name, callers) for callers in CALLERS for name in ("wolpertinger", "xmlrpc", "xmlrpc, kept")]
    runs: dict[tuple[str, int], list[dict[str, float]]] = {one: [] for one in rivals}
    for _ in range(chosen.times):
        for one in rivals:
            runs[one].append(play(*one, chosen.calls))
    rates = {one: statistics.median(run["calls"] / run["seconds"] for run in found) for one, found in runs.items()}
    busy = {one: statistics.median(run["busy"] / run["calls"] for run in found) for one, found in runs.items()}
    lines = [
        [
            f"{name}, {callers} caller{'s' if callers > 1 else ''}",
            f"{rates[name, callers]:,.0f}",
            f"{1e6 * callers / rates[name, callers]:,.0f}",
            f"{1e6 * busy[name, callers]:.0f}",
            f"{rates['wolpertinger', callers] / rates[name, callers]:.1f} x",
        ]
        for name, callers in rivals
    ]
    columns = ["calls", "calls/s", "mean latency, µs", "client CPU, µs/call", "wolpertinger is"]
    show(f"{chosen.calls:,} calls of Add(int, int) over TCP, median of {chosen.times}", columns, lines)
    for name, callers in rivals:
        if name != "wolpertinger":
            ratio = rates["wolpertinger", callers] / rates[name, callers]
            who = f"{callers} caller{'s' if callers > 1 else ''}"
            verdict(f"wolpertinger >= {GOAL} x {name}, {who}", ratio >= GOAL, f"{ratio:.1f} x")


if __name__ == "__main__":
    main()
