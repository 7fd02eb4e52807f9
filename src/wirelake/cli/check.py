"""`wirelake check`: verify the integrity of a lake, and that its traffic is as it should be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.own_process import without_pandas
from wirelake.cli.terminal import json_text, say
from wirelake.errors import UsageError
from wirelake.extras import TABLES, need
from wirelake.text import visible

if TYPE_CHECKING:
    from wirelake.explore.check.cases import Suite

__all__ = ["check"]


class Shape(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.option(
    "--ledger",
    "ledger",
    is_flag=True,
    help="Check the ledger only: it accounts for every byte of every source, and the tables agree with it.",
)
@click.option("--fail-on", "fail_on", metavar="CONCERN,…", help="Check the traffic, too: violations, warnings, security, incomplete.")
@click.option("--integrity/--no-integrity", "integrity", default=True, help="With --no-integrity, only what --fail-on names is checked.")
@click.option(
    "-T", "--format", "form", type=click.Choice(Shape, case_sensitive=False), default=Shape.TEXT, show_default=True, help="How to print."
)
def check(lake: Path, ledger: bool, fail_on: str | None, integrity: bool, form: Shape) -> int:
    """Check the integrity of a lake, and of its traffic, without Spark.

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

    \b
    CONCERN  violations  every rule of the protocols that are spoken, unless its severity is warning or info
             warnings    every rule that a specification recommends
             security    every kind of threat: forged, replayed or untrusted messages, …
             incomplete  requests without an answer, bytes that are no message, handshakes that did not end

    Problems are printed on stdout, one line each, and the exit code is 65. Passed checks, and leftovers that the next ingest removes, go
    to stderr. Sources that still exist are compared with the ledger; missing ones are only counted. A lake can be checked while it is
    written.

    -T json prints one object for each check or rule, -T junit one XML document for CI servers: a test case for each, and failures with
    clause, session and place. Both have those that passed, too.

    Example: wirelake check LAKE --fail-on violations,security,incomplete -T junit > results.xml
    """
    need(*TABLES)
    without_pandas()
    concerns = [name for name in (fail_on or "").split(",") if name]
    if not integrity and not concerns:
        raise UsageError("--no-integrity leaves nothing to check: name concerns with --fail-on")
    if not integrity and ledger:
        raise UsageError("--ledger is a check of integrity: leave out --no-integrity")
    suites = _suites(lake, ledger=ledger, concerns=concerns, integrity=integrity)
    failed = 0
    if form is Shape.JUNIT:
        from wirelake.explore.check.junit import junit  # noqa: PLC0415 - needs the lake extra

        every = _joined(suites)
        print(junit(str(lake), every), end="")
        failed = sum(len(suite.failed) for suite in every)
    else:
        for suite in suites:
            failed += _print(suite, form)
    if failed:
        say(f"{failed} problem{'' if failed == 1 else 's'}")
        return ExitCode.DATA
    return ExitCode.OK


def _joined(suites: Iterable[Suite]) -> list[Suite]:
    """Suites of one name as one."""
    found: dict[str, Suite] = {}
    for suite in suites:
        if (known := found.setdefault(suite.name, suite)) is not suite:
            known.cases += suite.cases
    return list(found.values())


def _suites(lake: Path, *, ledger: bool, concerns: list[str], integrity: bool) -> Iterator[Suite]:
    """Check, suite by suite. The concerns are checked first for being known."""
    from wirelake.explore.check.traffic import Concern, check_traffic  # noqa: PLC0415 - needs the lake extra
    from wirelake.explore.model.database import Database  # noqa: PLC0415
    from wirelake.explore.query import QueryLimits  # noqa: PLC0415

    if unknown := [name for name in concerns if name not in list(Concern)]:
        raise UsageError(
            f"--fail-on {','.join(concerns)}: {unknown[0]!r} is nothing that a check can fail on; choose from {', '.join(Concern)}"
        )
    if integrity:
        yield from _integrity(lake, ledger=ledger)
    if concerns:
        with Database(lake, QueryLimits()) as database, database.connection() as connection:
            yield from check_traffic(connection, [Concern(name) for name in dict.fromkeys(concerns)])


def _integrity(lake: Path, *, ledger: bool) -> Iterator[Suite]:
    """Each part of the integrity as a suite with one case: it is told as soon as it is known."""
    from wirelake.explore.check.cases import Case, Suite  # noqa: PLC0415 - needs the lake extra
    from wirelake.lake.store.check_lake import check_lake  # noqa: PLC0415

    for part in check_lake(lake, ("ledger",) if ledger else None):
        yield Suite("integrity", [Case(part.name, part.checked, count=len(part.problems), places=part.problems, notes=part.notes)])


def _print(suite: Suite, form: Shape) -> int:
    """Print one suite; returns how many problems it has."""
    if form is Shape.JSON:
        for case in suite.cases:
            print(json_text({"suite": suite.name, "passed": not case.count, **msgspec.to_builtins(case)}))
        return sum(case.count for case in suite.cases)
    if suite.name == "integrity":
        (part,) = suite.cases
        for problem in part.places:
            print(f"{part.name}: {problem}")
        for note in part.notes:
            say(f"{part.name}: {note}")
        if not part.count:
            say(f"{part.name}: {part.text}")
        return part.count
    for case in suite.failed:
        rule = f"{case.text}: " if case.clause else ""  # a property is named by its case
        for place in case.places:
            print(visible(f"{suite.name}: {case.title}: {rule}{place}"))
        if (left := case.count - len(case.places)) > 0:
            print(visible(f"{suite.name}: {case.title}: … {left:,} more"))
    if not suite.failed:
        say(f"{suite.name}: none; {sum(case.skipped is None for case in suite.cases)} rules or properties were checked")
    return sum(case.count for case in suite.failed)
