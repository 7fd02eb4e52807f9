"""Sessions in pairs over links that cut at 1, 3 and 4,096 bytes, and alone against hostile peers; time is a number."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.emp import speech
from tests.protocols.emp.pair import CLIENT, QUIET, SERVER, Pair, Side, answer, established
from tests.protocols.emp.test_scanner import PRIMITIVES, mutated

from wirelake.errors import ConnectionLost, LocalProtocolError, PeerError, RemoteProtocolError, SessionClosed
from wirelake.protocols import kernel
from wirelake.protocols.emp.conversation import State
from wirelake.protocols.emp.events import (
    DataReceived,
    Ended,
    Ending,
    Opened,
    RequestExpired,
    RequestReceived,
    ResponseReceived,
)
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import Application, Bye, Compression, Data, Error, Hello, OtherExtension, Ping, Pong, RequestResponse
from wirelake.protocols.emp.options import DEFAULT_OPTIONS, Limits, Refused
from wirelake.protocols.emp.requests import LAST_ID
from wirelake.protocols.emp.session import Session
from wirelake.protocols.emp.wire import pack


@pytest.fixture(params=[1, 3, 4096])
def cut(request):
    """At how many bytes the link cuts."""
    return request.param


def options(**changes):
    return msgspec.structs.replace(DEFAULT_OPTIONS, **changes)


def quiet(**changes):
    return msgspec.structs.replace(QUIET, **changes)


# Handshake.


def test_both_say_hello_and_are_open(cut):
    pair = Pair(cut).start()
    for side in pair.sides:
        assert side.messages == [Hello(1)]
        assert side.heard == [Opened(1)]
        assert side.session.state is State.OPEN


def test_nothing_is_sent_before_the_hello_was_heard():
    side = Side(CLIENT)
    side.start()
    for attempt in (
        lambda: side.session.send(b""),
        lambda: side.session.request(b"", 0.0),
        lambda: side.session.respond(1, b""),
        lambda: side.session.ping(0.0),
    ):
        with pytest.raises(LocalProtocolError) as caught:
            attempt()
        assert caught.value.fault is Fault.SPOKE_TOO_SOON
        side.drain()
    assert side.messages == [Hello(1)]


def test_a_session_starts_once():
    side = established()
    with pytest.raises(LocalProtocolError) as caught:
        side.start()
    assert caught.value.fault is Fault.HELLO_REPEATED


def test_hello_and_data_may_come_in_one_piece(cut):
    side = Side(SERVER, cut=cut)
    side.start()
    side.receive(speech.hello() + speech.data(b"at once") + speech.request(1, b"too"))
    assert side.heard == [Opened(1), DataReceived(b"at once"), RequestReceived(1, b"too")]


def test_a_hello_heard_before_ours_is_said_needs_no_timeout():
    """The owner may read before it starts the session: the handshake is over as soon as both hellos are out."""
    side = Side(SERVER)
    side.session.receive(speech.hello(), 0.0)
    side.session.start(0.0)
    side.heard += side.session.events()
    assert side.session.state is State.OPEN
    assert side.heard == [Opened(1)]
    side.wait(9.9)
    assert side.session.ended is None


@pytest.mark.parametrize("timeout", [5.0, 0.25])
def test_silence_ends_the_handshake(timeout):
    side = Side(SERVER, options(handshake_timeout=timeout))
    side.now = 100.0
    side.start()
    assert side.session.deadline == 100.0 + timeout
    side.wait(timeout - 0.01)
    assert side.session.ended is None
    side.wait(0.01)
    assert side.messages[1:] == [Error(2, 0, 0, "EMP-29: no hello in time")]
    assert (side.ended.how, side.ended.fault, side.ended.here) == (Ending.ERROR, Fault.HANDSHAKE_TIMEOUT, True)


def test_the_handshake_timer_stops_with_the_hello():
    side = Side(SERVER, options(ping_interval=None))
    side.start()
    side.wait(4.9)
    side.receive(speech.hello())
    assert side.session.deadline is None
    side.wait(100)
    assert side.session.ended is None


def test_bytes_that_are_no_hello_do_not_stop_the_handshake_timer():
    side = Side(SERVER)
    side.start()
    side.wait(4.9)
    side.receive(speech.hello()[:-1])
    side.wait(0.1)
    assert side.ended.fault is Fault.HANDSHAKE_TIMEOUT


@pytest.mark.parametrize("parting", [speech.bye, speech.error(0, b"no")], ids=["bye", "error"])
def test_a_parting_instead_of_a_hello_closes_silently(parting, cut):
    result = answer(parting, handshake=True, cut=cut)
    assert result.error is None
    assert (result.ended.by, result.ended.here) == (CLIENT, False)


# Data.


def test_data_goes_both_ways_in_order(cut):
    pair = Pair(cut).start()
    bodies = [b"", b"x", b"hello" * 100, bytes(5000)]
    for body in bodies:
        pair.client.session.send(body)
        pair.server.session.send(body, compress=True)
    pair.settle()
    for side in pair.sides:
        assert side.delivered == [DataReceived(body) for body in bodies]
    assert pair.server.messages[1] == Data(pack(b""), (Compression(1),))


def test_compiled_sessions_hear_the_same(cut, monkeypatch):
    monkeypatch.setattr(kernel, "_use_compiled", True)
    pair = Pair(cut).start()
    pair.client.session.send(b"x" * 300, compress=True)
    request_id = pair.client.session.request(b"?", 0.0)
    pair.settle()
    assert pair.server.delivered == [DataReceived(b"x" * 300), RequestReceived(request_id, b"?")]
    assert all(type(event.request_id) is int for event in pair.server.delivered[1:])


def test_a_message_over_the_limit_is_not_sent_and_nothing_changes():
    pair = Pair(client=quiet(limits=Limits(max_message_size=100))).start()
    for attempt in (lambda: pair.client.session.send(bytes(93)), lambda: pair.client.session.request(bytes(73), 0.0)):
        with pytest.raises(LocalProtocolError) as caught:
            attempt()
        assert caught.value.fault is Fault.SIZE_OVER_LIMIT
    pair.settle()
    assert (pair.client.messages, pair.client.session.pending) == ([Hello(1)], 0)
    assert pair.client.session.request(bytes(72), 0.0) == 1, "the refused request took no identifier"
    pair.settle()


@pytest.mark.parametrize("size", [*range(14, 33), 64])
def test_however_small_the_limit_a_fault_does_not_raise(size):
    """The error message has to fit under our own limit too: its text is cut, and receive never raises for what the peer did."""
    side = established(quiet(limits=Limits(max_message_size=size)))
    side.receive(b"\xff\xff\xff\xff")
    assert side.ended.fault is Fault.SIZE_OVER_LIMIT
    (error,) = side.messages
    assert error.error_code == 3


def test_announced_gigabytes_end_the_session_on_four_bytes(cut):
    side = established(cut=cut)
    side.receive(b"\xff\xff\xff\xff")
    assert [one.error_code for one in side.messages] == [3]
    assert side.ended.fault is Fault.SIZE_OVER_LIMIT


def test_peers_whose_sizes_exclude_themselves(cut):
    exclusive = options(limits=Limits(sizes_exclude_themselves=True))
    pair = Pair(cut, exclusive, exclusive).start()
    pair.client.session.send(b"x", compress=True)
    request_id = pair.server.session.request(b"?", 0.0)
    pair.settle()
    pair.client.session.respond(request_id, b"!")
    pair.settle()
    assert pair.client.said[:4] == b"\x00\x00\x00\x08"
    assert pair.server.delivered == [DataReceived(b"x"), ResponseReceived(request_id, b"!")]


# Requests.


def test_requests_both_ways_at_once_with_the_same_identifiers(cut):
    pair = Pair(cut).start()
    assert [pair.client.session.request(b"c1", 0.0), pair.client.session.request(b"c2", 0.0, compress=True)] == [1, 2]
    assert [pair.server.session.request(b"s1", 0.0)] == [1]
    assert (pair.client.session.pending, pair.server.session.pending) == (2, 1)
    pair.settle()
    assert pair.server.delivered == [RequestReceived(1, b"c1"), RequestReceived(2, b"c2")]
    assert pair.client.delivered == [RequestReceived(1, b"s1")]
    assert (pair.client.session.serving, pair.server.session.serving) == (1, 2)
    pair.server.session.respond(2, b"C2", compress=True)
    pair.server.session.respond(1, b"C1")
    pair.client.session.respond(1, b"S1")
    pair.settle()
    assert pair.client.delivered[1:] == [ResponseReceived(2, b"C2"), ResponseReceived(1, b"C1")]
    assert pair.server.delivered[2:] == [ResponseReceived(1, b"S1")]
    assert [side.session.pending + side.session.serving for side in pair.sides] == [0, 0]


def test_in_order_answers_are_held_until_their_turn(cut):
    pair = Pair(cut, server=options(in_order=True)).start()
    for body in (b"1", b"2", b"3"):
        pair.client.session.request(body, 0.0)
    pair.settle()
    for request_id in (3, 1):
        pair.server.session.respond(request_id, b"answer")
        pair.settle()
    assert [event.request_id for event in pair.client.delivered] == [1]
    pair.server.session.respond(2, b"answer")
    pair.settle()
    assert [event.request_id for event in pair.client.delivered] == [1, 2, 3]


def test_an_answer_nobody_asked_for_is_a_bug_of_the_caller():
    pair = Pair().start()
    pair.client.session.request(b"", 0.0)
    pair.settle()
    pair.server.session.respond(1, b"")
    for request_id in (1, 2):
        with pytest.raises(LocalProtocolError) as caught:
            pair.server.session.respond(request_id, b"")
        assert caught.value.fault is Fault.RESPONSE_UNMATCHED
    pair.settle()
    assert pair.client.delivered == [ResponseReceived(1, b"")]


def test_a_request_that_is_not_answered_expires(cut):
    pair = Pair(cut, options(request_timeout=3.0)).start()
    slow = pair.client.session.request(b"slow", 0.0)
    slower = pair.client.session.request(b"slower", 0.0, timeout=7.0)
    pair.settle()
    assert pair.client.session.deadline == 3.0
    pair.wait(2.9)
    assert pair.client.session.pending == 2
    pair.wait(0.1)
    assert pair.client.heard[1:] == [RequestExpired(slow)]
    pair.wait(4.0)
    assert pair.client.heard[1:] == [RequestExpired(slow), RequestExpired(slower)]
    assert pair.client.session.pending == 0
    assert pair.client.session.ended is None


@pytest.mark.parametrize("how", ["expired", "abandoned"])
def test_a_late_answer_is_swallowed_once_and_no_more(cut, how):
    pair = Pair(cut, options(request_timeout=3.0)).start()
    request_id = pair.client.session.request(b"slow", 0.0)
    pair.settle()
    if how == "expired":
        pair.wait(3.0)
    else:
        pair.client.session.abandon(request_id)
    pair.server.session.respond(request_id, b"late")
    pair.settle()
    assert pair.client.noticed == [Fault.RESPONSE_LATE]
    assert pair.client.delivered == []
    pair.client.receive(speech.response(request_id, b"later still"))
    assert pair.client.ended.fault is Fault.RESPONSE_UNMATCHED
    assert pair.client.messages[-1].error_code == 3


def test_an_answered_request_does_not_expire():
    pair = Pair(client=quiet(request_timeout=3.0)).start()
    pair.client.session.request(b"", 0.0)
    pair.settle()
    pair.server.session.respond(1, b"")
    pair.settle()
    assert pair.client.session.deadline is None
    pair.wait(10)
    assert pair.client.heard == [Opened(1), ResponseReceived(1, b"")]


def test_given_up_requests_beyond_the_bound_are_forgotten():
    side = established(quiet(max_abandoned=2))
    for _ in range(3):
        side.session.abandon(side.session.request(b"", 0.0))
    side.receive(speech.response(3) + speech.response(2))
    assert side.noticed == [Fault.RESPONSE_LATE] * 2
    side.receive(speech.response(1))
    assert side.ended.fault is Fault.RESPONSE_UNMATCHED


def test_a_response_that_matches_nothing_ends_the_session(cut):
    result = answer(speech.response(1, b"?"), cut=cut)
    assert (result.error.error_code, result.ended.fault, result.delivered) == (3, Fault.RESPONSE_UNMATCHED, [])


def test_an_identifier_in_flight_may_not_be_used_again(cut):
    side = established(cut=cut)
    side.receive(speech.request(5, b"first") + speech.request(5, b"second"))
    assert side.ended.fault is Fault.REQUEST_ID_IN_FLIGHT
    assert side.delivered == [RequestReceived(5, b"first")]
    again = established(cut=cut)
    again.receive(speech.request(5, b"first"))
    again.session.respond(5, b"")
    again.receive(speech.request(5, b"second"))
    assert again.session.ended is None
    assert [event.body for event in again.delivered] == [b"first", b"second"]


def test_a_held_answer_keeps_its_identifier_in_flight():
    side = established(options(in_order=True))
    side.receive(speech.request(1) + speech.request(2))
    side.session.respond(2, b"")
    side.drain()
    assert side.said == b""
    side.receive(speech.request(2))
    assert side.ended.fault is Fault.REQUEST_ID_IN_FLIGHT


def test_identifiers_run_out(cut):
    side = established(cut=cut)
    side.session._asked._last_id = LAST_ID - 1
    assert side.session.request(b"last", 0.0) == LAST_ID
    with pytest.raises(LocalProtocolError) as caught:
        side.session.request(b"none left", 0.0)
    assert caught.value.fault is Fault.IDENTIFIERS_EXHAUSTED
    side.drain()
    assert side.messages == [Data(b"last", (RequestResponse(True, LAST_ID),))]
    side.receive(speech.response(LAST_ID, b"!"))
    assert side.delivered == [ResponseReceived(LAST_ID, b"!")]


# Ping and pong.


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


def test_a_pong_nobody_asked_for_is_ignored_and_noticed(cut):
    side = established(cut=cut)
    deadline = side.session.deadline
    side.receive(speech.pong)
    assert (side.noticed, side.session.ended, side.session.deadline) == ([Fault.PONG_UNSOLICITED], None, deadline)


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


def test_pausing_does_not_stop_requests_from_expiring():
    side = established(options(request_timeout=3.0))
    side.session.request(b"", 0.0)
    side.pause()
    side.wait(3)
    assert side.heard[-1] == RequestExpired(1)


# The end.


def test_bye_ends_both_and_fails_what_is_pending(cut):
    pair = Pair(cut).start()
    pair.client.session.request(b"?", 0.0)
    pair.server.session.request(b"?", 0.0)
    pair.settle()
    pair.client.session.bye("done")
    pair.settle()
    assert pair.client.messages[-1] == Bye()
    assert pair.server.messages[-1] != Bye(), "a bye is not answered"
    assert pair.client.ended == Ended(Ending.BYE, CLIENT, True, detail="done")
    assert pair.server.ended == Ended(Ending.BYE, CLIENT, False)
    assert [type(side.ended.reason()) for side in pair.sides] == [SessionClosed, SessionClosed]
    assert [side.session.pending for side in pair.sides] == [0, 0]


def test_what_was_on_its_way_when_we_said_bye_is_discarded(cut):
    pair = Pair(cut).start()
    pair.deaf = {CLIENT, SERVER}
    pair.client.session.bye()
    pair.server.session.send(b"too late")
    pair.settle()
    pair.deaf = set()
    pair.settle()
    assert pair.client.delivered == []
    assert pair.client.ended.how is Ending.BYE
    assert pair.server.ended.how is Ending.BYE


def test_after_the_end_everything_is_refused():
    pair = Pair().start()
    pair.client.session.bye()
    pair.settle()
    for side in pair.sides:
        for attempt in (
            lambda session=side.session: session.send(b""),
            lambda session=side.session: session.request(b"", 0.0),
            lambda session=side.session: session.respond(1, b""),
            lambda session=side.session: session.ping(0.0),
        ):
            with pytest.raises(SessionClosed) as caught:
                attempt()
            assert "closed the session" in str(caught.value)
        side.session.bye()
        side.session.fail(Fault.HANDLER_FAILED)
        side.session.receive_eof(0.0)
        side.session.tick(1e9)
        side.session.resume(0.0)
        side.drain()
    assert pair.client.messages == [Hello(1), Bye()]


def test_an_error_of_the_peer_ends_the_session_unanswered(cut):
    pair = Pair(cut).start()
    pair.client.session.request(b"?", 0.0)
    pair.settle()
    pair.server.session.fail(Fault.HANDLER_FAILED, "no luck")
    pair.settle()
    error = Error(0, 0, 0, "EMP-19: the request could not be answered: no luck")
    assert pair.server.messages[-1] == error
    assert pair.client.ended == Ended(Ending.ERROR, SERVER, False, None, error)
    assert pair.client.messages[-1] == Data(b"?", (RequestResponse(True, 1),))
    reason = pair.client.ended.reason()
    assert isinstance(reason, PeerError)
    assert reason.message == error
    blamed = pair.server.ended.reason()
    assert isinstance(blamed, RemoteProtocolError)
    assert blamed.fault is Fault.HANDLER_FAILED


def test_the_owner_chooses_the_codes_of_an_error():
    side = established()
    side.session.fail(Fault.HANDLER_FAILED, error_code=200, extension_id=9, extension_error_code=9)
    side.drain()
    assert (side.messages[-1].error_code, side.messages[-1].extension_id, side.messages[-1].extension_error_code) == (200, 0, 0)
    side = established()
    side.session.fail(Fault.EXTENSION_REFUSED, extension_id=200, extension_error_code=9)
    side.drain()
    assert (side.messages[-1].error_code, side.messages[-1].extension_id, side.messages[-1].extension_error_code) == (4, 200, 9)


@pytest.mark.parametrize("held", range(9))
def test_the_end_of_the_stream_without_a_word(held, cut):
    side = established(cut=cut)
    side.session.request(b"?", 0.0)
    side.receive(speech.data(b"x")[:held])
    side.eof()
    inside = Fault.CLOSED_INSIDE_MESSAGE if held % 9 else Fault.CLOSED_WITHOUT_PARTING
    assert side.ended == Ended(Ending.CLOSED, CLIENT, False, inside)
    reason = side.ended.reason()
    assert type(reason) is ConnectionLost
    assert inside.text in str(reason)
    assert side.delivered == []


def test_the_end_of_the_stream_after_the_end_adds_nothing():
    side = established()
    side.receive(speech.bye)
    side.eof()
    assert side.ended.how is Ending.BYE


@pytest.mark.parametrize(
    "faulty", [b"\x00\x00\x00\x00", speech.envelope(6), speech.request(0), speech.hello()], ids=["size", "type", "zero", "hello"]
)
def test_nothing_after_a_fault_is_delivered(faulty, cut):
    side = established(cut=cut)
    side.receive(speech.data(b"before") + faulty + speech.data(b"after") + speech.ping)
    assert side.delivered == [DataReceived(b"before")]
    assert [type(one) for one in side.messages] == [Error]
    assert side.ended.here


def test_what_was_received_can_be_recorded(cut):
    """`frames` are the whole messages of the last receive, `rest` what is no whole message yet."""
    session = Session(SERVER, QUIET)
    session.start(0.0)
    stream = speech.hello() + speech.data(b"x") + speech.ping + speech.data(b"cut")
    recorded = b""
    for at in range(0, len(stream) - 2, cut):
        session.receive(stream[at : min(at + cut, len(stream) - 2)], 0.0)
        recorded += session.frames
    assert recorded == speech.hello() + speech.data(b"x") + speech.ping
    assert session.rest == speech.data(b"cut")[:-2]


# What applications add.


class Reverse:
    """An extension that reverses the body; it refuses a body that begins with what its block says."""

    def undo(self, content, body):
        if content and body.startswith(content):
            raise Refused(77, "not that")
        return body[::-1]


EXTENDED = options(application_types=frozenset({128, 200}), codecs={200: Reverse(), 255: Reverse()})


def test_a_registered_type_is_delivered(cut):
    pair = Pair(cut, EXTENDED, EXTENDED).start()
    pair.client.session.send(b"own", type_id=200)
    request_id = pair.client.session.request(b"own", 0.0, type_id=128)
    pair.settle()
    assert pair.server.delivered == [DataReceived(b"own", 200), RequestReceived(request_id, b"own", 128)]
    pair.server.session.respond(request_id, b"back", type_id=200)
    pair.settle()
    assert pair.client.delivered == [ResponseReceived(request_id, b"back", 200)]


@pytest.mark.parametrize("type_id", [129, 255])
def test_a_type_nobody_registered_ends_the_session(type_id, cut):
    result = answer(speech.envelope(type_id, b"own"), EXTENDED, cut=cut)
    assert (result.error.error_code, result.ended.fault, result.delivered) == (3, Fault.TYPE_UNREGISTERED, [])


@pytest.mark.parametrize("type_id", [0, 4, 6, 127, 256])
def test_a_type_that_is_not_the_applications_is_not_sent(type_id):
    side = established()
    with pytest.raises(LocalProtocolError) as caught:
        side.session.send(b"", type_id=type_id)
    assert caught.value.fault is Fault.TYPE_RESERVED
    side.drain()
    assert side.said == b""


def test_a_registered_extension_is_undone_from_the_last(cut):
    pair = Pair(cut, EXTENDED, EXTENDED).start()
    pair.client.session.send(b"desrever", extensions=(OtherExtension(200, b""),))
    pair.client.session.send(b"desrever", extensions=(OtherExtension(255, b""),), compress=True)
    pair.client.session.request(b"?yhw", 0.0, extensions=(OtherExtension(200, b"no"),))
    pair.settle()
    assert pair.server.delivered == [
        DataReceived(b"reversed", extensions=(OtherExtension(200, b""),)),
        DataReceived(b"reversed", extensions=(OtherExtension(255, b""),)),
        RequestReceived(1, b"why?", extensions=(OtherExtension(200, b"no"),)),
    ]
    mixed = speech.data(pack(b"x1")[::-1], speech.gz(1, more=True) + speech.block(200))
    pair.server.receive(mixed)
    assert pair.server.delivered[-1].body == b"x1"


def test_a_refused_block_is_answered_with_its_code(cut):
    result = answer(speech.data(b"no!", speech.block(200, b"no")), EXTENDED, cut=cut)
    assert (result.error.error_code, result.error.extension_id, result.error.extension_error_code) == (4, 200, 77)
    assert (result.ended.fault, result.delivered) == (Fault.EXTENSION_REFUSED, [])


@pytest.mark.parametrize("extension", [2, 127, 128, 254])
@pytest.mark.parametrize("kind", [speech.BYE, speech.PING, speech.PONG, speech.DATA, 200])
def test_an_extension_nobody_registered_ends_the_session_whatever_carries_it(kind, extension, cut):
    result = answer(speech.envelope(kind, b"", speech.block(extension, b"x")), EXTENDED, cut=cut)
    assert result.ended is not None, "accepted"
    assert result.ended.fault is Fault.EXTENSION_UNKNOWN
    assert (result.error.error_code, result.error.extension_id) == (4, extension)
    assert result.delivered == []


def test_a_registered_extension_may_stand_on_a_ping(cut):
    side = established(EXTENDED, cut=cut)
    side.receive(speech.envelope(speech.PING, b"", speech.block(200, b"x")))
    assert side.messages == [Pong()]


def test_an_application_message_may_carry_everything():
    side = established(EXTENDED)
    body = pack(b"body")
    side.receive(speech.envelope(128, body, speech.rr(True, 9, more=True) + speech.gz(0, more=True) + speech.gz(1)))
    assert side.delivered == [RequestReceived(9, b"body", 128)]
    side.session.respond(9, b"back", type_id=128, compress=True)
    side.drain()
    assert side.messages == [Application(128, pack(b"back"), (RequestResponse(False, 9), Compression(1)))]


def test_nobody_answers_requests(cut):
    side = established(options(answers_requests=False), cut=cut)
    side.receive(speech.data(b"data is fine") + speech.request(1))
    assert side.ended.fault is Fault.REQUEST_UNHANDLED
    assert side.messages[-1].error_code == 0
    assert side.delivered == [DataReceived(b"data is fine")]


# Oddities.


def test_what_is_tolerated_is_noticed(cut):
    side = established(cut=cut)
    side.receive(
        speech.envelope(speech.PING, b"body", unused=b"\x01\x00\x00")
        + speech.envelope(speech.DATA, b"x", unused=b"\x00\x01\x00")
        + speech.envelope(speech.DATA, b"y")
    )
    assert side.noticed == [Fault.UNUSED_BITS_SET, Fault.BODY_IGNORED, Fault.UNUSED_BITS_SET]
    assert side.messages == [Pong()]
    assert [event.body for event in side.delivered] == [b"x", b"y"]


# Whatever Hypothesis says.


@settings(max_examples=250)
@given(mutated(st.lists(PRIMITIVES, max_size=8).map(b"".join)), st.booleans(), st.sampled_from((1, 3, 7, 4096)))
def test_whatever_arrives_a_session_does_not_raise_and_the_cut_does_not_matter(data, greeted, cut):
    whole, pieces = Side(SERVER, EXTENDED), Side(SERVER, EXTENDED, cut)
    for side in (whole, pieces):
        side.start()
        side.receive(speech.hello() * greeted + data)
        side.eof()
        assert side.session.ended is not None
    assert whole.heard == pieces.heard
    assert whole.said == pieces.said
    assert sum(isinstance(one, Error) for one in whole.messages) <= 1


class Step(msgspec.Struct):
    """Something an owner, the link or time does."""

    what: str
    who: int
    size: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(("send", "pack", "request", "respond", "abandon", "ping", "wait", "carry", "pause", "resume")),
        st.integers(0, 1),
        st.integers(0, 9),
    ),
    max_size=40,
)


@settings(max_examples=100)
@given(STEPS, st.sampled_from((1, 3, 4096)), st.booleans(), st.booleans())
def test_two_right_peers_never_fault_each_other(steps, cut, in_order, says_bye):
    """Any order of doing: every request is answered, expires or is given up; nobody is blamed for anything but silence."""
    both = options(request_timeout=20.0, ping_interval=5.0, pong_timeout=None, in_order=in_order)
    pair = Pair(cut, both, both).start()
    open_requests = ([], [])
    for step in steps:
        side, other = pair.sides[step.who], pair.sides[1 - step.who]
        session = side.session
        if step.what in ("send", "pack"):
            session.send(bytes(step.size * 100), compress=step.what == "pack")
        elif step.what == "request":
            session.request(bytes(step.size), side.now)
        elif step.what == "respond":
            taken = [event.request_id for event in side.heard if isinstance(event, RequestReceived)]
            waiting = [one for one in taken if one not in open_requests[step.who]]
            if waiting:
                chosen = waiting[step.size % len(waiting)]
                open_requests[step.who].append(chosen)
                session.respond(chosen, b"answer")
        elif step.what == "abandon":
            session.abandon(step.size)
        elif step.what == "ping" and not session._ping_pending:
            session.ping(side.now)
        elif step.what == "wait":
            pair.wait(step.size)
        elif step.what == "pause":
            side.pause()
        elif step.what == "resume":
            side.resume()
        side.drain()
        if step.what == "carry":
            pair.settle()
        assert side.session.ended is None
        assert other.session.ended is None
    pair.settle()
    pair.wait(21)
    for side, other in (pair.sides, pair.sides[::-1]):
        assert set(side.noticed) <= {Fault.RESPONSE_LATE}
        assert side.session.pending == 0
        sent = [one for one in other.messages if isinstance(one, Data) and not any(isinstance(e, RequestResponse) for e in one.extensions)]
        assert len([event for event in side.delivered if isinstance(event, DataReceived)]) == len(sent)
    if says_bye:
        pair.client.session.bye()
        pair.settle()
        assert [side.ended.how for side in pair.sides] == [Ending.BYE, Ending.BYE]
