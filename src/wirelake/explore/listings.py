"""The report's tables: who talked with whom, which rules were broken, and what could not be read.

It refuses to know charts and the rest of the page.
"""

from __future__ import annotations

from typing import Final

from wirelake.explore.markup import Child, Markup, element
from wirelake.explore.survey import Believed, Place, Session, Spoilt, Survey, Violation
from wirelake.explore.wording import count, duration, hex_dump, many, moment, size

__all__ = ["believed", "cell", "listing", "sessions", "spoilt", "violations"]

_HOW: Final = {
    "bye": ("bye", "good"),
    "error": ("error", "bad"),
    "eof": ("silent close", "warn"),
    "reset": ("reset", "bad"),
    "silence": ("fell silent", "warn"),
    "open": ("still open", ""),
}
"""How a session ended -> how that is said, and how it is coloured."""
_SEVERITY: Final = {"error": "bad", "tolerated": "warn"}


def cell(label: str, *children: Child, class_: str | None = None) -> Markup:
    """A cell that knows its column's name: on a narrow page a row becomes a card."""
    return element("td", element("div", *children), data_label=label, class_=class_)


def listing(columns: dict[str, str], rows: list[list[Markup]]) -> Markup:
    """A table: its columns (name -> class) and its rows of cells."""
    heads = element("tr", (element("th", name, class_=class_ or None, scope="col") for name, class_ in columns.items()))
    body = element("tbody", (element("tr", cells) for cells in rows))
    return element("div", element("table", element("thead", heads), body, class_="cards"), class_="scroll")


def _pill(said: str, colour: str) -> Markup:
    return element("span", said, class_=f"pill {colour}".strip())


def _dim(*said: Child) -> Markup:
    return element("span", *said, class_="dim small")


def _place(given: Place) -> list[Markup]:
    name = given.source.rpartition("/")[2] or given.source
    where = f"byte {count(given.offset)}, {many(given.length, 'byte')}" if given.length else f"at byte {count(given.offset)}"
    return [element("code", name, title=given.source), _dim(where)]


def sessions(known: Survey) -> Markup:
    """Who talked with whom, when, and how it ended: the busiest first."""
    total = known.headline.sessions
    if not total:
        return element("section", element("h2", "Sessions"), element("p", "There are none."))
    ways = [f"{count(one.count)} {_HOW.get(one.how, (one.how, ''))[0]}" for one in known.endings]
    columns = {
        "client": "",
        "server": "",
        "when": "span",
        "lasted": "number",
        "messages": "number",
        "requests": "number",
        "ended": "",
        "violations": "number",
    }
    more = total - len(known.sessions)
    return element(
        "section",
        element("h2", "Sessions"),
        element("p", f"Who talked with whom, the busiest first. Of {many(total, 'session')}: {', '.join(ways)}."),
        listing(columns, [_session(one, known) for one in known.sessions]),
        element(
            "p",
            f"And {many(more, 'more session')} with fewer messages: ",
            element("code", "wirelake query"),
            " on table sessions.",
            class_="more",
        )
        if more > 0
        else "",
    )


def _session(one: Session, known: Survey) -> list[Markup]:
    how, colour = _HOW.get(one.ended_how or "", (one.ended_how or "unknown", ""))
    spoken = " over ".join(word for word in (one.protocol, one.transport) if word)
    answered = f"{count(one.answered)} answered" if one.answered != one.requests else ""
    return [
        cell("client", one.client, class_="place"),
        cell("server", one.server if one.server != "?" else "whoever listens", _dim(spoken), class_="place"),
        cell("when", _when(one, known), class_="span"),
        cell("lasted", duration(one.duration) if one.duration is not None else "–", class_="number"),
        cell(
            "messages", count(one.to_server + one.to_client), _dim(f"{count(one.to_server)} → · ← {count(one.to_client)}"), class_="number"
        ),
        cell("requests", count(one.requests), _dim(answered) if answered else "", class_="number"),
        cell(
            "ended",
            _pill(how, colour),
            _dim(f"by the {one.ended_by}") if one.ended_by else "",
            _dim(f"handshake {one.handshake}") if one.handshake and one.handshake != "complete" else "",
        ),
        cell("violations", _pill(count(one.violations), "bad") if one.violations else element("span", "0", class_="dim"), class_="number"),
    ]


def _when(one: Session, known: Survey) -> Child:
    """A line as long as the lake's time span, with the session on it."""
    if one.opened is None or known.timeline is None:
        return "–"
    start, span = known.timeline.start, max(known.timeline.stop - known.timeline.start, 1)
    left = min(max((one.opened - start) / span, 0.0), 1.0)
    width = min((one.duration or 0) / span, 1 - left)
    bar = element("i", style=f"left:{100 * left:.2f}%;width:{100 * width:.2f}%")
    return element("span", bar, class_="when", title=f"opened {moment(one.opened)} UTC")


def violations(known: Survey) -> Markup:
    """Broken rules, grave ones first."""
    title = element("h2", "Broken rules")
    if not known.violations:
        return element("section", title, element("p", "None: nobody said anything a specification forbids.", class_="notice good"))
    columns = {"clause": "", "rule": "", "severity": "", "times": "number", "by": "", "for example": ""}
    return element(
        "section",
        title,
        element(
            "p",
            "Every finding names the clause it is about. A session ends on a grave one; a tolerated one is only noted.",
        ),
        listing(columns, [_violation(one) for one in known.violations]),
    )


def _violation(one: Violation) -> list[Markup]:
    sides = [f"client {count(one.by_client)}" if one.by_client else "", f"server {count(one.by_server)}" if one.by_server else ""]
    severity = one.severity or "unknown"
    return [
        cell("clause", element("strong", one.clause or "–"), class_="nowrap"),
        cell("rule", _sentence(one.text) or one.rule, _dim(element("code", one.rule))),
        cell("severity", _pill("grave" if severity == "error" else severity, _SEVERITY.get(severity, ""))),
        cell("times", count(one.count), _dim(f"ended {many(one.ended, 'session')}") if one.ended else "", class_="number"),
        cell("by", " · ".join(side for side in sides if side) or "–"),
        cell("for example", *_place(one.example), class_="place example"),
    ]


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
        listing(columns, [_believed(one) for one in known.believed]),
    )


def _believed(one: Believed) -> list[Markup]:
    outcome = {True: ("accepted", "good"), False: ("dropped", "bad"), None: ("not checked", "warn")}[one.accepted]
    reason = [_sentence(one.text), _dim(f"{one.clause} · ", element("code", one.rule))] if one.rule else ["–"]
    return [
        cell("outcome", _pill(*outcome)),
        cell("reason", *reason),
        cell("packets", count(one.count), _dim(f"{count(one.now)} accepted before") if one.now else "", class_="number"),
        cell("nodes", count(one.nodes), class_="number"),
        cell("for example", *_place(one.example), class_="place example"),
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
        listing(columns, [_spoilt(one) for one in known.spoilt]),
    )


def _spoilt(one: Spoilt) -> list[Markup]:
    said = " · ".join(word for word in (one.clause, one.layer) if word)
    name = [element("code", one.reason), " · "] if one.text and one.text != one.reason else []
    return [
        cell("reason", _sentence(one.text) or one.reason, _dim(name, said)),
        cell("stretches", count(one.count), class_="number"),
        cell("bytes", size(one.size), class_="number"),
        cell("for example", *_place(one.example), class_="place example"),
        cell("first bytes", element("pre", hex_dump(one.preview), class_="hex"), class_="wordy"),
    ]


def _sentence(said: str | None) -> str:
    return said[:1].upper() + said[1:] if said else ""
