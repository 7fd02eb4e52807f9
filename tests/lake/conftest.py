"""What the lake's tests share: recordings of conversations written down as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.capture.build import Talk, pcap
from tests.lake.mesh import STORY
from tests.lake.mesh import record as record_mesh
from tests.lake.relink_sessions import STORY as RELINK_STORY
from tests.lake.relink_sessions import record as record_relink
from tests.lake.wolpertinger_sessions import record as record_wolpertinger
from tests.lake.yamp_sessions import record as record_yamp
from tests.protocols.event_mesh.receiving import store
from tests.protocols.wolpertinger.pair import KEYS

from wirelake.capture.record.recorder import Connection, Recorder
from wirelake.protocols.emp.messages import Bye, Data, Error, Hello, Ping, Pong, RequestResponse
from wirelake.protocols.emp.wire import encode
from wirelake.protocols.wolpertinger.trust.keyring import Keyring

START_NS = 1_700_000_000 * 10**9

SLOW = ("test_cuts.py", "test_histories.py", "test_observers.py")
"""Files whose tests read random histories of every protocol many times, or build lakes in this process."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of these files."""
    for item in items:
        if item.path.name in SLOW and item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)


Step = tuple[float, str, str]
"""Seconds since the connection was opened, who speaks (or `finished`, `closed`), and what."""

HELLOS: list[Step] = [(0.1, "client", "hello"), (0.2, "server", "hello")]

CASES: dict[str, list[Step]] = {
    "plain": [*HELLOS, (1, "client", "request 1"), (1.25, "server", "response 1"), (2, "client", "bye"), (3, "closed", "bye")],
    "unanswered": [*HELLOS, (1, "client", "request 1"), (2, "client", "bye"), (3, "closed", "bye")],
    "late": [*HELLOS, (1, "client", "request 1"), (40, "server", "response 1"), (41, "client", "bye"), (42, "closed", "bye")],
    "both sides ask": [
        *HELLOS,
        (1, "client", "request 1"),
        (1.1, "server", "request 1"),
        (1.2, "client", "response 1"),
        (1.5, "server", "response 1"),
        (2, "server", "bye"),
        (3, "closed", "bye"),
    ],
    "reused id": [
        *HELLOS,
        (1, "client", "request 7"),
        (2, "server", "response 7"),
        (3, "client", "request 7"),
        (5, "server", "response 7"),
        (6, "client", "bye"),
        (7, "closed", "bye"),
    ],
    "id in flight": [
        *HELLOS,
        (1, "client", "request 7"),
        (2, "client", "request 7"),
        (3, "server", "error 3"),
        (4, "closed", "error"),
    ],
    "unmatched": [*HELLOS, (1, "server", "response 9"), (2, "client", "error 3"), (3, "closed", "error")],
    "repeated hello": [*HELLOS, (1, "client", "hello"), (2, "server", "error 3"), (3, "closed", "error")],
    "data before hello": [(0.1, "client", "data"), (0.2, "server", "hello"), (0.3, "server", "error 3"), (1, "closed", "error")],
    "too soon": [(0.1, "client", "hello"), (0.2, "client", "data"), (0.3, "server", "hello"), (1, "client", "bye"), (2, "closed", "bye")],
    "spoke after bye": [*HELLOS, (1, "client", "bye"), (2, "client", "data"), (3, "closed", "bye")],
    "who stays may finish": [*HELLOS, (1, "client", "bye"), (2, "server", "data"), (3, "server", "bye"), (4, "closed", "bye")],
    "abnormal close": [*HELLOS, (1, "client", "data"), (2, "finished", "server"), (3, "closed", "eof")],
    "version": [(0.1, "client", "hello 2"), (0.2, "server", "error 3"), (1, "closed", "error")],
    "pings": [
        *HELLOS,
        (1, "client", "ping"),
        (2, "client", "ping"),
        (3, "server", "pong"),
        (4, "server", "pong"),
        (5, "server", "pong"),
        (6, "client", "bye"),
        (7, "closed", "bye"),
    ],
    "silent server": [(0.1, "client", "hello"), (6, "client", "error 2"), (7, "closed", "error")],
    "quickly gone": [(0.1, "client", "hello"), (0.2, "server", "bye"), (9, "closed", "bye")],
    "still open": [*HELLOS, (1, "client", "data")],
    "cut": [*HELLOS, (1, "client", "raw 000000ff05000000"), (2, "closed", "eof")],
    "cut by the other": [*HELLOS, (1, "client", "raw 000000ff05000000"), (2, "finished", "server"), (3, "closed", "eof")],
    "cut by itself": [*HELLOS, (1, "server", "raw 000000ff05000000"), (2, "finished", "server"), (3, "closed", "eof")],
    "pong behind a large message": [
        *HELLOS,
        (1, "client", "ping"),
        (31, "server", "raw 00009c4005000000" + "00" * 39_992),
        (32, "server", "pong"),
        (33, "client", "bye"),
        (34, "closed", "bye"),
    ],
    "late pong": [*HELLOS, (1, "client", "ping"), (12, "server", "pong"), (13, "client", "bye"), (14, "closed", "bye")],
    "no pong": [*HELLOS, (1, "server", "ping"), (8, "server", "ping"), (11.5, "server", "error 2"), (12, "closed", "error")],
    "never a pong": [*HELLOS, (1, "client", "ping"), (62, "server", "data"), (63, "client", "bye"), (64, "closed", "bye")],
    "gone before the pong": [*HELLOS, (1, "client", "ping"), (8, "server", "bye"), (30, "closed", "bye")],
    "not seen so long": [*HELLOS, (1, "client", "ping"), (8, "client", "data")],
}


MIDDLE_PORT = 40_000
MIDDLE: list[Step] = [
    *HELLOS,
    (1, "client", "request 1"),
    (10, "server", "response 1"),
    (11, "server", "pong"),
    (12, "server", "raw 0000001c05800000000000140000000000000000" + "00" * 8),
    (13, "closed", "eof"),
]
"""Seen from the tenth second on. The last message breaks EMP-12 by itself, whatever was said before."""


def _frame(what: str) -> bytes:
    name, *words = what.split()
    number = int(words[0]) if words and name != "raw" else 0
    match name:
        case "hello":
            return encode(Hello(number or 1))
        case "bye":
            return encode(Bye())
        case "ping":
            return encode(Ping())
        case "pong":
            return encode(Pong())
        case "error":
            return encode(Error(number, message="no"))
        case "data":
            return encode(Data(b'{"a": 1}'))
        case "request":
            return encode(Data(b"ask", (RequestResponse(True, number),)))
        case "response":
            return encode(Data(b"tell", (RequestResponse(False, number),)))
        case _:
            return bytes.fromhex(words[0])


class _Clock:
    now = START_NS

    def __call__(self) -> int:
        return self.now


def record(path: Path, cases: Mapping[str, Sequence[Step]], first_port: int = 20_000, max_seconds: float | None = None) -> Path:
    """Record conversations one after the other, each from a client port of its own, in the order of the cases.

    With `max_seconds` there are more files beside the first, and conversations that go on from one to the next.
    """
    clock, numbers = _Clock(), iter(range(1, 1_000_000))
    with Recorder(
        path,
        protocol="emp",
        clock=clock,
        new_id=lambda: (first_port * 1000 + next(numbers)).to_bytes(8, "big"),
        max_seconds=max_seconds,
    ) as recorder:
        for port, steps in enumerate(cases.values(), first_port):
            start = clock.now
            connection = recorder.connection(role="client", local=("127.0.0.1", port), remote=("127.0.0.1", 5040))
            for seconds, who, what in steps:
                clock.now = start + int(seconds * 1e9)
                _say(connection, who, what)
            clock.now += 10**9
    return path


def record_middle(folder: Path, port: int) -> Path:
    """A recording whose first file is lost: the hellos and the request were in it."""
    clock = _Clock()
    with Recorder(folder / "middle.pcapng", protocol="emp", clock=clock, new_id=lambda: b"middle!!", max_seconds=5) as recorder:
        connection = recorder.connection(role="client", local=("127.0.0.1", port), remote=("127.0.0.1", 5040))
        for seconds, who, what in MIDDLE:
            clock.now = START_NS + int(seconds * 1e9)
            _say(connection, who, what)
        first, rest = recorder.paths
    first.unlink()
    return rest


def _say(connection: Connection, who: str, what: str) -> None:
    match who:
        case "client":
            connection.sent(_frame(what))
        case "server":
            connection.received(_frame(what))
        case "finished":
            connection.finished("server" if what == "server" else "client")
        case _:
            connection.closed(what)


@pytest.fixture(scope="session")
def recorded() -> Callable[..., Path]:
    """`record`, for tests that make their own recordings."""
    return record


@pytest.fixture(scope="session")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with all cases, a file that is no capture, and traffic that no protocol recognises. Tests only read it."""
    from wirelake.lake.jobs.ingest import ingest

    folder = tmp_path_factory.mktemp("cases")
    record(folder / "cases.pcapng", CASES)
    record_middle(folder, MIDDLE_PORT)
    record_mesh(folder / "mesh.pcapng", STORY)
    record_relink(folder / "relink.pcapng", RELINK_STORY)
    record_yamp(folder / "yamp.pcapng")
    record_wolpertinger(folder / "wolpertinger.pcapng")
    (folder / "noise.pcap").write_bytes(b"not a capture at all" * 10)
    (folder / "web.pcap").write_bytes(pcap(Talk(server=("10.0.0.2", 80)).open().say(0, b"GET / HTTP/1.0\r\n\r\n").close().frames()))
    ingest(spark, folder / "lake", [folder], keys=store(), keyring=Keyring([KEYS]))
    return folder / "lake"


@pytest.fixture(scope="session")
def rows(lake: Path) -> Callable[[str, str], list[dict[str, Any]]]:
    """rows(table, case): the rows of one conversation, as dicts, in the order of time."""
    from wirelake.lake.store import delta
    from wirelake.lake.tables.catalog import table

    tables = {name: delta.dataset(lake, table(name)).to_table().to_pylist() for name in ("sessions", "exchanges", "violations", "messages")}
    ids = {row["client_port"]: row["session_id"] for row in tables["sessions"]}
    cases = {case: ids[port] for port, case in enumerate(CASES, 20_000)} | {"middle": ids[MIDDLE_PORT]}
    order = {"exchanges": "requested", "sessions": "opened"}

    def of(name: str, case: str) -> list[dict[str, Any]]:
        mine = [row for row in tables[name] if row["session_id"] == cases[case]]
        return sorted(mine, key=lambda row: (row[order.get(name, "ts")], row.get("offset", 0)))

    return of
