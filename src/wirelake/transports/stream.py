"""The stream interface under every connection.

`tcp.py`, `unix.py` and `memory.py` implement it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

__all__ = ["CHUNK", "Address", "FramedStream", "MessageStream", "PushStream", "Stream"]

CHUNK = 256 * 1024
"""Bytes read in one go at most."""

Address = tuple[str, int]
"""Host and port; a memory stream's host is `memory`, a Unix socket's is its path, with port 0."""


class Stream(Protocol):
    """Bytes both ways, in order."""

    kind: str
    """`tcp`, `tls`, `ws`, `wss`, `unix`, `udp` or `memory`."""
    local: Address
    remote: Address

    async def receive(self) -> bytes:
        """Whatever arrived, at least one byte; nothing at the end. Raises OSError if the connection broke."""

    def send(self, data: bytes) -> None:
        """Queue bytes; they leave by themselves. After `finish`, `close` or `abort` they are dropped, on every transport."""

    @property
    def congested(self) -> bool:
        """The peer reads more slowly than we write: wait with `drain`."""

    @property
    def unsent(self) -> int:
        """Bytes that are queued here and not on their way yet."""

    @property
    def unacknowledged(self) -> int:
        """Bytes that the system has not sent, or not seen acknowledged; 0 where that is unknown."""

    @property
    def abandoned(self) -> int:
        """Bytes given to `send` that had not left this machine when the connection broke or was aborted; 0 before that.

        It is an upper bound where the system cannot tell. Streams with an envelope count its bytes, too.
        """

    async def drain(self) -> None:
        """Wait until what is queued is below the mark. Raises OSError if the connection broke."""

    def finish(self) -> None:
        """Say that no more bytes will be sent, where the transport can say so."""

    def watch_path(self, seconds: float) -> None:
        """End with an error when the other host was unreachable for so long; does nothing without a TCP connection of its own."""

    async def close(self) -> None:
        """Flush, close, and wait until it is closed."""

    def abort(self) -> None:
        """Close at once; what is queued is lost."""


@runtime_checkable
class MessageStream(Stream, Protocol):
    """A stream that keeps message boundaries: data sent as one message arrives as one.

    It may be read in any pieces.
    """

    def send_messages(self, messages: list[bytes]) -> None:
        """Queue messages; each stays whole."""


@runtime_checkable
class FramedStream(Stream, Protocol):
    """A stream with frames of its own: half a frame is kept here until it is whole."""

    on_unfinished: Callable[[], None]
    """Called when more of half a frame has arrived, and nothing to `receive`."""

    @property
    def unfinished(self) -> int:
        """Bytes of half a frame."""

    def discard(self) -> None:
        """Free half a frame, and read nothing more of the peer; what is sent still leaves."""


@runtime_checkable
class PushStream(Stream, Protocol):
    """A stream that can call when bytes arrive: that saves a task switch and a turn of the event loop."""

    def attach(self, arrived: Callable[[bytes], None], ended: Callable[[OSError | None], None]) -> None:
        """Call `arrived` with everything from now on, then `ended` once; nothing is left to `receive`."""

    def detach(self) -> None:
        """Call no more; `receive` gives what comes."""

    def pause(self) -> None:
        """Call no more until `resume`: the socket is not read."""

    def resume(self) -> None:
        """Call again."""
