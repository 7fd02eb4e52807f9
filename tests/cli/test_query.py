"""`wirelake query`: what is printed is bounded, streamed, and safe to look at, to copy and to open in a spreadsheet."""

import csv
import io
import json
from pathlib import Path

import pytest
from tests.explore.conftest import fill as fill  # noqa: PLC0414 - the fixture, for this folder, too
from tests.explore.rows import message

from wirelake.errors import UsageError

HOSTILE = "=cmd|' /C calc'!A0\x1b[2J\u202e\r\nrow 2\x9b"
SESSION = bytes.fromhex("00ff" * 8)


@pytest.fixture(scope="module")
def lake(fill, tmp_path_factory) -> Path:
    """A lake with a few messages that a peer meant ill with, and one that is large."""
    rows = [message(number, session_id=SESSION, name=HOSTILE, size=2**33) for number in range(150)]
    rows[3]["body"] = bytes(1 << 20)
    return fill(tmp_path_factory.mktemp("query") / "lake", {"messages": rows})


def test_a_large_cell_is_cut_and_makes_no_other_row_wider(wirelake, lake):
    """One body of a megabyte made each of its rows two megabytes long: 19 GB for a lake of 10 MB."""
    outcome = wirelake("query", lake, "messages")
    lines = outcome.out.decode().splitlines()
    assert (outcome.code, len(lines), outcome.talk) == (0, 152, "150 rows\n")
    assert len(outcome.out) < 152 * 1200
    assert any("000…" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "shown"), [("10", "0" * 9 + "…"), ("1", "…"), ("0", "0" * (2 << 20))])
def test_how_wide_a_cell_may_be_is_an_option(wirelake, lake, width, shown):
    sql = "select body from messages where body is not null"
    assert wirelake("query", lake, sql, "--width", width).out.decode().splitlines()[2] == shown


def test_a_cell_that_just_fits_is_whole(wirelake, lake):
    for text in ("0123456789", "été 6789é!", "\n234567890"[:9]):
        shown = wirelake("query", lake, f"select '{text}' as x", "--width", "10").out.decode().splitlines()[2]
        assert shown == text.replace("\n", "\\n")


def test_columns_are_as_wide_as_the_first_rows_and_nothing_is_lost_after(wirelake, lake):
    sql = "select case when i = 120 then 'a wider cell' else 'x' end as a, i as b from range(130) as t(i) order by i"
    lines = wirelake("query", lake, sql).out.decode().splitlines()
    assert (lines[0], lines[1], lines[2]) == ("a  b", "-  --", "x  0")
    assert lines[122] == "a wider cell  120"
    assert lines[131] == "x  129"


def test_rows_are_printed_while_they_are_computed(wirelake, lake, monkeypatch):
    """A reader that has seen enough ends a query of a billion rows."""
    printed = []

    def enough(text, **_):
        printed.append(text)
        if len(printed) == 1000:
            raise UsageError("enough")

    monkeypatch.setattr("builtins.print", enough)
    assert wirelake("query", lake, "select * from range(1000000000)", "-T", "json").code == 64
    assert printed[1000:] == ["wirelake: enough"]


def test_a_count_goes_into_the_query(wirelake, lake):
    outcome = wirelake("query", lake, "select i from range(100000000000) as t(i)", "-c", "2", "-T", "json")
    assert outcome.out.splitlines() == [b'{"i":0}', b'{"i":1}']


def test_a_sum_of_integers_is_a_number(wirelake, lake):
    (line,) = wirelake(
        "query", lake, "select sum(size) as n, 1.5::decimal(9,2) as d, max(size) as m from messages", "-T", "json"
    ).out.splitlines()
    assert line == b'{"n":1288490188800,"d":1.50,"m":8589934592}'


def test_columns_of_one_name_are_both_there(wirelake, lake):
    sql = "select 1 as x, 2 as x, 3 as x_1"
    assert json.loads(wirelake("query", lake, sql, "-T", "json").out) == {"x": 1, "x_1": 2, "x_1_1": 3}
    assert wirelake("query", lake, sql, "-T", "csv").out.splitlines() == [b"x,x,x_1", b"1,2,3"]


@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_nothing_a_peer_sent_acts_on_a_terminal(wirelake, lake, form):
    shown = wirelake("query", lake, "select name, [name] as names from messages limit 2", "-T", form).out.decode()
    assert not [each for each in shown if not each.isprintable() and each not in "\r\n"]
    assert len(shown.splitlines()) == {"text": 4, "json": 2, "csv": 3}[form]
    if form == "json":
        assert json.loads(shown.splitlines()[0])["name"] == HOSTILE


def test_a_spreadsheet_runs_no_cell_and_numbers_stay_numbers(wirelake, lake):
    sql = "select name, -5 as n, '-5' as t, '-5+2' as f, '@x' as at, '\t=1' as tab, -1.5 as d, null as nothing from messages limit 1"
    header, row = csv.reader(io.StringIO(wirelake("query", lake, sql, "-T", "csv").out.decode(), newline=""))
    assert header == ["name", "n", "t", "f", "at", "tab", "d", "nothing"]
    assert row[0].startswith("'=cmd")
    assert row[1:] == ["-5", "-5", "'-5+2", "'@x", "\\t=1", "-1.5", ""]
    assert wirelake("query", lake, 'select 1 as "=1+1"', "-T", "csv").out.startswith(b"'=1+1")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_an_id_copied_from_output_works_in_where(wirelake, lake, form):
    assert SESSION.hex() in wirelake("query", lake, "messages", "-c", "1", "-T", form).out.decode()
    found = wirelake("query", lake, f"select count(*) as n from messages where session_id = '{SESSION.hex()}'", "-T", "json")
    assert json.loads(found.out) == {"n": 150}


@pytest.mark.slow
def test_sql_comes_from_standard_input_or_a_file(wirelake, lake, tmp_path):
    (tmp_path / "q.sql").write_text("-- how many\nselect\n\tcount(*)\nas n from messages;\n")
    text = (tmp_path / "q.sql").read_bytes()
    for words, stdin in ((("-f", tmp_path / "q.sql"), b""), (("-",), text), (("-f", "-"), b"\xef\xbb\xbf" + text)):
        assert json.loads(wirelake("query", lake, *words, "-T", "json", stdin=stdin).out) == {"n": 150}
    assert wirelake("query", lake, "-", "-c", "1", stdin=b"event-mesh\n").code == 0, "the name of a table will do, in either spelling"


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        ((), 64, "give exactly one of: SQL"),
        (("sessions", "-f", "x"), 64, "give exactly one of: SQL"),
        (("-f", "no-such-file.sql"), 66, "no-such-file.sql"),
        (("mesages",), 64, "messages"),
        (("select",), 64, "messages"),
        (("select 1; select 2",), 64, "one statement"),
        (("drop view messages",), 64, "only read"),
        (("select '\x1b' || x",), 64, "not found"),
    ],
)
def test_a_wrong_question_is_told_in_one_line(wirelake, lake, words, code, complaint):
    outcome = wirelake("query", lake, *words)
    assert (outcome.code, outcome.out, outcome.talk.count("\n")) == (code, b"", 1)
    assert complaint in outcome.talk


def test_sql_that_is_no_text_is_told_with_the_place(wirelake, lake):
    outcome = wirelake("query", lake, "-", stdin=b"select '\xff'")
    assert outcome.code == 64
    assert "byte 8" in outcome.talk


def test_no_lake_is_told_as_a_missing_input(wirelake, tmp_path):
    assert wirelake("query", tmp_path / "nowhere", "sessions").code == 66


def test_a_plan_is_drawn_over_its_lines(wirelake, lake):
    assert wirelake("query", lake, "explain select 1").out.count(b"\n") > 3
