"""The scanner against a slow twin: compiled, plain and switched off, at every edge first, then at random."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each, examples
from tests.protocols.yamp import speech
from tests.protocols.yamp.scanning import agrees_with_twin, fault_of, found, only, scanned, walked
from tests.protocols.yamp.speech import SPOKEN, STREAMS, mutated

from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, NO_ROOM, START
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.limits import Limits
from wirelake.protocols.yamp.scanner import BODY, BODY_LENGTH, CODE, ODD_BOOL, ODD_REASON, ODD_SERIALIZER, ODD_URI, ODDITIES, sniff
from wirelake.protocols.yamp.wire import encode

SMALL = Limits(max_body_size=8)
SHORT = Limits(one_byte_redirect_size=True)
TOLERATED = {"empty-handshake": ODD_SERIALIZER}
VALUES = (*range(19), 0x20, 0x41, 0x7F, 0x80, 0x90, 0xBF, 0xC0, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xF5, 0xFF)
"""Every type and code and one more, and each kind of byte in UTF-8."""


@each("name", SPOKEN)
def test_a_right_message_has_no_fault(name):
    said = SPOKEN[name]
    row = only(said)
    assert (row[START], row[LENGTH], row[FAULT], row[ODDITIES]) == (0, len(said), 0, TOLERATED.get(name, 0))
    agrees_with_twin(said)


@each("name", SPOKEN)
def test_every_byte_of_a_message_takes_every_kind_of_value_between_neighbours(name):
    """Sizes, types, codes and text one by one: both readers say the same of it and of what follows."""
    said = SPOKEN[name]
    places = range(len(said)) if len(said) < 60 else (*range(22), len(said) - 6, len(said) - 2, len(said) - 1)
    for at in places:
        for value in VALUES:
            turned = bytearray(said)
            turned[at] = value
            agrees_with_twin(speech.ping() + bytes(turned) + speech.close(b"x"))


@each("name", SPOKEN)
def test_an_unfinished_message_says_what_it_needs_once_that_is_known(name):
    said = SPOKEN[name]
    row = only(said)
    head = row[BODY] if row[KIND] != speech.CANCEL else len(said)
    for held in range(len(said)):
        one = agrees_with_twin(said[:held])
        assert (one.rows, one.end, one.need) == ([], 0, len(said) if held >= head else 0)


@each("kind", range(256))
def test_every_type(kind):
    row = only(bytes((kind,)) + bytes(40)) if kind > 8 else scanned(bytes((kind,)) + bytes(60)).rows[0]
    if kind > 8:
        assert (row[FAULT], row[FAULT_AT], row[KIND], row[LENGTH]) == (Fault.TYPE_UNKNOWN, 0, -1, 41)
        assert fault_of(bytes((kind,))) == (Fault.TYPE_UNKNOWN, 0)
    else:
        assert (row[FAULT], row[KIND]) == (0, kind)


@each("size", [7, 8, 9, 2**24, 2**31 - 1, 2**31, 2**32 - 1])
@each("make", [speech.event, speech.request, speech.response])
def test_the_body_limit_is_the_last_size_accepted_and_checked_before_the_body(make, size):
    head = make(body=b"", size=size)
    one = scanned(head, SMALL)
    if size > 8:
        assert [(row[FAULT], row[FAULT_AT]) for row in one.rows] == [(Fault.BODY_OVER_LIMIT, len(head) - 4)]
        assert (one.end, one.need) == (0, 0)
    else:
        assert (one.rows, one.need) == ([], len(head) + size)
    assert (len(scanned(head).rows) == 0) is (size <= 2**24)
    unlimited = scanned(head, Limits(max_body_size=2**32 - 1))
    assert (unlimited.rows, unlimited.need) == ([], len(head) + size)


def test_a_redirect_has_two_bytes_of_size_or_one():
    url = b"tcp://192.168.0.42:5000"
    for limits, said in ((Limits(), speech.redirect(url)), (SHORT, speech.redirect(url, short=True))):
        row = only(said, limits)
        assert (row[BODY_LENGTH], said[row[BODY] :]) == (len(url), url)
        agrees_with_twin(said + speech.ping(), limits)
    assert scanned(speech.redirect(url), SHORT).rows[0][LENGTH] == 2, "with two bytes the first one is 0"
    row = only(speech.redirect(b"u" * 65535))
    assert row[BODY_LENGTH] == 65535


@each("value", range(256))
def test_truth_values(value):
    for said in (speech.request(progressive=value), speech.cancel(kill=value)):
        row = only(said)
        assert (row[CODE], row[ODDITIES], row[FAULT]) == (value, ODD_BOOL if value > 1 else 0, 0)


@each("value", range(256))
def test_response_types(value):
    assert fault_of(speech.response(kind=value)) == ((None, 0) if value < 4 else (Fault.RESPONSE_TYPE_UNKNOWN, 37))


BROKEN = [
    b"\x80",
    b"\xff",
    b"abc\xc3",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf5\x80\x80\x80",
    b"12345678\xfe",
    b"\xe2\x82",
    b"12345678901234567\x80x",
]


@pytest.mark.parametrize("text", BROKEN)
def test_broken_text(text):
    agrees_with_twin(speech.event(text) + speech.handshake(1, text) + speech.redirect(text) + speech.close(text) + speech.ping(text))
    assert fault_of(speech.event(text))[0] is Fault.URI_NOT_UTF8
    assert fault_of(speech.handshake(1, text))[0] is Fault.SERIALIZER_NOT_UTF8
    assert fault_of(speech.redirect(text))[0] is Fault.URL_NOT_UTF8
    assert (only(speech.close(text))[FAULT], only(speech.close(text))[ODDITIES]) == (0, ODD_REASON)
    assert only(speech.ping(text))[FAULT] == 0
    assert fault_of(speech.response(uri=text, kind=9))[0] is Fault.URI_NOT_UTF8, "what cannot be read outweighs what may not be said"


def test_broken_text_points_at_the_byte_that_breaks_it():
    assert fault_of(speech.event(b"abcdefgh\xff")) == (Fault.URI_NOT_UTF8, 26)
    assert fault_of(speech.handshake(1, b"j\xff")) == (Fault.SERIALIZER_NOT_UTF8, 5)
    assert fault_of(speech.redirect(b"\xff")) == (Fault.URL_NOT_UTF8, 3)


def test_an_empty_uri_is_odd_and_no_fault():
    for make in (speech.event, speech.request):
        row = only(make(b""))
        assert (row[FAULT], row[ODDITIES]) == (0, ODD_URI)


@each("said", SPOKEN.values(), ids=SPOKEN)
def test_rows_that_are_full_stop_the_scan_and_lose_nothing(said):
    everything = said + b"".join(SPOKEN.values())
    whole = scanned(everything)
    for rows in (1, 2, 3):
        at, starts = 0, []
        while at < len(everything):
            one = scanned(everything, start=at, rows=rows)
            assert one.need == NO_ROOM or one.end == len(everything)
            starts += [row[START] for row in one.rows]
            assert one.end > at
            at = one.end
        assert starts == [row[START] for row in whole.rows]


LIMITS = st.sampled_from((Limits(), SMALL, SHORT))


@examples(400)
@given(mutated(STREAMS), LIMITS)
def test_any_stream_is_read_the_same_compiled_plain_and_slowly(data, limits):
    agrees_with_twin(data, limits)


@examples(200)
@given(st.lists(speech.messages, max_size=6), st.booleans())
def test_every_encoded_message_is_read(messages, short):
    limits = Limits(one_byte_redirect_size=short)
    data = [encode(one, limits) for one in messages]
    one = agrees_with_twin(b"".join(data), limits)
    assert [row[LENGTH] for row in one.rows] == [len(each) for each in data]


# Many runs, and what comes after bytes that cannot be read.


def covers(walk, runs):
    """Of every run, all bytes are in one row, but for its unfinished end."""
    ats = [start for start, _ in runs]
    for row, run in zip(walk.rows, walk.run_of, strict=True):
        assert row[START] == ats[run], "a gap or an overlap"
        assert row[LENGTH] > 0
        ats[run] += row[LENGTH]
    assert ats == walk.ends
    assert walk.run_of == sorted(walk.run_of)


@examples(150)
@given(st.lists(mutated(STREAMS), max_size=5), LIMITS, st.integers(1, 4))
def test_every_byte_is_in_one_row_whatever_the_size_of_the_table(pieces, limits, rows):
    data, runs, at = b"".join(pieces), [], 0
    for piece in pieces:
        runs.append((at, at + len(piece)))
        at += len(piece)
    large = walked(data, runs, limits, rows=len(data) + 8)
    covers(large, runs)
    assert walked(data, runs, limits, rows=rows) == large


def test_messages_are_found_again_after_what_cannot_be_read():
    said = [speech.event(), speech.ping(), b"\x63garbage \x05 that ends", speech.request(), speech.response(), speech.ping()]
    data = b"".join(said)
    walk = walked(data, [(0, len(data))])
    assert [row[LENGTH] for row in walk.rows] == [len(one) for one in said]
    assert [bool(row[FAULT]) for row in walk.rows] == [False, False, True, False, False, False]
    covers(walk, [(0, len(data))])


def test_what_is_certain():
    last = speech.event(b"uri", b"body")
    assert found(b"??" + last) == 2, "it ends where the run ends"
    assert found(b"??" + last + b"?") == 2 + len(last) + 1, "nothing follows it"
    assert found(b"??" + last + speech.cancel()) == 2
    assert found(b"??" + speech.ping() + last) == 4, "a ping is too short to be told from noise"
    for doubtful in (
        speech.event(b""),
        speech.event(b"\x7f"),
        speech.event(b" "),
        speech.event("é".encode()),
        speech.request(progressive=2),
    ):
        assert found(b"??" + doubtful) == 2 + len(doubtful)
    for doubtful in (speech.cancel(kill=2), speech.response(kind=4)):
        assert found(b"??" + doubtful) == 2 + len(doubtful)
    assert found(b"??" + speech.event(b"x", bytes(9)), limits=SMALL) == 2 + len(speech.event(b"x", bytes(9)))
    for certain in (speech.cancel(kill=1), speech.response(kind=3), speech.request(progressive=1)):
        assert found(b"??" + certain) == 2
    assert found(b"") == 0


@pytest.mark.parametrize(
    ("data", "is_yamp"),
    [
        (speech.handshake(), True),
        (speech.handshake(1, b"msgpack") + speech.event(), True),
        (speech.handshake(1, b""), True),
        (speech.handshake(1, b"json")[:6], True),
        (speech.handshake(1, b"json")[:4], True),
        (speech.handshake(1, b"json")[:3], False),
        (speech.handshake(2), False),
        (speech.handshake(1, b"js\x00n"), False),
        (speech.handshake(1, b"") + b"\x09", False),
        (speech.handshake() + speech.handshake(), False),
        (b"\x00\x00\x00\x0c\x00\x00\x00\x00\x01\x00\x00\x00", False),
        (speech.event(), False),
        (b"", False),
    ],
)
def test_sniff(data, is_yamp):
    assert sniff(data) is is_yamp
