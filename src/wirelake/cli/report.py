"""`wirelake report`: write an HTML report of a lake."""

from __future__ import annotations

from pathlib import Path

import click

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.own_process import without_pandas
from wirelake.errors import UsageError
from wirelake.extras import TABLES, need

__all__ = ["report", "show_summary"]


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    "out",
    type=click.Path(path_type=Path),
    help="The file to write, or a folder for report.html; by default the lake's folder.",
)
@click.option("--force", "force", is_flag=True, help="Replace OUT even if it is no report.")
def report(lake: Path, out: Path | None, force: bool) -> int:
    """Write an HTML report of a lake: traffic, latency, sessions, violations, and the accounting of every byte.

    \b
    LAKE  The lake's folder.
    """
    need(*TABLES, "altair", "vl_convert")
    without_pandas()
    from wirelake.explore.report import is_report, target, write_report  # noqa: PLC0415 - needs the lake extra

    place = target(out or lake / "report.html")
    if place.is_file() and place.stat().st_size and not force and not is_report(place):
        raise UsageError(f"{place} exists, and is no report of wirelake; --force replaces it")
    print(write_report(lake, place))
    return ExitCode.OK


def show_summary(lake: Path) -> None:
    """Print the headline numbers of a lake as a small table."""
    from rich.console import Console  # noqa: PLC0415 - only where a table is drawn
    from rich.table import Table  # noqa: PLC0415

    from wirelake.explore.report import summary  # noqa: PLC0415

    table = Table(show_header=False, show_edge=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for label, value in summary(lake):
        table.add_row(label, str(value))
    Console(highlight=False, markup=False).print(table)
