"""Calls over every stream: responses, voids, errors, both ways, many at the same time."""

from __future__ import annotations

import asyncio
import datetime
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
import uvloop
from tests.peers.wolpertinger.world import ANY, Shop, two_peers
from tests.peers.world import log_of, run, until

from wirelake.errors import ConnectFailed, LocalProtocolError, RequestFailed, SessionClosed, UsageError
from wirelake.peers.backoff import Backoff
from wirelake.peers.wolpertinger import Offer, Options, Xmpp, connect, method, serve
from wirelake.peers.wolpertinger.demo_component import Demo
from wirelake.protocols.wolpertinger.layer2.values import DateTime, Int64, Permission, UInt64

ONE = Int64(1)


async def converse(peer, other):
    """A bit of everything, both ways."""
    assert await peer.Shop.testMethod1("x", True) == "X"
    assert await peer.shop_by_any_name.testMethod1("é<&>\u2028", False) == "é<&>\u2028"
    assert await peer.remote(Shop).Slowly("abc") == "cba"
    assert await peer.Shop.Note.tell("one") is None
    assert await peer.remote(Shop).Note("two") is None
    assert await peer.Shop.Notes() == ("one", "two")
    for name, code in (("Break", 100), ("Missing", 502), ("Nothing", 303), ("Level1", 201), ("Level4", 201)):
        with pytest.raises(RequestFailed) as failed:
            await peer.call("Shop", name)
        assert failed.value.body == code
        assert str(failed.value).startswith(f"Shop.{name} failed with error {code} (")
    with pytest.raises(RequestFailed) as failed:
        await peer.Nowhere.testMethod1()
    assert failed.value.body == 304
    assert await other.Demo.Add(40, 2) == 42


class Namesake:
    """The peer under test, with a component spelled otherwise than it is declared."""

    def __init__(self, peer):
        self._peer = peer

    def __getattr__(self, name):
        return self._peer.remote("sHOP") if name == "shop_by_any_name" else getattr(self._peer, name)


@pytest.mark.slow
@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_conversation_over_every_stream(way, factory):
    async def main():
        async with (
            serve(way.address, Shop, tls=way.server) as server,
            connect(server.address, Demo, tls=way.client) as peer,
        ):
            await until(lambda: server.peers)
            (other,) = server.peers
            assert server.address.partition(":")[0] == peer.stream.kind == other.stream.kind
            with log_of("wirelake.wolpertinger") as lines:
                await converse(Namesake(peer), other)
            assert [one for one in lines if "broken" in one]

    run(main, loop_factory=factory)


@pytest.mark.parametrize("cut", [1, 7, None])
def test_a_conversation_in_memory_wherever_it_is_cut(cut):
    async def main():
        async with two_peers(Options(offers=(Demo,)), Options(offers=(Shop,)), cut) as (peer, other):
            with log_of("wirelake.wolpertinger"):
                await converse(Namesake(peer), other)

    run(main)


def test_values_of_every_type_come_back_as_they_are():
    moment = datetime.datetime(2026, 11, 16, 12, 30, 0, 123456, tzinfo=datetime.UTC)
    values = [
        True,
        0,
        -(2**31),
        Int64(5),
        2**40,
        UInt64(2**64 - 1),
        1.5,
        float("inf"),
        "",
        " text ",
        UUID(int=5),
        DateTime(7),
        moment,
        (moment, "x"),
        (1, "x", (True,)),
        Permission("/a", ("b",)),
    ]

    async def main():
        async with serve(ANY, Demo) as server, connect(server.address) as peer:
            for value in values:
                back = await peer.Demo.Echo(value)
                assert back == value
                assert isinstance(value, int) or type(back) is type(value)
            assert type(await peer.Demo.Echo(Int64(5))) is Int64
            for impossible in (None, {"a": 1}, "\x00", 2**64):
                with pytest.raises(LocalProtocolError):
                    await peer.Demo.Echo(impossible)
            assert await peer.Demo.Echo("still there") == "still there"

    class Clock:
        @method(trust=0)
        def Later(self, when: datetime.datetime, seconds: float, count: Int64 = ONE) -> datetime.datetime:  # noqa: N802
            assert type(count) is Int64
            return when + datetime.timedelta(seconds=seconds * count)

    async def typed():
        async with serve(ANY, Clock) as server, connect(server.address) as peer:
            clock = peer.remote(Clock)
            assert await clock.Later(moment, 1) == moment + datetime.timedelta(seconds=1)
            assert await clock.Later(moment, 2.5, 2) == moment + datetime.timedelta(seconds=5)
            for wrong in ((moment,), (moment, 1, 2, 3), ("now", 1), (moment, "x"), (moment, 1, 2.5)):
                with pytest.raises(RequestFailed) as failed:
                    await clock.Later(*wrong)
                assert failed.value.body == 305
            with pytest.raises(AttributeError, match="Clock has no method 'Sooner'"):
                _ = clock.Sooner

    run(main)
    run(typed)


def test_large_values_travel_in_fragments():
    async def main():
        async with serve(ANY, Demo) as server, connect(server.address) as peer:
            for size in (20_000, 30_500, 100_000, 700_000):
                assert await peer.Demo.Echo("x" * size) == "x" * size

    run(main)


def test_many_at_the_same_time_and_no_more_than_may_be_on_their_way():
    async def main():
        now, most = 0, 0

        class Busy:
            @method(trust=0)
            async def Work(self, number: int) -> int:  # noqa: N802
                nonlocal now, most
                now += 1
                most = max(most, now)
                await asyncio.sleep(0.001)
                now -= 1
                return number

        async with serve(ANY, Busy) as server, connect(server.address, options=Options(max_outgoing_calls=16)) as peer:
            assert await asyncio.gather(*(peer.Busy.Work(number) for number in range(300))) == list(range(300))
        assert 1 < most <= 16

    run(main)


def test_callers_that_wait_and_are_cancelled_leave_their_turn_to_others():
    async def main():
        gate, two = asyncio.Event(), asyncio.Barrier(2)

        class Busy:
            @method(trust=0)
            async def Work(self, number: int) -> int:  # noqa: N802
                await gate.wait()
                if number > 6:
                    await two.wait()
                return number

        async with serve(ANY, Busy) as server, connect(server.address, options=Options(max_outgoing_calls=2)) as peer:
            calls = [asyncio.ensure_future(peer.Busy.Work(number)) for number in range(6)]
            await asyncio.sleep(0.05)
            calls[2].cancel()  # it waits
            await asyncio.sleep(0)
            calls[0].cancel()  # its place goes to the fourth,
            await asyncio.sleep(0)
            calls[3].cancel()  # which is cancelled before it begins, so the fifth has it
            await asyncio.sleep(0.05)
            gate.set()
            assert [await call for call in (calls[1], calls[4], calls[5])] == [1, 4, 5]
            assert all(calls[number].cancelled() for number in (0, 2, 3))
            for _ in range(3):
                assert await asyncio.wait_for(asyncio.gather(peer.Busy.Work(7), peer.Busy.Work(8)), 5) == [7, 8]
            assert peer._calling._free == 2, "no place is lost, and none is given twice"

    run(main)


def test_a_confirmation_travels_with_what_is_said_next():
    async def main():
        async with two_peers(Options(), Options(offers=(Demo, Shop))) as ends:
            peer, writes = ends[0], [0, 0]
            for place, end in enumerate(ends):

                def send(data, place=place, plain=end.stream.send):
                    writes[place] += 1
                    plain(data)

                end.stream.send = send
            for number in range(20):
                assert await peer.Demo.Add(number, 1) == number + 1
                assert await peer.Shop.Slowly("ab") == "ba"
            assert writes[0] == 40, "a result goes with the next call"
            assert writes[1] <= 62, "a result goes with the response, unless that takes a turn more"

    run(main)


def test_each_connection_has_components_of_its_own():
    async def main():
        made = []

        def make(peer):
            made.append(peer)
            return Shop()

        async with serve(ANY, Offer(Shop, "Store", make)) as server:
            async with connect(server.address) as one, connect(server.address) as two:
                await one.Store.Note.tell("mine")
                assert (await one.Store.Notes(), await two.Store.Notes()) == (("mine",), ())
                with pytest.raises(RequestFailed):
                    await one.Shop.Notes()
            assert len(set(made)) == len(made) == 2

    run(main)


def test_what_is_called_while_the_caller_gives_up_is_forgotten():
    async def main():
        asked, may = asyncio.Event(), asyncio.Event()

        class Slow:
            @method(trust=0)
            async def Wait(self) -> bool:  # noqa: N802
                asked.set()
                await may.wait()
                return True

        async with serve(ANY, Slow, Demo) as server, connect(server.address) as peer:
            waiting = asyncio.ensure_future(peer.Slow.Wait())
            await asked.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert peer._session.pending == 0
            may.set()
            assert await peer.Demo.Add(1, 2) == 3

    run(main)


def test_methods_that_still_run_at_the_end_are_cancelled():
    async def main():
        begun, ended = asyncio.Event(), []

        class Slow:
            @method(trust=0)
            async def Wait(self) -> bool:  # noqa: N802
                begun.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    ended.append("cancelled")
                    raise
                return True

        async with serve(ANY, Slow) as server:
            async with connect(server.address) as peer:
                waiting = asyncio.ensure_future(peer.Slow.Wait())
                await begun.wait()
            with pytest.raises(SessionClosed):
                await waiting
            await until(lambda: ended == ["cancelled"])

    run(main)


@pytest.mark.slow
def test_a_server_that_leaves_ends_its_conversations(way):
    async def main():
        async with serve(way.address, Shop, tls=way.server) as server:
            client = connect(server.address, tls=way.client)
            peer = await client.__aenter__()
            assert await peer.Shop.testMethod1("x", False) == "x"
        assert isinstance(await peer.over(), SessionClosed)
        with pytest.raises(SessionClosed):
            await peer.Shop.testMethod1("x", False)
        await client.__aexit__(None, None, None)

    run(main)


def test_nobody_there(way):
    async def main():
        async with serve(way.address, tls=way.server) as server:
            address = server.address
        with pytest.raises(ConnectFailed) as caught:
            async with connect(address, tls=way.client):
                pass
        assert address in str(caught.value)

    run(main)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("tcp://127.0.0.1", "names no port"),
        ("udp://localhost:1", "not one of tcp, tls, unix, xmpp"),
        ("xmpp://localhost", "xmpp://user@domain"),
    ],
)
def test_addresses_that_are_none(address, told):
    for make in (connect, serve):
        with pytest.raises(UsageError, match=told):
            make(address)


def test_addresses_that_say_too_much_or_too_little(contexts):
    with pytest.raises(UsageError, match="whom to talk to"):
        connect("xmpp://me@localhost")
    with pytest.raises(UsageError, match="leave out /you@localhost"):
        serve("xmpp://me@localhost/you@localhost")
    for address in ("tcp://a:1", "unix:///a"):
        with pytest.raises(UsageError, match="TLS"):
            serve(address, tls=contexts[0])
        with pytest.raises(UsageError, match="TLS"):
            connect(address, tls=contexts[1])
    with pytest.raises(UsageError, match="TLS"):
        serve("tls://a:1")


def test_what_only_connecting_shows_to_be_wrong_is_said_as_it_is():
    async def main():
        for options in ({}, {"reconnect": Backoff()}):
            with pytest.raises(UsageError, match="cannot read the password from nowhere"):
                async with connect("xmpp://me@localhost/you@localhost", login=Xmpp(password_file=Path("nowhere")), **options):
                    pass

    run(main)


LEAN = """
import asyncio, sys
for heavy in ("lxml", "slixmpp", "numpy", "pyarrow", "numba", "pyspark"):
    sys.modules[heavy] = None
from wirelake.peers.wolpertinger import connect, serve
from wirelake.peers.wolpertinger.demo_component import Demo

async def main():
    async with serve("tcp://127.0.0.1:0", Demo) as server, connect(server.address) as peer:
        print(int(await peer.Demo.Add(1, 2)))

asyncio.run(main())
"""


def test_lines_need_no_library_beyond_the_wire_half():
    done = subprocess.run([sys.executable, "-c", LEAN], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("3\n", "")
