"""A lake's gold rows once more, folded in this process: every message of a protocol in one window. For comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from wirelake import protocols
from wirelake.lake import open_lake
from wirelake.lake.gold.fold.connection_order import ranks_of
from wirelake.lake.gold.fold.facts import session_facts
from wirelake.lake.gold.fold.seen import analyzer_of, table_of
from wirelake.lake.gold.fold.sessions import SessionFold
from wirelake.lake.store import delta, settings
from wirelake.lake.tables.index import CONNECTION_INDEX
from wirelake.lake.views import views
from wirelake.protocols.analyzer import NO_TIME
from wirelake.protocols.protocol import SessionKind

FOLDED = ("exchanges", "violations", "sessions")


def folded(lake: Path, protocol: str) -> dict[str, list[dict[str, Any]]]:
    """Table -> rows of this protocol that the analyzers give."""
    opened = open_lake(lake)
    index = delta.dataset(lake, CONNECTION_INDEX).to_table(filter=pc.field("protocol") == protocol)
    own = table_of(protocol)
    rows = opened.dataset(own).to_table(filter=None if own == protocol else pc.field("protocol") == protocol)
    silver = {name: opened.dataset(name).to_table(filter=pc.field("protocol") == protocol) for name in ("connections", "quarantine")}
    quarantine = silver["quarantine"]
    quarantine = quarantine.filter(pc.is_valid(quarantine["session_id"]))
    links = views(index).sessions if protocols.get(protocol).session_kind is SessionKind.LINK else None
    facts = session_facts(protocol, index, silver["connections"], quarantine, links)
    said = index.filter(pc.is_valid(index["direction"]))
    newest = pc.max(said["last_seen"]).cast(pa.int64()).as_py() if said.num_rows else None
    found: dict[str, list[pa.Table]] = {name: [] for name in FOLDED}
    fold = SessionFold(
        protocol,
        facts,
        lambda name, table: found[name].append(table),
        late_seconds=settings.of(lake).late_seconds,
        newest=NO_TIME if newest is None else newest,
        links=links,
    )
    ranked_by = analyzer_of(protocol).RANKED_BY
    fold.feed(rows, None if ranked_by is None else ranks_of(rows, ranked_by))
    fold.finish()
    return {name: [row for table in tables for row in table.to_pylist()] for name, tables in found.items()}


def differences(lake: Path, protocol: str, most: int = 5) -> list[str]:
    """How the lake's own rows of this protocol differ from those that the analyzers give; empty if they do not."""
    lines = []
    mine = folded(lake, protocol)
    for name in FOLDED:
        theirs = [row for row in open_lake(lake).dataset(name).to_table().to_pylist() if row["protocol"] == protocol]
        if name == "violations":
            theirs = [row for row in theirs if row["session_id"] is not None]
        ours, others = (sorted(repr(list(row.items())) for row in rows) for rows in (mine[name], theirs))
        if ours != others:
            lines.append(f"{protocol} {name}: {len(others)} rows in the lake, {len(ours)} folded")
            lines += [f"  only in the lake: {row}" for row in sorted(set(others) - set(ours))[:most]]
            lines += [f"  only folded:      {row}" for row in sorted(set(ours) - set(others))[:most]]
    return lines


if __name__ == "__main__":
    import sys

    for name in sys.argv[2:] or protocols.names():
        print("\n".join(differences(Path(sys.argv[1]), name)) or f"{name}: equal")
