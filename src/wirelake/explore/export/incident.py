"""Incident: selected messages as one HTML file, for people without the lake.

It has a ladder for each session, every field of each message, its bytes where the source is there, broken rules with their text, and
comments. The file loads nothing and runs nothing: its content security policy allows one style sheet, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec

from wirelake import __version__
from wirelake.errors import UsageError
from wirelake.explore.bytes.read import Place, SourceGone, read
from wirelake.explore.export.selection import broken_in, protocols_in, tables
from wirelake.explore.formatting import count, duration, hex_dump, many, moment, size
from wirelake.explore.markup import Markup, anchor, element, join, link, trusted
from wirelake.explore.model import findings, messages, sessions
from wirelake.explore.model.conditions import Condition, all_of
from wirelake.explore.model.messages import Line
from wirelake.explore.model.rows import Missing, excerpt, plain
from wirelake.explore.model.sessions import Incident, Session
from wirelake.filters import Filter
from wirelake.rulebook.book import explain_command

if TYPE_CHECKING:
    import duckdb
from wirelake.lake.tables.severities import GRAVITY

__all__ = ["MOST_MESSAGES", "Comment", "IncidentOptions", "write_html"]

MOST_MESSAGES: Final = 10_000
"""Messages of an incident: browsers are slow with many more."""
SHOWN_BYTES: Final = 4096
"""Bytes of a message or a body that are shown."""
_PAUSES: Final = 20
"""A pause is drawn if it is so many times the median."""
_LEAST_PAUSE: Final = 2_000
"""Microseconds without a message that are drawn at least."""
_HIDDEN: Final = frozenset(("body", "body_json", "message_id", "protocol", "from", "to", "rules", "clauses", "latency_us"))
"""Columns that are shown elsewhere."""


class Comment(msgspec.Struct, frozen=True):
    """A comment of a person about a message or a session."""

    about: str
    """The id of the message or session, in hex digits."""
    text: str
    author: str = ""
    ts: int | None = None
    """Microseconds since 1970."""


class IncidentOptions(msgspec.Struct, frozen=True):
    """What an incident has beside the messages."""

    title: str = ""
    comments: tuple[Comment, ...] = ()
    most: int = MOST_MESSAGES
    """Messages at most; more are an error."""
    with_bytes: bool = True
    """Whether bytes are read from the sources."""


class _Rule(msgspec.Struct):
    protocol: str
    rule: str
    clause: str | None
    severity: str
    text: str
    number: int


def write_html(connection: duckdb.DuckDBPyConnection, wanted: Filter, where: Condition, out: BinaryIO, options: IncidentOptions) -> int:
    """Write the messages of a condition as HTML. Returns their number. Raises UsageError if they are too many."""
    total = messages.count(connection, wanted)
    if total > options.most:
        raise UsageError(
            f"the selection has {count(total)} messages, an HTML file has at most {count(options.most)}:"
            " narrow the filter, or choose another format"
        )
    for part in _document(connection, wanted, where, total, options):
        out.write(part.encode("utf-8", "backslashreplace"))
    return total


def _document(
    connection: duckdb.DuckDBPyConnection, wanted: Filter, where: Condition, total: int, options: IncidentOptions
) -> Iterator[str]:
    style = resources.files("wirelake.explore.export").joinpath("incident.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    title = options.title or "Incident"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=f"default-src 'none'; style-src 'sha256-{digest}'"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{title} · Wirelake incident"),
        element("style", trusted(style)),
    )
    yield f'<!DOCTYPE html>\n<html lang="en">{head}<body>\n'
    yield element("header", element("p", "Wirelake incident", class_="over"), element("h1", title), _lead(connection, wanted, where, total))
    yield "<main>\n"
    yield _comments("Comments", _unplaced(connection, where, options.comments))
    yield from _rules(connection, where)
    for session_id, number in _sessions(connection, where):
        yield from _session(connection, where, session_id, number, options)
    yield "</main>\n"
    yield element("footer", f"Made by wirelake {__version__}. Times are UTC. Fields are shown as they were sent.")
    yield "</body></html>\n"


def _lead(connection: duckdb.DuckDBPyConnection, wanted: Filter, where: Condition, total: int) -> Markup:
    row = connection.execute(
        f"SELECT epoch_us(min(m.ts)), epoch_us(max(m.ts)), count(DISTINCT m.session_id) FROM messages m WHERE {where.sql}",
        list(where.values),
    ).fetchone()
    first, last, number = row or (None, None, 0)
    when = "" if first is None else f", {moment(first)} to {moment(last)} UTC"
    chosen = element("p", "Filter: ", element("code", str(wanted))) if wanted else element("p", "All messages of the lake.")
    return join([element("p", f"{many(total, 'message')} in {many(number, 'session')}{when}.", class_="lead"), chosen])


def _comments(title: str, some: Iterable[Comment]) -> Markup:
    items = [
        element(
            "li",
            element("p", one.text),
            element("p", " · ".join(filter(None, [one.author, "" if one.ts is None else f"{moment(one.ts)} UTC"])), class_="dim"),
        )
        for one in some
    ]
    if not items:
        return Markup()
    return element("section", element("h2", title), element("ul", items), class_="comments")


def _unplaced(connection: duckdb.DuckDBPyConnection, where: Condition, some: tuple[Comment, ...]) -> list[Comment]:
    """Comments that are about no session and no message of the selection, such as one about the whole."""
    if not some:
        return []
    ids = [one.about.lower() for one in some]
    rows = connection.execute(
        "SELECT DISTINCT unnest([lower(hex(m.message_id)), lower(hex(m.session_id))]) FROM messages m"
        f" WHERE {where.sql} AND (lower(hex(m.message_id)) IN (SELECT unnest(?)) OR lower(hex(m.session_id)) IN (SELECT unnest(?)))",
        [*where.values, ids, ids],
    ).fetchall()
    placed = {name for (name,) in rows}
    return [one for one in some if not one.about] + [one for one in some if one.about and one.about.lower() not in placed]


def _rules(connection: duckdb.DuckDBPyConnection, where: Condition) -> Iterator[str]:
    """The rules that are broken in the selection, with their text."""
    broken = broken_in(where)
    found = connection.execute(
        "SELECT v.protocol, v.rule, v.clause, v.severity, any_value(v.text), count(*) FROM violations v"
        f" WHERE {broken.sql} GROUP BY v.protocol, v.rule, v.clause, v.severity"
        f" ORDER BY {GRAVITY}, count(*) DESC, v.protocol, v.rule",
        list(broken.values),
    ).fetchall()
    if not found:
        yield element("section", element("h2", "Broken rules"), element("p", "None: no selected message breaks a rule."))
        return
    yield element("section", element("h2", "Broken rules"), [_rule(_Rule(*row)) for row in found])


def _rule(rule: _Rule) -> Markup:
    entry = findings.entry(rule.protocol, rule.clause)
    told = [] if entry is None else [element("p", entry.rule.replace("`", "")), element("p", entry.why.replace("`", ""), class_="dim")]
    return element(
        "article",
        element(
            "h3",
            f"{rule.clause or ''} {rule.rule} ",
            element("span", rule.severity, class_=f"pill {rule.severity}"),
            element("span", f" {many(rule.number, 'time')}, {rule.protocol}", class_="dim"),
        ),
        element("p", element("strong", rule.text)),
        told,
        element("p", element("code", explain_command(rule.protocol, rule.rule, rule.clause)), class_="dim"),
        id=anchor("rule", rule.protocol, rule.rule),
    )


def _sessions(connection: duckdb.DuckDBPyConnection, where: Condition) -> list[tuple[bytes | None, int]]:
    return connection.execute(
        f"SELECT m.session_id, count(*) FROM messages m WHERE {where.sql} GROUP BY m.session_id"
        " ORDER BY min(m.ts) NULLS LAST, m.session_id",
        list(where.values),
    ).fetchall()


def _session(
    connection: duckdb.DuckDBPyConnection, where: Condition, session_id: bytes | None, number: int, options: IncidentOptions
) -> Iterator[str]:
    """The ladder of one session: its selected messages, and what happened between them."""
    mine = Condition("m.session_id = ?", (session_id,)) if session_id is not None else Condition("m.session_id IS NULL")
    chosen = all_of([where, mine])
    lines = {line.id: line for line in messages.lines(connection, chosen, limit=options.most)}
    times = [line.ts for line in lines.values() if line.ts is not None]
    named = None if session_id is None else session_id.hex()
    session = _known(connection, named)
    last = None if session is not None and session.messages == number else max(times, default=None)  # a whole session has its end, too
    happened = [] if session_id is None or not times else sessions.incidents(connection, session_id, min(times), last)
    yield f'<section id="{anchor("session", named or "none")}">\n'
    yield _session_head(session, named, lines, number)
    yield _comments("Comments on this session", [one for one in options.comments if named and one.about.lower() == named])
    yield '<ol class="ladder">\n'
    pauses = sorted(after - before for before, after in itertools.pairwise(times))
    least = max(_LEAST_PAUSE, _PAUSES * pauses[len(pauses) // 2]) if pauses else _LEAST_PAUSE
    waiting, begin, before = list(happened), min(times, default=0), None
    for row in _rows(connection, chosen):
        line = lines[row["message_id"].hex()]
        while waiting and waiting[0].ts is not None and line.ts is not None and waiting[0].ts < line.ts:
            yield _incident(waiting.pop(0), begin)
        if before is not None and line.ts is not None and line.ts - before >= least:
            yield element("li", f"{duration(line.ts - before)} of silence", class_="pause")
        before = line.ts if line.ts is not None else before
        yield _message(line, row, begin, options)
    yield from (_incident(one, begin) for one in waiting)
    yield "</ol></section>\n"


def _known(connection: duckdb.DuckDBPyConnection, session_id: str | None) -> Session | None:
    try:
        return None if session_id is None else sessions.find(connection, session_id)
    except Missing:  # gold tables are older than the messages
        return None


def _session_head(session: Session | None, named: str | None, lines: dict[str, Line], number: int) -> Markup:
    some = next(iter(lines.values()), None)
    if session is None:
        ends = "" if some is None else f"{some.sender or '?'} and {some.receiver or '?'}"
        return join([element("h2", f"Session {named or 'unknown'}"), element("p", f"{many(number, 'message')}, {ends}")])
    shown = f"{many(number, 'message')} of {count(session.messages)}"
    how = f", ended: {session.ended_how}{f' by the {session.ended_by}' if session.ended_by else ''}" if session.ended_how else ""
    return join(
        [
            element("h2", f"{session.protocol}: {session.client} and {session.server or 'many'}"),
            element("p", f"{shown}{how}. Session ", element("code", session.id), f" over {session.transport or 'unknown'}.", class_="dim"),
            element("p", element("span", session.client), element("span", session.server or "receivers"), class_="lanes"),
        ]
    )


def _rows(connection: duckdb.DuckDBPyConnection, chosen: Condition) -> Iterator[dict[str, Any]]:
    for table in tables(connection, chosen, protocols_in(connection, chosen)):
        for batch in table.to_batches(max_chunksize=500):
            yield from batch.to_pylist()


def _incident(one: Incident, begin: int) -> Markup:
    clock = "" if one.ts is None else f"+{duration(one.ts - begin)}"
    what = {"violation": f"{one.clause or ''} {one.name}: {one.text}", "unreadable": f"{size(one.size)} unreadable: {one.name}"}
    return element(
        "li",
        element("span", clock, class_="clock"),
        element("span", what.get(one.type, one.text), class_="event"),
        class_=f"between {one.type}",
    )


def _message(line: Line, row: dict[str, Any], begin: int, options: IncidentOptions) -> Markup:
    clock = "" if line.ts is None else f"+{duration(line.ts - begin)}"
    marks = [link(anchor("rule", line.protocol, rule.rpartition(" ")[2]), rule) for rule in line.rules]
    if line.answer not in (None, "answered", "confirmed"):
        marks.append(element("span", str(line.answer), class_="pill"))
    if line.latency_us is not None:
        marks.append(element("span", duration(line.latency_us), class_="dim"))
    label = element("span", line.name, f" {line.subject}" if line.subject else "", class_="arrow")
    classes = f"{'to-server' if line.to_server else 'to-client'}{f' {line.severity}' if line.severity else ''}"
    summary = element("summary", element("span", clock, class_="clock"), label, element("span", join(marks), class_="marks"))
    about = [one for one in options.comments if one.about.lower() == line.id]
    return element(
        "li",
        element("details", summary, _comments("Comments", about), _fields(line, row), _body(row), _bytes(line, row, options)),
        class_=classes,
        id=anchor("message", line.id),
    )


def _fields(line: Line, row: dict[str, Any]) -> Markup:
    """Every field that has a value; those of the protocol last."""
    own = {f"{line.protocol}.{name}": value for name, value in (row.get(line.protocol) or {}).items()}
    shown: dict[str, Any] = {"message": line.id, "from": line.sender, "to": line.receiver}
    shown |= {name: value for name, value in row.items() if name not in _HIDDEN and not isinstance(value, dict)}
    pairs = ((name, plain(value)) for name, value in (shown | own).items() if value is not None and name != f"{line.protocol}.body")
    return element("table", (element("tr", element("th", name, scope="row"), element("td", _value(value))) for name, value in pairs))


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= SHOWN_BYTES else f"{text[:SHOWN_BYTES]}…"


def _body(row: dict[str, Any]) -> Markup:
    if not row["body"]:
        return Markup()
    text = row["body_json"] or excerpt(row["body"], most=SHOWN_BYTES) or ""
    rest = len(row["body"]) - SHOWN_BYTES
    more = element("p", f"… {size(rest)} more", class_="dim") if rest > 0 else Markup()
    return join([element("h4", "Body"), element("pre", text[:SHOWN_BYTES]), more])


def _bytes(line: Line, row: dict[str, Any], options: IncidentOptions) -> Markup:
    """The bytes of a message, if they are in one piece of a source that is still there."""
    if not options.with_bytes:
        return Markup()
    own = {name: plain(value) for name, value in (row.get(line.protocol) or {}).items()}
    try:
        frame = read(Place(line.protocol, row["source"], row["offset"], row["length"], line.size, own), search_bytes=0)
    except SourceGone as reason:
        return element("p", f"No bytes: {reason}.", class_="dim")
    more = element("p", f"… {size(len(frame.data) - SHOWN_BYTES)} more", class_="dim") if len(frame.data) > SHOWN_BYTES else Markup()
    return join([element("h4", f"Bytes ({count(len(frame.data))})"), element("pre", hex_dump(frame.data[:SHOWN_BYTES])), more])
