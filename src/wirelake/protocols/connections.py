"""The connections of a session as an observer sees them: when each began, and how it ended.

A session may have many connections, one after the other, such as a link of Relink that is cut again and again. Those that began first are
forgotten if there are more than `MAX_CONNECTIONS`: a session is judged by its beginning and by its last connection.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = [
    "ENDS",
    "MAX_CONNECTIONS",
    "MISSING",
    "NO_TIME",
    "UNCONFIRMED",
    "WIRE",
    "Connection",
    "ConnectionEvent",
    "Connections",
    "Event",
    "Unconfirmed",
    "earliest",
]

NO_TIME: Final = -1
"""The time of what has none."""
MAX_CONNECTIONS: Final = 4096
"""Connections of a session that are remembered at least; twice as many at most."""
WIRE: Final = "wire"
"""The kind of observer that a packet capture is."""
MISSING: Final = "missing"
"""A capture lacks bytes of a side."""
UNCONFIRMED: Final = "unconfirmed"
"""Event: from its time on, what a side sent may not have left."""
ENDS: Final = ("finished", "closed", "reset")
"""Events that end a connection."""


class ConnectionEvent(msgspec.Struct, gc=False):
    """What happened to a connection: a row of `connections`."""

    connection_id: bytes
    ts: int
    what: str
    """`seen`, `opened`, `finished`, `closed`, `reset`, `missing` or `unconfirmed`."""
    by: str
    """`client`, `server`, or empty."""
    source: str
    offset: int
    transport: str
    observer_kind: str = ""
    """`client` or `server`: a recording peer; `wire`: a packet capture; empty if unknown."""
    detail: str = ""


class Unconfirmed(msgspec.Struct, gc=False, array_like=True):
    """What a side sent last on a connection, and had not left its machine when the connection broke."""

    to_server: bool
    since: int
    """Time of the record in which it begins."""
    confirmed: int
    """Bytes sent since then that did leave, and were not seen so far."""

    @classmethod
    def of(cls, event: ConnectionEvent) -> Unconfirmed:
        """What an event `unconfirmed` says; its detail is `bytes=… confirmed=…`."""
        confirmed = event.detail.rpartition("confirmed=")[2]
        return cls(event.by == "client", event.ts, int(confirmed) if confirmed.isdigit() else 0)

    def has(self, ts: int, length: int, *, to_server: bool) -> bool:
        """Whether the next message on the connection is part of it."""
        if to_server is not self.to_server or ts < self.since:
            return False
        self.confirmed -= length
        return self.confirmed < 0


class Event(msgspec.Struct, gc=False, order=True, array_like=True):
    """When and where something happened to a connection, and by whom. The order is that of the fields."""

    ts: int
    source: str
    offset: int
    by: str


class Connection(msgspec.Struct, array_like=True):
    """What is known of one connection."""

    first: Event | None = None
    closed: Event | None = None
    """The first `finished`, `closed` or `reset`."""
    reset: Event | None = None
    finished: list[str] = msgspec.field(default_factory=list)
    """Sides whose last byte was announced, or that reset the connection: at most both."""


class Connections(msgspec.Struct, array_like=True):
    """The connections of one session. Events may come in any order."""

    known: dict[bytes, Connection] = msgspec.field(default_factory=dict)
    first: Event | None = None
    """The first event of all connections."""
    opened: Event | None = None
    """The first opening; None if none was captured."""
    first_happened: int = NO_TIME
    """Time of the first event that has one."""
    last_happened: int = NO_TIME
    has_forgotten: bool = False

    def event(self, event: ConnectionEvent) -> None:
        """Something happened to a connection."""
        at = Event(event.ts, event.source, event.offset, event.by)
        self.first = _sooner(self.first, at)
        self.first_happened = earliest(self.first_happened, event.ts)
        self.last_happened = max(self.last_happened, event.ts)
        if event.what == "opened":
            self.opened = _sooner(self.opened, at)
        known = self.known.get(event.connection_id)
        if known is None:
            if self.has_forgotten and event.what in ENDS:
                return  # of a connection that is forgotten
            known = self.known[event.connection_id] = Connection()
            if len(self.known) > 2 * MAX_CONNECTIONS:
                self._forget(event.connection_id)
        known.first = _sooner(known.first, at)
        if event.what in ENDS:
            known.closed = _sooner(known.closed, at)
            if event.what == "reset":
                known.reset = _sooner(known.reset, at)
            if event.by and event.what != "closed" and event.by not in known.finished:
                known.finished = sorted([*known.finished, event.by])

    def has_ended(self, connection_id: bytes, side: str) -> bool:
        """Whether the last byte of a side was announced."""
        known = self.known.get(connection_id)
        return known is not None and side in known.finished

    @property
    def last(self) -> Connection | None:
        """The connection that began last."""
        return max(self.known.values(), key=_beginning, default=None)

    def _forget(self, newest: bytes) -> None:
        """Forget the connections that began first."""
        newer = sorted((entry for entry in self.known.items() if entry[0] != newest), key=lambda entry: _beginning(entry[1]))
        self.known = dict([*newer[-MAX_CONNECTIONS:], (newest, self.known[newest])])
        self.has_forgotten = True


def earliest(*times: int) -> int:
    """The first of these times; `NO_TIME` if none has one."""
    return min((at for at in times if at != NO_TIME), default=NO_TIME)


def _sooner(before: Event | None, at: Event) -> Event:
    return at if before is None else min(before, at)


def _beginning(connection: Connection) -> tuple[object, ...]:
    """Sorts connections by when they began."""
    nothing = Event(NO_TIME, "", -1, "")
    return (
        connection.first.ts if connection.first else NO_TIME,
        connection.closed is not None,
        connection.closed or nothing,
        connection.reset is not None,
        connection.reset or nothing,
    )
