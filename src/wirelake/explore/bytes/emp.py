"""Fields of EMP messages: envelope, extension blocks, body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wirelake.explore.bytes.layout import Bit, Named, Tiling, hex_of, number_be, text_of
from wirelake.protocols.emp.messages import APPLICATION_FIRST, TYPES, ErrorCode, ExtensionId, MessageType, Scheme, name_of
from wirelake.protocols.emp.scanner import (
    BODY,
    BODY_LENGTH,
    FLAG,
    HEADER,
    ODDITIES,
    PART_COLUMNS,
    PART_ID,
    PART_MORE,
    PART_SIZE,
    PART_START,
    REQUEST,
    SCHEME,
)
from wirelake.protocols.kernel import KIND, LENGTH, PART, PARTS, START

__all__ = ["REST", "lay_out"]

REST: Final = "body"
"""The name of bytes that are left."""
_TYPE: Final = Named(MessageType, rest=dict.fromkeys(range(APPLICATION_FIRST, 256), "application"))
_ERROR_CODE: Final = Named(ErrorCode)
_SCHEME: Final = Named(Scheme)
_EXTENDED: Final = Bit(FLAG, "extended", "0")
_MORE: Final = Bit(FLAG, "more", "last")
_IS_REQUEST: Final = Bit(FLAG, "request", "response")
_TYPE_NAMES: Final = {number.value: name_of(message) for message, number in TYPES.items()}
_EXTENSIONS: Final = {ExtensionId.REQUEST_RESPONSE.value: "request-response", ExtensionId.COMPRESSION.value: "compression"}


def lay_out(cut: Tiling, data: bytes, row: Sequence[int], parts: Sequence[int]) -> None:  # noqa: ARG001 - as in every protocol
    """Cut a scanned message into its fields."""
    kind = row[KIND]
    cut.take("size", 4, number_be, column="announced_size")
    cut.put("size", row[LENGTH])
    cut.take("type", 1, _TYPE)
    cut.put("type_name", _TYPE_NAMES.get(kind, "application"))
    cut.take("flags", 1, _EXTENDED)
    cut.take("unused", 2)
    block = -1
    for index in range(row[PARTS]):
        at = (row[PART] + index) * PART_COLUMNS
        _block(cut, parts[at + PART_START], parts[at + PART_SIZE], parts[at + PART_ID], parts[at + PART_MORE], index)
        if block < 0 and parts[at + PART_ID] == ExtensionId.REQUEST_RESPONSE.value:
            block = parts[at + PART_START]
    cut.until("extensions", row[BODY], column="unread_extensions")
    if row[REQUEST] >= 0:
        cut.put("request", row[REQUEST] != 0)
        cut.also("request_id", block + HEADER + 4, 8)
    if row[SCHEME] >= 0:
        cut.put("scheme", row[SCHEME])
    _body(cut, kind, row[START] + row[LENGTH])
    has_no_fields = kind != MessageType.HELLO.value and kind != MessageType.ERROR.value
    if kind >= MessageType.DATA.value or (row[BODY_LENGTH] > 0 and has_no_fields):
        cut.until("body", cut.stop, text_of)
    cut.put("oddities", row[ODDITIES])


def _block(cut: Tiling, start: int, size: int, extension: int, more: int, index: int) -> None:
    """Extensions: one block."""
    group = f"extension {index}: {_EXTENSIONS.get(extension, 'other')}"
    cut.until("extensions", start, column="unread_extensions")
    cut.take("size", 4, number_be, group, "extensions.announced_size")
    cut.put("extensions.size", size, group)
    cut.take("id", 1, number_be, group, "extensions.id")
    cut.take("flags", 1, _MORE, group, "extensions.flags")
    cut.put("extensions.more", more != 0, group)
    cut.take("unused", 2, hex_of, group, "extensions.unused")
    cut.also("extensions.content", start + HEADER, size - HEADER, group)
    if extension == ExtensionId.REQUEST_RESPONSE.value:
        cut.take("request", 1, _IS_REQUEST, group, "extensions.request")
        cut.take("unused", 3, hex_of, group, "extensions.unused")
        cut.take("request_id", 8, number_be, group, "extensions.request_id")
    elif extension == ExtensionId.COMPRESSION.value:
        cut.take("scheme", 1, _SCHEME, group, "extensions.scheme")
        cut.take("unused", 3, hex_of, group, "extensions.unused")
    else:
        cut.until("content", start + size, hex_of, group, "extensions.data")


def _body(cut: Tiling, kind: int, end: int) -> None:
    """Message types: the body of each."""
    if kind == MessageType.HELLO.value:
        cut.take("version", 1, number_be)
        cut.take("unused", 3)
    elif kind == MessageType.ERROR.value:
        cut.take("error_code", 1, _ERROR_CODE)
        cut.take("extension_id", 1, number_be)
        cut.take("extension_error_code", 1, number_be)
        cut.take("unused", 1)
        cut.take("message length", 2, number_be)
        cut.until("message", end, text_of)
