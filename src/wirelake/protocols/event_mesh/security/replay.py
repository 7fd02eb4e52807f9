"""Replay protection: a bounded cache of packets received, and the recent ids of this sender.

A cache of verified packets takes only packets that the caller has verified: then a flood of forged packets cannot evict an honest entry.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wirelake.errors import UsageError
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import CLOCK_SKEW_ALLOWANCE, REPLAY_WINDOW

__all__ = ["RecentIds", "ReplayCache"]

_FORMAT: Final = "wirelake-replay-1"


class _State(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An exported cache."""

    format: str
    evicted: int
    entries: list[tuple[bytes, float]]


class ReplayCache:
    """§7: packets received, each until max(arrival, its own time) + 300 seconds (EMM-25).

    It holds at most `capacity`. Expired entries go only when space is needed: if the clock leaps ahead and comes back, they are still
    known. After a step back an entry is known for longer than necessary, never shorter: freshness is judged by the same times.
    """

    def __init__(
        self,
        capacity: int = 65_536,
        *,
        window: int = REPLAY_WINDOW,
        skew: int = CLOCK_SKEW_ALLOWANCE,
        fail_closed: bool = False,
    ) -> None:
        if capacity < 1:
            raise UsageError(f"a replay cache of {capacity} entries remembers nothing")
        self._capacity = capacity
        self._window = window
        self._skew = skew
        self._fail_closed = fail_closed
        self._until: dict[bytes, float] = {}
        self._sweep_in = 0
        self.evicted = 0
        """EMM-23: entries that had to go before their time."""

    def __len__(self) -> int:
        return len(self._until)

    def admit(self, key: bytes, time: float, now: float) -> Fault | None:
        """Remember a packet of this time under this key.

        Says REPLAY if it is known, REPLAY_CACHE_FULL if none may be forgotten for it.
        """
        until = self._until.get(key)
        if until is not None:
            if now <= until:
                return Fault.REPLAY
            del self._until[key]  # so that it goes to the end of the queue
        elif len(self._until) >= self._capacity and not self._make_room(now):
            return Fault.REPLAY_CACHE_FULL
        # EMM-25; a time beyond the allowance is not the sender's to keep us busy with
        self._until[key] = max(now, min(time, now + self._skew)) + self._window
        return None

    def _make_room(self, now: float) -> bool:
        """Forget what has expired; else the oldest, unless that is worse than to be deaf (EMM-23)."""
        oldest = next(iter(self._until))
        if now > self._until[oldest]:
            del self._until[oldest]
            return True
        self._sweep_in -= 1
        if self._sweep_in <= 0:  # entries expire almost in their order: to look at all of them once in a while is enough
            self._sweep_in = self._capacity // 16
            self._until = {key: until for key, until in self._until.items() if now <= until}
            if len(self._until) < self._capacity:
                return True
        if self._fail_closed:
            return False
        del self._until[oldest]
        self.evicted += 1
        return True

    def export(self) -> bytes:
        """Every entry, for `restore` after a restart."""
        return msgspec.msgpack.encode(_State(_FORMAT, self.evicted, list(self._until.items())))

    def restore(self, state: bytes) -> None:
        """Add the entries of an exported cache.

        Raises UsageError for anything else, and then nothing has changed.
        """
        try:
            exported = msgspec.msgpack.decode(state, type=_State)
        except (msgspec.DecodeError, UnicodeDecodeError) as reason:
            raise UsageError(f"this is no exported replay cache: {reason}") from None
        if exported.format != _FORMAT:
            raise UsageError(f"this is no exported replay cache: {exported.format[:40]!r}")
        known = {key: until for key, until in exported.entries if until == until}  # not a number is no time
        for key, until in self._until.items():
            known[key] = max(until, known.get(key, until))
        excess = max(len(known) - self._capacity, 0)
        self.evicted += exported.evicted + excess
        for key in sorted(known, key=known.__getitem__)[:excess]:
            del known[key]
        self._until = known


class RecentIds:
    """EMM-22: the message ids a sender used in the last 420 seconds, so that it never uses one twice.

    It holds at most `capacity`.
    """

    def __init__(self, retention: int = REPLAY_WINDOW + CLOCK_SKEW_ALLOWANCE, *, capacity: int = 1 << 20) -> None:
        self._retention = retention
        self._capacity = capacity
        self._until: dict[int, float] = {}
        self.forgotten = 0
        """Ids that had to go before their time."""

    def __len__(self) -> int:
        return len(self._until)

    def take(self, message_id: int, now: float) -> bool:
        """Use an id; false if it was used and another must be drawn."""
        while self._until and (oldest := next(iter(self._until.items())))[1] < now:
            del self._until[oldest[0]]
        if now <= self._until.get(message_id, -1.0):
            return False
        self._until.pop(message_id, None)
        if len(self._until) >= self._capacity:
            del self._until[next(iter(self._until))]
            self.forgotten += 1
        self._until[message_id] = now + self._retention
        return True
