"""The expression that reads common texts agrees with the scanner, or leaves them to it."""

from __future__ import annotations

import itertools
import random

import pytest
from tests.cases import each

from wirelake.errors import LocalProtocolError
from wirelake.protocols.kernel import LENGTH, table
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer1.lines import common
from wirelake.protocols.wolpertinger.messages import Envelope
from wirelake.protocols.wolpertinger.scanner import DEFAULT_LIMITS, ROW_COLUMNS, Limits, scan
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
