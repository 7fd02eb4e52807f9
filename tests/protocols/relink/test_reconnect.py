"""The reconnection bugs that other systems were known for, each by its name, and what this one does in their place."""

from __future__ import annotations

import pytest
from tests.cases import each
from tests.protocols.relink.pair import C, L, Pair

from wirelake.errors import LocalProtocolError
from wirelake.protocols.relink.events import ChannelClosed, Ended, LinkLost, MessageReceived, Opened, Outcome, Resumed
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.messages import (
    LAST_SEQUENCE,
    Close,
    Committed,
    Consumed,
    Message,
    Received,
    Reply,
    Resume,
    Uncommitted,
    Version,
)
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.wire import encode

A = b"a"


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(first, first + count)]


def send(pair: Pair, speaker, bodies: list[bytes], channel: bytes = A) -> None:
    for body in bodies:
        pair.link(speaker).send(channel, (body,))


@pytest.mark.parametrize("parsed", [(), (C,), (L,)])
def test_drop_right_after_the_handshake(parsed):
    """The listener opened a link the connector may never have heard of; nothing queued is lost, nothing arrives twice."""
    pair = Pair(connect=False)
    send(pair, C, numbered(3))
    pair.connect()
    pair.give(L, pair.out(C))
    pair.give(C, pair.out(L))
    pair.give(L, pair.out(C))
    reply = pair.out(L)  # the link id is on its way
    if C in parsed:
        pair.give(C, reply)
    pair.lose()
    pair.connect(run=True)
    assert pair.delivered(L) == numbered(3)
    assert pair.of(C, LinkLost) == []
    assert pair.of(C, Opened)[-1].resumed == (C in parsed)


def test_frames_in_flight_both_ways():
    """What was on its way in both directions when the connection went is replayed in both directions, and only that."""
    pair = Pair()
    send(pair, C, numbered(5))
    send(pair, L, numbered(5, 100))
    forth, back = pair.out(C), pair.out(L)
    pair.give(L, forth[: len(forth) // 5 * 3])
    pair.give(C, back[: len(back) // 5 * 2 + 7])  # two, and most of the third
    pair.reconnect()
    assert pair.delivered(L) == numbered(5)
    assert pair.delivered(C) == numbered(5, 100)
    assert [one.parts[0] for one in pair.packets(C) if isinstance(one, Message)] == numbered(2, 3)
    assert [one.parts[0] for one in pair.packets(L) if isinstance(one, Message)] == numbered(3, 102)
    assert (pair.of(C, Resumed)[-1].replayed, pair.of(L, Resumed)[-1].replayed) == (2, 3)


def test_half_open_old_connection_beside_the_new_one():
    """RELINK-11: the listener has not noticed; the new connection takes over, and what still arrives on the old one changes nothing."""
    pair = Pair()
    send(pair, C, numbered(2))
    late = pair.out(C)
    old = pair.ends[L]
    pair.lose(C)
    pair.connect(run=True)
    assert old.ended is not None
    assert (old.ended.here, old.ended.fault) == (True, None)
    assert pair.delivered(L) == numbered(2)
    old.receive(late, pair.now)
    assert old.output() == b""
    old.tick(pair.now + 1000)
    old.receive_eof(pair.now)
    old.bye()
    assert pair.delivered(L) == numbered(2)
    assert pair.ends[L].ended is None
    send(pair, C, numbered(1, 2))
    pair.run()
    assert pair.delivered(L) == numbered(3)


def test_silence_longer_than_the_history_that_is_kept():
    """RELINK-24: after its lifetime a link is gone; every unresolved message is told one by one, on both sides; nothing is replayed."""
    pair = Pair(options=Options(ping_interval=None, link_lifetime=60.0))
    send(pair, C, numbered(2))
    send(pair, L, numbered(1, 9))
    lost_link = pair.link(L)
    pair.out(C), pair.out(L)
    pair.lose()
    pair.now += 61.0
    assert pair.registry.deadline <= pair.now
    assert pair.registry.expire(pair.now) == [lost_link]
    (gone,) = lost_link.events()
    assert (gone.fault, [one.parts for one in gone.unresolved]) == (Fault.LINK_EXPIRED, [(b"9",)])
    pair.connect(run=True)
    (lost,) = pair.of(C, LinkLost)
    assert (lost.replaced, [(one.sequence, one.outcome) for one in lost.unresolved]) == (True, [(0, Outcome.UNKNOWN), (1, Outcome.UNKNOWN)])
    assert pair.delivered(L) == []
    send(pair, C, [b"new"])
    pair.run()
    assert pair.of(L, MessageReceived)[-1].sequence == 0


def test_counter_reset_on_resume():
    """Sequence numbers go on after a resume; they start at 0 again only on a new link or after closed."""
    pair = Pair()
    send(pair, C, numbered(3))
    pair.run()
    for _ in range(3):
        pair.reconnect()
        send(pair, C, [b"x"])
        pair.run()
    assert [one.sequence for one in pair.of(L, MessageReceived)] == [0, 1, 2, 3, 4, 5]
    pair.consume_all(L)
    pair.wait(0.0)
    assert len(pair.outcomes(C)) == 6
    pair.restart()
    pair.connect(run=True)
    send(pair, C, [b"y"])
    pair.run()
    assert pair.of(L, MessageReceived)[-1].sequence == 0


@pytest.mark.parametrize("arrived", range(4))
@pytest.mark.parametrize("sent_between", range(3))
def test_off_by_one_between_the_loss_and_its_detection(arrived, sent_between):
    """Between the loss and its detection the sender goes on sending into nothing: none of that counts as sent to anybody."""
    pair = Pair()
    send(pair, C, numbered(3))
    forth = pair.out(C)
    pair.give(L, forth[: len(forth) // 3 * arrived])
    pair.lose(L)  # the receiver knows, the sender does not
    send(pair, C, numbered(sent_between, 3))
    pair.out(C)
    pair.lose(C)
    send(pair, C, [b"late"])
    pair.connect(run=True)
    assert pair.delivered(L) == [*numbered(3 + sent_between), b"late"]


def test_resume_before_bind():
    """A connector whose link the listener does not know, or not for this endpoint, gets a new one, never somebody else's (RELINK-10)."""
    pair = Pair()
    other = Endpoint("other", 1, 1)
    pair.registry.endpoints["other"] = other
    victim = pair.link(L)
    pair.lose()
    thief = Pair(other, connect=False)
    thief.registry, thief.connector.epoch, thief.connector.id = pair.registry, pair.connector.epoch, pair.connector.id
    thief.connect(run=True)
    assert thief.link(L) is not victim
    assert thief.of(C, Opened)[-1].resumed is False
    pair.connect(run=True)
    assert pair.link(L) is victim


def test_resume_is_sent_before_messages():
    """RELINK-21: nothing is sent on any channel before the peer's resume, however long that takes."""
    pair = Pair()
    send(pair, C, numbered(2))
    pair.run()
    pair.lose()
    send(pair, C, numbered(1, 2))
    pair.connect()
    pair.give(C, encode(Version()))
    pair.give(C, encode(Reply(pair.connector.epoch, pair.connector.id)))
    pair.connector.send(A, (b"3",))
    pair.connector.close(A)
    pair.out(C)
    assert [type(one) for one in pair.packets(C)] == [Resume]
    pair.give(C, encode(Received((A,), 1)) + encode(Consumed((A,), LAST_SEQUENCE)))
    pair.out(C)
    assert [type(one) for one in pair.packets(C)] == [Resume]
    pair.give(C, encode(Resume()))
    pair.out(C)
    assert pair.packets(C)[1:] == [Message((A,), (b"2",)), Message((A,), (b"3",)), Close((A,))]


TRANSACTIONAL = Endpoint("demo", 1, 1, connector_transactions=True)


@each("success", [True, False])
@each("decision", ["commit", "rollback"])
@each("step", ["message", "received", "decision", "result", "nothing"])
def test_a_transaction_lost_at_each_step(step, decision, success):
    """RELINK-28: whatever is lost, both sides agree on the outcome."""
    pair = Pair(TRANSACTIONAL)
    send(pair, C, [b"before", b"it"])
    pair.run() if step != "message" else pair.out(C)
    if step == "message":
        pair.reconnect()
    if step == "received":
        pair.reconnect()
    getattr(pair.connector, decision)(A)
    if step == "decision":
        pair.out(C)
        pair.reconnect()
    pair.run()
    for one in pair.of(L, MessageReceived):
        pair.link(L).settle(one, pair.now, success=success)
    if step == "result":
        pair.out(L)
        pair.reconnect()
    pair.wait(1.0)
    assert pair.delivered(L) == ([b"before", b"it"] if decision == "commit" else [])
    expected = Outcome.ROLLED_BACK if decision == "rollback" else Outcome.COMMITTED if success else Outcome.UNCOMMITTED
    assert pair.outcomes(C) == {(A, 0): expected, (A, 1): expected}


def test_a_lost_rollback_does_not_become_a_commit():
    """RELINK-28: rollback(0) is lost, commit(1) follows after the reconnection: a range reading of the latter must not commit 0."""
    pair = Pair(TRANSACTIONAL)
    send(pair, C, [b"no", b"yes"])
    pair.run()
    pair.connector.rollback(A, 0)
    pair.out(C)
    pair.lose()
    pair.connector.commit(A, 1)
    pair.connect(run=True)
    assert pair.delivered(L) == [b"yes"]
    pair.consume_all(L)
    assert pair.outcomes(C) == {(A, 0): Outcome.ROLLED_BACK, (A, 1): Outcome.COMMITTED}


def test_duplicate_and_lost_acknowledgement():
    """RELINK-15: the same acknowledgement twice is a no-op; a lost one is said again in the next resume, and nothing is resent."""
    pair = Pair()
    send(pair, C, numbered(4))
    pair.run()
    pair.consume_all(L)
    pair.wait(0.0)
    pair.give(C, encode(Consumed((A,), 3)) * 2)
    assert pair.ends[C].ended is None
    assert len(pair.outcomes(C)) == 4
    send(pair, C, numbered(2, 4))
    pair.run()
    for one in pair.of(L, MessageReceived)[4:]:
        pair.link(L).consume(one, pair.now)
    pair.out(L)  # lost
    pair.reconnect()
    assert len(pair.outcomes(C)) == 6
    assert [one for one in pair.packets(C) if isinstance(one, Message)] == []
    assert [one for one in pair.packets(L) if isinstance(one, Received | Consumed)] == [Received((A,), 5), Consumed((A,), 5)]


@pytest.mark.parametrize("window", [1, 2, 7])
def test_queue_limit_reached_then_reconnect(window):
    """RELINK-17: a full window stays full over a reconnection, no message over it is taken, and it opens when the peer consumes."""
    pair = Pair(options=Options(ping_interval=None, ack_delay=0.0, ack_every=1, window=window))
    send(pair, C, numbered(window))
    with pytest.raises(LocalProtocolError) as full:
        send(pair, C, [b"over"])
    assert full.value.fault is Fault.WINDOW_FULL
    pair.out(C)
    pair.reconnect()
    pair.reconnect()
    with pytest.raises(LocalProtocolError):
        send(pair, C, [b"over"])
    assert pair.delivered(L) == numbered(window)
    pair.lose()
    for one in pair.of(L, MessageReceived):
        pair.link(L).consume(one, pair.now)
    pair.connect(run=True)
    send(pair, C, [b"after"])
    pair.run()
    assert pair.delivered(L) == [*numbered(window), b"after"]


def test_closed_lost_with_all_acknowledgements():
    """RELINK-22: the hole in the protocol: without a tombstone the sender could not tell that everything arrived."""
    pair = Pair()
    send(pair, C, numbered(2))
    pair.connector.close(A)
    pair.give(L, pair.out(C))
    for one in pair.of(L, MessageReceived):
        pair.link(L).consume(one, pair.now)
    pair.out(L)  # consumed, closed: lost
    pair.reconnect()
    assert pair.delivered(L) == numbered(2)
    assert set(pair.outcomes(C).values()) == {Outcome.CONSUMED}
    assert pair.of(C, ChannelClosed) == [ChannelClosed(A)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_tombstone_is_not_taken_for_the_channel_opened_after_it(count):
    """RELINK-22: two messages, closed, opened anew, `count` messages and close, all lost: what is told is not of the second."""
    pair = Pair()
    send(pair, C, numbered(2))
    pair.connector.close(A)
    pair.run()
    pair.consume_all(L)
    assert pair.of(C, ChannelClosed) == [ChannelClosed(A)]
    send(pair, C, numbered(count, 10))
    pair.connector.close(A)
    pair.out(C)  # lost
    pair.reconnect()
    assert pair.delivered(L) == [*numbered(2), *numbered(count, 10)]
    pair.consume_all(L)
    assert len(pair.of(C, ChannelClosed)) == 2


@pytest.mark.parametrize("transactional", [False, True])
def test_a_repeated_close_that_crosses_closed(transactional):
    """RELINK-21, RELINK-22: close is said again after the reconnection while closed is on its way: it is not answered a second time, or the
    channel opened anew would be closed by it. The same for decisions that are repeated before it."""
    pair = Pair(TRANSACTIONAL if transactional else None)
    send(pair, C, [b"one"])
    if transactional:
        pair.connector.commit(A)
    pair.connector.close(A)
    pair.run()
    pair.lose()
    pair.connect()
    for _ in range(2):
        pair.give(L, pair.out(C))
        pair.give(C, pair.out(L))
    repeated = pair.out(C)  # resume, commit, close
    pair.link(L).settle(pair.of(L, MessageReceived)[0], pair.now, success=True)
    pair.give(C, pair.out(L))  # closed
    assert pair.of(C, ChannelClosed) == [ChannelClosed(A)]
    send(pair, C, [b"two"])
    pair.give(L, repeated)
    pair.run()
    assert pair.ends[C].ended is None
    assert pair.ends[L].ended is None
    if transactional:
        pair.connector.commit(A)
        pair.run()
    assert pair.delivered(L) == [b"one", b"two"]
    assert len(pair.of(C, ChannelClosed)) == 1


def test_results_are_repeated_until_a_pong_proves_them():
    """RELINK-28: a result that was lost comes again; what a pong has proved does not."""
    pair = Pair(TRANSACTIONAL)
    send(pair, C, numbered(2))
    pair.connector.commit(A)
    pair.run()
    pair.link(L).settle(pair.of(L, MessageReceived)[0], pair.now, success=True)
    pair.run()
    pair.ends[L].ping(pair.now)
    pair.run()
    pair.link(L).settle(pair.of(L, MessageReceived)[1], pair.now, success=False)
    pair.out(L)
    pair.reconnect()
    results = [one for one in pair.packets(L) if isinstance(one, Committed | Uncommitted)]
    assert results == [Uncommitted((A,), 1)]
    assert pair.outcomes(C) == {(A, 0): Outcome.COMMITTED, (A, 1): Outcome.UNCOMMITTED}


def test_the_listener_restarts():
    """RELINK-9, RELINK-10, RELINK-32: another epoch, another link; every message of the old one is told, and never sent again."""
    pair = Pair()
    send(pair, C, numbered(3))
    pair.run()
    pair.link(L).consume(pair.of(L, MessageReceived)[0], pair.now)
    pair.wait(0.0)
    pair.restart()
    send(pair, C, [b"queued"])
    pair.connect(run=True)
    (lost,) = pair.of(C, LinkLost)
    assert [(one.sequence, one.outcome) for one in lost.unresolved] == [(1, Outcome.UNKNOWN), (2, Outcome.UNKNOWN), (3, Outcome.FAILED)]
    assert lost.unresolved[-1].parts == (b"queued",)
    assert pair.delivered(L) == numbered(3)
    assert pair.connector.id == pair.link(L).id


def test_nothing_is_lost_on_the_side_that_survives_garbage():
    """RELINK-12, RELINK-14: garbage ends the connection after what came before it took effect; the link goes on."""
    pair = Pair()
    send(pair, C, numbered(3))
    forth = pair.out(C)
    pair.give(L, forth[:32] + b"\xe0" + bytes(7) + forth[32:])
    assert pair.ends[L].ended.fault is Fault.GENERAL_TYPE_UNKNOWN
    assert pair.delivered(L) == numbered(2)
    pair.reconnect()
    assert pair.delivered(L) == numbered(3)


def test_the_same_garbage_again_and_again_ends_the_link():
    """RELINK-12: three protocol errors without progress; progress in between starts the count anew."""
    pair = Pair()
    send(pair, L, [b"kept"])
    for round_number in range(2):
        for _ in range(2):
            pair.give(L, b"\x1d" + bytes(7))
            pair.reconnect()
        send(pair, C, numbered(1, round_number))
        pair.run()
    assert pair.of(L, LinkLost) == []
    link = pair.link(L)
    for _ in range(3):
        pair.give(L, b"\x1d" + bytes(7))
        assert isinstance(pair.heard[L][-1], Ended | LinkLost)
        if link.is_over:
            break
        pair.reconnect()
    assert pair.of(L, LinkLost)[-1].fault is Fault.GIVEN_UP
    assert link.is_over
    assert pair.registry.links == {}
