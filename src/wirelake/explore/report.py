"""The report: one HTML file that tells a newcomer what a lake holds, and the same in a few lines for a terminal.

The file stands alone: no script, no font, nothing from a network. It is made from the snapshots of the tables as they are now.

It refuses to start Spark.
"""

from __future__ import annotations

from pathlib import Path

from wirelake.errors import LakeError
from wirelake.explore.survey import Headline, headline
from wirelake.explore.wording import count, duration, many, moment, size

__all__ = ["summary", "write_report"]


def write_report(lake: Path, out: Path) -> Path:
    """Write the report to `out`, or into it as `report.html` if it is a folder; says where it is."""
    from wirelake.explore.page import page  # noqa: PLC0415 - brings the chart library
    from wirelake.explore.survey import survey  # noqa: PLC0415

    target = out / "report.html" if out.is_dir() else out
    made = page(survey(lake))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(made, encoding="utf-8")
    except OSError as error:
        raise LakeError(f"{target} cannot be written: {error.strerror}") from error
    return target


def summary(lake: Path) -> list[tuple[str, str]]:
    """The first numbers anybody asks for, as (label, value)."""
    first = headline(lake)
    lines = [
        ("messages", count(first.messages)),
        ("sessions", count(first.sessions)),
        ("requests", f"{count(first.requests)} ({_came_back(first)})" if first.requests else "0"),
        ("deliveries", f"{count(first.deliveries)} ({count(first.acknowledged)} acknowledged)" if first.deliveries else "0"),
        ("violations", f"{count(first.violations)} ({many(first.errors, 'error')})" if first.violations else "0"),
        ("noted, no violation", count(first.notes)),
        ("files", count(first.sources)),
        ("bytes", f"{count(first.size)} ({size(first.size)})" if first.size >= 1024 else count(first.size)),
    ]
    if first.first is not None and first.last is not None:
        active = f", active for {duration(first.active)}" if first.active != first.last - first.first else ""
        lines.append(("time span", f"{moment(first.first)} UTC, {duration(first.last - first.first)}{active}"))
    return lines


def _came_back(first: Headline) -> str:
    confirmed = f", {count(first.confirmed)} confirmed" if first.confirmed else ""
    return f"{count(first.answered)} answered{confirmed}"
