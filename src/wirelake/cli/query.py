"""`wirelake query`: SQL over a lake."""

from __future__ import annotations

import csv
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
import msgspec

from wirelake.cli.exits import ExitCode
from wirelake.cli.terminal import say
from wirelake.extras import TABLES, need

__all__ = ["query"]


class Shape(StrEnum):
    """How rows are printed."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.argument("sql")
@click.option(
    "-T", "--format", "form", type=click.Choice(Shape, case_sensitive=False), default=Shape.TEXT, show_default=True, help="How to print."
)
@click.option(
    "-c", "--count", "limit", type=click.IntRange(min=0), default=0, show_default=True, help="Print at most so many rows; 0: all."
)
def query(lake: Path, sql: str, form: Shape, limit: int) -> int:
    """Ask a lake in SQL. Every table is there by its name; Spark is not needed.

    \b
    LAKE  The lake's folder.
    SQL   A query, or the name of a table.

    Examples: wirelake query LAKE sessions · wirelake query LAKE "select rule, count(*) from violations group by rule"
    """
    need(*TABLES)
    from wirelake.explore.query import query as ask  # noqa: PLC0415 - needs the lake extra

    table = ask(lake, sql if " " in sql.strip() else f'from "{sql.strip()}"')
    rows = table.slice(0, limit) if limit else table
    names: list[str] = rows.schema.names
    if form is Shape.JSON:
        for row in rows.to_pylist():
            print(msgspec.json.encode({name: _plain(value) for name, value in row.items()}).decode())
    elif form is Shape.CSV:
        writer = csv.writer(sys.stdout)
        writer.writerow(names)
        writer.writerows([_cell(value) for value in row.values()] for row in rows.to_pylist())
    else:
        _draw(names, [[_cell(value) for value in row.values()] for row in rows.to_pylist()])
    return ExitCode.OK


def _plain(value: Any) -> Any:
    """A value as JSON can say it: bytes are hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


def _cell(value: Any) -> str:
    value = _plain(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else str(value) if not isinstance(value, dict | list) else msgspec.json.encode(value).decode()


def _draw(names: list[str], rows: list[list[str]]) -> None:
    """A table as wide as it is; on a terminal that is narrower, one block of lines for each row."""
    widths = [max(len(text) for text in column) for column in zip(names, *rows, strict=True)]
    if sys.stdout.isatty() and sum(widths) + 2 * len(widths) > shutil.get_terminal_size().columns:
        label = max(map(len, names))
        for number, row in enumerate(rows, 1):
            print(f"row {number}")
            print("\n".join(f"  {name:<{label}}  {text}" for name, text in zip(names, row, strict=True)))
    else:
        for line in (names, ["-" * width for width in widths], *rows):
            print("  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip())
    say(f"{len(rows)} row{'' if len(rows) == 1 else 's'}")
