"""Whoever tests peers leaves nothing open itself: `run` would blame the test."""

from __future__ import annotations

import asyncio
import socket

from tests.peers.raw import place
from tests.peers.world import Raw, raw_server, run


def test_who_listens_closes_what_it_accepted_whenever_it_stops():
    """Also before anybody has begun to talk over it."""

    async def main(turns: int) -> bool:
        began = False

        async def talk(raw: Raw) -> None:
            nonlocal began
            began = True
            await raw.reader.read()

        async with raw_server(talk) as address:
            with socket.create_connection(place(address)):
                for _ in range(turns):
                    await asyncio.sleep(0)
        return began

    began = [run(lambda turns=turns: main(turns)) for turns in range(8)]
    assert began == sorted(began), "later is further"
    assert set(began) == {False, True}
