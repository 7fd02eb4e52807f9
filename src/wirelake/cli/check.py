"""`wirelake check`: verify the integrity of a lake."""

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
    "--ledger",
    "ledger",
    is_flag=True,
    help="Check the ledger only: it accounts for every byte of every source, and the tables agree with it.",
)
def check(lake: Path, ledger: bool) -> int:
    """Check the integrity of a lake, without Spark.

    \b
    LAKE  The lake's folder.

    \b
    journal    settings can be read; a batch that is being written or was left unfinished
    snapshot   the versions of the tables that readers see are there
    files      every file in a Delta log is there, with the bytes, rows and columns it should have
    orphans    files that no table refers to
    messages   each protocol's table has the same messages as the table messages, once each
    ledger     accounts for every byte of every source; sources have the same bytes as when they were read
    index      its sums equal those of the messages
    gold       all gold tables are as of one batch, and no key is duplicate
    positions  the stream of --follow continues where the ledger ends

    Problems are printed on stdout, one line each, and the exit code is 65. Passed checks, and leftovers that the next ingest removes, go
    to stderr. Sources that still exist are compared with the ledger; missing ones are only counted. A lake can be checked while it is
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
