"""Channels that are closed, remembered and opened again; links that are shut down or lost."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocols.relink.linking import SIX, TX, A, B, post, say
from tests.protocols.relink.pair import C, L, Pair

from wirelake.errors import LocalProtocolError, UsageError
from wirelake.protocols.relink.events import (
    ChannelClosed,
    Ending,
    LinkLost,
    LinkShutdown,
    MessageReceived,
    MessagesResolved,
    Outcome,
    PeerClosedChannel,
    PeerShutdown,
    TombstonesForgotten,
    TombstonesRefused,
)
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.messages import (
    Close,
    Closed,
    Committed,
    Consumed,
    Message,
    Pong,
    Received,
    Resume,
    Shutdown,
    Uncommitted,
)
from wirelake.protocols.relink.options import Endpoint, Options

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


SIX_BYTES = b"sixsix"


@pytest.mark.parametrize(
    ("endpoint", "channel", "count", "expected"),
    [
        (Endpoint("demo", 1, 1), A, 1, Consumed((A,), 0)),
        (Endpoint("demo", 1, 1), A, 3, Consumed((A,), 2)),
        (SIX, SIX_BYTES, 1, Consumed((SIX_BYTES,))),
        (SIX, SIX_BYTES, 3, Consumed((SIX_BYTES,), 2)),
    ],
)
@pytest.mark.parametrize("is_close_first", [False, True])
def test_consumed_is_sent_before_closed(endpoint, channel, count, expected, is_close_first):
    """§3.1, RELINK-22, RELINK-30: in its minimal form, whichever of close and the last consumption comes first."""
    pair = Pair(endpoint, Options(ping_interval=None))
    post(pair, count, channel=channel)
    pair.give(L, pair.out(C))
    received = pair.of(L, MessageReceived)
    if is_close_first:
        assert say(pair, L, Close((channel,))) is None
    for one in received:
        pair.link(L).consume(one, pair.now)
    if not is_close_first:
        assert say(pair, L, Close((channel,))) is None
    pair.out(L)
    assert pair.packets(L) == [expected, Closed((channel,))]


def test_consumed_is_not_sent_twice_before_closed():
    """RELINK-22: closed alone, if the peer knows what was consumed."""
    pair = Pair()
    post(pair, 2)
    pair.run()
    pair.consume_all(L)
    pair.wait(0.0)
    before = len(pair.packets(L))
    pair.connector.close(A)
    pair.run()
    assert pair.packets(L)[before:] == [Closed((A,))]


def test_results_then_consumed_then_closed():
    """RELINK-22, RELINK-27: a result implies consumed, so that only rollbacks behind the last result need consumed."""
    pair = Pair(TX, Options(ping_interval=None))
    post(pair, 3)
    pair.connector.commit(A, 1)
    pair.connector.close(A)
    pair.give(L, pair.out(C))
    for one in pair.of(L, MessageReceived):
        pair.link(L).settle(one, pair.now, success=True)
    pair.out(L)
    assert pair.packets(L) == [Committed((A,), 1), Consumed((A,), 2), Closed((A,))]
    pair = Pair(TX, Options(ping_interval=None))
    post(pair, 2)
    pair.connector.commit(A)
    pair.connector.close(A)
    pair.give(L, pair.out(C))
    for one in pair.of(L, MessageReceived):
        pair.link(L).settle(one, pair.now, success=True)
    pair.out(L)
    assert pair.packets(L) == [Committed((A,), 1), Closed((A,))]


def test_a_channel_that_resumes_sends_consumed_before_closed():
    """RELINK-20, RELINK-22: what was consumed after the resume was stated is said, what was stated is not said again."""
    pair = Pair(options=Options(ping_interval=None))
    post(pair, 2)
    pair.connector.close(A)
    pair.run()
    first, second = pair.of(L, MessageReceived)
    pair.link(L).consume(first, pair.now)
    pair.reconnect()
    stated = pair.packets(L)
    assert stated == [Received((A,), 1), Consumed((A,), 0), Resume()]
    pair.link(L).consume(second, pair.now)
    pair.run()
    assert pair.packets(L)[len(stated) :] == [Consumed((A,), 1), Closed((A,))]
    assert pair.of(C, ChannelClosed) == [ChannelClosed(A)]


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


def buried(**options: Any) -> Pair:
    """A pair whose listener has a tombstone that no pong has proved."""
    pair = Pair(options=Options(ping_interval=None, ack_delay=0.0, ack_every=1, **options))
    post(pair, 1)
    pair.connector.close(A)
    pair.run()
    pair.consume_all(L)
    assert list(pair.link(L).inbox.tombstones) == [A]
    return pair


def refuse(pair: Pair) -> None:
    """The connector closes the connection; then there is another."""
    listener = pair.link(L)
    pair.lose()
    listener.refuse()
    pair.hear(L)
    pair.connect(run=True)


TOLD = [Received((A,), 0), Consumed((A,), 0), Closed((A,)), Resume()]


@pytest.mark.parametrize("end", [Pair.reconnect, refuse])
def test_a_tombstone_is_announced_until_a_pong(end):
    """RELINK-22: however many connections end at it, and whoever ends them."""
    pair = buried()
    for _ in range(12):
        end(pair)
        assert pair.packets(L) == TOLD
    assert pair.of(L, TombstonesForgotten) == []
    pair.wait(1.0)
    end(pair)
    assert pair.packets(L) == [Resume()]


def test_the_owner_is_told_once_that_a_peer_closes_connections_at_announcements():
    """RELINK-22: after five of them, and again only after an announcement that the peer accepted."""
    pair = buried()
    pair.reconnect()
    for number in range(1, 8):
        pair.reconnect()  # a connection that the network loses does not count
        refuse(pair)
        assert pair.of(L, TombstonesRefused) == [TombstonesRefused((A,))] * (number >= 5)
    pair.wait(1.0)
    post(pair, 1)
    pair.connector.close(A)
    pair.run()
    pair.link(L).consume(pair.of(L, MessageReceived)[-1], pair.now)
    pair.run()
    refuse(pair)
    assert pair.packets(L) == TOLD
    for number in range(1, 8):
        refuse(pair)
        assert len(pair.of(L, TombstonesRefused)) == 1 + (number >= 5)


def test_a_connection_that_ends_at_an_announcement_was_of_no_use():
    """RELINK-22: so the next one waits longer; also if the peer said something new before it read the announcement."""
    pair = buried()
    post(pair, 1, L, B)
    pair.run()
    pair.link(C).consume(pair.of(C, MessageReceived)[-1], pair.now)
    pair.reconnect()
    assert pair.link(L).state.has_progressed, "the connector has acknowledged B"
    assert not pair.link(L).has_progressed
    pair.wait(1.0)
    assert pair.link(L).has_progressed


def test_what_a_peer_repeats_in_a_resume_is_no_progress():
    """RELINK-20: acknowledgements that cover nothing new are said before the peer has read anything."""
    pair = buried()
    post(pair, 1, L)
    pair.run()
    pair.consume_all(C)
    for _ in range(3):
        pair.reconnect()
        assert Consumed((A,), 0) in pair.packets(C)
        assert pair.link(L).state.has_progressed is False


def test_a_forgiving_owner_forgets_what_the_peer_closes_connections_for():
    """RELINK-22: at once, but only if the peer itself closed it, and only what was announced."""
    pair = buried(tombstones="forgiving")
    for _ in range(6):
        pair.reconnect()  # the network loses it
        assert pair.packets(L) == TOLD
    assert pair.of(L, TombstonesForgotten) == []
    post(pair, 1, channel=B)
    pair.connector.close(B)
    pair.run()
    pair.link(L).consume(pair.of(L, MessageReceived)[-1], pair.now)
    pair.run()
    refuse(pair)
    assert pair.of(L, TombstonesForgotten) == [TombstonesForgotten((A,))]
    assert pair.packets(L) == [Received((B,), 0), Consumed((B,), 0), Closed((B,)), Resume()]
    pair.wait(1.0)
    refuse(pair)
    assert pair.of(L, TombstonesForgotten) == [TombstonesForgotten((A,))], "nothing was announced"
    assert pair.of(L, TombstonesRefused) == []


def test_a_close_waits_for_a_pong_when_too_many_closed_channels_are_remembered():
    """RELINK-22, RELINK-24: no tombstone goes to make room for another."""
    pair = Pair(Endpoint("demo", 2, 2), Options(ping_interval=None, ack_delay=0.0, ack_every=1, max_tombstones=2))
    ids = [b"%02d" % number for number in range(5)]
    for channel in ids:
        post(pair, 1, channel=channel)
        pair.connector.close(channel)
    pair.run()
    pair.consume_all(L)
    inbox = pair.link(L).inbox
    assert list(inbox.tombstones) == ids[:2]
    assert set(inbox.channels) == set(ids[2:])
    assert len(pair.outcomes(C)) == 5, "consumed does not wait"
    pair.reconnect()
    assert [one.ids[0] for one in pair.packets(L) if isinstance(one, Closed)] == ids[:2]
    assert [one.channel for one in pair.of(C, ChannelClosed)] == ids[:2]
    for _ in range(3):
        pair.wait(1.0)
    assert [one.channel for one in pair.of(C, ChannelClosed)] == ids
    assert inbox.channels == inbox.tombstones == {}


def test_room_for_a_waiting_close_also_comes_when_a_channel_is_opened_again():
    """RELINK-22: which removes its tombstone."""
    pair = Pair(options=Options(ping_interval=None, ack_delay=0.0, ack_every=1, max_tombstones=1))
    for channel in (A, B):
        post(pair, 1, channel=channel)
        pair.connector.close(channel)
    pair.run()
    pair.consume_all(L)
    assert [one.channel for one in pair.of(C, ChannelClosed)] == [A]
    post(pair, 1)
    pair.run()
    assert [one.channel for one in pair.of(C, ChannelClosed)] == [A, B]
    assert list(pair.link(L).inbox.tombstones) == [B]


def test_a_sender_remembers_the_channels_that_closed_last():
    """RELINK-22: A was closed first, opened again and closed last: what is announced of it is not taken for its third life."""
    pair = Pair(Endpoint("demo", 1, 1), Options(ping_interval=None, ack_delay=0.0, ack_every=1, max_tombstones=2))

    def live(channel: bytes) -> None:
        post(pair, 1, channel=channel)
        pair.connector.close(channel)
        pair.run()
        pair.link(L).consume(pair.of(L, MessageReceived)[-1], pair.now)
        pair.run()

    for channel in (A, b"c"):
        live(channel)
        pair.wait(1.0)
    live(A)
    live(b"d")
    assert list(pair.link(L).inbox.tombstones) == [A, b"d"]
    resolved = pair.of(C, MessagesResolved)
    post(pair, 1)
    pair.connector.close(A)
    pair.out(C)  # lost
    pair.reconnect()
    assert pair.of(C, MessagesResolved) == resolved, "nothing of the third life was consumed"
    assert len(pair.of(L, MessageReceived)) == 5


def test_a_resume_that_tells_of_closed_channels_is_followed_by_a_ping():
    """RELINK-22: at once, so that a connection which lives for one round trip proves that the peer bears them."""
    pair = buried()
    pair.reconnect()
    assert pair.ends[L].deadline == pair.now
    pair.wait(0.0)
    assert pair.link(L).inbox.tombstones == {}


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


@pytest.mark.parametrize("wrong", [{"tombstones": "forgiven"}, {"max_tombstones": 0}])
def test_options_that_cannot_be_kept_are_refused(wrong):
    with pytest.raises(UsageError, match=f"{next(iter(wrong))}=.* is "):
        Options(**wrong)


def test_closing_what_is_not_open():
    pair = Pair()
    with pytest.raises(LocalProtocolError) as wrong:
        pair.connector.close(A)
    assert wrong.value.fault is Fault.CHANNEL_CLOSING


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


def test_shutdown_is_sent_again_on_every_connection():
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
    packet = [(Committed if number % 2 else Uncommitted)((A,), number) for number in range(3)]
    assert say(pair, C, *packet) is Fault.RESULTS_OVER_LIMIT


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
