"""Back-off of reconnecting clients: doubling waits with jitter.

A connection that was of use resets the wait: see `Runnable.has_progressed`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Backoff", "BackoffTimer"]


@dataclass(frozen=True)
class Backoff:
    """The limits of a reconnecting client."""

    first: float = 0.2
    """Seconds before the second attempt, at most."""
    most: float = 30.0
    """Seconds between two attempts, at most."""
    attempts: int | None = None
    """Attempts in a row without a handshake before giving up; None: never."""


class BackoffTimer:
    """Where in its back-off a client is."""

    def __init__(self, backoff: Backoff, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._backoff = backoff
        self._uniform = uniform
        self.failures = 0
        """Attempts in a row without a handshake."""
        self.fruitless = 0
        """Attempts in a row without progress: those, and connections that ended with their handshake."""

    def next(self, opened: bool, *, progressed: bool = True) -> float | None:
        """Seconds to wait before the next attempt; None: give up.

        `opened` says that the last attempt finished its handshake, `progressed` that its connection was of use after that.
        """
        self.failures = 0 if opened else self.failures + 1
        self.fruitless = 0 if opened and progressed else self.fruitless + 1
        if self._backoff.attempts is not None and self.failures >= self._backoff.attempts:
            return None
        ceiling = min(self._backoff.most, self._backoff.first * 2.0 ** min(max(self.fruitless - 1, 0), 60))
        return self._uniform(0.0, ceiling)
