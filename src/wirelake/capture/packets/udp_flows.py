"""UDP flows: assign datagrams to endpoint pairs, find the client and the protocol.

Datagrams are never joined, and none is held. The protocol of a pair is known by a port, or from the first datagram that `sniff` recognises.
Earlier datagrams are accounted for as unrecognised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wirelake.capture.blocks.accounting import OTHER, Accounting
from wirelake.capture.blocks.block import Endpoint, Flow, Unrecognised
from wirelake.capture.blocks.builder import BlockBuilder
from wirelake.capture.packets.flow_ids import session_id
from wirelake.capture.packets.row_flows import address
from wirelake.capture.packets.tcp_flows import UNLIKE, UNRECOGNISED
from wirelake.capture.packets.tracked import by_port, is_client

__all__ = ["MAX_PAIRS", "UNDECIDED_DATAGRAMS", "Datagrams"]

MAX_PAIRS: Final = 65_536
"""Pairs of endpoints tracked at a time.

Beyond this the older half is dropped; a dropped pair that goes on is a new one.
"""
UNDECIDED_DATAGRAMS: Final = 64
"""Datagrams of a pair that are sniffed before it is given up."""


class Pair:
    """Two endpoints that exchange datagrams."""

    __slots__ = ("client", "flow", "server", "unknown")

    def __init__(self, client: Endpoint, server: Endpoint) -> None:
        self.client = client
        self.server = server
        self.flow: Flow | None = None
        self.unknown = 0
        """Unrecognised datagrams."""

    def is_named(self, protocol: str, known_by: str) -> None:
        """Set the protocol.

        The id does not depend on who sent first: a capture that begins later must give the same.
        """
        ends = sorted([(self.client.address, self.client.port), (self.server.address, self.server.port)])
        identity = session_id("udp", *ends[0], *ends[1])
        self.flow = Flow(identity, protocol, "udp", self.client, self.server, known_by, "wire")


class Datagrams:
    """All pairs of one capture; datagrams go to a block builder, unrecognised ones to the accounting."""

    def __init__(
        self, ports: Mapping[int, str], sniff: Callable[[bytes], str | None], builder: BlockBuilder, accounting: Accounting
    ) -> None:
        self._ports = ports
        self._sniff = sniff
        self._builder = builder
        self._accounting = accounting
        self._pairs: dict[tuple[bytes, int, bytes, int], tuple[Pair, bool]] = {}

    def packet(
        self, source: bytes, source_port: int, destination: bytes, destination_port: int, ts: int, parts: Sequence[tuple[int, bytes]]
    ) -> None:
        """Add one datagram that is not empty, in parts (source offset, bytes): one, unless IP fragmented it."""
        key = (source, source_port, destination, destination_port)
        pair, to_server = self._pairs.get(key) or self._meet(key)
        if pair.flow is None and pair.unknown < UNDECIDED_DATAGRAMS:
            protocol = self._sniff(parts[0][1] if len(parts) == 1 else b"".join(chunk for _, chunk in parts))
            if protocol:
                pair.is_named(protocol, "bytes")
        if pair.flow is None:
            pair.unknown += 1
            unrecognised = Unrecognised("udp", pair.client.address, pair.server.address, pair.server.port, UNLIKE)
            for number, (offset, chunk) in enumerate(parts):
                self._accounting.add(OTHER, UNRECOGNISED, len(chunk), 0 if number else 1, offset, unrecognised, ts)
        else:
            self._builder.datagram(self._builder.number(pair.flow), to_server, ts, parts)

    def _meet(self, key: tuple[bytes, int, bytes, int]) -> tuple[Pair, bool]:
        """Track a new pair: the first sender is the client, unless a known port shows otherwise."""
        source, source_port, destination, destination_port = key
        to_server = True
        if (source_port in self._ports) != (destination_port in self._ports):
            to_server = is_client(source_port, destination_port, self._ports)
        here, there = Endpoint(address(source), source_port), Endpoint(address(destination), destination_port)
        pair = Pair(here, there) if to_server else Pair(there, here)
        protocol = by_port(pair.server.port, pair.client.port, self._ports)
        if protocol:
            pair.is_named(protocol, "port")
        if len(self._pairs) >= 2 * MAX_PAIRS:
            for old in list(self._pairs)[:MAX_PAIRS]:
                del self._pairs[old]
        back = (destination, destination_port, source, source_port)
        self._pairs[back] = (pair, not to_server)
        self._pairs[key] = (pair, to_server)  # the same key as `back` when an endpoint sends to itself: this one counts
        return pair, to_server
