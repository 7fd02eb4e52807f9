"""`wirelake query`: SQL over a lake."""

from __future__ import annotations

import csv
import itertools
import re
import shutil
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import query_flags
from wirelake.cli.own_process import end_on_interrupt, without_pandas
from wirelake.cli.terminal import json_text, open_input, say, spreadsheet_cell
from wirelake.errors import UsageError
from wirelake.extras import TABLES, need
from wirelake.text import visible

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["query"]

MEASURED: Final = 100
"""Rows by which the columns of a text table are made wide enough; cells of later rows may be wider."""

_TABLE: Final = re.compile(r"\s*([\w-]+)\s*")
"""The name of a table instead of SQL."""


_PLAN: Final = ["explain_key", "explain_value"]
"""The columns of EXPLAIN: the second is a drawing, of many lines."""


class Shape(StrEnum):
    """How rows are printed."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def _tables(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For shells: the tables of the lake that was named."""
    del param
    logs = Path(ctx.params.get("lake") or ".").glob(f"{incomplete}*/_delta_log")
    return [CompletionItem(name) for name in sorted(log.parent.name for log in logs) if not name.startswith("_")]


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.argument("sql", required=False, shell_complete=_tables)
@click.option("-f", "--file", "file", type=click.Path(), help="Read the SQL from this file.")
@click.option(
    "-T", "--format", "form", type=click.Choice(Shape, case_sensitive=False), default=Shape.TEXT, show_default=True, help="How to print."
)
@click.option(
    "-c", "--count", "limit", type=click.IntRange(min=0), default=0, show_default=True, help="Compute at most this many rows; 0: all."
)
@query_flags(seconds=600.0, megabytes=4096)
@click.option(
    "--width",
    "width",
    type=click.IntRange(min=0),
    default=80,
    show_default=True,
    help="With text, cut cells to this many characters; 0: do not.",
)
def query(lake: Path, sql: str | None, file: str | None, form: Shape, limit: int, seconds: float, megabytes: int, width: int) -> int:
    """Query a lake with SQL. Every table is available by its name; Spark is not needed.

    \b
    LAKE  The lake's folder.
    SQL   A query, the name of a table, or - for a query on standard input.

    Ids are text, as they are printed, so an id copied from output works in WHERE. Other bytes are printed as hex and compared as
    body = unhex('68656c6c6f').

    With json, values are whole and exact. With text and csv, control characters are made visible (\\n, \\x1b). With csv, text that a
    spreadsheet would run as a formula begins with an apostrophe.

    Examples: wirelake query LAKE sessions · wirelake query LAKE "select rule, count(*) from violations group by rule"
    """
    need(*TABLES)
    end_on_interrupt()
    without_pandas()
    from wirelake.explore.query import QueryLimits, stream  # noqa: PLC0415 - needs the lake extra

    with stream(lake, _statement(sql, file), limit=limit, limits=QueryLimits(seconds=seconds, megabytes=megabytes)) as answer:
        names = [visible(name) for name in answer.schema.names]
        if form is Shape.JSON:
            distinct = _distinct(answer.schema.names)
            for row in _rows(answer):
                print(json_text({name: _plain(value) for name, value in zip(distinct, row, strict=True)}))
        elif form is Shape.CSV:
            writer = csv.writer(sys.stdout)
            writer.writerow(map(spreadsheet_cell, names))
            writer.writerows([_csv(value) for value in row] for row in _rows(answer))
        elif names == _PLAN:
            print("\n".join(visible(line) for _, plan in _rows(answer) for line in plan.splitlines()))
        else:
            _draw(names, ([_short(value, width) for value in row] for row in _rows(answer)))
    return ExitCode.OK


def _statement(sql: str | None, file: str | None) -> str:
    """The SQL, from an argument, a file or standard input."""
    if (sql is None) == (file is None):
        raise UsageError("give exactly one of: SQL, the name of a table, - for SQL on standard input, or --file")
    if file is not None or sql == "-":
        with open_input(file or "-") as source:
            try:
                sql = source.read().decode("utf-8-sig")
            except UnicodeDecodeError as reason:
                raise UsageError(f"{file or 'standard input'}: SQL is UTF-8, but byte {reason.start} is not") from None
    named = _TABLE.fullmatch(str(sql))
    return str(sql) if named is None else f'from "{named[1].replace("-", "_")}"'


def _rows(answer: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    """Row by row, a batch at a time; columns of the same name stay apart."""
    for batch in answer:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _distinct(names: list[str]) -> list[str]:
    """The names of columns, each of them once: JSON objects have no two values of one name."""
    seen: dict[str, None] = {}
    for name in names:
        other = (f"{name}_{number}" for number in itertools.count(1))
        seen[next(one for one in (name, *itertools.islice(other, len(names))) if one not in seen)] = None
    return list(seen)


def _plain(value: Any) -> Any:
    """A value as JSON can say it: bytes are hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _cell(value: Any) -> str:
    """A value as text: nothing for null, JSON for what has parts."""
    value = _plain(value)
    if value is None:
        return ""
    return visible(value) if isinstance(value, str) else json_text(value) if isinstance(value, dict | list) else str(value)


def _csv(value: Any) -> Any:
    return spreadsheet_cell(_cell(value)) if isinstance(value, str) else _cell(value)


def _short(value: Any, width: int) -> str:
    """A cell that is at most so wide; no more of a large value is made text than is shown."""
    if not width:
        return _cell(value)
    text = _cell(value[: width + 1] if isinstance(value, bytes | str) else value)
    return text if len(text) <= width else text[: width - 1] + "…"


def _draw(names: list[str], rows: Iterator[list[str]]) -> None:
    """A table as wide as its first rows; on a terminal that is narrower, one block of lines for each row."""
    first = list(itertools.islice(rows, MEASURED))
    widths = [max(len(text) for text in column) for column in zip(names, *first, strict=True)]
    narrow = sys.stdout.isatty() and sum(widths) + 2 * len(widths) > shutil.get_terminal_size().columns
    label = max(map(len, names), default=0)
    count = 0
    if not narrow:
        for line in (names, ["-" * width for width in widths]):
            print(_line(line, widths))
    for count, row in enumerate(itertools.chain(first, rows), 1):
        if narrow:
            print(f"row {count}")
            print("\n".join(f"  {name:<{label}}  {text}" for name, text in zip(names, row, strict=True)))
        else:
            print(_line(row, widths))
    say(f"{count} row{'' if count == 1 else 's'}")


def _line(cells: list[str], widths: list[int]) -> str:
    return "  ".join(f"{text:<{width}}" for text, width in zip(cells, widths, strict=True)).rstrip()
