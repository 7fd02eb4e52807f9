"""The scanner, run in both its forms at once: whatever is scanned here is also a proof that compiled, plain and the slow twin agree."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import NamedTuple

from tests.protocols.both_forms import BothForms, Walk
from tests.protocols.event_mesh import twin

from wirelake.protocols.event_mesh.faults import UNREADABLE, Fault
from wirelake.protocols.event_mesh.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.event_mesh.scanner import ODD_ORDER, ODDITIES, PART_COLUMNS, ROW_COLUMNS
from wirelake.protocols.event_mesh.security.canonical import canonical
from wirelake.protocols.kernel import FAULT, FAULT_AT, LENGTH, PART, PARTS, START

FORMS = BothForms("event_mesh", ROW_COLUMNS, PART_COLUMNS)


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
    outcome = FORMS.scan(block, limits.for_scan(), start=start, stop=stop, rows=1, parts=room, parts_are_whole=True)
    (row,), parts = outcome.rows, outcome.parts
    assert (outcome.end, outcome.need) == (stop, 0)
    assert (row[START], row[LENGTH], row[PART], row[PARTS]) == (start, len(data), 0, len(parts))
    found = Scan(row, parts)
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


def walked(datagrams: list[bytes], limits: Limits = DEFAULT_LIMITS, *, rows: int = 8, parts: int = 300) -> Walk:
    """Walk a block of datagrams to its end, plain and compiled."""
    stops = list(accumulate(map(len, datagrams)))
    walk = FORMS.walk(b"".join(datagrams), list(pairwise([0, *stops])), limits.for_scan(), rows=rows, parts=parts)
    assert walk.calls <= len(datagrams)
    return walk
