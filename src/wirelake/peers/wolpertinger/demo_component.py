"""A component to try a client with: a method for each trust level and outcome of a call.

| method | trust | what it does |
|---|---|---|
| `Echo(value)` | 0 | answers with it |
| `Add(a, b)` | 0 | the sum of two whole numbers |
| `Note(text)` | 0 | void: takes it |
| `Sleep(seconds)` | 1 | answers after so long, with heartbeats on the way |
| `Fail(code)` | 1 | fails with this error code |
| `Secret()` | 2 | a text for those with encryption |
| `Shared()` | 3 | a text for those who know the cluster key |
| `Private()` | 4 | a text for those who know a user's password |
"""

from __future__ import annotations

import asyncio

from wirelake.errors import RequestFailed
from wirelake.peers.wolpertinger.components import method

__all__ = ["Demo"]


class Demo:
    """The component; names are spelled as other implementations do."""

    @method(trust=0)
    def Echo(self, value: object) -> object:  # noqa: N802
        """Answer with the same."""
        return value

    @method(trust=0)
    def Add(self, a: int, b: int) -> int:  # noqa: N802
        """The sum."""
        return int(a) + int(b)

    @method(trust=0)
    def Note(self, text: str) -> None:  # noqa: N802
        """Take it."""

    @method(trust=1)
    async def Sleep(self, seconds: float) -> bool:  # noqa: N802
        """Answer later."""
        await asyncio.sleep(seconds)
        return True

    @method(trust=1)
    def Fail(self, code: int) -> bool:  # noqa: N802
        """Fail with a code."""
        raise RequestFailed(int(code))

    @method(trust=2)
    def Secret(self) -> str:  # noqa: N802
        """For those with encryption."""
        return "encrypted on its way here"

    @method(trust=3)
    def Shared(self) -> str:  # noqa: N802
        """For those who know the cluster key."""
        return "known to the cluster"

    @method(trust=4)
    def Private(self) -> str:  # noqa: N802
        """For those who know a user's password."""
        return "known to you"
