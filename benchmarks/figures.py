"""Figures of every benchmark: ours, the rival's, the ratio, the goal, and whether it was reached.

A benchmark is a module with `run(quick, seed) -> list[Figure]` that ends with `main(run, …)`. `python benchmarks` runs every such module
and prints one table of goals.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Figure", "Role", "Run", "best", "goals", "load", "machine", "main", "report", "save", "show", "verdict"]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured figure, and beside it the rival's from the same run."""

    table: str
    """What it belongs to: one chart each."""
    name: str
    ours: float
    unit: str
    """`µs`, `/s`, `s`, `x` and the like."""
    rival: str = ""
    theirs: float | None = None
    least: float | None = None
    """The ratio must be at least this; without a rival, the figure itself."""
    most: float | None = None
    """The ratio must be at most this; without a rival, the figure itself."""

    @property
    def ratio(self) -> float | None:
        """Ours in terms of theirs."""
        return self.ours / self.theirs if self.theirs else None

    @property
    def goal(self) -> str:
        """The goal in words; empty if there is none."""
        bound, sign = (self.least, ">=") if self.least is not None else (self.most, "<=")
        if bound is None:
            return ""
        return f"{sign} {bound:.3g} x {self.rival}" if self.rival else f"{sign} {number(bound, self.unit)}"

    @property
    def reached(self) -> bool | None:
        """Whether the goal was reached; None without a goal, or without the rival that it names."""
        judged = self.ratio if self.rival else self.ours
        if judged is None or not self.goal:
            return None
        return judged >= self.least if self.least is not None else judged <= (self.most or 0)


Run = Callable[[bool, int], list[Figure]]
"""(quick, seed) -> figures."""
Role = Callable[[str, int], Coroutine[Any, Any, None] | None]
"""What a child process does: (address, count)."""


class Results(msgspec.Struct, kw_only=True):
    """What is saved: where it was measured, and the figures."""

    machine: str
    quick: bool
    seed: int
    figures: list[Figure]
    note: str = ""
    """What a reader of the figures should know, such as what was left out."""


def machine() -> str:
    """What the figures were measured on, and how busy it was."""
    one, five, _ = os.getloadavg()
    built = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return f"{os.cpu_count()} cores, load {one:.1f} (1 min) {five:.1f} (5 min), {built}"


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """One table, as Markdown: the first column left, numbers right."""
    widths = [max(len(row[place]) for row in [columns, *rows]) for place in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        first, *others = cells
        padded = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        return f"| {' | '.join(padded)} |"

    print(f"\n{title}\n{machine()}\n")
    print(line(columns))
    print("|" + "|".join("-" * (width + 2) if not place else "-" * (width + 1) + ":" for place, width in enumerate(widths)) + "|")
    for row in rows:
        print(line(row))
    print(flush=True)


def verdict(goal: str, reached: bool, found: str) -> None:
    """Whether a goal was reached, in one line."""
    print(f"{'reached' if reached else 'MISSED '}  {goal}: {found}", flush=True)


def best(run: Callable[[], int], times: int) -> float:
    """Nanoseconds of CPU for each of what `run` counts, the best of several runs: the least disturbed one."""
    found = []
    for _ in range(times):
        began = time.process_time_ns()
        count = run()
        found.append((time.process_time_ns() - began) / count)
    return min(found)


def number(value: float | None, unit: str = "") -> str:
    """A figure as people read it: three digits or whole thousands."""
    if value is None:
        return "absent"
    return f"{value:,.0f} {unit}".rstrip() if abs(value) >= 100 else f"{value:,.3g} {unit}".rstrip()


def cells(figure: Figure) -> list[str]:
    """A line of the table of goals."""
    theirs = f"{figure.rival}: {number(figure.theirs, figure.unit)}" if figure.rival else ""
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f} x"
    outcome = {None: "", True: "reached", False: "MISSED"}[figure.reached]
    return [figure.name, number(figure.ours, figure.unit), theirs, ratio, figure.goal, outcome]


COLUMNS = ["figure", "ours", "rival", "ratio", "goal", ""]


def goals(title: str, figures: Sequence[Figure]) -> None:
    """The table of goals."""
    show(title, COLUMNS, [cells(one) for one in figures])


def save(path: Path, figures: Sequence[Figure], quick: bool, seed: int, note: str = "") -> None:
    """Write figures as JSON, with the machine they are from."""
    results = Results(machine=machine(), quick=quick, seed=seed, figures=list(figures), note=note)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")


def load(path: Path) -> Results:
    """Read what `save` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Results)


def main(run: Run, about: str | None, roles: Mapping[str, Role] | None = None) -> None:
    """The command line of a benchmark; with `--role`, that of a process it started."""
    options = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="fewer and shorter turns")
    options.add_argument("--seed", type=int, default=0, help="of data that is drawn")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options.add_argument("--role", help=argparse.SUPPRESS)
    options.add_argument("--address", default="-", help=argparse.SUPPRESS)
    options.add_argument("--count", type=int, default=0, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.role:
        take_part((roles or {})[chosen.role], chosen.address, chosen.count)
        return
    figures = run(chosen.quick, chosen.seed)
    goals((about or "").splitlines()[0], figures)
    if chosen.json:
        save(chosen.json, figures, chosen.quick, chosen.seed)


def take_part(role: Role, address: str, count: int) -> None:
    """What a child process does: asynchronous roles run on uvloop, all of them."""
    import uvloop

    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        task = role(address, count)
        if task is not None:
            uvloop.run(task)


def report(**values: float) -> None:
    """What a role says to the process that started it."""
    print(json.dumps(values), flush=True)
