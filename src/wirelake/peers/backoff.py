"""How long to wait before trying again: doubling with jitter, back to the start only after a finished handshake."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Backoff", "Patience"]


@dataclass(frozen=True)
class Backoff:
    """The limits of a reconnecting client."""

    first: float = 0.2
    """Seconds before the second attempt, at most."""
    most: float = 30.0
    """Seconds between two attempts, at most."""
    attempts: int | None = None
    """Attempts in a row without a handshake before giving up; None: never."""


class Patience:
    """Where in its back-off a client is."""

    def __init__(self, backoff: Backoff, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._backoff = backoff
        self._uniform = uniform
        self.failures = 0
        """Attempts in a row that came to nothing."""

    def next(self, opened: bool) -> float | None:
        """Seconds to wait before the next attempt, None: give up; `opened` says that the last one finished its handshake."""
        self.failures = 0 if opened else self.failures + 1
        if self._backoff.attempts is not None and self.failures >= self._backoff.attempts:
            return None
        ceiling = min(self._backoff.most, self._backoff.first * 2.0 ** min(max(self.failures - 1, 0), 60))
        return self._uniform(0.0, ceiling)
