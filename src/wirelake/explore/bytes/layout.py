"""Layout: the fields of a frame, in order and without gaps; every byte is in exactly one of them.

Each protocol has a function `lay_out(cut, data, row, parts)` here. It is the one description of where the fields are and which columns of
the table they fill. `Tiling` makes fields for people of it. `explore/dissector` translates the same function to Lua for Wireshark. So
such functions use only the part of Python that kernels use, and methods of `Tiling`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum, IntFlag
from typing import Final

import msgspec

from wirelake.text import visible

__all__ = [
    "SHOWN_CHARACTERS",
    "Bit",
    "Field",
    "Flags",
    "Layer",
    "Named",
    "Show",
    "Tiling",
    "Truth",
    "hex_of",
    "is_show",
    "number_be",
    "number_le",
    "text_of",
]

SHOWN_CHARACTERS: Final = 200
"""Characters of a value that a field shows; its bytes are all there."""


class Field(msgspec.Struct, frozen=True):
    """A run of bytes with one meaning."""

    name: str
    start: int
    stop: int
    value: str
    group: str = ""
    """The part of the frame that it is in, such as an extension block; empty: the frame itself."""


class Layer(msgspec.Struct):
    """The bytes of a message as one layer sees them."""

    name: str
    """`frame` as it was sent; then what is inside."""
    data: bytes
    fields: list[Field]
    text: str | None = None
    """The bytes as a formatted document, if they are one."""
    syntax: str | None = None
    """`json` or `xml`, with `text`."""


def hex_of(data: bytes) -> str:
    """Show bytes as hex digits."""
    return f"{data[: SHOWN_CHARACTERS // 2].hex()}{'…' if len(data) > SHOWN_CHARACTERS // 2 else ''}"


def text_of(data: bytes) -> str:
    """Show bytes as text if they are UTF-8, else as hex digits."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return hex_of(data)
    return visible(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…")


def number_be(data: bytes) -> str:
    """Show bytes as an unsigned number, most significant byte first."""
    return str(int.from_bytes(data, "big"))


def number_le(data: bytes) -> str:
    """Show bytes as an unsigned number, least significant byte first."""
    return str(int.from_bytes(data, "little"))


class Named:
    """Shows a code of one byte with its name."""

    def __init__(self, names: type[IntEnum], *, rest: Mapping[int, str] | None = None, form: str = "d") -> None:
        """`rest` has names for codes that the enum leaves to others."""
        self.names: dict[int, str] = {one.value: one.name.lower() for one in names} | dict(rest or {})
        self.form = form
        """How the number is written: `d` or `02x`."""

    def __call__(self, data: bytes) -> str:
        """Show one byte."""
        return self.of(data[0])

    def of(self, code: int) -> str:
        """Show a code."""
        number = f"0x{code:02x}" if self.form == "02x" else str(code)
        return f"{number} {self.names[code]}" if code in self.names else number


class Flags:
    """Shows a byte of flags with the names of those that are set."""

    def __init__(self, flags: type[IntFlag]) -> None:
        self.names: dict[int, str] = {flag.value: flag.name.lower() for flag in flags if flag.name}

    def __call__(self, data: bytes) -> str:
        """Show one byte."""
        names = [name for bit, name in self.names.items() if data[0] & bit]
        return f"0x{data[0]:02x} {' '.join(names)}".strip()


class Bit:
    """Shows one bit of a byte by the word for each of its values."""

    def __init__(self, mask: int, is_set: str, is_clear: str) -> None:
        self.mask = mask
        self.words = (is_clear, is_set)

    def __call__(self, data: bytes) -> str:
        """Show one byte."""
        return self.words[data[0] & self.mask != 0]


class Truth:
    """Shows a byte that is a truth value; one that is neither 0 nor 1 as its number."""

    def __call__(self, data: bytes) -> str:
        """Show one byte."""
        return {0: "false", 1: "true"}.get(data[0], str(data[0]))


Show = Callable[[bytes], str]


def is_show(value: object) -> bool:
    """Whether a value tells how bytes are shown."""
    return isinstance(value, Named | Flags | Bit | Truth) or value in (hex_of, text_of, number_be, number_le)


class Tiling:
    """Cuts data into fields, from its start to its end.

    `column` is the column of the protocol's table that a field fills, or `list.column` in a list of structs; without one it is called like
    the field. A field that fills no column has a name for Wireshark only.
    """

    def __init__(self, data: bytes, start: int = 0, stop: int | None = None) -> None:
        self._data = data
        self.at = start
        self.stop = len(data) if stop is None else stop
        self.fields: list[Field] = []

    def take(self, name: str, size: int, show: Show | str = hex_of, group: str = "", column: str = "") -> None:  # noqa: ARG002 - for Lua
        """Cut the next field off; one that would reach beyond the end is shorter. `show` is its value, or makes it of the bytes."""
        start, self.at = self.at, min(self.stop, self.at + max(0, size))
        raw = self._data[start : self.at]
        if raw:
            self.fields.append(Field(name, start, self.at, show if isinstance(show, str) else show(raw), group))

    def until(self, name: str, place: int, show: Show | str = hex_of, group: str = "", column: str = "") -> None:
        """Cut off everything before a place."""
        self.take(name, place - self.at, show, group, column)

    def padding(self, place: int, group: str = "") -> None:
        """Cut off unused bytes before a place."""
        self.until("padding", place, hex_of, group)

    def pair(self, colon: int, place: int) -> None:
        """Cut off a key, a colon, a value and a semicolon before a place."""
        key, value = self._data[self.at : colon], self._data[colon + 1 : place].removesuffix(b";")
        self.until(text_of(key.removesuffix(b";").lower()) or "pair", place, text_of(value))

    def put(self, column: str, value: float | str, group: str = "") -> None:
        """Fill a column that has no bytes of its own: a bit, a name, a count. The field before tells it."""

    def also(self, column: str, start: int, size: int, group: str = "") -> None:
        """Fill a column with bytes that are in other fields, too."""

    def piece(self, column: str, start: int, size: int, is_last: bool, first: str = "") -> None:
        """Fill a list with a value that is in several pieces; `first` is the column of its first value."""

    def finish(self, name: str = "rest") -> list[Field]:
        """Return the fields; bytes that are left are one more."""
        self.until(name, self.stop)
        return self.fields
