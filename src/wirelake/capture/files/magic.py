"""First bytes: which files are captures, and which are packed. It needs no arrays, so that a short command can ask."""

from __future__ import annotations

from typing import Final

from wirelake.capture.containers import pcap, pcapng

__all__ = ["COMPRESSIONS", "HEAD_SIZE", "capture_kind", "compression_of"]

HEAD_SIZE: Final = 24
"""First bytes of a file that tell which container it is."""
COMPRESSIONS: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""First bytes -> how a file is packed."""


def compression_of(head: bytes) -> str:
    """How a file that begins like this is packed; empty if it is not."""
    return next((how for magic, how in COMPRESSIONS.items() if head.startswith(magic)), "")


def capture_kind(head: bytes) -> str:
    """`pcap` or `pcapng` if these are the first bytes of one; otherwise empty."""
    if head[:4] in pcap.MAGICS:
        return "pcap"
    orders = (int.from_bytes(head[8:12], "little"), int.from_bytes(head[8:12], "big"))
    return "pcapng" if head[:4] == pcapng.MAGIC and pcapng.BYTE_ORDER_MAGIC in orders else ""
