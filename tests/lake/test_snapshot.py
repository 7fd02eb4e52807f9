"""Readers: whole batches or none of it, and nothing is taken out of their hands."""

import threading

import pytest
from tests.lake.empty_lake import fresh_lake
from tests.lake.hashing import hashes
from tests.lake.test_ingest import TALK, blocks

from wirelake.capture.files.identity import identify
from wirelake.errors import LakeError
from wirelake.explore.query import query
from wirelake.lake.decode.decoder import DecodeOptions
from wirelake.lake.jobs.sink import TableWriter
from wirelake.lake.store import commit, delta, journal, snapshot
from wirelake.lake.tables.catalog import GOLD, SILVER, TABLES, table

MESSAGES = table("messages")


@pytest.fixture
def lake(tmp_path):
    made = fresh_lake(tmp_path / "lake")
    snapshot.begin(made)
    return made


@pytest.fixture
def add(lake, recorded, tmp_path):
    """add(number): one more batch of four messages in the silver tables, published to nobody."""

    def one(number: int) -> None:
        source = recorded(tmp_path / f"{number}.pcapng", TALK, 20_000 + number)
        journal.begin(lake, number, [identify(source)])
        task = TableWriter(lake, number, DecodeOptions())
        task.commit([task.write(iter(blocks(source)))])
        journal.done(lake)

    return one


def seen(lake):
    return query(lake, "select count(*) as n from messages").to_pylist()[0]["n"]


def test_a_batch_is_seen_when_it_is_whole(lake, add):
    assert seen(lake) == 0
    add(1)
    assert delta.files(lake, MESSAGES)
    assert seen(lake) == 0
    assert snapshot.publish(lake).number == 2
    assert seen(lake) == 4
    assert snapshot.current(lake).batch("messages") == 1


def test_publishing_what_is_published_changes_nothing(lake, add):
    add(1)
    assert snapshot.publish(lake) == snapshot.publish(lake) == snapshot.current(lake)


@pytest.mark.slow
def test_after_a_crash_between_two_tables_readers_see_what_was_whole_before(lake, add, monkeypatch):
    add(1)
    snapshot.publish(lake)
    before = hashes(lake)
    append = delta.append
    monkeypatch.setattr(delta, "append", lambda at, each, *more: append(at, each, *more) if each is MESSAGES else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        add(2)
    assert delta.dataset(lake, MESSAGES).count_rows() == 8
    assert hashes(lake) == before
    monkeypatch.undo()
    assert commit.recover(lake) is True
    assert hashes(lake) == before
    snapshot.publish(lake)
    assert seen(lake) == 8


@pytest.mark.slow
def test_a_snapshot_stays_what_it_was(lake, add):
    add(1)
    old = snapshot.publish(lake)
    before = hashes(lake, old)
    add(2)
    snapshot.publish(lake)
    assert hashes(lake, old) == before
    assert old.dataset("messages").count_rows() == 4


def test_one_half_is_published_without_the_other(lake, add):
    """A stream publishes messages at once, and what is built from them when it is built."""
    add(1)
    gold = {each.name: delta.version(lake, each) for each in GOLD}
    for each in GOLD:
        delta.exchange(lake, each, [], [], 1, 1)
    halves = [threading.Thread(target=snapshot.publish, args=(lake, half)) for half in (SILVER, GOLD)]
    snapshot.publish(lake, SILVER)
    assert {name: snapshot.current(lake).versions[name] for name in gold} == gold
    for half in halves:
        half.start()
    for half in halves:
        half.join()
    assert snapshot.current(lake).versions == {name: delta.version(lake, each) for name, each in TABLES.items()}


def test_a_table_that_came_later_is_empty_until_it_is_published(lake, add):
    add(1)
    snapshot.publish(lake, [each for each in SILVER if each is not MESSAGES])
    journal.write(lake, "published.json", b'{"number": 3, "versions": {"ledger": 1}}')
    now = snapshot.current(lake)
    assert now.files("messages") == []
    assert now.batch("messages") is None
    assert seen(lake) == 0
    assert now.dataset("ledger").count_rows() > 0


def test_a_lake_that_never_published_anything_is_read_as_it_is(tmp_path, recorded):
    lake = fresh_lake(tmp_path / "lake")
    source = recorded(tmp_path / "a.pcapng", TALK)
    journal.begin(lake, 1, [identify(source)])
    task = TableWriter(lake, 1, DecodeOptions())
    task.commit([task.write(iter(blocks(source)))])
    assert (seen(lake), snapshot.current(lake).number) == (4, 0)


def test_files_that_readers_have_in_hand_stay_and_go_when_their_time_is_up(lake, monkeypatch):
    gold, names = GOLD[0], []

    def replace(number: int) -> None:
        name = f"batch-{number:08d}-x/part.parquet"
        names.append(delta.folder(lake, gold) / name)
        names[-1].parent.mkdir()
        names[-1].write_bytes(b"rows")
        delta.exchange(lake, gold, delta.entries(lake, gold), [delta.File(name, 4, 1)], number, number)

    def there() -> list[bool]:
        return [name.exists() for name in names]

    clock = [1000.0]
    monkeypatch.setattr(snapshot.time, "time", lambda: clock[0])
    replace(1)
    snapshot.publish(lake)
    replace(2)  # and the process dies: nothing is published
    clock[0] += 2 * snapshot.READERS_SECONDS
    assert snapshot.sweep(lake, gold, patience=0) == 0
    replace(3)
    assert snapshot.sweep(lake, gold) == 0
    assert there() == [True, True, True]
    snapshot.publish(lake)
    clock[0] += snapshot.READERS_SECONDS - 1
    assert snapshot.sweep(lake, gold) == 0
    clock[0] += 1
    assert snapshot.sweep(lake, gold) == 1  # what nobody ever read, first seen when 3 came
    assert there() == [True, False, True]
    clock[0] += snapshot.READERS_SECONDS
    assert snapshot.sweep(lake, gold) == 1
    assert there() == [False, False, True]
    assert not names[0].parent.exists()


def test_a_damaged_note_is_named(lake):
    journal.write(lake, "published.json", b"{")
    with pytest.raises(LakeError, match=r"is damaged: _wirelake/published\.json cannot be read"):
        snapshot.current(lake)
    with pytest.raises(LakeError, match="nowhere is not a lake: make one with `wirelake ingest`"):
        snapshot.current(lake / "nowhere")


def test_what_is_left_of_a_dead_ingest_cannot_publish_into_the_next_one(lake, recorded, tmp_path):
    """Spark publishes in a process of its own, which may outlive its driver; numbers of batches are used again."""
    source = recorded(tmp_path / "a.pcapng", TALK)
    journal.begin(lake, 1, [identify(source)], attempt="first")
    left = TableWriter(lake, 1, DecodeOptions(), attempt="first")
    message = left.write(iter(blocks(source)))
    assert commit.recover(lake) is False
    begun = journal.begin(lake, 1, [identify(source)], attempt="second")
    with pytest.raises(LakeError, match="batch 1 belongs to another ingest"):
        left.commit([message])
    assert journal.pending(lake) == begun
    assert delta.files(lake, MESSAGES) == []


def test_what_is_left_of_a_dead_ingest_does_not_take_away_what_another_one_published_for_it(lake, recorded, tmp_path, monkeypatch):
    source = recorded(tmp_path / "a.pcapng", TALK)
    journal.begin(lake, 1, [identify(source)])
    left = TableWriter(lake, 1, DecodeOptions())
    message = left.write(iter(blocks(source)))
    with monkeypatch.context() as patch:
        patch.setattr(delta, "append", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            left.commit([message])
    assert commit.recover(lake) is True
    left.abort([message])
    assert all(path.exists() for path in delta.files(lake, MESSAGES))
    assert delta.dataset(lake, MESSAGES).count_rows() == 4


def test_recovery_waits_for_whoever_is_publishing(lake, add):
    over = threading.Event()

    def recover() -> None:
        commit.recover(lake)
        over.set()

    journal.begin(lake, 1, [])
    waiting = threading.Thread(target=recover)
    with journal.fenced(lake):
        waiting.start()
        assert not over.wait(0.3)
        assert journal.pending(lake) is not None
    waiting.join(30)
    assert over.is_set()
    assert journal.pending(lake) is None


@pytest.mark.parametrize("method", ["files", "batch", "dataset"])
def test_an_unknown_table_is_an_error_that_lists_the_tables(lake, method):
    with pytest.raises(LakeError, match=r"unknown table 'mesages': choose one of messages, .*, topology, runs$"):
        getattr(snapshot.current(lake), method)("mesages")
