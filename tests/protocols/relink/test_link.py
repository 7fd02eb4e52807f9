"""Links at rest: acknowledgements, windows, transactions, closing, pings, shutdown, and every rule a peer can break."""

from __future__ import annotations

import pytest
from tests.protocols.relink.pair import C, L, Pair

from wirelake.errors import LocalProtocolError
from wirelake.protocols.relink.events import (
    ChannelClosed,
    Ending,
    LinkLost,
    LinkShutdown,
    MessageReceived,
    Noticed,
    Outcome,
    PeerClosedChannel,
    PeerShutdown,
    Ponged,
)
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.incoming import Incoming
from wirelake.protocols.relink.messages import (
    LAST_SEQUENCE,
    Close,
    Closed,
    Commit,
    Committed,
    Consumed,
    Message,
    Nop,
    Ping,
    Pong,
    Received,
    Resume,
    Rollback,
    Said,
    Shutdown,
    Uncommitted,
)
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.outgoing import Outgoing
from wirelake.protocols.relink.wire import encode

A, B = b"a", b"b"
TX = Endpoint("demo", 1, 1, connector_transactions=True)
SIX = Endpoint("demo", 6, 6)


def say(pair: Pair, to, *said: Said) -> Fault | None:
    """Said to one side by hand; the fault it ends the connection with."""
    pair.give(to, b"".join(map(encode, said)))
    ended = pair.ends[to].ended
    return ended.fault if ended is not None else None


def post(pair: Pair, count: int, speaker=C, channel: bytes = A) -> None:
    for number in range(count):
        pair.link(speaker).send(channel, (b"%d" % number,))


# Acknowledgements.


def test_consumed_is_acknowledged_after_a_while_or_after_many():
    """RELINK-18: after so many messages or so many seconds, whichever comes first; also of sequence 0 alone."""
    pair = Pair(options=Options(ping_interval=None, ack_delay=0.1, ack_every=4))
    post(pair, 5)
    pair.run()
    received = pair.of(L, MessageReceived)
    pair.link(L).consume(received[0], pair.now)
    pair.run()
    assert pair.outcomes(C) == {}
    assert pair.ends[L].deadline == pytest.approx(0.1)
    pair.wait(0.1)
    assert list(pair.outcomes(C)) == [(A, 0)]
    for one in received[1:]:
        pair.link(L).consume(one, pair.now)
    pair.run()
    assert len(pair.outcomes(C)) == 5
    assert Consumed((A,), 4) in pair.packets(L)


def test_consumption_out_of_order_is_acknowledged_in_order():
    """RELINK-15: acknowledgements are ranges: a gap holds them up."""
    pair = Pair()
    post(pair, 4)
    pair.run()
    received = pair.of(L, MessageReceived)
    for index in (2, 1, 1, 3):
        pair.link(L).consume(received[index], pair.now)
    pair.wait(0.0)
    assert pair.outcomes(C) == {}
    pair.link(L).consume(received[0], pair.now)
    pair.link(L).consume(received[0], pair.now)
    pair.wait(0.0)
    assert len(pair.outcomes(C)) == 4


def test_the_next_form_where_it_is_shorter():
    """RELINK-30: for one message on a 6-byte id the next form has half the bytes; where both have the same, the number is said."""
    for endpoint, expected in ((SIX, Consumed((b"sixsix",))), (Endpoint("demo", 1, 1), Consumed((A,), 0))):
        pair = Pair(endpoint)
        pair.connector.send(expected.ids[0], (b"x",))
        pair.run()
        pair.consume_all(L)
        pair.wait(0.0)
        assert pair.packets(L) == [expected]
        assert len(pair.outcomes(C)) == 1


@pytest.mark.parametrize("form", [Received, Consumed])
def test_acknowledgements_in_the_next_form(form):
    """RELINK-15, RELINK-19: each covers one more; in a multicast with the same id twice, two."""
    pair = Pair()
    post(pair, 4)
    pair.run()
    assert say(pair, C, form((A,)), form((A, A), None, True)) is None
    outgoing = pair.connector.outbox.channels[A]
    assert getattr(outgoing, form.__name__.lower()) == 2
    assert outgoing.received == 2
    assert say(pair, C, form((A,)), form((A,))) is Fault.ACKNOWLEDGED_TOO_MUCH


def test_received_lets_payloads_go_and_never_goes_back():
    """RELINK-16: consumed implies received; a received behind consumed is out of range."""
    pair = Pair()
    post(pair, 3)
    pair.run()
    say(pair, C, Consumed((A,), 1))
    assert len(pair.connector.outbox.channels[A].payloads) == 1
    assert say(pair, C, Received((A,), 0)) is Fault.ACKNOWLEDGED_TOO_MUCH


def test_what_was_never_sent_cannot_be_acknowledged():
    """RELINK-15: messages that wait for a connection are not outstanding."""
    pair = Pair()
    post(pair, 1)
    pair.run()
    pair.lose()
    post(pair, 3)
    pair.connect()
    pair.give(L, pair.out(C))
    pair.give(C, pair.out(L))
    pair.give(L, pair.out(C))
    pair.give(C, pair.out(L)[:16])
    assert say(pair, C, Received((A,), 1)) is Fault.ACKNOWLEDGED_TOO_MUCH


def test_numbers_wrap_on_the_wire_and_count_on_inside():
    """RELINK-14, RELINK-15: from 2^32-1 to 0, on both sides, over a reconnection."""
    first = LAST_SEQUENCE - 1
    pair = Pair(TX)
    pair.connector.outbox.channels[A] = Outgoing(A, transactional=True, first=first)
    pair.link(L).inbox.channels[A] = Incoming(A, 99, transactional=True, first=first)
    post(pair, 5)
    pair.run()
    pair.connector.commit(A, first + 1)
    pair.connector.rollback(A, first + 2)
    pair.out(C)
    pair.reconnect()
    assert Received((A,), 2) in pair.packets(L)
    pair.connector.commit(A)
    pair.run()
    pair.consume_all(L)
    pair.wait(0.0)
    assert [one.sequence for one in pair.of(L, MessageReceived)] == [first, first + 1, first + 3, first + 4]
    assert [pair.outcomes(C)[A, first + number] for number in range(5)] == [
        *[Outcome.COMMITTED] * 2,
        Outcome.ROLLED_BACK,
        *[Outcome.COMMITTED] * 2,
    ]


def test_acknowledgements_for_unknown_channels_are_ignored():
    """RELINK-13, RELINK-22: told, and nothing else; also while resuming."""
    pair = Pair()
    assert say(pair, C, Received((B,), 3), Consumed((B,)), Closed((B,))) is None
    assert pair.of(C, Noticed) == [Noticed(Fault.CHANNEL_UNKNOWN)] * 3


# What a peer must not say.


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((Commit((A,)),), Fault.TRANSACTIONS_OFF),
        ((Rollback((A,), 0),), Fault.TRANSACTIONS_OFF),
        ((Committed((A,)),), Fault.TRANSACTIONS_OFF),
        ((Uncommitted((A,), 0),), Fault.TRANSACTIONS_OFF),
        ((Message((B,), (b"x",)), Close((B,)), Message((B,), (b"y",))), Fault.CHANNEL_CLOSING),
        ((Message((B,), (b"x",)), Close((B,)), Close((B,))), Fault.CHANNEL_CLOSING),
        ((Shutdown(), Message((B,), (b"x",))), Fault.CHANNEL_AFTER_SHUTDOWN),
    ],
)
def test_what_ends_a_connection(said, expected):
    """RELINK-13, RELINK-23."""
    pair = Pair()
    assert say(pair, L, *said) is expected
    assert pair.ends[L].ended.how is Ending.ERROR
    assert pair.ends[L].output() == b""


def test_closed_without_close():
    """RELINK-13."""
    pair = Pair()
    post(pair, 1)
    pair.run()
    assert say(pair, C, Closed((A,))) is Fault.CLOSED_UNASKED


@pytest.mark.parametrize("said", [Commit((A,), 1), Commit((B,)), Rollback((A,), 5), Commit((A, A), None, True)])
def test_decisions_beyond_the_last_message(said):
    """RELINK-26."""
    pair = Pair(TX)
    assert say(pair, L, Message((A,), (b"x",)), said) is Fault.DECIDED_TOO_MUCH


@pytest.mark.parametrize("said", [Committed((A,)), Uncommitted((A,), 1), Committed((A,), 1)])
def test_results_of_what_was_not_committed(said):
    """RELINK-15, RELINK-27: no result before its decision."""
    pair = Pair(TX)
    post(pair, 2)
    pair.run()
    assert say(pair, C, said) is Fault.ACKNOWLEDGED_TOO_MUCH


def test_an_error_at_one_id_comes_after_the_ids_before_it():
    """RELINK-19: all ids are processed in order."""
    pair = Pair()
    say(pair, L, Message((B,), (b"x",)), Close((B,)))
    assert say(pair, L, Message((A, B), (b"y",), True)) is Fault.CHANNEL_CLOSING
    assert [one.channel for one in pair.of(L, MessageReceived)] == [B, A]


def test_channels_and_unconsumed_messages_are_limited():
    """RELINK-24, RELINK-17: more of either ends the connection, and what was over the limit does not count as received."""
    pair = Pair(options=Options(ping_interval=None, max_channels=2, max_unconsumed=5))
    assert say(pair, L, *(Message((one,), (b"x",)) for one in (b"1", b"2", b"3"))) is Fault.CHANNELS_OVER_LIMIT
    pair = Pair(Endpoint("demo", 0, 0), options=Options(ping_interval=None, max_unconsumed=5))
    assert say(pair, L, Message((b"",) * 5, (b"x",))) is None
    assert say(pair, L, Message((b"",), (b"x",))) is Fault.UNCONSUMED_OVER_LIMIT
    assert len(pair.of(L, MessageReceived)) == 5
    assert pair.registry.links[7].inbox.channels[b""].received == 4


def test_multicast_to_nobody_and_nops_are_ignored():
    """RELINK-19, RELINK-25."""
    pair = Pair()
    assert say(pair, L, Nop(), Message((), (b"x",), True), Nop(), Close((), True)) is None
    assert pair.of(L, MessageReceived) == []
    assert pair.of(L, Noticed) == [Noticed(Fault.MULTICAST_EMPTY)] * 2


def test_what_is_tolerated_is_told():
    """RELINK-12, RELINK-20, RELINK-25, RELINK-30."""
    pair = Pair()
    pair.give(L, bytes.fromhex("0000000000000001") + encode(Message((A,), (b"x",), long=True)) + encode(Pong()) + encode(Resume()))
    assert [one.fault for one in pair.of(L, Noticed)] == [
        Fault.UNUSED_BITS_SET,
        Fault.NOT_MINIMAL,
        Fault.PONG_UNSOLICITED,
        Fault.RESUME_UNEXPECTED,
    ]
    assert pair.delivered(L) == [b"x"]


# Transactions.


def test_decisions_in_the_form_every_reading_understands():
    """RELINK-26: the next form only after an operation of the same kind; a range otherwise."""
    pair = Pair(TX)
    post(pair, 6)
    pair.connector.commit(A, 0)
    pair.connector.commit(A, 1)
    pair.connector.rollback(A, 2)
    pair.connector.rollback(A, 3)
    pair.connector.commit(A, 5)
    pair.out(C)
    assert pair.packets(C)[6:] == [Commit((A,)), Commit((A,)), Rollback((A,), 2), Rollback((A,)), Commit((A,), 5)]


def test_results_in_order_and_in_runs():
    """RELINK-27: in the order of messages, whatever the order of processing; explicit where the target is not the next."""
    pair = Pair(TX)
    post(pair, 6)
    pair.connector.commit(A, 0)
    pair.connector.rollback(A, 1)
    pair.connector.commit(A, 5)
    pair.run()
    received = {one.sequence: one for one in pair.of(L, MessageReceived)}
    assert list(received) == [0, 2, 3, 4, 5]
    for number, success in ((5, True), (4, True), (3, False), (2, False)):
        pair.link(L).settle(received[number], pair.now, success=success)
        pair.run()
    assert pair.outcomes(C) == {}
    pair.link(L).settle(received[0], pair.now, success=True)
    pair.link(L).settle(received[0], pair.now, success=False)
    pair.wait(0.0)
    results = [one for one in pair.packets(L) if isinstance(one, Committed | Uncommitted)]
    assert results == [Committed((A,)), Uncommitted((A,), 3), Committed((A,), 5)]
    expected = [Outcome.COMMITTED, Outcome.ROLLED_BACK, Outcome.UNCOMMITTED, Outcome.UNCOMMITTED, Outcome.COMMITTED, Outcome.COMMITTED]
    assert [pair.outcomes(C)[A, number] for number in range(6)] == expected


def test_rollbacks_at_the_end_are_acknowledged_as_consumed():
    """RELINK-27: no result covers them."""
    pair = Pair(TX)
    post(pair, 2)
    pair.connector.rollback(A)
    pair.run()
    pair.wait(0.0)
    assert pair.delivered(L) == []
    assert set(pair.outcomes(C).values()) == {Outcome.ROLLED_BACK}
    assert pair.link(L).inbox.unconsumed == 0


def test_received_is_said_promptly_with_transactions():
    """RELINK-16."""
    pair = Pair(TX)
    post(pair, 3)
    pair.run()
    assert pair.packets(L) == [Received((A,), 2)]
    assert len(pair.connector.outbox.channels[A].payloads) == 0


def test_consumed_without_a_result_is_an_unknown_outcome():
    """RELINK-28: also for what was never decided, which RELINK-15 allows a peer to consume."""
    pair = Pair(TX)
    post(pair, 3)
    pair.connector.commit(A, 0)
    pair.connector.rollback(A, 1)
    pair.run()
    assert say(pair, C, Consumed((A,), 2)) is None
    assert [pair.outcomes(C)[A, number] for number in range(3)] == [Outcome.UNKNOWN, Outcome.ROLLED_BACK, Outcome.UNKNOWN]
    with pytest.raises(LocalProtocolError):
        pair.connector.commit(A)


def test_a_lost_link_tells_of_each_message_what_is_known():
    """RELINK-28: undecided is failed, committed without a result is unknown, rolled back is rolled back."""
    pair = Pair(TX)
    post(pair, 4)
    pair.run()
    pair.connector.commit(A, 0)
    pair.connector.rollback(A, 1)
    pair.run()
    pair.restart()
    pair.connector.commit(A, 2)
    pair.connect(run=True)
    (lost,) = pair.of(C, LinkLost)
    assert [one.outcome for one in lost.unresolved] == [Outcome.UNKNOWN, Outcome.ROLLED_BACK, Outcome.FAILED, Outcome.FAILED]


def test_closing_rolls_back_what_is_undecided():
    """RELINK-29: on our side explicitly, and by itself if a peer leaves it out."""
    pair = Pair(TX)
    post(pair, 2)
    pair.connector.commit(A, 0)
    pair.connector.close(A)
    pair.run()
    assert pair.packets(C)[-2:] == [Rollback((A,), 1), Close((A,))]
    pair.consume_all(L)
    assert list(pair.outcomes(C).values()) == [Outcome.COMMITTED, Outcome.ROLLED_BACK]
    other = Pair(TX)
    assert say(other, L, Message((A,), (b"x",)), Close((A,))) is None
    assert other.out(L) == encode(Closed((A,)))
    assert other.delivered(L) == []


def test_results_wait_when_too_many_runs_are_kept():
    """RELINK-24: alternating results are told up to the limit, and the rest after a pong made room; nothing is lost or reordered."""
    options = Options(ping_interval=None, ack_delay=0.0, max_result_runs=3, barrier_delay=5.0)
    pair = Pair(TX, options)
    post(pair, 8)
    pair.connector.commit(A)
    pair.run()
    for one in pair.of(L, MessageReceived):
        pair.link(L).settle(one, pair.now, success=one.sequence % 2 == 0)
    pair.run()
    assert len(pair.outcomes(C)) == 3
    for _ in range(4):
        pair.wait(5.0)
    assert len(pair.outcomes(C)) == 8
    assert [one is Outcome.COMMITTED for one in pair.outcomes(C).values()] == [True, False] * 4


@pytest.mark.parametrize("endpoint", [TX, Endpoint("demo", 1, 1)])
def test_what_cannot_be_decided(endpoint):
    pair = Pair(endpoint)
    post(pair, 1)
    if endpoint is TX:
        pair.connector.commit(A)
    for act in (pair.connector.commit, pair.connector.rollback):
        for last in (None, 0, 5, -1):
            with pytest.raises(LocalProtocolError) as wrong:
                act(A, last)
            assert wrong.value.fault is Fault.UNDECIDABLE


# Closing.


def test_closed_only_after_everything_is_consumed():
    """RELINK-22: and the channel may then be opened anew, from 0."""
    pair = Pair()
    post(pair, 2)
    pair.connector.close(A)
    pair.run()
    assert pair.of(L, PeerClosedChannel) == [PeerClosedChannel(A)]
    assert pair.of(C, ChannelClosed) == []
    with pytest.raises(LocalProtocolError) as wrong:
        post(pair, 1)
    assert wrong.value.fault is Fault.CHANNEL_CLOSING
    pair.consume_all(L)
    assert pair.of(C, ChannelClosed) == [ChannelClosed(A)]
    post(pair, 1)
    pair.run()
    assert pair.of(L, MessageReceived)[-1].sequence == 0


def test_close_of_an_unknown_channel_is_answered_at_once():
    """RELINK-22, RELINK-19: once, also when it is named twice."""
    pair = Pair()
    assert say(pair, L, Close((B,)), Close((A, A), True)) is None
    pair.out(L)
    assert pair.packets(L) == [Closed((B,)), Closed((A,))]


def test_a_tombstone_goes_with_the_pong_of_a_later_ping():
    """RELINK-22: not with an earlier one; and it is told anew on every connection until then."""
    pair = Pair()
    pair.ends[L].ping(pair.now)
    early = pair.out(L)
    post(pair, 1)
    pair.connector.close(A)
    pair.give(L, pair.out(C))
    pair.consume_all(L)
    inbox = pair.link(L).inbox
    pair.give(C, early)
    pair.run()
    assert list(inbox.tombstones) == [A], "that pong proves nothing"
    pair.reconnect()
    assert pair.packets(L)[:3] == [Received((A,), 0), Consumed((A,), 0), Closed((A,))]
    assert list(inbox.tombstones) == [A]
    pair.wait(1.0)
    assert inbox.tombstones == {}
    pair.reconnect()
    assert pair.packets(L) == [Resume()]


def test_the_pings_of_a_lost_connection_prove_nothing_and_hold_nothing_up():
    """RELINK-22, RELINK-25: a new connection starts with a clean slate: its own ping frees what it told."""
    pair = Pair()
    post(pair, 1)
    pair.connector.close(A)
    pair.run()
    for _ in range(3):
        pair.ends[L].ping(pair.now)
    for one in pair.of(L, MessageReceived):
        pair.link(L).consume(one, pair.now)
    pair.ends[L].ping(pair.now)
    pair.out(L)  # four pings, none answered
    pair.reconnect()
    assert list(pair.link(L).inbox.tombstones) == [A]
    pair.wait(1.0)
    assert pair.link(L).inbox.tombstones == {}


def test_an_early_pong_of_two_does_not_prove_what_came_between():
    """RELINK-22: pings are counted."""
    pair = Pair()
    post(pair, 1)
    pair.run()
    pair.ends[L].ping(pair.now)
    pair.connector.close(A)
    pair.give(L, pair.out(C))
    for one in pair.of(L, MessageReceived):
        pair.link(L).consume(one, pair.now)
    pair.ends[L].ping(pair.now)
    pair.out(L)
    say(pair, L, Pong())
    assert list(pair.link(L).inbox.tombstones) == [A]
    say(pair, L, Pong())
    assert pair.link(L).inbox.tombstones == {}


def test_a_run_that_grew_after_the_ping_is_not_proved_by_it():
    """RELINK-28."""
    pair = Pair(TX)
    post(pair, 2)
    pair.connector.commit(A)
    pair.run()
    one, two = pair.of(L, MessageReceived)
    pair.link(L).settle(one, pair.now, success=True)
    pair.ends[L].ping(pair.now)
    pair.link(L).settle(two, pair.now, success=True)
    pair.out(L)  # the ping arrives, the second result does not
    say(pair, L, Pong())
    pair.reconnect()
    assert set(pair.outcomes(C).values()) == {Outcome.COMMITTED}


def test_without_tombstones_nothing_is_repeated():
    """RELINK-22: for peers that end the connection for it."""
    pair = Pair(options=Options(ping_interval=None, ack_delay=0.0, tombstones=False))
    post(pair, 1)
    pair.connector.close(A)
    pair.run()
    pair.consume_all(L)
    pair.reconnect()
    assert pair.packets(L) == [Resume()]
    post(pair, 1, channel=B)
    pair.connector.close(B)
    pair.run()
    pair.lose()
    pair.link(L).consume(pair.of(L, MessageReceived)[-1], pair.now)  # closed is due, and was never said
    pair.connect(run=True)
    assert pair.packets(L) == [Received((B,), 0), Consumed((B,), 0), Closed((B,)), Resume()]
    assert pair.link(L).inbox.tombstones == {}


def test_closing_what_is_not_open():
    pair = Pair()
    with pytest.raises(LocalProtocolError) as wrong:
        pair.connector.close(A)
    assert wrong.value.fault is Fault.CHANNEL_CLOSING


# Pings and silence.


def test_every_ping_has_its_pong_in_order():
    """RELINK-25: also before resume; pongs owed at the end of a connection are dropped."""
    pair = Pair()
    say(pair, L, Ping(), Ping(), Ping())
    pair.out(L)
    assert pair.packets(L) == [Pong()] * 3
    say(pair, L, Ping())
    pair.ends[L].receive_eof(pair.now)
    assert pair.ends[L].output().count(encode(Pong())) <= 1
    pair.connect()
    pair.give(L, pair.out(C))
    pair.give(C, pair.out(L))
    pair.give(L, pair.out(C))
    pair.give(C, pair.out(L)[:16])
    say(pair, C, Ping())
    pair.out(C)
    assert pair.packets(C) == [Resume(), Pong()]


def test_silence_is_answered_by_a_ping_and_no_pong_ends_the_connection():
    """RELINK-25: 11 seconds, then 7, both longer by up to a quarter."""
    for chance, idle, wait in ((0.0, 11.0, 7.0), (1.0, 13.75, 8.75)):
        pair = Pair(options=Options(random=lambda chance=chance: chance))
        end = pair.ends[C]
        assert end.deadline == pytest.approx(idle)
        end.tick(idle - 0.01)
        assert end.output() == b""
        end.tick(idle)
        assert end.output() == encode(Ping())
        assert end.deadline == pytest.approx(idle + wait)
        end.tick(idle + wait - 0.01)
        assert end.ended is None
        end.tick(idle + wait)
        assert end.ended.fault is Fault.PONG_TIMEOUT
        assert not pair.connector.is_over


def test_a_pong_in_time_and_what_is_heard_put_it_off():
    pair = Pair(options=Options())
    pair.wait(11.0)
    assert pair.of(C, Ponged)
    assert pair.ends[C].ended is None
    pair.now += 5.0
    say(pair, C, Nop())
    assert pair.ends[C].deadline == pytest.approx(pair.now + 11.0)


def test_half_a_packet_for_too_long():
    """RELINK-25: thirty seconds for a packet that has begun."""
    pair = Pair()
    pair.give(L, encode(Message((A,), (b"x" * 20,)))[:-1])
    assert pair.ends[L].deadline == pytest.approx(30.0)
    pair.ends[L].tick(29.9)
    pair.give(L, b"\0")
    assert pair.ends[L].deadline is None
    pair.give(L, b"\x11")
    pair.ends[L].pause()
    assert pair.ends[L].deadline is None
    pair.ends[L].resume(100.0)
    pair.ends[L].tick(130.0)
    assert pair.ends[L].ended.fault is Fault.PACKET_TIMEOUT


def test_who_does_not_read_does_not_blame_the_peer():
    """RELINK-17: while the owner has stopped reading, no pong is missed."""
    pair = Pair(options=Options())
    end = pair.ends[C]
    end.ping(0.0)
    end.pause()
    assert end.deadline is None
    end.tick(100.0)
    assert end.ended is None
    end.resume(100.0)
    end.tick(106.9)
    assert end.ended is None
    end.tick(107.0)
    assert end.ended.fault is Fault.PONG_TIMEOUT


def test_a_ping_needs_a_connection():
    """RELINK-25: it fails at once."""
    pair = Pair(connect=False)
    pair.connect()
    with pytest.raises(LocalProtocolError) as wrong:
        pair.ends[C].ping(0.0)
    assert wrong.value.fault is Fault.NOT_OPEN


# Sending.


def test_windows_are_per_channel():
    """RELINK-17."""
    pair = Pair(options=Options(ping_interval=None, window=2))
    post(pair, 2)
    assert pair.connector.outbox.room(A) == 0
    with pytest.raises(LocalProtocolError) as full:
        post(pair, 1)
    assert full.value.fault is Fault.WINDOW_FULL
    post(pair, 2, channel=B)
    with pytest.raises(LocalProtocolError):
        pair.connector.multicast([b"c", A], (b"x",))
    with pytest.raises(LocalProtocolError):
        pair.connector.multicast([b"c"] * 3, (b"x",))
    assert b"c" not in pair.connector.outbox.channels, "all of them, or none"


def test_multicast_is_one_packet_and_replayed_one_by_one():
    """RELINK-19: numbers on each channel, duplicates counted; a retransmission may be unicast."""
    pair = Pair()
    assert pair.connector.multicast([A, B, A], (b"x",)) == [0, 0, 1]
    pair.out(C)
    assert pair.packets(C) == [Message((A, B, A), (b"x",), True)]
    pair.reconnect()
    assert pair.packets(C)[1:] == [Message((A,), (b"x",))] * 2 + [Message((B,), (b"x",))]
    assert pair.connector.multicast([B], (b"y",)) == [1]
    pair.out(C)
    assert pair.packets(C)[-1] == Message((B,), (b"y",)), "one id is unicast"


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda link: link.send(b"xx", (b"",)), Fault.ID_SIZE_WRONG),
        (lambda link: link.send(b"", (b"",)), Fault.ID_SIZE_WRONG),
        (lambda link: link.multicast([], (b"",)), Fault.MULTICAST_OVER_LIMIT),
        (lambda link: link.multicast([A] * 65_537, (b"",)), Fault.MULTICAST_OVER_LIMIT),
        (lambda link: link.multicast([A, b"xx"], (b"",)), Fault.ID_SIZE_WRONG),
        (lambda link: link.send(A, (b"",) * 1025), Fault.PARTS_OVER_LIMIT),
        (lambda link: link.send(A, (bytes(16 * 1024 * 1024 + 1),)), Fault.PART_OVER_LIMIT),
        (lambda link: link.send(A, (bytes(16 * 1024 * 1024),) * 5), Fault.MESSAGE_OVER_LIMIT),
    ],
)
def test_what_cannot_be_sent(act, expected):
    """RELINK-6, RELINK-19, RELINK-24: strict in what we send; nothing is opened by it."""
    pair = Pair()
    with pytest.raises(LocalProtocolError) as wrong:
        act(pair.connector)
    assert wrong.value.fault is expected
    assert [one for one in pair.connector.outbox.channels.values() if one.outstanding] == []


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 255])
def test_every_id_size_and_message_form_goes_through(size):
    """RELINK-6, RELINK-30: minimal forms, at 255 and 256 parts, at 65535 and 65536 bytes."""
    pair = Pair(Endpoint("demo", size, size))
    channel = b"i" * size
    sent = [(), (b"",), (b"x" * 65535,), (b"x" * 65536,), (b"",) * 255, (b"p",) * 256, (b"abc", b"", b"hello")]
    for speaker in (C, L):
        for parts in sent:
            pair.link(speaker).send(channel, parts)
        pair.run()
        assert [one.parts for one in pair.of(speaker.other, MessageReceived)] == sent
        forms = [(one.long, one.large, one.multicast) for one in pair.packets(speaker) if isinstance(one, Message)]
        expected = [(False, False), (False, False), (False, False), (False, True), (False, False), (True, False), (False, False)]
        assert forms == [(*one, False) for one in expected]
        pair.consume_all(speaker.other)


# Shutdown.


@pytest.mark.parametrize("size", [0, 1])
def test_shutdown_when_everything_is_closed_or_drained(size):
    """RELINK-23: both say it, both end, and the link is forgotten; nothing new may be opened after."""
    pair = Pair(Endpoint("demo", size, size))
    channel = b"i" * size
    for speaker in (C, L):
        pair.link(speaker).send(channel, (b"x",))
    links = {speaker: pair.link(speaker) for speaker in (C, L)}
    links[C].shutdown()
    with pytest.raises(LocalProtocolError):
        links[C].send(b"j" * size if size else channel, (b"late",)) if size else links[C].multicast([b"zz"], (b"",))
    pair.run()
    assert pair.of(L, PeerShutdown) == []
    pair.consume_all(L)
    pair.wait(0.0)
    assert pair.of(L, PeerShutdown) == [PeerShutdown()]
    assert not links[C].is_over
    assert (Close((channel,)) in pair.packets(C)) == bool(size)
    links[L].shutdown()
    pair.run()
    pair.consume_all(C)
    pair.wait(0.0)
    for speaker in (C, L):
        assert pair.of(speaker, LinkShutdown) == [LinkShutdown()]
        assert pair.ends[speaker].ended.how is Ending.SHUTDOWN
        assert links[speaker].is_over
        with pytest.raises(LocalProtocolError) as wrong:
            links[speaker].send(channel, (b"x",))
        assert wrong.value.fault is Fault.SHUTTING_DOWN
    assert pair.registry.links == {}


def test_shutdown_is_said_again_on_every_connection():
    """RELINK-23: and traffic on channels that are open goes on after it."""
    pair = Pair()
    post(pair, 1, L)
    pair.run()
    pair.connector.shutdown()
    pair.run()
    assert pair.packets(C) == [Shutdown()]
    pair.reconnect()
    assert Shutdown() in pair.packets(C)
    assert len(pair.of(L, PeerShutdown)) == 1
    post(pair, 1, L)
    pair.run()
    assert pair.delivered(C) == [b"0", b"0"]
    assert say(pair, C, Message((B,), (b"another channel of one who has not shut down",))) is None


def test_traffic_on_open_channels_after_shutdown():
    """RELINK-23: accepted; only a new channel is not."""
    pair = Pair()
    assert say(pair, L, Message((A,), (b"1",)), Shutdown(), Message((A,), (b"2",)), Shutdown()) is None
    assert pair.delivered(L) == [b"1", b"2"]
    assert say(pair, L, Message((B,), (b"3",))) is Fault.CHANNEL_AFTER_SHUTDOWN


def test_a_shutdown_that_waits_for_the_new_link():
    """A link that is lost while it shuts down: the new one is shut down at once."""
    pair = Pair()
    post(pair, 1)
    pair.run()
    pair.connector.shutdown()
    pair.run()
    pair.restart()
    pair.connect(run=True)
    assert pair.of(C, LinkLost)[0].replaced
    assert pair.packets(C) == [Shutdown()]


def test_messages_of_a_lost_link_cannot_be_mistaken():
    """A message that is consumed after its link was lost: the new link, with a channel of the same id, is not told."""
    pair = Pair()
    post(pair, 1, L)
    pair.run()
    old = pair.of(C, MessageReceived)[0]
    pair.restart()
    pair.connect(run=True)
    post(pair, 1, L)
    pair.run()
    pair.connector.consume(old, pair.now)
    pair.wait(0.0)
    assert pair.outcomes(L) == {}
    assert pair.connector.inbox.unconsumed == 1


def test_a_peer_that_forgot_a_channel_has_lost_the_link():
    """RELINK-21(c)."""
    pair = Pair()
    post(pair, 2)
    pair.run()
    pair.link(L).consume(pair.of(L, MessageReceived)[0], pair.now)
    pair.wait(0.0)
    pair.lose()
    del pair.registry.links[7].inbox.channels[A]
    pair.registry.links[7].inbox.unconsumed = 0
    pair.connect(run=True)
    assert pair.ends[C].ended.fault is Fault.RESUME_INCONSISTENT
    (lost,) = pair.of(C, LinkLost)
    assert (lost.fault, lost.replaced, [one.sequence for one in lost.unresolved]) == (Fault.RESUME_INCONSISTENT, False, [1])


def test_too_many_results_in_a_resume():
    """RELINK-24."""
    options = Options(ping_interval=None, max_result_runs=2)
    pair = Pair(TX, options)
    post(pair, 6)
    pair.connector.commit(A)
    pair.run()
    pair.lose()
    pair.connect()
    pair.give(L, pair.out(C))
    pair.give(C, pair.out(L))
    pair.give(L, pair.out(C))
    pair.give(C, pair.out(L)[:16])
    said = [(Committed if number % 2 else Uncommitted)((A,), number) for number in range(3)]
    assert say(pair, C, *said) is Fault.RESULTS_OVER_LIMIT


def test_acknowledgements_after_closed_in_a_resume():
    pair = Pair()
    post(pair, 1)
    pair.connector.close(A)
    pair.run()
    pair.lose()
    pair.connect()
    pair.give(L, pair.out(C))
    pair.give(C, pair.out(L))
    pair.give(L, pair.out(C))
    pair.give(C, pair.out(L)[:16])
    assert say(pair, C, Closed((A,)), Consumed((A,), 0)) is Fault.ACKNOWLEDGED_TOO_MUCH
