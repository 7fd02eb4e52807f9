"""Options of an Event Mesh session: limits, timers, trust policy and relay rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from wirelake.errors import UsageError
from wirelake.protocols import topics
from wirelake.protocols.event_mesh.limits import Limits
from wirelake.protocols.event_mesh.messages import EventType
from wirelake.protocols.event_mesh.security.trust import Policy

__all__ = ["DEFAULT_OPTIONS", "Address", "Limits", "Options", "RelayRule"]

Address = tuple[str, int]
"""Where a datagram comes from or goes to: host and port."""


class RelayRule(msgspec.Struct, frozen=True):
    """§1: which packets are routed to whom.

    Whatever the rule, a packet is passed on as it came, once, and not to where it came from.
    """

    pattern: str = topics.REST
    """Names of events, as in `topics`.

    A hidden name that cannot be read here is matched by `>` alone.
    """
    types: frozenset[int] = frozenset({EventType.EVENT})
    """The event types; the pattern is for events only."""
    sources: frozenset[Address] = frozenset()
    """Where packets must come from; empty: from anywhere."""
    to: tuple[Address, ...] = ()
    """Where they go; empty: to every node that is talked to, but to no multicast group."""
    unverified: bool = False
    """EMM-29: also what is proven by keys that are not known here.

    Without it, only what a receiver here would accept.
    """

    def __post_init__(self) -> None:
        topics.check(self.pattern)


class Options(Limits, frozen=True, kw_only=True):
    """Options of a session, its limits included. Times are seconds; None switches a timer off."""

    policy: Policy = Policy()
    capabilities: bytes = b""
    """§3.1: the capabilities in a hello; the specification leaves them to the application (EMM-33)."""
    hello_interval: float | None = 60.0
    """§3.1: how often a node sends hello to nodes that may not know it yet."""
    heartbeat_interval: float | None = 10.0
    """§3.2: how often a node sends a heartbeat. All nodes of a mesh should agree on it."""
    missed_heartbeats: int = 3
    """§3.2: heartbeats that may be lost; half an interval after that, a node counts as silent."""
    forget_after: float = 600.0
    """How long a silent node stays in the table."""
    max_peers: int = 1024
    """Nodes in the table; an authenticated one is never displaced by one that is not."""
    learns: bool = True
    """§3.1: send to nodes that sent a hello, beside the configured ones."""
    learns_unproven: bool = False
    """Also to unauthenticated nodes. Off by default: anyone could make this node send to any address."""
    rate_limit: float | None = 20_000.0
    """Packets a second from one host; more are dropped unread."""
    rate_burst: int = 20_000
    """Packets of one host that may arrive at once."""
    max_sources: int = 4096
    """Hosts with a rate of their own; further ones share one."""
    max_queued: int = 16_384
    """Datagrams that wait to be sent."""
    max_urgent: int = 4096
    """§2.3: urgent datagrams that wait to be sent, before all others."""
    replay_capacity: int = 262_144
    """§7: authenticated packets in the replay cache; the oldest is evicted first, and counted."""
    unproven_capacity: int = 65_536
    """EMM-23: unauthenticated packets in the replay cache."""
    replay_fail_closed: bool = False
    """EMM-23: when the replay cache is full, drop new packets instead of evicting old ones."""
    max_recent_ids: int = 1 << 20
    """EMM-22: our own recent message ids that are kept; the oldest is evicted first, and counted."""
    relay: tuple[RelayRule, ...] = ()
    """EMM-29: relay rules; the first one that matches a packet applies."""
    opens_sealed: bool = True
    """EMM-13, EMM-14: open sealed and compressed payloads that keep to the helper profile.

    Others, and without this option all, are delivered sealed: `Delivered.sealed`.
    """
    drops_sealed: bool = False
    """Drop packets that `opens_sealed` cannot open, instead of delivering them sealed."""
    opening_keys: Mapping[bytes, bytes] = {}
    """EMM-13: encryption keys by key id, beside those of the trust store."""
    handled_types: frozenset[int] = frozenset()
    """EMM-21: event types the specification does not define and the application does; others are ignored."""

    def __post_init__(self) -> None:
        if self.missed_heartbeats < 1 or self.max_peers < 0 or self.max_queued < 1 or self.max_urgent < 1 or self.max_recent_ids < 1:
            raise UsageError("missed_heartbeats, max_queued, max_urgent and max_recent_ids are at least 1, max_peers at least 0")
        if any(interval is not None and interval <= 0 for interval in (self.hello_interval, self.heartbeat_interval)):
            raise UsageError("hello_interval and heartbeat_interval are more than 0, or None")

    @property
    def silence_after(self) -> float | None:
        """Seconds without a sign of life after which a node is silent."""
        return None if self.heartbeat_interval is None else (self.missed_heartbeats + 0.5) * self.heartbeat_interval

    @property
    def limits(self) -> Limits:
        """The same object, as the limits of its messages."""
        return self


DEFAULT_OPTIONS: Final = Options()
