"""The table of other nodes: state, address, and whether a key proved them.

Silent nodes are forgotten after a while.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wirelake.protocols.event_mesh.events import Peer, PeerChanged
from wirelake.protocols.event_mesh.messages import Message
from wirelake.protocols.event_mesh.options import Address, Options
from wirelake.protocols.event_mesh.state_machine import INITIAL, MESSAGES, SILENCE, TRANSITIONS, Speaker, State

__all__ = ["PeerTable"]


_AFTER: Final = {said: tuple(TRANSITIONS[state, Speaker.NODE, said] for state in State) for said in MESSAGES}
"""TRANSITIONS by message and number of the state: a key of three is too dear to make for every packet."""


class _Neighbour:
    """One row; it changes with every sign of life, so it is no value."""

    __slots__ = ("capabilities", "heard", "node_id", "place", "proven", "state")

    def __init__(self, node_id: bytes, proven: bool, now: float) -> None:
        self.node_id = node_id
        self.state = INITIAL
        self.place: Address | None = None
        self.proven = proven
        self.capabilities = b""
        self.heard = now

    def shown(self) -> Peer:
        return Peer(self.node_id, self.state, self.place, self.proven, self.capabilities, self.heard)


class PeerTable:
    """Nodes that sent a packet recently, at most `max_peers`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._known: dict[bytes, _Neighbour] = {}
        self._places: tuple[Address, ...] | None = ()
        self.refused = 0
        """Nodes that found the table full."""
        self.deadline: float | None = None
        """When `sweep` wants to be called next."""

    def __iter__(self) -> Iterator[Peer]:
        return (one.shown() for one in self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def get(self, node_id: bytes) -> Peer | None:
        """The entry of one node."""
        found = self._known.get(node_id)
        return None if found is None else found.shown()

    @property
    def places(self) -> tuple[Address, ...]:
        """Addresses of the nodes that sent a hello and are not silent."""
        if self._places is None:
            here = (one.place for one in self._known.values() if one.place is not None and one.state is not State.SILENT)
            self._places = tuple(dict.fromkeys(here))
        return self._places

    def place_of(self, node_id: bytes) -> Address | None:
        """The address of a node's hello."""
        found = self._known.get(node_id)
        return None if found is None else found.place

    def hear(self, node_id: bytes, proven: bool, message: type[Message], now: float) -> PeerChanged | None:
        """Note a sign of life of a node; one without proof does not change a node that was proven."""
        neighbour = self._known.get(node_id)
        if neighbour is None:
            if not self._make_room(proven):
                self.refused += 1
                return None
            neighbour = self._known[node_id] = _Neighbour(node_id, proven, now)
            self._wake_at(now)
        elif neighbour.proven and not proven:
            return None
        elif proven and not neighbour.proven:  # fields from before the proof do not count
            neighbour.proven, neighbour.place, neighbour.capabilities = True, None, b""
            self._places = None
        neighbour.heard = now
        before = neighbour.state
        after = _AFTER[message][before]
        if after is before:
            return None
        neighbour.state = after
        if before is State.SILENT:
            self._wake_at(now)  # §3.2: it may fall silent again, long before it would have been forgotten
        self._places = None
        return PeerChanged(neighbour.shown(), before)

    def greet(self, node_id: bytes, proven: bool, place: Address, capabilities: bytes) -> None:
        """§3.1: record the content and the address of a hello; after `hear`."""
        neighbour = self._known.get(node_id)
        if neighbour is None or (neighbour.proven and not proven):
            return
        neighbour.capabilities = capabilities
        if self._options.learns and (proven or self._options.learns_unproven) and neighbour.place != place:
            neighbour.place = place
            self._places = None

    def sweep(self, now: float) -> list[PeerChanged]:
        """§3.2: mark nodes that fell silent, and forget those silent for too long."""
        silence, changed = self._options.silence_after, []
        self.deadline = None
        if silence is None:
            return []
        for neighbour in list(self._known.values()):
            before = neighbour.state
            if before is State.SILENT and now >= neighbour.heard + self._options.forget_after:
                del self._known[neighbour.node_id]
                neighbour.state = INITIAL
            elif before is not State.SILENT and now >= neighbour.heard + silence:
                neighbour.state = SILENCE[before]
            if neighbour.state is not before:
                changed.append(PeerChanged(neighbour.shown(), before))
                self._places = None
            if neighbour.node_id in self._known:
                self._wake_at(neighbour.heard, neighbour.state is State.SILENT)
        return changed

    def _wake_at(self, heard: float, silent: bool = False) -> None:
        silence = self._options.silence_after
        if silence is None:
            return
        due = heard + (max(self._options.forget_after, silence) if silent else silence)
        self.deadline = due if self.deadline is None else min(self.deadline, due)

    def _make_room(self, proven: bool) -> bool:
        """Whether one more may come in.

        A proven one may take the place of one that is not, or of one that is silent.
        """
        if len(self._known) < self._options.max_peers:
            return True
        if proven:
            known = self._known.values()
            worth_less = next((one for one in known if not one.proven), None) or next(
                (one for one in known if one.state is State.SILENT), None
            )
            if worth_less is not None:
                del self._known[worth_less.node_id]
                self._places = None
                return True
        return False
