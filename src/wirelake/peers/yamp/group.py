"""Send one event to many peers.

A group exists on this side only; the wire knows none (YAMP-46).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from wirelake.peers.yamp.peer import Peer

__all__ = ["Group", "fan_out"]


def fan_out(peers: Iterable[Peer], uri: str, body: Any = None) -> int:
    """Send an event to each of these peers that is open and reads; returns how many.

    Slow peers are skipped.
    """
    packed: dict[str, bytes] = {}
    return sum(peer.send_packed(uri, body, packed) for peer in peers)


class Group:
    """Peers that get the same events; those whose session ended are removed automatically."""

    def __init__(self, peers: Iterable[Peer] = ()) -> None:
        self._peers = set(peers)

    def __len__(self) -> int:
        return len(self._peers)

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers)

    def add(self, peer: Peer) -> None:
        """Add a peer."""
        self._peers.add(peer)

    def discard(self, peer: Peer) -> None:
        """Remove a peer."""
        self._peers.discard(peer)

    def send(self, uri: str, body: Any = None) -> int:
        """Send an event to every peer that is open and reads; returns how many."""
        self._peers = {peer for peer in self._peers if peer.ended is None}
        return fan_out(self._peers, uri, body)
