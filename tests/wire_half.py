"""Run by `make wheel` in an environment without Spark, Arrow and Numba: the wire half must work there. Prints one line."""

import asyncio
import importlib.util

from wirelake.peers.emp import connect, serve
from wirelake.peers.event_mesh import node

for absent in ("pyspark", "pyarrow", "numba", "numpy", "deltalake"):
    if importlib.util.find_spec(absent) is not None:
        raise SystemExit(f"{absent} is installed here: this checks nothing")


async def main() -> None:
    async with serve("tcp://127.0.0.1:0", on_request=lambda _peer, request: request.body[::-1]) as server, connect(server.address) as peer:
        if await peer.request(b"wire", timeout=5) != b"eriw":
            raise SystemExit("the answer is wrong")
    async with node("udp://127.0.0.1:0") as one, node("udp://127.0.0.1:0", peers=[one.address]) as two:
        heard = one.subscribe("wire.*")
        await two.publish("wire.half", 1)
        if (await asyncio.wait_for(anext(heard), 5)).content != [1]:
            raise SystemExit("the event is wrong")
    print("the wire half works without the lake's libraries")


asyncio.run(main())
