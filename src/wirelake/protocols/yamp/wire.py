"""YAMP bytes to messages and back: `message` and `decode` read, `encode` writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.buffer import Buffer
from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, START
from wirelake.protocols.utf8 import fit
from wirelake.protocols.yamp.faults import UNREADABLE, Fault
from wirelake.protocols.yamp.limits import DEFAULT_LIMITS, Limits, MessageLimits
from wirelake.protocols.yamp.messages import (
    Cancel,
    Close,
    CloseRedirect,
    Event,
    Handshake,
    Message,
    MessageType,
    Ping,
    Pong,
    Request,
    Response,
)
from wirelake.protocols.yamp.scanner import (
    BODY,
    BODY_LENGTH,
    CODE,
    PART_COLUMNS,
    ROW_COLUMNS,
    UID_SIZE,
    URI,
    URI_LENGTH,
    find,
    glance,
    scan,
    sniff,
    walk,
)

__all__ = [
    "BUILDERS",
    "DEFAULT_LIMITS",
    "LONGEST_REASON",
    "LONGEST_STRING",
    "Limits",
    "buffer",
    "decode",
    "encode",
    "find",
    "message",
    "scan",
    "sniff",
    "user",
    "walk",
]

LONGEST_STRING: Final = 0xFF
"""YAMP-6, YAMP-17, YAMP-26: the most bytes of a serializer, a payload or a uri.

Its size is one byte.
"""
LONGEST_REASON: Final = 0xFFFF
"""YAMP-20: the most bytes of a reason or a url, whose size is two bytes."""
LARGEST_BODY: Final = 0xFFFFFFFF
"""YAMP-43: the most bytes of a body, whose size is four bytes."""


def message(data: bytes, row: Sequence[int], parts: Sequence[int] = ()) -> Message:  # noqa: ARG001 - as in every protocol
    """The message of a scanned row; raises DecodeError if it cannot be read.

    Total over what the scanner accepted.
    """
    fault = row[FAULT]
    if fault and fault in UNREADABLE:
        raise DecodeError(Fault(fault), row[FAULT_AT])
    return BUILDERS[row[KIND]](data, row)


def _body(data: bytes, row: Sequence[int]) -> bytes:
    return data[row[BODY] : row[BODY] + row[BODY_LENGTH]]


def _event(data: bytes, row: Sequence[int]) -> Event:
    uid, uri, body = row[START] + 1, row[URI], row[BODY]
    return Event(data[uid : uid + UID_SIZE], data[uri : uri + row[URI_LENGTH]].decode(), data[body : body + row[BODY_LENGTH]])


def _request(data: bytes, row: Sequence[int]) -> Request:
    uid, uri, body = row[START] + 1, row[URI], row[BODY]
    name = data[uri : uri + row[URI_LENGTH]].decode()
    return Request(data[uid : uid + UID_SIZE], name, row[CODE] != 0, data[body : body + row[BODY_LENGTH]])  # YAMP-28


def _cancel(data: bytes, row: Sequence[int]) -> Cancel:
    uid, uri = row[START] + 1, row[URI]
    after = uri + row[URI_LENGTH]
    return Cancel(data[uid : uid + UID_SIZE], data[uri:after].decode(), data[after : after + UID_SIZE], row[CODE] != 0)


def _response(data: bytes, row: Sequence[int]) -> Response:
    uid, uri, body = row[START] + 1, row[URI], row[BODY]
    after = uri + row[URI_LENGTH]
    content = data[body : body + row[BODY_LENGTH]]
    return Response(data[uid : uid + UID_SIZE], data[uri:after].decode(), data[after : after + UID_SIZE], row[CODE], content)


BUILDERS: Final[dict[int, Callable[[bytes, Sequence[int]], Message]]] = {
    MessageType.HANDSHAKE: lambda data, row: Handshake(row[CODE], _body(data, row).decode()),
    MessageType.PING: lambda data, row: Ping(_body(data, row)),
    MessageType.PONG: lambda data, row: Pong(_body(data, row)),
    MessageType.CLOSE: lambda data, row: Close(_body(data, row).decode(errors="replace")),  # YAMP-16
    MessageType.CLOSE_REDIRECT: lambda data, row: CloseRedirect(_body(data, row).decode()),
    MessageType.EVENT: _event,
    MessageType.REQUEST: _request,
    MessageType.CANCEL: _cancel,
    MessageType.RESPONSE: _response,
}
"""Message type -> what makes a message of a row that the scanner found readable."""


def decode(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Message:
    """The one whole message that `data` is; raises DecodeError for anything else."""
    row = [0] * ROW_COLUMNS
    count, _, end, _ = scan(data, 0, len(data), row, [], limits.for_scan())
    if count == 0:
        raise DecodeError(Fault.MESSAGE_CUT, len(data))
    result = message(data, row)
    if end != len(data):
        raise DecodeError(Fault.BYTES_AFTER_MESSAGE, end, f"{len(data) - end} of them")
    return result


def buffer(limits: MessageLimits = DEFAULT_LIMITS) -> Buffer:
    """A buffer that cuts a stream into messages."""
    return Buffer(scan, ROW_COLUMNS, PART_COLUMNS, limits.for_scan(), limits.max_parts, glance)


def encode(message: Message, limits: MessageLimits = DEFAULT_LIMITS) -> bytes:
    """The bytes of a message.

    Raises LocalProtocolError for a value its field cannot hold or a body over the limit.
    """
    try:
        return _WRITERS[type(message)](message, limits)
    except (OverflowError, ValueError) as reason:
        raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, str(reason)) from None


def _short(data: bytes) -> bytes:
    """A string behind one byte of size."""
    if len(data) > LONGEST_STRING:
        raise ValueError(f"{len(data)} bytes, {LONGEST_STRING} fit")
    return len(data).to_bytes() + data


def user(kind: MessageType, uid: bytes, uri: str, rest: bytes, body: bytes | None, limits: MessageLimits) -> bytes:
    """UserMessageHeader, what a message has of its own, and UserMessageBody, unless it has none.

    Raises LocalProtocolError.

    What sessions say most often is written by this alone, without a message made for it first.
    """
    name = uri.encode()
    if len(name) > LONGEST_STRING:  # YAMP-26: never wrap
        raise LocalProtocolError(Fault.URI_SIZE, f"{len(name)} bytes")
    if len(uid) != UID_SIZE:
        raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, f"a uid of {len(uid)} bytes")
    if body is None:
        return b"".join((_OCTETS[kind], uid, _OCTETS[len(name)], name, rest))
    if len(body) > limits.max_body_size or len(body) > LARGEST_BODY:  # YAMP-43
        raise LocalProtocolError(Fault.BODY_OVER_LIMIT, f"{len(body)} bytes, limit {limits.max_body_size}")
    return b"".join((_OCTETS[kind], uid, _OCTETS[len(name)], name, rest, len(body).to_bytes(4), body))


_OCTETS: Final = tuple(bytes((byte,)) for byte in range(256))


def _reference(message: Cancel | Response, code: int) -> bytes:
    if len(message.request_uid) != UID_SIZE:
        raise ValueError(f"a request_uid of {len(message.request_uid)} bytes")
    return message.request_uid + code.to_bytes()


def _close(message: Close, _: MessageLimits) -> bytes:
    reason = fit(message.reason, LONGEST_REASON)  # YAMP-20
    return b"\x03" + len(reason).to_bytes(2) + reason


def _close_redirect(message: CloseRedirect, limits: MessageLimits) -> bytes:
    url = message.url.encode()
    return b"\x04" + (_short(url) if limits.one_byte_redirect_size else len(url).to_bytes(2) + url)  # YAMP-1


_WRITERS: Final[dict[type[Message], Callable[[Any, MessageLimits], bytes]]] = {
    Handshake: lambda message, _: b"\x00" + message.version.to_bytes(2) + _short(message.serializer.encode()),
    Ping: lambda message, _: b"\x01" + _short(message.payload),
    Pong: lambda message, _: b"\x02" + _short(message.payload),
    Close: _close,
    CloseRedirect: _close_redirect,
    Event: lambda one, limits: user(MessageType.EVENT, one.uid, one.uri, b"", one.body, limits),
    Request: lambda one, limits: user(MessageType.REQUEST, one.uid, one.uri, _OCTETS[bool(one.progressive)], one.body, limits),
    Cancel: lambda one, limits: user(MessageType.CANCEL, one.uid, one.uri, _reference(one, bool(one.kill)), None, limits),
    Response: lambda one, limits: user(MessageType.RESPONSE, one.uid, one.uri, _reference(one, one.response_type), one.body, limits),
}
