"""The report: one HTML file about the content of a lake, and its headline numbers for a terminal.

The file is self-contained: no script, no font, nothing from a network. It shows the tables as of the last commit. It needs no Spark.
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
"""Bytes of a file that have the title of a report."""
_TITLE: Final = b"Wirelake report</title>"


def target(out: Path) -> Path:
    """The path of a report: the file itself, or report.html in a folder."""
    return out / "report.html" if out.is_dir() else out


def is_report(path: Path) -> bool:
    """Whether wirelake wrote this file as a report, so that a newer one may replace it."""
    try:
        with path.open("rb") as file:
            return _TITLE in file.read(_BEGINNING)
    except OSError:
        return False


def write_report(lake: str | PathLike[str], out: str | PathLike[str] | None = None) -> Path:
    """Write the report of a lake, and return its path.

    `out` is a file, or a folder for `report.html`; without it, the report goes into the lake's folder.
    """
    from wirelake.explore.page import page  # noqa: PLC0415 - brings the chart library
    from wirelake.explore.summary import survey  # noqa: PLC0415

    path = target(Path(lake if out is None else out))
    html = page(survey(Path(lake)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise LakeError(f"{path} cannot be written: {error.strerror}") from error
    return path


def summary(lake: Path) -> list[tuple[str, str]]:
    """The headline numbers, as (label, value)."""
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
