"""Datagrams in memory keep the contract of an endpoint: whole, from somebody, bounded, counted."""

from __future__ import annotations

import asyncio

import pytest
from tests.peers.world import run

from wirelake.transports.datagram import BATCH
from wirelake.transports.memory import MemoryNetwork


def test_what_is_sent_arrives_with_its_sender():
    async def main():
        net = MemoryNetwork()
        one, two = net.endpoint("one"), net.endpoint("two")
        one.send(b"x", ("two", 1))
        one.send(b"", ("two", 1))
        one.send(b"gone", ("three", 1))
        assert await two.receive() == [(b"x", ("one", 1)), (b"", ("one", 1))]
        await one.ready()
        with pytest.raises(OSError, match="in use"):
            net.endpoint("one")

    run(main)


def test_a_queue_has_an_end_and_what_is_over_it_is_counted():
    async def main():
        net = MemoryNetwork(max_queue=300)
        one, two = net.endpoint("one"), net.endpoint("two")
        for number in range(310):
            one.send(b"%d" % number, ("two", 1))
        assert two.lost == 10
        assert len(await two.receive()) == BATCH
        assert len(await two.receive()) == 300 - BATCH

    run(main)


def test_closing_wakes_and_frees_the_place():
    async def main():
        net = MemoryNetwork()
        one = net.endpoint("one")
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(one.receive())
            await asyncio.sleep(0)
            await one.close()
        assert reading.result() == []
        assert one.send(b"x", ("one", 1))
        assert one.unsent == 1
        net.endpoint("one")

    run(main)
