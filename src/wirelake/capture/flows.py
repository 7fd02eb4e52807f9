"""Flows: which packets belong together, who is the client, what comes next, and which protocol it is.

Segments are read in order only. Bytes already seen are accounted for as retransmission. A segment that does not follow what was seen (loss,
reordering) ends what can be read of its direction: from there on its bytes go to quarantine as "gap". TCP reassembly will take the place of
`Half.place` (and of its short cut, `Half.follows`), and nothing else here should need to change for it.

It refuses to know files and containers, and how a protocol is told by its bytes: `ports` and `sniff` come in.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

from wirelake.capture.blocks import Endpoint, Flow
from wirelake.capture.gather import Gathering
from wirelake.capture.packets import ACK, FIN, RST, SYN
from wirelake.capture.tally import OTHER, Tally

__all__ = [
    "MAX_FLOWS",
    "SESSION_ID_SIZE",
    "UNDECIDED_BYTES",
    "UNDECIDED_SEGMENTS",
    "UNDECIDED_TOTAL",
    "UNRECOGNISED",
    "Half",
    "Tracker",
    "by_port",
    "is_client",
    "session_id",
]

SESSION_ID_SIZE: Final = 16
MAX_FLOWS: Final = 65_536
"""Flows remembered at a time. Beyond this the older half is forgotten; a forgotten flow that goes on starts anew in mid-stream."""
UNDECIDED_BYTES: Final = 16 << 10
"""Bytes held per flow and direction while its protocol is not known."""
UNDECIDED_SEGMENTS: Final = 64
"""Segments and events held per flow while its protocol is not known."""
UNDECIDED_TOTAL: Final = 64 << 20
"""Bytes held for all such flows together; beyond this, new ones are decided by their first segment."""

UNRECOGNISED: Final = "unrecognised"
_WRAP: Final = 1 << 32


def session_id(*parts: object) -> bytes:
    """A session's id from what names it: the same parts always give the same id."""
    return blake2b("\0".join(str(part) for part in parts).encode(), digest_size=SESSION_ID_SIZE).digest()


def is_client(port: int, other: int, ports: Mapping[int, str]) -> bool:
    """Whether the end on `port` is the client, when nothing but ports can tell: who is not on a known port, else the higher port."""
    if (port in ports) != (other in ports):
        return other in ports
    return port >= other


def by_port(server: int, client: int, ports: Mapping[int, str]) -> str:
    """The protocol of a known port at either end, the server's first; empty when neither is known."""
    return ports.get(server) or ports.get(client) or ""


class Cut(NamedTuple):
    """How a segment falls into parts, in bytes and in this order."""

    early: int
    """Before the first byte that was seen of this direction."""
    repeated: int
    """Already seen."""
    fresh: int
    """Exactly what comes next."""
    beyond: int
    """After a gap."""


class Half:
    """One direction of a flow: what was seen, and what comes next."""

    __slots__ = ("_broken", "_next", "_seen", "finished", "first_bytes", "from_start")

    def __init__(self) -> None:
        self._next = -1
        self._seen = 0
        self._broken = False
        self.from_start = False
        self.finished = False
        self.first_bytes = b""

    def opens_at(self, sequence: int) -> None:
        """A SYN said where this direction begins."""
        self._next = sequence
        self.from_start = True

    def is_opened_at(self, sequence: int) -> bool:
        """Whether a SYN that announces `sequence` repeats what is known, or is the first to say it."""
        if self._next < 0:
            return True
        return self.from_start and (self._next - self._seen) % _WRAP == sequence

    def began_midway(self) -> bool:
        """Whether bytes of this direction were seen, but not its beginning."""
        return self._next >= 0 and not self.from_start

    def follows(self, sequence: int, size: int) -> bool:
        """Whether a segment is exactly what comes next, as nearly all are; if so, remember it as seen."""
        if sequence != self._next or self._broken:
            return False
        self._next = (sequence + size) % _WRAP
        self._seen += size
        return True

    def place(self, sequence: int, size: int) -> Cut:
        """Say what of a segment is new, and remember it as seen."""
        if self._next < 0:
            self._next = sequence  # a mid-stream start: the first segment seen is where reading begins
        ahead = (sequence - self._next) % _WRAP
        if ahead >= _WRAP // 2:
            ahead -= _WRAP
        if ahead > 0:
            self._broken = True
            return Cut(0, 0, 0, size)
        early = 0 if self.from_start else min(size, max(0, -(self._seen + ahead)))
        repeated = min(size, -ahead) - early
        rest = size - early - repeated
        if self._broken:
            return Cut(early, repeated, 0, rest)
        self._next = (self._next + rest) % _WRAP
        self._seen += rest
        return Cut(early, repeated, rest, 0)


class Held(NamedTuple):
    """A segment or an event of a flow whose protocol is not known yet."""

    to_server: bool
    ts: int
    offset: int
    chunk: bytes
    is_gap: bool
    event: str
    """What happened, or empty for a segment."""


class Tracked:
    """One flow while it is remembered."""

    __slots__ = ("client", "closed", "flow", "given_up", "halves", "held", "held_bytes", "identity", "server")

    def __init__(self, client: Endpoint, server: Endpoint, identity: bytes) -> None:
        self.client = client
        self.server = server
        self.identity = identity
        self.flow: Flow | None = None
        self.given_up = False
        self.held: list[Held] = []
        self.held_bytes = [0, 0]
        self.halves = (Half(), Half())
        self.closed = False

    def is_named(self, protocol: str, known_by: str) -> Flow:
        """The protocol is known now."""
        self.flow = Flow(self.identity, protocol, "tcp", self.client, self.server, known_by, "wire")
        return self.flow


class Tracker:
    """All flows of one packet capture; segments go to a gathering, everything else to a tally."""

    def __init__(self, ports: Mapping[int, str], sniff: Callable[[bytes], str | None], gathering: Gathering, tally: Tally) -> None:
        self._ports = ports
        self._sniff = sniff
        self._gathering = gathering
        self._tally = tally
        self._flows: dict[tuple[bytes, int, bytes, int], tuple[Tracked, bool]] = {}
        self._held_total = 0

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
    ) -> None:
        """One TCP segment: `record` is the file offset of its packet, `offset` that of its payload."""
        key = (source, source_port, destination, destination_port)
        found = self._flows.get(key)
        is_syn = bool(flags & SYN)
        data_at = (sequence + is_syn) % _WRAP
        if found is not None and is_syn and self._is_new(*found, data_at, flags):
            self._give_up(found[0])
            found = None
        if found is None:
            found = self._start(key, sequence, acknowledged, flags, ts)
        tracked, to_server = found
        half = tracked.halves[to_server]
        if is_syn and not half.from_start:
            half.opens_at(data_at)
            if not tracked.halves[not to_server].from_start:
                self._event(tracked, True, ts, record, "opened")
        if payload and flags & RST:
            self._tally.add(OTHER, "text of a reset", len(payload), 1)
        elif payload:
            self._payload(tracked, to_server, half, data_at, ts, offset, payload)
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

    def finish(self) -> None:
        """The capture is over: what is still undecided stays unrecognised."""
        for tracked, _ in self._flows.values():
            self._give_up(tracked)
        self._flows.clear()

    def _is_new(self, tracked: Tracked, to_server: bool, data_at: int, flags: int) -> bool:
        """Whether a SYN on known ports opens another connection, rather than repeating what opened this one."""
        if not flags & ACK and tracked.halves[not to_server].began_midway():
            return True
        return not tracked.halves[to_server].is_opened_at(data_at)

    def _start(self, key: tuple[bytes, int, bytes, int], sequence: int, acknowledged: int, flags: int, ts: int) -> tuple[Tracked, bool]:
        source, source_port, destination, destination_port = key
        if flags & SYN:
            to_server = not flags & ACK
            first = sequence if to_server else (acknowledged - 1) % _WRAP
            since = f"sequence {first}"
        else:
            to_server = is_client(source_port, destination_port, self._ports)
            since = f"time {ts}"
        here = Endpoint(str(ipaddress.ip_address(source)), source_port)
        there = Endpoint(str(ipaddress.ip_address(destination)), destination_port)
        client, server = (here, there) if to_server else (there, here)
        identity = session_id("tcp", client.address, client.port, server.address, server.port, since)
        tracked = Tracked(client, server, identity)
        protocol = by_port(server.port, client.port, self._ports)
        if protocol:
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
            self._give_up(self._flows.pop(key)[0])

    def _payload(self, tracked: Tracked, to_server: bool, half: Half, sequence: int, ts: int, offset: int, payload: bytes) -> None:
        if tracked.given_up:
            self._tally.add(OTHER, UNRECOGNISED, len(payload), 1)
            return
        if tracked.flow is not None and half.follows(sequence, len(payload)):
            self._gathering.segment(tracked.flow, to_server, ts, offset, payload)
            return
        cut = half.place(sequence, len(payload))
        at = 0
        for size, what in zip(cut, ("early", "repeated", "fresh", "beyond"), strict=True):
            if not size:
                continue
            chunk = payload[at : at + size]
            if what == "repeated":
                self._tally.add(OTHER, "retransmission", size, 1)
            else:
                self._keep(tracked, Held(to_server, ts, offset + at, chunk, what != "fresh", ""))
            at += size

    def _event(self, tracked: Tracked, to_server: bool, ts: int, record: int, what: str) -> None:
        if not tracked.given_up:
            self._keep(tracked, Held(to_server, ts, record, b"", False, what))

    def _keep(self, tracked: Tracked, item: Held) -> None:
        """Hand an item on when its protocol is known; else hold it, and see whether it tells the protocol."""
        if tracked.flow is not None:
            self._hand_on(tracked.flow, item)
            return
        if tracked.given_up:
            self._tally.add(OTHER, UNRECOGNISED, len(item.chunk), 1 if item.chunk else 0)
            return
        tracked.held.append(item)
        tracked.held_bytes[item.to_server] += len(item.chunk)
        self._held_total += len(item.chunk)
        if item.chunk and not item.is_gap:
            half = tracked.halves[item.to_server]
            half.first_bytes += item.chunk[: UNDECIDED_BYTES - len(half.first_bytes)]
            protocol = self._sniff(half.first_bytes)
            if protocol:
                flow = tracked.is_named(protocol, "bytes")
                for held in self._release(tracked):
                    self._hand_on(flow, held)
                return
        is_too_much = tracked.held_bytes[item.to_server] > UNDECIDED_BYTES or self._held_total > UNDECIDED_TOTAL
        if is_too_much or len(tracked.held) > UNDECIDED_SEGMENTS:
            self._give_up(tracked)

    def _hand_on(self, flow: Flow, item: Held) -> None:
        if item.event:
            by = "" if item.event == "closed" else "client" if item.to_server else "server"
            self._gathering.event(flow, item.ts, item.offset, item.event, by)
        elif item.is_gap:
            self._tally.quarantine(item.offset, item.chunk, "tcp", "gap")
        else:
            self._gathering.segment(flow, item.to_server, item.ts, item.offset, item.chunk)

    def _give_up(self, tracked: Tracked) -> None:
        """Decide that nobody here knows this flow's protocol, if nobody does yet."""
        if tracked.flow is None and not tracked.given_up:
            tracked.given_up = True
            for held in self._release(tracked):
                self._tally.add(OTHER, UNRECOGNISED, len(held.chunk), 1 if held.chunk else 0)

    def _release(self, tracked: Tracked) -> list[Held]:
        held, tracked.held = tracked.held, []
        self._held_total -= sum(tracked.held_bytes)
        for half in tracked.halves:
            half.first_bytes = b""
        return held
