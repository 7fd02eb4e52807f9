"""`wirelake query`: what is printed is bounded, streamed, and safe to look at, to copy and to open in a spreadsheet."""

import csv
import io
import json
import signal
import subprocess
import sys
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


ENDLESS = "select count(*) from range(10000000) a, range(10000000) b where a.range + b.range = 7"
ROWS = "select i, repeat('x', 1000) as wide from range(1000000000) as t(i)"
BEGIN = "import sys; from wirelake.cli import main; main.own_process.mark(); print('ready', flush=True); sys.exit(main.run(sys.argv[1:]))"


def begun(*words: object) -> subprocess.Popen[bytes]:
    """Start a command in a process of its own, up to the moment before it runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - else a background run ignores it
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.05, 0.1, 0.2, 0.3, 0.5, 1.5])
def test_ctrl_c_ends_a_query_at_once_whatever_it_does(lake, seconds):
    """Imports, planning, running: DuckDB does not look for signals while it computes."""
    process = begun("query", lake, ENDLESS)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=20)
    assert (process.returncode, talk) == (130, b"interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_ctrl_c_ends_a_query_that_prints_to_a_reader_who_waits(lake, form):
    process = begun("query", lake, ROWS, "-T", form)
    assert len(process.stdout.read(300_000)) == 300_000
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert process.communicate()[1] == b"interrupted\n"


@pytest.mark.slow
def test_sigterm_ends_a_query_at_once_without_a_word(lake):
    process = begun("query", lake, ENDLESS)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.terminate()
    assert (process.communicate(timeout=20)[1], process.returncode) == (b"", -signal.SIGTERM)


@pytest.mark.slow
def test_no_command_that_reads_a_lake_loads_pandas(lake, tmp_path):
    """It takes half a second, and all that Arrow wants to know is whether it is there."""
    words = [["query", "messages", "-T", form] for form in ("text", "json", "csv")]
    words += [
        ["export", "protocol:emp", "-o", str(tmp_path / f"x.{suffix}")] for suffix in ("csv", "jsonl", "parquet", "html", "otlp.json")
    ]
    words += [["check"], ["diff", "::protocol:emp"], ["report", "-o", str(tmp_path / "report.html")]]
    code = (
        "import json, os, sys; import duckdb, pyarrow; from wirelake.cli import own_process; from wirelake.cli.main import run\n"
        "own_process.mark()\n"
        "def loads(name, *words):\n"
        "    if not os.fork():\n"
        "        code = run([name, sys.argv[1], *words])\n"
        "        os._exit('pandas' in sys.modules or (code if code in (64, 66, 70) else 0))\n"
        "    return os.waitstatus_to_exitcode(os.wait()[1])\n"
        "sys.exit(json.dumps([words for words in json.loads(sys.argv[2]) if loads(*words)]))\n"
    )
    outcome = subprocess.run([sys.executable, "-c", code, str(lake), json.dumps(words)], capture_output=True, timeout=120)
    assert json.loads(outcome.stderr.splitlines()[-1]) == [], outcome.stderr.decode()
