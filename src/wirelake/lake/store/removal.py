"""Remove sources from silver tables: find those that must go together, rewrite files.

Rows have the path of their source; the ledger has its id, too. Sources with the same path, or that were decoded together because they share
a connection, go together. Of these, the sources that were not named are read again.

Delta files are immutable: a file with rows of a removed source is replaced by one with its other rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wirelake.errors import LakeError
from wirelake.lake.store import delta
from wirelake.lake.store.delta import File
from wirelake.lake.store.parquet import Sheet
from wirelake.lake.store.progress import Positions, positions_in
from wirelake.lake.tables import connections, ledger, runs
from wirelake.lake.tables.catalog import SILVER
from wirelake.lake.tables.schema import Table

__all__ = ["Inventory", "Remainder", "Removal", "remainder"]

_FOLLOWED = -1
"""In place of a batch: all batches that were decoded with what earlier ones left behind."""


class Removal(msgspec.Struct, frozen=True):
    """Sources that go: their ids, and every path they were read from."""

    ids: frozenset[bytes]
    paths: frozenset[str]


class Remainder(msgspec.Struct, frozen=True):
    """Table name -> files that go, and files that come in their place. No table counts the latter yet."""

    removed: dict[str, list[File]] = {}
    kept: dict[str, list[File]] = {}


class Inventory:
    """The sources of a lake, and which of them depend on each other."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._ledger_entries = delta.dataset(lake, ledger.TABLE).to_table()
        self._paths: dict[bytes, set[str]] = {}
        self._ids: dict[str, set[bytes]] = {}
        self._batches: dict[str, set[int]] = {}
        alone = self._alone()
        pairs = self._ledger_entries.group_by(["source_id", "source", "batch"]).aggregate([])
        for row in pairs.to_pylist():
            self._paths.setdefault(row["source_id"], set()).add(row["source"])
            self._ids.setdefault(row["source"], set()).add(row["source_id"])
            self._batches.setdefault(row["source"], set()).add(row["batch"] if row["batch"] in alone else _FOLLOWED)

    def _alone(self) -> set[int]:
        """Batches of ingests: each was decoded by itself."""
        rows = delta.dataset(self._lake, runs.TABLE).to_table(columns=["kind", "batch"]).to_pylist()
        return {row["batch"] for row in rows if row["kind"] != "follow" and row["batch"] is not None}

    @property
    def paths(self) -> list[str]:
        """Every path that a source was read from."""
        return sorted(self._ids)

    def at(self, path: str) -> set[bytes]:
        """The sources that were read from a path."""
        return set(self._ids.get(path, ()))

    def named(self, name: str) -> set[bytes]:
        """Find sources by path, by id in hex, or by a file name that only one path has. Raises LakeError."""
        for path in (name, str(Path(name).absolute())):
            if path in self._ids:
                return self.at(path)
        if name.lower() in (known := {source.hex(): source for source in self._paths}):
            return {known[name.lower()]}
        alike = [path for path in self.paths if path.rsplit("/", 1)[-1] == name]
        if len(alike) == 1:
            return self.at(alike[0])
        if alike:
            raise LakeError(f"{name}: the lake has {len(alike)} sources of this name ({', '.join(alike[:3])}…): give the path, or the id")
        raise LakeError(
            f"{self._lake} has no source {name}: name one as column source or source_id of the table ledger shows it"
            f"{f', for instance {self.paths[0]}' if self.paths else ''}"
        )

    def without(self, removal: Removal) -> Positions:
        """How far all other sources were read."""
        goes = pc.is_in(self._ledger_entries["source_id"], pa.array(sorted(removal.ids), pa.binary()))
        return positions_in(self._ledger_entries.filter(pc.invert(goes)))

    def removal(self, ids: Iterable[bytes]) -> Removal:
        """These sources, and all that have to go with them."""
        shared = self._shared()
        chosen, paths = set(ids), set[str]()
        while True:
            near = {path for one in chosen for path in self._paths[one]}
            near |= {
                other
                for together in shared
                for path in together & near
                for other in together
                if self._batches[path] & self._batches.get(other, set())
            }
            if near == paths:
                return Removal(frozenset(chosen), frozenset(paths))
            paths = near
            chosen |= {one for path in near for one in self._ids[path]}

    def _shared(self) -> list[set[str]]:
        """Of every connection that was seen in several sources, the paths of these."""
        seen = delta.dataset(self._lake, connections.TABLE).to_table(columns=["connection_id", "source"])
        pairs = seen.group_by(["connection_id", "source"]).aggregate([])
        counts = pairs.group_by("connection_id").aggregate([([], "count_all")])
        several = counts.filter(pc.greater(counts["count_all"], 1))["connection_id"]
        found: dict[bytes, set[str]] = {}
        for row in pairs.filter(pc.is_in(pairs["connection_id"], several.combine_chunks())).to_pylist():
            found.setdefault(row["connection_id"], set()).add(row["source"])
        return list({frozenset(paths): paths for paths in found.values()}.values())

    def connections(self, removal: Removal) -> set[bytes]:
        """Every connection that was seen in these sources."""
        seen = delta.dataset(self._lake, connections.TABLE).to_table(columns=["connection_id", "source"])
        mine = seen.filter(pc.is_in(seen["source"], pa.array(sorted(removal.paths), pa.string())))
        return set(mine["connection_id"].to_pylist())


def remainder(lake: Path, removal: Removal) -> Remainder:
    """Write what is left of every file that has rows of these sources."""
    removed: dict[str, list[File]] = {}
    kept: dict[str, list[File]] = {}
    for table in SILVER:
        by, values = ("source_id", removal.ids) if table is ledger.TABLE else ("source", removal.paths)
        gone = pa.array(sorted(values), table.schema.field(by).type)
        for file in delta.entries(lake, table):
            path = delta.folder(lake, table) / file.path
            if not pc.any(pc.is_in(pq.read_table(path, columns=[by])[by], gone)).as_py():
                continue
            removed.setdefault(table.name, []).append(file)
            if (left := _left(lake, table, file, by, gone)) is not None:
                kept.setdefault(table.name, []).append(left)
    return Remainder(removed, kept)


def _left(lake: Path, table: Table, file: File, by: str, gone: Collection[object]) -> File | None:
    """The rows of a file whose column has none of these values, as another file of the same batches.

    Returns None if there are none.
    """
    sheet = Sheet(lake, table, *delta.batches_of(lake, table, file))
    try:
        with pq.ParquetFile(delta.folder(lake, table) / file.path) as opened:
            for batch in opened.iter_batches():
                sheet.add(batch.filter(pc.invert(pc.is_in(batch.column(by), gone))))
        return sheet.close()
    except BaseException:
        sheet.discard()
        raise
