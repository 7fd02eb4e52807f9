"""A Relink channel as an observer sees it: the numbers of its messages, how far they are acknowledged, and what became of each.

Numbers are implicit on the wire (RELINK-14). On a fresh link the first message of a channel is 0. After a reconnection its sender begins
behind what the other side reports before its `resume`, and at 0 again if it reports nothing, or that the channel is closed (RELINK-20 to
RELINK-22). From there on messages count themselves. Numbers wrap at 2^32 on the wire, and do not in here (RELINK-15): one that is seen
is the nearest to the last message sent.

Messages pass every observer in the order of cause and effect. Where an observer cannot know (the next form after a reconnection, what was
lost behind it), nothing is judged.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wirelake.protocols.relink.deliveries import CLOSE, CLOSED, CONSUMED, DECISION, MESSAGE, RECEIVED, RESULT, Deliveries
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link.sequence import distance
from wirelake.protocols.relink.messages import LAST_SEQUENCE

__all__ = ["UNKNOWN", "Channel", "Circumstances", "ClosedChannel"]

_NONE: Final = -1
_COUNTED: Final = 4
"""Cursors that are moved by a number, or by one in the next form: those before MESSAGE."""

_TOO_MUCH: Final = Fault.ACKNOWLEDGED_TOO_MUCH.name
_UNASKED: Final = Fault.CLOSED_UNASKED.name
_EARLY: Final = Fault.SPOKE_BEFORE_RESUME.name
_CLOSING: Final = Fault.CHANNEL_CLOSING.name
_UNNUMBERED: Final = Fault.RESULT_UNNUMBERED.name
_SHUT: Final = Fault.CHANNEL_AFTER_SHUTDOWN.name
_DECIDED: Final = Fault.DECIDED_TOO_MUCH.name
UNKNOWN: Final = Fault.CHANNEL_UNKNOWN.name


class Circumstances(msgspec.Struct, gc=False, array_like=True):
    """What a rule needs to know of the connection, and of both sides."""

    is_known: bool
    """The link was seen from its first connection on."""
    is_resumed: bool
    is_early: bool
    """RELINK-21: the other side has to say `resume` first, and has not."""
    is_shut: bool
    """RELINK-23: the sender has said shutdown."""


class ClosedChannel(msgspec.Struct, gc=False, array_like=True):
    """RELINK-22: what is remembered of a channel that is not open: the other side may report it again."""

    sent_ever: int | None
    connection: int
    is_mentioned: bool
    close_seen: bool


class Channel(msgspec.Struct, array_like=True):
    """A channel of one side. It is fed with `see` only, so that its numbers are those of every rule and every delivery."""

    # Over all connections of the link.
    sent_ever: int | None = None
    """The highest number of all its lives; None: no message was seen."""
    is_acknowledged: bool = False
    """The other side acknowledged something of it, and neither side closed it."""
    is_heard: bool = False
    """The other side acknowledged something of this life of it."""
    was_closed: bool = False
    """`close` or `closed` was seen, in whatever life."""
    close_seen: bool = False
    """`close` was seen, in whatever life."""
    turn: int = _NONE
    """The last of MESSAGE, CLOSE and CLOSED."""
    life: int = _NONE
    """The last of MESSAGE and CLOSED."""
    connection: int = _NONE
    """The connection of the last message about it. The fields below are about this one."""
    is_judged: bool = False
    """A resume came after the last message about it."""

    # On this connection. A `closed` begins another life of the channel.
    origin: int = -1
    """Where its sender begins."""
    messages: int = 0
    """Messages in this life."""
    told: list[int | None] = msgspec.field(default_factory=lambda: [None, None, None])
    """RELINK-20: the last number that was reported of received, consumed and results."""
    is_taken_up: bool = False
    """Numbers were reported, and begin behind them."""
    is_vague: bool = False
    """A report had the next form: nobody can know the number."""
    is_mentioned: bool = False
    closing: int = _NONE
    """The last of CLOSE and CLOSED."""
    has_past: bool = False
    """A life of it ended here."""
    is_ended: bool = False
    """The last packet about it was the `closed` that ended its life."""
    is_closing: bool = False
    at: list[int | None] = msgspec.field(default_factory=lambda: [-1, -1, -1, -1])
    """Where each cursor is; None: unknown."""
    named: int = 0
    """Bits of cursors that a number was given for."""
    consumed: int | None = None
    """The last number that was given for consumed."""
    most: list[int] = msgspec.field(default_factory=lambda: [-1, -1])
    """The highest number that was given for consumed and for decisions."""
    nexts: list[int] = msgspec.field(default_factory=lambda: [0, 0])
    """How often consumed and decisions had the next form."""

    deliveries: Deliveries = msgspec.field(default_factory=Deliveries)

    @classmethod
    def reopened(cls, past: ClosedChannel, connection: int) -> Channel:
        """A channel of an id that was used before."""
        channel = cls(sent_ever=past.sent_ever, was_closed=True, close_seen=past.close_seen, turn=CLOSED, life=CLOSED)
        if past.connection == connection:
            channel.connection, channel.is_mentioned, channel.closing, channel.has_past = connection, past.is_mentioned, CLOSED, True
        return channel

    @property
    def is_idle(self) -> bool:
        """Whether no message was sent since it was closed, or ever."""
        return self.life != MESSAGE and self.turn != CLOSE and self.deliveries.is_settled

    def past(self) -> ClosedChannel:
        """What to remember when it is closed."""
        return ClosedChannel(self.sent_ever, self.connection, self.is_mentioned, self.close_seen)

    def connect(self, connection: int) -> None:
        """The first message about it on another connection."""
        self.connection = connection
        self.origin = -1
        self.messages = 0
        self.told = [None, None, None]
        self.is_taken_up = self.is_vague = self.is_mentioned = self.has_past = self.is_closing = False
        self.closing = _NONE
        self.deliveries.is_former = False
        self._begin()

    def _begin(self) -> None:
        """A life begins."""
        self.messages = 0
        self.at = [-1, -1, -1, -1]
        self.named = 0
        self.consumed = None
        self.most, self.nexts = [-1, -1], [0, 0]

    def number(self, sequence: int) -> int:
        """RELINK-15: the number that a sequence number means: the nearest to the last message."""
        last = self.origin + self.messages
        return last + distance(sequence, last)

    def count(self) -> int:
        """The next message of an open channel, on the same connection, after resume: `see` for the most frequent packet.

        Returns its number.
        """
        self.messages += 1
        sent = self.origin + self.messages
        if self.sent_ever is None or sent > self.sent_ever:
            self.sent_ever = sent
        return sent

    def advance(self, cursor: int, sequence: int | None) -> bool:
        """RELINK-15: the same for a cursor that moves forward, within what was sent. False: it does not, and `see` has to judge it."""
        before = self.at[cursor]
        if before is None:
            return False
        reach = before + 1 if sequence is None else sequence
        if not before < reach <= self.origin + self.messages:
            return False
        if cursor == RECEIVED:
            if self.consumed is not None and reach < self.consumed:
                return False
        elif cursor == RESULT:
            if sequence is None and self.deliveries.is_rolled_back(reach):
                return False
            if not self.is_taken_up and reach > self.most[0] + self.nexts[0] and reach > self.most[1] + self.nexts[1]:
                return False
        elif sequence is None:
            self.nexts[cursor == DECISION] += 1
        else:
            index = cursor == DECISION
            if sequence > self.most[index]:
                self.most[index] = sequence
            if cursor == CONSUMED:
                self.consumed = sequence
        self.at[cursor] = reach
        if sequence is not None:
            self.named |= 1 << cursor
        if cursor != DECISION:
            self.is_acknowledged = self.is_heard = True
        return True

    def see(self, cursor: int, sequence: int | None, circumstances: Circumstances) -> str | None:
        """What is sent about the channel next; return the rule that it breaks, of several the one that a live link meets first."""
        if sequence == LAST_SEQUENCE:
            sequence = -1  # RELINK-15: nothing yet
        is_sent = cursor in (DECISION, MESSAGE, CLOSE)
        is_told = circumstances.is_early and not is_sent
        was_ever = self.sent_ever
        self.is_judged = self.is_ended = False
        life, closing = self.life, self.closing
        ends = cursor == CLOSED and (closing == CLOSE or (closing == _NONE and circumstances.is_resumed))
        if cursor >= MESSAGE:
            self.turn = cursor
            if cursor == MESSAGE:
                self.messages += 1
                self.is_heard &= life == MESSAGE
            else:
                self.was_closed = True
                self.closing = cursor
                self.close_seen |= cursor == CLOSE
                self.is_acknowledged = False
            if cursor != CLOSE:
                self.life = cursor
        if is_told:
            self._report(cursor, sequence)
        sent = self.origin + self.messages
        if cursor == MESSAGE:
            self.sent_ever = sent if was_ever is None else max(was_ever, sent)
        is_vague = self.is_vague and not self.has_past
        is_open = self.is_taken_up or self.messages > 0 or is_vague
        before = named = reach = None
        if cursor < DECISION:
            if sequence is None or sequence >= 0:
                self.is_heard = True
                self.is_acknowledged |= self.turn == MESSAGE and not (self.was_closed and is_told)
            if not is_open and not is_told:
                return UNKNOWN  # RELINK-13: it is ignored
        if cursor < _COUNTED:
            before, named, reach = self._move(cursor, sequence)
        rule = None
        if is_told:
            rule = self._judge_report(cursor, sequence, was_ever, circumstances)
        elif is_sent:
            rule = self._judge_sender(cursor, reach, sent, life, circumstances, is_open=is_open, is_vague=is_vague)
        elif cursor == CLOSED:
            if not ends or (closing == _NONE and circumstances.is_known and not self.close_seen):
                rule = _UNASKED if is_open else UNKNOWN
        elif cursor == RESULT and sequence is None and reach is not None and self.deliveries.is_rolled_back(reach):
            rule = _UNNUMBERED  # §3.2
        elif not is_vague and self._is_beyond(cursor, before, named, reach, sent):
            rule = _TOO_MUCH
        if cursor == CLOSE and is_open:
            self.is_closing = True
        if cursor == CONSUMED and named is not None:
            self.consumed = named
        if ends:
            self.has_past = self.is_ended = True
            self.is_closing, self.is_taken_up, self.origin = False, False, -1
            self._begin()
        return rule

    def _report(self, cursor: int, sequence: int | None) -> None:
        """RELINK-20: the other side says how far it is."""
        self.is_mentioned = True
        if cursor == CLOSED:
            return
        if sequence is None:
            self.is_vague = True
            return
        last = self.sent_ever
        self.told[cursor] = sequence if last is None else last + distance(sequence, last)
        if self.has_past:
            return
        if not self.is_taken_up:
            self.is_taken_up = True
            self.at = [at if self.named >> index & 1 else None for index, at in enumerate(self.at)]
        self.origin = max(number for number in self.told if number is not None)  # RELINK-16: consumed implies received

    def _move(self, cursor: int, sequence: int | None) -> tuple[int | None, int | None, int | None]:
        """Move a cursor: where it was, the number that was given, and where it is."""
        before = self.at[cursor]
        if sequence is None:
            reach = self.at[cursor] = None if before is None else before + 1
            if cursor in (CONSUMED, DECISION):
                self.nexts[cursor == DECISION] += 1
            return before, None, reach
        named = self.at[cursor] = self.number(sequence)
        self.named |= 1 << cursor
        if cursor in (CONSUMED, DECISION):
            self.most[cursor == DECISION] = max(self.most[cursor == DECISION], named)
        return before, named, named

    def _judge_report(self, cursor: int, sequence: int | None, sent_ever: int | None, circumstances: Circumstances) -> str | None:
        if not circumstances.is_known or sent_ever is None:
            return None
        if cursor == CLOSED:
            return None if self.close_seen else _UNASKED
        if sequence is None:
            return None
        is_behind = (sent_ever - sequence) & LAST_SEQUENCE <= min(sent_ever + 1, LAST_SEQUENCE >> 1)
        return None if is_behind else _TOO_MUCH

    def _judge_sender(
        self, cursor: int, reach: int | None, sent: int, life: int, circumstances: Circumstances, *, is_open: bool, is_vague: bool
    ) -> str | None:
        if circumstances.is_early and not self.is_mentioned:
            return _EARLY
        if self.is_closing:
            return _CLOSING
        if cursor == MESSAGE:
            is_new = circumstances.is_shut and circumstances.is_known and not self.is_taken_up and life != MESSAGE
            return _SHUT if is_new else None
        if cursor == DECISION:
            if not is_open:
                return None if circumstances.is_resumed and self.has_past else _DECIDED
            return _DECIDED if not is_vague and reach is not None and reach > sent else None
        return None

    def _is_beyond(self, cursor: int, before: int | None, named: int | None, reach: int | None, sent: int) -> bool:
        """RELINK-15, RELINK-16, RELINK-27: an acknowledgement of what was not sent, or already; or a result of what was not decided."""
        if reach is not None and reach > sent:
            return True
        if named is not None and before is not None and named < before:
            return True
        if cursor == RECEIVED:
            return named is not None and self.consumed is not None and named < self.consumed
        if cursor == RESULT and not self.is_taken_up and reach is not None:
            return reach > max(most + nexts for most, nexts in zip(self.most, self.nexts, strict=True))
        return False
