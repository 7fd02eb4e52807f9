"""Options of a live EMP peer: limits, timers, handlers, queues and recording."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.emp.events import DataReceived, RequestReceived
from wirelake.protocols.emp.options import Options as SessionOptions

if TYPE_CHECKING:
    from wirelake.peers.emp.peer import Peer
else:  # for `help` and `inspect.signature`: these modules import this one, or need an extra
    Peer = Any

__all__ = ["DataHandler", "FailureHandler", "Options", "RequestHandler"]

RequestHandler = Callable[["Peer", RequestReceived], bytes | Awaitable[bytes]]
"""Returns the answer to a request.

A plain function for quick work, a coroutine function for slow work.
"""
DataHandler = Callable[["Peer", DataReceived], Awaitable[None] | None]
"""Receives a message that needs no answer."""
FailureHandler = Callable[["Peer", RequestReceived, Exception], bytes]
"""Returns the answer to a request whose handler raised this exception."""


class Options(SessionOptions, frozen=True, kw_only=True):
    """Options of a peer. Times are seconds; None switches a timer off."""

    on_request: RequestHandler | None = None
    """Answers requests; without it a request of the peer ends the session (EMP-19)."""
    on_data: DataHandler | None = None
    """Receives messages; without it they wait to be read with `async for`."""
    on_failure: FailureHandler | None = None
    """EMP-19: makes the answer when `on_request` raised; without it the session ends with error 0."""
    max_in_flight: int = 1024
    """Messages of the peer being worked on; above that reading stops."""
    max_inbox: int = 1024
    """Messages waiting to be read; above that reading stops, also for answers to our requests."""
    max_held: int = 32 * 1024 * 1024
    """Bytes of messages that wait or are being worked on; above that reading stops."""
    max_unsent: int = 16 * 1024 * 1024
    """Bytes of output the peer does not read; above that reading stops."""
    max_inflated_rate: float = 64 * 1024 * 1024
    """EMP-37: bytes a second that bodies may be decompressed to; a connection that wants more waits, and others are served."""
    linger: float = 1.0
    """EMP-33, EMP-34: how long to wait for the peer to close after our last message."""
    stall_timeout: float = 60.0
    """How long the peer may read nothing while output waits for it."""
    path_timeout: float | None = 120.0
    """Over TCP: how long the other host may be unreachable, or read nothing that was sent; never less than `stall_timeout`.

    The system sends probes on silent connections, and ends those without an answer.
    """
    silence_timeout: float | None = 15.0
    """How long no byte may come while our requests time out: after three in a row the connection is given up."""
    recorder: Recorder | None = None
    """Records both directions of the connection."""
