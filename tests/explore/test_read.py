"""The reading engine: the same records whatever the input is, and however it is cut."""

import _thread
import os
import threading
import time

import pytest
from tests.capture.build import Talk, pcap
from tests.lake.relink_sessions import STORY, record
from tests.protocols.yamp import speech

from wirelake.capture.record.recorder import Recorder
from wirelake.explore.reading import inputs
from wirelake.explore.reading.inputs import Pipe, Reading
from wirelake.explore.reading.records import Message, Unanswered, Unreadable, Unrecognised, Violation
from wirelake.protocols import kernel
from wirelake.protocols.emp.messages import Bye, Data, Hello, Ping, RequestResponse
from wirelake.protocols.emp.wire import encode

HELLO, BYE, PING = encode(Hello()), encode(Bye()), encode(Ping())


def asked(number: int, body: bytes = b"?") -> bytes:
    return encode(Data(body, (RequestResponse(True, number),)))


def answered(number: int, body: bytes = b"!") -> bytes:
    return encode(Data(body, (RequestResponse(False, number),)))


def spoken(recorder, *, requests: int = 3, unanswered: int = 0) -> None:
    talk = recorder.connection(role="client", local=("127.0.0.1", 40_000), remote=("127.0.0.1", 5040))
    talk.sent(HELLO)
    talk.received(HELLO)
    for number in range(1, requests + 1):
        talk.sent(asked(number))
        talk.received(answered(number))
    for number in range(unanswered):
        talk.sent(asked(1000 + number))
    talk.sent(BYE)
    talk.received(BYE)
    talk.closed("bye")


def clock(begin: int = 1_700_000_000):
    now = begin * 10**9

    def tick() -> int:
        nonlocal now
        now += 1_000_000
        return now

    return tick


def records(*paths, **options) -> list:
    return [one for one in Reading(**options).read(list(map(str, paths))) if one is not None]


def of(kind, found) -> list:
    return [one for one in found if isinstance(one, kind)]


def test_a_killed_request_is_not_unanswered_because_no_answer_comes(tmp_path):
    """YAMP-34: neither when its connection ends, nor when its uid is used again."""
    with Recorder(tmp_path / "a.pcapng", protocol="yamp", clock=clock()) as recorder:
        talk = recorder.connection(role="client", local=("127.0.0.1", 40_000), remote=("127.0.0.1", 8888))
        talk.sent(speech.handshake())
        talk.received(speech.handshake())
        for _ in range(2):
            talk.sent(speech.request())
            talk.sent(speech.cancel(speech.UID, kill=1))
        talk.sent(speech.close())
        talk.closed("bye")
    reading = Reading()
    found = [one for one in reading.read([str(tmp_path)]) if one is not None]
    assert of(Unanswered, found) == []
    assert {one.rule for one in of(Violation, found)} == {"UID_REUSED"}


def test_answers_name_their_requests_and_unanswered_ones_come_at_the_end_of_the_session(tmp_path):
    with Recorder(tmp_path / "a.pcapng", protocol="emp", clock=clock()) as recorder:
        spoken(recorder, unanswered=2)
        spoken(recorder)
    found = records(tmp_path)
    messages = of(Message, found)
    assert [one.number for one in messages] == list(range(1, len(messages) + 1))
    answers = [one.answers[0] for one in messages if one.answers]
    assert [answer.request.number for answer in answers[:3]] == [3, 5, 7]
    assert {answer.latency for answer in answers} == {1000}
    waiting = of(Unanswered, found)
    assert [(one.request.number, one.correlation_id) for one in waiting] == [(9, "1000"), (10, "1001")]
    assert found.index(waiting[0]) == 12, "before the next connection says hello"
    assert not of(Violation, found)


@pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="Numba is switched off: nothing is compiled")
def test_plain_and_compiled_scanners_give_the_same_records(tmp_path, monkeypatch):
    with Recorder(tmp_path / "a.pcapng", protocol="emp", clock=clock()) as recorder:
        for _ in range(40):
            spoken(recorder, requests=20, unanswered=1)
    plain = records(tmp_path / "a.pcapng")
    monkeypatch.setattr(inputs, "COMPILED_FROM", 1)
    compiled = records(tmp_path / "a.pcapng")
    assert kernel._use_compiled
    assert [type(one) for one in plain] == [type(one) for one in compiled]
    assert [one.values() for one in plain] == [one.values() for one in compiled]


@pytest.mark.slow
@pytest.mark.parametrize("window", [200, 3000, 1 << 20])
def test_records_do_not_depend_on_the_window(tmp_path, monkeypatch, window):
    record(tmp_path / "relink.pcapng", STORY)
    with Recorder(tmp_path / "emp.pcapng", protocol="emp", clock=clock()) as recorder:
        spoken(recorder, requests=50, unanswered=3)
    whole = records(tmp_path)
    monkeypatch.setattr(inputs, "FIRST_WINDOW", window)
    monkeypatch.setattr(inputs, "LARGEST_WINDOW", window)
    assert [one.values() for one in records(tmp_path)] == [one.values() for one in whole]
    assert {one.protocol for one in of(Message, whole)} == {"emp", "relink"}


def test_a_session_goes_on_in_the_next_file_of_a_rotated_recording(tmp_path):
    with Recorder(tmp_path / "a.pcapng", protocol="emp", clock=clock(), max_bytes=2000) as recorder:
        spoken(recorder, requests=30)
    assert len(recorder.paths) > 3
    found = records(tmp_path)
    assert len([one for one in of(Message, found) if one.answers]) == 30
    assert not of(Violation, found), "no file is judged as if it were alone"
    assert not of(Unanswered, found)


def test_files_that_overlap_in_time_are_watched_apart(tmp_path):
    for name in ("a", "b"):
        with Recorder(tmp_path / f"{name}.pcapng", protocol="emp", clock=clock(), new_id=lambda: b"the same") as recorder:
            spoken(recorder)
    found = records(tmp_path)
    assert len(of(Message, found)) == 20
    assert not of(Violation, found)


def test_a_capture_has_connections_and_tells_what_it_does_not_recognise(tmp_path):
    talk = Talk().open().say(0, HELLO + asked(7)[:5]).say(1, HELLO).say(0, asked(7)[5:]).say(1, answered(7) + answered(8)).close()
    other = Talk(client=("10.0.0.3", 1), server=("10.0.0.4", 9)).open().say(0, b"who knows what this is?" * 9).close()
    (tmp_path / "a.pcap").write_bytes(pcap([*talk.frames(), *other.frames()]))
    found = records(tmp_path / "a.pcap")
    assert [(one.sender, one.kind) for one in of(Message, found)] == [
        ("10.0.0.1:40000", "handshake"),
        ("10.0.0.2:5040", "handshake"),
        ("10.0.0.1:40000", "request"),
        ("10.0.0.2:5040", "response"),
        ("10.0.0.2:5040", "response"),
    ]
    rules = [(one.rule, one.number, one.culprit) for one in of(Violation, found)]
    assert rules[0] == ("RESPONSE_UNMATCHED", 5, "server 10.0.0.2:5040")
    assert [rule[0] for rule in rules[1:]] == ["CLOSED_WITHOUT_PARTING"]
    (unknown,) = of(Unrecognised, found)
    assert (unknown.client, unknown.server, unknown.port, unknown.bytes) == ("10.0.0.3", "10.0.0.4", 9, 207)


def test_a_message_that_never_ends_is_known_when_the_capture_ends(tmp_path):
    talk = Talk().open().say(0, HELLO).say(1, HELLO).say(0, asked(7)[:-1]).close()
    (tmp_path / "a.pcap").write_bytes(pcap(talk.frames()))
    assert [one.rule for one in of(Violation, records(tmp_path / "a.pcap"))] == ["MESSAGE_CUT", "CLOSED_INSIDE_MESSAGE"]


def test_rules_that_need_the_beginning_do_not_count_without_it(tmp_path):
    talk = Talk().open()
    talk.packets.clear()
    talk.say(1, answered(8) + answered(9)).say(0, asked(1))
    (tmp_path / "a.pcap").write_bytes(pcap(talk.frames()))
    found = records(tmp_path / "a.pcap")
    assert of(Message, found)
    assert not of(Violation, found)


@pytest.mark.slow
def test_a_file_that_is_cut_anywhere_is_read_up_to_there(tmp_path):
    with Recorder(tmp_path / "a.pcapng", protocol="emp", clock=clock()) as recorder:
        spoken(recorder)
    whole = (tmp_path / "a.pcapng").read_bytes()
    before = -1
    for size in range(0, len(whole), 37):
        (tmp_path / "cut.pcapng").write_bytes(whole[:size])
        reading = Reading()
        found = [one for one in reading.read([str(tmp_path / "cut.pcapng")]) if one is not None]
        count = len(of(Message, found))
        assert count >= before
        before = count
        if size and not of(Unreadable, found) and not reading.faults:
            assert len(list(Reading().read([str(tmp_path / "cut.pcapng")]))) >= count
        assert all(one.reason == "cut short" for one in of(Unreadable, found))
    assert before >= 8


def test_a_growing_file_is_followed_and_so_are_new_files(tmp_path):
    reading, found, stopped = Reading(), [], threading.Event()

    def follow() -> None:
        for one in reading.follow([str(tmp_path)]):
            if one is not None:
                found.append(one)
            if stopped.is_set():
                break
        found.extend(reading.end())

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        for name in ("a", "b"):
            with Recorder(tmp_path / f"{name}.pcapng", protocol="emp", flush_seconds=0) as recorder:
                spoken(recorder)
            wanted = 10 if name == "a" else 20
            deadline = time.monotonic() + 30
            while len(of(Message, found)) < wanted and time.monotonic() < deadline:
                time.sleep(0.02)
    finally:
        stopped.set()
        thread.join()
    assert len(of(Message, found)) == 20
    assert len([one for one in of(Message, found) if one.answers]) == 6
    assert not of(Violation, found)


def test_a_ctrl_c_just_before_a_read_that_waits_is_noticed():
    """The signal has come, and no system call was interrupted by it: what `interrupt_main` does."""
    reading, writing = os.pipe()
    is_noticed = threading.Event()

    def interrupt_then_close() -> None:
        time.sleep(0.05)
        _thread.interrupt_main()
        is_noticed.wait(10)
        os.close(writing)

    other = threading.Thread(target=interrupt_then_close)
    with os.fdopen(reading, "rb") as stream:
        other.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                Pipe(stream).fill()
            assert other.is_alive(), "noticed only at the end of the stream"
        finally:
            is_noticed.set()
            other.join()
