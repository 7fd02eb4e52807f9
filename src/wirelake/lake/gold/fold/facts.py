"""What the lake knows of sessions before their messages are read: connections, unreadable bytes, and sums of the index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from wirelake.lake.gold.fold.rows import Endpoints, Sums
from wirelake.lake.gold.fold.seen import EVENT_COLUMNS, UNREADABLE_COLUMNS, connection_events, unreadable_ranges, values
from wirelake.lake.gold.fold.sessions import SessionFacts
from wirelake.lake.tables.protocols import NODES
from wirelake.lake.views import View
from wirelake.protocols.analyzer import NO_TIME, ConnectionEvent

__all__ = ["CONNECTION_COLUMNS", "INDEX_COLUMNS", "IS_PRIMARY", "NO_VIEW", "QUARANTINE_COLUMNS", "VIEW_LINK", "session_facts"]

_NOWHERE: Final = Endpoints(NO_TIME, *[None] * (len(Endpoints._fields) - 1))  # type: ignore[arg-type]
_SUMMED: Final = ("messages", "bytes", "keepalives")

CONNECTION_COLUMNS: Final = [*dict.fromkeys([*EVENT_COLUMNS, *Endpoints._fields])]
"""Columns of `connections` that facts are made of."""
QUARANTINE_COLUMNS: Final = ["session_id", *UNREADABLE_COLUMNS, "observer"]
"""Columns of `quarantine` that facts are made of."""
INDEX_COLUMNS: Final = ["session_id", "connection_id", "direction", "first_seen", *_SUMMED]
"""Columns of the connection index that facts are made of."""
VIEW_LINK: Final = "view_link"
IS_PRIMARY: Final = "is_primary"
"""Columns of a plan: the view that the session of a row is."""
NO_VIEW: Final = View(b"", is_primary=True)
"""Of a session that only one observer saw."""


class _Said(NamedTuple):
    """Sums of what a session said on one connection."""

    first: int = NO_TIME
    sums: Sums = Sums()


class _Happened:
    """What happened to one connection."""

    __slots__ = ("events", "first")

    def __init__(self) -> None:
        self.events: list[ConnectionEvent] = []
        self.first = _NOWHERE


def session_facts(
    protocol: str, index: pa.Table, connections: pa.Table, quarantine: pa.Table, links: Mapping[bytes, bytes] | None = None
) -> dict[bytes, SessionFacts]:
    """Session -> what is known of it. All rows are of this protocol, and of the sessions that are folded.

    A connection without a message is a session of its own, unless sessions are nodes. A node is placed where it first sent: at its own
    endpoint, not at a relay's. Unreadable bytes belong to the link that their connection carried.
    """
    is_node = protocol in NODES
    of_link = (links or {}).get
    said = _said(index, links or {})
    happened = _happened(connections)
    facts: dict[bytes, SessionFacts] = {}
    if not is_node:
        used = {connection_id for by_connection in said.values() for connection_id in by_connection}
        for connection_id in happened.keys() - used:
            said.setdefault(of_link(connection_id, connection_id), {})[connection_id] = _Said()
    for session_id, by_connection in said.items():
        known = facts[session_id] = SessionFacts()
        places = []
        for connection_id, sums in by_connection.items():
            one = happened.get(connection_id)
            if one is not None:
                known.events += one.events
                places.append(_of_node(one.first, sums) if is_node else one.first)
        known.first = min(places, key=_key, default=_NOWHERE)
        totals = zip(*(sums.sums for sums in by_connection.values()), strict=True)
        known.sums = Sums(*map(sum, totals))._replace(connections=len(by_connection))
    for found, session_id in zip(unreadable_ranges(quarantine), values(quarantine["session_id"]), strict=True):
        facts.setdefault(of_link(found.connection_id or b"", session_id), SessionFacts()).unreadable.append(found)
    if IS_PRIMARY in index.column_names:
        for session_id, link, is_primary in set(zip(*(values(index[name]) for name in ("session_id", VIEW_LINK, IS_PRIMARY)), strict=True)):
            if link is not None and session_id in facts:
                facts[session_id].view = View(link, is_primary)
    return facts


def _said(index: pa.Table, links: Mapping[bytes, bytes]) -> dict[bytes, dict[bytes, _Said]]:
    """Session -> connection -> sums. Rows of the index without a direction are of events: they have no sums."""
    said: dict[bytes, dict[bytes, _Said]] = {}
    for session_id, connection_id, direction, first, messages, size, keepalives in zip(
        *(values(index[name]) for name in INDEX_COLUMNS), strict=True
    ):
        if direction is None:
            continue
        by_connection = said.setdefault(links.get(connection_id, session_id), {})
        known = by_connection.get(connection_id, _Said())
        sums = known.sums
        if direction == "to_server":
            sums = sums._replace(messages_to_server=sums.messages_to_server + messages, bytes_to_server=sums.bytes_to_server + size)
        else:
            sums = sums._replace(messages_to_client=sums.messages_to_client + messages, bytes_to_client=sums.bytes_to_client + size)
        sums = sums._replace(keepalives=sums.keepalives + keepalives)
        earliest = first if known.first == NO_TIME else min(first, known.first)
        by_connection[connection_id] = _Said(earliest, sums)
    return said


def _happened(connections: pa.Table) -> dict[bytes, _Happened]:
    happened: dict[bytes, _Happened] = {}
    endpoints = zip(*(values(connections[name]) for name in Endpoints._fields), strict=True)
    for event, ends in zip(connection_events(connections), endpoints, strict=True):
        known = happened.setdefault(event.connection_id, _Happened())
        known.events.append(event)
        first = Endpoints(*ends)
        if known.first is _NOWHERE or _key(first) < _key(known.first):
            known.first = first
    return happened


def _of_node(first: Endpoints, said: _Said) -> Endpoints:
    """Where a node was seen on a connection: at the end that it sent from."""
    if said.sums.messages_to_server:
        address, port = first.client_address, first.client_port
    else:
        address, port = first.server_address, first.server_port
    return first._replace(ts=said.first, client_address=address, client_port=port, server_address=None, server_port=None)


def _key(first: Endpoints) -> tuple[object, ...]:
    """Sorts places; what is missing comes first."""
    return tuple((value is not None, value) for value in first)
