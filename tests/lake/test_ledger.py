"""`wirelake check --ledger`: a lake that is well is found well, and every kind of damage to its books is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from wirelake.capture.blocks.block import Source
from wirelake.capture.files.identity import KnownFile, mark
from wirelake.cli.main import run
from wirelake.errors import LakeError
from wirelake.lake.decode import accounting
from wirelake.lake.store import check_ledger as store_check_ledger
from wirelake.lake.store import delta
from wirelake.lake.store.check_ledger import check_ledger
from wirelake.lake.tables import ledger

SIZE = 100
SOURCE = Source("a.pcap", b"12345678", SIZE)


def entry(offset: int, length: int, category: str, size: int, reason: str = "why") -> accounting.Entry:
    return accounting.Entry(SOURCE, offset, length, category, reason, b"", size, 1)


def test_a_lake_that_is_well_is_found_well(lake, capsys):
    found = check_ledger(lake)
    assert found.sources > 3
    assert (found.problems, found.gone) == ((), ())
    assert run(["check", str(lake), "--ledger"]) == 0
    assert f"adds up to {found.bytes:,} bytes" in capsys.readouterr().err


def test_a_source_that_is_gone_or_changed_is_told(lake, tmp_path, monkeypatch, capsys):
    told = {"noise.pcap": "gone", "cases.pcapng": "cases.pcapng: has other contents than when it was read"}
    monkeypatch.setattr(store_check_ledger, "_as_it_lies", lambda known: told.get(Path(known.source.path).name, ""))
    found = check_ledger(lake)
    assert [Path(path).name for path in found.gone] == ["noise.pcap"]
    assert found.problems == ("cases.pcapng: has other contents than when it was read",)
    assert run(["check", str(lake), "--ledger"]) == 65
    assert "other contents" in capsys.readouterr().out


def test_files_are_looked_at_where_they_lie(tmp_path):
    path = tmp_path / "a.pcap"
    path.write_bytes(b"content")
    source = store_check_ledger.identify(path)
    known = KnownFile(source, source.size, mark(source, source.size))
    assert store_check_ledger._as_it_lies(known) == ""
    path.write_bytes(b"another")
    assert "other contents" in store_check_ledger._as_it_lies(known)
    path.unlink()
    assert store_check_ledger._as_it_lies(known) == "gone"


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ([entry(0, 100, "container", 40), entry(0, 100, "message", 60)], None),
        ([entry(0, 50, "container", 50), entry(50, 50, "message", 50)], None),
        ([entry(0, 100, "container", 130), entry(0, 100, "container", -30, "spared by compression")], None),
        ([entry(0, 100, "container", 40), entry(0, 100, "message", 59)], "accounts for 99 of 100 bytes at byte 0"),
        ([entry(0, 100, "container", 40), entry(0, 100, "message", 61)], "accounts for 101 of 100 bytes at byte 0"),
        ([entry(0, 50, "container", 50), entry(60, 40, "message", 40)], "goes on at byte 60 after byte 50"),
        ([entry(0, 60, "container", 60), entry(50, 50, "message", 50)], "goes on at byte 50 after byte 60"),
        ([entry(0, 60, "container", 60)], "accounts for 60 of 100 bytes"),
        ([entry(10, 90, "container", 90)], "goes on at byte 10 after byte 0"),
        ([], "accounts for 0 of 100 bytes"),
    ],
)
def test_spans_touch_and_are_accounted_for_in_full(entries, complaint):
    if complaint is None:
        accounting.balance([SOURCE], accounting.rows(entries))
        return
    with pytest.raises(LakeError, match=complaint):
        accounting.balance([SOURCE], accounting.rows(entries))


def test_sources_nobody_read_are_strange():
    with pytest.raises(LakeError, match="3132333435363738"):
        accounting.balance([], accounting.rows([entry(0, 100, "container", 100)]))


def test_books_of_many_tasks_become_one():
    one = accounting.rows([entry(0, 100, "message", 10, "emp"), entry(0, 100, "container", 30)])
    other = accounting.rows([entry(0, 100, "message", 60, "emp")])
    merged = accounting.merge([one, other]).to_pylist()
    assert [(row["category"], row["reason"], row["bytes"], row["items"]) for row in merged] == [
        ("container", "why", 30, 1),
        ("message", "emp", 70, 2),
    ]
    assert accounting.merge([]).num_rows == 0


def damaged(lake: Path, tmp_path: Path, table: str, change) -> Path:
    """A copy of a lake with one table's file written anew."""
    copy = tmp_path / "lake"
    shutil.copytree(lake, copy)
    for path in delta.files(
        copy,
        next(one for one in (ledger.TABLE, store_check_ledger.messages.TABLE, store_check_ledger.quarantine.TABLE) if one.name == table),
    ):
        rows = pa.parquet.read_table(path)
        pa.parquet.write_table(change(rows), path)
    return copy


@pytest.mark.parametrize(
    ("table", "change", "complaint"),
    [
        ("ledger", lambda rows: rows.filter(pc.not_equal(rows["category"], "message")), "messages has"),
        ("ledger", lambda rows: pa.concat_tables([rows, rows]), "there twice"),
        ("messages", lambda rows: rows.slice(1), "the ledger"),
        ("quarantine", lambda rows: rows.slice(1), "quarantine has"),
    ],
)
def test_tables_and_ledger_must_agree(lake, tmp_path, table, change, complaint):
    import pyarrow.parquet  # noqa: F401 - pa.parquet

    found = check_ledger(damaged(lake, tmp_path, table, change))
    assert any(complaint in problem for problem in found.problems)


@pytest.mark.parametrize("words", [(), ("--ledger",)])
def test_no_lake_is_an_error(tmp_path, capsys, words):
    assert run(["check", str(tmp_path), *words]) == 66
    assert "is not a lake" in capsys.readouterr().err
