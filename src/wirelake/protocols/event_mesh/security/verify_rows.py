"""Verify HMACs and signatures of many packets at once, against a trust store.

The lake calls `verified` for a block being decoded, and `judge_batches` for rows of the table `event_mesh`. Rows of the table are
packed into datagrams again, and scanned. HMACs are many and cheap: a key is looked up once for all packets it may have made. Other packets
are verified one by one, like live ones: with a signature, with a key inside, with a revoked or replaced key, with fields out of order.

Time and replays are not judged here: the lake does that (`lake/gold/fold/security.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import HEADER, VERSION
from wirelake.protocols.event_mesh.packet.layout import (
    AUTH_KEY_ID,
    CANONICAL,
    HMAC,
    NODE_ID,
    PART_COLUMNS,
    PUBLIC_KEY,
    ROW_COLUMNS,
    SIGNATURE,
)
from wirelake.protocols.event_mesh.scanner import Limits, walk
from wirelake.protocols.event_mesh.security.canonical import keyed_hmac
from wirelake.protocols.event_mesh.security.trust import FirstUse, Key, Policy, Trust, TrustStore
from wirelake.protocols.event_mesh.security.verify import Identity, Rejected, authenticate
from wirelake.protocols.kernel import FAULT, PART, PARTS, START, over_arrays

__all__ = ["GENUINE", "INPUT", "OUTPUT", "Verdicts", "judge", "judge_batches", "verified"]

Array = np.ndarray[Any, Any]

INPUT: Final = ("message_id", "ts", "packet_id", "flags", "event_type", "timestamp", "payload")
"""The columns of `event_mesh` that a packet is put together from, and when it was seen."""
OUTPUT: Final = pa.schema([("message_id", pa.binary()), ("verdict", pa.string()), ("genuine", pa.bool_()), ("trust", pa.string())])
"""What `judge_batches` gives."""
GENUINE: Final = "GENUINE"
"""The verdict on a packet whose proofs are right and whose key may be trusted; else it is the name of a fault."""

_POLICY: Final = Policy()
_NO_TIME: Final = -1
"""Microseconds of a packet whose capture has no times."""
_LIMITS: Final = Limits(max_payload_size=0xFFFF, max_tlv_count=1 << 15)
"""What was written to the table was within limits then; nothing is refused for its size now."""
_NODE_ID_SIZE: Final = 16
_PAIR_SIZE: Final = _NODE_ID_SIZE + 5
"""A node id, 1 or 0 for whether there is a key id, and the key id."""
_TRUSTS: Final = tuple(Trust)


class Verdicts(msgspec.Struct):
    """One entry per packet."""

    faults: Array
    """0, or the `Fault` for which keys reject it."""
    genuine: Array
    """Whether its proofs are right, be its key trusted, revoked or not."""
    trust: Array
    """Index into the members of `Trust`."""


def judge_batches(batches: Iterable[pa.RecordBatch], store: TrustStore, first_use: FirstUse | None = None) -> Iterator[pa.RecordBatch]:
    """`INPUT` columns of packets that carry a proof -> `OUTPUT` columns. `first_use` decides if the store trusts first keys."""
    for batch in batches:
        if not batch.num_rows:
            continue
        data, starts = packets(batch)
        rows, parts = scanned(data, starts)
        seconds = batch.column("ts").cast(pa.int64()).fill_null(_NO_TIME).to_numpy(zero_copy_only=False) / 1e6
        found = judge(data, rows, parts, seconds, store, first_use)
        names = pa.array([GENUINE, *(fault.name for fault in Fault)])
        codes = {0: 0} | {fault.value: place for place, fault in enumerate(Fault, 1)}
        places = pa.array(np.vectorize(codes.__getitem__, otypes=[np.int32])(found.faults))
        trusts = pa.array([trust.value for trust in _TRUSTS])
        yield pa.RecordBatch.from_arrays(
            [batch.column("message_id"), names.take(places), pa.array(found.genuine), trusts.take(pa.array(found.trust))],
            names=["message_id", "verdict", "genuine", "trust"],
        )


def verified(data: Array, rows: Array, parts: Array, micros: Array, store: TrustStore) -> pa.Array:
    """For the rows of a block being decoded: whether keys say a packet is genuine; null where it carries no proof.

    `parts` holds the parts of these rows and no others, in their order. Without a key to verify by, all are null.
    """
    if store.only_opens and not store.is_partial:
        return pa.nulls(len(rows), pa.bool_())
    rows = rows.copy()
    rows[:, PART] = np.cumsum(rows[:, PARTS]) - rows[:, PARTS]
    found = judge(data, rows, parts.reshape(-1), micros / 1e6, store)
    is_known = (rows[:, HMAC] >= 0) | (rows[:, SIGNATURE] >= 0)
    if store.is_partial:
        is_known = (rows[:, HMAC] < 0) & (rows[:, SIGNATURE] >= 0) & (rows[:, PUBLIC_KEY] >= 0)
    if store.own_keys is Trust.FIRST_USE and store.first_use is None:
        is_known &= found.faults != Fault.UNTRUSTED_KEY
    return pa.array(found.faults == 0, mask=~is_known)


def packets(batch: pa.RecordBatch) -> tuple[Array, Array]:
    """The datagrams of rows of `event_mesh`, one after the other, and where each starts; one more start is the end of all."""
    payload = batch.column("payload").cast(pa.binary())
    sizes = np.diff(np.frombuffer(payload.buffers()[1], np.int32, len(payload) + 1, payload.offset * 4)).astype(np.int64)
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes + HEADER, out=starts[1:])
    header = np.zeros((len(sizes), HEADER), np.uint8)
    header[:, 0] = VERSION
    header[:, 1:5] = _big(batch.column("packet_id").to_numpy(zero_copy_only=False), 4)
    header[:, 5] = batch.column("flags").to_numpy(zero_copy_only=False)
    header[:, 6] = batch.column("event_type").to_numpy(zero_copy_only=False)
    timestamp = batch.column("timestamp").cast(pa.decimal128(20, 0))
    header[:, 7:15] = _big(np.frombuffer(timestamp.buffers()[1], "<u8")[timestamp.offset * 2 : (timestamp.offset + len(sizes)) * 2 : 2], 8)
    header[:, 15:17] = _big(sizes, 2)
    data = np.empty(starts[-1], np.uint8)
    data[(starts[:-1, None] + np.arange(HEADER)).reshape(-1)] = header.reshape(-1)
    is_payload = np.ones(len(data), np.bool_)
    is_payload[(starts[:-1, None] + np.arange(HEADER)).reshape(-1)] = False
    values = np.frombuffer(payload.buffers()[2], np.uint8) if payload.buffers()[2] else np.zeros(0, np.uint8)
    first = int(np.frombuffer(payload.buffers()[1], np.int32, 1, payload.offset * 4)[0])
    data[is_payload] = values[first : first + int(sizes.sum())]
    return data, starts


def _big(numbers: Array, size: int) -> Array:
    """The last bytes of numbers, big-endian."""
    return np.ascontiguousarray(numbers).astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - size :]


def scanned(data: Array, starts: Array) -> tuple[Array, Array]:
    """Rows and parts of datagrams that lie one after the other."""
    count = len(starts) - 1
    rows = np.zeros(count * ROW_COLUMNS, np.int64)
    parts = np.zeros((len(data) // 2 + 1) * PART_COLUMNS, np.int64)
    segment_of, ends = np.zeros(count, np.int64), starts[1:].copy()
    _, used, _, _ = over_arrays(walk)(data, starts[:-1], starts[1:], 0, 0, rows, segment_of, parts, ends, _LIMITS.for_scan())
    return rows.reshape(count, ROW_COLUMNS), parts[: used * PART_COLUMNS]


def judge(data: Array, rows: Array, parts: Array, seconds: Array, store: TrustStore, first_use: FirstUse | None = None) -> Verdicts:
    """Hold every packet of scanned rows against the keys; `seconds` says when each was seen."""
    policy = _POLICY
    if store.own_keys is Trust.FIRST_USE:
        policy = Policy(Trust.FIRST_USE, first_use or store.first_use or _undecided)
    elif store.own_keys is Trust.IN_BAND:
        policy = Policy(Trust.IN_BAND)
    found = Verdicts(np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.int64))
    found.faults[:] = rows[:, FAULT]
    simple = (rows[:, HMAC] >= 0) & (rows[:, SIGNATURE] < 0) & (rows[:, CANONICAL] > 0) & (rows[:, FAULT] == 0)
    rest = (rows[:, FAULT] == 0) & ~simple
    held = data.tobytes()
    for pair, members in _by_pair(data, rows, np.flatnonzero(simple)):
        times = seconds[members]
        node_id, auth_key_id = pair[:_NODE_ID_SIZE], pair[_NODE_ID_SIZE + 1 :] if pair[_NODE_ID_SIZE] else None
        first, last = (store.lookup(node_id, auth_key_id, float(when)) for when in (times.min(), times.max()))
        if first is not last or (last is not None and last.revoked_from is not None):
            rest[members] = True
        elif last is None or last.secret is None:
            found.faults[members] = Fault.UNKNOWN_KEY
        else:
            right = _are_maced(held, data, rows[members], last.secret)
            found.genuine[members] = right
            found.faults[members] = np.where(right, 0, Fault.HMAC_MISMATCH)
            found.trust[members] = np.where(right, _TRUSTS.index(Trust.STORE), 0)
    plain_parts = parts.tolist() if rest.any() else []
    for index in np.flatnonzero(rest).tolist():
        _judge_one(found, index, held, rows[index].tolist(), plain_parts, float(seconds[index]), store, policy)
    return found


def _undecided(_node_id: bytes, _auth_key_id: bytes | None, _public_key: bytes) -> bool:
    return False


def _by_pair(data: Array, rows: Array, chosen: Array) -> Iterator[tuple[bytes, Array]]:
    """Rows by who says to have sent them, and by which key."""
    if not len(chosen):
        return
    pairs = np.zeros((len(chosen), _PAIR_SIZE), np.uint8)
    pairs[:, :_NODE_ID_SIZE] = data[rows[chosen, NODE_ID, None] + np.arange(_NODE_ID_SIZE)]
    has_key_id = rows[chosen, AUTH_KEY_ID] >= 0
    pairs[:, _NODE_ID_SIZE] = has_key_id
    pairs[has_key_id, _NODE_ID_SIZE + 1 :] = data[rows[chosen[has_key_id], AUTH_KEY_ID, None] + np.arange(4)]
    distinct, which = np.unique(pairs.view(f"V{_PAIR_SIZE}").reshape(-1), return_inverse=True)
    order = np.argsort(which, kind="stable")
    edges = np.searchsorted(which[order], np.arange(len(distinct) + 1))
    for place, pair in enumerate(distinct):
        yield pair.tobytes(), chosen[order[edges[place] : edges[place + 1]]]


def _are_maced(held: bytes, data: Array, rows: Array, secret: bytes) -> Array:
    """§5.1: which of these packets, that one key may have made, carry the right HMAC."""
    begin = keyed_hmac(secret).copy
    view, macs = memoryview(held), []
    for start, size in zip(rows[:, START].tolist(), rows[:, CANONICAL].tolist(), strict=True):
        one = begin()
        one.update(view[start : start + size])
        macs.append(one.finalize())
    made = np.frombuffer(b"".join(macs), np.uint8).reshape(-1, 32)
    right: Array = (made == data[rows[:, HMAC, None] + np.arange(32)]).all(axis=1)
    return right


def _judge_one(
    found: Verdicts, index: int, held: bytes, row: list[int], parts: list[int], seconds: float, store: TrustStore, policy: Policy
) -> None:
    """The way of a live packet. A packet by a revoked key is looked at again as if it were not, to say whether it was genuine."""
    said = authenticate(held, row, parts, store, policy, seconds)
    if isinstance(said, Rejected):
        found.faults[index] = said.fault
        if said.fault is Fault.REVOKED_KEY:
            said = authenticate(held, row, parts, _unrevoked(store, said.node_id, seconds), policy, seconds)
    else:
        found.trust[index] = _TRUSTS.index(said.trust)
    found.genuine[index] = isinstance(said, Identity) and said.authenticated


def _unrevoked(store: TrustStore, node_id: bytes | None, seconds: float) -> TrustStore:
    """The keys a node had at this time, the last begun of every pair, as if none had been revoked."""
    newest: dict[bytes | None, Key] = {}
    for key in store.of_node(node_id or b"", seconds):
        newest[key.auth_key_id] = msgspec.structs.replace(key, valid_from=0, revoked_from=None)
    return TrustStore(newest.values())
