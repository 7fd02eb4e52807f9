"""Selection: read the messages that a filter lets through in order of time, with bounded memory.

The time range is cut into slices of at most `SLICE_ROWS` messages and `SLICE_BYTES` bytes, by counting. DuckDB then sorts one slice at a
time, and skips row groups of other times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from wirelake import protocols
from wirelake.explore.model.conditions import Condition, all_of

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = ["SLICE_BYTES", "SLICE_ROWS", "Slice", "own_columns", "protocols_in", "slices", "tables"]

SLICE_ROWS: Final = 20_000
"""Messages of one slice at most."""
SLICE_BYTES: Final = 32 << 20
"""Bytes of the messages of one slice, unless a single one is larger, or many have the same time."""
BARS: Final = 4096
"""Parts of a time range whose messages are counted at once."""

_LEADING: Final = frozenset(("message_id", "session_id", "connection_id", "ts", "direction", "source", "offset", "length"))
"""Columns of a protocol's own table that `messages` has, too."""


class Slice(NamedTuple):
    """A time range, both ends included, in microseconds since 1970. None: the messages without a time."""

    begin: int | None
    end: int | None

    def condition(self) -> Condition:
        """Messages of the slice."""
        if self.begin is None:
            return Condition("m.ts IS NULL")
        return Condition("m.ts BETWEEN make_timestamptz(?) AND make_timestamptz(?)", (self.begin, self.end))


def slices(
    connection: duckdb.DuckDBPyConnection, where: Condition, *, rows: int = SLICE_ROWS, octets: int = SLICE_BYTES
) -> Iterator[Slice]:
    """Cut the messages of a condition into slices, in order; those without a time are the last."""
    row = connection.execute(
        f"SELECT epoch_us(min(m.ts)), epoch_us(max(m.ts)), count(*) - count(m.ts) FROM messages m WHERE {where.sql}", list(where.values)
    ).fetchone()
    begin, end, untimed = row or (None, None, 0)
    if begin is not None:
        yield from _cut(connection, where, int(begin), int(end), rows, octets)
    if untimed:
        yield Slice(None, None)


def _cut(connection: duckdb.DuckDBPyConnection, where: Condition, begin: int, end: int, rows: int, octets: int) -> Iterator[Slice]:
    """Count the bars of a range. Bars next to each other become a slice; one that is too large is cut again."""
    width = max(1, -(-(end - begin + 1) // BARS))
    inside = all_of([where, Slice(begin, end).condition()])
    sql = f"SELECT (epoch_us(m.ts) - ?) // ? AS bar, count(*), sum(m.size) FROM messages m WHERE {inside.sql} GROUP BY bar ORDER BY bar"
    first, messages, size = None, 0, 0
    last = begin
    for bar, count, total in connection.execute(sql, [begin, width, *inside.values]).fetchall():
        start = begin + int(bar) * width
        stop = min(start + width - 1, end)
        is_large = count > rows or int(total or 0) > octets
        if first is not None and (is_large or messages + count > rows or size + int(total or 0) > octets):
            yield Slice(first, last)
            first, messages, size = None, 0, 0
        if is_large and width > 1:
            yield from _cut(connection, where, start, stop, rows, octets)
            continue
        first = start if first is None else first
        messages, size, last = messages + count, size + int(total or 0), stop
    if first is not None:
        yield Slice(first, last)


def protocols_in(connection: duckdb.DuckDBPyConnection, where: Condition) -> list[str]:
    """Return the protocols of the messages of a condition, in the order of the package."""
    found = connection.execute(f"SELECT DISTINCT m.protocol FROM messages m WHERE {where.sql}", list(where.values)).fetchall()
    names = {name for (name,) in found}
    return [name for name in protocols.names() if name in names]


def own_columns(protocol: str) -> list[str]:
    """Return the columns of a protocol's own table that `messages` does not have."""
    from wirelake.lake.tables.catalog import TABLES  # noqa: PLC0415 - brings all schemas

    return [name for name in TABLES[protocol].schema.names if name not in _LEADING]


_TABLE: Final = """
WITH page AS MATERIALIZED (
    SELECT m.* FROM messages m WHERE {where} ORDER BY m.ts NULLS LAST, m.message_id LIMIT {limit:d}
), broken AS (
    SELECT message_id, list(rule ORDER BY rule) AS rules, list(clause ORDER BY rule) AS clauses
    FROM violations WHERE message_id IN (SELECT message_id FROM page) GROUP BY message_id
), answers AS (
    SELECT response_message_id AS message_id, min(latency_us) AS latency_us
    FROM exchanges WHERE response_message_id IN (SELECT message_id FROM page) GROUP BY ALL
){own}
SELECT
    page.*,
    CASE WHEN page.direction = 'to_server' THEN ends.client ELSE ends.server END AS "from",
    CASE WHEN page.direction = 'to_server' THEN ends.server ELSE ends.client END AS "to",
    ends.transport, broken.rules, broken.clauses, answers.latency_us{fields}
FROM page
LEFT JOIN ends USING (connection_id)
LEFT JOIN broken USING (message_id)
LEFT JOIN answers USING (message_id){joins}
ORDER BY page.ts NULLS LAST, page.message_id
"""


def tables(connection: duckdb.DuckDBPyConnection, where: Condition, spoken: list[str], *, rows: int = SLICE_ROWS) -> Iterator[pa.Table]:
    """Read the messages of a condition, some at a time: all columns of `messages`, both sides, rules, and a struct for each protocol."""
    for part in slices(connection, where, rows=rows):
        behind: Condition | None = None
        while True:
            chosen = all_of([where, part.condition(), *([] if behind is None else [behind])])
            pruned = part.condition()
            own = "".join(
                f', own_{name} AS (SELECT * FROM "{name}" m WHERE {pruned.sql} AND message_id IN (SELECT message_id FROM page))'
                for name in spoken
            )
            fields = "".join(f", CASE WHEN own_{name}.message_id IS NULL THEN NULL ELSE {_struct(name)} END AS {name}" for name in spoken)
            joins = "".join(f"\nLEFT JOIN own_{name} ON own_{name}.message_id = page.message_id" for name in spoken)
            sql = _TABLE.format(where=chosen.sql, limit=rows, own=own, fields=fields, joins=joins)
            found = connection.sql(sql, params=[*chosen.values, *(pruned.values * len(spoken))]).to_arrow_table()
            if found.num_rows:
                yield found
            if found.num_rows < rows:
                break
            last = found.slice(found.num_rows - 1).select(["ts", "message_id"]).to_pylist()[0]
            behind = Condition("(m.ts, m.message_id) > (?, ?)", (last["ts"], last["message_id"]))
            if last["ts"] is None:
                behind = Condition("m.message_id > ?", (last["message_id"],))


def _struct(protocol: str) -> str:
    columns = ", ".join(f'"{name}" := own_{protocol}."{name}"' for name in own_columns(protocol))
    return f"struct_pack({columns})"
