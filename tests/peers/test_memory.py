"""Closed connections give their memory back at once: nothing waits for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from tests.peers.raw import place
from tests.peers.test_admission import SERVERS
from tests.peers.world import HELLO, run, until

from wirelake.peers.admission import DEFAULT_SERVER_LIMITS

BEGINNINGS = {
    "emp": HELLO + (4_000_000).to_bytes(4) + b"\5\0\0\0",
    "yamp": b"\0\0\1\4json" + b"\5" + bytes(16) + b"\4echo" + (4_000_000).to_bytes(4),
    "relink": b"",
    "wolpertinger": b"message_id:1;",
}
"""What comes before a body that never ends."""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", SERVERS)
def test_a_closed_connection_is_gone_without_the_garbage_collector(protocol):
    async def main():
        async with SERVERS[protocol](DEFAULT_SERVER_LIMITS) as server:
            peers = getattr(server, "_server", server).peers
            _, writer = await asyncio.open_connection(*place(server.address))
            writer.write(BEGINNINGS[protocol] + bytes(50_000) if protocol != "relink" else b"")
            await until(lambda: peers)
            if protocol != "relink":
                await until(lambda: any(one.account.unfinished >= 50_000 for one in peers))
            (peer,) = peers
            session, gone = weakref.ref(getattr(peer, "_session", None) or peer.session), weakref.ref(peer)
            del peer
            writer.transport.abort()
            await until(lambda: not peers)
            for _ in range(5):  # callbacks that still refer to it
                await asyncio.sleep(0)
            assert gone() is None, gc.get_referrers(gone())
            assert session() is None, gc.get_referrers(session())

    gc.collect()
    gc.disable()
    try:
        run(main)
    finally:
        gc.enable()
