"""The report as one HTML page: its sections, in order, with introductory text.

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
from wirelake.explore.markup import Child, Markup, element, join, trusted
from wirelake.explore.rule_section import findings, rules
from wirelake.explore.summary import CATEGORIES, LakeSummary
from wirelake.explore.table_sections import quarantined, sessions, verdicts
from wirelake.explore.traffic_section import traffic, unrecognised

__all__ = ["page"]

_MEANING = {
    "message": "messages, in tables",
    "headers": "headers below the protocol",
    "container": "headers of the capture format",
    "other": "traffic of no known protocol",
    "quarantine": "not decoded, kept as bytes",
}


def page(summary: LakeSummary) -> str:
    """Build the whole document."""
    name = posixpath.basename(summary.lake) or summary.lake
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # Nothing is loaded and nothing runs, even if text from the wire got through.
        element("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"),
        element("title", f"{name} · Wirelake report"),
        element("style", trusted(resources.files("wirelake.explore").joinpath("report.css").read_text("utf-8"))),
    )
    is_empty = not summary.headline.sources
    body = element(
        "body",
        element("header", element("p", "Wirelake report", class_="over"), element("h1", name), element("p", summary.lake, class_="path")),
        element("main", _empty() if is_empty else _contents(summary), dictionary(summary.rows)),
        element("footer", f"Made by wirelake {__version__} from batch {summary.batch} of this lake. Times are UTC.")
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


def _contents(summary: LakeSummary) -> Markup:
    return join(
        [
            _lead(summary),
            _alarm(summary),
            _stale(summary),
            _figures(summary),
            _timeline(summary),
            latencies(summary.exchanges),
            traffic(summary.rates, summary.pairs),
            findings(summary),
            verdicts(summary),
            quarantined(summary),
            unrecognised(summary.unrecognised),
            rules(summary),
            sessions(summary),
            _ledger(summary),
        ]
    )


def _section(title: str, intro: Child, *contents: Child) -> Markup:
    return element("section", element("h2", title), element("p", intro), contents)


def _lead(summary: LakeSummary) -> Markup:
    """Summarise the report in a few sentences."""
    first = summary.headline
    read = f"{many(first.sources, 'file was', 'files were')} read, {size(first.size)} in all"
    sentences = [f"{read}, with {many(first.messages, 'message')} in {many(first.sessions, 'session')}."]
    if first.requests:
        confirmed = f", {count(first.confirmed)} only confirmed" if first.confirmed else ""
        sentences.append(f"{many(first.requests, 'request was', 'requests were')} made: {count(first.answered)} answered{confirmed}.")
    if first.deliveries:
        sent = many(first.deliveries, "message was", "messages were")
        sentences.append(f"{sent} sent on channels: {count(first.acknowledged)} acknowledged.")
    sentences.append(f"Rules were broken {many(first.violations, 'time')}." if first.violations else "No rule was broken.")
    if not summary.unbalanced:
        sentences.append("Every byte is accounted for.")
    return element("p", " ".join(sentences), class_="lead")


def _alarm(summary: LakeSummary) -> Markup:
    """Warn about a ledger that does not add up."""
    if not summary.unbalanced:
        return Markup()
    return element(
        "div",
        element("strong", "The ledger does not add up."),
        f" {many(len(summary.unbalanced), 'file has', 'files have')} bytes that are missing or counted twice. Do not trust this lake.",
        element(
            "ul",
            (
                element("li", element("code", one.source), f": {count(one.accounted)} of {count(one.size)} bytes accounted for")
                for one in summary.unbalanced
            ),
        ),
        class_="notice alarm",
        role="alert",
    )


def _stale(summary: LakeSummary) -> Markup:
    if not summary.stale:
        return Markup()
    return element(
        "p",
        element("strong", f"{', '.join(summary.stale)}: older than the messages."),
        " An ingest did not finish. Run ",
        element("code", "wirelake ingest"),
        " again to bring them up to date.",
        class_="notice warn",
    )


def _figures(summary: LakeSummary) -> Markup:
    first = summary.headline
    ended = {one.how: one.count for one in summary.endings}
    when, span = "", "–"
    if first.first is not None and first.last is not None:
        same_day = day(first.first) == day(first.last)
        when = f"{moment(first.first)} to {clock(first.last) if same_day else moment(first.last)} UTC"
        span = duration(first.active) if first.active else "–"
    confirmed = f", {count(first.confirmed)} confirmed" if first.confirmed else ""
    weights = f"{many(first.errors, 'error')}, {count(first.tolerated)} tolerated" if first.violations else "none"
    shown = [
        (count(first.messages), "messages", many(len(summary.timeline.kinds), "kind") if summary.timeline else ""),
        (count(first.sessions), "sessions", f"{count(ended.get('bye', 0))} ended with a bye" if first.sessions else ""),
        (count(first.requests), "requests", f"{count(first.answered)} answered{confirmed}" if first.requests else ""),
        (count(first.deliveries), "deliveries", f"{count(first.acknowledged)} acknowledged" if first.deliveries else ""),
        (count(first.violations), "violations", weights),
        (
            count(first.warnings + first.notes),
            "notes",
            f"{many(first.warnings, 'warning')}, the rest allowed" if first.warnings else "no warning",
        ),
        (count(first.sources), "files" if first.sources != 1 else "file", f"{size(first.size)}, {count(first.size)} bytes"),
        (span, "active", when),
    ]
    cells = (element("div", element("dt", label), element("dd", value), element("dd", note, class_="note")) for value, label, note in shown)
    return element("dl", cells, class_="figures")


def _timeline(summary: LakeSummary) -> Markup:
    timeline = summary.timeline
    if timeline is None:
        return _section("Messages over time", "There are no messages.")
    intro = f"Each bar is {duration(timeline.bucket)}. Every kind has a scale of its own, so compare shapes between strips, not heights."
    return _section("Messages over time", intro, element("figure", charts.timeline(timeline), style="margin:0"))


def _ledger(summary: LakeSummary) -> Markup:
    """Show the bytes of all files by category."""
    total, size_of_all = sum(summary.parts.values()), summary.headline.size
    if summary.unbalanced:
        result = element("p", element("strong", f"{count(total)} of {count(size_of_all)} bytes are accounted for."), class_="notice alarm")
    else:
        result = element(
            "p",
            element("strong", "Every byte is accounted for: "),
            f"the ledger of {many(summary.headline.sources, 'file')} adds up to {count(total)} bytes, and so do the files.",
            class_="notice good",
        )
    key = (
        element(
            "li",
            element("i", class_=name),
            f"{name} · {size(summary.parts[name])} · {percent(summary.parts[name], total)}",
            element("span", _MEANING[name], class_="dim small"),
        )
        for name in CATEGORIES
        if summary.parts.get(name)
    )
    more = summary.headline.sources - len(summary.accounts)
    return _section(
        "Where every byte went",
        "One bar for each file, the largest first. Bars show shares: the size is written beside them.",
        result,
        element("ul", key, class_="key"),
        element("figure", charts.ledger(summary.accounts), style="margin:0"),
        element("p", f"And {many(more, 'smaller file')}.", class_="more") if more > 0 else "",
    )
