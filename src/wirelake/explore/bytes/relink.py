"""Fields of Relink: parts of the handshake (§1), general packets (§2.2) and channel packets (§2.3)."""

from __future__ import annotations

from collections.abc import Sequence

from wirelake.explore.bytes.layout import Field, Tiling, hex_of, number_le, text_of
from wirelake.protocols.kernel import KIND, LENGTH, PART, PARTS, START
from wirelake.protocols.relink.messages import Format, HandshakeFlag, Kind
from wirelake.protocols.relink.scanner import (
    BODY,
    BODY_LENGTH,
    COUNT,
    FLAGS,
    ID_SIZE,
    IDS,
    LARGE,
    LINK,
    LONG,
    MULTICAST,
    PART_COLUMNS,
    PART_LENGTH,
    PART_START,
    SEQUENCE,
)

__all__ = ["fields"]


def fields(data: bytes, row: Sequence[int], parts: Sequence[int]) -> list[Field]:
    """Return the fields of a scanned packet, or part of the handshake."""
    cut = Tiling(data, row[START], row[START] + row[LENGTH])
    kind = row[KIND]
    if kind >= Kind.VERSION.value:
        _handshake(cut, row)
    elif row[FLAGS] & 1 == 0:
        cut.take("packet type", 1, _kind(kind))
    else:
        _channel(cut, row, parts)
    return cut.finish("padding")


def _kind(kind: int) -> str:
    return Kind(kind).name.lower() if kind in {one.value for one in Kind} else str(kind)


def _handshake(cut: Tiling, row: Sequence[int]) -> None:
    """§1."""
    if row[KIND] == Kind.VERSION.value:
        cut.take("version", 1, number_le)
        return
    if row[KIND] == Kind.REQUEST.value:
        cut.take("endpoint length", 1, number_le)
        cut.until("endpoint", row[BODY] + row[BODY_LENGTH], text_of)
        cut.take("connector_id_size", 1, number_le)
        cut.take("listener_id_size", 1, number_le)
        cut.take("flags", 1, _flags)
        cut.padding(cut.stop - LINK)
    cut.take("epoch", 8, number_le)
    cut.take("link_id", 8, number_le)


def _flags(raw: bytes) -> str:
    names = [flag.name.lower() for flag in HandshakeFlag if raw[0] & flag and flag.name]
    return f"0x{raw[0]:02x} {' '.join(names)}".strip()


def _channel(cut: Tiling, row: Sequence[int], parts: Sequence[int]) -> None:
    """§2.3."""
    first, start = row[FLAGS], row[START]
    form = (first >> 2) & 7
    is_message = form == Format.MESSAGE.value
    words = [_kind(row[KIND]), *(name for bit, name in ((MULTICAST, "multicast"),) if first & bit)]
    if is_message:
        words += [name for bit, name in ((LONG, "long"), (LARGE, "large")) if first & bit]
    cut.take("packet type", 1, " ".join(words))
    is_counted = is_message and not first & LONG
    cut.take("number of parts" if is_counted else "unused", 1, number_le if is_counted else hex_of)
    if first & MULTICAST:
        cut.padding(start + 4)
        cut.take("number of channels", 4, number_le)
    cut.until("channel ids", row[IDS])
    for index in range(row[COUNT] if row[ID_SIZE] else 0):
        cut.take("channel id", row[ID_SIZE], hex_of, f"channel {index}" if row[COUNT] > 1 else "")
    if is_message:
        _message(cut, row, parts)
    elif row[SEQUENCE] >= 0:
        cut.padding(start + ((cut.at - start + 3) & ~3))
        cut.take("sequence", 4, number_le)


def _message(cut: Tiling, row: Sequence[int], parts: Sequence[int]) -> None:
    """§2.3.3: the sizes of the parts, then each at a multiple of 8."""
    first, start = row[FLAGS], row[START]
    cut.padding(start + ((cut.at - start + 1) & ~1))
    if first & LONG:
        cut.take("number of parts", 4, number_le)
    wide = 8 if first & LARGE else 2
    cut.padding(start + ((cut.at - start + wide - 1) & -wide))
    for index in range(row[PARTS]):
        cut.take("size", wide, number_le, f"part {index}")
    for index in range(row[PARTS]):
        at = (row[PART] + index) * PART_COLUMNS
        cut.padding(parts[at + PART_START])
        cut.take("data", parts[at + PART_LENGTH], text_of, f"part {index}")
