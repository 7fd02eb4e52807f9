"""Explorer: what the handlers of pages share: the database, parameters of requests, and a small cache."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from starlette.requests import Request

from wirelake.errors import LakeError, UsageError
from wirelake.explore.comments import NO_NOTE, About, Comments
from wirelake.explore.model.database import Database
from wirelake.explore.model.messages import Line
from wirelake.explore.model.sessions import Session
from wirelake.explore.web.answers import Answers
from wirelake.filters import Filter, parse

if TYPE_CHECKING:
    import duckdb

__all__ = ["Explorer", "View", "choice", "number", "wanted"]

T = TypeVar("T")


class View(NamedTuple):
    """The answer of a page: data for its JSON twin, and the template that shows it."""

    template: str
    data: Any
    more: dict[str, Any] = {}
    """Only for the template."""
    status: int = 200


class Explorer:
    """A lake that is being explored."""

    def __init__(self, lake: str | PathLike[str], database: Database, costly: Database) -> None:
        self.path = lake
        self.name = "/".join(Path(lake).resolve().parts[-2:]).lstrip("/") if "://" not in str(lake) else str(lake)
        self.database = database
        self.costly = costly
        """The same lake, with memory of its own: for questions that take as much as the reader asks for."""
        self.comments = Comments(lake)
        self.secret = secrets.token_urlsafe(16)
        """Forms of our pages have it; another site cannot read it. New for every server."""
        self.answers = Answers(database)

    def cached(self, *key: object, make: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Return an answer that depends only on the snapshot and a key; make it if it is not known."""
        return self.answers.get(key, make)[1]

    def note(self, about: About, target: str) -> dict[str, Any]:
        """Return the note about a message or a session, or why it cannot be read."""
        try:
            return {"note": self.comments.note(about, target), "note_problem": None}
        except LakeError as error:
            return {"note": NO_NOTE, "note_problem": str(error)}

    def annotate(self, about: About, rows: Iterable[Line | Session]) -> None:
        """Set the marks of rows, and how many comments they have."""
        try:
            notes = self.comments.read().of(about)
        except LakeError:
            return  # pages with a field for comments say what is wrong
        for row in rows:
            note = notes.get(row.id)
            row.mark, row.comments = (None, 0) if note is None else (note.mark, len(note.comments))


def wanted(request: Request) -> Filter:
    """Read the filter of a request: its parameter `q`. Raises FilterError."""
    return parse(request.query_params.get("q", ""))


def number(request: Request, name: str, default: int, *, most: int, least: int = 0) -> int:
    """Read a number of a request, within bounds. Raises UsageError."""
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    try:
        return max(least, min(most, int(text)))
    except ValueError:
        raise UsageError(f"{name}={text[:40]!r}: write a number from {least} to {most}") from None


def choice(request: Request, name: str, choices: tuple[str, ...]) -> str:
    """Read a choice of a request; the first is the default. Raises UsageError."""
    text = request.query_params.get(name) or choices[0]
    if text not in choices:
        raise UsageError(f"{name}={text[:40]!r}: choose one of {', '.join(choices)}")
    return text
