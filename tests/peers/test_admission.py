"""Which connections a server keeps: the limits as functions first, then servers of every protocol."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass

import pytest
from tests.peers.raw import place
from tests.peers.world import ANY, HELLO, QUIET, run, until

from wirelake.peers import emp, relink, wolpertinger, yamp
from wirelake.peers.admission import ServerLimits, evictable, over_time


@dataclass(eq=False)
class Guest:
    host: str = "a"
    since: float = 0.0
    active_at: float = 0.0
    is_proven: bool = True


LIMITS = ServerLimits(evict_after=10.0, idle_timeout=100.0, handshake_timeout=20.0)


def test_the_longest_idle_connection_of_the_largest_host_is_evicted():
    few, many = [Guest("few", active_at=1.0)], [Guest("many", active_at=float(number)) for number in range(2, 6)]
    assert evictable([*few, *many], LIMITS, 50.0) is many[0]
    assert evictable([*few, *many], LIMITS, 50.0, "few") is few[0]
    assert evictable([*few, *many], LIMITS, 11.5) is None
    assert evictable([], LIMITS, 50.0) is None


def test_a_connection_that_never_said_anything_valid_is_evicted_first():
    old, silent = Guest(active_at=1.0), Guest(active_at=30.0, is_proven=False)
    assert evictable([old, silent], LIMITS, 50.0) is silent


def test_idle_and_silent_connections_are_closed_in_time():
    idle, silent = Guest(active_at=0.0), Guest(since=80.0, active_at=99.0, is_proven=False)
    fine = [Guest(active_at=1.0), Guest(since=81.0, active_at=99.0, is_proven=False)]
    assert [(one, why.split()[0]) for one, why in over_time([idle, silent, *fine], LIMITS, 100.0)] == [(idle, "idle"), (silent, "no")]
    assert over_time([idle, silent], ServerLimits(idle_timeout=None, handshake_timeout=None), 1e9) == []


def test_no_more_connections_than_descriptors(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    assert ServerLimits().connections == 192
    assert ServerLimits(max_connections=5).connections == 5
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert ServerLimits().connections == 10_000


# Servers.


class Sample:
    @wolpertinger.method(trust=0)
    async def Echo(self, value: str) -> str:  # noqa: N802 - methods are named as on the wire
        return value


async def take(link):
    async for _ in link:
        pass


DEMO = relink.Endpoint("demo", 4, 4)
SERVERS = {
    "emp": lambda limits: emp.serve(ANY, limits=limits, on_request=lambda _, request: request.body),
    "yamp": lambda limits: yamp.serve(ANY, limits=limits),
    "relink": lambda limits: relink.serve(ANY, {DEMO: take}, limits=limits),
    "wolpertinger": lambda limits: wolpertinger.serve(ANY, Sample, limits=limits),
}


async def meets_the_end(reader):
    """Read until the server closes."""
    while await reader.read(65_536):
        pass


@pytest.mark.parametrize("protocol", SERVERS)
def test_a_peer_that_says_nothing_is_closed(protocol):
    async def main():
        limits = ServerLimits(handshake_timeout=0.05, sweep_interval=0.02)
        async with SERVERS[protocol](limits) as server:
            reader, writer = await asyncio.open_connection(*place(server.address))
            async with asyncio.timeout(5):
                await meets_the_end(reader)
            writer.close()

    run(main)


def test_a_connection_that_carries_nothing_is_closed_after_its_handshake():
    async def main():
        limits = ServerLimits(idle_timeout=0.1, sweep_interval=0.02)
        options = QUIET
        async with emp.serve(ANY, limits=limits, options=options) as server:
            reader, writer = await asyncio.open_connection(*place(server.address))
            writer.write(HELLO)
            async with asyncio.timeout(5):
                await meets_the_end(reader)
            writer.close()

    run(main)


def test_connections_that_are_gone_do_not_count():
    async def main():
        limits = ServerLimits(max_connections_per_host=1, max_connections=1, evict_after=60.0)
        async with SERVERS["emp"](limits) as server:
            for number in range(4):
                async with emp.connect(server.address) as peer:
                    assert await peer.request(b"%d" % number) == b"%d" % number
                await until(lambda: not server._hosts)
            assert server.accepted == 4

    run(main)


def test_a_host_with_too_many_idle_connections_makes_space_for_its_next():
    async def main():
        limits = ServerLimits(max_connections_per_host=3, evict_after=0.0, linger=0.05)
        async with SERVERS["emp"](limits) as server:
            lines = []
            for _ in range(8):
                reader, writer = await asyncio.open_connection(*place(server.address))
                writer.write(HELLO)
                await reader.readexactly(len(HELLO))
                lines.append((reader, writer))
            async with emp.connect(server.address) as peer:
                assert await peer.request(b"still served") == b"still served"
            for reader, _ in lines[:-2]:
                async with asyncio.timeout(5):
                    await meets_the_end(reader)
            for _, writer in lines:
                writer.close()

    run(main)


@pytest.mark.slow
def test_unfinished_messages_of_one_host_are_bounded_together():
    async def main():
        limits = ServerLimits(max_memory_per_host=3_000_000, linger=0.05)
        async with SERVERS["emp"](limits) as server:
            lines = []
            for size in (1_000_000, 1_100_000, 1_200_000):
                reader, writer = await asyncio.open_connection(*place(server.address))
                writer.write(HELLO + (16_000_000).to_bytes(4) + b"\5\0\0\0" + bytes(size))
                lines.append((reader, writer))
            async with asyncio.timeout(5):
                await asyncio.wait([asyncio.ensure_future(meets_the_end(one)) for one, _ in lines], return_when=asyncio.FIRST_COMPLETED)
            await until(lambda: len(server.peers) == 2)
            assert sum(peer.account.size for peer in server.peers) < 3_000_000
            for _, writer in lines:
                writer.close()

    run(main)
