"""Turns: one connection's bytes are handled for a few milliseconds, then others have theirs.

A busy client may send more than a core can handle. An event loop would read its socket again and again: libuv up to 8 MiB in one turn of
the loop. So a connection stops after `TURN` seconds, whatever its bytes cost. What is left waits in a queue of all connections of the
event loop, which gives one of them a turn in each turn of the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final
from weakref import WeakKeyDictionary

__all__ = ["SMALL", "TURN", "Turn"]

TURN: Final = 0.005
"""Seconds that the bytes of one connection are handled at a time."""
SMALL: Final = 4096
"""Bytes that are handled in one piece, whatever they cost."""
LARGEST_PIECE: Final = 64 * 1024
"""Bytes that are handled between two looks at the clock, at most: the next bytes may cost far more than the last ones."""
LEAST_PIECE: Final = 1024
"""Bytes that are handled between two looks at the clock, at least."""

_queues: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, deque[asyncio.Future[None]]]] = WeakKeyDictionary()
"""Event loop -> connections that wait for a turn, in order."""


class Turn:
    """The turns of one connection, and how many of its bytes fit between two looks at the clock."""

    def __init__(self) -> None:
        self.piece = SMALL
        """Bytes to handle before the next look at the clock."""
        self._loop = asyncio.get_running_loop()
        self._queue = _queues.setdefault(self._loop, deque())
        self._until = 0.0
        self._is_on = False

    def begin(self) -> None:
        """Start the clock, unless it runs already in this turn of the event loop."""
        if not self._is_on:
            self._is_on = True
            self._until = time.perf_counter() + TURN
            self._loop.call_soon(self._end)

    @property
    def is_over(self) -> bool:
        """The time is used up."""
        return time.perf_counter() >= self._until

    def measured(self, size: int, seconds: float) -> None:
        """Learn from the time that so many bytes took."""
        if seconds > TURN / 2:
            self.piece = max(LEAST_PIECE, int(size * TURN / 2 / seconds))
        elif seconds < TURN / 8 and size >= self.piece:
            self.piece = min(2 * self.piece, LARGEST_PIECE)

    async def next(self) -> None:
        """Wait for the next turn: after those of all connections that wait already."""
        mine: asyncio.Future[None] = self._loop.create_future()
        self._queue.append(mine)
        if len(self._queue) == 1:
            self._loop.call_soon(_give_turn, self._loop, self._queue)
        await mine

    def _end(self) -> None:
        self._is_on = False


def _give_turn(loop: asyncio.AbstractEventLoop, queue: deque[asyncio.Future[None]]) -> None:
    """Give a turn to the connection that waits longest; to the next one in the next turn of the event loop."""
    while queue:
        if not (first := queue.popleft()).done():
            first.set_result(None)
            break
    if queue:
        loop.call_soon(_give_turn, loop, queue)
