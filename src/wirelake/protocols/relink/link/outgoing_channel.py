"""A channel of ours: its messages, and cursors of acknowledgements, decisions and outcomes.

It builds packets and events; the outbox decides when to send them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from wirelake.protocols.relink.events import MessagesResolved, Outcome, Unresolved
from wirelake.protocols.relink.faults import Fault, Violation
from wirelake.protocols.relink.limits import PacketLimits
from wirelake.protocols.relink.link.sequence import on_wire, reach
from wirelake.protocols.relink.messages import Close, Commit, Message, Rollback
from wirelake.protocols.relink.wire import DEFAULT_LIMITS, PADDING, encode

__all__ = ["OutgoingChannel"]


HEADS: Final = 256
"""The number of message sizes whose header a channel keeps."""
JOINED: Final = 64 * 1024
"""Bytes of packets that are queued as one piece at most: a recorder splits what is sent between two pieces."""


class OutgoingChannel:
    """The sender's half of a channel, from its first message until closed.

    Every cursor is the last number it covers.
    """

    def __init__(
        self, channel: bytes, *, transactional: bool = False, reopened: bool = False, first: int = 0, limits: PacketLimits = DEFAULT_LIMITS
    ) -> None:
        self.channel = channel
        self._limits = limits
        self.transactional = transactional
        self.reopened = reopened
        """There was a channel of this id before: the peer may still acknowledge that one (RELINK-22)."""
        self.first = first
        self.last = first - 1
        """The last message of the application."""
        self.sent = first - 1
        """The last message put on a connection, whether it arrived or not."""
        self.received = first - 1
        self.consumed = first - 1
        self.result = first - 1
        """RELINK-27: the target of the last result."""
        self.rolled_back = (first, first - 1)
        """The last run of messages that were rolled back and are done: its first and last."""
        self.decided = first - 1
        """RELINK-26: the last message that was committed or rolled back."""
        self.announced_decision = first - 1
        """The last decision put on a connection."""
        self.closing = False
        """The application asked to close it."""
        self.close_sent = False
        """Close was put on a connection."""
        self.payloads: deque[tuple[bytes, ...]] = deque()
        """Of the messages after `received`."""
        self.decisions: deque[tuple[int, bool]] = deque()
        """Runs (last, is commit) over the messages from `consumed` to `decided`."""
        self._last_was_commit: bool | None = None
        self._heads: dict[int, bytes] = {}
        """Size of the only part -> the bytes before it; sizes repeat."""

    @property
    def is_acknowledged(self) -> bool:
        """The peer has acknowledged something."""
        return self.received >= self.first or self.result >= self.first

    @property
    def outstanding(self) -> int:
        """§3.1: messages not consumed."""
        return self.last - self.consumed

    @property
    def may_close(self) -> bool:
        """RELINK-22: whether `close` may be sent on this channel now.

        Once it is sent on a channel whose id was used before, a `closed` after a reconnection could be about either. So the peer must first
        have acknowledged something of this one, unless there is nothing to lose.
        """
        return not self.reopened or self.is_acknowledged or self.last < self.first

    # Packets to send.

    def put(self, parts: tuple[bytes, ...]) -> int:
        """Add a message; return its number."""
        self.last += 1
        self.payloads.append(parts)
        return self.last

    def packet(self, parts: tuple[bytes, ...]) -> bytes:
        """§2.3.3: a message in its minimal form (RELINK-30).

        One part, of a size seen before, is by far the commonest.
        """
        if len(parts) == 1:
            (part,) = parts
            size = len(part)
            head = self._heads.get(size)
            if head is not None:
                return head + part + PADDING[size & 7] if size & 7 else head + part
        data = encode(Message((self.channel,), parts), self._limits)
        if len(parts) == 1 and len(self._heads) < HEADS:
            self._heads[size] = data[: len(data) - size - len(PADDING[size & 7])]
        return data

    def packets(self, bodies: Sequence[bytes], sizes: set[int]) -> list[bytes]:
        """The packets of messages of one part each, whose sizes these are; together the same bytes as those of `packet`.

        Those of one size, the commonest, are joined, up to `JOINED` bytes: 0.1 µs a message instead of 0.2.
        """
        size = next(iter(sizes))
        if len(sizes) > 1 or size not in self._heads:
            return [self.packet((body,)) for body in bodies]
        head, padding = self._heads[size], PADDING[size & 7]
        most = max(JOINED // (len(head) + size + len(padding)), 1)
        between = padding + head
        return [head + between.join(bodies[at : at + most]) + padding for at in range(0, len(bodies), most)]

    def replay(self) -> Iterator[bytes]:
        """RELINK-21: every message the peer has not received, then every decision it may have missed."""
        for parts in self.payloads:
            yield self.packet(parts)
        self.sent = self.last
        yield from self.repeated_decisions()

    def decide(self, last: int, commit: bool) -> None:
        """§3.2: commit or roll back all undecided messages up to this one."""
        if self.decisions and self.decisions[-1][1] == commit:
            self.decisions.pop()
        self.decisions.append((last, commit))
        self.decided = last

    def decision_packet(self) -> bytes:
        """RELINK-26: the last decision.

        It has the next form if it is for one message and the last operation was of the same kind.
        """
        last, commit = self.decisions[-1]
        is_next = last == self.announced_decision + 1 and self._last_was_commit in (None, commit)
        self.announced_decision, self._last_was_commit = last, commit
        return encode((Commit if commit else Rollback)((self.channel,), None if is_next else on_wire(last)))

    def repeated_decisions(self) -> Iterator[bytes]:
        """RELINK-28: all decisions about unresolved messages, in order, with their sequence numbers."""
        for last, commit in self.decisions:
            self.announced_decision, self._last_was_commit = last, commit
            yield encode((Commit if commit else Rollback)((self.channel,), on_wire(last)))

    def close_packet(self) -> bytes:
        """§3.3: no more messages."""
        self.close_sent = True
        return encode(Close((self.channel,)))

    # Packets of the peer.

    def take_received(self, sequence: int | None) -> int:
        """RELINK-15, RELINK-16: drop payloads that need not be sent again; return how many."""
        return self.receive(reach(self.received, sequence, self.sent - self.received))

    def take_consumed(self, sequence: int | None) -> list[MessagesResolved]:
        """RELINK-15: move the window.

        The outcome of a committed message without a result is unknown (RELINK-28).
        """
        return self.settle(reach(self.consumed, sequence, self.sent - self.consumed), Outcome.UNKNOWN)

    def take_result(self, sequence: int | None, *, success: bool) -> list[MessagesResolved]:
        """RELINK-27: the result of every committed message up to this one. §3.2: after a rollback it has a number."""
        if sequence is None and self._is_rolled_back(self.result + 1):
            raise Violation(Fault.RESULT_UNNUMBERED, f"message {on_wire(self.result + 1)} of {self.channel.hex()}")
        last = reach(self.result, sequence, self.announced_decision - self.result)
        self.result = last
        return self.settle(last, Outcome.COMMITTED if success else Outcome.UNCOMMITTED)

    def settle(self, last: int, committed: Outcome) -> list[MessagesResolved]:
        """All messages up to this one are done; `committed` is the outcome of committed ones."""
        self.receive(last)
        resolved: list[MessagesResolved] = []
        while self.consumed < last:
            stop, outcome = last, Outcome.CONSUMED
            if self.transactional:
                stop, outcome = self._decision(last, committed)
            if outcome is Outcome.ROLLED_BACK:
                first, before = self.rolled_back
                self.rolled_back = (first if before == self.consumed else self.consumed + 1, stop)
            resolved.append(MessagesResolved(self.channel, self.consumed + 1, stop, outcome))
            self.consumed = stop
        self.decided = max(self.decided, self.consumed)
        self.announced_decision = max(self.announced_decision, self.consumed)
        return resolved

    def receive(self, last: int) -> int:
        """The peer has all messages up to this one; return how many of them are new."""
        count = last - self.received
        if count <= 0:
            return 0
        if count == len(self.payloads):
            self.payloads.clear()
        else:
            for _ in range(count):
                self.payloads.popleft()
        self.received = last
        return count

    def unresolved(self) -> Iterator[Unresolved]:
        """RELINK-28, RELINK-32: every message that is not done when the link is lost, with its outcome."""
        decisions, payloads = iter(self.decisions), islice(self.payloads, max(self.consumed - self.received, 0), None)
        last, commit = next(decisions, (self.last, None))
        for number in range(self.consumed + 1, self.last + 1):
            if number > last:
                last, commit = next(decisions, (self.last, None))
            if self.transactional:
                is_unknown = commit is True and number <= min(self.announced_decision, self.sent)
                outcome = Outcome.ROLLED_BACK if commit is False else Outcome.UNKNOWN if is_unknown else Outcome.FAILED
            else:
                outcome = Outcome.UNKNOWN if number <= self.sent else Outcome.FAILED
            yield Unresolved(self.channel, number, next(payloads) if number > self.received else None, outcome)

    # Internal.

    def _is_rolled_back(self, number: int) -> bool:
        """Whether this message was rolled back, in the last run that is done or the first that is not."""
        first, last = self.rolled_back
        if first <= number <= last:
            return True
        return bool(self.decisions) and self.consumed < number <= self.decisions[0][0] and not self.decisions[0][1]

    def _decision(self, last: int, committed: Outcome) -> tuple[int, Outcome]:
        if not self.decisions:
            return last, Outcome.UNKNOWN  # RELINK-15 allows the peer to consume what we did not decide
        stop, commit = self.decisions[0]
        if stop <= last:
            self.decisions.popleft()
        return min(stop, last), committed if commit else Outcome.ROLLED_BACK
