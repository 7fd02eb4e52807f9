"""Fields of Relink: parts of the handshake (§1), general packets (§2.2) and channel packets (§2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wirelake.explore.bytes.layout import Flags, Tiling, hex_of, number_le, text_of
from wirelake.protocols.kernel import KIND, LENGTH, PART, PARTS, START
from wirelake.protocols.relink.messages import TYPES, Format, HandshakeFlag, Kind, name_of
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
    ODDITIES,
    PART_COLUMNS,
    PART_LENGTH,
    PART_START,
    SEQUENCE,
)

__all__ = ["REST", "lay_out"]

REST: Final = "padding"
"""The name of bytes that are left."""
_FLAGS: Final = Flags(HandshakeFlag)
_NAMES: Final = {number.value: name_of(message) for message, number in TYPES.items()}


def lay_out(cut: Tiling, data: bytes, row: Sequence[int], parts: Sequence[int]) -> None:  # noqa: ARG001 - as in every protocol
    """Cut a scanned packet, or part of the handshake, into its fields."""
    kind = row[KIND]
    cut.put("size", row[LENGTH])
    if kind in _NAMES:
        cut.put("type_name", _NAMES.get(kind, ""))
    if kind >= Kind.VERSION.value:
        _handshake(cut, row)
    elif row[FLAGS] & 1 == 0:
        cut.take("packet type", 1, _NAMES.get(kind, str(kind)))
        cut.put("type", kind & 7)
    else:
        _channel(cut, row, parts)
    cut.put("oddities", row[ODDITIES])


def _handshake(cut: Tiling, row: Sequence[int]) -> None:
    """§1."""
    if row[KIND] == Kind.VERSION.value:
        cut.take("version", 1, number_le)
        return
    if row[KIND] == Kind.REQUEST.value:
        flags = row[FLAGS]
        cut.take("endpoint length", 1, number_le)
        cut.until("endpoint", row[BODY] + row[BODY_LENGTH], text_of)
        cut.take("connector_id_size", 1, number_le)
        cut.take("listener_id_size", 1, number_le)
        cut.take("flags", 1, _FLAGS)
        cut.put("connector_transactions", flags & HandshakeFlag.CONNECTOR_TRANSACTIONS.value != 0)
        cut.put("listener_transactions", flags & HandshakeFlag.LISTENER_TRANSACTIONS.value != 0)
        cut.put("require_old_link", flags & HandshakeFlag.REQUIRE_OLD_LINK.value != 0)
        cut.padding(cut.stop - LINK)
    cut.take("epoch", 8, number_le)
    cut.take("link_id", 8, number_le)


def _channel(cut: Tiling, row: Sequence[int], parts: Sequence[int]) -> None:
    """§2.3."""
    first, start, kind, form = row[FLAGS], row[START], row[KIND], (row[FLAGS] >> 2) & 7
    is_message = form == Format.MESSAGE.value
    words = _NAMES.get(kind, str(kind))
    if first & MULTICAST:
        words += " multicast"
    if is_message and first & LONG:
        words += " long"
    if is_message and first & LARGE:
        words += " large"
    cut.take("packet type", 1, words)
    if not is_message:
        cut.put("type", kind & 7)
    cut.put("format", form)
    cut.put("multicast", first & MULTICAST != 0)
    if is_message and not first & LONG:
        cut.take("number of parts", 1, number_le)
    else:
        cut.take("unused", 1, hex_of)
    if first & MULTICAST:
        cut.padding(start + 4)
        cut.take("number of channels", 4, number_le)
    cut.put("channel_id_size", row[ID_SIZE])
    cut.put("channel_id_count", row[COUNT])
    cut.until("channel ids", row[IDS], column="unread_ids")
    for index in range(row[COUNT]):
        label = ""
        if row[COUNT] > 1:
            label = f"channel {index}"
        cut.take("channel id", row[ID_SIZE], hex_of, label, "channel_ids")
    if is_message:
        _message(cut, row, parts)
    elif row[SEQUENCE] >= 0:
        cut.padding(start + ((cut.at - start + 3) & ~3))
        cut.take("sequence", 4, number_le)


def _message(cut: Tiling, row: Sequence[int], parts: Sequence[int]) -> None:
    """§2.3.3: the sizes of the parts, then each at a multiple of 8."""
    first, start = row[FLAGS], row[START]
    cut.put("long", first & LONG != 0)
    cut.put("large", first & LARGE != 0)
    cut.padding(start + ((cut.at - start + 1) & ~1))
    if first & LONG:
        cut.take("number of parts", 4, number_le)
    cut.put("message_length", row[PARTS])
    wide = 8 if first & LARGE else 2
    cut.padding(start + ((cut.at - start + wide - 1) & -wide))
    for index in range(row[PARTS]):
        cut.take("size", wide, number_le, f"part {index}", "part_size")
    for index in range(row[PARTS]):
        at = (row[PART] + index) * PART_COLUMNS
        cut.padding(parts[at + PART_START])
        cut.take("data", parts[at + PART_LENGTH], text_of, f"part {index}", "payload")
