"""Index rows that tasks write are those that SQL computes from their files."""

import random
import shutil
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wirelake.lake.decode import index_sums
from wirelake.lake.decode.index_rows import INPUTS, IndexRows
from wirelake.lake.gold.incremental import connection_index, index, minute_index
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.sources.tables import frame, spark_schema
from wirelake.lake.store import compaction, delta, journal, migration
from wirelake.lake.store.index_files import index_of_files
from wirelake.lake.store.parquet import Sheets
from wirelake.lake.tables import connections, ledger, messages, quarantine
from wirelake.lake.tables.catalog import SILVER
from wirelake.lake.tables.index import CONNECTION_INDEX, INDEX_TABLES, MINUTE_INDEX
from wirelake.lake.tables.schema import Table

BUILDERS = {CONNECTION_INDEX.name: connection_index, MINUTE_INDEX.name: minute_index}
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def comparable(rows):
    return sorted(({name: value for name, value in row.items() if name not in ("file", "batch")} for row in rows), key=repr)


def by_sql(spark, lake, name, files):
    """What SQL makes of one task's files."""
    module = BUILDERS[name]
    tables = {table.name: table for table in INPUTS}
    inputs = [
        frame(spark, lake, tables[one], [path for path in files if path.parent.name == one]).selectExpr("*", "1L AS batch")
        for one in module.INPUTS
    ]
    table = next(table for table in INDEX_TABLES if table.name == name)
    fields = pa.schema([field for field in table.schema if field.name != "file"])
    made = module.build(*inputs).to(spark_schema(Table(name, (), fields, "")))
    return comparable(made.toArrow().cast(fields).to_pylist())


def files_called(lake, name):
    return [path for table in INPUTS if (path := delta.folder(lake, table) / name).exists()]


def test_tasks_write_the_rows_that_sql_computes(spark, lake):
    """Recordings of all five protocols, a stateful capture, and noise."""
    spoken = set()
    for table in INDEX_TABLES:
        rows = delta.dataset(lake, table).to_table()
        names = set(rows["file"].to_pylist())
        assert len(names) > 1
        assert names <= {path.name for each in INPUTS for path in delta.files(lake, each)}
        spoken |= set(rows["protocol"].to_pylist())
        for name in names:
            mine = [row for row in rows.to_pylist() if row["file"] == name]
            assert comparable(mine) == by_sql(spark, lake, table.name, files_called(lake, name))
            assert {row["batch"] for row in mine} == {1}
    assert {"emp", "event_mesh", "relink", "yamp", "wolpertinger"} <= spoken


def test_all_files_of_a_task_have_one_name(lake):
    names = {path.name for path in delta.files(lake, messages.TABLE)}
    assert names <= {path.name for path in delta.files(lake, CONNECTION_INDEX)}
    protocols = {path.name for name in ("emp", "relink", "yamp") for path in delta.files(lake, next(t for t in SILVER if t.name == name))}
    assert protocols <= names


def maybe(dice, value, share=0.2):
    return None if dice.random() < share else value


def random_rows(dice, count):
    ids = [bytes([number]) * 16 for number in range(5)]

    def ts():
        return maybe(dice, NOON + timedelta(microseconds=dice.randrange(-200_000_000, 200_000_000)))

    said = [
        {
            "message_id": dice.randbytes(2),
            "session_id": dice.choice(ids),
            "connection_id": dice.choice(ids),
            "ts": ts(),
            "protocol": dice.choice(["emp", "yamp"]),
            "direction": dice.choice(["to_server", "to_client"]),
            "kind": maybe(dice, dice.choice(["handshake", "event", "ack", "keepalive", "error", "close"]), 0.05),
            "subject": maybe(dice, dice.choice(["a", "b", ""])),
            "size": dice.randrange(1 << 40),
            "status": maybe(dice, dice.choice(["ok", "faulty", "error"]), 0.05),
        }
        for _ in range(count)
    ]
    happened = [
        {
            "connection_id": dice.choice(ids),
            "ts": ts(),
            "protocol": maybe(dice, "emp"),
            "client_address": maybe(dice, dice.choice(["10.0.0.1", "10.0.0.2"])),
            "client_port": maybe(dice, dice.choice([1, 10, 2])),
            "server_address": "x",
            "server_port": dice.choice([1, 2]),
        }
        for _ in range(count // 4)
    ]
    unread = [
        {
            "session_id": maybe(dice, dice.choice(ids), 0.5),
            "connection_id": maybe(dice, dice.choice(ids)),
            "ts": ts(),
            "protocol": maybe(dice, "yamp"),
            "clause": maybe(dice, "1.2", 0.5),
        }
        for _ in range(count // 4)
    ]
    return {messages.TABLE: said, connections.TABLE: happened, quarantine.TABLE: unread}


@pytest.mark.parametrize(("seed", "count", "buffer"), [(1, 3000, 65_536), (2, 3000, 7), (3, 1, 1), (4, 40, 5)])
def test_random_rows_in_random_batches_give_what_sql_computes(spark, tmp_path, monkeypatch, seed, count, buffer):
    """Plain or dictionary-encoded, one by one or many at once, with nulls everywhere."""
    monkeypatch.setattr(index_sums, "BUFFER_ROWS", buffer)
    dice = random.Random(seed)
    sheets = Sheets(tmp_path, INPUTS, 1)
    made = IndexRows(1, sheets.name)
    for table, rows in random_rows(dice, count).items():
        whole = pa.Table.from_pylist(rows, schema=table.schema)
        while whole.num_rows:
            size = dice.choice([1, 2, 50, 1000])
            (part,) = whole.slice(0, size).combine_chunks().to_batches()
            whole = whole.slice(size)
            sheets.add({table.name: [part]})
            columns = [
                each.dictionary_encode()
                if dice.random() < 0.5 and (pa.types.is_string(each.type) or pa.types.is_binary(each.type))
                else each
                for each in part.columns
            ]
            made.add({table.name: [pa.RecordBatch.from_arrays(columns, names=part.schema.names)]})
    sheets.close()
    files = files_called(tmp_path, sheets.name)
    read = index_of_files(tmp_path, sheets.name)
    for name, batches in made.rows().items():
        expected = by_sql(spark, tmp_path, name, files)
        assert comparable(row for batch in batches for row in batch.to_pylist()) == expected
        assert comparable(row for batch in read[name] for row in batch.to_pylist()) == expected
        assert {row["file"] for batch in batches for row in batch.to_pylist()} <= {sheets.name}


def index_of(lake):
    return {table.name: comparable(delta.dataset(lake, table).to_table().to_pylist()) for table in INDEX_TABLES}


def test_a_lake_without_an_index_gets_it_from_its_files(spark, lake, tmp_path):
    again = tmp_path / "lake"
    shutil.copytree(lake, again)
    newest = delta.batch(again, ledger.TABLE)
    for table in INDEX_TABLES:
        delta.recreate(again, table)
    (again / "_wirelake" / "talks").mkdir()
    migration.upgrade(again)
    assert not (again / "_wirelake" / "talks").exists()
    index.extend(spark, again, newest)
    assert [delta.batch(again, table) for table in INDEX_TABLES] == [newest, newest]
    assert index_of(again) == index_of(lake)
    files = [delta.files(again, table) for table in INDEX_TABLES]
    index.extend(spark, again, newest)
    assert [delta.files(again, table) for table in INDEX_TABLES] == files


def test_a_batch_is_only_added_to_an_index_that_has_all_before(spark, recorded, tmp_path):
    """Else nobody would know that it lacks some."""
    made = tmp_path / "lake"
    cases = [(0.1, "client", "hello"), (0.2, "server", "hello"), (1, "client", "bye"), (2, "closed", "bye")]
    first, second, third = (recorded(tmp_path / f"{port}.pcapng", {"a": cases}, port) for port in (1000, 2000, 3000))
    ingest(spark, made, [first], gold=False)
    assert [delta.batch(made, table) for table in INDEX_TABLES] == [1, 1]
    for table in INDEX_TABLES:
        delta.recreate(made, table)
    ingest(spark, made, [second], gold=False)
    assert [delta.batch(made, table) for table in INDEX_TABLES] == [None, None]
    index.extend(spark, made, 2)
    assert {row["batch"] for row in delta.dataset(made, MINUTE_INDEX).to_table().to_pylist()} == {1, 2}
    ingest(spark, made, [third], gold=False)
    assert [delta.batch(made, table) for table in INDEX_TABLES] == [3, 3]
    assert sum(row["messages"] for row in delta.dataset(made, MINUTE_INDEX).to_table().to_pylist()) == 9


def test_a_file_is_located_before_and_after_compaction(tmp_path, monkeypatch):
    made = tmp_path / "lake"
    journal.initialise(made)
    names = []
    for batch in (1, 2, 3):
        sheets = Sheets(made, [messages.TABLE], batch)
        rows = pa.Table.from_pylist([{"message_id": bytes([batch])}], schema=messages.TABLE.schema)
        sheets.add({"messages": rows.to_batches()})
        delta.append(made, messages.TABLE, list(sheets.close().values()), batch)
        names.append(sheets.name)
    at = delta.folder(made, messages.TABLE)
    assert delta.locate(made, messages.TABLE, 2, names[1]) == [at / names[1]]
    compaction.tidy(made, 2, always=True)
    (merged,) = delta.locate(made, messages.TABLE, 2, names[1])
    assert merged.name.startswith("part-00000001-00000002-")
    assert {row["message_id"] for row in pq.read_table(merged).to_pylist()} == {b"\1", b"\2"}
    assert delta.locate(made, messages.TABLE, 3, names[2]) == [at / names[2]]
    # The name of a merged file says which batches its rows are of, also in tables where it is not.
    assert delta.locate(made, messages.TABLE, 1, "part-00000001-00000003-x.parquet") == [merged, at / names[2]]
