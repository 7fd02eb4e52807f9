"""A channel of ours: what was sent on it, what the peer has of it, what was decided, and what became of it.

It gives packets and events, and refuses to know connections and time: the link says when something may be sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from wirelake.protocols.relink.events import MessagesResolved, Outcome, Unresolved
from wirelake.protocols.relink.limits import PacketLimits
from wirelake.protocols.relink.link.sequence import on_wire, reach
from wirelake.protocols.relink.messages import Close, Commit, Message, Rollback
from wirelake.protocols.relink.wire import DEFAULT_LIMITS, PADDING, encode

__all__ = ["Outgoing"]


HEADS: Final = 256
"""Sizes of messages whose first bytes are remembered for a channel."""


class Outgoing:
    """The sender's half of a channel, from its first message to closed. Every cursor is the last number it covers."""

    def __init__(
        self, channel: bytes, *, transactional: bool = False, reborn: bool = False, first: int = 0, limits: PacketLimits = DEFAULT_LIMITS
    ) -> None:
        self.channel = channel
        self._limits = limits
        self.transactional = transactional
        self.reborn = reborn
        """There was a channel of this id before: the peer may still tell of that one (RELINK-22)."""
        self.first = first
        self.last = first - 1
        """The last message given to us."""
        self.sent = first - 1
        """The last message given to a connection, whatever became of that."""
        self.received = first - 1
        self.consumed = first - 1
        self.result = first - 1
        """RELINK-27: the target of the last result."""
        self.decided = first - 1
        """RELINK-26: the last message that was committed or rolled back."""
        self.told = first - 1
        """The last decision given to a connection."""
        self.closing = False
        """Close was asked for."""
        self.close_told = False
        """Close was given to a connection."""
        self.payloads: deque[tuple[bytes, ...]] = deque()
        """Of the messages after `received`."""
        self.decisions: deque[tuple[int, bool]] = deque()
        """Runs (last, is commit) over the messages from `consumed` to `decided`."""
        self._last_was_commit: bool | None = None
        self._heads: dict[int, bytes] = {}
        """What stands before one part of so many bytes; sizes repeat."""

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
        """RELINK-22: once `close` is sent on a channel that existed before, a `closed` after a reconnection could be about either: so the
        peer must first have acknowledged something of this one, unless there is nothing to lose."""
        return not self.reborn or self.is_acknowledged or self.last < self.first

    # What we say.

    def put(self, parts: tuple[bytes, ...]) -> int:
        """Take a message; says its number."""
        self.last += 1
        self.payloads.append(parts)
        return self.last

    def packet(self, parts: tuple[bytes, ...]) -> bytes:
        """§2.3.3: a message in its minimal form (RELINK-30); one part, of a size seen before, is by far the commonest."""
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

    def replay(self) -> Iterator[bytes]:
        """RELINK-21: every message the peer has not received, then every decision it may have missed."""
        for parts in self.payloads:
            yield self.packet(parts)
        self.sent = self.last
        yield from self.repeat_decisions()

    def unsent(self) -> Iterator[bytes]:
        """What was given to us while nothing could be sent."""
        for parts in islice(self.payloads, self.sent - self.received, None):
            yield self.packet(parts)
        self.sent = self.last

    def decide(self, last: int, commit: bool) -> None:
        """§3.2: commit or roll back all undecided messages up to this one."""
        if self.decisions and self.decisions[-1][1] == commit:
            self.decisions.pop()
        self.decisions.append((last, commit))
        self.decided = last

    def tell_decision(self) -> bytes:
        """RELINK-26: the last decision, in the next form if it is for one message and the last operation was of the same kind."""
        last, commit = self.decisions[-1]
        is_next = last == self.told + 1 and self._last_was_commit in (None, commit)
        self.told, self._last_was_commit = last, commit
        return encode((Commit if commit else Rollback)((self.channel,), None if is_next else on_wire(last)))

    def repeat_decisions(self) -> Iterator[bytes]:
        """RELINK-28: all decisions about what is not resolved, in order, with their sequence numbers."""
        for last, commit in self.decisions:
            self.told, self._last_was_commit = last, commit
            yield encode((Commit if commit else Rollback)((self.channel,), on_wire(last)))

    def tell_close(self) -> bytes:
        """§3.3: no more messages."""
        self.close_told = True
        return encode(Close((self.channel,)))

    # What the peer says.

    def take_received(self, sequence: int | None) -> int:
        """RELINK-15, RELINK-16: payloads that need not be sent again are dropped; says how many."""
        return self.receive(reach(self.received, sequence, self.sent - self.received))

    def take_consumed(self, sequence: int | None) -> list[MessagesResolved]:
        """RELINK-15: the window moves; a committed message without a result has an outcome nobody knows (RELINK-28)."""
        return self.settle(reach(self.consumed, sequence, self.sent - self.consumed), Outcome.UNKNOWN)

    def take_result(self, sequence: int | None, *, success: bool) -> list[MessagesResolved]:
        """RELINK-27: the result of every committed message up to this one."""
        last = reach(self.result, sequence, self.told - self.result)
        self.result = last
        return self.settle(last, Outcome.COMMITTED if success else Outcome.UNCOMMITTED)

    def settle(self, last: int, committed: Outcome) -> list[MessagesResolved]:
        """Everything up to this message is done; `committed` is what became of committed ones."""
        self.receive(last)
        found: list[MessagesResolved] = []
        while self.consumed < last:
            stop, outcome = last, Outcome.CONSUMED
            if self.transactional:
                stop, outcome = self._decision(last, committed)
            found.append(MessagesResolved(self.channel, self.consumed + 1, stop, outcome))
            self.consumed = stop
        self.decided = max(self.decided, self.consumed)
        self.told = max(self.told, self.consumed)
        return found

    def receive(self, last: int) -> int:
        """The peer has everything up to this message; says how many of them are new."""
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
        """RELINK-28, RELINK-32: every message that is not done when the link is lost, and how much is known of it."""
        decisions, payloads = iter(self.decisions), islice(self.payloads, max(self.consumed - self.received, 0), None)
        last, commit = next(decisions, (self.last, None))
        for number in range(self.consumed + 1, self.last + 1):
            if number > last:
                last, commit = next(decisions, (self.last, None))
            if self.transactional:
                is_unknown = commit is True and number <= min(self.told, self.sent)
                outcome = Outcome.ROLLED_BACK if commit is False else Outcome.UNKNOWN if is_unknown else Outcome.FAILED
            else:
                outcome = Outcome.UNKNOWN if number <= self.sent else Outcome.FAILED
            yield Unresolved(self.channel, number, next(payloads) if number > self.received else None, outcome)

    # Inside.

    def _decision(self, last: int, committed: Outcome) -> tuple[int, Outcome]:
        if not self.decisions:
            return last, Outcome.UNKNOWN  # RELINK-15 allows the peer to consume what we did not decide
        stop, commit = self.decisions[0]
        if stop <= last:
            self.decisions.popleft()
        return min(stop, last), committed if commit else Outcome.ROLLED_BACK
