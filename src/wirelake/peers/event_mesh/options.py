"""Options of a live Event Mesh node in one flat object, and the counters it keeps."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.event_mesh.events import Delivered, Dropped, Metrics, PeerChanged
from wirelake.protocols.event_mesh.options import Options as SessionOptions
from wirelake.protocols.event_mesh.security.trust import TrustStore
from wirelake.transports import udp

if TYPE_CHECKING:
    from wirelake.peers.event_mesh.node import Node
    from wirelake.transports.quic import Quic
else:  # for `help` and `inspect.signature`: these modules import this one, or need an extra
    Node = Any
    Quic = Any

__all__ = ["NodeMetrics", "Options"]


class Options(SessionOptions, frozen=True, kw_only=True):
    """Options of a node. Times are seconds; None switches a timer off."""

    trust: TrustStore | None = None
    """§4.2: the keys of other nodes; keys added later count at once."""
    trust_path: Path | None = None
    """A file with such keys (`wirelake keys`); give this or `trust`."""
    replay_path: Path | None = None
    """EMM-23: a file that keeps the replay cache over a restart."""
    replay_save_interval: float | None = 60.0
    """How often `replay_path` is saved, besides at the end.

    After a crash, packets since then can be replayed while they are fresh.
    """
    max_inbox: int = 8192
    """Events that wait for a subscriber, and as many urgent ones.

    Further ones are dropped for it, and counted.
    """
    max_memory: int = 64 * 1024 * 1024
    """Bytes of memory that events take which wait for subscribers; further ones are dropped, and counted."""
    multicast: udp.Multicast = udp.NO_GROUPS
    """Interface and TTL for multicast; the groups are those given to `node`."""
    quic: Quic | None = None
    """§1: certificates for `quic://`; needs `wirelake[quic]`."""
    socket_buffer: int = udp.SOCKET_BUFFER
    """Bytes of the socket buffers, each way."""
    max_received: int = udp.MAX_QUEUE
    """Received datagrams that wait to be processed."""
    linger: float = 1.0
    """How long handlers may finish their work when the node is closed."""
    recorder: Recorder | None = None
    """Records every datagram sent and received."""
    max_recorded: int = 4096
    """Remote addresses recorded at the same time; the least recently active one is closed for a new one."""
    on_peer: Callable[[Node, PeerChanged], None] | None = None
    """Called when a node appears, falls silent or is forgotten."""
    on_drop: Callable[[Node, Dropped], None] | None = None
    """Called for every packet that is dropped."""
    on_other: Callable[[Node, Delivered], None] | None = None
    """EMM-21: receives the messages of `handled_types`."""
    clock: Callable[[], float] = time.time
    """The time written into packets, and by which theirs is judged: seconds since 1970."""
    draw: Callable[[int], bytes] = secrets.token_bytes
    """Random bytes for message ids and nonces."""


class NodeMetrics(msgspec.Struct, frozen=True):
    """Counters of a node: those of its session, and losses around it."""

    session: Metrics
    lost: int
    """Received datagrams that were dropped because a queue was full, as far as the system reports it."""
    unsent: int
    """Datagrams that the system did not send."""
    inbox_full: int
    """Events that a subscriber was too slow for."""
    unheard: int
    """Events without a subscriber here."""
    callbacks_failed: int
    """Times that a handler or callback raised."""
