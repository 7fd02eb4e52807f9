"""Servers of one process for `test_fairness.py`: `python -m tests.peers.fair_server LOOP FOLDER`, with `uvloop` or `asyncio`.

They print their addresses as one JSON object, and run until standard input ends. FOLDER has server.pem and server.key.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path

import uvloop

from wirelake.peers import emp, yamp
from wirelake.transports.tls import server_context


async def serve(folder: Path) -> None:
    """Serve at every transport until standard input ends."""
    service = yamp.Service()
    service.request("echo", lambda _, call: call.body)
    tls = server_context(folder / "server.pem", folder / "server.key")
    options = emp.Options(on_request=lambda _, request: request.body, on_data=lambda _, data: None)
    async with contextlib.AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(yamp.serve(address, service, tls=tls if address.startswith("tls") else None))
            for address in ("tcp://127.0.0.1:0", "tls://127.0.0.1:0", "ws://127.0.0.1:0", "udp://127.0.0.1:0", f"unix://{folder}/socket")
        ]
        addresses = {server.target.scheme: server.address for server in servers}
        mesh = await stack.enter_async_context(emp.serve("tcp://127.0.0.1:0", options=options))
        print(json.dumps(addresses | {"emp": mesh.address}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if sys.argv[1] == "uvloop" else asyncio.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[2])))
