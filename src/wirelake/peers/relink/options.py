"""Options of a live Relink link: limits, timers, queues and recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.relink.events import SessionEvent
from wirelake.protocols.relink.options import Options as SessionOptions

if TYPE_CHECKING:
    from wirelake.peers.relink.link import Link
else:  # for `help` and `inspect.signature`: these modules import this one, or need an extra
    Link = Any

__all__ = ["EventHandler", "Options"]

EventHandler = Callable[["Link", SessionEvent], None]
"""Receives the events of a link, such as Opened, Resumed, LinkShutdown and Ended.

LinkLost has every unresolved message.
"""


class Options(SessionOptions, frozen=True, kw_only=True):
    """Options of a link and its connections. Times are seconds; None switches a timer off."""

    on_event: EventHandler | None = None
    """Called for everything that happens to a link but messages."""
    automatic: bool = True
    """Whether `async for` consumes a message when the next one is requested.

    Without it, `link.consume` does that.
    """
    max_inbox: int = 16_384
    """RELINK-17: messages waiting to be read; above that reading stops, also for acknowledgements."""
    max_held: int = 32 * 1024 * 1024
    """Bytes of messages waiting to be read; above that reading stops."""
    max_outstanding: int = 256 * 1024 * 1024
    """Bytes of sent messages that the peer has not consumed; above that senders wait."""
    max_unsent: int = 16 * 1024 * 1024
    """Bytes of output the peer does not read; above that reading stops."""
    linger: float = 1.0
    """How long to wait for the peer to close after both have shut down."""
    stall_timeout: float = 30.0
    """RELINK-25: how long the peer may read nothing while output waits for it."""
    path_timeout: float | None = 120.0
    """Over TCP: how long the other host may be unreachable, or read nothing that was sent; never less than `stall_timeout`.

    The system sends probes on silent connections, and ends those without an answer.
    """
    close_timeout: float = 10.0
    """How long closing a link waits until everything is consumed."""
    recorder: Recorder | None = None
    """Records both directions of every connection."""
