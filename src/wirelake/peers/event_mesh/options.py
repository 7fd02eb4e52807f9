"""What a live node of Event Mesh may be told beyond its session's options, and what it counts. It refuses to act on any of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.event_mesh.events import Delivered, Dropped, Metrics, PeerChanged
from wirelake.protocols.event_mesh.options import DEFAULT_OPTIONS, Options
from wirelake.protocols.event_mesh.security.trust import TrustStore
from wirelake.transports import udp

if TYPE_CHECKING:
    from wirelake.transports.quic import Quic

__all__ = ["DEFAULT_LIVE", "Live", "NodeMetrics"]


class Live(msgspec.Struct, frozen=True):
    """What a node may be told beyond its session's options; every limit has its name here. Times are seconds."""

    session: Options = DEFAULT_OPTIONS
    trust: TrustStore | None = None
    """§4.2: the keys of others; keys that are added to it later count at once."""
    trust_path: Path | None = None
    """The same from a file (`peers.trust_file`)."""
    replay_path: Path | None = None
    """EMM-23: where the replay cache survives a restart."""
    replay_save_interval: float | None = 60.0
    """How often it is saved beside the end; what a crash makes us forget can come again for as long as it is fresh."""
    max_inbox: int = 8192
    """Events that wait for a subscriber, and as many urgent ones; more are dropped for it, and counted."""
    multicast: udp.Multicast = udp.NO_GROUPS
    """How what is sent to groups travels; its groups are those given to `node`."""
    quic: Quic | None = None
    """§1: for `quic://`, which keeps secret what is said; `wirelake[quic]` must be installed."""
    socket_buffer: int = udp.SOCKET_BUFFER
    """Bytes the system is asked to hold, each way."""
    max_received: int = udp.MAX_QUEUE
    """Datagrams that wait to be looked at."""
    linger: float = 1.0
    """How long handlers may work on what had arrived when the node is closed."""
    recorder: Recorder | None = None
    max_recorded: int = 4096
    """Remote addresses whose conversations are recorded at the same time; the one that spoke least recently is closed for a new one."""
    on_peer: Callable[[PeerChanged], None] | None = None
    on_drop: Callable[[Dropped], None] | None = None
    on_other: Callable[[Delivered], None] | None = None
    """EMM-21: gets the messages of `Options.handled_types`."""
    clock: Callable[[], float] = time.time
    draw: Callable[[int], bytes] = secrets.token_bytes


DEFAULT_LIVE: Final = Live()


class NodeMetrics(msgspec.Struct, frozen=True):
    """What a node counted: its session, and what was lost around it."""

    session: Metrics
    lost: int
    """Datagrams that came to this machine and found no room, as far as the system tells."""
    unsent: int
    """Datagrams that the system refused to send."""
    inbox_full: int
    """Events that a subscriber was too slow for."""
    unheard: int
    """Events that nobody here had subscribed to."""
    callbacks_failed: int
    """Times that a handler or callback raised."""
