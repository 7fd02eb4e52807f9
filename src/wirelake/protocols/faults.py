"""Faults of all protocols: one line for each rule that can be broken.

A protocol lists its faults as members of one enumeration. The value of a member is its number; its `Rule` has all that is known of it. A
session ends on a fault with a number below `TOLERATED` and only counts the others. The scanner keeps the smallest number it may report in a
row, and 0 there means none. Kernels read the members as numbers.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final, Self

import msgspec

__all__ = [
    "LIMIT",
    "LOCAL",
    "MAY",
    "MUST",
    "RULING",
    "SEVERITIES",
    "SHOULD",
    "TEXT",
    "TOLERATED",
    "VIOLATIONS",
    "Faults",
    "Origin",
    "Rule",
    "Severity",
    "Strength",
    "Threat",
]

TOLERATED: Final = 90
"""The first number of the faults that are tolerated."""


class Origin(StrEnum):
    """The source of a rule: a specification, a ruling, a limit, or the state of this side.

    Only the specification can accuse a sender; all other rules are about this side.
    """

    TEXT = "text"
    """The specification, or a document that it refers to.

    A ruling may settle details.
    """
    RULING = "ruling"
    """Only a ruling of ours: the specification is silent, leaves it open, or even allows it."""
    LIMIT = "limit"
    """Only a limit of ours, of size, number or time.

    The specification allows more, and options can raise it.
    """
    LOCAL = "local"
    """Only the state of this side: its application, its keys, its policy, or what it did not see."""


class Strength(StrEnum):
    """How strongly the specification itself speaks about the subject of a rule (RFC 2119)."""

    MUST = "must"
    """It demands or forbids it, or defines it so."""
    SHOULD = "should"
    """It recommends it."""
    MAY = "may"
    """It allows it, or does not speak of it."""


TEXT, RULING, LIMIT, LOCAL = Origin.TEXT, Origin.RULING, Origin.LIMIT, Origin.LOCAL
MUST, SHOULD, MAY = Strength.MUST, Strength.SHOULD, Strength.MAY


class Severity(IntEnum):
    """How much a finding weighs against its sender; only `TOLERATED` and `ERROR` are violations."""

    INFO = 0
    """The specification allows it, or what was missed is a number of ours. See `Origin`."""
    WARNING = 1
    """The specification recommends otherwise: it says "should"."""
    TOLERATED = 2
    """The specification forbids it, and peers read on."""
    ERROR = 3
    """The specification forbids it, and a session ends, or a message is lost, because of it."""

    @property
    def label(self) -> str:
        """Its name in tables, filters and reports."""
        return self.name.lower()


SEVERITIES: Final = tuple(severity.label for severity in sorted(Severity, reverse=True))
"""The values of the column `severity`, the gravest first."""
VIOLATIONS: Final = tuple(severity.label for severity in (Severity.ERROR, Severity.TOLERATED))
"""The severities that accuse a sender: the specification forbids it."""


class Threat(StrEnum):
    """What a broken rule may mean for security: values of the column `threat`."""

    FORGED = "forged"
    """An HMAC or signature that is wrong, or an encrypted body that does not open."""
    UNTRUSTED = "untrusted"
    """An HMAC or signature by a key that is unknown or not trusted."""
    REPLAYED = "replayed"
    """A copy of an earlier packet."""
    STALE = "stale"
    """A packet that is too old, or from the future."""
    DOWNGRADE = "downgrade"
    """Less protection, or other settings, than both sides agreed on."""
    BOMB = "bomb"
    """A message that costs its receiver far more than its sender, or more than a limit."""
    MALFORMED = "malformed"
    """A packet that no sender that follows the rules sends."""


class Rule(msgspec.Struct, frozen=True):
    """One rule that can be broken: a member of a protocol's `Fault` is made of it."""

    number: int
    clause: str
    """The clause or ruling."""
    text: str
    """One plain sentence: what is wrong, or what is right."""
    origin: Origin
    strength: Strength
    error_code: int | None = None
    """The code of the error message that answers it; None: no error answers it."""
    result_code: int | None = None
    """The code of the result that answers it, in a protocol with results; None: no result answers it."""
    close_reason: str | None = None
    """The reason of the close that answers it, `{}` standing for what was seen; None: no close with a reason answers it."""
    extension_id: int = 0
    """EMP: the extension that the error message names."""
    extension_error_code: int = 0
    """EMP: the code within that extension."""
    threat: Threat | None = None
    """What it may mean for security; None: nothing."""
    unseen: str | None = None
    """Why history cannot tell that it was broken; None: it can."""
    live_peer: str | None = None
    """What a live peer does; None: what its protocol does on every fault."""
    by_keys: bool = False
    """Whether it is found with keys, and told in the table `security` only."""


class Faults(IntEnum):
    """The broken rules of a protocol; each protocol adds the members."""

    _value_: int
    rule: Rule

    def __new__(cls, rule: Rule | int) -> Self:
        assert isinstance(rule, Rule)  # noqa: S101 - a look-up by number, such as `Fault(3)`, does not come here
        fault = int.__new__(cls, rule.number)
        fault._value_ = rule.number
        fault.rule = rule
        return fault

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
    def strength(self) -> Strength:
        """How strongly the specification itself speaks about it."""
        return self.rule.strength

    @property
    def is_tolerated(self) -> bool:
        """Whether a session counts it and reads on, whatever its origin."""
        return self >= TOLERATED

    @property
    def severity(self) -> Severity:
        """How much it weighs against the sender: nothing, unless the specification recommends or demands otherwise."""
        if self.rule.origin is not Origin.TEXT or self.rule.strength is Strength.MAY:
            return Severity.INFO
        if self.rule.strength is Strength.SHOULD:
            return Severity.WARNING
        return Severity.TOLERATED if self.is_tolerated else Severity.ERROR
