"""Rebuild `security`: one Spark job, whose tasks judge the packets of affected sessions.

The driver plans the work from the connection index and collects names of files. Keys travel in the function that tasks run: they are in no
file, plan or log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from wirelake.lake.gold.fold import security_work
from wirelake.lake.gold.fold.security import PROTOCOL
from wirelake.lake.gold.fold.security_work import PASS_ROWS, Judged, SecurityWork
from wirelake.lake.gold.incremental.affected import Affected
from wirelake.lake.gold.incremental.key_ranges import KEY_RANGE_ROWS
from wirelake.lake.gold.incremental.plan_items import covers, plan_items
from wirelake.lake.session.tasks import run_tasks
from wirelake.lake.store import delta
from wirelake.lake.store.delta import File
from wirelake.lake.store.gold_commit import Change
from wirelake.lake.tables import security, violations
from wirelake.lake.tables.index import CONNECTION_INDEX

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.security.trust import TrustStore

__all__ = ["judge_security"]

_LOG: Final = logging.getLogger("wirelake.lake")


def judge_security(
    spark: SparkSession, lake: Path, what: Affected, broken: Sequence[File], scratch: Path, keys: TrustStore | None
) -> Change:
    """Judge affected sessions, and return which files of the table go and come. Nothing is committed here.

    `broken` has the files of `violations`, as that table will be.
    """
    started = time.monotonic()
    index = what.index.filter(pc.equal(what.index["protocol"], PROTOCOL))
    planned = plan_items(spark, lake, [security.TABLE], what, scratch, index=index, most=KEY_RANGE_ROWS)
    items = planned.plan.items
    at = delta.folder(lake, violations.TABLE)
    work = SecurityWork(
        planned.plan,
        str(_events(lake, index, scratch / "security-events.parquet")),
        [[str(at / file.path) for file in broken if covers(item, file)] for item in items],
        PASS_ROWS,
    )
    given = msgspec.msgpack.encode(work)
    results = [msgspec.msgpack.decode(result, type=Judged) for result in run_tasks(spark, partial(_run, given, keys), len(items))]
    added = sorted((one.file for one in results if one.file is not None), key=lambda file: file.path)
    _LOG.info(
        "%s packets judged by %d tasks: %s rows, %.1f s",
        f"{sum(one.packets for one in results):,}",
        len(items),
        f"{sum(file.rows for file in added):,}",
        time.monotonic() - started,
    )
    return Change(security.TABLE.name, planned.removed[security.TABLE.name], added)


def _run(given: bytes, keys: TrustStore | None, number: int) -> bytes:
    """In a task."""
    return msgspec.msgpack.encode(security_work.run(msgspec.msgpack.decode(given, type=SecurityWork), keys, number))


def _events(lake: Path, index: pa.Table, path: Path) -> Path:
    """Write which files have events of the connections in these rows, from all of the connection index.

    The endpoints of a connection must not depend on which of its sessions are affected.
    """
    is_event = (pads.field("protocol") == PROTOCOL) & pads.field("direction").is_null()
    events = delta.dataset(lake, CONNECTION_INDEX).to_table(columns=["connection_id", "batch", "file"], filter=is_event)
    pq.write_table(events.filter(pc.is_in(events["connection_id"], value_set=pc.unique(index["connection_id"]))), path)
    return path
