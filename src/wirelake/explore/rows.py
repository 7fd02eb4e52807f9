"""Convert query results to structs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    import duckdb

__all__ = ["rows_of"]

T = TypeVar("T")


def rows_of(connection: duckdb.DuckDBPyConnection, sql: str, kind: type[T], parameters: Sequence[Any] = ()) -> list[T]:
    """Run a query; return one struct per row, whose fields have the names of the columns."""
    answer = connection.execute(sql, parameters)
    names = [column[0] for column in answer.description or ()]
    return [msgspec.convert(dict(zip(names, row, strict=True)), kind) for row in answer.fetchall()]
