"""Build `metrics` with Arrow, in one process: while tables are small, planning a Spark job takes longer than the sums.

The rows are those of `gold/metrics.py`, which builds the table with Spark, beyond a few million rows. Imports no Spark.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.lake.gold.grouping import Groups, Integers, group, micros, numbers, ranks
from wirelake.lake.tables.metrics import KEYS, TABLE
from wirelake.lake.tables.schema import TIME
from wirelake.protocols.faults import VIOLATIONS

__all__ = ["COUNT", "metrics_of", "sums_of"]

COUNT: Final = "count"
"""Column of sums: how many exchanges, or violations, a row stands for."""

_MINUTE_US: Final = 60_000_000
_SUMS: Final = ("messages", "bytes", "errors", "quarantined")
"""Columns of the minute index that are added up."""
_PERCENTILES: Final = {"latency_p50_us": 0.5, "latency_p95_us": 0.95, "latency_p99_us": 0.99}


def sums_of(rows: pa.Table, time: str) -> pa.Table:
    """Add up rows of `exchanges` or `violations` that are equal in all that metrics need; `time` names the column with the time.

    There it has the minute. Sums of sums are sums: they have a column `count`, and add up what it has.
    """
    rows = rows.filter(pc.is_valid(rows[time]))
    rows = rows.set_column(rows.schema.get_field_index(time), time, _minutes(rows[time]))
    keys = [name for name in rows.column_names if name != COUNT]
    plain = pa.table({name: rows[name].cast(_plain(rows[name].type)) for name in rows.column_names})
    if COUNT not in plain.column_names:
        plain = plain.append_column(COUNT, pa.array(np.ones(plain.num_rows, np.int64)))
    return plain.group_by(keys, use_threads=False).aggregate([(COUNT, "sum")]).rename_columns({f"{COUNT}_sum": COUNT})


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def metrics_of(minute_index: pa.Table, exchanges: pa.Table, violations: pa.Table, uncounted: pa.Table | None = None) -> pa.Table:
    """Add up the minute index, exchanges and violations of these minutes; rows are ordered by their keys.

    `uncounted` has rows as the minute index, which are subtracted. Where nothing is left, there is no row.

    Exchanges and violations may be sums (`sums_of`). Percentiles are exact, by nearest rank. Null is a subject like any other.
    """
    minute_index = pa.table({name: minute_index[name] for name in (*KEYS, *_SUMS)})
    if uncounted is not None and uncounted.num_rows:
        less = {name: pc.negate(uncounted[name]) for name in _SUMS}
        minute_index = pa.concat_tables([minute_index, pa.table({name: uncounted[name] for name in KEYS} | less).cast(minute_index.schema)])
    exchanges, violations = _counted(exchanges), _counted(violations)
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
    count = _counts(exchanges)
    columns: dict[str, object] = {name: keys[name].take(groups.first) for name in KEYS}
    columns |= {name: summed.totals(numbers(minute_index[name])) for name in _SUMS}
    columns["rate"] = summed.totals(numbers(minute_index["messages"])) / 60.0
    columns["violations"] = broken.totals(_counts(violations))
    columns["requests"] = asked.totals(count)
    columns |= {name: asked.totals(count * (numbers(exchanges[name]) == 1)) for name in ("late", "cancelled")}
    is_answered = pc.is_valid(exchanges["latency_us"]).to_numpy()
    columns["answered"] = asked.totals(count * is_answered)
    latency = numbers(exchanges["latency_us"])
    columns |= _percentiles(asked.of_row[is_answered], latency[is_answered], count[is_answered], len(groups.first))
    rows = pa.table({name: columns[name] for name in TABLE.schema.names}, TABLE.schema)
    if uncounted is None or not uncounted.num_rows:
        return rows
    is_left = [pc.not_equal(rows[name], 0) for name in (*_SUMS, "violations", "requests")]
    return rows.filter(reduce(pc.or_, is_left))


def _counted(rows: pa.Table) -> pa.Table:
    """Rows of primary views. Callers may have left out others, and the column."""
    return rows.filter(pc.fill_null(rows["is_primary"], True)) if "is_primary" in rows.column_names else rows


def _counts(rows: pa.Table) -> Integers:
    """How many each row stands for."""
    return numbers(rows[COUNT]) if COUNT in rows.column_names else np.ones(rows.num_rows, np.int64)


def _is_counted(severity: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether a finding is a violation: the specification forbids it. A rule that is not known counts."""
    return pc.or_(pc.is_null(severity), pc.is_in(severity.cast(pa.string()), value_set=pa.array(VIOLATIONS)))


def _minutes(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """The beginning of each minute; none of the times is null."""
    at = micros(times)
    return pa.chunked_array([pa.array(at - at % _MINUTE_US)]).cast(TIME)


def _keys(minute: pa.ChunkedArray, protocol: pa.ChunkedArray, subject: pa.ChunkedArray) -> pa.Table:
    return pa.table({"minute": minute.cast(TIME), "protocol": protocol.cast(pa.string()), "subject": subject.cast(pa.string())})


def _percentiles(of_row: Integers, latency: Integers, count: Integers, groups: int) -> dict[str, pa.Array]:
    """The percentiles of each group: the smallest latency that so large a part of them does not exceed."""
    order = np.lexsort((latency, of_row))
    ordered = latency[order]
    until = np.cumsum(count[order])  # answers up to each row, in order of groups
    sizes = np.zeros(groups, np.int64)
    np.add.at(sizes, of_row, count)
    before = np.cumsum(sizes) - sizes
    is_empty = sizes == 0
    result = {}
    for name, part in _PERCENTILES.items():
        wanted = before + np.ceil(part * sizes).astype(np.int64)
        values = np.zeros(groups, np.int64)
        values[~is_empty] = ordered[np.searchsorted(until, wanted[~is_empty])]
        result[name] = pa.array(values, mask=is_empty)
    return result
