"""Export: write exactly the messages that a filter lets through to a file.

`export` opens a lake; `write` takes a connection that is open already, as pages have one.
"""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec
from msgspec.structs import replace

from wirelake.errors import LakeError, UsageError
from wirelake.explore.export import rows
from wirelake.explore.export.incident import Comment, IncidentOptions, write_html
from wirelake.explore.export.otlp import write_otlp
from wirelake.explore.export.pcapng import write_pcapng
from wirelake.explore.formatting import many
from wirelake.explore.model import messages
from wirelake.explore.model.conditions import Condition, condition
from wirelake.explore.model.database import Database
from wirelake.explore.query import QueryLimits
from wirelake.filters import EVERYTHING, Filter, parse

if TYPE_CHECKING:
    import duckdb

__all__ = ["LIMITS", "SUFFIXES", "Comment", "Exported", "Format", "IncidentOptions", "command", "export", "format_of", "write"]

LIMITS: Final = QueryLimits(seconds=0, megabytes=512)
"""Limits of an export: it may take long, but not much memory."""


class Format(StrEnum):
    """Formats of an export."""

    PCAPNG = "pcapng"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    OTLP = "otlp"
    HTML = "html"


SUFFIXES: Final = {
    ".pcapng": Format.PCAPNG,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
    ".otlp.json": Format.OTLP,
    ".html": Format.HTML,
}
"""End of a file's name -> format."""


class Exported(msgspec.Struct, frozen=True):
    """What an export wrote."""

    format: Format
    count: int
    what: str
    """What is counted: messages, packets or exchanges."""
    notes: tuple[str, ...] = ()
    """What the reader of the file must know, one sentence each."""
    of: int | None = None
    """All messages of the lake, if a filter chose some."""

    def __str__(self) -> str:
        """`12 of 268 messages`."""
        if self.of is None:
            return many(self.count, self.what)
        if self.what == "message":
            return f"{self.count:,} of {many(self.of, self.what)}"
        return f"{many(self.count, self.what)} of {many(self.of, 'message')}"


def format_of(name: str | PathLike[str]) -> Format:
    """Return the format that a file's name ends in. Raises UsageError, which lists them."""
    text = os.fspath(name).lower()
    for suffix, form in SUFFIXES.items():
        if text.endswith(suffix):
            return form
    raise UsageError(f"{os.fspath(name)}: its name says no format; it must end in one of {', '.join(SUFFIXES)}, or --format must name one")


def command(lake: str | PathLike[str], wanted: Filter | str, form: Format, name: str | None = None) -> str:
    """Return the command line that writes the same selection, for a POSIX shell."""
    suffix = next(suffix for suffix, one in SUFFIXES.items() if one is form)
    out, text = ["-o", name or f"export{suffix}"], str(wanted)
    if text.startswith("-"):  # an excluding term is no option
        return shlex.join(["wirelake", "export", *out, "--", os.fspath(lake), text])
    words = ["wirelake", "export", os.fspath(lake), *([text] if text else []), *out]
    return shlex.join(words)


def export(
    lake: str | PathLike[str],
    wanted: Filter | str,
    form: Format | str | None,
    target: str | PathLike[str] | BinaryIO,
    *,
    overwrite: bool = False,
    limits: QueryLimits = LIMITS,
    incident: IncidentOptions | None = None,
) -> Exported:
    """Write the messages of a lake that a filter lets through. `form` is by default the one that the target's name ends in.

    A file gets its name when it is whole: until then it has another one in the same folder, which an error or Ctrl-C removes. An existing
    file is an error without `overwrite`. A target that is open for writing bytes is written as it is, and left open.
    """
    chosen = parse(wanted) if isinstance(wanted, str) else wanted
    if form is None and not isinstance(target, (str, PathLike)):
        raise UsageError("name the format of the export: an open file has no suffix")
    kind = Format(form) if form is not None else format_of(target)  # type: ignore[arg-type]  # a path, see above
    where = condition(chosen)  # a filter that a lake cannot answer is an error before anything is written
    incident = incident or IncidentOptions()
    if not incident.title:
        incident = replace(incident, title=Path(lake).name or "lake")
    with Database(lake, limits) as database, database.connection() as connection:
        whole = messages.count(connection, EVERYTHING) if chosen else None
        if not isinstance(target, (str, PathLike)):
            return replace(_written(connection, chosen, where, kind, target, incident), of=whole)
        path = Path(target)
        _refuse_source(connection, path)
        with _whole_file(path, overwrite=overwrite) as out:
            return replace(_written(connection, chosen, where, kind, out, incident), of=whole)


def write(
    connection: duckdb.DuckDBPyConnection, wanted: Filter, form: Format, out: BinaryIO, *, incident: IncidentOptions | None = None
) -> Exported:
    """Write the messages that a filter lets through, of a connection from `Database.connection`."""
    return _written(connection, wanted, condition(wanted), form, out, incident or IncidentOptions())


def _written(
    connection: duckdb.DuckDBPyConnection, wanted: Filter, where: Condition, form: Format, out: BinaryIO, incident: IncidentOptions
) -> Exported:
    if form is Format.PCAPNG:
        return _pcapng(connection, where, out)
    if form is Format.HTML:
        return Exported(form, write_html(connection, wanted, where, out, incident), "message")
    if form is Format.OTLP:
        return Exported(form, write_otlp(connection, where, out), "exchange")
    return Exported(form, _ROWS[form](connection, where, out), "message")


_ROWS: Final[Mapping[Format, Callable[[duckdb.DuckDBPyConnection, Condition, BinaryIO], int]]] = {
    Format.JSONL: rows.write_jsonl,
    Format.CSV: rows.write_csv,
    Format.PARQUET: rows.write_parquet,
}


def _pcapng(connection: duckdb.DuckDBPyConnection, where: Condition, out: BinaryIO) -> Exported:
    written = write_pcapng(connection, where, out)
    notes = []
    if written.bodies:
        notes.append(
            f"{many(written.bodies, 'message has', 'messages have')} only a body here: the file with the packets is gone, or has changed"
        )
    if written.cut:
        notes.append(f"{many(written.cut, 'body was', 'bodies were')} cut: Wireshark reads no longer packets")
    return Exported(Format.PCAPNG, written.packets + written.pdus + written.bodies, "packet", tuple(notes))


def _refuse_source(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raise UsageError if the target is a file that the lake was made of."""
    if not path.exists():
        return
    for (source,) in connection.execute("SELECT DISTINCT source FROM ledger").fetchall():
        with suppress(OSError):
            if path.samefile(source):
                raise UsageError(f"{path}: the lake was made of this file; choose another one")


@contextmanager
def _whole_file(path: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a file that appears under its name when the block ends well, and not at all otherwise."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file")
    if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
        with path.open("wb") as out:
            yield out
        return
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists already; choose another name, or replace it with --force")
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        out = part.open("xb")
    except OSError as error:
        raise LakeError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with out:
            yield out
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise LakeError(f"{path} cannot be written: {error.strerror or error}") from error
        raise
