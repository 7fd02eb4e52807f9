"""Arrow columns of Relink: every field, and the columns all protocols share.

Sequence numbers of messages are implicit and depend on earlier packets: they need the whole link, and are not here.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from wirelake.protocols.arrow import UNLIMITED, Array, Columns, binary, decimals, field, integers, names, nulls, truths
from wirelake.protocols.kernel import FAULT, KIND, LENGTH, PARTS, START
from wirelake.protocols.relink.faults import UNREADABLE, Fault
from wirelake.protocols.relink.messages import TYPES, HandshakeFlag, Kind, name_of
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
    ROW_COLUMNS,
    SEQUENCE,
    Limits,
)

__all__ = ["FAULTS", "PART_COLUMNS", "ROW_COLUMNS", "SCHEMA", "columns", "readable"]


def _list(name: str, comment: str) -> pa.Field:
    return field(name, pa.list_(pa.field("element", pa.binary())), comment)


SCHEMA: Final = pa.schema(
    [
        field("size", pa.int64(), "§2.1: bytes of the whole packet or part of the handshake"),
        field("type", pa.int16(), "§2.2, §2.3: the packet type; null in the handshake and for messages"),
        field("type_name", pa.string(), "§1, §2: what it is called"),
        field("format", pa.int16(), "§2.1: the channel packet format; null for general packets and the handshake"),
        field("multicast", pa.bool_(), "§2.3: for any number of channels; null where there are none"),
        field("channel_id_size", pa.int16(), "§2.3: bytes of a channel id of who sends messages on it (RELINK-6)"),
        field("channel_id_count", pa.int64(), "§2.3: how many channels it is about"),
        _list("channel_ids", "§2.3: their ids, in order, repeated as on the wire (RELINK-19)"),
        field("sequence", pa.int64(), "§2.3.2: the explicit sequence number; null in the next form"),
        field("long", pa.bool_(), "§2.3.3: the number of parts has 32 bits"),
        field("large", pa.bool_(), "§2.3.3: the sizes of parts have 64 bits"),
        field("message_length", pa.int64(), "§2.3.3.1: how many parts a message has"),
        _list("payload", "§2.3.3.3: the parts of a message"),
        field("version", pa.int16(), "§1: the version said in the handshake"),
        field("endpoint", pa.string(), "§1: the endpoint name; replacement characters where it is not UTF-8 (RELINK-31)"),
        field("connector_id_size", pa.int16(), "§1: the connector's channel id size"),
        field("listener_id_size", pa.int16(), "§1: the listener's channel id size"),
        field("connector_transactions", pa.bool_(), "§1: the connector's channel uses transactions"),
        field("listener_transactions", pa.bool_(), "§1: the listener's channel uses transactions"),
        field("require_old_link", pa.bool_(), "§1: no link will do but the old one"),
        field("epoch", pa.decimal128(20, 0), "§1: microseconds since 1970, of the listener instance; zero: none"),
        field("link_id", pa.decimal128(20, 0), "§1: the link within that instance; zero: none"),
        field("fault", pa.string(), "The first rule this breaks by itself; see violations"),
        field(
            "oddities",
            pa.int32(),
            "Bits for what is tolerated: 1 unused bits are set (RELINK-12), 2 not the minimal form (RELINK-30), 4 a multicast to nobody",
        ),
    ]
)
"""The columns of table `relink` that are Relink's own."""

FAULTS: Final[dict[int, str]] = {fault.value: fault.name for fault in Fault}
_NAMES: Final = {number.value: name_of(message_type) for message_type, number in TYPES.items()}
_KINDS: Final = ("handshake", "event", "ack", "keepalive", "control", "close")
_KIND_OF: Final = {
    **dict.fromkeys((Kind.VERSION, Kind.REQUEST, Kind.REPLY), 0),
    Kind.MESSAGE: 1,
    **dict.fromkeys((Kind.RECEIVED, Kind.CONSUMED, Kind.COMMITTED, Kind.UNCOMMITTED, Kind.CLOSED), 2),
    **dict.fromkeys((Kind.NOP, Kind.PING, Kind.PONG), 3),
    **dict.fromkeys((Kind.COMMIT, Kind.ROLLBACK, Kind.CLOSE, Kind.RESUME), 4),
    Kind.SHUTDOWN: 5,
}
_UNREADABLE: Final = np.array(sorted(UNREADABLE), np.int64)
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
"""Checks that bytes are JSON without making anything of it."""


def readable(rows: Array) -> Array:
    """Which rows can be read, whatever else is wrong with them."""
    return ~np.isin(rows[:, FAULT], _UNREADABLE)


def columns(
    data: Array,
    rows: Array,
    parts: Array,
    limits: Limits,  # noqa: ARG001 - as in every protocol
    json_bodies: bool = True,
    budget: int = UNLIMITED,  # noqa: ARG001 - columns grow with the bytes of the rows
) -> Columns:
    """The messages of readable rows; `parts` holds the parts of these rows and no others, in their order."""
    kind, flags = rows[:, KIND], rows[:, FLAGS]
    is_message = kind == Kind.MESSAGE
    is_channel = (kind >= Kind.COMMIT) & (kind <= Kind.MESSAGE)
    is_request = kind == Kind.REQUEST
    has_link = is_request | (kind == Kind.REPLY)
    has_sequence = is_channel & (rows[:, SEQUENCE] >= 0)
    ends = rows[:, START] + rows[:, LENGTH]
    endpoints, bad_names = _texts(data, rows, is_request)
    faults = np.where((rows[:, FAULT] == 0) & bad_names, int(Fault.ENDPOINT_NOT_UTF8), rows[:, FAULT])
    fault, type_name = names(faults, FAULTS), names(kind, _NAMES)
    payload = binary(data, parts[:, PART_START], parts[:, PART_LENGTH])
    channel_ids = _ids(data, rows, is_channel)
    own: dict[str, pa.Array] = {
        "size": integers(rows[:, LENGTH], pa.int64()),
        "type": integers(kind & 7, pa.int16(), kind < Kind.MESSAGE),
        "type_name": type_name,
        "format": integers((flags >> 2) & 7, pa.int16(), is_channel),
        "multicast": truths(flags & MULTICAST, is_channel),
        "channel_id_size": integers(rows[:, ID_SIZE], pa.int16(), is_channel),
        "channel_id_count": integers(rows[:, COUNT], pa.int64(), is_channel),
        "channel_ids": _grouped(channel_ids, np.where(is_channel, rows[:, COUNT], 0), is_channel),
        "sequence": integers(rows[:, SEQUENCE], pa.int64(), has_sequence),
        "long": truths(flags & LONG, is_message),
        "large": truths(flags & LARGE, is_message),
        "message_length": integers(rows[:, PARTS], pa.int64(), is_message),
        "payload": _grouped(payload, rows[:, PARTS], is_message),
        "version": integers(rows[:, SEQUENCE], pa.int16(), kind == Kind.VERSION),
        "endpoint": endpoints,
        "connector_id_size": _byte(data, rows[:, IDS], is_request),
        "listener_id_size": _byte(data, rows[:, IDS] + 1, is_request),
        "connector_transactions": truths(flags & HandshakeFlag.CONNECTOR_TRANSACTIONS, is_request),
        "listener_transactions": truths(flags & HandshakeFlag.LISTENER_TRANSACTIONS, is_request),
        "require_old_link": truths(flags & HandshakeFlag.REQUIRE_OLD_LINK, is_request),
        "epoch": decimals(_words(data, ends - LINK, has_link), has_link),
        "link_id": decimals(_words(data, ends - LINK // 2, has_link), has_link),
        "fault": fault,
        "oddities": integers(rows[:, ODDITIES], pa.int32()),
    }
    bodies = _bodies(data, rows, parts, is_message)
    kinds = np.zeros(len(rows), np.int64)
    for code, meaning in _KIND_OF.items():
        kinds = np.where(kind == code, meaning, kinds)
    subject = _subjects(data, rows, is_channel)
    shared: dict[str, pa.Array] = {
        "kind": names(kinds, _KINDS),
        "name": type_name,
        "subject": subject,
        "correlation_id": _correlations(subject, rows[:, SEQUENCE], has_sequence),
        "status": names(np.where(faults != 0, 1, np.where(kind == Kind.UNCOMMITTED, 2, 0)), ("ok", "faulty", "error")),
        "fault": fault,
        "body": bodies,
        "body_json": _json(bodies) if json_bodies else nulls(pa.string(), len(rows)),
        "verified": nulls(pa.bool_(), len(rows)),
    }
    return Columns(own, shared)


def _byte(data: Array, places: Array, where: Array) -> pa.Array:
    at = np.where(where, places, 0)
    return integers(data[at] if len(data) else np.zeros(len(at), np.uint8), pa.int16(), where)


def _words(data: Array, places: Array, where: Array) -> Array:
    """Eight bytes each, little-endian, at some places."""
    found = np.zeros(len(places), np.int64)
    if where.any():
        found[where] = data[places[where, None] + np.arange(8)].copy().view("<i8")[:, 0]
    return found


def _texts(data: Array, rows: Array, where: Array) -> tuple[pa.Array, Array]:
    """Endpoint names, and which are not UTF-8."""
    texts: list[str | None] = [None] * len(rows)
    bad = np.zeros(len(rows), bool)
    for index in np.flatnonzero(where):
        at = int(rows[index, BODY])
        raw = data[at : at + int(rows[index, BODY_LENGTH])].tobytes()
        texts[index] = text = raw.decode(errors="replace")
        bad[index] = text.encode(errors="replace") != raw
    return pa.array(texts, pa.string()), bad


def _ids(data: Array, rows: Array, where: Array) -> pa.Array:
    """The channel ids of all rows, one after the other."""
    counts = np.where(where, rows[:, COUNT], 0)
    sizes = np.repeat(rows[:, ID_SIZE], counts)
    firsts = np.cumsum(counts) - counts
    starts = np.repeat(rows[:, IDS], counts) + (np.arange(counts.sum()) - np.repeat(firsts, counts)) * sizes
    return binary(data, starts, sizes)


def _grouped(values: pa.Array, counts: Array, where: Array) -> pa.Array:
    """One list of values a row, null where there is none."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    mask = pa.array(~where) if not where.all() else None
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=pa.list_(pa.field("element", values.type)), mask=mask)


def _bodies(data: Array, rows: Array, parts: Array, where: Array) -> pa.Array:
    """The parts of a message, joined."""
    counts, lengths = rows[:, PARTS], np.zeros(len(rows), np.int64)
    np.add.at(lengths, np.repeat(np.arange(len(rows)), counts), parts[:, PART_LENGTH])
    joined = binary(data, parts[:, PART_START], parts[:, PART_LENGTH])
    whole = np.frombuffer(joined.buffers()[2], np.uint8) if len(joined) and joined.buffers()[2] is not None else np.zeros(0, np.uint8)
    return binary(whole, np.cumsum(lengths) - lengths, lengths, where)


def _subjects(data: Array, rows: Array, is_channel: Array) -> pa.DictionaryArray:
    """The channel of a row that is about one, as hex."""
    one = is_channel & (rows[:, COUNT] == 1)
    encoded = binary(data, rows[:, IDS], rows[:, ID_SIZE], one).dictionary_encode()
    known = pa.array([raw.hex() for raw in encoded.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(encoded.indices, known)


def _correlations(subject: pa.DictionaryArray, sequences: Array, where: Array) -> pa.Array:
    """`channel/sequence` of rows that say both."""
    ids: list[str | None] = [None] * len(sequences)
    for index in np.flatnonzero(where):
        channel = subject[int(index)].as_py()
        ids[index] = None if channel is None else f"{channel}/{sequences[index]}"
    return pa.array(ids, pa.string())


def _json(bodies: pa.Array) -> pa.Array:
    """Bodies that are JSON objects or arrays, as text."""
    texts: list[str | None] = [None] * len(bodies)
    for index, body in enumerate(bodies.to_pylist()):
        if body and body[0] in b"{[":
            try:
                _JSON.decode(body)
                texts[index] = body.decode()
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    return pa.array(texts, pa.string())
