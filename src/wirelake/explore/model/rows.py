"""Rows: what questions share to read them from DuckDB and to hand them to people and programs."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from wirelake.errors import InputMissing
from wirelake.text import visible

if TYPE_CHECKING:
    import duckdb

__all__ = ["EXCERPT_BYTES", "Missing", "column_names", "excerpt", "identifier", "plain", "read", "read_one"]

EXCERPT_BYTES: Final = 160
"""Bytes of a body that a line shows."""

S = TypeVar("S", bound=msgspec.Struct)


class Missing(InputMissing):
    """The lake has no such message, session or file."""


def read(connection: duckdb.DuckDBPyConnection, kind: type[S], sql: str, values: tuple[object, ...] | list[object] = ()) -> list[S]:
    """Run a query whose columns are the fields of a struct, in order."""
    return [kind(*row) for row in connection.execute(sql, list(values)).fetchall()]


def read_one(connection: duckdb.DuckDBPyConnection, kind: type[S], sql: str, values: tuple[object, ...] | list[object] = ()) -> S | None:
    """The same for at most one row."""
    row = connection.execute(sql, list(values)).fetchone()
    return None if row is None else kind(*row)


def column_names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the names of the columns of the last query."""
    return [column[0] for column in connection.description or ()]


def identifier(text: str, what: str) -> bytes:
    """Read an id in hex digits. Raises Missing for anything else: no row has such an id."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise Missing(f"{what} {visible(text[:80])!r}: an id is hex digits") from None


def excerpt(body: bytes | None, *, most: int = EXCERPT_BYTES) -> str | None:
    """Show the beginning of a body: as text if it is text, else in hex digits."""
    if body is None:
        return None
    part = body[:most]
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        if error.start < len(part) - 3:  # not just a character that the cut divided
            return part[: most // 4].hex(" ")
        text = part[: error.start].decode()
    return visible(text)


def plain(value: Any) -> Any:
    """Convert a value to what JSON has: bytes to hex digits, times to ISO 8601 in UTC, decimals to numbers."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
