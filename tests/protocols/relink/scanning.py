"""Run the scanner compiled and plain at once, and assert that both agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tests.protocols.relink import twin

from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, PART, PARTS, START, compiled
from wirelake.protocols.relink.messages import TYPES, name_of
from wirelake.protocols.relink.scanner import (
    BODY,
    BODY_LENGTH,
    COUNT,
    DEFAULT_LIMITS,
    FLAGS,
    ID_SIZE,
    IDS,
    MULTICAST,
    ODD_BITS,
    ODD_EMPTY,
    ODD_FORM,
    ODDITIES,
    PART_COLUMNS,
    ROW_COLUMNS,
    SEQUENCE,
    Limits,
    Stage,
    find,
    scan,
    walk,
)

NAMES = {number.value: name_of(one) for one, number in TYPES.items()}


class Scan(NamedTuple):
    """What one call of `scan` gave."""

    rows: list[list[int]]
    parts: list[list[int]]
    end: int
    need: int


def scanned(
    data: bytes,
    sizes: tuple[int, int] = (0, 0),
    limits: Limits = DEFAULT_LIMITS,
    *,
    stage: Stage = Stage.PACKETS,
    start: int = 0,
    rows: int = 64,
    parts: int = 2048,
) -> Scan:
    """Scan once, plain and compiled, and see that both say the same."""
    chosen = limits.for_scan(stage, *sizes)
    plain_rows, plain_parts = [-7] * (rows * ROW_COLUMNS), [-7] * (parts * PART_COLUMNS)
    count, used, end, need = scan(data, start, len(data), plain_rows, plain_parts, chosen)
    fast_rows, fast_parts = np.full(rows * ROW_COLUMNS, -7), np.full(parts * PART_COLUMNS, -7)
    assert compiled(scan)(np.frombuffer(data, np.uint8), start, len(data), fast_rows, fast_parts, chosen) == (count, used, end, need)
    cells, part_cells = count * ROW_COLUMNS, used * PART_COLUMNS
    assert fast_rows[:cells].tolist() == plain_rows[:cells]
    assert fast_parts[:part_cells].tolist() == plain_parts[:part_cells]
    assert plain_rows[cells:] == [-7] * (len(plain_rows) - cells), "wrote beyond its rows"
    return Scan(_split(plain_rows[:cells], ROW_COLUMNS), _split(plain_parts[:part_cells], PART_COLUMNS), end, need)


def as_read(row: Sequence[int], parts: Sequence[Sequence[int]], data: bytes) -> twin.Read:
    """A row as the twin would have put it."""
    ids = [data[row[IDS] + i * row[ID_SIZE] : row[IDS] + (i + 1) * row[ID_SIZE]] for i in range(row[COUNT])]
    found = [data[at : at + size] for at, size in parts[row[PART] : row[PART] + row[PARTS]]]
    name = None if row[FAULT] else NAMES[row[KIND]]
    assert row[BODY] >= row[START]
    assert row[BODY] + row[BODY_LENGTH] <= row[START] + row[LENGTH]
    if name == "message":
        assert row[BODY] + row[BODY_LENGTH] == row[START] + row[LENGTH]
    if row[FLAGS] & 1 and name and row[COUNT] != 1:
        assert row[FLAGS] & MULTICAST
    sequence = row[SEQUENCE] if row[SEQUENCE] >= 0 else None
    odd = [bool(row[ODDITIES] & bit) for bit in (ODD_BITS, ODD_FORM, ODD_EMPTY)]
    return twin.Read(row[START], row[LENGTH], name, row[FAULT], row[FAULT_AT], ids, sequence, found, *odd)


def agrees_with_twin(data: bytes, sizes: tuple[int, int] = (0, 0), limits: Limits = DEFAULT_LIMITS) -> Scan:
    """Scan a stream, and hold every row and the way it ends to the slow reader."""
    found = scanned(data, sizes, limits, rows=len(data) // 8 + 2, parts=len(data) // 2 + limits.max_parts)
    at = 0
    for row in found.rows:
        expected = twin.read(data, at, limits, *sizes)
        assert as_read(row, found.parts, data) == expected
        at += expected.length
    if found.rows and found.rows[-1][FAULT] and found.end == found.rows[-1][START]:
        assert found.need == 0
        assert at == len(data)
    else:
        assert found.end == at
        assert found.need >= twin.read(data, at, limits, *sizes)  # the twin asks field by field
    return found


def found(data: bytes, start: int, sizes: tuple[int, int] = (0, 0)) -> int:
    """`find`, plain and compiled."""
    at = find(data, start, len(data), DEFAULT_LIMITS.for_scan(Stage.PACKETS, *sizes))
    assert compiled(find)(np.frombuffer(data, np.uint8), start, len(data), DEFAULT_LIMITS.for_scan(Stage.PACKETS, *sizes)) == at
    return at


def walked(data: bytes, runs: list[tuple[int, int]], sizes: tuple[int, int] = (0, 0), rows: int = 16) -> tuple[list[list[int]], list[int]]:
    """Walk runs to their end, plain and compiled, resuming as often as the tables are full: (rows, where each run ends)."""
    plain = _walked(walk, data, runs, sizes, rows)
    assert _walked(compiled(walk), np.frombuffer(data, np.uint8), runs, sizes, rows) == plain
    return plain


def _walked(form, data, runs, sizes, rows):
    starts, stops = np.array([one for one, _ in runs], np.int64), np.array([one for _, one in runs], np.int64)
    table, run_of, parts = np.zeros(rows * ROW_COLUMNS, np.int64), np.zeros(rows, np.int64), np.zeros(1100 * PART_COLUMNS, np.int64)
    ends, found, run, at = np.full(len(runs), -1, np.int64), [], 0, int(starts[0])
    limits = DEFAULT_LIMITS.for_scan(Stage.PACKETS, *sizes)
    while run < len(runs):
        count, _, run, at = form(data, starts, stops, run, at, table, run_of, parts, ends, limits)
        found += _split(table[: count * ROW_COLUMNS].tolist(), ROW_COLUMNS)
    return found, ends.tolist()


def _split(flat: list[int], width: int) -> list[list[int]]:
    return [flat[at : at + width] for at in range(0, len(flat), width)]
