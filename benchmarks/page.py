"""Write docs/benchmarks.md and its charts from the JSON of a run: `python benchmarks/page.py FILE`.

A table for each table of figures, and a chart of ours beside the rivals' below it. The charts are SVG that this script writes itself.
Of each figure the longest bar is full, so that figures of different units can stand below each other.
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

from figures import COLUMNS, Figure, Results, cells, load, number

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
CHARTS = DOCS / "pictures"
PREFIX = "bench-"
"""How the names of charts begin."""
HEAD = """# Benchmarks

`make bench` runs every benchmark and prints one table of goals; [benchmarks/README.md](../benchmarks/README.md) says what each measures.
`benchmarks/page.py` writes this page from the JSON of one run. Ratios count more than figures: ours and the rival's are from the same
run, in turns.
"""
LABEL, BAR, VALUE = 330, 300, 200
"""Widths of the three columns of a chart."""
LINE, GAP, TOP = 18, 10, 34
"""Heights of a bar, of the space below a figure, and of the title."""
OURS, THEIRS, INK = "#1f6feb", "#9aa4b2", "#57606a"
"""Colours that can be read on light and on dark pages."""


def write(results: Results) -> None:
    """The page and its charts."""
    CHARTS.mkdir(exist_ok=True)
    for old in CHARTS.glob(f"{PREFIX}*.svg"):
        old.unlink()
    tables: dict[str, list[Figure]] = {}
    for figure in results.figures:
        tables.setdefault(figure.table, []).append(figure)
    run = "a quick run" if results.quick else "a full run"
    parts = [HEAD, f"Measured in {run}, seed {results.seed}, on: {results.machine}.\n", *([f"{results.note}\n"] if results.note else [])]
    parts.append(summary(results.figures))
    parts += [section(title, figures) for title, figures in tables.items()]
    PAGE.write_text("\n".join(parts))


def summary(figures: list[Figure]) -> str:
    """How many goals were reached, and which were not."""
    goals = [figure for figure in figures if figure.reached is not None]
    missed = [figure for figure in goals if not figure.reached]
    absent = sorted({figure.rival for figure in figures if figure.rival and figure.theirs is None})
    lines = [f"{len(goals) - len(missed)} of {len(goals)} goals were reached."]
    if missed:
        lines += ["Missed:", "", *(f"- {figure.name}: {figure.goal}" for figure in missed), ""]
    if absent:
        lines.append(f"Not installed, so not measured: {', '.join(absent)}.")
    return "\n".join(lines) + "\n"


def section(title: str, figures: list[Figure]) -> str:
    """A heading, the table, and the chart."""
    lines = ["|".join(row) for row in [COLUMNS, ["---", *["---:"] * (len(COLUMNS) - 1)], *map(cells, figures)]]
    name = PREFIX + re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") + ".svg"
    (CHARTS / name).write_text(chart(title, figures))
    return "\n".join([f"## {title}\n", *(f"|{line}|" for line in lines), f"\n![{title}](pictures/{name})\n"])


def chart(title: str, figures: list[Figure]) -> str:
    """Bars: ours, and below each the rivals'."""
    parts, at = [], TOP
    for name, bars in grouped(figures).items():
        most = max(value for _, value, _ in bars) or 1.0
        parts.append(text(LABEL - 8, at + 13, name, "end"))
        for place, (by, value, unit) in enumerate(bars):
            colour = THEIRS if place else OURS
            width = max(BAR * value / most, 1)
            parts.append(f'<rect x="{LABEL}" y="{at + 2}" width="{width:.1f}" height="{LINE - 4}" fill="{colour}"/>')
            parts.append(text(LABEL + width + 6, at + 13, f"{by}: {number(value, unit)}", "start"))
            at += LINE
        at += GAP
    size = f'width="{LABEL + BAR + VALUE}" height="{at}" viewBox="0 0 {LABEL + BAR + VALUE} {at}"'
    heading = f'<text x="8" y="20" font-size="14" font-weight="bold" fill="{INK}">{escape(title)}</text>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" role="img">\n<title>{escape(title)}</title>'
    return "\n".join([head, heading, *parts, "</svg>"]) + "\n"


def grouped(figures: list[Figure]) -> dict[str, list[tuple[str, float, str]]]:
    """By figure: who, how much and of what; ours first, each rival once."""
    groups: dict[str, list[tuple[str, float, str]]] = {}
    for figure in figures:
        bars = groups.setdefault(figure.name, [("wirelake", figure.ours, figure.unit)])
        if figure.theirs is not None and all(by != figure.rival for by, _, _ in bars):
            bars.append((figure.rival, figure.theirs, figure.unit))
    return groups


def text(x: float, y: float, words: str, anchor: str) -> str:
    """A label."""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" text-anchor="{anchor}" fill="{INK}">{escape(words)}</text>'


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: python {sys.argv[0]} FILE, the JSON that `make bench` wrote")
    write(load(Path(sys.argv[1])))
