"""Check the ledger: every byte of every source is accounted for, and tables agree.

Needs no Spark, and sources only as far as they still exist. Repairs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.capture.blocks.accounting import OTHER
from wirelake.capture.blocks.block import Source
from wirelake.capture.files.identity import KnownFile, identify, place
from wirelake.capture.files.source_file import is_elsewhere
from wirelake.capture.packets.tcp_flows import UNRECOGNISED
from wirelake.errors import CaptureError, LakeError
from wirelake.lake.decode.accounting import balance
from wirelake.lake.store import snapshot
from wirelake.lake.store.progress import positions_in
from wirelake.lake.store.snapshot import Snapshot
from wirelake.lake.tables import ledger, messages, quarantine, unrecognised

__all__ = ["Checked", "check_ledger"]


class Checked(msgspec.Struct, frozen=True):
    """What a check found."""

    sources: int
    bytes: int
    problems: tuple[str, ...]
    """One sentence each; none if all is well."""
    gone: tuple[str, ...]
    """Sources that are not where they were: nothing is wrong with the lake."""


def check_ledger(lake: Path) -> Checked:
    """Check the ledger of a lake; raises LakeError when there is no lake."""
    seen = snapshot.current(lake)
    ledger_entries = seen.dataset(ledger.TABLE.name).to_table()
    known = positions_in(ledger_entries).all
    sources = [entry.source for entry in known]
    problems = [*_sums(ledger_entries, sources), *_tables(seen, ledger_entries)]
    gone = []
    for entry in known:
        verdict = _as_it_lies(entry)
        if verdict == "gone":
            gone.append(entry.source.path)
        elif verdict:
            problems.append(verdict)
    return Checked(len(sources), sum(source.size for source in sources), tuple(problems), tuple(gone))


def _sums(ledger_entries: pa.Table, sources: list[Source]) -> list[str]:
    """Find gaps and overlaps of spans, spans not accounted for in full, and duplicate entries."""
    problems = []
    for source in sources:
        mine = ledger_entries.filter(pc.equal(ledger_entries["source_id"], pa.scalar(source.id, pa.binary()))).combine_chunks()
        try:
            balance([source], mine.to_batches()[0])
        except LakeError as error:
            problems.append(str(error).removesuffix("; nothing was published"))
    grain = ledger_entries.group_by(list(ledger.TABLE.grain)).aggregate([([], "count_all")])
    if pc.max(grain["count_all"]).as_py() not in (None, 1):
        problems.append("the ledger has entries that are there twice")
    return problems


def _tables(seen: Snapshot, ledger_entries: pa.Table) -> list[str]:
    """Check that `messages` and `quarantine` have the rows and bytes that the ledger says.

    The check is in total and by protocol.
    """
    problems = []
    rows = seen.dataset(messages.TABLE.name).to_table(columns=["protocol", "size"])
    held = _by(rows.group_by("protocol").aggregate([("size", "sum"), ([], "count_all")]), "protocol", "size_sum", "count_all")
    sums = (
        ledger_entries.filter(pc.equal(ledger_entries["category"], "message"))
        .group_by("reason")
        .aggregate([("bytes", "sum"), ("items", "sum")])
    )
    told = _by(sums, "reason", "bytes_sum", "items_sum")
    for protocol in sorted(held.keys() | told.keys()):
        if held.get(protocol) != told.get(protocol):
            (size, count), (bytes_told, items_told) = held.get(protocol, (0, 0)), told.get(protocol, (0, 0))
            problems.append(f"messages has {count} messages of {protocol} with {size} bytes, the ledger {items_told} with {bytes_told}")
    raw = seen.dataset(quarantine.TABLE.name).to_table(columns=["raw"])
    kept = pc.sum(pc.binary_length(raw["raw"])).as_py() or 0
    missing = pc.sum(ledger_entries.filter(pc.equal(ledger_entries["category"], "quarantine"))["bytes"]).as_py() or 0
    if kept != missing:
        problems.append(f"quarantine has {kept} bytes, the ledger {missing}")
    return [*problems, *_unrecognised(seen, ledger_entries)]


def _unrecognised(seen: Snapshot, ledger_entries: pa.Table) -> list[str]:
    """Batches of which `unrecognised` has other sums than the ledger; an older wirelake had no such table."""
    rows = seen.dataset(unrecognised.TABLE.name).to_table(columns=["batch", "bytes", "packets"])
    held = _by(rows.group_by("batch").aggregate([("bytes", "sum"), ("packets", "sum")]), "batch", "bytes_sum", "packets_sum")
    others = ledger_entries.filter(pc.and_(pc.equal(ledger_entries["category"], OTHER), pc.equal(ledger_entries["reason"], UNRECOGNISED)))
    told = _by(others.group_by("batch").aggregate([("bytes", "sum"), ("items", "sum")]), "batch", "bytes_sum", "items_sum")
    return [
        f"unrecognised has {held[batch][0]} bytes of batch {batch}, the ledger {told.get(batch, (0, 0))[0]}"
        for batch in sorted(held)
        if held[batch] != told.get(batch)
    ]


def _by(table: pa.Table, key: str, *values: str) -> dict[str, tuple[Any, ...]]:
    return {row[key]: tuple(row[name] for name in values) for row in table.to_pylist()}


def _as_it_lies(known: KnownFile) -> str:
    """What is wrong with a source as it is now: `gone`, or a sentence.

    The text is empty if it still has what was read of it.
    """
    source = known.source
    if is_elsewhere(source.path) or not Path(source.path).exists():
        return "gone"
    try:
        is_same = place(identify(source.path), {source.path: [known]}, {}).is_known
    except CaptureError as error:
        return str(error)
    return "" if is_same else f"{source.path}: has other contents than when it was read"
