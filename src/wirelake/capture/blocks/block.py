"""Blocks: what a capture becomes on its way to the lake, a few large rows that carry bytes and where they came from.

A block holds stretches (*runs*) of one or more flows. Each run is contiguous in `data` and belongs to one direction of one flow; runs of
the same flow and direction follow each other in the order of the stream. *Pieces* lead back to the file: byte `start` of `data` came
from byte `offset` of the source, at time `ts`, and so did the bytes after it up to the next piece. What of the source is not in a run is
in `accounts`, so that runs and accounts of all blocks of a source add up to its size exactly.

A connection may go on from one source to the next. So an offset carries the number of its source in its upper bits (`place`), and a source
is accounted for in spans that touch each other. With one source and one span, offsets are what they seem.

It refuses to know protocols, files and Spark: a block is a value, and its Arrow form is `SCHEMA`.
"""

from __future__ import annotations

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
    "source_of",
    "to_batch",
]

SEGMENT_START: Final = 0
SEGMENT_STOP: Final = 1
SEGMENT_FLOW: Final = 2
"""Index into the block's flows."""
SEGMENT_TO_SERVER: Final = 3
"""1 when the client speaks, 0 when the server does."""
SEGMENT_MISSING: Final = 4
"""Bytes of this direction that are missing before the run; -1 when the run begins a stream whose beginning was not seen."""
SEGMENT_COLUMNS: Final = 5

ORIGIN_START: Final = 0
ORIGIN_OFFSET: Final = 1
ORIGIN_TS: Final = 2
"""Microseconds since 1970, UTC, or `NO_TIME`."""
ORIGIN_COLUMNS: Final = 3


class Source(msgspec.Struct, frozen=True):
    """One input file: where it is, which content it had, and how long it was when it was planned."""

    path: str
    id: bytes
    size: int


SOURCE_SHIFT: Final = 48
"""Bits of an offset below the number of its source."""
OFFSET_MASK: Final = (1 << SOURCE_SHIFT) - 1


def place(source: int, offset: int) -> int:
    """An offset in the source of this number."""
    return (source << SOURCE_SHIFT) | offset


def source_of(offset: int) -> tuple[int, int]:
    """(number of the source, offset in it)."""
    return offset >> SOURCE_SHIFT, offset & OFFSET_MASK


class Span(msgspec.Struct, frozen=True):
    """A stretch of a source that is accounted for by itself: the part that one task read."""

    at: int
    """Where it begins; see `place`."""
    length: int
    mark: bytes = b""
    """The hash of its bytes, once they were read; see `identity.py`."""


class Endpoint(msgspec.Struct, frozen=True):
    """One end of a flow."""

    address: str
    port: int


class Flow(msgspec.Struct, frozen=True):
    """One connection as the capture saw it."""

    session_id: bytes
    protocol: str
    transport: str
    client: Endpoint
    server: Endpoint
    known_by: str
    """How the protocol was recognised: `tag`, `port` or `bytes`."""
    observed_by: str
    """Who saw the traffic: `client`, `server` (a recording peer) or `wire` (a packet capture)."""
    dialect: tuple[str, ...] = ()
    """The flags of the protocol's limits that its bytes are read with, beyond what the text says."""


class FlowEvent(msgspec.Struct, frozen=True):
    """Something that happened to a connection rather than in it."""

    flow: int
    ts: int
    offset: int
    what: str
    """`opened`, `finished` (one side sent its last byte), `closed` or `reset`."""
    by: str
    """`client`, `server`, or empty when that is not known."""
    detail: str = ""
    after: int = 0
    """How far the block's data was when it happened."""


class Unrecognised(msgspec.Struct, frozen=True):
    """Who said what no protocol recognises."""

    transport: str
    client: str
    """The address of the side that opened the connection."""
    server: str
    port: int
    """The port of the side that was listening."""
    why: str


class Account(msgspec.Struct, frozen=True):
    """Bytes of the source that are in no run, and why."""

    category: str
    """`container`, `headers`, `other`, `quarantine`, or `gap` for what the capture does not have."""
    reason: str
    bytes: int
    """Never negative, except for what compression spared: so the accounts add up to the size of the file as it lies there."""
    items: int
    at: int = 0
    """Which span it is of: where that begins."""
    unrecognised: Unrecognised | None = None
    """Whose bytes they are, where nobody recognised them."""
    first: int = NO_TIME
    """When the first of them was seen; only with a stranger."""
    last: int = NO_TIME


class Unreadable(msgspec.Struct, frozen=True):
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
    """Bytes of a source with the runs, pieces, flows and accounts that explain them."""

    source: Source
    data: bytes | memoryview
    segments: np.ndarray[Any, Any]
    """int64, one row (start, stop, flow, to_server, missing) per run."""
    origins: np.ndarray[Any, Any]
    """int64, one row (start, offset, ts) per piece, ascending by start."""
    flows: list[Flow] = []
    events: list[FlowEvent] = []
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
        pa.field("last", pa.bool_(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("segments", pa.binary(), nullable=False),
        pa.field("origins", pa.binary(), nullable=False),
        pa.field("notes", pa.binary(), nullable=False),
    ]
)
"""A block as one Arrow row. Runs, pieces and notes are packed: they cross Spark as three values, not as thousands."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Notes)


def to_batch(block: Block) -> pa.RecordBatch:
    """One block as a record batch of one row."""
    notes = Notes(block.flows, block.events, block.accounts, block.unreadable, block.sources, block.spans)
    values = [
        block.source.path,
        block.source.id,
        block.source.size,
        block.last,
        block.data,
        np.ascontiguousarray(block.segments, np.int64).tobytes(),
        np.ascontiguousarray(block.origins, np.int64).tobytes(),
        _encoder.encode(notes),
    ]
    return pa.RecordBatch.from_arrays([pa.array([value], field.type) for value, field in zip(values, SCHEMA, strict=True)], schema=SCHEMA)


def from_batch(batch: pa.RecordBatch) -> list[Block]:
    """The blocks of a record batch; `data` stays where it is."""
    blocks = []
    for row in range(batch.num_rows):
        source, source_id, size, last, data, segments, origins, notes = (column[row] for column in batch.columns)
        packed = _decoder.decode(notes.as_py())
        blocks.append(
            Block(
                Source(source.as_py(), source_id.as_py(), size.as_py()),
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
