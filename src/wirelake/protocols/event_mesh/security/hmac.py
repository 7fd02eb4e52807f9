"""HMAC-SHA256 (RFC 2104) by keys that are used again and again: a key is begun with once, and each use begins from there.

It refuses to know packets.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hmac import HMAC

__all__ = ["begun", "mac"]


@lru_cache(maxsize=4096)
def begun(secret: bytes) -> HMAC:
    """An HMAC that has seen its key and nothing else; to be copied, not used."""
    from cryptography.hazmat.primitives import hashes, hmac  # noqa: PLC0415 - only who verifies pays for it

    return hmac.HMAC(secret, hashes.SHA256())


def mac(secret: bytes, covered: bytes) -> bytes:
    """§5.1: the HMAC of these bytes; less than half the time of one call that begins anew with the key."""
    one = begun(secret).copy()
    one.update(covered)
    return one.finalize()
