"""Token buckets by source, to limit how much of each source is taken. Does not read a clock."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from wirelake.errors import UsageError

__all__ = ["Buckets"]

_OTHERS: Final = object()


class Buckets:
    """A token bucket for each source, of `burst` tokens, filled by `rate` tokens a second.

    There are at most `capacity` buckets. A full bucket equals a new one, so it is dropped when space is needed. While there is no such
    bucket, all sources without one share one. An attacker with many addresses then gets the share of a single source, and earlier sources
    do not notice.
    """

    def __init__(self, rate: float, burst: float, capacity: int) -> None:
        if rate <= 0 or burst < 1 or capacity < 1:
            raise UsageError(f"a rate of {rate}, a burst of {burst} and {capacity} sources let nothing through")
        self._rate = rate
        self._burst = burst
        self._capacity = capacity
        self._buckets: dict[Hashable, list[float]] = {}
        self._sweep_at = float("-inf")
        self.shared = 0
        """Times that a source had to share, because there were too many."""

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, source: Hashable, now: float) -> bool:
        """Whether one more is listened to from this source; `now` never goes back."""
        bucket = self._buckets.get(source)
        if bucket is None:
            bucket = self._bucket(source, now)
        tokens = bucket[0]
        if tokens < self._burst and now > bucket[1]:
            tokens = min(tokens + (now - bucket[1]) * self._rate, self._burst)
        bucket[1] = now
        if tokens < 1:
            bucket[0] = tokens
            return False
        bucket[0] = tokens - 1
        return True

    def _bucket(self, source: Hashable, now: float) -> list[float]:
        if len(self._buckets) >= self._capacity and now >= self._sweep_at:
            # Looking at all of them costs more than a token is worth: not more often than a bucket needs to change.
            self._sweep_at = now + self._burst / self._rate / 4
            self._buckets = {one: bucket for one, bucket in self._buckets.items() if not self._is_full(bucket, now)}
        if len(self._buckets) >= self._capacity:
            self.shared += 1
            source = _OTHERS
            if source in self._buckets:
                return self._buckets[source]
        bucket = self._buckets[source] = [self._burst, now]
        return bucket

    def _is_full(self, bucket: list[float], now: float) -> bool:
        return bucket[0] + (now - bucket[1]) * self._rate >= self._burst
