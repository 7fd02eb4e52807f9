"""The rules of PIGEON/1 that can be broken, each with its clause and one sentence."""

from __future__ import annotations

from typing import Final

from wirelake.protocols.faults import LIMIT, MAY, MUST, RULING, TEXT, Faults, Rule

__all__ = ["UNREADABLE", "Fault"]


class Fault(Faults):
    """The broken rules; 0 in a scanned row means none."""

    # It is not known where the next frame begins.
    NOT_A_FRAME = Rule(1, "§2.1", "a frame begins with the letter P", TEXT, MUST)
    BODY_OVER_LIMIT = Rule(2, "§2.3", "a body is larger than this side accepts", LIMIT, MAY)

    # This frame cannot be read, the next one can.
    TYPE_UNKNOWN = Rule(10, "§2.2", "the type of a frame is 1, 2, 3 or 4", TEXT, MUST)
    BODY_SIZE = Rule(11, "§2.3", "a body has the size that its type demands", TEXT, MUST)
    MESSAGE_CUT = Rule(12, "§2.3", "the bytes end inside a frame", RULING, MAY)
    FIELD_OUT_OF_RANGE = Rule(13, "§2.3", "a value that its field cannot hold", TEXT, MUST)

    # Breaches of the state machine, and of the connection.
    HELLO_EXPECTED = Rule(40, "§3.1", "the first frame of either side is a hello, and there is no other", TEXT, MUST)
    SENT_AFTER_BYE = Rule(41, "§3.3", "a frame after its sender's bye", TEXT, MUST)
    CLOSED_WITHOUT_BYE = Rule(42, "§3.3", "a connection is closed after a bye", TEXT, MUST)
    HELLO_TIMEOUT = Rule(43, "§3.1", "no hello in time", LIMIT, MAY)

    # Counted, and otherwise ignored.
    NOTE_NOT_UTF8 = Rule(90, "§3.2", "a note is UTF-8", TEXT, MUST)


UNREADABLE: Final = frozenset(fault for fault in Fault if fault < Fault.HELLO_EXPECTED)
"""Faults of frames that are no message: they go to `quarantine`."""
