"""The sending half of a link: our channels, their acknowledgements, and retransmission.

Unacknowledged messages are sent again after a reconnection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from wirelake.errors import LocalProtocolError
from wirelake.protocols.relink.events import ChannelClosed, MessagesResolved, Noticed, Outcome, Resumed, Unresolved
from wirelake.protocols.relink.faults import Fault, Violation
from wirelake.protocols.relink.link.outgoing_channel import OutgoingChannel
from wirelake.protocols.relink.link.resume import ResumeStatement
from wirelake.protocols.relink.link.state import LinkState
from wirelake.protocols.relink.messages import Kind, Message
from wirelake.protocols.relink.options import Options
from wirelake.protocols.relink.wire import check, check_ids, encode

__all__ = ["Outbox"]


class Outbox:
    """Channels of ours, and the messages on them that are not resolved."""

    def __init__(self, state: LinkState, options: Options, *, id_size: int, transactional: bool) -> None:
        self.channels: dict[bytes, OutgoingChannel] = {}
        self.is_shutting = False
        """§3.6: no more channels are opened."""
        self._state = state
        self._options = options
        self._window = options.window
        self._plain = min(options.limits.max_part_size, options.limits.max_message_size)
        """A message of one part up to this size is within all limits."""
        self._id_size = id_size
        self._transactional = transactional
        self._statements: dict[bytes, ResumeStatement] | None = None
        """After a reconnection, until resume: the peer's acknowledgements for each channel."""
        self._closed_before: dict[bytes, None] = {}
        """RELINK-22: channels that were closed.

        The peer may still acknowledge them after they are opened again.
        """

    @property
    def is_resuming(self) -> bool:
        """Whether the peer has not sent `resume` yet."""
        return self._statements is not None

    @property
    def is_drained(self) -> bool:
        """RELINK-23: nothing is open; a channel without an id need not be closed, only consumed."""
        if self._id_size:
            return not self.channels
        return all(not one.outstanding and not one.closing for one in self.channels.values())

    def free_window(self, channel: bytes) -> int:
        """RELINK-17: the number of messages this channel takes now."""
        outgoing = self.channels.get(channel)
        return self._options.window - (outgoing.outstanding if outgoing is not None else 0)

    # Calls of the application.

    def send(self, channel: bytes, parts: tuple[bytes, ...]) -> int:
        """§3.1: send a message; return its number.

        Raises LocalProtocolError, with WINDOW_FULL if the peer has to consume first.
        """
        outgoing = self.channels.get(channel)
        if outgoing is None:
            outgoing = self._open(channel)
        elif outgoing.closing:
            raise LocalProtocolError(Fault.CHANNEL_CLOSING, channel.hex())
        if outgoing.last - outgoing.consumed >= self._window:
            raise LocalProtocolError(Fault.WINDOW_FULL, f"window {self._window}")
        if len(parts) != 1 or len(parts[0]) > self._plain:
            check(parts, self._options.limits)
        outgoing.last = number = outgoing.last + 1
        outgoing.payloads.append(parts)
        if self._state.may_send:
            outgoing.sent = number
            self._state.output.append(outgoing.packet(parts))
        return number

    def send_many(self, channel: bytes, bodies: Sequence[bytes]) -> int:
        """§3.1: send messages of one part each; return the number of the last.

        All of them are sent or none: raises as `send` does, also if the window has not enough space for all.
        """
        outgoing = self.channels.get(channel)
        if outgoing is None:
            outgoing = self._open(channel)
        elif outgoing.closing:
            raise LocalProtocolError(Fault.CHANNEL_CLOSING, channel.hex())
        if outgoing.outstanding + len(bodies) > self._window:
            raise LocalProtocolError(Fault.WINDOW_FULL, f"window {self._window}")
        if not bodies:
            return outgoing.last
        sizes = set(map(len, bodies))
        if max(sizes) > self._plain:
            for body in bodies:
                check((body,), self._options.limits)
        outgoing.payloads += zip(bodies)
        outgoing.last += len(bodies)
        if self._state.may_send:
            outgoing.sent = outgoing.last
            self._state.output += outgoing.packets(bodies, sizes)
        return outgoing.last

    def multicast(self, ids: Sequence[bytes], parts: tuple[bytes, ...]) -> list[int]:
        """§2.3: send one message on many channels; return its number on each, in their order.

        All of them take it, or none.
        """
        if not ids:  # RELINK-19: never without channels
            raise LocalProtocolError(Fault.MULTICAST_OVER_LIMIT, "no channels")
        check_ids(ids, self._options.limits)
        check(parts, self._options.limits)
        for channel, count in Counter(ids).items():
            outgoing = self.channels.get(channel)
            if outgoing is None:
                self._check_open(channel)
            elif outgoing.closing:
                raise LocalProtocolError(Fault.CHANNEL_CLOSING, channel.hex())
            if count > self.free_window(channel):
                raise LocalProtocolError(Fault.WINDOW_FULL, f"window {self._options.window}")
        numbers = []
        for channel in ids:
            outgoing = self.channels.get(channel) or self._open(channel)
            numbers.append(outgoing.put(parts))
            if self._state.may_send:
                outgoing.sent = outgoing.last
        if self._state.may_send:
            self._state.output.append(encode(Message(tuple(ids), parts), self._options.limits))
        return numbers

    def decide(self, channel: bytes, last: int | None, *, commit: bool) -> None:
        """§3.2: commit or roll back the undecided messages of a channel, all of them or up to a number."""
        outgoing = self.channels.get(channel)
        if outgoing is None or not self._transactional or outgoing.closing:
            raise LocalProtocolError(Fault.UNDECIDABLE, channel.hex())
        last = outgoing.last if last is None else last
        if not outgoing.decided < last <= outgoing.last:
            raise LocalProtocolError(Fault.UNDECIDABLE, f"{last} of {channel.hex()}")
        self._decide(outgoing, last, commit=commit)

    def close(self, channel: bytes) -> None:
        """§3.3: send no more messages; RELINK-29: roll back undecided ones."""
        outgoing = self.channels.get(channel)
        if outgoing is None or outgoing.closing:
            raise LocalProtocolError(Fault.CHANNEL_CLOSING, f"{channel.hex()} is not open")
        if self._transactional and outgoing.decided < outgoing.last:
            self._decide(outgoing, outgoing.last, commit=False)
        outgoing.closing = True
        self._close_if_possible(outgoing)

    def shut(self) -> None:
        """§3.6: open no more channels, and close those that are open.

        The only channel of an id size of zero is merely drained.
        """
        self.is_shutting = True
        for channel, outgoing in list(self.channels.items()):
            if self._id_size and not outgoing.closing:
                self.close(channel)
            elif self._transactional and outgoing.decided < outgoing.last:
                self._decide(outgoing, outgoing.last, commit=False)

    # Packets of the peer.

    def take(self, kind: int, ids: tuple[bytes, ...], sequence: int | None) -> None:
        """RELINK-15, RELINK-19: take an acknowledgement.

        An id that is there twice, in the next form, counts twice.
        """
        if kind in (Kind.COMMITTED, Kind.UNCOMMITTED) and not self._transactional:
            raise Violation(Fault.TRANSACTIONS_OFF, "a result")
        for channel in dict.fromkeys(ids) if kind == Kind.CLOSED else ids:
            outgoing = self.channels.get(channel)
            if outgoing is None:  # RELINK-13, RELINK-22
                if self._statements is None:
                    self._state.events.append(Noticed(Fault.CHANNEL_UNKNOWN))
            elif self._statements is not None:
                if channel not in self._statements:
                    self._statements[channel] = ResumeStatement(outgoing, self._options.max_result_runs)
                self._statements[channel].take(kind, sequence)
            else:
                self._take(outgoing, kind, sequence)

    def _take(self, outgoing: OutgoingChannel, kind: int, sequence: int | None) -> None:
        if kind == Kind.CONSUMED:
            self._resolve(outgoing.take_consumed(sequence))
        elif kind == Kind.RECEIVED:
            if outgoing.take_received(sequence):
                self._state.progress()
        elif kind != Kind.CLOSED:
            self._resolve(outgoing.take_result(sequence, success=kind == Kind.COMMITTED))
        elif not outgoing.close_sent:
            raise Violation(Fault.CLOSED_UNASKED, outgoing.channel.hex())
        else:
            self._closed(outgoing)
            return
        self._close_if_possible(outgoing)

    # Connections.

    def start(self) -> None:
        """§1: a new link: messages may be sent at once."""
        self._statements = None
        self._send_missing()

    def expect_resume(self) -> None:
        """§1: an old link: send nothing before the peer has restated its acknowledgements."""
        self._statements = {}

    def resume(self) -> None:
        """RELINK-21: the peer sent resume: apply its acknowledgements, and send the messages it lacks."""
        statements, self._statements = self._statements or {}, None
        kept = consumed = 0
        for channel, outgoing in list(self.channels.items()):
            statement, before, received = statements.get(channel), outgoing.consumed, outgoing.received
            resolved = statement.apply() if statement is not None else None
            if resolved is not None:
                self._resolve(resolved)
                is_closed = statement is not None and statement.is_closed
            elif outgoing.is_acknowledged and not outgoing.close_sent:
                raise Violation(Fault.RESUME_INCONSISTENT, channel.hex())
            else:
                is_closed = outgoing.is_acknowledged
            if is_closed:
                self._closed(outgoing)
            if outgoing.received > received:
                self._state.progress()
            kept += max(outgoing.received - outgoing.consumed, 0)
            consumed += outgoing.consumed - before
        self._state.events.append(Resumed(kept, self._send_missing(), consumed))

    def unresolved(self) -> tuple[Unresolved, ...]:
        """RELINK-32: every message without an outcome, if the link is lost now."""
        return tuple([message for outgoing in self.channels.values() for message in outgoing.unresolved()])

    # Internal.

    def _send_missing(self) -> int:
        """Send everything the peer does not have; return the number of messages."""
        self._state.may_send = True
        count = 0
        for outgoing in list(self.channels.values()):
            count += len(outgoing.payloads)
            self._state.output += outgoing.replay()
            if outgoing.closing and outgoing.may_close:
                self._state.output.append(outgoing.close_packet())
        return count

    def _check_open(self, channel: bytes) -> None:
        if self.is_shutting:
            raise LocalProtocolError(Fault.SHUTTING_DOWN, channel.hex())
        if len(channel) != self._id_size:
            raise LocalProtocolError(Fault.ID_SIZE_WRONG, f"{len(channel)} bytes instead of {self._id_size}")

    def _open(self, channel: bytes) -> OutgoingChannel:
        self._check_open(channel)
        self.channels[channel] = outgoing = OutgoingChannel(
            channel, transactional=self._transactional, reopened=channel in self._closed_before, limits=self._options.limits
        )
        self._closed_before.pop(channel, None)  # the channel knows it; its place is that of the last closing
        return outgoing

    def _decide(self, outgoing: OutgoingChannel, last: int, *, commit: bool) -> None:
        outgoing.decide(last, commit)
        if self._state.may_send:
            self._state.output.append(outgoing.decision_packet())

    def _close_if_possible(self, outgoing: OutgoingChannel) -> None:
        if outgoing.closing and not outgoing.close_sent and self._state.may_send and outgoing.may_close:
            self._state.output.append(outgoing.close_packet())

    def _closed(self, outgoing: OutgoingChannel) -> None:
        """RELINK-22: closed implies that everything was consumed."""
        self._resolve(outgoing.settle(outgoing.last, Outcome.UNKNOWN))
        del self.channels[outgoing.channel]
        self._closed_before[outgoing.channel] = None
        if len(self._closed_before) > self._options.max_tombstones:
            del self._closed_before[next(iter(self._closed_before))]
        self._state.events.append(ChannelClosed(outgoing.channel))
        self._state.progress()

    def _resolve(self, resolved: list[MessagesResolved]) -> None:
        if resolved:
            self._state.events += resolved
            self._state.progress()
