"""Sequence numbers: 32 bits that wrap on the wire (§3.1), unbounded inside.

An acknowledgement is a range that begins at a cursor.
"""

from __future__ import annotations

from typing import Final

from wirelake.protocols.relink.faults import Fault, Violation
from wirelake.protocols.relink.messages import LAST_SEQUENCE

__all__ = ["HALF", "distance", "is_behind", "on_wire", "reach"]

HALF: Final = 1 << 31
"""RELINK-15: windows stay below this, so that ahead and behind can be distinguished."""


def on_wire(number: int) -> int:
    """A number as 32 bits; -1, which is nothing yet, is 2^32-1 (RELINK-15)."""
    return number & LAST_SEQUENCE


def distance(sequence: int, number: int) -> int:
    """RELINK-15: how far a sequence number is ahead of a number, or behind: from -2^31 to 2^31-1."""
    return ((sequence - number + HALF) & LAST_SEQUENCE) - HALF


def reach(cursor: int, sequence: int | None, most: int, fault: Fault = Fault.ACKNOWLEDGED_TOO_MUCH) -> int:
    """RELINK-15: the number that a sequence reaches from a cursor.

    Raises Violation if that is more than `most` ahead.
    """
    distance = 1 if sequence is None else (sequence - cursor) & LAST_SEQUENCE
    if distance > most:
        target = "the next" if sequence is None else str(sequence)
        raise Violation(fault, f"{target} from {on_wire(cursor)}, {max(most, 0)} outstanding")
    return cursor + distance


def is_behind(cursor: int, sequence: int | None) -> bool:
    """A sequence that the cursor has passed: a repetition."""
    return sequence is not None and -HALF < distance(sequence, cursor) < 0
