"""What every room's faults have in common: a number, the clause it breaks, one sentence, and how grave it is.

A room lists its faults as members of one enumeration and says of each, in one table, what it breaks. Numbers from `TOLERATED` on are
written down and otherwise ignored; the scanner keeps the smallest number it may report in a row, and 0 there means none.

It refuses to know any fault.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol

__all__ = ["TOLERATED", "Faults", "Rule", "Severity"]

TOLERATED: Final = 90
"""The first number of the faults that are tolerated."""


class Severity(IntEnum):
    """What becomes of the message, or of the session, that breaks a rule."""

    TOLERATED = 0
    ERROR = 1


class Rule(Protocol):
    """What a room's table says of one fault, at least."""

    @property
    def clause(self) -> str: ...

    @property
    def text(self) -> str: ...


class Faults(IntEnum):
    """The broken rules of a protocol; a room adds the members, and `rule`."""

    @property
    def rule(self) -> Rule:
        """The row of the room's table for this fault."""
        raise NotImplementedError

    @property
    def clause(self) -> str:
        """The clause or ruling it breaks."""
        return self.rule.clause

    @property
    def text(self) -> str:
        """One plain sentence."""
        return self.rule.text

    @property
    def reason(self) -> str:
        """The word for it in counters and vectors."""
        return self.name.lower().replace("_", "-")

    @property
    def severity(self) -> Severity:
        """Whether anything comes of it."""
        return Severity.TOLERATED if self >= TOLERATED else Severity.ERROR
