"""Tracked: one TCP flow while Python has it, and what ports tell of its ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from wirelake.capture.blocks.block import Endpoint, Flow
from wirelake.capture.packets.tcp_stream import Budget, Half, SegmentPart

__all__ = ["Dialect", "Held", "Tracked", "by_port", "is_client", "one_dialect"]


class Dialect(Protocol):
    """Returns the dialect of a protocol's stream that begins like this; None: more bytes are needed. With `is_all`, no more come."""

    def __call__(self, protocol: str, first: bytes, /, *, is_all: bool = False) -> tuple[str, ...] | None: ...


def one_dialect(_: str, __: bytes, /, *, is_all: bool = False) -> tuple[str, ...]:  # noqa: ARG001 - see `Dialect`
    """Return no dialect: every stream is read by its specification."""
    return ()


def is_client(port: int, other: int, ports: Mapping[int, str]) -> bool:
    """Whether the end on `port` is the client, by ports alone.

    The client is not on a known port; else it is on the higher port.
    """
    if (port in ports) != (other in ports):
        return other in ports
    return port >= other


def by_port(server: int, client: int, ports: Mapping[int, str]) -> str:
    """Return the protocol of a known port at either end, the server's first; empty if neither is known."""
    return ports.get(server) or ports.get(client) or ""


class Held(NamedTuple):
    """Bytes or an event of a flow whose protocol is not recognised yet."""

    to_server: bool
    bit: SegmentPart
    event: str
    """Name of the event; empty for bytes."""


class Tracked:
    """One flow while it is tracked."""

    __slots__ = (
        "client",
        "closed",
        "flow",
        "given_up",
        "halves",
        "held",
        "held_bytes",
        "identity",
        "is_forward",
        "is_owned",
        "row",
        "server",
    )

    def __init__(self, client: Endpoint, server: Endpoint, identity: bytes, budget: Budget, row: int) -> None:
        """`row` is its row in the flow table."""
        self.row = row
        self.is_owned = True
        """Whether this has the state of the flow, and not its row."""
        self.is_forward = True
        """Whether the sender of the first packet is the client."""
        self.client = client
        self.server = server
        self.identity = identity
        self.flow: Flow | None = None
        self.given_up = False
        self.held: list[Held] = []
        self.held_bytes = [0, 0]
        self.halves = (Half(budget, 2 * row), Half(budget, 2 * row + 1))
        self.closed = False

    def is_named(self, protocol: str, known_by: str, dialect: tuple[str, ...] = ()) -> Flow:
        """Set the protocol of the flow."""
        self.flow = Flow(self.identity, protocol, "tcp", self.client, self.server, known_by, "wire", dialect)
        return self.flow
