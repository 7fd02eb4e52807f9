"""`metrics` built with Arrow: the rows that Spark builds, on random tables and at the edges."""

import random

import pyarrow as pa
import pytest
from tests.lake.random_columns import NOON, at, one_of, rows_of, table

from wirelake.lake.gold import metrics
from wirelake.lake.gold.arrow_metrics import COUNT, metrics_of, sums_of
from wirelake.lake.sources.tables import spark_schema
from wirelake.lake.tables import exchanges, violations
from wirelake.lake.tables.index import MINUTE_INDEX

PROTOCOLS = ("emp", "relink", "yamp")
SUBJECTS = ("", "sum", "Ümlaut", "zebra", "𝄞", "\uffff")
KINDS = (MINUTE_INDEX, exchanges.TABLE, violations.TABLE)


def random_tables(seed, rows):
    chance = random.Random(seed)
    minutes = [at(60 * number) for number in range(-3, 4)]

    def key():
        return {"protocol": one_of(chance, PROTOCOLS, 0.05), "subject": one_of(chance, SUBJECTS)}

    def some(most):
        return one_of(chance, range(most))

    said = [
        key()
        | {"batch": chance.randrange(3), "minute": one_of(chance, minutes, 0.05)}
        | {name: some(1000) for name in ("messages", "bytes", "errors", "quarantined")}
        for _ in range(rows)
    ]
    asked = [
        key()
        | {"requested": None if chance.random() < 0.1 else at(chance.uniform(-200, 200)), "latency_us": some(chance.choice((3, 10**9)))}
        | {name: one_of(chance, (True, False)) for name in ("late", "cancelled")}
        for _ in range(10 * rows)
    ]
    broken = [
        {"protocol": one_of(chance, PROTOCOLS, 0.05), "ts": None if chance.random() < 0.1 else at(chance.uniform(-300, 300))}
        | {"severity": one_of(chance, ("error", "tolerated", "info"))}
        for _ in range(rows)
    ]
    return [table(kind, values) for kind, values in zip(KINDS, (said, asked, broken), strict=True)]


def by_spark(spark, tables):
    frames = [spark.createDataFrame(values, spark_schema(kind)) for kind, values in zip(KINDS, tables, strict=True)]
    return metrics.build(*frames).toArrow()


@pytest.mark.parametrize(("seed", "rows"), [pytest.param(2, 60, marks=pytest.mark.long), (3, 800)])
def test_random_tables_give_the_rows_that_spark_gives(spark, seed, rows):
    tables = random_tables(seed, rows)
    built = metrics_of(*tables)
    assert built.schema.equals(metrics.TABLE.schema, check_metadata=True)
    assert built.num_rows > min(rows, 200)
    assert rows_of(built) == rows_of(by_spark(spark, tables))


def test_percentiles_are_the_nearest_rank_for_every_number_of_answers(spark):
    asked = [
        {"protocol": "emp", "subject": str(count), "requested": NOON, "latency_us": 3 * number - 5}
        for count in range(1, 205)
        for number in random.Random(count).sample(range(count), count)
    ]
    tables = [table(MINUTE_INDEX, []), table(exchanges.TABLE, asked), table(violations.TABLE, [])]
    assert rows_of(metrics_of(*tables)) == rows_of(by_spark(spark, tables))


@pytest.mark.parametrize("place", range(3))
def test_each_input_may_be_the_only_one(spark, place):
    tables = [values if number == place else values.slice(0, 0) for number, values in enumerate(random_tables(4, 30))]
    assert rows_of(metrics_of(*tables)) == rows_of(by_spark(spark, tables))


def test_nothing_gives_no_rows():
    built = metrics_of(*(kind.schema.empty_table() for kind in KINDS))
    assert built.num_rows == 0
    assert built.schema.equals(metrics.TABLE.schema, check_metadata=True)


def test_minutes_begin_where_they_do_before_1970_too():
    asked = table(exchanges.TABLE, [{"requested": NOON.replace(year=1969, second=seconds)} for seconds in (0, 1, 59)])
    built = metrics_of(table(MINUTE_INDEX, []), asked, table(violations.TABLE, []))
    assert built.select(["minute", "requests"]).to_pylist() == [{"minute": NOON.replace(year=1969), "requests": 3}]


def test_rows_are_ordered_by_minute_protocol_and_subject():
    built = metrics_of(*random_tables(5, 100))
    keys = [tuple(row.values()) for row in built.select(["minute", "protocol", "subject"]).to_pylist()]
    by_bytes = [[(value is not None, value.encode() if isinstance(value, str) else value) for value in row] for row in keys]
    assert by_bytes == sorted(by_bytes)


def test_sums_are_exact_beyond_what_a_float_holds():
    large = 2**53 + 1
    index = table(MINUTE_INDEX, [{"minute": NOON, "protocol": "emp", "bytes": large}, {"minute": NOON, "protocol": "emp", "bytes": 2}])
    asked = table(exchanges.TABLE, [{"requested": NOON, "protocol": "emp", "latency_us": large}])
    row = metrics_of(index, asked, table(violations.TABLE, [])).to_pylist()[0]
    assert (row["bytes"], row["latency_p50_us"]) == (large + 2, large)


@pytest.mark.parametrize(("seed", "rows"), [(1, 5), (2, 60), (3, 800)])
def test_sums_give_the_rows_that_all_rows_give(seed, rows):
    index, *told = random_tables(seed, rows)
    parts = []
    for one, (kind, column) in zip(told, metrics.TOLD, strict=True):
        columns = [name for name in metrics.COLUMNS if name in kind.schema.names]
        half = one.num_rows // 3
        some = [sums_of(part.select(columns), column) for part in (one.slice(0, half), one.slice(half))]
        parts.append(sums_of(pa.concat_tables(some), column))
        counted = one.num_rows - one[column].null_count
        assert sum(parts[-1][COUNT].to_pylist()) == counted
        assert parts[-1].num_rows < counted or rows < 10
    assert rows_of(metrics_of(index, *parts)) == rows_of(metrics_of(index, *told))
