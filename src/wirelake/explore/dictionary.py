"""Report section: every table and column with its comment, from the schemas."""

from __future__ import annotations

import re
from collections.abc import Mapping

from wirelake.explore.formatting import many
from wirelake.explore.markup import Markup, element
from wirelake.lake.tables.catalog import TABLES
from wirelake.lake.tables.schema import Table, comment

__all__ = ["dictionary"]

_CODE = re.compile(r"`([^`]*)`")


def dictionary(rows: Mapping[str, int]) -> Markup:
    """List all tables, folded; `rows` has the number of rows of each."""
    return element(
        "section",
        element("h2", "The tables"),
        element("p", "Tables for ", element("code", "wirelake query"), ", and the meaning of every column."),
        (_table(table, rows.get(table.name, 0)) for table in TABLES.values()),
        class_="dictionary",
    )


def _table(table: Table, rows: int) -> Markup:
    head = element("summary", element("strong", table.name), element("span", many(rows, "row"), ". ", _prose(table.doc), class_="dim"))
    lines = (
        element(
            "tr",
            element("td", element("code", field.name)),
            element("td", element("code", _kind(str(field.type)), class_="dim")),
            element("td", _prose(comment(field))),
        )
        for field in table.schema
    )
    return element("details", head, element("div", element("table", lines), class_="scroll"))


def _kind(text: str) -> str:
    """Shorten a nested type to its outer name."""
    return text.partition("<")[0] if text.startswith(("list", "struct")) else text


def _prose(text: str) -> list[Markup | str]:
    """Format text in backticks as code."""
    return [element("code", part) if place % 2 else part for place, part in enumerate(_CODE.split(text))]
