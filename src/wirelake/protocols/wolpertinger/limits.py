"""What a reader of wolpertinger accepts at most. It refuses to read anything."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["DEFAULT_LIMITS", "Limits"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader of wolpertinger accepts at most."""

    max_text_size: int = 256 * 1024
    """WOLP-29: bytes in a text, line feed not counted."""
    max_fragments: int = 4096
    """WOLP-9: pieces of a message."""
    max_reassembled_size: int = 64 * 1024 * 1024
    """WOLP-29: bytes of a message that came in pieces, and of all pieces that wait for others."""
    max_inflated_size: int = 64 * 1024 * 1024
    """WOLP-29: bytes of a payload after decompression."""

    @property
    def max_parts(self) -> int:
        """Texts have no parts."""
        return 0

    def for_scan(self) -> tuple[int, int, int]:
        """The same as the scanner wants it, for lines."""
        return (self.max_text_size, self.max_fragments, 1)

    def for_text(self) -> tuple[int, int, int]:
        """The same for one whole text, in which a line feed is a blank."""
        return (self.max_text_size, self.max_fragments, 0)


DEFAULT_LIMITS: Final = Limits()
