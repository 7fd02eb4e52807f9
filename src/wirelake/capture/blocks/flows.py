"""Flows: the flows of a block as columns, and as a sequence of `Flow`.

A block may have a flow for every few packets. So nothing here is Python for each flow, unless someone asks for a `Flow`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final, NamedTuple, overload

import numpy as np
import pyarrow as pa

from wirelake.capture.blocks.block import Endpoint, Flow

__all__ = ["LINK_SIZE", "SESSION_ID_SIZE", "FlowKind", "Flows", "Side", "interleaved", "view_id"]

Array = np.ndarray[Any, Any]

SESSION_ID_SIZE: Final = 16
LINK_SIZE: Final = 8
"""Bytes at the start of a session's id that are equal for all observers of a link."""


class FlowKind(NamedTuple):
    """What many flows have in common; see `Flow`."""

    protocol: str
    transport: str
    known_by: str
    observer_kind: str
    dialect: tuple[str, ...]
    observer: str = ""


class Side(NamedTuple):
    """The endpoints of all flows on one side: clients or servers."""

    addresses: list[str]
    codes: Array
    """By flow: its place in `addresses`."""
    ports: Array


_kind: Final = attrgetter(*FlowKind._fields)


class Flows(Sequence[Flow]):
    """The flows of a block, by number."""

    def __init__(self, session_ids: Array, kinds: list[FlowKind], kind_of: Array, clients: Side, servers: Side) -> None:
        """`session_ids` has 16 bytes for each flow, and `kind_of` its place in `kinds`."""
        self.session_ids = session_ids
        self.kinds = kinds
        self.kind_of = kind_of
        self.clients = clients
        self.servers = servers

    @classmethod
    def of(cls, flows: Sequence[Flow]) -> Flows:
        """Return these flows as columns."""
        if isinstance(flows, Flows):
            return flows
        ids = np.frombuffer(b"".join([flow.session_id for flow in flows]), np.uint8).reshape(-1, SESSION_ID_SIZE)
        kinds: dict[tuple[Any, ...], int] = {}
        kind_of = np.array([kinds.setdefault(_kind(flow), len(kinds)) for flow in flows], np.int64)
        clients, servers = _side([flow.client for flow in flows]), _side([flow.server for flow in flows])
        return cls(ids, [FlowKind(*kind) for kind in kinds], kind_of, clients, servers)

    def __len__(self) -> int:
        return len(self.session_ids)

    def __iter__(self) -> Iterator[Flow]:
        columns: list[Any] = [self.names(), self.kind_of.tolist()]
        for side in (self.clients, self.servers):
            columns += [map(side.addresses.__getitem__, side.codes.tolist()), side.ports.tolist()]
        for name, kind, client, port, server, other in zip(*columns, strict=True):
            protocol, transport, *rest = self.kinds[kind]
            yield Flow(name, protocol, transport, Endpoint(client, port), Endpoint(server, other), *rest)

    @overload
    def __getitem__(self, index: int) -> Flow: ...

    @overload
    def __getitem__(self, index: slice) -> Flows: ...

    def __getitem__(self, index: int | slice) -> Flow | Flows:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        protocol, transport, *rest = self.kinds[self.kind_of[index]]
        client, server = (Endpoint(one.addresses[one.codes[index]], int(one.ports[index])) for one in (self.clients, self.servers))
        return Flow(self.session_ids[index].tobytes(), protocol, transport, client, server, *rest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return id(self)

    def take(self, numbers: Array) -> Flows:
        """Return the flows of these numbers."""
        clients, servers = (one._replace(codes=one.codes[numbers], ports=one.ports[numbers]) for one in (self.clients, self.servers))
        return Flows(self.session_ids[numbers], self.kinds, self.kind_of[numbers], clients, servers)

    def names(self) -> list[bytes]:
        """Return the session id of each flow."""
        names: list[bytes] = np.ascontiguousarray(self.session_ids).view(f"V{SESSION_ID_SIZE}").reshape(-1).tolist()
        return names

    def column(self) -> pa.Array:
        """Return the session ids as a column."""
        offsets = np.arange(0, SESSION_ID_SIZE * len(self) + 1, SESSION_ID_SIZE, dtype=np.int32)
        return pa.Array.from_buffers(
            pa.binary(), len(self), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(self.session_ids))]
        )

    @cached_property
    def numbers(self) -> dict[bytes, int]:
        """By session id: the number of its flow, the last if there are several."""
        return dict(zip(self.names(), range(len(self)), strict=True))

    @property
    def are_distinct(self) -> bool:
        """Whether no two flows have the same session id."""
        return len(self.numbers) == len(self)


def view_id(session_id: bytes, observer: str) -> bytes:
    """Return the id of what one observer saw of a link or connection. Its first bytes are equal for all observers."""
    return session_id[:LINK_SIZE] + blake2b(session_id + observer.encode(), digest_size=16 - LINK_SIZE, person=b"wirelake view").digest()


def _side(ends: list[Endpoint]) -> Side:
    addresses: dict[str, int] = {}
    codes = np.array([addresses.setdefault(end.address, len(addresses)) for end in ends], np.int64)
    return Side(list(addresses), codes, np.array([end.port for end in ends], np.int64))


def interleaved(parts: Sequence[tuple[Array, Flows]]) -> Flows:
    """Return the flows of several parts, each flow at the number that is given for it."""
    order = np.argsort(np.concatenate([numbers for numbers, _ in parts]))
    flows = [each for _, each in parts]

    def joined(sides: list[Side]) -> Side:
        return Side(
            [address for side in sides for address in side.addresses],
            _shifted([side.codes for side in sides], [len(side.addresses) for side in sides]),
            np.concatenate([side.ports for side in sides]),
        )

    kind_of = _shifted([each.kind_of for each in flows], [len(each.kinds) for each in flows])
    whole = Flows(
        np.concatenate([each.session_ids for each in flows]),
        [kind for each in flows for kind in each.kinds],
        kind_of,
        joined([each.clients for each in flows]),
        joined([each.servers for each in flows]),
    )
    return whole.take(order)


def _shifted(codes: list[Array], sizes: list[int]) -> Array:
    """Join codes, each counted from the end of those before."""
    begins = np.cumsum([0, *sizes])
    return np.concatenate([each + begin for each, begin in zip(codes, begins.tolist(), strict=False)])
