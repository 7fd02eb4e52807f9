"""The report's tables of sessions, of packets that can be believed, and of what could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wirelake.explore.findings import Believed, Place, Spoilt
from wirelake.explore.formatting import count, duration, hex_dump, many, moment, size
from wirelake.explore.markup import Child, Markup, anchor, element, link
from wirelake.explore.summary import Session, Survey

__all__ = ["believed", "cell", "dim", "listing", "pill", "place", "rule_link", "sentence", "sessions", "spoilt"]

_HOW: Final = {
    "bye": ("bye", "good"),
    "error": ("error", "bad"),
    "eof": ("silent close", "warn"),
    "reset": ("reset", "bad"),
    "silence": ("fell silent", "warn"),
    "open": ("still open", ""),
}
"""How a session ended -> how that is said, and how it is coloured."""
_SHORT_ID: Final = 8
"""Hex digits of a session's id in a link to it."""


def cell(label: str, *children: Child, class_: str | None = None) -> Markup:
    """A cell that knows its column's name: on a narrow page a row becomes a card."""
    return element("td", element("div", *children), data_label=label, class_=class_)


def listing(columns: dict[str, str], rows: list[list[Markup]], ids: Sequence[str] = ()) -> Markup:
    """A table: its columns (name -> class) and its rows of cells; `ids`, if there are any, are the rows' anchors."""
    heads = element("tr", (element("th", name, class_=class_ or None, scope="col") for name, class_ in columns.items()))
    named = [*ids, *[None] * (len(rows) - len(ids))]
    body = element("tbody", (element("tr", cells, id=one) for cells, one in zip(rows, named, strict=True)))
    return element("div", element("table", element("thead", heads), body, class_="cards"), class_="scroll")


def pill(said: str, colour: str) -> Markup:
    """A word with a background."""
    return element("span", said, class_=f"pill {colour}".strip())


def dim(*said: Child) -> Markup:
    """A line of small, grey text."""
    return element("span", *said, class_="dim small")


def sentence(said: str | None) -> str:
    """With a capital letter."""
    return said[:1].upper() + said[1:] if said else ""


def _session_anchor(session: str) -> str:
    return anchor("session", session)


def place(given: Place, known: Survey) -> list[Markup]:
    """Where the bytes are, and a link to their session if the page has it."""
    name = given.source.rpartition("/")[2] or given.source
    where = f"byte {count(given.offset)}, {many(given.length, 'byte')}" if given.length else f"at byte {count(given.offset)}"
    words: list[Child] = [where]
    if given.session and given.session in {one.session for one in known.sessions}:
        words += [" · ", link(_session_anchor(given.session), "session ", element("code", given.session[:_SHORT_ID]))]
    return [element("code", name, title=given.source), dim(words)]


def rule_link(protocol: str | None, rule: str | None, known: Survey, *said: Child) -> Markup:
    """A link to what a rule says, if the page has it; else only the words."""
    if any((one.protocol, one.rule) == (protocol, rule) for one in known.rules):
        return link(anchor("rule", protocol or "", rule or ""), *said)
    return element("span", *said)


def sessions(known: Survey) -> Markup:
    """Who talked with whom, when, and how it ended: the busiest first."""
    total = known.headline.sessions
    if not total:
        return element("section", element("h2", "Sessions"), element("p", "There are none."))
    ways = [f"{count(one.count)} {_HOW.get(one.how, (one.how, ''))[0]}" for one in known.endings]
    columns = {
        "session": "",
        "client": "",
        "server": "",
        "when": "span",
        "lasted": "number",
        "messages": "number",
        "exchanges": "number",
        "ended": "",
    }
    more = total - len(known.sessions)
    return element(
        "section",
        element("h2", "Sessions"),
        element(
            "p",
            f"Who talked with whom, the busiest first, and every session that an example of a finding is from. Of {many(total, 'session')}:"
            f" {', '.join(ways)}.",
        ),
        listing(columns, [_session(one, known) for one in known.sessions], [_session_anchor(one.session) for one in known.sessions]),
        element("p", f"And {many(more, 'more session')}: ", element("code", "wirelake query"), " on table sessions.", class_="more")
        if more > 0
        else "",
        id="sessions",
    )


def _session(one: Session, known: Survey) -> list[Markup]:
    how, colour = _HOW.get(one.ended_how or "", (one.ended_how or "unknown", ""))
    spoken = " over ".join(word for word in (one.protocol, one.transport) if word)
    source = (one.source or "").rpartition("/")[2]
    return [
        cell(
            "session",
            element("code", one.session, class_="id"),
            [dim(element("span", source, title=one.source or "")), dim(f"byte {count(one.offset or 0)}")] if source else "",
            class_="id",
        ),
        cell("client", one.client, class_="place"),
        cell("server", one.server if one.server != "?" else "any node that listens", dim(spoken), class_="place"),
        cell("when", _when(one, known), class_="span"),
        cell("lasted", duration(one.duration) if one.duration is not None else "–", class_="number"),
        cell(
            "messages", count(one.to_server + one.to_client), dim(f"{count(one.to_server)} → · ← {count(one.to_client)}"), class_="number"
        ),
        cell("exchanges", *_exchanged(one), class_="number"),
        cell(
            "ended",
            pill(how, colour),
            dim(f"by the {one.ended_by}") if one.ended_by else "",
            dim(f"handshake {one.handshake}") if one.handshake and one.handshake != "complete" else "",
            dim(link("findings", many(one.violations, "violation"))) if one.violations else "",
        ),
    ]


def _exchanged(one: Session) -> list[Child]:
    """Requests and deliveries, each with what came of them."""
    if not one.requests and not one.deliveries:
        return [element("span", "–", class_="dim")]
    said: list[Child] = []
    if one.requests:
        said += [element("span", many(one.requests, "request")), dim(f"{count(one.answered)} answered")]
        said += [dim(f"{count(one.confirmed)} confirmed")] if one.confirmed else []
    if one.deliveries:
        said += [element("span", many(one.deliveries, "delivery", "deliveries")), dim(f"{count(one.acknowledged)} acknowledged")]
    return said


def _when(one: Session, known: Survey) -> Child:
    """A line as long as the lake's time span, with the session on it."""
    if one.opened is None or known.timeline is None:
        return "–"
    start, span = known.timeline.start, max(known.timeline.stop - known.timeline.start, 1)
    left = min(max((one.opened - start) / span, 0.0), 1.0)
    width = min((one.duration or 0) / span, 1 - left)
    bar = element("i", style=f"left:{100 * left:.2f}%;width:{100 * width:.2f}%")
    return element("span", bar, class_="when", title=f"opened {moment(one.opened)} UTC")


def believed(known: Survey) -> Markup:
    """Which packets can be believed, and why not."""
    if not known.believed:
        return Markup()
    columns = {"outcome": "", "reason": "", "packets": "number", "nodes": "number", "for example": ""}
    proven, unchecked = (sum(one.count for one in known.believed if one.accepted is outcome) for outcome in (True, None))
    said = f"{many(proven, 'packet')} proved where they come from." if proven else "No packet proved where it comes from."
    if unchecked:
        said += f" {many(unchecked, 'packet')} could not be checked: name the keys with wirelake ingest --keys."
    return element(
        "section",
        element("h2", "Who can be believed"),
        element("p", said, " A receiver drops the others without a word; each for the first rule it breaks."),
        listing(columns, [_believed(one, known) for one in known.believed]),
    )


def _believed(one: Believed, known: Survey) -> list[Markup]:
    outcome = {True: ("accepted", "good"), False: ("dropped", "bad"), None: ("not checked", "warn")}[one.accepted]
    reason: list[Child] = ["–"]
    if one.rule:
        words = rule_link(one.protocol, one.rule, known, f"{one.clause} · ", element("code", one.rule))
        reason = [sentence(one.text), dim(words)]
    return [
        cell("outcome", pill(*outcome)),
        cell("reason", *reason),
        cell("packets", count(one.count), dim(f"{count(one.now)} accepted before") if one.now else "", class_="number"),
        cell("nodes", count(one.nodes), class_="number"),
        cell("for example", *place(one.example, known), class_="place example"),
    ]


def spoilt(known: Survey) -> Markup:
    """What could not be read, by reason."""
    title = element("h2", "Quarantine")
    if not known.spoilt:
        return element("section", title, element("p", "Empty: everything that was said could be read.", class_="notice good"))
    columns = {"reason": "", "stretches": "number", "bytes": "number", "for example": "", "first bytes": ""}
    return element(
        "section",
        title,
        element(
            "p", "Bytes that could not be read as messages. They are kept as they were, in the table ", element("code", "quarantine"), "."
        ),
        listing(columns, [_spoilt(one, known) for one in known.spoilt]),
    )


def _spoilt(one: Spoilt, known: Survey) -> list[Markup]:
    said = " · ".join(word for word in (one.clause, one.layer) if word)
    name = [rule_link(one.protocol, one.reason, known, element("code", one.reason)), " · "] if one.text and one.text != one.reason else []
    return [
        cell("reason", sentence(one.text) or one.reason, dim(name, said)),
        cell("stretches", count(one.count), class_="number"),
        cell("bytes", size(one.size), class_="number"),
        cell("for example", *place(one.example, known), class_="place example"),
        cell("first bytes", element("pre", hex_dump(one.preview), class_="hex"), class_="wordy"),
    ]
