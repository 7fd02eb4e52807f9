"""A client that reconnects authenticates anew, and calls go on over the next connection."""

from __future__ import annotations

import asyncio

import pytest
from tests.peers.wolpertinger.world import KEY, SERVER, Shop
from tests.peers.world import run

from wirelake.errors import SessionClosed
from wirelake.peers.backoff import Backoff
from wirelake.peers.wolpertinger import Options, connect, serve


def test_each_connection_is_authenticated_before_it_is_given():
    async def main():
        options = Options(cluster_key=KEY, authenticate=3)
        async with serve("tcp://127.0.0.1:0", Shop, options=SERVER) as server:
            client = connect(server.address, options=options, reconnect=Backoff(first=0.01, most=0.05))
            async with client as first:
                assert await first.Shop.Level3() == 3
                await first.Shop.Note.tell("gone with its connection")
                for peer in list(server.peers):
                    peer.stream.abort()
                assert isinstance(await first.over(), SessionClosed)
                with pytest.raises(SessionClosed):
                    await first.Shop.Level3()
                while (second := await client.peer()) is first:
                    await asyncio.sleep(0.01)
                assert second.trust_state.held == 3
                assert await second.Shop.Level3() == 3
                assert await second.Shop.Notes() == ()
                assert client.connections == 2

    run(main)
