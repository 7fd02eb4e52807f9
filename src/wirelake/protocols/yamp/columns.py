"""Arrow columns of YAMP messages: every field, and the columns all protocols share.

It turns bytes and scanned rows into columns, a block at a time. Only fields that need a library (broken UTF-8, the serializers) are read
one by one, and only on the rows that have them.

The first message of either direction is the handshake, or its echo, and names the serializer of bodies. `negotiated` reads the name off the
rows of many speakers. A caller that scans a connection in several parts keeps the names it has read.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from wirelake.protocols.arrow import (
    UNLIMITED,
    Array,
    BodySerializers,
    Columns,
    binary,
    field,
    hexes,
    integers,
    names,
    nulls,
    truths,
    within,
)
from wirelake.protocols.kernel import FAULT, KIND, LENGTH, START
from wirelake.protocols.yamp.faults import UNREADABLE, Fault
from wirelake.protocols.yamp.limits import Limits
from wirelake.protocols.yamp.messages import TYPES, MessageType, ResponseType, name_of
from wirelake.protocols.yamp.scanner import (
    BODY,
    BODY_LENGTH,
    CODE,
    ODD_BODY,
    ODDITIES,
    PART_COLUMNS,
    ROW_COLUMNS,
    UID_SIZE,
    URI,
    URI_LENGTH,
)
from wirelake.protocols.yamp.serializers.bodies import unpack
from wirelake.protocols.yamp.serializers.formats import installed
from wirelake.protocols.yamp.serializers.registry import STANDARD, Serializer

__all__ = ["FAULTS", "PART_COLUMNS", "ROW_COLUMNS", "SCHEMA", "columns", "negotiated", "readable"]

SCHEMA: Final = pa.schema(
    [
        field("size", pa.int64(), "Message: bytes of the whole message"),
        field("type", pa.int16(), "Message: its type, 0 to 8"),
        field("type_name", pa.string(), "Message: the name of the type"),
        field("version", pa.int32(), "0x00 system.handshake: the version; 1 is 1.0 (YAMP-2)"),
        field("serializer", pa.string(), "0x00 system.handshake: the name of the serializer; empty is the server's default (YAMP-5)"),
        field("payload", pa.binary(), "0x01 system.ping, 0x02 system.pong: the payload"),
        field("reason", pa.string(), "0x03 system.close: the reason; replacement characters where it is not UTF-8 (YAMP-16)"),
        field("url", pa.string(), "0x04 system.close-redirect: where the client shall go"),
        field("uid", pa.binary(), "UserMessageHeader: 16 bytes that name this message"),
        field("uri", pa.string(), "UserMessageHeader: the uri (name) of the user message"),
        field("progressive", pa.bool_(), "0x06 request: whether progress is wanted; any number but 0 is true (YAMP-28)"),
        field("request_uid", pa.binary(), "0x07 cancel, 0x08 response: the uid of the request"),
        field("kill", pa.bool_(), "0x07 cancel: interrupt, and answer nothing"),
        field("response_type", pa.int16(), "0x08 response: 0 done, 1 error, 2 progress, 3 cancelled"),
        field("response_type_name", pa.string(), "0x08 response: the name of the type; null for one that is unknown (YAMP-36)"),
        field("body", pa.binary(), "UserMessageBody: as the serializer made it; empty is no body (YAMP-31)"),
        field("body_serializer", pa.string(), "UserMessageBody: the serializer that was agreed on; null if it was not seen"),
        field("fault", pa.string(), "The first rule this message breaks by itself; see violations"),
        field(
            "oddities",
            pa.int32(),
            "Bits for what is tolerated: 1 an odd truth value (YAMP-28), 2 an empty uri (YAMP-26), 4 a reason that is not UTF-8"
            " (YAMP-16), 8 an empty serializer (YAMP-5), 16 a body that the serializer refuses (YAMP-44), if bodies were looked at",
        ),
    ]
)
"""The columns of table `yamp` that are YAMP's own."""

FAULTS: Final[dict[int, str]] = {fault.value: fault.name for fault in Fault}
_NAMES: Final = {number.value: name_of(message) for message, number in TYPES.items()}
_RESPONSES: Final = {kind.value: kind.name.lower() for kind in ResponseType}
_KINDS: Final = ("handshake", "keepalive", "keepalive", "close", "close", "event", "request", "cancel", "response", "progress")
"""By message type; the last one is a response that reports progress.

One that says `cancelled` is the outcome of its request.
"""
_UNREADABLE: Final = np.array(sorted(UNREADABLE), np.int64)
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
"""Checks that bytes are JSON without making anything of it."""
_JSON_STARTS: Final = np.frombuffer(b"{[", np.uint8)
_JSON_GROWTH: Final = 4
"""Bytes of JSON that a byte of a body becomes at most, in bodies as they are.

A text may take more, but not more than a batch.
"""
_MSGPACK_STARTS: Final = np.array([*range(0x80, 0xA0), *range(0xDC, 0xE0)], np.uint8)
"""First bytes of a JSON object or array, and of a map or array of msgpack."""


def readable(rows: Array) -> Array:
    """The rows that are messages, with a fault or without."""
    return ~np.isin(rows[:, FAULT], _UNREADABLE)


def negotiated(data: Array, rows: Array, speakers: Array, known: MutableMapping[int, str]) -> BodySerializers:
    """The serializer of each row: that of its speaker's first handshake, which may be in `known` (YAMP-11: a second one is ignored).

    `speakers` has the speaker of each row, one number for each direction of each connection; rows of one speaker are in order. `known` is
    updated: a caller that scans a connection in pieces keeps it for the next piece.
    """
    codes: dict[str, int] = {}
    present, places = np.unique(speakers, return_inverse=True)
    begins = {speaker: 0 for speaker in present.tolist() if speaker in known}
    for index in np.flatnonzero((rows[:, KIND] == MessageType.HANDSHAKE) & (rows[:, FAULT] == 0)).tolist():
        speaker = int(speakers[index])
        if speaker not in begins:
            at = int(rows[index, BODY])
            known[speaker] = data[at : at + int(rows[index, BODY_LENGTH])].tobytes().decode()
            begins[speaker] = index
    own = [codes.setdefault(known[speaker], len(codes)) if speaker in begins else -1 for speaker in present.tolist()]
    first = [begins.get(speaker, 0) for speaker in present.tolist()]
    is_named = np.arange(len(rows)) >= np.array(first, np.int64)[places]
    return BodySerializers(np.where(is_named, np.array(own, np.int32)[places], np.int32(-1)), tuple(codes))


def columns(
    data: Array,
    rows: Array,
    parts: Array,  # noqa: ARG001 - as in every protocol
    limits: Limits,
    json_bodies: bool = True,
    budget: int = UNLIMITED,
    body_serializers: BodySerializers | None = None,
    serializers: Mapping[str, Serializer] | None = None,
) -> Columns:
    """The messages of readable rows; bodies whose serializer is not known are read as what they look like."""
    if body_serializers is None:
        body_serializers = BodySerializers(np.full(len(rows), -1, np.int32), ())
    taken = within(np.where(rows[:, KIND] >= MessageType.EVENT, rows[:, BODY_LENGTH], 0) * _JSON_GROWTH, budget)
    rows, body_serializers = rows[:taken], body_serializers.where(slice(taken))
    kind, code = rows[:, KIND], rows[:, CODE]
    is_user = kind >= MessageType.EVENT
    is_response = kind == MessageType.RESPONSE
    refers = kind >= MessageType.CANCEL
    has_body = is_user & (kind != MessageType.CANCEL)
    after = rows[:, URI] + rows[:, URI_LENGTH]
    fault = names(rows[:, FAULT], FAULTS)
    type_name = names(kind, _NAMES)
    uri = _texts(data, rows[:, URI], rows[:, URI_LENGTH], is_user)
    body = binary(data, rows[:, BODY], rows[:, BODY_LENGTH], has_body)
    uids = np.full(len(rows), UID_SIZE)
    texts, refused = nulls(pa.string(), len(rows)), np.zeros(len(rows), bool)
    if json_bodies:
        known = installed(limits.bounds) if serializers is None else serializers
        texts, refused = _json(data, rows, has_body & (rows[:, BODY_LENGTH] > 0), body_serializers, known, budget)
    own: dict[str, pa.Array] = {
        "size": integers(rows[:, LENGTH], pa.int64()),
        "type": integers(kind, pa.int16()),
        "type_name": type_name,
        "version": integers(code, pa.int32(), kind == MessageType.HANDSHAKE),
        "serializer": _texts(data, rows[:, BODY], rows[:, BODY_LENGTH], kind == MessageType.HANDSHAKE),
        "payload": binary(data, rows[:, BODY], rows[:, BODY_LENGTH], (kind == MessageType.PING) | (kind == MessageType.PONG)),
        "reason": _reasons(data, rows, kind == MessageType.CLOSE),
        "url": _texts(data, rows[:, BODY], rows[:, BODY_LENGTH], kind == MessageType.CLOSE_REDIRECT),
        "uid": binary(data, rows[:, START] + 1, uids, is_user),
        "uri": uri,
        "progressive": truths(code, kind == MessageType.REQUEST),
        "request_uid": binary(data, after, uids, refers),
        "kill": truths(code, kind == MessageType.CANCEL),
        "response_type": integers(code, pa.int16(), is_response),
        "response_type_name": names(code, _RESPONSES, is_response),
        "body": body,
        "body_serializer": names(body_serializers.codes, body_serializers.names, has_body),
        "fault": fault,
        "oddities": integers(rows[:, ODDITIES] | np.where(refused, ODD_BODY, 0), pa.int32()),
    }
    is_progress = is_response & (code == ResponseType.PROGRESS)
    reports_error = is_response & (code == ResponseType.ERROR)
    shared: dict[str, pa.Array] = {
        "kind": names(np.where(is_progress, len(_KINDS) - 1, kind), _KINDS),
        "name": type_name,
        "subject": uri,
        "correlation_id": hexes(data, np.where(refers, after, rows[:, START] + 1), UID_SIZE, is_user & (kind != MessageType.EVENT)),
        "status": names(np.where(rows[:, FAULT] != 0, 1, np.where(reports_error, 2, 0)), ("ok", "faulty", "error")),
        "fault": fault,
        "body": body,
        "body_json": texts,
        "verified": nulls(pa.bool_(), len(rows)),
    }
    return Columns(own, shared, taken=taken)


def _texts(data: Array, starts: Array, lengths: Array, where: Array) -> pa.Array:
    """Text that the scanner found to be UTF-8."""
    return binary(data, starts, lengths, where).cast(pa.string())


def _reasons(data: Array, rows: Array, where: Array) -> pa.Array:
    texts: list[str | None] = [None] * len(rows)
    for index in np.flatnonzero(where):
        at, length = int(rows[index, BODY]), int(rows[index, BODY_LENGTH])
        texts[index] = data[at : at + length].tobytes().decode(errors="replace")
    return pa.array(texts, pa.string())


def _json(
    data: Array, rows: Array, where: Array, body_serializers: BodySerializers, serializers: Mapping[str, Serializer], most: int
) -> tuple[pa.Array, Array]:
    """Bodies as JSON text, and which ones were refused.

    JSON stays as it came; other bodies are read by their serializer. A body whose text would take more than `most` bytes counts as refused.
    """
    texts: list[str | None] = [None] * len(rows)
    refused = np.zeros(len(rows), bool)
    view = data.data
    for code in np.unique(body_serializers.codes[where]):
        chosen = np.flatnonzero(where & (body_serializers.codes == code))
        name = body_serializers.names[code] if code >= 0 else ""
        for chosen_now, serializer in _readers(data[rows[chosen, BODY]], chosen, name, serializers):
            for index, start, length in zip(
                chosen_now.tolist(), rows[chosen_now, BODY].tolist(), rows[chosen_now, BODY_LENGTH].tolist(), strict=True
            ):
                texts[index] = text = _text(bytes(view[start : start + length]), serializer, most)
                refused[index] = text is None and name != ""
    return pa.array(texts, pa.string()), refused


def _readers(first: Array, chosen: Array, name: str, serializers: Mapping[str, Serializer]) -> list[tuple[Array, Serializer | None]]:
    """The serializer of each body; None reads JSON.

    Without a name, the first bytes of a body decide, and no fault is reported.

    A name is missing if it was left to the server (YAMP-5), or if the handshake was not captured.
    """
    if name == "json":
        return [(chosen, None)]
    if name:
        return [(chosen, serializers[name])] if name in serializers else []
    return [(chosen[np.isin(first, _JSON_STARTS)], None), (chosen[np.isin(first, _MSGPACK_STARTS)], STANDARD["msgpack"])]


def _text(body: bytes, serializer: Serializer | None, most: int) -> str | None:
    try:
        if serializer is None:
            _JSON.decode(body)
            return body.decode()
        text = msgspec.json.encode(unpack(serializer, body), enc_hook=str)
        return text.decode() if len(text) <= most else None
    except Exception:  # YAMP-44: whatever a serializer says of a body it cannot read; the bytes are in `body`
        return None
