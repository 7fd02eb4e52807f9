"""Statistics of files: rounded so that no row is outside of them, left out where that is impossible, and sorted row groups."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wirelake.lake.store import delta, journal, sorting
from wirelake.lake.store.commit import prepare
from wirelake.lake.store.compaction import tidy
from wirelake.lake.store.delta import File
from wirelake.lake.store.parquet import GoldFile, Sheet
from wirelake.lake.store.statistics import PREFIX, highest_prefix
from wirelake.lake.tables import exchanges, messages
from wirelake.lake.tables.catalog import SILVER, TABLES
from wirelake.lake.tables.filtered import FILTERED, filtered, sorted_by
from wirelake.lake.tables.index import INDEX_TABLES

LAST = chr(0x10FFFF)


def rows(*given: dict[str, object], table=messages.TABLE) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict.fromkeys(table.schema.names) | one for one in given], schema=table.schema)


def statistics(lake, *batches: pa.RecordBatch) -> dict:
    sheet = Sheet(lake, messages.TABLE, 1)
    for batch in batches:
        sheet.add(batch)
    return json.loads(sheet.close().stats)


def test_times_are_widened_to_milliseconds(tmp_path):
    found = statistics(tmp_path, rows({"ts": 1_700_000_000_000_001}, {"ts": 1_700_000_000_123_001}, {"ts": None}))
    assert found["numRecords"] == 3
    assert found["minValues"]["ts"] == "2023-11-14T22:13:20.000Z"
    assert found["maxValues"]["ts"] == "2023-11-14T22:13:20.124Z"
    assert found["nullCount"]["ts"] == 1


def test_times_before_1970_and_whole_milliseconds_are_exact(tmp_path):
    found = statistics(tmp_path, rows({"ts": -1_000}, {"ts": 0}))
    assert (found["minValues"]["ts"], found["maxValues"]["ts"]) == ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z")


def test_a_time_beyond_the_calendar_has_no_bound(tmp_path):
    found = statistics(tmp_path, rows({"ts": 0}, {"ts": (1 << 63) - 1}))
    assert "ts" in found["minValues"]
    assert "ts" not in found["maxValues"]


def test_a_column_of_nulls_has_only_their_count(tmp_path):
    found = statistics(tmp_path, rows({"protocol": "emp"}, {"protocol": "emp"}))
    assert found["nullCount"]["subject"] == 2
    assert "subject" not in found["minValues"]
    assert "subject" not in found["maxValues"]


def test_long_text_is_cut_and_raised(tmp_path):
    long = "a" * PREFIX + "b"
    found = statistics(tmp_path, rows({"subject": long}, {"subject": long + "c"}))
    assert found["minValues"]["subject"] == "a" * PREFIX
    assert found["maxValues"]["subject"] == "a" * (PREFIX - 1) + "b"


def test_text_too_long_for_the_footer_has_no_bound(tmp_path):
    found = statistics(tmp_path, rows({"subject": "a"}, {"subject": "b" * 10_000}))
    assert found["nullCount"]["subject"] == 0
    assert "subject" not in found["maxValues"]


@pytest.mark.parametrize(
    ("text", "highest"),
    [
        ("short", "short"),
        (LAST * PREFIX, LAST * PREFIX),
        (LAST * (PREFIX + 1), None),
        ("a" + LAST * PREFIX, "b"),
        ("a" * (PREFIX - 1) + chr(0xD7FF) + "x", "a" * (PREFIX - 1) + chr(0xE000)),
    ],
)
def test_the_highest_prefix_is_not_less_than_the_text(text, highest):
    assert highest_prefix(text) == highest
    assert highest is None or highest.encode() >= text.encode()


def test_row_groups_are_summed_up(tmp_path, monkeypatch):
    monkeypatch.setattr("wirelake.lake.store.parquet.ROW_GROUP_BYTES", 1)
    found = statistics(
        tmp_path,
        rows({"ts": 5_000_000, "protocol": "yamp"}),
        rows({"ts": None, "protocol": "emp"}),
        rows({"ts": 1_000_000, "protocol": "relink"}),
    )
    assert (found["minValues"]["ts"], found["maxValues"]["ts"]) == ("1970-01-01T00:00:01.000Z", "1970-01-01T00:00:05.000Z")
    assert (found["minValues"]["protocol"], found["maxValues"]["protocol"]) == ("emp", "yamp")
    assert found["nullCount"]["ts"] == 1


def test_gold_files_have_statistics(tmp_path):
    file = GoldFile(tmp_path, "a.parquet", exchanges.TABLE)
    file.add(pa.Table.from_batches([rows({"requested": 0, "status": "answered"}, table=exchanges.TABLE)]))
    assert json.loads(file.close().stats)["minValues"] == {"requested": "1970-01-01T00:00:00.000Z", "status": "answered"}


def test_every_name_is_a_column_that_delta_compares():
    seen = {name for table in TABLES.values() for name in filtered(table)}
    assert seen == set(FILTERED)
    for table in TABLES.values():
        for name in filtered(table):
            kind = table.schema.field(name).type
            assert pa.types.is_timestamp(kind) or pa.types.is_string(kind) or pa.types.is_integer(kind)
    assert not any(filtered(table) for table in INDEX_TABLES)


def test_a_log_without_statistics_is_read_and_compaction_adds_them(tmp_path):
    journal.initialise(tmp_path)
    prepare(tmp_path)
    for number in (1, 2):
        sheet = Sheet(tmp_path, messages.TABLE, number)
        sheet.add(rows({"ts": number * 1_000_000, "protocol": "emp", "message_id": bytes([number] * 16), "session_id": b"s" * 16}))
        file = sheet.close()
        delta.append(tmp_path, messages.TABLE, [File(file.path, file.size, file.rows)], number)
    assert delta.statistics(tmp_path, messages.TABLE)["min.ts"].null_count == 2
    tidy(tmp_path, 2, always=True)
    known = delta.statistics(tmp_path, messages.TABLE)
    assert known["min.ts"].to_pylist() == [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]
    assert known["max.ts"].to_pylist() == [datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)]


# Sorting.


def test_message_tables_are_sorted_and_say_so(tmp_path):
    given = [
        {"protocol": protocol, "session_id": bytes([session] * 16), "ts": ts, "message_id": bytes([place] * 16)}
        for place, (protocol, session, ts) in enumerate(
            [("yamp", 1, 5), ("emp", 2, 9), ("emp", 1, None), ("emp", 1, 7), ("emp", 1, 3), ("emp", 1, 3), ("yamp", 1, 4)]
        )
    ]
    sheet = Sheet(tmp_path, messages.TABLE, 1)
    sheet.add(rows(*given[:3]))
    sheet.add(rows(*given[3:]))
    path = tmp_path / "messages" / sheet.close().path
    order = [one[0] for one in pq.read_table(path, columns=["message_id"])["message_id"].to_pylist()]
    assert order == [2, 4, 5, 3, 1, 6, 0]
    found = pq.ParquetFile(path).metadata.row_group(0).sorting_columns
    names = messages.TABLE.schema.names
    assert [names[column.column_index] for column in found] == ["protocol", "session_id", "ts"]


def test_dictionaries_with_equal_words_sort_as_their_values():
    """A link has a word for each of its connections, and all are the same."""
    sessions = pa.DictionaryArray.from_arrays(pa.array([0, 2, 1, 0], pa.int32()), pa.array([b"b", b"b", b"a"]))
    table = pa.table({"session_id": sessions, "ts": pa.array([4, 2, 3, 1], pa.timestamp("us", "UTC"))})
    assert sorting.order(table, ["session_id", "ts"]).tolist() == [1, 3, 2, 0]


def test_keys_too_large_for_one_number_are_sorted_too():
    times = pa.array([1 << 60, 0, -(1 << 60)], pa.timestamp("us", "UTC"))
    table = pa.table({"protocol": ["b", "a", "a"], "session_id": [b"x", b"y", b"x"], "ts": times})
    assert sorting.order(table, ["protocol", "session_id", "ts"]).tolist() == [2, 1, 0]


def test_rows_of_many_short_sessions_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(sorting, "SMALL_ROWS", 4)
    sheet = Sheet(tmp_path, messages.TABLE, 1)
    sheet.add(rows(*({"session_id": bytes([9 - place] * 16), "message_id": bytes([place] * 16)} for place in range(8))))
    path = tmp_path / "messages" / sheet.close().path
    assert [one[0] for one in pq.read_table(path)["message_id"].to_pylist()] == list(range(8))
    assert not pq.ParquetFile(path).metadata.row_group(0).sorting_columns


def _valued(path):
    """The columns of a file whose footer has statistics."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    return {group.column(number).path_in_schema for number in range(group.num_columns) if group.column(number).is_stats_set}


@pytest.mark.parametrize("is_sorted", [True, False])
def test_ids_have_statistics_only_where_sessions_are_in_order(tmp_path, monkeypatch, is_sorted):
    monkeypatch.setattr(sorting, "SMALL_ROWS", 8 if is_sorted else 4)
    sheet = Sheet(tmp_path, messages.TABLE, 1)
    sheet.add(rows(*({"session_id": bytes([9 - place] * 16), "message_id": bytes([place] * 16)} for place in range(8))))
    valued = _valued(tmp_path / "messages" / sheet.close().path)
    assert ({"session_id", "connection_id", "message_id"} <= valued) == is_sorted
    assert {"ts", "protocol", "kind", "status", "source", "offset", "size"} <= valued
    assert not valued & {"body", "body_json"}


def test_only_tables_of_messages_are_sorted():
    assert {table.name for table in SILVER if sorted_by(table)} == {"messages", "emp", "event_mesh", "relink", "yamp", "wolpertinger"}
