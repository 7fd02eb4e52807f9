"""How every benchmark says what it saw: the machine and its load, then one table with the rivals beside."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

__all__ = ["machine", "show", "verdict"]


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
