"""A lake that an older wirelake built: read as far as it goes, and built anew by the next ingest, which loses nothing."""

import json
import shutil
import uuid
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lake.hashing import hashes
from tests.lake.mesh import STORY, record
from tests.lake.test_ingest import TALK
from tests.protocols.event_mesh.receiving import store

from wirelake.explore.query import query
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.store import delta, gold_commit, journal, snapshot
from wirelake.lake.store.delta import File
from wirelake.lake.tables.catalog import GOLD, SILVER, table
from wirelake.lake.tables.index import CONNECTION_INDEX, INDEX_TABLES
from wirelake.lake.tables.schema import Table

LACKING = {
    "exchanges": "attempts",
    "violations": "severity",
    "sessions": "handshake",
    "security": "threat",
    "metrics": "errors",
    "topology": "errors",
}
"""What the older wirelake knew nothing of."""


@pytest.fixture(scope="module")
def judged(spark, recorded, tmp_path_factory):
    """(its captures, a lake whose packets were judged by keys once)."""
    folder = tmp_path_factory.mktemp("judged")
    paths = [recorded(folder / "talk.pcapng", TALK), folder / "mesh.pcapng"]
    record(paths[1], STORY)
    ingest(spark, folder / "lake", paths, keys=store())
    return paths, folder / "lake"


def make_older(lake, each, lacks):
    """The table as it was before there was a column."""
    older = Table(each.name, each.grain, each.schema.remove(each.schema.get_field_index(lacks)), each.doc)
    at, batch = delta.folder(lake, each) / "older.parquet", delta.batch(lake, each)
    rows = delta.dataset(lake, each).to_table().drop_columns([lacks])
    pq.write_table(rows, at)
    delta.migrate(lake, older, [])
    delta.exchange(lake, older, [], [File(at.name, at.stat().st_size, rows.num_rows)], batch, 1 + delta.revision(lake, each))
    assert delta.is_outdated(lake, each)


@pytest.mark.parametrize("names", [("sessions",), tuple(LACKING)], ids=["one", "all"])
def test_gold_tables_of_an_older_version_are_built_anew_and_what_keys_said_stays(spark, judged, tmp_path, names):
    paths, made = judged
    lake, wanted = shutil.copytree(made, tmp_path / "lake"), hashes(made)
    for name in names:
        make_older(lake, table(name), LACKING[name])
    make_older(lake, CONNECTION_INDEX, CONNECTION_INDEX.schema.names[-1])
    snapshot.publish(lake)
    for name in names:
        seen = query(lake, f"select {LACKING[name]}, count(*) over () as rows from {name}").to_pylist()
        assert {row[LACKING[name]] for row in seen} == {None}, "what it did not know is null"
    # It was killed when it was about to publish something else.
    change = {"table": "sessions", "removed": [], "added": [{"path": "gone.parquet", "size": 1, "rows": 1}]}
    journal.write(lake, "gold.json", json.dumps({"batch": 9, "revision": 9, "changes": [change]}).encode())
    before = hashes(lake)
    result = ingest(spark, lake, paths)
    assert (result.batch, len(result.skipped), set(names) <= set(result.built)) == (None, len(paths), True)
    assert before != wanted
    assert hashes(lake) == wanted
    assert query(lake, "select count(verdict) > 0 as judged from security").to_pylist() == [{"judged": True}]
    assert not any(delta.is_outdated(lake, each) for each in (*GOLD, CONNECTION_INDEX))


def test_gold_tables_of_another_edition_of_the_rules_are_built_anew_and_what_keys_said_stays(spark, judged, tmp_path, monkeypatch):
    """Also where nothing else would be touched: rows that nobody would build any more go, those that were not told come."""
    paths, made = judged
    lake, wanted = shutil.copytree(made, tmp_path / "lake"), hashes(made)
    misled = [each for each in GOLD if each.name != "security"]
    for each in misled:
        rows, at = delta.dataset(lake, each).to_table().slice(1), delta.folder(lake, each) / "other.parquet"
        for name, nobody in {"session_id": b"nobody's session", "minute": datetime(2001, 1, 1, tzinfo=UTC), "client": "nobody"}.items():
            if name in each.schema.names:
                place, kind = each.schema.get_field_index(name), each.schema.field(name).type
                rows = rows.set_column(place, each.schema.field(name), pa.array([nobody] * rows.num_rows, kind))
        pq.write_table(rows, at)
        added = [File(at.name, at.stat().st_size, rows.num_rows)]
        delta.exchange(lake, each, delta.entries(lake, each), added, delta.batch(lake, each), 1 + delta.revision(lake, each))
    snapshot.publish(lake)
    assert {name for name, told in hashes(lake).items() if told != wanted[name]} == {each.name for each in misled}
    assert ingest(spark, lake, paths).built == ()
    monkeypatch.setattr(gold_commit, "RULES_VERSION", gold_commit.RULES_VERSION + 1)
    assert ingest(spark, lake, paths).built == tuple(each.name for each in GOLD)
    assert hashes(lake) == wanted
    assert ingest(spark, lake, paths).built == ()


def test_files_of_an_older_version_have_another_name_in_each_table(spark, judged, tmp_path):
    """The index is made anew from them, and gold tables with it."""
    paths, made = judged
    lake, wanted = shutil.copytree(made, tmp_path / "lake"), hashes(made)
    for each in SILVER:
        renamed = []
        for file in delta.entries(lake, each):
            first, last = delta.batches_of(lake, each, file)
            assert first == last
            other = delta.folder(lake, each) / f"part-{first:08d}-{uuid.uuid4().hex}.parquet"
            shutil.copy(delta.folder(lake, each) / file.path, other)
            renamed.append(File(other.name, file.size, file.rows))
        if renamed:
            delta.merge(lake, each, delta.entries(lake, each), renamed)
    for each in INDEX_TABLES:
        delta.recreate(lake, each)
    gold_commit.mark_stale(lake)
    assert ingest(spark, lake, paths).built == tuple(each.name for each in GOLD)
    assert hashes(lake) == wanted


def test_readers_see_the_older_table_until_the_new_one_is_whole(spark, judged, tmp_path, monkeypatch):
    paths, made = judged
    lake = shutil.copytree(made, tmp_path / "lake")
    make_older(lake, table("security"), LACKING["security"])
    snapshot.publish(lake)
    before = hashes(lake)

    def full(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr("wirelake.lake.store.gold_commit.publish", full)
        with pytest.raises(OSError, match="no space left"):
            ingest(spark, lake, paths)
    assert hashes(lake) == before
    ingest(spark, lake, paths)
    assert hashes(lake) == hashes(made)
