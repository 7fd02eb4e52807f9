"""Build gold tables in a Spark session of your own: DataFrames in, a DataFrame out.

A gold table is built from silver tables, from steps that several tables share, and from other gold tables. `build_table` builds what is
missing on the way, by the `INPUTS` of each builder. It neither reads nor writes tables.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from wirelake.errors import LakeError, UsageError
from wirelake.lake.gold import fold_frames, topology, traffic
from wirelake.lake.gold.fold.work import FOLDED
from wirelake.lake.gold.incremental import connection_index, minute_index
from wirelake.lake.gold.view_frames import counted_messages, views_of
from wirelake.lake.sources.tables import spark_schema
from wirelake.lake.tables.catalog import GOLD, SILVER
from wirelake.lake.tables.catalog import table as table_named

__all__ = ["build_table", "inputs_of"]

_BUILT: Final = frozenset(table.name for table in GOLD)


def _sums(build: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """Sums over batches, of rows that all come at once."""

    def built(**inputs: DataFrame) -> DataFrame:
        return build(**{name: rows.withColumn("batch", sql.lit(1).cast("long")) for name, rows in inputs.items()})

    return built


def _counted_minutes(connection_index: DataFrame, traffic: DataFrame, quarantine: DataFrame) -> DataFrame:
    """The minute index, without messages of views that are not primary, and without unconfirmed ones."""
    known = views_of(connection_index)
    return _sums(minute_index.build)(messages=counted_messages(traffic, known), quarantine=counted_messages(quarantine, known))


def _pairs(traffic: DataFrame, **inputs: DataFrame) -> DataFrame:
    """What topology adds up, without unconfirmed messages."""
    index = inputs.pop("connection_index")
    return topology.pairs(index, _sums(connection_index.build)(messages=traffic, **inputs))


_STEPS: Final[dict[str, tuple[tuple[str, ...], Callable[..., DataFrame]]]] = {
    "connection_index": (connection_index.INPUTS, _sums(connection_index.build)),
    "traffic": (traffic.INPUTS, traffic.traffic),
    "minute_index": (("traffic", "quarantine", "connection_index"), _counted_minutes),
    "pairs": (("connection_index", "traffic", "connections", "quarantine"), _pairs),
    **{table.name: (fold_frames.INPUTS, partial(fold_frames.fold_frames, table.name)) for table in FOLDED},
}
"""What is built otherwise than by the module of its name: from what, and how."""


def _builder(name: str) -> tuple[tuple[str, ...], Callable[..., DataFrame]] | None:
    """What a gold table or a step is built from, and how; None for what is not built."""
    if name in _BUILT and name not in _STEPS:
        module = import_module(f"wirelake.lake.gold.{name}")
        return module.INPUTS, module.build
    return _STEPS.get(name)


def inputs_of(name: str) -> tuple[str, ...]:
    """The silver tables that a gold table is built from in the end, in the order of the catalogue."""
    if name not in _BUILT:
        raise LakeError(f"{table_named(name).name} is not built from other tables; these are: {', '.join(table.name for table in GOLD)}")
    found: set[str] = set()
    todo = [name]
    while todo:
        builder = _builder(todo.pop())
        for needed in builder[0] if builder else ():
            if needed not in found:
                found.add(needed)
                todo.append(needed)
    return tuple(table.name for table in SILVER if table.name in found)


def build_table(spark: SparkSession, name: str, inputs: Mapping[str, DataFrame], **options: Any) -> DataFrame:
    """A gold table, from DataFrames with the schemas of the tables they are named after (docs/tables.md).

    `inputs` has what `inputs_of(name)` says, or any gold table on the way to it: what is given is not built again. `options` are what the
    builder takes beyond tables: `late_seconds` of exchanges, `keys` of security.
    """
    missing = [needed for needed in inputs_of(name) if needed not in inputs]
    ready = dict(inputs)
    used: set[str] = set()

    def built(one: str) -> DataFrame:
        if one in ready:
            return ready[one]
        builder = _builder(one)
        if builder is None:
            raise UsageError(f"{name} is built from {', '.join(inputs_of(name))}: give {', '.join(missing)}, too")
        needed, build = builder
        taken = inspect.signature(build).parameters
        more = {option: value for option, value in options.items() if option in taken}
        used.update(more)
        if "before" in taken:  # what was found out earlier, by keys that are not given any more
            more.setdefault("before", spark.createDataFrame([], spark_schema(table_named(one))))
        frames = {each: built(each) for each in needed}
        ready[one] = build(**frames, **more)
        return ready[one]

    table = built(name)
    if unknown := options.keys() - used:
        raise UsageError(f"{name} knows no option {', '.join(sorted(unknown))}")
    return table.to(spark_schema(table_named(name)))
