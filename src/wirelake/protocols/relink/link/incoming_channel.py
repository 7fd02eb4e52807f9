"""A channel of the peer: cursors for received, consumed, decided and acknowledged messages.

It builds acknowledgement packets; the inbox decides when to send them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import msgspec

from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link.sequence import is_behind, on_wire, reach
from wirelake.protocols.relink.messages import Closed, Committed, Consumed, Received, Uncommitted
from wirelake.protocols.relink.wire import encode

__all__ = ["DecidedMessage", "IncomingChannel", "ResultRun", "Tombstone", "run_packets", "tombstone_packets"]


class ResultRun(msgspec.Struct):
    """RELINK-28: equal results that the peer may have missed: of every committed message up to `last`."""

    last: int
    success: bool
    barrier: int | None = None
    """The ping that was sent after it; its pong proves that the peer has it."""


class Tombstone(msgspec.Struct):
    """RELINK-22: a channel that was closed, until the peer certainly knows."""

    channel: bytes
    last: int
    runs: list[ResultRun]
    barrier: int | None = None
    is_announced: bool = False
    """A resume has restated it, on this connection or the last one."""


class DecidedMessage(NamedTuple):
    """§3.2: a message that the peer committed or rolled back."""

    number: int
    parts: tuple[bytes, ...]
    is_committed: bool


class _State(Enum):
    """§3.2: the states of a message on a transactional channel."""

    UNDECIDED = 0
    ROLLED_BACK = 1
    COMMITTED = 2
    SUCCEEDED = 3
    FAILED = 4


class IncomingChannel:
    """The receiver's half of a channel. Every cursor is the last number it covers."""

    def __init__(self, channel: bytes, incarnation: int, *, transactional: bool = False, first: int = 0) -> None:
        self.channel = channel
        self.incarnation = incarnation
        """Distinguishes it from channels of the same id before and after."""
        self.transactional = transactional
        self.received = first - 1
        self.consumed = first - 1
        """All messages up to here were consumed, settled or rolled back."""
        self.announced_received = first - 1
        self.announced_consumed = first - 1
        self.decided = first - 1
        self.closing = False
        self.runs: list[ResultRun] = []
        self._announced_result = first - 1
        self._results: list[tuple[int, bool]] = []
        """Not sent yet."""
        self._consumed_early: set[int] = set()
        self._states: dict[int, _State] = {}
        """Of the messages after `consumed`."""
        self._held: dict[int, tuple[bytes, ...]] = {}
        """RELINK-27: payloads of undecided messages, kept back until commit."""

    @property
    def is_done(self) -> bool:
        """RELINK-22: the peer closed it and everything was consumed."""
        return self.closing and self.consumed == self.received

    @property
    def is_drained(self) -> bool:
        """RELINK-18: no message waits for the application: the sender may be waiting for its acknowledgement."""
        return self.consumed == self.received

    # Packets of the peer.

    def take(self, parts: tuple[bytes, ...]) -> int:
        """RELINK-14: take the next message of a transactional channel; return its number."""
        self.received = number = self.received + 1
        self._states[number] = _State.UNDECIDED
        self._held[number] = parts
        return number

    def decide(self, sequence: int | None, *, commit: bool) -> list[DecidedMessage]:
        """RELINK-26: decide messages, and return them.

        Those decided before are skipped: a repetition changes nothing.
        """
        if is_behind(self.decided, sequence):
            return []
        last = reach(self.decided, sequence, self.received - self.decided, Fault.DECIDED_TOO_MUCH)
        decided = []
        for number in range(self.decided + 1, last + 1):
            self._states[number] = _State.COMMITTED if commit else _State.ROLLED_BACK
            decided.append(DecidedMessage(number, self._held.pop(number), commit))
        self.decided = last
        return decided

    def close(self) -> list[DecidedMessage]:
        """§3.3, RELINK-29: the peer sends no more messages; roll back undecided ones."""
        self.closing = True
        return self.decide(on_wire(self.received), commit=False) if self.transactional else []

    # Calls of the application.

    def consume(self, number: int) -> bool:
        """Consume a message; return whether the cursor moved. Out of order, it moves when the gap is filled."""
        if number == self.consumed + 1:
            self.consumed = number
            if self._consumed_early:
                while self.consumed + 1 in self._consumed_early:
                    self.consumed += 1
                    self._consumed_early.remove(self.consumed)
            return True
        if self.consumed < number <= self.received:
            self._consumed_early.add(number)
        return False

    def consume_run(self, first: int, last: int) -> bool:
        """Consume the messages from `first` to `last` if they are the next ones; return whether they were."""
        if first != self.consumed + 1 or last > self.received or self._consumed_early:
            return False
        self.consumed = last
        return True

    def settle(self, number: int, *, success: bool) -> bool:
        """§3.2: note the result of a committed message; return whether it was still open."""
        if self._states.get(number) is not _State.COMMITTED:
            return False
        self._states[number] = _State.SUCCEEDED if success else _State.FAILED
        return True

    def advance(self, most_runs: int) -> int:
        """RELINK-27: queue results in the order of messages; return how many became done.

        Stops where too many runs are kept.
        """
        before = self.consumed
        while (state := self._states.get(self.consumed + 1)) is not None:
            if state in (_State.SUCCEEDED, _State.FAILED):
                if not self._keep(self.consumed + 1, state is _State.SUCCEEDED, most_runs):
                    break
                self._results.append((self.consumed + 1, state is _State.SUCCEEDED))
            elif state is not _State.ROLLED_BACK:
                break
            self.consumed += 1
            del self._states[self.consumed]
        return self.consumed - before

    def _keep(self, number: int, success: bool, most_runs: int) -> bool:
        if self.runs and self.runs[-1].success == success:
            self.runs[-1].last, self.runs[-1].barrier = number, None
            return True
        if len(self.runs) >= most_runs:
            return False
        self.runs.append(ResultRun(number, success))
        return True

    # Packets to send.

    def result_packets(self) -> Iterator[bytes]:
        """RELINK-27: runs of equal results; the next form only for the message after the last result's."""
        sent = 0
        for index, (number, success) in enumerate(self._results):
            if index + 1 < len(self._results) and self._results[index + 1][1] == success:
                continue
            is_next = index == sent and number == self._announced_result + 1
            packet = Committed if success else Uncommitted
            yield encode(packet((self.channel,), None if is_next else on_wire(number)))
            self._announced_result, sent = number, index + 1
            self.announced_consumed = max(self.announced_consumed, number)  # a result implies consumed
            self.announced_received = max(self.announced_received, number)
        self._results.clear()

    def received_packet(self) -> bytes:
        """RELINK-16: up to where messages were received."""
        self.announced_received = self.received
        return encode(Received((self.channel,), on_wire(self.received)))

    def consumed_packet(self) -> bytes:
        """RELINK-18: up to where messages were consumed.

        For one message in the next form, where that is shorter.
        """
        is_next = self.consumed == self.announced_consumed + 1 and -(len(self.channel) + 2) & 7 < 4
        self.announced_consumed = self.consumed
        self.announced_received = max(self.announced_received, self.consumed)
        return encode(Consumed((self.channel,), None if is_next else on_wire(self.consumed)))

    def restate(self) -> Iterator[bytes]:
        """RELINK-20: all acknowledgements that the peer needs after a reconnection."""
        yield self.received_packet()
        self._results.clear()  # they are in the runs
        yield from run_packets(self.channel, self.runs)
        if self.runs:
            self._announced_result = self.runs[-1].last
        self.announced_consumed = self.consumed
        yield encode(Consumed((self.channel,), on_wire(self.consumed)))


def run_packets(channel: bytes, runs: list[ResultRun]) -> Iterator[bytes]:
    """RELINK-28: results that the peer may have missed, each run with its sequence number."""
    for run in runs:
        yield encode((Committed if run.success else Uncommitted)((channel,), on_wire(run.last)))


def tombstone_packets(tombstone: Tombstone) -> Iterator[bytes]:
    """RELINK-22: the acknowledgements of a closed channel, sent again."""
    yield encode(Received((tombstone.channel,), on_wire(tombstone.last)))
    yield from run_packets(tombstone.channel, tombstone.runs)
    yield encode(Consumed((tombstone.channel,), on_wire(tombstone.last)))
    yield encode(Closed((tombstone.channel,)))
