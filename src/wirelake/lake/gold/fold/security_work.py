"""The work of a task that judges packets: rows of `security` of one work item.

Packets are judged in passes of about `PASS_ROWS`, so that memory is bounded. Files are read once per pass, row group by row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from wirelake.lake.gold.fold.items import ItemFiles, Plan
from wirelake.lake.gold.fold.security import (
    BEFORE_COLUMNS,
    CONNECTION_COLUMNS,
    FIRST_KEY_COLUMNS,
    PACKET_COLUMNS,
    PROTOCOL,
    QUARANTINE_COLUMNS,
    THREATENING,
    VIOLATION_COLUMNS,
    PacketFold,
    ends_of,
    first_keys,
    pass_of,
    threat_rows,
    unreadable_rows,
)
from wirelake.lake.gold.fold.seen import DICTIONARIES
from wirelake.lake.gold.fold.windows import is_any_of
from wirelake.lake.store import delta
from wirelake.lake.store.delta import File
from wirelake.lake.tables import connections, security, violations
from wirelake.lake.tables.catalog import table as table_named
from wirelake.protocols.event_mesh.security.trust import Trust

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.security.trust import FirstUse, TrustStore

__all__ = ["PASS_ROWS", "Judged", "SecurityWork", "is_threatened", "run"]

PASS_ROWS: Final = 500_000
"""About how many packets are in memory at once."""


class SecurityWork(msgspec.Struct, frozen=True):
    """All that tasks need to know, but for keys: those are never written down."""

    plan: Plan
    events: str
    """The scratch file: which files have events of a connection, as rows of the connection index."""
    pass_rows: int = PASS_ROWS
    freshness: bool = True
    """EMM-24: whether the time of a packet is judged."""


class Judged(msgspec.Struct, frozen=True):
    """What a task wrote."""

    file: File | None
    packets: int


def run(work: SecurityWork, keys: TrustStore | None, number: int, broken: Sequence[Path]) -> Judged:
    """Judge the packets of one item, and write its file. `broken` has the files of `violations` that may have its sessions."""
    return _ItemJudge(work, keys, number, broken).run()


def is_threatened(files: Sequence[Path], sessions: pa.Array) -> bool:
    """Whether one of these sessions has a threat in these files of `violations`."""
    if not files:
        return False
    is_threat = pads.field("rule").isin(sorted(THREATENING))
    threatened = pads.dataset([str(file) for file in files], format="parquet").to_table(["session_id"], filter=is_threat)["session_id"]
    return bool(pc.any(pc.is_in(pc.coalesce(threatened, b""), value_set=sessions)).as_py())


class _ItemJudge:
    def __init__(self, work: SecurityWork, keys: TrustStore | None, number: int, broken: Sequence[Path]) -> None:
        self._work = work
        self._keys = keys
        self._violations = broken
        self._files = ItemFiles(work.plan, number, [security.TABLE])
        self._packets = 0

    def run(self) -> Judged:
        try:
            index = self._files.index()
            self._files.keep_others()
            self._emit(_without_session(unreadable_rows(self._files.unreadable(index, QUARANTINE_COLUMNS))))
            self._threats()
            self._judge(index.filter(pc.is_valid(index["direction"])))
            return Judged(next(iter(self._files.close().get(security.TABLE.name, ())), None), self._packets)
        except BaseException:
            self._files.discard()
            raise

    def _emit(self, rows: pa.Table) -> None:
        self._files.emit(security.TABLE.name, rows)

    def _threats(self) -> None:
        """Threats of other protocols."""
        is_threat = pads.field("rule").isin(sorted(THREATENING)) & (pads.field("protocol") != PROTOCOL)
        rows = delta.dataset(self._files.lake, violations.TABLE, self._violations)
        for batch in rows.to_batches(columns=list(VIOLATION_COLUMNS), filter=is_threat):
            if batch.num_rows:
                self._emit(threat_rows(pa.Table.from_batches([batch]).filter(self._files.is_replaced(batch["session_id"]))))

    def _judge(self, said: pa.Table) -> None:
        """Judge all packets, pass by pass."""
        if not said.num_rows:
            return
        paths = self._files.paths(table_named(PROTOCOL), said)
        sessions = pc.unique(said["session_id"])
        ends = self._ends(pc.unique(said["connection_id"]))
        passes = ceil((pc.sum(said["messages"]).as_py() or 1) / self._work.pass_rows)
        columns = [*PACKET_COLUMNS, *(["payload"] if self._keys is not None else [])]
        firsts: FirstUse | None = None
        if self._keys is not None and self._keys.own_keys is Trust.FIRST_USE:
            chosen_rows = (rows.filter(is_any_of(rows["session_id"], sessions)) for rows in _row_groups(paths, FIRST_KEY_COLUMNS))
            firsts = first_keys(chosen_rows, self._keys)
        for number in range(passes):
            fold = PacketFold(
                ends,
                self._keys,
                lambda _: _row_groups(paths, ["message_id", "payload"]),
                first_use=firsts,
                freshness=self._work.freshness,
            )
            for rows in _row_groups(paths, columns):
                chosen = _of_pass(rows.filter(is_any_of(rows["session_id"], sessions)), number, passes)
                self._packets += chosen.num_rows
                fold.add(chosen)
            for rows in self._before():
                fold.add_before(_of_pass(rows, number, passes))
            self._emit(fold.rows())

    def _ends(self, chosen: pa.Array) -> pa.Table:
        """The endpoints of these connections, by all their events."""
        events = pq.read_table(self._work.events)
        paths = self._files.paths(connections.TABLE, events.filter(pc.is_in(events["connection_id"], value_set=chosen)))
        is_chosen = (pads.field("protocol") == PROTOCOL) & pads.field("connection_id").isin(chosen)
        rows = delta.dataset(self._files.lake, connections.TABLE, paths).to_table(columns=list(CONNECTION_COLUMNS), filter=is_chosen)
        return ends_of(rows)

    def _before(self) -> Iterator[pa.Table]:
        """Earlier rows of these sessions."""
        is_packet = (pads.field("protocol") == PROTOCOL) & pads.field("message_id").is_valid()
        rows = delta.dataset(self._files.lake, security.TABLE, self._files.replaced(security.TABLE))
        for batch in rows.to_batches(columns=["session_id", *BEFORE_COLUMNS], filter=is_packet):
            if batch.num_rows:
                yield pa.Table.from_batches([batch]).filter(self._files.is_replaced(batch["session_id"]))


def _row_groups(paths: Sequence[Path], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of these files, row group by row group."""
    for path in paths:
        with pq.ParquetFile(path, read_dictionary=[name for name in DICTIONARIES if name in columns]) as file:
            for number in range(file.num_row_groups):
                yield file.read_row_group(number, columns=list(columns), use_threads=False)


def _of_pass(rows: pa.Table, number: int, passes: int) -> pa.Table:
    return rows if passes == 1 or not rows.num_rows else rows.filter(pa.array(pass_of(rows, passes) == number))


def _without_session(rows: pa.Table) -> pa.Table:
    """An empty session stands for none."""
    named = pc.if_else(pc.equal(rows["session_id"], b""), pa.scalar(None, pa.binary()), rows["session_id"])
    return rows.set_column(rows.schema.get_field_index("session_id"), "session_id", named)
