"""`wirelake report`: a page a person can read."""

from __future__ import annotations

from pathlib import Path

import click

from wirelake.cli.exits import ExitCode
from wirelake.extras import TABLES, need

__all__ = ["report", "show_summary"]


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", "out", type=click.Path(path_type=Path), help="Where to write it; report.html in the lake unless said otherwise."
)
def report(lake: Path, out: Path | None) -> int:
    """Write one HTML page that tells what a lake holds: traffic, latency, sessions, broken rules, and where every byte went.

    \b
    LAKE  The lake's folder.
    """
    need(*TABLES, "altair", "vl_convert")
    from wirelake.explore.report import write_report  # noqa: PLC0415 - needs the lake extra

    print(write_report(lake, out or lake / "report.html"))
    return ExitCode.OK


def show_summary(lake: Path) -> None:
    """The headline numbers of a lake, as a small table."""
    from rich.console import Console  # noqa: PLC0415 - only where a table is drawn
    from rich.table import Table  # noqa: PLC0415

    from wirelake.explore.report import summary  # noqa: PLC0415

    table = Table(show_header=False, show_edge=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for label, value in summary(lake):
        table.add_row(label, str(value))
    Console(highlight=False, markup=False).print(table)
