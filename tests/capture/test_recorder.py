"""Recordings: the reader finds what peers recorded, in one file or many, and Wireshark opens them."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
from tests.capture.build import accounts, events, payloads, read_checked, said, talk_of

from wirelake.capture.record.exported_pdu import RECEIVED, SENT, Tags, build, info_text, info_words, parse, recorded_session_id
from wirelake.capture.record.recorder import FLUSH_SECONDS, SHOWN_BY_WIRESHARK, Recorder
from wirelake.errors import CaptureError, UsageError

LOCAL, REMOTE = ("127.0.0.1", 5000), ("127.0.0.1", 5040)


def clock(step: int = 1_000_000):
    """A clock that starts at a round time and moves by microseconds of `step` nanoseconds."""
    ticks = count(1_700_000_000_000_000_000, step)
    return lambda: next(ticks)


def run(*command: str) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def record(path: Path, **options: object) -> bytes:
    """A short conversation of an EMP client; returns the connection's id."""
    with Recorder(path, clock=clock(), **options) as recorder:
        connection = recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE)
        connection.sent(b"hello")
        connection.received(b"welcome, friend")
        connection.sent(bytearray(b"question"))
        connection.received(memoryview(b"answer"))
        connection.finished("server")
        connection.closed("said bye, and left")
    return connection.id


def test_what_was_recorded_is_read_in_order_with_its_times_and_places(tmp_path):
    path = tmp_path / "talk.pcapng"
    name = record(path)
    blocks = read_checked(path)
    assert talk_of(blocks) == [(1, b"hello"), (0, b"welcome, friend"), (1, b"question"), (0, b"answer")]
    (block,) = blocks
    (flow,) = block.flows
    assert flow.session_id == recorded_session_id(name.hex())
    assert (flow.protocol, flow.transport, flow.known_by, flow.observer_kind) == ("emp", "tcp", "tag", "client")
    assert (flow.client.address, flow.client.port, flow.server.port) == ("127.0.0.1", 5000, 5040)
    assert [(event.what, event.by, event.detail) for event in block.events] == [
        ("opened", "client", ""),
        ("finished", "server", ""),
        ("closed", "", "said bye, and left"),
    ]
    times = [piece[2] for piece in block.origins.tolist()]
    assert times == [1_700_000_000_000_000 + 1000 * step for step in (2, 3, 4, 5)]


def test_a_recording_server_sees_the_same_client(tmp_path):
    path = tmp_path / "talk.pcapng"
    with Recorder(path, protocol="yamp") as recorder:
        connection = recorder.connection(role="server", local=("::1", 5040), remote=("::1", 777), transport="websocket")
        connection.received(b"question")
        connection.sent(b"answer")
    (block,) = read_checked(path)
    (flow,) = block.flows
    assert talk_of([block]) == [(1, b"question"), (0, b"answer")]
    assert (flow.client.address, flow.client.port, flow.server.port) == ("::1", 777, 5040)
    assert (flow.protocol, flow.transport, flow.observer_kind) == ("yamp", "websocket", "server")


def test_an_end_that_is_no_ip_address_keeps_its_name(tmp_path):
    path = tmp_path / "talk.pcapng"
    with Recorder(path) as recorder:
        connection = recorder.connection(protocol="emp", role="client", local=("me", 0), remote=("/run/a socket", 0), transport="memory")
        connection.sent(b"x")
    flow = read_checked(path)[0].flows[0]
    assert (flow.client.address, flow.server.address, flow.transport) == ("me", "/run/a socket", "memory")


def test_a_connection_without_a_protocol_is_refused(tmp_path):
    with Recorder(tmp_path / "talk.pcapng") as recorder, pytest.raises(UsageError, match="protocol"):
        recorder.connection(role="client", local=LOCAL, remote=REMOTE)


@pytest.mark.slow
def test_a_recording_cut_anywhere_gives_every_whole_block_before_the_cut(tmp_path):
    whole = tmp_path / "whole.pcapng"
    record(whole)
    raw = whole.read_bytes()
    ends = [piece[1] for piece in read_checked(whole)[0].origins.tolist()]
    spoken = [(1, b"hello"), (0, b"welcome, friend"), (1, b"question"), (0, b"answer")]
    ends = [offset + len(data) + (-offset - len(data)) % 4 + 4 for offset, (_, data) in zip(ends, spoken, strict=True)]
    path = tmp_path / "cut.pcapng"
    edges = {end + more for end in (*ends, 0, 12, len(raw) - 2) for more in (-4, -1, 0, 1) if 0 <= end + more < len(raw)}
    for size in sorted({*range(0, len(raw), 11), *edges}):
        path.write_bytes(raw[:size])
        blocks = read_checked(path)
        assert talk_of(blocks) == [words for end, words in zip(ends, spoken, strict=True) if end <= size], size
        reasons = {stretch.reason for block in blocks for stretch in block.unreadable}
        assert reasons <= ({"not a capture"} if size < 12 else {"cut short"})


def test_windows_of_any_size_give_the_same_conversation(tmp_path):
    path = tmp_path / "talk.pcapng"
    record(path)
    expected = read_checked(path)
    for window in (1, 16, 100, 333, 1000):
        blocks = read_checked(path, window=window)
        assert talk_of(blocks) == talk_of(expected)
        assert events(blocks) == events(expected)
        assert accounts(blocks) == accounts(expected)


def test_a_recording_goes_on_in_the_next_file_when_one_is_full(tmp_path):
    path = tmp_path / "talk.pcapng"
    with Recorder(path, max_bytes=1000) as recorder:
        connection = recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE)
        for number in range(20):
            connection.sent(b"%02d" % number * 50)
    names = [one.name for one in recorder.paths]
    assert names[:2] == ["talk.pcapng", "talk-0001.pcapng"]
    assert len(names) > 4
    assert all(one.stat().st_size <= 1000 for one in recorder.paths)
    spoken = [part for one in recorder.paths for part in said(read_checked(one))]
    assert {session for session, _, _ in spoken} == {recorded_session_id(connection.id.hex())}
    assert b"".join(data for _, _, data in spoken) == b"".join(b"%02d" % number * 50 for number in range(20))


def test_a_recording_goes_on_in_the_next_file_when_one_is_old(tmp_path):
    with Recorder(tmp_path / "talk.pcapng", max_seconds=2, clock=clock(step=1_000_000_000)) as recorder:
        connection = recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE)
        for _ in range(4):
            connection.sent(b"x")
    assert len(recorder.paths) == 3


def test_rotation_passes_over_files_that_are_there(tmp_path):
    (tmp_path / "talk-0001.pcapng").write_bytes(b"precious")
    with Recorder(tmp_path / "talk.pcapng", max_bytes=1) as recorder:
        recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE).sent(b"x")
    assert [one.name for one in recorder.paths] == ["talk.pcapng", "talk-0002.pcapng"]
    assert (tmp_path / "talk-0001.pcapng").read_bytes() == b"precious"


@pytest.mark.parametrize("content", [b"", b"precious"])
def test_a_file_that_is_there_is_refused_and_left_as_it_is(tmp_path, content):
    path = tmp_path / "talk.pcapng"
    path.write_bytes(content)
    path.chmod(0o444)
    before = path.stat()
    with pytest.raises(CaptureError, match="a file is already here") as caught:
        Recorder(path)
    assert caught.value.path == str(path)
    assert path.read_bytes() == content
    assert (path.stat().st_mode, path.stat().st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


@pytest.mark.parametrize("target", ["nothing", "file", "folder", "/dev/null"])
def test_no_link_is_followed(tmp_path, target):
    (tmp_path / "file").write_bytes(b"precious")
    (tmp_path / "folder").mkdir()
    path = tmp_path / "talk.pcapng"
    path.symlink_to(target)
    with pytest.raises(CaptureError, match="a link is already here") as caught:
        Recorder(path)
    assert caught.value.path == str(path)
    assert (tmp_path / "file").read_bytes() == b"precious"
    assert {one.name for one in tmp_path.iterdir()} == {"file", "folder", "talk.pcapng"}


@pytest.mark.parametrize("target", ["nothing", "file"])
def test_rotation_passes_over_links(tmp_path, target):
    (tmp_path / "file").write_bytes(b"precious")
    (tmp_path / "talk-0001.pcapng").symlink_to(target)
    with Recorder(tmp_path / "talk.pcapng", max_bytes=1) as recorder:
        recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE).sent(b"x")
    assert [one.name for one in recorder.paths] == ["talk.pcapng", "talk-0002.pcapng"]
    assert (tmp_path / "file").read_bytes() == b"precious"
    assert not (tmp_path / "nothing").exists()


def test_a_pipe_may_be_recorded_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with Recorder(tmp_path / "pipe"):
        assert os.read(reader, 4) == b"\n\r\r\n"
    os.close(reader)


class Timers:
    """Timers that fire when a test says so; stands in for the threads of a recorder."""

    def __init__(self) -> None:
        self.planned: list[tuple[float, object]] = []

    def __call__(self, seconds, call):
        entry = (seconds, call)
        self.planned.append(entry)
        return lambda: self.planned.remove(entry)

    def fire(self) -> None:
        self.planned.pop(0)[1]()


def on_disk(path: Path) -> bytes:
    """What the client said, as far as the file has it."""
    return b"".join(data for to_server, data in talk_of(read_checked(path)) if to_server)


def test_flushed_records_are_on_disk_before_the_recorder_closes(tmp_path):
    path = tmp_path / "talk.pcapng"
    with Recorder(path, call_later=Timers()) as recorder:
        connection = recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE)
        connection.sent(b"x")
        assert on_disk(path) == b""
        recorder.flush()
        assert on_disk(path) == b"x"
        connection.sent(bytes(300_000))  # more than may wait
        assert on_disk(path) == b"x" + bytes(300_000)


def test_the_recorder_writes_what_waits_by_itself_within_a_second(tmp_path):
    path, timers = tmp_path / "talk.pcapng", Timers()
    with Recorder(path, call_later=timers) as recorder:
        connection = recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE)
        connection.sent(b"x")
        connection.sent(b"y")
        assert [seconds for seconds, _ in timers.planned] == [FLUSH_SECONDS]  # one timer, counted from the first record that waits
        assert FLUSH_SECONDS < 1
        assert on_disk(path) == b""
        timers.fire()
        assert on_disk(path) == b"xy"
        assert timers.planned == []
        connection.sent(b"z")
        timers.fire()
        assert on_disk(path) == b"xyz"
        connection.sent(b"last")
        assert timers.planned
    assert timers.planned == []
    assert on_disk(path) == b"xyzlast"


def test_the_timer_of_a_recorder_needs_no_event_loop(tmp_path):
    path = tmp_path / "talk.pcapng"
    with Recorder(path, flush_seconds=0.001) as recorder:
        recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE).sent(b"x")
        for _ in range(10_000):
            if on_disk(path):
                break
            time.sleep(0.001)
        assert on_disk(path) == b"x"


def test_where_no_thread_can_be_started_nothing_waits(tmp_path):
    def refuse(_seconds, _call):
        raise RuntimeError("can't start new thread")

    path = tmp_path / "talk.pcapng"
    with Recorder(path, call_later=refuse) as recorder:
        recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE).sent(b"x")
        assert on_disk(path) == b"x"


def test_a_timer_that_fires_after_the_end_does_nothing(tmp_path):
    timers = Timers()
    recorder = Recorder(tmp_path / "talk.pcapng", call_later=timers)
    recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE).sent(b"x")
    ((_, late),) = timers.planned
    recorder.close()
    late()
    assert on_disk(tmp_path / "talk.pcapng") == b"x"


def test_a_disk_that_fills_up_is_logged_at_once_and_once(tmp_path, caplog):
    timers = Timers()
    recorder = Recorder(tmp_path / "talk.pcapng", call_later=timers)
    connection = recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE)
    with Path("/dev/full").open("wb", buffering=0) as full:
        os.dup2(full.fileno(), recorder._descriptor)
    connection.sent(b"x")
    assert caplog.messages == []
    timers.fire()
    connection.sent(b"y")
    with pytest.raises(CaptureError, match="No space left"):
        recorder.close()
    assert caplog.messages == [f"recording stopped: {recorder.failure}"]
    assert caplog.records[0].levelname == "ERROR"


def test_a_recording_that_reaches_the_limit_of_its_file_is_logged_at_once(tmp_path, monkeypatch, caplog):
    recorder = Recorder(tmp_path / "talk.pcapng", flush_bytes=1)
    connection = recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE)
    size = recorder.paths[0].stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, before[1]))
    try:
        connection.sent(bytes(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert "File too large at byte" in caplog.messages[0]
    assert recorder.failure.offset == size + 20


@pytest.mark.parametrize("umask", [0, 0o077])
@pytest.mark.parametrize(("given", "mode"), [({}, 0o600), ({"mode": 0o640}, 0o640), ({"mode": 0o644}, 0o644), ({"mode": 0o400}, 0o400)])
def test_only_the_owner_may_read_a_recording_unless_its_mode_says_otherwise(tmp_path, given, mode, umask):
    before = os.umask(umask)
    try:
        with Recorder(tmp_path / "talk.pcapng", max_bytes=1, **given) as recorder:
            assert recorder.paths[0].stat().st_mode & 0o777 == mode
            recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE).sent(b"x")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in recorder.paths] == [mode, mode]


def test_a_long_run_is_split_between_frames_and_a_long_frame_is_not_split(tmp_path):
    path = tmp_path / "talk.pcapng"
    frames = [bytes([number]) * size for number, size in enumerate([10, 400, 590, 1, 1001, 5, 2500, 1000, 1])]
    with Recorder(path, max_record=1000) as recorder:
        connection = recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE)
        connection.sent(b"".join(frames), lambda: map(len, frames))
        connection.received(b"".join(frames))  # nobody knows where its frames end
    expected = [b"".join(frames[start:stop]) for start, stop in ((0, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9))]
    assert [payload for payload in payloads(path) if payload] == [*expected, b"".join(frames)]
    assert talk_of(read_checked(path)) == [(1, b"".join(frames)), (0, b"".join(frames))]


@pytest.mark.parametrize("sizes", [[], [1], [999, 999], [5000], [1000, 1000, 1, 5000]])
def test_wrong_sizes_cost_no_byte(tmp_path, sizes):
    path, data = tmp_path / "talk.pcapng", bytes(range(250)) * 8
    with Recorder(path, max_record=1000) as recorder:
        recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE).sent(data, lambda: sizes)
    assert on_disk(path) == data
    assert b"" not in payloads(path)[1:]


def test_a_full_disk_is_said_when_the_recorder_is_made():
    with pytest.raises(CaptureError, match="No space left") as caught:
        Recorder("/dev/full")
    assert caught.value.path == "/dev/full"


def test_a_disk_that_fills_up_does_not_disturb_the_peer_and_is_raised_once_at_close(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path / "talk.pcapng", flush_bytes=1)
    connection = recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE)
    size = recorder.paths[0].stat().st_size
    full = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115 - it takes the recorder's own place and is closed by it

    os.dup2(full.fileno(), recorder._descriptor)
    full.close()
    connection.sent(b"x")
    assert "No space left" in str(recorder.failure)
    connection.sent(b"y")
    connection.closed("bye")
    with pytest.raises(CaptureError, match=os.strerror(errno.ENOSPC)) as caught:
        recorder.close()
    assert caught.value.offset == size
    recorder.close()


def test_a_failed_recording_does_not_hide_the_error_of_its_block(tmp_path):
    recorder = Recorder(tmp_path / "talk.pcapng", flush_bytes=1)

    with Path("/dev/full").open("wb", buffering=0) as full:
        os.dup2(full.fileno(), recorder._descriptor)

    def talk() -> None:
        with recorder:
            recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE)
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        talk()
    assert "No space left" in caught.value.__notes__[0]


def test_a_run_too_long_for_a_record_stops_the_recording_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("wirelake.capture.record.recorder.MAX_RECORD", 1000)
    recorder = Recorder(tmp_path / "talk.pcapng")
    recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE).sent(bytes(1000))
    with pytest.raises(CaptureError, match="1000 bytes"):
        recorder.close()


def test_recording_needs_no_array_library():
    code = "import sys; import wirelake.capture.record.recorder; print([m for m in ('numpy', 'pyarrow', 'numba') if m in sys.modules])"
    assert run(sys.executable, "-c", code).strip() == "[]"


def test_tags_are_built_and_parsed_both_ways():
    tags = Tags("emp", "10.1.2.3", "2001:db8::1", 2, 5, 5040, "EMP", RECEIVED, "a=b")
    assert parse(build(tags) + b"payload") == tags
    assert parse(build(Tags())) == Tags()
    assert build(Tags(dissector="emp", direction=SENT)) == bytes.fromhex("000c0004 656d7000 00230004 00000000 00000000".replace(" ", ""))


def test_tags_that_do_not_end_are_no_tags():
    whole = build(Tags("emp", "10.1.2.3", "10.1.2.4", 2, 5, 5040, "EMP", RECEIVED, "a=b"))
    assert parse(whole) is not None
    assert [size for size in range(len(whole)) if parse(whole[:size]) is not None] == []
    assert parse(bytes.fromhex("00000004000000")) is None


def test_words_keep_spaces_and_signs():
    words = {"how": "a b=c%d é", "role": "client"}
    assert info_words(info_text(words)) == words
    assert info_words("plain words =x y=") == {"y": ""}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed: make tools, or apt-get install -y tshark")
def test_wireshark_opens_a_recording(tmp_path):
    path = tmp_path / "talk.pcapng"
    record(path)
    fields = ["frame.protocols", "exported_pdu.prot_name", "exported_pdu.src_port", "frame.time_epoch"]
    shown = run("tshark", "-r", str(path), "-T", "json", *(word for field in fields for word in ("-e", field)))
    records = [one["_source"]["layers"] for one in json.loads(shown)]
    assert len(records) == 7
    assert {one["exported_pdu.prot_name"][0] for one in records} == {"emp"}
    assert [one["exported_pdu.src_port"][0] for one in records] == ["5000", "5000", "5040", "5000", "5040", "5040", "5000"]
    times = [float(one["frame.time_epoch"][0]) for one in records]
    assert times == [1_700_000_000 + step / 1000 for step in range(1, 8)]
    assert not [one for one in records if "malformed" in one["frame.protocols"][0]]


@pytest.mark.skipif(shutil.which("capinfos") is None, reason="capinfos is not installed: make tools, or apt-get install -y tshark")
def test_capinfos_finds_every_record_and_who_wrote_them(tmp_path):
    path = tmp_path / "talk.pcapng"
    record(path, application="wirelake 9.9")
    shown = run("capinfos", str(path))
    assert "Number of packets:   7" in shown
    assert "wirelake 9.9" in shown
    assert "Wireshark Upper PDU export" in shown


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed: make tools, or apt-get install -y tshark")
def test_wireshark_opens_runs_up_to_the_limit_we_name(tmp_path):
    path = tmp_path / "talk.pcapng"
    with Recorder(path) as recorder:
        connection = recorder.connection(protocol="emp", role="client", local=("a" * 500, 1), remote=("b" * 500, 2))
        connection.sent(bytes(SHOWN_BY_WIRESHARK))
        connection.sent(b"after")
    assert len(run("tshark", "-r", str(path)).splitlines()) == 3


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed: make tools, or apt-get install -y tshark")
def test_wireshark_opens_a_long_run_of_frames(tmp_path):
    path = tmp_path / "talk.pcapng"
    frames = [bytes(100_000)] * 10
    with Recorder(path) as recorder:
        connection = recorder.connection(protocol="emp", role="client", local=LOCAL, remote=REMOTE)
        connection.sent(b"".join(frames), lambda: map(len, frames))
        connection.sent(b"after")
    assert len(run("tshark", "-r", str(path)).splitlines()) == 1 + 5 + 1
