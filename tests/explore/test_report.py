"""The report: what it says, that it stands alone, and that nothing in a lake can become markup."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.explore import rows as made

from wirelake.errors import LakeError
from wirelake.explore.report import summary, write_report
from wirelake.explore.survey import TOP, survey
from wirelake.lake.catalog import TABLES
from wirelake.lake.schema import comment

HOSTILE = "\"><script>alert('x')</script><img src=x onerror=alert(1)>\u202e&amp;</style></svg>"


WORDS = ("client_address", "server_address", "protocol", "transport", "handshake", "ended_how", "ended_by")
"""Columns of `sessions` that hold text."""


class Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that what is opened is closed."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.said: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())


def report(fill: Callable[..., Path], tmp_path: Path, rows: made.Rows, **more: Any) -> str:
    return write_report(fill(tmp_path / "lake", rows, **more), tmp_path / "report.html").read_text()


# What it says.


def test_the_summary_has_the_headline_numbers(lake: Path) -> None:
    assert summary(lake) == [
        ("messages", "3"),
        ("sessions", "1"),
        ("exchanges", "3 (2 answered)"),
        ("violations", "3 (2 grave)"),
        ("files", "1"),
        ("bytes", "1,000"),
        ("time span", "1 Mar 2025 12:00:00 UTC, 1 min"),
    ]


def test_the_lead_tells_it_in_four_sentences(page: str) -> None:
    said = Reader(page).text
    assert "1 file was read, 1000 B in all, with 3 messages in 1 session." in said
    assert "3 requests were made and 66.7 % answered, half of them within 251 ms." in said
    assert "Rules were broken 3 times. Every byte is accounted for." in said


def test_violations_are_grouped_with_their_clause_and_first_place(lake: Path, page: str) -> None:
    first, second = survey(lake).violations
    assert (first.rule, first.count, first.by_client, first.by_server, first.ended) == ("HELLO_REPEATED", 2, 1, 1, 1)
    assert (first.example.source, first.example.offset, first.example.length) == ("/data/a.pcapng", 20, 12)
    assert (second.rule, second.severity, second.count) == ("PONG_UNSOLICITED", "tolerated", 1)
    said = Reader(page).text
    assert re.search("EMP-25 A second hello HELLO_REPEATED grave 2 .* a.pcapng byte 20, 12 bytes EMP-30 A pong nobody asked for", said)


def test_traffic_is_told_by_protocol_and_by_pair(page: str) -> None:
    said = Reader(page).text
    assert "emp in 2 minutes 3 80 B 0.0 a second 3 2 answered 95 % within 500 ms 1" in said
    assert "10.0.0.1 10.0.0.2:5040 emp 1 3 2 → · ← 1 last 1 Mar 2025 12:01:00 1" in said


def test_traffic_that_no_protocol_recognises_is_listed_by_server(page: str) -> None:
    shown = re.sub(r"<[^>]+>", " ", page)
    assert re.search(r"10\.0\.0\.9:443 \(tcp\)\s+no protocol begins like this\s+2\s+6\s+1[.,]8", shown)


def test_quarantine_shows_the_first_bytes(page: str) -> None:
    said = Reader(page).text
    assert "30 31 32 33 34 35 36 37 38 39 3a 3b 3c 3d 3e 3f 0123456789:;<=>?" in said
    assert "@ABCDEFGHIJKLMNO" in said
    assert "PQRS" not in said  # the 33rd byte and on


def test_the_ledger_says_that_all_bytes_are_there(page: str) -> None:
    said = Reader(page).text
    assert "Every byte is accounted for: the ledger of 1 file adds up to 1,000 bytes, and so do the files." in said
    assert "notice alarm" not in page


@pytest.mark.parametrize(("message", "found"), [(499, "999"), (501, "1,001")])
def test_a_ledger_that_does_not_add_up_is_loud(fill: Callable[..., Path], tmp_path: Path, message: int, found: str) -> None:
    parts = {"container": 100, "headers": 336, "message": message, "quarantine": 64}
    page = report(fill, tmp_path, {**made.SPOKEN, "ledger": made.account("/data/a.pcapng", 1000, parts)})
    said = Reader(page).text
    assert "The ledger does not add up." in said
    assert f"/data/a.pcapng : {found} of 1,000 bytes accounted for" in said
    assert "Every byte is accounted for" not in said
    assert page.count('class="notice alarm"') == 2


def test_every_table_and_column_is_explained_and_folded(page: str) -> None:
    said = Reader(page).text
    assert page.count("<details>") == len(TABLES)
    for table in TABLES.values():
        for field in table.schema:
            assert f"{field.name} " in said
            assert " ".join(re.sub("`", " ", comment(field)).split())[:20] in said


def test_long_lists_say_what_they_leave_out(fill: Callable[..., Path], tmp_path: Path) -> None:
    sessions = [made.session(bytes([n]), client_port=n, messages_to_server=n) for n in range(1, TOP + 4)]
    ledger = [row for n in range(TOP + 2) for row in made.account(f"{n}.pcapng", 10 + n, {"message": 10 + n})]
    said = Reader(report(fill, tmp_path, {"messages": [made.message(0)], "sessions": sessions, "ledger": ledger})).text
    assert f"10.0.0.1:{TOP + 3} " in said
    assert "10.0.0.1:3 " not in said
    assert "And 3 more sessions with fewer messages" in said
    assert "And 2 smaller files." in said


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        (0, 1_000),
        (0.05, 1_000),
        (0.5, 10_000),
        (9, 100_000),
        (60, 1_000_000),
        (3600, 60_000_000),
        (86_000, 900_000_000),
        (10**8, 28 * 86_400_000_000),
        (10**9, 364 * 86_400_000_000),
    ],
)
def test_bars_of_the_timeline_fit_its_span(fill: Callable[..., Path], tmp_path: Path, seconds: float, bucket: int) -> None:
    rows = {"messages": [made.message(0), made.message(seconds)], "ledger": made.account("a", 1, {"message": 1})}
    timeline = survey(fill(tmp_path / "lake", rows)).timeline
    assert timeline is not None
    assert timeline.bucket == bucket
    assert sum(n for _, n in timeline.kinds[0].points) == timeline.kinds[0].total == 2
    assert all(timeline.start <= since < timeline.stop for since, _ in timeline.kinds[0].points)
    assert (timeline.stop - timeline.start) // bucket <= 97


def test_latency_is_binned_without_loss(fill: Callable[..., Path], tmp_path: Path) -> None:
    latencies = [0, 1, 9, 10, 100, 999, 1000, 10**6, 40 * 10**6]
    rows = {"exchanges": [made.exchange(one) for one in [*latencies, None]], "ledger": made.account("a", 1, {"message": 1})}
    found = survey(fill(tmp_path / "lake", rows)).latency
    assert found is not None
    assert (found.answered, found.p50, found.most) == (9, 100, 40 * 10**6)
    assert sum(one.count for one in found.bins) == 9
    for latency in latencies:
        assert any(one.low <= max(latency, 1) * 1.000001 and latency < one.high for one in found.bins)


# Lakes that are not as expected.


def test_an_absent_lake_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is not a lake"):
        write_report(tmp_path / "nowhere", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(LakeError, match="is not a lake"):
        summary(tmp_path / "nowhere")


def test_an_empty_lake_has_a_page_that_says_so(fill: Callable[..., Path], tmp_path: Path) -> None:
    said = Reader(report(fill, tmp_path, {})).text
    assert "This lake is empty." in said
    assert "wirelake ingest" in said
    assert summary(tmp_path / "lake")[0] == ("messages", "0")


def test_a_lake_without_violations_or_messages_has_a_whole_page(fill: Callable[..., Path], tmp_path: Path) -> None:
    said = Reader(report(fill, tmp_path, {"ledger": made.account("a.pcap", 7, {"other": 7})})).text
    assert "None: nobody said anything a specification forbids." in said
    assert "Empty: everything that was said could be read." in said
    assert "There are no messages." in said
    assert "No requests were made." in said


def test_a_lake_whose_gold_is_old_says_so(fill: Callable[..., Path], tmp_path: Path) -> None:
    said = Reader(report(fill, tmp_path, made.SPOKEN, without=["exchanges", "sessions", "violations"])).text
    assert "exchanges, violations, sessions: older than the messages." in said


# That it stands alone.


def test_nothing_is_loaded_and_nothing_runs(page: str) -> None:
    reader = Reader(page)
    assert not reader.tags & {"script", "link", "iframe", "object", "embed", "img", "base", "form"}
    assert not [name for name, _ in reader.attributes if name.startswith("on") or name in ("src", "href", "xlink:href")]
    assert set(re.findall(r"https?://[^\"'\s<]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert "url(" not in page


def test_text_from_the_wire_never_becomes_markup(fill: Callable[..., Path], tmp_path: Path) -> None:
    said = {"source": HOSTILE, "text": HOSTILE, "clause": HOSTILE}
    place = {"offset": 1, "length": 1}
    rows = {
        "messages": [made.message(0, HOSTILE)],
        "sessions": [made.session(**dict.fromkeys(WORDS, HOSTILE))],
        "exchanges": [made.exchange(5)],
        "violations": [made.violation(HOSTILE, severity=HOSTILE, **said)],
        "quarantine": [{"reason": HOSTILE, "layer": HOSTILE, "raw": HOSTILE.encode(), **said, **place}],
        "ledger": made.account(f"/data/{HOSTILE}", 3, {"message": 2, "quarantine": 1}),
    }
    page = report(fill, tmp_path, rows)
    reader = Reader(page)
    assert not reader.tags & {"script", "img"}
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    assert reader.text.count("<script>alert('x')</script>") >= 15
    assert "\u202e" not in page


def test_the_same_lake_gives_the_same_page(lake: Path, page: str, tmp_path: Path) -> None:
    assert write_report(lake, tmp_path / "again.html").read_text() == page


def test_a_folder_gets_a_file_and_a_path_its_folders(fill: Callable[..., Path], tmp_path: Path) -> None:
    empty = fill(tmp_path / "lake", {})
    assert write_report(empty, tmp_path) == tmp_path / "report.html"
    assert write_report(empty, tmp_path / "new" / "one.html").exists()


def test_a_place_that_cannot_be_written_is_one_line(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError, match="cannot be written"):
        write_report(lake, tmp_path / "file" / "report.html")


def test_importing_it_is_light() -> None:
    heavy = {"duckdb", "altair", "pyspark", "deltalake", "pyarrow"}
    program = f"import sys, wirelake.explore.report, wirelake.explore.query; print(*({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip() == ""


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(not BROWSER, reason="no chromium here: the page is not rendered")
def test_a_browser_shows_it_without_complaint(page: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page)
    quiet = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update --disable-sync"
    command = [str(BROWSER), *quiet.split(), f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--v=0"]
    command += ["--dump-dom", (tmp_path / "report.html").as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    assert "CONSOLE" not in shown.stderr
    assert shown.stdout.count("<svg") == 6
    assert "Every byte is accounted for" in shown.stdout
