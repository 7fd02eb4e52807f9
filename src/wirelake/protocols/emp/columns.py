"""Arrow columns of EMP messages: every field, and the columns all protocols share.

It turns bytes and scanned rows into columns, a block at a time. Only fields that need a library (gzip, UTF-8, JSON) are read one by one,
and only on the rows that have them.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
import numpy as np
import pyarrow as pa

from wirelake.errors import DecodeError
from wirelake.protocols.arrow import UNLIMITED, Array, Columns, binary, decimal_texts, decimals, field, integers, names, nulls, truths
from wirelake.protocols.emp.faults import UNREADABLE, Fault
from wirelake.protocols.emp.limits import Limits
from wirelake.protocols.emp.messages import APPLICATION_FIRST, TYPES, ExtensionId, MessageType, name_of
from wirelake.protocols.emp.scanner import (
    BODY,
    BODY_LENGTH,
    ERROR_TEXT,
    HEADER,
    ODD_BODY,
    ODDITIES,
    PART_COLUMNS,
    PART_ID,
    PART_MORE,
    PART_SIZE,
    PART_START,
    REQUEST,
    REQUEST_ID,
    ROW_COLUMNS,
    SCHEME,
)
from wirelake.protocols.emp.wire import unpack
from wirelake.protocols.kernel import FAULT, KIND, LENGTH, PARTS, i64, kernel, over_arrays

__all__ = ["FAULTS", "PART_COLUMNS", "ROW_COLUMNS", "SCHEMA", "columns", "readable"]

_EXTENSION: Final = pa.struct(
    [
        field("size", pa.int64(), "Extensions: bytes of the whole block"),
        field("id", pa.int16(), "Extensions: 0 request-response, 1 compression, from 128 on the application's (EMP-4)"),
        field("more", pa.bool_(), "Extensions: another block follows"),
        field("content", pa.binary(), "Extensions: what the block carries"),
        field("request", pa.bool_(), "Request-response: a request, not a response"),
        field("request_id", pa.decimal128(20, 0), "Request-response: the identifier"),
        field("scheme", pa.int16(), "Compression: 0 identity, 1 gzip"),
    ]
)

SCHEMA: Final = pa.schema(
    [
        field("size", pa.int64(), "Envelope: bytes of the whole message"),
        field("type", pa.int16(), "Header: the message type"),
        field("type_name", pa.string(), "Message types: its name; `application` from 128 on"),
        field("extensions", pa.list_(pa.field("element", _EXTENSION)), "Extensions: the blocks, in order"),
        field("version", pa.int16(), "Hello: the highest version its sender supports"),
        field("error_code", pa.int16(), "Error: what kind of error"),
        field("extension_id", pa.int16(), "Error: the extension, if the code is 4 (EMP-3)"),
        field("extension_error_code", pa.int16(), "Error: the extension's own code, if the code is 4"),
        field("message", pa.string(), "Error: the text; replacement characters where it is not UTF-8 (EMP-22)"),
        field("body", pa.binary(), "Body: as on the wire, packed if a compression block says so"),
        field("request", pa.bool_(), "Request-response: a request, not a response; null without that block"),
        field("request_id", pa.decimal128(20, 0), "Request-response: the identifier"),
        field("scheme", pa.int16(), "Compression: of the last block; null without one"),
        field("fault", pa.string(), "The first rule this message breaks by itself; see violations"),
        field("oddities", pa.int32(), "Bits for what is tolerated: 1 unused bits are set (EMP-5), 2 an ignored body (EMP-20)"),
    ]
)
"""The columns of table `emp` that are EMP's own."""

FAULTS: Final[dict[int, str]] = {fault.value: fault.name for fault in Fault}
_NAMES: Final = {number.value: name_of(message) for message, number in TYPES.items()}
_KINDS: Final = ("event", "request", "response", "handshake", "keepalive", "error", "close")
_KIND_OF: Final = {
    MessageType.HELLO: _KINDS.index("handshake"),
    MessageType.BYE: _KINDS.index("close"),
    MessageType.PING: _KINDS.index("keepalive"),
    MessageType.PONG: _KINDS.index("keepalive"),
    MessageType.ERROR: _KINDS.index("error"),
}
_UNREADABLE: Final = np.array(sorted(UNREADABLE), np.int64)
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
"""Checks that bytes are JSON without making anything of it."""
_JSON_STARTS: Final = np.frombuffer(b"{[", np.uint8)


def readable(rows: Array) -> Array:
    """The rows that are messages, with a fault or without."""
    return ~np.isin(rows[:, FAULT], _UNREADABLE)


def columns(data: Array, rows: Array, parts: Array, limits: Limits, json_bodies: bool = True, budget: int = UNLIMITED) -> Columns:
    """The messages of readable rows; `parts` holds the parts of these rows and no others, in their order.

    Only the first rows are taken, if the bodies of all would inflate to more than the budget.
    """
    taken, faults, plain_data, plain_starts, plain_lengths = _unpacked(data, rows, parts, limits, budget)
    parts = parts[: rows[:taken, PARTS].sum()]
    rows = rows[:taken]
    kind = rows[:, KIND]
    carries = kind >= MessageType.DATA
    is_error = kind == MessageType.ERROR
    has_request = rows[:, REQUEST] >= 0
    is_carried = carries | (rows[:, ODDITIES] & ODD_BODY != 0)
    carried = binary(data, rows[:, BODY], rows[:, BODY_LENGTH], is_carried)
    fault = names(faults, FAULTS)
    type_name = names(np.minimum(kind, APPLICATION_FIRST), _NAMES | {APPLICATION_FIRST: "application"})
    own: dict[str, pa.Array] = {
        "size": integers(rows[:, LENGTH], pa.int64()),
        "type": integers(kind, pa.int16()),
        "type_name": type_name,
        "extensions": _extensions(data, rows, parts),
        "version": _byte(data, rows, kind == MessageType.HELLO, 0),
        "error_code": _byte(data, rows, is_error, 0),
        "extension_id": _byte(data, rows, is_error, 1),
        "extension_error_code": _byte(data, rows, is_error, 2),
        "message": _texts(data, rows, is_error),
        "body": carried,
        "request": truths(rows[:, REQUEST], has_request),
        "request_id": decimals(rows[:, REQUEST_ID], has_request),
        "scheme": integers(rows[:, SCHEME], pa.int16(), rows[:, SCHEME] >= 0),
        "fault": fault,
        "oddities": integers(rows[:, ODDITIES], pa.int32()),
    }
    has_body = carries & (plain_lengths >= 0)
    is_same = plain_data is data and np.array_equal(has_body, is_carried)  # nothing was inflated, and nothing could not be
    body = carried if is_same else binary(plain_data, plain_starts, plain_lengths, has_body)
    status = np.where(faults != 0, 1, np.where(is_error, 2, 0))
    kinds = np.where(has_request, 2 - rows[:, REQUEST], 0)
    for code, meaning in _KIND_OF.items():
        kinds = np.where(kind == code, meaning, kinds)
    shared: dict[str, pa.Array] = {
        "kind": names(kinds, _KINDS),
        "name": type_name,
        "subject": nulls(pa.string(), len(rows)),
        "correlation_id": decimal_texts(rows[:, REQUEST_ID], has_request),
        "status": names(status, ("ok", "faulty", "error")),
        "fault": fault,
        "body": body,
        "body_json": _json(plain_data, plain_starts, plain_lengths, has_body) if json_bodies else nulls(pa.string(), len(rows)),
        "verified": nulls(pa.bool_(), len(rows)),
    }
    return Columns(own, shared, taken=taken)


def _byte(data: Array, rows: Array, where: Array, at: int) -> pa.Array:
    """One byte of the body of some rows."""
    if not where.any():
        return nulls(pa.int16(), len(rows))
    return integers(data[np.where(where, rows[:, BODY] + at, 0)], pa.int16(), where)


def _texts(data: Array, rows: Array, where: Array) -> pa.Array:
    if not where.any():
        return nulls(pa.string(), len(rows))
    texts: list[str | None] = [None] * len(rows)
    for index in np.flatnonzero(where):
        at, length = int(rows[index, BODY]), int(rows[index, BODY_LENGTH])
        texts[index] = data[at + ERROR_TEXT : at + length].tobytes().decode(errors="replace")
    return pa.array(texts, pa.string())


@kernel
def _read_contents(data: Any, parts: Any, out: Any) -> None:
    """Write the first byte of each extension block of a known kind, and the identifier of each request-response block; else 0."""
    for part in range(len(parts)):
        at, kind = parts[part, PART_START] + HEADER, parts[part, PART_ID]
        is_request = kind == ExtensionId.REQUEST_RESPONSE.value
        out[0, part] = 0 + data[at] if is_request or kind == ExtensionId.COMPRESSION.value else 0
        out[1, part] = i64(data, at + 4) if is_request and at + 12 <= len(data) else 0


def _extensions(data: Array, rows: Array, parts: Array) -> pa.Array:
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(rows[:, PARTS], out=offsets[1:])
    starts, ids = parts[:, PART_START], parts[:, PART_ID]
    asks = ids == ExtensionId.REQUEST_RESPONSE
    packs = ids == ExtensionId.COMPRESSION
    contents = np.empty((2, len(parts)), np.int64)
    over_arrays(_read_contents)(data, parts, contents)
    first, identifiers = contents
    struct = pa.StructArray.from_arrays(
        [
            integers(parts[:, PART_SIZE], pa.int64()),
            integers(ids, pa.int16()),
            truths(parts[:, PART_MORE]),
            binary(data, starts + HEADER, parts[:, PART_SIZE] - HEADER),
            truths(first >> 7, asks),
            decimals(identifiers, asks),
            integers(first, pa.int16(), packs),
        ],
        fields=list(_EXTENSION),
    )
    return pa.ListArray.from_arrays(pa.array(offsets), struct, type=SCHEMA.field("extensions").type)


def _unpacked(data: Array, rows: Array, parts: Array, limits: Limits, budget: int) -> tuple[int, Array, Array, Array, Array]:
    """Undo compression and check UTF-8, on the rows that have them.

    Returns (rows taken, faults, data, starts, lengths) of plain bodies; length -1 is none. A body alone may fill the budget; with several,
    no more are inflated once half of it is used.
    """
    faults = rows[:, FAULT].copy()
    starts, lengths = rows[:, BODY].copy(), rows[:, BODY_LENGTH].copy()
    inflated: list[bytes] = []
    taken, end, full = len(rows), len(data), len(data) + budget // 2
    firsts = np.cumsum(rows[:, PARTS]) - rows[:, PARTS]
    for index in np.flatnonzero((rows[:, SCHEME] >= 0) & (rows[:, KIND] >= MessageType.DATA)):
        row = rows[index].tolist()
        try:
            body = _plain(data, row, parts[firsts[index] : firsts[index] + row[PARTS]], min(limits.max_body_size, budget))
        except DecodeError as reason:
            faults[index] = faults[index] or cast(Fault, reason.fault)
            lengths[index] = -1
            continue
        inflated.append(body)
        starts[index], lengths[index] = end, len(body)
        end += len(body)
        if end > full:
            taken = int(index) + 1
            break
    for index in np.flatnonzero((rows[:taken, KIND] == MessageType.ERROR) & (faults[:taken] == 0)):
        at = rows[index, BODY]
        try:
            data[at + ERROR_TEXT : at + rows[index, BODY_LENGTH]].tobytes().decode()
        except UnicodeDecodeError:
            faults[index] = Fault.ERROR_NOT_UTF8
    if inflated:
        data = np.concatenate([data, *(np.frombuffer(body, np.uint8) for body in inflated)])
    return taken, faults[:taken], data, starts[:taken], lengths[:taken]


def _plain(data: Array, row: list[int], parts: Array, most: int) -> bytes:
    """The unpacked body of one row, which may have so many bytes."""
    at = row[BODY]
    body = data[at : at + row[BODY_LENGTH]].tobytes()
    for part in parts[::-1]:
        if part[PART_ID] == ExtensionId.COMPRESSION:
            body = unpack(int(data[part[PART_START] + HEADER]), body, most)
    return body


def _json(data: Array, starts: Array, lengths: Array, valid: Array) -> pa.Array:
    """Bodies that are JSON objects or arrays, as text."""
    texts: list[str | None] = [None] * len(starts)
    if len(data):
        first = data[np.where(valid & (lengths > 0), starts, 0)]
        likely = np.flatnonzero(valid & (lengths > 0) & np.isin(first, _JSON_STARTS))
        if not len(likely):
            return nulls(pa.string(), len(starts))
        view = data.data
        for index, start, length in zip(likely.tolist(), starts[likely].tolist(), lengths[likely].tolist(), strict=True):
            body = bytes(view[start : start + length])
            try:
                _JSON.decode(body)
                texts[index] = body.decode()
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    return pa.array(texts, pa.string())
