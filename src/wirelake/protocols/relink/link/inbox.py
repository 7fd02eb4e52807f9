"""The receiving half of a link: the peer's channels, and when to acknowledge messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, repeat
from typing import Final

from wirelake.protocols.relink.events import MessageReceived, PeerClosedChannel, TombstonesForgotten, TombstonesRefused
from wirelake.protocols.relink.faults import Fault, Violation
from wirelake.protocols.relink.link.incoming_channel import DecidedMessage, IncomingChannel, ResultRun, Tombstone, tombstone_packets
from wirelake.protocols.relink.link.sequence import is_behind
from wirelake.protocols.relink.link.state import LinkState
from wirelake.protocols.relink.messages import Closed
from wirelake.protocols.relink.options import Options
from wirelake.protocols.relink.wire import encode

__all__ = ["REFUSALS", "Inbox"]

REFUSALS: Final = 5
"""Connections that a peer closes at the announcement of closed channels before its owner is told which option it needs."""


class Inbox:
    """Channels of the peer, open and closed, and the acknowledgements due for them."""

    def __init__(self, state: LinkState, options: Options, *, transactional: bool) -> None:
        self.channels: dict[bytes, IncomingChannel] = {}
        self.tombstones: dict[bytes, Tombstone] = {}
        self.unconsumed = 0
        """Messages received and neither consumed nor settled nor rolled back."""
        self.undecided = 0
        """Those of them that wait for commit or rollback."""
        self._undecided_bytes = 0
        self.is_shut = False
        """§3.6: the peer opens no more channels."""
        self._state = state
        self._options = options
        self._max_unconsumed = options.max_unconsumed
        self._ack_every = options.ack_every
        self._transactional = transactional
        self._due_now: dict[bytes, IncomingChannel] = {}
        """Channels to acknowledge at once.

        They have results, messages received on a transactional channel, or all messages consumed.
        """
        self._due_later: dict[bytes, IncomingChannel] = {}
        """Channels whose consumed acknowledgements are due at `_ack_deadline`."""
        self._expected_closes: set[bytes] = set()
        """Channels whose close, and before it decisions, the peer repeats after this reconnection.

        They may be closed by then.
        """
        self._ack_deadline: float | None = None
        self._barrier_deadline: float | None = None
        self._runs_since_ping = 0
        self._closed_since_ping = 0
        self._refusals = 0
        """Connections that the peer closed at the announcement of closed channels, since it accepted one."""

    @property
    def deadline(self) -> float | None:
        """When to acknowledge consumed messages."""
        return self._ack_deadline

    @property
    def waiting(self) -> int:
        """Messages that the application has got and not consumed or settled."""
        return self.unconsumed - self.undecided

    @property
    def barrier_deadline(self) -> float | None:
        """RELINK-22: when to ping, so that its pong lets us forget closed channels and results."""
        return self._barrier_deadline

    @property
    def is_announcing(self) -> bool:
        """RELINK-22: this connection, or the last one, announced closed channels, and no pong has shown that the peer accepts it."""
        return any(one.is_announced for one in self.tombstones.values())

    # Packets of the peer.

    def take_message(self, ids: tuple[bytes, ...], parts: tuple[bytes, ...]) -> None:
        """RELINK-14, RELINK-19: deliver a message once for each id, in their order."""
        for channel in ids:
            self.deliver(channel, parts)

    def deliver(self, channel: bytes, parts: tuple[bytes, ...]) -> None:
        """§3.1: deliver the next message of a channel; the first one opens it."""
        incoming = self.channels.get(channel)
        if incoming is not None and incoming.closing:
            raise Violation(Fault.CHANNEL_CLOSING, f"a message on {channel.hex() or 'the only channel'}")
        if self.unconsumed >= self._max_unconsumed:
            raise Violation(Fault.UNCONSUMED_OVER_LIMIT, f"limit {self._max_unconsumed}")
        if incoming is None:
            incoming = self._open(channel)
        if self._transactional:
            self._hold(incoming, parts)
        else:
            self.unconsumed += 1
            incoming.received = number = incoming.received + 1
            self._state.events.append(MessageReceived(channel, number, parts, incoming.incarnation))
        self._state.strikes, self._state.has_progressed = 0, True  # as `progress` does, without the call: this is for every message

    def deliver_many(self, channel: bytes, payloads: list[tuple[bytes, ...]]) -> None:
        """`deliver` for messages of one channel that follow each other."""
        if self._transactional or len(payloads) == 1 or channel not in self.channels:
            for parts in payloads:
                self.deliver(channel, parts)
            return
        incoming = self.channels[channel]
        if incoming.closing:
            raise Violation(Fault.CHANNEL_CLOSING, f"a message on {channel.hex() or 'the only channel'}")
        allowed = payloads[: max(self._max_unconsumed - self.unconsumed, 0)]
        first, incarnation = incoming.received + 1, incoming.incarnation
        self._state.events += map(MessageReceived, repeat(channel), count(first), allowed, repeat(incarnation))
        incoming.received += len(allowed)
        self.unconsumed += len(allowed)
        if allowed:
            self._state.progress()
        if len(allowed) < len(payloads):
            raise Violation(Fault.UNCONSUMED_OVER_LIMIT, f"limit {self._max_unconsumed}")

    def take_decision(self, ids: tuple[bytes, ...], sequence: int | None, *, commit: bool) -> None:
        """RELINK-26: take a commit or rollback."""
        if not self._transactional:
            raise Violation(Fault.TRANSACTIONS_OFF, "commit" if commit else "rollback")
        for channel in ids:
            incoming = self.channels.get(channel)
            if incoming is None and channel in self._expected_closes:
                continue
            if incoming is None:
                raise Violation(Fault.DECIDED_TOO_MUCH, f"nothing was sent on {channel.hex() or 'the only channel'}")
            if incoming.closing:
                # RELINK-28: after a reconnection decisions are repeated before close is; they decide nothing that is open.
                is_repeated = is_behind(incoming.decided + 1, sequence)
                if channel not in self._expected_closes or not is_repeated:
                    raise Violation(Fault.CHANNEL_CLOSING, "commit" if commit else "rollback")
            decided = incoming.decide(sequence, commit=commit)
            if decided:
                self._state.progress()
            self._decided(incoming, decided)
            self._advance(incoming)

    def take_close(self, ids: tuple[bytes, ...]) -> None:
        """RELINK-22: answer close with closed, when everything was consumed or the channel is not open.

        Twice counts once (RELINK-19).
        """
        for channel in dict.fromkeys(ids):
            incoming = self.channels.get(channel)
            if channel in self._expected_closes:  # repeated; if it was closed meanwhile, closed is on its way already
                self._expected_closes.remove(channel)
            elif incoming is None:
                self._state.output.append(encode(Closed((channel,))))
            elif incoming.closing:
                raise Violation(Fault.CHANNEL_CLOSING, "close")
            else:
                self._decided(incoming, incoming.close())
                self._state.events.append(PeerClosedChannel(channel))
                if self._transactional:
                    self._advance(incoming)
                self._finish(incoming)

    # Calls of the application.

    def consume(self, message: MessageReceived) -> bool:
        """§3.1: the application consumed a message; return whether output or the deadline may have changed.

        A message of a link that was lost since is ignored.
        """
        incoming = self.channels.get(message.channel)
        if incoming is None or incoming.incarnation != message.incarnation:
            return False
        if self._transactional:
            self.settle(message, success=True)
            return True
        before = incoming.consumed
        if not incoming.consume(message.sequence):
            return False
        consumed = incoming.consumed
        self.unconsumed -= consumed - before
        if (
            message.channel in self._due_later
            and consumed != incoming.received
            and consumed - incoming.announced_consumed < self._ack_every
        ):
            return False  # acknowledged later with the others
        self._consumed(incoming)
        return True

    def consume_run(self, messages: Sequence[MessageReceived]) -> bool:
        """`consume` for messages of one channel that follow each other, in order."""
        first, last = messages[0], messages[-1]
        incoming = self.channels.get(last.channel)
        if incoming is None or incoming.incarnation != last.incarnation:
            return False
        if self._transactional or not incoming.consume_run(first.sequence, last.sequence):
            return sum([self.consume(message) for message in messages]) > 0
        self.unconsumed -= len(messages)
        self._consumed(incoming)
        return True

    def settle(self, message: MessageReceived, *, success: bool) -> None:
        """§3.2: the application processed a committed message, or could not."""
        incoming = self.channels.get(message.channel)
        if incoming is None or incoming.incarnation != message.incarnation:
            return
        if not self._transactional:
            self.consume(message)
        elif incoming.settle(message.sequence, success=success):
            self._advance(incoming)

    # Acknowledgements.

    def flush(self) -> None:
        """Send what is due at once: results, consumed of a drained channel, then received.

        See RELINK-16, RELINK-18, RELINK-27. A channel that has got more messages since it was drained is busy: its acknowledgement waits
        for more of them.
        """
        if not self._due_now:
            return
        for channel, incoming in self._due_now.items():
            self._state.output += incoming.result_packets()
            if incoming.is_drained:
                self._send_consumed(incoming)
                self._due_later.pop(channel, None)
            if self._transactional and incoming.received > incoming.announced_received:
                self._state.output.append(incoming.received_packet())
        self._due_now.clear()
        if not self._due_later:
            self._ack_deadline = None

    def tick(self) -> None:
        """RELINK-18: send consumed acknowledgements that have waited long enough."""
        if self._ack_deadline is not None and self._state.now >= self._ack_deadline:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Send all acknowledgements now."""
        self.flush()
        for incoming in self._due_later.values():
            self._send_consumed(incoming)
        self._due_later.clear()
        self._ack_deadline = None

    def restate(self) -> Iterator[bytes]:
        """RELINK-20: packets that say, after a reconnection, how far every channel is.

        Then every closed one (RELINK-22).
        """
        self.forget_connection()
        self._expected_closes = {channel for channel, incoming in self.channels.items() if incoming.closing}
        for incoming in self.channels.values():
            yield from incoming.restate()
        for tombstone in self.tombstones.values():
            tombstone.is_announced = True
            yield from tombstone_packets(tombstone)
        if not self._options.tombstones:
            self.tombstones.clear()
        if self._unproven():
            self._barrier_deadline = self._state.now  # at once: an early pong proves that the peer accepts the restated packets

    def forget_connection(self) -> None:
        """Drop the state of the last connection.

        Its packets may not have arrived, and its pings are gone (RELINK-25).
        """
        self._due_now.clear()
        self._due_later.clear()
        self._ack_deadline = self._barrier_deadline = None
        self._expected_closes.clear()
        for one in self._provable():
            one.barrier = None

    def refuse(self) -> None:
        """RELINK-22: the peer itself closed the last connection. Right after an announcement, that may be because of it."""
        announced = tuple(channel for channel, one in self.tombstones.items() if one.is_announced)
        if not announced:
            return
        self._refusals += 1
        if self._options.tombstones == "forgiving":
            for channel in announced:
                del self.tombstones[channel]
            self._state.events.append(TombstonesForgotten(announced))
            self._finish_waiting()
        elif self._refusals == REFUSALS:
            self._state.events.append(TombstonesRefused(announced))

    def pinged(self, ping: int) -> None:
        """RELINK-22, RELINK-28: a ping was sent; its pong will prove that the peer has all packets so far."""
        self._barrier_deadline, self._runs_since_ping, self._closed_since_ping = None, 0, 0
        for one in self._unproven():
            one.barrier = ping

    def ponged(self, ping: int) -> None:
        """The peer has all packets before this ping: they need not be repeated any more."""
        self._state.has_progressed = True
        self._refusals = 0  # announcements are the first thing that is said on a connection, before any ping
        had_room = len(self.tombstones) < self._options.max_tombstones
        for channel, tombstone in list(self.tombstones.items()):
            if tombstone.barrier is not None and tombstone.barrier <= ping:
                del self.tombstones[channel]
        for incoming in list(self.channels.values()):
            if incoming.runs:
                incoming.runs[:] = [run for run in incoming.runs if run.barrier is None or run.barrier > ping]
                self._advance(incoming)
        if not had_room:
            self._finish_waiting()

    # Internal.

    def _open(self, channel: bytes) -> IncomingChannel:
        if self.is_shut:
            raise Violation(Fault.CHANNEL_AFTER_SHUTDOWN, channel.hex() or "the only channel")
        if len(self.channels) >= self._options.max_channels:
            raise Violation(Fault.CHANNELS_OVER_LIMIT, f"limit {self._options.max_channels}")
        was_closed = self.tombstones.pop(channel, None) is not None
        self._expected_closes.discard(channel)
        self._state.incarnations += 1
        self.channels[channel] = incoming = IncomingChannel(channel, self._state.incarnations, transactional=self._transactional)
        if was_closed and len(self.tombstones) + 1 >= self._options.max_tombstones:
            self._finish_waiting()
        return incoming

    def _hold(self, incoming: IncomingChannel, parts: tuple[bytes, ...]) -> None:
        """RELINK-27: keep a message back until commit; RELINK-24: within the limit of undecided bytes."""
        size = sum(map(len, parts))
        if self._undecided_bytes + size > self._options.max_undecided_bytes:
            raise Violation(Fault.UNDECIDED_OVER_LIMIT, f"limit {self._options.max_undecided_bytes}")
        self.unconsumed += 1
        self.undecided += 1
        self._undecided_bytes += size
        incoming.take(parts)
        self._due_now[incoming.channel] = incoming

    def _decided(self, incoming: IncomingChannel, decided: list[DecidedMessage]) -> None:
        """Deliver committed messages to the application; drop those rolled back."""
        for message in decided:
            self.undecided -= 1
            self._undecided_bytes -= sum(map(len, message.parts))
            if message.is_committed:
                self._state.events.append(MessageReceived(incoming.channel, message.number, message.parts, incoming.incarnation))

    def _advance(self, incoming: IncomingChannel) -> None:
        """Count messages as done that have a result or were rolled back, in their order."""
        runs = len(incoming.runs)
        done = incoming.advance(self._options.max_result_runs)
        self._due_now[incoming.channel] = incoming
        if done:
            self.unconsumed -= done
            if incoming.runs:
                self._runs_since_ping += len(incoming.runs) - runs
                self._plan_barrier()
            self._consumed(incoming)

    def _consumed(self, incoming: IncomingChannel) -> None:
        """RELINK-18: the cursor moved.

        Acknowledge now, before closed, when the channel is drained, or later with others.
        """
        if incoming.is_done and self._finish(incoming):
            return
        if not self._state.is_connected:
            return
        if incoming.consumed - incoming.announced_consumed >= self._ack_every:
            self._send_consumed(incoming)
        else:
            self._due_later[incoming.channel] = incoming
            if self._ack_deadline is None:
                self._ack_deadline = self._state.now + self._options.ack_delay
            if incoming.is_drained:
                self._due_now[incoming.channel] = incoming

    def _send_consumed(self, incoming: IncomingChannel) -> None:
        """RELINK-27: send results, then consumed for the messages they do not cover."""
        self._state.output += incoming.result_packets()
        if incoming.consumed > incoming.announced_consumed:
            self._state.output.append(incoming.consumed_packet())

    def _finish(self, incoming: IncomingChannel) -> bool:
        """RELINK-22: send consumed if it moved, then closed, and keep a tombstone; return whether that is done.

        Without a connection the next `restate` sends them. A close waits while there are `max_tombstones`: none is forgotten for it.
        """
        channel = incoming.channel
        if not incoming.is_done or self.channels.get(channel) is not incoming:
            return False
        is_announced_later = bool(self._options.tombstones)
        if is_announced_later and len(self.tombstones) >= self._options.max_tombstones:
            return False
        del self.channels[channel]
        self._due_now.pop(channel, None)
        self._due_later.pop(channel, None)
        if self._state.is_connected:
            self._send_consumed(incoming)  # §3.1: a sender may wait for consumed alone
            self._state.output.append(encode(Closed((channel,))))
        if is_announced_later or not self._state.is_connected:
            self.tombstones[channel] = Tombstone(channel, incoming.consumed, incoming.runs)
            self._closed_since_ping += 1
            self._plan_barrier()
        return True

    def _finish_waiting(self) -> None:
        """RELINK-22: answer closes that waited until another tombstone went."""
        for incoming in [one for one in self.channels.values() if one.is_done]:
            self._finish(incoming)

    def _plan_barrier(self) -> None:
        if not self._state.is_connected:
            return
        # Before `max_result_runs` stops results, and `max_tombstones` stops answers to close.
        options = self._options
        if self._runs_since_ping > options.max_result_runs // 4 or self._closed_since_ping > options.max_tombstones // 4:
            self._barrier_deadline = self._state.now
        elif self._barrier_deadline is None:
            self._barrier_deadline = self._state.now + self._options.barrier_delay

    def _provable(self) -> Iterator[Tombstone | ResultRun]:
        """Tombstones and results that are kept until the peer certainly has them."""
        yield from self.tombstones.values()
        for incoming in self.channels.values():
            yield from incoming.runs

    def _unproven(self) -> list[Tombstone | ResultRun]:
        return [one for one in self._provable() if one.barrier is None]
