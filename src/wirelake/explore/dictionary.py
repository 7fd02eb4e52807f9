"""The table dictionary: every table of the lake with its columns and what they mean, from the schemas of record.

It refuses to repeat what the schemas say in words of its own.
"""

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
    """All tables, folded away; `rows` says how many rows each has."""
    return element(
        "section",
        element("h2", "The tables"),
        element("p", "What there is to ask for with ", element("code", "wirelake query"), ", and what every column means."),
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


def _kind(said: str) -> str:
    """A nested type is long: what it is made of can be asked for."""
    return said.partition("<")[0] if said.startswith(("list", "struct")) else said


def _prose(said: str) -> list[Markup | str]:
    """What stands between backticks is code."""
    return [element("code", part) if place % 2 else part for place, part in enumerate(_CODE.split(said))]
