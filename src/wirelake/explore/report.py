"""Write the HTML report of a lake, or a short summary for a terminal.

The file is self-contained: no script, no font, nothing from a network. It reads the current snapshot, without Spark.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Final

from wirelake.errors import LakeError
from wirelake.explore.formatting import count, duration, many, moment, size
from wirelake.explore.summary import Headline, headline

__all__ = ["is_report", "summary", "target", "write_report"]

_BEGINNING: Final = 4096
"""Bytes at the start of a file in which the title of a report is searched."""
_TITLE: Final = b"Wirelake report</title>"


def target(out: Path) -> Path:
    """Return the file of a report: `out` itself, or report.html in it if it is a folder."""
    return out / "report.html" if out.is_dir() else out


def is_report(path: Path) -> bool:
    """Tell whether a file is a report of wirelake, so that a newer one may replace it."""
    try:
        with path.open("rb") as file:
            return _TITLE in file.read(_BEGINNING)
    except OSError:
        return False


def write_report(lake: str | PathLike[str], out: str | PathLike[str]) -> Path:
    """Write the report to `out`, or into it as `report.html` if it is a folder; return its path."""
    from wirelake.explore.page import page  # noqa: PLC0415 - brings the chart library
    from wirelake.explore.summary import summarise  # noqa: PLC0415

    path = target(Path(out))
    document = page(summarise(Path(lake)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document, encoding="utf-8")
    except OSError as error:
        raise LakeError(f"{path} cannot be written: {error.strerror}") from error
    return path


def summary(lake: Path) -> list[tuple[str, str]]:
    """Query the main counts, as (label, value)."""
    first = headline(lake)
    lines = [
        ("messages", count(first.messages)),
        ("sessions", count(first.sessions)),
        ("requests", f"{count(first.requests)} ({_came_back(first)})" if first.requests else "0"),
        ("deliveries", f"{count(first.deliveries)} ({count(first.acknowledged)} acknowledged)" if first.deliveries else "0"),
        ("violations", f"{count(first.violations)} ({many(first.errors, 'error')})" if first.violations else "0"),
        ("noted, no violation", count(first.warnings + first.notes)),
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
