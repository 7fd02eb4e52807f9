"""Tidying: many small files become one, the table says the same, and whoever reads the old ones may finish."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wirelake.lake.store import delta, journal, snapshot
from wirelake.lake.store.commit import prepare
from wirelake.lake.store.compaction import MANY, tidy
from wirelake.lake.store.parquet import Sheet
from wirelake.lake.tables import connections


def published(lake, first: int, count: int) -> None:
    """So many batches of one row each."""
    for number in range(first, first + count):
        sheet = Sheet(lake, connections.TABLE, number)
        row = dict.fromkeys(connections.TABLE.schema.names) | {"connection_id": number.to_bytes(16), "ts": number, "what": "seen"}
        sheet.add(pa.RecordBatch.from_pylist([row], schema=connections.TABLE.schema))
        delta.append(lake, connections.TABLE, [sheet.close()], number)


def rows(lake) -> list[dict]:
    found = delta.dataset(lake, connections.TABLE).to_table().to_pylist()
    return sorted(found, key=lambda row: row["connection_id"])


def a_lake(folder):
    journal.initialise(folder)
    prepare(folder)
    return folder


@pytest.mark.slow
def test_small_files_become_one_and_whoever_reads_the_old_ones_may_finish(tmp_path):
    lake = a_lake(tmp_path)
    published(lake, 1, MANY)
    assert tidy(lake, MANY) == 0
    published(lake, MANY + 1, 1)
    before, old = rows(lake), delta.files(lake, connections.TABLE)
    assert tidy(lake, MANY + 1) == 1
    (one,) = delta.entries(lake, connections.TABLE)
    assert delta.batches_of(lake, connections.TABLE, one) == (1, MANY + 1)
    assert rows(lake) == before
    assert snapshot.current(lake).dataset("connections").count_rows() == MANY + 1
    assert delta.batch(lake, connections.TABLE) == MANY + 1
    assert all(path.exists() for path in old)
    snapshot.sweep(lake, connections.TABLE, patience=0.0)
    assert not any(path.exists() for path in old)
    assert rows(lake) == before
    published(lake, MANY + 2, 1)
    assert tidy(lake, MANY + 2, always=True) == 1
    assert len(rows(lake)) == MANY + 2


def test_compaction_says_in_the_log_that_no_data_changed(tmp_path):
    """Else every stream that reads the table ends with an error."""
    lake = a_lake(tmp_path)
    published(lake, 1, 2)
    assert tidy(lake, 2, always=True) == 1
    log = delta.folder(lake, connections.TABLE) / "_delta_log"
    changes = []
    for entry in sorted(log.glob("*.json")):
        actions = [action for line in entry.read_text().splitlines() for action in json.loads(line).items()]
        changes.append([(kind, body["dataChange"]) for kind, body in actions if kind in ("add", "remove")])
    assert changes == [[], [("add", True)], [("add", True)], [("remove", False), ("remove", False), ("add", False)]]


def test_what_gold_tables_were_not_built_from_is_left_alone(tmp_path):
    """It is read batch by batch, and only the name of a file tells the batch."""
    lake = a_lake(tmp_path)
    published(lake, 1, 5)
    assert tidy(lake, 3, always=True) == 1
    found = [delta.batches_of(lake, connections.TABLE, one) for one in delta.entries(lake, connections.TABLE)]
    assert sorted(found) == [(1, 3), (4, 4), (5, 5)]
    by_batch = delta.files_by_batch(lake, connections.TABLE)
    assert list(by_batch) == [1, 2, 3, 4, 5]
    assert by_batch[1] == by_batch[3] != by_batch[4]


def test_a_batch_that_was_published_stays_published(tmp_path):
    """What tells a batch that is there from one that is not must outlive the files it wrote."""
    lake = a_lake(tmp_path)
    published(lake, 1, 3)
    assert tidy(lake, 3, always=True) == 1
    assert not delta.append(lake, connections.TABLE, [], 3)


def test_words_of_a_dictionary_stay_one(tmp_path):
    """Merged files would be larger otherwise, and slower to read."""
    lake = a_lake(tmp_path)
    for number in (1, 2):
        sheet = Sheet(lake, connections.TABLE, number)
        row = dict.fromkeys(connections.TABLE.schema.names) | {"connection_id": number.to_bytes(16), "ts": number, "what": f"seen {number}"}
        rows_of_batch = pa.RecordBatch.from_pylist([row] * 10, schema=connections.TABLE.schema)
        at = rows_of_batch.schema.get_field_index("what")
        sheet.add(rows_of_batch.set_column(at, "what", rows_of_batch.column(at).dictionary_encode()))
        delta.append(lake, connections.TABLE, [sheet.close()], number)
    assert tidy(lake, 2, always=True) == 1
    (merged,) = delta.files(lake, connections.TABLE)
    with pq.ParquetFile(merged) as file:
        columns = [file.metadata.row_group(0).column(number) for number in range(file.metadata.num_columns)]
    assert [one.path_in_schema for one in columns if one.has_dictionary_page] == ["what"]
    assert [row["what"] for row in rows(lake)] == ["seen 1"] * 10 + ["seen 2"] * 10
