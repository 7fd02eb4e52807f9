"""The texts of one side of wolpertinger as an observer sees them: pieces, repetitions, and results.

A `Text` is what one side sent with one id: it waits for a result, and is recognised if it is sent again. It is forgotten after five minutes
(WOLP-10), or once `MOST` others were sent later. One whose result is not yet due is kept longer, unless more than `MOST_UNCONFIRMED` are
kept, or more than `MOST_PIECES` pieces of incomplete messages: it is forgotten then, and a result without a text breaks no rule any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from wirelake.protocols.analyzer import NO_TIME, SeenMessage
from wirelake.protocols.oldest import split_oldest
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer1.confirmation import content_digest
from wirelake.protocols.wolpertinger.options import DEFAULT_OPTIONS

__all__ = ["REMEMBER", "SECOND", "Described", "Omission", "Seen", "Text", "Texts"]

SECOND: Final = 1_000_000
"""Microseconds."""
REMEMBER: Final = round(DEFAULT_OPTIONS.remember_time * SECOND)
"""WOLP-10: how long a message is recognised if it is sent again."""
MOST: Final = DEFAULT_OPTIONS.max_calls
"""How many texts of one side are remembered at least, if they are not too old; twice as many at most, and those that are not yet due."""
MOST_UNCONFIRMED: Final = DEFAULT_OPTIONS.max_unconfirmed
"""WOLP-10: how many of those that are not yet due are kept at least."""
MOST_PIECES: Final = 65_536
"""How many pieces of incomplete messages of one side are remembered; half as many at least."""
MOST_CALLS: Final = 16
"""How many calls of one text can be confirmed by one result: the last ones."""

_CONFIRM: Final = round(DEFAULT_OPTIONS.confirm_timeout * SECOND)
"""WOLP-10: how long a result may take, for each piece."""
_UNOPENED: Final = frozenset(fault.name for fault in Fault if Fault.FRAGMENT_CONFLICT <= fault < Fault.DOCUMENT_OVER_LIMIT)
"""WOLP-10: faults of messages that are refused, not delivered: they are not recognised when they are sent again."""
_REFUSALS: Final = (Fault.FRAGMENT_CONFLICT.name, Fault.FRAGMENTS_OVER_LIMIT.name)
"""WOLP-9: faults after which the receiver does not wait for more pieces."""

Described = dict[str, str]
"""A value: its `type`, and its `value` as JSON."""


class Seen(SeenMessage, gc=False):
    """A text of wolpertinger, with the document of the message that it completes."""

    type: str
    text_id: int
    result_code: int | None
    gzip: int | None
    encryption: str | None
    fragment_index: int | None
    fragment_count: int | None
    payload: bytes | None
    root: str | None
    component: str | None
    method: str | None
    call_id: str | None
    parameters: list[Described] | None
    value: Described | None
    error_code: int | None
    oddities: int


class Omission(msgspec.Struct, frozen=True):
    """What is missing of a text."""

    rule: Fault
    ts: int
    """When it was due, or when the session was last seen."""
    by_sender: bool
    """Whether the sender of the text owed it; else its receiver."""


class Text(msgspec.Struct, gc=False, array_like=True):
    """The texts that one side sent with one id, since a result settled a complete message."""

    ts: int
    """Time and place of the last one."""
    source: str
    offset: int
    length: int
    until: int
    """WOLP-10: how long it is remembered."""
    pieces: int
    """How many pieces the message has, as the last one says."""
    digest: bytes = b""
    """WOLP-10: the fingerprint of the last unfragmented message; it outlives a result."""
    whole_ts: int = NO_TIME
    """When that was."""
    has_first: bool = False
    """Whether an unfragmented message was among them; it counts as piece 0."""
    seen: set[int] | None = None
    """Which pieces came; see `MOST_PIECES`."""
    was_refused: bool = False
    is_settled: bool = False
    """Whether a result came after the last one."""
    is_repeated: bool = False
    """WOLP-10: whether the last one was delivered before."""
    calls: list[str] | None = None
    """CallIds of the last calls among them that wait for a result; see `MOST_CALLS`."""

    @property
    def is_incomplete(self) -> bool:
        """Whether pieces are missing."""
        if self.seen is None:
            return self.pieces > self.has_first
        return self.pieces > len(self.seen) + (self.has_first and 0 not in self.seen)

    @property
    def due(self) -> int:
        """WOLP-10: when the result should be there."""
        return self.ts + _CONFIRM * self.pieces

    def carries(self, call_id: str) -> None:
        """A call that waits for a result is among them."""
        if self.calls is None:
            self.calls = []
        if call_id not in self.calls:
            self.calls.append(call_id)
            del self.calls[:-MOST_CALLS]

    def settle(self) -> list[str]:
        """WOLP-4: a result came. Returns the calls that it confirms."""
        self.is_settled = True
        calls, self.calls = self.calls, None
        if self.seen is None or not self.is_incomplete:
            self.seen, self.has_first, self.was_refused = None, False, False
        return calls or []

    def omission(self, last_seen: int, *, is_closed: bool) -> Omission | None:
        """WOLP-9, WOLP-10: all pieces of a message, and then a result, are due.

        For a text that is not settled. The session must have been seen as long; or it is over, and the pieces cannot come any more.
        """
        due = self.due
        if not self.is_incomplete:
            return Omission(Fault.NOT_CONFIRMED, due, by_sender=False) if last_seen > due else None
        if self.was_refused or not (last_seen > due or is_closed):
            return None
        return Omission(Fault.FRAGMENTS_TIMED_OUT, min(due, last_seen), by_sender=True)


class Texts(msgspec.Struct, array_like=True):
    """The texts of one side, in two generations."""

    young: dict[int, Text] = msgspec.field(default_factory=dict)
    old: dict[int, Text] = msgspec.field(default_factory=dict)
    most: int = MOST
    """How many young ones there may be before the old ones are forgotten."""
    pieces: int = 0
    """How many pieces are remembered, at most."""
    has_forgotten: bool = False
    """Whether there were too many that were not yet due: then a result without a text may have had one."""

    def __iter__(self) -> Iterator[Text]:
        yield from self.old.values()
        yield from self.young.values()

    @property
    def is_full(self) -> bool:
        """Whether the caller should call `forget`."""
        return len(self.young) > self.most

    def find(self, text_id: int) -> Text | None:
        """What is known of an id."""
        text = self.young.get(text_id)
        if text is None and self.old:
            text = self.old.pop(text_id, None)
            if text is not None:
                self.young[text_id] = text
        return text

    def drop(self, text_id: int) -> None:
        """Forget an id that `find` found."""
        del self.young[text_id]

    def take(self, message: Seen, text: Text | None) -> Text:
        """A message or a piece of one; `text` is what `find` found for its id."""
        ts = message.ts
        pieces, until = 1, ts + REMEMBER
        if message.fragment_count is not None:
            pieces = message.fragment_count
            until = ts + round(DEFAULT_OPTIONS.life(pieces) * SECOND)
        if text is None:
            text = self.young[message.text_id] = Text(ts, message.source, message.offset, message.length, until, pieces)
        else:
            text.ts, text.source, text.offset, text.length, text.pieces = ts, message.source, message.offset, message.length, pieces
            text.until, text.is_settled = until, False
        if message.type == "message":
            digest = content_digest(message.payload or b"", message.gzip, message.encryption is not None)
            text.is_repeated = digest == text.digest and ts <= text.whole_ts + REMEMBER
            is_delivered = message.fault is None or message.fault not in _UNOPENED
            text.digest, text.whole_ts, text.has_first = digest if is_delivered else b"", ts, True
        else:
            text.is_repeated = False
            self._take_piece(text, message.fragment_index or 0)
        if message.fault is not None and message.fault in _REFUSALS:
            text.was_refused = True
        return text

    def forget(self, now: int, *, is_late: bool) -> list[Text]:
        """The young become old; the old are forgotten and returned, except those whose result is not yet due.

        `is_late`: because of their age, not of their number. What is forgotten before it is due is not returned: nobody can judge it.
        """
        former, self.old, self.young = self.old, self.young, {}
        forgotten = []
        for text_id, text in former.items():
            if now <= (text.until if is_late else text.ts if text.is_settled else text.due):
                self.young[text_id] = text
            else:
                forgotten.append(text)
        if len(self.young) > MOST_UNCONFIRMED:
            _, self.young = split_oldest(self.young, MOST_UNCONFIRMED)
            self.has_forgotten = True
        self.most = max(MOST, 2 * len(self.young))
        return forgotten

    def _take_piece(self, text: Text, index: int) -> None:
        if text.seen is None:
            text.seen = set()
        text.seen.add(index)
        self.pieces += 1
        if self.pieces > MOST_PIECES:
            self._limit_pieces(text)

    def _limit_pieces(self, newest: Text) -> None:
        """Forget incomplete messages, oldest first, until half of the pieces are left."""
        self.pieces = sum(len(text.seen or ()) for text in self)
        for texts in (self.old, self.young):
            for text_id, text in list(texts.items()):
                if self.pieces <= MOST_PIECES // 2:
                    return
                if text.seen and text is not newest:
                    self.pieces -= len(text.seen)
                    del texts[text_id]
                    self.has_forgotten = True
