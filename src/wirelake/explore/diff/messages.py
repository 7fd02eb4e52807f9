"""Messages: compare two messages, field by field and byte by byte."""

from __future__ import annotations

from contextlib import ExitStack
from difflib import SequenceMatcher
from typing import Any, Final

import msgspec

from wirelake.explore.bytes.read import Frame, Place, SourceGone, read
from wirelake.explore.diff.operands import Operand
from wirelake.explore.model import messages
from wirelake.explore.model.database import Database
from wirelake.explore.model.messages import Message

__all__ = ["Field", "MessageDifference", "Range", "compare_messages"]

ALIGNED_BYTES: Final = 2_048
"""Bytes of a message that are aligned; in longer ones, everything between the same beginning and the same end differs."""
_PLACES: Final = frozenset(("id", "ts", "session", "excerpt", "request"))
"""Fields that no two messages share."""


class Field(msgspec.Struct):
    """A field and its value in both messages; None where a message lacks it."""

    name: str
    a: Any
    b: Any


class Range(msgspec.Struct):
    """Bytes that differ, and the fields that they are in."""

    a: tuple[int, int]
    b: tuple[int, int]
    """Start and stop; equal if the side has no such bytes."""
    a_hex: str
    b_hex: str
    fields: list[str]


class MessageDifference(msgspec.Struct):
    """What differs between two messages."""

    a: str
    b: str
    is_different: bool
    """In a field of the message itself, its body or its bytes; not by its time, place or id."""
    fields: list[Field]
    """Fields that differ."""
    same: list[str]
    """Names of fields with the same value."""
    ranges: list[Range] | None
    """None if the bytes of a side cannot be read."""
    notes: list[str]


def compare_messages(one: Operand, other: Operand, *, database: Database | None = None) -> MessageDifference:
    """Compare two messages, each by its id. Raises Missing if a lake has no such message.

    With `database`, both are of its lake, and it is asked.
    """
    found: list[Message] = []
    with ExitStack() as stack:
        for operand in (one, other):
            asked = database or stack.enter_context(Database(operand.lake))
            connection = stack.enter_context(asked.connection())
            found.append(messages.one(connection, operand.message or ""))
    a, b = (_fields(message) for message in found)
    names = list(dict.fromkeys([*a, *b]))
    changed = [Field(name, a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)]
    frames, notes = [], []
    for side, message in zip("AB", found, strict=True):
        try:
            frames.append(_frame(message))
        except SourceGone as error:
            notes.append(f"no bytes of {side}: {error}")
    ranges = _ranges(*frames) if len(frames) == 2 else None
    return MessageDifference(
        str(one), str(other), bool(changed or ranges), changed, [name for name in names if a.get(name) == b.get(name)], ranges, notes
    )


def _fields(message: Message) -> dict[str, Any]:
    """What a message says, by the names that lists and the protocol's table use."""
    line = {name: value for name, value in msgspec.to_builtins(message.line).items() if name not in _PLACES and value is not None}
    line |= {"fault": message.fault, "verified": message.verified, "body": None if message.body is None else message.body.hex()}
    own = {f"{message.line.protocol}.{name}": value for name, value in message.own.items() if name not in _LEADING}
    return {name: value for name, value in (line | own).items() if value is not None}


_LEADING: Final = frozenset(("message_id", "session_id", "connection_id", "ts", "source", "offset", "length", "direction", "observer"))
"""Columns of every protocol's table that say where a message is, and who saw it."""


def _frame(message: Message) -> Frame:
    line = message.line
    return read(Place(line.protocol, message.source, message.offset, message.length, line.size, message.own))


def _ranges(a: Frame, b: Frame) -> list[Range]:
    """The bytes that differ, from the beginning to the end."""
    head = 0
    while head < min(len(a.data), len(b.data)) and a.data[head] == b.data[head]:
        head += 1
    tail = 0
    while tail < min(len(a.data), len(b.data)) - head and a.data[-1 - tail] == b.data[-1 - tail]:
        tail += 1
    inner_a, inner_b = a.data[head : len(a.data) - tail], b.data[head : len(b.data) - tail]
    if not inner_a and not inner_b:
        return []
    if max(len(inner_a), len(inner_b)) > ALIGNED_BYTES:
        pieces = [(0, len(inner_a), 0, len(inner_b))]
    else:
        codes = SequenceMatcher(None, inner_a, inner_b, autojunk=False).get_opcodes()
        pieces = [code[1:] for code in codes if code[0] != "equal"]
    return [_range(a, b, (head + start, head + stop), (head + other, head + end)) for start, stop, other, end in pieces]


def _range(a: Frame, b: Frame, mine: tuple[int, int], theirs: tuple[int, int]) -> Range:
    names: dict[str, None] = {}
    for frame, (start, stop) in ((a, mine), (b, theirs)):
        for field in frame.fields:
            if field.start < max(stop, start + 1) and start < field.stop:
                names[f"{field.group.partition(':')[0]} {field.name}".strip()] = None
    return Range(mine, theirs, a.data[slice(*mine)].hex(), b.data[slice(*theirs)].hex(), list(names))
