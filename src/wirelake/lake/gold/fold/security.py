"""Rows of `security`: signed packets of Event Mesh, checked, and broken rules that are threats.

Three things come together for a packet: the result of checking keys (`verify_rows.py`), the time in the packet, and all earlier captures
of it. A packet breaks at most one rule: the first in the order of EMM-28, as for a live receiver at that time. Without keys nothing is
checked again, and earlier results stay.

Whatever is compared belongs to one packet, which is a node id and a packet id. So packets can be judged in several passes (`pass_of`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.tables.rules import threats
from wirelake.lake.tables.security import TABLE, Threat
from wirelake.protocols.event_mesh.columns import ODD_INSIDE
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import CLOCK_SKEW_ALLOWANCE, REPLAY_WINDOW
from wirelake.protocols.event_mesh.security import verify_rows
from wirelake.protocols.event_mesh.security.trust import Trust

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.security.trust import FirstUse, TrustStore

__all__ = [
    "BEFORE_COLUMNS",
    "CONNECTION_COLUMNS",
    "FIRST_KEY_COLUMNS",
    "PACKET_COLUMNS",
    "PROTOCOL",
    "QUARANTINE_COLUMNS",
    "THREATENING",
    "VIOLATION_COLUMNS",
    "PacketFold",
    "ends_of",
    "first_keys",
    "pass_of",
    "threat_rows",
    "unreadable_rows",
]

PROTOCOL: Final = "event_mesh"
"""The protocol whose messages carry proofs."""

THREATENING: Final = frozenset(name.partition("/")[2] for name in threats() if not name.startswith(f"{PROTOCOL}/"))
"""Rules of other protocols that are threats, by name."""

PACKET_COLUMNS: Final = (
    *("message_id", "session_id", "connection_id", "ts", "direction", "source", "offset", "length"),
    *("packet_id", "flags", "event_type", "timestamp", "node_id", "auth_key_id", "hmac", "signature", "signed_timestamp", "fault"),
    *("public_key", "oddities"),
)
"""Columns of `event_mesh` that packets are judged by. Keys need `payload`, too."""
FIRST_KEY_COLUMNS: Final = ("session_id", *verify_rows.INPUT, "node_id", "auth_key_id", "public_key", "signature", "fault")
"""Columns of `event_mesh` that `first_keys` reads."""
BEFORE_COLUMNS: Final = ("message_id", "node_id", "packet_id", "verdict", "genuine", "trust", "accepted", "was_accepted")
"""Columns of earlier rows of `security` that later ones depend on."""
CONNECTION_COLUMNS: Final = (
    *("connection_id", "protocol", "client_address", "client_port", "server_address", "server_port", "observer_kind"),
)
"""Columns of `connections` that endpoints are made of."""
QUARANTINE_COLUMNS: Final = ("session_id", "connection_id", "ts", "protocol", "reason", "clause", "source", "offset", "length")
"""Columns of `quarantine` that rows are made of."""
VIOLATION_COLUMNS: Final = ("session_id", "message_id", "ts", "protocol", "rule", "clause", "text", "source", "offset", "length")
"""Columns of `violations` that rows are made of."""

Payloads = Callable[[pa.Array], Iterable[pa.Table]]
"""Message ids -> tables with the columns `message_id` and `payload` that have these packets, and perhaps others."""
Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_WINDOW_US: Final = REPLAY_WINDOW * 1_000_000
_SKEW_US: Final = CLOCK_SKEW_ALLOWANCE * 1_000_000
_FARTHEST_US: Final = 1 << 62
"""A time beyond this is as far from now as this."""
_NEVER: Final = -(1 << 63)
"""Stands for a time that is not known: it comes first."""
_VERIFY_BYTES: Final = 4 * 1024 * 1024
"""Bytes of payloads that are verified at once: scanning them takes many times their size."""
_NONE: Final = -1
"""Stands for null among numbers of words."""
_SENDER, _WIRE, _RECEIVER = range(3)
"""Who watched a packet."""
_OBSERVERS: Final = ("client", "server", "wire")
_OWN_TRUSTS: Final = pa.array([Trust.IN_BAND.value, Trust.FIRST_USE.value])
_OWN_VERDICTS: Final = pa.array([Fault.UNTRUSTED_KEY.name, Fault.SIGNATURE_MISMATCH.name, Fault.WEAK_KEY.name])
"""Results that a packet's own key may have given, without others."""
_RESULT: Final = ("verdict", "genuine", "trust")
"""What keys say of a packet."""


def pass_of(rows: pa.Table, passes: int) -> Ints:
    """The pass of each row, from 0: a hash of its `node_id` and `packet_id`, which all captures of a packet share."""
    words, codes = _words(rows["node_id"])
    of_node = np.array([*(zlib.crc32(word) for word in words.to_pylist()), 0], np.uint64)[codes]  # the last one is null's
    packet_id = _one(rows["packet_id"]).fill_null(0).to_numpy().astype(np.uint64)
    mixed = (packet_id * np.uint64(0x9E3779B97F4A7C15) ^ of_node * np.uint64(0xC2B2AE3D27D4EB4F)) >> np.uint64(32)
    found: Ints = (mixed % np.uint64(passes)).astype(np.int64)
    return found


def ends_of(connections: pa.Table) -> pa.Table:
    """One row per connection of Event Mesh: `connection_id`, `client`, `server`, `observer_kind`. The smallest is taken."""
    rows = connections.filter(pc.and_(pc.equal(connections["protocol"], PROTOCOL), pc.is_valid(connections["connection_id"])))
    ends = pa.table(
        {
            "connection_id": _plain(rows["connection_id"]),
            "client": _endpoint(rows, "client"),
            "server": _endpoint(rows, "server"),
            "is_observed": pc.is_valid(rows["observer_kind"]).cast(pa.int8()),  # null is smallest
            "observer_kind": _plain(rows["observer_kind"]),
        }
    )
    ends = ends.take(pc.sort_indices(ends, sort_keys=[(name, "ascending") for name in ends.column_names]))
    _, codes = _words(ends["connection_id"])
    return ends.take(pa.array(np.unique(codes, return_index=True)[1])).drop_columns(["is_observed"])


def _endpoint(rows: pa.Table, side: str) -> pa.Array:
    """Address and port; what is missing is left out."""
    address, port = _plain(rows[f"{side}_address"]), _plain(rows[f"{side}_port"]).cast(pa.string())
    return pc.coalesce(pc.binary_join_element_wise(address, port, ":"), address, port, "")


class PacketFold:
    """Judges packets. All captures of a packet, and what was known of it before, must come to the same one."""

    def __init__(
        self, ends: pa.Table, keys: TrustStore | None, payloads: Payloads, *, first_use: FirstUse | None = None, freshness: bool = True
    ) -> None:
        """`first_use` decides if the keys trust first ones; with `freshness` the time in a packet is judged."""
        self._first_use = first_use
        self._freshness = freshness
        self._ends = ends
        self._keys = keys
        self._payloads = payloads
        self._packets: list[pa.Table] = []
        self._before: list[pa.Table] = []

    def add(self, packets: pa.Table) -> None:
        """Add packets: `PACKET_COLUMNS`, and `payload` if there are keys. Keys are asked now; payloads are not kept."""
        if not packets.num_rows:
            return
        kept = packets.select(list(PACKET_COLUMNS))
        for name in ("hmac", "signature", "public_key"):
            kept = kept.set_column(kept.schema.get_field_index(name), name, pc.is_valid(packets[name]))
        if self._keys is not None:
            for name, column in zip(_RESULT, _verified(packets, self._keys, self._first_use), strict=True):
                kept = kept.append_column(name, column)
        self._packets.append(kept)

    def add_before(self, rows: pa.Table) -> None:
        """Add earlier rows of `security`: `BEFORE_COLUMNS`."""
        rows = rows.filter(pc.is_valid(rows["message_id"]))
        if rows.num_rows:
            self._before.append(rows.select(list(BEFORE_COLUMNS)))

    def rows(self) -> pa.Table:
        """Return the rows of `security` of these packets."""
        if not self._packets:
            return TABLE.schema.empty_table()
        packets = pa.concat_tables(self._packets)
        before = pa.concat_tables(self._before) if self._before else TABLE.schema.empty_table().select(list(BEFORE_COLUMNS))
        return _judged(packets, self._ends, before, self._payloads, self._keys, freshness=self._freshness)


def _verified(packets: pa.Table, keys: TrustStore, first_use: FirstUse | None) -> list[pa.Array]:
    """What the keys say of every packet that carries a proof and has the form of a packet."""
    has_proof = pc.or_(pc.is_valid(packets["hmac"]), pc.is_valid(packets["signature"]))
    is_asked = pc.and_(has_proof, pc.is_null(packets["fault"])).to_numpy()
    asked = packets.select(list(verify_rows.INPUT)).filter(pa.array(is_asked))
    results = pa.Table.from_batches(verify_rows.judge_batches(_portions(asked), keys, first_use), verify_rows.OUTPUT)
    places = pa.array(np.cumsum(is_asked) - 1, mask=~is_asked)
    return [_one(results[name]).take(places) for name in _RESULT]


def first_keys(packets: Iterable[pa.Table], keys: TrustStore) -> FirstUse:
    """EMM-17: whether a key is the first that signed a packet of its node and key id, in all of these: `FIRST_KEY_COLUMNS`."""
    firsts: dict[tuple[bytes, bytes | None], tuple[int, bytes, bytes]] = {}
    for rows in packets:
        is_chosen = pc.and_(pc.and_(pc.is_valid(rows["public_key"]), pc.is_valid(rows["signature"])), pc.is_null(rows["fault"]))
        chosen = rows.filter(is_chosen)
        results = pa.Table.from_batches(
            verify_rows.judge_batches(_portions(chosen.select(list(verify_rows.INPUT))), keys, lambda *_: True), verify_rows.OUTPUT
        )
        is_first_use = pc.equal(results["trust"], Trust.FIRST_USE.value)
        proven = chosen.filter(is_first_use)
        times = _one(proven["ts"]).cast(pa.int64()).fill_null(_NEVER)
        names = ("message_id", "node_id", "auth_key_id", "public_key")
        for ts, message_id, node_id, auth_key_id, public_key in zip(
            times.to_pylist(), *(proven[name].to_pylist() for name in names), strict=True
        ):
            seen = ts, message_id, public_key
            firsts[node_id, auth_key_id] = min(firsts.get((node_id, auth_key_id), seen), seen)

    def is_first(node_id: bytes, auth_key_id: bytes | None, public_key: bytes) -> bool:
        found = firsts.get((node_id, auth_key_id))
        return found is not None and found[2] == public_key

    return is_first


def _portions(packets: pa.Table) -> Iterator[pa.RecordBatch]:
    """Packets in batches of about `_VERIFY_BYTES`."""
    for batch in packets.combine_chunks().to_batches():
        sizes = pc.binary_length(batch["payload"]).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        portion = np.cumsum(sizes) // _VERIFY_BYTES
        edges = [0, *(np.flatnonzero(np.diff(portion)) + 1).tolist(), batch.num_rows]
        for first, end in pairwise(edges):
            yield batch.slice(first, end - first)


class _Ends(NamedTuple):
    """The ends of each packet: numbers of words, `_NONE` for null."""

    words: pa.Array
    sender: Ints
    receiver: Ints
    watched_by: Ints


def _judged(
    packets: pa.Table, ends: pa.Table, before: pa.Table, payloads: Payloads, keys: TrustStore | None, *, freshness: bool
) -> pa.Table:
    results = _with_results(packets, before, keys)
    verdicts, verdict = _words(results["verdict"])
    genuine = _place(verdicts, verify_rows.GENUINE)
    is_forged = (verdict != _NONE) & (verdict != genuine)
    faults, fault = _words(packets["fault"])
    more = [Fault.STALE, Fault.FUTURE, Fault.REPLAY, *ODD_INSIDE]
    words = pa.concat_arrays([faults, verdicts, pa.array([fault.name for fault in more])])
    stale, future, replay, *inside = range(len(words) - len(more), len(words))
    hmac, signature = (packets[name].to_numpy() for name in ("hmac", "signature"))
    has_proof = hmac | signature
    arrived = _one(packets["ts"]).cast(pa.int64()).fill_null(_NEVER).to_numpy()
    has_time = arrived != _NEVER
    timestamp, claimed = _claimed(packets)
    age = np.where(has_time, arrived, 0) - claimed
    is_timed = has_proof & has_time & freshness
    # EMM-28: form, proof, time. Time is asked of packets that carry a proof (EMM-24).
    rule = np.select(
        [fault != _NONE, is_forged, is_timed & (age > _WINDOW_US), is_timed & (age < -_SKEW_US)],
        [fault, len(faults) + verdict, stale, future],
        _NONE,
    )
    _, node = _words(packets["node_id"])
    is_believed = (fault == _NONE) & ~is_forged & (node != _NONE)
    places = _ends(packets, ends)
    history = _History(packets, node, arrived, claimed, timestamp, payloads)
    history.number(np.flatnonzero(is_believed))
    rule[history.replays(places, has_proof, rule == _NONE)] = replay
    odd = _one(packets["oddities"]).fill_null(0).to_numpy(zero_copy_only=False)
    for number, bit in zip(inside, ODD_INSIDE.values(), strict=True):  # a payload is opened last
        rule[(rule == _NONE) & (odd & bit != 0)] = number
    return _rows(
        packets,
        results,
        _Told(words, rule, np.where(hmac & signature, 2, np.where(hmac, 0, np.where(signature, 1, _NONE))), age, has_time),
        places,
        history,
        np.flatnonzero(has_proof | (rule != _NONE)),
    )


def _with_results(packets: pa.Table, before: pa.Table, keys: TrustStore | None) -> dict[str, pa.Array]:
    """What keys say of each packet, or said before; and whether it was accepted by other keys.

    If no keys were given, what keys said before stays.
    """
    kinds = {name: TABLE.schema.field(name).type for name in (*_RESULT, "was_accepted")}
    if before.num_rows:
        places = pc.index_in(_one(packets["message_id"]), value_set=_one(before["message_id"]))
        known = {name: _plain(before[name]).take(places) for name in BEFORE_COLUMNS}
    else:
        known = {name: pa.nulls(packets.num_rows, TABLE.schema.field(name).type) for name in BEFORE_COLUMNS}
    if keys is None:
        return {name: known[name] for name in kinds}
    results = {name: _one(packets[name]) for name in _RESULT}
    if keys.is_partial:
        is_by_itself = pc.and_(pc.and_(packets["signature"], packets["public_key"]), pc.invert(packets["hmac"]))
        was_by_itself = pc.or_(pc.is_in(known["trust"], value_set=_OWN_TRUSTS), pc.is_in(known["verdict"], value_set=_OWN_VERDICTS))
        is_new = pc.and_(_one(is_by_itself), pc.or_(pc.is_null(known["verdict"]), was_by_itself))
        results = {name: pc.if_else(is_new, results[name], known[name]) for name in _RESULT}
    is_other = pc.not_equal(known["verdict"], results["verdict"]).fill_null(False)
    results["was_accepted"] = pc.if_else(is_other, known["accepted"], known["was_accepted"])
    return results


def _claimed(packets: pa.Table) -> tuple[npt.NDArray[np.uint64], Ints]:
    """The creation time in seconds, and the time that counts in microseconds: when it was signed, else when it was created (EMM-24)."""
    (created, has_created), (signed, is_signed) = (_seconds(packets[name]) for name in ("timestamp", "signed_timestamp"))
    seconds = np.where(is_signed, signed, created).astype(np.float64)
    micros = np.where(is_signed | has_created, np.minimum(seconds * 1e6, float(_FARTHEST_US)), float(_FARTHEST_US))
    return created, micros.astype(np.int64)


def _seconds(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.uint64], Flags]:
    """Decimal numbers below 2^64, and where there are any."""
    array = _one(column).cast(pa.decimal128(20, 0))
    there = array.is_valid().to_numpy(zero_copy_only=False)
    low = np.frombuffer(array.buffers()[1], "<u8")[array.offset * 2 : (array.offset + len(array)) * 2 : 2]
    return np.where(there, low, np.uint64(0)), there


def _ends(packets: pa.Table, ends: pa.Table) -> _Ends:
    """The endpoints that packets came from and went to, and who watched: the sender, the receiver or the wire."""
    connections, of_packet = _words(packets["connection_id"])
    known = pc.index_in(connections, value_set=_one(ends["connection_id"])).fill_null(_NONE).to_numpy(zero_copy_only=False)
    at = np.append(known, _NONE)[of_packet]
    words, codes = _words(pa.chunked_array([_one(ends["client"]), _one(ends["server"])], pa.string()))
    client, server = (np.append(part, _NONE) for part in (codes[: ends.num_rows], codes[ends.num_rows :]))
    observers = pc.index_in(ends["observer_kind"], value_set=pa.array(_OBSERVERS)).fill_null(_NONE).to_numpy()
    observer_kind = np.append(observers, _NONE)[at]
    directions, direction = _words(packets["direction"])
    from_client = direction == _place(directions, "to_server") if len(directions) else np.zeros(packets.num_rows, bool)
    sent_by_observer = observer_kind == np.where(from_client, _OBSERVERS.index("client"), _OBSERVERS.index("server"))
    watched_by = np.where(sent_by_observer, _SENDER, np.where(observer_kind == _OBSERVERS.index("wire"), _WIRE, _RECEIVER))
    return _Ends(words, np.where(from_client, client[at], server[at]), np.where(from_client, server[at], client[at]), watched_by)


class _History:
    """Captures of the same packet, in order of time.

    Forged packets are never a first sighting. Packets without a node id differ only by connection, which is best effort: they are not
    judged.
    """

    def __init__(
        self, packets: pa.Table, node: Ints, arrived: Ints, claimed: Ints, timestamp: npt.NDArray[np.uint64], payloads: Payloads
    ) -> None:
        self._packets = packets
        self._node = node
        self._arrived = arrived
        self._claimed = claimed
        self._timestamp = timestamp
        self._payloads = payloads
        self._again = np.zeros(0, np.int64)
        """Rows of packets that were captured more than once."""
        self._packet = self._order = self._again
        """For each of these rows: a number for its packet, and its place in the order of ids."""
        self.sighting = np.zeros(packets.num_rows, np.int32)
        """How often a packet was captured so far; 0 if it is not judged."""
        self.first = np.arange(packets.num_rows)
        """The row of a packet's first capture."""

    def number(self, believed: Ints) -> None:
        """Number the captures of every packet. `believed` has the rows that are judged."""
        packet_id = _one(self._packets["packet_id"]).fill_null(_NONE).to_numpy()
        order = believed[np.lexsort((packet_id[believed], self._node[believed]))]
        is_next = np.zeros(len(order) + 1, bool)
        is_next[1:-1] = (self._node[order[1:]] == self._node[order[:-1]]) & (packet_id[order[1:]] == packet_id[order[:-1]])
        is_repeated = is_next[:-1] | is_next[1:]
        self.sighting[believed] = 1
        self._again = again = order[is_repeated]
        self._packet = np.cumsum(~is_next[:-1])[is_repeated]
        ids = _one(self._packets["message_id"]).take(pa.array(again))
        self._order = np.zeros(len(again), np.int64)
        self._order[pc.sort_indices(ids).to_numpy()] = np.arange(len(again))
        inner = np.lexsort((self._order, self._arrived[again], self._packet))
        begins = _begins(self._packet[inner])
        lengths = np.diff([*begins, len(inner)])
        self.sighting[again[inner]] = np.arange(len(inner)) - np.repeat(begins, lengths) + 1
        self.first[again[inner]] = np.repeat(again[inner[begins]], lengths)

    def replays(self, ends: _Ends, has_proof: Flags, is_clean: Flags) -> Ints:
        """EMM-23: the rows of packets that are repeated and break no other rule.

        A packet that relays pass on is seen at many places. It is repeated only if it comes to the same receiver again, as seen by the same
        kind of observer. A repetition within the replay window is a replay whatever its content; later, only if the content is the same.
        Packets with a proof are counted apart from others.
        """
        is_asked = is_clean[self._again] & (ends.watched_by[self._again] != _SENDER)
        rows, packet, place = self._again[is_asked], self._packet[is_asked], self._order[is_asked]
        groups = (has_proof[rows], ends.watched_by[rows], ends.receiver[rows], packet)
        order = np.lexsort((place, self._arrived[rows], *groups))
        is_same = np.ones(max(len(order) - 1, 0), bool)
        for group in groups:
            is_same &= group[order[1:]] == group[order[:-1]]
        earlier, later = rows[order[:-1]][is_same], rows[order[1:]][is_same]
        arrived = self._arrived[earlier]
        claimed = self._claimed[earlier]
        has_time = arrived != _NEVER
        sooner = np.where(has_time, arrived, 0)
        kept = np.where(has_time, np.maximum(sooner, np.minimum(claimed, sooner + _SKEW_US)), claimed)  # EMM-25
        is_replay = (self._arrived[later] != _NEVER) & (self._arrived[later] <= kept + _WINDOW_US)
        rest = np.flatnonzero(~is_replay)
        is_replay[rest] = self._have_same_content(earlier[rest], later[rest])
        replays: Ints = later[is_replay]
        return replays

    def _have_same_content(self, rows: Ints, others: Ints) -> Flags:
        """Whether the packets of two rows have the same content. Payloads are only asked for if all else is the same."""
        is_same: Flags = self._timestamp[rows] == self._timestamp[others]
        for name in ("flags", "event_type"):
            values = _one(self._packets[name]).fill_null(_NONE).to_numpy()
            is_same &= values[rows] == values[others]
        asked = np.flatnonzero(is_same)
        if not len(asked):
            return is_same
        ids = _one(self._packets["message_id"])
        pairs = [ids.take(pa.array(some[asked])) for some in (rows, others)]
        hashes = self._hashes(pc.unique(pa.chunked_array(pairs)))
        is_same[asked] = [hashes.get(one) == hashes.get(other) for one, other in zip(*(pair.to_pylist() for pair in pairs), strict=True)]
        return is_same

    def _hashes(self, ids: pa.Array) -> dict[bytes, int]:
        """Message id -> a hash of its payload."""
        hashes: dict[bytes, int] = {}
        for some in self._payloads(ids):
            chosen = some.filter(pc.is_in(some["message_id"], value_set=ids))
            hashes.update(zip(chosen["message_id"].to_pylist(), map(hash, chosen["payload"].to_pylist()), strict=True))
        return hashes


class _Told(NamedTuple):
    """What is known of each packet."""

    words: pa.Array
    rule: Ints
    """The number of the rule's word, or `_NONE`."""
    proof: Ints
    """The number of the proof in `_PROOFS`, or `_NONE`."""
    age: Ints
    has_time: Flags


_PROOFS: Final = pa.array(["hmac", "signature", "hmac+signature"])


def _rows(packets: pa.Table, results: dict[str, pa.Array], told: _Told, ends: _Ends, history: _History, chosen: Ints) -> pa.Table:
    """The chosen packets as rows of the table."""
    places = pa.array(chosen)
    rule, sighting = told.rule[chosen], history.sighting[chosen]
    own = packets.select([name for name in PACKET_COLUMNS if name in TABLE.schema.names]).take(places)
    columns = {name: own[name] for name in own.column_names}
    columns |= {name: column.take(places) for name, column in results.items()}
    is_broken, is_checked = rule != _NONE, columns["verdict"].is_valid().to_numpy(zero_copy_only=False)
    columns |= _book(told.words, rule)
    columns |= {
        "protocol": _picked(pa.array([PROTOCOL]), np.zeros(len(chosen), np.int64)),
        "sender": _picked(ends.words, ends.sender[chosen]),
        "receiver": _picked(ends.words, ends.receiver[chosen]),
        "proof": _picked(_PROOFS, told.proof[chosen]),
        "accepted": pa.array(~is_broken, mask=~(is_broken | is_checked)),
        "age_us": pa.array(told.age[chosen], mask=~told.has_time[chosen]),
        "sighting": pa.array(sighting, mask=sighting == 0),
        "first_message_id": _one(packets["message_id"]).take(pa.array(history.first[chosen], mask=sighting == 0)),
    }
    return _table(columns, len(chosen))


@cache
def _texts() -> dict[str, tuple[str, str]]:
    return {fault.name: (fault.clause, fault.text) for fault in Fault}


def _book(words: pa.Array, rule: Ints) -> dict[str, pa.Array]:
    """Rule, clause, sentence and threat of each number of a rule's word."""
    names = words.to_pylist()
    known, threat = [_texts().get(name, (None, None)) for name in names], threats()
    columns = {
        "rule": words,
        "clause": pa.array([clause for clause, _ in known], pa.string()),
        "text": pa.array([text for _, text in known], pa.string()),
        "threat": pa.array([threat.get(f"{PROTOCOL}/{name}", Threat.MALFORMED.value) for name in names], pa.string()),
    }
    return {name: _picked(column, rule) for name, column in columns.items()}


def unreadable_rows(quarantine: pa.Table) -> pa.Table:
    """Rows of datagrams that are no packets: too large, too short, reserved bits, fields that overrun."""
    is_chosen = pc.and_(pc.equal(quarantine["protocol"], PROTOCOL), pc.is_valid(quarantine["clause"])).fill_null(False)
    rows = quarantine.filter(is_chosen)
    columns = {name: rows[name] for name in ("session_id", "connection_id", "ts", "protocol", "source", "offset", "length")}
    columns |= _book(*_words(rows["reason"]))
    return _table(columns | {"accepted": pa.array(np.zeros(rows.num_rows, bool))}, rows.num_rows)


def threat_rows(violations: pa.Table) -> pa.Table:
    """Rows of threats of other protocols."""
    rows = violations.filter(pc.and_(pc.not_equal(violations["protocol"], PROTOCOL), _is_threat(violations)).fill_null(False))
    known = threats()
    named = zip(rows["protocol"].to_pylist(), rows["rule"].to_pylist(), strict=True)
    columns = {name: rows[name] for name in VIOLATION_COLUMNS}
    columns["threat"] = pa.array([known.get(f"{protocol}/{rule}") for protocol, rule in named], pa.string())
    columns["accepted"] = pa.array(np.zeros(rows.num_rows, bool))
    found = _table(columns, rows.num_rows)
    return found.filter(pc.is_valid(found["threat"]))


def _is_threat(rows: pa.Table) -> pa.ChunkedArray:
    return pc.is_in(rows["rule"], value_set=pa.array(sorted(THREATENING), pa.string()))


def _table(columns: dict[str, Any], count: int) -> pa.Table:
    """Rows of the table; columns that are not there are null, and those of few words may be dictionaries."""
    return pa.table({field.name: columns.get(field.name, pa.nulls(count, field.type)) for field in TABLE.schema})


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if not column.num_chunks:
        return pa.array([], column.type)
    return column.unify_dictionaries().combine_chunks() if pa.types.is_dictionary(column.type) else column.combine_chunks()


def _plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array, without a dictionary."""
    array = _one(column)
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


def _words(column: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, Ints]:
    """The distinct values of a column, and the number of each row's; `_NONE` for null."""
    array = _one(column)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes: Ints = array.indices.fill_null(_NONE).to_numpy(zero_copy_only=False).astype(np.int64)
    return array.dictionary, codes


def _place(words: pa.Array, word: str) -> int:
    """The number of a word; one that no row has if it is not there."""
    found = pc.index(words, word).as_py()
    return int(found) if found >= 0 else len(words)


def _picked(words: pa.Array, codes: Ints) -> pa.Array:
    """The words of these numbers, as a dictionary. Words may be null, or the same."""
    distinct, places = _words(words)
    places = np.append(places, _NONE)[codes].astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(places, mask=places == _NONE), distinct)


def _begins(groups: Ints) -> Ints:
    """Where groups of equal numbers begin."""
    if not len(groups):
        return np.zeros(0, np.int64)
    found: Ints = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    return found
