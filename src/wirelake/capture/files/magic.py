"""Recognise a file by its magic number: pcap, pcapng, gzip or zstd.

Does not import numpy, so that short commands can use it.
"""

from __future__ import annotations

from typing import Final

from wirelake.capture.containers import pcap, pcapng

__all__ = ["COMPRESSIONS", "HEAD_SIZE", "capture_kind", "compression_of"]

HEAD_SIZE: Final = 24
"""Bytes at the start of a file that show which container it is."""
COMPRESSIONS: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""Magic number -> compression."""


def compression_of(head: bytes) -> str:
    """Return the compression of a file that begins like this; empty if it is not compressed."""
    return next((how for magic, how in COMPRESSIONS.items() if head.startswith(magic)), "")


def capture_kind(head: bytes) -> str:
    """Return `pcap` or `pcapng` by the first bytes of a file; empty if it is neither."""
    if head[:4] in pcap.MAGICS:
        return "pcap"
    orders = (int.from_bytes(head[8:12], "little"), int.from_bytes(head[8:12], "big"))
    return "pcapng" if head[:4] == pcapng.MAGIC and pcapng.BYTE_ORDER_MAGIC in orders else ""
