"""Transfer: blocks and packet batches as Arrow rows of one schema, for Spark's shuffle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from wirelake.capture.blocks import block
from wirelake.capture.blocks.block import Block, Source, Span
from wirelake.capture.blocks.packed_integers import pack_integers, unpack_integers
from wirelake.capture.blocks.packet_batch import PACKET_BATCH_COLUMNS, PacketBatch
from wirelake.capture.blocks.read_split import Partitioned

__all__ = ["SCHEMA", "from_batch", "to_batches"]

SCHEMA: Final = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("place", pa.int64(), nullable=False),
        pa.field("is_packet_batch", pa.bool_(), nullable=False),
        *block.SCHEMA,
    ]
)
"""The bucket, its order there (rank, place), its kind.

Then a block, or a packet batch in the same columns.
"""

_DATA: Final = block.SCHEMA.get_field_index("data")
_SEGMENTS: Final = block.SCHEMA.get_field_index("segments")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Span])


def to_batches(items: Iterable[PacketBatch | Partitioned | Block], buckets: int = 1) -> Iterator[pa.RecordBatch]:
    """Yield one record batch of one row for each item.

    Blocks that are not partitioned may go to any bucket.
    """
    for number, item in enumerate(items):
        if isinstance(item, PacketBatch):
            values: list[Any] = [*msgspec.structs.astuple(item.source), False, b"", b"", b"", _encoder.encode(item.spans)]
            columns = [pa.array([value], field.type) for value, field in _with_types(values)]
            columns[_DATA] = _one_value(item.data)
            columns[_SEGMENTS] = _one_value(pack_integers(item.packets))
            yield _batch([item.bucket, item.rank, item.place, True], columns)
        elif isinstance(item, Partitioned):
            yield _batch([item.bucket, item.rank, item.place, False], block.to_batch(item.block).columns)
        else:
            yield _batch([number % max(buckets, 1), 0, 0, False], block.to_batch(item).columns)


def _one_value(value: bytes | memoryview) -> pa.Array:
    """A binary column of one value, which is not copied."""
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, len(value)], np.int32)), pa.py_buffer(value)])


def _with_types(values: list[Any]) -> Iterator[tuple[Any, pa.Field]]:
    return zip(values, block.SCHEMA, strict=True)


def _batch(leading: list[Any], columns: list[pa.Array]) -> pa.RecordBatch:
    head = [pa.array([value], field.type) for value, field in zip(leading, SCHEMA, strict=False)]
    return pa.RecordBatch.from_arrays([*head, *columns], schema=SCHEMA)


def from_batch(batch: pa.RecordBatch) -> Iterator[PacketBatch | Block]:
    """Yield the blocks and packet batches of a record batch, in order; their data is not copied."""
    names = block.SCHEMA.names
    for row in range(batch.num_rows):
        single = batch.slice(row, 1)
        inner = pa.RecordBatch.from_arrays([single.column(name) for name in names], names=names)
        if not single.column("is_packet_batch")[0].as_py():
            yield from block.from_batch(inner)
            continue
        source = Source(*(inner.column(name)[0].as_py() for name in names[: len(Source.__struct_fields__)]))
        packets = unpack_integers(inner.column("segments")[0].as_buffer(), PACKET_BATCH_COLUMNS)
        data = memoryview(inner.column("data")[0].as_buffer())
        rank, place, bucket = (single.column(name)[0].as_py() for name in ("rank", "place", "bucket"))
        yield PacketBatch(source, rank, place, bucket, data, packets, _decoder.decode(inner.column("notes")[0].as_py()))
