"""Acknowledgements that the peer restates after a reconnection, until resume (RELINK-20).

A peer that keeps tombstones (RELINK-22) may restate a channel that was closed and opened again since. Its statement is then about the
channel before, and only the `closed` at the end shows it. So nothing is applied before resume.
"""

from __future__ import annotations

from wirelake.protocols.relink.events import MessagesResolved, Outcome
from wirelake.protocols.relink.faults import Fault, Violation
from wirelake.protocols.relink.link.outgoing_channel import OutgoingChannel
from wirelake.protocols.relink.link.sequence import is_behind, reach
from wirelake.protocols.relink.messages import Kind

__all__ = ["ResumeStatement"]


class ResumeStatement:
    """The acknowledgements of one channel since the reconnection."""

    def __init__(self, channel: OutgoingChannel, max_results: int) -> None:
        self._channel = channel
        self._max_results = max_results
        self._received = channel.received
        self._consumed = channel.consumed
        self._result = channel.result
        self._results: list[tuple[int, bool]] = []
        self._beyond: Violation | None = None
        self.is_closed = False

    def take(self, kind: int, sequence: int | None) -> None:
        """Take one acknowledgement.

        Raise Violation if it is outside what is outstanding and cannot be about a channel before.
        """
        if self.is_closed:
            raise Violation(Fault.ACKNOWLEDGED_TOO_MUCH, "after closed")
        if kind == Kind.CLOSED:
            self.is_closed = True
            return
        try:
            self._take(kind, sequence)
        except Violation as breach:
            if not self._channel.reopened or self._channel.is_acknowledged or breach.fault is not Fault.ACKNOWLEDGED_TOO_MUCH:
                raise
            self._beyond = breach

    def _take(self, kind: int, sequence: int | None) -> None:
        channel = self._channel
        if kind == Kind.RECEIVED:
            self._received = reach(self._received, sequence, channel.sent - self._received)
        elif kind == Kind.CONSUMED:
            self._consumed = reach(self._consumed, sequence, channel.sent - self._consumed)
        elif not is_behind(self._result, sequence):  # RELINK-28: known results may be repeated
            self._result = reach(self._result, sequence, channel.announced_decision - self._result)
            if len(self._results) >= self._max_results:
                raise Violation(Fault.RESULTS_OVER_LIMIT, f"{self._max_results}")
            self._results.append((self._result, kind == Kind.COMMITTED))

    def apply(self) -> list[MessagesResolved] | None:
        """Apply the statement at resume. None: it was about a channel before this one, and nothing changes."""
        channel = self._channel
        if self.is_closed and not channel.close_sent:
            if channel.reopened and not channel.is_acknowledged:
                return None
            raise Violation(Fault.CLOSED_UNASKED, "after a reconnection")
        if self._beyond is not None:
            raise self._beyond
        resolved: list[MessagesResolved] = []
        channel.receive(self._received)
        for last, success in self._results:
            channel.result = last
            resolved += channel.settle(last, Outcome.COMMITTED if success else Outcome.UNCOMMITTED)
        resolved += channel.settle(max(self._consumed, channel.consumed), Outcome.UNKNOWN)
        return resolved
