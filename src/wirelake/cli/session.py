"""`wirelake session`: one conversation as a ladder, in text."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.own_process import without_pandas
from wirelake.cli.terminal import json_text, say
from wirelake.extras import TABLES, need
from wirelake.text import visible

if TYPE_CHECKING:
    from wirelake.explore.model.messages import Line
    from wirelake.explore.model.observers import Comparison
    from wirelake.explore.model.sessions import Incident, Ladder

__all__ = ["session"]

LADDER_WIDTH: Final = 56
"""Characters from one side to the other."""
LEAST_PAUSE: Final = 2_000
"""Microseconds without a message that are drawn at least."""
LONG_PAUSES: Final = 20
"""A pause is drawn if it is so many times the median."""
ALWAYS_PAUSE: Final = 2_000_000
"""Microseconds without a message that are always drawn."""


class Shape(StrEnum):
    """How a session is printed."""

    TEXT = "text"
    JSON = "json"


class Side(StrEnum):
    """Whose messages are printed."""

    BOTH = "both"
    CLIENT = "client"
    SERVER = "server"


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.argument("session_id")
@click.option(
    "-c", "--count", "limit", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="Print at most this many messages."
)
@click.option("--first", "first", type=click.IntRange(min=0), default=0, show_default=True, help="Messages to skip.")
@click.option(
    "--side", "side", type=click.Choice(Side, case_sensitive=False), default=Side.BOTH, show_default=True, help="Whose messages to print."
)
@click.option(
    "-T", "--format", "form", type=click.Choice(Shape, case_sensitive=False), default=Shape.TEXT, show_default=True, help="How to print."
)
def session(lake: Path, session_id: str, limit: int, first: int, side: Side, form: Shape) -> int:
    """Print one session as a ladder: who sent what, pauses, broken rules and missing bytes at their place.

    \b
    LAKE        The lake's folder.
    SESSION_ID  The id of the session in hex digits, or the beginning of it.

    With json, each line is a message, or an incident with `type`: event, unreadable or violation.
    """
    need(*TABLES)
    without_pandas()
    from wirelake.explore.model import observers, sessions  # noqa: PLC0415 - needs the lake extra
    from wirelake.explore.model.database import Database  # noqa: PLC0415

    with Database(lake) as database, database.connection() as connection:
        found = sessions.ladder(connection, session_id, first=first, limit=limit)
        seen = observers.compared(connection, found.session)
    if side is not Side.BOTH:
        found.rows = [row for row in found.rows if row.to_server == (side is Side.CLIENT)]
    if form is Shape.JSON:
        for row in _woven(found):
            print(json_text(msgspec.to_builtins(row)))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 160
        for text in _drawn(found, width):
            print(text)
        for other in seen:
            print(visible(_seen(other)))
    left = found.total - first - limit
    if left > 0:
        say(f"{left} messages more: --first {first + limit}")
    return ExitCode.OK


def _woven(found: Ladder) -> Iterator[Line | Incident]:
    """Messages and incidents in order of time."""
    incidents = iter(found.incidents)
    waiting = next(incidents, None)
    for row in found.rows:
        while waiting is not None and waiting.ts is not None and row.ts is not None and waiting.ts < row.ts:
            yield waiting
            waiting = next(incidents, None)
        yield row
    if waiting is not None:
        yield waiting
        yield from incidents


def _drawn(found: Ladder, width: int) -> Iterator[str]:
    """The lines of a ladder."""
    from wirelake.explore.formatting import duration, many, moment  # noqa: PLC0415 - as above

    one = found.session
    server = one.server or "many"
    when = "" if one.opened is None else f", {moment(one.opened)} UTC"
    yield visible(f"{one.protocol} session {one.id}: {one.client} with {server}{when}, {many(found.total, 'message')}")
    yield visible(f"{'':12}{one.client:<{LADDER_WIDTH // 2}}{server:>{LADDER_WIDTH // 2}}")
    rows = list(_woven(found))
    times = [row.ts for row in rows if row.ts is not None]
    pauses = sorted(after - before for before, after in itertools.pairwise(times))
    least = min(ALWAYS_PAUSE, max(LEAST_PAUSE, LONG_PAUSES * (pauses[len(pauses) // 2] if pauses else 0)))
    begin, before = (times[0] if times else 0), None
    for row in rows:
        if before is not None and row.ts is not None and row.ts - before >= least:
            yield f"{'':12}┊{f'{duration(row.ts - before)} of silence':^{LADDER_WIDTH - 2}}┊"
        before = row.ts if row.ts is not None else before
        clock = "" if row.ts is None else f"+{duration(row.ts - begin)}"
        yield visible(f"{clock:>11} {_line(row)}"[:width].rstrip())


def _seen(one: Comparison) -> str:
    """What an observer saw, beside the primary view."""
    from wirelake.explore.formatting import count, duration, many  # noqa: PLC0415 - as above

    parts = [f"seen by {one.observer} ({one.observer_kind}): {many(one.messages, 'message')}"]
    if one.is_primary:
        parts.append("counted")
    else:
        parts.append(f"{count(one.missing)} missing, {count(one.more)} more, session {one.session}")
    if one.to_server_us is not None and one.to_client_us is not None and one.offset_us is not None:
        parts.append(f"{duration(one.to_server_us)} to the server, {duration(one.to_client_us)} to the client")
        parts.append(f"clock ahead by {duration(one.offset_us)}")
    return "; ".join([*parts, *([one.problem] if one.problem else [])])


def _line(row: Line | Incident) -> str:
    from wirelake.explore.formatting import duration, size  # noqa: PLC0415 - as above
    from wirelake.explore.model.messages import Line  # noqa: PLC0415

    inside = LADDER_WIDTH - 4
    if not isinstance(row, Line):
        said = {"violation": f"! {row.clause or ''} {row.name}", "unreadable": f"! {size(row.size)} unreadable: {row.name}"}.get(
            row.type, row.text
        )
        return f"│{said[: inside + 2]:·^{inside + 2}}│ {row.text if row.type != 'event' else ''}"
    label = f" {row.name}{f' {row.subject}' if row.subject else ''}{f' ({row.correlation[:13]})' if row.correlation else ''} "
    if len(label) > inside:
        label = f"{label[: inside - 2]}… "
    arrow = f"├{label:─^{inside + 2}}▶" if row.to_server else f"◀{label:─^{inside + 2}}┤"
    marks = [f"! {rule}" for rule in row.rules]
    if row.answer not in (None, "answered", "confirmed"):
        marks.append(f"? {row.answer}")
    if row.attempts > 1:
        marks.append(f"sent {row.attempts} times")
    if row.latency_us is not None:
        marks.append(duration(row.latency_us))
    return "  ".join([arrow, *marks, row.excerpt or ""])
