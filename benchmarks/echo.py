"""Echo requests with 64 in flight: EMP against NATS and gRPC, all from Python, the two sides in processes of their own.

Every rival sends the same number of requests of 64 bytes, on uvloop, and the rivals take turns; the median of three runs counts. NATS goes
through its server, because that is what it is; gRPC has bytes for messages, so that no codec is measured.

Goals: EMP at least 2 times NATS and 10 times gRPC.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from figures import show, verdict

IN_FLIGHT = 64
BODY = b"x" * 64
SUBJECT = "echo"
METHOD = "/bench.Echo/Say"
GOALS = {"nats": 2, "grpc": 10}

Ask = Callable[[], Awaitable[object]]


# Both sides of each rival. A server prints a line when it can be asked; a client prints what it saw as JSON.


async def emp_server(_: str) -> None:
    from wirelake.peers.emp import serve
    from wirelake.protocols.kernel import use_compiled

    use_compiled()
    async with serve("tcp://127.0.0.1:0", on_request=lambda _, request: request.body) as server:
        print(server.address, flush=True)
        await asyncio.Event().wait()


async def emp_client(address: str, count: int) -> None:
    from wirelake.peers.emp import connect
    from wirelake.protocols.kernel import use_compiled

    use_compiled()
    async with connect(address) as peer:
        await measure(lambda: peer.request(BODY), count)


async def nats_server(address: str) -> None:
    import nats
    from nats.aio.msg import Msg

    connection = await nats.connect(address)

    async def answer(message: Msg) -> None:
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


async def grpc_server(_: str) -> None:
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


async def measure(ask: Ask, count: int, body: Callable[[Any], bytes] = lambda answer: answer) -> None:
    """Keep 64 requests in flight until `count` are answered, after a tenth of that to warm up."""

    async def asker(each: int) -> None:
        for _ in range(each):
            assert body(await ask()) == BODY

    for each in (count // IN_FLIGHT // 10 + 1, count // IN_FLIGHT):
        began, worked = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(asker(each))
        seconds, busy = time.perf_counter() - began, time.process_time() - worked
    print(json.dumps({"seconds": seconds, "busy": busy, "requests": count // IN_FLIGHT * IN_FLIGHT}), flush=True)


ROLES = {"emp": (emp_server, emp_client), "nats": (nats_server, nats_client), "grpc": (grpc_server, grpc_client)}


# The match.


@contextlib.contextmanager
def started(*command: str) -> Iterator[str]:
    """A server process for as long as the block runs; gives the first line it prints."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not line:
            raise SystemExit(f"{' '.join(command)} did not start")
        yield line
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """nats-server on a free port of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([find_broker(), "-a", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def find_broker() -> str:
    """Debian puts it where only root looks."""
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin") or ""


def absent() -> dict[str, str]:
    """Rivals that cannot take part -> how to install what they lack."""
    lacking = {}
    if importlib.util.find_spec("nats") is None:
        lacking["nats"] = "pip install nats-py"
    elif not find_broker():
        lacking["nats"] = "apt-get install nats-server (or put a release of github.com/nats-io/nats-server on the PATH)"
    if importlib.util.find_spec("grpc") is None:
        lacking["grpc"] = "pip install grpcio"
    return lacking


def play(name: str, count: int, script: str = __file__) -> dict[str, float]:
    """One run of one rival, all processes fresh."""
    here = [sys.executable, str(Path(script).resolve()), "--role"]
    with contextlib.ExitStack() as stack:
        through = stack.enter_context(broker()) if name == "nats" else "-"
        address = stack.enter_context(started(*here, f"{name}-server", "--address", through))
        client = [*here, f"{name}-client", "--address", address, "--requests", str(count)]
        found = subprocess.run(client, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    return dict(json.loads(found.stdout))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--requests", type=int, default=20_000)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--role", help=argparse.SUPPRESS)
    options.add_argument("--address", default="-", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.role:
        take_part(chosen.role, chosen.address, chosen.requests)
        return
    lacking = absent()
    for name, remedy in lacking.items():
        print(f"{name} does not take part: {remedy}", file=sys.stderr)
    names = [name for name in ROLES if name not in lacking]
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(chosen.times):
        for name in names:
            runs[name].append(play(name, chosen.requests))
    rates = {name: statistics.median(run["requests"] / run["seconds"] for run in found) for name, found in runs.items()}
    busy = {name: statistics.median(run["busy"] / run["requests"] for run in found) for name, found in runs.items()}
    lines = [
        [
            name,
            f"{rates[name]:,.0f}",
            f"{1e6 * IN_FLIGHT / rates[name]:,.0f}",
            f"{1e6 * busy[name]:.0f}",
            f"{rates['emp'] / rates[name]:.1f} x",
        ]
        for name in names
    ]
    columns = ["echo", "requests/s", "mean latency, µs", "client CPU, µs/request", "EMP is"]
    show(f"{chosen.requests:,} echo requests of {len(BODY)} bytes, {IN_FLIGHT} in flight, median of {chosen.times}", columns, lines)
    for name, goal in GOALS.items():
        if name in rates:
            verdict(f"EMP echo >= {goal} x {name}", rates["emp"] >= goal * rates[name], f"{rates['emp'] / rates[name]:.1f} x")


def take_part(role: str, address: str, count: int, roles: dict[str, tuple[Any, Any]] = ROLES) -> None:
    """What a child process does."""
    import uvloop

    name, _, side = role.rpartition("-")
    server, client = roles[name]
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(server(address) if side == "server" else client(address, count))


if __name__ == "__main__":
    main()
