"""Options of an EMP session, and the interface of extensions that an application registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from wirelake.protocols.emp.limits import Limits
from wirelake.protocols.reply_timer import MIN_RATE

__all__ = ["DEFAULT_OPTIONS", "Codec", "Limits", "Options", "Refused"]


class Refused(Exception):
    """Raised by a codec for a block or body it does not accept; `code` goes into the error message."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        super().__init__(text)


class Codec(Protocol):
    """EMP-9: the interface of an extension that an application registers."""

    def undo(self, content: bytes, body: bytes) -> bytes:
        """The body as it was before the extension was applied; raises Refused."""


class Options(Limits, frozen=True, kw_only=True):
    """Options of a session, its limits included. Times are seconds; None switches a timer off."""

    handshake_timeout: float | None = 5.0
    """EMP-29: how long to wait for the peer's hello."""
    dialect_wait: float = 1.0
    """EMP-1: how long to wait for the peer's hello with `sizes_exclude_themselves="auto"`.

    After that, our hello is sent by the text.
    """
    answers_other_versions: bool = False
    """EMP-27: answer a hello of another version with error 3, and not by closing alone.

    The text asks a newer peer to send its highest version, and a side that does not support it to close.
    """
    ping_interval: float | None = 10.0
    """EMP-32: how long after the last pong the next ping is sent."""
    pong_timeout: float | None = 10.0
    """EMP-32: how long to wait for a pong.

    An unfinished message that arrives, and our own output that drains, postpone the deadline.
    """
    min_rate: float = MIN_RATE
    """EMP-32: bytes a second below which a connection counts as silent.

    Only faster ones postpone the deadline of a pong.
    """
    request_timeout: float | None = 30.0
    """EMP-16: how long a request waits for its answer, unless it has a timeout of its own."""
    max_abandoned: int = 65_536
    """EMP-16: abandoned requests whose late answer is still recognised; the oldest is forgotten first."""
    in_order: bool = False
    """EMP-17: send responses in the order of their requests."""
    answers_requests: bool = True
    """EMP-19: requests are answered; without it a request ends the session.

    A live peer sets it if `on_request` is given.
    """
    application_types: frozenset[int] = frozenset()
    """EMP-24: the message types from 128 on that the application handles."""
    codecs: Mapping[int, Codec] = {}
    """EMP-9: the extensions from 128 on that the application registered."""

    @property
    def limits(self) -> Limits:
        """The same object, as the limits of its messages."""
        return self


DEFAULT_OPTIONS: Final = Options()
