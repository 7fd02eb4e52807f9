"""`wirelake export`: the messages that a filter lets through, in a format that other programs read."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path

import click

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.own_process import without_pandas
from wirelake.cli.terminal import say
from wirelake.errors import UsageError
from wirelake.extras import TABLES, need

__all__ = ["export"]


class Form(StrEnum):
    """Formats, by name."""

    PCAPNG = "pcapng"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    OTLP = "otlp"
    HTML = "html"


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.argument("filter_text", metavar="[FILTER]", default="")
@click.option("-o", "--out", "out", required=True, metavar="FILE", help="The file to write; - for standard output, with --format.")
@click.option(
    "-T", "--format", "form", type=click.Choice(Form, case_sensitive=False), help="The format; by default the file's name says it."
)
@click.option("--force", "force", is_flag=True, help="Replace FILE if it exists.")
@click.option(
    "--memory",
    "megabytes",
    type=click.IntRange(0),
    default=512,
    show_default=True,
    help="Megabytes of memory for queries; 0: as much as there is.",
)
@click.option(
    "--most", "most", type=click.IntRange(1), default=10_000, show_default=True, help="With html: messages of the file; more are an error."
)
@click.option("--title", "title", default="", help="With html: the title; by default the name of the lake.")
def export(lake: Path, filter_text: str, out: str, form: Form | None, force: bool, megabytes: int, most: int, title: str) -> int:
    """Write exactly the messages that a filter lets through to a file, without Spark.

    \b
    LAKE    The lake's folder.
    FILTER  As in `wirelake read -Y`, for instance 'kind:request subject:orders.* since:10m'; by default all messages.
            A filter that begins with - comes last, after --.

    \b
    FILE    The end of its name is the format:
              .pcapng     for Wireshark: original packets; of recordings one exported PDU for each message
              .jsonl      one JSON object for each message, with every field of its protocol
              .csv        the same as a table; a field of a protocol is a column such as emp.request_id
              .parquet    the same with the types of the lake; each protocol is a struct
              .otlp.json  OpenTelemetry spans, one for each request or delivery of the selection
              .html       one page for people: ladders, fields, bytes, broken rules with their text

    A packet may carry bytes of other messages, too. If a capture is gone or has changed, .pcapng has the bodies only, and stderr says so.
    The file gets its name when it is whole; an error or Ctrl-C leaves none.

    Examples: wirelake export LAKE status:unanswered -o slow.pcapng · wirelake export LAKE rule:RELINK-22 -o incident.html
    """
    need(*TABLES)
    without_pandas()
    from wirelake.explore.comments import Comments, incident_comments  # noqa: PLC0415 - needs the lake extra
    from wirelake.explore.export import export as exports  # noqa: PLC0415
    from wirelake.explore.query import QueryLimits  # noqa: PLC0415

    if out == "-" and form is None:
        raise UsageError("-o -: standard output has no suffix; name the format with --format")
    done = exports.export(
        lake,
        filter_text,
        None if form is None else exports.Format(form.value),
        sys.stdout.buffer if out == "-" else Path(out),
        overwrite=force,
        limits=QueryLimits(megabytes=megabytes),
        incident=exports.IncidentOptions(title=title, most=most, comments=incident_comments(Comments(lake).read())),
    )
    say(f"{done} to {'standard output' if out == '-' else out}")
    for note in done.notes:
        say(f"wirelake: {note}")
    return ExitCode.OK
