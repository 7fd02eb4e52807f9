"""Questions: the tools that an agent may call. Each only reads; the server bounds what it answers.

Their docstrings, and the descriptions of their arguments, are what an agent reads about them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from pydantic import Field

from wirelake.explore.bytes.dissect import layers
from wirelake.explore.bytes.read import Place, SourceGone, read
from wirelake.explore.model import findings, messages, sessions
from wirelake.explore.model.bounds import scalars
from wirelake.explore.model.database import Database
from wirelake.explore.model.rows import excerpt, plain
from wirelake.filters import EVERYTHING, FIELDS, parse
from wirelake.lake.tables.catalog import TABLES

__all__ = ["MOST_BYTES", "MOST_ROWS", "Questions"]

MOST_ROWS: Final = 500
"""Rows of one answer at most."""
FEW_ROWS: Final = 50
"""Rows of one answer, unless the caller asks for others."""
BODY_BYTES: Final = 4_096
"""Bytes of a body that the answer about a message has."""
MOST_BYTES: Final = 4_096
"""Bytes of a layer that an answer has."""

_FILTER: Final = (
    "Terms with spaces between them; all must hold. A term is field:value, or a word that is searched in names, subjects, rules and bodies."
    " Also `or`, `not`, -term, parentheses; * is a wildcard, a,b means a or b, numbers and times take > >= < <= a..b, hosts a network;"
    " for instance 'protocol:relink (status:unanswered or latency:>1s) body:*milk* since:10m'. Empty: all messages. Fields: "
    + ", ".join(name for name in FIELDS if name != "number")
    + "; and PROTOCOL.COLUMN, such as emp.request_id"
)
_LIMIT: Final = Field(description="Rows of the answer at most.", ge=1, le=MOST_ROWS)

Limit = Annotated[int, _LIMIT]
FilterText = Annotated[str, Field(description=_FILTER)]


class Questions:
    """Answers questions about one lake, of which it always reads the newest commit."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def search(
        self,
        filter: FilterText = "",  # noqa: A002 - the name that agents see
        limit: Limit = FEW_ROWS,
        after: Annotated[str | None, Field(description="The place `after` of an earlier answer: gives the rows behind it.")] = None,
        newest_first: Annotated[bool, Field(description="Give the newest messages first.")] = False,
    ) -> dict[str, Any]:
        """Search messages by a filter, in order of time.

        Each has its id, session, times in microseconds since 1970, kind, subject, broken rules, and the beginning of its body. `total`
        counts all messages of the filter, `of` all of the lake; `after` is not null if there are more than the answer has.
        """
        wanted = parse(filter)
        place = messages.Place.parse(after) if after else None
        with self._database.connection() as connection:
            page = messages.search(connection, wanted, after=place, limit=limit, newest_first=newest_first)
            total, whole = messages.count(connection, wanted), messages.count(connection, EVERYTHING)
        return {"total": total, "of": whole, "after": page.after, "rows": _plain(page.rows)}

    def session(
        self,
        session_id: Annotated[str, Field(description="The id of a session in hex digits, or the beginning of one.")],
        first: Annotated[int, Field(description="Messages to skip.", ge=0)] = 0,
        limit: Limit = FEW_ROWS,
    ) -> dict[str, Any]:
        """Read one conversation in order: both sides, its messages, and between them events, unreadable bytes and broken rules."""
        with self._database.connection() as connection:
            ladder = sessions.ladder(connection, session_id, first=first, limit=limit)
        return {
            "session": _plain(ladder.session),
            "first": first,
            "total": ladder.total,
            "messages": _plain(ladder.rows),
            "incidents": _plain(ladder.incidents[:MOST_ROWS]),
        }

    def message(
        self, message_id: Annotated[str, Field(description="The id of a message: 32 hex digits, as `search` gives it.")]
    ) -> dict[str, Any]:
        """Read one message with every field of its protocol, its body, its exchanges, and the rules that it breaks."""
        with self._database.connection() as connection:
            found = messages.one(connection, message_id)
        shown = {name: value for name, value in _plain(found).items() if name not in ("body", "body_json")}
        body = found.body or b""
        shown["body"] = found.body_json[:BODY_BYTES] if found.body_json else excerpt(found.body, most=BODY_BYTES)
        return shown | {"body_size": len(body), "body_is_cut": len(body) > BODY_BYTES}

    def bytes(
        self,
        message_id: Annotated[str, Field(description="The id of a message: 32 hex digits, as `search` gives it.")],
        layer: Annotated[str | None, Field(description="Only this layer, such as frame, unpacked, decrypted, JSON or XML.")] = None,
    ) -> dict[str, Any]:
        """Read the bytes of one message from its source file in hex, layer by layer, and which field each byte belongs to."""
        with self._database.connection() as connection:
            found = messages.one(connection, message_id)
        line, frame, note = found.line, None, None
        try:
            frame = read(Place(line.protocol, found.source, found.offset, found.length, line.size, found.own))
        except SourceGone as error:
            note = str(error)
        fields = [] if frame is None else frame.fields
        shown = layers(None if frame is None else frame.data, fields, found.body, encrypted=found.own.get("encryption") is not None)
        return {
            "message": line.id,
            "source": found.source,
            "offset": found.offset,
            "note": note,
            "layers": [
                {
                    "name": one.name,
                    "size": len(one.data),
                    "hex": one.data[:MOST_BYTES].hex(),
                    "fields": [msgspec.structs.asdict(field) for field in one.fields[:MOST_ROWS]],
                }
                for one in shown
                if layer is None or one.name.lower() == layer.lower()
            ],
        }

    def violations(
        self,
        rule: Annotated[
            str | None, Field(description="A rule by name or clause, such as RELINK-22. Without it: all rules, counted.")
        ] = None,
        protocol: Annotated[str | None, Field(description="Only this protocol, such as relink.")] = None,
        limit: Limit = FEW_ROWS,
        offset: Annotated[int, Field(description="Rows to skip.", ge=0)] = 0,
    ) -> dict[str, Any]:
        """List broken rules: all of them with counts and their text, or with `rule` each place where one is broken."""
        with self._database.connection() as connection:
            if rule is None:
                every = [one for one in findings.rules(connection) if protocol in (None, one.protocol)]
                return {"rules": [_explained(one) for one in every[offset : offset + limit]], "total": len(every)}
            found = findings.violations(connection, rule=rule, protocol=protocol, limit=limit, offset=offset)
        return {"violations": _plain(found)}

    def sql(
        self,
        statement: Annotated[
            str,
            Field(
                description=f"One SELECT, DESCRIBE or SHOW in the SQL of DuckDB. Tables: {', '.join(TABLES)}. Ids are hex digits as text."
            ),
        ],
        limit: Limit = FEW_ROWS,
    ) -> dict[str, Any]:
        """Answer SQL over the tables of the lake. It reads nothing else: no files, no network. `DESCRIBE messages` lists columns."""
        with self._database.stream(statement, limit=limit + 1) as answer:
            rows = list(scalars(answer))
        return {"columns": answer.schema.names, "is_cut": len(rows) > limit, "rows": rows[:limit]}


def _plain(value: Any) -> Any:
    """Structs as objects that JSON has."""
    return plain(msgspec.to_builtins(value, builtin_types=(bytes,)))


def _explained(rule: findings.Rule) -> dict[str, Any]:
    """A rule with its text from the rule book."""
    entry = findings.entry(rule.protocol, rule.clause)
    told = {} if entry is None else {"title": entry.title, "rule_text": entry.rule, "why": entry.why}
    return {**_plain(rule), **told}
