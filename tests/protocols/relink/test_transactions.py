"""Transactions of a link: decisions, results, and what is known when one is lost."""

from __future__ import annotations

import pytest
from tests.protocols.relink.linking import TX, A, B, post, say
from tests.protocols.relink.pair import C, L, Pair

from wirelake.errors import LocalProtocolError
from wirelake.protocols.relink.events import (
    LinkLost,
    MessageReceived,
    Outcome,
)
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.messages import (
    Close,
    Closed,
    Commit,
    Committed,
    Consumed,
    Message,
    Received,
    Rollback,
    Uncommitted,
)
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.wire import encode


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


def test_received_is_sent_promptly_with_transactions():
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
    assert other.out(L) == encode(Consumed((A,), 0)) + encode(Closed((A,)))
    assert other.delivered(L) == []


def test_undecided_messages_are_limited_by_their_bytes():
    """RELINK-24: nobody reads them before commit, so nobody can stop reading because of them; over the limit the connection ends."""
    pair = Pair(TX, Options(ping_interval=None, max_undecided_bytes=100))
    full = Message((A,), (b"x" * 60,)), Message((B,), (b"y" * 20, b"z" * 20))
    assert say(pair, L, *full, Rollback((A,)), full[0]) is None
    assert say(pair, L, Message((B,), (b"1",))) is Fault.UNDECIDED_OVER_LIMIT
    assert pair.registry.links[7].inbox.channels[B].received == 0
    assert pair.registry.links[7].inbox.undecided == 2


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


def test_a_result_without_a_number_after_a_rollback_settles_nothing():
    """§3.2: it would be about the message that was rolled back, and the committed one would stay unknown for ever."""
    pair = Pair(TX)
    post(pair, 2)
    pair.connector.rollback(A, 0)
    pair.connector.commit(A, 1)
    pair.out(C)
    assert say(pair, C, Committed((A,))) is Fault.RESULT_UNNUMBERED
    assert pair.outcomes(C) == {}


def test_a_result_without_a_number_is_no_better_when_the_rollback_is_consumed():
    pair = Pair(TX)
    post(pair, 3)
    pair.connector.rollback(A, 0)
    pair.connector.rollback(A, 1)
    pair.out(C)
    assert say(pair, C, Consumed((A,), 1)) is None
    pair.connector.commit(A, 2)
    pair.out(C)
    assert say(pair, C, Committed((A,))) is Fault.RESULT_UNNUMBERED


def test_a_numbered_result_after_a_rollback_is_about_the_message_it_names():
    pair = Pair(TX)
    post(pair, 3)
    pair.connector.rollback(A, 0)
    pair.connector.commit(A, 2)
    pair.out(C)
    assert say(pair, C, Committed((A,), 1)) is None
    assert say(pair, C, Uncommitted((A,))) is None
    assert [pair.outcomes(C)[A, number] for number in range(3)] == [Outcome.ROLLED_BACK, Outcome.COMMITTED, Outcome.UNCOMMITTED]
