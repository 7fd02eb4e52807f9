"""What a session of EMP may be told, and what an application may register. It refuses to act on any of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from wirelake.protocols.emp.scanner import Limits
from wirelake.protocols.reply_timer import MIN_RATE

__all__ = ["DEFAULT_OPTIONS", "Codec", "Limits", "Options", "Refused"]


class Refused(Exception):
    """What a codec raises for a block or body it does not accept; `code` goes into the error message."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        super().__init__(text)


class Codec(Protocol):
    """EMP-9: what an application registers for an extension of its own."""

    def undo(self, content: bytes, body: bytes) -> bytes:
        """The body as it was before the extension was applied; raises Refused."""


class Options(Limits, frozen=True, kw_only=True):
    """What a session may be told; every limit and every timer has its name here. Times are seconds; None switches a timer off."""

    handshake_timeout: float | None = 5.0
    """EMP-29: how long to wait for the peer's hello."""
    dialect_wait: float = 1.0
    """EMP-1: with `sizes_exclude_themselves="auto"`, how long to wait for the peer's hello before ours is said by the text."""
    ping_interval: float | None = 10.0
    """EMP-32: how long after the last pong the next ping is sent."""
    pong_timeout: float | None = 10.0
    """EMP-32: how long to wait for a pong; an unfinished message that arrives, and our own output that drains, postpone the deadline."""
    min_rate: float = MIN_RATE
    """EMP-32: bytes a second below which a line counts as silent: only faster ones postpone the deadline of a pong."""
    request_timeout: float | None = 30.0
    """EMP-16: how long a request waits, unless it says otherwise."""
    max_abandoned: int = 65_536
    """EMP-16: given-up requests whose late answer is still expected; the oldest is forgotten first."""
    in_order: bool = False
    """EMP-17: send responses in the order of their requests."""
    answers_requests: bool = True
    """EMP-19: there is somebody here who answers; without, a request ends the session."""
    application_types: frozenset[int] = frozenset()
    """EMP-24: the message types from 128 on that the application handles."""
    codecs: Mapping[int, Codec] = {}
    """EMP-9: the extensions from 128 on that the application registered."""

    @property
    def limits(self) -> Limits:
        """The same object, as the limits of its messages."""
        return self


DEFAULT_OPTIONS: Final = Options()
