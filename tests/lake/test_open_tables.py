"""Open Delta tables: each is opened once for each state of its log, and always tells what the log says."""

from __future__ import annotations

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import RemoveAction

from wirelake.errors import LakeError
from wirelake.lake.store import delta, open_tables
from wirelake.lake.store.delta import File
from wirelake.lake.tables import connections

TABLE = connections.TABLE


@pytest.fixture
def opened(monkeypatch):
    """Versions that were opened."""
    log = []

    def opening(at, version=None):
        log.append(version)
        return DeltaTable(at, version=version)

    monkeypatch.setattr(open_tables, "DeltaTable", opening)
    return log


def names(lake, as_of=None):
    return [file.path for file in delta.entries(lake, TABLE, as_of)]


def test_a_table_that_did_not_change_is_opened_once(tmp_path, opened):
    delta.create(tmp_path, TABLE)
    for _ in range(3):
        assert delta.batch(tmp_path, TABLE) is None
        assert names(tmp_path) == names(tmp_path, as_of=0) == []
        assert not delta.is_outdated(tmp_path, TABLE)
    assert opened == [0]


def test_commits_do_not_open_it_again(tmp_path, opened):
    delta.create(tmp_path, TABLE)
    for number in (1, 2, 3):
        assert delta.append(tmp_path, TABLE, [File(f"part-{number}", 1, 1)], number)
        assert not delta.append(tmp_path, TABLE, [File("again", 1, 1)], number)
        assert delta.batch(tmp_path, TABLE) == number
        assert names(tmp_path) == [f"part-{one}" for one in range(1, number + 1)]
    assert opened == [0]


def test_a_commit_of_another_process_is_seen(tmp_path):
    delta.create(tmp_path, TABLE)
    assert delta.batch(tmp_path, TABLE) is None
    other = DeltaTable(delta.folder(tmp_path, TABLE))
    numbers = CommitProperties(app_transactions=[Transaction("wirelake", 7)])
    other.create_write_transaction([File("part-7", 1, 1).added(0)], "append", delta.delta_schema(TABLE), commit_properties=numbers)
    assert delta.batch(tmp_path, TABLE) == 7
    assert names(tmp_path) == ["part-7"]
    assert delta.append(tmp_path, TABLE, [File("part-8", 1, 1)], 8)
    assert names(tmp_path) == ["part-7", "part-8"]


def test_a_reader_of_a_version_keeps_it_while_others_commit(tmp_path):
    delta.create(tmp_path, TABLE)
    delta.append(tmp_path, TABLE, [File("part-1", 1, 1)], 1)
    reader = open_tables.open_table(delta.folder(tmp_path, TABLE))
    delta.append(tmp_path, TABLE, [File("part-2", 1, 1)], 2)
    assert reader.version == 1
    assert reader.files()["path"].to_pylist() == ["part-1"]
    assert reader.number("wirelake") == 1
    assert names(tmp_path, as_of=1) == ["part-1"]
    assert names(tmp_path) == ["part-1", "part-2"]


def test_a_table_that_was_made_anew_is_opened_anew(tmp_path):
    delta.create(tmp_path, TABLE)
    delta.append(tmp_path, TABLE, [File("part-1", 1, 1)], 1)
    delta.recreate(tmp_path, TABLE)
    assert (delta.batch(tmp_path, TABLE), names(tmp_path)) == (None, [])


def test_a_commit_that_fails_leaves_the_table_as_it_is(tmp_path):
    delta.create(tmp_path, TABLE)
    delta.append(tmp_path, TABLE, [File("part-1", 1, 1)], 1)
    stale = open_tables.open_table(delta.folder(tmp_path, TABLE))
    delta.append(tmp_path, TABLE, [File("part-2", 1, 1)], 2)
    with pytest.raises(LakeError, match="table connections"), delta._blame(tmp_path, TABLE):
        open_tables.commit(
            delta.folder(tmp_path, TABLE), stale, [File("part-3", 1, 1).added(0)], delta.delta_schema(TABLE), [Transaction("wirelake", 2)]
        )
    assert delta.batch(tmp_path, TABLE) == 2
    assert names(tmp_path) == ["part-1", "part-2"]


@pytest.fixture
def beside(monkeypatch):
    """Call with a function that is run between the opening of a table and its first commits."""
    commit, left = open_tables.commit, []

    def commit_later(*arguments):
        if left:
            left.pop(0)()
        commit(*arguments)

    monkeypatch.setattr(open_tables, "commit", commit_later)
    return lambda *calls: left.extend(calls)


def merged_into(lake, name):
    """Merge all files into one of this name, as compaction of another thread does."""

    def merge():
        table = DeltaTable(delta.folder(lake, TABLE))
        paths = table.get_add_actions(flatten=True)["path"].to_pylist()
        actions = [RemoveAction(path, True, 0, 1, {}) for path in paths] + [File(name, 1, 1).added(0)]
        table.create_write_transaction(actions, "append", delta.delta_schema(TABLE))

    return merge


def test_a_batch_is_appended_while_compaction_merges_files(tmp_path, beside):
    delta.create(tmp_path, TABLE)
    delta.append(tmp_path, TABLE, [File("part-1", 1, 1)], 1)
    beside(merged_into(tmp_path, "merged-1"), merged_into(tmp_path, "merged-2"))
    assert delta.append(tmp_path, TABLE, [File("part-2", 1, 1)], 2)
    assert names(tmp_path) == ["merged-2", "part-2"]
    assert delta.batch(tmp_path, TABLE) == 2


def test_rows_are_removed_only_if_nothing_was_merged_meanwhile(tmp_path, beside):
    delta.create(tmp_path, TABLE)
    delta.append(tmp_path, TABLE, [File("part-1", 1, 1)], 1)
    beside(merged_into(tmp_path, "merged"))
    with pytest.raises(LakeError, match="concurrent transaction"):
        delta.append(tmp_path, TABLE, [File("part-2", 1, 1)], 2, removed=delta.entries(tmp_path, TABLE))
    assert names(tmp_path) == ["merged"]


def test_an_append_is_not_tried_for_ever(tmp_path, beside):
    delta.create(tmp_path, TABLE)
    delta.append(tmp_path, TABLE, [File("part-1", 1, 1)], 1)
    beside(*(merged_into(tmp_path, f"merged-{number:02}") for number in range(delta.APPENDS)))
    with pytest.raises(LakeError, match="concurrent transaction"):
        delta.append(tmp_path, TABLE, [File("part-2", 1, 1)], 2)
    assert names(tmp_path) == [f"merged-{delta.APPENDS - 1:02}"]
