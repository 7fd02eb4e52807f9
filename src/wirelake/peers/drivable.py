"""The interface of a session to its driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = ["Drivable"]


class Drivable(Protocol):
    """What a session offers, whatever the protocol."""

    ended: Any
    """None, or how it ended: `here` is true if this side ended it, `fault` is the broken rule."""
    inflated_a_turn: float
    """Decompressed bytes after which the session leaves the rest of a receipt to a `job`; the owner sets it if it does jobs."""
    sent_sizes: Sequence[int]
    """How long the frames of the last `output` are, if it was large."""

    @property
    def deadline(self) -> float | None: ...
    @property
    def frames(self) -> bytes: ...
    @property
    def frame_sizes(self) -> Sequence[int]: ...
    @property
    def rest(self) -> bytes: ...
    @property
    def held(self) -> int:
        """Bytes of unfinished messages."""

    @property
    def walked(self) -> int:
        """Bytes of the last `receive` that would take less time after `compile`."""

    @property
    def is_proven(self) -> bool:
        """Whether the peer has sent a valid message."""

    def compile(self) -> None:
        """Make receiving faster, if that is possible. Takes a second: it is called in a thread."""

    def release(self) -> None:
        """Free memory: the session is over, and nothing will be received or sent."""

    def start(self, now: float) -> None: ...
    def receive(self, data: bytes, now: float) -> None: ...
    def receive_eof(self, now: float) -> None: ...
    def tick(self, now: float) -> None: ...
    def bye(self, detail: str = "") -> None: ...
    def output(self) -> bytes: ...
    def events(self) -> list[Any]: ...
    def pause(self) -> None: ...
    def resume(self, now: float) -> None: ...
    @property
    def inflated(self) -> int:
        """How many bytes were made by decompressing so far."""

    @property
    def job(self) -> Callable[[], Any] | None:
        """Work that takes long and needs nothing of the session: for a thread.

        Until `finish` gets its outcome, the session takes nothing more of the peer. The owner receives no more bytes meanwhile.
        """

    def finish(self, outcome: Any, now: float) -> None: ...
    @property
    def asked(self) -> int:
        """A number that changes with every message that the peer must answer in time, such as a ping."""

    def drained(self, count: int, now: float) -> None:
        """Note that so many bytes have left of those that were written up to the last call.

        Their timeout may begin later.
        """
