"""Captures to tables: the public API.

A name is imported when it is first used; `import wirelake.lake` imports no Spark.

| name | meaning |
|---|---|
| `spark_session` | start a Spark session with wirelake's settings (docs/spark.md); one of your own works as well |
| `register` | add the formats `wirelake`, `wirelake.packets`, `wirelake.captured` to a session |
| `read_messages`, `read_packets` | captures as DataFrames, without a lake |
| `decode_table` | a silver table straight from captures, without a lake |
| `build_table`, `inputs_of` | a gold table from DataFrames, and the names of its inputs |
| `ingest`, `DecodeOptions` | add captures to a lake; idempotent |
| `follow`, `FollowOptions` | add captures of a folder to a lake as they grow, as a stream |
| `forget` | remove sources from a lake |
| `open_lake` | tables of a lake as of its last commit, by name: `.tables`, `.dataset(name)`, `.frame(spark, name)` |
| `read_table`, `table_names` | one table of a lake, and the names of all |
| `write_table` | write a DataFrame as a table of a folder of your own |
| `query` | answer SQL over a lake with DuckDB, without Spark |
| `report` | write the HTML report of a lake |
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from wirelake.extras import missing

if TYPE_CHECKING:
    from wirelake.explore.query import query
    from wirelake.explore.report import write_report as report
    from wirelake.lake.api import open_lake, table_names
    from wirelake.lake.dataframes import decode_table, read_messages, read_packets, read_table, register, write_table
    from wirelake.lake.decode.options import DecodeOptions
    from wirelake.lake.gold.build import build_table, inputs_of
    from wirelake.lake.jobs.follow import FollowOptions, follow
    from wirelake.lake.jobs.forget import forget
    from wirelake.lake.jobs.ingest import ingest
    from wirelake.lake.session.start import spark_session

__all__ = [
    "DecodeOptions",
    "FollowOptions",
    "build_table",
    "decode_table",
    "follow",
    "forget",
    "ingest",
    "inputs_of",
    "open_lake",
    "query",
    "read_messages",
    "read_packets",
    "read_table",
    "register",
    "report",
    "spark_session",
    "table_names",
    "write_table",
]

_MODULES: Final = {
    "DecodeOptions": "wirelake.lake.decode.options",
    "FollowOptions": "wirelake.lake.jobs.follow",
    "build_table": "wirelake.lake.gold.build",
    "decode_table": "wirelake.lake.dataframes",
    "follow": "wirelake.lake.jobs.follow",
    "forget": "wirelake.lake.jobs.forget",
    "ingest": "wirelake.lake.jobs.ingest",
    "inputs_of": "wirelake.lake.gold.build",
    "open_lake": "wirelake.lake.api",
    "query": "wirelake.explore.query",
    "read_messages": "wirelake.lake.dataframes",
    "read_packets": "wirelake.lake.dataframes",
    "read_table": "wirelake.lake.dataframes",
    "register": "wirelake.lake.dataframes",
    "report": "wirelake.explore.report",
    "spark_session": "wirelake.lake.session.start",
    "table_names": "wirelake.lake.api",
    "write_table": "wirelake.lake.dataframes",
}
"""Name -> its module.

`explore` is above `lake` in the import contract; only these lazy names point upwards.
"""

_RENAMED: Final = {"report": "write_report"}
"""Public name -> its name in its module, where they differ."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(_MODULES[name])
    except ModuleNotFoundError as error:
        raise missing(error.name or "") or error from error
    return getattr(module, _RENAMED.get(name, name))


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
