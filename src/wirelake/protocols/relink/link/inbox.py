"""The receiving half of a link: the peer's channels, what was consumed of them, and when that is told.

It refuses to know sessions: they hand over what was said, and take away what is to be said.
"""

from __future__ import annotations

from collections.abc import Iterator

from wirelake.protocols.relink.events import MessageReceived, PeerClosedChannel, TombstonesForgotten
from wirelake.protocols.relink.faults import Fault, Violation
from wirelake.protocols.relink.link.incoming_channel import DecidedMessage, IncomingChannel, ResultRun, Tombstone, tombstone_packets
from wirelake.protocols.relink.link.sequence import is_behind
from wirelake.protocols.relink.link.state import LinkState
from wirelake.protocols.relink.messages import Closed
from wirelake.protocols.relink.options import Options
from wirelake.protocols.relink.wire import encode

__all__ = ["Inbox"]


class Inbox:
    """Everything the peer sends on its channels."""

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
        """Channels with something to be told at once: results, what arrived on a transactional channel, or that all was consumed."""
        self._due_later: dict[bytes, IncomingChannel] = {}
        """Channels with consumed acknowledgements to be told at `_ack_deadline`."""
        self._expected_closes: set[bytes] = set()
        """Channels whose close the peer says again after this reconnection, and before it decisions: they may be closed by then."""
        self._ack_deadline: float | None = None
        self._barrier_deadline: float | None = None
        self._runs_since_ping = 0

    @property
    def deadline(self) -> float | None:
        """When consumed messages are to be acknowledged."""
        return self._ack_deadline

    @property
    def waiting(self) -> int:
        """Messages the application was given and has not consumed or settled."""
        return self.unconsumed - self.undecided

    @property
    def barrier_deadline(self) -> float | None:
        """RELINK-22: when to ping, so that something can be forgotten."""
        return self._barrier_deadline

    # What the peer says.

    def take_message(self, ids: tuple[bytes, ...], parts: tuple[bytes, ...]) -> None:
        """RELINK-14, RELINK-19: one delivery for each id, in their order."""
        for channel in ids:
            self.deliver(channel, parts)

    def deliver(self, channel: bytes, parts: tuple[bytes, ...]) -> None:
        """§3.1: the next message of a channel; the first opens it."""
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

    def take_decision(self, ids: tuple[bytes, ...], sequence: int | None, *, commit: bool) -> None:
        """RELINK-26: commit or rollback."""
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
        """RELINK-22: closed is said when everything was consumed; at once for a channel that is not open. Twice is once (RELINK-19)."""
        for channel in dict.fromkeys(ids):
            incoming = self.channels.get(channel)
            if channel in self._expected_closes:  # said again; if it was closed meanwhile, closed is on its way already
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

    # What the application does.

    def consume(self, message: MessageReceived) -> bool:
        """§3.1: a message was taken; says whether there is something new to say or to wait for.

        Of a link that was lost since, nobody wants to know.
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
        self.unconsumed -= incoming.consumed - before
        if (
            message.channel in self._due_later
            and incoming.consumed != incoming.received
            and incoming.consumed - incoming.announced_consumed < self._ack_every
        ):
            return False  # it will be said with the others
        self._consumed(incoming)
        return True

    def settle(self, message: MessageReceived, *, success: bool) -> None:
        """§3.2: a committed message was processed, or could not be."""
        incoming = self.channels.get(message.channel)
        if incoming is None or incoming.incarnation != message.incarnation:
            return
        if not self._transactional:
            self.consume(message)
        elif incoming.settle(message.sequence, success=success):
            self._advance(incoming)

    # What we say.

    def flush(self) -> None:
        """What is to be told at once: results, consumed of a drained channel, then what arrived (RELINK-16, RELINK-18, RELINK-27).

        A channel that has got more messages since it was drained is busy: its acknowledgement waits for more of them.
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
        """RELINK-18: consumed acknowledgements have waited long enough."""
        if self._ack_deadline is not None and self._state.now >= self._ack_deadline:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Tell now what was consumed."""
        self.flush()
        for incoming in self._due_later.values():
            self._send_consumed(incoming)
        self._due_later.clear()
        self._ack_deadline = None

    def restate(self) -> Iterator[bytes]:
        """RELINK-20: after a reconnection, what we have of every channel; then of every closed one (RELINK-22)."""
        self.forget_connection()
        self._expected_closes = {channel for channel, incoming in self.channels.items() if incoming.closing}
        for incoming in self.channels.values():
            yield from incoming.restate()
        self._forget_fruitless()
        for tombstone in self.tombstones.values():
            tombstone.tellings += 1
            yield from tombstone_packets(tombstone)
        if not self._options.tombstones:
            self.tombstones.clear()
        if self._unproven():
            self._barrier_deadline = self._state.now  # at once: the sooner its pong, the surer that the peer bears what was told

    def forget_connection(self) -> None:
        """What was said on the last connection may not have arrived, and its pings are gone (RELINK-25)."""
        self._due_now.clear()
        self._due_later.clear()
        self._ack_deadline = self._barrier_deadline = None
        self._expected_closes.clear()
        for one in self._provable():
            one.barrier = None

    def pinged(self, ping: int) -> None:
        """RELINK-22, RELINK-28: the pong to this ping will prove that the peer has all we said so far."""
        self._barrier_deadline, self._runs_since_ping = None, 0
        for one in self._unproven():
            one.barrier = ping

    def ponged(self, ping: int) -> None:
        """The peer has what we said before this ping: it need not be repeated any more."""
        self._state.has_progressed = True
        for channel, tombstone in list(self.tombstones.items()):
            if tombstone.barrier is not None and tombstone.barrier <= ping:
                del self.tombstones[channel]
        for incoming in list(self.channels.values()):
            if incoming.runs:
                incoming.runs[:] = [run for run in incoming.runs if run.barrier is None or run.barrier > ping]
                self._advance(incoming)

    # Inside.

    def _forget_fruitless(self) -> None:
        """RELINK-22: a peer that ends every connection when it is told of a closed channel has forgotten that channel: forget it, too."""
        limit = self._options.max_tombstone_tellings
        for tombstone in self.tombstones.values():
            if self._state.has_progressed:
                tombstone.tellings = 0
        fruitless = tuple(one.channel for one in self.tombstones.values() if limit is not None and one.tellings >= limit)
        for channel in fruitless:
            del self.tombstones[channel]
        if fruitless:
            self._state.events.append(TombstonesForgotten(fruitless))

    def _open(self, channel: bytes) -> IncomingChannel:
        if self.is_shut:
            raise Violation(Fault.CHANNEL_AFTER_SHUTDOWN, channel.hex() or "the only channel")
        if len(self.channels) >= self._options.max_channels:
            raise Violation(Fault.CHANNELS_OVER_LIMIT, f"limit {self._options.max_channels}")
        self.tombstones.pop(channel, None)
        self._expected_closes.discard(channel)
        self._state.incarnations += 1
        self.channels[channel] = incoming = IncomingChannel(channel, self._state.incarnations, transactional=self._transactional)
        return incoming

    def _hold(self, incoming: IncomingChannel, parts: tuple[bytes, ...]) -> None:
        """RELINK-27: nobody sees a message before commit; RELINK-24: there must be room for it so long."""
        size = sum(map(len, parts))
        if self._undecided_bytes + size > self._options.max_undecided_bytes:
            raise Violation(Fault.UNDECIDED_OVER_LIMIT, f"limit {self._options.max_undecided_bytes}")
        self.unconsumed += 1
        self.undecided += 1
        self._undecided_bytes += size
        incoming.take(parts)
        self._due_now[incoming.channel] = incoming

    def _decided(self, incoming: IncomingChannel, decided: list[DecidedMessage]) -> None:
        """Committed messages are the application's; rolled back ones nobody's."""
        for one in decided:
            self.undecided -= 1
            self._undecided_bytes -= sum(map(len, one.parts))
            if one.is_committed:
                self._state.events.append(MessageReceived(incoming.channel, one.number, one.parts, incoming.incarnation))

    def _advance(self, incoming: IncomingChannel) -> None:
        """Results and rollbacks make messages done, in their order."""
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
        """RELINK-18: the cursor moved: say so now, before closed, when the channel is drained, or later with others."""
        if incoming.is_done:
            self._finish(incoming)
        elif not self._state.is_connected:
            return
        elif incoming.consumed - incoming.announced_consumed >= self._ack_every:
            self._send_consumed(incoming)
        else:
            self._due_later[incoming.channel] = incoming
            if self._ack_deadline is None:
                self._ack_deadline = self._state.now + self._options.ack_delay
            if incoming.is_drained:
                self._due_now[incoming.channel] = incoming

    def _send_consumed(self, incoming: IncomingChannel) -> None:
        """RELINK-27: results, then the consumed acknowledgement for what they do not cover."""
        self._state.output += incoming.result_packets()
        if incoming.consumed > incoming.announced_consumed:
            self._state.output.append(incoming.consumed_packet())

    def _finish(self, incoming: IncomingChannel) -> None:
        """RELINK-22: say consumed if it moved, then closed, and remember both; without a connection the next `restate` says them."""
        channel = incoming.channel
        if not incoming.is_done or self.channels.get(channel) is not incoming:
            return
        del self.channels[channel]
        self._due_now.pop(channel, None)
        self._due_later.pop(channel, None)
        if self._state.is_connected:
            self._send_consumed(incoming)  # §3.1: a sender may wait for consumed alone
            self._state.output.append(encode(Closed((channel,))))
        if self._options.tombstones or not self._state.is_connected:
            self.tombstones[channel] = Tombstone(channel, incoming.consumed, incoming.runs)
            self._plan_barrier()
            if len(self.tombstones) > self._options.max_tombstones:
                del self.tombstones[next(iter(self.tombstones))]

    def _plan_barrier(self) -> None:
        if not self._state.is_connected:
            return
        if self._runs_since_ping > self._options.max_result_runs // 4:  # before there is no room for results
            self._barrier_deadline = self._state.now
        elif self._barrier_deadline is None:
            self._barrier_deadline = self._state.now + self._options.barrier_delay

    def _provable(self) -> Iterator[Tombstone | ResultRun]:
        """What is kept until the peer certainly has it."""
        yield from self.tombstones.values()
        for incoming in self.channels.values():
            yield from incoming.runs

    def _unproven(self) -> list[Tombstone | ResultRun]:
        return [one for one in self._provable() if one.barrier is None]
