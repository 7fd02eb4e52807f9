"""Streams in memory behave like sockets: bytes in order, half-close, reset, back-pressure."""

from __future__ import annotations

import asyncio

import pytest
from tests.peers.world import run, until

from wirelake.transports.memory import HIGH, pair


async def read_all(stream) -> list[bytes]:
    pieces = []
    while data := await stream.receive():
        pieces.append(data)
    return pieces


@pytest.mark.parametrize("cut", [1, 3, 4096, None])
def test_bytes_arrive_in_order_in_pieces_of_the_cut(cut):
    data = bytes(range(256)) * 40

    async def main():
        one, two = pair(cut)
        one.send(data[:100])
        one.send(data[100:])
        one.finish()
        pieces = await read_all(two)
        assert b"".join(pieces) == data
        assert max(map(len, pieces)) == min(cut or len(data), len(data))
        assert (one.remote, two.remote) == (two.local, one.local)

    run(main)


def test_who_finished_still_receives():
    async def main():
        one, two = pair()
        one.finish()
        one.send(b"too late")
        assert await two.receive() == b""
        two.send(b"answer")
        assert await one.receive() == b"answer"
        await two.close()
        assert await one.receive() == b""

    run(main)


def test_a_half_closed_stream_is_still_congested():
    async def main():
        one, two = pair()
        two.finish()
        one.send(bytes(HIGH + 1))
        async with asyncio.TaskGroup() as group:
            draining = group.create_task(one.drain())
            await asyncio.sleep(0.01)
            assert not draining.done()
            assert await two.receive() == bytes(HIGH + 1)

    run(main)


def test_drain_waits_for_the_reader():
    async def main():
        one, two = pair(4096)
        one.send(bytes(HIGH + 1))
        assert one.congested
        assert one.unsent == HIGH + 1
        async with asyncio.TaskGroup() as group:
            draining = group.create_task(one.drain())
            await asyncio.sleep(0.01)
            assert not draining.done()
            await two.receive()
            await until(draining.done)
        assert not one.congested

    run(main)


def test_abort_reaches_both_ends_and_who_waits():
    async def main():
        one, two = pair()
        one.send(bytes(HIGH + 1))
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(failing(wait)) for wait in (one.drain, one.receive)]
            await asyncio.sleep(0)
            two.abort()
            assert await asyncio.gather(*waits) == ["the connection was aborted"] * 2
        assert one.unsent == 0
        with pytest.raises(ConnectionResetError):
            await two.receive()

    async def failing(wait):
        with pytest.raises(ConnectionResetError) as caught:
            await wait()
        return str(caught.value)

    run(main)


def test_aborting_what_is_closed_takes_nothing_back():
    async def main():
        one, two = pair()
        one.send(b"last words")
        await one.close()
        one.abort()
        assert await two.receive() == b"last words"
        assert await two.receive() == b""
        two.send(b"nobody there")
        assert two.unsent == 0

    run(main)


def test_closing_ends_ones_own_reading():
    async def main():
        one, _ = pair()
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(one.receive())
            await asyncio.sleep(0)
            await one.close()
            assert await reading == b""

    run(main)
