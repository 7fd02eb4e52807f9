"""`wirelake read`: every message of captures and recordings, with answers and broken rules, without Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import decode_flags, limits_given, ports_given, trust_flag
from wirelake.cli.own_process import collect_rarely, without_pandas
from wirelake.cli.terminal import say, say_how_to_explain
from wirelake.errors import UsageError
from wirelake.extras import CAPTURES, need

if TYPE_CHECKING:
    from wirelake.explore.reading.analysis import Counter
    from wirelake.explore.reading.inputs import Reading
    from wirelake.explore.reading.records import Record, Violation
    from wirelake.filters import Filter

__all__ = ["read"]

_LINES: Final = 512
"""Lines that are printed together."""


class Form(StrEnum):
    """How records are printed."""

    TEXT = "text"
    JSON = "json"
    FIELDS = "fields"
    CSV = "csv"


@click.command()
@click.argument("files", nargs=-1, required=True)
@click.option(
    "-T", "--format", "form", type=click.Choice(Form, case_sensitive=False), default=Form.TEXT, show_default=True, help="How to print."
)
@click.option("-e", "--field", "fields", multiple=True, metavar="FIELD", help="With -T fields, csv or json: print this field; repeatable.")
@click.option("-c", "--count", "count", type=click.IntRange(min=1), help="Stop after reading so many messages, shown or not.")
@click.option(
    "-Y",
    "--filter",
    "filter_text",
    default="",
    metavar="FILTER",
    help="Show only what matches, such as 'kind:request rule:*'; stderr says how many of how many.",
)
@click.option("-V", "--whole", "whole", is_flag=True, help="Show every field of a message, and its bytes in hex.")
@click.option("-f", "--follow", "follow", is_flag=True, help="Go on while the files grow, and with new files of folders, until Ctrl-C.")
@decode_flags
@click.option(
    "--keys",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A trust file, to verify and open packets (see `wirelake keys`), or a log of wolpertinger's session keys, to decrypt. Repeatable.",
)
@trust_flag(default="store", more="")
def read(
    files: tuple[str, ...],
    form: Form,
    fields: tuple[str, ...],
    count: int | None,
    filter_text: str,
    whole: bool,
    follow: bool,
    settings: tuple[str, ...],
    port: tuple[str, ...],
    keys: tuple[Path, ...],
    trust: str,
) -> int:
    """Print every message of captures and recordings, one line each, as it is said; without Spark.

    \b
    FILES  Captures and recordings (pcap, pcapng, compressed or not): files, folders, patterns, pipes, or - for standard input.

    A line has number, time, sender, receiver, protocol, kind, name, subject, id, size, and the beginning of the body. An answer names
    its request, and how long it took. A broken rule has a line of its own where it is broken, with rule, clause
    (see `wirelake explain`) and text. So has a request that was never answered, at the end of its session. Traffic that is not recognised
    has a line for each host and port. Messages are in order of time within about a megabyte of a file.

    \b
    FILTER  Terms with spaces between them; all must hold. `or`, `not` or -, and parentheses: (kind:request or rule:*) -port:5040
            * and ? are wildcards; a,b means a or b; quotes keep spaces. docs/reading.md has the whole language.
              protocol:relink  kind:request  name:hello  subject:orders.*  body:*milk*  id:7  status:unanswered  rule:RELINK-22
              severity:error  type:violation  host:10.0.0.1  port:5040  from:10.0.0.0/24  to:10.0.0.1:5040  session:…  connection:…
              size:>=1k  latency:>10ms  number:5..9  ts:<2026-01-31T12:00  since:10m  until:…  emp.request_id:7
            A word alone is searched in names, subjects, rules, ids and bodies. Anything else is an error that says what to write.

    \b
    FIELD   A column of `messages`, or number, from, to, transport, rules, clauses, answers, latency_us, hex;
            or PROTOCOL.COLUMN of a protocol's own table, such as emp.request_id (docs/tables.md).

    -T json prints one object per record; its type is message, violation, unanswered, unreadable or unrecognised. -T fields and -T csv
    print messages only, and the rest goes to stderr. Broken rules do not change the exit code.
    """
    if fields and form is Form.TEXT:
        raise UsageError("-e needs -T fields, -T csv or -T json")
    if whole and form in (Form.FIELDS, Form.CSV):
        raise UsageError(f"-V shows every field: with -T {form.value}, name them with -e, or take -T text or -T json")
    need(*CAPTURES)
    collect_rarely()  # imports, too, make many objects that stay
    without_pandas()
    from wirelake import filters  # noqa: PLC0415 - a filter may name the columns of a protocol
    from wirelake.explore.reading import formats  # noqa: PLC0415
    from wirelake.explore.reading.engine import ReadOptions  # noqa: PLC0415
    from wirelake.explore.reading.inputs import STDIN, Reading  # noqa: PLC0415

    chosen = filters.parse(filter_text)
    formats.check_fields(fields)
    if follow and STDIN in files:
        raise UsageError("--follow is for files: standard input is read as it comes anyway")
    store = keyring = None
    if keys:
        from wirelake.cli.key_files import keys_in  # noqa: PLC0415 - imports protocols, for keys only

        store, keyring = keys_in(keys)
    if trust != "store":
        from wirelake.protocols.event_mesh.security.trust import FirstKeys, Trust, TrustStore  # noqa: PLC0415 - see above

        first_use = FirstKeys() if trust == Trust.FIRST_USE.value else None
        store = (store or TrustStore()).trusting(Trust(trust), first_use=first_use, is_partial=store is None or store.only_opens)
    reading = Reading(
        ReadOptions(
            ports=ports_given(port),
            limits=limits_given(settings),
            keys=store,
            keyring=keyring,
            whole=whole or formats.needs_own((*fields, *(name for name in chosen.fields() if "." in name))),
            raw=whole or "hex" in fields,
            bodies=form is not Form.TEXT or "body" in chosen.fields(),
        )
    )
    shown = _Shown(form, fields, chosen, whole=whole)
    try:
        _show(reading, files, shown, count, follow=follow)
    except KeyboardInterrupt:
        shown.flush()
        if not follow:
            return ExitCode.INTERRUPTED
        for record in reading.end():
            shown.put(record)
        shown.flush()
    _sum_up(reading.counter, shown)
    if shown.broken is not None:
        say_how_to_explain(shown.broken.protocol, shown.broken.rule, shown.broken.clause)
    for fault in reading.faults:
        say(f"wirelake: {fault}")
    return ExitCode.DATA if reading.faults else ExitCode.OK


def _show(reading: Reading, files: tuple[str, ...], shown: _Shown, count: int | None, *, follow: bool) -> None:
    """Read and print, until the end or so many messages."""
    from wirelake.explore.reading.records import Message, Violation  # noqa: PLC0415 - needs the lake extra

    last: Message | None = None
    for record in reading.follow(files) if follow else reading.read(files):
        _say_notes(reading)
        if last is not None and not (isinstance(record, Violation) and record.message is last):
            reading.counter.messages = last.number
            break
        if record is None:
            shown.flush()
            continue
        shown.put(record)
        if count is not None and isinstance(record, Message) and record.number >= count:
            last = record
    shown.flush()
    _say_notes(reading)


def _say_notes(reading: Reading) -> None:
    if reading.notes:
        notes, reading.notes = reading.notes, []
        for note in notes:
            say(note)


class _Shown:
    """Prints records that match a filter."""

    def __init__(self, form: Form, fields: tuple[str, ...], chosen: Filter, *, whole: bool) -> None:
        from wirelake.explore.reading import formats  # noqa: PLC0415 - needs the lake extra
        from wirelake.explore.reading.matching import matcher  # noqa: PLC0415
        from wirelake.explore.reading.records import SHOWN_BYTES, Message, Violation  # noqa: PLC0415

        self._most = SHOWN_BYTES
        self._matches = matcher(chosen) if chosen else None
        self._needed = chosen.fields()
        self.is_filtered = bool(chosen)
        self.messages = 0
        """Messages that were shown."""
        self.others = 0
        """Other records that were shown."""
        self.cut_bodies = 0
        """Messages of which the filter saw only the beginning of the body."""
        self._message = Message
        self._violation = Violation
        self.broken: Violation | None = None
        """The first broken rule that was shown."""
        columns = fields or formats.DEFAULT_FIELDS
        lines: dict[Form, Callable[[Any], str]] = {
            Form.TEXT: lambda record: formats.text_lines(record, whole=whole),
            Form.JSON: lambda record: formats.json_line(record, fields, whole=whole),
            Form.FIELDS: lambda record: formats.field_line(record, columns),
            Form.CSV: lambda record: formats.csv_line(formats.field_of(record, name) for name in columns),
        }
        self._line = lines[form]
        self._only_messages = form in (Form.FIELDS, Form.CSV) or bool(fields)
        self._other = formats.text_lines
        self._lines = [formats.csv_line(columns)] if form is Form.CSV else []

    def put(self, record: Record) -> None:
        """Print a record, perhaps a little later."""
        is_message = isinstance(record, self._message)
        if self._matches is not None:
            if isinstance(record, self._message) and "body" in self._needed:
                self.cut_bodies += len(record.body or b"") >= self._most
            if not self._matches(record.values(self._needed)):
                return
        self.messages += is_message
        self.others += not is_message
        if self.broken is None and isinstance(record, self._violation):
            self.broken = record
        if self._only_messages and not isinstance(record, self._message):
            self.flush()
            say(self._other(record).strip())
            return
        self._lines.append(self._line(record))
        if len(self._lines) >= _LINES:
            self.flush()

    def flush(self) -> None:
        """Print what waits."""
        if self._lines:
            lines, self._lines = self._lines, []
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()


def _sum_up(counter: Counter, shown: _Shown) -> None:
    """How much there was, to stderr; with a filter, how much of it was shown."""
    from wirelake.explore.formatting import many, size  # noqa: PLC0415 - see above
    from wirelake.explore.reading.records import SHOWN_BYTES  # noqa: PLC0415

    others = f" and {many(shown.others, 'other record')}" if shown.others else ""
    parts = [f"{shown.messages:,} of {counter.messages:,} shown{others}" if shown.is_filtered else many(counter.messages, "message")]
    if shown.cut_bodies:
        say(f"{many(shown.cut_bodies, 'body was', 'bodies were')} searched in the first {size(SHOWN_BYTES)} only")
    if counter.violations:
        parts.append(many(counter.violations, "violation"))
    if counter.unanswered:
        parts.append(f"{counter.unanswered:,} unanswered")
    if counter.unreadable:
        parts.append(f"{size(counter.unreadable)} unreadable")
    if counter.unrecognised:
        parts.append(f"{size(counter.unrecognised)} not recognised")
    say(", ".join(parts))
