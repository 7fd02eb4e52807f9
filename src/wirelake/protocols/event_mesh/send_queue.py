"""The bounded queue of datagrams to send: urgent ones first, each kind in its order."""

from __future__ import annotations

from collections import deque

from wirelake.protocols.event_mesh.options import Address

__all__ = ["Outgoing", "SendQueue"]

Outgoing = tuple[bytes, Address]
"""A datagram and where it goes."""


class SendQueue:
    """§2.3: two queues, and the urgent one goes first."""

    def __init__(self, max_queued: int, max_urgent: int) -> None:
        self._queued: deque[Outgoing] = deque()
        self._urgent: deque[Outgoing] = deque()
        self._max_queued = max_queued
        self._max_urgent = max_urgent

    def __len__(self) -> int:
        return len(self._queued) + len(self._urgent)

    def capacity(self, urgent: bool) -> int:
        """The number of datagrams that still fit."""
        return self._max_urgent - len(self._urgent) if urgent else self._max_queued - len(self._queued)

    def put(self, data: bytes, to: Address, urgent: bool) -> bool:
        """Queue a datagram; false if the queue is full."""
        if self.capacity(urgent) <= 0:
            return False
        (self._urgent if urgent else self._queued).append((data, to))
        return True

    def take(self, most: int) -> list[Outgoing]:
        """The next datagrams to send, at most so many; they are gone from here."""
        taken: list[Outgoing] = []
        for queue in (self._urgent, self._queued):
            while queue and len(taken) < most:
                taken.append(queue.popleft())
        return taken
