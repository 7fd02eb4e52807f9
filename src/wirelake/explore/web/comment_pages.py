"""Comment pages: the list of marks and comments, and the one request that writes."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request

from wirelake.errors import InputMissing, UsageError
from wirelake.explore.comments import NO_NOTE, About, Note
from wirelake.explore.model import messages, sessions
from wirelake.explore.web.explorer import Explorer, View

__all__ = ["MAX_FORM_BYTES", "ForeignForm", "list_comments", "write_comment"]

MAX_FORM_BYTES: Final = 64 * 1024
"""Bytes of a form that is accepted."""


class ForeignForm(UsageError):
    """A form that none of our pages made."""


class Remark(msgspec.Struct):
    """A note, and what it is about."""

    about: About
    id: str
    title: str | None
    """None: the lake does not have the message or the session."""
    ts: int | None
    note: Note


def list_comments(explorer: Explorer, request: Request) -> View:
    """Marks and comments, the newest first."""
    del request
    notes = explorer.comments.read()
    remarks: list[Remark] = []
    with explorer.database.connection() as connection:
        lines = {line.id: line for line in messages.by_ids(connection, list(notes.message))}
        found = {session.id: session for session in sessions.by_ids(connection, list(notes.session))}
    for target, note in notes.message.items():
        line = lines.get(target)
        title = None if line is None else " ".join(filter(None, (line.protocol, line.kind, line.name, line.subject)))
        remarks.append(Remark(About.MESSAGE, target, title, None if line is None else line.ts, note))
    for target, note in notes.session.items():
        session = found.get(target)
        title = None if session is None else f"{session.protocol} session of {session.client} with {session.server or 'many'}"
        remarks.append(Remark(About.SESSION, target, title, None if session is None else session.opened, note))
    remarks.sort(key=lambda remark: max((comment.ts for comment in remark.note.comments), default=0), reverse=True)
    return View("comments.html", {"rows": remarks})


def write_comment(explorer: Explorer, form: Mapping[str, str]) -> tuple[str, Note]:
    """Change a mark or a comment as a form says. Returns the address to go to, and the note.

    Raises UsageError for a form that cannot be understood, InputMissing if the lake has no such message or session.
    """
    if not hmac.compare_digest(form.get("secret", "").encode(), explorer.secret.encode()):
        raise ForeignForm("this form is not of this server, or the server was started again: load the page again")
    about, target, action = form.get("about", ""), form.get("id", ""), form.get("action", "")
    kinds = {kind.value: kind for kind in About}
    if about not in kinds:
        raise UsageError(f"about={about[:40]!r}: choose one of {', '.join(kinds)}")
    kind = kinds[about]
    _check(explorer, kind, target, action)
    actions = {
        "mark": lambda: explorer.comments.mark(kind, target, form.get("mark") or None),
        "comment": lambda: explorer.comments.add(kind, target, form.get("text", "")),
        "delete": lambda: explorer.comments.remove(kind, target, form.get("comment", "")),
    }
    if action not in actions:
        raise UsageError(f"action={action[:40]!r}: choose one of {', '.join(actions)}")
    note = actions[action]()
    return "/comments" if form.get("back") == "comments" else f"/{about}s/{target}", note


def _check(explorer: Explorer, about: About, target: str, action: str) -> None:
    """Raise Missing for what the lake does not have, unless there is a note about it to remove."""
    if action == "delete" or explorer.comments.note(about, target) is not NO_NOTE:
        return
    with explorer.database.connection() as connection:
        found: list[Any] = (messages if about is About.MESSAGE else sessions).by_ids(connection, [target])
    if not found:
        raise InputMissing(f"the lake has no {about} {target[:80]}")
