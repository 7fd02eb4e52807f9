"""Pages: one function for each, which asks the model and names its template."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request

from wirelake.errors import QueryError, WirelakeError
from wirelake.explore.bytes.dissect import layers
from wirelake.explore.bytes.layout import Layer
from wirelake.explore.bytes.read import Place, SourceGone, read
from wirelake.explore.comments import About
from wirelake.explore.model import exchanges, findings, messages, observers, overview, sessions, timeline
from wirelake.explore.model.bounds import Bounds, Copy, scalars
from wirelake.explore.web import drawings
from wirelake.explore.web.comment_pages import list_comments
from wirelake.explore.web.diff_pages import show_diff
from wirelake.explore.web.explorer import Explorer, View, choice, number, wanted
from wirelake.explore.web.export_pages import list_exports, menu
from wirelake.filters import EVERYTHING, Filter, parse

if TYPE_CHECKING:
    import duckdb

__all__ = ["COSTLY", "DATA", "NAVIGATION", "ROUTES", "prepare"]

MAX_PAGE: Final = 1000
"""Rows of a page at most."""
MAX_OFFSET: Final = 10_000_000
"""Rows that may be skipped at most."""
SEARCH_SECONDS: Final = 0.8
"""Seconds after which a list gets the messages that were found so far; it asks for more by itself."""
SQL_ROWS: Final = 1000
"""Rows of an answer to SQL."""
SQL_BOUNDS: Final = Bounds(characters=4_000_000, value_characters=2_000, notes=5)
"""The largest answer to SQL."""
SHOWN_BYTES: Final = 1 << 20
"""Bytes of a layer that a page gets."""
TRANSCRIPT_ROWS: Final = 300
"""Messages of one page of a transcript."""
_ATTENTION: Final = ("error", "tolerated")

NAVIGATION: Final = (
    ("/", "Overview"),
    ("/messages", "Messages"),
    ("/sessions", "Sessions"),
    ("/exchanges", "Exchanges"),
    ("/violations", "Violations"),
    ("/security", "Security"),
    ("/topology", "Topology"),
    ("/files", "Files"),
    ("/quarantine", "Quarantine"),
    ("/runs", "Runs"),
    ("/sql", "SQL"),
    ("/diff", "Diff"),
    ("/comments", "Comments"),
)
"""Path and title of the pages that every page links to."""


def show_overview(explorer: Explorer, request: Request) -> View:
    """Counts, traffic over time, and what needs attention."""
    del request
    return View("overview.html", explorer.cached("overview", make=_overview))


def _overview(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    return {
        "sums": overview.sums(connection),
        "rules": [rule for rule in findings.rules(connection) if rule.severity in _ATTENTION][:8],
        "slowest": exchanges.search(connection, order="slowest", limit=5, with_bodies=False),
        "busiest": sessions.search(connection, order="messages", limit=5),
        "runs": overview.runs(connection, limit=1),
    }


def prepare(explorer: Explorer) -> None:
    """Compute what the first page shows, before it is asked for."""
    with contextlib.suppress(WirelakeError):  # the page says what is wrong
        explorer.cached("overview", make=_overview)
        explorer.cached(*_histogram_key(timeline.BUCKETS, EVERYTHING), make=lambda connection: timeline.histogram(connection, EVERYTHING))


def show_messages(explorer: Explorer, request: Request) -> View:
    """A page of messages by filter; `after` is the place where it begins."""
    chosen, after = wanted(request), request.query_params.get("after")
    is_newest = choice(request, "order", ("oldest", "newest")) == "newest"
    place = messages.Place.parse(after) if after else None
    limit = number(request, "limit", messages.PAGE_ROWS, most=MAX_PAGE, least=1)
    page = explorer.cached(
        "messages",
        is_newest,
        after,
        limit,
        *_key(chosen),
        make=lambda connection: messages.search(
            connection, chosen, after=place, limit=limit, newest_first=is_newest, seconds=SEARCH_SECONDS
        ),
    )
    explorer.annotate(About.MESSAGE, page.rows)
    whole = None if page.rows else explorer.cached("whole", make=lambda connection: messages.count(connection, EVERYTHING))
    return View("messages.html", page, {"tokens": _tokens(chosen), "exports": menu(explorer, chosen), "whole": whole})


def count_messages(explorer: Explorer, request: Request) -> View:
    """How many messages a filter lets through, of how many, and the number of the commit that was counted."""
    number_of, found = _histogram(explorer, request)
    return View("", {"count": found.total + found.untimed, "of": found.whole, "number": number_of})


def show_histogram(explorer: Explorer, request: Request) -> View:
    """Messages over time by filter."""
    return View("", _histogram(explorer, request)[1])


def _histogram(explorer: Explorer, request: Request) -> tuple[int, timeline.Histogram]:
    """Count once for the histogram and for the sum."""
    chosen = wanted(request)
    bars = number(request, "bars", timeline.BUCKETS, most=1000, least=1)
    return explorer.answers.get(_histogram_key(bars, chosen), lambda connection: timeline.histogram(connection, chosen, buckets=bars))


def _histogram_key(bars: int, chosen: Filter) -> tuple[object, ...]:
    return ("histogram", bars, *_key(chosen))


def _key(chosen: Filter) -> tuple[object, ...]:
    """What an answer depends on. Ages count back from now: such an answer is new every second."""
    is_timed = any(term.field in ("since", "until") for term in chosen.every_term())
    return (str(chosen), int(time.time()) if is_timed else 0)


def _tokens(chosen: Filter) -> list[dict[str, str]]:
    """The terms of a filter, each with the filter that is left without it."""
    terms = chosen.terms
    return [{"term": str(term), "rest": str(chosen._replace(terms=terms[:at] + terms[at + 1 :]))} for at, term in enumerate(terms)]


class Bytes(msgspec.Struct):
    """One layer of a message, for a page."""

    name: str
    size: int
    hex: str
    """At most `SHOWN_BYTES` of it."""
    fields: list[dict[str, Any]]
    text: str | None
    syntax: str | None

    @staticmethod
    def of(layer: Layer) -> Bytes:
        """Make one of a layer."""
        fields = [msgspec.structs.asdict(field) for field in layer.fields]
        return Bytes(layer.name, len(layer.data), layer.data[:SHOWN_BYTES].hex(), fields, layer.text, layer.syntax)


def show_message(explorer: Explorer, request: Request) -> View:
    """One message: its fields and its bytes."""
    with explorer.database.connection() as connection:
        found = messages.one(connection, request.path_params["id"])
    line, gone, frame = found.line, None, None
    try:
        frame = read(Place(line.protocol, found.source, found.offset, found.length, line.size, found.own))
    except SourceGone as error:
        gone = str(error)
    is_encrypted = bool(found.own.get("encryption"))
    shown = layers(None if frame is None else frame.data, [] if frame is None else frame.fields, found.body, encrypted=is_encrypted)
    own = {name: value for name, value in found.own.items() if value is not None and value != []}
    data = (
        msgspec.structs.asdict(found)
        | {
            "body": None if found.body is None else found.body[:SHOWN_BYTES].hex(),
            "own": own,
            "layers": [Bytes.of(layer) for layer in shown],
            "gone": gone,
            "is_contiguous": frame is not None and frame.is_contiguous,
        }
        | explorer.note(About.MESSAGE, line.id)
    )
    return View("message.html", data)


def list_sessions(explorer: Explorer, request: Request) -> View:
    """Sessions in an order."""
    order = choice(request, "order", tuple(sessions.ORDERS))
    offset = number(request, "offset", 0, most=MAX_OFFSET)
    limit = number(request, "limit", sessions.SESSION_ROWS, most=MAX_PAGE, least=1)
    with explorer.database.connection() as connection:
        rows = sessions.search(connection, protocol=request.query_params.get("protocol"), order=order, limit=limit + 1, offset=offset)
    explorer.annotate(About.SESSION, rows)
    more = {"orders": tuple(sessions.ORDERS), "order": order, "offset": offset, "limit": limit, "has_more": len(rows) > limit}
    return View("sessions.html", {"rows": rows[:limit]}, more)


def show_session(explorer: Explorer, request: Request) -> View:
    """One session: the page around its ladder, or its transcript."""
    view = choice(request, "view", ("ladder", "transcript"))
    with explorer.database.connection() as connection:
        session = sessions.find(connection, request.path_params["id"])
        data = {"session": session, "observers": observers.compared(connection, session)} | explorer.note(About.SESSION, session.id)
        explorer.annotate(About.SESSION, [session])
        exports = menu(explorer, f"session:{session.id}")
        if view == "ladder":
            return View("session.html", data, {"view": view, "exports": exports})
        side = choice(request, "side", ("both", "client", "server"))
        first = number(request, "first", 0, most=MAX_OFFSET)
        found = sessions.ladder(connection, session.id, first=first, limit=TRANSCRIPT_ROWS)
    explorer.annotate(About.MESSAGE, found.rows)
    rows = [row for row in found.rows if side == "both" or row.to_server == (side == "client")]
    more = {"view": view, "exports": exports, "side": side, "first": first, "step": TRANSCRIPT_ROWS, "total": found.total}
    return View("transcript.html", data | {"rows": rows, "incidents": found.incidents}, more)


def show_ladder(explorer: Explorer, request: Request) -> View:
    """A window of a session, for its ladder."""
    first = number(request, "first", 0, most=MAX_OFFSET)
    limit = number(request, "limit", sessions.LADDER_ROWS, most=sessions.LADDER_ROWS, least=1)
    with explorer.database.connection() as connection:
        found = sessions.ladder(connection, request.path_params["id"], first=first, limit=limit)
    explorer.annotate(About.MESSAGE, found.rows)
    explorer.annotate(About.SESSION, [found.session])
    return View("", found)


def list_exchanges(explorer: Explorer, request: Request) -> View:
    """Requests and answers side by side."""
    order = choice(request, "order", tuple(exchanges.ORDERS))
    offset = number(request, "offset", 0, most=MAX_OFFSET)
    limit = number(request, "limit", exchanges.EXCHANGE_ROWS, most=MAX_PAGE, least=1)
    status, chosen = request.query_params.get("status"), wanted(request)
    with explorer.database.connection() as connection:
        rows = exchanges.search(connection, chosen, status=status, order=order, limit=limit + 1, offset=offset)
    counts = explorer.cached("exchanges", make=exchanges.counts)
    more = {"order": order, "orders": tuple(exchanges.ORDERS), "offset": offset, "limit": limit, "has_more": len(rows) > limit}
    return View(
        "exchanges.html",
        {"rows": rows[:limit], "counts": counts},
        more | {"status": status, "tokens": _tokens(chosen), "exports": menu(explorer, _answered(chosen, status))},
    )


def _answered(chosen: Filter, status: str | None) -> str:
    """The filter of the messages of exchanges with a status."""
    known = ("late", "unasked", "unanswered", "killed", "answered", "confirmed")
    more = parse(f"status:{status}").terms if status in known else ()
    return str(chosen._replace(terms=(*chosen.terms, *more)))


def list_violations(explorer: Explorer, request: Request) -> View:
    """Broken rules: all rules, or the places where one was broken."""
    rule, protocol = request.query_params.get("rule"), request.query_params.get("protocol")
    offset = number(request, "offset", 0, most=MAX_OFFSET)
    with explorer.database.connection() as connection:
        rules = findings.rules(connection)
        rows = findings.violations(connection, rule=rule, protocol=protocol, limit=findings.FINDING_ROWS + 1, offset=offset)
    more = {
        "rule": rule,
        "protocol": protocol,
        "offset": offset,
        "limit": findings.FINDING_ROWS,
        "has_more": len(rows) > findings.FINDING_ROWS,
    }
    chosen = {(one.protocol, one.clause) for one in rules if rule in (one.rule, one.clause) and protocol in (None, one.protocol)}
    entries = [found for found in (findings.entry(*one) for one in sorted(chosen, key=str)) if found is not None]
    return View("violations.html", {"rules": rules, "rows": rows[: findings.FINDING_ROWS], "entries": entries}, more)


def list_security(explorer: Explorer, request: Request) -> View:
    """Security findings."""
    threat = request.query_params.get("threat")
    offset = number(request, "offset", 0, most=MAX_OFFSET)
    with explorer.database.connection() as connection:
        rows = findings.security(connection, threat=threat, limit=findings.FINDING_ROWS + 1, offset=offset)
    counts = explorer.cached("threats", make=findings.threats)
    more = {"threat": threat, "offset": offset, "limit": findings.FINDING_ROWS, "has_more": len(rows) > findings.FINDING_ROWS}
    return View("security.html", {"counts": counts, "rows": rows[: findings.FINDING_ROWS]}, more)


def list_quarantine(explorer: Explorer, request: Request) -> View:
    """Bytes that are no message."""
    offset = number(request, "offset", 0, most=MAX_OFFSET)
    with explorer.database.connection() as connection:
        rows = findings.quarantine(connection, limit=findings.FINDING_ROWS + 1, offset=offset)
    shown = [msgspec.structs.asdict(row) | {"raw": row.raw.hex()} for row in rows[: findings.FINDING_ROWS]]
    more = {"offset": offset, "limit": findings.FINDING_ROWS, "has_more": len(rows) > findings.FINDING_ROWS}
    return View("quarantine.html", {"rows": shown}, more)


def list_files(explorer: Explorer, request: Request) -> View:
    """Files, and what their bytes are."""
    offset = number(request, "offset", 0, most=MAX_OFFSET)
    with explorer.database.connection() as connection:
        rows = overview.sources(connection, limit=overview.SOURCE_ROWS + 1, offset=offset)
    shown = rows[: overview.SOURCE_ROWS]
    more = {"bars": {row.id: drawings.shares(row.bytes, row.size) for row in shown}, "categories": drawings.CATEGORIES}
    return View("files.html", {"rows": shown}, more | {"offset": offset, "limit": overview.SOURCE_ROWS, "has_more": len(rows) > len(shown)})


def show_file(explorer: Explorer, request: Request) -> View:
    """The ledger of one file."""
    with explorer.database.connection() as connection:
        source, parts = overview.source(connection, request.path_params["id"])
    more = {"bar": drawings.shares(source.bytes, source.size), "categories": drawings.CATEGORIES}
    return View("file.html", {"source": source, "parts": parts}, more | {"ranges": drawings.ranges(parts, source.size)})


def list_runs(explorer: Explorer, request: Request) -> View:
    """The log of runs."""
    del request
    with explorer.database.connection() as connection:
        return View("runs.html", {"rows": overview.runs(connection)})


def show_topology(explorer: Explorer, request: Request) -> View:
    """Which peers exchange messages."""
    del request
    with explorer.database.connection() as connection:
        edges = overview.topology(connection)
    return View("topology.html", {"edges": edges}, {"graph": drawings.graph(edges)})


def show_sql(explorer: Explorer, request: Request) -> View:
    """SQL over the lake's tables."""
    sql = request.query_params.get("sql", "").strip()
    from wirelake.lake.tables.catalog import TABLES  # noqa: PLC0415 - brings Delta Lake

    data: dict[str, Any] = {"sql": sql, "names": [], "rows": [], "is_cut": False, "left_out": [], "seconds": 0.0, "error": None}
    tables = {name: list(table.schema.names) for name, table in TABLES.items()}
    if sql:
        begin = time.perf_counter()
        try:
            with explorer.costly.stream(sql, limit=SQL_ROWS + 1) as answer:
                data["names"] = answer.schema.names
                rows = list(scalars(answer))
        except QueryError as error:
            return View("sql.html", data | {"error": str(error)}, {"tables": tables, "chart": None}, status=400)
        copy = Copy(SQL_BOUNDS)
        data["rows"] = copy.of(rows[:SQL_ROWS], "rows")
        data["left_out"] = copy.notes
        data["is_cut"], data["seconds"] = len(rows) > SQL_ROWS, round(time.perf_counter() - begin, 3)
    return View("sql.html", data, {"tables": tables, "chart": drawings.chart(data["names"], data["rows"])})


def show_state(explorer: Explorer, request: Request) -> View:
    """The number of the newest commit: it grows when there is something new."""
    del request
    return View("", {"number": explorer.database.snapshot().number})


DATA: Final = {
    "/messages/count": count_messages,
    "/histogram": show_histogram,
    "/sessions/{id}/ladder": show_ladder,
    "/exports": list_exports,
    "/state": show_state,
}
"""Path -> handler of what elements of pages ask for: only as JSON, at the path with `.json`."""

ROUTES: Final = {
    "/": show_overview,
    "/messages": show_messages,
    "/messages/{id}": show_message,
    "/sessions": list_sessions,
    "/sessions/{id}": show_session,
    "/exchanges": list_exchanges,
    "/violations": list_violations,
    "/security": list_security,
    "/quarantine": list_quarantine,
    "/files": list_files,
    "/files/{id}": show_file,
    "/runs": list_runs,
    "/topology": show_topology,
    "/sql": show_sql,
    "/diff": show_diff,
    "/comments": list_comments,
}
"""Path -> handler. Each has a `.json` twin."""

COSTLY: Final = frozenset({"/sql", "/diff"})
"""Paths whose answers take as much time as the reader asks for: few of them run at the same time."""
