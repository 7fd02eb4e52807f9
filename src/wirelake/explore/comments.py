"""Comments: marks and comments on messages and sessions, kept in one file beside the lake's tables.

No ingest reads or changes the file. Every change holds a lock of its own, reads the file, and replaces it atomically. So several writers
lose nothing, and readers see the file before or after a change. `wirelake forget` removes comments of what it removes.
"""

from __future__ import annotations

import fcntl
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.errors import LakeError, UsageError
from wirelake.lake.store import journal
from wirelake.lake.store.folder import lake_folder

if TYPE_CHECKING:
    from wirelake.explore.export import incident

__all__ = [
    "MARKS",
    "MAX_CHARACTERS",
    "MAX_COMMENTS",
    "NO_NOTE",
    "About",
    "Comment",
    "Comments",
    "Note",
    "Notes",
    "incident_comments",
    "prune",
]

FILE: Final = "comments.json"
"""The file, in the folder of the lake's own records."""
VERSION: Final = 1
"""Version of the file's layout."""
MARKS: Final = ("important", "question", "cause", "explained")
"""Marks that a message or a session may have."""
MAX_CHARACTERS: Final = 4000
"""Characters of one comment."""
MAX_COMMENTS: Final = 10_000
"""Marks and comments of one lake together: all are read for every page."""
_ID_DIGITS: Final = 32
_HEX: Final = frozenset("0123456789abcdef")


class About(StrEnum):
    """What a note is about."""

    MESSAGE = "message"
    SESSION = "session"


class Comment(msgspec.Struct, frozen=True):
    """One comment."""

    id: str
    ts: int
    """When it was written, in microseconds since 1970."""
    text: str


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """The mark and the comments of one message or session."""

    mark: str | None = None
    comments: tuple[Comment, ...] = ()

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return self.mark is not None or bool(self.comments)


NO_NOTE: Final = Note()
"""The note of what nobody marked."""


class Notes(msgspec.Struct, frozen=True):
    """All notes of a lake, by the id of what they are about, in hex digits."""

    version: int = VERSION
    message: dict[str, Note] = {}
    session: dict[str, Note] = {}

    def of(self, about: About) -> dict[str, Note]:
        """Return the notes about messages, or those about sessions."""
        return self.message if about is About.MESSAGE else self.session

    def __len__(self) -> int:
        """Count marks and comments."""
        return sum((note.mark is not None) + len(note.comments) for notes in (self.message, self.session) for note in notes.values())


class Comments:
    """The notes of a lake. Threads may share it."""

    def __init__(self, lake: str | PathLike[str]) -> None:
        self._lake = lake_folder(lake)
        self._lock = threading.Lock()
        self._known: tuple[object, Notes] = (None, Notes())

    @property
    def _path(self) -> Path:
        return self._lake / journal.FOLDER / FILE

    def read(self) -> Notes:
        """Return all notes. Raises LakeError if the file is damaged, or of a newer version."""
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return Notes()
        key = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        with self._lock:
            if self._known[0] == key:
                return self._known[1]
        notes = self._load()
        with self._lock:
            self._known = (key, notes)
        return notes

    def note(self, about: About, target: str) -> Note:
        """Return the note about a message or a session; an empty one if there is none."""
        return self.read().of(about).get(target, NO_NOTE)

    def mark(self, about: About, target: str, mark: str | None) -> Note:
        """Set or remove a mark. Raises UsageError if there is no such mark."""
        if mark is not None and mark not in MARKS:
            raise UsageError(f"mark {mark[:40]!r}: choose one of {', '.join(MARKS)}")
        return self._change(about, target, lambda note: msgspec.structs.replace(note, mark=mark))

    def add(self, about: About, target: str, text: str) -> Note:
        """Add a comment. Raises UsageError if it has no text or too much."""
        text = text.replace("\r\n", "\n").strip()
        if not text:
            raise UsageError("the comment is empty: write some text")
        if len(text) > MAX_CHARACTERS:
            raise UsageError(f"the comment has {len(text)} characters: write at most {MAX_CHARACTERS}")
        comment = Comment(secrets.token_hex(8), time.time_ns() // 1000, text)
        return self._change(about, target, lambda note: msgspec.structs.replace(note, comments=(*note.comments, comment)))

    def remove(self, about: About, target: str, comment: str) -> Note:
        """Remove a comment, if it is there."""
        return self._change(
            about,
            target,
            lambda note: msgspec.structs.replace(note, comments=tuple(each for each in note.comments if each.id != comment)),
        )

    def keep(self, is_kept: Callable[[About, str], bool]) -> int:
        """Remove all notes but those that a function keeps; returns how many were removed."""
        with self._writing():
            notes = self._load()
            kept = {about.value: {target: note for target, note in notes.of(about).items() if is_kept(about, target)} for about in About}
            removed = sum(len(notes.of(about)) - len(kept[about.value]) for about in About)
            if removed:
                self._save(kept)
            return removed

    def _change(self, about: About, target: str, change: Callable[[Note], Note]) -> Note:
        if len(target) != _ID_DIGITS or not _HEX.issuperset(target):
            raise UsageError(f"{about} {target[:80]!r}: an id is {_ID_DIGITS} hex digits")
        with self._writing():
            notes = self._load()
            before = notes.of(about).get(target, NO_NOTE)
            after = change(before)
            if len(notes) >= MAX_COMMENTS and len(after.comments) + (after.mark is not None) > len(before.comments) + (
                before.mark is not None
            ):
                raise UsageError(f"the lake has {len(notes)} marks and comments: remove some before you add more")
            changed = {kind.value: dict(notes.of(kind)) for kind in About}
            changed[about.value].pop(target, None)
            if after:
                changed[about.value][target] = after
            self._save(changed)
            return after

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the lock of the file; other processes wait for it. Raises LakeError if the lake cannot be written."""
        try:
            with (self._lake / journal.FOLDER / f"{FILE}.lock").open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise LakeError(f"{self._lake}: comments cannot be written: {error.strerror}") from error

    def _load(self) -> Notes:
        content = journal.read(self._lake, FILE)
        try:
            notes = Notes() if content is None else msgspec.json.decode(content, type=Notes)
        except msgspec.DecodeError as error:
            raise LakeError(f"{self._path} is damaged: {error}; move it away to go on without its comments") from error
        if notes.version > VERSION:
            raise LakeError(f"{self._path} was written by a newer wirelake: upgrade wirelake to read its comments")
        return notes

    def _save(self, notes: Mapping[str, dict[str, Note]]) -> None:
        content = msgspec.json.format(msgspec.json.encode(Notes(message=notes["message"], session=notes["session"])))
        journal.write(self._lake, FILE, content + b"\n")


def prune(lake: str | PathLike[str]) -> int:
    """Remove notes about messages and sessions that the lake does not have any more; returns how many."""
    from wirelake.explore.query import opened  # noqa: PLC0415 - brings DuckDB

    comments = Comments(lake)
    notes = comments.read()
    if not notes.message and not notes.session:
        return 0
    there: set[tuple[About, str]] = set()
    with opened(lake) as connection:
        for about, sql in (
            (About.MESSAGE, "SELECT lower(hex(message_id)) FROM messages WHERE message_id IN (SELECT unhex(unnest(?)))"),
            (About.SESSION, "SELECT lower(hex(session_id)) FROM sessions WHERE session_id IN (SELECT unhex(unnest(?)))"),
        ):
            there |= {(about, row[0]) for row in connection.execute(sql, [list(notes.of(about))]).fetchall()}
    asked = {(about, target) for about in About for target in notes.of(about)}
    return comments.keep(lambda about, target: (about, target) in there or (about, target) not in asked)


def incident_comments(notes: Notes) -> tuple[incident.Comment, ...]:
    """Return marks and comments as an exported incident has them."""
    from wirelake.explore.export import incident  # noqa: PLC0415 - brings DuckDB

    found: list[incident.Comment] = []
    for target, note in (*notes.message.items(), *notes.session.items()):
        if note.mark is not None:
            found.append(incident.Comment(target, note.mark))
        found += [incident.Comment(target, comment.text, ts=comment.ts) for comment in note.comments]
    return tuple(found)
