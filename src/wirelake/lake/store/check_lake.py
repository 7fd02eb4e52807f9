"""Check a lake as a whole: its own records against the files in its folder.

Needs no Spark, and repairs nothing.

It checks the published snapshot, which readers see. Problems are errors of the lake. Notes are what a running or dead ingest leaves
behind, and the next one cleans up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wirelake.errors import LakeError
from wirelake.lake.store import delta, folder, gold_commit, journal, settings, snapshot
from wirelake.lake.store.check_ledger import check_ledger
from wirelake.lake.store.progress import positions
from wirelake.lake.store.snapshot import Snapshot
from wirelake.lake.tables import ledger, messages, protocols
from wirelake.lake.tables.catalog import GOLD, RULES_VERSION, TABLES
from wirelake.lake.tables.checkpoints import CHECKPOINTS
from wirelake.lake.tables.index import CONNECTION_INDEX, INDEX_TABLES, MINUTE_INDEX
from wirelake.lake.tables.schema import Table

__all__ = ["CHECKS", "Part", "check_lake"]


class Part(msgspec.Struct):
    """What one check found."""

    name: str
    checked: str = ""
    """What was looked at, for people."""
    problems: list[str] = []
    notes: list[str] = []


def check_lake(lake: Path, only: Collection[str] | None = None) -> Iterator[Part]:
    """Check a lake, part by part: all of them, or only these.

    Raises LakeError if there is no lake that this version reads.
    """
    seen = snapshot.current(lake)
    for name, check in CHECKS.items():
        if only is not None and name not in only:
            continue
        part = Part(name)
        try:
            check(seen, part)
        except (LakeError, OSError, pa.ArrowException) as error:
            part.problems.append(" ".join(str(error).split()))
        yield part


def _journal(seen: Snapshot, part: Part) -> None:
    """Work that is under way, or was left unfinished; settings and positions that can be read."""
    lake = seen.lake
    late = settings.of(lake).late_seconds
    if (pending := journal.pending(lake)) is not None:
        step = "is prepared, and will be finished" if pending.files is not None else "was begun, and will be dropped if its ingest died"
        part.notes.append(f"batch {pending.batch} {step}")
    if journal.read(lake, "gold.json") is not None:
        part.notes.append("gold tables are being published, or the next ingest finishes that")
    if _is_written(lake):
        part.notes.append("the lake is being written")
    for strange in folder.foreign(lake):
        part.notes.append(f"{strange.name} is in the folder, and no part of the lake")
    part.checked = f"lake format {journal.FORMAT}, answers late after {late:g} s"


def _is_written(lake: Path) -> bool:
    """Whether a process that lives has the lake.

    The lock itself is not tried: that would keep an ingest out for a moment.
    """
    content = (journal.read(lake, "lock") or b"").strip()
    return content.isdigit() and Path("/proc", content.decode()).exists()


def _snapshot(seen: Snapshot, part: Part) -> None:
    """The versions that readers see are versions of the tables."""
    for name, table in TABLES.items():
        newest, version = delta.version(seen.lake, table), seen.versions.get(name)
        if newest is None:
            if name in seen.versions and version is not None:
                part.problems.append(f"table {name} is gone: its folder has no Delta log")
        elif version is not None and version > newest:
            part.problems.append(f"table {name}: readers are to see version {version}, but its Delta log ends with {newest}")
        elif version is not None and version < newest:
            part.notes.append(f"table {name}: readers see version {version}, {newest - version} newer are not published yet")
    part.checked = f"publication {seen.number} names the versions of {len(seen.versions)} tables"


def _files(seen: Snapshot, part: Part) -> None:
    """Check that every file in a Delta log exists, with the size, rows and columns it should have."""
    count = size = 0
    for table in (*TABLES.values(), *INDEX_TABLES, CHECKPOINTS):
        if table.name in TABLES and table.name not in seen.versions:
            continue
        if table.name in TABLES and delta.is_outdated(seen.lake, table):
            part.notes.append(f"table {table.name} has the columns of another version of wirelake")
            continue
        for file in delta.entries(seen.lake, table, seen.versions.get(table.name)):
            count, size = count + 1, size + file.size
            if problem := _file(delta.folder(seen.lake, table) / file.path, file, table):
                part.problems.append(f"table {table.name}: {file.path} {problem}")
    part.checked = f"{count} Parquet files of {size:,} bytes are what the Delta logs say"


def _file(path: Path, file: delta.File, table: Table) -> str:
    """What is wrong with a file; empty if nothing is."""
    try:
        size = path.stat().st_size
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if size != file.size:
        return f"has {size} bytes, the Delta log says {file.size}"
    try:
        with pq.ParquetFile(path) as opened:
            rows, columns = opened.metadata.num_rows, opened.schema_arrow.names
    except (OSError, pa.ArrowException) as error:
        return f"is damaged: {' '.join(str(error).split())}"
    if rows != file.rows:
        return f"has {rows} rows, the Delta log says {file.rows}"
    missing = [name for name in table.schema.names if name not in columns]
    return f"has no column {missing[0]}" if missing else ""


def _orphans(seen: Snapshot, part: Part) -> None:
    """Files that no table counts: those that were replaced stay for readers for a while."""
    count = size = 0
    for table in (*TABLES.values(), *INDEX_TABLES, CHECKPOINTS):
        counted = set(seen.files(table.name)) if table.name in TABLES else set()
        for path in delta.uncounted(seen.lake, table):
            if path not in counted:
                count, size = count + 1, size + path.stat().st_size
    if count:
        part.notes.append(f"{count} files of {size:,} bytes count no more, or not yet: the next ingest removes those it does not need")
    part.checked = "files that no table counts"


def _silver(seen: Snapshot, part: Part) -> None:
    """The table of every protocol has the messages that `messages` has of it."""
    listed = seen.dataset(messages.TABLE.name).to_table(columns=["protocol", "message_id"])
    held = dict(zip(*(column.to_pylist() for column in listed.group_by("protocol").aggregate([([], "count_all")]).columns), strict=True))
    for table in protocols.TABLES:
        rows = seen.dataset(table.name).count_rows()
        if rows != held.get(table.name, 0):
            part.problems.append(f"table {table.name} has {rows} rows, messages {held.get(table.name, 0)} of that protocol")
    twice = len(listed) - (pc.count_distinct(listed["message_id"]).as_py() if len(listed) else 0)
    if twice:
        part.problems.append(f"messages has {twice} rows whose message_id is there already")
    part.checked = f"{len(listed):,} messages, in {len(protocols.TABLES)} tables of protocols"


def _ledger(seen: Snapshot, part: Part) -> None:
    """Every byte of every source has its place, and sources are what they were."""
    found = check_ledger(seen.lake)
    part.problems += found.problems
    if found.gone:
        part.notes.append(f"{len(found.gone)} of {found.sources} files are not where they were")
    part.checked = f"the ledger of {found.sources} file{'' if found.sources == 1 else 's'} adds up to {found.bytes:,} bytes"


def _index(seen: Snapshot, part: Part) -> None:
    """The sums of the index are those of the messages of its batches."""
    newest = [delta.batch(seen.lake, table) or 0 for table in INDEX_TABLES]
    part.checked = f"the index is as of batch {min(newest)}"
    if _is_written(seen.lake):
        part.notes.append("it is not compared with messages while the lake is written")
        return
    for table, batch in zip((CONNECTION_INDEX, MINUTE_INDEX), newest, strict=True):
        if batch < (seen.batch(ledger.TABLE.name) or 0):
            part.notes.append(f"{table.name} is as of batch {batch}: the next ingest goes on from there")
            continue
        counted = delta.dataset(seen.lake, messages.TABLE).count_rows()
        summed = pc.sum(delta.dataset(seen.lake, table).to_table(columns=["messages"])["messages"]).as_py() or 0
        if summed != counted:
            part.problems.append(f"{table.name} counts {summed} messages, the table messages has {counted}")


def _gold(seen: Snapshot, part: Part) -> None:
    """Gold tables are all as of one batch, that of the ledger; no two rows have the same key."""
    newest = seen.batch(ledger.TABLE.name) or 0
    batches = {table.name: seen.batch(table.name) or 0 for table in GOLD}
    if len(set(batches.values())) > 1:
        part.problems.append(f"gold tables are as of different batches: {', '.join(f'{name} {batch}' for name, batch in batches.items())}")
    if min(batches.values()) < newest:
        part.notes.append(f"gold tables are as of batch {min(batches.values())}, the ledger of {newest}: the next ingest builds them")
    if gold_commit.has_other_rules(seen.lake):
        part.notes.append(f"gold tables were built by another version of the rules than {RULES_VERSION}: the next ingest builds them")
    for table in GOLD:
        if table.name in seen.versions and not delta.is_outdated(seen.lake, table):
            keys = seen.dataset(table.name).to_table(columns=list(table.grain))
            if twice := len(keys) - len(keys.group_by(list(table.grain)).aggregate([])):
                part.problems.append(f"table {table.name} has {twice} rows whose key ({', '.join(table.grain)}) is there already")
    part.checked = f"gold tables are as of batch {min(batches.values())}"


def _following(seen: Snapshot, part: Part) -> None:
    """What following goes on with: its files are there, and it is where the ledger is."""
    lake, now = seen.lake, journal.following(seen.lake)
    known = {position.source.id: position.end for position in positions(lake).all}
    part.checked = f"positions in {len(known)} sources"
    if now is None or _is_written(lake):
        return
    for bucket, name in now.memories.items():
        if not (journal.memories(lake) / name).is_file():
            part.problems.append(f"the memory {name} of bucket {bucket}, with which following goes on, is gone")
    for position in now.offset.files:
        if position.at != known.get(position.id, 0):
            part.problems.append(
                f"{position.path}: following goes on at byte {position.at}, the ledger ends at {known.get(position.id, 0)}"
            )
    part.checked += f", {len(now.offset.files)} of them followed"
    if waiting := sum(position.bytes for position in now.waiting):
        part.notes.append(f"{waiting} bytes of followed files wait for what comes next")


CHECKS: Final[dict[str, Callable[[Snapshot, Part], None]]] = {
    "journal": _journal,
    "snapshot": _snapshot,
    "files": _files,
    "orphans": _orphans,
    "messages": _silver,
    "ledger": _ledger,
    "index": _index,
    "gold": _gold,
    "positions": _following,
}
"""Every check, in the order in which they run."""
