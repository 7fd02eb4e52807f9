"""The scanner against a slow twin, compiled and plain: every header byte, every id size, every length one off, hostile sizes."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.relink import speech, twin
from tests.protocols.relink.scanning import agrees_with_twin, as_read, found, scanned, walked

from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, NO_ROOM, START
from wirelake.protocols.relink.faults import UNREADABLE, Fault
from wirelake.protocols.relink.scanner import ODD_BITS, ODD_FORM, ODDITIES, Limits, Stage

SIZES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 254, 255]
LITTLE = Limits(max_multicast=3, max_parts=4, max_part_size=20, max_message_size=30)


def ids(count: int, size: int) -> tuple[bytes, ...]:
    return tuple(bytes([65 + number]) * size for number in range(count))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(256))
def test_every_first_byte(first):
    """RELINK-2, RELINK-7, RELINK-12: with both id sizes, cut at every byte, short and long counts behind it."""
    for sizes in ((0, 0), (1, 4), (4, 1), (3, 255)):
        for rest in (bytes(700), bytes([1]) + bytes(700), bytes([2, 0, 0, 2, 0, 0, 0]) + bytes([1, 0] * 400)):
            data = bytes([first]) + rest
            agrees_with_twin(data[:40], sizes, LITTLE)
            agrees_with_twin(data, sizes)
            for stop in range(0, 80, 3):
                agrees_with_twin(data[:stop], sizes)


@pytest.mark.parametrize("size", SIZES)
def test_every_form_at_every_id_size(size):
    """RELINK-1, RELINK-6, RELINK-30: alignment counts from the first byte of the packet; every form is accepted."""
    sent = []
    for multicast, count in ((False, 1), (True, 0), (True, 1), (True, 2), (True, 3)):
        whom = ids(count, size)
        for form, kinds in ((0, 3), (1, 5), (2, 2), (3, 4)):
            for kind in range(kinds):
                sent.append(speech.control(form, kind, whom, 0xFFFFFFFE if form & 2 else None, multicast=multicast))
        for long in (False, True):
            for large in (False, True):
                for parts in ((), (b"",), (b"abc", b"", b"hello"), (b"12345678",), (b"123456789", b"x")):
                    sent.append(speech.message(whom, parts, multicast=multicast, long=long, large=large))
    stream = b"".join(sent)
    scan = agrees_with_twin(stream, (size, size))
    assert len(scan.rows) == len(sent)
    assert not any(row[FAULT] for row in scan.rows)
    assert not any(row[ODDITIES] & ODD_BITS for row in scan.rows)
    assert [row[LENGTH] for row in scan.rows] == [len(one) for one in sent]


def test_the_two_id_sizes_are_not_the_same():
    """RELINK-7: acknowledgements have the receiver's size, everything else the sender's."""
    sent = speech.message((b"abcdefgh",)) + speech.control(1, 1, (b"z",)) + speech.control(2, 0, (b"abcdefgh",), 9)
    sent += speech.control(3, 0, (b"z",), 7) + speech.control(0, 2, (b"abcdefgh",))
    rows = agrees_with_twin(sent, (8, 1)).rows
    assert [row[LENGTH] for row in rows] == [16, 8, 16, 8, 16]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 8])
def test_unused_bits_and_padding_are_reported_and_ignored(size):
    """RELINK-12: set all of them, and each padding byte alone."""
    clean = [speech.control(form, 0, ids(2, size), 5 if form & 2 else None, multicast=True) for form in range(4)]
    dirty = [speech.control(form, 0, ids(2, size), 5 if form & 2 else None, multicast=True, fill=255) for form in range(4)]
    for long in (False, True):
        for large in (False, True):
            clean.append(speech.message(ids(1, size), (b"abc", b"12345678"), long=long, large=large))
            dirty.append(speech.message(ids(1, size), (b"abc", b"12345678"), long=long, large=large, fill=255))
    for one, other in zip(clean, dirty, strict=True):
        for place in [None, *range(len(one))]:
            data = other if place is None else one[:place] + other[place : place + 1] + one[place + 1 :]
            (row,) = agrees_with_twin(data, (size, size)).rows
            assert bool(row[ODDITIES] & ODD_BITS) == (data != one)
            assert row[FAULT] == 0
    for place in range(1, 8):
        (row,) = agrees_with_twin(bytes(place) + b"\x01" + bytes(7 - place)).rows
        assert row[ODDITIES] == ODD_BITS


def test_forms_that_are_not_minimal_are_reported():
    """RELINK-30: at 255 and 256 parts, at 65535 and 65536 bytes."""
    for count, odd in ((255, True), (256, False)):
        (row,) = agrees_with_twin(speech.message(parts=(b"",) * count, long=True)).rows
        assert bool(row[ODDITIES] & ODD_FORM) == odd
    for size, odd in ((65535, True), (65536, False)):
        (row,) = scanned(speech.message(parts=(bytes(size), b"x"), large=True)).rows
        assert bool(row[ODDITIES] & ODD_FORM) == odd


@pytest.mark.parametrize("multicast", [False, True])
@pytest.mark.parametrize("size", [0, 1, 3, 8])
def test_cut_at_every_byte_scan_returns_the_bytes_it_needs_and_never_too_many(size, multicast):
    """RELINK-14: a packet exists only once it is whole; `need` grows to its size and is never more."""
    whom = ids(2, size) if multicast else ids(1, size)
    packets = [
        speech.message(whom, (b"abc", b"12345678"), multicast=multicast, long=long, large=large) for long in (0, 1) for large in (0, 1)
    ]
    packets += [speech.control(form, 1, whom, 3 if form & 2 else None, multicast=multicast) for form in range(4)]
    for packet in packets:
        for stop in range(len(packet)):
            scan = agrees_with_twin(packet[:stop], (size, size))
            assert scan.rows == []
            assert stop < scan.need <= len(packet)
        assert len(agrees_with_twin(packet + packet[:5], (size, size)).rows) == 1


@pytest.mark.parametrize(
    ("data", "fault", "at"),
    [
        (speech.message(multicast=True, ids=(b"",) * 4), Fault.MULTICAST_OVER_LIMIT, 4),
        (speech.control(0, 2, (b"",) * 4, multicast=True), Fault.MULTICAST_OVER_LIMIT, 4),
        (speech.control(0, 3, (b"",) * 4, multicast=True), Fault.OPERATION_UNKNOWN, 0),
        (speech.message(parts=(b"",) * 5), Fault.PARTS_OVER_LIMIT, 1),
        (speech.message(parts=(b"",) * 5, long=True), Fault.PARTS_OVER_LIMIT, 2),
        (speech.message(parts=(b"x", bytes(21))), Fault.PART_OVER_LIMIT, 4),
        (speech.message(parts=(b"x", bytes(21)), large=True), Fault.PART_OVER_LIMIT, 16),
        (speech.message(parts=(bytes(20), bytes(11))), Fault.MESSAGE_OVER_LIMIT, 4),
    ],
)
def test_limits(data, fault, at):
    """RELINK-24: at the limit it is accepted, one over it is not, and the end is lost."""
    scan = agrees_with_twin(data + speech.GENERAL["ping"], limits=LITTLE)
    assert [(row[FAULT], row[FAULT_AT]) for row in scan.rows] == [(fault, at)]
    assert (scan.end, scan.need) == (0, 0)


def test_at_the_limits_all_is_well():
    for data in (
        speech.message(multicast=True, ids=(b"",) * 3),
        speech.message(parts=(b"",) * 4),
        speech.message(parts=(bytes(20), bytes(10)), large=True),
    ):
        assert agrees_with_twin(data, limits=LITTLE).rows[0][FAULT] == 0


@pytest.mark.parametrize("first", [0x13, 0x47, 0x07, 0x0F])
def test_ids_without_bytes_have_a_limit_of_their_own(first):
    """RELINK-24: 8 bytes that claim 65,536 ids have no bytes behind the claim; ids of one byte have."""
    few, many = (bytes((first, 0, 0, 0)) + count.to_bytes(4, "little") + bytes(8) for count in (16, 17))
    assert agrees_with_twin(few).rows[0][FAULT] == 0
    assert [(row[FAULT], row[FAULT_AT]) for row in agrees_with_twin(many).rows] == [(Fault.MULTICAST_OVER_LIMIT, 4)]
    assert agrees_with_twin(many, limits=Limits(max_empty_ids=17)).rows[0][FAULT] == 0
    assert agrees_with_twin(many + bytes(16), sizes=(1, 1)).rows[0][FAULT] == 0


@pytest.mark.parametrize("announced", [2**16, 2**31, 2**32, 2**47, 2**62, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1])
def test_announced_sizes_are_never_believed(announced):
    """RELINK-24: 64 bits of size, 32 bits of parts and channels; nothing is allocated for them."""
    generous = Limits(max_multicast=2**32 - 1, max_parts=2**32 - 1, max_part_size=2**47, max_message_size=2**47)
    larger = Limits(max_multicast=2**32 - 1, max_parts=2**32 - 1, max_part_size=2**64, max_message_size=2**64)
    assert generous.for_scan() == larger.for_scan()
    tracemalloc.start()
    try:
        for limits in (Limits(), generous):
            for sizes in ([announced], [3, announced], [announced, announced]):
                agreed(speech.message(parts=(), sizes=sizes, length=len(sizes), large=True), limits)
            count = min(announced, 2**32 - 1)
            agreed(speech.message(length=count, long=True), limits)
            for first in (0x13, 0x47):  # ids of no bytes are there, however many, so that only a limit stops them
                sizes = (255,) if limits is generous else (0, 255)
                agreed(bytes([first, 0, 0, 0]) + count.to_bytes(4, "little"), limits, sizes)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def agreed(data: bytes, limits: Limits, sizes: tuple[int, ...] = (0, 255)) -> None:
    for size in sizes:
        scan = scanned(data, (size, size), limits)
        expected = twin.read(data, 0, limits, size, size)
        if scan.rows:
            assert as_read(scan.rows[0], scan.parts, data) == expected
        else:
            assert scan.need >= expected > len(data)


@pytest.mark.parametrize("stage", [Stage.VERSION, Stage.REQUEST, Stage.REPLY])
def test_the_handshake_at_every_stage(stage):
    """RELINK-1, RELINK-3, RELINK-8, RELINK-9: every length of name, every flag, link ids at the edge."""
    sent = [bytes(8), b"\x03" + bytes(7), b"\xff" * 8]
    for link, epoch in ((0, 0), (1, 2**64 - 1), (2**63 - 1, 1), (2**63, 1), (2**64 - 1, 0)):
        sent.append(speech.reply(epoch, link))
        sent += [speech.request(b"n" * size, (size, 255 - size), 7, epoch, link) for size in (*range(12), 254, 255)]
    for data in sent:
        for stop in range(len(data) + 1):
            scan = scanned(data[:stop], stage=stage)
            expected = twin.handshake(data[:stop], 0, stage)
            if isinstance(expected, int):
                assert scan.rows == []
                assert scan.need in (expected, 8)
            else:
                (row,) = scan.rows
                assert (row[LENGTH], row[FAULT], row[FAULT_AT]) == expected
                assert (scan.end, scan.need) == (row[LENGTH], NO_ROOM)


def test_full_tables_are_resumed():
    data = speech.message(parts=(b"a", b"b", b"c")) * 5
    scan = scanned(data, rows=2)
    assert (len(scan.rows), scan.need) == (2, NO_ROOM)
    scan = scanned(data, parts=4)
    assert (len(scan.rows), scan.need) == (1, NO_ROOM)
    assert scan.end == len(data) // 5


def test_after_what_cannot_be_read_the_next_packets_are_found():
    for good in (speech.GENERAL["ping"], speech.message(parts=(b"hello",)), speech.control(3, 1, (b"",), 9)):
        for gap in (8, 16, 80):
            data = b"\x1d" + b"\x77" * (gap - 1) + good * 2
            rows, ends = walked(data, [(0, len(data))])
            assert next((row[START], row[LENGTH], row[FAULT]) for row in rows) == (0, gap, Fault.FORMAT_UNKNOWN)
            assert len(rows) == 3
            assert ends == [len(data)]
            assert found(data, 1) == gap


def test_nothing_that_could_be_payload_is_taken_for_a_packet():
    assert found(bytes(64), 1) == 64
    assert found(b"\x1d" + bytes(7) + speech.GENERAL["ping"] + b"\x77" * 16, 1) == 32


streams = st.lists(
    st.one_of(
        st.sampled_from(list(speech.GENERAL.values())),
        st.builds(
            lambda count, parts, long, large, multicast: speech.message(
                ids(count if multicast else 1, 2), tuple(parts), long=long, large=large, multicast=multicast
            ),
            st.integers(0, 4),
            st.lists(st.binary(max_size=20), max_size=4),
            st.booleans(),
            st.booleans(),
            st.booleans(),
        ),
        st.binary(min_size=8, max_size=32),
    ),
    max_size=8,
).map(b"".join)


@given(streams, st.sampled_from([(2, 0), (0, 2), (2, 2), (5, 1)]))
def test_any_stream(data, sizes):
    agrees_with_twin(data, sizes)
    agrees_with_twin(data, sizes, LITTLE)


@given(streams, st.integers(0, 1 << 30))
def test_every_byte_of_a_run_is_in_a_row(data, seed):
    """What `walk` gives tiles the run up to its unfinished end."""
    cut = random.Random(seed).randrange(len(data) + 1)
    rows, ends = walked(data, [(0, cut), (cut, len(data))], (2, 2))
    at = 0
    for row in rows:
        if row[START] == cut:
            at = cut
        assert row[START] == at
        assert row[FAULT] in {0, *UNREADABLE}
        assert row[KIND] >= -1
        at += row[LENGTH]
    assert ends[1] == (at if at > cut or ends[0] == cut else cut) or at <= cut
