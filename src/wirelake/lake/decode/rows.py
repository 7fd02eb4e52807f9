"""Rows of the silver tables, from decoded messages, quarantined bytes and connections."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.capture.blocks.block import OFFSET_MASK, SEGMENT_FLOW, SEGMENT_TO_SERVER, SOURCE_SHIFT, Flow, Source
from wirelake.capture.blocks.flows import Flows, Side
from wirelake.capture.containers.records import NO_TIME
from wirelake.lake.decode.accounting import Extent, Where
from wirelake.lake.tables import connections, quarantine
from wirelake.lake.tables.schema import times
from wirelake.protocols.arrow import names

__all__ = ["DIRECTIONS", "Noted", "batch", "connected", "constant", "happened", "leading", "quarantined", "sessions", "spoilt"]

IntArray = npt.NDArray[np.int64]

DIRECTIONS: Final = ("to_client", "to_server")

_KIND: Final = ("protocol", "transport", "known_by", "observer_kind")

Noted = tuple[Flow, int, int, str, str, str]
"""An event of a connection: flow, time, place, event, side, detail."""


def leading(
    where: Where, extent: Extent, flows: Sequence[Flow], segments: IntArray, links: list[bytes | None], made: pa.Array | None
) -> dict[str, pa.Array]:
    """The columns that every protocol's table begins with. `links` are sessions by flow, `made` are sessions by message, if known."""
    numbers = segments[:, SEGMENT_FLOW]
    is_used = np.zeros(len(flows), np.bool_)
    is_used[numbers] = True
    if not is_used.all():  # a block has many short flows, and a batch only some of them
        used = np.flatnonzero(is_used)
        flows = flows.take(used) if isinstance(flows, Flows) else [flows[number] for number in used.tolist()]
        links = [links[number] for number in used.tolist()] if links else []
        numbers = (np.cumsum(is_used) - 1)[numbers]
    ids = flows.column() if isinstance(flows, Flows) else pa.array([flow.session_id for flow in flows], pa.binary())
    connection = pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), ids)
    return {
        "message_id": _message_ids(where.sources, extent.numbers, extent.first),
        "session_id": sessions(connection, links, made),
        "connection_id": connection,
        "ts": times(extent.ts),
        "direction": names(segments[:, SEGMENT_TO_SERVER], DIRECTIONS),
        "source": pa.DictionaryArray.from_arrays(pa.array(extent.numbers.astype(np.int32)), [source.path for source in where.sources]),
        "offset": pa.array(extent.offsets),
        "length": pa.array(extent.lengths),
        "observer": _observers(where.sources, extent.numbers, flows, numbers),
    }


def _observers(sources: Sequence[Source], source_of: IntArray, flows: Sequence[Flow], flow_of: IntArray) -> pa.DictionaryArray:
    """Who saw each row: its flow's observer, or else the capture file in which its bytes are."""
    if isinstance(flows, Flows):
        kind_of, names_of = flows.kind_of, [kind.observer for kind in flows.kinds]
    else:
        kind_of, names_of = np.arange(len(flows)), [flow.observer for flow in flows]
    texts = [*names_of, *(source.capture_observer for source in sources)]
    is_named = np.array([bool(name) for name in names_of], np.bool_)
    kinds = kind_of[flow_of]
    return _coded(np.where(is_named[kinds], kinds, len(names_of) + source_of), texts)


def sessions(connection: pa.DictionaryArray, links: list[bytes | None], made: pa.Array | None) -> pa.Array:
    """The session of each message: as its protocol says, or else the link of its connection.

    Without a link it is the connection.
    """
    if made is not None:
        return pc.coalesce(made, connection.cast(pa.binary()))
    if not any(links):
        return connection
    own = connection.dictionary.to_pylist()
    ids = pa.array([link or name for link, name in zip(links, own, strict=True)], pa.binary())
    return pa.DictionaryArray.from_arrays(connection.indices, ids)


def _message_ids(sources: list[Source], numbers: IntArray, places: IntArray) -> pa.Array:
    """16 bytes each: the source's id, then the offset of the first byte, big-endian."""
    known = np.frombuffer(b"".join(source.id for source in sources), np.int64)
    ids = np.empty((len(places), 2), np.int64)
    ids[:, 0] = known[numbers] if len(known) > 1 else known
    ids[:, 1] = (places & OFFSET_MASK).byteswap() if sys.byteorder == "little" else places & OFFSET_MASK
    offsets = np.arange(0, 16 * len(places) + 1, 16, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(places), [None, pa.py_buffer(offsets), pa.py_buffer(ids)])


def spoilt(
    where: Where,
    flow: Flow | None,
    to_server: int | None,
    ts: int | None,
    layer: str,
    reason: str,
    clause: str | None,
    text: str,
    raw: bytes,
    offset: int,
    length: int,
) -> tuple[object, ...]:
    """One row of `quarantine`, its values in the order of the columns."""
    source, there = where.source(offset)
    session = flow.session_id if flow else None
    protocol = flow.protocol if flow else None
    direction = None if to_server is None else DIRECTIONS[to_server]
    return (
        session,
        session,
        None if ts == NO_TIME else ts,
        protocol,
        direction,
        layer,
        reason,
        clause,
        text,
        raw,
        source.path,
        there,
        length,
        (flow.observer if flow else "") or source.observer or (source.capture_observer if flow else None),
    )


def quarantined(spoilt: list[tuple[object, ...]]) -> pa.RecordBatch:
    """Rows of `quarantine`."""
    schema = quarantine.TABLE.schema
    columns = [pa.array(values, one.type) for values, one in zip(zip(*spoilt, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def connected(where: Where, noted: list[Noted]) -> pa.RecordBatch:
    """Rows of `connections`."""
    rows = [
        {
            "connection_id": flow.session_id,
            "ts": None if ts == NO_TIME else ts,
            "protocol": flow.protocol,
            "what": what,
            "by": by,
            "detail": detail,
            "transport": flow.transport,
            "client_address": flow.client.address,
            "client_port": flow.client.port,
            "server_address": flow.server.address,
            "server_port": flow.server.port,
            "known_by": flow.known_by,
            "observer": flow.observer or where.source(offset)[0].capture_observer,
            "observer_kind": flow.observer_kind,
            "source": where.source(offset)[0].path,
            "offset": where.source(offset)[1],
        }
        for flow, ts, offset, what, by, detail in noted
    ]
    return pa.RecordBatch.from_pylist(rows, schema=connections.TABLE.schema)


def happened(
    where: Where,
    flows: Flows,
    numbers: IntArray,
    times: IntArray,
    places: IntArray,
    what: pa.Array,
    by: pa.Array,
    detail: pa.Array,
) -> pa.RecordBatch:
    """Rows of `connections`, of flows by number; as `connected`, but many at once.

    Texts are dictionary-encoded, each once: rows of one flow repeat them.
    """
    numbers = numbers.astype(np.int64, copy=False)

    def address(side: Side) -> pa.DictionaryArray:
        return _coded(side.codes[numbers], side.addresses)

    def port(side: Side) -> pa.Array:
        return pa.array(side.ports[numbers].astype(np.int32))

    schema = connections.TABLE.schema
    paths = pa.array([source.path for source in where.sources], pa.string()).dictionary_encode()
    kinds = flows.kind_of[numbers]  # flows differ in few of these
    ids = flows.column()
    connection = pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), ids)
    if not flows.are_distinct:
        connection = connection.dictionary_decode().dictionary_encode()
    made = {
        "connection_id": connection,
        "client_address": address(flows.clients),
        "server_address": address(flows.servers),
        "client_port": port(flows.clients),
        "server_port": port(flows.servers),
        **{name: _coded(kinds, [getattr(kind, name) for kind in flows.kinds]) for name in _KIND},
        "ts": pa.array(times, pa.int64(), mask=times == NO_TIME).cast(schema.field("ts").type),
        "what": what,
        "by": by,
        "detail": detail,
        "observer": _observers(where.sources, places >> SOURCE_SHIFT, flows, numbers),
        "source": pa.DictionaryArray.from_arrays(paths.indices.take(pa.array(places >> SOURCE_SHIFT)), paths.dictionary),
        "offset": pa.array(places & OFFSET_MASK),
    }
    return pa.RecordBatch.from_arrays([made[name] for name in schema.names], names=schema.names)


def _coded(codes: IntArray, texts: list[str]) -> pa.DictionaryArray:
    """The text of each code; equal texts are in the dictionary once."""
    known = pa.array(texts, pa.string()).dictionary_encode()
    numbers = known.indices.to_numpy()[codes] if len(texts) > 1 else np.zeros(len(codes), np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(numbers), known.dictionary)


def constant(value: str, count: int) -> pa.Array:
    """The same text in every row."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value], pa.string()))


def batch(schema: pa.Schema, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Columns in the order of the schema of record.

    Dictionary-encoded strings stay so until they are written.
    """
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], names=schema.names)
