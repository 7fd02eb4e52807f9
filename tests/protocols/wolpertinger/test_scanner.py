"""The scanner agrees with its slow twin for every text, plain and compiled, whole and in lines, wherever a stream is cut."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import examples
from tests.protocols.wolpertinger import twin

from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, NO_ROOM, SHARED, START, compiled
from wirelake.protocols.wolpertinger.faults import UNREADABLE, Fault
from wirelake.protocols.wolpertinger.layer1.lines import measure, row_of
from wirelake.protocols.wolpertinger.scanner import DEFAULT_LIMITS, ROW_COLUMNS, Limits, find, scan, sniff, walk
from wirelake.protocols.wolpertinger.wire import buffer

SMALL = Limits(max_text_size=40, max_fragments=3)
PAIRS = [
    *(f"message_id:{value};" for value in ("0", "1", "007", "4294967295", "4294967296", "-1", "x", "", "1 ", "9" * 30)),
    *(
        f"{key}:1;"
        for key in (
            "message_i",
            "message_idx",
            "MESSAGE_ID",
            "message_id_message_id",
            "fragment_indexes_x",
            "gzi",
            "gzipp",
            "secur",
            "securea",
            "a" * 40,
        )
    ),
    *(f"result:{value};" for value in ("0", "5", "6", "99999999999999999999", "Success", "-0")),
    *(
        f"{key}:{value};"
        for key in ("encryption", "secure", "Secure")
        for value in ("aes", "AES", "aEs", "ae", "aesx", "AESX", "des", "!ES", "A\x05S")
    ),
    *(f"fragment_index:{value};fragment_count:{count};" for value in ("0", "2", "3", "-1") for count in ("0", "1", "3", "4", "x")),
    *("fragment_index:0;", "fragment_count:1;", "gzip:0;", "gzip:abc;", "gzip:1:2;", "signature:x;", "SIGNATURE:;", "foo:bar;"),
    *(";", ":;", "a;", ":a;", "a:;", "a b:c;", "ä:1;", "a:ä;", "a\x00:1;", "gzip:\x00;", "a:b\r;"),
]
PAYLOADS = ["", "aGk=", " ", "aGk=\r", ":", "ä", "\x00", "x" * 40, "a" * 15, "a" * 16, "a" * 17]


def plain(text: bytes, limits: Limits = DEFAULT_LIMITS) -> list[int]:
    row = [0] * ROW_COLUMNS
    assert scan(text, 0, len(text), row, [], limits.for_text())[0] == 1
    return row


def fast(text: bytes, limits: Limits = DEFAULT_LIMITS) -> list[int]:
    rows = np.zeros(ROW_COLUMNS, np.int64)
    assert compiled(scan)(np.frombuffer(text, np.uint8), 0, len(text), rows, np.zeros(1, np.int64), limits.for_text())[0] == 1
    return rows.tolist()


def lines_of(data: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[list[list[int]], tuple[int, ...]]:
    rows = np.zeros(1000 * ROW_COLUMNS, np.int64)
    message = compiled(scan)(np.frombuffer(data, np.uint8), 0, len(data), rows, np.zeros(1, np.int64), limits.for_scan())
    flat = [0] * (1000 * ROW_COLUMNS)
    assert scan(data, 0, len(data), flat, [], limits.for_scan()) == message
    assert rows.tolist() == flat
    return rows.reshape(-1, ROW_COLUMNS)[: message[0]].tolist(), message


def check(text: bytes, limits: Limits = DEFAULT_LIMITS) -> None:
    row = plain(text, limits)
    assert [row[KIND], row[FAULT], *row[SHARED:]] == twin.row_of(text, limits), text
    assert fast(text, limits) == row
    assert measure(text, 0, len(text), limits) == row_of(text, 0, len(text), limits) == row
    assert 0 <= row[FAULT_AT] <= len(text)
    assert (row[START], row[LENGTH]) == (0, len(text))
    if b"\n" not in text and len(text) <= limits.max_text_size:
        (between, _), message = lines_of(text + b"\n" + b"message_id:1;\n", limits)
        assert message == (2, 0, len(text) + 15, 0)
        assert between == [*row[:LENGTH], row[LENGTH] + 1, *row[LENGTH + 1 :]]


@pytest.mark.slow
@pytest.mark.parametrize("first", PAIRS)
def test_every_pair_beside_every_other(first):
    for second, payload in itertools.product(["", *PAIRS], ["", "aGk="]):
        check(f"{first}{second}{payload}".encode())
    for payload in PAYLOADS:
        check(f"message_id:1;{first}{payload}".encode())
        check(f"{first}{payload}".encode(), SMALL)


@pytest.mark.parametrize("size", range(36, 46))
def test_a_text_at_its_limit(size):
    check(b"message_id:1;".ljust(size, b"a"), SMALL)
    check(b"message_id:1;".rjust(size, b"a"), SMALL)
    check(b"gzip:" + b"1" * (size - 19) + b";message_id:1;", SMALL)
    data = b"message_id:1;".ljust(size, b"a") + b"\nmessage_id:2;\n"
    rows, message = lines_of(data, SMALL)
    if size <= 40:
        assert [row[FAULT] for row in rows] == [0, 0]
    else:
        assert [row[FAULT] for row in rows] == [Fault.TEXT_OVER_LIMIT]
        assert message[2] == 0
        assert find(data, 1, len(data), SMALL.for_scan()) == size + 1


@given(st.lists(st.one_of(st.sampled_from(PAIRS), st.text(max_size=12)), max_size=6), st.one_of(st.sampled_from(PAYLOADS), st.text()))
@examples(300)
def test_any_text(pairs, payload):
    check(("".join(pairs) + payload).encode(errors="replace"))


@given(st.binary(max_size=200))
@examples(200)
def test_any_bytes(data):
    check(data)


STREAM = b"".join(f"{pair}{payload}\n".encode() for pair, payload in zip(PAIRS, itertools.cycle(PAYLOADS), strict=False))


def through(pieces: list[bytes], limits: Limits = DEFAULT_LIMITS) -> tuple[list[list[int]], bytes, bool]:
    """Rows as they would be if the stream had come in one piece, what is left, and whether the end was lost."""
    lines, rows, at = buffer(limits), [], 0
    for piece in pieces:
        for _, found, _ in lines.feed(piece):
            for row in found:
                shift = at - found[0][START]
                rows.append([row[START] + shift, *row[1:FAULT_AT], row[FAULT_AT] + shift, *row[FAULT_AT + 1 :]])
            at = rows[-1][START] + rows[-1][LENGTH]
    return rows, lines.rest, lines.lost


def test_the_stream_may_be_cut_anywhere():
    whole = through([STREAM])
    assert len(whole[0]) == len(PAIRS)
    assert whole[1] == b""
    dice = random.Random(1)

    def texts(rows):
        return [[*row[:FAULT_AT], *row[FAULT_AT + 1 : -3], *row[-2:]] for row in rows]

    for size in (1, 2, 3, 7, 64, 4096):
        rows, rest, lost = through([STREAM[at : at + size] for at in range(0, len(STREAM), size)])
        assert (texts(rows), rest, lost) == (texts(whole[0]), b"", False)
    for _ in range(20):
        places = sorted(dice.randrange(len(STREAM)) for _ in range(9))
        pieces = [STREAM[one:other] for one, other in itertools.pairwise([0, *places, len(STREAM)])]
        assert texts(through(pieces)[0]) == texts(whole[0])


def test_lines_agree_with_the_scanner():
    rows, message = lines_of(STREAM)
    assert through([STREAM])[0] == rows
    assert message[2] == len(STREAM)


def test_a_line_that_never_ends_is_refused_as_soon_as_it_is_over_the_limit():
    for size in (1, 7, 41, 100):
        lines, seen = buffer(SMALL), []
        for at in range(0, 200, size):
            for _, rows, _ in lines.feed(b"a" * size):
                seen += [(at + size, row[FAULT]) for row in rows]
            if lines.lost:
                break
        assert seen == [(next(n for n in range(size, 300, size) if n > 40), Fault.TEXT_OVER_LIMIT)]
        assert list(lines.feed(b"\nmessage_id:1;\n")) == []


def test_a_long_line_in_small_pieces_costs_no_more_than_its_length():
    class Counting(bytes):
        looked = 0

        def rfind(self, *arguments):
            Counting.looked += len(self)
            return super().rfind(*arguments)

    lines = buffer(Limits(max_text_size=1 << 20))
    for _ in range(20_000):
        assert list(lines.feed(Counting(b"abcdefgh"))) == []
    assert Counting.looked == 160_000
    assert lines.size == 160_000


def test_a_full_table_goes_on_where_it_stopped():
    data, rows = b"message_id:1;\n" * 5, [0] * (2 * ROW_COLUMNS)
    assert scan(data, 0, len(data), rows, [], DEFAULT_LIMITS.for_scan()) == (2, 0, 28, NO_ROOM)
    assert scan(data, 28, len(data), rows, [], DEFAULT_LIMITS.for_scan()) == (2, 0, 56, NO_ROOM)
    assert scan(data, 56, len(data), rows, [], DEFAULT_LIMITS.for_scan()) == (1, 0, 70, 0)


def test_after_a_line_over_the_limit_reading_goes_on_with_the_next():
    data = b"message_id:1;\n" + b"x" * 100 + b"\nmessage_id:2;\nmessage_id:3"
    rows, run_of, parts, ends = (np.zeros(size, np.int64) for size in (10 * ROW_COLUMNS, 10, 10, 1))
    places = np.array([0]), np.array([len(data)])
    found = compiled(walk)(np.frombuffer(data, np.uint8), *places, 0, 0, rows, run_of, parts, ends, SMALL.for_scan())
    assert found[0] == 3
    spans = [(rows[at + START], rows[at + LENGTH], rows[at + FAULT]) for at in range(0, 3 * ROW_COLUMNS, ROW_COLUMNS)]
    assert spans == [(0, 14, 0), (14, 101, Fault.TEXT_OVER_LIMIT), (115, 14, 0)]
    assert ends.tolist() == [129]


def test_every_fault_of_the_scanner_is_found_by_some_text():
    found = {plain(f"{one}{other}".encode())[FAULT] for one in PAIRS for other in ("", "message_id:1;", "message_id:1;result:0;")}
    found |= {plain(b"")[FAULT], plain(b"x" * 50, SMALL)[FAULT]}
    assert {fault for fault in UNREADABLE if fault is not Fault.MESSAGE_CUT} == found - {0}


@pytest.mark.parametrize(
    ("data", "certain"),
    [
        (b"message_id:1;aGk=", True),
        (b"Fragment_Index:0;fragment_count:2;", True),
        (b"result:0;message_id:1;\n", True),
        (b"secure:aes;", True),
        (b"message_id:", False),
        (b"message_id:x;", False),
        (b"GET / HTTP/1.1\r\n", False),
        (b"", False),
    ],
)
def test_a_stream_is_known_by_its_first_pair(data, certain):
    assert sniff(data) is certain
