"""Live links: sending, reading, consuming, transactions, multicast, pings, shutdown, over TCP, TLS and Unix sockets."""

from __future__ import annotations

import asyncio

import pytest
from tests.peers.relink_world import ANY, DEMO, PROMPT, QUICK, Heard, make_options
from tests.peers.world import PATIENCE, quick, run, until
from tests.transports.certificates import self_signed

from wirelake.errors import ConnectFailed, DeliveryFailed, LocalProtocolError, RequestTimeout, SessionClosed, UsageError
from wirelake.peers.relink import Endpoint, Options, connect, serve
from wirelake.protocols.relink.events import LinkLost, LinkShutdown, Opened, Outcome, PeerShutdown
from wirelake.protocols.relink.faults import Fault

CHAN = b"chan"
TRANSACTIONAL = Endpoint("money", 4, 4, connector_transactions=True)


class Taker:
    """A handler that keeps what it reads."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.links = []

    async def __call__(self, link) -> None:
        self.links.append(link)
        async for message in link:
            self.bodies.append(message.body)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_message_is_sent_and_consumed(loop):
    async def main():
        taker, heard = Taker(), Heard()
        async with (
            serve(ANY, {DEMO: taker}, options=make_options()) as listener,
            connect(listener.address, DEMO, options=make_options(heard)) as link,
        ):
            await link.channel(CHAN).send(b"one", b"two")
            await link.channel(CHAN).send(b"three")
            assert taker.bodies == [b"onetwo", b"three"]
            assert await link.ping(timeout=5) < 5
        assert [type(one) for one in heard.events if isinstance(one, Opened | LinkShutdown)] == [Opened, LinkShutdown]
        assert heard.of(LinkLost) == []

    import uvloop

    run(main, loop_factory=uvloop.new_event_loop if loop == "uvloop" else None)


def test_a_sender_that_waits_is_acknowledged_without_a_timer():
    """RELINK-18: a drained channel tells at once; the timer is for busy ones, and here it never fires."""

    async def main():
        never = make_options(options=Options(ack_delay=3600.0, barrier_delay=3600.0, ping_interval=None))
        taker = Taker()
        async with serve(ANY, {DEMO: taker}, options=never) as listener, connect(listener.address, DEMO, options=never) as link:
            for number in range(20):
                await link.channel(CHAN).send(b"%d" % number, timeout=5)
            receipts = [await link.channel(b"more").post(b"x") for _ in range(1000)]
            assert {await one for one in receipts} == {Outcome.CONSUMED}
        assert len(taker.bodies) == 1020

    run(main)


def test_a_sender_that_never_pauses_lets_others_run():
    async def main():
        turns, taker = [0], Taker()

        async def others():
            while True:
                turns[0] += 1
                await asyncio.sleep(0)

        async with serve(ANY, {DEMO: taker}) as listener, connect(listener.address, DEMO) as link:
            channel, other = link.channel(CHAN), asyncio.ensure_future(others())
            for _ in range(8000):
                receipt = await channel.post(bytes(128))
            assert turns[0] >= 10, "a megabyte is sent in slices of 64 KiB"
            assert turns[0] < 4000, "and not message by message"
            assert await receipt is Outcome.CONSUMED
            other.cancel()
        assert len(taker.bodies) == 8000

    run(main)


def test_a_slow_reader_has_consumed_all_but_the_message_it_works_on():
    """RELINK-18: what was read in one turn of the loop is reported at its end, though more waits, and so is what comes later."""

    async def main():
        steps, go = asyncio.Queue(), asyncio.Queue()

        async def take(link) -> None:
            async for message in link:
                if message.body in (b"3", b"4", b"9"):  # the reader waits only here
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    await steps.put((message.body, link.core.inbox.unconsumed, link.unread))
                    await go.get()

        async with (
            serve(ANY, {DEMO: take}, options=make_options()) as listener,
            connect(listener.address, DEMO, options=make_options()) as link,
        ):
            receipt = await link.channel(CHAN).post_many([b"%d" % number for number in range(10)])
            for body, unconsumed, unread in ((b"3", 7, 6), (b"4", 6, 5), (b"9", 1, 0)):
                assert await steps.get() == (body, unconsumed, unread)
                go.put_nowait(None)
            assert await receipt is Outcome.CONSUMED

    run(main)


def test_over_tls_and_over_a_unix_socket(tmp_path):
    """RELINK-33: TLS is there for who needs it."""
    from wirelake.transports.tls import client_context, server_context

    made = self_signed(tmp_path, "127.0.0.1")
    cert, key = made.cert, made.key

    async def main():
        for address, server_tls, client_tls in (
            ("tls://127.0.0.1:0", server_context(cert, key), client_context(ca_file=cert)),
            (f"unix:{tmp_path}/socket", None, None),
        ):
            taker = Taker()
            async with serve(address, {DEMO: taker}, options=make_options(), tls=server_tls) as listener:
                async with connect(listener.address, DEMO, options=make_options(), tls=client_tls) as link:
                    await link.channel(CHAN).send(b"x" * 100_000)
                assert taker.bodies == [b"x" * 100_000]
        assert not (tmp_path / "socket").exists()

    run(main)


def test_both_sides_send():
    async def main():
        async def echo(link):
            async for message in link:
                await link.channel(message.channel).post(*message.parts)

        async with (
            serve(ANY, {DEMO: echo}, options=make_options()) as listener,
            connect(listener.address, DEMO, options=make_options()) as link,
        ):
            for number in range(20):
                await link.channel(CHAN).post(b"%d" % number)
            heard = []
            async for message in link:
                heard.append(message.body)
                if len(heard) == 20:
                    link.consume(message)
                    break
            assert heard == [b"%d" % number for number in range(20)]

    run(main)


def test_many_endpoints_at_one_address():
    async def main():
        takers = {Endpoint(name, size, 0): Taker() for name, size in (("a", 0), ("b", 8), ("ö", 255))}
        async with serve(ANY, takers, options=make_options()) as listener:
            for endpoint, taker in takers.items():
                async with connect(listener.address, endpoint, options=make_options()) as link:
                    await link.channel(b"x" * endpoint.connector_id_size).send(endpoint.name.encode())
                    with pytest.raises(LocalProtocolError) as wrong:
                        await link.channel(b"x" * (endpoint.connector_id_size + 1)).send(b"")
                    assert wrong.value.fault is Fault.ID_SIZE_WRONG
                assert taker.bodies == [endpoint.name.encode()]
            for unknown in (Endpoint("c"), Endpoint("a", 1), Endpoint("a", 0, 0, True)):  # RELINK-3, RELINK-31
                with pytest.raises(ConnectFailed, match="no handshake"):
                    await connect(listener.address, unknown, options=make_options(), reconnect=None).__aenter__()

    run(main)


def test_explicit_consumption_and_one_channel_at_a_time():
    """RELINK-16: who consumes explicitly decides when the sender hears of it; a channel that is closed ends its reader, not the link."""

    async def main():
        gate = asyncio.Event()
        seen = []

        async def careful(link):
            inbound = link.inbound(CHAN, automatic=False)
            async for message in inbound:
                seen.append(message.body)
                await gate.wait()
                link.consume(message)
            seen.append("closed")
            async for message in inbound:
                seen.append(message.body)
                link.consume(message)

        async with (
            serve(ANY, {DEMO: careful}, options=make_options()) as listener,
            connect(listener.address, DEMO, options=make_options()) as link,
        ):
            channel = link.channel(CHAN)
            receipt = await channel.post(b"one")
            await until(lambda: seen == [b"one"])
            assert receipt.outcome is None
            with pytest.raises(RequestTimeout, match=r"channel 6368616e was not consumed in 0\.05 s"):
                await channel.send(b"two", timeout=0.05)
            gate.set()
            assert await receipt is Outcome.CONSUMED
            await channel.close()
            await until(lambda: seen[-1] == "closed")
            await channel.send(b"anew")
        assert seen == [b"one", b"two", "closed", b"anew"]

    run(main)


def test_transactions():
    """RELINK-26, RELINK-27: committed, refused, rolled back."""

    async def main():
        seen = []

        async def take(link):
            async for message in link:
                seen.append(message.body)
                if message.body == b"bad":
                    link.refuse(message)

        async with (
            serve(ANY, {TRANSACTIONAL: take}, options=make_options()) as listener,
            connect(listener.address, TRANSACTIONAL, options=make_options()) as link,
        ):
            channel = link.channel(CHAN)
            async with channel.transaction() as transaction:
                await transaction.post(b"one")
                await transaction.post(b"two")
                await asyncio.sleep(0.05)
                assert seen == [], "nobody sees it before commit"
            assert seen == [b"one", b"two"]
            assert [one.outcome for one in transaction.receipts] == [Outcome.COMMITTED] * 2
            with pytest.raises(DeliveryFailed) as refused:
                async with channel.transaction() as transaction:
                    await transaction.post(b"bad")
            assert refused.value.outcome is Outcome.UNCOMMITTED
            with pytest.raises(ZeroDivisionError):
                await undecided(channel)
            await channel.send(b"by itself")
            async with channel.transaction():
                pass
        assert seen == [b"one", b"two", b"bad", b"by itself"]

    run(main)


async def undecided(channel) -> None:
    """A transaction whose block fails: nothing of it is to be processed."""
    try:
        async with channel.transaction() as transaction:
            receipt = await transaction.post(b"never")
            raise ZeroDivisionError
    finally:
        assert await receipt is Outcome.ROLLED_BACK


def test_a_direction_without_transactions_has_none():
    async def main():
        async with (
            serve(ANY, {DEMO: Taker()}, options=make_options()) as listener,
            connect(listener.address, DEMO, options=make_options()) as link,
        ):
            with pytest.raises(UsageError, match="no transactions"):
                async with link.channel(CHAN).transaction():
                    pass

    run(main)


def test_multicast_has_an_outcome_per_channel():
    """RELINK-19: one packet, a delivery for each id, also twice on one channel."""

    async def main():
        seen = []

        async def take(link):
            async for message in link:
                seen.append((message.channel, message.body))

        async with (
            serve(ANY, {DEMO: take}, options=make_options()) as listener,
            connect(listener.address, DEMO, options=make_options()) as link,
        ):
            receipts = await link.multicast([b"aaaa", b"bbbb", b"aaaa"], b"all")
            assert [(one.channel, one.sequence) for one in receipts] == [(b"aaaa", 0), (b"bbbb", 0), (b"aaaa", 1)]
            assert [await one for one in receipts] == [Outcome.CONSUMED] * 3
        assert seen == [(b"aaaa", b"all"), (b"bbbb", b"all"), (b"aaaa", b"all")]

    run(main)


def test_a_full_window_makes_senders_wait():
    """RELINK-17: back-pressure by the window, and by bytes."""

    async def main():
        for options, more in ((Options(ack_delay=0.01, window=3), {}), (PROMPT, {"max_outstanding": 300})):
            gate, seen = asyncio.Event(), []

            async def slow(link, gate=gate, seen=seen):
                await gate.wait()
                async for message in link:
                    seen.append(message.body)

            async with serve(ANY, {DEMO: slow}, options=make_options()) as listener:
                async with connect(listener.address, DEMO, options=make_options(options=options, **more)) as link:
                    channel = link.channel(CHAN)
                    for _ in range(3):
                        await channel.post(b"x" * 100)
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await channel.post(b"over")
                    gate.set()
                    await channel.send(b"after")
                assert seen == [b"x" * 100] * 3 + [b"after"]

    run(main)


def test_a_reader_that_does_not_read_stops_the_connection():
    """RELINK-17: what waits to be read is bounded; the rest waits at the sender, and nothing is lost."""

    async def main():
        gate, seen = asyncio.Event(), []

        async def slow(link):
            await gate.wait()
            async for message in link:
                seen.append(message.body)

        async with (
            serve(ANY, {DEMO: slow}, options=make_options(max_inbox=10)) as listener,
            connect(listener.address, DEMO, options=make_options()) as link,
        ):
            for number in range(2000):
                await link.channel(CHAN).post(b"%d" % number + b"-" * 1000)
            await asyncio.sleep(0.2)
            (core,) = listener.links
            assert core.inbox.unconsumed < 2000
            gate.set()
            await link.channel(CHAN).send(b"last")
        assert len(seen) == 2001
        assert [int(one.split(b"-")[0]) for one in seen[:-1]] == list(range(2000))

    run(main)


def test_shutdown_from_either_side():
    """RELINK-23: who stays reads to the end; nobody reconnects."""

    async def main():
        heard = Heard()

        async def brief(link):
            await link.channel(CHAN).send(b"bye")

        async with serve(ANY, {DEMO: brief}, options=make_options()) as listener:
            async with connect(listener.address, DEMO, options=make_options(heard), reconnect=QUICK) as link:
                assert [message.body async for message in link] == [b"bye"]
                assert await link.close()
                await link.over()
                with pytest.raises(SessionClosed):
                    await link.ping()
                with pytest.raises(LocalProtocolError):
                    await link.channel(CHAN).post(b"late")
            assert listener.links == {}
            assert listener.registry.links == {}
        assert len(heard.of(PeerShutdown)) == len(heard.of(LinkShutdown)) == 1
        assert heard.of(Opened) == [Opened(listener.registry.epoch, heard.of(Opened)[0].link_id, False)]

    run(main)


def test_closing_does_not_wait_for_ever():
    """A peer that never shuts down: after the timeout the link is given up, and what is unresolved is told."""

    async def main():
        heard = Heard()

        async def stubborn(link):
            await asyncio.Event().wait()

        async with (
            serve(ANY, {DEMO: stubborn}, options=make_options(close_timeout=0.1)) as listener,
            connect(listener.address, DEMO, options=make_options(heard)) as link,
        ):
            receipt = await link.channel(CHAN).post(b"unread")
            assert await link.close(timeout=0.1) is False
            assert await receipt is Outcome.UNKNOWN
            with pytest.raises(SessionClosed):
                await link.over()
        (lost,) = heard.of(LinkLost)
        assert (lost.fault, len(lost.unresolved)) == (Fault.ABANDONED, 1)

    run(main)


def test_a_handler_that_fails_ends_its_link_only():
    async def main():
        async def broken(link):
            async for _ in link:
                raise RuntimeError("no")

        taker = Taker()
        other = Endpoint("other", 4, 4)
        async with (
            serve(ANY, {DEMO: broken, other: taker}, options=make_options(close_timeout=0.2)) as listener,
            connect(listener.address, other, options=make_options()) as fine,
        ):
            async with connect(listener.address, DEMO, options=make_options(close_timeout=1.0), reconnect=QUICK) as link:
                with pytest.raises(DeliveryFailed) as failed:
                    await link.channel(CHAN).send(b"x", timeout=10)
                assert failed.value.outcome is Outcome.UNKNOWN
            await fine.channel(CHAN).send(b"still here")
        assert taker.bodies == [b"still here"]

    from tests.peers.world import log_of

    with log_of("wirelake.relink") as lines:
        run(main)
    assert any("failed" in line for line in lines)


@pytest.mark.parametrize("address", ["udp://127.0.0.1:1", "unix:", "tls://127.0.0.1:1"])
def test_addresses_that_cannot_be(address):
    with pytest.raises(UsageError):
        serve(address, {DEMO: Taker()})


def test_two_endpoints_of_one_name_cannot_be_told_apart():
    with pytest.raises(UsageError, match="the same name"):
        serve(ANY, {Endpoint("a", 1): Taker(), Endpoint("a", 2): Taker()})


def test_a_link_that_is_given_up_does_not_wait_for_a_peer_that_does_not_read():
    async def main():
        async def never(_link):
            await asyncio.Event().wait()

        small = make_options(max_memory=100_000, close_timeout=0.2)
        async with serve(ANY, {DEMO: never}, options=small) as listener:
            connector = connect(listener.address, DEMO, options=make_options(close_timeout=0.1, linger=0.05))
            link = await connector.__aenter__()

            async def fill():
                while True:
                    await link.channel(b"chan").post(bytes(60_000))

            posting = asyncio.ensure_future(fill())
            await until(lambda: link._carrier is not None and link._carrier.driver._stream.unsent > 1_000_000)
            with quick(10):  # and not the stall timeout of 30 s
                await connector.__aexit__(None, None, None)
            posting.cancel()
            await asyncio.gather(posting, return_exceptions=True)

    run(main)


def test_leaving_acknowledges_what_was_read_in_this_turn_of_the_loop():
    async def main():
        outcomes = []

        async def sending(link):
            receipts = [await link.channel(b"chan").post(b"%d" % number) for number in range(5)]
            outcomes.extend([await one for one in receipts[:2]])

        async with serve(ANY, {DEMO: sending}, options=make_options(close_timeout=0.2)) as listener:
            async with connect(listener.address, DEMO, options=make_options(close_timeout=PATIENCE)) as link:
                await until(lambda: link.unread == 5)
                messages = aiter(link)
                for _ in range(3):  # the third is not consumed
                    await anext(messages)
                await link.leave()
            await until(lambda: outcomes == [Outcome.CONSUMED] * 2)

    run(main)


def test_leaving_acknowledges_what_was_consumed_and_waits_for_nothing():
    async def main():
        outcomes = []

        async def sending(link):
            receipts = [await link.channel(b"chan").post(b"%d" % number) for number in range(5)]
            outcomes.append(await receipts[0])

        async with serve(ANY, {DEMO: sending}, options=make_options(close_timeout=0.2)) as listener:
            async with connect(listener.address, DEMO, options=make_options(close_timeout=PATIENCE)) as link:
                message = await anext(aiter(link))
                await until(lambda: link.unread == 4)
                link.consume(message)
                with quick(10):
                    await link.leave()
            assert link.is_over
            await until(lambda: outcomes == [Outcome.CONSUMED])

    run(main)


class Batches:
    """A handler that reads all that waits at a time."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []

    @property
    def bodies(self) -> list[bytes]:
        return [body for batch in self.batches for body in batch]

    async def __call__(self, link) -> None:
        async for messages in link.batches():
            self.batches.append([message.body for message in messages])


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_many_messages_are_posted_at_once_and_read_in_batches(loop):
    async def main():
        taker = Batches()
        bodies = [b"%d" % number for number in range(10_000)]
        async with serve(ANY, {DEMO: taker}) as listener, connect(listener.address, DEMO) as link:
            receipt = await link.channel(CHAN).post_many(bodies)
            assert receipt.sequence == len(bodies) - 1
            assert await receipt is Outcome.CONSUMED
            assert link.channel(CHAN).pending == 0
            assert taker.bodies == bodies
            await link.channel(CHAN).send(b"one more")
            assert taker.batches[-1] == [b"one more"]
        assert len(taker.batches) < len(bodies) // 10

    import uvloop

    run(main, loop_factory=uvloop.new_event_loop if loop == "uvloop" else None)


def test_more_messages_than_the_window_holds_wait_for_it():
    async def main():
        taker = Taker()
        options = Options(window=7)
        async with serve(ANY, {DEMO: taker}) as listener, connect(listener.address, DEMO, options=options) as link:
            bodies = [bytes(size) for size in range(100)]
            async with asyncio.timeout(PATIENCE):
                assert await (await link.channel(CHAN).post_many(bodies)) is Outcome.CONSUMED
            assert taker.bodies == bodies

    run(main)


@pytest.mark.slow
def test_a_receipt_of_many_messages_tells_the_first_bad_outcome():
    async def main():
        async def hold(link) -> None:
            async for message in link.inbound(CHAN, automatic=False):
                if message.sequence < 5:
                    link.consume(message)

        options = Options(ack_delay=0.001)
        async with serve(ANY, {DEMO: hold}, options=options) as listener, connect(listener.address, DEMO) as link:
            receipt = await link.channel(CHAN).post_many([b"x"] * 10)
            await until(lambda: receipt.count == 5)
            assert receipt.outcome is None
            link.abandon()
            assert await receipt is Outcome.UNKNOWN

    run(main)


def test_no_messages_to_post_are_an_error_of_the_caller():
    async def main():
        async with serve(ANY, {DEMO: Taker()}) as listener, connect(listener.address, DEMO) as link:
            with pytest.raises(UsageError, match="empty"):
                await link.channel(CHAN).post_many([])
            with pytest.raises(LocalProtocolError) as caught:
                await link.channel(CHAN).post_many([b"fine", bytes(20_000_000)])
            assert caught.value.fault is Fault.PART_OVER_LIMIT
            assert link.channel(CHAN).pending == 0

    run(main)
