"""The kernels of any protocol, run in both their forms at once: whatever is scanned here proves that compiled and plain agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wirelake import protocols
from wirelake.protocols.kernel import FAULT, FAULT_AT, PART, ScanLimits, _over_views, compiled

UNWRITTEN = -7
MOST_CALLS = 10_000


class Scan(NamedTuple):
    """The outcome of one call of `scan`."""

    rows: list[list[int]]
    parts: list[list[int]]
    end: int
    need: int

    @property
    def faults(self) -> list[tuple[int, int]]:
        """(fault, offset) of every row."""
        return [(row[FAULT], row[FAULT_AT]) for row in self.rows]


class Walk(NamedTuple):
    """The outcome of walking all runs, all calls together; rows count their parts from the first call on."""

    rows: list[list[int]]
    run_of: list[int]
    parts: list[list[int]]
    ends: list[int]
    calls: int


class BothForms:
    """The kernels of one protocol, as its descriptor names them."""

    def __init__(self, name: str, row_columns: int, part_columns: int) -> None:
        protocol = protocols.get(name)
        self._scan, self._walk, self._find = protocol.scan, protocol.walk, protocol.find
        self._row, self._part = row_columns, part_columns

    def scan(
        self,
        data: bytes,
        limits: ScanLimits,
        *,
        rows: int,
        parts: int,
        start: int = 0,
        stop: int | None = None,
        parts_are_whole: bool = False,
    ) -> Scan:
        """Scan once; nothing is written beyond the rows that are counted, and, if parts are whole, nothing beyond the parts."""
        stop = len(data) if stop is None else stop
        plain_rows, plain_parts = [UNWRITTEN] * (rows * self._row), [UNWRITTEN] * (parts * self._part)
        count, used, end, need = self._scan(data, start, stop, plain_rows, plain_parts, limits)
        fast_rows, fast_parts = np.full(rows * self._row, UNWRITTEN), np.full(max(parts * self._part, 1), UNWRITTEN)
        outcome = compiled(self._scan)(np.frombuffer(data, np.uint8), start, stop, fast_rows, fast_parts, limits)
        assert outcome == (count, used, end, need)
        cells, part_cells = count * self._row, used * self._part
        assert fast_rows.tolist() == plain_rows
        assert fast_parts[:part_cells].tolist() == plain_parts[:part_cells]
        assert plain_rows[cells:] == [UNWRITTEN] * (len(plain_rows) - cells), "wrote beyond its rows"
        assert not parts_are_whole or set(plain_parts[part_cells:]) <= {UNWRITTEN}, "wrote beyond its parts"
        return Scan(split(plain_rows[:cells], self._row), split(plain_parts[:part_cells], self._part), end, need)

    def walk(self, data: bytes, runs: Sequence[tuple[int, int]], limits: ScanLimits, *, rows: int, parts: int) -> Walk:
        """Walk runs to their end, resuming as often as the tables are full; also in the form over arrays where Numba is switched off.

        Bytes of an array are small unsigned numbers that overflow unless they are widened.
        """
        plain = self._walked(self._walk, data, runs, limits, rows, parts)
        for form in (compiled(self._walk), _over_views(self._walk)):
            assert self._walked(form, np.frombuffer(data, np.uint8), runs, limits, rows, parts) == plain
        return plain

    def find(self, data: bytes, start: int, stop: int | None, limits: ScanLimits) -> int:
        """The next offset where messages begin again."""
        stop = len(data) if stop is None else stop
        at = self._find(data, start, stop, limits)
        assert compiled(self._find)(np.frombuffer(data, np.uint8), start, stop, limits) == at
        return at

    def _walked(self, form: Any, data: Any, runs: Sequence[tuple[int, int]], limits: ScanLimits, rows: int, parts: int) -> Walk:
        starts, stops = np.array([one for one, _ in runs], np.int64), np.array([one for _, one in runs], np.int64)
        table, run_of = np.zeros(rows * self._row, np.int64), np.zeros(rows, np.int64)
        part_table = np.zeros(max(parts * self._part, 1), np.int64)
        ends = np.full(len(runs), -1, np.int64)
        all_rows: list[list[int]] = []
        all_runs: list[int] = []
        all_parts: list[list[int]] = []
        calls, run, at = 0, 0, int(starts[0]) if runs else 0
        while run < len(runs):
            count, used, run, at = form(data, starts, stops, run, at, table, run_of, part_table, ends, limits)
            calls += 1
            assert calls < MOST_CALLS, "no end"
            for row in split(table[: count * self._row].tolist(), self._row):
                row[PART] += len(all_parts)
                all_rows.append(row)
            all_parts += split(part_table[: used * self._part].tolist(), self._part)
            all_runs += run_of[:count].tolist()
        return Walk(all_rows, all_runs, all_parts, ends.tolist(), calls)


def split(flat: list[int], width: int) -> list[list[int]]:
    """Rows of a flat table."""
    return [flat[at : at + width] for at in range(0, len(flat), width)] if width else []
