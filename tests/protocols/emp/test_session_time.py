"""Pings, pongs and silence; time is a number."""

from __future__ import annotations

import pytest
from tests.protocols.emp import speech
from tests.protocols.emp.pair import QUIET, Pair, established, options

from wirelake.errors import LocalProtocolError
from wirelake.protocols.emp.events import (
    RequestExpired,
)
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import Ping, Pong


def test_pings_keep_an_idle_session_alive_for_ever(cut):
    pair = Pair(cut, options(ping_interval=10.0), options(ping_interval=7.0)).start()
    pair.wait(1000)
    for side, expected in ((pair.client, 100), (pair.server, 142)):
        assert side.session.ended is None
        assert sum(isinstance(one, Ping) for one in side.messages) == expected
        assert side.noticed == []


def test_the_next_ping_counts_from_the_last_pong():
    side = established(options(ping_interval=10.0, pong_timeout=20.0))
    assert side.session.deadline == 10.0
    side.wait(10)
    assert side.messages == [Ping()]
    assert side.session.deadline == 30.0
    side.wait(5)
    side.receive(speech.pong)
    assert side.session.deadline == 25.0
    side.wait(10)
    assert side.messages == [Ping(), Ping()]


def test_no_pong_in_time_ends_the_session():
    side = established()
    side.wait(19.9)
    assert side.session.ended is None
    side.receive(speech.data(b"traffic is no pong") + speech.ping)
    side.wait(0.1)
    assert side.ended.fault is Fault.PONG_TIMEOUT
    assert side.messages[-1].error_code == 2


def test_a_ping_by_hand_takes_the_place_of_the_next_one():
    side = established(options(ping_interval=10.0, pong_timeout=8.0))
    side.wait(5)
    side.session.ping(side.now)
    side.drain()
    assert side.session.deadline == 13.0
    with pytest.raises(LocalProtocolError) as caught:
        side.session.ping(side.now)
    assert caught.value.fault is Fault.PING_OVERLAPPING
    side.drain()
    assert side.messages == [Ping()]
    side.receive(speech.pong)
    assert side.session.deadline == 15.0


def test_every_ping_is_answered(cut):
    side = established(cut=cut)
    side.receive(speech.ping * 300)
    assert side.messages == [Pong()] * 300


def test_an_unsolicited_pong_is_ignored_and_noticed(cut):
    side = established(cut=cut)
    side.wait(3)
    side.receive(speech.pong)
    assert (side.noticed, side.session.ended, side.session.deadline) == ([Fault.PONG_UNSOLICITED], None, 10.0)


def test_timers_can_be_switched_off():
    side = established(QUIET)
    assert side.session.deadline is None
    side.session.request(b"", 0.0)
    side.drain()
    assert side.session.deadline is None
    side.session.ping(0.0)
    side.drain()
    assert side.session.deadline is None
    side.wait(1e9)
    assert side.session.ended is None


def test_a_reader_that_pauses_does_not_blame_the_peer():
    side = established()
    side.wait(10)
    assert side.messages == [Ping()]
    side.pause()
    side.wait(1000)
    assert side.session.ended is None
    side.resume()
    assert side.session.deadline == side.now + 10
    side.wait(9.9)
    assert side.session.ended is None
    side.wait(0.1)
    assert side.ended.fault is Fault.PONG_TIMEOUT


def test_a_ping_sent_while_the_reader_pauses_does_not_blame_the_peer_either():
    side = established()
    side.wait(5)
    side.pause()
    side.wait(1000)
    assert side.session.ended is None
    assert side.messages == [Ping()]
    side.resume()
    side.receive(speech.pong)
    assert side.session.deadline == side.now + 10


def test_pausing_before_any_ping_changes_nothing():
    side = established()
    side.pause()
    side.resume()
    assert side.session.deadline == 10.0


def test_after_a_pause_silence_counts_again():
    side = established()
    side.pause()
    side.resume()
    side.wait(20)
    assert side.ended.fault is Fault.PONG_TIMEOUT


def test_pausing_does_not_stop_requests_from_expiring():
    side = established(options(request_timeout=3.0))
    side.session.request(b"", 0.0)
    side.pause()
    side.wait(3)
    assert side.heard[-1] == RequestExpired(1)


# EMP-32: large messages on slow lines.


def test_a_pong_behind_a_large_message_of_the_peer_is_not_late():
    side = established(cut=65_536)
    side.wait(10)
    assert side.messages == [Ping()]
    large = speech.data(bytes(8_000_000))
    for at in range(0, len(large), 200_000):  # 200 KB/s: 40 s
        side.receive(large[at : at + 200_000])
        side.wait(1)
    side.receive(speech.pong)
    assert side.session.ended is None


def test_the_clock_of_a_pong_runs_again_when_the_message_is_whole():
    side = established()
    side.wait(15)
    side.receive(speech.data(bytes(20_000))[:-1])
    assert side.session.deadline == 25.0
    side.receive(b"\0")
    side.wait(9.9)
    side.receive(speech.data(b"whole messages are no pong"))
    side.wait(0.1)
    assert side.ended.fault is Fault.PONG_TIMEOUT


def test_a_trickle_of_bytes_does_not_stop_the_clock_of_a_pong():
    side = established()
    side.wait(10)
    side.receive(speech.data(bytes(8_000_000))[:12])
    for _ in range(9):
        side.wait(1)
        side.receive(b"\0")
    side.wait(1.5)
    assert side.ended.fault is Fault.PONG_TIMEOUT


def test_the_clock_of_a_pong_does_not_run_while_our_output_drains():
    side = established()
    side.wait(10)
    for seconds in (9, 18, 36):
        side.now = 10.0 + seconds
        side.session.drained(1_500_000, side.now)
        side.tick()
    assert side.session.ended is None
    assert side.session.deadline == 46 + 10 + 36  # buffers on the way may hold as much again
    side.session.drained(8, side.now)
    side.wait(46.1)
    assert side.ended.fault is Fault.PONG_TIMEOUT


def test_how_slow_a_line_may_be_is_an_option():
    side = established(options(min_rate=10.0))
    side.wait(10)
    side.session.drained(50, 15.0)
    assert side.session.deadline == 25.0
    side.session.drained(1000, 15.0)
    assert side.session.deadline == 30.0
    assert established(options(pong_timeout=None)).session.asked == 0
