"""Output of long-running commands: a slow or closed reader costs lines at most, and a flood of notices is reported in few."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import signal
import subprocess
import sys
import threading

import click
import pytest

from wirelake.cli import live, terminal
from wirelake.cli.live_flags import Mode, Size
from wirelake.cli.output import Lines, Notices
from wirelake.peers import relink
from wirelake.peers.emp import connect
from wirelake.peers.notices import NOTICE
from wirelake.text import visible

SECONDS = 60


class Reader:
    """Stands in for `os.write` to a reader that reads when a test says so."""

    def __init__(self) -> None:
        self.seen = b""
        self.begun = threading.Event()
        self.reads = threading.Event()
        self.failure: OSError | None = None

    def __call__(self, _descriptor: int, data: memoryview) -> int:
        self.begun.set()
        self.reads.wait(SECONDS)
        if self.failure is not None:
            raise self.failure
        self.seen += data[:5]
        return len(data[:5])  # as little as an operating system may take


def test_lines_are_written_in_order_and_all_of_them_before_the_end():
    read, write = os.pipe()
    lines = Lines(write)
    for number in range(1000):
        lines.put(f"line {number} é\udc80")
    lines.close(SECONDS)
    os.close(write)
    with os.fdopen(read) as file:
        assert file.read().splitlines() == [f"line {number} é\\udc80" for number in range(1000)]


def test_lines_that_a_slow_reader_missed_are_reported_at_once_and_counted_when_it_reads_again():
    reader, told = Reader(), []
    counted = threading.Event()
    lines = Lines(1, max_bytes=20, write=reader, on_dropped=lambda count: (told.append(count), count and counted.set()))
    lines.put("the first line passes, however long it is")
    reader.begun.wait(SECONDS)
    assert told == []
    for _ in range(3):
        lines.put("dropped")
    assert told == [0]
    reader.reads.set()
    assert counted.wait(SECONDS)
    lines.put("last")
    lines.close(SECONDS)
    assert told == [0, 3]
    assert reader.seen == b"the first line passes, however long it is\nlast\n"


def test_the_end_does_not_wait_for_a_reader_that_never_reads():
    reader, told = Reader(), []
    lines = Lines(1, max_bytes=10, write=reader, on_dropped=told.append)
    lines.put("one")
    reader.begun.wait(SECONDS)
    lines.put("two")
    lines.put("three")
    lines.close(0)
    assert told == [0, 3]
    reader.reads.set()


def test_a_reader_that_is_gone_is_reported_once_and_nothing_waits_for_it():
    reader, gone = Reader(), threading.Event()
    reader.failure = OSError(errno.EPIPE, "Broken pipe")
    reader.reads.set()
    lines = Lines(1, max_bytes=10, write=reader, on_gone=gone.set)
    lines.put("one")
    assert gone.wait(SECONDS)
    for _ in range(100):
        lines.put("more")
    lines.close(SECONDS)
    assert lines.gone


def test_a_descriptor_that_another_program_made_nonblocking_is_waited_for():
    read, write = os.pipe()
    os.set_blocking(write, False)
    lines = Lines(write)
    for _ in range(300):
        lines.put("x" * 999)
    with os.fdopen(read, "rb") as file:
        assert len(file.read(300_000)) == 300_000
        lines.close(SECONDS)
    os.close(write)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def notices():
    """A logger, what is told of it, and a clock that stands still."""
    told: list[str] = []
    clock = Clock()
    handler = Notices(told.append, NOTICE, per_second=3, clock=clock)
    log = logging.getLogger("wirelake.test-notices")
    log.setLevel(logging.DEBUG)
    log.addHandler(handler)
    yield log, told, clock, handler
    log.removeHandler(handler)


def test_a_flood_of_one_kind_is_reported_in_few_lines_and_hides_no_other_kind(notices):
    log, told, clock, handler = notices
    for number in range(1000):
        log.log(NOTICE, "dropped from %s", ("10.0.0.1", number))
    log.error("recording stopped: %s", "the disk is full")
    assert told == ["dropped from 10.0.0.1", "dropped from 10.0.0.1:1", "dropped from 10.0.0.1:2", "recording stopped: the disk is full"]
    clock.now = 1.0
    log.log(NOTICE, "dropped from %s", ("10.0.0.1", 7))
    assert told[4:] == ["dropped from 10.0.0.1:7 (and 997 more of this kind before)"]
    for _ in range(5):
        log.log(NOTICE, "dropped from %s", ("10.0.0.1", 8))
    handler.close()
    assert told[-1] == "3 more lines like these were held back"


def test_a_notice_is_one_line_without_control_characters_and_other_records_are_not_printed(notices):
    log, told, _, _ = notices
    log.info("nothing of note")
    log.log(NOTICE, "unknown uri %s", "a\x1b[31m\nb\x9b")
    try:
        raise KeyError("mine")
    except KeyError:
        log.exception("a handler failed")
    assert told == ["unknown uri a\\x1b[31m\\nb\\x9b", "a handler failed: KeyError('mine')"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 😀", "plain é 漢 😀"),
        ("\x00\x07\x1b]0;title\x07\r\n\t\x7f", "\\x00\\x07\\x1b]0;title\\x07\\r\\n\\t\\x7f"),
        ("\x9b31m\u202eabc\u2028\udc80", "\\x9b31m\\u202eabc\\u2028\\udc80"),
    ],
)
def test_control_characters_are_printed_visibly(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"", {"text": ""}),
        ("hällo\tthere\r\n".encode(), {"text": "hällo\tthere\r\n"}),
        (b"00ff", {"text": "00ff"}),
        (b"\x00\xff", {"body": "00ff"}),
        (b"a\x1b[31m", {"body": "611b5b33316d"}),
        ("\u202eabc".encode(), {"body": "e280ae616263"}),
    ],
)
def test_a_body_that_is_text_is_shown_as_text_and_all_else_as_hex(body, fields):
    assert live.body_fields(body) == fields


def test_an_object_says_when_it_arrived_and_holds_no_character_that_a_terminal_acts_on(capsys):
    live.emit({"uri": "a\x1b\x9b\u202e\U000e0001"})
    line = capsys.readouterr().out
    assert line.isprintable() is False  # but for its end
    assert line.removesuffix("\n").isprintable()
    told = json.loads(line)
    assert told.pop("uri") == "a\x1b\x9b\u202e\U000e0001"
    assert told["received"].endswith("Z")
    assert len(told["received"]) == len("2026-01-31T12:00:00.000Z")


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("10k", 10 << 10), ("100M", 100 << 20), ("2G", 2 << 30)])
def test_sizes_are_written_as_people_write_them(text, size):
    assert Size().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "0", "0k", "-1", "k", "1.5M", "1T", "1 k", "²"])
def test_an_invalid_size_is_refused(text):
    with pytest.raises(click.BadParameter, match="is no size"):
        Size().convert(text, None, None)


@pytest.mark.parametrize(("text", "mode"), [("600", 0o600), ("0640", 0o640), ("777", 0o777), ("0000", 0)])
def test_modes_are_written_as_people_write_them(text, mode):
    assert Mode().convert(text, None, None) == mode


@pytest.mark.parametrize("text", ["", "6", "64", "8", "0o640", "1777", "u+r", "-640", "٦٤٠", "640\n"])
def test_an_invalid_mode_is_refused(text):
    with pytest.raises(click.BadParameter, match="is no mode"):
        Mode().convert(text, None, None)


def test_a_failed_recording_is_reported_when_it_fails(tmp_path):
    def talk():
        with live.recording(tmp_path / "talk.pcapng", "emp") as recorder:
            with open("/dev/full", "wb", buffering=0) as full:  # noqa: PTH123 - a device
                os.dup2(full.fileno(), recorder._descriptor)
            recorder.connection(role="client", local=("127.0.0.1", 1), remote=("127.0.0.1", 2))

    with pytest.raises(terminal.AlreadyReported, match="No space left"):
        talk()


def serve(*words: str, limit: int = 1 << 30) -> tuple[subprocess.Popen, str]:
    """A server in a process of its own whose files may have so many bytes, and its address."""
    code = f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, ({limit}, {limit})); from wirelake.cli.main import main; main()"
    command = [sys.executable, "-c", code, "serve", "emp", "tcp://127.0.0.1:0", *words]
    measured = {name for name in os.environ if name.startswith("COVERAGE_")}  # its files are too small for what coverage writes
    plain = {name: value for name, value in os.environ.items() if name not in measured}
    plain["NUMBA_DISABLE_JIT"] = "1"  # it scans little: compiling would take longer
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=plain)
    return process, process.stderr.readline().split()[2].rstrip(";")


@pytest.mark.slow
def test_a_server_whose_output_nobody_reads_serves_and_ends_when_its_reader_is_gone():
    process, address = serve("--output-buffer", "64k")
    try:

        async def ask() -> None:
            async with connect(address) as peer:
                for _ in range(60):  # more than a pipe and the buffer hold
                    assert await peer.request(b"x" * 4000, timeout=SECONDS) == b"x" * 4000

        asyncio.run(ask())
        assert process.stderr.readline() == "nobody reads stdout: lines are dropped\n"
        process.stdout.close()
        assert process.wait(SECONDS) == 0
        assert "nobody can read stdout any more\nclosing\n" in process.stderr.read()
    finally:
        process.kill()
        process.stderr.close()


@pytest.mark.slow
def test_a_disk_that_fills_up_is_reported_at_once_and_once_and_the_server_serves_on(tmp_path):
    process, address = serve("--record", str(tmp_path / "talk.pcapng"), limit=2000)
    try:

        async def ask() -> bytes:
            async with connect(address) as peer:
                return await peer.request(b"x" * 3000, timeout=SECONDS)

        assert len(asyncio.run(ask())) == 3000
        told = process.stderr.readline()
        assert told.startswith(f"recording stopped: {tmp_path / 'talk.pcapng'}: cannot record: File too large at byte ")
        assert len(asyncio.run(ask())) == 3000
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=SECONDS)
        assert rest == "closing\n"
        assert process.returncode == 1
        assert len(out.splitlines()) == 2
    finally:
        process.kill()


@pytest.mark.slow
def test_a_listener_whose_reader_is_gone_ends():
    """Before anything was printed: only the pipe itself says so."""
    endpoint = relink.Endpoint()

    async def silent(link) -> None:
        await link.over()

    async def main() -> tuple[int, bytes]:
        async with relink.serve("tcp://127.0.0.1:0", {endpoint: silent}, options=relink.Options(close_timeout=0.1)) as server:
            read, write = os.pipe()
            words = [sys.executable, "-m", "wirelake.cli.main", "listen", "relink", server.address]
            process = await asyncio.create_subprocess_exec(*words, stdout=write, stderr=subprocess.PIPE)
            os.close(write)
            first = await process.stderr.readline()
            os.close(read)
            async with asyncio.timeout(SECONDS):
                rest = await process.stderr.read()
                return await process.wait(), first + rest

    code, talk = asyncio.run(main())
    assert code == 0, talk
    assert b"nobody can read stdout any more\n" in talk
