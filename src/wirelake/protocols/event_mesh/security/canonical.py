"""The bytes of a packet that its HMAC and its signature cover, and the HMAC of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from wirelake.protocols.event_mesh.messages import HEADER, Field, FieldType
from wirelake.protocols.event_mesh.scanner import CANONICAL, PART_COLUMNS
from wirelake.protocols.kernel import PART, PARTS, START

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hmac import HMAC

__all__ = ["canonical", "canonical_payload", "keyed_hmac", "mac"]


def canonical(data: bytes, row: Sequence[int], parts: Sequence[int]) -> bytes:
    """§4.2, EMM-7: the header as sent, and all fields but HMAC and signature, sorted by type.

    Total over readable rows.
    """
    start = row[START]
    if row[CANONICAL]:
        return data[start : start + row[CANONICAL]]
    fields: list[Field] = []
    for index in range(row[PART], row[PART] + row[PARTS]):
        at, length, kind, parent = parts[index * PART_COLUMNS : (index + 1) * PART_COLUMNS]
        if not parent:
            fields.append(Field(kind, data[at + 2 : at + 2 + length]))
    return data[start : start + HEADER] + canonical_payload(fields)


def canonical_payload(fields: Iterable[Field]) -> bytes:
    """EMM-7, EMM-8: fields of one type keep their order; only encryption metadata is sorted inside."""
    kept = (field for field in fields if field.type not in (FieldType.HMAC, FieldType.SIGNATURE))
    return b"".join(
        bytes((field.type, len(field.value))) + (_sorted_inside(field.value) if field.type == FieldType.ENCRYPTION else field.value)
        for field in sorted(kept, key=lambda field: field.type)
    )


def _sorted_inside(value: bytes) -> bytes:
    """EMM-8: the fields of encryption metadata in ascending order, none left out.

    What is no whole field stays at the end.
    """
    pieces: list[bytes] = []
    at = 0
    while len(value) - at >= 2 and len(value) - at - 2 >= value[at + 1]:
        pieces.append(value[at : at + 2 + value[at + 1]])
        at += 2 + value[at + 1]
    pieces.sort(key=lambda piece: piece[0])
    return b"".join(pieces) + value[at:]


@lru_cache(maxsize=4096)
def keyed_hmac(secret: bytes) -> HMAC:
    """HMAC-SHA256 (RFC 2104) that has read its key and nothing else. Copy it before use: it is cached."""
    from cryptography.hazmat.primitives import hashes, hmac  # noqa: PLC0415 - only verifying needs cryptography

    return hmac.HMAC(secret, hashes.SHA256())


def mac(secret: bytes, covered: bytes) -> bytes:
    """§5.1: the HMAC of these bytes. A cached key more than halves the time."""
    code = keyed_hmac(secret).copy()
    code.update(covered)
    return code.finalize()
