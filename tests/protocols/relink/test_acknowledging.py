"""Acknowledgements of a link: ranges, cursors, wrapping numbers; and packets that are refused."""

from __future__ import annotations

import pytest
from tests.protocols.relink.linking import SIX, TX, A, B, post, say
from tests.protocols.relink.pair import C, L, Pair

from wirelake.protocols.relink.events import (
    Ending,
    MessageReceived,
    Noticed,
    Outcome,
)
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link.incoming_channel import IncomingChannel
from wirelake.protocols.relink.link.outgoing_channel import OutgoingChannel
from wirelake.protocols.relink.messages import (
    LAST_SEQUENCE,
    Close,
    Closed,
    Commit,
    Committed,
    Consumed,
    Message,
    Nop,
    Pong,
    Received,
    Resume,
    Rollback,
    Shutdown,
    Uncommitted,
)
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.wire import encode

# Acknowledgements.


def test_consumed_is_acknowledged_after_a_while_or_after_many():
    """RELINK-18: of a channel with more to consume, after so many messages or seconds, whichever comes first; also of sequence 0 alone."""
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


def test_consumed_is_acknowledged_at_once_when_the_channel_is_drained():
    """RELINK-18: nothing more is to come before the sender hears of it; other channels with waiting messages do not delay it."""
    pair = Pair(options=Options(ping_interval=None, ack_delay=60.0, ack_every=100))
    post(pair, 1, channel=B)
    for number in range(3):
        post(pair, 1)
        pair.run()
        pair.link(L).consume(pair.of(L, MessageReceived)[-1], pair.now)
        pair.run()
        assert pair.outcomes(C) == {(A, one): Outcome.CONSUMED for one in range(number + 1)}
    assert pair.packets(L) == [Consumed((A,), number) for number in range(3)]
    assert pair.link(L).inbox.deadline is None


def test_a_busy_channel_acknowledges_many_at_once():
    """RELINK-18: whoever has more to consume when the acknowledgement is about to leave waits for more, and at most `ack_delay`."""
    pair = Pair(options=Options(ping_interval=None, ack_delay=0.1, ack_every=100))
    for number in range(5):
        post(pair, 1)
        pair.give(L, pair.out(C))
        if number:
            pair.link(L).consume(pair.of(L, MessageReceived)[number - 1], pair.now)  # one is always left
        assert pair.out(L) == b""
    pair.link(L).consume(pair.of(L, MessageReceived)[-1], pair.now)
    post(pair, 1)
    pair.give(L, pair.out(C))  # before the acknowledgement left
    assert pair.out(L) == b""
    pair.wait(0.1)
    assert pair.packets(L) == [Consumed((A,), 4)]


def test_rollbacks_of_a_drained_channel_are_acknowledged_at_once():
    """RELINK-18, RELINK-27: nobody processes them, and no result tells of them."""
    pair = Pair(TX, Options(ping_interval=None, ack_delay=60.0, ack_every=100))
    post(pair, 2)
    pair.connector.rollback(A)
    pair.run()
    assert pair.packets(L) == [Consumed((A,), 1)]
    assert set(pair.outcomes(C).values()) == {Outcome.ROLLED_BACK}


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
    pair.connector.outbox.channels[A] = OutgoingChannel(A, transactional=True, first=first)
    pair.link(L).inbox.channels[A] = IncomingChannel(A, 99, transactional=True, first=first)
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
    ("message", "expected"),
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
def test_packets_that_end_a_connection(message, expected):
    """RELINK-13, RELINK-23."""
    pair = Pair()
    assert say(pair, L, *message) is expected
    assert pair.ends[L].ended.how is Ending.ERROR
    assert pair.ends[L].output() == b""


def test_closed_without_close():
    """RELINK-13."""
    pair = Pair()
    post(pair, 1)
    pair.run()
    assert say(pair, C, Closed((A,))) is Fault.CLOSED_UNASKED


@pytest.mark.parametrize("message", [Commit((A,), 1), Commit((B,)), Rollback((A,), 5), Commit((A, A), None, True)])
def test_decisions_beyond_the_last_message(message):
    """RELINK-26."""
    pair = Pair(TX)
    assert say(pair, L, Message((A,), (b"x",)), message) is Fault.DECIDED_TOO_MUCH


@pytest.mark.parametrize("message", [Committed((A,)), Uncommitted((A,), 1), Committed((A,), 1)])
def test_results_of_what_was_not_committed(message):
    """RELINK-15, RELINK-27: no result before its decision."""
    pair = Pair(TX)
    post(pair, 2)
    pair.run()
    assert say(pair, C, message) is Fault.ACKNOWLEDGED_TOO_MUCH


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


def test_multicast_without_channels_and_nops_are_ignored():
    """RELINK-19, RELINK-25."""
    pair = Pair()
    assert say(pair, L, Nop(), Message((), (b"x",), True), Nop(), Close((), True)) is None
    assert pair.of(L, MessageReceived) == []
    assert pair.of(L, Noticed) == [Noticed(Fault.MULTICAST_EMPTY)] * 2


def test_tolerated_faults_are_reported():
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
