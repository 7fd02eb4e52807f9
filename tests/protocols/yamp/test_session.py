"""Pairs of sessions: handshake, events, requests, progress, bodies that are refused, and the end, over links that cut anywhere."""

from __future__ import annotations

import msgspec
import pytest
from tests.protocols.yamp import speech
from tests.protocols.yamp.pair import CLIENT, SERVER, Pair, Side, established, options
from tests.protocols.yamp.speech import OTHER, UID

from wirelake.errors import ConnectionLost, LocalProtocolError, Redirected, RemoteProtocolError, SessionClosed
from wirelake.protocols.yamp.events import (
    CancelReceived,
    Ended,
    Ending,
    EventReceived,
    Opened,
    ProgressReceived,
    RequestReceived,
    ResponseReceived,
    ResponseUnreadable,
)
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import Cancel, Close, CloseRedirect, Handshake, Request, Response
from wirelake.protocols.yamp.serializers.registry import OPAQUE, STANDARD


def asked(pair, uri="sum", body=(1, 2), **how):
    """A request of the client that the server has heard."""
    uid = pair.client.session.request(uri, list(body), pair.client.now, **how)
    pair.settle()
    return uid


# Handshake.


def test_the_client_says_what_it_wants_and_the_server_echoes_it(cut):
    pair = Pair(cut).start()
    assert pair.client.messages == pair.server.messages == [Handshake(1, "json")]
    assert pair.client.heard == pair.server.heard == [Opened(1, "json")]
    assert (pair.client.session.deadline, pair.server.session.deadline) == (None, None)


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_bodies_are_in_the_serializer_that_was_agreed_on(cut, name):
    pair = Pair(cut, options(serializer=name)).start()
    assert pair.server.session.serializer == pair.client.session.serializer == name
    pair.client.session.send("foo", {"a": [1, None]})
    pair.server.session.send("bar", "text")
    pair.settle()
    assert pair.client.messages[-1].body == STANDARD[name].serialize({"a": [1, None]})
    assert [(one.uri, one.body) for one in pair.server.delivered] == [("foo", {"a": [1, None]})]
    assert [(one.uri, one.body) for one in pair.client.delivered] == [("bar", "text")]


def test_nothing_is_said_before_the_handshake_is_over():
    for speaker in (CLIENT, SERVER):
        side = Side(speaker)
        side.start()
        for attempt in (
            lambda session: session.send("foo"),
            lambda session: session.request("foo", None, 0.0),
            lambda session: session.ping(0.0),
            lambda session: session.respond(UID),
            lambda session: session.report(UID, 1),
        ):
            with pytest.raises(LocalProtocolError) as caught:
                attempt(side.session)
            assert caught.value.fault is Fault.SPOKE_TOO_SOON
        assert side.session.cancel(UID) is False
        side.drain()
        assert len(side.said) == (speaker is CLIENT)


def test_a_client_hears_what_comes_with_the_echo(cut):
    side = Side(CLIENT, cut=cut)
    side.start()
    side.receive(speech.handshake() + speech.event() + speech.request())
    assert [type(event) for event in side.heard] == [Opened, EventReceived, RequestReceived]


# Events and requests.


def test_a_request_and_its_answer(cut):
    pair = Pair(cut).start()
    uid = asked(pair)
    assert pair.server.delivered == [RequestReceived(uid, "sum", [1, 2], False, 5)]
    assert (pair.client.session.pending, pair.server.session.serving) == (1, 1)
    pair.server.session.respond(uid, 3)
    pair.settle()
    assert pair.client.delivered == [ResponseReceived(uid, 0, 3)]
    assert (pair.client.session.pending, pair.server.session.serving) == (0, 0)
    request, response = pair.client.messages[-1], pair.server.messages[-1]
    assert response == Response(response.uid, "sum", request.uid, 0, b"3")


def test_both_sides_ask_and_answers_come_in_any_order(cut):
    pair = Pair(cut).start()
    uids = [pair.client.session.request("a", number, 0.0) for number in range(3)]
    back = pair.server.session.request("b", "server", 0.0)
    pair.settle()
    for uid in (uids[2], uids[0], uids[1]):
        pair.server.session.respond(uid, uids.index(uid))
    pair.client.session.respond_error(back, {"why": 1})
    pair.settle()
    assert pair.client.delivered[1:] == [ResponseReceived(uids[number], 0, number) for number in (2, 0, 1)]
    assert pair.server.delivered[3:] == [ResponseReceived(back, 1, {"why": 1})]


def test_progress_reaches_who_asked_for_it(cut):
    pair = Pair(cut).start()
    uid = asked(pair, progressive=True)
    for step in (0.25, None, "most"):
        assert pair.server.session.report(uid, step)
    pair.server.session.respond(uid, "all")
    pair.settle()
    steps = [ProgressReceived(uid, step, size) for step, size in ((0.25, 4), (None, 4), ("most", 6))]
    assert pair.client.delivered == [*steps, ResponseReceived(uid, 0, "all")]


def test_an_answered_request_is_not_answered_again():
    pair = Pair().start()
    uid = asked(pair)
    pair.server.session.respond(uid)
    for attempt in ("respond", "respond_cancelled", "respond_error", "respond_failure", "report"):
        with pytest.raises(LocalProtocolError) as caught:
            getattr(pair.server.session, attempt)(uid, *(("x",) if attempt != "respond_cancelled" else ()))
        assert caught.value.fault is Fault.REQUEST_NOT_IN_FLIGHT


def test_an_answer_that_cannot_be_sent_leaves_the_request_in_flight():
    pair = Pair(server=options(max_body_size=10)).start()
    uid = asked(pair)
    for body, fault in ((object(), Fault.BODY_UNSERIALIZABLE), ("x" * 20, Fault.BODY_OVER_LIMIT)):
        with pytest.raises(LocalProtocolError) as caught:
            pair.server.session.respond(uid, body)
        assert caught.value.fault is fault
    assert pair.server.session.is_serving(uid)
    pair.server.session.respond_failure(uid, "no")
    pair.settle()
    assert pair.client.delivered == [ResponseReceived(uid, 1, "no")]


def test_a_request_that_cannot_be_sent_is_not_pending():
    pair = Pair().start()
    for uri, body, fault in (("", 1, Fault.URI_SIZE), ("u" * 256, 1, Fault.URI_SIZE), ("a", object(), Fault.BODY_UNSERIALIZABLE)):
        with pytest.raises(LocalProtocolError) as caught:
            pair.client.session.request(uri, body, 0.0)
        assert caught.value.fault is fault
        with pytest.raises(LocalProtocolError):
            pair.client.session.send(uri, body)
    pair.client.drain()
    assert (pair.client.session.pending, len(pair.client.said)) == (0, 1)


def test_opaque_bodies_are_bytes_both_ways():
    pair = Pair(server=options(serializers={"json": OPAQUE})).start()
    pair.client.session.send("foo", {"a": 1})
    pair.server.session.send("foo", b'{"b":2}')
    pair.settle()
    assert pair.server.delivered[0].body == b'{"a":1}'
    assert pair.client.delivered[0].body == {"b": 2}


# Cancellation.


def test_a_request_is_cancelled_gracefully(cut):
    pair = Pair(cut).start()
    uid = asked(pair)
    assert pair.client.session.cancel(uid)
    pair.settle()
    assert pair.server.delivered[-1] == CancelReceived(uid, False)
    assert (pair.client.session.pending, pair.server.session.serving) == (1, 1)
    pair.server.session.respond_cancelled(uid)
    pair.settle()
    assert pair.client.delivered == [ResponseReceived(uid, 3, None)]
    assert pair.server.messages[-1].body == b""
    assert (pair.client.session.pending, pair.server.session.serving) == (0, 0)


def test_a_killed_request_is_over_on_both_sides_at_once(cut):
    pair = Pair(cut).start()
    uid = asked(pair, progressive=True)
    pair.server.session.report(uid, 1)
    assert pair.client.session.cancel(uid, kill=True)
    assert pair.client.session.pending == 0
    pair.settle()
    assert pair.server.delivered[-1] == CancelReceived(uid, True)
    assert not pair.server.session.is_serving(uid)
    assert pair.client.noticed == [Fault.RESPONSE_UNMATCHED], "the step that crossed"
    assert pair.client.session.cancel(uid) is False
    assert pair.client.messages[-1] == Cancel(pair.client.messages[-1].uid, "sum", uid, True)


def test_a_done_that_crossed_the_cancel_is_the_answer():
    pair = Pair().start()
    uid = asked(pair)
    pair.server.session.respond(uid, 3)
    pair.client.session.cancel(uid)
    pair.settle()
    assert pair.client.delivered == [ResponseReceived(uid, 0, 3)]
    assert pair.server.noticed == [Fault.CANCEL_UNMATCHED]
    assert pair.client.session.ended is None


def test_a_forgotten_request_is_neither_cancelled_nor_answered():
    pair = Pair().start()
    uid = asked(pair)
    said = len(pair.client.said)
    pair.client.session.forget(uid)
    pair.server.session.respond(uid, 3)
    pair.settle()
    assert (pair.client.delivered, pair.client.noticed, len(pair.client.said)) == ([], [Fault.RESPONSE_UNMATCHED], said)


def test_a_cancel_of_a_request_by_its_own_asker_s_peer_is_no_cancel():
    """Requests of either side may bear the same uid: a cancel speaks of those its listener was asked."""
    side = established()
    uid = side.session.request("a", 1, 0.0)
    side.receive(speech.cancel(uid))
    assert side.noticed == [Fault.CANCEL_UNMATCHED]
    assert side.session.pending == 1
    side.receive(speech.request(uid=uid) + speech.cancel(uid, uri=b"other", kill=1))
    assert side.delivered[-1] == CancelReceived(uid, True)
    assert side.session.pending == 1
    side.receive(speech.response(OTHER))
    assert side.noticed[-1] is Fault.RESPONSE_UNMATCHED
    assert isinstance(side.messages[0], Request)


# The end.


def test_a_close_with_its_reason_reaches_the_peer(cut):
    pair = Pair(cut).start()
    asked(pair)
    pair.client.session.bye("that is all")
    pair.settle()
    assert pair.client.ended == Ended(Ending.CLOSE, CLIENT, True, detail="that is all")
    assert pair.server.ended == Ended(Ending.CLOSE, CLIENT, False, detail="that is all")
    assert pair.server.messages == [Handshake(1, "json")], "no echo"
    for side in pair.sides:
        with pytest.raises(SessionClosed, match="that is all"):
            side.session.send("foo")
        side.session.bye("again")
        side.session.fail(Fault.PING_TIMEOUT)
        side.drain()


def test_a_reason_that_no_text_can_be_is_sent_all_the_same():
    side = established()
    side.session.bye("\ud800 broke")
    side.drain()
    assert side.messages == [Close("? broke")]


def test_a_redirect_ends_the_session_and_names_the_url(cut):
    pair = Pair(cut).start()
    pair.server.session.redirect("tcp://127.0.0.1:4000")
    pair.settle()
    assert pair.server.messages[-1] == CloseRedirect("tcp://127.0.0.1:4000")
    assert pair.client.ended == Ended(Ending.REDIRECT, SERVER, False, detail="tcp://127.0.0.1:4000")
    reason = pair.client.ended.reason()
    assert (type(reason), reason.url) == (Redirected, "tcp://127.0.0.1:4000")
    pair.server.session.redirect("tcp://127.0.0.1:4001")
    assert pair.server.session.output() == b""


def test_a_server_that_redirects_every_client(cut):
    pair = Pair(cut, server=options(redirect_to="tcp://127.0.0.1:4000")).start()
    assert pair.server.messages == [CloseRedirect("tcp://127.0.0.1:4000")]
    assert pair.client.ended.how is Ending.REDIRECT
    assert pair.client.session.state.name == "SERVER_LEFT"


@pytest.mark.parametrize(("held", "fault"), [(0, Fault.CLOSED_WITHOUT_WORD), (9, Fault.CLOSED_INSIDE_MESSAGE)])
def test_a_connection_that_ends_without_a_word(held, fault):
    side = established()
    side.receive(speech.event()[:held])
    assert side.session.rest == speech.event()[:held]
    side.eof()
    side.eof()
    assert side.ended == Ended(Ending.CLOSED, CLIENT, False, fault)
    assert type(side.ended.reason()) is ConnectionLost


def test_the_reason_of_an_end_blames_who_is_to_blame():
    side = established()
    side.receive(b"\x09")
    error = side.ended.reason()
    assert (type(error), error.fault) == (RemoteProtocolError, Fault.TYPE_UNKNOWN)
    assert str(error) == "YAMP-42: unknown message type: 9 (TYPE_UNKNOWN)"


def test_frames_are_what_the_last_receive_took():
    side = established()
    side.session.receive(speech.event() + speech.ping()[:1], 0.0)
    assert (side.session.frames, side.session.rest) == (speech.event(), speech.ping()[:1])
    side.session.receive(speech.ping()[1:], 0.0)
    assert (side.session.frames, side.session.rest) == (speech.ping(), b"")


# What is refused inside a body.


def test_a_request_that_cannot_be_read_is_answered_with_an_error(cut):
    side = established(cut=cut)
    side.receive(speech.request(body=b"{"))
    (said,) = side.messages
    assert (said.request_uid, said.uri, said.response_type) == (UID, "sum", 1)
    assert msgspec.json.decode(said.body).startswith("the body cannot be read: ")
    assert (side.delivered, side.noticed, side.session.serving) == ([], [Fault.BODY_UNDECODABLE], 0)


def test_an_event_that_cannot_be_read_is_dropped_and_told():
    side = established()
    side.receive(speech.event(body=b"{") + speech.event(b"next", b"2"))
    assert side.noticed == [Fault.BODY_UNDECODABLE]
    assert [one.uri for one in side.delivered] == ["next"]
    assert "'foo'" in side.heard[1].detail


def test_an_answer_that_cannot_be_read_fails_the_request_alone():
    side = established(speaker=CLIENT)
    uid = side.session.request("a", 1, 0.0, progressive=True)
    side.receive(speech.response(uid, speech.PROGRESS, b"{") + speech.response(uid, speech.DONE, b"\xff") + speech.event())
    assert side.noticed == [Fault.BODY_UNDECODABLE]
    unreadable, event = side.delivered
    assert isinstance(unreadable, ResponseUnreadable)
    assert (unreadable.request_uid, unreadable.response_type, unreadable.raw) == (uid, 0, b"\xff")
    assert isinstance(event, EventReceived)
    assert side.session.pending == 0


def test_nesting_that_no_parser_survives_is_refused_as_any_other():
    side = established()
    side.receive(speech.event(body=b"[" * 100_000 + b"]" * 100_000))
    assert side.noticed == [Fault.BODY_UNDECODABLE]
