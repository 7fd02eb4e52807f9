"""The scanner in both its forms, held to the slow reader."""

from __future__ import annotations

from collections.abc import Sequence

from tests.protocols.both_forms import BothForms, Scan, Walk
from tests.protocols.emp import twin

from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.emp.scanner import (
    BODY,
    BODY_LENGTH,
    ODD_BITS,
    ODD_BODY,
    ODDITIES,
    PART_COLUMNS,
    REQUEST,
    REQUEST_ID,
    ROW_COLUMNS,
    SCHEME,
)
from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, NO_ROOM, PART, PARTS, START

FORMS = BothForms("emp", ROW_COLUMNS, PART_COLUMNS)


def scanned(
    data: bytes, limits: Limits = DEFAULT_LIMITS, *, start: int = 0, stop: int | None = None, rows: int = 64, parts: int = 96
) -> Scan:
    """Scan once, plain and compiled."""
    return FORMS.scan(data, limits.for_scan(), start=start, stop=stop, rows=rows, parts=parts)


def only(data: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[list[int], list[list[int]]]:
    """The row and the parts of bytes that are one message."""
    scan = scanned(data, limits)
    assert len(scan.rows) == 1, f"{len(scan.rows)} rows, need {scan.need}"
    return scan.rows[0], scan.parts


def fault_of(data: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[Fault | None, int]:
    """The fault of bytes that are one message, and the offset it points at."""
    row, _ = only(data, limits)
    return (Fault(row[FAULT]), row[FAULT_AT]) if row[FAULT] else (None, row[START])


def as_read(row: Sequence[int], parts: Sequence[Sequence[int]], data: bytes) -> twin.Read:
    """A row as the twin would have put it."""
    blocks = [twin.Block(*part, data[part[0] + 8 : part[0] + part[1]]) for part in parts[row[PART] : row[PART] + row[PARTS]]]  # type: ignore[call-arg]  # a part has four numbers
    assert row[BODY] + row[BODY_LENGTH] == row[START] + row[LENGTH]
    odd, fault_at = row[ODDITIES], row[FAULT_AT] if row[FAULT] else row[START]
    return twin.Read(
        *(row[START], row[LENGTH], row[KIND], row[FAULT], fault_at, blocks, row[BODY], row[REQUEST], row[REQUEST_ID], row[SCHEME]),
        bool(odd & ODD_BITS),
        bool(odd & ODD_BODY),
    )


def agrees_with_twin(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Scan:
    """Scan a stream, and hold every row and the way it ends to the slow reader."""
    scan = scanned(data, limits, rows=len(data) // 8 + 2, parts=len(data) // 8 + limits.max_extension_blocks)
    at = 0
    for row in scan.rows:
        expected = twin.read(data, at, limits)
        assert as_read(row, scan.parts, data) == expected
        at += expected.length
    if scan.rows and scan.rows[-1][KIND] == -1:
        assert (scan.end, scan.need) == (scan.rows[-1][START], 0)
    else:
        assert scan.end == at
        assert scan.need == twin.read(data, at, limits)
    return scan


def walked(data: bytes, runs: Sequence[tuple[int, int]], limits: Limits = DEFAULT_LIMITS, *, rows: int = 64, parts: int = 96) -> Walk:
    """Walk runs to their end, plain and compiled."""
    return FORMS.walk(data, runs, limits.for_scan(), rows=rows, parts=parts)


def found(data: bytes, start: int, stop: int | None = None, limits: Limits = DEFAULT_LIMITS) -> int:
    """`find`, plain and compiled."""
    return FORMS.find(data, start, stop, limits.for_scan())


def walk_by_hand(data: bytes, runs: Sequence[tuple[int, int]], limits: Limits = DEFAULT_LIMITS) -> Walk:
    """What `walk` should give, from one `scan` per stretch and `find` where a stretch goes wrong."""
    all_rows: list[list[int]] = []
    all_runs: list[int] = []
    all_parts: list[list[int]] = []
    ends: list[int] = []
    for run, (start, stop) in enumerate(runs):
        at = start
        while True:
            one = scanned(data, limits, start=at, stop=stop, rows=len(data) // 8 + 2, parts=len(data) // 8 + limits.max_extension_blocks)
            assert one.need != NO_ROOM
            for row in one.rows:
                row[PART] += len(all_parts)
            all_rows += one.rows
            all_runs += [run] * len(one.rows)
            all_parts += one.parts
            at = one.end
            if not (one.rows and one.rows[-1][FAULT] and one.rows[-1][START] == at):
                break
            next_at = found(data, at + 1, stop, limits)
            one.rows[-1][LENGTH] = next_at - at
            at = next_at
            if at == stop:
                break
        ends.append(at)
    return Walk(all_rows, all_runs, all_parts, ends, 0)
