"""Tidying: many small files become one, the table says the same, and whoever reads the old ones may finish."""

from __future__ import annotations

import pyarrow as pa

from wirelake.lake import delta, journal
from wirelake.lake.catalog import SILVER
from wirelake.lake.parquet import Sheet
from wirelake.lake.tables import connections
from wirelake.lake.tidying import KEPT_SECONDS, MANY, Tidier


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


def test_small_files_become_one_and_the_old_ones_go_later(tmp_path):
    journal.initialise(tmp_path)
    for each in SILVER:
        delta.create(tmp_path, each)
    published(tmp_path, 1, MANY)
    now = [0.0]
    tidier = Tidier(tmp_path, lambda: now[0])
    assert tidier.tidy() == 0
    published(tmp_path, MANY + 1, 1)
    before, old = rows(tmp_path), delta.files(tmp_path, connections.TABLE)
    assert tidier.tidy() == 1
    assert len(delta.files(tmp_path, connections.TABLE)) == 1
    assert rows(tmp_path) == before
    assert delta.batch(tmp_path, connections.TABLE) == MANY + 1
    assert all(path.exists() for path in old)
    now[0] = KEPT_SECONDS - 1
    assert tidier.tidy() == 0
    assert all(path.exists() for path in old)
    now[0] = KEPT_SECONDS
    assert tidier.tidy() == 0
    assert not any(path.exists() for path in old)
    assert rows(tmp_path) == before
    published(tmp_path, MANY + 2, 1)
    assert tidier.tidy(always=True) == 1
    assert len(rows(tmp_path)) == MANY + 2
    folder = delta.folder(tmp_path, connections.TABLE)
    assert len(list(folder.glob("*.parquet"))) > 1
    Tidier(tmp_path).sweep()
    assert list(folder.glob("*.parquet")) == delta.files(tmp_path, connections.TABLE)


def test_a_batch_that_was_published_stays_published(tmp_path):
    """What tells a batch that is there from one that is not must outlive the files it wrote."""
    journal.initialise(tmp_path)
    for each in SILVER:
        delta.create(tmp_path, each)
    published(tmp_path, 1, 3)
    Tidier(tmp_path).tidy(always=True)
    assert not delta.append(tmp_path, connections.TABLE, [], 3)
