"""Messages as objects that people read and write, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.cases import each, examples
from tests.protocols.yamp import speech
from tests.protocols.yamp.speech import OTHER, SPOKEN, UID

from wirelake.errors import UsageError
from wirelake.protocols.yamp.messages import Close, Event, Handshake, Response
from wirelake.protocols.yamp.notation import describe, parse
from wirelake.protocols.yamp.wire import buffer, encode


def described(data):
    return next(describe(whole, rows[0], parts, base=100) for whole, rows, parts in buffer().feed(data))


@each("said", SPOKEN.values(), ids=SPOKEN)
def test_an_object_is_the_message_both_ways(said):
    one = described(said)
    assert (one["offset"], one["length"]) == (100, len(said))
    assert encode(parse(one)) == said


@examples(200)
@given(speech.messages)
def test_every_message_comes_back(said):
    assert parse(described(encode(said))) == said


def test_what_an_object_shows():
    assert described(speech.response(kind=1, body=b'{"a":[1]}')) == {
        "offset": 100,
        "length": 51,
        "type": "response",
        "uid": UID.hex(),
        "uri": "sum",
        "request_uid": OTHER.hex(),
        "response_type": "error",
        "body": b'{"a":[1]}'.hex(),
        "json": {"a": [1]},
    }
    assert "json" not in described(speech.event(body=b"\xc0"))
    assert "json" not in described(speech.event(body=b""))
    assert described(speech.response(kind=9))["breach"] == "RESPONSE_TYPE_UNKNOWN"
    assert described(speech.response(kind=9))["response_type"] == 9


def test_what_cannot_be_read_is_shown_as_its_fault():
    assert described(speech.event(b"ab\xff")) == {
        "offset": 120,
        "fault": "URI_NOT_UTF8",
        "clause": "YAMP-16",
        "text": "a uri is not UTF-8",
        "message_offset": 100,
        "message_length": len(speech.event(b"ab\xff")),
    }


def test_what_may_be_left_out():
    assert parse({"type": "system.handshake"}) == Handshake(1, "json")
    assert parse({"type": "system.close"}) == Close()
    assert parse({"type": "event", "uid": UID.hex(), "uri": "foo", "json": {"a": 1}}) == Event(UID, "foo", b'{"a":1}')
    assert parse({"type": "response", "uid": UID.hex(), "uri": "foo", "request_uid": OTHER.hex()}) == Response(UID, "foo", OTHER)


EVENT = {"type": "event", "uid": UID.hex(), "uri": "foo"}


@each(
    ("given", "complaint"),
    [
        ({"fault": "X"}, "fault"),
        ({}, "type"),
        ({"type": "howdy"}, "type"),
        ({"type": "system.handshake", "version": 65536}, "version"),
        ({"type": "system.handshake", "version": True}, "version"),
        ({"type": "system.handshake", "serializer": 4}, "serializer"),
        ({"type": "system.ping", "payload": "x"}, "payload"),
        ({"type": "system.pong", "payload": 4}, "payload"),
        ({"type": "system.close", "reason": 4}, "reason"),
        ({"type": "system.close-redirect"}, "url"),
        ({**EVENT, "uid": "00"}, "uid"),
        ({**EVENT, "uri": None}, "uri"),
        ({**EVENT, "body": "x"}, "body"),
        ({**EVENT, "type": "request", "progressive": 1}, "progressive"),
        ({**EVENT, "type": "cancel"}, "request_uid"),
        ({**EVENT, "type": "cancel", "request_uid": OTHER.hex(), "kill": "yes"}, "kill"),
        ({**EVENT, "type": "response", "request_uid": OTHER.hex(), "response_type": "won"}, "response_type"),
        ({**EVENT, "type": "response", "request_uid": OTHER.hex(), "response_type": 256}, "response_type"),
    ],
)
def test_an_object_that_is_no_message_is_refused(given, complaint):
    with pytest.raises(UsageError, match=complaint):
        parse(given)
