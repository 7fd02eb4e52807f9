"""Steps: two sessions side by side, message by message."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.explore.model.conditions import Condition

if TYPE_CHECKING:
    import duckdb

__all__ = ["MOST_STEPS", "Said", "Step", "steps"]

MOST_STEPS: Final = 2_000
"""Messages of a session that are put side by side; of a longer one, the first."""


class Said(msgspec.Struct):
    """A message of a session."""

    id: str
    to_server: bool
    kind: str
    name: str
    subject: str | None
    status: str
    size: int

    def what(self) -> tuple[object, ...]:
        """What makes two messages the same step: not their sizes, ids and times."""
        return (self.to_server, self.kind, self.name, self.subject, self.status)


class Step(msgspec.Struct):
    """The same message on both sides, or one that only one side has."""

    a: Said | None
    b: Said | None


def steps(
    first: duckdb.DuckDBPyConnection, first_where: Condition, second: duckdb.DuckDBPyConnection, second_where: Condition
) -> list[Step]:
    """Align the messages of two sessions."""
    a, b = _said(first, first_where), _said(second, second_where)
    return aligned(a, b)


def aligned(a: Sequence[Said], b: Sequence[Said]) -> list[Step]:
    """Align two lists of messages by the longest runs that they have in common."""
    found: list[Step] = []
    matcher = SequenceMatcher(None, [one.what() for one in a], [one.what() for one in b], autojunk=False)
    for tag, a_start, a_stop, b_start, b_stop in matcher.get_opcodes():
        if tag == "equal":
            found += [Step(*pair) for pair in zip(a[a_start:a_stop], b[b_start:b_stop], strict=True)]
        else:
            found += [Step(one, None) for one in a[a_start:a_stop]] + [Step(None, one) for one in b[b_start:b_stop]]
    return found


def _said(connection: duckdb.DuckDBPyConnection, where: Condition) -> list[Said]:
    sql = f"""
    SELECT lower(hex(m.message_id)), m.direction = 'to_server', m.kind, m.name, m.subject, m.status, m.size
    FROM messages m WHERE {where.sql} ORDER BY m.ts NULLS LAST, m.message_id LIMIT {MOST_STEPS:d}
    """
    return [Said(*row) for row in connection.execute(sql, list(where.values)).fetchall()]
