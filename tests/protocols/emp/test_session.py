"""Sessions in pairs over links that cut at 1, 3 and 4,096 bytes, and alone against hostile peers: handshake, data and the end."""

from __future__ import annotations

import pytest
from tests.cases import each
from tests.protocols.emp import speech
from tests.protocols.emp.pair import CLIENT, QUIET, SERVER, Pair, Side, answer, established, options, quiet

from wirelake.errors import ConnectionLost, LocalProtocolError, PeerError, SessionClosed
from wirelake.protocols import kernel
from wirelake.protocols.emp.events import (
    DataReceived,
    Ended,
    Ending,
    Opened,
    RequestReceived,
    ResponseReceived,
)
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import Bye, Compression, Data, Error, Hello, Pong, RequestResponse
from wirelake.protocols.emp.session import Session
from wirelake.protocols.emp.state_machine import State
from wirelake.protocols.emp.wire import pack

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
    pair = Pair(client=quiet(max_message_size=100)).start()
    for attempt in (lambda: pair.client.session.send(bytes(93)), lambda: pair.client.session.request(bytes(73), 0.0)):
        with pytest.raises(LocalProtocolError) as caught:
            attempt()
        assert caught.value.fault is Fault.SIZE_OVER_LIMIT
    pair.settle()
    assert (pair.client.messages, pair.client.session.pending) == ([Hello(1)], 0)
    assert pair.client.session.request(bytes(72), 0.0) == 1, "the refused request took no identifier"
    pair.settle()


@each("size", [*range(14, 33), 64])
def test_however_small_the_limit_a_fault_does_not_raise(size):
    """The error message has to fit under our own limit too: its text is cut, and receive never raises for what the peer did."""
    side = established(quiet(max_message_size=size))
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
    exclusive = options(sizes_exclude_themselves=True)
    pair = Pair(cut, exclusive, exclusive).start()
    pair.client.session.send(b"x", compress=True)
    request_id = pair.server.session.request(b"?", 0.0)
    pair.settle()
    pair.client.session.respond(request_id, b"!")
    pair.settle()
    assert pair.client.said[:4] == b"\x00\x00\x00\x08"
    assert pair.server.delivered == [DataReceived(b"x"), ResponseReceived(request_id, b"!")]


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
    assert pair.client.ended == Ended(Ending.ERROR, SERVER, False, error=error)
    assert pair.client.messages[-1] == Data(b"?", (RequestResponse(True, 1),))
    reason = pair.client.ended.reason()
    assert isinstance(reason, PeerError)
    assert reason.message == error
    blamed = pair.server.ended.reason()
    assert isinstance(blamed, LocalProtocolError)
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
