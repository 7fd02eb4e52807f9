"""Files that a query with `ts BETWEEN …` opens, of a lake with many files of messages.

The lake is made by the store's own functions, without captures: a thousand batches of one minute each. The query asks for ten of these
minutes. Readers count themselves what they opened:

- *DuckDB*: `wirelake query` with `EXPLAIN ANALYZE`, "Total Files Read"; beside it the same query over the plain list of files.
- *explore*: the search of `wirelake explore`, with `since:` and `until:`; the files of the view that it reads.
- *delta-rs*: the scan of its own query engine, "files_opened".
- *pyarrow*: `Lake.dataset`, the fragments that a filter leaves.
- *Spark*: `Lake.frame` with `since` and `until`, the metric "number of files read" of the scan.

Goal: at most 2 % of the files, in each of them.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from figures import Figure, main

FILES = 1_000
ROWS = 200
"""Messages of a file."""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ASKED = 10
"""Minutes that the query asks for."""
MOST = 0.02
TABLE = "Files opened for ts BETWEEN"


def build(lake: Path, files: int) -> None:
    """Make a lake whose table `messages` has so many files, a minute each."""
    from wirelake.lake.store import delta, journal, settings, snapshot
    from wirelake.lake.store.commit import prepare
    from wirelake.lake.store.parquet import Sheet
    from wirelake.lake.tables import messages

    journal.initialise(lake)
    settings.hold(lake)
    prepare(lake)
    added = []
    for number in range(files):
        sheet = Sheet(lake, messages.TABLE, 1)
        sheet.add(minute(messages.TABLE.schema, number))
        added.append(sheet.close())
    delta.append(lake, messages.TABLE, [file for file in added if file is not None], 1)
    snapshot.publish(lake)


def minute(schema: pa.Schema, number: int) -> pa.RecordBatch:
    """The messages of one minute, of four sessions."""
    begin = round(BEGIN.timestamp() * 1e6) + number * 60_000_000
    columns = dict.fromkeys(schema.names, pa.nulls(ROWS))
    columns |= {
        "message_id": pa.array([(number * ROWS + row).to_bytes(16) for row in range(ROWS)], pa.binary()),
        "session_id": pa.array([(row % 4).to_bytes(16) for row in range(ROWS)], pa.binary()),
        "connection_id": pa.array([(row % 4).to_bytes(16) for row in range(ROWS)], pa.binary()),
        "ts": pa.array(begin + np.arange(ROWS) * (59_999_999 // ROWS)),
        "protocol": pa.array(["emp"] * ROWS),
        "kind": pa.array(["request", "response"] * (ROWS // 2)),
        "status": pa.array(["ok"] * ROWS),
        "size": pa.array(np.full(ROWS, 100)),
        "source": pa.array([f"/captures/{number:06d}.pcap"] * ROWS),
    }
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


def asked(files: int) -> tuple[datetime, datetime]:
    """The time that the query asks for: ten minutes in the middle."""
    since = BEGIN + (files // 2) * MINUTE
    return since, since + ASKED * MINUTE - timedelta(microseconds=1)


def statement(files: int) -> str:
    """The query."""
    since, until = asked(files)
    return f"SELECT count(*) FROM messages WHERE ts BETWEEN TIMESTAMPTZ '{since}' AND TIMESTAMPTZ '{until}'"  # noqa: S608 - our own values


def by_duckdb(lake: Path, files: int) -> int:
    """`wirelake query`."""
    from wirelake.explore.query import query

    return files_read(query(lake, f"EXPLAIN ANALYZE {statement(files)}").to_pylist()[0]["explain_value"])


def by_duckdb_alone(lake: Path, files: int) -> int:
    """DuckDB over the plain list of files."""
    from wirelake.explore.query import opened

    with opened(lake) as connection:
        ((_, plan),) = connection.execute(f"EXPLAIN ANALYZE {statement(files)}").fetchall()
    return files_read(plan)


def files_read(plan: str) -> int:
    """What DuckDB says in the plan of a query that it ran."""
    found = re.search(r"Total Files Read:\s*(\d+)", plan)
    return int(found[1]) if found else 0


def by_explore(lake: Path, files: int) -> int:
    """The files that the search of `wirelake explore` reads."""
    from wirelake.explore.model.database import Database
    from wirelake.explore.model.messages import count
    from wirelake.filters import parse

    since, until = asked(files)
    with Database(lake) as database, database.connection() as connection:
        assert count(connection, parse(f"since:{since.isoformat()} until:{until.isoformat()}")) == ASKED * ROWS
        ((_, plan),) = connection.execute("EXPLAIN ANALYZE SELECT count(ts) FROM messages WHERE ts IS NOT NULL").fetchall()
    return files_read(plan)


def by_delta_rs(lake: Path, files: int) -> int:
    """The query engine of delta-rs."""
    from deltalake import DeltaTable, QueryBuilder

    engine = QueryBuilder().register("messages", DeltaTable(lake / "messages"))
    plan = pa.table(engine.execute(f"EXPLAIN ANALYZE {statement(files)}")).to_pylist()
    return sum(map(int, re.findall(r"files_opened=(\d+)", json.dumps(plan))))


def by_pyarrow(lake: Path, files: int) -> int:
    """`Lake.dataset` with a filter."""
    import pyarrow.dataset as pads

    from wirelake.lake import open_lake

    since, until = asked(files)
    field = pads.field("ts")
    return len(list(open_lake(lake).dataset("messages").get_fragments(filter=(field >= since) & (field <= until))))


def by_spark(lake: Path, files: int) -> int:
    """`Lake.frame` with `since` and `until`."""
    from wirelake.lake import open_lake, spark_session

    since, until = asked(files)
    rows = open_lake(lake).frame(spark_session(), "messages", since=since, until=until).groupBy("protocol").count()
    assert sum(row["count"] for row in rows.collect()) == ASKED * ROWS
    return spark_files(rows)


def spark_files(rows: Any) -> int:
    """Sum of the metric `numFiles` of all scans of a DataFrame that ran."""
    waiting, count = [rows._jdf.queryExecution().executedPlan()], 0
    while waiting:
        node = waiting.pop()
        if node.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
            node = node.executedPlan()
        metric = node.metrics().get("numFiles")
        count += metric.get().value() if metric.isDefined() else 0
        inner = node.children() if not hasattr(node, "plan") or "QueryStage" not in node.getClass().getSimpleName() else None
        waiting += [node.plan()] if inner is None else [inner.apply(place) for place in range(inner.size())]
    return count


READERS: dict[str, Callable[[Path, int], int]] = {
    "DuckDB, wirelake query": by_duckdb,
    "DuckDB, explore": by_explore,
    "delta-rs": by_delta_rs,
    "pyarrow, Lake.dataset": by_pyarrow,
    "Spark, Lake.frame": by_spark,
}


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    files = FILES // 2 if quick else FILES
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder, "lake")
        began = time.perf_counter()
        build(lake, files)
        print(f"{files} files of {ROWS} messages, made in {time.perf_counter() - began:.1f} s")
        figures = [Figure(table=TABLE, name="DuckDB, the list of files", ours=100 * by_duckdb_alone(lake, files) / files, unit="%")]
        for name, reader in READERS.items():
            began = time.perf_counter()
            opened = reader(lake, files)
            print(f"{name}: {opened} of {files} files, {time.perf_counter() - began:.2f} s", flush=True)
            figures.append(Figure(table=TABLE, name=name, ours=100 * opened / files, unit="%", most=100 * MOST))
    return figures


if __name__ == "__main__":
    main(run, __doc__)
