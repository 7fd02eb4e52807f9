"""TCP flows: assign segments to connections, find the client, recognise the protocol.

`tcp_stream.py` reassembles each direction. Retransmissions are dropped and accounted for here (`_take`). Disputed bytes, and bytes that
come too late, go to quarantine. While the protocol of a flow is not recognised, its bytes are held, up to a limit.

The caller passes `ports`, `sniff` and `dialect`, which recognise protocols and their dialects.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

from wirelake.capture.blocks.accounting import GAP, OTHER, Accounting
from wirelake.capture.blocks.block import Endpoint, Flow, Unrecognised
from wirelake.capture.blocks.builder import BlockBuilder
from wirelake.capture.containers.records import NO_TIME
from wirelake.capture.packets.dissect import ACK, FIN, RST, SYN
from wirelake.capture.packets.tcp_stream import DISPUTED, EARLY, FRESH, LATE, REPEATED, Budget, Half, SegmentPart

__all__ = [
    "HELD_TOTAL",
    "MAX_FLOWS",
    "MIDWAY",
    "SESSION_ID_SIZE",
    "UNDECIDED_BYTES",
    "UNDECIDED_SEGMENTS",
    "UNDECIDED_SNIFFED",
    "UNDECIDED_TOTAL",
    "UNLIKE",
    "UNRECOGNISED",
    "Dialect",
    "Tracker",
    "by_port",
    "is_client",
    "one_dialect",
    "session_id",
]

SESSION_ID_SIZE: Final = 16
MAX_FLOWS: Final = 65_536
"""Flows tracked at a time.

Beyond this the older half is dropped; a dropped flow that goes on is a new one, from mid-stream.
"""
UNDECIDED_BYTES: Final = 16 << 10
"""Bytes held per flow and direction while its protocol is not recognised."""
UNDECIDED_SEGMENTS: Final = 64
"""Segments and events held per flow while its protocol is not recognised."""
UNDECIDED_SNIFFED: Final = 64 << 10
"""Bytes of a direction passed to `sniff` in all: each segment with those before it.

The last time is before a flow is given up.
"""
UNDECIDED_TOTAL: Final = 64 << 20
"""Bytes held for all such flows together; beyond this, new ones are decided by their first segment."""

HELD_TOTAL: Final = 64 << 20
"""Bytes of all flows that may wait for gaps; also bytes of all flows kept to compare retransmissions."""

Dialect = Callable[[str, bytes], tuple[str, ...] | None]
"""Returns the dialect of a protocol's stream that begins like this; None: more bytes are needed."""

UNRECOGNISED: Final = "unrecognised"
UNLIKE: Final = "no protocol begins like this"
MIDWAY: Final = "beginning not captured"
"""Why a flow was not recognised."""
_REASONS: Final = {
    DISPUTED: "retransmission says something else",
    EARLY: "before the first segment seen",
    LATE: "too late for its place",
}
"""Why bytes of a stream go to quarantine."""
_WRAP: Final = 1 << 32


def session_id(*parts: object) -> bytes:
    """Hash the parts of a session's identity to its id."""
    return blake2b("\0".join(str(part) for part in parts).encode(), digest_size=SESSION_ID_SIZE).digest()


def one_dialect(_: str, __: bytes) -> tuple[str, ...]:
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

    __slots__ = ("client", "closed", "flow", "given_up", "halves", "held", "held_bytes", "identity", "server")

    def __init__(self, client: Endpoint, server: Endpoint, identity: bytes, budget: Budget) -> None:
        self.client = client
        self.server = server
        self.identity = identity
        self.flow: Flow | None = None
        self.given_up = False
        self.held: list[Held] = []
        self.held_bytes = [0, 0]
        self.halves = (Half(budget), Half(budget))
        self.closed = False

    def is_named(self, protocol: str, known_by: str, dialect: tuple[str, ...] = ()) -> Flow:
        """Set the protocol of the flow."""
        self.flow = Flow(self.identity, protocol, "tcp", self.client, self.server, known_by, "wire", dialect)
        return self.flow


class Tracker:
    """All TCP flows of one capture; payload goes to a block builder, everything else to the accounting."""

    def __init__(
        self,
        ports: Mapping[int, str],
        sniff: Callable[[bytes], str | None],
        builder: BlockBuilder,
        accounting: Accounting,
        dialect: Dialect = one_dialect,
    ) -> None:
        self._ports = ports
        self._sniff = sniff
        self._dialect = dialect
        self._builder = builder
        self._accounting = accounting
        self._flows: dict[tuple[bytes, int, bytes, int], tuple[Tracked, bool]] = {}
        self._held_total = 0
        self._budget = Budget()
        self._waiting: dict[Half, tuple[Tracked, bool]] = {}
        """Directions in which something is missing, longest first."""

    def packet(
        self,
        source: bytes,
        source_port: int,
        destination: bytes,
        destination_port: int,
        sequence: int,
        acknowledged: int,
        flags: int,
        ts: int,
        record: int,
        offset: int,
        payload: bytes,
        missing: int = 0,
    ) -> None:
        """Add one TCP segment: `record` is the file offset of its packet, `offset` that of its payload.

        `missing` bytes were cut off.
        """
        key = (source, source_port, destination, destination_port)
        entry = self._flows.get(key)
        is_syn = bool(flags & SYN)
        data_at = (sequence + is_syn) % _WRAP
        if entry is not None and (is_syn or payload) and self._is_new(*entry, data_at, acknowledged, flags):
            self._end(entry[0])
            entry = None
        if entry is None:
            entry = self._start(key, sequence, acknowledged, flags, ts)
        tracked, to_server = entry
        half = tracked.halves[to_server]
        if is_syn and not half.from_start:
            half.opens_at(data_at)
            if not tracked.halves[not to_server].from_start:
                self._event(tracked, True, ts, record, "opened")
        if payload and flags & RST:
            self._accounting.add(OTHER, "text of a reset", len(payload), 1, offset)
        elif payload:
            self._payload(tracked, to_server, half, data_at, ts, offset, payload)
        if missing:
            half.lose((data_at + len(payload)) % _WRAP, missing)
        if flags & RST:
            if not tracked.closed:
                tracked.closed = True
                self._event(tracked, to_server, ts, record, "reset")
        elif flags & FIN and not half.finished:
            half.finished = True
            self._event(tracked, to_server, ts, record, "finished")
            if tracked.halves[not to_server].finished and not tracked.closed:
                tracked.closed = True
                self._event(tracked, to_server, ts, record, "closed")

    def settle(self) -> None:
        """Keep the bytes held for all flows inside their limit; called after each window."""
        while self._budget.ahead > HELD_TOTAL:
            half, (tracked, to_server) = next(iter(self._waiting.items()))
            self._skip(tracked, to_server, half)
        if self._budget.remembered > HELD_TOTAL:
            for tracked, to_server in self._flows.values():
                tracked.halves[to_server].forget()

    def finish(self) -> None:
        """End all flows: the capture is over."""
        for tracked, _ in self._flows.values():
            self._end(tracked)
        self._flows.clear()

    def places(self) -> list[int]:
        """Return the source offsets of everything held."""
        held = [one.bit.offset for tracked, _ in self._flows.values() for one in tracked.held]
        return held + [place for tracked, _ in self._flows.values() for half in tracked.halves for place in half.places()]

    def move(self, moved: Callable[[int], int]) -> None:
        """Renumber the source offsets of everything held."""
        for tracked in {id(tracked): tracked for tracked, _ in self._flows.values()}.values():
            tracked.held = [one._replace(bit=one.bit._replace(offset=moved(one.bit.offset))) for one in tracked.held]
            for half in tracked.halves:
                half.move(moved)

    def _is_new(self, tracked: Tracked, to_server: bool, data_at: int, acknowledged: int, flags: int) -> bool:
        """Whether a segment on the ports of a flow belongs to a new connection (port reuse)."""
        here, there = tracked.halves[to_server], tracked.halves[not to_server]
        if not flags & SYN:
            return tracked.closed and here.is_far(data_at)
        if flags & ACK and there.from_start and there.is_opened_at(acknowledged):
            return False  # a second SYN-ACK to the same SYN: the first one counts
        if not flags & ACK and there.began_midway():
            return True
        return not here.is_opened_at(data_at)

    def _start(self, key: tuple[bytes, int, bytes, int], sequence: int, acknowledged: int, flags: int, ts: int) -> tuple[Tracked, bool]:
        source, source_port, destination, destination_port = key
        if flags & SYN:
            to_server = not flags & ACK
            first = sequence if to_server else (acknowledged - 1) % _WRAP
            since = f"sequence {first}"
        else:
            to_server = is_client(source_port, destination_port, self._ports)
            since = f"time {ts}" if ts != NO_TIME else f"byte {sequence}"
        here = Endpoint(str(ipaddress.ip_address(source)), source_port)
        there = Endpoint(str(ipaddress.ip_address(destination)), destination_port)
        client, server = (here, there) if to_server else (there, here)
        identity = session_id("tcp", client.address, client.port, server.address, server.port, since)
        tracked = Tracked(client, server, identity, self._budget)
        protocol = by_port(server.port, client.port, self._ports)
        if protocol and self._dialect(protocol, b"") is not None:
            tracked.is_named(protocol, "port")
        if len(self._flows) >= 2 * MAX_FLOWS:
            self._forget()
        # Taken out first, so that the order of the table is the order in which flows began.
        back = (destination, destination_port, source, source_port)
        self._flows.pop(back, None)
        self._flows.pop(key, None)
        self._flows[back] = (tracked, not to_server)
        self._flows[key] = (tracked, to_server)
        return tracked, to_server

    def _forget(self) -> None:
        for key in list(self._flows)[: len(self._flows) // 4 * 2]:
            self._end(self._flows.pop(key)[0])

    def _end(self, tracked: Tracked) -> None:
        """End a flow: deliver what waits, and decide its protocol."""
        for to_server, half in enumerate(tracked.halves):
            while half.is_waiting:
                self._skip(tracked, bool(to_server), half)
            half.forget()
        self._give_up(tracked)

    def _payload(self, tracked: Tracked, to_server: bool, half: Half, sequence: int, ts: int, offset: int, payload: bytes) -> None:
        if tracked.given_up:
            self._leave(tracked, len(payload), ts, offset)
            return
        if tracked.flow is not None and half.follows(sequence, payload):
            self._builder.append(tracked.flow, to_server, ts, offset, payload)
            return
        self._take(tracked, to_server, half.place(sequence, ts, offset, payload))
        if half.is_waiting:
            self._waiting.setdefault(half, (tracked, to_server))
        else:
            self._waiting.pop(half, None)

    def _skip(self, tracked: Tracked, to_server: bool, half: Half) -> None:
        """Continue after a gap."""
        self._take(tracked, to_server, half.skip())
        if not half.is_waiting:
            self._waiting.pop(half, None)

    def _take(self, tracked: Tracked, to_server: bool, bits: list[SegmentPart]) -> None:
        for bit in bits:
            if bit.what == REPEATED:
                self._accounting.add(OTHER, "retransmission", len(bit.chunk), 1, bit.offset)
            else:
                self._keep(tracked, Held(to_server, bit, ""))

    def _event(self, tracked: Tracked, to_server: bool, ts: int, record: int, what: str) -> None:
        if not tracked.given_up:
            self._keep(tracked, Held(to_server, SegmentPart("", 0, ts, record, b""), what))

    def _keep(self, tracked: Tracked, item: Held) -> None:
        """Deliver an item if the protocol is recognised.

        Else hold it, and try to recognise the protocol by it.
        """
        bit = item.bit
        if tracked.flow is not None:
            self._hand_on(tracked.flow, item)
            return
        if tracked.given_up:
            self._leave(tracked, len(bit.chunk), bit.ts, bit.offset)
            return
        tracked.held.append(item)
        tracked.held_bytes[item.to_server] += len(bit.chunk)
        self._held_total += len(bit.chunk)
        if bit.what == FRESH:
            half = tracked.halves[item.to_server]
            if bit.missing > 0:
                if half.sniffed > UNDECIDED_SNIFFED and self._is_recognised(tracked, half):
                    return
                half.first_bytes = bytearray()  # sniffing begins again after a gap
            half.first_bytes += bit.chunk[: UNDECIDED_BYTES - len(half.first_bytes)]
            if half.sniffed <= UNDECIDED_SNIFFED and self._is_recognised(tracked, half):
                return
        is_too_much = tracked.held_bytes[item.to_server] > UNDECIDED_BYTES or self._held_total > UNDECIDED_TOTAL
        if is_too_much or len(tracked.held) > UNDECIDED_SEGMENTS:
            self._give_up(tracked)

    def _is_recognised(self, tracked: Tracked, half: Half) -> bool:
        """Whether the first bytes of a direction show the protocol and its dialect.

        If so, deliver what is held.
        """
        first = bytes(half.first_bytes)
        half.sniffed += len(first)
        expected = self._expected(tracked)
        protocol = expected or self._sniff(first)
        if not protocol or (dialect := self._dialect(protocol, first)) is None:
            return False
        self._settle(tracked, tracked.is_named(protocol, "port" if expected else "bytes", dialect))
        return True

    def _expected(self, tracked: Tracked) -> str:
        """The protocol of a known port; its dialect may still be unknown."""
        return by_port(tracked.server.port, tracked.client.port, self._ports)

    def _settle(self, tracked: Tracked, flow: Flow) -> None:
        """Deliver everything held of a flow."""
        for held in self._release(tracked):
            self._hand_on(flow, held)

    def _hand_on(self, flow: Flow, item: Held) -> None:
        bit = item.bit
        if item.event:
            by = "" if item.event == "closed" else "client" if item.to_server else "server"
            self._builder.event(flow, bit.ts, bit.offset, item.event, by)
        elif bit.what == FRESH:
            if bit.missing > 0:
                self._accounting.add(GAP, "bytes missing from a tcp stream", 0, 1, bit.offset)
            self._builder.append(flow, item.to_server, bit.ts, bit.offset, bit.chunk, bit.missing)
        else:
            self._accounting.quarantine(bit.offset, bit.chunk, "tcp", _REASONS[bit.what])

    def _give_up(self, tracked: Tracked) -> None:
        """Decide an undecided flow: on a known port it has that protocol without a dialect.

        On other ports it is unrecognised.
        """
        if tracked.flow is not None or tracked.given_up:
            return
        if expected := self._expected(tracked):
            self._settle(tracked, tracked.is_named(expected, "port"))
            return
        # 0: the first bytes come from a stored state, and were not sniffed since.
        skipped = [half for half in tracked.halves if half.first_bytes and not 0 < half.sniffed <= UNDECIDED_SNIFFED]
        if any(self._is_recognised(tracked, half) for half in skipped):
            return
        tracked.given_up = True
        for held in self._release(tracked):
            self._leave(tracked, len(held.bit.chunk), held.bit.ts, held.bit.offset)
        for to_server, half in enumerate(tracked.halves):
            while half.is_waiting:
                self._skip(tracked, bool(to_server), half)
            half.forget()

    def _leave(self, tracked: Tracked, size: int, ts: int, offset: int) -> None:
        """Account for bytes of an unrecognised flow."""
        if size:
            why = UNLIKE if tracked.halves[0].from_start or tracked.halves[1].from_start else MIDWAY
            unrecognised = Unrecognised("tcp", tracked.client.address, tracked.server.address, tracked.server.port, why)
            self._accounting.add(OTHER, UNRECOGNISED, size, 1, offset, unrecognised, ts)

    def _release(self, tracked: Tracked) -> list[Held]:
        held, tracked.held = tracked.held, []
        self._held_total -= sum(tracked.held_bytes)
        for half in tracked.halves:
            half.first_bytes = bytearray()
        return held
