"""However history is cut into ingests, and in whatever order they come, tables have the same rows; and only what is touched changes."""

from __future__ import annotations

import random
from hashlib import sha256

import pytest
from tests.lake.conftest import CASES, record
from tests.lake.mesh import STORY as MESH
from tests.lake.mesh import record as record_mesh
from tests.lake.relink_sessions import STORY as LINK
from tests.lake.relink_sessions import record as record_relink
from tests.lake.yamp_sessions import record as record_yamp
from tests.protocols.event_mesh.receiving import store

from wirelake.lake.gold.incremental import fold_sessions, judge_security
from wirelake.lake.gold.incremental import refresh as incremental_refresh
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import GOLD, SILVER, table

SPANNING = {name: CASES[name] for name in ("plain", "late", "pings", "id in flight", "spoke after bye", "abnormal close", "still open")}
RECONNECTION = next(at for at, step in enumerate(LINK) if step[1] == "cut") + 1


def recordings(folder):
    """All rooms, in files that cut conversations, a link and a mesh in two and more."""
    folder.mkdir()
    record(folder / "emp.pcapng", SPANNING, max_seconds=1.5)
    record_mesh(folder / "mesh-1.pcapng", MESH[:5])
    record_mesh(folder / "mesh-2.pcapng", MESH[5:-2])
    record_mesh(folder / "mesh-3.pcapng", MESH[-2:])
    record_relink(folder / "link-1.pcapng", LINK[:RECONNECTION])
    record_relink(folder / "link-2.pcapng", LINK[RECONNECTION:], first_port=30_001)
    record_yamp(folder / "yamp.pcapng")
    return sorted(folder.iterdir())


def contents(lake, name):
    """All but the batch, which only the ledger tells."""
    return sorted(
        repr(sorted((key, value) for key, value in row.items() if key != "batch"))
        for row in delta.dataset(lake, table(name)).to_table().to_pylist()
    )


def hashes(lake):
    return {each.name: sha256("\n".join(contents(lake, each.name)).encode()).hexdigest() for each in (*SILVER, *GOLD)}


def files(lake):
    return {each.name: {str(path) for path in delta.files(lake, each)} for each in GOLD}


@pytest.fixture(scope="module")
def at_once(spark, tmp_path_factory):
    """(the files, a lake that got them all at once)."""
    folder = tmp_path_factory.mktemp("at-once")
    paths = recordings(folder / "in")
    ingest(spark, folder / "lake", paths, keys=store())
    return paths, folder / "lake"


def differing(lake, yardstick):
    """Which tables differ, with a few of the rows that do: for whoever has to find out why."""
    one, other = hashes(lake), hashes(yardstick)
    return {name: sorted(set(contents(lake, name)) ^ set(contents(yardstick, name)))[:4] for name in one if one[name] != other[name]}


def test_three_ingests_in_the_wrong_order_give_the_same_tables_as_one(spark, at_once, tmp_path, monkeypatch):
    """The last one divides packets into passes and ranges of keys as if there were many."""
    paths, yardstick = at_once
    assert len([path for path in paths if path.name.startswith("emp")]) > 5
    for part, most in ((paths[2::3], None), (paths[1::3], None), (paths[0::3], 3)):
        if most is not None:
            monkeypatch.setattr(judge_security, "PASS_ROWS", most)
            monkeypatch.setattr(judge_security, "KEY_RANGE_ROWS", most)
        ingest(spark, tmp_path / "lake", part, keys=store())
    assert differing(tmp_path / "lake", yardstick) == {}


def test_what_is_not_touched_keeps_its_files(spark, recorded, tmp_path, monkeypatch):
    """With leaves of ten rows, a second recording of other conversations leaves most files as they are."""
    monkeypatch.setattr(fold_sessions, "KEY_RANGE_ROWS", 10)
    lake = tmp_path / "lake"
    recorded(tmp_path / "many.pcapng", {str(number): CASES["id in flight"] for number in range(60)})
    recorded(tmp_path / "one.pcapng", {"one": CASES["plain"]}, 50_000)
    ingest(spark, lake, [tmp_path / "many.pcapng"])
    before = files(lake)
    ingest(spark, lake, [tmp_path / "one.pcapng"])
    after = files(lake)
    for name in ("exchanges", "violations", "sessions"):
        assert len(before[name]) > 5, name
        assert len(before[name] - after[name]) == 1, name
    assert len(contents(lake, "sessions")) == 61


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(5))
def test_any_cut_in_any_order_gives_the_same_tables(spark, at_once, tmp_path, seed):
    paths, yardstick = at_once
    chance = random.Random(seed)
    mixed = chance.sample(paths, len(paths))
    while mixed:
        part = [mixed.pop() for _ in range(min(len(mixed), chance.choice((1, 1, 2, 5))))]
        ingest(spark, tmp_path / "lake", part, keys=store())
    assert differing(tmp_path / "lake", yardstick) == {}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_keys_that_are_asked_only_of_what_is_touched_say_the_same(spark, at_once, tmp_path, monkeypatch):
    """As for whoever follows live traffic, with the same keys all the time; and one refresh brings in what several batches touched."""
    paths, yardstick = at_once
    refresh = incremental_refresh.refresh
    with monkeypatch.context() as patch:
        patch.setattr(incremental_refresh, "refresh", lambda *_: [])
        ingest(spark, tmp_path / "lake", paths[1::3], keys=store())
        ingest(spark, tmp_path / "lake", paths[2::3], keys=store())
    monkeypatch.setattr(incremental_refresh, "refresh", lambda *args: refresh(*args, judge_all=False))
    ingest(spark, tmp_path / "lake", [paths[0]], keys=store())
    ingest(spark, tmp_path / "lake", paths, keys=store())
    assert differing(tmp_path / "lake", yardstick) == {}
