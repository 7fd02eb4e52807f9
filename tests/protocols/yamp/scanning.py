"""The scanner, run in both its forms at once: whatever is scanned here is also a proof that compiled and plain agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tests.protocols.yamp import twin

from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, PART, PARTS, START, compiled
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
    ROW_COLUMNS,
    URI,
    URI_LENGTH,
    find,
    scan,
    walk,
)

ODD = {"bool": ODD_BOOL, "uri": ODD_URI, "reason": ODD_REASON, "serializer": ODD_SERIALIZER}


class Scan(NamedTuple):
    """What one call of `scan` gave."""

    rows: list[list[int]]
    end: int
    need: int


def scanned(data: bytes, limits: Limits = DEFAULT_LIMITS, *, start: int = 0, rows: int = 64) -> Scan:
    """Scan once, plain and compiled, and see that both say the same."""
    plain = [-7] * (rows * ROW_COLUMNS)
    said = scan(data, start, len(data), plain, [], limits.for_scan())
    fast = np.full(rows * ROW_COLUMNS, -7)
    assert compiled(scan)(np.frombuffer(data, np.uint8), start, len(data), fast, np.zeros(1, np.int64), limits.for_scan()) == said
    assert fast.tolist() == plain
    count, used, end, need = said
    assert used == 0
    assert plain[count * ROW_COLUMNS :] == [-7] * (len(plain) - count * ROW_COLUMNS), "wrote beyond its rows"
    return Scan([plain[at : at + ROW_COLUMNS] for at in range(0, count * ROW_COLUMNS, ROW_COLUMNS)], end, need)


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


class Walk(NamedTuple):
    """What walking all runs gave, all calls together."""

    rows: list[list[int]]
    run_of: list[int]
    ends: list[int]


def walked(data: bytes, runs: Sequence[tuple[int, int]], limits: Limits = DEFAULT_LIMITS, *, rows: int = 64) -> Walk:
    """Walk runs to their end, plain and compiled, resuming as often as the tables are full."""
    plain = _walked(walk, data, runs, limits, rows)
    assert _walked(compiled(walk), np.frombuffer(data, np.uint8), runs, limits, rows) == plain
    return plain


def _walked(form, data, runs, limits, rows) -> Walk:
    starts, stops = np.array([one for one, _ in runs], np.int64), np.array([one for _, one in runs], np.int64)
    table, run_of, parts = np.zeros(rows * ROW_COLUMNS, np.int64), np.zeros(rows, np.int64), np.zeros(1, np.int64)
    ends = np.full(len(runs), -1, np.int64)
    all_rows, all_runs, calls = [], [], 0
    run, at = 0, int(starts[0]) if runs else 0
    while run < len(runs):
        count, _, run, at = form(data, starts, stops, run, at, table, run_of, parts, ends, limits.for_scan())
        calls += 1
        assert calls < 10_000, "no end"
        all_rows += table[: count * ROW_COLUMNS].reshape(count, ROW_COLUMNS).tolist()
        all_runs += run_of[:count].tolist()
    return Walk(all_rows, all_runs, ends.tolist())


def found(data: bytes, start: int = 0, limits: Limits = DEFAULT_LIMITS) -> int:
    """`find`, plain and compiled."""
    at = find(data, start, len(data), limits.for_scan())
    assert compiled(find)(np.frombuffer(data, np.uint8), start, len(data), limits.for_scan()) == at
    return at
