"""Layout: the fields of a frame, in order and without gaps; every byte is in exactly one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from wirelake.text import visible

__all__ = ["SHOWN_CHARACTERS", "Field", "Layer", "Tiling", "hex_of", "number_be", "number_le", "text_of"]

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


class Tiling:
    """Cuts data into fields, from its start to its end."""

    def __init__(self, data: bytes, start: int = 0, stop: int | None = None) -> None:
        self._data = data
        self.at = start
        self.stop = len(data) if stop is None else stop
        self.fields: list[Field] = []

    def take(self, name: str, size: int, show: Callable[[bytes], str] | str = hex_of, group: str = "") -> bytes:
        """Cut the next field off; one that would reach beyond the end is shorter. `show` is its value, or makes it of the bytes."""
        start, self.at = self.at, min(self.stop, self.at + max(0, size))
        raw = self._data[start : self.at]
        if raw:
            self.fields.append(Field(name, start, self.at, show if isinstance(show, str) else show(raw), group))
        return raw

    def until(self, name: str, place: int, show: Callable[[bytes], str] | str = hex_of, group: str = "") -> bytes:
        """Cut off everything before a place."""
        return self.take(name, place - self.at, show, group)

    def padding(self, place: int, group: str = "") -> None:
        """Cut off unused bytes before a place."""
        self.until("padding", place, hex_of, group)

    def finish(self, name: str = "rest") -> list[Field]:
        """Return the fields; bytes that are left are one more."""
        self.until(name, self.stop)
        return self.fields
