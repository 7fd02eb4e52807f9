"""`wirelake check`: whether a lake is what it says it is."""

from __future__ import annotations

from pathlib import Path

import click

from wirelake.cli.exits import ExitCode
from wirelake.cli.terminal import say
from wirelake.errors import UsageError
from wirelake.extras import TABLES, need

__all__ = ["check"]


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.option(
    "--ledger", "ledger", is_flag=True, help="Every byte of every source has its place, and the tables hold what the ledger says."
)
def check(lake: Path, ledger: bool) -> int:
    """Check a lake. What is wrong is printed, one line each, and the exit code is 65.

    \b
    LAKE  The lake's folder.

    Sources that are still where they were are looked at, too; those that are gone are only counted.
    """
    if not ledger:
        raise UsageError("say what to check: --ledger")
    need(*TABLES)
    from wirelake.lake.audit_ledger import check_ledger  # noqa: PLC0415 - needs the lake extra

    found = check_ledger(lake)
    for problem in found.problems:
        print(problem)
    if found.gone:
        say(f"{len(found.gone)} of {found.sources} files are not where they were")
    if found.problems:
        return ExitCode.DATA
    say(f"the ledger of {found.sources} file{'' if found.sources == 1 else 's'} adds up to {found.bytes:,} bytes")
    return ExitCode.OK
