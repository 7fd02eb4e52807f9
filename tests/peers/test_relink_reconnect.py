"""Live links over connections that are lost, stalled, taken over or spoilt, and listeners that restart."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from tests.peers.relink_world import ANY, DEMO, QUICK, Heard, Proxy, make_options, raw_connector
from tests.peers.world import PATIENCE, Raw, raw_server, run, until

from wirelake.errors import ConnectFailed, ConnectionLost, DeliveryFailed
from wirelake.peers.backoff import Backoff, BackoffTimer
from wirelake.peers.relink import Endpoint, Options, connect, endpoints, serve
from wirelake.protocols.relink.events import Ended, LinkLost, LinkShutdown, Opened, Outcome, Resumed, TombstonesForgotten, TombstonesRefused
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.messages import (
    Close,
    Closed,
    Consumed,
    Message,
    Reply,
    Request,
    Shutdown,
    Version,
)
from wirelake.protocols.relink.wire import encode

CHAN = b"chan"
FRETFUL = Options(ack_delay=0.01, barrier_delay=0.05, ping_interval=0.1, pong_timeout=0.2, handshake_timeout=0.5, jitter=0.0)


def taking(seen: list[bytes]):
    async def take(link):
        async for message in link:
            seen.append(message.body)

    return take


@pytest.mark.parametrize("seed", range(4))
def test_cut_anywhere_everything_arrives_once_and_in_order(seed):
    """RELINK-32: connections lost after any number of bytes, again and again."""

    async def main():
        seen, heard, draw = [], Heard(), random.Random(seed)
        async with serve(ANY, {DEMO: taking(seen)}, options=make_options()) as listener, Proxy(listener.address) as proxy:
            async with connect(proxy.address, DEMO, options=make_options(heard), reconnect=QUICK) as link:
                receipts = []
                for round_number in range(10):
                    before = proxy.connections
                    proxy.cut_after = draw.randrange(1, 900)  # of at least 960 that are going to be sent
                    for number in range(60 * round_number, 60 * round_number + 60):
                        receipts.append(await link.channel(CHAN).post(b"%d" % number))
                    await until(lambda before=before: proxy.connections > before and link.is_connected)
                assert {await one for one in receipts} == {Outcome.CONSUMED}
            assert proxy.connections == 11
        assert seen == [b"%d" % number for number in range(600)]
        assert len(heard.of(Opened)) == len(heard.of(Resumed)) + 1
        assert all(one.resumed for one in heard.of(Opened)[1:])
        assert heard.of(LinkLost) == []

    run(main, seconds=60)


def test_messages_wait_while_there_is_no_connection():
    async def main():
        seen, heard = [], Heard()
        async with (
            serve(ANY, {DEMO: taking(seen)}, options=make_options()) as listener,
            Proxy(listener.address) as proxy,
            connect(proxy.address, DEMO, options=make_options(heard), reconnect=QUICK) as link,
        ):
            await link.channel(CHAN).send(b"one")
            proxy.refuses = True
            proxy.cut()
            await until(lambda: not link.is_connected)
            receipt = await link.channel(CHAN).post(b"two")
            assert receipt.outcome is None
            proxy.refuses = False
            assert await receipt is Outcome.CONSUMED
        assert seen == [b"one", b"two"]
        assert heard.of(Resumed)[0].replayed == 1

    run(main)


def test_a_connection_that_stalls_is_replaced():
    """RELINK-25: no pong in time; the listener may not have noticed, and the new connection takes the link over (RELINK-11)."""

    async def main():
        seen, heard = [], Heard()
        async with (
            serve(ANY, {DEMO: taking(seen)}, options=make_options()) as listener,
            Proxy(listener.address) as proxy,
            connect(proxy.address, DEMO, options=make_options(heard, FRETFUL), reconnect=QUICK) as link,
        ):
            await link.channel(CHAN).send(b"one")
            proxy.stalls = True
            receipt = await link.channel(CHAN).post(b"two")
            await until(lambda: any(one.fault is Fault.PONG_TIMEOUT for one in heard.of(Ended)))
            proxy.stalls = False
            assert await receipt is Outcome.CONSUMED
        assert seen == [b"one", b"two"]
        assert heard.of(LinkLost) == []

    run(main)


def test_the_listener_restarts():
    """RELINK-9, RELINK-10: another listener at the same place: every message of the lost link is told, and the connector goes on."""

    async def main():
        seen, heard = [], Heard()

        async def deaf(link):
            await asyncio.Event().wait()

        async with serve(ANY, {DEMO: deaf}, options=make_options(close_timeout=0.05)) as listener:
            address = listener.address
            connector = connect(address, DEMO, options=make_options(heard), reconnect=QUICK)
            link = await connector.__aenter__()
            first, second = [await link.channel(CHAN).post(body) for body in (b"one", b"two")]
            sending = asyncio.ensure_future(link.channel(CHAN).send(b"three"))
            await until(lambda: len(listener.links) == 1 and next(iter(listener.links)).inbox.unconsumed == 3)
        async with serve(address, {DEMO: taking(seen)}, options=make_options()):
            assert await first is Outcome.UNKNOWN
            assert await second is Outcome.UNKNOWN
            with pytest.raises(DeliveryFailed) as failed:
                await sending
            assert failed.value.outcome is Outcome.UNKNOWN
            await link.channel(CHAN).send(b"four")
            assert await link.close(), "the link that is there now ends well"
            await connector.__aexit__(None, None, None)
        assert seen == [b"four"]
        (lost,) = heard.of(LinkLost)
        assert (lost.replaced, [one.parts for one in lost.unresolved]) == (True, [(b"one",), (b"two",), (b"three",)])

    run(main)


def test_require_old_link():
    """RELINK-10: with `require_old_link` a lost link is not replaced: the connector stops and says so."""

    async def main():
        heard = Heard()
        options = Options(ack_delay=0.01, require_old_link=True)
        async with serve(ANY, {DEMO: taking([])}, options=make_options(close_timeout=0.05)) as listener:
            address = listener.address
            connector = connect(address, DEMO, options=make_options(heard, options), reconnect=QUICK)
            link = await connector.__aenter__()
            await link.channel(CHAN).send(b"fine")
            listener.registry.links.clear()  # it forgot
            receipt = await link.channel(CHAN).post(b"lost")
            link._carrier.close("cut")
            assert await receipt in (Outcome.UNKNOWN, Outcome.CONSUMED)
            with pytest.raises(ConnectionLost, match="not known any more"):
                await link.over()
            with pytest.raises(ConnectionLost):
                [message async for message in link]
            await connector.__aexit__(None, None, None)
        assert heard.of(LinkLost)[0].fault is Fault.LINK_LOST
        assert len(heard.of(Opened)) == 1

    run(main)


def test_a_link_without_a_connection_expires():
    """RELINK-24: the listener gives it up after its lifetime; its handler ends, and what was unresolved is told."""

    async def main():
        heard, ended = Heard(), asyncio.Event()

        async def sending(link):
            receipt = await link.channel(CHAN).post(b"nobody reads this")
            assert await receipt is Outcome.UNKNOWN
            with pytest.raises(ConnectionLost):
                await link.over()
            ended.set()

        options = Options(link_lifetime=0.1)
        async with serve(ANY, {DEMO: sending}, options=make_options(heard, options)) as listener:
            async with raw_connector(listener.address, Request("demo", 4, 4)):
                pass
            await ended.wait()
            await until(lambda: not listener.links)
        assert heard.of(LinkLost)[0].fault is Fault.LINK_EXPIRED

    run(main)


@pytest.mark.parametrize("has_sent", [False, True])
def test_a_link_on_which_its_peer_never_sent_a_message_lives_shortly(has_sent):
    """RELINK-24: a handshake costs a stranger nothing, and is no reason to keep anything for ten minutes."""

    async def main():
        seen = []
        options = Options(unused_link_lifetime=0.1, link_lifetime=600.0)
        async with serve(ANY, {DEMO: taking(seen)}, options=make_options(options=options, close_timeout=0.1)) as listener:
            async with raw_connector(listener.address, Request("demo", 4, 4)) as raw:
                if has_sent:
                    await raw.say(encode(Message((CHAN,), (b"one",))))
                    await until(lambda: seen == [b"one"])
            (link,) = listener.links.values()
            await until(lambda: not link.is_connected)
            if has_sent:
                await asyncio.sleep(0.3)
                assert not link.is_over
            else:
                await until(lambda: link.is_over)

    run(main)


def test_a_raw_peer_takes_a_link_over():
    """RELINK-11: the last one wins, and the one before is closed at once, though no timer is due on it."""

    async def main():
        seen = []
        quiet = make_options(options=Options(ping_interval=None), close_timeout=0.1)
        async with (
            serve(ANY, {DEMO: taking(seen)}, options=quiet) as listener,
            raw_connector(listener.address, Request("demo", 4, 4)) as first,
        ):
            again = Request("demo", 4, 4, 0, first.reply.epoch, first.reply.link_id)
            async with raw_connector(listener.address, again) as second:
                assert second.reply == first.reply
                assert await asyncio.wait_for(first.reader.read(), 5) == b""
                await second.say(encode(Message((CHAN,), (b"one",))))
                await until(lambda: seen == [b"one"])

    run(main)


def test_a_link_lost_in_the_middle_of_a_transaction():
    """RELINK-28: nothing of it was processed, and what follows is not put on the new link by itself."""

    async def main():
        seen = []
        money = Endpoint("money", 4, 4, connector_transactions=True)
        async with serve(ANY, {money: taking(seen)}, options=make_options(close_timeout=0.05)) as listener:
            address = listener.address
            connector = connect(address, money, options=make_options(), reconnect=QUICK)
            link = await connector.__aenter__()
            block = link.channel(CHAN).transaction()
            transaction = await block.__aenter__()
            first = await transaction.post(b"half")
        async with serve(address, {money: taking(seen)}, options=make_options()):
            assert await first is Outcome.FAILED
            await until(lambda: link.is_connected)
            for act in (transaction.post(b"of it"), transaction.commit()):
                with pytest.raises(DeliveryFailed) as failed:
                    await act
                assert failed.value.outcome is Outcome.FAILED
            transaction.rollback()
            await block.__aexit__(DeliveryFailed, failed.value, None)
            await link.channel(CHAN).send(b"whole")
            await connector.__aexit__(None, None, None)
        assert seen == [b"whole"]

    run(main)


@pytest.mark.parametrize("deaths", [1, 3, 8])
def test_lost_confirmations_and_connections_that_die_at_once_deliver_nothing_twice(deaths):
    """RELINK-22, RELINK-32: all that the listener says is lost, then connection after connection in its first round trip."""

    async def main():
        seen, heard = [], Heard()
        async with serve(ANY, {DEMO: taking(seen)}, options=make_options(heard)) as listener, Proxy(listener.address) as proxy:
            async with connect(proxy.address, DEMO, options=make_options(), reconnect=QUICK) as link:
                (served,) = await listeners_links(listener)
                proxy.is_muffled = True
                channel = link.channel(CHAN)
                receipts = [await channel.post(b"%d" % number) for number in range(10)]
                closing = asyncio.ensure_future(channel.close())
                await until(lambda: CHAN in served.core.inbox.tombstones)
                assert all(one.outcome is None for one in receipts)
                proxy.is_muffled, proxy.deaths = False, deaths
                proxy.cut()
                await closing
                assert {await one for one in receipts} == {Outcome.CONSUMED}
            assert proxy.connections == 2 + deaths
        assert seen == [b"%d" % number for number in range(10)]
        assert heard.of(TombstonesForgotten) == heard.of(LinkLost) == []

    run(main)


async def listeners_links(listener):
    await until(lambda: listener.links)
    return list(listener.links.values())


NEWS, LIVE = b"news", b"live"


class PlayedGo:
    """The reference, which is written in Go, as a listener: played here from its bytes, no Go runs.

    It ends a connection by FIN where it reads of a channel it has forgotten. Its own resume, and a new message on a channel that is
    open, are on their way by then.
    """

    def __init__(self) -> None:
        self.connections = 0
        self.endings = 0
        """Connections that it ended at an announcement."""

    async def __call__(self, raw: Raw) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # the connector may leave as a connection begins
            await self._talk(raw)

    async def _talk(self, raw: Raw) -> None:
        await raw.reader.readexactly(8)
        await raw.say(bytes(8))
        await raw.reader.readexactly(len(encode(Request("demo", 4, 4))))
        await raw.say(bytes.fromhex("0500000000000000 0700000000000000"))
        if self.connections == 1:
            await raw.say(encode(Message((NEWS,), (b"x",))), encode(Close((NEWS,))))
            await raw.reader.readuntil(encode(Closed((NEWS,))))
            return  # no ping was answered: the connector announces the channel again
        await raw.say(bytes.fromhex("6000000000000000"), encode(Message((LIVE,), (b"y",))))
        while (said := await raw.reader.readexactly(8)) != bytes.fromhex("6000000000000000"):
            if said == bytes.fromhex("0d00") + NEWS + bytes(2):  # received on a channel it does not know
                self.endings += 1
                raw.writer.write_eof()
                await raw.reader.read()
                return
        while (said := await raw.reader.readexactly(8)) != encode(Close((CHAN,))):
            if said == bytes.fromhex("2000000000000000"):
                await raw.say(bytes.fromhex("4000000000000000"))
            elif said[2:6] == CHAN:
                await raw.reader.readexactly(8)
                await raw.say(encode(Consumed((CHAN,), 0)))
        await raw.say(encode(Closed((CHAN,))), encode(Shutdown()))
        await raw.reader.read()


def test_a_peer_that_ends_connections_at_announcements_costs_at_most_twenty_in_five_minutes(caplog, monkeypatch):
    """RELINK-22: nothing is forgotten, waits grow though each connection brings a message, and the log names the option.

    Waits are as short as the default back-off allows, and a thousand times as fast.
    """
    monkeypatch.setattr(endpoints.random, "uniform", lambda low, high: low)
    waits: list[float] = []

    async def main():
        go, heard = PlayedGo(), Heard()
        async with raw_server(go) as address:
            backoff = Backoff()
            connector = connect(address, DEMO, options=make_options(heard, close_timeout=0.05), reconnect=backoff)

            def shortly(low: float, high: float) -> float:
                waits.append(connector._wait(low, high))
                return waits[-1] / 1000

            connector._client._backoff = BackoffTimer(backoff, shortly)
            async with connector as link:
                link.consume(await anext(aiter(link)))
                await until(lambda: sum(waits) >= 300)
                assert go.connections <= 20
                assert go.connections - 1 - go.endings in (0, 1), "one may have begun meanwhile"
                assert list(link.core.inbox.tombstones) == [NEWS]
        assert heard.of(TombstonesForgotten) == []
        assert heard.of(TombstonesRefused) == [TombstonesRefused((NEWS,))]

    run(main)
    assert waits[-1] == 24.0
    assert [one.levelname for one in caplog.records if 'Options(tombstones="forgiving")' in one.message] == ["WARNING"]


def test_a_forgiving_link_to_such_a_peer_recovers_after_one_connection(caplog):
    """RELINK-22: the option names the peer: the channel is forgotten, which is logged, and messages go on."""

    async def main():
        go, heard = PlayedGo(), Heard()
        async with raw_server(go) as address:
            options = make_options(heard, Options(ack_delay=0.01, tombstones="forgiving"), close_timeout=0.05)
            async with connect(address, DEMO, options=options, reconnect=QUICK) as link:
                link.consume(await anext(aiter(link)))
                await link.channel(CHAN).send(b"again", timeout=PATIENCE)
        assert (go.connections, go.endings) == (3, 1)
        assert heard.of(TombstonesForgotten) == [TombstonesForgotten((NEWS,))]
        assert heard.of(LinkLost) == []

    run(main)
    assert ["RELINK-22" in one.message for one in caplog.records if one.levelname == "WARNING"] == [True]


def test_connections_that_are_reset_at_an_announcement_are_not_held_against_the_peer():
    """RELINK-22: a forgiving link forgets only what the peer itself ended connections for."""

    async def main():
        go, heard = PlayedGo(), Heard()

        async def resets(raw: Raw) -> None:
            if go.connections in range(1, 7):
                go.connections += 1
                await raw.reader.readexactly(8)
                await raw.say(bytes(8))
                await raw.reader.readexactly(len(encode(Request("demo", 4, 4))))
                await raw.say(bytes.fromhex("0500000000000000 0700000000000000"))
                await raw.reader.readexactly(16)
                raw.reset()
            else:
                await go(raw)

        async with raw_server(resets) as address:
            options = make_options(heard, Options(ack_delay=0.01, tombstones="forgiving"), close_timeout=0.05)
            async with connect(address, DEMO, options=options, reconnect=QUICK) as link:
                link.consume(await anext(aiter(link)))
                await until(lambda: go.connections == 7)
                assert heard.of(TombstonesForgotten) == []
                await link.channel(CHAN).send(b"again", timeout=PATIENCE)
        assert go.endings == 1

    run(main)


HOSTILE = [
    b"\xe0" + bytes(7),
    b"\x1d" + bytes(7),
    b"\x61" + bytes(15),
    bytes.fromhex("13000000ffffffff"),
    bytes.fromhex("51016368616e0000ffffffffffffffff"),
    bytes.fromhex("71006368616e0000ffffffff00000000"),
    encode(Consumed((CHAN,), 7)),
    bytes.fromhex("01006368616e0000"),
]


@pytest.mark.slow
@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: data.hex()[:16])
def test_bad_input_ends_the_connection_and_nothing_else(data):
    """RELINK-12, RELINK-24: terminated as ruled; what came before is kept, and the link can be taken up again."""

    async def main():
        seen = []
        async with serve(ANY, {DEMO: taking(seen)}, options=make_options(close_timeout=0.1)) as listener:
            async with raw_connector(listener.address, Request("demo", 4, 4)) as raw:
                await raw.say(encode(Message((CHAN,), (b"kept",))), data)
                if data == HOSTILE[6]:  # an acknowledgement for a channel nobody opened is ignored (RELINK-13)
                    await raw.say(b"\xe0" + bytes(7))
                await asyncio.wait_for(raw.reader.read(), 5)
            again = Request("demo", 4, 4, 0, raw.reply.epoch, raw.reply.link_id)
            async with raw_connector(listener.address, again) as raw:
                assert raw.reply.link_id == again.link_id
                statement = await raw.reader.readexactly(16 + 16 + 8)
                assert statement.startswith(bytes.fromhex("0d006368616e000000000000"))
                await raw.say(encode(Message((CHAN,), (b"next",))))
                await until(lambda: seen == [b"kept", b"next"])

    run(main)


@pytest.mark.parametrize(
    "request_bytes",
    [
        encode(Request("nobody", 4, 4)),
        encode(Request("demo", 5, 4)),
        encode(Request("demo", 4, 4, 1)),
        encode(Request("demo", 4, 4, 0, 0, 1)),
        encode(Request("demo", 4, 4, 0, 5, 1 << 63)),
        b"\x02\xc3\x28\x04\x04" + bytes(19),
    ],
)
def test_bad_requests_are_closed_without_a_reply(request_bytes):
    """RELINK-3, RELINK-8, RELINK-9, RELINK-31."""

    async def main():
        async with serve(ANY, {DEMO: taking([])}, options=make_options()) as listener:
            async with raw_connector(listener.address) as raw:
                await raw.say(request_bytes)
                assert await asyncio.wait_for(raw.reader.read(), 5) == b""
            assert listener.links == {}

    run(main)


@pytest.mark.slow
def test_half_a_handshake_times_out():
    """RELINK-4: ten seconds for all of it, here less."""

    async def main():
        async with (
            serve(ANY, {DEMO: taking([])}, options=make_options(options=FRETFUL)) as listener,
            raw_connector(listener.address) as raw,
        ):
            await raw.say(encode(Request("demo", 4, 4))[:-1])
            assert await asyncio.wait_for(raw.reader.read(), 5) == b""

    run(main)


def test_a_listener_that_speaks_nonsense():
    """RELINK-5, RELINK-9, RELINK-10: a connector closes, and tries again only if it was told to."""

    async def main():
        replies = [b"\x07" + bytes(7), encode(Version()) + encode(Reply(0, 1)), encode(Version()) + encode(Reply(5, 0))]
        replies += [encode(Version()) + encode(Reply(5, 1 << 63))]
        for reply in replies:

            async def nonsense(raw, reply=reply):
                await raw.say(reply)
                await raw.reader.read()

            async with raw_server(nonsense) as address:
                with pytest.raises(ConnectFailed):
                    await connect(address, DEMO, options=make_options(), reconnect=None).__aenter__()

    run(main)


def test_links_are_limited():
    """RELINK-24, RELINK-33: links for each endpoint, and for each remote."""

    async def main():
        for options in (Options(max_links=1), Options(max_links_per_remote=1)):
            async with (
                serve(ANY, {DEMO: taking([])}, options=make_options(options=options, close_timeout=0.1)) as listener,
                raw_connector(listener.address, Request("demo", 4, 4)),
                raw_connector(listener.address) as second,
            ):
                await second.say(encode(Request("demo", 4, 4)))
                assert await asyncio.wait_for(second.reader.read(), 5) == b""

    run(main)


def test_ping_while_disconnected_fails_at_once():
    """RELINK-25: nothing is queued."""

    async def main():
        async with (
            serve(ANY, {DEMO: taking([])}, options=make_options()) as listener,
            Proxy(listener.address) as proxy,
            connect(proxy.address, DEMO, options=make_options(), reconnect=Backoff(first=0.3, most=0.3)) as link,
        ):
            proxy.stalls = True
            waiting = asyncio.ensure_future(link.ping())
            await asyncio.sleep(0)
            proxy.cut()
            with pytest.raises(ConnectionLost):
                await waiting
            proxy.stalls = False
            with pytest.raises(Exception, match="no connection"):
                await link.ping()

    run(main)


def test_shutdown_survives_a_lost_connection():
    """RELINK-23: shutdown is said again on the next connection; a link the other side has forgotten is a clean end."""

    async def main():
        heard = Heard()
        endpoint = Endpoint("demo", 0, 0)
        async with serve(ANY, {endpoint: taking([])}, options=make_options()) as listener, Proxy(listener.address) as proxy:
            connector = connect(proxy.address, endpoint, options=make_options(heard), reconnect=QUICK)
            link = await connector.__aenter__()
            await link.channel().send(b"x")
            proxy.cut()
            closing = asyncio.ensure_future(link.close())
            assert await closing
            await connector.__aexit__(None, None, None)
        assert len(heard.of(LinkShutdown)) == 1
        assert heard.of(LinkLost) == []

    run(main)


def test_nobody_there():
    async def main():
        async with raw_server(Raw.close) as address:
            pass
        with pytest.raises(ConnectFailed, match="cannot connect"):
            await connect(address, DEMO, options=make_options(), reconnect=Backoff(first=0.01, most=0.01, attempts=2)).__aenter__()

    run(main)
