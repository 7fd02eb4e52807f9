"""The scanner at its edges: every size one off, every kind, hostile neighbours; then whatever Hypothesis thinks of."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each, examples
from tests.protocols.emp import speech
from tests.protocols.emp.scanning import agrees_with_twin, fault_of, only, scanned
from tests.protocols.emp.speech import SPOKEN, STREAMS, mutated

from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.limits import Limits
from wirelake.protocols.emp.scanner import BODY, BODY_LENGTH, ODD_BITS, ODD_BODY, ODDITIES, REQUEST, REQUEST_ID, SCHEME
from wirelake.protocols.emp.wire import encode
from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, NO_ROOM, START

SMALL = Limits(max_message_size=64, max_extension_blocks=3, max_nested_compression=2)
EXCLUSIVE = Limits(sizes_exclude_themselves=True)


# The envelope.


@pytest.mark.parametrize("said", SPOKEN.values(), ids=SPOKEN)
def test_a_right_message_has_no_fault(said):
    row, _ = only(said)
    assert (row[START], row[LENGTH], row[FAULT], row[ODDITIES]) == (0, len(said), 0, 0)
    agrees_with_twin(said)


@pytest.mark.parametrize("said", SPOKEN.values(), ids=SPOKEN)
def test_every_announced_size_between_two_pings(said):
    """The size says anything from 0 to twice the truth: both readers say the same of it and of the neighbours."""
    for size in range(2 * len(said) + 9):
        agrees_with_twin(speech.ping + size.to_bytes(4) + said[4:] + speech.ping)
        agrees_with_twin(speech.ping + size.to_bytes(4) + said[4:] + speech.ping, SMALL)
        agrees_with_twin(speech.ping[:3] + b"\x04" + speech.ping[4:] + size.to_bytes(4) + said[4:] + speech.ping, EXCLUSIVE)


@pytest.mark.parametrize(
    ("size", "fault"),
    [*((size, Fault.SIZE_TOO_SMALL) for size in range(8)), (65, Fault.SIZE_OVER_LIMIT), (2**32 - 1, Fault.SIZE_OVER_LIMIT)],
)
def test_an_impossible_size_is_refused_on_four_bytes(size, fault):
    one = scanned(size.to_bytes(4), SMALL)
    assert one.faults == [(fault, 0)]
    assert (one.end, one.need) == (0, 0)
    assert one.rows[0][LENGTH] == 4


def test_four_gigabytes_are_refused_on_four_bytes_by_default():
    assert fault_of(b"\xff\xff\xff\xff") == (Fault.SIZE_OVER_LIMIT, 0)
    assert fault_of((16 * 1024 * 1024 + 1).to_bytes(4)) == (Fault.SIZE_OVER_LIMIT, 0)
    assert scanned((16 * 1024 * 1024).to_bytes(4)).need == 16 * 1024 * 1024


@pytest.mark.parametrize("size", [63, 64, 65])
def test_the_size_limit_is_the_last_size_accepted(size):
    fault, _ = fault_of(speech.data(bytes(size - 8)), SMALL)
    assert fault == (Fault.SIZE_OVER_LIMIT if size > 64 else None)


@pytest.mark.parametrize("size", [63, 64, 65])
def test_the_size_limit_counts_the_size_field_however_it_is_announced(size):
    limits = Limits(max_message_size=64, sizes_exclude_themselves=True)
    fault, _ = fault_of(speech.envelope(speech.DATA, bytes(size - 8), bias=4), limits)
    assert fault == (Fault.SIZE_OVER_LIMIT if size > 64 else None)


@pytest.mark.parametrize("held", range(12))
def test_an_unfinished_message_says_what_it_needs(held):
    one = scanned(speech.hello()[:held])
    assert (one.rows, one.end, one.need) == ([], 0, 12 if held >= 4 else 0)


@each("kind", range(256))
def test_every_kind(kind):
    fault, at = fault_of(speech.envelope(kind))
    if 6 <= kind <= 127:
        assert (fault, at) == (Fault.TYPE_RESERVED, 4)
    elif kind == speech.HELLO:
        assert (fault, at) == (Fault.HELLO_SIZE, 8)
    elif kind == speech.ERROR:
        assert (fault, at) == (Fault.ERROR_TOO_SHORT, 8)
    else:
        assert fault is None
    for blocks in (b"", speech.rr(True, 1), speech.gz(), speech.block(200), speech.block(3)):
        for body in (b"", b"body", b"\x01\x00\x00\x00\x00\x00"):
            agrees_with_twin(speech.envelope(kind, body, blocks) + speech.ping)


# Blocks.


@pytest.mark.slow
@each("extension", [0, 1, 2, 127, 128, 255])
@each("content", [0, 3, 4, 5, 11, 12, 13])
def test_every_block_size_one_off(extension, content):
    """The block announces anything from nothing to more than the envelope, the M bit set or not."""
    for size in (*range(8 + content + 12), 2**31 - 1, 2**31, 2**32 - 1):
        for more in (False, True):
            lying = speech.block(extension, bytes(content), more=more, size=size)
            for body in (b"", b"1234567", b"12345678"):
                agrees_with_twin(speech.data(body, lying) + speech.ping)
                agrees_with_twin(speech.data(body, speech.rr(True, 1, more=True) + lying) + speech.ping)
                agrees_with_twin(speech.envelope(speech.DATA, body, lying, bias=4) + speech.ping, EXCLUSIVE)


def test_block_faults_point_at_their_block():
    assert fault_of(speech.envelope(speech.DATA, e=True)) == (Fault.BLOCK_MISSING, 8)
    assert fault_of(speech.envelope(speech.DATA, bytes(7), e=True)) == (Fault.BLOCK_MISSING, 8)
    assert fault_of(speech.data(b"", speech.rr(True, 1, more=True))) == (Fault.NEXT_BLOCK_MISSING, 28)
    assert fault_of(speech.data(bytes(7), speech.rr(True, 1, more=True))) == (Fault.NEXT_BLOCK_MISSING, 28)
    assert fault_of(speech.data(b"", speech.block(128, size=7))) == (Fault.BLOCK_TOO_SMALL, 8)
    assert fault_of(speech.data(b"", speech.block(128, size=9))) == (Fault.BLOCK_PAST_END, 8)
    assert fault_of(speech.data(b"", speech.block(0, bytes(11)))) == (Fault.REQUEST_BLOCK_SIZE, 8)
    assert fault_of(speech.data(b"", speech.block(0, bytes(13)))) == (Fault.REQUEST_BLOCK_SIZE, 8)
    assert fault_of(speech.data(b"", speech.block(1, bytes(3)))) == (Fault.COMPRESSION_BLOCK_SIZE, 8)
    assert fault_of(speech.data(b"", speech.block(1, bytes(5)))) == (Fault.COMPRESSION_BLOCK_SIZE, 8)


def test_without_the_e_bit_everything_is_body():
    row, parts = only(speech.envelope(speech.DATA, speech.rr(True, 0), e=False))
    assert (row[FAULT], row[BODY], row[BODY_LENGTH], row[REQUEST], parts) == (0, 8, 20, -1, [])


@pytest.mark.parametrize("count", range(6))
def test_the_block_limit_is_the_last_count_accepted(count):
    fault, at = fault_of(speech.data(b"", speech.blocks(count)), SMALL)
    assert fault == (Fault.BLOCKS_OVER_LIMIT if count > 3 else None)
    assert at == (8 + 3 * 8 if count > 3 else 0)


@pytest.mark.parametrize("count", [15, 16, 17])
def test_sixteen_blocks_by_default(count):
    assert fault_of(speech.data(b"", speech.blocks(count)))[0] == (Fault.BLOCKS_OVER_LIMIT if count > 16 else None)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_nesting_limit_is_the_last_depth_accepted(count):
    packed = b"".join(speech.gz(0, more=index + 1 < count) for index in range(count))
    fault, at = fault_of(speech.data(b"x", packed), SMALL)
    assert fault == (Fault.COMPRESSION_NESTED if count > 2 else None)
    assert at == (8 + 2 * 12 if count > 2 else 0)


def test_no_blocks_at_all_if_the_limit_says_so():
    assert fault_of(speech.data(b"", speech.blocks(1)), Limits(max_extension_blocks=0)) == (Fault.BLOCKS_OVER_LIMIT, 8)


@each("kind", [0, 1, 2, 3, 4, 5, 128, 255])
@each("extension", [0, 1, 2, 127, 128, 255])
def test_which_extension_belongs_to_which_message(kind, extension):
    content = {0: bytes(11) + b"\x01", 1: bytes(4)}.get(extension, b"")
    body = {0: b"\x01\x00\x00\x00", 4: bytes(6)}.get(kind, b"")
    fault, at = fault_of(speech.envelope(kind, body, speech.block(extension, content)))
    if kind == speech.HELLO:
        expected = Fault.HELLO_EXTENDED
    elif 2 <= extension <= 127:
        expected = Fault.EXTENSION_UNKNOWN
    elif kind < speech.DATA and extension == speech.RR:
        expected = Fault.REQUEST_BLOCK_MISPLACED
    elif kind < speech.DATA and extension == speech.GZ:
        expected = Fault.COMPRESSION_MISPLACED
    else:
        expected = None
    assert (fault, at) == (expected, 8 if expected else 0)


@pytest.mark.parametrize("request_id", [0, 1, 255, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("asks", [True, False])
def test_request_identifiers_keep_their_64_bits(request_id, asks):
    row, _ = only(speech.data(b"", speech.rr(asks, request_id)))
    assert (row[REQUEST], row[REQUEST_ID] % 2**64) == (asks, request_id)
    assert -(2**63) <= row[REQUEST_ID] < 2**63
    assert row[FAULT] == (Fault.REQUEST_ID_ZERO if request_id == 0 else 0)


def test_the_first_request_block_counts_and_the_last_scheme():
    row, _ = only(speech.data(b"", speech.rr(True, 1, more=True) + speech.gz(1, more=True) + speech.rr(False, 2, more=True) + speech.gz(0)))
    assert (row[REQUEST], row[REQUEST_ID], row[SCHEME]) == (1, 1, 0)
    assert (row[FAULT], row[FAULT_AT]) == (Fault.REQUEST_BLOCK_REPEATED, 8 + 20 + 12)


def test_what_cannot_be_read_outweighs_what_may_not_be_said():
    """An unreadable block after a zero identifier: there is no message, so there is no breach either."""
    fault = fault_of(speech.data(b"", speech.rr(True, 0, more=True) + speech.block(1, bytes(5))))
    assert fault == (Fault.COMPRESSION_BLOCK_SIZE, 28)


def test_the_first_of_two_breaches_is_told():
    fault = fault_of(speech.data(b"", speech.block(7, more=True) + speech.rr(True, 0)))
    assert fault == (Fault.EXTENSION_UNKNOWN, 8)


# Bodies and oddities.


@pytest.mark.parametrize("size", range(7))
def test_a_hello_has_four_bytes(size):
    assert fault_of(speech.envelope(speech.HELLO, bytes(size))) == ((None, 0) if size == 4 else (Fault.HELLO_SIZE, 8))


@each("announced", [*range(8), 0xFFFF])
@each("there", range(6))
def test_an_error_text_fills_its_body(announced, there):
    fault = fault_of(speech.error(3, b"x" * there, length=announced))
    if announced > there:
        assert fault == (Fault.ERROR_TOO_SHORT, 8)
    elif announced < there:
        assert fault == (Fault.ERROR_TRAILING_BYTES, 8 + 6 + announced)
    else:
        assert fault == (None, 0)


@pytest.mark.parametrize("size", range(6))
def test_an_error_has_at_least_six_bytes(size):
    assert fault_of(speech.envelope(speech.ERROR, bytes(size))) == (Fault.ERROR_TOO_SHORT, 8)


@pytest.mark.parametrize("said", SPOKEN.values(), ids=SPOKEN)
def test_every_bit_of_a_message_turned(said):
    """What a single bit changes, both readers see the same way: unused bits are odd and nothing else."""
    for at in range(len(said)):
        for bit in range(8):
            turned = bytearray(said)
            turned[at] ^= 1 << bit
            agrees_with_twin(bytes(turned) + speech.ping)


def test_unused_bits_are_odd_and_no_fault():
    unused = (
        speech.envelope(speech.PING, unused=b"\x7f\x00\x00"),
        speech.envelope(speech.PING, unused=b"\x00\x00\x01"),
        speech.envelope(speech.HELLO, b"\x01\x00\x01\x00"),
        speech.envelope(speech.ERROR, b"\x03\x00\x00\x01\x00\x00"),
        speech.data(b"", speech.rr(True, 1, unused=b"\x00\x00\x00\x01")),
        speech.data(b"", speech.rr(True, 1, unused=b"\x01\x00\x00\x00")),
        speech.data(b"", speech.gz(0, unused=b"\x00\x80\x00")),
        speech.data(b"", speech.block(200, unused=b"\x40\x00\x00")),
    )
    for said in unused:
        row, _ = only(said)
        assert (row[FAULT], row[ODDITIES]) == (0, ODD_BITS)


@pytest.mark.parametrize("kind", [speech.BYE, speech.PING, speech.PONG])
def test_a_body_where_there_is_none_is_odd_and_no_fault(kind):
    row, _ = only(speech.envelope(kind, b"x"))
    assert (row[FAULT], row[ODDITIES]) == (0, ODD_BODY)


# Neighbours.


@each("said", SPOKEN.values(), ids=SPOKEN)
@each(
    "faulty",
    [
        speech.envelope(6),
        speech.envelope(127, b"\x00\x00\x00\x08\x02\x00\x00\x00"),
        speech.envelope(speech.HELLO),
        speech.envelope(speech.DATA, e=True),
        speech.data(b"", speech.block(0, bytes(11))),
        speech.data(b"", speech.blocks(17)),
        speech.error(3, b"x", length=9),
        speech.request(0),
    ],
    ids=["kind-6", "kind-127", "hello", "no-block", "short-block", "17-blocks", "error", "zero"],
)
def test_a_message_after_a_faulty_one_is_still_found(faulty, said):
    one = scanned(said + faulty + said)
    assert [row[START] for row in one.rows] == [0, len(said), len(said) + len(faulty)]
    assert [bool(row[FAULT]) for row in one.rows] == [False, True, False]
    agrees_with_twin(said + faulty + said)


@pytest.mark.parametrize("size", [0, 7, 16 * 1024 * 1024 + 1, 2**32 - 1])
def test_a_framing_fault_is_the_last_row_and_takes_the_rest(size):
    one = scanned(speech.ping + size.to_bytes(4) + speech.ping)
    assert [row[KIND] for row in one.rows] == [speech.PING, -1]
    assert (one.rows[1][START], one.rows[1][LENGTH], one.end, one.need) == (8, 12, 8, 0)


def test_rows_and_parts_that_are_full_stop_the_scan_and_lose_nothing():
    said = b"".join(SPOKEN.values())
    whole = scanned(said)
    for rows in (1, 2, 3):
        for parts in (16, 17, 18):
            at, starts, calls = 0, [], 0
            while at < len(said):
                one = scanned(said, start=at, rows=rows, parts=parts)
                assert one.need == NO_ROOM or one.end == len(said)
                starts += [row[START] for row in one.rows]
                assert one.end > at
                at, calls = one.end, calls + 1
            assert starts == [row[START] for row in whole.rows]
            assert calls >= len(SPOKEN) / rows


def test_parts_must_hold_a_whole_message_before_it_is_begun():
    one = scanned(speech.ping + speech.request(1), rows=8, parts=15)
    assert (len(one.rows), one.end, one.need) == (1, 8, NO_ROOM)


# What Hypothesis thinks of.

LIMITS = st.sampled_from((Limits(), SMALL, Limits(max_extension_blocks=2, max_nested_compression=0), EXCLUSIVE))


@pytest.mark.slow
@examples(400)
@given(mutated(STREAMS), LIMITS)
def test_any_stream_is_read_the_same_compiled_plain_and_slowly(data, limits):
    agrees_with_twin(data, limits)


@examples(200)
@given(st.lists(speech.messages, max_size=6), st.booleans())
def test_every_encoded_message_is_read_without_framing_fault(messages, exclusive):
    limits = Limits(sizes_exclude_themselves=exclusive)
    data = [encode(one, limits) for one in messages]
    one = agrees_with_twin(b"".join(data), limits)
    assert [row[LENGTH] for row in one.rows] == [len(each) for each in data]


# The third form: Numba switched off, arrays all the same.

UNCOMPILED = """
import sys
import numpy as np
from wirelake.protocols.emp.scanner import DEFAULT_LIMITS, PART_COLUMNS, ROW_COLUMNS, walk
from wirelake.protocols.kernel import compiled
data = np.frombuffer(bytes.fromhex(sys.argv[1]), np.uint8)
rows, run_of, parts, ends = (np.zeros(size, np.int64) for size in (64 * ROW_COLUMNS, 64, 96 * PART_COLUMNS, 1))
said = compiled(walk)(data, np.array([0]), np.array([len(data)]), 0, 0, rows, run_of, parts, ends, DEFAULT_LIMITS.for_scan())
print([int(one) for one in said], rows[: said[0] * ROW_COLUMNS].tolist(), ends.tolist())
"""


@pytest.mark.slow
def test_arrays_are_read_the_same_with_numba_switched_off():
    """Bytes of an array are small unsigned numbers that overflow unless they are widened: 300 bytes are more than 255."""
    data = b"".join(SPOKEN.values()) + speech.data(bytes(300)) + b"\x00" + speech.ping
    outputs = [
        subprocess.run(
            [sys.executable, "-c", UNCOMPILED, data.hex()],
            env=os.environ | {"NUMBA_DISABLE_JIT": disabled},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for disabled in ("0", "1")
    ]
    assert outputs[0] == outputs[1]
