"""A server of pages stays fair: half requests end, and queries of one reader take neither memory nor threads from the pages of others."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest
from tests.explore.served import served

from wirelake.errors import QueryError
from wirelake.explore.model.database import Database
from wirelake.explore.query import QueryLimits
from wirelake.explore.web.application import WebOptions

ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = 7"
SORTED = "SELECT repeat('x', 1000) || i AS wide FROM range(25000) AS t(i) ORDER BY hash(i)"
"""Holds 25 MB until its last row was read."""
SECONDS = 30
"""Seconds after which a test gives up."""


@contextmanager
def reading(address: str, sql: str = ENDLESS) -> Iterator[socket.socket]:
    """A reader who asks, and leaves when the block ends."""
    target = urlsplit(address)
    with socket.create_connection((target.hostname, target.port), timeout=SECONDS) as reader:
        reader.sendall(f"GET /sql.json?sql={quote(sql)} HTTP/1.1\r\nHost: {target.netloc}\r\n\r\n".encode())
        yield reader


def whole(reader: socket.socket) -> bytes:
    """Read until the server closes."""
    return b"".join(iter(lambda: reader.recv(65536), b""))


@pytest.mark.parametrize(
    ("begin", "answer"),
    [
        (b"", b"408"),
        (b"GET / HTTP/1.1\r\nHost: localhost", b"408"),
        (b"POST /comments HTTP/1.1\r\nHost: HOST\r\nOrigin: http://HOST\r\nContent-Length: 100\r\n\r\nabc", b""),
        (b"GET /state.json HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost", b"200"),
    ],
    ids=["nothing", "half a header", "half a body", "half a second request"],
)
def test_a_request_that_is_never_complete_ends(lake: Path, begin: bytes, answer: bytes) -> None:
    """It is sent a byte at a time for ever: uvicorn's limit between requests begins with an answer, and ends with a byte."""
    got = b""
    with (
        served(lake, WebOptions(request_seconds=0.5)) as address,
        socket.create_connection(("127.0.0.1", urlsplit(address).port), timeout=SECONDS) as reader,
        suppress(BrokenPipeError, ConnectionResetError),  # it ended while a byte was on its way
    ):
        reader.sendall(begin.replace(b"HOST", urlsplit(address).netloc.encode()))
        reader.settimeout(0.1)
        for _ in range(10 * SECONDS):
            try:
                piece = reader.recv(65536)
            except TimeoutError:
                reader.sendall(b"x" if begin else b"")
                continue
            if not piece:
                break
            got += piece
        else:
            pytest.fail("the server waits for ever")
    assert got[9:12] == answer


def test_an_answer_may_take_longer_than_its_request(lake: Path) -> None:
    with served(lake, WebOptions(request_seconds=0.2, limits=QueryLimits(seconds=1))) as address, reading(address) as reader:
        assert b"longer than 1 s" in reader.recv(65536) + reader.recv(65536)  # head and body


def test_queries_of_all_readers_share_one_memory_limit(lake: Path) -> None:
    with Database(lake, QueryLimits(megabytes=64)) as database, ExitStack() as readers:
        with database.stream(SORTED) as alone:
            assert sum(batch.num_rows for batch in alone) == 25_000
        several = [readers.enter_context(database.stream(SORTED))]
        next(iter(several[0]))
        with pytest.raises(QueryError, match="more memory than the limit"):
            several.extend(readers.enter_context(database.stream(SORTED)) for _ in range(3))


def test_a_reader_who_leaves_ends_the_query(lake: Path) -> None:
    with served(lake, WebOptions(most_sql=1, limits=QueryLimits(seconds=600))) as address:
        with reading(address):
            pass
        assert httpx.get(f"{address}/sql.json?sql=SELECT 1", timeout=SECONDS, trust_env=False).json()["rows"] == [[1]]


def test_pages_are_answered_while_many_endless_queries_run(lake: Path) -> None:
    with served(lake, WebOptions(limits=QueryLimits(seconds=600))) as address, ExitStack() as readers:
        for _ in range(60):
            readers.enter_context(reading(address))
        for path in ("/", "/messages", "/sessions"):
            assert httpx.get(address + path, timeout=SECONDS, trust_env=False).status_code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_while_endless_queries_run(lake: Path, number: signal.Signals) -> None:
    words = [sys.executable, "-m", "wirelake", "explore", str(lake), "--seconds", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_catch_interrupts)  # noqa: PLW1509
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None
    with ExitStack() as readers:
        for _ in range(6):
            readers.enter_context(reading(found[0].rstrip("/")))
        assert httpx.get(found[0], timeout=SECONDS, trust_env=False).status_code == 200
        process.send_signal(number)
        process.communicate(timeout=SECONDS)


def _catch_interrupts() -> None:
    """A process that is started in the background ignores them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
