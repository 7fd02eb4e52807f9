"""SeenPairs: connections in sources that `connections` has a row for, in the order in which they were seen.

There may be one for every few packets, so they are rows of an array, and a kernel finds them by a hash. The hash has a secret, so that no
capture can be made to fill one bucket.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from wirelake.capture.blocks.flows import SESSION_ID_SIZE
from wirelake.capture.packets.flow_table import mixed
from wirelake.protocols.kernel import kernel, over_arrays

__all__ = ["SOURCE_ID_SIZE", "SeenPairs"]

ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]

SOURCE_ID_SIZE: Final = 8
WORDS: Final = (SESSION_ID_SIZE + SOURCE_ID_SIZE) // 8
SMALLEST: Final = 1 << 10
"""Slots of the smallest hash. At most half of the slots are used."""
MASK: Final = (1 << 32) - 1


@kernel
def add_pairs(pairs: IntArray, known: IntArray, slots: IntArray, secret: IntArray, count: int, chosen: IntArray) -> int:
    """Add pairs to those that are known; returns how many there are then.

    A slot is the place of a pair in `known`, plus one. `chosen` gets 1 for each pair that is new. A pair may be its own place in `known`.
    """
    mask = len(slots) - 1
    for index in range(len(pairs)):
        value = int(secret[0])
        for word in range(WORDS):
            value = mixed(value, (pairs[index, word] >> 32) & MASK, secret[1])
            value = mixed(value, pairs[index, word] & MASK, secret[1])
        slot = value & mask
        is_known = False
        while slots[slot]:
            place = slots[slot] - 1
            is_known = True
            for word in range(WORDS):
                if known[place, word] != pairs[index, word]:
                    is_known = False
            if is_known:
                break
            slot = (slot + 1) & mask
        chosen[index] = not is_known
        if not is_known:
            for word in range(WORDS):
                known[count, word] = pairs[index, word]
            count += 1
            slots[slot] = count
    return count


class SeenPairs:
    """A set of pairs (session id, source id) in the order in which they were added."""

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._secret = np.array([secrets.randbits(31), secrets.randbits(30) | 1 << 29 | 1], np.int64)
        self._count = 0
        self._slots, self._known = np.zeros(0, np.int64), np.zeros((0, WORDS), np.int64)
        words = b"".join(session + source for session, source in pairs)
        self.add(np.frombuffer(words, np.uint8).reshape(-1, 8 * WORDS))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        words = self._known[: self._count].tobytes()
        for at in range(0, len(words), 8 * WORDS):
            yield words[at : at + SESSION_ID_SIZE], words[at + SESSION_ID_SIZE : at + 8 * WORDS]

    def add(self, pairs: ByteArray) -> IntArray:
        """Add pairs, 24 bytes each; returns the numbers of those that were not there before."""
        words = np.ascontiguousarray(pairs).view(np.int64)
        if 2 * (self._count + len(words)) > len(self._slots):
            self._put(self._known[: self._count], len(words))
        chosen = np.empty(len(words), np.int64)
        self._count = int(over_arrays(add_pairs)(words, self._known, self._slots, self._secret, self._count, chosen))
        return np.flatnonzero(chosen)

    def drop(self, connections: Collection[bytes]) -> None:
        """Remove the pairs of these sessions."""
        kept = [number for number, (session, _) in enumerate(self) if session not in connections]
        self._put(self._known[np.array(kept, np.int64)])

    def drop_oldest(self, count: int) -> None:
        """Remove so many pairs, the oldest first."""
        self._put(self._known[count : self._count])

    def _put(self, pairs: IntArray, more: int = 0) -> None:
        """Begin anew with these pairs, and space for more."""
        size = SMALLEST
        while size < 4 * (len(pairs) + more):
            size *= 2
        self._count = 0
        self._slots, self._known = np.zeros(size, np.int64), np.empty((size // 2, WORDS), np.int64)
        if len(pairs):
            self.add(pairs.view(np.uint8))
