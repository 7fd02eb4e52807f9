"""The scanner, run in both its forms at once: whatever is scanned here is also a proof that compiled, plain and the slow twin agree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from tests.protocols.event_mesh import twin

from wirelake.protocols.event_mesh.faults import UNREADABLE, Fault
from wirelake.protocols.event_mesh.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.event_mesh.scanner import ODD_ORDER, ODDITIES, PART_COLUMNS, ROW_COLUMNS, scan, walk
from wirelake.protocols.event_mesh.security.canonical import canonical
from wirelake.protocols.kernel import FAULT, FAULT_AT, LENGTH, PART, PARTS, START, compiled


class Scan(NamedTuple):
    """One datagram's row and parts."""

    row: list[int]
    parts: list[list[int]]

    @property
    def fault(self) -> Fault | None:
        return Fault(self.row[FAULT]) if self.row[FAULT] else None

    @property
    def flat(self) -> list[int]:
        return [cell for part in self.parts for cell in part]


def scanned(data: bytes, limits: Limits = DEFAULT_LIMITS, *, before: bytes = b"", after: bytes = b"") -> Scan:
    """Scan once, plain and compiled, between hostile neighbours, and see that both say the same as the twin."""
    block, start, stop = before + data + after, len(before), len(before) + len(data)
    room = min(limits.max_parts, len(data) // 2)
    row, parts = [-7] * ROW_COLUMNS, [-7] * (room * PART_COLUMNS)
    said = scan(block, start, stop, row, parts, limits.for_scan())
    fast, fast_parts = np.full(ROW_COLUMNS, -7), np.full(room * PART_COLUMNS, -7)
    assert compiled(scan)(np.frombuffer(block, np.uint8), start, stop, fast, fast_parts, limits.for_scan()) == said
    assert (fast.tolist(), fast_parts.tolist()) == (row, parts)
    count, used, end, need = said
    assert (count, end, need) == (1, stop, 0)
    assert (row[START], row[LENGTH], row[PART], row[PARTS]) == (start, len(data), 0, used)
    assert parts[used * PART_COLUMNS :] == [-7] * (len(parts) - used * PART_COLUMNS), "wrote beyond its parts"
    found = Scan(row, [parts[at : at + PART_COLUMNS] for at in range(0, used * PART_COLUMNS, PART_COLUMNS)])
    expected = twin.reason(data, limits.max_payload_size, limits.max_tlv_count, limits.minimum_profile)
    assert (found.fault.reason if found.fault else None) == expected
    assert found.fault is None or start <= row[FAULT_AT] <= stop
    if found.fault is None or found.fault not in UNREADABLE:
        check_parts(block, start, stop, found)
    return found


def check_parts(block: bytes, start: int, stop: int, found: Scan) -> None:
    expected = []
    for one in twin.split(block, start + 17, stop):
        expected.append([one.at, len(one.value), one.kind, 0])
        if one.kind == 0x11:
            inside = twin.whole(one.value, 0, len(one.value))
            expected += [[one.at + 2 + sub.at, len(sub.value), sub.kind, 0x11] for sub in inside]
    assert found.parts == expected
    if found.fault is None:
        assert canonical(block, found.row, found.flat) == twin.canonical(block[start:stop])
        assert bool(found.row[ODDITIES] & ODD_ORDER) is not twin.in_order(list(twin.split(block, start + 17, stop)))


def fault_of(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Fault | None:
    return scanned(data, limits).fault


class Walk(NamedTuple):
    """What walking all datagrams gave, all calls together."""

    rows: list[list[int]]
    run_of: list[int]
    parts: list[list[int]]
    ends: list[int]
    calls: int


def walked(datagrams: list[bytes], limits: Limits = DEFAULT_LIMITS, *, rows: int = 8, parts: int = 300) -> Walk:
    """Walk a block of datagrams to its end, plain and compiled, resuming as often as the tables are full."""
    block = b"".join(datagrams)
    plain = _walked(walk, block, datagrams, limits, rows, parts)
    assert _walked(compiled(walk), np.frombuffer(block, np.uint8), datagrams, limits, rows, parts) == plain
    return plain


def _walked(form, data, datagrams, limits, rows, parts) -> Walk:
    stops = np.cumsum([len(one) for one in datagrams], dtype=np.int64)
    starts = stops - np.array([len(one) for one in datagrams], np.int64)
    table, run_of, part_table = np.zeros(rows * ROW_COLUMNS, np.int64), np.zeros(rows, np.int64), np.zeros(parts * PART_COLUMNS, np.int64)
    ends = np.full(len(starts), -1, np.int64)
    all_rows, all_runs, all_parts, calls, run, at = [], [], [], 0, 0, 0
    while run < len(starts):
        count, used, run, at = form(data, starts, stops, run, at, table, run_of, part_table, ends, limits.for_scan())
        calls += 1
        assert calls <= len(datagrams), "no end"
        for row in table[: count * ROW_COLUMNS].reshape(-1, ROW_COLUMNS).tolist():
            row[PART] += len(all_parts)
            all_rows.append(row)
        all_parts += part_table[: used * PART_COLUMNS].reshape(-1, PART_COLUMNS).tolist()
        all_runs += run_of[:count].tolist()
    return Walk(all_rows, all_runs, all_parts, ends.tolist(), calls)
