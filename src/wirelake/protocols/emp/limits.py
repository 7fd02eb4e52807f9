"""Limits of a reader of EMP, and the dialect it reads."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from wirelake.protocols.dialects import Flag

__all__ = ["DEFAULT_LIMITS", "Limits"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a reader of EMP."""

    max_message_size: int = 16 * 1024 * 1024
    """EMP-35: bytes in an envelope, checked before anything is buffered."""
    max_extension_blocks: int = 16
    """EMP-36: extension blocks in a message."""
    max_nested_compression: int = 4
    """EMP-8: compression blocks in a message."""
    max_body_size: int = 16 * 1024 * 1024
    """EMP-37: bytes of a body after decompression."""
    sizes_exclude_themselves: Flag = False
    """EMP-1, EMP-2: for peers whose sizes do not count the four bytes of the size field.

    `auto`: found out from the peer's hello.
    """

    DIALECT: ClassVar = ("sizes_exclude_themselves",)
    """The flags that say how the peer departs from the text."""

    @property
    def max_parts(self) -> int:
        """The most parts that one message can have."""
        return self.max_extension_blocks

    @property
    def size_bias(self) -> int:
        """Bytes of an envelope or block that its size does not count.

        `auto` means none until the dialect is known.
        """
        return 4 if self.sizes_exclude_themselves is True else 0

    def for_scan(self) -> tuple[int, int, int, int]:
        """The limits as arguments of the scanner."""
        return (self.max_message_size, self.max_extension_blocks, self.max_nested_compression, self.size_bias)


DEFAULT_LIMITS: Final = Limits()
