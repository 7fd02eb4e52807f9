"""What a glance says is what the scanner says: for common messages, for every one of them with one byte changed, and for pieces."""

from __future__ import annotations

import pytest
from tests.protocols.emp import speech as emp_speech
from tests.protocols.relink import speech as relink_speech
from tests.protocols.yamp import speech as yamp_speech

from wirelake.protocols.emp import scanner as emp
from wirelake.protocols.emp.limits import Limits as EmpLimits
from wirelake.protocols.relink import scanner as relink
from wirelake.protocols.relink.limits import Limits as RelinkLimits
from wirelake.protocols.relink.limits import Stage
from wirelake.protocols.yamp import scanner as yamp
from wirelake.protocols.yamp.limits import Limits as YampLimits

SMALL = EmpLimits(max_message_size=40, max_extension_blocks=0)
PACKETS = RelinkLimits().for_scan(Stage.PACKETS, 4, 3)
TINY = RelinkLimits(max_part_size=3, max_message_size=3).for_scan(Stage.PACKETS, 4, 3)
NO_IDS = RelinkLimits().for_scan(Stage.PACKETS, 0, 0)
CONSUMED = (3, 1)
"""Format and type of the acknowledgement of consumed messages with a sequence number."""


def emp_messages(bias):
    for body in (b"", b"x", bytes(100)):
        yield emp_speech.envelope(emp_speech.DATA, body, bias=bias)
        for asks in (False, True):
            for number in (1, 1 << 63, (1 << 64) - 1):
                yield emp_speech.envelope(emp_speech.DATA, body, emp_speech.rr(asks, number, bias=bias), bias=bias)


def yamp_messages():
    for body in (b"", b"null", bytes(100)):
        yield yamp_speech.header(yamp_speech.EVENT, b"a.b") + len(body).to_bytes(4) + body
        yield yamp_speech.header(yamp_speech.REQUEST, b"a.b") + b"\1" + len(body).to_bytes(4) + body
        for kind in range(4):
            yield yamp_speech.header(yamp_speech.RESPONSE, b"a") + yamp_speech.OTHER + bytes((kind,)) + len(body).to_bytes(4) + body


def relink_messages(channel, acknowledged):
    for size in (*range(10), 128):
        yield relink_speech.message((channel,), (b"x" * size,))
    for sequence in (0, 7, (1 << 32) - 1):
        yield relink_speech.control(*CONSUMED, (acknowledged,), sequence)
    yield from (relink_speech.GENERAL["ping"], relink_speech.GENERAL["pong"])


CASES = {
    "emp": (emp, list(emp_messages(0)), EmpLimits().for_scan()),
    "emp, sizes exclude themselves": (emp, list(emp_messages(4)), EmpLimits(sizes_exclude_themselves=True).for_scan()),
    "yamp": (yamp, list(yamp_messages()), YampLimits().for_scan()),
    "relink": (relink, list(relink_messages(b"chan", b"abc")), PACKETS),
    "relink without ids": (relink, list(relink_messages(b"", b"")), NO_IDS),
}
STRICT = {
    "emp": (emp, list(emp_messages(0)), SMALL.for_scan()),
    "emp in the other dialect": (emp, list(emp_messages(0)), EmpLimits(sizes_exclude_themselves=True).for_scan()),
    "yamp": (yamp, list(yamp_messages()), YampLimits(max_body_size=3).for_scan()),
    "relink": (relink, list(relink_messages(b"chan", b"abc")), TINY),
    "relink, a part of the handshake": (relink, list(relink_messages(b"chan", b"abc")), RelinkLimits().for_scan(Stage.REQUEST, 4, 3)),
}


def scanned(scanner, data, limits):
    """What the scanner makes of bytes: row and parts if they are exactly one message."""
    row, parts = [0] * scanner.ROW_COLUMNS * 2, [0] * scanner.PART_COLUMNS * 64
    count, used, end, _ = scanner.scan(data, 0, len(data), row, parts, limits)
    if count != 1 or end != len(data):
        return None
    return row[: scanner.ROW_COLUMNS], parts[: used * scanner.PART_COLUMNS]


def agrees(scanner, data, limits):
    """A glance that says something says what the scanner says; returns whether it did."""
    seen = scanner.glance(data, limits)
    assert seen is None or seen == scanned(scanner, data, limits), data
    return seen is not None


@pytest.mark.parametrize("case", CASES)
def test_common_messages_are_recognised(case):
    scanner, messages, limits = CASES[case]
    assert all(agrees(scanner, data, limits) for data in messages)


@pytest.mark.parametrize("case", CASES)
def test_a_changed_byte_is_seen_as_the_scanner_sees_it(case):
    scanner, messages, limits = CASES[case]
    recognised = 0
    for data in messages:
        for at in range(min(len(data), 48)):
            for change in (1, 0x80, 0xFF):
                recognised += agrees(scanner, data[:at] + bytes((data[at] ^ change,)) + data[at + 1 :], limits)
    assert recognised, "a body may change"


@pytest.mark.parametrize("case", CASES)
def test_pieces_and_neighbours_are_left_to_the_scanner(case):
    scanner, messages, limits = CASES[case]
    for data in messages:
        for other in (data + b"\0", data + data, data[:-1], data[: len(data) // 2], b""):
            agrees(scanner, other, limits)
        assert scanner.glance(data + data, limits) is None
        assert scanner.glance(data[:-1], limits) is None


@pytest.mark.parametrize("case", STRICT)
def test_limits_hold(case):
    scanner, messages, limits = STRICT[case]
    recognised = [agrees(scanner, data, limits) for data in messages]
    assert not all(recognised)


RUNS = {
    "emp": (emp, list(emp_messages(0)), EmpLimits().for_scan()),
    "emp, sizes exclude themselves": (emp, list(emp_messages(4)), EmpLimits(sizes_exclude_themselves=True).for_scan()),
    "emp, small": (emp, list(emp_messages(0)), SMALL.for_scan()),
    "relink": (relink, list(relink_messages(b"chan", b"abc")), PACKETS),
    "relink, small": (relink, list(relink_messages(b"chan", b"abc")), TINY),
    "relink without ids": (relink, list(relink_messages(b"", b"")), NO_IDS),
    "relink, a part of the handshake": (relink, list(relink_messages(b"chan", b"abc")), RelinkLimits().for_scan(Stage.REQUEST, 4, 3)),
}


def run_agrees(scanner, data, limits):
    """Every message of a run is one that the scanner reads there, whole and without a fault; returns how many there are."""
    sizes, payloads = scanner.run(data, 0, len(data), limits)
    room = len(sizes) + 1
    rows, flat = [0] * scanner.ROW_COLUMNS * room, [0] * scanner.PART_COLUMNS * 64 * room
    scanner.scan(data, 0, len(data), rows, flat, limits)
    start, plain = 0, None
    for number, (size, parts) in enumerate(zip(sizes, payloads, strict=True)):
        row = rows[number * scanner.ROW_COLUMNS : (number + 1) * scanner.ROW_COLUMNS]
        one = data[start : start + size]
        assert (row[0], row[1], row[3]) == (start, size, 0), data
        assert scanned(scanner, one, limits) is not None
        seen = scanner.glance(one, limits)
        assert seen is not None, "what is in a run is also recognised alone"
        at, length = (seen[0][7], seen[0][8]) if scanner is emp else seen[1]
        assert (one[at : at + length],) == parts
        if scanner is relink:
            plain = plain or relink.first_id(one, 0, limits)
            assert relink.first_id(one, 0, limits) == plain, "one channel"
        start += size
    return len(sizes)


@pytest.mark.parametrize("case", RUNS)
def test_a_run_is_what_the_scanner_reads(case):
    scanner, messages, limits = RUNS[case]
    taken = 0
    for data in messages:
        for following in (data, data[:-1], b"", *messages):
            taken += run_agrees(scanner, data + data + following, limits)
        for at in range(min(len(data), 48)):
            for change in (1, 0x80, 0xFF):
                changed = data[:at] + bytes((data[at] ^ change,)) + data[at + 1 :]
                run_agrees(scanner, data + changed + data, limits)
    assert bool(taken) == (case not in ("relink, a part of the handshake",))


@pytest.mark.parametrize("size", [*range(10), 128])
@pytest.mark.parametrize("tail", ["nothing", "a piece", "another size", "another channel", "a ping"])
def test_equal_messages_are_one_run_whatever_follows(size, tail):
    one, before = relink_speech.message((b"chan",), (b"x" * size,)), b"before"
    tails = {
        "nothing": b"",
        "a piece": one[:-1],
        "another size": relink_speech.message((b"chan",), (b"y" * (size + 1),)),
        "another channel": relink_speech.message((b"nahc",), (b"x" * size,)),
        "a ping": relink_speech.GENERAL["ping"],
    }
    data = before + 20 * one + tails[tail]
    sizes, payloads = relink.run(data, len(before), len(data), PACKETS)
    more = tail == "another size"
    assert sizes[:20] == [len(one)] * 20
    assert payloads[:20] == [(b"x" * size,)] * 20
    assert len(sizes) == len(payloads) == 20 + more


@pytest.mark.parametrize("bias", [0, 4])
@pytest.mark.parametrize("tail", [b"", bytes(9), emp_speech.envelope(emp_speech.DATA, b"longer")])
def test_equal_data_of_emp_is_one_run_whatever_follows(bias, tail):
    one = emp_speech.envelope(emp_speech.DATA, b"xyz", bias=bias)
    limits = EmpLimits(sizes_exclude_themselves=bool(bias)).for_scan()
    sizes, payloads = emp.run(b"?" + 20 * one + tail, 1, 1 + 20 * len(one) + len(tail), limits)
    assert sizes[:20] == [len(one)] * 20
    assert payloads[:20] == [(b"xyz",)] * 20


def test_a_run_ends_where_another_channel_begins():
    one, two = relink_speech.message((b"chan",), (b"x",)), relink_speech.message((b"nahc",), (b"x",))
    assert len(relink.run(one + one + two, 0, 3 * len(one), PACKETS)[0]) == 2
