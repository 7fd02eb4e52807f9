"""Build `topology` with Arrow, in one process: while the index is small, planning a Spark job takes longer than the sums.

The rows are those of `gold/topology.py`, which builds the table with Spark, beyond a few million rows. Imports no Spark.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirelake import protocols
from wirelake.lake.gold.grouping import Integers, codes, group, micros, numbers, ranks
from wirelake.lake.tables.index import CONNECTION_INDEX
from wirelake.lake.tables.schema import TIME
from wirelake.lake.tables.topology import TABLE
from wirelake.lake.views import counted, resolved, views
from wirelake.protocols.protocol import SessionKind

__all__ = ["topology_of"]

_ENDS: Final = ("client_address", "client_port", "server_address", "server_port")
_USED: Final = (
    "protocol",
    "session_id",
    "connection_id",
    "direction",
    "messages",
    "bytes",
    "errors",
    "first_seen",
    "last_seen",
    *_ENDS,
)
_LOW, _HIGH = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""Times that stand for none."""

_Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


def topology_of(connection_index: pa.Table, unconfirmed: pa.Table | None = None) -> pa.Table:
    """Add up the connection index for every pair of peers; rows are ordered by protocol, client and server.

    `unconfirmed` has rows that take messages out of its sums.
    Columns beyond those of the index are ignored. A connection that was not seen opening or passing counts for no pair.
    """
    known = views(connection_index)
    if unconfirmed is not None:
        connection_index = pa.concat_tables([connection_index, unconfirmed])
    connection_index = counted(resolved(connection_index, known), known)
    rows = connection_index.select(_USED).cast(pa.schema([CONNECTION_INDEX.schema.field(name) for name in _USED]))
    ends = _ends(rows)
    rows, at = _joined(rows, ends)
    sessions, connections = _sessions(rows)
    client, server = _peers(rows, ends.take(at))
    groups = group([ranks(column) for column in (rows["protocol"], client, server)])
    is_node = _is_kind(rows, SessionKind.NODE)
    directions = {
        "to_server": is_node | _equals(rows["direction"], "to_server"),
        "to_client": ~is_node & _equals(rows["direction"], "to_client"),
    }
    columns: dict[str, object] = {
        "protocol": rows["protocol"].take(groups.first),
        "client": client.take(groups.first),
        "server": server.take(groups.first),
        "sessions": groups.distinct_counts(sessions),
        "connections": groups.distinct_counts(connections),
        "errors": groups.totals(numbers(rows["errors"])),
    }
    for name in ("messages", "bytes"):
        values = numbers(rows[name])
        columns |= {f"{name}_{direction}": groups.totals(np.where(chosen, values, 0)) for direction, chosen in directions.items()}
    first, last = np.full(len(groups.first), _HIGH), np.full(len(groups.first), _LOW)
    np.minimum.at(first, groups.of_row, micros(rows["first_seen"], _HIGH))
    np.maximum.at(last, groups.of_row, micros(rows["last_seen"], _LOW))
    columns["first_seen"] = pa.array(first, mask=first == _HIGH).cast(TIME)
    columns["last_seen"] = pa.array(last, mask=last == _LOW).cast(TIME)
    return pa.table({name: columns[name] for name in TABLE.schema.names}, TABLE.schema)


def _ends(rows: pa.Table) -> pa.Table:
    """One row for every connection with events: its endpoints. Of several the least, null before all others."""
    is_event = pc.and_(pc.is_null(rows["direction"]), pc.is_valid(rows["last_seen"]))
    events = rows.select(["connection_id", *_ENDS]).filter(pc.and_(is_event, pc.is_valid(rows["connection_id"])))
    connections, _ = codes(events["connection_id"])
    order = np.lexsort([*(ranks(events[name]) for name in reversed(_ENDS)), connections])
    connections = connections[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = connections[1:] != connections[:-1]
    return events.take(order[is_first])


def _joined(rows: pa.Table, ends: pa.Table) -> tuple[pa.Table, Integers]:
    """The rows that count for a pair, and for each the place of its connection's endpoints."""
    at = pc.index_in(rows["connection_id"], ends["connection_id"].combine_chunks(), skip_nulls=True)
    places = numbers(at, -1)
    is_said = pc.is_valid(rows["direction"]).to_numpy()
    is_known = pc.is_valid(rows["protocol"]).to_numpy()
    chosen = (places >= 0) & (is_said | (is_known & ~_is_kind(rows, SessionKind.NODE)))
    return rows.filter(pa.array(chosen)), places[chosen]


def _sessions(rows: pa.Table) -> tuple[Integers, Integers]:
    """The number of each row's session, and of its connection."""
    numbered, _ = codes(pa.chunked_array([*rows["session_id"].chunks, *rows["connection_id"].chunks], pa.binary()))
    sessions, connections = np.split(numbered, 2)
    return sessions, connections


def _peers(rows: pa.Table, ends: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The client and the server that each row counts for."""
    is_node = pa.array(_is_kind(rows, SessionKind.NODE))
    is_back = pa.array(_equals(rows["direction"], "to_client"))
    numbered, nodes = codes(pc.if_else(is_node, rows["session_id"], None))
    names = pa.array([*(node.hex() for node in nodes.to_pylist()), None], pa.string()).take(pa.array(numbered % (len(nodes) + 1)))
    address = {side: pc.fill_null(ends[f"{side}_address"], "?") for side in ("client", "server")}
    there, back = (
        pc.binary_join_element_wise(address[side], ends[f"{side}_port"].cast(pa.string()), ":", null_handling="skip")
        for side in ("server", "client")
    )
    client = pc.if_else(is_node, names, address["client"])
    server = pc.if_else(pc.and_(is_node, is_back), back, there)
    return client, server


def _is_kind(rows: pa.Table, kind: SessionKind) -> _Flags:
    """Whether the sessions of a row's protocol are of a kind; False for null."""
    names = [name for name in protocols.names() if protocols.get(name).session_kind is kind]
    result: _Flags = pc.is_in(rows["protocol"], pa.array(names, pa.string())).to_numpy()
    return result


def _equals(column: pa.ChunkedArray, text: str) -> _Flags:
    """Whether a value is this text; False for null."""
    result: _Flags = pc.fill_null(pc.equal(column, text), False).to_numpy()
    return result
