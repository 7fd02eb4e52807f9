"""The channels of one side of a Relink link as an observer sees them, and the exchanges of their messages.

Open channels, closed ones and unresolved messages are limited. Beyond a limit the oldest are told as they stand, and forgotten. A side
whose open channels were forgotten is not judged by its channels any more, until the link is replaced: their numbers are unknown
(RELINK-14).
"""

from __future__ import annotations

from typing import Final

import msgspec

from wirelake.protocols.analyzer import DELIVERY, Exchange, Part
from wirelake.protocols.oldest import split_oldest
from wirelake.protocols.relink.channel_analyzer import Channel, ClosedChannel
from wirelake.protocols.relink.deliveries import CLOSE, CLOSED, DECISION, MESSAGE, RESULT, ROLLED_BACK, Delivery
from wirelake.protocols.relink.messages import LAST_SEQUENCE
from wirelake.protocols.relink.options import DEFAULT_OPTIONS

__all__ = ["MAX_CHANNELS", "MAX_CLOSED", "MAX_UNRESOLVED", "Half"]

MAX_CHANNELS: Final = DEFAULT_OPTIONS.max_channels
"""RELINK-24: channels that are remembered while they are open; at least half as many."""
MAX_CLOSED: Final = DEFAULT_OPTIONS.max_tombstones
"""RELINK-22: closed channels that are remembered, as by a live link; twice as many at most."""
MAX_UNRESOLVED: Final = DEFAULT_OPTIONS.max_unconsumed
"""RELINK-17: messages, and reports before a resume, that are remembered on all channels; at least half as many."""


class Half(msgspec.Struct):
    """The channels of one side."""

    by_client: bool
    channels: dict[bytes, Channel] = msgspec.field(default_factory=dict)
    """See `MAX_CHANNELS`."""
    closed: dict[bytes, ClosedChannel] = msgspec.field(default_factory=dict)
    """See `MAX_CLOSED`."""
    transactional: bool = False
    is_shut: bool = False
    unresolved: int = 0
    """Unresolved messages and reports of all channels; see `MAX_UNRESOLVED`."""
    has_forgotten: bool = False
    """Whether there were too many open channels."""
    attempts: int = 1
    """What a message that is sent counts: 0 while it is one that did not leave."""

    @property
    def is_full(self) -> bool:
        """Whether the caller should call `limit`."""
        return self.unresolved > MAX_UNRESOLVED or len(self.channels) > MAX_CHANNELS

    def arrive(self, channel_id: bytes, channel: Channel | None, order: int) -> Channel:
        """The first packet about a channel, or about this one on another connection."""
        if channel is None:
            past = self.closed.pop(channel_id, None)
            channel = self.channels[channel_id] = Channel() if past is None else Channel.reopened(past, order)
        if channel.connection != order:
            channel.connect(order)
        return channel

    def send(self, channel_id: bytes, channel: Channel, number: int, part: Part) -> list[Exchange]:
        """A message, or its repetition. Returns what is forgotten."""
        deliveries = channel.deliveries
        if number > deliveries.highest or deliveries.is_over:
            self.unresolved += 1
        forgotten = deliveries.send(number, part, self.attempts)
        certain = [] if forgotten is None else self.exchanges(forgotten, channel_id)
        return certain + self.limit() if self.unresolved > MAX_UNRESOLVED else certain

    def cover(self, channel_id: bytes, channel: Channel, cursor: int, number: int | None, word: str, part: Part) -> list[Exchange]:
        """RELINK-15: an acknowledgement or a decision. Returns what is resolved."""
        resolved = channel.deliveries.cover(cursor, number, word, part, transactional=self.transactional)
        return self.exchanges(resolved, channel_id) if resolved else []

    def deliver(
        self, channel_id: bytes, channel: Channel, cursor: int, sequence: int | None, word: str, part: Part, *, is_report: bool
    ) -> list[Exchange]:
        """What a packet means for messages on the channel."""
        deliveries = channel.deliveries
        if cursor == MESSAGE:
            return self.send(channel_id, channel, channel.origin + channel.messages, part)
        if cursor == CLOSE:
            deliveries.is_open = False
            return []
        if cursor == CLOSED:
            self.unresolved -= len(deliveries.reports)
            resolved = deliveries.close(part, is_report=is_report, transactional=self.transactional)
            self.unresolved += len(deliveries.reports)
            if channel.is_ended and deliveries.is_settled:
                self._forget(channel_id, channel)
            return self.exchanges(resolved, channel_id)
        number = None if sequence is None else channel.at[cursor]
        if is_report and cursor != DECISION:
            self.unresolved += not deliveries.is_former
            deliveries.report(cursor, number, word, part)
            return []
        if cursor == RESULT and sequence is None and deliveries.is_rolled_back(deliveries.cursors[RESULT] + 1):
            return []  # §3.2: nobody can know which message it is about
        return self.cover(channel_id, channel, cursor, number, word, part)

    def resume(self, order: int | None = None) -> list[Exchange]:
        """RELINK-21: what was reported on a connection (None: on any) counts from here on. Returns what it resolves."""
        return [
            exchange
            for channel_id, channel in self.channels.items()
            if channel.deliveries.reports and order in (None, channel.connection)
            for exchange in self.resume_channel(channel_id, channel)
        ]

    def resume_channel(self, channel_id: bytes, channel: Channel) -> list[Exchange]:
        """The same for one channel."""
        self.unresolved -= len(channel.deliveries.reports)
        return self.exchanges(channel.deliveries.resume(transactional=self.transactional), channel_id)

    def rest(self) -> list[Exchange]:
        """All messages that are not resolved."""
        return [exchange for channel_id, channel in self.channels.items() for exchange in self._rest_of(channel_id, channel)]

    def replace(self, order: int) -> list[Exchange]:
        """RELINK-10: another link begins, which knows nothing. Returns what is left of channels that were used before it."""
        left = [(channel_id, channel) for channel_id, channel in self.channels.items() if channel.connection < order]
        self.is_shut = self.has_forgotten = False
        self.closed.clear()
        for channel_id, _ in left:
            del self.channels[channel_id]
        return [exchange for channel_id, channel in left for exchange in self._rest_of(channel_id, channel)]

    def purge(self) -> None:
        """Forget channels that are not open: acknowledgements of what was never sent."""
        for channel_id, channel in list(self.channels.items()):
            if channel.is_idle:
                self._forget(channel_id, channel)

    def limit(self) -> list[Exchange]:
        """Forget the oldest channels and messages if there are too many. Returns the exchanges of these messages."""
        self.purge()
        certain = []
        if len(self.channels) > MAX_CHANNELS * 3 // 4:
            oldest, self.channels = split_oldest(self.channels, MAX_CHANNELS // 2)
            self.has_forgotten = True
            certain += [exchange for channel_id, channel in oldest for exchange in self._rest_of(channel_id, channel)]
        if self.unresolved > MAX_UNRESOLVED:
            certain += self.resume()
            certain += self._forget_messages(max(0, self.unresolved - MAX_UNRESOLVED // 2))
        return certain

    def exchanges(self, resolved: list[Delivery], channel_id: bytes) -> list[Exchange]:
        """The exchanges of messages whose outcome is certain."""
        name, transactional, by_client = channel_id.hex(), self.transactional, self.by_client
        self.unresolved -= len(resolved)
        exchanges = []
        for one in resolved:
            if not one.attempts and one.answer is None:
                continue  # it never left
            outcome, answer = one.outcome(transactional=transactional), one.result or one.consumed
            attempts = max(one.attempts, 1)  # what is acknowledged did leave
            number, is_cancelled = one.number & LAST_SEQUENCE, outcome == ROLLED_BACK
            exchanges.append(
                Exchange(by_client, f"{name}/{number}", name, one.sent, answer, None, is_cancelled, attempts, outcome, DELIVERY)
            )
        return exchanges

    def _rest_of(self, channel_id: bytes, channel: Channel) -> list[Exchange]:
        self.unresolved -= len(channel.deliveries.reports)
        return self.exchanges(channel.deliveries.rest(transactional=self.transactional), channel_id)

    def _forget_messages(self, count: int) -> list[Exchange]:
        """Forget so many messages, the oldest first."""
        waiting = [
            (one.sent.ts, place, channel_id, one.number)
            for place, (channel_id, channel) in enumerate(self.channels.items())
            for one in channel.deliveries.unresolved.values()
        ]
        certain = []
        for _, _, channel_id, number in sorted(waiting)[:count]:
            certain += self.exchanges([self.channels[channel_id].deliveries.unresolved.pop(number)], channel_id)
        return certain

    def _forget(self, channel_id: bytes, channel: Channel) -> None:
        """RELINK-22: a channel was closed: remember no more of it than a live link does."""
        del self.channels[channel_id]
        if channel.sent_ever is None and not channel.was_closed:
            return
        self.closed[channel_id] = channel.past()
        if len(self.closed) > 2 * MAX_CLOSED:
            _, self.closed = split_oldest(self.closed, MAX_CLOSED)
