"""How far each source was read, according to the ledger.

There is no other record of it, so ingests are idempotent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa

from wirelake.capture.blocks.block import Source
from wirelake.capture.files import identity
from wirelake.capture.files.identity import KnownFile, SourcePosition
from wirelake.lake.store import delta
from wirelake.lake.tables import ledger

__all__ = ["Positions", "positions", "positions_in"]

_COLUMNS: Final = ["source", "source_id", "source_size", "offset", "length", "mark", "batch", "observer"]


class Positions:
    """The sources of a lake, by path and by id, each with the position up to which it was read."""

    def __init__(self) -> None:
        self._by_path: dict[str, list[KnownFile]] = {}
        self._by_id: dict[bytes, list[KnownFile]] = {}

    @property
    def all(self) -> list[KnownFile]:
        """Every source, with its last position."""
        return [known[-1] for known in self._by_id.values()]

    def add(self, known: KnownFile) -> None:
        """Add a source with its position."""
        others = [file for file in self._by_path.get(known.source.path, []) if file.source.id != known.source.id]
        self._by_path[known.source.path] = [*others, known]
        self._by_id.setdefault(known.source.id, []).append(known)

    def place(self, source: Source) -> SourcePosition:
        """Find out which source a file is, and how far it was read."""
        return identity.place(source, self._by_path, self._by_id)


def positions(lake: Path) -> Positions:
    """Read the positions of a lake from its ledger."""
    return positions_in(delta.dataset(lake, ledger.TABLE).to_table(columns=_COLUMNS))


def positions_in(ledger_entries: pa.Table) -> Positions:
    """The positions of the sources in these rows of a ledger."""
    rows = ledger_entries.group_by(_COLUMNS).aggregate([])
    order = [("batch", "ascending"), ("offset", "ascending"), ("length", "ascending")]
    spans: dict[bytes, dict[tuple[int, int], bytes]] = {}
    ends: dict[bytes, dict[str, int]] = {}
    observers: dict[bytes, str] = {}
    for row in rows.sort_by(order).to_pylist():
        mine, end = spans.setdefault(row["source_id"], {}), row["offset"] + row["length"]
        mine[row["offset"], row["length"]] = max(row["mark"] or b"", mine.get((row["offset"], row["length"]), b""))
        paths = ends.setdefault(row["source_id"], {})
        observers[row["source_id"]] = row["observer"] or ""
        if end >= max(paths.values(), default=0):
            paths.pop(row["source"], None)
            paths[row["source"]] = end
    result = Positions()
    for source_id, paths in ends.items():
        hashed = [(*span, mark) for span, mark in sorted(spans[source_id].items())]
        for path, end in paths.items():
            spans_before = tuple(span for span in hashed if span[0] + span[1] <= end)
            result.add(KnownFile(Source(path, source_id, end, observers[source_id]), end, spans=spans_before))
    return result
