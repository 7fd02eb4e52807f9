"""What holds for every table of the lake."""

import duckdb
import pyarrow as pa
import pytest

from wirelake.errors import LakeError
from wirelake.lake.sources.tables import frame, spark_schema
from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import GOLD, SILVER, TABLES, table
from wirelake.lake.tables.schema import comment

every_table = pytest.mark.parametrize("each", TABLES.values(), ids=TABLES)


def documented(field):
    kind = field.type.value_type if pa.types.is_list(field.type) else field.type
    inner = [kind.field(i) for i in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    return bool(comment(field).strip()) and all(documented(one) for one in inner)


@every_table
def test_every_table_and_column_is_documented(each):
    assert each.doc.endswith(".")
    assert [field.name for field in each.schema if not documented(field)] == []


@every_table
def test_the_grain_is_made_of_columns(each):
    assert set(each.grain) <= set(each.schema.names)


@every_table
def test_the_grain_is_unique(each, lake):
    contents = delta.dataset(lake, each).to_table(columns=list(each.grain))
    keys = list(zip(*(contents[name].to_pylist() for name in each.grain), strict=True))
    assert keys, f"{each.name} is empty: the test proves nothing"
    assert len(keys) == len(set(keys))


@every_table
def test_spark_reads_back_the_schema_of_record(each, lake, spark):
    def kinds(schema):
        return {field.name: field.dataType.simpleString() for field in schema.fields}

    wanted = spark_schema(each)
    in_files = spark.read.parquet(*(str(path) for path in delta.files(lake, each))).schema
    assert kinds(in_files) == kinds(wanted)
    assert {field.name: field.metadata.get("comment") for field in wanted.fields} == {field.name: comment(field) for field in each.schema}


@every_table
def test_arrow_duckdb_and_the_log_read_the_same_rows(each, lake):
    arrow = delta.dataset(lake, each).to_table()
    assert arrow.schema.equals(each.schema)
    with duckdb.connect() as connection:
        relation = delta.relation(connection, lake, each)
        assert relation.columns == each.schema.names
        assert relation.aggregate("count(*)").fetchall() == [(arrow.num_rows,)]


@every_table
def test_a_table_that_is_not_there_is_empty(each, tmp_path, spark):
    assert delta.files(tmp_path, each) == []
    assert delta.dataset(tmp_path, each).to_table().num_rows == 0
    assert frame(spark, tmp_path, each).schema == spark_schema(each)
    with duckdb.connect() as connection:
        assert delta.relation(connection, tmp_path, each).columns == each.schema.names


def test_the_ledger_accounts_for_every_byte(lake):
    rows = delta.dataset(lake, table("ledger")).to_table().to_pylist()
    sizes = {row["source"]: row["source_size"] for row in rows}
    assert len(sizes) > 3
    for source, size in sizes.items():
        assert sum(row["bytes"] for row in rows if row["source"] == source) == size


def test_a_file_that_is_no_capture_is_kept_whole(lake):
    rows = delta.dataset(lake, table("quarantine")).to_table().to_pylist()
    (noise,) = [row for row in rows if row["source"].endswith("noise.pcap")]
    assert noise["raw"] == b"not a capture at all" * 10
    assert (noise["offset"], noise["length"], noise["session_id"], noise["clause"]) == (0, 200, None, None)


def test_the_ledger_is_published_last():
    assert SILVER[-1].name == "ledger"
    assert not set(SILVER) & set(GOLD)


def test_an_unknown_table_is_answered_with_the_known_ones():
    with pytest.raises(LakeError, match="choose one of messages, emp"):
        table("nonsense")
