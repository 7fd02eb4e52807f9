"""FlowTable: TCP flows as rows of arrays, found by their endpoints.

A row is in one of three states. FAST: its protocol is known, and nothing waits; kernels take its packets (`in_order.py`). UNDECIDED: its
port is known, and its first bytes will show the dialect; kernels take its packets until then. OWNED: it is anything else, and a `Tracked`
of `tcp_flows.py` has its state.

Rows are in the order in which flows began. Each has two keys: (source, port, destination, port) of its first packet, and the reverse.
The hash has a secret, so that no capture can be made to fill one bucket.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from wirelake.capture.packets.remembered import Remembered
from wirelake.protocols.kernel import active, array, kernel, u32

__all__ = [
    "BY_BYTE",
    "BY_SEQUENCE",
    "BY_TIME",
    "CLOSED",
    "DIALECT",
    "FAST",
    "FINISHED",
    "FIRST",
    "FROM_START",
    "HELD_AT",
    "HELD_TS",
    "KEYS",
    "LOST",
    "NEXT",
    "NUMBER",
    "OTHER",
    "OWNED",
    "PORT",
    "PROTOCOL",
    "ROWS",
    "SINCE",
    "SINCE_KIND",
    "STATE",
    "TO_SERVER",
    "UNDECIDED",
    "WIDTH",
    "WORDS",
    "FlowTable",
    "Key",
    "mixed",
    "search",
    "start",
]

Array = np.ndarray[Any, Any]
Key = tuple[bytes, int, bytes, int]
"""Source address and port, destination address and port."""

# Columns of flows.
STATE: Final = 0
CLOSED: Final = 1
PROTOCOL: Final = 2
"""Index of the protocol that its port is known for, from 1 on; 0: none."""
DIALECT: Final = 3
"""Index of its dialect."""
TO_SERVER: Final = 4
"""Whether the sender of the first packet is the client."""
SINCE_KIND: Final = 5
SINCE: Final = 6
"""What tells it from other flows of the same endpoints: a sequence number, or a time."""
NUMBER: Final = 7
"""Its number in the block that is being built; -1: none."""
WIDTH: Final = 8
PORT: Final = 9
OTHER: Final = 10
HELD_TS: Final = 11
HELD_AT: Final = 12
"""Of an undecided flow: the offset of the packet that opened it, which is not delivered yet; -1: none."""
FLOW_COLUMNS: Final = 13

FAST: Final = 0
UNDECIDED: Final = 1
OWNED: Final = 2

BY_SEQUENCE: Final = 0
BY_TIME: Final = 1
BY_BYTE: Final = 2

# Columns of directions: row 2 * flow + to_server. See `tcp_stream.Half`.
NEXT: Final = 0
FIRST: Final = 1
LOST: Final = 2
FROM_START: Final = 3
FINISHED: Final = 4
HALF_COLUMNS: Final = 5

# Counts.
ROWS: Final = 0
KEYS: Final = 1
"""Keys that lead to a flow."""

WORDS: Final = 4
"""Words of 4 bytes for each address."""
SMALLEST: Final = 64
GROWTH: Final = 1 << 12
"""Rows of the smallest and of the second smallest table."""


@kernel
def mixed(value: int, word: int, factor: int) -> int:
    """Mix a word of 32 bits into a hash of 32 bits; `factor` is secret, and has 30 bits."""
    product = (value ^ word) * factor
    return (product ^ (product >> 31)) & 0xFFFFFFFF


@kernel
def _hashed(data: Any, source: int, destination: int, width: int, port: int, other: int, secret: Any) -> int:
    """Hash a key; all products stay below 63 bits."""
    factor = secret[1]
    value = mixed(secret[0], port << 16 | other, factor)
    for index in range(0, width, 4):
        value = mixed(value, u32(data, source + index), factor)
        value = mixed(value, u32(data, destination + index), factor)
    return value


@kernel
def _is_key(flows: Any, ends: Any, entry: int, data: Any, source: int, destination: int, width: int, port: int, other: int) -> bool:
    """Whether a packet has this key of a flow."""
    row = entry >> 1
    if flows[row, WIDTH] != width:
        return False
    if not entry & 1:
        source, destination, port, other = destination, source, other, port
    if flows[row, PORT] != port or flows[row, OTHER] != other:
        return False
    for index in range(width // 4):
        if ends[row, index] != u32(data, source + 4 * index) or ends[row, WORDS + index] != u32(data, destination + 4 * index):
            return False
    return True


@kernel
def search(
    flows: Any,
    ends: Any,
    alive: Any,
    slots: Any,
    secret: Any,
    data: Any,
    source: int,
    destination: int,
    width: int,
    port: int,
    other: int,
) -> tuple[int, int]:
    """Return (key number of a flow or -1, place in the hash) of a packet's endpoints, whose addresses are in `data`."""
    mask = len(slots) - 1
    slot = _hashed(data, source, destination, width, port, other, secret) & mask
    while slots[slot]:
        entry = slots[slot] - 1
        if _is_key(flows, ends, entry, data, source, destination, width, port, other):
            return (entry if alive[entry] else -1), slot
        slot = (slot + 1) & mask
    return -1, slot


@kernel
def start(
    flows: Any,
    halves: Any,
    ends: Any,
    alive: Any,
    slots: Any,
    counts: Any,
    secret: Any,
    data: Any,
    source: int,
    destination: int,
    width: int,
    port: int,
    other: int,
) -> int:
    """Add a row for a new flow; returns it. Rows that had its keys lose them."""
    row = int(counts[ROWS])
    counts[ROWS] = row + 1
    for column in range(FLOW_COLUMNS):
        flows[row, column] = 0
    flows[row, NUMBER] = -1
    flows[row, HELD_AT] = -1
    flows[row, WIDTH] = width
    flows[row, PORT] = port
    flows[row, OTHER] = other
    for index in range(width // 4):
        ends[row, index] = u32(data, source + 4 * index)
        ends[row, WORDS + index] = u32(data, destination + 4 * index)
    for half in (2 * row, 2 * row + 1):
        halves[half, NEXT] = -1
        halves[half, FIRST] = -1
        halves[half, LOST] = -1
        halves[half, FROM_START] = 0
        halves[half, FINISHED] = 0
        alive[half] = 0
    for entry in (2 * row, 2 * row + 1):  # an endpoint that sends to itself has one key: the second counts
        if entry & 1:
            before, slot = search(flows, ends, alive, slots, secret, data, source, destination, width, port, other)
        else:
            before, slot = search(flows, ends, alive, slots, secret, data, destination, source, width, other, port)
        if before >= 0:
            alive[before] = 0
            counts[KEYS] -= 1
        slots[slot] = entry + 1
        alive[entry] = 1
        counts[KEYS] += 1
    return row


@kernel
def _index(table: Any) -> None:
    """Fill an empty hash with all keys that are alive: 2 * flow is the reverse key, 2 * flow + 1 the other."""
    flows, _, ends, alive, slots, counts, secret = table
    mask = len(slots) - 1
    counts[KEYS] = 0
    for row in range(counts[ROWS]):
        width, port, other = flows[row, WIDTH], flows[row, PORT], flows[row, OTHER]
        for entry in (2 * row, 2 * row + 1):
            if not alive[entry]:
                continue
            first, second = (0, WORDS) if entry & 1 else (WORDS, 0)
            value = mixed(secret[0], port << 16 | other if entry & 1 else other << 16 | port, secret[1])
            for index in range(width // 4):
                value = mixed(value, ends[row, first + index], secret[1])
                value = mixed(value, ends[row, second + index], secret[1])
            slot = value & mask
            while slots[slot]:
                slot = (slot + 1) & mask
            slots[slot] = entry + 1
            counts[KEYS] += 1


class FlowTable:
    """All TCP flows of one capture, or of the part of it that one task has."""

    def __init__(self, recent: Remembered, moved: Callable[[Array], None]) -> None:
        """`moved` is called with the rows that are kept when rows get new numbers, in their new order."""
        self._recent = recent
        self._moved = moved
        self._secret = np.array([secrets.randbits(31), secrets.randbits(30) | 1 << 29 | 1], np.int64)
        self.counts = np.zeros(2, np.int64)
        self._is_hashed = True
        self._allocate(SMALLEST)
        self._known: dict[Key, int] | None = {}
        """Key -> its number; None: it must be made again."""
        self.version = 0
        """Changes whenever keys lead elsewhere."""

    def _allocate(self, capacity: int) -> None:
        self.flows = np.zeros((capacity, FLOW_COLUMNS), np.int64)
        self.halves = np.zeros((2 * capacity, HALF_COLUMNS), np.int64)
        self.ends = np.zeros((capacity, 2 * WORDS), np.int64)
        self.alive = np.zeros(2 * capacity, np.uint8)
        self._slots = np.zeros(4 * capacity, np.int64)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """For kernels: flows, directions, addresses, which keys are alive, hash, counts, secret."""
        made = self.flows, self.halves, self.ends, self.alive, self._slots, self.counts, self._secret
        if not self._is_hashed:
            self._slots[:] = 0
            active(_index)(made)
            self._is_hashed = True
        return made

    @property
    def rows(self) -> int:
        """Rows in use, those of flows without a key included."""
        return int(self.counts[ROWS])

    @property
    def keys(self) -> int:
        """Keys that lead to a flow."""
        return int(self.counts[KEYS])

    def changed(self) -> None:
        """Note that a kernel may have changed the table."""
        self._known = None

    def key(self, entry: int) -> Key:
        """Return a key by its number."""
        row = entry >> 1
        width, port, other = self.flows[row, WIDTH : OTHER + 1].tolist()
        ends = self.ends[row].astype(">u4").tobytes()
        here, there = ends[:width], ends[4 * WORDS : 4 * WORDS + width]
        return (here, port, there, other) if entry & 1 else (there, other, here, port)

    def entries(self) -> Array:
        """Return the numbers of all keys that lead to a flow, in the order in which flows began."""
        return np.flatnonzero(self.alive[: 2 * self.rows])

    def find(self, key: Key) -> int:
        """Return the number of a key; -1 if no flow has it."""
        lookup = active(search)
        if lookup is not search:
            source, port, destination, other = key
            flows, _, ends, alive, slots, _, secret = self.arrays
            width = len(source)
            return int(lookup(flows, ends, alive, slots, secret, array(source + destination), 0, width, width, port, other)[0])
        if self._known is None:
            self._known = {self.key(entry): entry for entry in self.entries().tolist()}
        return self._known.get(key, -1)

    def start(self, key: Key) -> int:
        """Add a row for a new flow, and return it."""
        self._reserve()
        self.version += 1
        source, port, destination, other = key
        width = len(source)
        begin = active(start)
        if begin is not start:
            self._known = None
            flows, halves, ends, alive, slots, counts, secret = self.arrays
            both = array(source + destination)
            return int(begin(flows, halves, ends, alive, slots, counts, secret, both, 0, width, width, port, other))
        row, back = self.rows, (destination, other, source, port)
        dropped = {entry for entry in (self.find(key), self.find(back)) if entry >= 0}
        self.alive[list(dropped)] = 0
        assert self._known is not None  # noqa: S101 - `find` made it
        self._known[back] = 2 * row
        self._known[key] = 2 * row + 1
        self.flows[row] = 0
        self.flows[row, [NUMBER, HELD_AT, WIDTH, PORT, OTHER]] = -1, -1, width, port, other
        self.ends[row, : width // 4] = np.frombuffer(source, ">u4")
        self.ends[row, WORDS : WORDS + width // 4] = np.frombuffer(destination, ">u4")
        self.halves[2 * row : 2 * row + 2] = (-1, -1, -1, 0, 0)
        self.alive[2 * row : 2 * row + 2] = key != back, 1
        self.counts[:] = row + 1, self.keys - len(dropped) + 1 + (key != back)
        self._is_hashed = False
        return row

    def drop(self, entries: Array) -> None:
        """Remove keys."""
        if not len(entries):
            return
        self.counts[KEYS] -= int(self.alive[entries].sum())
        self.alive[entries] = 0
        self._is_hashed = False
        self._known = None
        self.version += 1

    def _reserve(self) -> None:
        """Make space for a new flow; rows that no key and no block needs are dropped then."""
        used = self.rows
        if used < len(self.flows):
            return
        is_needed = self.alive[: 2 * used].reshape(-1, 2).any(axis=1) | (self.flows[:used, NUMBER] >= 0)
        self._renumber(np.flatnonzero(is_needed))

    def _renumber(self, rows: Array) -> None:
        flows, halves, ends, alive = self.flows, self.halves, self.ends, self.alive
        capacity = SMALLEST
        while capacity < max(2 * len(rows), GROWTH):
            capacity *= 2
        both = (2 * rows[:, None] + np.arange(2)).reshape(-1)
        self._allocate(capacity)
        self.flows[: len(rows)], self.halves[: len(both)] = flows[rows], halves[both]
        self.ends[: len(rows)], self.alive[: len(both)] = ends[rows], alive[both]
        self._recent.renumber(both)
        self.counts[ROWS] = len(rows)
        self._is_hashed = False
        self._known = None
        self.version += 1
        self._moved(rows)
