"""Report sections: traffic by protocol and pair of peers, and unrecognised traffic."""

from __future__ import annotations

from typing import Final

from wirelake.explore.formatting import count, duration, many, moment, rate, size
from wirelake.explore.markup import Markup, element
from wirelake.explore.table_sections import cell, listing
from wirelake.explore.traffic import PAUSE_SECONDS, Pair, Rate, UnrecognisedServer

__all__ = ["traffic", "unrecognised"]


def traffic(rates: list[Rate], pairs: list[Pair]) -> Markup:
    """Show rates by protocol and pairs of peers; nothing if there are no messages."""
    if not rates and not pairs:
        return Markup()
    more = (pairs[0].total if pairs else 0) - len(pairs)
    return element(
        "section",
        element("h2", "Traffic"),
        element(
            "p",
            f"By protocol. Rates are over active time: pauses of more than {duration(PAUSE_SECONDS * 1_000_000)} are left out.",
        ),
        listing(
            {
                "protocol": "",
                "messages": "number",
                "active": "number",
                "rate": "number",
                "busiest minute": "number",
                "errors": "number",
            },
            [_rate(one) for one in rates],
        ),
        element("p", "Pairs of peers, the busiest first."),
        listing(
            {"client": "", "server": "", "sessions": "number", "messages": "number", "seen": "", "errors": "number"},
            [_pair(one) for one in pairs],
        ),
        element("p", f"And {many(more, 'more pair')}: ", element("code", "wirelake query"), " on table topology.", class_="more")
        if more > 0
        else "",
    )


def unrecognised(servers: list[UnrecognisedServer]) -> Markup:
    """List unrecognised traffic by server; nothing if there is none."""
    if not servers:
        return Markup()
    more = servers[0].total - len(servers)
    return element(
        "section",
        element("h2", "Unrecognised traffic"),
        element("p", "No protocol recognises the traffic of these servers. For a known protocol on another port: ", _PORT),
        listing(
            {"server": "", "reason": "", "clients": "number", "packets": "number", "bytes": "number", "seen": ""},
            [_unrecognised(one) for one in servers],
        ),
        element("p", f"And {many(more, 'more')}: ", element("code", "wirelake query"), " on table unrecognised.", class_="more")
        if more > 0
        else "",
    )


_PORT: Final = element("code", "wirelake ingest --port PROTOCOL=PORT")


def _unrecognised(one: UnrecognisedServer) -> list[Markup]:
    return [
        cell("server", one.server or "others", class_="place"),
        cell("reason", one.reason),
        cell("clients", count(one.clients), class_="number"),
        cell("packets", count(one.packets), class_="number"),
        cell("bytes", size(one.bytes), class_="number"),
        cell("seen", "–" if one.last is None else f"last {moment(one.last)}"),
    ]


def _small(text: str) -> Markup:
    return element("span", text, class_="dim small")


def _rate(one: Rate) -> list[Markup]:
    return [
        cell("protocol", element("strong", one.protocol)),
        cell("messages", count(one.messages), _small(size(one.bytes)), class_="number"),
        cell("active", duration(one.active) if one.active else "–", class_="number"),
        cell("rate", f"{rate(one.messages, one.active)} a second" if one.active else "–", class_="number"),
        cell("busiest minute", many(one.peak, "message"), class_="number"),
        cell("errors", count(one.errors), class_="number"),
    ]


def _pair(one: Pair) -> list[Markup]:
    return [
        cell("client", one.client, class_="place"),
        cell("server", one.server, _small(one.protocol), class_="place"),
        cell("sessions", count(one.sessions), class_="number"),
        cell(
            "messages",
            count(one.to_server + one.to_client),
            _small(f"{count(one.to_server)} → · ← {count(one.to_client)}"),
            class_="number",
        ),
        cell("seen", "–" if one.last is None else f"last {moment(one.last)}"),
        cell("errors", count(one.errors), class_="number"),
    ]
