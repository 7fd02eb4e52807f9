"""Requests between two sessions: in any order, late, twice, unanswered, and with the last identifier."""

from __future__ import annotations

import pytest
from tests.protocols.emp import speech
from tests.protocols.emp.pair import Pair, answer, established, options, quiet

from wirelake.errors import LocalProtocolError
from wirelake.protocols.emp.events import (
    Opened,
    RequestExpired,
    RequestReceived,
    ResponseReceived,
)
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import Data, RequestResponse
from wirelake.protocols.emp.requests import LAST_ID


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


def test_a_response_without_a_request_is_a_bug_of_the_caller():
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
    side.session._requests._last_id = LAST_ID - 1
    assert side.session.request(b"last", 0.0) == LAST_ID
    with pytest.raises(LocalProtocolError) as caught:
        side.session.request(b"none left", 0.0)
    assert caught.value.fault is Fault.IDENTIFIERS_EXHAUSTED
    side.drain()
    assert side.messages == [Data(b"last", (RequestResponse(True, LAST_ID),))]
    side.receive(speech.response(LAST_ID, b"!"))
    assert side.delivered == [ResponseReceived(LAST_ID, b"!")]


@pytest.mark.parametrize("request_id", [1, 2**63 - 1, 2**63, 2**64 - 1])
def test_identifiers_of_the_peer_are_unsigned(request_id, cut):
    side = established(cut=cut)
    side.receive(speech.request(request_id, b"?"))
    assert side.delivered == [RequestReceived(request_id, b"?")]
    side.session.respond(request_id, b"!")
    side.drain()
    assert side.said == speech.response(request_id, b"!")
