"""The scanner, run in both its forms at once: whatever is scanned here is also a proof that compiled and plain agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
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
    find,
    scan,
    walk,
)
from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, NO_ROOM, PART, PARTS, START, compiled


class Scan(NamedTuple):
    """What one call of `scan` gave."""

    rows: list[list[int]]
    parts: list[list[int]]
    end: int
    need: int

    @property
    def faults(self) -> list[tuple[int, int]]:
        """(fault, offset) of every row."""
        return [(row[FAULT], row[FAULT_AT]) for row in self.rows]


def scanned(
    data: bytes, limits: Limits = DEFAULT_LIMITS, *, start: int = 0, stop: int | None = None, rows: int = 64, parts: int = 96
) -> Scan:
    """Scan once, plain and compiled, and see that both say the same."""
    stop = len(data) if stop is None else stop
    plain_rows, plain_parts = [-7] * (rows * ROW_COLUMNS), [-7] * (parts * PART_COLUMNS)
    count, used, end, need = scan(data, start, stop, plain_rows, plain_parts, limits.for_scan())
    fast_rows, fast_parts = np.full(rows * ROW_COLUMNS, -7), np.full(parts * PART_COLUMNS, -7)
    said = compiled(scan)(np.frombuffer(data, np.uint8), start, stop, fast_rows, fast_parts, limits.for_scan())
    assert said == (count, used, end, need)
    cells, part_cells = count * ROW_COLUMNS, used * PART_COLUMNS
    assert fast_rows[:cells].tolist() == plain_rows[:cells]
    assert fast_parts[:part_cells].tolist() == plain_parts[:part_cells]
    assert plain_rows[cells:] == [-7] * (len(plain_rows) - cells), "wrote beyond its rows"
    return Scan(_split(plain_rows[:cells], ROW_COLUMNS), _split(plain_parts[:part_cells], PART_COLUMNS), end, need)


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


class Walk(NamedTuple):
    """What walking all runs gave, all calls together."""

    rows: list[list[int]]
    run_of: list[int]
    parts: list[list[int]]
    ends: list[int]
    calls: int


def walked(data: bytes, runs: Sequence[tuple[int, int]], limits: Limits = DEFAULT_LIMITS, *, rows: int = 64, parts: int = 96) -> Walk:
    """Walk runs to their end, plain and compiled, resuming as often as the tables are full."""
    plain = _walked(walk, data, runs, limits, rows, parts)
    assert _walked(compiled(walk), np.frombuffer(data, np.uint8), runs, limits, rows, parts) == plain
    return plain


def _walked(form, data, runs, limits, rows, parts) -> Walk:
    starts, stops = np.array([one for one, _ in runs], np.int64), np.array([one for _, one in runs], np.int64)
    table, run_of, part_table = np.zeros(rows * ROW_COLUMNS, np.int64), np.zeros(rows, np.int64), np.zeros(parts * PART_COLUMNS, np.int64)
    ends = np.full(len(runs), -1, np.int64)
    all_rows, all_runs, all_parts, calls = [], [], [], 0
    run, at = 0, int(starts[0]) if runs else 0
    while run < len(runs):
        count, used, run, at = form(data, starts, stops, run, at, table, run_of, part_table, ends, limits.for_scan())
        calls += 1
        assert calls < 10_000, "no end"
        for row in _split(table[: count * ROW_COLUMNS].tolist(), ROW_COLUMNS):
            row[PART] += len(all_parts)
            all_rows.append(row)
        all_parts += _split(part_table[: used * PART_COLUMNS].tolist(), PART_COLUMNS)
        all_runs += run_of[:count].tolist()
    return Walk(all_rows, all_runs, all_parts, ends.tolist(), calls)


def found(data: bytes, start: int, stop: int | None = None, limits: Limits = DEFAULT_LIMITS) -> int:
    """`find`, plain and compiled."""
    stop = len(data) if stop is None else stop
    at = find(data, start, stop, limits.for_scan())
    assert compiled(find)(np.frombuffer(data, np.uint8), start, stop, limits.for_scan()) == at
    return at


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


def _split(flat: list[int], width: int) -> list[list[int]]:
    return [flat[at : at + width] for at in range(0, len(flat), width)]
