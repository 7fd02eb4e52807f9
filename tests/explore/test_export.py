"""`wirelake export`: exactly the selection, in formats that other programs read."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.explore.lakes import lake_of
from tests.explore.rows import at, message
from tests.explore.test_bytes import (
    CAPTURES,
    emp_dialect,
    emp_in_segments,
    emp_recording,
    relink_recording,
    wolpertinger_in_xmpp,
    yamp_in_websockets,
)
from tests.explore.test_read import HELLO, clock

from wirelake.capture.record.recorder import Recorder
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.main import run
from wirelake.errors import UsageError
from wirelake.explore.export import selection
from wirelake.explore.export.export import Comment, Format, IncidentOptions, command, export, format_of, write
from wirelake.explore.model.conditions import EVERYTHING, condition
from wirelake.explore.model.database import Database
from wirelake.explore.query import query
from wirelake.explore.reading.inputs import Reading
from wirelake.explore.reading.records import Message
from wirelake.filters import parse
from wirelake.protocols.kernel import use_plain

CARRIED = (yamp_in_websockets, wolpertinger_in_xmpp)
TSHARK = shutil.which("tshark")


@pytest.fixture(autouse=True, scope="module")
def _plain_scanners() -> Iterator[None]:
    use_plain()
    yield
    use_plain(False)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("export")
    recordings = [emp_recording(folder / "emp.pcapng"), relink_recording(folder / "relink.pcapng")]
    return [*recordings, emp_in_segments(folder / "cut.pcap"), emp_with_two_hellos(folder / "hellos.pcapng")]


def emp_with_two_hellos(path: Path) -> Path:
    """A second hello breaks a rule."""
    with Recorder(path, protocol="emp", clock=clock(1_700_000_500)) as recorder:
        talk = recorder.connection(role="client", local=("127.0.0.1", 40_001), remote=("127.0.0.1", 5040))
        for said in (HELLO, HELLO):
            talk.sent(said)
        talk.received(HELLO)
        talk.closed("error")
    return path


@pytest.fixture(scope="module")
def talks(fill: Callable[..., Path], sources: list[Path]) -> Path:
    """EMP and Relink, recorded and captured, with requests that are not answered and a rule that is broken."""
    return lake_of(fill, sources[0].parent / "lake", sources)


def ids(lake: Path, sql: str) -> list[str]:
    return [str(one) for one in query(lake, sql).column(0).to_pylist()]


@pytest.mark.parametrize(
    ("form", "said"), [("jsonl", "0 of 57 messages"), ("pcapng", "0 packets of 57 messages"), ("html", "0 of 57 messages")]
)
def test_an_empty_export_says_of_how_many_messages(talks: Path, tmp_path: Path, form: str, said: str) -> None:
    assert str(export(talks, "kind:nothing*", None, tmp_path / f"a.{form}")) == said


def test_json_lines_have_every_field_of_exactly_the_selection(talks: Path, tmp_path: Path) -> None:
    done = export(talks, "kind:request", None, tmp_path / "a.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["message_id"] for row in rows] == ids(
        talks, "SELECT message_id FROM messages WHERE kind = 'request' ORDER BY ts, message_id"
    )
    assert (done.count, str(done)) == (len(rows), f"{len(rows)} of 57 messages")
    first = rows[0]
    assert first["fields"]["request_id"] == 1
    assert first["ts"].endswith("Z")
    assert first["from"].count(":") == 1
    assert bytes.fromhex(first["body"])
    assert "emp" not in first


def test_csv_has_a_column_for_each_field_of_the_protocols(talks: Path, tmp_path: Path) -> None:
    export(talks, "", None, tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["message_id"] for row in rows] == ids(talks, "SELECT message_id FROM messages ORDER BY ts, message_id")
    assert {"emp.request_id", "relink.channel_id_size", "rules", "to"} <= set(rows[0])
    asked = {row["emp.request_id"] for row in rows if row["protocol"] == "emp" and row["kind"] == "request"}
    assert asked >= {"1", "2"}
    assert {row["emp.request_id"] for row in rows if row["protocol"] == "relink"} == {""}


def test_parquet_has_the_types_of_the_lake(talks: Path, tmp_path: Path) -> None:
    export(talks, "", None, tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.num_rows == len(ids(talks, "SELECT message_id FROM messages"))
    assert str(table.schema.field("message_id").type) == "binary"
    assert str(table.schema.field("ts").type) == "timestamp[us, tz=UTC]"
    own = table.column("relink").to_pylist()
    assert [one is not None for one in own] == [name == "relink" for name in table.column("protocol").to_pylist()]


def test_a_selection_is_read_in_slices_without_a_gap(fill: Callable[..., Path], tmp_path: Path) -> None:
    """Bursts at one time, sparse times, and messages without a time."""
    seconds = [0.0] * 40 + [0.5 + index / 1000 for index in range(30)] + [86_400.0 * index for index in range(1, 20)]
    rows = [message(when, message_id=b"%016d" % index, protocol="emp", size=100) for index, when in enumerate(seconds)]
    rows += [message(0, message_id=b"x%015d" % index, protocol="emp", size=100, ts=None) for index in range(25)]
    lake = fill(tmp_path / "lake", {"messages": rows})
    with Database(lake) as database, database.connection() as connection:
        cuts = list(selection.slices(connection, EVERYTHING, rows=7, octets=1 << 30))
        assert cuts[-1] == (None, None)
        timed = [(cut.begin, cut.end) for cut in cuts[:-1]]
        assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(timed))
        assert len(list(selection.slices(connection, EVERYTHING, rows=1000, octets=500))) > 10
        found = [row for table in selection.tables(connection, EVERYTHING, [], rows=7) for row in table.to_pylist()]
    assert [row["message_id"] for row in found] == [
        row["message_id"] for row in sorted(rows, key=lambda each: (each["ts"] or at(1e9), each["message_id"]))
    ]


def test_a_selection_of_nothing_is_a_valid_file(talks: Path, tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.csv", "a.parquet", "a.pcapng", "a.otlp.json", "a.html"):
        assert export(talks, "subject:nothing-like-this", None, tmp_path / name).count == 0
    assert (tmp_path / "a.jsonl").read_text() == ""
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 1
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 0
    assert json.loads((tmp_path / "a.otlp.json").read_text()) == {"resourceSpans": []}
    assert packets_of(tmp_path / "a.pcapng") == []


# pcapng.


def frames_of(path: Path) -> list[tuple[bytes | None, str]]:
    from wirelake.explore.reading.engine import ReadOptions

    reading = Reading(ReadOptions(whole=True, raw=True))
    return sorted((one.raw, one.sender) for one in reading.read([str(path)]) if isinstance(one, Message))


@pytest.mark.parametrize("capture", [one for one in CAPTURES if one not in (emp_dialect, *CARRIED)], ids=lambda each: each.__name__)
def test_everything_exported_as_a_capture_reads_as_the_same_messages(fill: Callable[..., Path], tmp_path: Path, capture: Any) -> None:
    source = capture(tmp_path / "a.pcap")
    lake = lake_of(fill, tmp_path / "lake", [source])
    done = export(lake, "", None, tmp_path / "out.pcapng")
    assert not done.notes
    assert frames_of(tmp_path / "out.pcapng") == frames_of(source)


@pytest.mark.parametrize("capture", CARRIED, ids=lambda each: each.__name__)
def test_packets_of_a_carrier_are_those_of_the_source(fill: Callable[..., Path], tmp_path: Path, capture: Any) -> None:
    """The packets that open a WebSocket or an XMPP stream carry no message: they are not part of a selection."""
    source = capture(tmp_path / "a.pcap")
    lake = lake_of(fill, tmp_path / "lake", [source])
    assert not export(lake, "", None, tmp_path / "out.pcapng").notes
    there, here = (packets_of(path) for path in (source, tmp_path / "out.pcapng"))
    assert 0 < len(here) < len(there)
    assert set(here) <= set(there)


def packets_of(path: Path) -> list[tuple[int, bytes]]:
    from wirelake.capture.containers.records import DATA, KIND, RECORD_PACKET, SIZE, TS
    from wirelake.capture.containers.walk import Walk
    from wirelake.capture.files.identity import identify
    from wirelake.capture.files.source_file import open_source

    source, found = identify(path), []
    with open_source(source) as file:
        for step in Walk(source.path, file).steps():
            for row in step.rows[step.rows[:, KIND] == RECORD_PACKET].tolist():
                found.append((row[TS], step.data[row[DATA] : row[DATA] + row[SIZE]]))
    return found


def test_a_recording_gives_one_record_for_each_selected_message(talks: Path, tmp_path: Path) -> None:
    done = export(talks, "kind:request source:*emp.pcapng", None, tmp_path / "a.pcapng")
    found = [one for one in Reading().read([str(tmp_path / "a.pcapng")]) if isinstance(one, Message)]
    assert {one.kind for one in found} == {"request"}
    expected = ids(talks, "SELECT body FROM messages WHERE kind = 'request' AND source LIKE '%emp.pcapng' ORDER BY ts, message_id")
    assert [str(one.body) for one in found] == expected
    assert done.count == len(found)


def test_only_packets_with_bytes_of_selected_messages_are_exported(talks: Path, sources: list[Path], tmp_path: Path) -> None:
    """A message in many segments, in a capture where another connection's packets lie between."""
    export(talks, "source:*cut.pcap host:10.0.0.3 kind:request", None, tmp_path / "a.pcapng")
    found = [one for one in Reading().read([str(tmp_path / "a.pcapng")]) if isinstance(one, Message)]
    assert {one.ends.hosts[0] for one in found} == {"10.0.0.3"}
    assert {one.to_server for one in found} == {True}
    wanted = ids(
        talks,
        "SELECT md5(body) FROM messages WHERE kind = 'request' AND source LIKE '%cut.pcap' AND session_id IN"
        " (SELECT session_id FROM sessions WHERE client_address = '10.0.0.3')",
    )
    assert len(wanted) == 2
    assert (tmp_path / "a.pcapng").stat().st_size < sources[2].stat().st_size / 2


def test_records_of_several_sources_are_in_order_of_time(talks: Path, tmp_path: Path) -> None:
    export(talks, "", None, tmp_path / "a.pcapng")
    times = [ts for ts, _ in packets_of(tmp_path / "a.pcapng")]
    assert len(times) > 40
    assert times == sorted(times)


@pytest.mark.parametrize("harm", ["gone", "changed"])
def test_without_its_source_a_message_is_exported_by_its_body(
    fill: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], harm: str
) -> None:
    source = emp_recording(tmp_path / "emp.pcapng")
    lake = lake_of(fill, tmp_path / "lake", [source])
    if harm == "gone":
        source.unlink()
    else:
        relink_recording(tmp_path / "other.pcapng").replace(source)
    assert run(["export", str(lake), "kind:request", "-o", str(tmp_path / "a.pcapng")]) == ExitCode.OK
    assert "only a body" in capsys.readouterr().err
    data = (tmp_path / "a.pcapng").read_bytes()
    for body in query(lake, "SELECT body FROM messages WHERE kind = 'request'").column(0).to_pylist():
        assert body in data
    assert [one for one in Reading().read([str(tmp_path / "a.pcapng")]) if isinstance(one, Message)] == []


@pytest.mark.skipif(TSHARK is None, reason="tshark is not installed")
def test_tshark_opens_an_export(talks: Path, sources: list[Path], tmp_path: Path) -> None:
    done = export(talks, "", None, tmp_path / "a.pcapng")
    shown = subprocess.run(
        [str(TSHARK), "-r", tmp_path / "a.pcapng", "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.protocols", "-e", "tcp.payload"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = [line.split("\t") for line in shown.stdout.splitlines()]
    assert len(lines) == done.count
    assert sum("tcp" in line[1].split(":") for line in lines) > 10
    assert any("exported_pdu" in line[1] for line in lines)
    assert [float(line[0]) for line in lines] == sorted(float(line[0]) for line in lines)
    assert "Malformed" not in shown.stdout + shown.stderr


@pytest.mark.skipif(TSHARK is None, reason="tshark is not installed")
def test_tshark_shows_bodies_as_data(fill: Callable[..., Path], tmp_path: Path) -> None:
    source = emp_recording(tmp_path / "emp.pcapng")
    lake = lake_of(fill, tmp_path / "lake", [source])
    source.unlink()
    export(lake, "kind:request", None, tmp_path / "a.pcapng")
    shown = subprocess.run(
        [str(TSHARK), "-r", tmp_path / "a.pcapng", "-T", "fields", "-e", "_ws.col.Protocol", "-e", "data.data"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = [line.split("\t") for line in shown.stdout.splitlines()]
    bodies = query(lake, "SELECT hex(body) FROM messages WHERE kind = 'request' ORDER BY ts, message_id").column(0).to_pylist()
    assert [line[1].upper() for line in lines] == bodies
    assert {line[0] for line in lines} == {"EMP"}
    assert (tmp_path / "a.pcapng").read_bytes().count(b"body=only") == len(lines)


# OTLP.


def parsed(path: Path) -> Any:
    """As OpenTelemetry's own messages. OTLP/JSON has ids in hex, where other JSON of protocol buffers has base64."""
    from google.protobuf import json_format
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    loaded = json.loads(path.read_text())
    json_format.ParseDict(loaded, TracesData())  # every name and type is known
    for spans in _span_lists(loaded):
        for span in spans:
            for name in ("traceId", "spanId"):
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return json_format.ParseDict(loaded, TracesData())


def _span_lists(loaded: Any) -> Iterator[list[dict[str, Any]]]:
    for resource in loaded["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield scope["spans"]


def test_exchanges_are_spans_that_opentelemetry_reads(talks: Path, tmp_path: Path) -> None:
    done = export(talks, "", None, tmp_path / "a.otlp.json")
    data = parsed(tmp_path / "a.otlp.json")
    spans = [span for resource in data.resource_spans for scope in resource.scope_spans for span in scope.spans]
    rows = query(talks, "SELECT * FROM exchanges").to_pylist()
    assert len(spans) == len(rows) == done.count
    assert {(len(span.trace_id), len(span.span_id)) for span in spans} == {(16, 8)}
    assert len({span.span_id for span in spans}) == len(spans)
    latencies = sorted((row["latency_us"] or 0) * 1000 for row in rows)
    assert sorted(span.end_time_unix_nano - span.start_time_unix_nano for span in spans) == latencies
    failed = [span for span in spans if span.status.code == 2]
    assert len(failed) == sum(row["status"] in ("unanswered", "unasked") for row in rows) > 0
    named = [{one.key: one.value for one in span.attributes} for span in spans]
    assert {one["network.protocol.name"].string_value for one in named} == {"emp", "relink"}
    calls = [one for one in named if "rpc.system.name" in one]
    assert {one["server.port"].int_value for one in calls} == {5040}
    assert {one["messaging.operation.type"].string_value for one in named if "messaging.system" in one} == {"send"}
    services = {
        one.value.string_value for resource in data.resource_spans for one in resource.resource.attributes if one.key == "service.name"
    }
    assert "10.0.0.3" in services


def test_spans_have_the_same_ids_every_time(talks: Path, tmp_path: Path) -> None:
    export(talks, "protocol:emp", None, tmp_path / "a.otlp.json")
    export(talks, "protocol:emp", None, tmp_path / "b.otlp.json")
    assert (tmp_path / "a.otlp.json").read_bytes() == (tmp_path / "b.otlp.json").read_bytes()


def test_spans_come_in_pages_without_a_gap(talks: Path) -> None:
    from wirelake.explore.export import otlp

    with Database(talks) as database, database.connection() as connection:
        where = condition(parse(""))
        whole = [one for page in otlp._pages(connection, where) for one in page]
        assert [one for page in otlp._pages(connection, where, rows=2) for one in page] == whole
    assert len(whole) > 6


# HTML.


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_an_incident_has_ladders_rules_and_comments(talks: Path, tmp_path: Path) -> None:
    broken = query(talks, "SELECT message_id, session_id, rule FROM violations WHERE message_id IS NOT NULL").to_pylist()[0]
    about = (
        Comment(broken["message_id"], "look at this one", "Ada", 1_700_000_000_000_000),
        Comment(broken["session_id"], "the session that failed"),
        Comment("", "<script>alert(1)</script>"),
    )
    done = export(talks, "", None, tmp_path / "a.html", incident=IncidentOptions(title="A bad day", comments=about))
    text = (tmp_path / "a.html").read_text()
    page = Page(text)
    assert done.count == len(ids(talks, "SELECT message_id FROM messages")) == page.tags.count("details")
    assert page.tags.count("script") == page.tags.count("img") == page.tags.count("link") == 0
    assert not [name for name, value in page.attributes if name.startswith("on") or name in ("src", "style")]
    assert {(value or "")[:1] for name, value in page.attributes if name == "href"} <= {"#"}
    for shown in ("A bad day", "look at this one", "the session that failed", "<script>alert(1)</script>", broken["rule"], "Ada"):
        assert shown in page.text
    targets = {value for name, value in page.attributes if name == "id"}
    assert {str(value)[1:] for name, value in page.attributes if name == "href"} <= targets
    assert re.search(r"default-src 'none'; style-src 'sha256-[\w+/=]+'", text.replace("&#x27;", "'"))
    assert "00000000" in page.text.replace(" ", "")


def test_an_incident_shows_what_happened_after_the_last_message(talks: Path, tmp_path: Path) -> None:
    """A connection that is closed without a word breaks a rule without a message: it belongs to the whole session only."""
    late = query(talks, "SELECT session_id, rule FROM violations WHERE message_id IS NULL").to_pylist()[0]
    export(talks, f"session:{late['session_id']}", None, tmp_path / "whole.html")
    export(talks, f"session:{late['session_id']} -rule:*", None, tmp_path / "part.html")
    whole, part = (Page((tmp_path / f"{name}.html").read_text()) for name in ("whole", "part"))
    assert whole.text.count(late["rule"]) == 2  # the rule, and its place in the ladder
    assert late["rule"] not in part.text


def test_an_incident_with_too_many_messages_is_an_error(talks: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at most 3"):
        export(talks, "", None, tmp_path / "a.html", incident=IncidentOptions(most=3))
    assert list(tmp_path.iterdir()) == []


# Files.


def test_the_format_is_in_the_name() -> None:
    assert format_of("a.otlp.json") is Format.OTLP
    assert format_of(Path("A.PCAPNG")) is Format.PCAPNG
    with pytest.raises(UsageError, match=r"\.pcapng, \.jsonl"):
        format_of("a.json")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-o", "{tmp}/a.txt"], "must end in one of"),
        (["-o", "-"], "--format"),
        (["-o", "{tmp}/there.csv"], "exists already"),
        (["-o", "{tmp}"], "must end in"),
        (["-o", "{tmp}/a.csv", "number:3"], "no number"),
        (["-o", "{tmp}/a.csv", "kind:nothing"], "never 'nothing'"),
        (["-o", "{tmp}/there.csv", "--force", "-T", "html", "--most", "1"], "at most 1"),
    ],
)
def test_what_cannot_be_exported_leaves_everything_as_it_was(
    talks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    (tmp_path / "there.csv").write_text("mine")
    assert run(["export", str(talks), *(one.format(tmp=tmp_path) for one in arguments)]) == ExitCode.USAGE
    assert text in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["there.csv"]
    assert (tmp_path / "there.csv").read_text() == "mine"


def test_a_source_of_the_lake_is_never_replaced(fill: Callable[..., Path], tmp_path: Path) -> None:
    source = emp_recording(tmp_path / "emp.pcapng")
    lake = lake_of(fill, tmp_path / "lake", [source])
    with pytest.raises(UsageError, match="made of this file"):
        export(lake, "", None, source, overwrite=True)


def test_force_replaces_a_file(talks: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("mine")
    assert run(["export", str(talks), "kind:request", "-o", str(tmp_path / "a.csv"), "--force"]) == ExitCode.OK
    assert (tmp_path / "a.csv").read_text().startswith("message_id,")


def test_an_open_file_is_written_and_left_open(talks: Path) -> None:
    out = io.BytesIO()
    with Database(talks) as database, database.connection() as connection:
        done = write(connection, parse("kind:request"), Format.PARQUET, out)
    assert pq.read_table(io.BytesIO(out.getvalue())).num_rows == done.count
    with pytest.raises(UsageError, match="format"):
        export(talks, "", None, out)


def test_the_command_line_gives_the_same(talks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    monkeypatch.chdir(tmp_path)
    for number, text in enumerate(('subject:"a b" kind:request', "", "-kind:keepalive", "it's")):
        words = shlex.split(command(talks, parse(text), Format.JSONL, f"{number}.jsonl"))
        assert run(words[1:]) == ExitCode.OK
        done = export(talks, text, "jsonl", tmp_path / "same.jsonl", overwrite=True)
        assert (tmp_path / f"{number}.jsonl").read_bytes() == (tmp_path / "same.jsonl").read_bytes()
        assert done.format is Format.JSONL
    assert "export.otlp.json" in command(talks, "", Format.OTLP)


def test_ctrl_c_leaves_nothing(talks: Path, tmp_path: Path) -> None:
    """The process is interrupted while it writes: it waits for a reader of a pipe that a row goes through."""
    script = f"""
import sys, time
from wirelake.explore.export import rows
from wirelake.cli.main import run

def stop(*_):
    print("writing", flush=True)
    time.sleep(60)

rows._put = stop
sys.exit(run(["export", {str(talks)!r}, "-o", {str(tmp_path / "a.csv")!r}]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONWARNINGS": ""}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert [one.suffix for one in tmp_path.iterdir()] == [".part"]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED, said
    assert list(tmp_path.iterdir()) == []
