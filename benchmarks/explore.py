"""What a person waits for in `wirelake explore`: pages, filters, a ladder and bytes, on a lake that this makes.

The lake has messages, sessions, exchanges and violations like those of an ingest: rows of one file are in the order of time, bodies are
JSON. It is made without Spark, and kept in the cache of benchmarks; its size is an argument. A server process is started, as a person
would, and asked over HTTP. Peak memory is that of the server process.

Then it makes a second, small lake of captures that tests write. They have all five protocols: as recordings, in TCP segments that are cut
anywhere, in IP fragments, in WebSocket and XMPP, and compressed. Of `--bytes` random messages it counts those whose bytes on their page
are the bytes that `wirelake read` decodes from the whole file.

`--lake LAKE` measures a lake of your own: then also how many of `--bytes` random messages show bytes that decode to their row.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from figures import show, verdict

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "wirelake-benchmarks"
ROWS = 500_000
"""Messages of one file."""
PAGE = 100
"""Messages of a page."""
FIRST_PAGE_SECONDS, FILTER_SECONDS, LADDER_SECONDS, SERVER_MEGABYTES = 1, 2, 2, 1000
"""The goals."""
LADDER = 10_000
"""Messages of the long session."""
PER_SESSION = 1_000
"""Messages of every other session."""
PROTOCOLS = ("emp", "relink", "yamp", "wolpertinger", "event_mesh")
SUBJECTS = [f"{area}.{what}" for area in ("orders", "stock", "till", "plant") for what in ("new", "count", "price", "state", "closed")]
FEW = ("session_id", "connection_id", "protocol", "direction", "kind", "name", "subject", "status", "source", "rule", "clause", "severity")
"""Columns with few values: decoders give them as dictionaries."""
FILTERS = (
    "protocol:relink",
    "kind:request",
    "subject:orders.*",
    "-kind:event protocol:emp",
    "status:error",
    "status:unanswered",
    "rule:HELLO_REPEATED",
    "latency:>100ms",
    "size:>1k",
    "from:10.0.0.7",
    "port:5040 kind:response",
    "orders",
    "id:4711",
    "subject:*price* status:ok",
    "since:2026-01-01T01:00:00Z until:2026-01-01T01:10:00Z",
    "protocol:yamp -subject:plant.*",
    "severity:error",
    "host:10.0.0.*",
    "nothing-like-this",
    "kind:event,ack size:100..200",
)


def made(count: int) -> Path:
    """A lake with so many messages; made once."""
    from wirelake.lake.store import delta, journal, snapshot
    from wirelake.lake.store.parquet import Sheet
    from wirelake.lake.tables.catalog import TABLES

    lake = CACHE / f"explore-{count}"
    if (lake / "done").exists():
        return lake
    journal.initialise(lake)
    dice = np.random.default_rng(7)
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1e6)
    files: dict[str, list[Any]] = {name: [] for name in TABLES}
    for table in TABLES.values():
        delta.create(lake, table)
    for number, first in enumerate(range(0, count, ROWS)):
        for name, batch in _file(dice, first, min(ROWS, count - first), start, number).items():
            sheet = Sheet(lake, TABLES[name], 1, name=f"part-00000001-{number:032x}.parquet")
            for piece in range(0, batch.num_rows, 65_536):
                sheet.add(batch.slice(piece, 65_536))
            files[name].append(sheet.close())
        print(f"\rmaking a lake: {min(first + ROWS, count):,} messages", end="", file=sys.stderr)
    print(file=sys.stderr)
    for name, written in files.items():
        delta.append(lake, TABLES[name], [one for one in written if one], 1)
    snapshot.publish(lake)
    (lake / "done").touch()
    return lake


def _ids(source: int, offsets: Any) -> pa.Array:
    """Message ids: the id of the source, then the offset."""
    raw = np.empty((len(offsets), 2), ">u8")
    raw[:, 0], raw[:, 1] = source + 1, offsets
    return pa.Array.from_buffers(pa.binary(16), len(offsets), [None, pa.py_buffer(raw.tobytes())]).cast(pa.binary())


def _file(dice: Any, first: int, count: int, start: int, number: int) -> dict[str, pa.RecordBatch]:
    """The rows of one file: requests and answers of many sessions, one after the other in time."""
    from wirelake.lake.tables.catalog import TABLES

    at = np.arange(first, first + count)
    session = np.where(at < LADDER, 0, at // PER_SESSION + 1)
    sessions = np.unique(session)
    session_ids = _ids(1 << 40, session)
    protocol = pa.array(np.array(PROTOCOLS)[session % len(PROTOCOLS)])
    is_request = at % 2 == 0
    ids = _ids(number, at * 150)
    ts = pa.array(start + at * 1000 + dice.integers(0, 500, count), pa.timestamp("us", "UTC"))
    subject = pa.array(np.array(SUBJECTS)[dice.integers(0, len(SUBJECTS), count)])
    size = dice.integers(60, 1200, count)
    bodies = pa.array([b'{"id": %d, "item": "tea", "note": "%s"}' % (one, b"x" * (one % 90)) for one in at.tolist()], pa.binary())
    status = pa.array(np.where(dice.random(count) < 0.001, "error", "ok"))
    source = pa.array([f"/captures/{number}.pcapng"] * count)
    messages = {
        "message_id": ids,
        "session_id": session_ids,
        "connection_id": session_ids,
        "ts": ts,
        "protocol": protocol,
        "direction": pa.array(np.where(is_request, "to_server", "to_client")),
        "kind": pa.array(np.where(at % 5 == 4, "event", np.where(is_request, "request", "response"))),
        "name": pa.array(np.where(is_request, "request", "response")),
        "subject": subject,
        "correlation_id": pa.array((at // 2).astype(str)),
        "size": pa.array(size),
        "status": status,
        "body": bodies,
        "source": source,
        "offset": pa.array(at * 150),
        "length": pa.array(size),
    }
    asked, said = np.flatnonzero(is_request), np.flatnonzero(~is_request)
    pairs = min(len(asked), len(said))
    asked, said = asked[:pairs], said[:pairs]
    lost = dice.random(pairs) < 0.0005
    latency = (dice.pareto(2.5, pairs) * 2000).astype(np.int64)
    exchanges = {
        "session_id": session_ids.take(pa.array(asked)),
        "protocol": protocol.take(pa.array(asked)),
        "kind": pa.array(["request"] * pairs),
        "correlation_id": pa.array((at[asked] // 2).astype(str)),
        "subject": subject.take(pa.array(asked)),
        "request_message_id": ids.take(pa.array(asked)),
        "response_message_id": ids.take(pa.array(said, mask=lost)),
        "requested": ts.take(pa.array(asked)),
        "answered": ts.take(pa.array(said, mask=lost)),
        "latency_us": pa.array(latency, mask=lost),
        "status": pa.array(np.where(lost, "unanswered", "answered")),
    }
    broken = np.flatnonzero(dice.random(count) < 0.0005)
    violations = {
        "session_id": session_ids.take(pa.array(broken)),
        "message_id": ids.take(pa.array(broken)),
        "ts": ts.take(pa.array(broken)),
        "protocol": protocol.take(pa.array(broken)),
        "rule": pa.array(np.where(broken % 2, "HELLO_REPEATED", "PONG_UNSOLICITED")),
        "clause": pa.array(["EMP-25"] * len(broken)),
        "severity": pa.array(["error"] * len(broken)),
        "text": pa.array(["a second hello"] * len(broken)),
        "source": source.take(pa.array(broken)),
        "offset": pa.array(at[broken] * 150),
    }
    count_of = len(sessions)
    ends = {
        "protocol": pa.array(np.array(PROTOCOLS)[sessions % len(PROTOCOLS)]),
        "transport": pa.array(["tcp"] * count_of),
        "client_address": pa.array([f"10.0.0.{one % 250}" for one in sessions.tolist()]),
        "client_port": pa.array((40_000 + sessions % 20_000).astype(np.int32)),
        "server_address": pa.array(["10.0.1.1"] * count_of),
        "server_port": pa.array(np.full(count_of, 5040, np.int32)),
        "source": pa.array([f"/captures/{number}.pcapng"] * count_of),
        "offset": pa.array(sessions * 150),
    }
    own = _ids(1 << 40, sessions)
    opened = pa.array(start + sessions * PER_SESSION * 1000, pa.timestamp("us", "UTC"))
    half = pa.array(np.full(count_of, PER_SESSION // 2))
    counts = dict.fromkeys(("messages_to_server", "messages_to_client", "requests", "answered"), half)
    tables = {
        "messages": messages,
        "exchanges": exchanges,
        "violations": violations,
        "sessions": ends | {"session_id": own, "opened": opened, "duration_us": pa.array(np.full(count_of, 10**6))} | counts,
        "connections": ends | {"connection_id": own, "what": pa.array(["seen"] * count_of), "ts": opened},
    }
    return {name: _batch(columns, TABLES[name].schema) for name, columns in tables.items()}


def _batch(columns: dict[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    count = len(next(iter(columns.values())))
    names = [field.name for field in schema]
    whole = [columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type) for field in schema]
    whole = [column.dictionary_encode() if name in FEW else column for name, column in zip(names, whole, strict=True)]
    return pa.RecordBatch.from_arrays(whole, names)


class Server:
    """`wirelake explore` in a process of its own."""

    def __init__(self, lake: Path) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "wirelake", "explore", str(lake)], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip().rstrip("/")

    def get(self, path: str, **query: object) -> tuple[float, Any]:
        """Seconds, and the answer."""
        begin = time.perf_counter()
        with urllib.request.urlopen(f"{self.address}{path}?{urllib.parse.urlencode(query)}") as response:  # noqa: S310 - our own server
            content = response.read()
        spent = time.perf_counter() - begin
        return spent, json.loads(content) if path.endswith(".json") else content

    def megabytes(self) -> float:
        """Peak memory."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024

    def cpu(self) -> float:
        """Seconds of CPU so far, of all threads."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait(30)


def at(values: list[float], share: float) -> float:
    """A percentile."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def found(server: Server, text: str) -> tuple[float, float]:
    """Seconds until a filter shows its first messages, and until its first page is full or nothing is left to search."""
    first, whole, rows, after = 0.0, 0.0, 0, ""
    while True:
        spent, page = server.get("/messages.json", q=text, after=after)
        whole, rows, after = whole + spent, rows + len(page["rows"]), page["after"]
        first = first or whole
        if not page["is_searching"] or rows >= PAGE:
            return first, whole


def measure(lake: Path, messages: int) -> None:
    """Print what a person waits for, and which goals are reached."""
    begin = time.perf_counter()
    server = Server(lake)
    started = time.perf_counter() - begin
    try:
        rows = [("the server is ready", f"{started:.2f} s")]
        begun = server.cpu()
        page, picture = server.get("/")[0], server.get("/histogram.json")[0]
        rows.append(("CPU of the first page, after the server is ready", f"{server.cpu() - begun:.2f} s"))
        rows += [("overview, first time", f"{page:.2f} s"), ("its histogram, after it", f"{picture:.2f} s")]
        rows += [(name, f"{server.get(path)[0]:.2f} s") for name, path in (("overview, again", "/"), ("messages", "/messages.json"))]
        waits = {text: found(server, text) for text in FILTERS}
        first, whole = ([wait[place] for wait in waits.values()] for place in (0, 1))
        counted = [server.get("/histogram.json", q=text)[0] for text in FILTERS]
        slowest = max(waits, key=lambda text: waits[text][1])
        rows.append((f"a filter, median of {len(waits)}", f"{at(whole, 0.5):.2f} s"))
        rows.append(("a filter, 95 of 100: its first answer", f"{at(first, 0.95):.2f} s"))
        rows.append(("a filter, 95 of 100: its first page", f"{at(whole, 0.95):.2f} s (slowest: {slowest})"))
        rows.append(("the histogram of a filter, 95 of 100", f"{at(counted, 0.95):.2f} s"))
        session = server.get("/sessions.json", order="opened", limit=1)[1]["rows"][0]["id"]
        taken, ladder = server.get(f"/sessions/{session}/ladder.json")
        rows.append((f"a ladder of {len(ladder['rows']):,} messages", f"{taken:.2f} s"))
        message = server.get("/messages.json", limit=1)[1]["rows"][0]["id"]
        rows.append(("one message", f"{server.get(f'/messages/{message}.json')[0]:.2f} s"))
        memory = server.megabytes()
        rows.append(("memory of the server at most", f"{memory:.0f} MB"))
        show(f"explore, {messages:,} messages", ("what", "time"), rows)
        first_page = page + picture
        verdict(f"the first page in {FIRST_PAGE_SECONDS} s", first_page < FIRST_PAGE_SECONDS, f"{first_page:.2f} s")
        verdict(f"a filter, 95 of 100, in {FILTER_SECONDS} s", at(whole, 0.95) < FILTER_SECONDS, f"{at(whole, 0.95):.2f} s")
        long = f"{len(ladder['rows']):,} messages in {taken:.2f} s"
        verdict(f"a ladder of {LADDER:,} messages in {LADDER_SECONDS} s", taken < LADDER_SECONDS and len(ladder["rows"]) >= LADDER, long)
        verdict(f"the server in {SERVER_MEGABYTES} MB", memory < SERVER_MEGABYTES, f"{memory:.0f} MB")
    finally:
        server.stop()


def check_bytes(lake: Path, count: int) -> None:
    """Print how many random messages show bytes that decode to their row."""
    from wirelake.explore.bytes.read import Place, read
    from wirelake.explore.model import messages as model
    from wirelake.explore.model.database import Database
    from wirelake.explore.query import QueryLimits
    from wirelake.filters import parse
    from wirelake.protocols.kernel import use_plain

    use_plain()
    right, spent = 0, 0.0
    with Database(lake, QueryLimits()) as database, database.connection() as connection:
        sample = "SELECT lower(hex(message_id)) FROM messages USING SAMPLE reservoir(100000 ROWS) REPEATABLE (1)"
        known = [row[0] for row in connection.execute(sample).fetchall()]
        chosen = random.Random(1).sample(known, min(count, len(known)))  # noqa: S311 - a sample
        assert model.count(connection, parse("")) >= len(chosen)
        for one in chosen:
            found = model.one(connection, one)
            begin = time.perf_counter()
            frame = read(Place(found.line.protocol, found.source, found.offset, found.length, found.line.size, found.own))
            spent += time.perf_counter() - begin
            right += frame.fields[-1].stop == found.line.size
    figures = (str(right), str(len(chosen)), f"{1e3 * spent / len(chosen):.1f}")
    show("bytes of random messages", ("right", "of", "ms each"), [figures])
    verdict("right bytes for every message", right == len(chosen), f"{right} of {len(chosen)}")


def captures(folder: Path) -> dict[str, list[Path]]:
    """Write captures of all protocols: carrier -> files."""
    from tests.explore import random_messages, test_bytes

    names = sorted(PROTOCOLS)
    return {
        "recordings": [random_messages.recording(folder / f"{name}.pcapng", name, 5, 400) for name in names],
        "TCP segments, datagrams": [
            # A file is known by its beginning: no two captures may begin with the same packets.
            random_messages.packets(folder / f"{name}-{part}.pcap", name, 3 * number + part, 9)
            for number, name in enumerate(names)
            for part in range(3)
        ],
        "IP fragments": [test_bytes.emp_in_fragments(folder / "fragments.pcap")],
        "WebSocket": [test_bytes.yamp_in_websockets(folder / "websocket.pcap")],
        "XMPP": [test_bytes.wolpertinger_in_xmpp(folder / "xmpp.pcap")],
        "compressed": [test_bytes.compressed(folder / "packed.pcap")],
    }


def check_carriers(count: int) -> None:
    """Print how many random messages have the bytes that a reading of the whole file gives, by carrier and protocol."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.explore.conftest import _fill
    from tests.explore.lakes import lake_of
    from tests.explore.test_bytes import messages_of

    from wirelake.explore.bytes.read import Place, SourceGone, read
    from wirelake.explore.model import messages as model
    from wirelake.explore.model.database import Database
    from wirelake.explore.query import QueryLimits
    from wirelake.protocols.kernel import use_plain

    use_plain()
    with tempfile.TemporaryDirectory(prefix="wirelake-bytes-") as name:
        files = captures(Path(name))
        lake = lake_of(_fill, Path(name) / "lake", [path for some in files.values() for path in some])
        whole = {one.message_id.hex(): (carrier, one) for carrier, some in files.items() for path in some for one in messages_of(path)}
        few = [one for one, (carrier, _) in whole.items() if len(files[carrier]) == 1]
        rest = sorted(set(whole) - set(few))
        chosen = few[:count] + random.Random(1).sample(rest, min(max(0, count - len(few)), len(rest)))  # noqa: S311 - a sample
        sums: dict[tuple[str, str], list[int]] = {}
        begin = time.perf_counter()
        with Database(lake, QueryLimits()) as database, database.connection() as connection:
            for one in chosen:
                carrier, message = whole[one]
                found = model.one(connection, one)
                try:
                    frame = read(Place(found.line.protocol, found.source, found.offset, found.length, found.line.size, found.own))
                    is_right = frame.data == message.raw and _covers(frame.fields, len(frame.data))
                except SourceGone as error:
                    is_right = False
                    print(f"{carrier} {message.protocol} {one}: {error}", file=sys.stderr)
                share = sums.setdefault((carrier, message.protocol), [0, 0])
                share[0] += is_right
                share[1] += 1
        spent = time.perf_counter() - begin
    rows = [(carrier, protocol, str(right), str(all_)) for (carrier, protocol), (right, all_) in sorted(sums.items())]
    show("bytes of random messages, by carrier", ("carrier", "protocol", "right", "of"), rows)
    right = sum(share[0] for share in sums.values())
    verdict(
        f"right bytes for {count:,} of {count:,} messages",
        right == len(chosen) == count,
        f"{right} of {len(chosen)}, {1e3 * spent / len(chosen):.1f} ms each",
    )


def _covers(fields: list[Any], size: int) -> bool:
    """Whether every byte has exactly one field."""
    starts, stops = [field.start for field in fields], [field.stop for field in fields]
    return starts == [0, *stops[:-1]] and stops[-1:] == [size]


def main() -> None:
    """Make the lake and measure."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--messages", type=int, default=10_000_000)
    arguments.add_argument("--lake", type=Path, help="measure this lake instead")
    arguments.add_argument("--bytes", type=int, default=1000, help="random messages whose bytes are read")
    options = arguments.parse_args()
    if options.lake is None:
        check_carriers(options.bytes)
        measure(made(options.messages), options.messages)
        return
    from wirelake.explore.query import query

    measure(options.lake, query(options.lake, "SELECT count(*) FROM messages").column(0)[0].as_py())
    check_bytes(options.lake, options.bytes)


if __name__ == "__main__":
    main()
