"""The datagram interface under every node; `udp.py`, `quic.py` and `memory.py` implement it."""

from __future__ import annotations

from typing import Protocol

from wirelake.transports.stream import Address

__all__ = ["BATCH", "Address", "Datagram", "Endpoint"]

BATCH = 256
"""Datagrams handed out in one go at most."""

Datagram = tuple[bytes, Address]
"""A datagram, and where it came from."""


class Endpoint(Protocol):
    """Sends and receives datagrams, to and from any address: unreliable, unordered, whole or not at all."""

    kind: str
    """`udp`, `quic` or `memory`."""
    local: Address

    @property
    def lost(self) -> int:
        """Received datagrams that were dropped because a queue was full, as far as the transport knows."""

    @property
    def unsent(self) -> int:
        """Datagrams that were given to us and could not be sent at all."""

    async def receive(self) -> list[Datagram]:
        """Whatever arrived, at least one and at most `BATCH`; nothing once it is closed.

        May be cancelled without losing any.
        """

    def send(self, data: bytes, to: Address) -> bool:
        """Send; false if the queue is full: wait with `ready`, then try again.

        A datagram that cannot be sent at all is counted.
        """

    async def ready(self) -> None:
        """Wait until the queue may take more."""

    async def close(self) -> None:
        """Close; `receive` returns nothing from then on. Closing twice does nothing."""
