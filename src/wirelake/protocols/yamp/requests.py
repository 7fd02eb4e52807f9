"""Requests in flight, by uid: those of this side, and those of the peer."""

from __future__ import annotations

import msgspec

from wirelake.errors import LocalProtocolError
from wirelake.protocols.expiries import Expiries
from wirelake.protocols.yamp.faults import Fault

__all__ = ["IncomingRequests", "OutgoingRequests", "Pending", "Taken"]


class Pending(msgspec.Struct, frozen=True, gc=False):
    """A request of ours that has no outcome yet."""

    uri: str
    progressive: bool
    patience: float | None
    """Seconds it waits from its sending or its last progress."""


class OutgoingRequests:
    """Requests of this side, with their deadlines. Unknown uids are not remembered (YAMP-37)."""

    def __init__(self) -> None:
        self._pending: dict[bytes, Pending] = {}
        self.expiries: Expiries[bytes] = Expiries()
        """When pending requests expire."""

    def __len__(self) -> int:
        return len(self._pending)

    def ask(self, uid: bytes, request: Pending, now: float) -> None:
        """The request was sent."""
        self._pending[uid] = request
        if request.patience is not None:
            self.expiries.set(uid, now + request.patience)

    def get(self, uid: bytes) -> Pending | None:
        """The request, if it is pending."""
        return self._pending.get(uid)

    def restart(self, uid: bytes, now: float) -> None:
        """YAMP-30: progress restarts the timeout."""
        patience = self._pending[uid].patience
        if patience is not None:
            self.expiries.set(uid, now + patience)

    def drop(self, uid: bytes) -> Pending | None:
        """The request has its outcome, or it was given up."""
        self.expiries.drop(uid)
        return self._pending.pop(uid, None)

    @property
    def deadline(self) -> float | None:
        """When the first pending request expires."""
        return self.expiries.first

    def expire(self, now: float) -> list[tuple[bytes, Pending]]:
        """Give up what is due."""
        return [(uid, self._pending.pop(uid)) for uid in self.expiries.take(now)]

    def clear(self) -> None:
        """The session is over: nothing is pending."""
        self._pending.clear()
        self.expiries.clear()


class Taken(msgspec.Struct, frozen=True, gc=False):
    """A request of the peer that has no outcome yet."""

    uri: str
    progressive: bool


class IncomingRequests:
    """Requests of the peer in flight."""

    def __init__(self) -> None:
        self._taken: dict[bytes, Taken] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def __contains__(self, uid: bytes) -> bool:
        return uid in self._taken

    def take(self, uid: bytes, request: Taken) -> None:
        """A request came."""
        self._taken[uid] = request

    def get(self, uid: bytes) -> Taken:
        """The request; raises LocalProtocolError if it is not in flight."""
        taken = self._taken.get(uid)
        if taken is None:
            raise LocalProtocolError(Fault.REQUEST_NOT_IN_FLIGHT, f"request {uid.hex()}")
        return taken

    def drop(self, uid: bytes) -> Taken | None:
        """The request has its outcome, or was killed (YAMP-34)."""
        return self._taken.pop(uid, None)

    def clear(self) -> None:
        """The session is over: nothing will be answered."""
        self._taken.clear()
