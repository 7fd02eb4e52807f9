"""Rows of an answer as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    import duckdb

__all__ = ["rows_of"]

T = TypeVar("T")


def rows_of(connection: duckdb.DuckDBPyConnection, sql: str, kind: type[T], given: Sequence[Any] = ()) -> list[T]:
    """One value for each row; the columns are called as the fields are."""
    answer = connection.execute(sql, given)
    names = [column[0] for column in answer.description or ()]
    return [msgspec.convert(dict(zip(names, row, strict=True)), kind) for row in answer.fetchall()]
