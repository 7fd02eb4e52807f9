"""What a table is, as data: its name, its grain, its Arrow schema (the schema of record) and the comment of every column.

It refuses to know where tables lie, who fills them, and Spark: Spark's view of a schema is derived where Spark is at hand.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from wirelake.capture.containers.records import NO_TIME

__all__ = ["CONNECTION", "SESSION", "TIME", "Table", "column", "comment", "room", "times"]

TIME: Final = pa.timestamp("us", "UTC")
"""Every time in the lake: microseconds, UTC."""


def times(micros: np.ndarray[Any, Any]) -> pa.Array:
    """Microseconds since 1970 as a column; `NO_TIME` is null."""
    return pa.array(micros, pa.int64(), mask=micros == NO_TIME).cast(TIME)


_COMMENT: Final = b"comment"
"""The metadata key Spark and Delta readers show as a column's comment."""


class Table(msgspec.Struct, frozen=True):
    """One table of the lake; `build` in the same file, if there is one, fills it from others."""

    name: str
    grain: tuple[str, ...]
    """Columns that together identify one row."""
    schema: pa.Schema
    doc: str
    """One sentence: what a row is."""


def column(name: str, kind: pa.DataType, comment: str) -> pa.Field:
    """One documented column; all are nullable for the readers' sake, the comment says when null is meant."""
    return pa.field(name, kind, metadata={_COMMENT: comment.encode()})


def comment(field: pa.Field) -> str:
    """The comment of a column, or an empty string if it has none."""
    said: bytes = (field.metadata or {}).get(_COMMENT, b"")
    return said.decode()


SESSION: Final = column(
    "session_id", pa.binary(), "16 bytes: the conversation it belongs to: a connection, a node, a link. The key of `sessions`."
)
CONNECTION: Final = column("connection_id", pa.binary(), "16 bytes: the connection it was seen on. The key of `connections`.")

_LEADING: Final = (
    column("message_id", pa.binary(), "16 bytes: the source's id, then the offset of the first byte, big-endian. The key of `messages`."),
    SESSION,
    CONNECTION,
    column("ts", TIME, "When the last byte of the message was seen; null if the source does not say."),
    column("direction", pa.string(), "`to_server` when the client speaks, `to_client` when the server does."),
    column("source", pa.string(), "The file the bytes came from."),
    column("offset", pa.int64(), "Where in the source the bytes of the message begin."),
    column("length", pa.int64(), "Bytes in the source from there to the last of them: other packets may lie between."),
)
"""What every room's table begins with, so that they join to `messages` and lead back to their bytes."""


def room(name: str, own: pa.Schema, doc: str) -> Table:
    """The table of one protocol: the shared leading columns, then the room's own, named as in its specification."""
    return Table(name, ("message_id",), pa.schema([*_LEADING, *own]), doc)
