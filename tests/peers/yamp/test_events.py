"""Events live: many listeners, wildcards, order however slow a listener is, subscriptions, one event to many peers."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.peers.world import log_of, run, until
from tests.peers.yamp.world import ANY, two_peers

from wirelake.errors import LocalProtocolError, SessionClosed, UsageError
from wirelake.peers.yamp import Group, Options, Service, connect, fan_out, serve
from wirelake.protocols.yamp.faults import Fault


def listening(body):
    """A test with a client that sends, and a service that listens."""

    def test():
        async def main():
            service, heard = Service(), []
            async with two_peers(Options(), Options(service=service)) as (peer, other):
                await body(service, heard, peer, other)

        run(main)

    test.__name__ = body.__name__
    return test


@listening
async def test_every_listener_hears_in_the_order_they_came(service, heard, peer, other):
    for name in ("first", "second", "third"):
        service.on("a.b" if name != "second" else "a.*", lambda _, event, name=name: heard.append((name, event.uri, event.body)))
    service.on("a.c", lambda _, event: heard.append("never"))
    await peer.send("a.b", 1)
    await peer.ping()
    assert heard == [("first", "a.b", 1), ("second", "a.b", 1), ("third", "a.b", 1)]


@listening
async def test_wildcards(service, heard, peer, other):
    for pattern in ("*", "a.*", "a.>", ">", "*.b", "a.b"):
        service.on(pattern, lambda _, event, pattern=pattern: heard.append((event.uri, pattern)))
    for uri in ("a", "a.b", "a.b.c", "x.b"):
        await peer.send(uri)
    await peer.ping()
    assert heard == [
        *(("a", pattern) for pattern in ("*", ">")),
        *(("a.b", pattern) for pattern in ("a.*", "a.>", ">", "*.b", "a.b")),
        *(("a.b.c", pattern) for pattern in ("a.>", ">")),
        *(("x.b", pattern) for pattern in (">", "*.b")),
    ]


def test_levels_may_be_cut_by_something_else():
    async def main():
        service, heard = Service("/"), []
        service.on("/news/*", lambda _, event: heard.append(event.uri))
        async with two_peers(Options(), Options(service=service)) as (peer, _):
            for uri in ("/news/a.b", "/news/a/b", "/news/c"):
                await peer.send(uri)
            await peer.ping()
        assert heard == ["/news/a.b", "/news/c"]

    run(main)


@listening
async def test_order_is_kept_however_slow_a_listener_is(service, heard, peer, other):
    @service.on("slow")
    async def slow(_, event):
        await asyncio.sleep(0.01 if event.body % 3 == 0 else 0)
        heard.append(event.body)

    service.on(">", lambda _, event: heard.append(event.uri))
    for number in range(10):
        await peer.send("slow", number)
        await peer.send("quick")
    await until(lambda: len(heard) == 30)
    assert heard == [one for number in range(10) for one in (number, "slow", "quick")]


@listening
async def test_a_listener_that_fails_costs_nobody_else_anything(service, heard, peer, other):
    @service.on("a")
    def fails(_, event):
        raise RuntimeError("mine alone")

    @service.on("a")
    async def fails_slowly(_, event):
        await asyncio.sleep(0)
        raise RuntimeError("mine alone")

    service.on("a", lambda _, event: heard.append(event.body))
    with log_of("wirelake.yamp") as lines:
        await peer.send("a", 1)
        await peer.send("a", 2)
        await until(lambda: len(heard) == 2)
    assert len(lines) == 4
    assert peer.is_open


@listening
async def test_a_type_drops_what_does_not_fit(service, heard, peer, other):
    service.on("a", lambda _, event: heard.append(event.body), of=list[int])
    service.on("a", lambda _, event: heard.append("any"))
    with log_of("wirelake.yamp") as lines:
        await peer.send("a", [1, 2])
        await peer.send("a", ["x"])
        await peer.ping()
    assert heard == [[1, 2], "any", "any"]
    assert other.noticed == {Fault.BODY_UNDECODABLE: 1}
    assert "event 'a'" in lines[0]


@listening
async def test_who_hears_no_more(service, heard, peer, other):
    def listener(_, event):
        heard.append(event.body)

    service.on("a", listener)
    service.on("a", listener)
    service.off("a", listener)
    await peer.send("a", 1)
    await peer.ping()
    service.off("a", listener)
    await peer.send("a", 2)
    await peer.ping()
    assert heard == [1]
    assert other.unheard == 1
    with pytest.raises(UsageError, match="does not listen"):
        service.off("a", listener)
    with pytest.raises(UsageError, match="whole levels"):
        service.on("a*", listener)


@listening
async def test_subscriptions_are_iterated(service, heard, peer, other):
    async with other.subscribe("a.*") as events, other.subscribe(">") as everything:
        for number in range(3):
            await peer.send(f"a.{number}", number)
        await peer.send("b", "b")
        assert [(await anext(events)).body for _ in range(3)] == [0, 1, 2]
        assert [(await anext(everything)).uri for _ in range(4)] == ["a.0", "a.1", "a.2", "b"]
        assert other.unheard == 0
        peer.close()
        assert [event async for event in events] == []


def test_who_reads_a_subscription_slowly_loses_events_and_learns_how_many():
    async def main():
        async with two_peers(Options(), Options(max_inbox=5)) as (peer, other):
            events = other.subscribe(">")
            for number in range(12):
                await peer.send("a", number)
            await peer.ping()
            assert (len(events), events.lost) == (5, 7)
            events.close()

    run(main)


def test_slow_listeners_slow_the_sender():
    async def main():
        service, heard, may = Service(), [], asyncio.Event()

        @service.on("a")
        async def slow(_, event):
            await may.wait()
            heard.append(event.body[0])

        sent = []

        async def send(peer):
            for number in range(400):
                await peer.send("a", f"{number % 10}" + "x" * 5000)
                sent.append(number)

        async with two_peers(Options(), Options(service=service, max_inbox=10)) as (peer, _), asyncio.TaskGroup() as group:
            group.create_task(send(peer))
            await until(lambda: len(sent) > 30)
            before = -1
            while before != len(sent):
                before = len(sent)
                await asyncio.sleep(0.05)
            assert before < 400
            may.set()
            await until(lambda: len(heard) == 400)
            assert heard == [str(number % 10) for number in range(400)]

    run(main)


@listening
async def test_an_event_that_cannot_be_sent(service, heard, peer, other):
    for uri, body in (("", 1), ("u" * 256, 1), ("a", object())):
        with pytest.raises(LocalProtocolError):
            await peer.send(uri, body)
    peer.close("done")
    with pytest.raises(SessionClosed, match="done"):
        await peer.send("a")


def test_what_arrived_before_the_close_is_attended_to():
    async def main():
        service, heard = Service(), []

        @service.on("a")
        async def slow(_, event):
            await asyncio.sleep(0.02)
            heard.append(event.body)

        async with two_peers(Options(), Options(service=service)) as (peer, _):
            for number in range(3):
                await peer.send("a", number)
            peer.close()
        assert heard == [0, 1, 2]

    run(main)


# One to many.


class Ears:
    """So many clients, and what each of them heard."""

    def __init__(self, count):
        self.heard = [[] for _ in range(count)]
        self.services = []
        for mine in self.heard:
            service = Service()
            service.on(">", lambda _, event, mine=mine: mine.append((event.uri, event.body)))
            self.services.append(service)


def test_an_event_to_everybody_or_to_some():
    async def main():
        ears = Ears(4)
        async with serve(ANY) as server:
            clients = [
                connect(server.address, service, options=Options(serializer="msgpack" if place % 2 else "json"))
                for place, service in enumerate(ears.services)
            ]
            peers = [await client.__aenter__() for client in clients]
            await until(lambda: len(server.peers) == 4 and all(peer.is_open for peer in server.peers))
            assert server.broadcast("all", {"a": 1}) == 4
            assert server.broadcast("some", 2, to=lambda peer: peer.serializer == "json") == 2
            group = Group(peer for peer in server.peers if peer.serializer == "msgpack")
            assert group.send("group", 3) == len(group) == 2
            for peer in peers:
                await peer.ping()
            assert ears.heard == [[("all", {"a": 1}), ("some", 2)], [("all", {"a": 1}), ("group", 3)]] * 2
            gone = next(iter(group))
            group.discard(gone)
            assert (len(group), gone in set(group)) == (1, False)
            group.add(gone)
            gone.close()
            assert group.send("group", 4) == len(group) == 1
            uids = {peer._session._uids.next() for peer in server.peers}
            assert len(uids) == len(server.peers)
            with pytest.raises(LocalProtocolError):
                server.broadcast("all", object())
            for client in clients:
                await client.__aexit__(None, None, None)

    run(main)


def test_who_does_not_read_does_not_hold_up_the_others():
    async def main():
        ears = Ears(1)
        async with (
            serve(ANY, options=Options(max_unsent=100_000, stall_timeout=0.5)) as server,
            connect(server.address, ears.services[0]) as peer,
        ):
            reader, writer = await asyncio.open_connection(*server.address.removeprefix("tcp://").split(":"), limit=1)
            writer.write(b"\x00\x00\x01\x04json")
            await until(lambda: len([one for one in server.peers if one.is_open]) == 2)
            counts = []
            for _ in range(300):
                counts.append(server.broadcast("a", "x" * 50_000))
                await asyncio.sleep(0)
            assert counts[0] == 2
            assert counts[-1] == 1, "the deaf one is passed over"
            await until(lambda: len(ears.heard[0]) == 300)
            await peer.ping()
            writer.transport.abort()
            del reader

    run(main)


def test_fan_out_to_nobody_and_to_those_that_are_over():
    async def main():
        async with two_peers(Options(), Options()) as (peer, other):
            peer.close()
            assert fan_out([], "a") == fan_out([peer], "a") == 0
            await other.over()
            assert fan_out([other], "a", 1) == 0
        assert isinstance(msgspec.json.encode(1), bytes)

    run(main)
