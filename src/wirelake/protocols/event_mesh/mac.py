"""HMAC-SHA256 (RFC 2104) by keys that are used again and again: each key's two blocks are hashed once. It refuses to know packets."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hashlib import _Hash

__all__ = ["mac"]

_BLOCK: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


@lru_cache(maxsize=4096)
def _begun(secret: bytes) -> tuple[_Hash, _Hash]:
    """The inner and the outer hash after the key."""
    block = (hashlib.sha256(secret).digest() if len(secret) > _BLOCK else secret).ljust(_BLOCK, b"\0")
    return hashlib.sha256(block.translate(_INNER)), hashlib.sha256(block.translate(_OUTER))


def mac(secret: bytes, covered: bytes) -> bytes:
    """§5.1: the HMAC of these bytes; a third of the time of the library's one call, which begins anew with the key."""
    inner, outer = _begun(secret)
    inner = inner.copy()
    inner.update(covered)
    outer = outer.copy()
    outer.update(inner.digest())
    return outer.digest()
