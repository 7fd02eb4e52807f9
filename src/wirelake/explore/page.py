"""The report as one page of HTML: which sections there are, in which order, and the words between the numbers.

The style sheet is `report.css`, beside this file.
"""

from __future__ import annotations

import posixpath
from importlib import resources

from wirelake import __version__
from wirelake.explore import charts
from wirelake.explore.dictionary import dictionary
from wirelake.explore.exchange_section import latencies
from wirelake.explore.formatting import clock, count, day, duration, many, moment, percent, size
from wirelake.explore.markup import Child, Markup, element, join, vouched
from wirelake.explore.rule_section import findings, rules
from wirelake.explore.summary import CATEGORIES, Survey
from wirelake.explore.table_sections import believed, sessions, spoilt
from wirelake.explore.traffic_section import traffic, unrecognised

__all__ = ["page"]

_MEANING = {
    "message": "messages, in tables",
    "headers": "addresses, ports and other envelopes below the protocol",
    "container": "the capture format's own",
    "other": "traffic of no protocol we know",
    "quarantine": "could not be read, and kept",
}


def page(known: Survey) -> str:
    """The whole document."""
    name = posixpath.basename(known.lake) or known.lake
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # Nothing may be loaded and nothing run, whatever slipped in.
        element("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"),
        element("title", f"{name} · Wirelake report"),
        element("style", vouched(resources.files("wirelake.explore").joinpath("report.css").read_text("utf-8"))),
    )
    is_empty = not known.headline.sources
    body = element(
        "body",
        element("header", element("p", "Wirelake report", class_="over"), element("h1", name), element("p", known.lake, class_="path")),
        element("main", _empty() if is_empty else _contents(known), dictionary(known.rows)),
        element("footer", f"Made by wirelake {__version__} from batch {known.batch} of this lake. Times are UTC.")
        if not is_empty
        else element("footer", f"Made by wirelake {__version__}."),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _empty() -> Markup:
    return element(
        "p",
        element("strong", "This lake is empty."),
        " Nothing has been read into it yet. Add recordings or packet captures with ",
        element("code", "wirelake ingest"),
        ".",
        class_="notice",
    )


def _contents(known: Survey) -> Markup:
    return join(
        [
            _lead(known),
            _alarm(known),
            _stale(known),
            _figures(known),
            _timeline(known),
            latencies(known.exchanges),
            traffic(known.rates, known.pairs),
            findings(known),
            believed(known),
            spoilt(known),
            unrecognised(known.unrecognised),
            rules(known),
            sessions(known),
            _ledger(known),
        ]
    )


def _section(title: str, said: Child, *contents: Child) -> Markup:
    return element("section", element("h2", title), element("p", said), contents)


def _lead(known: Survey) -> Markup:
    """The report in a few sentences."""
    first = known.headline
    read = f"{many(first.sources, 'file was', 'files were')} read, {size(first.size)} in all"
    said = [f"{read}, with {many(first.messages, 'message')} in {many(first.sessions, 'session')}."]
    if first.requests:
        confirmed = f", {count(first.confirmed)} only confirmed" if first.confirmed else ""
        said.append(f"{many(first.requests, 'request was', 'requests were')} made: {count(first.answered)} answered{confirmed}.")
    if first.deliveries:
        sent = many(first.deliveries, "message was", "messages were")
        said.append(f"{sent} sent on channels: {count(first.acknowledged)} acknowledged.")
    said.append(f"Rules were broken {many(first.violations, 'time')}." if first.violations else "No rule was broken.")
    if not known.unbalanced:
        said.append("Every byte is accounted for.")
    return element("p", " ".join(said), class_="lead")


def _alarm(known: Survey) -> Markup:
    """A ledger that does not add up is the one thing that must not be overlooked."""
    if not known.unbalanced:
        return Markup()
    return element(
        "div",
        element("strong", "The ledger does not add up."),
        f" {many(len(known.unbalanced), 'file has', 'files have')} bytes that are missing or counted twice. Do not trust this lake.",
        element(
            "ul",
            (
                element("li", element("code", one.source), f": {count(one.accounted)} of {count(one.size)} bytes accounted for")
                for one in known.unbalanced
            ),
        ),
        class_="notice alarm",
        role="alert",
    )


def _stale(known: Survey) -> Markup:
    if not known.stale:
        return Markup()
    return element(
        "p",
        element("strong", f"{', '.join(known.stale)}: older than the messages."),
        " An ingest did not finish. Run ",
        element("code", "wirelake ingest"),
        " again to bring them up to date.",
        class_="notice warn",
    )


def _figures(known: Survey) -> Markup:
    first = known.headline
    ended = {one.how: one.count for one in known.endings}
    when, span = "", "–"
    if first.first is not None and first.last is not None:
        same_day = day(first.first) == day(first.last)
        when = f"{moment(first.first)} to {clock(first.last) if same_day else moment(first.last)} UTC"
        span = duration(first.active) if first.active else "–"
    confirmed = f", {count(first.confirmed)} confirmed" if first.confirmed else ""
    weights = f"{many(first.errors, 'error')}, {count(first.tolerated)} tolerated" if first.violations else "none"
    shown = [
        (count(first.messages), "messages", many(len(known.timeline.kinds), "kind") if known.timeline else ""),
        (count(first.sessions), "sessions", f"{count(ended.get('bye', 0))} ended with a bye" if first.sessions else ""),
        (count(first.requests), "requests", f"{count(first.answered)} answered{confirmed}" if first.requests else ""),
        (count(first.deliveries), "deliveries", f"{count(first.acknowledged)} acknowledged" if first.deliveries else ""),
        (count(first.violations), "violations", weights),
        (count(first.notes), "notes", "not forbidden by a specification" if first.notes else "none"),
        (count(first.sources), "files" if first.sources != 1 else "file", f"{size(first.size)}, {count(first.size)} bytes"),
        (span, "active", when),
    ]
    cells = (element("div", element("dt", label), element("dd", value), element("dd", note, class_="note")) for value, label, note in shown)
    return element("dl", cells, class_="figures")


def _timeline(known: Survey) -> Markup:
    given = known.timeline
    if given is None:
        return _section("Messages over time", "There are no messages.")
    said = f"Each bar is {duration(given.bucket)}. Every kind has a scale of its own, so compare shapes between strips, not heights."
    return _section("Messages over time", said, element("figure", charts.timeline(given), style="margin:0"))


def _ledger(known: Survey) -> Markup:
    """Where every byte went, and whether that is all of them."""
    total, size_of_all = sum(known.parts.values()), known.headline.size
    if known.unbalanced:
        verdict = element("p", element("strong", f"{count(total)} of {count(size_of_all)} bytes are accounted for."), class_="notice alarm")
    else:
        verdict = element(
            "p",
            element("strong", "Every byte is accounted for: "),
            f"the ledger of {many(known.headline.sources, 'file')} adds up to {count(total)} bytes, and so do the files.",
            class_="notice good",
        )
    key = (
        element(
            "li",
            element("i", class_=name),
            f"{name} · {size(known.parts[name])} · {percent(known.parts[name], total)}",
            element("span", _MEANING[name], class_="dim small"),
        )
        for name in CATEGORIES
        if known.parts.get(name)
    )
    more = known.headline.sources - len(known.accounts)
    return _section(
        "Where every byte went",
        "One bar for each file, the largest first. Bars show shares: the size is written beside them.",
        verdict,
        element("ul", key, class_="key"),
        element("figure", charts.ledger(known.accounts), style="margin:0"),
        element("p", f"And {many(more, 'smaller file')}.", class_="more") if more > 0 else "",
    )
