"""Report section: requests and deliveries by protocol, with results and latencies."""

from __future__ import annotations

from typing import Final

from wirelake.explore import charts
from wirelake.explore.exchanges import CONFIRMATION, DELIVERY, REQUEST, Exchanges, Latency
from wirelake.explore.formatting import count, duration, percent
from wirelake.explore.markup import Child, Markup, element
from wirelake.explore.table_sections import cell, dim, listing

__all__ = ["latencies"]

_NAMES: Final = {
    REQUEST: ("request", "requests"),
    CONFIRMATION: ("confirmed call", "confirmed calls"),
    DELIVERY: ("delivery", "deliveries"),
}
_FIGURE: Final = {
    REQUEST: "from request to answer",
    CONFIRMATION: "from call to confirmation, where no answer followed",
    DELIVERY: "from message to acknowledgement",
}
_MISSING: Final = {REQUEST: "unanswered", CONFIRMATION: "unconfirmed", DELIVERY: "not acknowledged"}
_ANSWERED: Final = {REQUEST: "answered", CONFIRMATION: "confirmed", DELIVERY: "acknowledged"}
_PERCENTILES: Final = (("half within", "p50"), ("95 % within", "p95"), ("99 % within", "p99"), ("longest", "most"))


def latencies(groups: list[Exchanges]) -> Markup:
    """List exchanges by protocol and kind, with a histogram of each that has answers."""
    title = element("h2", "Requests and deliveries")
    if not groups:
        return element("section", title, element("p", "No requests were made, and no messages delivered on channels."))
    columns = {"protocol": "", "what": "", "count": "number", "came back": "number", "half within": "number"}
    columns |= {"95 % within": "number", "99 % within": "number", "longest": "number"}
    return element(
        "section",
        title,
        element("p", "By protocol. Requests, deliveries, and calls that were only confirmed are counted separately."),
        listing(columns, [_row(one) for one in groups]),
        (_figure(one, one.latency) for one in groups if one.latency),
        id="exchanges",
    )


def _row(exchanges: Exchanges) -> list[Markup]:
    single, several = _NAMES[exchanges.what]
    withdrawn = "rolled back" if exchanges.what == DELIVERY else "cancelled or killed"
    notes = (
        (exchanges.failed, "failed"),
        (exchanges.late, "late"),
        (exchanges.withdrawn, withdrawn),
        (exchanges.missing, _MISSING[exchanges.what]),
    )
    rate = percent(exchanges.answered, exchanges.count) if exchanges.what != CONFIRMATION else "–"
    times: list[Child] = [duration(getattr(exchanges.latency, name)) if exchanges.latency else "–" for _, name in _PERCENTILES]
    return [
        cell("protocol", element("strong", exchanges.protocol)),
        cell(
            "what",
            single if exchanges.count == 1 else several,
            dim(" · ".join(f"{count(number)} {word}" for number, word in notes if number)),
        ),
        cell("count", count(exchanges.count), class_="number"),
        cell("came back", rate, dim(f"{count(exchanges.answered)} {_ANSWERED[exchanges.what]}"), class_="number"),
        *(cell(label, time, class_="number") for (label, _), time in zip(_PERCENTILES, times, strict=True)),
    ]


def _figure(one: Exchanges, latency: Latency) -> Markup:
    return element(
        "figure",
        element("h3", f"{one.protocol}: {_FIGURE[one.what]}"),
        charts.latency(latency, f"{one.protocol}, {_FIGURE[one.what]},"),
        class_="latency",
    )
