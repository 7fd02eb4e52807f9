"""The scanner of wolpertinger: finds texts, the values of their keys, payloads and faults.

This is the only reader of the grammar (WOLP-1). A text is a line of a byte stream (WOLP-11), or all there is. A row of an unreadable text
still has its id if that can be read: the result that answers it needs the id. The scanner does not read payloads, and keeps no state.
"""

from __future__ import annotations

import re
from typing import Any, Final

from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, NO_ROOM, PART, PARTS, SHARED, START, kernel, walker
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.wolpertinger.messages import HIGHEST_ID, Encryption, TextKind
from wirelake.protocols.xmpp import inside

__all__ = [
    "DEFAULT_LIMITS",
    "ENCRYPTION",
    "FRAGMENT_COUNT",
    "FRAGMENT_INDEX",
    "GZIP",
    "LF",
    "MESSAGE_ID",
    "ODDITIES",
    "ODD_ALIAS",
    "ODD_BLANKS",
    "ODD_CASE",
    "ODD_CODE",
    "ODD_LATE",
    "ODD_PAYLOAD",
    "PART_COLUMNS",
    "PAYLOAD",
    "PAYLOAD_LENGTH",
    "RESULT",
    "ROW_COLUMNS",
    "Limits",
    "find",
    "is_text",
    "scan",
    "sniff",
    "walk",
]

# A row: the shared columns, then these. What a text does not have is -1.
MESSAGE_ID: Final = SHARED
RESULT: Final = SHARED + 1
"""The code of a result."""
GZIP: Final = SHARED + 2
ENCRYPTION: Final = SHARED + 3
"""Whether the payload is encrypted: see `messages.Encryption`."""
FRAGMENT_INDEX: Final = SHARED + 4
FRAGMENT_COUNT: Final = SHARED + 5
PAYLOAD: Final = SHARED + 6
"""Offset of the payload: what follows the last semicolon."""
PAYLOAD_LENGTH: Final = SHARED + 7
ODDITIES: Final = SHARED + 8
"""Bits for what is tolerated: see ODD_CASE and its neighbours."""
ROW_COLUMNS: Final = SHARED + 9
PART_COLUMNS: Final = 1
"""Texts have no parts: nothing is ever written there."""

ODD_CASE: Final = 1
"""WOLP-2: a key that is not in lower case."""
ODD_ALIAS: Final = 2
"""WOLP-5: `secure` instead of `encryption`."""
ODD_BLANKS: Final = 4
"""WOLP-6: blanks in a payload; never set by the scanner, which does not look into payloads."""
ODD_PAYLOAD: Final = 8
"""WOLP-4: a result with a payload."""
ODD_CODE: Final = 16
"""WOLP-4: a result with an unknown code."""
ODD_LATE: Final = 32
"""WOLP-9: a fragment of a message that was refused.

Never set by the scanner, which knows one text at a time.
"""

LF: Final = 10
COLON: Final = 58
SEMICOLON: Final = 59
FARTHEST: Final = 1 << 47
"""No offset is beyond this or below 0; saying so lets the compiler drop a check on every access."""
HUGE: Final = 1 << 50
"""What a number is read as that no field can hold."""
LAST_CODE: Final = 5
"""WOLP-4: the last code of a result that has a meaning."""
ONES: Final = 0x01010101_01010101
LFS: Final = LF * ONES
SEMICOLONS: Final = SEMICOLON * ONES


def _word(text: str) -> int:
    """Eight letters as a number: how the kernel compares names."""
    return int.from_bytes(text.encode().ljust(8, b"\x00"))


WORD_MESSAGE: Final = _word("message_")
WORD_ID: Final = _word("id")
WORD_RESULT: Final = _word("result")
WORD_GZIP: Final = _word("gzip")
WORD_ENCRYPTI: Final = _word("encrypti")
WORD_ON: Final = _word("on")
WORD_SECURE: Final = _word("secure")
WORD_SIGNATUR: Final = _word("signatur")
WORD_E: Final = _word("e")
WORD_FRAGMENT: Final = _word("fragment")
WORD_INDEX: Final = _word("_index")
WORD_COUNT: Final = _word("_count")

# What a pair of metadata is about; as bits, so that a repeated key is seen.
IS_ID: Final = 1
IS_RESULT: Final = 2
IS_GZIP: Final = 4
IS_ENCRYPTION: Final = 8
IS_INDEX: Final = 16
IS_COUNT: Final = 32
IS_SIGNATURE: Final = 64


@kernel
def scan(data: Any, start: int, stop: int, rows: Any, parts: Any, limits: Any) -> tuple[int, int, int, int]:  # noqa: ARG001 - as in every protocol
    """Walk whole lines in data[start:stop]; one row each.

    If the last of the limits is 0, all of it is one text.

    Returns (rows written, 0, next offset, need): `need` is 0 where a line is not over yet, NO_ROOM if the rows are full. A line over the
    limit is the last row, and `next` stays at its start.
    """
    max_text, max_fragments, lines = limits
    count, at = 0, start
    while (count + 1) * ROW_COLUMNS <= len(rows):
        if (at >= stop and lines) or at < 0 or at > FARTHEST:
            return count, 0, at, 0
        most = at + max_text
        seen, fault, fault_at, weak, weak_at, odd = 0, 0, at, 0, at, 0
        message_id, result, gzip, encryption, index, total = -1, -1, -1, 0, -1, -1
        begin = at
        while True:
            end = _stop_of(data, begin, min(stop, most + 1), lines)
            if end >= stop or end > most or data[end] != SEMICOLON:
                break
            what, value, odd_key, wrong, wrong_at = _pair(data, begin, end)
            odd |= odd_key
            if not wrong and seen & what:
                wrong, wrong_at = Fault.KEY_REPEATED.value, begin  # WOLP-2
            seen |= what
            if wrong:
                if not fault:
                    fault, fault_at = wrong, wrong_at
            elif what == IS_ENCRYPTION:
                encryption = _algorithm(data, value, end, odd_key)
            else:
                number = _number(data, value, end)
                bad = 0
                if what == IS_ID:
                    message_id = number
                    if number < 0 or number > HIGHEST_ID:  # WOLP-3
                        message_id, bad = -1, Fault.ID_INVALID.value
                elif what == IS_RESULT:
                    result = number
                    if number < 0:
                        bad = Fault.RESULT_INVALID.value
                    elif number > LAST_CODE:
                        odd |= ODD_CODE
                elif what == IS_GZIP:
                    gzip = number
                    if number < 0:
                        bad = Fault.GZIP_NOT_NUMBER.value
                else:  # WOLP-9
                    if what == IS_INDEX:
                        index = number
                    else:
                        total = number
                    if number < 0:
                        bad = Fault.FRAGMENT_OUT_OF_RANGE.value
                if bad and not weak:
                    weak, weak_at = bad, value
            begin = end + 1
        if end > most:  # WOLP-29
            row = count * ROW_COLUMNS
            kind = TextKind.RESULT.value if seen & IS_RESULT else -1
            _write(rows, row, at, stop - at, kind, Fault.TEXT_OVER_LIMIT.value, most)
            _write_fields(rows, row, message_id, -1, -1, 0, -1, -1, stop, 0, 0)
            return count + 1, 0, at, 0
        if lines and end >= stop:
            return count, 0, at, 0
        kind = TextKind.MESSAGE.value
        if seen & IS_RESULT:
            kind = TextKind.RESULT.value
            if end > begin:  # WOLP-4
                odd |= ODD_PAYLOAD
        elif seen & (IS_INDEX | IS_COUNT):
            kind = TextKind.FRAGMENT.value
        if begin == at:
            kind, fault, fault_at = -1, Fault.METADATA_MISSING.value, at  # WOLP-1
        if not fault:
            fault, fault_at = weak, weak_at
        if not fault:
            fault = _missing(seen, index, total, max_fragments)
        row = count * ROW_COLUMNS
        after = end + 1 if lines else end
        _write(rows, row, at, after - at, kind, fault, fault_at)
        _write_fields(rows, row, message_id, result, gzip, encryption, index, total, begin, end - begin, odd)
        count += 1
        at = after
        if not lines:
            return count, 0, at, 0
    return count, 0, at, NO_ROOM


@kernel
def _stop_of(data: Any, at: int, stop: int, lines: int) -> int:
    """Where the next semicolon is, or (in lines) the next line feed; else `stop`. Sixteen bytes at a time."""
    breaks = LFS if lines else SEMICOLONS
    while at >= 0 and stop - at >= 16:
        one, other = _eight(data, at), _eight(data, at + 8)
        a, b, c, d = one ^ SEMICOLONS, one ^ breaks, other ^ SEMICOLONS, other ^ breaks
        # A byte that is 0 borrows: its first bit is set after, and was not before.
        if ((((a - ONES) & ~a) | ((b - ONES) & ~b) | ((c - ONES) & ~c) | ((d - ONES) & ~d)) >> 7) & ONES:
            break
        at += 16
    while at < stop and data[at] != SEMICOLON and (lines == 0 or data[at] != LF):
        at += 1
    return at


@kernel
def _eight(data: Any, at: int) -> int:
    """Eight bytes, the first one lowest. (Compiled it may be negative; the bits are the same.)"""
    low: int = (0 + data[at]) | ((0 + data[at + 1]) << 8) | ((0 + data[at + 2]) << 16) | ((0 + data[at + 3]) << 24)
    high: int = (0 + data[at + 4]) | ((0 + data[at + 5]) << 8) | ((0 + data[at + 6]) << 16) | ((0 + data[at + 7]) << 24)
    return low | (high << 32)


@kernel
def _pair(data: Any, begin: int, end: int) -> tuple[int, int, int, int, int]:
    """WOLP-1, WOLP-2: one pair of metadata: (which key, where its value begins, oddities, fault, where)."""
    colon = begin
    while colon < end and data[colon] != COLON:
        colon += 1
    if colon == begin or colon + 1 >= end:
        return 0, end, 0, Fault.PAIR_INVALID.value, begin
    for place in range(colon + 1, end):
        if data[place] == COLON:
            return 0, end, 0, Fault.PAIR_INVALID.value, place
    first, second, odd = 0, 0, 0
    for place in range(begin, colon):
        letter = 0 + data[place]
        if 65 <= letter <= 90:
            letter += 32
            odd = ODD_CASE
        elif not (97 <= letter <= 122 or 48 <= letter <= 57 or letter == 95):
            return 0, end, 0, Fault.KEY_MALFORMED.value, place
        if place - begin < 8:
            first |= letter << (8 * (7 - place + begin))
        elif place - begin < 16:
            second |= letter << (8 * (15 - place + begin))
    what = 0
    if first == WORD_MESSAGE and second == WORD_ID:
        what = IS_ID
    elif first == WORD_RESULT and second == 0:
        what = IS_RESULT
    elif first == WORD_GZIP and second == 0:
        what = IS_GZIP
    elif first == WORD_ENCRYPTI and second == WORD_ON:
        what = IS_ENCRYPTION
    elif first == WORD_SECURE and second == 0:  # WOLP-5
        what, odd = IS_ENCRYPTION, odd | ODD_ALIAS
    elif first == WORD_FRAGMENT and second == WORD_INDEX:
        what = IS_INDEX
    elif first == WORD_FRAGMENT and second == WORD_COUNT:
        what = IS_COUNT
    elif first == WORD_SIGNATUR and second == WORD_E:
        return IS_SIGNATURE, colon + 1, odd, Fault.SIGNATURE_REFUSED.value, begin  # WOLP-5
    if what == 0:
        return 0, end, odd, Fault.KEY_UNKNOWN.value, begin
    return what, colon + 1, odd, 0, begin


@kernel
def _number(data: Any, at: int, end: int) -> int:
    """WOLP-1: a number, HUGE if it is larger than any field; -1 for anything else."""
    number = 0
    for place in range(at, end):
        digit = (0 + data[place]) - 48
        if digit < 0 or digit > 9:
            return -1
        if number < HUGE:
            number = number * 10 + digit
    return min(number, HUGE)


@kernel
def _algorithm(data: Any, at: int, end: int, odd: int) -> int:
    """WOLP-5: which encryption a value names, in either case."""
    if end - at == 3 and data[at] | 32 == 97 and data[at + 1] | 32 == 101 and data[at + 2] | 32 == 115:
        return Encryption.SECURE_AES.value if odd & ODD_ALIAS else Encryption.AES.value
    return Encryption.UNKNOWN.value


@kernel
def _missing(seen: int, index: int, total: int, max_fragments: int) -> int:
    """Which rule a text breaks by what it lacks, or has too much of, or 0."""
    if seen & IS_ID == 0:
        return Fault.ID_MISSING.value  # WOLP-3
    if seen & IS_RESULT:
        return 0 if seen == IS_RESULT | IS_ID else Fault.RESULT_WITH_OTHERS.value  # WOLP-4
    if seen & (IS_INDEX | IS_COUNT) == 0:
        return 0
    if seen & (IS_INDEX | IS_COUNT) != IS_INDEX | IS_COUNT:
        return Fault.FRAGMENT_INCOMPLETE.value  # WOLP-9
    return 0 if index < total <= max_fragments else Fault.FRAGMENT_OUT_OF_RANGE.value


@kernel
def _write(rows: Any, row: int, start: int, length: int, kind: int, fault: int, fault_at: int) -> None:
    rows[row + START] = start
    rows[row + LENGTH] = length
    rows[row + KIND] = kind
    rows[row + FAULT] = fault
    rows[row + FAULT_AT] = fault_at
    rows[row + PART] = 0
    rows[row + PARTS] = 0


@kernel
def _write_fields(
    rows: Any,
    row: int,
    message_id: int,
    result: int,
    gzip: int,
    encryption: int,
    index: int,
    total: int,
    payload: int,
    length: int,
    odd: int,
) -> None:
    rows[row + MESSAGE_ID] = message_id
    rows[row + RESULT] = result
    rows[row + GZIP] = gzip
    rows[row + ENCRYPTION] = encryption
    rows[row + FRAGMENT_INDEX] = index
    rows[row + FRAGMENT_COUNT] = total
    rows[row + PAYLOAD] = payload
    rows[row + PAYLOAD_LENGTH] = length
    rows[row + ODDITIES] = odd


@kernel
def find(data: Any, start: int, stop: int, limits: Any) -> int:  # noqa: ARG001 - as in every protocol
    """The next place where a text certainly begins: behind a line feed that is not before `start`.

    Else `stop`.
    """
    for at in range(start, stop):
        if data[at] == LF:
            return at + 1
    return stop


walk = walker(scan, find, ROW_COLUMNS, PART_COLUMNS)
"""`scan` over many runs, with `find` where a run goes wrong: see `kernel.walker`."""

_BEGINNING: Final = re.compile(
    rb"(?:message_id|fragment_index|fragment_count|result|gzip):\d{1,10};|(?:encryption|secure):aes;", re.IGNORECASE
)


def sniff(data: bytes) -> bool:
    """Whether a stream that begins like this is wolpertinger (WOLP-11).

    A pair of metadata begins its first line, or a message's body.
    """
    return is_text(data) or inside(data, is_text)


def is_text(data: bytes) -> bool:
    """Whether this begins with a pair of metadata that only wolpertinger writes (WOLP-1)."""
    return _BEGINNING.match(data) is not None
