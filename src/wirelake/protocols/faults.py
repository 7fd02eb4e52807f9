"""Faults of all protocols: a number, a clause, one sentence, an origin and a severity.

A protocol lists its faults as members of one enumeration. One table has the clause and the origin of each. A session ends on a fault with a
number below `TOLERATED` and only counts the others. The scanner keeps the smallest number it may report in a row, and 0 there means none.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final, Protocol

__all__ = ["TOLERATED", "Faults", "Origin", "Rule", "Severity"]

TOLERATED: Final = 90
"""The first number of the faults that are tolerated."""


class Origin(StrEnum):
    """The source of a rule: a specification, a ruling, a limit, or the state of this side.

    Only the specification can accuse a sender; all other rules are about this side.
    """

    TEXT = "text"
    """The specification, or a document that it refers to.

    A ruling may settle details, such as how long is too long.
    """
    RULING = "ruling"
    """Only a ruling of ours: the specification is silent, leaves it open, or even allows it."""
    LIMIT = "limit"
    """Only a limit of ours, of size, number or time.

    The specification allows more, and options can raise it.
    """
    LOCAL = "local"
    """Only the state of this side: its application, its keys, its policy, or what it did not see."""


class Severity(IntEnum):
    """How much a finding weighs against its sender."""

    INFO = 0
    """No violation: the specification does not forbid it. See `Origin`."""
    TOLERATED = 1
    """The specification forbids it, and peers read on."""
    ERROR = 2
    """The specification forbids it, and a session ends, or a message is lost, because of it."""


class Rule(Protocol):
    """What the table of a protocol says of one fault, at least."""

    @property
    def clause(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def origin(self) -> Origin: ...


class Faults(IntEnum):
    """The broken rules of a protocol; each protocol adds the members, and `rule`."""

    @property
    def rule(self) -> Rule:
        """The row of the protocol's table for this fault."""
        raise NotImplementedError

    @property
    def error_code(self) -> int | None:
        """The code of the error message that answers it; None: no error answers it."""
        return None

    @property
    def result_code(self) -> int | None:
        """The code of the result that answers it, in a protocol with results; None: no result answers it."""
        return None

    @property
    def close_reason(self) -> str | None:
        """The reason of the close that answers it, in a protocol with reasons; None: no close with a reason answers it."""
        return None

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
    def origin(self) -> Origin:
        """The source of the rule."""
        return self.rule.origin

    @property
    def is_tolerated(self) -> bool:
        """Whether a session counts it and reads on, whatever its origin."""
        return self >= TOLERATED

    @property
    def severity(self) -> Severity:
        """How much it weighs against the sender: nothing, unless the specification forbids it."""
        if self.origin is not Origin.TEXT:
            return Severity.INFO
        return Severity.TOLERATED if self.is_tolerated else Severity.ERROR
