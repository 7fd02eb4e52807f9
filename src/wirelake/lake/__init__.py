"""Captures to tables. What is named here is the public way in; a name is imported when it is first used, and nothing starts Spark early.

| name | what |
|---|---|
| `session` | a Spark session with wirelake's settings (docs/spark.md); one of your own is as good |
| `register` | lets a session read captures: `spark.read.format("wirelake")` |
| `read_messages`, `read_packets` | captures as DataFrames, without a lake |
| `decode_table` | a silver table straight from captures, without a lake |
| `build_table`, `inputs_of` | a gold table from DataFrames, and which it needs |
| `ingest_captures` | captures into a lake, once |
| `forget_sources` | sources out of a lake |
| `open_lake`, `read_table`, `table_names` | tables of a lake, as of its last whole batch |
| `write_table` | a DataFrame as a table of a folder of yours |
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from wirelake.lake.api import (
        decode_table,
        open_lake,
        read_messages,
        read_packets,
        read_table,
        register,
        table_names,
        write_table,
    )
    from wirelake.lake.gold.build import build_table, inputs_of
    from wirelake.lake.jobs.forget import forget as forget_sources
    from wirelake.lake.jobs.ingest import ingest as ingest_captures
    from wirelake.lake.session.start import session

__all__ = [
    "build_table",
    "decode_table",
    "forget_sources",
    "ingest_captures",
    "inputs_of",
    "open_lake",
    "read_messages",
    "read_packets",
    "read_table",
    "register",
    "session",
    "table_names",
    "write_table",
]

_ELSEWHERE: Final = {
    "build_table": ("gold.build", "build_table"),
    "forget_sources": ("jobs.forget", "forget"),
    "ingest_captures": ("jobs.ingest", "ingest"),
    "inputs_of": ("gold.build", "inputs_of"),
    "session": ("session.start", "session"),
}
"""Name -> where it is, if that is not `api`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, known_as = _ELSEWHERE.get(name, ("api", name))
    return getattr(import_module(f"{__name__}.{module}"), known_as)
