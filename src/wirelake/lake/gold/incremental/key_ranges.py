"""The files of a gold table: each has the rows of one range of hash slots.

A key's slot is a hash of it.

A refresh replaces the files whose range has affected keys, and no others. A file that would grow too large is split. So a small table is
one file, and a large one is rewritten only where it changes.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.sources.tables import spark_schema
from wirelake.lake.store import delta, durable
from wirelake.lake.store.delta import File
from wirelake.lake.store.gold_names import leaf_name, slots_of
from wirelake.lake.store.slots import SLOTS
from wirelake.lake.tables.schema import Table

__all__ = ["KEY_RANGE_ROWS", "SLOTS", "KeyRange", "Rebuild", "name", "plan", "range_of", "write"]

KEY_RANGE_ROWS: Final = 500_000
"""How many rows a leaf should have at most."""

_SPARKS: Final = re.compile(r"^part-(\d{5})-")
"""How Spark names the file of a partition."""


class KeyRange(msgspec.Struct, frozen=True, order=True):
    """A range of slots."""

    first: int
    last: int

    @property
    def slots(self) -> range:
        """Those in the range."""
        return range(self.first, self.last + 1)


class Rebuild(msgspec.Struct, frozen=True):
    """The files to replace, and the key ranges to write in their place."""

    removed: list[File]
    key_ranges: list[KeyRange]


def range_of(file: File) -> KeyRange:
    """The range a file covers; one that does not say so may have rows of any slot."""
    return KeyRange(*slots_of(file.path))


def name(of: KeyRange) -> str:
    """A new name for a file of a range."""
    return leaf_name(of.first, of.last)


def _gaps(key_ranges: Iterable[KeyRange]) -> Iterator[KeyRange]:
    """Ranges that no file covers: key ranges without rows have no file."""
    edges = [KeyRange(-1, -1), *sorted(key_ranges), KeyRange(SLOTS, SLOTS)]
    for one, other in pairwise(edges):
        if one.last + 1 < other.first:
            yield KeyRange(one.last + 1, other.first - 1)


def plan(files: Collection[File], slots: Collection[int], more: int, most: int = KEY_RANGE_ROWS) -> Rebuild:
    """How rows of these slots, `more` than there are now at most, come in among the files that are there."""
    if not slots:
        return Rebuild([], [])
    ranges = {file.path: range_of(file) for file in files}
    if len(set(ranges.values())) < len(files):  # written before there were key ranges
        return Rebuild(list(files), list(_cut(KeyRange(0, SLOTS - 1), sum(file.rows for file in files) + more, most)))
    rows = {ranges[file.path]: file.rows for file in files} | dict.fromkeys(_gaps(ranges.values()), 0)
    chosen = set(slots)
    hit = {key_range: chosen.intersection(key_range.slots) for key_range in rows}
    merged: list[tuple[KeyRange, float]] = []
    for key_range in sorted(key_range for key_range in rows if hit[key_range]):
        expected = rows[key_range] + more * len(hit[key_range]) / len(chosen)
        if merged and merged[-1][0].last + 1 == key_range.first and merged[-1][1] + expected <= most:
            before, count = merged.pop()
            merged.append((KeyRange(before.first, key_range.last), count + expected))
        else:
            merged.append((key_range, expected))
    return Rebuild(
        [file for file in files if hit[ranges[file.path]]], [part for key_range, count in merged for part in _cut(key_range, count, most)]
    )


def _cut(key_range: KeyRange, rows: float, most: int) -> Iterator[KeyRange]:
    """The range in as many parts as its rows need."""
    count = min(max(1, ceil(rows / most)), len(key_range.slots))
    edges = [key_range.first + len(key_range.slots) * at // count for at in range(count + 1)]
    for first, end in pairwise(edges):
        yield KeyRange(first, end - 1)


def _place(key: Column, key_ranges: list[KeyRange]) -> Column:
    """Return the key range of a key."""
    places = [0] * SLOTS
    for place, key_range in enumerate(key_ranges):
        for at in key_range.slots:
            places[at] = place
    slot = sql.pmod(sql.crc32(sql.coalesce(key.cast("binary"), sql.lit(b""))), sql.lit(SLOTS)).cast("int")
    text = ",".join(map(str, places))
    return sql.get(sql.from_json(sql.lit(f"[{text}]"), "array<int>"), slot)


def write(rows: DataFrame, lake: Path, table: Table, key: Column, key_ranges: list[KeyRange]) -> list[File]:
    """Write the rows to one file per key range; they are committed later.

    `to` enforces the schema of record.
    """
    at = delta.folder(lake, table) / f"batch-{uuid.uuid4().hex}"
    fitted = rows.to(spark_schema(table))
    dealt = fitted.coalesce(1) if len(key_ranges) == 1 else fitted.repartitionById(len(key_ranges), _place(key, key_ranges))
    dealt.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(f"file://{at.absolute()}")
    files = []
    for path in sorted(at.glob("*.parquet")):
        count, named = pq.read_metadata(path).num_rows, _SPARKS.match(path.name)
        if count and named:
            key_range = key_ranges[int(named[1])]
            final = path.rename(path.with_name(name(key_range)))
            files.append(File(f"{at.name}/{final.name}", final.stat().st_size, count))
        else:
            path.unlink()
    for left in at.glob(".*.crc"):
        left.unlink()  # Hadoop's checksums, under names that are gone
    if not files:
        shutil.rmtree(at)
    durable.sync(at.parent / file.path for file in files)
    return files
