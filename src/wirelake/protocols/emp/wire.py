"""EMP bytes to messages and back.

`message` and `decode` read, `encode` writes, `plain` and `pack` convert bodies.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.buffer import Buffer
from wirelake.protocols.dialects import AUTO
from wirelake.protocols.emp.dialect import Following
from wirelake.protocols.emp.faults import UNREADABLE, Fault
from wirelake.protocols.emp.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.emp.messages import (
    APPLICATION_FIRST,
    TYPES,
    Application,
    Bye,
    Compression,
    Data,
    Error,
    Extension,
    ExtensionId,
    Hello,
    Message,
    MessageType,
    OtherExtension,
    Ping,
    Pong,
    RequestResponse,
    Scheme,
)
from wirelake.protocols.emp.scanner import (
    BODY,
    BODY_LENGTH,
    ERROR_TEXT,
    FLAG,
    HEADER,
    PART_COLUMNS,
    ROW_COLUMNS,
    find,
    glance,
    run,
    scan,
    sniff,
    walk,
)
from wirelake.protocols.gzip import deflate, inflate
from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, PART, PARTS
from wirelake.protocols.utf8 import fit

__all__ = [
    "DEFAULT_LIMITS",
    "LONGEST_TEXT",
    "Limits",
    "blocks",
    "buffer",
    "data",
    "decode",
    "encode",
    "exchange",
    "find",
    "message",
    "pack",
    "plain",
    "scan",
    "sniff",
    "unpack",
    "walk",
]

LARGEST: Final = 0xFFFFFFFF
"""The largest size that 32 bits can hold."""
LONGEST_TEXT: Final = 0xFFFF
"""EMP-40: the longest string that 16 bits of length can hold."""


def message(data: bytes, row: Sequence[int], parts: Sequence[int]) -> Message:
    """The message of a scanned row; raises DecodeError if it cannot be read.

    Total over what the scanner accepted.
    """
    fault = row[FAULT]
    if fault and fault in UNREADABLE:
        raise DecodeError(Fault(fault), row[FAULT_AT])
    extensions = blocks(data, row, parts) if row[PARTS] else ()
    at = row[BODY]
    kind = row[KIND]
    if kind == MessageType.DATA:
        return Data(data[at : at + row[BODY_LENGTH]], extensions)
    if kind == MessageType.HELLO:
        return Hello(data[at], extensions)
    if kind == MessageType.ERROR:
        text = data[at + ERROR_TEXT : at + row[BODY_LENGTH]]
        try:
            return Error(data[at], data[at + 1], data[at + 2], text.decode(), extensions)
        except UnicodeDecodeError as reason:
            raise DecodeError(Fault.ERROR_NOT_UTF8, at + ERROR_TEXT + reason.start) from None
    if kind >= APPLICATION_FIRST:
        return Application(kind, data[at : at + row[BODY_LENGTH]], extensions)
    return _BODILESS[kind](extensions)


_BODILESS: Final[dict[int, type[Bye | Ping | Pong]]] = {MessageType.BYE: Bye, MessageType.PING: Ping, MessageType.PONG: Pong}


def blocks(data: bytes, row: Sequence[int], parts: Sequence[int]) -> tuple[Extension, ...]:
    """The extension blocks of a scanned row, in order."""
    return tuple(_extension(data, parts, index) for index in range(row[PART], row[PART] + row[PARTS]))


def _extension(data: bytes, parts: Sequence[int], index: int) -> Extension:
    at, size, extension, _ = parts[index * PART_COLUMNS : (index + 1) * PART_COLUMNS]
    if extension == ExtensionId.REQUEST_RESPONSE:
        return RequestResponse(data[at + 8] >= FLAG, int.from_bytes(data[at + 12 : at + 20]))
    if extension == ExtensionId.COMPRESSION:
        return Compression(data[at + 8])
    return OtherExtension(extension, data[at + HEADER : at + size])


def decode(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Message:
    """The one whole message that `data` is; raises DecodeError for anything else."""
    row = [0] * ROW_COLUMNS
    parts = [0] * (PART_COLUMNS * limits.max_parts)
    count, _, end, _ = scan(data, 0, len(data), row, parts, limits.for_scan())
    if count == 0:
        raise DecodeError(Fault.MESSAGE_CUT, len(data))
    result = message(data, row, parts)
    if end != len(data):
        raise DecodeError(Fault.SIZE_TOO_SMALL, end, f"{len(data) - end} bytes after the message")
    return result


def buffer(limits: Limits = DEFAULT_LIMITS) -> Buffer:
    """A buffer that cuts a stream into messages."""
    if limits.sizes_exclude_themselves == AUTO:
        return Following(limits)
    return Buffer(scan, ROW_COLUMNS, PART_COLUMNS, limits.for_scan(), limits.max_parts, glance, run)


def plain(message: Data | Application, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Extensions, compression: the body with every compression undone, the last applied first (EMP-39)."""
    body = message.body
    for extension in reversed(message.extensions):
        if isinstance(extension, Compression):
            body = unpack(extension.scheme, body, limits.max_body_size)
    return body


def unpack(scheme: int, body: bytes, most: int) -> bytes:
    """Undo one compression; raises DecodeError, whose offset counts from the start of the body."""
    if scheme == Scheme.IDENTITY:
        return body
    if scheme != Scheme.GZIP:
        raise DecodeError(Fault.SCHEME_UNKNOWN, 0, f"scheme {scheme}")
    return inflate(body, most, invalid=Fault.GZIP_INVALID, over_limit=Fault.INFLATED_OVER_LIMIT)


def pack(body: bytes) -> bytes:
    """Compression, scheme 1: the body as one gzip member, the same bytes every time."""
    return deflate(body)


_ENVELOPE: Final = struct.Struct(">IBBxx")
_ERROR_BODY: Final = struct.Struct(">BBBxH")
_REQUEST_BLOCK: Final = struct.Struct(">IBBxxBxxxQ")
_COMPRESSION_BLOCK: Final = struct.Struct(">IBBxxBxxx")


_EXCHANGE: Final = struct.Struct(">I16sQ")
_EXCHANGE_HEADS: Final = {
    (bias, is_request): bytes((MessageType.DATA, FLAG, 0, 0)) + _REQUEST_BLOCK.pack(20 - bias, 0, 0, FLAG if is_request else 0, 0)[:12]
    for bias in (0, 4)
    for is_request in (False, True)
}
"""What follows the size of a request or response without other extensions, up to its identifier."""
_PLAIN: Final = bytes((MessageType.DATA, 0, 0, 0))


def data(body: bytes, limits: Limits) -> bytes:
    """The bytes of `Data(body)`, as `encode` writes them.

    What sessions send most often is written by this and `exchange` alone, without a message made for it first. Raises as `encode` does.
    """
    size = HEADER + len(body)
    if size > limits.max_message_size or size > LARGEST:  # EMP-35
        raise _too_large(size, limits)
    return (size - 4 if limits.sizes_exclude_themselves is True else size).to_bytes(4) + _PLAIN + body


def exchange(is_request: bool, request_id: int, body: bytes, limits: Limits) -> bytes:
    """The bytes of `Data(body, (RequestResponse(is_request, request_id),))`, as `encode` writes them."""
    size = 28 + len(body)
    if size > limits.max_message_size or size > LARGEST:  # EMP-35
        raise _too_large(size, limits)
    bias = 4 if limits.sizes_exclude_themselves is True else 0
    return _EXCHANGE.pack(size - bias, _EXCHANGE_HEADS[bias, is_request], request_id) + body


def _too_large(size: int, limits: Limits) -> LocalProtocolError:
    return LocalProtocolError(Fault.SIZE_OVER_LIMIT, f"{size} bytes, limit {limits.max_message_size}")


def encode(message: Message, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The bytes of a message.

    Raises LocalProtocolError for a value its field cannot hold or a message over the limit.
    """
    bias = limits.size_bias
    extensions = message.extensions
    try:
        packed = b"".join([_block(one, i + 1 < len(extensions), bias) for i, one in enumerate(extensions)]) if extensions else b""
        if isinstance(message, Data):
            kind, body = 5, message.body
        elif isinstance(message, Application):
            if not APPLICATION_FIRST <= message.type_id <= 255:
                raise LocalProtocolError(Fault.TYPE_RESERVED, f"type {message.type_id}")
            kind, body = message.type_id, message.body
        elif isinstance(message, Hello):
            kind, body = 0, bytes((message.version, 0, 0, 0))
        elif isinstance(message, Error):
            text = fit(message.message, LONGEST_TEXT)
            kind = 4
            body = _ERROR_BODY.pack(message.error_code, message.extension_id, message.extension_error_code, len(text)) + text
        else:
            kind, body = TYPES[type(message)], b""
    except (struct.error, ValueError) as reason:
        raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, str(reason)) from None
    size = HEADER + len(packed) + len(body)
    if size > limits.max_message_size or size > LARGEST:  # EMP-35
        raise _too_large(size, limits)
    return _ENVELOPE.pack(size - bias, kind, FLAG if extensions else 0) + packed + body


def _block(extension: Extension, more: bool, bias: int) -> bytes:
    flag = FLAG if more else 0
    if isinstance(extension, RequestResponse):
        return _REQUEST_BLOCK.pack(20 - bias, 0, flag, FLAG if extension.request else 0, extension.request_id)
    if isinstance(extension, Compression):
        return _COMPRESSION_BLOCK.pack(12 - bias, 1, flag, extension.scheme)
    return _ENVELOPE.pack(HEADER + len(extension.content) - bias, extension.id, flag) + extension.content
