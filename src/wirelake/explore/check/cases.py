"""Cases: what a check looked at, and where it failed."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["MOST_PLACES", "Case", "Suite"]

MOST_PLACES: Final = 20
"""Places that a failed case names; `count` has all."""


class Case(msgspec.Struct):
    """One rule, threat or property, and what breaks it."""

    name: str
    text: str
    """The rule as one sentence, or what was looked at."""
    clause: str | None = None
    protocol: str | None = None
    count: int = 0
    """How often it is broken; 0: it passed."""
    places: list[str] = []
    """Where, one line each: side, session, file and byte. At most `MOST_PLACES`."""
    notes: list[str] = []
    """What people should know, though it is no failure."""

    skipped: str | None = None
    """Why it was not checked; None: it was."""

    @property
    def title(self) -> str:
        """`EMP-25 HELLO_REPEATED`."""
        return f"{self.clause} {self.name}" if self.clause else self.name


class Suite(msgspec.Struct):
    """Cases of one kind."""

    name: str
    cases: list[Case]

    @property
    def failed(self) -> list[Case]:
        """The cases that failed."""
        return [case for case in self.cases if case.count]
