"""The scanner in both its forms, held to the slow reader."""

from __future__ import annotations

from collections.abc import Sequence

from tests.protocols.both_forms import BothForms, Scan
from tests.protocols.relink import twin

from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND, LENGTH, PART, PARTS, START
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
)

NAMES = {number.value: name_of(one) for one, number in TYPES.items()}


FORMS = BothForms("relink", ROW_COLUMNS, PART_COLUMNS)


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
    """Scan once, plain and compiled."""
    return FORMS.scan(data, limits.for_scan(stage, *sizes), start=start, rows=rows, parts=parts)


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
    return FORMS.find(data, start, None, DEFAULT_LIMITS.for_scan(Stage.PACKETS, *sizes))


def walked(data: bytes, runs: list[tuple[int, int]], sizes: tuple[int, int] = (0, 0), rows: int = 16) -> tuple[list[list[int]], list[int]]:
    """Walk runs to their end, plain and compiled: (rows, where each run ends)."""
    walk = FORMS.walk(data, runs, DEFAULT_LIMITS.for_scan(Stage.PACKETS, *sizes), rows=rows, parts=1100)
    return walk.rows, walk.ends
