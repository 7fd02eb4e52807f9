"""Rows of silver tables as the values that analyzers take.

Columns become lists of Python values, and lists become structs in one C loop: a message costs about half a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from wirelake import protocols
from wirelake.lake.tables import connections, messages, quarantine
from wirelake.protocols.analyzer import NO_TIME, ConnectionEvent, SeenMessage, SessionAnalyzer, Unreadable
from wirelake.protocols.any_analyzer import AnyAnalyzer
from wirelake.protocols.protocol import SessionKind
from wirelake.protocols.state_table import state_table

__all__ = [
    "DICTIONARIES",
    "analyzer_of",
    "columns_of",
    "connection_events",
    "one_chunk",
    "seen_messages",
    "table_of",
    "to_server",
    "unreadable_ranges",
]

DICTIONARIES: Final = (
    *("session_id", "connection_id", "direction", "source", "type_name", "name", "kind", "fault", "protocol"),
    *("type", "root", "component", "method", "encryption", "uri", "serializer"),
)
"""Columns with few distinct values: read as dictionaries, they cost almost nothing."""

_TO_SERVER: Final = "to_server"


@cache
def analyzer_of(protocol: str) -> type[SessionAnalyzer]:
    """The analyzer of a protocol."""
    descriptor = protocols.get(protocol)
    if descriptor.analyzer is not None:
        return descriptor.analyzer()

    class Analyzer(AnyAnalyzer):
        HAS_HANDSHAKE = descriptor.has_handshake
        IS_NODE = descriptor.session_kind is SessionKind.NODE
        STATES = state_table(descriptor.state_machine)

    return Analyzer


def table_of(protocol: str) -> str:
    """The table that has what the protocol's analyzer takes."""
    return protocol if protocols.get(protocol).analyzer is not None else messages.TABLE.name


def columns_of(message: type[SeenMessage]) -> list[str]:
    """The columns of the table that a message is made of, in the order of its fields."""
    return ["direction" if name == _TO_SERVER else name for name in message.__struct_fields__]


def seen_messages(rows: pa.Table | pa.RecordBatch, message: type[SeenMessage]) -> Iterator[SeenMessage]:
    """The messages of these rows."""
    return map(
        message, *(_directions(rows["direction"]) if name == _TO_SERVER else values(rows[name]) for name in message.__struct_fields__)
    )


def connection_events(rows: pa.Table) -> Iterator[ConnectionEvent]:
    """Rows of `connections`."""
    return map(ConnectionEvent, *(values(rows[name]) for name in ConnectionEvent.__struct_fields__))


def unreadable_ranges(rows: pa.Table) -> Iterator[Unreadable]:
    """Rows of `quarantine`."""
    fields = Unreadable.__struct_fields__
    return map(Unreadable, *(_directions(rows["direction"]) if name == _TO_SERVER else values(rows[name]) for name in fields))


EVENT_COLUMNS: Final = [*ConnectionEvent.__struct_fields__]
"""Columns of `connections` that events are made of."""
UNREADABLE_COLUMNS: Final = columns_of(Unreadable)  # type: ignore[arg-type]
"""Columns of `quarantine` that unreadable ranges are made of."""

assert set(EVENT_COLUMNS) <= set(connections.TABLE.schema.names)  # noqa: S101
assert set(UNREADABLE_COLUMNS) <= set(quarantine.TABLE.schema.names)  # noqa: S101


def _directions(column: pa.ChunkedArray | pa.Array) -> list[bool | None]:
    return values(to_server(one_chunk(column)))


def to_server(directions: pa.Array) -> pa.Array:
    """Whether messages of these directions go to the server."""
    return pc.equal(directions, _TO_SERVER)


def one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.unify_dictionaries().combine_chunks() if pa.types.is_dictionary(column.type) else column.combine_chunks()


def values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values of a column; null is None, and of a time `NO_TIME`."""
    array = one_chunk(column)
    kind = array.type
    found: list[Any]
    if array.null_count == len(array):
        found = [NO_TIME if pa.types.is_timestamp(kind) else None] * len(array)
    elif pa.types.is_dictionary(kind):
        words = [*array.dictionary.to_pylist(), None]
        indices = array.indices.fill_null(len(words) - 1) if array.null_count else array.indices
        found = [words[index] for index in indices.to_numpy(zero_copy_only=False).tolist()]
    elif pa.types.is_timestamp(kind):
        found = array.cast(pa.int64()).fill_null(NO_TIME).to_numpy(zero_copy_only=False).tolist()
    elif pa.types.is_nested(kind):
        found = array.to_pylist()
    elif pa.types.is_integer(kind) and array.null_count:
        there = array.is_valid().to_numpy(zero_copy_only=False).tolist()
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False).tolist()
        found = [number if is_there else None for number, is_there in zip(numbers, there, strict=True)]
    else:
        array = array.cast(pa.string()) if pa.types.is_decimal(kind) else array
        found = array.to_numpy(zero_copy_only=False).tolist()
    return found
