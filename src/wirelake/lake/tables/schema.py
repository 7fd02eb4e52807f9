"""A table as data: name, grain, Arrow schema (of record), and a comment for every column.

Spark's schema is derived from it in `lake/sources/tables.py`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from wirelake.capture.containers.records import NO_TIME

__all__ = ["CONNECTION", "OBSERVER", "SESSION", "TIME", "Table", "column", "comment", "protocol_table", "times"]

TIME: Final = pa.timestamp("us", "UTC")
"""Every time in the lake: microseconds, UTC."""


def times(micros: np.ndarray[Any, Any]) -> pa.Array:
    """Convert microseconds since 1970 to a column; `NO_TIME` becomes null."""
    return pa.array(micros, pa.int64(), mask=micros == NO_TIME).cast(TIME)


_COMMENT: Final = b"comment"
"""The metadata key Spark and Delta readers show as a column's comment."""


class Table(msgspec.Struct, frozen=True):
    """One table of a lake."""

    name: str
    grain: tuple[str, ...]
    """Columns that together identify one row."""
    schema: pa.Schema
    doc: str
    """One sentence: what a row is."""


def column(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    """Return a column with its comment. All columns are nullable; the comment says what null means."""
    return pa.field(name, kind, metadata={_COMMENT: comment.encode()})


def comment(field: pa.Field) -> str:
    """Return the comment of a column, or an empty string."""
    text: bytes = (field.metadata or {}).get(_COMMENT, b"")
    return text.decode()


SESSION: Final = column("session_id", pa.binary(), "16 bytes: the session: a connection, a node or a link. The key of `sessions`.")
CONNECTION: Final = column("connection_id", pa.binary(), "16 bytes: the connection. The key of `connections`.")
OBSERVER: Final = column(
    "observer",
    pa.string(),
    "Who saw it: the name of a recorder or of `--observer`, `client` or `server` of a recording without a name, or `capture-` and the id "
    "of the capture file. Null in rows of an older lake.",
)

_LEADING: Final = (
    column("message_id", pa.binary(), "16 bytes: the source's id, then the offset of the first byte, big-endian. The key of `messages`."),
    SESSION,
    CONNECTION,
    column("ts", TIME, "Time of the last byte of the message; null if the source has no times."),
    column("direction", pa.string(), "`to_server` if the client sent it, `to_client` if the server did."),
    column("source", pa.string(), "The file the bytes came from."),
    column("offset", pa.int64(), "Offset of the first byte of the message in the source."),
    column("length", pa.int64(), "Bytes in the source from the first to the last byte of the message; other packets may lie between."),
    OBSERVER,
)
"""The first columns of every protocol's table: they join it to `messages`, and lead back to the bytes."""


def protocol_table(name: str, own: pa.Schema, doc: str) -> Table:
    """Return the table of one protocol: shared columns first, then its own, named as in its specification."""
    return Table(name, ("message_id",), pa.schema([*_LEADING, *own]), doc)
