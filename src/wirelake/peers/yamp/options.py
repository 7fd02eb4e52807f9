"""Options of a live YAMP peer: limits, timers, handlers, queues and recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wirelake.capture.record.recorder import Recorder
from wirelake.peers.yamp.service import Call, Service
from wirelake.protocols.yamp.options import Options as SessionOptions

if TYPE_CHECKING:
    from wirelake.peers.yamp.peer import Peer
else:  # for `help` and `inspect.signature`: these modules import this one, or need an extra
    Peer = Any

__all__ = ["FailureHandler", "Options"]

FailureHandler = Callable[["Peer", Call, Exception], Any]
"""Returns the body of the error for a request whose handler raised this exception."""


class Options(SessionOptions, frozen=True, kw_only=True):
    """Options of a peer. Times are seconds; None switches a timer off."""

    service: Service | None = None
    """Answers requests and receives events; without one, every request gets the error for an unknown uri."""
    on_request: Callable[[Peer, Call], None] | None = None
    """Called with every request that has a handler, before the handler."""
    on_failure: FailureHandler | None = None
    """YAMP-40: makes the body of the error when a handler raised something that is not meant for the peer."""
    max_in_flight: int = 1024
    """Messages of the peer being worked on; above that reading stops."""
    max_inbox: int = 1024
    """Events and progress steps waiting to be processed.

    Above that reading stops, also for answers to our requests.
    """
    max_held: int = 32 * 1024 * 1024
    """Bytes of messages that wait or are being worked on; above that reading stops."""
    max_body_inline: float = 64 * 1024
    """YAMP-44: bytes of a body above which a thread parses it.

    Other connections are served meanwhile; this one waits, so that its messages stay in order.
    """
    max_unsent: int = 16 * 1024 * 1024
    """Bytes of output the peer does not read; above that reading stops."""
    linger: float = 1.0
    """YAMP-20: how long to wait for the peer to close after our last message."""
    stall_timeout: float = 60.0
    """How long the peer may read nothing while output waits for it."""
    path_timeout: float | None = 120.0
    """Over TCP: how long the other host may be unreachable, or read nothing that was sent; never less than `stall_timeout`.

    The system sends probes on silent connections, and ends those without an answer.
    """
    silence_timeout: float | None = 15.0
    """How long no byte may come while our requests time out: after three in a row the connection is given up."""
    datagram_ping_interval: float = 30.0
    """YAMP-15: how often a server pings a client over UDP, whose end it cannot see otherwise."""
    origins: tuple[str, ...] = ()
    """Origins such as `https://example.org` whose pages may connect to a server over WebSocket.

    Pages of the same host always may, and clients that are no browsers. Others get 403.
    """
    recorder: Recorder | None = None
    """Records both directions of the connection."""
