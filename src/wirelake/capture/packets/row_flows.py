"""RowFlows: names and identities of the flows in a flow table, made when a block needs them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from wirelake.capture.blocks.block import Endpoint, Flow
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

__all__ = ["MAX_ADDRESSES", "MAX_OPENINGS", "SESSION_ID_SIZE", "RowFlows", "address", "session_id"]

Array = np.ndarray[Any, Any]

SESSION_ID_SIZE: Final = 16
MAX_OPENINGS: Final = 16
"""First segments that kernels recognise a dialect by."""
MAX_ADDRESSES: Final = 1 << 16
"""Addresses whose text is kept."""
_SINCE: Final = ("sequence", "time", "byte")
_PORTS: Final = 1 << 16
_texts: dict[bytes, str] = {}


def session_id(*parts: object) -> bytes:
    """Hash the parts of a session's identity to its id."""
    return blake2b("\0".join(str(part) for part in parts).encode(), digest_size=SESSION_ID_SIZE).digest()


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
        name = session_id("tcp", client.address, client.port, server.address, server.port, f"{_SINCE[kind]} {since}")
        return client, server, name

    def name(self, row: int, flow: Flow) -> None:
        """Note the flow of a row that Python gives back."""
        self._named[row] = flow

    def of(self, rows: list[int], tracked: Mapping[int, Tracked]) -> list[Flow]:
        """Return the flow of each row; a block that had numbers for them was taken."""
        self._table.flows[rows, NUMBER] = -1
        fresh = [row for row in rows if row not in self._named and row not in tracked]
        self._named.update(zip(fresh, self._many(fresh), strict=True))
        named = self._named
        return [self.flow(row, tracked.get(row)) for row in rows] if tracked else [named[row] for row in rows]

    def _many(self, rows: list[int]) -> Iterator[Flow]:
        """Yield the flows of rows whose protocol is known by port; as `flow`, but many at once."""
        columns = [SINCE_KIND, SINCE, TO_SERVER, WIDTH, PORT, OTHER, PROTOCOL, DIALECT]
        addresses = self._table.ends[rows].astype(">u4").tobytes()
        at, half, texts = 0, 4 * WORDS, _texts
        servers: dict[tuple[bytes, int], tuple[Endpoint, str]] = {}
        # Column by column, and no container for each flow: it would keep Python's garbage collector busy.
        values = self._table.flows[rows][:, columns].T.tolist()
        for kind, since, to_server, width, first_port, second_port, protocol, dialect in zip(*values, strict=True):
            first, second = addresses[at : at + width], addresses[at + half : at + half + width]
            at += 2 * half
            here, port, there, other = (first, first_port, second, second_port) if to_server else (second, second_port, first, first_port)
            ends = servers.get((there, other))
            if ends is None:
                text = address(there)
                ends = servers[there, other] = (Endpoint(text, other), f"\0{text}\0{other}")
            server, server_text = ends
            text = texts.get(here) or address(here)
            name = f"tcp\0{text}\0{port}{server_text}\0{_SINCE[kind]} {since}".encode()
            yield Flow(
                blake2b(name, digest_size=SESSION_ID_SIZE).digest(),
                self._protocols[protocol],
                "tcp",
                Endpoint(text, port),
                server,
                "port",
                "wire",
                self._dialects[dialect],
            )

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

    def moved(self, numbers: Mapping[int, int]) -> None:
        """Rows have other numbers now; those that are not among them are gone."""
        self._named = {numbers[row]: flow for row, flow in self._named.items() if row in numbers}
