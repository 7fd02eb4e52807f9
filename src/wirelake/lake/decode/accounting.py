"""LedgerEntries: counts where bytes went, by source and span, while decoding.

Its entries become the table `ledger`. Sums are exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.capture.blocks.block import OFFSET_MASK, ORIGIN_OFFSET, ORIGIN_START, SOURCE_SHIFT, Block, Source, Span, source_of
from wirelake.capture.blocks.read_split import ReadTask
from wirelake.errors import LakeError
from wirelake.lake.decode.places import PLACE_END, PLACE_FIRST, PLACE_LOWEST, PLACE_TS, places_of
from wirelake.lake.tables import ledger

__all__ = ["Entry", "Extent", "LedgerEntries", "Where", "balance", "merge", "packed", "rows", "unpacked", "weigh"]

IntArray = npt.NDArray[np.int64]
_MARK: Final = "mark"
"""The category of an entry that only has the mark of a span.

It is for `merge`, and never in the ledger.
"""


class Waiting(msgspec.Struct, frozen=True):
    """Bytes of a span that were read and wait for what comes next."""

    source: Source
    offset: int
    length: int
    bytes: int


class Where(msgspec.Struct, frozen=True):
    """Sources and spans: where the offsets of a block lead."""

    sources: list[Source]
    spans: list[Span]

    @classmethod
    def of(cls, block: Block) -> Where:
        """The sources and spans of a block."""
        return cls(block.all_sources(), block.all_spans())

    def source(self, offset: int) -> tuple[Source, int]:
        """The source of an offset, and the offset in it."""
        number, there = source_of(offset)
        return self.sources[number], there

    def extent(self, origins: IntArray, starts: IntArray, lengths: IntArray) -> Extent:
        """The places of messages in their sources."""
        places = places_of(origins, starts, lengths)
        first, lowest, end, ts = (places[:, column] for column in (PLACE_FIRST, PLACE_LOWEST, PLACE_END, PLACE_TS))
        return Extent(first >> SOURCE_SHIFT, first, lowest & OFFSET_MASK, end - lowest, ts)


class Extent(msgspec.Struct, frozen=True):
    """The places of messages in their sources.

    A message whose segments came in another order, or that goes on in another source, reaches from the lowest to the highest place that
    it has in the source it begins in.
    """

    numbers: IntArray
    """Of the source."""
    first: IntArray
    """The place of the first byte."""
    offsets: IntArray
    """The lowest offset in the source."""
    lengths: IntArray
    """Bytes from there to the highest."""
    ts: IntArray
    """When the last byte was seen: a message is there when its last byte is."""

    def part(self, some: slice[int, int, int]) -> Extent:
        """The same of some of the messages."""
        return Extent(self.numbers[some], self.first[some], self.offsets[some], self.lengths[some], self.ts[some])


class Entry(msgspec.Struct, frozen=True):
    """Bytes of one span of a source that went to one place."""

    source: Source
    offset: int
    length: int
    category: str
    reason: str
    mark: bytes
    bytes: int
    items: int


class LedgerEntries:
    """The ledger entries of one task."""

    def __init__(self) -> None:
        self._sums: dict[tuple[bytes, int, str, str], tuple[int, int]] = {}
        self._spans: dict[tuple[bytes, int], tuple[Source, Span]] = {}

    def open(self, where: Where) -> None:
        """Begin entries for these spans: each is in the ledger, even if nothing is in it."""
        for span in where.spans:
            source, at = where.source(span.at)
            if span.mark or (source.id, at) not in self._spans:
                self._spans[source.id, at] = (source, span)

    def add(self, where: Where, at: int, category: str, reason: str, size: int, items: int) -> None:
        """Account for bytes at a place of a block's sources."""
        if size or items:
            spans = where.spans
            number = 0 if len(spans) == 1 else bisect_right(spans, at, key=lambda span: span.at) - 1
            self._add(where, number, category, reason, size, items)

    def spread(
        self, where: Where, category: str, reason: str, origins: IntArray, starts: IntArray, lengths: IntArray, *, counted: bool = True
    ) -> None:
        """Account for messages, each where its bytes are.

        Without `counted`, their number depends on cuts and is not kept.
        """
        if len(where.spans) == 1:
            self._add(where, 0, category, reason, int(lengths.sum()), len(lengths) * counted)
            return
        begins = np.array([span.at for span in where.spans])
        spans = np.searchsorted(begins, origins[:, ORIGIN_OFFSET], side="right") - 1
        head = np.searchsorted(origins[:, ORIGIN_START], starts, side="right") - 1
        tail = np.searchsorted(origins[:, ORIGIN_START], starts + lengths - 1, side="right") - 1
        changes = np.concatenate(([0], np.cumsum(np.diff(spans) != 0)))
        whole = changes[head] == changes[tail]
        sums, items = np.zeros(len(begins), np.int64), np.zeros(len(begins), np.int64)
        np.add.at(sums, spans[head[whole]], lengths[whole])
        np.add.at(items, spans[head], int(counted))
        for index in np.flatnonzero(~whole):
            inside = slice(int(head[index]), int(tail[index]) + 1)
            edges = np.append(np.maximum(origins[inside, ORIGIN_START], starts[index]), starts[index] + lengths[index])
            np.add.at(sums, spans[inside], np.diff(edges))
        for number in np.flatnonzero(sums | items).tolist():
            self._add(where, number, category, reason, int(sums[number]), int(items[number]))

    def _add(self, where: Where, number: int, category: str, reason: str, size: int, items: int) -> None:
        span = where.spans[number]
        source, at = where.source(span.at)
        self._spans.setdefault((source.id, at), (source, span))
        key = (source.id, at, category, reason)
        bytes_before, items_before = self._sums.get(key, (0, 0))
        self._sums[key] = (bytes_before + size, items_before + items)

    def close(self) -> list[Entry]:
        """Return all entries and start again. A span without messages has an entry that says so."""
        entries = [
            Entry(*self._named(source, at), category, reason, self._spans[source, at][1].mark, size, items)
            for (source, at, category, reason), (size, items) in sorted(self._sums.items())
        ]
        counted = {key[:2] for key in self._sums}
        entries += [
            Entry(source, at, span.length, "container", "empty file", span.mark, 0, 0)
            for (name, at), (source, span) in sorted(self._spans.items(), key=lambda item: item[0])
            if (name, at) not in counted and not source.size
        ]
        entries += [
            Entry(source, at, span.length, _MARK, "", span.mark, 0, 0)
            for (name, at), (source, span) in sorted(self._spans.items(), key=lambda item: item[0])
            if (name, at) not in counted and source.size and span.mark
        ]
        self._sums, self._spans = {}, {}
        return entries

    def _named(self, name: bytes, at: int) -> tuple[Source, int, int]:
        source, span = self._spans[name, at]
        return source, at, span.length


def rows(entries: Iterable[Entry]) -> pa.RecordBatch:
    """Entries as rows of the ledger."""
    made = [
        {
            "source": entry.source.path,
            "source_id": entry.source.id,
            "source_size": entry.source.size,
            "offset": entry.offset,
            "length": entry.length,
            "category": entry.category,
            "reason": entry.reason,
            "bytes": entry.bytes,
            "items": entry.items,
            "mark": entry.mark,
            "observer": entry.source.observer or None,
        }
        for entry in entries
    ]
    return pa.RecordBatch.from_pylist(made, schema=ledger.TABLE.schema)


def merge(batches: Iterable[pa.RecordBatch], number: int | None = None) -> pa.RecordBatch:
    """Merge the entries of many tasks into the ledger of one batch.

    Rows of the same place and kind become one.
    """
    keys = [name for name in ledger.TABLE.grain if name != "batch"]
    # Of a source that grew, tasks may know different sizes, and only the one that read the end of a span knows its mark.
    told = [("source", "max"), ("source_size", "max"), ("length", "max"), ("bytes", "sum"), ("items", "sum"), ("observer", "max")]
    every = pa.Table.from_batches(batches, schema=ledger.TABLE.schema)
    marks = every.group_by(keys[:2]).aggregate([("mark", "max")])
    ledger_entries = every.filter(pc.not_equal(every["category"], _MARK)).group_by(keys).aggregate(told).join(marks, keys[:2])
    ledger_entries = ledger_entries.rename_columns([name.removesuffix("_sum").removesuffix("_max") for name in ledger_entries.column_names])
    ledger_entries = ledger_entries.append_column("batch", pa.array([number] * len(ledger_entries), pa.int64()))
    ledger_entries = ledger_entries.select(ledger.TABLE.schema.names)
    ledger_entries = ledger_entries.cast(ledger.TABLE.schema).sort_by(
        [("source", "ascending"), ("offset", "ascending"), ("category", "ascending")]
    )
    return ledger_entries.combine_chunks().to_batches()[0] if len(ledger_entries) else rows([])


def weigh(works: Iterable[ReadTask], ledger_entries: pa.RecordBatch, before: Iterable[Waiting]) -> tuple[list[Entry], list[Waiting]]:
    """Return entries for bytes that wait for later ones, so that each span adds up, and all waiting spans.

    A span that waited is accounted for by what was decoded of it since, less what no longer waits. Raises LakeError otherwise.
    """
    sums: dict[tuple[bytes, int], int] = {}
    for row in ledger_entries.select(["source_id", "offset", "bytes"]).to_pylist():
        key = (row["source_id"], row["offset"])
        sums[key] = sums.get(key, 0) + row["bytes"]
    entries, waiting = [], []
    marks = {(work.source.id, work.spans[-1].at): work.spans[-1].mark for work in works}
    owed = [
        Waiting(work.source, work.spans[-1].at, work.spans[-1].length, work.spans[-1].length) for work in works if work.spans[-1].length
    ]
    fresh = {(item.source.id, item.offset) for item in owed}
    for item in (*owed, *before):
        key = (item.source.id, item.offset)
        counted = sums.pop(key, 0)
        left = item.bytes - counted
        if left < 0:
            raise LakeError(f"{item.source.path}: the ledger has {-left} bytes too many at byte {item.offset}; nothing was published")
        change = left if key in fresh else -counted
        if change:
            mark = marks.get(key, b"")
            entries.append(Entry(item.source, item.offset, item.length, "waiting", "for what comes next", mark, change, 0))
        if left:
            waiting.append(Waiting(item.source, item.offset, item.length, left))
    if strange := [key for key, counted in sums.items() if counted]:
        raise LakeError(
            f"the ledger speaks of a source that was not read ({strange[0][0].hex()}, byte {strange[0][1]}); nothing was published"
        )
    return entries, waiting


def balance(sources: Iterable[Source], ledger_entries: pa.RecordBatch, begins: Mapping[bytes, int] | None = None) -> None:
    """The spans of every source touch each other to its last byte, and each is accounted for in full.

    Raises LakeError otherwise.

    They begin with its first byte, or where `begins` says that reading went on.
    """
    spans: dict[bytes, dict[tuple[int, int], int]] = {}
    for row in ledger_entries.select(["source_id", "offset", "length", "bytes"]).to_pylist():
        mine = spans.setdefault(row["source_id"], {})
        span = (row["offset"], row["length"])
        mine[span] = mine.get(span, 0) + row["bytes"]
    for source in sources:
        end = (begins or {}).get(source.id, 0)
        for (offset, length), found in sorted(spans.pop(source.id, {}).items()):
            if offset != end:
                raise LakeError(f"{source.path}: the ledger goes on at byte {offset} after byte {end}; nothing was published")
            if found != length:
                raise LakeError(f"{source.path}: the ledger accounts for {found} of {length} bytes at byte {offset}; nothing was published")
            end += length
        if end != source.size:
            raise LakeError(f"{source.path}: the ledger accounts for {end} of {source.size} bytes; nothing was published")
    if spans:
        strange = ", ".join(source_id.hex() for source_id in sorted(spans))
        raise LakeError(f"the ledger speaks of sources that were not read ({strange}); nothing was published")


def packed(entries: Iterable[pa.RecordBatch]) -> bytes:
    """Encode ledger entries, for a task to return."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ledger.TABLE.schema) as stream:
        for batch in entries:
            stream.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(content: bytes) -> Iterator[pa.RecordBatch]:
    """Decode the ledger entries that a task returned."""
    if content:
        yield from pa.ipc.open_stream(content)
