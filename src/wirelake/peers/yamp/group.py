"""Send one event to many peers. A group exists on this side only; the wire knows none (YAMP-46)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from wirelake.peers.yamp.peer import Peer

__all__ = ["Group", "fan_out"]


def fan_out(peers: Iterable[Peer], uri: str, body: Any = None) -> int:
    """Send an event to each of these peers that is open and reads; says how many that were. Nobody waits for anybody."""
    packed: dict[str, bytes] = {}
    return sum(peer.send_packed(uri, body, packed) for peer in peers)


class Group:
    """Peers that hear of the same things; those whose conversation ended leave by themselves."""

    def __init__(self, peers: Iterable[Peer] = ()) -> None:
        self._peers = set(peers)

    def __len__(self) -> int:
        return len(self._peers)

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers)

    def add(self, peer: Peer) -> None:
        """Let a peer hear."""
        self._peers.add(peer)

    def discard(self, peer: Peer) -> None:
        """Let a peer hear no more."""
        self._peers.discard(peer)

    def send(self, uri: str, body: Any = None) -> int:
        """Send an event to everybody who is open and reads; says how many that were."""
        self._peers = {peer for peer in self._peers if peer.ended is None}
        return fan_out(self._peers, uri, body)
