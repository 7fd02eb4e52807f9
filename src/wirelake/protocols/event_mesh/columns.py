"""Arrow columns of Event Mesh packets: every field, and the columns all protocols share.

It turns bytes and scanned rows into columns, a block at a time. `verified` is null here: it takes keys to fill it in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec
import numpy as np
import pyarrow as pa

from wirelake.errors import DecodeError
from wirelake.protocols.arrow import UNLIMITED, Array, Columns, binary, decimals, field, integers, names, nulls, truths
from wirelake.protocols.event_mesh.faults import UNREADABLE, Fault
from wirelake.protocols.event_mesh.limits import Limits
from wirelake.protocols.event_mesh.messages import HEADER, LONGEST_FIELD, TYPES, EventType, FieldType, Flag, name_of
from wirelake.protocols.event_mesh.packet.required_fields import HIDING
from wirelake.protocols.event_mesh.packet.values import is_joined, parse_json
from wirelake.protocols.event_mesh.scanner import (
    ALGORITHM,
    AUTH_KEY_ID,
    ENCRYPTION,
    FLAGS,
    HMAC,
    IV,
    IV_LENGTH,
    KEY_ID,
    MESSAGE_ID,
    NODE_ID,
    NONCE,
    ODDITIES,
    PART_COLUMNS,
    PART_LENGTH,
    PART_PARENT,
    PART_START,
    PART_TYPE,
    PUBLIC_KEY,
    ROW_COLUMNS,
    SIGNATURE,
    SIGNED,
    SUB_KEY_ID,
    TIMESTAMP,
)
from wirelake.protocols.event_mesh.security.encryption import Opened, is_broken, unseal
from wirelake.protocols.event_mesh.wire import decode, encode_fields
from wirelake.protocols.kernel import FAULT, KIND, LENGTH, PARTS, START

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.security.trust import TrustStore
    from wirelake.protocols.protocol import FragmentState

__all__ = ["FAULTS", "ODD_INSIDE", "PART_COLUMNS", "ROW_COLUMNS", "SCHEMA", "columns", "passive", "readable", "session_of"]

_FIELD: Final = pa.struct(
    [
        field("type", pa.int16(), "§4: what kind of field"),
        field("length", pa.int16(), "§4: bytes of its value"),
        field("value", pa.binary(), "§4: its value"),
        field("parent", pa.int16(), "§4.2.1: the type of the field it is inside of; null at the top"),
    ]
)


def _list(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    return field(name, pa.list_(pa.field("element", kind)), comment)


_HIDDEN: Final = "; of a hidden payload that was opened, from inside"

SCHEMA: Final = pa.schema(
    [
        field("size", pa.int64(), "§2: bytes of the whole packet"),
        field("version", pa.int16(), "§2.2: the version of the protocol"),
        field("packet_id", pa.int64(), "§2.2: the Message ID, which tells a node's packets apart"),
        field("flags", pa.int16(), "§2.3: 1 urgent, 2 encrypted, 4 compressed"),
        field("urgent", pa.bool_(), "§2.3: to be processed first"),
        field("encrypted", pa.bool_(), "§2.3: the payload is encrypted"),
        field("compressed", pa.bool_(), "§2.3: the payload is compressed"),
        field("event_type", pa.int16(), "§3: the event type"),
        field("type_name", pa.string(), "§3: its name; `other` where the specification has none (EMM-21)"),
        field("timestamp", pa.decimal128(20, 0), "§2.2: when the event was created, seconds since 1970"),
        field("payload_length", pa.int32(), "§2.2: bytes of the payload"),
        field("payload", pa.binary(), "§2.2: the fields as on the wire"),
        field("fields", pa.list_(pa.field("element", _FIELD)), "§4: the fields in order, those inside encryption metadata after it"),
        field("event_name", pa.string(), f"§3.3: the first string (EMM-20); replacement characters where it is not UTF-8{_HIDDEN}"),
        _list("strings", pa.string(), f"§4.1: every string, joined (EMM-10){_HIDDEN}"),
        _list("integers", pa.int32(), f"§4.1: every integer{_HIDDEN}"),
        _list("floats", pa.float32(), f"§4.1: every float, with the bits it came with (EMM-1){_HIDDEN}"),
        _list("binaries", pa.binary(), f"§4.1: every binary value, joined{_HIDDEN}"),
        _list("jsons", pa.string(), f"§4.1: every JSON value, joined, as it came{_HIDDEN}"),
        field("node_id", pa.binary(), "§4.2, 0x14: who says it is the sender"),
        field("auth_key_id", pa.binary(), "§4.2, 0x18: by which key it is to be verified"),
        field("hmac", pa.binary(), "§4.2, 0x10: the HMAC"),
        field("signature", pa.binary(), "§4.2, 0x12: the signature"),
        field("public_key", pa.binary(), "§4.2, 0x13: the key the packet brings along"),
        field("signed_timestamp", pa.decimal128(20, 0), "§4.2, 0x15: when it was signed, seconds since 1970"),
        field("nonce", pa.binary(), "§4.2, 0x16: the nonce beside encryption metadata"),
        field("key_id", pa.binary(), "§4.2, 0x17: the encryption key beside encryption metadata"),
        field("encryption", pa.binary(), "§4.2, 0x11: the encryption metadata as on the wire"),
        field("algorithm", pa.int16(), "§4.2.2: 1 AES-256-GCM, 2 ChaCha20-Poly1305"),
        field("iv", pa.binary(), "§4.2.1: the IV or nonce of the encryption metadata"),
        field("encryption_key_id", pa.binary(), "§4.2.1: the encryption key the metadata names"),
        field("fault", pa.string(), "The first rule this packet breaks by its form (EMM-28); see violations"),
        field(
            "oddities",
            pa.int32(),
            "Bits: 1 not in a sender's order (EMM-5), 2 an open value (EMM-10), 4 a key without signature (EMM-33), 8 a JSON value that is"
            " no object (EMM-11), if bodies were looked at; of a hidden payload: 16 its key does not open it (EMM-13), 32 security fields"
            " inside (EMM-13), 64 it inflates over the limit (EMM-14)",
        ),
    ]
)
"""The columns of table `event_mesh` that are Event Mesh's own."""

FAULTS: Final[dict[int, str]] = {fault.value: fault.name for fault in Fault}
NODE_ID_SIZE: Final = 16
ODD_JSON: Final = 8
"""EMM-11: the bit of `oddities` that no scanner sets."""
ODD_INSIDE: Final = {Fault.DECRYPTION_FAILED: 16, Fault.SECURITY_FIELD_SEALED: 32, Fault.INFLATED_OVER_LIMIT: 64}
"""EMM-13, EMM-14: bits of `oddities` about what a payload hides."""
OTHER: Final = 0
"""Stands for every event type without a name."""
_NAMES: Final = {OTHER: "other"} | {number.value: name_of(message) for message, number in TYPES.items()}
_KINDS: Final = ("event", "handshake", "keepalive", "event")
_UNREADABLE: Final = np.array(sorted(UNREADABLE), np.int64)


def readable(rows: Array) -> Array:
    """The rows that are packets with fields, with a fault or without."""
    return ~np.isin(rows[:, FAULT], _UNREADABLE)


def passive(
    data: Array,
    rows: Array,
    speakers: Array,  # noqa: ARG001 - as in every protocol
    seconds: Array,  # noqa: ARG001
    decoders: dict[int, FragmentState],  # noqa: ARG001
    limits: Limits,
    keys: TrustStore | None,
    budget: int = UNLIMITED,
) -> tuple[dict[int, Opened], int]:
    """Open hidden payloads that keep to the profile of EMM-13 and EMM-14; by row number, for `columns`.

    Also how many of the rows were looked at: no more once half of the budget is used.
    """
    limits, size = msgspec.structs.replace(limits, max_inflated_size=min(limits.max_inflated_size, budget)), 0
    is_hidden = (rows[:, FLAGS] & HIDING != 0) & np.isin(rows[:, KIND], (EventType.HELLO, EventType.EVENT)) & (rows[:, FAULT] == 0)
    found = {}
    for index in np.flatnonzero(is_hidden).tolist():
        start, length = rows[index, [START, LENGTH]].tolist()
        said = decode(data[start : start + length].tobytes(), limits)
        try:
            plain = encode_fields(unseal(said, {} if keys is None else keys.encryption, limits))
        except DecodeError as reason:
            odd = ODD_INSIDE.get(cast(Fault, reason.fault), 0) if is_broken(cast(Fault, reason.fault), said) else 0
            found[index] = Opened(None, odd)
            continue
        found[index] = Opened(plain)
        size += len(plain)
        if size > budget // 2:
            return found, index + 1
    return found, len(rows)


def columns(
    data: Array,
    rows: Array,
    parts: Array,
    limits: Limits,  # noqa: ARG001 - as in every protocol
    json_bodies: bool = True,
    budget: int = UNLIMITED,  # noqa: ARG001 - columns grow with the bytes of the rows
    passive_results: Mapping[int, Opened] | None = None,
) -> Columns:
    """The packets of readable rows; `parts` holds the parts of these rows and no others, in their order.

    `passive_results` has the results of `passive` about them.
    """
    kind, flags = rows[:, KIND], rows[:, FLAGS]
    row_of = np.repeat(np.arange(len(rows)), rows[:, PARTS])
    odd_inside = np.zeros(len(rows), np.int64)
    opened: dict[int, bytes] = {}
    for index, one in (passive_results or {}).items():
        odd_inside[index] = one.odd
        if one.plain is not None:
            opened[index] = one.plain
    inside = _inside(data, rows, parts, row_of, opened)
    has_faults = bool(rows[:, FAULT].any())
    named = np.where((kind >= 1) & (kind <= len(TYPES)), kind, OTHER)
    type_name, fault = names(named, _NAMES), names(rows[:, FAULT], FAULTS)
    payload = binary(data, rows[:, START] + HEADER, rows[:, LENGTH] - HEADER)
    values = (inside.data, rows, inside.parts, inside.row_of)
    strings, jsons = (_texts(*values, one, has_faults) for one in (FieldType.STRING, FieldType.JSON))
    objects, odd = _json(jsons) if json_bodies else (nulls(pa.string(), len(rows)), np.zeros(len(rows), np.int64))
    event_name = _firsts(strings)
    packet_id = integers(rows[:, MESSAGE_ID], pa.int64())
    own: dict[str, pa.Array] = {
        "size": integers(rows[:, LENGTH], pa.int64()),
        "version": integers(np.ones(len(rows), np.int64), pa.int16()),
        "packet_id": packet_id,
        "flags": integers(flags, pa.int16()),
        "urgent": truths(flags & Flag.URGENT),
        "encrypted": truths(flags & Flag.ENCRYPTED),
        "compressed": truths(flags & Flag.COMPRESSED),
        "event_type": integers(kind, pa.int16()),
        "type_name": type_name,
        "timestamp": decimals(rows[:, TIMESTAMP]),
        "payload_length": integers(rows[:, LENGTH] - HEADER, pa.int32()),
        "payload": payload,
        "fields": _fields(data, rows, parts),
        "event_name": event_name,
        "strings": strings,
        "integers": _numbers(*values, FieldType.INTEGER, ">i4", pa.int32()),
        "floats": _numbers(*values, FieldType.FLOAT, ">f4", pa.float32()),
        "binaries": _joined(*values, FieldType.BINARY),
        "jsons": jsons,
        "node_id": _place(data, rows, NODE_ID, NODE_ID_SIZE),
        "auth_key_id": _place(data, rows, AUTH_KEY_ID, 4),
        "hmac": _place(data, rows, HMAC, 32),
        "signature": _place(data, rows, SIGNATURE, 64),
        "public_key": _place(data, rows, PUBLIC_KEY, 32),
        "signed_timestamp": _times(data, rows),
        "nonce": _place(data, rows, NONCE, 12),
        "key_id": _place(data, rows, KEY_ID, 16),
        "encryption": _place(data, rows, ENCRYPTION, _length_before(data, rows[:, ENCRYPTION])),
        "algorithm": integers(rows[:, ALGORITHM], pa.int16(), rows[:, ALGORITHM] >= 0),
        "iv": _place(data, rows, IV, rows[:, IV_LENGTH]),
        "encryption_key_id": _place(data, rows, SUB_KEY_ID, 16),
        "fault": fault,
        "oddities": integers(rows[:, ODDITIES] | odd_inside | np.where(rows[:, FAULT] == 0, odd, 0), pa.int32()),
    }
    shared: dict[str, pa.Array] = {
        "kind": names(named, _KINDS),
        "name": type_name,
        "subject": event_name,
        "correlation_id": packet_id.cast(pa.string()),
        "status": names((rows[:, FAULT] != 0).astype(np.int64), ("ok", "faulty")),
        "fault": fault,
        "body": binary(inside.data, inside.starts, inside.lengths) if opened else payload,
        "body_json": objects,
        "verified": nulls(pa.bool_(), len(rows)),
    }
    return Columns(own, shared, node_sessions(data, rows))


class _Inside(NamedTuple):
    """Where the values of rows are: in their packets, or in the payloads that were opened, which stand after all packets."""

    data: Array
    parts: Array
    row_of: Array
    starts: Array
    lengths: Array


def _inside(data: Array, rows: Array, parts: Array, row_of: Array, opened: Mapping[int, bytes]) -> _Inside:
    starts, lengths = rows[:, START] + HEADER, rows[:, LENGTH] - HEADER
    if not opened:
        return _Inside(data, parts, row_of, starts, lengths)
    stays = ~np.isin(row_of, list(opened))
    more, owner, at = [], [], len(data)
    for index, plain in opened.items():
        starts[index], lengths[index], place = at, len(plain), 0
        while place < len(plain):
            part = np.zeros(PART_COLUMNS, np.int64)
            part[[PART_START, PART_TYPE, PART_LENGTH]] = at + place, plain[place], plain[place + 1]
            more.append(part)
            owner.append(index)
            place += 2 + plain[place + 1]
        at += len(plain)
    all_parts = np.concatenate([parts[stays], np.array(more, np.int64).reshape(-1, PART_COLUMNS)])
    all_owners = np.concatenate([row_of[stays], np.array(owner, np.int64)])
    order = np.argsort(all_owners, kind="stable")
    return _Inside(
        np.concatenate([data, np.frombuffer(b"".join(opened.values()), np.uint8)]), all_parts[order], all_owners[order], starts, lengths
    )


def node_sessions(data: Array, rows: Array) -> pa.Array:
    """The session of a packet: that of the node it names as its sender; null if it names none."""
    valid = rows[:, NODE_ID] >= 0
    ids = np.zeros((len(rows), NODE_ID_SIZE), np.uint8)
    if valid.any():
        ids[valid] = data[rows[valid, NODE_ID, None] + np.arange(NODE_ID_SIZE)]
    distinct, which = np.unique(ids.view(f"V{NODE_ID_SIZE}").reshape(-1), return_inverse=True)
    sessions = pa.array([session_of(node.tobytes()) for node in distinct], pa.binary())
    return sessions.take(pa.array(which, mask=~valid))


def session_of(node_id: bytes) -> bytes:
    """The id of a node's session; no connection can have the same id, whatever the node id is."""
    return hashlib.blake2b(node_id, digest_size=16, person=b"event mesh node").digest()


def _place(data: Array, rows: Array, column: int, size: int | Array) -> pa.Array:
    """The bytes at a place of some rows; null where there is none."""
    valid = rows[:, column] >= 0
    return binary(data, np.where(valid, rows[:, column], 0), np.where(valid, size, 0), valid)


def _length_before(data: Array, places: Array) -> Array:
    """The length byte that stands before a value."""
    if not len(data):
        return np.zeros(len(places), np.int64)
    return np.where(places >= 0, data[np.where(places >= 0, places - 1, 0)], 0).astype(np.int64)


def _times(data: Array, rows: Array) -> pa.Array:
    valid = rows[:, SIGNED] >= 0
    seconds = np.zeros(len(rows), np.int64)
    if valid.any():
        seconds[valid] = data[rows[valid, SIGNED, None] + np.arange(8)].copy().view(">i8")[:, 0]
    return decimals(seconds, valid)


def _offsets(counts: Array) -> pa.Array:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.array(offsets)


def _fields(data: Array, rows: Array, parts: Array) -> pa.Array:
    parents = parts[:, PART_PARENT]
    struct = pa.StructArray.from_arrays(
        [
            integers(parts[:, PART_TYPE], pa.int16()),
            integers(parts[:, PART_LENGTH], pa.int16()),
            binary(data, parts[:, PART_START] + 2, parts[:, PART_LENGTH]),
            integers(parents, pa.int16(), parents != 0),
        ],
        fields=list(_FIELD),
    )
    return pa.ListArray.from_arrays(_offsets(rows[:, PARTS]), struct, type=SCHEMA.field("fields").type)


def _joined(data: Array, rows: Array, parts: Array, row_of: Array, kind: int) -> pa.Array:
    """EMM-10: every value of one type, a list for each row.

    Pieces of a value are neighbours among the pieces of its type.
    """
    chosen = (parts[:, PART_TYPE] == kind) & (parts[:, PART_PARENT] == 0)
    pieces, owner = parts[chosen], row_of[chosen]
    begins = np.ones(len(pieces), np.bool_)
    if is_joined(kind) and len(pieces):
        begins[1:] = (owner[1:] != owner[:-1]) | (pieces[:-1, PART_LENGTH] != LONGEST_FIELD)
    whole = binary(data, pieces[:, PART_START] + 2, pieces[:, PART_LENGTH])
    if not begins.all():
        edges = np.concatenate([[0], np.cumsum(pieces[:, PART_LENGTH])])[np.append(np.flatnonzero(begins), len(pieces))]
        whole = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges.astype(np.int32)), whole.buffers()[2]])
    counts = np.bincount(owner[begins], minlength=len(rows))
    return pa.ListArray.from_arrays(_offsets(counts), whole)


def _texts(data: Array, rows: Array, parts: Array, row_of: Array, kind: int, has_faults: bool) -> pa.Array:
    """The same as text; the scanner has seen that it is UTF-8, unless a row has a fault."""
    lists = _joined(data, rows, parts, row_of, kind)
    whole = lists.values
    if has_faults:
        texts: Any = pa.array([value.decode(errors="replace") for value in whole.to_pylist()], pa.string())
    else:
        texts = whole.cast(pa.string())
    return pa.ListArray.from_arrays(lists.offsets, texts)


def _firsts(lists: pa.Array) -> pa.Array:
    """The first of each list; null for an empty one."""
    offsets = lists.offsets.to_numpy()
    return lists.values.take(pa.array(offsets[:-1].astype(np.int64), mask=offsets[:-1] == offsets[1:]))


def _numbers(data: Array, rows: Array, parts: Array, row_of: Array, kind: int, form: str, to: pa.DataType) -> pa.Array:
    """Every number of one type; one that has not four bytes is null."""
    chosen = (parts[:, PART_TYPE] == kind) & (parts[:, PART_PARENT] == 0)
    pieces, owner = parts[chosen], row_of[chosen]
    right = pieces[:, PART_LENGTH] == 4
    found = np.zeros(len(pieces), np.dtype(form).newbyteorder("="))
    if right.any():
        found[right] = data[pieces[right, PART_START, None] + np.arange(2, 6)].copy().view(form)[:, 0]
    counts = np.bincount(owner, minlength=len(rows))
    return pa.ListArray.from_arrays(_offsets(counts), pa.array(found, to, mask=~right))


def _json(jsons: pa.Array) -> tuple[pa.Array, Array]:
    """EMM-11: the first JSON value that is an object, and `ODD_JSON` for rows with a value that is none."""
    texts: list[str | None] = []
    odd = np.zeros(len(jsons), np.int64)
    for index, found in enumerate(jsons.to_pylist()):
        objects = [text for text in found if _is_object(text)]
        texts.append(objects[0] if objects else None)
        if len(objects) != len(found):
            odd[index] = ODD_JSON
    return pa.array(texts, pa.string()), odd


def _is_object(text: str) -> bool:
    try:
        parse_json(text.encode())
    except DecodeError:
        return False
    return True
