"""The scanner in both its forms, held to the slow reader."""

from __future__ import annotations

from collections.abc import Sequence

from tests.protocols.both_forms import BothForms, Scan, Walk
from tests.protocols.yamp import twin

from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, PART, PARTS, START
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.yamp.scanner import (
    BODY,
    BODY_LENGTH,
    CODE,
    ODD_BOOL,
    ODD_REASON,
    ODD_SERIALIZER,
    ODD_URI,
    ODDITIES,
    PART_COLUMNS,
    ROW_COLUMNS,
    URI,
    URI_LENGTH,
)

ODD = {"bool": ODD_BOOL, "uri": ODD_URI, "reason": ODD_REASON, "serializer": ODD_SERIALIZER}


FORMS = BothForms("yamp", ROW_COLUMNS, PART_COLUMNS)


def scanned(data: bytes, limits: Limits = DEFAULT_LIMITS, *, start: int = 0, rows: int = 64) -> Scan:
    """Scan once, plain and compiled; there are no parts."""
    outcome = FORMS.scan(data, limits.for_scan(), start=start, rows=rows, parts=0)
    assert outcome.parts == []
    return outcome


def only(data: bytes, limits: Limits = DEFAULT_LIMITS) -> list[int]:
    """The row of bytes that are one message."""
    found = scanned(data, limits)
    assert len(found.rows) == 1, f"{len(found.rows)} rows, need {found.need}"
    return found.rows[0]


def fault_of(data: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[Fault | None, int]:
    """The fault of bytes that are one message, and the offset it points at."""
    row = only(data, limits)
    return (Fault(row[FAULT]), row[FAULT_AT]) if row[FAULT] else (None, row[START])


def as_read(row: Sequence[int], data: bytes) -> twin.Read:
    """A row as the twin would have put it."""
    assert (row[PART], row[PARTS]) == (0, 0)
    assert row[KIND] == 7 or row[BODY] + row[BODY_LENGTH] == row[START] + row[LENGTH]
    uri = None if row[URI_LENGTH] < 0 else data[row[URI] : row[URI] + row[URI_LENGTH]]
    odd = {name for name, bit in ODD.items() if row[ODDITIES] & bit}
    fault_at = row[FAULT_AT] if row[FAULT] else row[START]
    body = data[row[BODY] : row[BODY] + row[BODY_LENGTH]]
    return twin.Read(row[START], row[LENGTH], row[KIND], row[FAULT], fault_at, uri, body, row[CODE], odd)


def agrees_with_twin(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Scan:
    """Scan a stream, and hold every row and the way it ends to the slow reader."""
    found = scanned(data, limits, rows=len(data) // 2 + 2)
    at = 0
    for row in found.rows:
        expected = twin.read(data, at, limits)
        assert as_read(row, data) == expected
        at += expected.length
    if found.rows and found.rows[-1][KIND] == -1:
        assert (found.end, found.need) == (found.rows[-1][START], 0)
    else:
        assert found.end == at
        assert found.need == twin.read(data, at, limits)
    return found


def walked(data: bytes, runs: Sequence[tuple[int, int]], limits: Limits = DEFAULT_LIMITS, *, rows: int = 64) -> Walk:
    """Walk runs to their end, plain and compiled; in how many calls does not matter."""
    return FORMS.walk(data, runs, limits.for_scan(), rows=rows, parts=0)._replace(calls=0)


def found(data: bytes, start: int = 0, limits: Limits = DEFAULT_LIMITS) -> int:
    """`find`, plain and compiled."""
    return FORMS.find(data, start, None, limits.for_scan())
