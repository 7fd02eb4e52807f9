"""The datagram interface under every node; `udp.py`, `quic.py` and `memory.py` implement it."""

from __future__ import annotations

from typing import Protocol

from wirelake.transports.stream import Address

__all__ = ["BATCH", "Address", "Datagram", "Endpoint"]

BATCH = 256
"""Datagrams handed out in one go at most."""

Datagram = tuple[bytes, Address]
"""What was said, and where it came from."""


class Endpoint(Protocol):
    """A place that datagrams come to and leave from, to and from anybody: unreliable, unordered, whole or not at all."""

    kind: str
    """`udp`, `quic` or `memory`."""
    local: Address

    @property
    def lost(self) -> int:
        """Datagrams that came here and found no room, as far as the transport knows."""

    @property
    def unsent(self) -> int:
        """Datagrams that were given to us and could not be sent at all."""

    async def receive(self) -> list[Datagram]:
        """Whatever arrived, at least one and at most `BATCH`; nothing once it is closed. May be cancelled without losing any."""

    def send(self, data: bytes, to: Address) -> bool:
        """Send, or say false: there is no room now, wait with `ready` and try again. What cannot be sent at all is counted and gone."""

    async def ready(self) -> None:
        """Wait until there may be room to send."""

    async def close(self) -> None:
        """Close; whoever waits in `receive` gets nothing. Closing twice does nothing."""
