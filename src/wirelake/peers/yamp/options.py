"""What a live YAMP peer may be told beyond its session's options. It refuses to act on any of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from wirelake.capture.record.recorder import Recorder
from wirelake.peers.yamp.service import Call, Service
from wirelake.protocols.yamp.options import DEFAULT_OPTIONS, Options

__all__ = ["DEFAULT_LIVE", "FailureHandler", "Live"]

FailureHandler = Callable[[Call, Exception], Any]


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """Every limit has its name here. Times are seconds."""

    session: Options = DEFAULT_OPTIONS
    service: Service | None = None
    """Who answers and listens; without one, requests are refused as of an unknown uri."""
    on_request: Callable[[Call], None] | None = None
    """Sees every request that has a handler, before the handler does."""
    on_failure: FailureHandler | None = None
    """YAMP-40: makes the body of the error when a handler raised something that is not meant for the peer."""
    max_in_flight: int = 1024
    """Messages of the peer being worked on; above that nothing more is read."""
    max_inbox: int = 1024
    """Events and steps waiting to be attended to; above that nothing more is read, also no answer to a request of ours."""
    max_held: int = 32 * 1024 * 1024
    """Bytes of messages that wait or are worked on; above that nothing more is read."""
    max_unsent: int = 16 * 1024 * 1024
    """Bytes the peer asked for and does not read; above that nothing more is read."""
    linger: float = 1.0
    """YAMP-20: how long to wait for the peer to close after our last word."""
    stall_timeout: float = 60.0
    """How long a peer may read nothing while we have something for it."""
    datagram_ping_interval: float = 30.0
    """YAMP-15: how often a server asks a client that it has only datagrams from; such a client cannot be seen to leave."""
    recorder: Recorder | None = None


DEFAULT_LIVE: Final = Live()
