"""Options of a YAMP session."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from wirelake.protocols.reply_timer import MIN_RATE
from wirelake.protocols.yamp.limits import Limits, MessageLimits
from wirelake.protocols.yamp.serializers.registry import STANDARD, Registry, Serializer

__all__ = ["DEFAULT_OPTIONS", "Limits", "Options", "Registry", "Serializer"]


class Options(MessageLimits, frozen=True, kw_only=True):
    """Options of a session, its limits included. Times are seconds; None switches a timer off."""

    serializer: str = "json"
    """YAMP-7: the name a client offers; for a server, the one that an empty name means."""
    serializers: Mapping[str, Serializer] = STANDARD
    """YAMP-7: the set a server supports; a client's own must be in it."""
    accept_empty_serializer: bool = True
    """YAMP-5: a server accepts an empty name as its default, and echoes it empty."""
    handshake_timeout: float | None = 5.0
    """YAMP-12: how long to wait for the peer's handshake."""
    ping_interval: float | None = None
    """YAMP-18: how long after the last pong the next ping is sent; off, because known peers do not answer."""
    ping_timeout: float | None = 10.0
    """YAMP-18: how long to wait for a pong.

    Silence after a keep-alive ping ends the session; after a ping by hand only that ping.
    """
    min_rate: float = MIN_RATE
    """YAMP-18: bytes a second below which a connection counts as silent.

    Only faster ones postpone the deadline of a pong.
    """
    request_timeout: float | None = 30.0
    """YAMP-41: how long a request without a timeout of its own waits.

    The time counts from its sending or its last progress.
    """
    kill_on_timeout: bool = False
    """YAMP-41: kill a request at the peer when it times out here."""
    max_body_inline: float = math.inf
    """YAMP-44: bytes of the largest body that `receive` parses itself; a larger one becomes a `job` for the owner of the session."""
    redirect_to: str | None = None
    """0x04 system.close-redirect: a server redirects every client there instead of echoing its handshake."""
    datagrams: bool = False
    """YAMP-15: each receipt is one message, which may be lost, repeated or cut.

    A live peer sets it by its transport.
    """
    handshake_interval: float = 0.5
    """YAMP-15: how long a client waits before it repeats its handshake in another datagram."""
    max_datagram: int = 65_507
    """YAMP-15: bytes of a datagram at most."""

    @property
    def limits(self) -> MessageLimits:
        """The same object, as the limits of its messages."""
        return self


DEFAULT_OPTIONS: Final = Options()
