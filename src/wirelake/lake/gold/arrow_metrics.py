"""Build `metrics` with Arrow, in one process: while tables are small, planning a Spark job takes longer than the sums.

The rows are those of `gold/metrics.py`, which builds the table with Spark, beyond a few million rows. Imports no Spark.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.gold.grouping import Groups, Integers, group, micros, numbers, ranks
from wirelake.lake.tables.metrics import KEYS, TABLE
from wirelake.lake.tables.schema import TIME

__all__ = ["metrics_of"]

_MINUTE_US: Final = 60_000_000
_SUMS: Final = ("messages", "bytes", "errors", "quarantined")
"""Columns of the minute index that are added up."""
_PERCENTILES: Final = {"latency_p50_us": 0.5, "latency_p95_us": 0.95, "latency_p99_us": 0.99}


def metrics_of(minute_index: pa.Table, exchanges: pa.Table, violations: pa.Table) -> pa.Table:
    """Add up the minute index, exchanges and violations of these minutes; rows are ordered by their keys.

    Percentiles are exact, by nearest rank. Null is a subject like any other.
    """
    exchanges = exchanges.filter(pc.is_valid(exchanges["requested"]))
    violations = violations.filter(pc.and_(pc.is_valid(violations["ts"]), _is_counted(violations["severity"])))
    nothing = pa.chunked_array([pa.nulls(violations.num_rows, pa.string())])
    keys = pa.concat_tables(
        [
            _keys(minute_index["minute"], minute_index["protocol"], minute_index["subject"]),
            _keys(_minutes(exchanges["requested"]), exchanges["protocol"], exchanges["subject"]),
            _keys(_minutes(violations["ts"]), violations["protocol"], nothing),
        ]
    )
    groups = group([ranks(keys[name]) for name in KEYS])
    summed, asked, broken = (
        Groups(of_row, groups.first) for of_row in np.split(groups.of_row, np.cumsum([minute_index.num_rows, exchanges.num_rows]))
    )
    columns: dict[str, object] = {name: keys[name].take(groups.first) for name in KEYS}
    columns |= {name: summed.totals(numbers(minute_index[name])) for name in _SUMS}
    columns["rate"] = summed.totals(numbers(minute_index["messages"])) / 60.0
    columns["violations"] = broken.counts(np.ones(violations.num_rows, np.bool_))
    columns["requests"] = asked.counts(np.ones(exchanges.num_rows, np.bool_))
    columns |= {name: asked.counts(numbers(exchanges[name]) == 1) for name in ("late", "cancelled")}
    is_answered = pc.is_valid(exchanges["latency_us"]).to_numpy()
    columns["answered"] = asked.counts(is_answered)
    columns |= _percentiles(asked.of_row[is_answered], numbers(exchanges["latency_us"])[is_answered], len(groups.first))
    return pa.table({name: columns[name] for name in TABLE.schema.names}, TABLE.schema)


def _is_counted(severity: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether a finding is a violation: the specification allows those of severity `info`."""
    return pc.fill_null(pc.not_equal(severity.cast(pa.string()), "info"), True)


def _minutes(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """The beginning of each minute; none of the times is null."""
    at = micros(times)
    return pa.chunked_array([pa.array(at - at % _MINUTE_US)]).cast(TIME)


def _keys(minute: pa.ChunkedArray, protocol: pa.ChunkedArray, subject: pa.ChunkedArray) -> pa.Table:
    return pa.table({"minute": minute.cast(TIME), "protocol": protocol.cast(pa.string()), "subject": subject.cast(pa.string())})


def _percentiles(of_row: Integers, latency: Integers, count: int) -> dict[str, pa.Array]:
    """The percentiles of each group: the smallest latency that so large a part of them does not exceed."""
    ordered = latency[np.lexsort((latency, of_row))]
    sizes = np.bincount(of_row, minlength=count)
    starts = np.cumsum(sizes) - sizes
    is_empty = sizes == 0
    result = {}
    for name, part in _PERCENTILES.items():
        places = starts + np.ceil(part * sizes).astype(np.int64) - 1
        values = np.zeros(count, np.int64)
        values[~is_empty] = ordered[places[~is_empty]]
        result[name] = pa.array(values, mask=is_empty)
    return result
