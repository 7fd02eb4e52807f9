"""Bytes to messages and back, and a stream cut anywhere."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each, examples
from tests.protocols.yamp import speech
from tests.protocols.yamp.speech import OTHER, SPOKEN, STREAMS, UID, mutated

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.kernel import FAULT, LENGTH
from wirelake.protocols.yamp.faults import UNREADABLE, Fault
from wirelake.protocols.yamp.limits import Limits
from wirelake.protocols.yamp.messages import Cancel, Close, CloseRedirect, Event, Handshake, Ping, Pong, Request, Response
from wirelake.protocols.yamp.wire import buffer, decode, encode, message

SHORT = Limits(one_byte_redirect_size=True)
MEANT = {
    "handshake": Handshake(1, "json"),
    "empty-handshake": Handshake(1, ""),
    "ping": Ping(b"hi"),
    "empty-ping": Ping(),
    "pong": Pong(b"\xff" * 255),
    "close": Close("été"),
    "empty-close": Close(),
    "redirect": CloseRedirect("tcp://127.0.0.1:5000"),
    "event": Event(UID, "foo", b"1"),
    "empty-event": Event(UID, "foo"),
    "long-uri": Event(UID, "é" * 127 + "u", b"1"),
    "request": Request(UID, "sum", False, b"[1,2]"),
    "progressive": Request(UID, "sum", True, b"[1,2]"),
    "cancel": Cancel(UID, "sum", OTHER, False),
    "kill": Cancel(UID, "sum", OTHER, True),
    "done": Response(UID, "sum", OTHER, 0, b"3"),
    "error": Response(UID, "sum", OTHER, 1, b'"bad"'),
    "progress": Response(UID, "sum", OTHER, 2, b"1"),
    "cancelled": Response(UID, "sum", OTHER, 3, b""),
}


@each("name", SPOKEN)
def test_what_is_meant_is_what_is_said(name):
    assert decode(SPOKEN[name]) == MEANT[name]
    assert encode(MEANT[name]) == SPOKEN[name]


@examples(300)
@given(speech.messages, st.booleans())
def test_every_message_comes_back(said, short):
    limits = Limits(one_byte_redirect_size=short)
    assert decode(encode(said, limits), limits) == said


@each("name", SPOKEN)
def test_decode_wants_one_whole_message_and_nothing_else(name):
    said = SPOKEN[name]
    for held in range(len(said)):
        with pytest.raises(DecodeError) as cut:
            decode(said[:held])
        assert (cut.value.fault, cut.value.offset) == (Fault.MESSAGE_CUT, held)
    with pytest.raises(DecodeError) as more:
        decode(said + b"\x00")
    assert (more.value.fault, more.value.offset) == (Fault.BYTES_AFTER_MESSAGE, len(said))


def test_a_decode_error_names_clause_and_place():
    with pytest.raises(DecodeError, match=r"^YAMP-16: a uri is not UTF-8 at byte 21 \(URI_NOT_UTF8\)$"):
        decode(speech.event(b"abc\xff"))


@each(
    ("said", "fault"),
    [
        (Event(UID, "u" * 256), Fault.URI_SIZE),
        (Event(UID, "é" * 128), Fault.URI_SIZE),
        (Event(UID, "\ud800"), Fault.FIELD_OUT_OF_RANGE),
        (Event(UID[:15], "u"), Fault.FIELD_OUT_OF_RANGE),
        (Event(UID + b"\x00", "u"), Fault.FIELD_OUT_OF_RANGE),
        (Cancel(UID, "u", OTHER[:15]), Fault.FIELD_OUT_OF_RANGE),
        (Response(UID, "u", OTHER + b"\x00"), Fault.FIELD_OUT_OF_RANGE),
        (Response(UID, "u", OTHER, 256), Fault.FIELD_OUT_OF_RANGE),
        (Response(UID, "u", OTHER, -1), Fault.FIELD_OUT_OF_RANGE),
        (Response(UID, "u", OTHER, 0, bytes(9)), Fault.BODY_OVER_LIMIT),
        (Request(UID, "u", False, bytes(9)), Fault.BODY_OVER_LIMIT),
        (Event(UID, "u", bytes(9)), Fault.BODY_OVER_LIMIT),
        (Handshake(65536), Fault.FIELD_OUT_OF_RANGE),
        (Handshake(-1), Fault.FIELD_OUT_OF_RANGE),
        (Handshake(1, "x" * 256), Fault.FIELD_OUT_OF_RANGE),
        (Ping(bytes(256)), Fault.FIELD_OUT_OF_RANGE),
        (Pong(bytes(256)), Fault.FIELD_OUT_OF_RANGE),
        (Close("\ud800"), Fault.FIELD_OUT_OF_RANGE),
        (CloseRedirect("u" * 65536), Fault.FIELD_OUT_OF_RANGE),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_and_never_wrapped(said, fault):
    with pytest.raises(LocalProtocolError) as caught:
        encode(said, Limits(max_body_size=8))
    assert caught.value.fault is fault


def test_a_url_that_one_byte_of_size_cannot_say():
    assert len(encode(CloseRedirect("u" * 255), SHORT)) == 257
    with pytest.raises(LocalProtocolError) as caught:
        encode(CloseRedirect("u" * 256), SHORT)
    assert caught.value.fault is Fault.FIELD_OUT_OF_RANGE


def test_a_reason_is_cut_at_a_character():
    data = encode(Close("é" * 40_000))
    assert (len(data), decode(data)) == (3 + 65534, Close("é" * 32767))
    assert len(encode(Close("u" * 70_000))) == 3 + 65535


def test_a_reason_that_is_not_utf8_is_read_with_replacement():
    assert decode(speech.close(b"a\xffb")) == Close("a\ufffdb")


# Streams.


def parsed(pieces):
    stream = buffer()
    found = []
    for piece in pieces:
        for data, rows, _ in stream.feed(piece):
            found += [row[FAULT] if row[FAULT] in UNREADABLE else message(data, row) for row in rows]
    return found, b"" if stream.lost else stream.rest, stream.lost


@examples(200)
@given(mutated(STREAMS), st.lists(st.integers(0, 300), max_size=6))
def test_where_a_stream_is_cut_does_not_matter(data, places):
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    whole = parsed([data])
    assert parsed([data[one:other] for one, other in itertools.pairwise(edges)]) == whole
    assert parsed([data[at : at + 1] for at in range(len(data))])[0] == whole[0]


@each("name", SPOKEN)
def test_every_message_through_every_cut(name):
    said = SPOKEN[name]
    for at in range(len(said) + 1):
        assert parsed([said[:at], said[at:] + SPOKEN["ping"]]) == ([MEANT[name], Ping(b"hi")], b"", False)


def test_a_large_body_in_small_pieces_is_scanned_few_times(monkeypatch):
    stream = buffer()
    calls, scan = [], stream._scan
    monkeypatch.setattr(stream, "_scan", lambda *arguments: calls.append(1) or scan(*arguments))
    said = speech.event(body=bytes(1_000_000))
    for at in range(0, len(said), 1000):
        rows = [row for _, rows, _ in stream.feed(said[at : at + 1000]) for row in rows]
    assert [row[LENGTH] for row in rows] == [len(said)]
    assert len(calls) == 2
