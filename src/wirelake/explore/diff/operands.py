"""Operands: what people write to name a side of a comparison.

`LAKE` is a whole lake, `LAKE::FILTER` the messages of it that a filter lets through, and `LAKE::message:ID` one message. The second side
may leave out the lake: `::FILTER` is of the same one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from wirelake.errors import UsageError
from wirelake.filters import Filter, parse

__all__ = ["Operand", "operands"]

_MESSAGE: Final = re.compile(r"\s*message:([0-9A-Fa-f]+)\s*")


class Operand(msgspec.Struct, frozen=True):
    """One side: a lake with a filter, or with the id of a message."""

    lake: Path
    wanted: Filter
    message: str | None = None

    def __str__(self) -> str:
        """As it is written."""
        chosen = f"message:{self.message}" if self.message else str(self.wanted)
        return f"{self.lake}::{chosen}" if chosen else str(self.lake)


def operands(first: str, second: str, *, now: float | None = None) -> tuple[Operand, Operand]:
    """Read both sides. Raises UsageError."""
    one = _operand(first, None, now)
    other = _operand(second, one.lake, now)
    if (one.message is None) != (other.message is None):
        raise UsageError("compare a message with a message: write both sides as LAKE::message:ID")
    return one, other


def _operand(text: str, same: Path | None, now: float | None) -> Operand:
    name, _, chosen = text.partition("::")
    if not name and same is None:
        raise UsageError(f"{text!r} names no lake: write LAKE or LAKE::FILTER; only the second side may leave out the lake")
    lake = Path(name) if name else same
    assert lake is not None  # noqa: S101 - checked above
    found = _MESSAGE.fullmatch(chosen)
    return Operand(lake, parse("" if found else chosen, now=now), found[1].lower() if found else None)
