"""Drawings: places of shapes for templates that write SVG: bars of files, the graph of peers, a chart of SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from wirelake.explore.model.overview import Edge, Part

__all__ = ["CATEGORIES", "Bar", "Graph", "chart", "graph", "ranges", "shares"]

CATEGORIES: Final = ("message", "quarantine", "waiting", "other", "headers", "container")
"""Categories of the ledger, in the order of drawings."""
WIDTH: Final = 1000.0
"""Width of a drawing in its own units."""
CHART_BARS: Final = 60
"""Rows of an answer that a chart shows."""
NODES: Final = 60
"""Peers of each side that a graph shows."""
_LINE: Final = 34.0
_LEFT: Final = 330.0
_RIGHT: Final = 670.0


class Share(NamedTuple):
    """A part of a bar."""

    category: str
    x: float
    width: float
    bytes: int


def shares(parts: Mapping[str, int], size: int) -> list[Share]:
    """Return the parts of a file's bar, by category. What compression saved is negative, and not drawn."""
    found, x = [], 0.0
    whole = max(size, sum(part for part in parts.values() if part > 0), 1)
    for category in (*CATEGORIES, *(name for name in parts if name not in CATEGORIES)):
        if (part := parts.get(category, 0)) > 0:
            width = WIDTH * part / whole
            found.append(Share(category, round(x, 2), round(width, 2), part))
            x += width
    return found


class Range(NamedTuple):
    """A byte range of a file in its picture."""

    offset: int
    length: int
    x: float
    width: float
    shares: list[Share]


def ranges(parts: Sequence[Part], size: int) -> list[Range]:
    """Return the byte ranges of a file, each with what it is made of."""
    grouped: dict[tuple[int, int], dict[str, int]] = {}
    for part in parts:
        inside = grouped.setdefault((part.offset, part.length), {})
        inside[part.category] = inside.get(part.category, 0) + part.bytes
    return [
        Range(offset, length, round(WIDTH * offset / max(size, 1), 2), round(WIDTH * length / max(size, 1), 2), shares(inside, length))
        for (offset, length), inside in sorted(grouped.items())
    ]


class Node(NamedTuple):
    """A peer in the graph."""

    name: str
    x: float
    y: float
    messages: int


class Link(NamedTuple):
    """Traffic between two peers."""

    edge: Edge
    path: str
    width: float


class Graph(NamedTuple):
    """Clients at the left, servers at the right."""

    clients: list[Node]
    servers: list[Node]
    links: list[Link]
    height: float
    left_out: int
    """Pairs that are not drawn."""


def graph(edges: Sequence[Edge]) -> Graph:
    """Lay out which peers exchange messages: those with the most first."""
    clients, servers = dict[str, int](), dict[str, int]()
    for edge in edges:
        messages = edge.messages_to_server + edge.messages_to_client
        clients[edge.client] = clients.get(edge.client, 0) + messages
        servers[edge.server] = servers.get(edge.server, 0) + messages
    left, right = (_column(names, x) for names, x in ((clients, _LEFT), (servers, _RIGHT)))
    most = max((edge.messages_to_server + edge.messages_to_client for edge in edges), default=1) or 1
    links = []
    for edge in edges:
        if edge.client in left and edge.server in right:
            start, end = left[edge.client], right[edge.server]
            middle = (start.x + end.x) / 2
            path = f"M{start.x + 8} {start.y}C{middle} {start.y} {middle} {end.y} {end.x - 8} {end.y}"
            weight = (edge.messages_to_server + edge.messages_to_client) / most
            links.append(Link(edge, path, round(1.5 + 6.5 * weight**0.5, 2)))
    height = _LINE * (max(len(left), len(right), 1) + 0.5)
    return Graph(list(left.values()), list(right.values()), links, height, len(edges) - len(links))


def _column(names: Mapping[str, int], x: float) -> dict[str, Node]:
    chosen = sorted(names, key=lambda name: (-names[name], name))[:NODES]
    return {name: Node(name, x, _LINE * (index + 0.75), names[name]) for index, name in enumerate(chosen)}


class Bar(NamedTuple):
    """A row of an answer to SQL."""

    label: str
    value: str
    y: float
    width: float


class Chart(NamedTuple):
    """A bar for each row: the first column names it, the first column with numbers measures it."""

    name: str
    bars: list[Bar]
    height: float


def chart(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Chart | None:
    """Draw an answer to SQL; None if it has no number beside a first column, or numbers below zero."""
    if not 2 <= len(rows) <= CHART_BARS or len(names) < 2:
        return None
    column = next((index for index in range(1, len(names)) if all(_is_number(row[index]) for row in rows)), None)
    if column is None:
        return None
    values = [float(row[column] or 0) for row in rows]
    most = max(values)
    if min(values) < 0 or most <= 0:
        return None
    bars = [
        Bar(
            "" if row[0] is None else str(row[0])[:60],
            f"{value:,.6g}" if value % 1 else f"{value:,.0f}",
            22.0 * index,
            round((WIDTH - 300) * value / most, 2),
        )
        for index, (row, value) in enumerate(zip(rows, values, strict=True))
    ]
    return Chart(names[column], bars, 22.0 * len(bars))


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
