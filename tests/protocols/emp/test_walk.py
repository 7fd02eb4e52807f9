"""Many runs, and what comes after bytes that cannot be read: every byte in one row, and no certain message skipped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each, examples
from tests.protocols.emp import speech, twin
from tests.protocols.emp.scanning import found, walk_by_hand, walked
from tests.protocols.emp.speech import SPOKEN, STREAMS, mutated

from wirelake.protocols.emp.limits import Limits
from wirelake.protocols.emp.scanner import sniff
from wirelake.protocols.kernel import KIND, LENGTH, START

SMALL = Limits(max_message_size=64, max_extension_blocks=3, max_nested_compression=2)
EXCLUSIVE = Limits(sizes_exclude_themselves=True)
LIMITS = st.sampled_from((Limits(), SMALL, Limits(max_extension_blocks=2, max_nested_compression=0), EXCLUSIVE))


def covers(walk, runs):
    """Of every run, all bytes are in one row, but for its unfinished end."""
    ats = [start for start, _ in runs]
    for row, run in zip(walk.rows, walk.run_of, strict=True):
        assert row[START] == ats[run], "a gap or an overlap"
        assert row[LENGTH] > 0
        ats[run] += row[LENGTH]
    assert ats == walk.ends
    for at, (start, stop) in zip(walk.ends, runs, strict=True):
        assert start <= at <= stop
    assert walk.run_of == sorted(walk.run_of)


@st.composite
def run_sets(draw):
    """Bytes, and runs in them: any, also empty ones, also none."""
    pieces = draw(st.lists(mutated(STREAMS), max_size=5))
    runs, at = [], 0
    for piece in pieces:
        runs.append((at, at + len(piece)))
        at += len(piece)
    return b"".join(pieces), runs


@examples(150)
@given(run_sets(), LIMITS, st.integers(1, 4), st.integers(0, 3))
def test_walking_is_scanning_each_run_and_finding_the_next_message(data_and_runs, limits, rows, parts):
    data, runs = data_and_runs
    large = walked(data, runs, limits, rows=len(data) // 4 + 8, parts=len(data) // 4 + 32)
    covers(large, runs)
    assert large[:4] == walk_by_hand(data, runs, limits)[:4]
    tiny = walked(data, runs, limits, rows=rows, parts=limits.max_extension_blocks + parts)
    assert tiny[:4] == large[:4]


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 64])
def test_walking_resumes_where_its_tables_were_full(rows):
    garbage = b"\x00\x00\x00\x01 not a message \xff\xff"
    good = b"".join(SPOKEN.values())
    data = good + garbage + good + garbage + good + speech.hello()[:7]
    half = len(good) + len(garbage) + 3
    for runs in ([(0, len(data))], [(0, half), (half, len(data))], [(0, 0), (0, len(good)), (5, 5), (len(good), len(data))]):
        walk = walked(data, runs, rows=rows, parts=17)
        covers(walk, runs)
        assert walk[:4] == walk_by_hand(data, runs)[:4]
    # The first whole stretch is read, each garbage is one row, and the cut hello is what is left over.
    walk = walked(data, [(0, len(data))], rows=rows, parts=17)
    lost = [(row[START], row[LENGTH]) for row in walk.rows if row[KIND] == -1]
    assert lost == [(len(good), len(garbage)), (2 * len(good) + len(garbage), len(garbage))]
    assert walk.ends == [len(data) - 7]
    assert len(walk.rows) == 3 * len(SPOKEN) + 2


def test_walking_nothing_gives_nothing():
    assert walked(b"", [])[:4] == ([], [], [], [])
    assert walked(b"", [(0, 0)])[:4] == ([], [], [], [0])


@examples(200)
@given(mutated(STREAMS), st.integers(0, 10))
def test_find_never_skips_a_certain_message(data, start):
    """Brute force: the first offset where a right message without oddity stands and another follows, or the end."""
    at = found(data, min(start, len(data)))
    certain = (here for here in range(start, len(data)) if stands(data, here) and follows(data, here + len_at(data, here)))
    assert at <= next(certain, len(data))
    if at < len(data):
        assert at + len_at(data, at) <= len(data)


def len_at(data, at):
    return int.from_bytes(data[at : at + 4])


def stands(data, at):
    """A message the specification defines is here, whole, with nothing odd about it."""
    one = twin.read(data, at, Limits())
    return isinstance(one, twin.Read) and one.kind in range(6) and not (one.fault or one.odd_bits or one.odd_body)


def follows(data, at):
    return at == len(data) or stands(data, at)


def sane(data, at, limits):
    """How long the message is that a header at this place announces, if it is one the specification defines and nothing is odd; else 0."""
    header = data[at : at + 8]
    if len(header) < 8:
        return 0
    size, kind = int.from_bytes(header[:4]) + 4 * limits.sizes_exclude_themselves, header[4]
    if header[5] not in (0x00, 0x80) or header[6:] != bytes(2) or not 8 <= size <= limits.max_message_size:
        return 0
    least, most = {0: (12, 12), 1: (8, 8), 2: (8, 8), 3: (8, 8), 4: (14, 2**32), 5: (8, 2**32)}.get(kind, (1, 0))
    fits = least <= size <= most or (header[5] == 0x80 and kind <= 5)
    return size if fits else 0


@examples(200)
@given(mutated(STREAMS), st.integers(0, 10), LIMITS)
def test_find_stops_at_the_first_sane_header_that_leads_to_another_or_to_the_end(data, start, limits):
    def leads(at):
        after = at + sane(data, at, limits)
        return after > at and (after == len(data) or (after < len(data) and sane(data, after, limits) > 0))

    start = min(start, len(data))
    assert found(data, start, limits=limits) == next((at for at in range(start, len(data)) if leads(at)), len(data))


@each("kind", range(256))
def test_find_knows_the_kinds_and_their_sizes(kind):
    for size in (7, 8, 9, 11, 12, 13, 14, 15):
        for flag in (b"\x00", b"\x80", b"\x01"):
            data = b"\xff" + size.to_bytes(4) + bytes((kind,)) + flag + bytes(size - 6)
            assert found(data, 0) == (1 if sane(data, 1, Limits()) == size else len(data))


@pytest.mark.parametrize("bias", [0, 4])
def test_find_counts_sizes_as_the_peer_does(bias):
    said = speech.hello(bias=bias) + speech.envelope(speech.PING, bias=bias)
    assert found(b"\xff\xff" + said, 0, limits=EXCLUSIVE if bias else Limits()) == 2
    assert found(b"\xff\xff" + said, 0, limits=Limits() if bias else EXCLUSIVE) == len(said) + 2


@each("said", [one for one in SPOKEN.values() if one[4] < 6], ids=[name for name, one in SPOKEN.items() if one[4] < 6])
@each("after", [b"", speech.ping, speech.data(b"x")], ids=["end", "ping", "data"])
def test_find_sees_every_defined_message(said, after):
    for garbage in range(6):
        assert found(b"\xff" * garbage + said + after, 0) == garbage


def test_find_is_not_fooled_by_one_lonely_header():
    assert found(b"\xff" + speech.ping + b"\xff" * 20, 0) == 29
    assert found(b"\xff" + speech.envelope(200) + b"\xff", 0) == 10


@pytest.mark.parametrize(
    ("data", "is_emp"),
    [
        (speech.hello(), True),
        (speech.hello() + speech.data(), True),
        (speech.hello()[:5], True),
        (speech.hello()[:4], False),
        (b"", False),
        (speech.hello(2), False),
        (speech.data(b"four"), False),
        (speech.ping, False),
        (b"GET / HTTP/1.1\r\n", False),
    ],
)
def test_sniffing_wants_a_hello_of_version_1(data, is_emp):
    assert sniff(data) is is_emp
