"""Run by `make wheel` in an environment without extras: the wire half works there, and commands name the missing extra."""

import asyncio
import contextlib
import importlib.util
import io
import tempfile

from missing_extras import CASES, complaint
from wirelake.cli.main import run
from wirelake.peers.emp import connect, serve
from wirelake.peers.event_mesh.node import node

for absent in ("pyspark", "pyarrow", "numba", "numpy", "deltalake", "websockets", "cbor2", "aioquic", "slixmpp"):
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


def check_complaints() -> None:
    """Every command that needs an extra says which, in one line."""
    with tempfile.TemporaryDirectory() as folder:
        for words, extra in CASES:
            with contextlib.redirect_stderr(io.StringIO()) as talk:
                code = run([word.format(tmp=folder) for word in words])
            if wrong := complaint(code, talk.getvalue(), extra):
                raise SystemExit(f"wirelake {' '.join(words)}: {wrong}")


asyncio.run(main())
check_complaints()
print(f"the wire half works without any extra, and {len(CASES)} commands name the one they lack")
