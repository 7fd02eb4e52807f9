"""Diff pages: two messages, two sessions or two selections of this lake, side by side."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from wirelake.errors import UsageError
from wirelake.explore.diff.messages import MessageDifference, compare_messages
from wirelake.explore.diff.operands import Operand
from wirelake.explore.diff.selections import Difference, compare
from wirelake.explore.model import messages
from wirelake.explore.web.explorer import Explorer, View
from wirelake.filters import Filter, Term, looked_at, parse

__all__ = ["show_diff"]

SHOWN: Final = 200
"""Changes of one part, and steps of a session, that a page shows; its JSON twin has all."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MESSAGE: Final = re.compile(r"\s*message:([0-9A-Fa-f]+)\s*")


class Suggestion(NamedTuple):
    """Something to compare the first side with."""

    title: str
    operand: str


def show_diff(explorer: Explorer, request: Request) -> View:
    """What differs between two sides, `a` and `b`: each a filter, or `message:ID`."""
    a, b = (request.query_params.get(name, "").strip() for name in "ab")
    more: dict[str, Any] = {
        "a": a,
        "b": b,
        "shown": SHOWN,
        "suggestions": _suggestions(explorer, a) if a and "b" not in request.query_params else [],
    }
    if not a or "b" not in request.query_params:
        return View("diff.html", {"kind": None, "difference": None}, more)
    one, other = _operand(explorer, a), _operand(explorer, b)
    if (one.message is None) != (other.message is None):
        raise UsageError("compare a message with a message: write both sides as message:ID")
    found: MessageDifference | Difference
    if one.message is not None:
        found = explorer.cached("diff", a, b, make=lambda _: compare_messages(one, other, database=explorer.costly))
        more["ids"] = (one.message, other.message)
        return View("diff.html", {"kind": "messages", "difference": found}, more)
    found = explorer.cached("diff", a, b, int(one.wanted.now), make=lambda _: compare(one, other, database=explorer.costly))
    return View("diff.html", {"kind": "selections", "difference": found}, more)


def _operand(explorer: Explorer, text: str) -> Operand:
    """One side; always of this lake."""
    found = _MESSAGE.fullmatch(text)
    return Operand(Path(explorer.path), parse("" if found else text), found[1].lower() if found else None)


def _suggestions(explorer: Explorer, text: str) -> list[Suggestion]:
    """Sides that people often compare this one with."""
    operand = _operand(explorer, text)
    if operand.message is not None:
        with explorer.database.connection() as connection:
            found = messages.one(connection, operand.message)
        near = {"the message before it": found.previous, "the message after it": found.next}
        for one in found.exchanges[:1]:
            near |= {"its answer": one.response, "its request": one.request}
        return [Suggestion(title, f"message:{target}") for title, target in near.items() if target and target != operand.message]
    return _earlier(operand.wanted)


def _earlier(wanted: Filter) -> list[Suggestion]:
    """The time range of the same length before a range."""
    since, until = wanted.span()
    if since is None or until is None:
        return [Suggestion("all messages", "")]
    if until <= since:
        return []
    rest = [str(term) for term in wanted.terms if not (isinstance(term, Term) and looked_at(term) == ("ts",))]
    begin, end = 2 * since - until - 1, since - 1
    return [Suggestion("the time before, as long as this", " ".join([*rest, f"since:{_iso(begin)}", f"until:{_iso(end)}"]))]


def _iso(microseconds: int) -> str:
    """A time as filters take it, exact to the microsecond."""
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat().replace("+00:00", "Z")
