"""The expression that reads common texts agrees with the scanner, or leaves them to it."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.protocols.wolpertinger.pair import CALL_ID, KEYS, TRUSTED, session, text_of

from wirelake.errors import LocalProtocolError
from wirelake.protocols.kernel import LENGTH, table
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer1.lines import Lines, common
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.messages import Encryption, Envelope
from wirelake.protocols.wolpertinger.scanner import (
    DEFAULT_LIMITS,
    ENCRYPTION,
    MESSAGE_ID,
    PAYLOAD,
    PAYLOAD_LENGTH,
    RESULT,
    ROW_COLUMNS,
    Limits,
    scan,
)
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.protocols.wolpertinger.wire import encode, encode_plain, sealed

TAKEN = [
    b"message_id:1;",
    b"message_id:0;",
    b"message_id:007;PHg+",
    b"message_id:999999999;PHg+ ",
    b"message_id:5;encryption:aes;AAAA",
    b"message_id:5;encryption:aes;",
    b"message_id:5;encryption:AES;AAAA",
    b"message_id:5;encryption:aEs;",
    b"message_id:5;:",
    b"result:0;message_id:1;",
    b"result:5;message_id:123456789;",
]
LEFT = [
    b"",
    b";",
    b"message_id:1",
    b"message_id:;",
    b"Message_id:1;",
    b"message_id:4294967295;",
    b"message_id:1;encryption:des;AAAA",
    b"message_id:1;Encryption:aes;AAAA",
    "message_id:1;encryption:ae\u017f;AAAA".encode(),
    b"message_id:1;secure:aes;AAAA",
    b"message_id:1;encryption:aes;gzip:5;AAAA",
    b"message_id:1;gzip:5;AAAA",
    b"message_id:1;;",
    b"encryption:aes;message_id:1;AAAA",
    b"fragment_index:0;fragment_count:1;message_id:1;AAAA",
    b"result:6;message_id:1;",
    b"result:0;message_id:1;x",
    b"result:0;message_id:1;gzip:1;",
    b"message_id:1;result:0;",
    b"result:0;",
]


def scanned(text, start):
    row = table(1, ROW_COLUMNS)
    scan(text, start, len(text), row, row, DEFAULT_LIMITS.for_text())
    return list(row)


@each("text", TAKEN)
@each("start", [0, 3])
def test_what_it_takes_is_as_the_scanner_reads_it(text, start):
    data = b"xyz"[:start] + text
    assert common(data, start, len(data)) == scanned(data, start)
    assert scanned(data, start)[LENGTH] == len(text)


@each("text", LEFT)
def test_the_rest_is_left_to_the_scanner(text):
    assert common(text, 0, len(text)) is None


def test_it_never_contradicts_the_scanner():
    dice = random.Random(11)
    checked = 0
    for text, place, byte in itertools.product(TAKEN, range(30), (*b":;09aA_ \n\r", 0, 255)):
        if place <= len(text):
            for data in (text[:place] + bytes([byte]) + text[place:], text[:place] + bytes([byte]) + text[place + 1 :]):
                row = common(data, 0, len(data))
                checked += row is not None
                assert row is None or row == scanned(data, 0), data
    for _ in range(2000):
        data = bytes(dice.choices(b"message_id:result;0123456789encryption:aes;", k=dice.randrange(40)))
        row = common(data, 0, len(data))
        assert row is None or row == scanned(data, 0), data
    assert checked > 300


@pytest.mark.parametrize("size", [0, 1, 2, 3, 100, 1000])
def test_the_short_way_to_write_a_message_writes_what_encode_writes(size):
    payload = bytes(range(256)) * 4
    what = sealed(payload[:size], None)
    assert encode_plain(7, payload[:size], DEFAULT_LIMITS) == encode(Envelope(7, what.text, what.gzip, what.encryption))


def test_the_short_way_keeps_the_limit():
    with pytest.raises(LocalProtocolError) as refused:
        encode_plain(7, bytes(100), Limits(max_text_size=148))
    assert refused.value.fault is Fault.TEXT_OVER_LIMIT
    assert len(encode_plain(7, bytes(100), Limits(max_text_size=149))) == 149


def together(data):
    """What `texts` reads, as rows have it: message_id, payload, whether it is encrypted, and the code of a result."""
    texts = Lines(DEFAULT_LIMITS).texts(data)
    if texts is None:
        return None
    return [(int(number or of), payload, bool(encrypted), int(code or -1)) for number, encrypted, payload, code, of in texts]


def apart(data):
    """The same, read text by text."""
    *lines, rest = data.split(b"\n")
    rows = [(line, common(line, 0, len(line))) for line in lines]
    if rest or not lines or not all(row for _, row in rows):
        return None
    return [
        (
            row[MESSAGE_ID],
            line[row[PAYLOAD] : row[PAYLOAD] + row[PAYLOAD_LENGTH]],
            row[ENCRYPTION] == Encryption.AES,
            row[RESULT],
        )
        for line, row in rows
    ]


def test_texts_that_arrive_together_are_read_as_each_of_them():
    for one, other in itertools.product([*TAKEN, *LEFT, b"\r", b"message_id:1;\r", b"message_id:1;a\x00b"], repeat=2):
        for data in (one, one + b"\n", one + b"\n" + other, one + b"\n" + other + b"\n", b" " + one + b"\n"):
            assert together(data) == apart(data), data
    assert together(b"") is None
    assert together(TAKEN[3] + b"\n" + TAKEN[4] + b"\n") == [(999999999, b"PHg+ ", False, -1), (5, b"AAAA", True, -1)]


@given(st.lists(st.sampled_from([*TAKEN, *LEFT]) | st.text(alphabet="message_id:15;result\n\r", max_size=20).map(str.encode), max_size=4))
def test_texts_never_contradict_common(lines):
    data = b"".join(line + b"\n" for line in lines)
    assert together(data) == (apart(data) if lines else None)


def test_texts_leaves_what_is_not_whole_or_too_long():
    lines = Lines(Limits(max_text_size=20))
    assert lines.texts(b"message_id:1;" + b"A" * 7 + b"\n") is None
    assert lines.texts(b"message_id:1;" + b"A" * 6 + b"\n") is not None
    assert lines.taken == b"message_id:1;AAAAAA\n"
    assert list(lines.feed(b"message_id:2;A")) == []
    assert lines.texts(b"message_id:1;\n") is None
    assert len(list(lines.feed(b"AAA\n"))) == 1
    assert lines.taken == b"message_id:2;AAAA\n"


CALLED = Call("Sample", "Echo", CALL_ID, ("hi",))
SAID = [
    *TAKEN,
    *LEFT,
    text_of(documents.encode(CALLED), 11),
    text_of(documents.encode(CALLED), 12).replace(b"PFJl", b"PF Jl"),
    text_of(documents.encode(CALLED), 13, KEYS),
    text_of(documents.encode(CALLED), 14, compress=True),
    text_of(documents.encode(Call("Core", "SendResetNotice", CALL_ID)), 15),
    text_of(documents.encode(Call("Authentication", "EstablishConnection", CALL_ID)), 16),
    text_of(documents.encode(Response("Sample", CALL_ID, "x")), 17),
    text_of(documents.encode(Error("Sample", 202)), 18),
    text_of(b"<?xml", 19),
    b"message_id:20;AAA",
    b"message_id:21;AAAA=",
    b"result:0;message_id:3;",
    b"result:4;message_id:2;",
    b"result:1;message_id:1;",
]


def outcome(lines, cut, trust_state):
    """Everything that comes of lines, which arrive whole, or byte by byte."""
    one = session(Speaker.SERVER, trust_state)
    for number in range(3):
        one.call("Sample", "Echo", (f"{number}",), 0.0)
    one.output()
    data = b"".join(line + b"\n" for line in lines)
    for piece in [data[at : at + 1] for at in range(len(data))] if cut else [data]:
        one.receive(piece, 1.0)
    return one.output(), one.events(), one.state, one.deadline, one.is_proven, one.available, one.trust_state, one.ended


@each("trusted", [False, True])
def test_a_session_hears_the_same_whatever_way_texts_are_read(trusted):
    state = {"trust_state": TRUSTED} if trusted else {"trust_state": session().trust_state}
    for line, other in itertools.product(SAID, SAID[-14:]):
        lines = [line, other, line]
        assert outcome(lines, False, **state) == outcome(lines, True, **state), lines
