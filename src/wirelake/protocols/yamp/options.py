"""What a session of YAMP may be told. It refuses to act on any of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wirelake.protocols.reply_timer import MIN_RATE
from wirelake.protocols.yamp.scanner import Limits, MessageLimits
from wirelake.protocols.yamp.serializers.registry import STANDARD, Registry, Serializer

__all__ = ["DEFAULT_OPTIONS", "Limits", "Options", "Registry", "Serializer"]


class Options(MessageLimits, frozen=True, kw_only=True):
    """What a session may be told; every limit and every timer has its name here. Times are seconds; None switches a timer off."""

    serializer: str = "json"
    """YAMP-7: the one a client asks for; for a server, the one an empty name stands for."""
    serializers: Mapping[str, Serializer] = STANDARD
    """YAMP-7: the set a server supports; a client's own must be in it."""
    accept_empty_serializer: bool = True
    """YAMP-5: a server takes an empty name for its default and echoes it as it is."""
    handshake_timeout: float | None = 5.0
    """YAMP-12: how long to wait for the peer's handshake."""
    ping_interval: float | None = None
    """YAMP-18: how long after the last pong the next ping is sent; off, because known peers do not answer."""
    ping_timeout: float | None = 10.0
    """YAMP-18: how long to wait for a pong. Silence after a keep-alive ping ends the session; after a ping by hand only that ping."""
    min_rate: float = MIN_RATE
    """YAMP-18: bytes a second below which a line counts as silent: only faster ones postpone the deadline of a pong."""
    request_timeout: float | None = 30.0
    """YAMP-41: how long a request waits, from its sending or its last progress, unless it says otherwise."""
    kill_on_timeout: bool = False
    """YAMP-41: tell the peer that nobody waits any more."""
    redirect_to: str | None = None
    """0x04 system.close-redirect: a server sends every client there instead of echoing its handshake."""
    datagrams: bool = False
    """YAMP-15: what is received is one message each time, and may be lost, repeated or cut."""
    handshake_interval: float = 0.5
    """YAMP-15: how long a client waits before it repeats its handshake in another datagram."""
    max_datagram: int = 65_507
    """YAMP-15: bytes that a datagram holds."""

    @property
    def limits(self) -> MessageLimits:
        """The same object, as the limits of its messages."""
        return self


DEFAULT_OPTIONS: Final = Options()
