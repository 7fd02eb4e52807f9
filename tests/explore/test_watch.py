"""A watcher: what it tells of a live peer while it happens, and that its process never holds the peer up."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.explore.test_read import HELLO, answered, asked, of, records, spoken

from wirelake.capture.record.recorder import Recorder
from wirelake.explore.reading.records import Message, Violation
from wirelake.explore.reading.watch import Watcher
from wirelake.protocols.emp.messages import Ping
from wirelake.protocols.emp.wire import encode

PING = encode(Ping())
SECONDS = 60
SERVER = {"role": "server", "local": ("127.0.0.1", 5040), "remote": ("127.0.0.1", 40_000)}


class Told:
    """What a watcher tells, and a moment to wait for."""

    def __init__(self) -> None:
        self.records = []
        self.violation = threading.Event()

    def __call__(self, record) -> None:
        self.records.append(record)
        if isinstance(record, Violation):
            self.violation.set()

    @property
    def rules(self) -> list[str]:
        return [one.rule for one in of(Violation, self.records)]


def until(true) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_watcher_tells_which_rule_was_broken_as_soon_as_it_is(tmp_path):
    told = Told()
    with Watcher(told, messages=True) as watcher, Recorder(tmp_path / "a.pcapng", protocol="emp", watch=watcher) as recorder:
        talk = recorder.connection(**SERVER)
        talk.sent(HELLO)
        talk.received(HELLO)
        talk.received(answered(77))
        assert told.violation.wait(SECONDS)
        (broken,) = of(Violation, told.records)
        assert (broken.rule, broken.clause, broken.culprit) == ("RESPONSE_UNMATCHED", "EMP-16", "client 127.0.0.1:40000")
    read = records(tmp_path / "a.pcapng")
    assert [type(one) for one in read] == [type(one) for one in told.records], "a file says the same, in the same order"
    assert [one.rule for one in of(Violation, read)] == told.rules
    assert [one.kind for one in of(Message, read)] == [one.kind for one in of(Message, told.records)]
    assert not is_alive(watcher.process_id)


@pytest.mark.slow
@pytest.mark.parametrize(("said", "rule", "clause"), [((HELLO, PING), "PONG_TIMEOUT", "EMP-32"), ((), "HANDSHAKE_TIMEOUT", "EMP-29")])
def test_a_watcher_tells_by_a_clock_what_does_not_come_in_time(tmp_path, said, rule, clause):
    told, later = Told(), threading.Event()

    def now():
        return time.time() + 1000 * later.is_set()

    with (
        Watcher(told, check_seconds=0.01, clock=now) as watcher,
        Recorder(tmp_path / "a.pcapng", protocol="emp", watch=watcher) as recorder,
    ):
        talk = recorder.connection(**SERVER)
        talk.received(HELLO)
        for data in said:
            talk.sent(data)
        assert not told.violation.wait(0.2), "nothing is due yet"
        later.set()
        assert told.violation.wait(SECONDS)
        (broken,) = told.records
        assert (broken.rule, broken.clause) == (rule, clause)
        assert broken.by == ("client" if said else "server")
        talk.closed("reset")
    assert told.rules.count(rule) == 1, "told once"


def test_the_last_findings_are_told_at_the_end(tmp_path):
    """Also what is only known when nothing more comes; and what was recorded just before."""
    told = Told()
    with Watcher(told) as watcher:
        with Recorder(tmp_path / "a.pcapng", protocol="emp", watch=watcher) as recorder:
            talk = recorder.connection(**SERVER)
            talk.sent(HELLO)
            talk.received(HELLO)
            talk.received(answered(77) + asked(5)[:9])
            talk.closed("reset")
        assert told.rules == []
    assert told.rules == [one.rule for one in of(Violation, records(tmp_path / "a.pcapng"))]
    assert told.rules[0] == "RESPONSE_UNMATCHED"
    assert len(told.rules) > 1
    assert of(Message, told.records) == [], "messages were not asked for"


@pytest.mark.slow
def test_a_watcher_whose_process_stands_still_loses_bytes_says_so_and_goes_on(caplog):
    """The recorder never waits, and what waits for the process is bounded."""
    told = Told()
    with Watcher(told, messages=True, max_waiting=4 << 20) as watcher, Recorder("/dev/null", protocol="emp", watch=watcher) as recorder:
        os.kill(watcher.process_id, signal.SIGSTOP)
        began = time.monotonic()
        for _ in range(40):
            spoken(recorder, requests=400)
            assert watcher._waiting <= 4 << 20
        assert watcher.lost > 0
        assert time.monotonic() - began < SECONDS / 2
        os.kill(watcher.process_id, signal.SIGCONT)
        until(lambda: "were not watched" in caplog.text)
        talk = recorder.connection(**SERVER)
        talk.sent(HELLO)
        talk.received(HELLO)
        talk.received(answered(77))
        assert told.violation.wait(SECONDS)
    assert told.rules == ["RESPONSE_UNMATCHED"]


@pytest.mark.slow
def test_a_process_that_does_nothing_at_the_end_is_given_up(caplog):
    with Watcher(Told(), close_seconds=0.5) as watcher, Recorder("/dev/null", protocol="emp", watch=watcher) as recorder:
        spoken(recorder)
        os.kill(watcher.process_id, signal.SIGSTOP)
        began = time.monotonic()
    assert 0.4 < time.monotonic() - began < SECONDS / 2
    assert [one.message for one in caplog.records] == ["watching stopped: it does nothing any more: its last findings are lost"]
    assert not is_alive(watcher.process_id)


@pytest.mark.slow
def test_a_process_that_dies_is_said_once_and_the_peer_goes_on(caplog, tmp_path):
    told = Told()
    with Watcher(told) as watcher, Recorder(tmp_path / "a.pcapng", protocol="emp", watch=watcher) as recorder:
        os.kill(watcher.process_id, signal.SIGKILL)
        until(lambda: caplog.records)
        for _ in range(3):
            spoken(recorder)
            time.sleep(0.1)
        assert (watcher._waiting, len(watcher._queue)) == (0, 0), "nothing is kept for it"
    assert [(one.levelname, one.message) for one in caplog.records] == [("ERROR", "watching stopped: its process was ended by signal 9")]
    assert len(of(Message, records(tmp_path / "a.pcapng"))) == 30


@pytest.mark.slow
def test_a_process_that_fails_is_said_once_and_the_peer_goes_on(caplog):
    with Watcher(Told(), options={"no": "options"}) as watcher, Recorder("/dev/null", protocol="emp", watch=watcher) as recorder:
        spoken(recorder)
    (said,) = [one.message for one in caplog.records if one.levelname == "ERROR"]
    assert said.startswith("watching stopped: its process failed: AttributeError(")


@pytest.mark.slow
def test_a_teller_that_never_returns_holds_nothing_up_for_ever():
    told, never = threading.Event(), threading.Event()

    def tell(record) -> None:
        told.set()
        never.wait()

    with Watcher(tell, close_seconds=0.2) as watcher, Recorder("/dev/null", protocol="emp", watch=watcher) as recorder:
        talk = recorder.connection(**SERVER)
        talk.received(answered(77))
        assert told.wait(SECONDS)
        began = time.monotonic()
    assert time.monotonic() - began < SECONDS / 2
    assert not is_alive(watcher.process_id)
    never.set()


@pytest.mark.slow
def test_a_teller_that_fails_stops_the_watching_only(caplog):
    def tell(record) -> None:
        raise ValueError("no")

    with Watcher(tell) as watcher, Recorder("/dev/null", protocol="emp", watch=watcher) as recorder:
        talk = recorder.connection(**SERVER)
        talk.received(answered(77))
        until(lambda: "ValueError('no')" in caplog.text)
        spoken(recorder)
    assert not is_alive(watcher.process_id)


@pytest.mark.slow
def test_signals_to_all_processes_end_only_the_peer():
    """A terminal or a service manager signals both; the findings of the peer's last bytes are told all the same."""
    told = Told()
    with Watcher(told) as watcher, Recorder("/dev/null", protocol="emp", watch=watcher) as recorder:
        assert os.getpgid(watcher.process_id) != os.getpgid(0), "a Ctrl-C does not reach it"
        for name in (signal.SIGINT, signal.SIGTERM):
            os.kill(watcher.process_id, name)
        talk = recorder.connection(**SERVER)
        talk.sent(HELLO)
        talk.received(HELLO)
        talk.received(answered(77))
        talk.closed("bye")
    assert told.rules[0] == "RESPONSE_UNMATCHED"


@pytest.mark.slow
def test_a_peer_that_is_killed_leaves_no_process_behind():
    code = (
        "import sys, time; from wirelake.explore.reading.watch import Watcher;"
        "watcher = Watcher(print); print(watcher.process_id, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as peer:
        watching = int(peer.stdout.readline())
        assert is_alive(watching)
        peer.kill()
    until(lambda: not is_alive(watching))


@pytest.mark.slow
def test_a_rule_breaking_peer_is_watched_over_a_real_connection():
    from wirelake.peers.emp import Options, serve

    told = Told()

    async def meet(recorder) -> None:
        async with serve("tcp://127.0.0.1:0", options=Options(recorder=recorder)) as server:
            host, port = server.address.removeprefix("tcp://").rsplit(":", 1)
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(HELLO + asked(1) + asked(1))
            async with asyncio.timeout(SECONDS):
                while await reader.read(4096):
                    pass
            writer.close()

    with Watcher(told) as watcher, Recorder("/dev/null", protocol="emp", watch=watcher) as recorder:
        asyncio.run(meet(recorder))
    (broken,) = [one for one in of(Violation, told.records) if one.rule == "REQUEST_ID_IN_FLIGHT"]
    assert broken.clause == "EMP-18"
    assert broken.by == "client"
