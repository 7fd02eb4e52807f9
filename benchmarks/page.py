"""Write docs/benchmarks.md and its charts from the JSON of a run: `python benchmarks/page.py FILE`.

A table for each table of figures, and a chart of ours beside the rivals' where there are any.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import altair as alt
import vl_convert

from figures import COLUMNS, Figure, Results, cells, load

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
CHARTS = DOCS / "benchmarks"
HEAD = """# Benchmarks

`make bench` runs every benchmark and prints one table of goals; [benchmarks/README.md](../benchmarks/README.md) says what each measures.
This page is written by `benchmarks/page.py` from the JSON of one run. Ratios count more than figures: ours and the rival's are from the
same run, in turns.
"""
WIDTH = 420


def write(results: Results) -> None:
    """The page and its charts."""
    CHARTS.mkdir(exist_ok=True)
    for old in CHARTS.glob("*.svg"):
        old.unlink()
    tables: dict[str, list[Figure]] = {}
    for figure in results.figures:
        tables.setdefault(figure.table, []).append(figure)
    run = "a quick run" if results.quick else "a full run"
    parts = [HEAD, f"Measured in {run}, seed {results.seed}, on: {results.machine}.\n"]
    parts += [section(title, figures) for title, figures in tables.items()]
    PAGE.write_text("\n".join(parts))


def section(title: str, figures: list[Figure]) -> str:
    """A heading, the table, and the chart."""
    lines = ["|".join(row) for row in [COLUMNS, ["---", *["---:"] * (len(COLUMNS) - 1)], *map(cells, figures)]]
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") + ".svg"
    (CHARTS / name).write_text(vl_convert.vegalite_to_svg(chart(title, figures).to_dict()))
    return "\n".join([f"## {title}\n", *(f"|{line}|" for line in lines), f"\n![{title}](benchmarks/{name})\n"])


def chart(title: str, figures: list[Figure]) -> alt.Chart:
    """Bars: ours, and beside each the rival's."""
    rows = []
    for figure in figures:
        label = f"{figure.name} ({figure.unit})"
        rows.append({"figure": label, "by": "wirelake", "value": figure.ours})
        if figure.theirs is not None:
            rows.append({"figure": label, "by": figure.rival, "value": figure.theirs})
    unique = list({(row["figure"], row["by"]): row for row in rows}.values())
    return (
        alt.Chart(alt.Data(values=unique), title=title, width=WIDTH)
        .mark_bar()
        .encode(
            x=alt.X("value:Q", title=None),
            y=alt.Y("figure:N", title=None, sort=None, axis=alt.Axis(labelLimit=320)),
            yOffset=alt.YOffset("by:N", sort=None),
            color=alt.Color("by:N", title=None, sort=None),
        )
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: python {sys.argv[0]} FILE, the JSON that `make bench` wrote")
    write(load(Path(sys.argv[1])))
