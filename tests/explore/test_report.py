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
from wirelake.explore.summary import TOP, summarise
from wirelake.lake.tables.catalog import TABLES
from wirelake.lake.tables.schema import comment

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
        ("requests", "3 (2 answered)"),
        ("deliveries", "0"),
        ("violations", "3 (2 errors)"),
        ("noted, no violation", "1"),
        ("files", "1"),
        ("bytes", "1,000"),
        ("time span", "1 Mar 2025 12:00:00 UTC, 1 min"),
    ]


@pytest.mark.slow
def test_the_lead_summarises_the_report(page: str) -> None:
    said = Reader(page).text
    assert "1 file was read, 1000 B in all, with 3 messages in 1 session." in said
    assert "3 requests were made: 2 answered." in said
    assert "Rules were broken 3 times. Every byte is accounted for." in said


@pytest.mark.slow
def test_findings_are_grouped_with_their_clause_and_first_place(lake: Path, page: str) -> None:
    first, second, third = summarise(lake).findings
    assert (first.rule, first.count, first.by_client, first.by_server, first.ended) == ("HELLO_REPEATED", 2, 1, 1, 1)
    (example,) = first.examples
    assert (example.source, example.offset, example.length, example.session) == ("/data/a.pcapng", 20, 12, b"s".hex())
    assert (second.rule, second.severity, second.count) == ("PONG_UNSOLICITED", "tolerated", 1)
    assert (third.rule, third.severity, third.origin, third.is_violation) == ("UNUSED_BITS_SET", "info", "ruling", False)
    said = Reader(page).text
    assert re.search("EMP-25 A second hello HELLO_REPEATED error 2 .* a.pcapng byte 20, 12 bytes .* EMP-30 A pong nobody asked for", said)


@pytest.mark.slow
def test_findings_of_severity_info_are_listed_apart_and_not_counted(lake: Path, page: str) -> None:
    said = Reader(page).text
    broken, _, rest = said.partition("Noted, but no violations")
    assert "UNUSED_BITS_SET" not in broken
    assert "EMP-5 Unused bits are sent as zero UNUSED_BITS_SET info ruling 1" in rest
    assert "Only a ruling of Wirelake forbids it" in rest
    assert "Rules were broken 3 times." in said
    assert "2 errors, 1 tolerated" in said
    assert (summarise(lake).headline.violations, summarise(lake).headline.notes) == (3, 1)


@pytest.mark.slow
def test_a_lake_with_nothing_but_notes_says_that_no_rule_was_broken(fill: Callable[..., Path], tmp_path: Path) -> None:
    note = made.violation("SERIALIZER_EMPTY", protocol="yamp", severity="info", origin="ruling")
    said = Reader(report(fill, tmp_path, {"violations": [note], "ledger": made.account("a", 1, {"message": 1})})).text
    assert "No rule was broken." in said
    assert "None: no message breaks a rule of its specification." in said
    assert ("violations", "0") in summary(tmp_path / "lake")


@pytest.mark.slow
def test_every_finding_leads_to_its_session_and_its_rule(fill: Callable[..., Path], tmp_path: Path) -> None:
    """Also to a session that is not among the busiest; and no link leads nowhere."""
    busy = [made.session(bytes([n]), messages_to_server=1000 + n) for n in range(1, TOP + 2)]
    quiet = made.session(b"quiet", source="/data/b.pcapng", offset=77)
    broken = [made.violation("HELLO_REPEATED", session_id=b"quiet"), made.violation("HELLO_REPEATED", session_id=b"gone")]
    packet = {"protocol": "event_mesh", "rule": "STALE", "clause": "EMM-24", "text": "old", "accepted": False}
    packet |= {"session_id": b"quiet", "source": "b.pcapng", "offset": 1, "length": 2}
    rows = {**made.SPOKEN, "sessions": [*busy, quiet], "violations": broken, "security": [packet]}
    page = report(fill, tmp_path, rows)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    targets = re.findall(r'href="#([^"]+)"', page)
    assert set(targets) <= set(ids)
    assert {f"session-{b'quiet'.hex()}", "rule-emp-HELLO_REPEATED", "rule-event_mesh-STALE", "rule-emp-SIZE_OVER_LIMIT"} <= set(targets)
    assert f"session-{b'gone'.hex()}" not in targets
    (row,) = re.findall(rf'<tr id="session-{b"quiet".hex()}">(.*?)</tr>', page)
    assert f"{b'quiet'.hex()} b.pcapng byte 77" in Reader(row).text
    (rule,) = re.findall(r'<tr id="rule-emp-HELLO_REPEATED">(.*?)</tr>', page)
    assert Reader(rule).text.startswith(
        "EMP-25 emp wirelake explain EMP-25 A second hello HELLO_REPEATED A peer sends one hello on a connection. A second one is error 3."
        " The specification itself says so. ends the session"
    )


@pytest.mark.slow
def test_a_rule_shows_few_sessions_and_counts_the_others(fill: Callable[..., Path], tmp_path: Path) -> None:
    broken = [made.violation("HELLO_REPEATED", session_id=bytes([n]), ts=made.at(9 - n), offset=n) for n in range(8)] * 2
    rows = {"violations": broken, "ledger": made.account("a", 1, {"message": 1})}
    (found,) = summarise(fill(tmp_path / "lake", rows)).findings
    assert (found.count, found.sessions, [one.offset for one in found.examples]) == (16, 8, [7, 6, 5])
    assert "and in 5 more sessions" in Reader(write_report(tmp_path / "lake", tmp_path / "page.html").read_text()).text


@pytest.mark.slow
def test_requests_confirmations_and_deliveries_are_counted_separately_by_protocol(fill: Callable[..., Path], tmp_path: Path) -> None:
    called = {"protocol": "wolpertinger"}
    sent = [
        *(made.exchange(latency, protocol="yamp", outcome="returned") for latency in (1000, 3000)),
        made.exchange(5000, protocol="yamp", outcome="failed"),
        made.exchange(None, protocol="yamp", outcome="killed"),
        made.exchange(None, protocol="yamp"),
        made.exchange(2000, **called, outcome="returned"),
        *(made.exchange(100, **called, outcome="confirmed", status="confirmed") for _ in range(3)),
        *(made.delivery(10) for _ in range(99)),
        made.delivery(None),
    ]
    rows = {"exchanges": sent, "sessions": [made.session(protocol="relink")], "ledger": made.account("a", 1, {"message": 1})}
    known = summarise(fill(tmp_path / "lake", rows))
    assert [(one.protocol, one.what, one.count, one.answered, one.failed, one.withdrawn) for one in known.exchanges] == [
        ("yamp", "request", 5, 3, 1, 1),
        ("wolpertinger", "request", 1, 1, 0, 0),
        ("wolpertinger", "confirmation", 3, 3, 0, 0),
        ("relink", "delivery", 100, 99, 0, 0),
    ]
    assert [one.latency and one.latency.p50 for one in known.exchanges] == [3000, 2000, 100, 10]
    first = known.headline
    assert (first.requests, first.answered, first.confirmed, first.deliveries, first.acknowledged) == (9, 4, 3, 100, 99)
    said = Reader(write_report(tmp_path / "lake", tmp_path / "page.html").read_text()).text
    assert "9 requests were made: 4 answered, 3 only confirmed." in said
    assert "100 messages were sent on channels: 99 acknowledged." in said
    assert "yamp requests 1 failed · 1 cancelled or killed · 1 unanswered 5 60.0 % 3 answered 3 ms" in said
    assert "relink deliveries 1 not acknowledged 100 99.0 % 99 acknowledged 10 µs" in said
    assert "100 deliveries 99 acknowledged" in said


@pytest.mark.slow
def test_rates_are_over_active_time(fill: Callable[..., Path], tmp_path: Path) -> None:
    """Two captures with a day between them: the pause is no part of it, the 60 seconds between two messages of one are."""
    times = [0, 0.25, 2, 62, 86_400, 86_402]
    rows = {
        "messages": [made.message(at, protocol="emp") for at in times],
        "metrics": [{"minute": made.at(0), "protocol": "emp", "messages": len(times), "bytes": 60, "errors": 0}],
        "ledger": made.account("a", 1, {"message": 1}),
    }
    known = summarise(fill(tmp_path / "lake", rows))
    assert known.headline.active == 64_000_000
    assert [one.active for one in known.rates] == [64_000_000]
    said = Reader(write_report(tmp_path / "lake", tmp_path / "page.html").read_text()).text
    assert "emp 6 60 B 1 min 4 s 0.094 a second 6 messages" in said
    assert ("time span", "1 Mar 2025 12:00:00 UTC, 1 d 2 s, active for 1 min 4 s") in summary(tmp_path / "lake")


@pytest.mark.slow
def test_traffic_is_listed_by_protocol_and_by_pair(page: str) -> None:
    said = Reader(page).text
    assert "emp 3 80 B 1 min 0.05 a second 2 messages 1" in said
    assert "10.0.0.1 10.0.0.2:5040 emp 1 3 2 → · ← 1 last 1 Mar 2025 12:01:00 1" in said


@pytest.mark.slow
def test_traffic_that_no_protocol_recognises_is_listed_by_server(page: str) -> None:
    shown = re.sub(r"<[^>]+>", " ", page)
    assert re.search(r"10\.0\.0\.9:443 \(tcp\)\s+no protocol begins like this\s+2\s+6\s+1[.,]8", shown)


@pytest.mark.slow
def test_quarantine_shows_the_first_bytes(page: str) -> None:
    said = Reader(page).text
    assert "30 31 32 33 34 35 36 37 38 39 3a 3b 3c 3d 3e 3f 0123456789:;<=>?" in said
    assert "@ABCDEFGHIJKLMNO" in said
    assert "PQRS" not in said  # the 33rd byte and on


@pytest.mark.slow
def test_the_ledger_says_that_all_bytes_are_there(page: str) -> None:
    said = Reader(page).text
    assert "Every byte is accounted for: the ledger of 1 file adds up to 1,000 bytes, and so do the files." in said
    assert "notice alarm" not in page


@pytest.mark.slow
@pytest.mark.parametrize(("message", "found"), [(499, "999"), (501, "1,001")])
def test_a_ledger_that_does_not_add_up_is_loud(fill: Callable[..., Path], tmp_path: Path, message: int, found: str) -> None:
    parts = {"container": 100, "headers": 336, "message": message, "quarantine": 64}
    page = report(fill, tmp_path, {**made.SPOKEN, "ledger": made.account("/data/a.pcapng", 1000, parts)})
    said = Reader(page).text
    assert "The ledger does not add up." in said
    assert f"/data/a.pcapng : {found} of 1,000 bytes accounted for" in said
    assert "Every byte is accounted for" not in said
    assert page.count('class="notice alarm"') == 2


@pytest.mark.slow
def test_every_table_and_column_is_explained_and_folded(page: str) -> None:
    said = Reader(page).text
    assert page.count("<details>") == len(TABLES)
    for table in TABLES.values():
        for field in table.schema:
            assert f"{field.name} " in said
            assert " ".join(re.sub("`", " ", comment(field)).split())[:20] in said


@pytest.mark.slow
def test_long_lists_say_what_they_leave_out(fill: Callable[..., Path], tmp_path: Path) -> None:
    sessions = [made.session(bytes([n]), client_port=n, messages_to_server=n) for n in range(1, TOP + 4)]
    ledger = [row for n in range(TOP + 2) for row in made.account(f"{n}.pcapng", 10 + n, {"message": 10 + n})]
    said = Reader(report(fill, tmp_path, {"messages": [made.message(0)], "sessions": sessions, "ledger": ledger})).text
    assert f"10.0.0.1:{TOP + 3} " in said
    assert "10.0.0.1:3 " not in said
    assert "And 3 more sessions:" in said
    assert "And 2 smaller files." in said


@pytest.mark.slow
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
    timeline = summarise(fill(tmp_path / "lake", rows)).timeline
    assert timeline is not None
    assert timeline.bucket == bucket
    assert sum(n for _, n in timeline.kinds[0].points) == timeline.kinds[0].total == 2
    assert all(timeline.start <= since < timeline.stop for since, _ in timeline.kinds[0].points)
    assert (timeline.stop - timeline.start) // bucket <= 97


def test_latency_is_binned_without_loss(fill: Callable[..., Path], tmp_path: Path) -> None:
    latencies = [0, 1, 9, 10, 100, 999, 1000, 10**6, 40 * 10**6]
    rows = {"exchanges": [made.exchange(one) for one in [*latencies, None]], "ledger": made.account("a", 1, {"message": 1})}
    (asked,) = summarise(fill(tmp_path / "lake", rows)).exchanges
    found = asked.latency
    assert found is not None
    assert (asked.answered, found.p50, found.most) == (9, 100, 40 * 10**6)
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


@pytest.mark.slow
def test_an_empty_lake_has_a_page_that_says_so(fill: Callable[..., Path], tmp_path: Path) -> None:
    said = Reader(report(fill, tmp_path, {})).text
    assert "This lake is empty." in said
    assert "wirelake ingest" in said
    assert summary(tmp_path / "lake")[0] == ("messages", "0")


@pytest.mark.slow
def test_a_lake_without_violations_or_messages_has_a_whole_page(fill: Callable[..., Path], tmp_path: Path) -> None:
    said = Reader(report(fill, tmp_path, {"ledger": made.account("a.pcap", 7, {"other": 7})})).text
    assert "None: no message breaks a rule of its specification." in said
    assert "Empty: every message could be decoded." in said
    assert "There are no messages." in said
    assert "No requests were made, and no messages delivered on channels." in said


@pytest.mark.slow
def test_a_lake_whose_gold_is_old_says_so(fill: Callable[..., Path], tmp_path: Path) -> None:
    said = Reader(report(fill, tmp_path, made.SPOKEN, without=["exchanges", "sessions", "violations"])).text
    assert "exchanges, violations, sessions: older than the messages." in said


# That it stands alone.


@pytest.mark.slow
def test_nothing_is_loaded_and_nothing_runs(page: str) -> None:
    reader = Reader(page)
    assert not reader.tags & {"script", "link", "iframe", "object", "embed", "img", "base", "form"}
    assert not [name for name, _ in reader.attributes if name.startswith("on") or name in ("src", "xlink:href")]
    assert not [value for name, value in reader.attributes if name == "href" and not value.startswith("#")]
    assert set(re.findall(r"https?://[^\"'\s<]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert "url(" not in page


@pytest.mark.slow
def test_text_from_the_wire_never_becomes_markup(fill: Callable[..., Path], tmp_path: Path) -> None:
    said = {"source": HOSTILE, "text": HOSTILE, "clause": HOSTILE}
    place = {"offset": 1, "length": 1}
    rows = {
        "messages": [made.message(0, HOSTILE)],
        "sessions": [made.session(**dict.fromkeys(WORDS, HOSTILE))],
        "exchanges": [made.exchange(5, protocol=HOSTILE)],
        "violations": [made.violation(HOSTILE, severity=HOSTILE, protocol=HOSTILE, origin=HOSTILE, session_id=b"s", **said)],
        "quarantine": [{"reason": HOSTILE, "layer": HOSTILE, "protocol": HOSTILE, "raw": HOSTILE.encode(), **said, **place}],
        "ledger": made.account(f"/data/{HOSTILE}", 3, {"message": 2, "quarantine": 1}),
    }
    page = report(fill, tmp_path, rows)
    reader = Reader(page)
    assert not reader.tags & {"script", "img"}
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    assert all(re.fullmatch(r"#[A-Za-z0-9_-]+", value) for name, value in reader.attributes if name == "href")
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", value) for name, value in reader.attributes if name == "id")
    assert reader.text.count("<script>alert('x')</script>") >= 15
    assert "\u202e" not in page


@pytest.mark.slow
def test_the_same_lake_gives_the_same_page(lake: Path, page: str, tmp_path: Path) -> None:
    assert write_report(lake, tmp_path / "again.html").read_text() == page


@pytest.mark.slow
def test_a_folder_gets_a_file_and_a_path_its_folders(fill: Callable[..., Path], tmp_path: Path) -> None:
    empty = fill(tmp_path / "lake", {})
    assert write_report(empty, tmp_path) == tmp_path / "report.html"
    assert write_report(empty, tmp_path / "new" / "one.html").exists()


@pytest.mark.slow
def test_a_place_that_cannot_be_written_is_one_line(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError, match="cannot be written"):
        write_report(lake, tmp_path / "file" / "report.html")


def test_importing_it_is_light() -> None:
    heavy = {"duckdb", "altair", "pyspark", "deltalake", "pyarrow"}
    program = f"import sys, wirelake.explore.report, wirelake.explore.query; print(*({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip() == ""


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.slow
@pytest.mark.skipif(not BROWSER, reason="no chromium here to render the page: make tools installs it")
def test_a_browser_shows_it_without_complaint(page: str, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page)
    quiet = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update --disable-sync"
    command = [str(BROWSER), *quiet.split(), f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--v=0"]
    command += ["--dump-dom", (tmp_path / "report.html").as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    assert "CONSOLE" not in shown.stderr
    assert shown.stdout.count("<svg") == 6
    assert "Every byte is accounted for" in shown.stdout
