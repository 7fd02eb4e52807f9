"""Format numbers, sizes and times for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = ["clock", "count", "day", "duration", "hex_dump", "instant", "many", "moment", "percent", "rate", "size"]

_SIZES: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_MICROSECONDS: Final = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"))
"""Lengths of the units that are written in pairs."""
_ROUND_FROM: Final = 100
"""From this value on, no decimal is written."""
_DUMP_WIDTH: Final = 16


def count(number: int) -> str:
    """12,345."""
    return f"{number:,}"


def many(number: int, one: str, several: str = "") -> str:
    """1 file, 2 files; `several` is the plural if it is not `one` with an s."""
    return f"{count(number)} {one if number == 1 else several or one + 's'}"


def percent(part: int, whole: int) -> str:
    """A share; never 100 % or 0 % unless it is exactly that."""
    if not whole or part in (0, whole):
        return "100 %" if part else "0 %"
    share = 100 * part / whole
    return "< 0.1 %" if share < 0.1 else "> 99.9 %" if share > 99.9 else f"{share:.1f} %"


def rate(number: int, microseconds: int) -> str:
    """How many a second: 0.02, 3.5, 1,200."""
    value = 1_000_000 * number / microseconds
    return f"{value:,.0f}" if value >= _ROUND_FROM else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def size(octets: int) -> str:
    """340 B, 6.2 MiB."""
    if octets < 1024:
        return f"{octets} B"
    value = float(octets)
    for unit in _SIZES:
        value /= 1024
        if value < 1000 or unit == _SIZES[-1]:
            break
    return f"{value:.0f} {unit}" if value >= _ROUND_FROM else f"{value:.1f} {unit}"


def duration(microseconds: float) -> str:
    """640 µs, 3.8 ms, 12.5 s, 48 min 32 s, 3 d 4 h."""
    for factor, unit in ((1, "µs"), (1000, "ms"), (1_000_000, "s")):
        value = microseconds / factor
        if value < (60 if unit == "s" else 1000):
            whole = value >= _ROUND_FROM or value == int(value)
            return f"{value:.0f} {unit}" if whole else f"{value:.1f} {unit}" if value >= 1 else f"{value:.2f} {unit}"
    left, parts = round(microseconds), []
    for length, unit in _MICROSECONDS:
        if amount := left // length:
            parts.append(f"{amount} {unit}")
        left -= amount * length
        if len(parts) == 2 or (parts and not left):
            break
    return " ".join(parts)


def _at(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds // 1_000_000, UTC)


def day(microseconds: int) -> str:
    """15 Nov 2025."""
    at = _at(microseconds)
    return f"{at.day} {at:%b %Y}"


def clock(microseconds: int) -> str:
    """09:46:40."""
    return f"{_at(microseconds):%H:%M:%S}"


def moment(microseconds: int) -> str:
    """15 Nov 2025 09:46:40."""
    return f"{day(microseconds)} {clock(microseconds)}"


def instant(microseconds: int) -> str:
    """15 Nov 2025 09:46:40.123456."""
    return f"{moment(microseconds)}.{microseconds % 1_000_000:06d}"


def hex_dump(data: bytes) -> str:
    """Sixteen bytes a line, in hex and, where they are printable ASCII, as characters."""
    lines = []
    for at in range(0, len(data), _DUMP_WIDTH):
        piece = data[at : at + _DUMP_WIDTH]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in piece)
        lines.append(f"{piece.hex(' '):<{3 * _DUMP_WIDTH - 1}}  {shown}")
    return "\n".join(lines)
