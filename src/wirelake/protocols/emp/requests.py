"""Requests in flight, by identifier: those of this side, and those of the peer."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Final

from wirelake.errors import LocalProtocolError
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.expiries import Expiries

__all__ = ["LAST_ID", "IncomingRequests", "Match", "OutgoingRequests"]

LAST_ID: Final = (1 << 64) - 1
"""EMP-13: after this identifier there is none."""


class Match(Enum):
    """The match of a response to a request."""

    PENDING = auto()
    LATE = auto()
    NONE = auto()


_PENDING: Final = Match.PENDING


class OutgoingRequests:
    """Requests of this side: pending ones with their deadlines, and abandoned ones."""

    def __init__(self, max_abandoned: int) -> None:
        self._last_id = 0
        self._pending: set[int] = set()
        self.expiries: Expiries[int] = Expiries()
        """When pending requests expire."""
        self._abandoned: dict[int, None] = {}
        self._max_abandoned = max_abandoned

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def next_id(self) -> int:
        """EMP-46: a counter that is incremented before each request, so the first is 1."""
        if self._last_id == LAST_ID:  # EMP-13
            raise LocalProtocolError(Fault.IDENTIFIERS_EXHAUSTED)
        return self._last_id + 1

    def ask(self, request_id: int, expiry: float | None) -> None:
        """The request was sent."""
        self._last_id = request_id
        self._pending.add(request_id)
        if expiry is not None:
            self.expiries.set(request_id, expiry)

    def match(self, request_id: int) -> Match:
        """A response came: whose? It is answered now (EMP-16: one late response is swallowed, then forgotten)."""
        pending = self._pending
        if request_id in pending:
            pending.remove(request_id)
            self.expiries.drop(request_id)
            return _PENDING
        if request_id in self._abandoned:
            del self._abandoned[request_id]
            return Match.LATE
        return Match.NONE

    def abandon(self, request_id: int) -> None:
        """EMP-16: give a request up; its late answer is ignored."""
        if request_id in self._pending:
            self._pending.remove(request_id)
            self.expiries.drop(request_id)
            self._abandoned[request_id] = None
            while len(self._abandoned) > self._max_abandoned:
                del self._abandoned[next(iter(self._abandoned))]

    @property
    def deadline(self) -> float | None:
        """When the first pending request expires."""
        return self.expiries.first

    def expire(self, now: float) -> list[int]:
        """Give up what is due."""
        due = self.expiries.take(now)
        for request_id in due:
            self.abandon(request_id)
        return due

    def clear(self) -> None:
        """The session is over: nothing is pending."""
        self._pending.clear()
        self.expiries.clear()
        self._abandoned.clear()


class IncomingRequests:
    """Requests of the peer in flight, and (EMP-17) the order of their answers."""

    def __init__(self, in_order: bool) -> None:
        self._in_order = in_order
        self._waiting: set[int] = set()
        self._order: deque[int] = deque()
        self._held: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._waiting or request_id in self._held

    def take(self, request_id: int) -> bool:
        """A request came; returns False if one with this identifier is in flight (EMP-18)."""
        if request_id in self._waiting or request_id in self._held:
            return False
        self._waiting.add(request_id)
        if self._in_order:
            self._order.append(request_id)
        return True

    def answer(self, request_id: int, response: bytes) -> list[bytes]:
        """The request is answered; returns the responses whose turn it is."""
        if request_id not in self._waiting:
            raise LocalProtocolError(Fault.RESPONSE_UNMATCHED, f"request {request_id}")
        self._waiting.remove(request_id)
        if not self._in_order:
            return [response]
        self._held[request_id] = response
        ready = []
        while self._order and self._order[0] in self._held:
            ready.append(self._held.pop(self._order.popleft()))
        return ready

    def clear(self) -> None:
        """The session is over: nothing will be answered."""
        self._waiting.clear()
        self._order.clear()
        self._held.clear()
