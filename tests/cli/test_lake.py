"""`wirelake demo`, `ingest`, `query` and `report`: the whole way, as a newcomer walks it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from wirelake.errors import LakeError
from wirelake.lake.session.settings import SHORT_SESSION

WIRELAKE = [sys.executable, "-m", "wirelake.cli.main"]
ROOT = Path(__file__).parents[2]
SECONDS = 560
pytestmark = pytest.mark.timeout(600)  # the demo starts Spark


@pytest.fixture(scope="module")
def shown(spark_process, tmp_path_factory):
    """The demo, run once: by the command that README names, if this is an environment that it would use."""
    out = tmp_path_factory.mktemp("demo") / "out"
    is_made = (Path(sys.prefix) / ".lake").exists()
    command = ["make", "demo", f"VENV={sys.prefix}", f"OUT={out}"] if is_made else [*WIRELAKE, "demo", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return out, done


def rows(wirelake, lake, sql: str) -> list[dict]:
    outcome = wirelake("query", lake, sql, "-T", "json")
    assert outcome.code == 0, outcome.talk
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_the_demo_says_what_it_does_and_where_the_report_is(shown):
    out, done = shown
    assert "Java: " in done.stderr
    assert f"report:  {(out / 'report.html').resolve()}" in done.stderr
    assert "messages" in done.stdout
    assert "py4j" not in done.stderr, "what libraries log is for --verbose"
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_every_table_has_something_in_it(shown, wirelake):
    out, _ = shown
    tables = (
        "messages",
        "emp",
        "event_mesh",
        "relink",
        "yamp",
        "wolpertinger",
        "connections",
        "sessions",
        "exchanges",
        "violations",
        "security",
        "metrics",
        "topology",
        "quarantine",
        "ledger",
        "runs",
    )
    for table in tables:
        assert rows(wirelake, out / "lake", f"select count(*) as n from {table}")[0]["n"] > 0, table


def test_every_deliberate_violation_is_found_with_its_clause(shown, wirelake):
    found = {row["clause"] for row in rows(wirelake, shown[0] / "lake", "select distinct clause from violations")}
    assert {"EMP-26", "EMP-27", "EMP-25", "EMP-18", "EMP-16", "EMP-14", "EMP-9", "EMP-37", "EMP-35", "EMP-43", "EMP-24"} - found == set()
    assert {"WOLP-1", "WOLP-5", "WOLP-8", "WOLP-9", "WOLP-16"} - found == set()


def test_what_was_encrypted_is_read_with_the_keys_that_were_logged(shown, wirelake):
    """All but the pieces before the last of a message, and what the hostile peer made up."""
    ends = "encryption is not null and fault is null and coalesce(fragment_index + 1 = fragment_count, true)"
    sealed = rows(wirelake, shown[0] / "lake", f"select decrypted, count(*) as n from wolpertinger where {ends} group by 1")
    assert [row["decrypted"] for row in sealed] == [True]
    called = rows(wirelake, shown[0] / "lake", "select distinct method from wolpertinger where decrypted and method is not null")
    assert {"Price", "Inventory"} <= {row["method"] for row in called}


def test_well_behaved_clients_break_no_rule(shown, wirelake):
    query = "select * from sessions where ended_how = 'bye' and handshake = 'complete' and requests > 2000"
    honest = rows(wirelake, shown[0] / "lake", query)
    assert sorted(session["protocol"] for session in honest) == ["emp"] * 4 + ["relink"] + ["yamp"] * 2
    assert {session["violations"] for session in honest} == {0}


def test_the_ledger_adds_up_to_the_files(shown, wirelake):
    out, _ = shown
    sums = rows(wirelake, out / "lake", "select source, sum(bytes) as total from ledger group by source")
    assert {row["source"]: int(row["total"]) for row in sums} == {
        str(path.resolve()): path.stat().st_size for path in (out / "recordings").glob("*.pcapng")
    }


def test_ingesting_again_changes_nothing_but_the_table_of_runs(shown):
    out, _ = shown

    def logs() -> list[tuple[Path, int]]:
        return sorted((path, path.stat().st_mtime_ns) for path in (out / "lake").glob("*/_delta_log/*.json") if path.parts[-3] != "runs")

    before = logs()
    again = subprocess.run(
        [*WIRELAKE, "ingest", str(out / "lake"), str(out / "recordings")], capture_output=True, text=True, timeout=SECONDS
    )
    assert again.returncode == 0
    assert "nothing new" in again.stderr
    assert logs() == before


def test_rows_are_printed_as_people_and_programs_want_them(shown, wirelake):
    lake = shown[0] / "lake"
    assert wirelake("query", lake, "select 1 as one, 'x' as two", "-T", "csv").out == b"one,two\r\n1,x\r\n"
    assert b"session_id" in wirelake("query", lake, "sessions", "-c", "2").out
    assert len(rows(wirelake, lake, "select ts, body, message_id from messages limit 3")) == 3


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("query", "nowhere", "sessions"), 66, "nowhere"),
        (("report", "nowhere"), 66, "nowhere"),
        (("ingest", "somewhere", "no-such-file.pcap"), 66, "no-such-file.pcap"),
        (("ingest", "somewhere", "."), 66, "no captures"),
        (("ingest", "somewhere", "x", "--port", "emp:1"), 64, "--port"),
        (("ingest", "somewhere", "x", "--conf", "oops"), 64, "--conf"),
        (("demo", "-n", "1"), 64, "100"),
    ],
)
def test_a_wrong_call_is_told_before_anything_starts(wirelake, tmp_path, monkeypatch, words, code, complaint):
    monkeypatch.chdir(tmp_path)
    outcome = wirelake(*words)
    assert (outcome.code, outcome.out) == (code, b"")
    assert complaint in outcome.talk
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_query_names_the_tables(shown, wirelake):
    outcome = wirelake("query", shown[0] / "lake", "select * from mesages")
    assert outcome.code == 64
    assert "messages" in outcome.talk


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "options"),
    [
        ((), SHORT_SESSION["spark.driver.extraJavaOptions"]),
        (("--master", "local[1]"), SHORT_SESSION["spark.driver.extraJavaOptions"]),
        (("--conf", "spark.driver.extraJavaOptions=-Xint"), "-Xint"),
        (("--master", "spark://127.0.0.1:1"), None),
        (("--conf", "spark.master=spark://127.0.0.1:1"), None),
    ],
)
def test_a_small_ingest_starts_a_local_spark_in_haste_unless_told_otherwise(wirelake, tmp_path, monkeypatch, words, options):
    started = []

    def session(_, conf):
        started.append((conf or {}).get("spark.driver.extraJavaOptions"))
        raise LakeError("far enough")

    monkeypatch.setattr("wirelake.lake.session.start.spark_session", session)
    (tmp_path / "small.pcap").write_bytes(b"small")
    outcome = wirelake("ingest", tmp_path / "lake", tmp_path / "small.pcap", *words)
    assert (outcome.code, started) == (1, [options])
