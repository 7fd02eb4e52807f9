"""Message Splitting: split base64 into fragments, and reassemble them in any order (WOLP-9).

`split` and `join` are pure and serve the lake, too; `Assembly` keeps the fragments of one peer that wait for others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from wirelake.errors import DecodeError
from wirelake.protocols.expiries import Expiries
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.messages import Encryption, Envelope

__all__ = ["Assembly", "SetState", "join", "split"]

OVERHEAD: Final = 256
"""Bytes of memory that a piece takes beside its own, about: pieces may be empty."""
REFUSED: Final = 128
"""Bytes of memory that the index of a refused piece takes, about."""


def split(text: bytes, limit: int) -> list[bytes]:
    """WOLP-9: as few pieces as the limit allows, of nearly equal length."""
    if len(text) <= limit:
        return [text]
    count = -(-len(text) // limit)
    size, longer = divmod(len(text), count)
    pieces, at = [], 0
    for index in range(count):
        end = at + size + (index < longer)
        pieces.append(text[at:end])
        at = end
    return pieces


def agree(one: Envelope, other: Envelope) -> bool:
    """WOLP-9: whether two pieces say the same of their message.

    `secure` and `encryption` are the same (WOLP-5).
    """
    return (one.message_id, one.gzip, _NAMED.get(one.encryption, one.encryption), one.fragment_count) == (
        other.message_id,
        other.gzip,
        _NAMED.get(other.encryption, other.encryption),
        other.fragment_count,
    )


_NAMED: Final = {Encryption.SECURE_AES: Encryption.AES}


def join(pieces: Mapping[int, Envelope]) -> Envelope:
    """The message that all its pieces make, by index.

    Raises DecodeError if they contradict each other or one is missing.
    """
    first = next(iter(pieces.values()))
    if not all(agree(first, piece) and piece.fragment_index == index for index, piece in pieces.items()):
        raise DecodeError(Fault.FRAGMENT_CONFLICT, 0)
    if len(pieces) != first.fragment_count:
        raise DecodeError(Fault.FRAGMENT_INCOMPLETE, 0, f"{len(pieces)} of {first.fragment_count}")
    return Envelope(first.message_id, b"".join(pieces[index].payload for index in sorted(pieces)), first.gzip, first.encryption)


class _Set(msgspec.Struct):
    """The fragments of one incomplete message."""

    pieces: dict[int, Envelope]
    weight: int = 0
    refused: bool = False
    """It was refused, and its sender knows; further fragments are ignored until the message is sent again."""


class SetState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The pieces of one message, as they are stored."""

    message_id: int
    due: float
    """When it is given up."""
    pieces: list[Envelope]
    refused: list[int]
    """Indices of the pieces that came, if it was refused."""

    def is_valid(self) -> bool:
        """Whether these can be pieces of one message that is not complete."""
        if not math.isfinite(self.due) or bool(self.pieces) == bool(self.refused):
            return False
        return all(
            piece.message_id == self.message_id
            and agree(self.pieces[0], piece)
            and len(self.pieces) < (piece.fragment_count or 1)
            and piece.fragment_index is not None
            for piece in self.pieces
        )


class Assembly:
    """The pieces of one peer that wait for others."""

    def __init__(self, timeout: float, max_weight: int, max_sets: int) -> None:
        self._timeout = timeout
        self.max_weight = max_weight
        """Bytes that are kept at most, about."""
        self._max_sets = max_sets
        self.sets: dict[int, _Set] = {}
        """Incomplete messages, by their id."""
        self._due: Expiries[int] = Expiries()
        self.weight = 0
        """Bytes that are kept, about."""
        self._refused_pieces = 0

    @property
    def memory(self) -> int:
        """Bytes of memory that are kept, about, for refused messages, too."""
        return self.weight + REFUSED * (self._refused_pieces + len(self.sets))

    def __len__(self) -> int:
        return sum(not one.refused for one in self.sets.values())

    @property
    def deadline(self) -> float | None:
        """When the next incomplete message is given up."""
        return self._due.first

    def add(self, piece: Envelope, now: float) -> Envelope | Fault | None:
        """Add one piece; returns the whole message if it was the last, a fault, or nothing.

        The sender gets the fault as a result, except FRAGMENT_LATE: that is a piece of a message that was refused before.
        """
        index, count = piece.fragment_index or 0, piece.fragment_count or 1
        known = self.sets.get(piece.message_id)
        if known is not None and known.refused:
            if index not in known.pieces:
                known.pieces[index] = _GONE
                self._refused_pieces += 1
                return Fault.FRAGMENT_LATE
            self._drop(piece.message_id)  # it is being sent again
            known = None
        if known is None:
            if len(self.sets) >= self._max_sets:
                return Fault.FRAGMENTS_OVER_LIMIT
            known = self.sets[piece.message_id] = _Set({})
            self._due.set(piece.message_id, now + self._timeout * count)
        elif not agree(next(iter(known.pieces.values())), piece):
            return self.refuse(piece, Fault.FRAGMENT_CONFLICT, now)
        if index in known.pieces:
            if known.pieces[index].payload == piece.payload:
                return None
            return self.refuse(piece, Fault.FRAGMENT_CONFLICT, now)
        weight = len(piece.payload) + OVERHEAD
        if self.weight + weight > self.max_weight:
            return self.refuse(piece, Fault.FRAGMENTS_OVER_LIMIT, now)
        known.pieces[index] = piece
        known.weight += weight
        self.weight += weight
        if len(known.pieces) < count:
            return None
        self._drop(piece.message_id)
        return join(known.pieces)

    def refuse(self, piece: Envelope, fault: Fault, now: float) -> Fault:
        """Discard the fragments of a message after any error; report it once."""
        known = self.sets.get(piece.message_id)
        count = max(piece.fragment_count or 1, 1)
        if known is None:
            if len(self.sets) >= self._max_sets or count == 1:
                return fault
            known = self.sets[piece.message_id] = _Set({})
        elif known.refused:
            return Fault.FRAGMENT_LATE
        self.weight -= known.weight
        known.weight, known.refused = 0, True
        known.pieces = dict.fromkeys([*known.pieces, piece.fragment_index or 0], _GONE)
        self._refused_pieces += len(known.pieces)
        self._due.set(piece.message_id, now + self._timeout * min(count, len(known.pieces) + 1))
        return fault

    def refuse_oldest(self, now: float) -> int | None:
        """Discard the fragments of the oldest incomplete message; returns its id, None if there is none."""
        for message_id, one in self.sets.items():
            if not one.refused:
                self.refuse(next(iter(one.pieces.values())), Fault.FRAGMENTS_OVER_LIMIT, now)
                return message_id
        return None

    def expire(self, now: float) -> list[int]:
        """Messages that are given up, because pieces did not come in time."""
        gone = []
        for message_id in self._due.take(now):
            if not self.sets[message_id].refused:
                gone.append(message_id)
            self._drop(message_id)
        return gone

    def clear(self) -> None:
        """WOLP-28: forget everything."""
        self.sets.clear()
        self._due.clear()
        self.weight = self._refused_pieces = 0

    def state(self) -> list[SetState]:
        """The state to store."""
        due = dict(self._due.items())
        return [
            SetState(message_id, due[message_id], [] if one.refused else list(one.pieces.values()), list(one.pieces) if one.refused else [])
            for message_id, one in self.sets.items()
        ]

    def restore(self, state: list[SetState]) -> bool:
        """Continue from a state; False if the state is invalid."""
        for stored in state:
            pieces = {piece.fragment_index or 0: piece for piece in stored.pieces} or dict.fromkeys(stored.refused, _GONE)
            known = _Set(pieces, sum(len(piece.payload) + OVERHEAD for piece in stored.pieces), bool(stored.refused))
            if not stored.is_valid() or len(pieces) != len(stored.pieces) + len(stored.refused) or stored.message_id in self.sets:
                return False
            self.sets[stored.message_id] = known
            self._due.set(stored.message_id, stored.due)
            self.weight += known.weight
            self._refused_pieces += len(pieces) if known.refused else 0
        return True

    def _drop(self, message_id: int) -> None:
        dropped = self.sets.pop(message_id)
        self.weight -= dropped.weight
        self._refused_pieces -= len(dropped.pieces) if dropped.refused else 0
        self._due.drop(message_id)


_GONE: Final = Envelope(0)
