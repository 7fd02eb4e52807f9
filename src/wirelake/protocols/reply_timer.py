"""The deadline of a reply, such as a pong; bytes that come before the reply postpone it.

It does not import `time`: every call gets the time. Small steps postpone it little, so that a peer cannot stop it with single bytes.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MIN_RATE", "ReplyClock", "postponed"]

MIN_RATE: Final = 1000.0
"""Bytes a second below which a line counts as silent."""


def postponed(deadline: float, count: int, now: float, timeout: float, min_rate: float) -> float:
    """The deadline after `count` bytes moved.

    Each postpones it by 1/`min_rate` seconds, but never to more than `timeout` from now.
    """
    return max(deadline, min(now + timeout, deadline + count / min_rate))


class ReplyClock:
    """The time that is left for one reply.

    EMP-32: it does not run while an unfinished message arrives or our own output drains.
    """

    def __init__(self, timeout: float | None, min_rate: float) -> None:
        self.deadline: float | None = None
        self.waits = False
        """A reply is due."""
        self._timeout = timeout
        self._min_rate = min_rate
        self._paused = False
        self._asked_at = 0.0

    def ask(self, now: float) -> None:
        """The question was sent."""
        self.waits = True
        self._asked_at = now
        self._restart(now)

    def stop(self) -> None:
        """The reply came, or is not waited for any more."""
        self.waits = False
        self.deadline = None

    def pause(self) -> None:
        """The owner does not read: a reply that waits unread is no silence."""
        self._paused = True
        self.deadline = None

    def resume(self, now: float) -> None:
        """The owner reads again."""
        self._paused = False
        self._restart(now)

    def moved(self, count: int, now: float) -> None:
        """Bytes of an unfinished message arrived."""
        if self.deadline is not None and self._timeout is not None:
            self.deadline = postponed(self.deadline, count, now, self._timeout, self._min_rate)

    def drained(self, count: int, now: float) -> None:
        """Bytes before the question left us.

        Buffers on the way may hold as much again, so the time this took is granted once more.
        """
        if self.deadline is not None and self._timeout is not None:
            timeout = self._timeout + now - self._asked_at
            self.deadline = postponed(self.deadline, count, now, timeout, self._min_rate)

    def is_over(self, now: float) -> bool:
        """Whether the reply is late."""
        return self.deadline is not None and now >= self.deadline

    def _restart(self, now: float) -> None:
        if self.waits and self._timeout is not None and not self._paused:
            self.deadline = now + self._timeout
