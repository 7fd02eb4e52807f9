"""Gold tables change together, once, and what they were a moment ago can still be read."""

import pytest

from wirelake.errors import LakeError
from wirelake.lake.store import delta, gold_commit, journal, snapshot
from wirelake.lake.store.delta import File
from wirelake.lake.store.gold_commit import Change
from wirelake.lake.tables.catalog import GOLD
from wirelake.lake.tables.schema import Table


@pytest.fixture
def lake(tmp_path):
    journal.initialise(tmp_path)
    for each in GOLD:
        delta.create(tmp_path, each)
    return tmp_path


def written(lake, name):
    path = f"batch-{name}/leaf-0000-1023-{'ab' * 16}.parquet"
    for each in GOLD:
        at = delta.folder(lake, each) / path
        at.parent.mkdir(exist_ok=True)
        at.write_bytes(b"PAR1")
    return File(path, 4, 1)


def changes(removed, added):
    return [Change(each.name, removed, added) for each in GOLD]


def counted(lake):
    return {tuple(file.path for file in delta.entries(lake, each)) for each in GOLD}


def test_what_died_in_the_middle_is_finished_for_all_tables_and_only_once(lake, monkeypatch):
    one = written(lake, "one")
    exchange, done = delta.exchange, []

    def dying(*args):
        if len(done) == 2:
            raise LakeError("the plug was pulled")
        done.append(exchange(*args))

    with monkeypatch.context() as patch:
        patch.setattr(delta, "exchange", dying)
        with pytest.raises(LakeError, match="the plug was pulled"):
            gold_commit.publish(lake, 7, changes([], [one]))
    assert counted(lake) == {(), (one.path,)}
    assert gold_commit.finish(lake) is True
    assert counted(lake) == {(one.path,)}
    assert {delta.version(lake, each) for each in GOLD} == {1}
    assert {delta.batch(lake, each) for each in GOLD} == {7}
    assert gold_commit.finish(lake) is False


def test_the_same_batch_can_be_looked_at_again(lake):
    one, two = written(lake, "one"), written(lake, "two")
    gold_commit.publish(lake, 7, changes([], [one]))
    gold_commit.publish(lake, 7, changes([one], [two]))
    assert counted(lake) == {(two.path,)}
    assert {delta.revision(lake, each) for each in GOLD} == {2}


def test_files_that_count_no_more_stay_for_who_still_reads_them_and_then_go(lake, monkeypatch):
    one, two, stray = (written(lake, name) for name in ("one", "two", "stray"))
    gold_commit.publish(lake, 1, changes([], [one]))
    gold_commit.publish(lake, 2, changes([one], [two]))
    snapshot.publish(lake)

    def there(file: File) -> set[bool]:
        return {(delta.folder(lake, each) / file.path).exists() for each in GOLD}

    clock = [1000.0]
    monkeypatch.setattr(snapshot.time, "time", lambda: clock[0])
    gold_commit.sweep(lake)
    assert there(one) == there(two) == there(stray) == {True}
    clock[0] += snapshot.READERS_SECONDS
    gold_commit.sweep(lake)
    assert there(one) == there(stray) == {False}
    assert there(two) == {True}


def test_a_table_of_another_version_is_told_by_its_columns_and_can_be_made_anew(lake):
    each = GOLD[0]
    gold_commit.publish(lake, 7, changes([], [written(lake, "one")]))
    reworded = Table(each.name, each.grain, each.schema.set(0, each.schema.field(0).remove_metadata()), "Other words.")
    assert delta.is_outdated(lake, each) is delta.is_outdated(lake, reworded) is False
    assert delta.exchange(lake, reworded, [], [], 8, 2) is True
    older = Table(each.name, each.grain, each.schema.remove(0), each.doc)
    assert delta.is_outdated(lake, older) is True
    delta.recreate(lake, older)
    assert (delta.entries(lake, older), delta.batch(lake, older)) == ([], None)
    assert delta.is_outdated(lake, older) is False


def test_a_damaged_record_is_named(lake):
    journal.write(lake, "gold.json", b"{")
    with pytest.raises(LakeError, match=r"damaged: _wirelake/gold\.json"):
        gold_commit.finish(lake)
