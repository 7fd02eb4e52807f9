"""A slow and obvious reader of a datagram: EMM-28 as a list of checks, one after the other, each over all fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

FIXED = {0x02: 4, 0x03: 4, 0x10: 32, 0x12: 64, 0x13: 32, 0x14: 16, 0x15: 8, 0x16: 12, 0x17: 16, 0x18: 4}
SUB_FIXED = {1: 1, 2: 1, 4: 12, 5: 16}
REQUIRED = {1: (0x14, 0x04), 2: (0x14, 0x15), 3: (0x01,)}
TAIL = (0x13, 0x18, 0x10, 0x12)


class Tlv(NamedTuple):
    at: int
    kind: int
    value: bytes


class Overrun(Exception):
    pass


def split(data: bytes, at: int, end: int) -> Iterator[Tlv]:
    while at < end:
        if end - at < 2 or at + 2 + data[at + 1] > end:
            raise Overrun(at)
        yield Tlv(at, data[at], data[at + 2 : at + 2 + data[at + 1]])
        at += 2 + data[at + 1]


def whole(data: bytes, at: int, end: int) -> list[Tlv]:
    """As many as can be read."""
    found = []
    try:
        for one in split(data, at, end):
            found.append(one)
    except Overrun:
        pass
    return found


def joined(tlvs: list[Tlv], kind: int) -> list[bytes]:
    values, is_open = [], False
    for one in tlvs:
        if one.kind == kind:
            if is_open:
                values[-1] += one.value
            else:
                values.append(one.value)
            is_open = len(one.value) == 255
    return values


def is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def reason(data: bytes, max_payload: int = 531, max_tlvs: int = 64, profile: bool = False) -> str | None:
    """The first check of EMM-28 that fails, by its word."""
    if len(data) < 17:
        return "short-packet"
    if data[0] != 1:
        return "unsupported-version"
    flags, kind, size = data[5], data[6], int.from_bytes(data[15:17])
    if flags & 0xF8:
        return "reserved-flags"
    if size > max_payload:
        return "payload-too-large"
    if len(data) != 17 + size:
        return "length-mismatch"
    try:
        tlvs = list(split(data, 17, len(data)))
    except Overrun:
        return "tlv-overrun"
    inside = [sub for one in tlvs if one.kind == 0x11 for sub in whole(one.value, 0, len(one.value))]
    if len(tlvs) + len(inside) > max_tlvs:
        return "tlv-count"
    kinds = [one.kind for one in tlvs]
    if any(kinds.count(one) > 1 for one in range(0x10, 0x19)):
        return "duplicate-tlv"
    if 0x12 in kinds and kinds[-1] != 0x12:
        return "signature-not-last"
    if 0x10 in kinds and kinds[-1] != 0x10 and kinds[-2:] != [0x10, 0x12]:
        return "hmac-position"
    if any(len(one.value) != FIXED.get(one.kind, len(one.value)) for one in tlvs):
        return "field-length"
    if not all(is_text(value) for one in (1, 5) for value in joined(tlvs, one)):
        return "invalid-utf8"
    first = {one.kind: one.value for one in reversed(tlvs)}
    if 0x11 in first and (wrong := metadata_reason(first)):
        return wrong
    if flags & 2 and 0x11 not in first:
        return "enc-metadata-missing"
    if 0x11 in first and not flags & 2:
        return "enc-flag-missing"
    for needed in REQUIRED.get(kind, ()):
        if needed not in first and not (needed < 0x10 and flags & 6):
            return "missing-required-field"
    is_proven = 0x10 in first or 0x12 in first
    if is_proven and 0x14 not in first:
        return "missing-node-id"
    if profile:
        if not is_proven or 0x14 not in first or 0x18 not in first:
            return "profile-field-missing"
        if not in_order(tlvs):
            return "profile-order"
    return None


def metadata_reason(first: dict[int, bytes]) -> str | None:
    value = first[0x11]
    try:
        subs = list(split(value, 0, len(value)))
    except Overrun:
        return "sub-tlv-overrun"
    kinds = [one.kind for one in subs]
    if any(kinds.count(one) > 1 for one in range(1, 6)):
        return "duplicate-sub-tlv"
    if any(len(one.value) != SUB_FIXED.get(one.kind, len(one.value)) for one in subs):
        return "sub-field-length"
    found = {one.kind: one.value for one in subs}
    if 1 not in found:
        return "enc-no-algorithm"
    if 3 in found and 4 in found:
        return "enc-iv-and-nonce"
    if 3 not in found and 4 not in found:
        return "enc-no-iv-or-nonce"
    if 2 in found and found[2][0] >= 0x80:
        return "enc-length-msb"
    if 2 in found and (3 not in found or len(found[3]) != found[2][0]):
        return "enc-iv-length-mismatch"
    if (found[1] == b"\x01" and len(found.get(3, b"")) != 12) or (found[1] == b"\x02" and 4 not in found):
        return "enc-algorithm-iv"
    if 0x16 in first and first[0x16] != found.get(4, first[0x16]):
        return "enc-nonce-conflict"
    if 0x17 in first and first[0x17] != found.get(5, first[0x17]):
        return "enc-key-id-conflict"
    return None


def in_order(tlvs: list[Tlv]) -> bool:
    ranks = [0x100 + TAIL.index(one.kind) if one.kind in TAIL else one.kind for one in tlvs]
    inside = [[sub.kind for sub in whole(one.value, 0, len(one.value))] for one in tlvs if one.kind == 0x11]
    return all(one == sorted(one) for one in (ranks, *inside[:1]))


def canonical(data: bytes) -> bytes:
    """§4.2, Canonicalization, word for word."""
    kept = [one for one in split(data, 17, len(data)) if one.kind not in (0x10, 0x12)]
    pieces = []
    for one in sorted(kept, key=lambda one: one.kind):
        value = one.value
        if one.kind == 0x11:
            value = b"".join(
                bytes((sub.kind, len(sub.value))) + sub.value for sub in sorted(split(value, 0, len(value)), key=lambda sub: sub.kind)
            )
        pieces.append(bytes((one.kind, len(value))) + value)
    return data[:17] + b"".join(pieces)
