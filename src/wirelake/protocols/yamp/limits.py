"""Limits of a reader of YAMP, and the dialect it reads."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from wirelake.protocols.yamp.serializers.bounds import DEFAULT_BOUNDS, Bounds

__all__ = ["CLOSE_HEADER", "DEFAULT_LIMITS", "Limits", "MessageLimits"]

CLOSE_HEADER: Final = 3
"""Bytes of a close before its text: the type, and two of size."""


class MessageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a reader of YAMP, and its dialect, live and for captures."""

    max_body_size: int = 16 * 1024 * 1024
    """YAMP-43: bytes in a body, checked before anything is buffered."""
    one_byte_redirect_size: bool = False
    """YAMP-1: for peers whose close-redirect has one byte for the size of the url."""

    DIALECT: ClassVar = ("one_byte_redirect_size",)
    """The flags that say how the peer departs from the text."""

    @property
    def max_parts(self) -> int:
        """Messages of YAMP have no parts."""
        return 0

    def for_scan(self) -> tuple[int, int]:
        """The limits as arguments of the scanner: bytes of a body, and bytes before a redirect's url."""
        return (self.max_body_size, CLOSE_HEADER - 1 if self.one_byte_redirect_size else CLOSE_HEADER)


class Limits(MessageLimits, frozen=True, kw_only=True):
    """Limits of a reader of captures."""

    max_items: int = DEFAULT_BOUNDS.max_items
    """YAMP-44: items of a body that is turned into JSON for a table.

    A body with more is kept as bytes only.
    """
    max_depth: int = DEFAULT_BOUNDS.max_depth
    """YAMP-44: containers inside each other in such a body."""

    OFFLINE: ClassVar = ("max_items", "max_depth")
    """A live peer's serializers have bounds of their own."""

    @property
    def bounds(self) -> Bounds:
        """Bounds on the cost of parsing a body."""
        return Bounds(max_items=self.max_items, max_elements=min(self.max_items, DEFAULT_BOUNDS.max_elements), max_depth=self.max_depth)


DEFAULT_LIMITS: Final = Limits()
