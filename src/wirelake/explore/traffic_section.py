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


def _unrecognised(server: UnrecognisedServer) -> list[Markup]:
    return [
        cell("server", server.server or "others", class_="place"),
        cell("reason", server.reason),
        cell("clients", count(server.clients), class_="number"),
        cell("packets", count(server.packets), class_="number"),
        cell("bytes", size(server.bytes), class_="number"),
        cell("seen", "–" if server.last is None else f"last {moment(server.last)}"),
    ]


def _small(text: str) -> Markup:
    return element("span", text, class_="dim small")


def _rate(traffic: Rate) -> list[Markup]:
    return [
        cell("protocol", element("strong", traffic.protocol)),
        cell("messages", count(traffic.messages), _small(size(traffic.bytes)), class_="number"),
        cell("active", duration(traffic.active) if traffic.active else "–", class_="number"),
        cell("rate", f"{rate(traffic.messages, traffic.active)} a second" if traffic.active else "–", class_="number"),
        cell("busiest minute", many(traffic.peak, "message"), class_="number"),
        cell("errors", count(traffic.errors), class_="number"),
    ]


def _pair(pair: Pair) -> list[Markup]:
    return [
        cell("client", pair.client, class_="place"),
        cell("server", pair.server, _small(pair.protocol), class_="place"),
        cell("sessions", count(pair.sessions), class_="number"),
        cell(
            "messages",
            count(pair.to_server + pair.to_client),
            _small(f"{count(pair.to_server)} → · ← {count(pair.to_client)}"),
            class_="number",
        ),
        cell("seen", "–" if pair.last is None else f"last {moment(pair.last)}"),
        cell("errors", count(pair.errors), class_="number"),
    ]
