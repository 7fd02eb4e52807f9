"""Report sections: sessions, verified packets, and bytes in quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wirelake.explore.findings import PacketVerdict, Place, Quarantined
from wirelake.explore.formatting import count, duration, hex_dump, many, moment, size
from wirelake.explore.markup import Child, Markup, anchor, element, link
from wirelake.explore.summary import LakeSummary, Session

__all__ = ["cell", "dim", "listing", "pill", "place", "quarantined", "rule_link", "sentence", "sessions", "verdicts"]

_HOW: Final = {
    "bye": ("bye", "good"),
    "error": ("error", "bad"),
    "eof": ("silent close", "warn"),
    "reset": ("reset", "bad"),
    "silence": ("fell silent", "warn"),
    "open": ("still open", ""),
}
"""How a session ended -> its label and colour."""
_SHORT_ID: Final = 8
"""Hex digits of a session's id in a link to it."""


def cell(label: str, *children: Child, class_: str | None = None) -> Markup:
    """Make a table cell with its column's name: on a narrow page a row becomes a card."""
    return element("td", element("div", *children), data_label=label, class_=class_)


def listing(columns: dict[str, str], rows: list[list[Markup]], ids: Sequence[str] = ()) -> Markup:
    """Make a table from columns (name -> class) and rows of cells.

    `ids`, if given, are the anchors of the rows.
    """
    heads = element("tr", (element("th", name, class_=class_ or None, scope="col") for name, class_ in columns.items()))
    named = [*ids, *[None] * (len(rows) - len(ids))]
    body = element("tbody", (element("tr", cells, id=one) for cells, one in zip(rows, named, strict=True)))
    return element("div", element("table", element("thead", heads), body, class_="cards"), class_="scroll")


def pill(label: str, colour: str) -> Markup:
    """Make a word with a coloured background."""
    return element("span", label, class_=f"pill {colour}".strip())


def dim(*children: Child) -> Markup:
    """Make a line of small, grey text."""
    return element("span", *children, class_="dim small")


def sentence(text: str | None) -> str:
    """Capitalise the first letter."""
    return text[:1].upper() + text[1:] if text else ""


def _session_anchor(session: str) -> str:
    return anchor("session", session)


def place(location: Place, summary: LakeSummary) -> list[Markup]:
    """Name the place of bytes, with a link to their session if the page has it."""
    name = location.source.rpartition("/")[2] or location.source
    where = f"byte {count(location.offset)}, {many(location.length, 'byte')}" if location.length else f"at byte {count(location.offset)}"
    words: list[Child] = [where]
    if location.session and location.session in {one.session for one in summary.sessions}:
        words += [" · ", link(_session_anchor(location.session), "session ", element("code", location.session[:_SHORT_ID]))]
    return [element("code", name, title=location.source), dim(words)]


def rule_link(protocol: str | None, rule: str | None, summary: LakeSummary, *children: Child) -> Markup:
    """Link to the text of a rule, if the page has it; else return only the words."""
    if any((one.protocol, one.rule) == (protocol, rule) for one in summary.rules):
        return link(anchor("rule", protocol or "", rule or ""), *children)
    return element("span", *children)


def sessions(summary: LakeSummary) -> Markup:
    """List sessions, the busiest first: peers, time, and how each ended."""
    total = summary.headline.sessions
    if not total:
        return element("section", element("h2", "Sessions"), element("p", "There are none."))
    ways = [f"{count(one.count)} {_HOW.get(one.how, (one.how, ''))[0]}" for one in summary.endings]
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
    more = total - len(summary.sessions)
    return element(
        "section",
        element("h2", "Sessions"),
        element(
            "p",
            f"The busiest sessions first, then every session that an example of a finding is from. Of {many(total, 'session')}:"
            f" {', '.join(ways)}.",
        ),
        listing(columns, [_session(one, summary) for one in summary.sessions], [_session_anchor(one.session) for one in summary.sessions]),
        element("p", f"And {many(more, 'more session')}: ", element("code", "wirelake query"), " on table sessions.", class_="more")
        if more > 0
        else "",
        id="sessions",
    )


def _session(session: Session, summary: LakeSummary) -> list[Markup]:
    how, colour = _HOW.get(session.ended_how or "", (session.ended_how or "unknown", ""))
    carried = " over ".join(word for word in (session.protocol, session.transport) if word)
    source = (session.source or "").rpartition("/")[2]
    return [
        cell(
            "session",
            element("code", session.session, class_="id"),
            [dim(element("span", source, title=session.source or "")), dim(f"byte {count(session.offset or 0)}")] if source else "",
            class_="id",
        ),
        cell("client", session.client, class_="place"),
        cell("server", session.server if session.server != "?" else "any node that listens", dim(carried), class_="place"),
        cell("when", _when(session, summary), class_="span"),
        cell("lasted", duration(session.duration) if session.duration is not None else "–", class_="number"),
        cell(
            "messages",
            count(session.to_server + session.to_client),
            dim(f"{count(session.to_server)} → · ← {count(session.to_client)}"),
            class_="number",
        ),
        cell("exchanges", *_exchanged(session), class_="number"),
        cell(
            "ended",
            pill(how, colour),
            dim(f"by the {session.ended_by}") if session.ended_by else "",
            dim(f"handshake {session.handshake}") if session.handshake and session.handshake != "complete" else "",
            dim(link("findings", many(session.violations, "violation"))) if session.violations else "",
        ),
    ]


def _exchanged(session: Session) -> list[Child]:
    """Count requests and deliveries, each with its results."""
    if not session.requests and not session.deliveries:
        return [element("span", "–", class_="dim")]
    cells: list[Child] = []
    if session.requests:
        cells += [element("span", many(session.requests, "request")), dim(f"{count(session.answered)} answered")]
        cells += [dim(f"{count(session.confirmed)} confirmed")] if session.confirmed else []
    if session.deliveries:
        cells += [element("span", many(session.deliveries, "delivery", "deliveries")), dim(f"{count(session.acknowledged)} acknowledged")]
    return cells


def _when(session: Session, summary: LakeSummary) -> Child:
    """Draw the session as a bar on the lake's time span."""
    if session.opened is None or summary.timeline is None:
        return "–"
    start, span = summary.timeline.start, max(summary.timeline.stop - summary.timeline.start, 1)
    left = min(max((session.opened - start) / span, 0.0), 1.0)
    width = min((session.duration or 0) / span, 1 - left)
    bar = element("i", style=f"left:{100 * left:.2f}%;width:{100 * width:.2f}%")
    return element("span", bar, class_="when", title=f"opened {moment(session.opened)} UTC")


def verdicts(summary: LakeSummary) -> Markup:
    """List packets by verification result and reason."""
    if not summary.verdicts:
        return Markup()
    columns = {"outcome": "", "reason": "", "packets": "number", "nodes": "number", "for example": ""}
    verified, unchecked = (sum(one.count for one in summary.verdicts if one.accepted is outcome) for outcome in (True, None))
    text = f"{many(verified, 'packet')} verified." if verified else "No packet was verified."
    if unchecked:
        text += f" {many(unchecked, 'packet')} could not be checked: give the keys with wirelake ingest --keys."
    return element(
        "section",
        element("h2", "Verified packets"),
        element("p", text, " A receiver drops the others silently, each for the first rule it breaks."),
        listing(columns, [_verdict(one, summary) for one in summary.verdicts]),
    )


def _verdict(verdict: PacketVerdict, summary: LakeSummary) -> list[Markup]:
    outcome = {True: ("accepted", "good"), False: ("dropped", "bad"), None: ("not checked", "warn")}[verdict.accepted]
    reason: list[Child] = ["–"]
    if verdict.rule:
        words = rule_link(verdict.protocol, verdict.rule, summary, f"{verdict.clause} · ", element("code", verdict.rule))
        reason = [sentence(verdict.text), dim(words)]
    return [
        cell("outcome", pill(*outcome)),
        cell("reason", *reason),
        cell("packets", count(verdict.count), dim(f"{count(verdict.now)} accepted before") if verdict.now else "", class_="number"),
        cell("nodes", count(verdict.nodes), class_="number"),
        cell("for example", *place(verdict.example, summary), class_="place example"),
    ]


def quarantined(summary: LakeSummary) -> Markup:
    """List bytes in quarantine by reason."""
    title = element("h2", "Quarantine")
    if not summary.quarantined:
        return element("section", title, element("p", "Empty: every message could be decoded.", class_="notice good"))
    columns = {"reason": "", "byte ranges": "number", "bytes": "number", "for example": "", "first bytes": ""}
    return element(
        "section",
        title,
        element("p", "Bytes that could not be decoded as messages. They are kept in the table ", element("code", "quarantine"), "."),
        listing(columns, [_quarantined(one, summary) for one in summary.quarantined]),
    )


def _quarantined(quarantined: Quarantined, summary: LakeSummary) -> list[Markup]:
    origin = " · ".join(word for word in (quarantined.clause, quarantined.layer) if word)
    name = (
        [rule_link(quarantined.protocol, quarantined.reason, summary, element("code", quarantined.reason)), " · "]
        if quarantined.text and quarantined.text != quarantined.reason
        else []
    )
    return [
        cell("reason", sentence(quarantined.text) or quarantined.reason, dim(name, origin)),
        cell("byte ranges", count(quarantined.count), class_="number"),
        cell("bytes", size(quarantined.size), class_="number"),
        cell("for example", *place(quarantined.example, summary), class_="place example"),
        cell("first bytes", element("pre", hex_dump(quarantined.preview), class_="hex"), class_="wordy"),
    ]
