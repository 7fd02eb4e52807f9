"""Invariants of a link, checked after every step."""

from __future__ import annotations

import itertools

from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.incoming_channel import IncomingChannel
from wirelake.protocols.relink.link.outgoing_channel import OutgoingChannel


def check(link: LinkCore) -> None:
    """Hold a link to all of it."""
    for channel, outgoing in link.outbox.channels.items():
        assert channel == outgoing.channel
        check_outgoing(outgoing, link.options.window)
    unconsumed = 0
    for channel, incoming in link.inbox.channels.items():
        assert channel == incoming.channel
        check_incoming(incoming, link.options.max_result_runs)
        assert not incoming.is_done or len(link.inbox.tombstones) >= link.options.max_tombstones, "closed was due"
        unconsumed += incoming.received - incoming.consumed
    assert link.inbox.unconsumed == unconsumed <= link.options.max_unconsumed
    held = [parts for incoming in link.inbox.channels.values() for parts in incoming._held.values()]
    assert link.inbox.undecided == len(held)
    assert link.inbox._undecided_bytes == sum(len(part) for parts in held for part in parts) <= link.options.max_undecided_bytes
    assert len(link.inbox.tombstones) <= link.options.max_tombstones
    assert not set(link.inbox.tombstones) & set(link.inbox.channels), "closed and open at once"
    assert len(link.inbox.channels) <= link.options.max_channels
    state = link.state
    assert state.is_connected == (link.owner is not None)
    assert state.may_send <= state.is_connected, "messages without a connection"
    assert not (state.may_send and link.outbox.is_resuming), "RELINK-21: messages before resume"
    assert state.is_connected or not state.output, "something to say and nobody to say it to"
    assert 0 <= state.strikes < link.options.max_strikes
    if link.has_said_shutdown:
        assert link.outbox.is_drained, "RELINK-23: shutdown was said too early"


def check_outgoing(one: OutgoingChannel, window: int) -> None:
    assert one.first - 1 <= one.consumed <= one.received <= one.sent <= one.last
    assert one.outstanding <= window
    assert len(one.payloads) == one.last - one.received
    assert one.close_sent <= one.closing
    assert not one.close_sent or one.sent == one.last, "close was said before all messages"
    if not one.transactional:
        assert not one.decisions
        return
    assert one.result <= one.consumed <= one.decided <= one.last
    assert one.announced_decision <= one.decided
    at = one.consumed
    kinds = []
    for last, commit in one.decisions:
        assert last > at, "runs of decisions overlap"
        at = last
        kinds.append(commit)
    assert at == max(one.decided, one.consumed)
    assert all(kind != other for kind, other in itertools.pairwise(kinds)), "two runs that are one"
    assert not one.closing or one.decided == one.last, "RELINK-29: closing with undecided messages"


def check_incoming(one: IncomingChannel, most_runs: int) -> None:
    assert one.consumed <= one.received
    assert one.announced_consumed <= one.consumed
    assert one.announced_received <= one.received
    assert all(one.consumed + 1 < number <= one.received for number in one._consumed_early)
    if not one.transactional:
        assert not one._states
        assert not one.runs
        return
    assert sorted(one._states) == list(range(one.consumed + 1, one.received + 1))
    assert sorted(one._held) == list(range(max(one.decided, one.consumed) + 1, one.received + 1))
    assert len(one.runs) <= most_runs
    assert all(run.last <= one.consumed for run in one.runs)
    assert all(a.last < b.last for a, b in zip(one.runs, one.runs[1:], strict=False))
