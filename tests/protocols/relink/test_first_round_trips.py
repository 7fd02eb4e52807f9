"""Confirmations that are lost, and then connection after connection that dies in its first round trip, at every place in it."""

from __future__ import annotations

import pytest
from tests.protocols.relink.linking import TX, A, post
from tests.protocols.relink.pair import C, L, Pair

from wirelake.protocols.relink.events import ChannelClosed, MessageReceived, Outcome
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.state_machine import Speaker

PLAIN = Endpoint("demo", 1, 1)
OPTIONS = Options(ping_interval=None, ack_delay=0.0, ack_every=1)
MESSAGES = 10
EVERYTHING = 1 << 20


def dies(pair: Pair, muted: Speaker, keep: int, *, closed: bool) -> None:
    """A connection on which the network passes so many bytes of one side, and everything of the other."""
    pair.connect()
    left = {muted: keep, muted.other: EVERYTHING}
    for _ in range(4):
        for speaker in (C, L):
            data = pair.out(speaker)[: left[speaker]]
            left[speaker] -= len(data)
            pair.give(speaker.other, data)
    listener = pair.ends[L].link
    pair.lose()
    if listener is not None and closed:
        listener.refuse()
        pair.hear(L)


def settle(pair: Pair) -> None:
    """The listener's application processes what it got; nothing of what it says arrives."""
    for message in pair.of(L, MessageReceived):
        pair.link(L).settle(message, pair.now, success=True)
    pair.out(L)


@pytest.mark.parametrize("closed", [False, True], ids=["lost", "closed"])
@pytest.mark.parametrize("muted", [C, L], ids=["connector", "listener"])
@pytest.mark.parametrize("endpoint", [PLAIN, TX], ids=["plain", "transactions"])
@pytest.mark.parametrize("is_closing", [True, False], ids=["close", "open"])
def test_no_place_to_die_makes_a_message_arrive_twice(endpoint, muted, closed, is_closing):
    """RELINK-22, RELINK-28, RELINK-32: 1 to 6 connections, each cut after the same number of bytes, from none to all."""
    for keep in range(0, 120, 8):
        for deaths in (1, 2, 3, 6):
            pair = Pair(endpoint, OPTIONS)
            post(pair, MESSAGES)
            if endpoint is TX:
                pair.connector.commit(A)
            if is_closing:
                pair.connector.close(A)
            pair.give(L, pair.out(C))
            settle(pair)
            pair.lose()
            for _ in range(deaths):
                dies(pair, muted, keep, closed=closed)
            pair.connect(run=True)
            pair.wait(1.0)
            assert pair.delivered(L) == [b"%d" % number for number in range(MESSAGES)], (keep, deaths)
            assert set(pair.outcomes(C).values()) == {Outcome.COMMITTED if endpoint is TX else Outcome.CONSUMED}, (keep, deaths)
            assert len(pair.outcomes(C)) == MESSAGES
            assert pair.of(C, ChannelClosed) == [ChannelClosed(A)] * is_closing, (keep, deaths)


@pytest.mark.parametrize("deaths", [1, 3, 6])
def test_results_are_repeated_until_they_arrive(deaths):
    """RELINK-28: transaction after transaction on one channel; the results of each are lost, and the connections after it."""
    pair = Pair(TX, OPTIONS)
    for number in range(4):
        post(pair, 2)
        (pair.connector.rollback if number == 2 else pair.connector.commit)(A)
        pair.give(L, pair.out(C))
        settle(pair)
        pair.lose()
        for keep in range(24, 24 + 16 * deaths, 16):
            dies(pair, L, keep, closed=True)
        pair.connect(run=True)
    assert len(pair.delivered(L)) == 6
    outcomes = [pair.outcomes(C)[A, number] for number in range(8)]
    assert outcomes == [Outcome.COMMITTED] * 4 + [Outcome.ROLLED_BACK] * 2 + [Outcome.COMMITTED] * 2
