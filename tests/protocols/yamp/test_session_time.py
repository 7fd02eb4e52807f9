"""Sessions and time: timeouts, keep-alive, and datagrams that are lost. Time is a number here."""

from __future__ import annotations

import math

import pytest
from tests.protocols.yamp import speech
from tests.protocols.yamp.pair import CLIENT, SERVER, Pair, Side, established, options, quiet
from tests.protocols.yamp.test_session import asked

from wirelake.errors import LocalProtocolError
from wirelake.protocols.yamp.events import CancelReceived, Opened, PongReceived, RequestExpired, RequestReceived, ResponseReceived
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import Cancel, Close, Event, Handshake, Ping
from wirelake.protocols.yamp.wire import decode


def test_a_request_without_answer_expires():
    pair = Pair(client=options(request_timeout=10.0)).start()
    uid = asked(pair)
    short = pair.client.session.request("a", 1, 0.0, timeout=2.0)
    never = pair.client.session.request("b", 1, 0.0, timeout=math.inf)
    pair.wait(2.5)
    assert pair.client.delivered == [RequestExpired(short)]
    pair.wait(1000)
    assert pair.client.delivered == [RequestExpired(short), RequestExpired(uid)]
    assert pair.client.session.pending == 1
    pair.server.session.respond(uid, "late")
    pair.server.session.respond(never, "in time")
    pair.settle()
    assert pair.client.delivered[2:] == [ResponseReceived(never, 0, "in time")]
    assert pair.client.noticed == [Fault.RESPONSE_UNMATCHED]
    assert pair.client.session.ended is None
    assert not any(isinstance(one, Cancel) for one in pair.client.messages)


def test_no_timeout_at_all():
    pair = Pair(client=options(request_timeout=None)).start()
    asked(pair)
    pair.wait(1e6)
    assert (pair.client.session.pending, pair.client.delivered, pair.client.session.deadline) == (1, [], None)


def test_progress_restarts_the_timeout():
    pair = Pair(client=options(request_timeout=10.0)).start()
    uid = asked(pair, progressive=True)
    for _ in range(5):
        pair.wait(8)
        pair.server.session.report(uid, "still here")
        pair.settle()
    pair.wait(9.9)
    assert pair.client.session.pending == 1
    pair.wait(0.2)
    assert pair.client.delivered[-1] == RequestExpired(uid)


def test_the_peer_is_told_of_a_timeout_if_that_is_wanted():
    pair = Pair(client=options(request_timeout=1.0, kill_on_timeout=True)).start()
    uid = asked(pair)
    pair.wait(1)
    assert pair.client.delivered == [RequestExpired(uid)]
    assert pair.server.delivered[-1] == CancelReceived(uid, True)
    assert pair.server.session.serving == 0


def test_silence_ends_a_handshake():
    for speaker in (CLIENT, SERVER):
        side = Side(speaker, options(handshake_timeout=5.0))
        side.start()
        side.wait(4.9)
        assert side.session.ended is None
        side.wait(0.2)
        assert (side.ended.fault, side.messages[-1]) == (Fault.HANDSHAKE_TIMEOUT, Close("handshake timeout"))


def test_keep_alive_pings_as_long_as_pongs_come():
    pair = Pair(client=options(ping_interval=30.0, ping_timeout=10.0)).start()
    pair.wait(100)
    pings = [one for one in pair.client.messages if isinstance(one, Ping)]
    assert len(pings) == 3
    assert len({one.payload for one in pings}) == 3
    assert [one.payload for one in pings] == [one.payload for one in pair.client.heard if isinstance(one, PongReceived)]
    pair.drop = lambda said: said[0] == 2
    pair.wait(60)
    assert (pair.client.ended.fault, pair.client.messages[-1]) == (Fault.PING_TIMEOUT, Close("ping timeout"))
    assert pair.server.ended.detail == "ping timeout"


def test_no_ping_without_a_ping_interval():
    pair = Pair().start()
    pair.wait(1e5)
    assert [len(side.said) for side in pair.sides] == [1, 1]


def test_a_ping_by_hand_and_one_at_a_time():
    pair = Pair().start()
    payload = pair.client.session.ping(0.0)
    assert pair.client.session.ping(0.0) == payload
    pair.settle()
    assert pair.client.delivered == [PongReceived(payload)]
    assert pair.client.session.ping(0.0) != payload
    pair.client.drain()
    assert pair.client.session.deadline is None, "only keep-alive may end a session"


def test_an_unanswered_ping_of_the_owner_does_not_end_the_session():
    side = established(options(ping_timeout=5.0))
    side.session.ping(side.now)
    side.wait(1e5)
    assert (side.session.ended, [type(one) for one in side.messages]) == (None, [Ping])


def test_a_ping_that_was_given_up_is_followed_by_a_new_one():
    side = established(options(ping_timeout=5.0))
    first = side.session.ping(side.now)
    side.session.give_up_ping()
    second = side.session.ping(side.now)
    side.receive(speech.pong(first) + speech.pong(second))
    assert (side.noticed, side.delivered) == ([Fault.PONG_UNSOLICITED], [PongReceived(second)])


def test_keep_alive_goes_on_beside_a_ping_by_hand():
    side = established(options(ping_interval=30.0, ping_timeout=10.0))
    by_hand = side.session.ping(side.now)
    side.wait(31)
    (_, keep_alive) = side.messages
    assert keep_alive.payload != by_hand
    side.receive(speech.pong(by_hand))
    side.wait(10)
    assert side.ended.fault is Fault.PING_TIMEOUT, "the pong of another ping is no answer"


def test_a_paused_owner_does_not_take_an_unread_pong_for_silence():
    side = established(options(ping_interval=5.0, ping_timeout=2.0))
    side.session.pause()
    side.wait(60)
    assert side.session.ended is None
    side.session.resume(side.now)
    assert side.session.deadline == 62.0
    side.wait(3)
    assert side.ended.fault is Fault.PING_TIMEOUT


# Datagrams.

LOSSY = quiet(datagrams=True, handshake_timeout=5.0, request_timeout=2.0)


def datagrams() -> Pair:
    return Pair(client=LOSSY, server=LOSSY)


def test_a_handshake_is_repeated_until_it_is_echoed():
    pair = datagrams()
    lost = []
    pair.drop = lambda said: said[0] == 0 and len(lost) < 3 and not lost.append(said)
    pair.start().wait(2)
    assert pair.client.heard == pair.server.heard == [Opened(1, "json")]
    assert (pair.client.messages, pair.server.messages) == ([Handshake()] * 4, [Handshake()])
    pair.wait(100)
    assert len(pair.client.said) == 4


def test_an_echo_that_was_lost_is_said_again():
    pair = datagrams()
    pair.drop = lambda said: len(pair.server.said) == 1 and said is pair.server.said[0]
    pair.start().wait(0.6)
    assert pair.client.heard == pair.server.heard == [Opened(1, "json")]
    assert (len(pair.client.said), len(pair.server.said)) == (2, 2)
    pair.client.receive(pair.server.said[1])
    assert pair.client.noticed == [Fault.HANDSHAKE_REPEATED]
    assert len(pair.client.said) == 2, "two that echo echoes would never end"


def test_a_handshake_without_an_echo_times_out():
    pair = datagrams()
    pair.drop = lambda said: True
    pair.start().wait(6)
    assert pair.client.ended.fault is Fault.HANDSHAKE_TIMEOUT
    assert sum(isinstance(one, Handshake) for one in pair.client.messages) == 10


def test_a_lost_request_ends_in_its_timeout_and_a_repeated_one_is_taken_once():
    pair = datagrams().start()
    pair.drop = lambda said: said[0] == 6
    uid = asked(pair)
    pair.wait(3)
    assert pair.client.delivered == [RequestExpired(uid)]
    pair.drop = lambda said: False
    again = asked(pair)
    pair.server.receive(pair.client.said[-1])
    assert pair.server.delivered == [RequestReceived(again, "sum", [1, 2], False, 5)]
    assert pair.server.noticed == [Fault.REQUEST_REPEATED]


@pytest.mark.parametrize("data", [b"", b"\x05", speech.event()[:-1], speech.event() + b"\x01", speech.ping() + speech.ping()])
def test_a_datagram_that_is_not_one_message_is_dropped(data):
    pair = datagrams().start()
    pair.server.receive(data)
    assert pair.server.noticed == [Fault.DATAGRAM_CUT]
    assert (pair.server.session.frames, pair.server.session.rest) == (data, b"")
    pair.server.receive(speech.event())
    assert len(pair.server.delivered) == 1


def test_a_datagram_that_no_message_is_closes_as_on_a_stream():
    pair = datagrams().start()
    pair.server.receive(b"\x09 anything")
    assert pair.server.messages[-1] == Close("Unknown type 9")
    pair.server.receive(speech.event())
    assert pair.server.delivered == []


def test_what_does_not_fit_into_a_datagram_is_an_error_to_its_sender():
    pair = datagrams().start()
    head = 1 + 16 + 1 + 1 + 4
    pair.client.session.send("u", "x" * (65_507 - head - 2))
    with pytest.raises(LocalProtocolError) as caught:
        pair.client.session.send("u", "x" * (65_507 - head - 1))
    assert caught.value.fault is Fault.DATAGRAM_TOO_LARGE
    pair.settle()
    assert len(pair.server.delivered) == 1
    assert isinstance(decode(pair.client.said[-1]), Event)


def test_a_side_that_was_closed_is_over_on_a_lossy_link_too():
    pair = datagrams().start()
    pair.server.session.bye("done")
    pair.settle()
    assert pair.client.ended.by is SERVER


def test_a_pong_behind_a_large_message_is_not_late_and_a_trickle_does_not_help():
    for step, ended in ((200_000, None), (1, Fault.PING_TIMEOUT)):
        side = established(options(ping_interval=30.0, ping_timeout=10.0), cut=65_536)
        side.wait(30)
        large = speech.event(b"large", body=bytes(3_000_000))
        side.receive(large[:100])
        for second in range(14):
            side.receive(large[100 + second * step : 100 + second * step + step])
            side.wait(1)
        assert (side.session.ended and side.ended.fault) == ended


def test_a_ping_behind_our_own_output_has_its_time_when_that_has_left():
    side = established(options(ping_interval=30.0, ping_timeout=10.0))
    side.wait(30)
    assert side.session.asked == 1
    side.session.drained(1_000_000, 39.0)
    assert side.session.deadline == 39.0 + 10.0 + 9.0
