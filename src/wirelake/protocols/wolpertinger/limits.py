"""Limits of a reader of wolpertinger."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["DEFAULT_LIMITS", "Limits"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a reader of wolpertinger, checked before anything is buffered."""

    max_text_size: int = 256 * 1024
    """WOLP-29: bytes in a text, line feed not counted."""
    max_fragments: int = 4096
    """WOLP-9: fragments of a message."""
    max_reassembled_size: int = 64 * 1024 * 1024
    """WOLP-29: bytes of a message in fragments, and of all fragments that wait for others."""
    max_inflated_size: int = 64 * 1024 * 1024
    """WOLP-29: bytes of a payload after decompression."""

    @property
    def max_parts(self) -> int:
        """Texts have no parts."""
        return 0

    def for_scan(self) -> tuple[int, int, int]:
        """The limits as the scanner takes them, for lines."""
        return (self.max_text_size, self.max_fragments, 1)

    def for_text(self) -> tuple[int, int, int]:
        """The limits as the scanner takes them, for one whole text, in which a line feed is a blank."""
        return (self.max_text_size, self.max_fragments, 0)


DEFAULT_LIMITS: Final = Limits()
