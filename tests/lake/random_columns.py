"""Random tables with nulls, and rows of Arrow tables and DataFrames in one form, so that they can be compared."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from wirelake.lake.tables.schema import Table

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def table(kind: Table, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows as an Arrow table, in several chunks; columns they lack are null."""
    strange = {name for row in rows for name in row} - set(kind.schema.names)
    assert not strange
    built = pa.Table.from_pylist(list(rows), kind.schema)
    cut = len(rows) // 3
    return pa.concat_tables([built.slice(0, cut), built.slice(cut)])


def one_of(chance: random.Random, values: Sequence[Any], nulls: float = 0.2) -> Any:
    """One of the values, or now and then null."""
    return None if chance.random() < nulls else chance.choice(values)


def rows_of(built: pa.Table) -> list[tuple[Any, ...]]:
    """Rows in an order that does not depend on how they were built; null comes first."""
    return sorted((tuple(row.values()) for row in built.to_pylist()), key=lambda row: [(value is not None, value) for value in row])
