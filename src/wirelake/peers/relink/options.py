"""What a live link may be told. It refuses to act on any of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.relink.events import SessionEvent
from wirelake.protocols.relink.options import DEFAULT_OPTIONS, Options

if TYPE_CHECKING:
    from wirelake.peers.relink.link import Link

__all__ = ["DEFAULT_LIVE", "EventHandler", "Live"]

EventHandler = Callable[["Link", SessionEvent], None]
"""Hears everything that happens to a link: Opened, Resumed, LinkLost with every unresolved message, LinkShutdown, Ended, …"""


class Live(msgspec.Struct, frozen=True):
    """What a link may be told beyond its session's options; every limit has its name here. Times are seconds."""

    session: Options = DEFAULT_OPTIONS
    on_event: EventHandler | None = None
    automatic: bool = True
    """Messages read with `async for` are consumed when the next one is asked for; without, `link.consume` does it."""
    max_inbox: int = 16_384
    """RELINK-17: messages waiting to be read; above that nothing more is read from the connection, acknowledgements neither."""
    max_held: int = 32 * 1024 * 1024
    """Bytes of messages waiting to be read; above that nothing more is read."""
    max_outstanding: int = 256 * 1024 * 1024
    """Bytes of messages we sent and the peer has not consumed; above that senders wait."""
    max_unsent: int = 16 * 1024 * 1024
    """Bytes the peer does not read; above that nothing more is read."""
    linger: float = 1.0
    """How long to wait for the peer to close after both have shut down."""
    stall_timeout: float = 30.0
    """RELINK-25: how long a peer may read nothing while we have something for it."""
    close_timeout: float = 10.0
    """How long to wait for everything to be consumed when a link is closed."""
    recorder: Recorder | None = None


DEFAULT_LIVE: Final = Live()
