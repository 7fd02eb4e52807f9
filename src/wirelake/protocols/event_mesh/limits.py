"""Limits of a reader of Event Mesh."""

from __future__ import annotations

from typing import Final

import msgspec

from wirelake.protocols.event_mesh.messages import MAX_PAYLOAD_SIZE, MAX_TLV_COUNT

__all__ = ["DEFAULT_LIMITS", "Limits"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a reader of Event Mesh."""

    max_payload_size: int = MAX_PAYLOAD_SIZE
    """EMM-4: bytes after the header."""
    max_tlv_count: int = MAX_TLV_COUNT
    """EMM-26: fields, and fields inside encryption metadata, together."""
    max_inflated_size: int = 64 * 1024
    """EMM-14: bytes of a payload after decompression."""
    minimum_profile: bool = False
    """EMM-31: accept only what the minimum interop profile allows."""

    @property
    def max_parts(self) -> int:
        """The most parts that one packet can have."""
        return self.max_tlv_count

    def for_scan(self) -> tuple[int, int, int]:
        """The limits as arguments of the scanner."""
        return (self.max_payload_size, self.max_tlv_count, 1 if self.minimum_profile else 0)


DEFAULT_LIMITS: Final = Limits()
