"""The report's section on requests, confirmations and deliveries: how many, what came of them, and how long it took, by protocol."""

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


def latencies(given: list[Exchanges]) -> Markup:
    """A row for each protocol and each of the three, and a histogram for each that has answers."""
    title = element("h2", "Requests and deliveries")
    if not given:
        return element("section", title, element("p", "No requests were made, and no messages delivered on channels."))
    columns = {"protocol": "", "what": "", "count": "number", "came back": "number", "half within": "number"}
    columns |= {"95 % within": "number", "99 % within": "number", "longest": "number"}
    return element(
        "section",
        title,
        element(
            "p", "By protocol. A request is answered, a delivery acknowledged: they are counted apart, and so are calls only confirmed."
        ),
        listing(columns, [_row(one) for one in given]),
        (_figure(one, one.latency) for one in given if one.latency),
        id="exchanges",
    )


def _row(one: Exchanges) -> list[Markup]:
    single, several = _NAMES[one.what]
    withdrawn = "rolled back" if one.what == DELIVERY else "cancelled or killed"
    notes = ((one.failed, "failed"), (one.late, "late"), (one.withdrawn, withdrawn), (one.missing, _MISSING[one.what]))
    rate = percent(one.answered, one.count) if one.what != CONFIRMATION else "–"
    times: list[Child] = [duration(getattr(one.latency, name)) if one.latency else "–" for _, name in _PERCENTILES]
    return [
        cell("protocol", element("strong", one.protocol)),
        cell("what", single if one.count == 1 else several, dim(" · ".join(f"{count(number)} {word}" for number, word in notes if number))),
        cell("count", count(one.count), class_="number"),
        cell("came back", rate, dim(f"{count(one.answered)} {_ANSWERED[one.what]}"), class_="number"),
        *(cell(label, said, class_="number") for (label, _), said in zip(_PERCENTILES, times, strict=True)),
    ]


def _figure(one: Exchanges, latency: Latency) -> Markup:
    return element(
        "figure",
        element("h3", f"{one.protocol}: {_FIGURE[one.what]}"),
        charts.latency(latency, f"{one.protocol}, {_FIGURE[one.what]},"),
        class_="latency",
    )
