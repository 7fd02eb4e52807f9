"""Fields of EMP messages: envelope, extension blocks, body."""

from __future__ import annotations

from collections.abc import Sequence

from wirelake.explore.bytes.layout import Field, Tiling, hex_of, number_be, text_of
from wirelake.protocols.emp.messages import APPLICATION_FIRST, ErrorCode, ExtensionId, MessageType, Scheme
from wirelake.protocols.emp.scanner import (
    BODY,
    FLAG,
    HEADER,
    PART_COLUMNS,
    PART_ID,
    PART_SIZE,
    PART_START,
)
from wirelake.protocols.kernel import KIND, LENGTH, PART, PARTS, START

__all__ = ["fields"]


def fields(data: bytes, row: Sequence[int], parts: Sequence[int]) -> list[Field]:
    """Return the fields of a scanned message."""
    start, end = row[START], row[START] + row[LENGTH]
    cut = Tiling(data, start, end)
    cut.take("size", 4, number_be)
    cut.take("type", 1, _type)
    cut.take("flags", 1, lambda raw: "extended" if raw[0] & FLAG else "0")
    cut.take("unused", 2)
    for index in range(row[PARTS]):
        at = (row[PART] + index) * PART_COLUMNS
        _block(cut, parts[at + PART_START], parts[at + PART_SIZE], parts[at + PART_ID], index)
    cut.until("extensions", row[BODY])
    _body(cut, row[KIND])
    return cut.finish("body")


def _block(cut: Tiling, start: int, size: int, extension: int, index: int) -> None:
    """Extensions: one block."""
    known = {ExtensionId.REQUEST_RESPONSE.value: "request-response", ExtensionId.COMPRESSION.value: "compression"}
    group = f"extension {index}: {known.get(extension, 'other')}"
    cut.until("extensions", start)
    cut.take("size", 4, number_be, group)
    cut.take("id", 1, number_be, group)
    cut.take("flags", 1, lambda raw: "more" if raw[0] & FLAG else "last", group)
    cut.take("unused", 2, hex_of, group)
    if extension == ExtensionId.REQUEST_RESPONSE.value:
        cut.take("request", 1, lambda raw: "request" if raw[0] & FLAG else "response", group)
        cut.take("unused", 3, hex_of, group)
        cut.take("request_id", 8, number_be, group)
    elif extension == ExtensionId.COMPRESSION.value:
        cut.take("scheme", 1, lambda raw: _named(Scheme, raw[0]), group)
        cut.take("unused", 3, hex_of, group)
    cut.until("content", start + max(size, HEADER), hex_of, group)


def _body(cut: Tiling, kind: int) -> None:
    """Message types: the body of each."""
    if kind == MessageType.HELLO.value:
        cut.take("version", 1, number_be)
        cut.take("unused", 3)
    elif kind == MessageType.ERROR.value:
        cut.take("error_code", 1, lambda raw: _named(ErrorCode, raw[0]))
        cut.take("extension_id", 1, number_be)
        cut.take("extension_error_code", 1, number_be)
        cut.take("unused", 1)
        cut.take("message length", 2, number_be)
        cut.until("message", cut.stop, text_of)
    else:
        cut.until("body", cut.stop, text_of)


def _type(raw: bytes) -> str:
    return f"{raw[0]} application" if raw[0] >= APPLICATION_FIRST else _named(MessageType, raw[0])


def _named(names: type[MessageType | ErrorCode | Scheme], code: int) -> str:
    return f"{code} {names(code).name.lower()}" if code in {one.value for one in names} else str(code)
