"""Commands that write into a folder or file they were given leave alone what they did not make."""

import msgspec
import pytest

from wirelake.cli.demo_folder import MARKER, DemoFolder
from wirelake.errors import LakeError, UsageError
from wirelake.explore.report import is_report
from wirelake.lake.store import delta, journal
from wirelake.lake.store import folder as store_folder
from wirelake.lake.store.parquet import Sheet
from wirelake.lake.tables.catalog import TABLES, table


def tree(folder):
    """Everything below a folder, with contents."""
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def made(out):
    """What one demo leaves behind, without the peers and Spark."""
    folder = DemoFolder(out, fresh=True)
    folder.prepare()
    (folder.recordings / "emp.pcapng").write_bytes(b"recorded")
    folder.recorded()
    journal.initialise(folder.lake)
    for each in TABLES.values():
        delta.create(folder.lake, each)
    _account(folder.lake, folder.recordings / "emp.pcapng", 1)
    folder.report.write_text("<!DOCTYPE html><title>lake · Wirelake report</title>")
    return folder


def _account(lake, path, batch):
    import pyarrow as pa

    row = {
        "source": str(path.absolute()),
        "source_id": path.name.encode()[:8],
        "source_size": 1,
        "offset": 0,
        "length": 1,
        "category": "other",
        "reason": "x",
        "bytes": 1,
        "items": 1,
        "mark": b"",
        "batch": batch,
    }
    sheet = Sheet(lake, table("ledger"), batch)
    sheet.add(pa.RecordBatch.from_pylist([row], schema=table("ledger").schema))
    delta.append(lake, table("ledger"), [sheet.close()], batch)


@pytest.mark.parametrize("name", ["recordings/thesis.txt", "lake/thesis.txt", "report.html"])
@pytest.mark.parametrize("words", [(), ("--no-fresh",)])
def test_the_demo_never_touches_what_no_demo_made(wirelake, no_spark, tmp_path, name, words):
    precious = tmp_path / "out" / name
    precious.parent.mkdir(parents=True)
    precious.write_text("years of work")
    before = tree(tmp_path)
    outcome = wirelake("demo", "-o", tmp_path / "out", *words)
    assert (outcome.code, outcome.out) == (64, b"")
    assert str(precious.relative_to(tmp_path).parts[1]) in outcome.talk
    assert "--out" in outcome.talk
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["recordings/mine.pcapng", "lake/notes.txt"])
def test_files_added_to_the_folders_of_a_demo_keep_the_next_one_from_removing_them(wirelake, no_spark, tmp_path, name):
    made(tmp_path / "out")
    (tmp_path / "out" / name).write_text("mine")
    before = tree(tmp_path)
    outcome = wirelake("demo", "-o", tmp_path / "out")
    assert outcome.code == 64
    assert name in outcome.talk
    assert tree(tmp_path) == before


def test_a_demo_lake_with_captures_of_others_is_not_removed(tmp_path):
    folder = made(tmp_path / "out")
    _account(folder.lake, tmp_path / "mine.pcap", 2)
    with pytest.raises(UsageError, match=r"mine\.pcap was not made by the demo"):
        DemoFolder(tmp_path / "out", fresh=True)
    assert DemoFolder(tmp_path / "out", fresh=False).recordings == tmp_path / "out" / "recordings-2"


def test_a_demo_replaces_the_last_one_and_leaves_other_files(tmp_path):
    out = tmp_path / "out"
    made(out)
    (out / "notes.txt").write_text("mine")
    again = DemoFolder(out, fresh=True)
    again.prepare()
    assert sorted(path.name for path in out.iterdir()) == [MARKER, "notes.txt", "recordings", "report.html"]
    assert list(again.recordings.iterdir()) == []


def test_a_demo_that_was_killed_is_replaced(tmp_path):
    folder = DemoFolder(tmp_path / "out", fresh=True)
    folder.prepare()
    (folder.recordings / "half.pcapng").write_bytes(b"half")
    again = DemoFolder(tmp_path / "out", fresh=True)
    again.prepare()
    assert list(again.recordings.iterdir()) == []


def test_a_marker_leads_out_of_no_folder(tmp_path):
    out, precious = tmp_path / "out", tmp_path / "precious"
    precious.mkdir()
    out.mkdir()
    (out / MARKER).write_bytes(msgspec.json.encode({"folders": ["../precious", str(precious)], "recordings": None}))
    DemoFolder(out, fresh=True).prepare()
    assert precious.is_dir()


def test_a_folder_of_others_does_not_become_a_lake(wirelake, no_spark, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    (tmp_path / "x.pcapng").write_bytes(b"x")
    before = tree(tmp_path)
    for words in (("x.pcapng",), ("--follow", tmp_path)):
        outcome = wirelake("ingest", tmp_path / "photos", *(tmp_path / word if word == "x.pcapng" else word for word in words))
        assert (outcome.code, outcome.out) == (1, b"")
        assert "photos is no lake, and not empty (cat.jpg is there)" in outcome.talk
        assert tree(tmp_path) == before


def test_a_lake_may_be_made_where_nothing_is_or_where_making_one_was_interrupted(tmp_path):
    store_folder.claim(tmp_path / "new" / "lake")
    store_folder.claim(tmp_path)
    (tmp_path / "lost+found").mkdir()
    (tmp_path / journal.FOLDER).mkdir()
    (tmp_path / journal.FOLDER / journal.DRAFT).touch()
    store_folder.claim(tmp_path)
    journal.initialise(tmp_path)
    (tmp_path / "notes.txt").touch()
    store_folder.claim(tmp_path)
    assert store_folder.foreign(tmp_path) == [tmp_path / "notes.txt"]
    (tmp_path / journal.FOLDER / "format.json").rename(tmp_path / journal.FOLDER / "strange")
    with pytest.raises(LakeError, match=r"is no lake, and not empty"):
        store_folder.claim(tmp_path)


@pytest.mark.slow
def test_a_report_replaces_a_report_and_nothing_else(wirelake, tmp_path):
    journal.initialise(tmp_path / "lake")
    letter = tmp_path / "letter.html"
    letter.write_text("<title>Dear</title>")
    outcome = wirelake("report", tmp_path / "lake", "-o", letter)
    assert (outcome.code, letter.read_text()) == (64, "<title>Dear</title>")
    assert "--force" in outcome.talk
    assert wirelake("report", tmp_path / "lake", "-o", letter, "--force").code == 0
    assert is_report(letter)
    assert wirelake("report", tmp_path / "lake", "-o", letter).code == 0
    assert wirelake("report", tmp_path / "lake").code == 0
    assert is_report(tmp_path / "lake" / "report.html")
