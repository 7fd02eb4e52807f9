"""The scanner of YAMP: finds messages and their fields, and the rules they break.

This is the only reader of the layout. It accepts every message that can be read, also one that breaks a rule: such a breach is in the
row's fault column, and the session acts on it. It does not look into bodies.
"""

from __future__ import annotations

from typing import Any, Final

from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, NO_ROOM, PART, PARTS, SHARED, START, kernel, u16, u32, walker
from wirelake.protocols.utf8 import is_ascii, utf8
from wirelake.protocols.websocket import inside
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.limits import CLOSE_HEADER, DEFAULT_LIMITS, Limits
from wirelake.protocols.yamp.messages import MessageType, ResponseType

__all__ = [
    "BODY",
    "BODY_LENGTH",
    "CODE",
    "DEFAULT_LIMITS",
    "ODDITIES",
    "ODD_BODY",
    "ODD_BOOL",
    "ODD_REASON",
    "ODD_SERIALIZER",
    "ODD_URI",
    "PART_COLUMNS",
    "ROW_COLUMNS",
    "UID_SIZE",
    "URI",
    "URI_LENGTH",
    "Limits",
    "find",
    "glance",
    "scan",
    "sniff",
    "walk",
]

# A row: the shared columns, then these. The uid is at START + 1, a request_uid right after the uri.
URI: Final = SHARED
"""Offset of the uri."""
URI_LENGTH: Final = SHARED + 1
"""Bytes of it; -1 in system messages, which have none."""
BODY: Final = SHARED + 2
"""Offset of the body; of a system message, of its serializer, payload, reason or url."""
BODY_LENGTH: Final = SHARED + 3
CODE: Final = SHARED + 4
"""The version of a handshake, progressive of a request, kill of a cancel, or type of a response.

It is as it came; -1 in other messages.
"""
ODDITIES: Final = SHARED + 5
"""Bits for what is tolerated: see ODD_BOOL and its neighbours."""
ROW_COLUMNS: Final = SHARED + 6
PART_COLUMNS: Final = 1
"""Messages of YAMP have no parts: nothing is ever written there."""

ODD_BOOL: Final = 1
"""YAMP-28: a truth value that is neither 0 nor 1."""
ODD_URI: Final = 2
"""YAMP-26: an empty uri."""
ODD_REASON: Final = 4
"""YAMP-16: a reason that is not UTF-8."""
ODD_SERIALIZER: Final = 8
"""YAMP-5: an empty serializer."""

ODD_BODY: Final = 16
"""YAMP-44: a body that the serializer refuses.

Never set by the scanner, which does not look into bodies.
"""

UID_SIZE: Final = 16
HEADER: Final = 18
"""Bytes of type, uid and the uri's size, at the start of a user message."""
HANDSHAKE_HEADER: Final = 4
PING_HEADER: Final = 2
FARTHEST: Final = 1 << 47
"""No offset is beyond this or below 0; saying so lets the compiler drop a check on every access."""

# Members of enums that every scan reads: reading a member is a call, reading a number is not.
_CANCEL: Final = MessageType.CANCEL.value
_CLOSE: Final = MessageType.CLOSE.value
_CLOSE_REDIRECT: Final = MessageType.CLOSE_REDIRECT.value
_EVENT: Final = MessageType.EVENT.value
_HANDSHAKE: Final = MessageType.HANDSHAKE.value
_PONG: Final = MessageType.PONG.value
_REQUEST: Final = MessageType.REQUEST.value
_RESPONSE: Final = MessageType.RESPONSE.value
_CANCELLED: Final = ResponseType.CANCELLED.value


@kernel
def scan(data: Any, start: int, stop: int, rows: Any, parts: Any, limits: Any) -> tuple[int, int, int, int]:  # noqa: ARG001 - as in every protocol
    """Walk whole messages in data[start:stop]; one row each.

    Returns (rows written, 0, next offset, need): `need` is how many bytes the next message takes, 0 if that is not known yet,
    NO_ROOM if the rows are full. A message whose end cannot be known is the last row, and `next` stays at its start.
    """
    max_body, redirect_header = limits
    count, at = 0, start
    while (count + 1) * ROW_COLUMNS <= len(rows):
        left = stop - at
        if left < 1 or at < 0 or at > FARTHEST:
            return count, 0, at, 0
        kind = 0 + data[at]
        uri, uri_length, length, code, odd = at, -1, 0, -1, 0
        fault, fault_at, lost = 0, at, False
        if kind >= _EVENT:
            lost = kind > _RESPONSE
            if lost:  # YAMP-42
                fault, body = Fault.TYPE_UNKNOWN.value, stop
            else:
                if left < HEADER:
                    return count, 0, at, 0
                uri, uri_length = at + HEADER, 0 + data[at + HEADER - 1]
                after = uri + uri_length
                if kind >= _CANCEL:
                    after += UID_SIZE
                body = after if kind == _EVENT else after + 1
                if kind != _CANCEL:
                    body += 4
                if stop < body:
                    return count, 0, at, 0
                if kind != _CANCEL:
                    length = u32(data, body - 4)
                if kind != _EVENT:
                    code = 0 + data[after]
                    if kind == _RESPONSE:
                        if code > _CANCELLED:  # YAMP-36
                            fault, fault_at = Fault.RESPONSE_TYPE_UNKNOWN.value, after
                    elif code > 1:  # YAMP-28
                        odd = ODD_BOOL
                if length > max_body:  # YAMP-43
                    lost, fault, fault_at = True, Fault.BODY_OVER_LIMIT.value, body - 4
        elif kind == _HANDSHAKE:
            body = at + HANDSHAKE_HEADER
            if stop < body:
                return count, 0, at, 0
            code, length = u16(data, at + 1), 0 + data[at + 3]
        elif kind <= _PONG:
            body = at + PING_HEADER
            if stop < body:
                return count, 0, at, 0
            length = 0 + data[at + 1]
        else:
            body = at + (CLOSE_HEADER if kind == _CLOSE else redirect_header)  # YAMP-1
            if stop < body:
                return count, 0, at, 0
            length = u16(data, at + 1) if body - at == CLOSE_HEADER else 0 + data[at + 1]
        end = body + length
        if lost:
            end, kind, uri, uri_length, body, length, code, odd = stop, -1, at, -1, stop, 0, -1, 0
        elif stop < end:
            return count, 0, at, end - at
        elif uri_length >= 0:
            if uri_length == 0:  # YAMP-26
                odd |= ODD_URI
            elif not is_ascii(data, uri, uri + uri_length):
                pending, broken = utf8(data, uri, uri + uri_length, 0)
                if pending:  # YAMP-16
                    fault, fault_at = Fault.URI_NOT_UTF8.value, broken
        elif kind == _HANDSHAKE or kind > _PONG:
            if not is_ascii(data, body, end):
                pending, broken = utf8(data, body, end, 0)
                if pending and kind == _CLOSE:
                    odd = ODD_REASON
                elif pending:
                    fault_at = broken
                    fault = Fault.URL_NOT_UTF8.value if kind == _CLOSE_REDIRECT else Fault.SERIALIZER_NOT_UTF8.value
            elif kind == _HANDSHAKE and length == 0:  # YAMP-5
                odd = ODD_SERIALIZER
        row = count * ROW_COLUMNS
        rows[row + START] = at
        rows[row + LENGTH] = end - at
        rows[row + KIND] = kind
        rows[row + FAULT] = fault
        rows[row + FAULT_AT] = fault_at
        rows[row + PART] = 0
        rows[row + PARTS] = 0
        rows[row + URI] = uri
        rows[row + URI_LENGTH] = uri_length
        rows[row + BODY] = body
        rows[row + BODY_LENGTH] = length
        rows[row + CODE] = code
        rows[row + ODDITIES] = odd
        count += 1
        if lost:
            return count, 0, at, 0
        at = end
    return count, 0, at, NO_ROOM


@kernel
def _plausible(data: Any, at: int, stop: int, limits: Any) -> int:
    """The size of what is very likely a user message at this offset, else 0.

    It has a printable uri, valid codes, and a body under the limit.
    """
    if stop - at < HEADER:
        return 0
    kind, uri_length = 0 + data[at], 0 + data[at + HEADER - 1]
    if kind < _EVENT or kind > _RESPONSE or uri_length == 0:
        return 0
    after = at + HEADER + uri_length
    if kind >= _CANCEL:
        after += UID_SIZE
    body = after if kind == _EVENT else after + 1
    if kind != _CANCEL:
        body += 4
    if stop < body:
        return 0
    for place in range(at + HEADER, at + HEADER + uri_length):
        if data[place] <= 0x20 or data[place] >= 0x7F:
            return 0
    if kind != _EVENT and data[after] > (_CANCELLED if kind == _RESPONSE else 1):
        return 0
    length = 0 if kind == _CANCEL else u32(data, body - 4)
    size: int = 0 if length > limits[0] else body - at + length
    return size


@kernel
def find(data: Any, start: int, stop: int, limits: Any) -> int:
    """Find the next offset where messages certainly begin again; else `stop`.

    A user message there ends exactly at `stop`, or another follows it. System messages are too short to distinguish from noise: they are
    found after a user message, and the one before is not certain.
    """
    for at in range(start, stop):
        size = _plausible(data, at, stop, limits)
        if size and (at + size == stop or (at + size < stop and _plausible(data, at + size, stop, limits))):
            return at
    return stop


def glance(data: bytes, limits: tuple[int, ...]) -> tuple[list[int], list[int]] | None:
    """See `buffer.Glance`: an event, request or response with an ASCII uri."""
    size = len(data)
    if size < HEADER or not data[HEADER - 1]:
        return None
    kind, length = data[0], data[HEADER - 1]
    after = HEADER + length
    if kind == _EVENT:
        body, code = after + 4, -1
    elif kind in (_REQUEST, _RESPONSE):
        if kind == _RESPONSE:
            after += UID_SIZE
        body = after + 5
        if size < body or data[after] > (1 if kind == _REQUEST else _CANCELLED):
            return None
        code = data[after]
    else:
        return None
    body_length = int.from_bytes(data[body - 4 : body])
    if body + body_length != size or body_length > limits[0] or not data[HEADER : HEADER + length].isascii():
        return None
    return [0, size, kind, 0, 0, 0, 0, HEADER, length, body, body_length, code, 0], []


walk = walker(scan, find, ROW_COLUMNS, PART_COLUMNS)
"""`scan` over many runs, with `find` where a run goes wrong: see `kernel.walker`."""


def sniff(data: bytes) -> bool:
    """Whether a stream that begins like this is YAMP, as it is or inside a WebSocket (YAMP-14)."""
    return _greets(data) or inside(data, _greets)


def _greets(data: bytes) -> bool:
    """Whether this begins a handshake of version 1 whose serializer is a plain word or empty (YAMP-5)."""
    if data[:3] != b"\x00\x00\x01" or len(data) < HANDSHAKE_HEADER:
        return False
    end = HANDSHAKE_HEADER + data[3]
    name, following = data[HANDSHAKE_HEADER:end], data[end : end + 1]
    return all(0x20 < byte < 0x7F for byte in name) and MessageType.HANDSHAKE < int.from_bytes(following or b"\x01") <= MessageType.RESPONSE
