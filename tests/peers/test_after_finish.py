"""What is sent after `finish` is dropped, on every transport: a late answer must not break a connection that is being closed."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import uvloop
from tests.peers.ends import ways
from tests.peers.world import run

from wirelake.transports import memory, reach
from wirelake.transports.address import parse


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("scheme", ["tcp", "tls", "ws", "wss", "unix", "udp"])
def test_what_is_sent_after_finish_is_dropped(tmp_path, contexts, scheme, loop):
    async def main():
        way = ways(tmp_path, *contexts)[scheme]
        target = parse(way.address, None, reach.SCHEMES)
        arrived = asyncio.get_running_loop().create_future()
        listener = await reach.listen(target, way.server, arrived.set_result)
        running = asyncio.ensure_future(listener.run())

        async def take():
            return await (await arrived).stream()

        taking = asyncio.ensure_future(take())
        one = await reach.connect(target._replace(port=listener.port), way.client)
        one.send(b"before")
        two = await taking
        heard = await two.receive()
        one.finish()
        one.send(b"after")
        one.send(b"and again")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):  # TLS and UDP cannot say that no more comes
                while data := await two.receive():
                    heard += data
        assert heard == b"before"
        two.abort()
        await one.close()
        one.send(b"at the very end")
        await two.close()
        listener.close()
        running.cancel()
        await asyncio.wait([running])

    run(main, loop_factory=loop)


def test_in_memory_too():
    async def main():
        one, two = memory.pair()
        one.send(b"before")
        one.finish()
        one.send(b"after")
        assert await two.receive() == b"before"
        assert await two.receive() == b""

    run(main)
