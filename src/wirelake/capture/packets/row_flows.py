"""RowFlows: names and identities of the flows in a flow table, made when a block needs them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from wirelake.capture.blocks.block import Endpoint, Flow
from wirelake.capture.blocks.flows import SESSION_ID_SIZE, FlowKind, Flows, Side, interleaved
from wirelake.capture.packets.flow_ids import SINCE_WORDS, session_id, session_ids
from wirelake.capture.packets.flow_table import (
    DIALECT,
    NUMBER,
    OTHER,
    OWNED,
    PORT,
    PROTOCOL,
    SINCE,
    SINCE_KIND,
    STATE,
    TO_SERVER,
    WIDTH,
    WORDS,
    FlowTable,
)
from wirelake.capture.packets.in_order import OPENING_BYTES, OPENING_COLUMNS

if TYPE_CHECKING:
    from wirelake.capture.packets.tracked import Tracked

__all__ = ["MAX_ADDRESSES", "MAX_OPENINGS", "RowFlows", "address"]

Array = np.ndarray[Any, Any]

MAX_OPENINGS: Final = 16
"""First segments that kernels recognise a dialect by."""
MAX_ADDRESSES: Final = 1 << 16
"""Addresses whose text is kept."""
_PORTS: Final = 1 << 16
_texts: dict[bytes, str] = {}


def address(packed: bytes) -> str:
    """Return an IP address as text."""
    text = _texts.get(packed)
    if text is None:
        if len(_texts) >= MAX_ADDRESSES:
            _texts.clear()
        text = _texts[packed] = str(ipaddress.ip_address(packed))
    return text


class RowFlows:
    """The flows of a table's rows, and what kernels know of protocols."""

    def __init__(self, table: FlowTable, ports: Mapping[int, str], dialect: Callable[[str, bytes], tuple[str, ...] | None]) -> None:
        self._table = table
        self._named: dict[int, Flow] = {}
        """Row -> its flow, if Python made it."""
        self._ids = np.zeros((0, SESSION_ID_SIZE), np.uint8)
        """By row: the session id of its flow, if a block needed it."""
        self._has_id = np.zeros(0, np.bool_)
        self._protocols = ["", *dict.fromkeys(ports.values())]
        self._dialects: list[tuple[str, ...]] = [()]
        numbers = {name: number for number, name in enumerate(self._protocols)}
        self.ports = np.zeros((_PORTS, 2), np.int64)
        """By port: its protocol. By protocol: whether first bytes must show the dialect."""
        for port, name in ports.items():
            if 0 <= port < _PORTS:
                self.ports[port, 0] = numbers[name]
        for name, number in numbers.items():
            self.ports[number, 1] = bool(name) and dialect(name, b"") is None
        self.openings = np.zeros((0, OPENING_COLUMNS), np.int64)
        """First segments that showed a dialect; see `in_order.py`."""
        self._learnt: set[tuple[str, bytes, tuple[str, ...]]] = set()

    def learn(self, protocol: str, first: bytes, dialect: tuple[str, ...]) -> None:
        """Let kernels recognise the dialect of flows that begin with the same bytes."""
        if len(first) > OPENING_BYTES or len(self._learnt) >= MAX_OPENINGS or (protocol, first, dialect) in self._learnt:
            return
        self._learnt.add((protocol, first, dialect))
        if dialect not in self._dialects:
            self._dialects.append(dialect)
        row = np.zeros((1, OPENING_COLUMNS), np.int64)
        row[0, :3] = self._protocols.index(protocol), self._dialects.index(dialect), len(first)
        row[0, 3 : 3 + len(first)] = list(first)
        self.openings = np.concatenate((self.openings, row))

    def began(self, row: int, to_server: bool, kind: int, since: int) -> None:
        """Note how a flow began that Python has."""
        self._table.flows[row, [STATE, TO_SERVER, SINCE_KIND, SINCE]] = OWNED, to_server, kind, since

    def to_server(self, entry: int) -> bool:
        """Whether the source of a key is the client."""
        return bool(self._table.flows[entry >> 1, TO_SERVER]) == bool(entry & 1)

    def identity(self, row: int) -> tuple[Endpoint, Endpoint, bytes]:
        """Return client, server and session id of a flow."""
        kind, since, to_server = self._table.flows[row, [SINCE_KIND, SINCE, TO_SERVER]].tolist()
        source, port, destination, other = self._table.key(2 * row + 1)
        client, server = Endpoint(address(source), port), Endpoint(address(destination), other)
        if not to_server:
            client, server = server, client
        name = session_id("tcp", client.address, client.port, server.address, server.port, f"{SINCE_WORDS[kind]} {since}")
        return client, server, name

    def name(self, row: int, flow: Flow) -> None:
        """Note the flow of a row that Python gives back."""
        self._named[row] = flow

    def of(self, rows: Array, tracked: Mapping[int, Tracked]) -> Flows:
        """Return the flow of each row; a block that had numbers for them was taken."""
        self._table.flows[rows, NUMBER] = -1
        if not self._named and not tracked:
            return self._many(rows)
        is_known = np.isin(rows, [*self._named, *tracked])
        known, others = np.flatnonzero(is_known), np.flatnonzero(~is_known)
        flows = Flows.of([self.flow(row, tracked.get(row)) for row in rows[known].tolist()])
        return interleaved([(known, flows), (others, self._many(rows[others]))])

    def _many(self, rows: Array) -> Flows:
        """Return the flows of rows whose protocol is known by port; as `flow`, but many at once."""
        flows, dialects = self._table.flows[rows], len(self._dialects)
        ends = self._table.ends[rows].astype(">u4").view(np.uint8).reshape(len(rows), 2, 4 * WORDS)
        ports, numbers = flows[:, [PORT, OTHER]], np.arange(len(rows))
        is_reversed = (flows[:, TO_SERVER] == 0).astype(np.int64)
        clients, servers = (_side(ends[numbers, place], flows[:, WIDTH], ports[numbers, place]) for place in (is_reversed, 1 - is_reversed))
        kinds = flows[:, PROTOCOL] * dialects + flows[:, DIALECT]
        used = np.flatnonzero(np.bincount(kinds))
        named = [
            FlowKind(self._protocols[kind // dialects], "tcp", "port", "wire", self._dialects[kind % dialects]) for kind in used.tolist()
        ]
        ids = self._session_ids(rows, clients, servers, flows[:, SINCE_KIND], flows[:, SINCE])
        return Flows(ids, named, np.searchsorted(used, kinds), clients, servers)

    def _session_ids(self, rows: Array, clients: Side, servers: Side, kinds: Array, since: Array) -> Array:
        """Return the session id of each row; ids that an earlier block needed are kept."""
        more = len(self._table.flows) - len(self._ids)
        if more > 0:
            self._ids = np.concatenate((self._ids, np.zeros((more, SESSION_ID_SIZE), np.uint8)))
            self._has_id = np.concatenate((self._has_id, np.zeros(more, np.bool_)))
        new = np.flatnonzero(~self._has_id[rows])
        if len(new):
            here, there = (one._replace(codes=one.codes[new], ports=one.ports[new]) for one in (clients, servers))
            self._ids[rows[new]] = session_ids(here, there, kinds[new], since[new])
            self._has_id[rows] = True
        return self._ids[rows]

    def flow(self, row: int, tracked: Tracked | None = None) -> Flow:
        """Return the flow of a row whose protocol is known."""
        if tracked is not None and tracked.flow is not None:
            return tracked.flow
        flow = self._named.get(row)
        if flow is None:
            client, server, name = self.identity(row)
            protocol, dialect = self._table.flows[row, [PROTOCOL, DIALECT]].tolist()
            flow = Flow(name, self._protocols[protocol], "tcp", client, server, "port", "wire", self._dialects[dialect])
            self._named[row] = flow
        return flow

    def moved(self, rows: Array) -> None:
        """Rows have other numbers now: each its place in `rows`, which is ascending. Those that are not in it are gone."""
        known = rows[rows < len(self._ids)]  # the others are new, and have no id
        self._ids, self._has_id = self._ids[known], self._has_id[known]
        if self._named:
            numbers = dict(zip(rows.tolist(), range(len(rows)), strict=True))
            self._named = {numbers[row]: flow for row, flow in self._named.items() if row in numbers}


def _side(ends: Array, widths: Array, ports: Array) -> Side:
    """Return endpoints as columns; an address has so many of the bytes of its row."""
    addresses: list[str] = []
    codes = np.empty(len(ends), np.int64)
    for width in np.flatnonzero(np.bincount(widths)).tolist():
        mine = widths == width
        packed = pa.py_buffer(np.ascontiguousarray(ends[mine, :width]))
        column = pa.Array.from_buffers(pa.binary(width), int(mine.sum()), [None, packed]).dictionary_encode()
        codes[mine] = column.indices.to_numpy() + len(addresses)
        addresses += map(address, column.dictionary.to_pylist())
    return Side(addresses, codes, ports)
