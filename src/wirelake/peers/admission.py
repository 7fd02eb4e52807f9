"""Admission: which connections a server keeps, by limits on connections and time. `accountant.py` has the limits on memory.

Limits are per host and in total. It does not import protocols or sockets: a peer says how long it is idle, and whether it has sent a
message.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

import msgspec

__all__ = ["DEFAULT_SERVER_LIMITS", "Guest", "ServerLimits", "evictable", "over_time"]

RESERVED_DESCRIPTORS: Final = 64
"""Descriptors that are left to files, logs and the rest of the process."""


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a server takes from others, alike for every protocol. Times are seconds; None switches one off."""

    max_connections: int = 10_000
    """Connections in all; never more than the process may have descriptors, less 64."""
    max_connections_per_host: int = 1000
    """Connections of one remote host."""
    evict_after: float = 1.0
    """Seconds that the longest idle connection must be idle before a full server closes it for a new one.

    Otherwise the server refuses the new one.
    """
    max_memory: int = 1024 * 1024 * 1024
    """Bytes of memory kept for all connections and links: unfinished input, messages that wait, output.

    Above that the oldest unfinished input is given up, or the largest holder is closed.
    """
    max_memory_per_host: int = 256 * 1024 * 1024
    """The same for the connections and links of one remote host.

    From three quarters of it, connections with something waiting are not read until half is free.
    """
    idle_timeout: float | None = 3600.0
    """How long a connection may carry nothing, in either direction."""
    handshake_timeout: float | None = 60.0
    """How long a peer may take until its first valid message.

    The handshake timeouts of the protocols are shorter where they have one.
    """
    linger: float = 1.0
    """At shutdown: how long to wait for peers to read what was sent to them."""
    drain: float = 0.0
    """At shutdown: how long to wait first for requests that are being worked on."""
    sweep_interval: float = 1.0
    """How often times are checked, and memory is given back to the system."""

    @property
    def connections(self) -> int:
        """`max_connections`, or less if the process may not open as many."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if most == resource.RLIM_INFINITY:
            return self.max_connections
        return min(self.max_connections, max(most - RESERVED_DESCRIPTORS, most // 2))


DEFAULT_SERVER_LIMITS: Final = ServerLimits()


class Guest(Protocol):
    """What a server must know of a connection."""

    @property
    def host(self) -> str:
        """Where it comes from."""

    @property
    def since(self) -> float:
        """When it began."""

    @property
    def active_at(self) -> float:
        """When it carried something last."""

    @property
    def is_proven(self) -> bool:
        """Whether the peer has sent a valid message."""


G = TypeVar("G", bound=Guest)


def evictable(guests: Iterable[G], limits: ServerLimits, now: float, host: str | None = None) -> G | None:
    """The connection to close for a new one: of `host`, or of the host with the most.

    Silent ones first, then the longest idle.
    """
    guests = list(guests)
    if host is None and guests:
        host = Counter(one.host for one in guests).most_common(1)[0][0]
    idle = [one for one in guests if one.host == host and now - one.active_at >= limits.evict_after]
    return min(idle, key=lambda one: (one.is_proven, one.active_at), default=None)


def over_time(guests: Iterable[G], limits: ServerLimits, now: float) -> list[tuple[G, str]]:
    """Connections whose time is up, and why."""
    late = []
    for guest in guests:
        quiet = now - guest.active_at
        if not guest.is_proven and limits.handshake_timeout is not None and now - guest.since >= limits.handshake_timeout:
            late.append((guest, f"no valid message in {limits.handshake_timeout:g} s"))
        elif limits.idle_timeout is not None and quiet >= limits.idle_timeout:
            late.append((guest, f"idle for {limits.idle_timeout:g} s"))
    return late
