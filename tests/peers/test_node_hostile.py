"""What a hostile peer sends to a live node: rejected with the right reason, silent on the wire, counted; no crash, no growth."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from tests.conformance.event_mesh import set_up
from tests.peers.nodes import ANY
from tests.peers.world import run, until
from tests.protocols.event_mesh.mesh import balanced, credentials
from tests.protocols.event_mesh.receiving import store
from tests.protocols.event_mesh.speech import NOW, SPOKEN, maced, mutations, name, node, packet, tlv

from wirelake.peers.event_mesh import Options
from wirelake.peers.event_mesh.node import node as live_node
from wirelake.protocols.event_mesh import RelayRule
from wirelake.protocols.event_mesh.security.verify import Receiver, Rejected
from wirelake.transports import udp

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "event-mesh.json").read_text())
REJECTED = [one for one in VECTORS if one["expect"] == "reject"]
AT_ONCE = 100


def target(options: Options | None = None, clock=lambda: float(NOW), trust=None, **more):
    """A node that knows NODE's keys, at a time that stands still."""
    told = msgspec.structs.replace(options or Options(rate_limit=None), trust=store() if trust is None else trust, clock=clock, **more)
    return live_node(ANY, credentials=credentials("me"), options=told)


async def say(raw, one, datagrams) -> None:
    """Send, but no faster than it is read: here nothing is to be lost."""
    for first in range(0, len(datagrams), AT_ONCE):
        before = one.metrics.session.received
        some = datagrams[first : first + AT_ONCE]
        for data in some:
            raw.send(data, one._endpoint.local)
        await until(lambda: one.metrics.session.received == before + len(some))  # noqa: B023 - it is over before the next turn


@pytest.mark.parametrize("vector", REJECTED, ids=lambda one: one["name"])
def test_every_rejecting_vector(vector):
    receiver, now, _ = set_up(vector["keys"])
    dropped = []

    async def main():
        raw = await udp.listen("127.0.0.1", 0)
        told = Options(policy=receiver.policy, relay=(RelayRule(to=(raw.local,)),))
        async with target(told, lambda: float(now), receiver.store, on_drop=lambda _, event: dropped.append(event)) as one:
            await say(raw, one, [bytes.fromhex(prior) for prior in vector.get("prior", [])])
            dropped.clear()
            await say(raw, one, [bytes.fromhex(vector["hex"])])
            assert [event.fault.reason for event in dropped] == [vector["reason"]]
            assert dropped[0].source == raw.local
            assert one.metrics.session.rejected[dropped[0].fault] >= 1
            assert one.metrics.session.sent == 0
            balanced(one._session)
        raw._pull(raw._main)
        assert not raw._queue  # EMM-30: not a word
        await raw.close()

    run(main)


@pytest.mark.slow
def test_mutations_of_every_packet():
    faults, dropped = [], []
    everything = [changed for said in SPOKEN.values() for changed in mutations(said)]
    alone = Receiver(store())

    async def main():
        raw = await udp.listen("127.0.0.1", 0)
        source = f"{raw.local[0]} {raw.local[1]}".encode()
        for changed in everything:
            said = alone.receive(changed, NOW, source)
            if isinstance(said, Rejected):
                faults.append(said.fault)
        async with target(Options(rate_limit=None, opens_sealed=False, unproven_capacity=16_384, replay_capacity=65_536)) as one:
            heard = one.subscribe(">")
            one._session._neighbours.hear = lambda *_: None  # whoever it is, nobody is answered
            one_by_one = one._session._drop
            one._session._drop = lambda said, source: dropped.append(said.fault) or one_by_one(said, source)
            await say(raw, one, everything)
            assert dropped == faults
            assert len(heard) + heard.lost == one.metrics.session.delivered > 0
            assert one.metrics.session.sent == 0
            balanced(one._session)
        raw._pull(raw._main)
        assert not raw._queue
        await raw.close()

    run(main, seconds=100)


@pytest.mark.slow
def test_a_flood_of_forgeries_leaves_a_node_that_hears_and_remembers():
    async def main():
        raw, friend = await udp.listen("127.0.0.1", 0), await udp.listen("127.0.0.1", 0)
        options = Options(rate_limit=None, replay_capacity=32, unproven_capacity=64, max_peers=8)
        async with target(options) as one:
            heard = one.subscribe("temp.*")
            honest = [maced(message_id=number) for number in range(20)]
            await say(friend, one, honest)
            got = len(heard)
            forged = [maced(message_id=number, secret=bytes(32)) for number in range(3000)]
            forged += [packet(name + tlv(0x14, number.to_bytes(16)), message_id=number) for number in range(3000)]
            forged += [bytes((number % 256,)) * (number % 90) for number in range(3000)]
            await say(raw, one, forged)
            await say(friend, one, honest)
            await say(friend, one, [maced(message_id=99)])
            assert got == 20
            assert one.metrics.session.reasons()["replay"] >= 20
            assert one._session._receiver.replays.evicted == 0
            assert len(one.peers) == 8
            assert node[2:] in {peer.node_id for peer in one.peers}
            assert [event async for event in _drained(heard)][-1].message.message_id == 99
        await raw.close()
        await friend.close()

    run(main, seconds=60)


async def _drained(heard):
    while len(heard):
        yield await anext(heard)


def test_a_flood_is_limited_before_it_costs_anything():
    async def main():
        raw = await udp.listen("127.0.0.1", 0)
        async with target(Options(rate_limit=0.001, rate_burst=50)) as one:
            await say(raw, one, [maced(message_id=number) for number in range(500)])
            assert (one.metrics.session.rate_limited, one.metrics.session.accepted) == (450, 50)
        await raw.close()

    run(main)


@pytest.mark.slow
def test_memory_does_not_grow_under_a_flood():
    async def main():
        raw = await udp.listen("127.0.0.1", 0)
        small = Options(rate_limit=None, replay_capacity=64, unproven_capacity=64, max_peers=8, max_recent_ids=8)
        async with target(small, max_inbox=8) as one:
            one.subscribe(">")
            sizes = []
            for turn in range(4):
                numbers = range(turn * 1500, (turn + 1) * 1500)
                said = [packet(tlv(1, b"n.%d" % number) + tlv(0x14, number.to_bytes(16)), message_id=number) for number in numbers]
                said += [maced(message_id=number, secret=bytes(32)) for number in numbers]
                if turn == 1:
                    tracemalloc.start()
                await say(raw, one, said)
                said.clear()
                if turn:
                    sizes.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
            assert sizes[-1] - sizes[0] < 60_000
        await raw.close()

    run(main, seconds=100)


def test_setting_the_clock_back_lets_nothing_in_twice():
    clock = [float(NOW)]

    async def main():
        raw = await udp.listen("127.0.0.1", 0)
        async with target(clock=lambda: clock[0]) as one:
            heard = one.subscribe(">")
            said = maced(made=NOW)
            await say(raw, one, [said])
            for step in (-3600.0, -100.0, 0.0, 100.0, 250.0, -250.0, 3600.0, 0.0):
                clock[0] = NOW + step
                await say(raw, one, [said])
            assert len(heard) == 1
            assert set(one.metrics.session.reasons()) == {"replay", "stale", "future"}
        await raw.close()

    run(main)
