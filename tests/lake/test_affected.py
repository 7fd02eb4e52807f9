"""What new batches touch, told by the index alone."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wirelake.lake.gold.incremental import index
from wirelake.lake.gold.incremental.affected import affected, minutes
from wirelake.lake.store import delta, journal
from wirelake.lake.store.delta import File
from wirelake.lake.store.slots import slot
from wirelake.lake.tables.index import CONNECTION_INDEX, MINUTE_INDEX

START = datetime(2024, 1, 1, tzinfo=UTC)


def said(batch, session, connection, protocol="emp", *, seconds=0, direction="to_server"):
    when = START + timedelta(seconds=seconds)
    named = {"batch": batch, "protocol": protocol, "session_id": session.encode(), "connection_id": connection.encode()}
    return named | {"direction": direction, "messages": 1, "first_seen": when, "last_seen": when}


@pytest.fixture
def ask(tmp_path):
    def told(rows, built, newest=None):
        lake = tmp_path / "lake"
        journal.initialise(lake)
        newest = newest or max(row["batch"] for row in rows)
        delta.create(lake, CONNECTION_INDEX)
        pq.write_table(pa.Table.from_pylist(rows, schema=CONNECTION_INDEX.schema), delta.folder(lake, CONNECTION_INDEX) / "one.parquet")
        delta.append(lake, CONNECTION_INDEX, [File("one.parquet", 1, len(rows))], newest)
        found = affected(lake, built, newest)
        assert found.slots == {slot(one) for one in found.keys.to_pylist()}
        return found

    return told


def sessions(found):
    return sorted(one.decode() for one in found.keys.to_pylist())


def test_a_session_of_the_new_batch_is_touched_and_its_older_batches_are_read(ask):
    found = ask([said(1, "a", "a"), said(2, "b", "b"), said(3, "b", "b"), said(2, "c", "c")], built=2)
    assert (sessions(found), found.fresh, found.older, found.protocols) == (["b"], (3,), (2,), ("emp",))


def test_what_came_after_the_newest_batch_is_not_looked_at(ask):
    found = ask([said(1, "a", "a"), said(2, "b", "b"), said(3, "c", "c")], built=1, newest=2)
    assert (sessions(found), found.fresh) == (["b"], (2,))


def test_a_link_is_touched_with_all_that_was_said_on_its_connections(ask):
    """Before the link was agreed on, its connections were sessions of their own."""
    rows = [said(1, "c1", "c1", "relink"), said(2, "L", "c1", "relink"), said(3, "c2", "c2", "relink"), said(4, "L", "c2", "relink")]
    found = ask([*rows, said(2, "other", "c9", "relink")], built=3)
    assert (sessions(found), found.older) == (["L", "c1", "c2"], (1, 2, 3))
    assert found.views.sessions == {b"c1": b"L", b"c2": b"L", b"c9": b"other"}
    assert set(found.index["session_id"].to_pylist()) == {b"L"}


def test_nodes_that_share_a_connection_do_not_touch_each_other_from_afar(ask):
    """Bob's connection is new again, and so are all who speak on it; whom these meet elsewhere is not."""
    rows = [said(1, "alice", "bob", "event_mesh"), said(1, "alice", "carol", "event_mesh"), said(1, "dave", "carol", "event_mesh")]
    found = ask([*rows, said(2, "erin", "bob", "event_mesh")], built=1)
    assert sessions(found) == ["alice", "erin"]


def test_a_node_that_falls_silent_because_others_speak_on_is_touched(ask):
    rows = [said(1, "quiet", "x", "event_mesh", seconds=0), said(1, "long quiet", "y", "event_mesh", seconds=-100)]
    rows += [said(1, "busy", "z", "event_mesh", seconds=30), said(2, "busy", "z", "event_mesh", seconds=36)]
    found = ask(rows, built=1)
    assert sessions(found) == ["busy", "quiet"]
    assert found.newest == {"event_mesh": int((START + timedelta(seconds=36)).timestamp() * 1e6)}


def test_a_connection_to_which_something_happened_touches_its_session(ask):
    found = ask([said(1, "a", "a"), said(2, "a", "a", direction=None)], built=1)
    assert (sessions(found), found.older) == (["a"], (1,))


def test_minutes_are_touched_by_what_is_new_and_by_what_is_told_of_touched_sessions(ask, tmp_path):
    found = ask([said(1, "a", "a"), said(2, "b", "b")], built=1)
    lake = tmp_path / "lake"
    delta.create(lake, MINUTE_INDEX)
    rows = [{"batch": batch, "minute": START + timedelta(minutes=batch), "protocol": "emp"} for batch in (1, 2)]
    pq.write_table(pa.Table.from_pylist(rows, schema=MINUTE_INDEX.schema), delta.folder(lake, MINUTE_INDEX) / "one.parquet")
    delta.append(lake, MINUTE_INDEX, [File("one.parquet", 1, 2)], 2)
    when = [{"session_id": name, "ts": START + timedelta(hours=hours, seconds=59)} for name, hours in ((b"a", 1), (b"b", -3))]
    pq.write_table(
        pa.Table.from_pylist(when, schema=pa.schema([("session_id", pa.binary()), ("ts", pa.timestamp("us", "UTC"))])), tmp_path / "told"
    )
    expected = sorted(int((START + shift).timestamp() * 1e6) for shift in (timedelta(minutes=2), timedelta(hours=-3)))
    assert minutes(lake, found, {"ts": (tmp_path / "told",)}) == expected


@pytest.mark.slow
def test_many_small_files_of_the_index_become_one_and_say_the_same(tmp_path):
    journal.initialise(tmp_path)
    delta.create(tmp_path, CONNECTION_INDEX)
    for batch in range(1, index.MOST_SMALL + 2):
        assert index.merge(tmp_path, CONNECTION_INDEX) is False
        path = delta.folder(tmp_path, CONNECTION_INDEX) / f"{batch}.parquet"
        pq.write_table(pa.Table.from_pylist([said(batch, "a", "a")], schema=CONNECTION_INDEX.schema), path)
        delta.append(tmp_path, CONNECTION_INDEX, [File(path.name, 1, 1)], batch)
    before = delta.dataset(tmp_path, CONNECTION_INDEX).to_table().sort_by("batch")
    assert index.merge(tmp_path, CONNECTION_INDEX) is True
    assert len(delta.files(tmp_path, CONNECTION_INDEX)) == 1
    assert delta.dataset(tmp_path, CONNECTION_INDEX).to_table().sort_by("batch").equals(before)
    assert delta.batch(tmp_path, CONNECTION_INDEX) == index.MOST_SMALL + 1
    delta.sweep(tmp_path, CONNECTION_INDEX)
    assert delta.dataset(tmp_path, CONNECTION_INDEX).count_rows() == before.num_rows
