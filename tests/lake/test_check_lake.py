"""`wirelake check`: whatever is not as it should be in a lake is told, and by the right part."""

import json
import os

import pytest
from tests.lake.empty_lake import fresh_lake
from tests.lake.test_ingest import TALK, blocks

from wirelake.capture.files.growing import Offset, Position
from wirelake.capture.files.identity import identify
from wirelake.cli.main import run
from wirelake.lake.decode.decoder import DecodeOptions
from wirelake.lake.jobs.sink import TableWriter
from wirelake.lake.store import delta, journal, snapshot
from wirelake.lake.store.check_lake import CHECKS, check_lake
from wirelake.lake.store.journal import Following
from wirelake.lake.tables.catalog import GOLD, RULES_VERSION, table
from wirelake.lake.tables.index import MINUTE_INDEX

MESSAGES = table("messages")


@pytest.fixture
def made(recorded, tmp_path):
    """A lake with one capture, and empty gold tables as of its batch; made without Spark."""
    lake, source = fresh_lake(tmp_path / "lake"), recorded(tmp_path / "a.pcapng", TALK)
    snapshot.begin(lake)
    journal.begin(lake, 1, [identify(source)])
    task = TableWriter(lake, 1, DecodeOptions())
    task.commit([task.write(iter(blocks(source)))])
    journal.done(lake)
    for each in GOLD:
        delta.exchange(lake, each, [], [], 1, 1)
    journal.write(lake, "edition", str(RULES_VERSION).encode())
    snapshot.publish(lake)
    return lake


def problems(lake):
    return {part.name: part.problems for part in check_lake(lake) if part.problems}


def notes(lake):
    return {part.name: part.notes for part in check_lake(lake) if part.notes}


def test_a_lake_that_is_well_is_found_well_in_every_part(lake, capsys):
    assert problems(lake) == {}
    assert run(["check", str(lake)]) == 0
    out, talk = capsys.readouterr()
    assert out == ""
    assert [line.partition(":")[0] for line in talk.splitlines() if "not be" not in line] == list(CHECKS)


@pytest.mark.slow
def test_what_the_next_ingest_clears_up_is_no_problem(made):
    (delta.folder(made, MESSAGES) / "part-00000009-stray.parquet").write_bytes(b"stray")
    (made / "notes.txt").write_text("mine")
    journal.begin(made, 2, [])
    journal.write(made, "gold.json", b"{}")
    (made / "_wirelake" / "lock").write_text(f"{os.getpid()}\n")
    assert problems(made) == {}
    said = notes(made)
    assert said["journal"] == [
        "batch 2 was begun, and will be dropped if its ingest died",
        "gold tables are being published, or the next ingest finishes that",
        "the lake is being written",
        "notes.txt is in the folder, and no part of the lake",
    ]
    assert said["orphans"][0].startswith("1 files of 5 bytes")


@pytest.mark.slow
def test_gold_that_is_behind_or_of_another_edition_is_told(made):
    journal.write(made, "edition", b"0")
    delta.append(made, table("ledger"), [], 2)
    snapshot.publish(made)
    assert problems(made) == {}
    assert [text.partition(",")[0] for text in notes(made)["gold"]] == [
        "gold tables are as of batch 1",
        "gold tables were built by another version of the rules than " + str(RULES_VERSION) + ": the next ingest builds them",
    ]


def _file(lake, name="messages"):
    return delta.files(lake, table(name))[0]


def _publish(lake, **versions):
    path = lake / "_wirelake" / "published.json"
    known = json.loads(path.read_text())
    path.write_text(json.dumps(known | {"versions": known["versions"] | versions}))


def _twice(lake):
    delta.append(lake, table("emp"), delta.entries(lake, table("emp")), 7)
    copy = _file(lake, "emp").with_name("part-00000007-copy.parquet")
    copy.write_bytes(_file(lake, "emp").read_bytes())
    delta.append(lake, table("emp"), [delta.File(copy.name, copy.stat().st_size, 4)], 8)
    snapshot.publish(lake)


def _followed(lake):
    at = Position("/a.pcapng", b"12345678", 0, at=5)
    journal.remember(lake, Following(Offset((at,)), 1, {"0": "gone"}))


DAMAGES = {
    "a file is gone": (lambda lake: _file(lake).unlink(), "files", "cannot be read: No such file"),
    "a file is cut": (lambda lake: _file(lake).write_bytes(_file(lake).read_bytes()[:-1]), "files", "bytes, the Delta log says"),
    "a file is garbled": (lambda lake: _file(lake).write_bytes(bytes(_file(lake).stat().st_size)), "files", "is damaged"),
    "a version is not there": (lambda lake: _publish(lake, messages=99), "snapshot", "readers are to see version 99"),
    "a table is gone": (lambda lake: (lake / "emp" / "_delta_log").rename(lake / "emp" / "log"), "snapshot", "table emp is gone"),
    "rows are there twice": (_twice, "messages", "table emp has 8 rows, messages 4"),
    "settings are damaged": (lambda lake: journal.write(lake, "settings.json", b"{"), "journal", "settings.json cannot be read"),
    "a source has changed": (lambda lake: (lake.parent / "a.pcapng").write_bytes(b"x"), "ledger", "other contents"),
    "gold is uneven": (
        lambda lake: delta.exchange(lake, GOLD[0], [], [], 0, 2) and snapshot.publish(lake),
        "gold",
        "as of different batches: exchanges 0, violations 1",
    ),
    "a memory is gone": (_followed, "positions", "the memory gone of bucket 0"),
    "following is ahead": (_followed, "positions", "following goes on at byte 5, the ledger ends at 0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_is_told_by_the_part_that_looks_for_it(made, capsys, damage):
    assert problems(made) == {}
    harm, part, complaint = DAMAGES[damage]
    harm(made)
    assert any(complaint in problem for problem in problems(made)[part])
    assert run(["check", str(made)]) == 65
    out, _ = capsys.readouterr()
    assert any(line.startswith(f"{part}: ") and complaint in line for line in out.splitlines())


def test_an_index_that_counts_otherwise_is_told(made):

    delta.recreate(made, MINUTE_INDEX)
    delta.append(made, MINUTE_INDEX, [], 1)
    assert problems(made)["index"] == ["_wirelake/minute_index counts 0 messages, the table messages has 4"]


def test_a_lake_of_which_nothing_was_published_yet_can_be_checked(tmp_path):
    journal.initialise(tmp_path)
    assert problems(tmp_path) == {}
    assert {part.name for part in check_lake(tmp_path)} == CHECKS.keys()
