"""The rules of PIGEON/1 that can be broken, each with its clause and one sentence."""

from __future__ import annotations

from typing import Final, NamedTuple

from wirelake.protocols.faults import Faults, Origin

__all__ = ["RULES", "UNREADABLE", "Fault"]


class Rule(NamedTuple):
    """One row of the table below."""

    clause: str
    text: str
    origin: Origin = Origin.TEXT


class Fault(Faults):
    """The broken rules; 0 in a scanned row means none."""

    # It is not known where the next frame begins.
    NOT_A_FRAME = 1
    BODY_OVER_LIMIT = 2

    # This frame cannot be read, the next one can.
    TYPE_UNKNOWN = 10
    BODY_SIZE = 11
    MESSAGE_CUT = 12
    FIELD_OUT_OF_RANGE = 13

    # Breaches of the state machine, and of the connection.
    HELLO_EXPECTED = 40
    SENT_AFTER_BYE = 41
    CLOSED_WITHOUT_BYE = 42
    HELLO_TIMEOUT = 43

    # Counted, and otherwise ignored.
    NOTE_NOT_UTF8 = 90

    @property
    def rule(self) -> Rule:
        """The row of the table for this fault."""
        return RULES[self]


RULES: Final[dict[Fault, Rule]] = {
    Fault.NOT_A_FRAME: Rule("§2.1", "a frame begins with the letter P"),
    Fault.BODY_OVER_LIMIT: Rule("§2.3", "a body is larger than this side accepts", Origin.LIMIT),
    Fault.TYPE_UNKNOWN: Rule("§2.2", "the type of a frame is 1, 2, 3 or 4"),
    Fault.BODY_SIZE: Rule("§2.3", "a body has the size that its type demands"),
    Fault.MESSAGE_CUT: Rule("§2.3", "the bytes end inside a frame"),
    Fault.FIELD_OUT_OF_RANGE: Rule("§2.3", "a value that its field cannot hold"),
    Fault.HELLO_EXPECTED: Rule("§3.1", "the first frame of either side is a hello, and there is no other"),
    Fault.SENT_AFTER_BYE: Rule("§3.3", "a frame after its sender's bye"),
    Fault.CLOSED_WITHOUT_BYE: Rule("§3.3", "a connection is closed after a bye"),
    Fault.HELLO_TIMEOUT: Rule("§3.1", "no hello in time", Origin.RULING),
    Fault.NOTE_NOT_UTF8: Rule("§3.2", "a note is UTF-8"),
}

UNREADABLE: Final = frozenset(fault for fault in Fault if fault < Fault.HELLO_EXPECTED)
"""Faults of frames that are no message: they go to `quarantine`."""
