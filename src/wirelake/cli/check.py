"""`wirelake check`: whether a lake is what it says it is."""

from __future__ import annotations

from pathlib import Path

import click

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.terminal import say
from wirelake.extras import TABLES, need

__all__ = ["check"]


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.option(
    "--ledger", "ledger", is_flag=True, help="Only the ledger: every byte of every source has its place, and the tables hold what it says."
)
def check(lake: Path, ledger: bool) -> int:
    """Check a lake: everything that can be checked without Spark.

    \b
    LAKE  The lake's folder.

    \b
    journal    settings can be read; work that is under way or was left unfinished
    snapshot   the versions of the tables that readers see are there
    files      every file in a Delta log is there, with the bytes, rows and columns it should have
    orphans    files that no table counts
    messages   each protocol's table has the messages that the table messages has of it, once
    ledger     every byte of every source has its place; sources are what they were when they were read
    index      its sums are those of the messages
    gold       all gold tables are as of one batch, and no key is there twice
    positions  where following goes on is where the ledger ends

    Problems are printed on stdout, one line each, and the exit code is 65. What was checked, and what the next ingest clears up, goes to
    stderr. Sources that are still where they were are looked at; those that are gone are only counted. A lake can be checked while it is
    written.
    """
    need(*TABLES)
    from wirelake.lake.store.check_lake import check_lake  # noqa: PLC0415 - needs the lake extra

    problems = 0
    for part in check_lake(lake, ("ledger",) if ledger else None):
        for problem in part.problems:
            print(f"{part.name}: {problem}")
        for note in part.notes:
            say(f"{part.name}: {note}")
        if not part.problems:
            say(f"{part.name}: {part.checked}")
        problems += len(part.problems)
    if problems:
        say(f"{problems} problem{'' if problems == 1 else 's'}")
        return ExitCode.DATA
    return ExitCode.OK
