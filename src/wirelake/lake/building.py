"""Tables from tables, for whoever has their own Spark session: DataFrames in, a DataFrame out.

A gold table is built from silver tables, from steps that several share, and from other gold tables. Whoever gives only the first gets the
others built on the way: `build_table` follows what each builder says it needs.

It refuses to read and to write: `read_table`, `decode_table` and `write_table` do.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from wirelake.errors import LakeError, UsageError
from wirelake.lake import courses, deliveries, delta, facts, pairing
from wirelake.lake.catalog import GOLD, SILVER
from wirelake.lake.catalog import table as table_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["STEPS", "build_table", "inputs_of"]

STEPS: Final[dict[str, ModuleType]] = {"facts": facts, "courses": courses, "paired": pairing, "deliveries": deliveries}
"""What several tables are built from, and no table itself."""

_BUILT: Final = frozenset(table.name for table in GOLD)


def _builder(name: str) -> ModuleType | None:
    """Who builds a gold table or a step; None for what is not built."""
    if name in _BUILT:
        return import_module(f"wirelake.lake.tables.{name}")
    return STEPS.get(name)


def inputs_of(name: str) -> tuple[str, ...]:
    """The silver tables that a gold table is built from in the end, in the order of the catalogue."""
    if name not in _BUILT:
        raise LakeError(f"{table_named(name).name} is not built from other tables; these are: {', '.join(table.name for table in GOLD)}")
    found: set[str] = set()
    todo = [name]
    while todo:
        builder = _builder(todo.pop())
        for needed in builder.INPUTS if builder else ():
            if needed not in found:
                found.add(needed)
                todo.append(needed)
    return tuple(table.name for table in SILVER if table.name in found)


def build_table(spark: SparkSession, name: str, inputs: Mapping[str, DataFrame], **options: Any) -> DataFrame:
    """A gold table, from DataFrames with the schemas of the tables they are named after (docs/tables.md).

    `inputs` has what `inputs_of(name)` says, or any table on the way to it: what is given is not built again. `options` are what the
    builder takes beyond tables: `late_seconds` of exchanges, `keys` of security.
    """
    missing = [needed for needed in inputs_of(name) if needed not in inputs]
    ready = dict(inputs)

    def built(one: str) -> DataFrame:
        builder = _builder(one)
        if one in ready:
            return ready[one]
        if builder is None:
            raise UsageError(f"{name} is built from {', '.join(inputs_of(name))}: give {', '.join(missing)}, too")
        taken = inspect.signature(builder.build).parameters
        more = {option: value for option, value in options.items() if option in taken}
        if "before" in taken:  # what was found out earlier, by keys that are not given any more
            more.setdefault("before", spark.createDataFrame([], delta.spark_schema(table_named(one))))
        ready[one] = builder.build(**{needed: built(needed) for needed in builder.INPUTS}, **more)
        return ready[one]

    given = {parameter for one in (name, *STEPS) if (who := _builder(one)) for parameter in inspect.signature(who.build).parameters}
    if unknown := options.keys() - given:
        raise UsageError(f"{name} knows no option {', '.join(sorted(unknown))}")
    return built(name).to(delta.spark_schema(table_named(name)))
