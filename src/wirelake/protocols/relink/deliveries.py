"""What became of the messages on a Relink channel: first sent, how often, decided, and what resolved them.

Acknowledgements cover all numbers up to theirs, or just the next (RELINK-15). The first that covers a message resolves it, if it was sent
before. A message on a channel with transactions waits for its decision, and a committed one for its result (RELINK-27); if it was rolled
back, any acknowledgement will do. `closed` covers every message of its channel: they were consumed (RELINK-22), or rolled back if they
were never decided (RELINK-29). What is resolved is forgotten. So memory is bounded by what is not, and by the window of live links:
if a channel has more, the oldest are reported as they stand.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wirelake.protocols.analyzer import Part
from wirelake.protocols.oldest import split_oldest
from wirelake.protocols.relink.options import DEFAULT_OPTIONS

__all__ = ["CLOSE", "CLOSED", "CONSUMED", "CURSORS", "DECISION", "MESSAGE", "RECEIVED", "RESULT", "ROLLED_BACK", "Deliveries", "Delivery"]

RECEIVED, CONSUMED, RESULT, DECISION, MESSAGE, CLOSE, CLOSED = range(7)
"""Cursors of a channel, then what else is sent about it."""
CURSORS: Final = {
    "received": RECEIVED,
    "consumed": CONSUMED,
    "committed": RESULT,
    "uncommitted": RESULT,
    "commit": DECISION,
    "rollback": DECISION,
    "message": MESSAGE,
    "close": CLOSE,
    "closed": CLOSED,
}
"""Kind of message about a channel -> the cursor that it moves."""

MOST: Final = DEFAULT_OPTIONS.window
"""RELINK-17: unresolved messages of a channel that are remembered; twice as many at most."""
_ROLLBACK: Final = "rollback"
ROLLED_BACK: Final = "rolled back"
"""What became of a message that was rolled back."""


class Delivery(msgspec.Struct, gc=False, array_like=True):
    """A message on a channel that is not resolved."""

    number: int
    sent: Part
    attempts: int
    """How often it was sent and left its sender."""
    decision: str = ""
    """`commit` or `rollback`; empty: none yet."""
    consumed: Part | None = None
    """The first acknowledgement, or `closed`, that says so."""
    result: Part | None = None
    word: str = ""
    """`committed` or `uncommitted`: what the result says."""
    is_closed: bool = False

    @property
    def answer(self) -> Part | None:
        """What resolved it."""
        return self.result or self.consumed

    def outcome(self, *, transactional: bool) -> str | None:
        """What became of it; None: nothing yet."""
        if self.decision == _ROLLBACK or (transactional and self.is_closed and not self.decision and self.result is None):
            return ROLLED_BACK  # RELINK-29
        return self.word or ("consumed" if self.consumed is not None else None)


class Report(msgspec.Struct, gc=False, array_like=True):
    """RELINK-20: an acknowledgement that the other side restates after a reconnection."""

    cursor: int
    number: int | None
    """None in the next form."""
    word: str
    part: Part


class Deliveries(msgspec.Struct, array_like=True):
    """The unresolved messages of one channel, over all connections. What is certain is returned, and forgotten."""

    unresolved: dict[int, Delivery] = msgspec.field(default_factory=dict)
    """Number -> message, oldest first; see `MOST`."""
    highest: int = -1
    """The highest number that was sent."""
    cursors: list[int] = msgspec.field(default_factory=lambda: [-1, -1, -1, -1])
    """How far each acknowledgement and decision has come."""
    covered: list[int] = msgspec.field(default_factory=lambda: [-1, -1, -1, -1])
    """How far messages have got them: never beyond what was sent."""
    rolled_back: list[int] = msgspec.field(default_factory=lambda: [0, -1])
    """The last run of messages that were rolled back and are resolved: its first and last."""
    is_open: bool = False
    """Its sender has sent a message, and has not closed it since."""
    is_over: bool = False
    """It was closed: the next message is on another channel of the same id."""
    reports: list[Report] = msgspec.field(default_factory=list)
    """RELINK-20: they count when `resume` comes. `Half` limits them, over all channels."""
    is_former: bool = False
    """RELINK-22: the reports of this connection are about an earlier channel of the same id."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing has to be remembered."""
        return not self.unresolved and not self.reports

    def is_rolled_back(self, number: int) -> bool:
        """Whether this message was rolled back, as far as that is remembered."""
        waiting = self.unresolved.get(number)
        if waiting is not None:
            return waiting.decision == _ROLLBACK
        return self.rolled_back[0] <= number <= self.rolled_back[1]

    def send(self, number: int, part: Part, attempts: int) -> list[Delivery] | None:
        """A message, or its repetition. Returns what is forgotten: messages of the channel before, or the oldest of too many.

        `attempts` is 1, or 0 if the message had not left when its connection broke.
        """
        forgotten = None
        if self.is_over:
            if self.unresolved:
                forgotten, self.unresolved = list(self.unresolved.values()), {}
            self.highest, self.is_over = -1, False
            self.cursors, self.covered, self.rolled_back = [-1, -1, -1, -1], [-1, -1, -1, -1], [0, -1]
        self.is_open = True
        unresolved = self.unresolved
        if number > self.highest:
            self.highest = number
            unresolved[number] = Delivery(number, part, attempts)
            if len(unresolved) > 2 * MOST:
                oldest, self.unresolved = split_oldest(unresolved, MOST)
                return [one for _, one in oldest]
            return forgotten
        again = unresolved.get(number)
        if again is not None:
            again.sent = again.sent if again.attempts else part
            again.attempts += attempts
        return forgotten

    def cover(self, cursor: int, number: int | None, word: str, part: Part, *, transactional: bool) -> list[Delivery]:
        """RELINK-15: an acknowledgement or a decision, up to a number or (None) for the next. Returns what is resolved."""
        last = self.cursors[cursor] = self.cursors[cursor] + 1 if number is None else number
        before, last = self.covered[cursor], min(last, self.highest)
        if last <= before or cursor == RECEIVED or (cursor > CONSUMED and not transactional):
            return []
        self.covered[cursor] = last
        unresolved = self.unresolved
        if not unresolved:
            return []
        if last == before + 1:
            found = unresolved.get(last)
            coming = [] if found is None else [found]
        elif last - before <= len(unresolved):
            coming = [found for one in range(before + 1, last + 1) if (found := unresolved.get(one)) is not None]
        else:
            coming = [found for one, found in unresolved.items() if before < one <= last]
        if transactional:
            coming = _transact(coming, cursor, word, part)
        else:
            for found in coming:
                found.consumed = part
        for found in coming:
            del unresolved[found.number]
            if found.decision == _ROLLBACK:
                first, last = self.rolled_back
                self.rolled_back = [first if last == found.number - 1 else found.number, found.number]
        return coming

    def report(self, cursor: int, number: int | None, word: str, part: Part) -> None:
        """RELINK-20: the other side restates an acknowledgement. It counts later: it may be about an earlier channel."""
        if not self.is_former:
            self.reports.append(Report(cursor, number, word, part))

    def resume(self, *, transactional: bool) -> list[Delivery]:
        """RELINK-21: what was reported counts from here on."""
        reports, self.reports = self.reports, []
        return [found for one in reports for found in self.cover(one.cursor, one.number, one.word, one.part, transactional=transactional)]

    def close(self, part: Part, *, is_report: bool, transactional: bool) -> list[Delivery]:
        """RELINK-22: `closed`. It means nothing if the sender has not closed the channel; in a report, neither does the rest of it."""
        if self.is_open:
            if is_report:
                self.is_former = True
                self.reports.clear()
            return []
        resolved = self.resume(transactional=transactional)
        for one in self.unresolved.values():
            one.consumed, one.is_closed = one.consumed or part, True
            resolved.append(one)
        self.unresolved = {}
        self.is_over = True
        return resolved

    def rest(self, *, transactional: bool) -> list[Delivery]:
        """All that is left, as it stands; nothing is left afterwards."""
        rest = self.resume(transactional=transactional)
        rest += self.unresolved.values()
        self.unresolved = {}
        return rest


def _transact(coming: list[Delivery], cursor: int, word: str, part: Part) -> list[Delivery]:
    """RELINK-26, RELINK-27: what messages with a transaction get; returns those that are done."""
    for one in coming:
        if cursor == DECISION:
            one.decision = one.decision or word
        elif cursor == CONSUMED:
            one.consumed = one.consumed or part
        elif one.result is None:
            one.result, one.word = part, word
    if cursor == CONSUMED:
        return [one for one in coming if one.decision == _ROLLBACK]
    return [one for one in coming if one.decision and (one.result is not None or (one.decision == _ROLLBACK and one.consumed is not None))]
