"""Block: payload of many connections as one large row, with the source offset of each byte.

A block holds *segments* of one or more flows. A segment is contiguous in `data` and belongs to one direction of one flow. Segments of the
same flow and direction follow each other in stream order. *Origins* lead back to the file: byte `start` of `data` came from byte `offset`
of the source, at time `ts`, and so did the bytes after it up to the next origin. Bytes of the source that are in no segment are in
`accounts`. So segments and accounts of all blocks of a source add up to its size exactly.

A connection may continue from one source to the next. So an offset carries the number of its source in its upper bits (`place`), and a
source is accounted for in adjacent spans. With one source and one span, offsets are plain.

A block is a value; its Arrow form is `SCHEMA`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from wirelake.capture.containers.records import NO_TIME

__all__ = [
    "OFFSET_MASK",
    "ORIGIN_COLUMNS",
    "ORIGIN_OFFSET",
    "ORIGIN_START",
    "ORIGIN_TS",
    "SCHEMA",
    "SEGMENT_COLUMNS",
    "SEGMENT_FLOW",
    "SEGMENT_MISSING",
    "SEGMENT_START",
    "SEGMENT_STOP",
    "SEGMENT_TO_SERVER",
    "SOURCE_SHIFT",
    "Account",
    "Block",
    "Endpoint",
    "Flow",
    "FlowEvent",
    "Source",
    "Span",
    "Unreadable",
    "Unrecognised",
    "from_batch",
    "place",
    "renamed",
    "source_of",
    "to_batch",
]

SEGMENT_START: Final = 0
SEGMENT_STOP: Final = 1
SEGMENT_FLOW: Final = 2
"""Index into the block's flows."""
SEGMENT_TO_SERVER: Final = 3
"""1 if the client sent it, 0 if the server did."""
SEGMENT_MISSING: Final = 4
"""Bytes of this direction that are missing before the segment.

It is -1 for the start of a stream whose beginning was not captured.
"""
SEGMENT_COLUMNS: Final = 5

ORIGIN_START: Final = 0
ORIGIN_OFFSET: Final = 1
ORIGIN_TS: Final = 2
"""Microseconds since 1970, UTC, or `NO_TIME`."""
ORIGIN_COLUMNS: Final = 3


class Source(msgspec.Struct, frozen=True, gc=False):
    """One input file: its path, its id by content, and its size when it was planned."""

    path: str
    id: bytes
    size: int
    observer: str = ""
    """The name of its observer, if one was given; else its bytes say who saw them."""
    begins: int = 0
    """When its first packet was seen, microseconds since 1970, if other captures may have the same connections; else 0."""

    @property
    def capture_observer(self) -> str:
        """Who saw the packets of a capture that nobody named."""
        return self.observer or f"capture-{self.id.hex()}"


def renamed(source: Source, names: Mapping[bytes, str]) -> Source:
    """Return a source with the path that `names` has for its id."""
    return msgspec.structs.replace(source, path=names.get(source.id, source.path))


SOURCE_SHIFT: Final = 48
"""Bits of an offset below the number of its source."""
OFFSET_MASK: Final = (1 << SOURCE_SHIFT) - 1


def place(source: int, offset: int) -> int:
    """Return an offset that carries the number of its source."""
    return (source << SOURCE_SHIFT) | offset


def source_of(offset: int) -> tuple[int, int]:
    """Return (number of the source, offset in it)."""
    return offset >> SOURCE_SHIFT, offset & OFFSET_MASK


class Span(msgspec.Struct, frozen=True, gc=False):
    """A byte range of a source that is accounted for separately: the part that one task read."""

    at: int
    """Its offset; see `place`."""
    length: int
    mark: bytes = b""
    """The hash of its bytes, once they are read; see `identity.py`."""


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """One end of a flow."""

    address: str
    port: int


class Flow(msgspec.Struct, frozen=True, gc=False):
    """One connection as the capture saw it."""

    session_id: bytes
    protocol: str
    transport: str
    client: Endpoint
    server: Endpoint
    known_by: str
    """How the protocol was recognised: `tag`, `port` or `bytes`."""
    observer_kind: str = msgspec.field(name="observed_by")  # the name in stored states
    """Where it was captured: `client`, `server` (a recording peer) or `wire` (a packet capture)."""
    dialect: tuple[str, ...] = ()
    """The flags of the protocol's limits that its bytes are read with, beyond the specification."""
    observer: str = ""
    """Who saw it: a recorder, or a name that was given; empty: the capture file in which its bytes are."""


class FlowEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a connection: opened, finished, closed or reset."""

    flow: int
    ts: int
    offset: int
    what: str
    """`opened`, `finished` (one side sent its last byte), `closed`, `reset` or `unconfirmed`.

    `unconfirmed`: from `ts` on, what this side sent may not have left its machine.
    """
    by: str
    """`client`, `server`, or empty if unknown."""
    detail: str = ""
    after: int = 0
    """Size of the block's data when it happened."""


class Unrecognised(msgspec.Struct, frozen=True, gc=False):
    """The peers of bytes that no protocol recognises."""

    transport: str
    client: str
    """The address of the side that opened the connection."""
    server: str
    port: int
    """The port of the side that was listening."""
    why: str


class Account(msgspec.Struct, frozen=True, gc=False):
    """Bytes of the source that are in no segment, and why."""

    category: str
    """`container`, `headers`, `other`, `quarantine`, or `gap` for bytes that the capture does not have."""
    reason: str
    bytes: int
    """Negative only for what compression saved, so that accounts add up to the size of the stored file."""
    items: int
    at: int = 0
    """The offset of its span."""
    unrecognised: Unrecognised | None = None
    """The peers, of unrecognised bytes."""
    first: int = NO_TIME
    """When the first of them was seen; only of unrecognised bytes."""
    last: int = NO_TIME


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """Bytes that the capture layer itself could not read; they are accounted for as `quarantine`."""

    offset: int
    length: int
    layer: str
    reason: str
    raw: bytes


class Notes(msgspec.Struct, frozen=True):
    """The small parts of a block, packed together."""

    flows: list[Flow]
    events: list[FlowEvent]
    accounts: list[Account]
    unreadable: list[Unreadable]
    sources: list[Source] = []
    spans: list[Span] = []


class Block(msgspec.Struct):
    """Bytes of a source with their segments, origins, flows and accounts."""

    source: Source
    data: bytes | memoryview
    segments: np.ndarray[Any, Any]
    """int64, one row (start, stop, flow, to_server, missing) per segment."""
    origins: np.ndarray[Any, Any]
    """int64, one row (start, offset, ts) per origin, ascending by start."""
    flows: Sequence[Flow] = []
    events: Sequence[FlowEvent] = []
    accounts: list[Account] = []
    unreadable: list[Unreadable] = []
    last: bool = False
    """True on the last block of its source."""
    sources: list[Source] = []
    """Sources by number; empty when there is only `source`."""
    spans: list[Span] = []
    """The spans of its sources, in order; empty when they are whole."""

    def all_sources(self) -> list[Source]:
        """Sources by number."""
        return self.sources or [self.source]

    def all_spans(self) -> list[Span]:
        """Spans in order."""
        return self.spans or [Span(0, self.source.size)]


SCHEMA: Final = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("source_id", pa.binary(), nullable=False),
        pa.field("source_size", pa.int64(), nullable=False),
        pa.field("observer", pa.string(), nullable=False),
        pa.field("begins", pa.int64(), nullable=False),
        pa.field("last", pa.bool_(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("segments", pa.binary(), nullable=False),
        pa.field("origins", pa.binary(), nullable=False),
        pa.field("notes", pa.binary(), nullable=False),
    ]
)
"""A block as one Arrow row.

Segments, origins and notes are packed: they cross Spark as three values, not as thousands.
"""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Notes)


def to_batch(block: Block) -> pa.RecordBatch:
    """Return a block as a record batch of one row."""
    notes = Notes(list(block.flows), list(block.events), block.accounts, block.unreadable, block.sources, block.spans)
    values = [
        block.source.path,
        block.source.id,
        block.source.size,
        block.source.observer,
        block.source.begins,
        block.last,
        block.data,
        np.ascontiguousarray(block.segments, np.int64).tobytes(),
        np.ascontiguousarray(block.origins, np.int64).tobytes(),
        _encoder.encode(notes),
    ]
    return pa.RecordBatch.from_arrays([pa.array([value], field.type) for value, field in zip(values, SCHEMA, strict=True)], schema=SCHEMA)


def from_batch(batch: pa.RecordBatch) -> list[Block]:
    """Return the blocks of a record batch; `data` is not copied."""
    blocks = []
    for row in range(batch.num_rows):
        source, source_id, size, observer, begins, last, data, segments, origins, notes = (column[row] for column in batch.columns)
        packed = _decoder.decode(notes.as_py())
        blocks.append(
            Block(
                Source(source.as_py(), source_id.as_py(), size.as_py(), observer.as_py(), begins.as_py()),
                memoryview(data.as_buffer()),
                np.frombuffer(segments.as_buffer(), np.int64).reshape(-1, SEGMENT_COLUMNS),
                np.frombuffer(origins.as_buffer(), np.int64).reshape(-1, ORIGIN_COLUMNS),
                packed.flows,
                packed.events,
                packed.accounts,
                packed.unreadable,
                last.as_py(),
                packed.sources,
                packed.spans,
            )
        )
    return blocks
