"""TCP flows: assign segments to connections, find the client, recognise the protocol.

`tcp_stream.py` reassembles each direction. Retransmissions are dropped and accounted for here (`_take`). Disputed bytes, and bytes that
come too late, go to quarantine. While the protocol of a flow is not recognised, its bytes are held, up to a limit.

The caller passes `ports`, `sniff` and `dialect`, which recognise protocols and their dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from wirelake.capture.blocks.accounting import GAP, OTHER, Accounting
from wirelake.capture.blocks.block import Unrecognised
from wirelake.capture.blocks.builder import BlockBuilder
from wirelake.capture.blocks.flows import Flows
from wirelake.capture.containers.records import NO_TIME
from wirelake.capture.packets.dissect import ACK, FIN, RST, SYN
from wirelake.capture.packets.flow_table import (
    BY_BYTE,
    BY_SEQUENCE,
    BY_TIME,
    CLOSED,
    FAST,
    HELD_AT,
    HELD_TS,
    NUMBER,
    OWNED,
    STATE,
    TO_SERVER,
    FlowTable,
    Key,
)
from wirelake.capture.packets.in_order import advance
from wirelake.capture.packets.row_flows import RowFlows
from wirelake.capture.packets.tcp_stream import DISPUTED, EARLY, FRESH, LATE, REMEMBERED, REPEATED, Budget, Half, SegmentPart
from wirelake.capture.packets.tracked import Dialect, Held, Tracked, by_port, is_client, one_dialect
from wirelake.protocols.kernel import active
from wirelake.protocols.kernel import array as octets

__all__ = [
    "HELD_TOTAL",
    "MAX_FLOWS",
    "MIDWAY",
    "UNDECIDED_BYTES",
    "UNDECIDED_DIALECT",
    "UNDECIDED_SEGMENTS",
    "UNDECIDED_SNIFFED",
    "UNDECIDED_TOTAL",
    "UNLIKE",
    "UNRECOGNISED",
    "Tracker",
]

Array = np.ndarray[Any, Any]

MAX_FLOWS: Final = 65_536
"""Flows tracked at a time.

Beyond this the older half is dropped; a dropped flow that goes on is a new one, from mid-stream.
"""
UNDECIDED_BYTES: Final = 16 << 10
"""Bytes held per flow and direction while its protocol is not recognised."""
UNDECIDED_SEGMENTS: Final = 64
"""Segments and events held per flow while its protocol is not recognised."""
UNDECIDED_DIALECT: Final = 1024
"""The same of a flow whose protocol is known by its port, but not its dialect."""
UNDECIDED_SNIFFED: Final = 64 << 10
"""Bytes of a direction passed to `sniff` in all: each segment with those before it.

The last time is before a flow is given up.
"""
UNDECIDED_TOTAL: Final = 64 << 20
"""Bytes held for all such flows together; beyond this, new ones are decided by their first segment."""

HELD_TOTAL: Final = 64 << 20
"""Bytes of all flows that may wait for gaps; also bytes of all flows kept to compare retransmissions."""

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


class Tracker:
    """All TCP flows of one capture; payload goes to a block builder, everything else to the accounting.

    Flows whose packets come in order are rows of `flow_table.py`, and kernels follow them. `packet` follows all others, one by one. It
    takes the flow out of its row (`_owned`), and puts it back when it is in order again (`_release`).
    """

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
        self._held_total = 0
        self._budget = Budget()
        self._table = FlowTable(self._budget.recent, self._moved)
        self._tracked: dict[int, Tracked] = {}
        """Row -> its flow, if Python has it, or knows more of it than the row."""
        self._waiting: dict[Half, tuple[Tracked, bool]] = {}
        """Directions in which something is missing, longest first."""
        self.is_following = False
        """Whether kernels follow flows, so that Python gives them back; see `uses_kernels`."""
        self._row_flows = RowFlows(self._table, ports, dialect)
        builder.rows = self

    def advance(self, data: bytes | memoryview, packets: Array, base: int, at: int, size: int, entries: Array) -> tuple[int, int]:
        """Follow packets from `at` on that are in order; returns those that `packet` must take, as `in_order.advance` does.

        `size` is the payload of all packets from `at` on.
        """
        count = len(packets) - at
        limits = np.array([2 * MAX_FLOWS, REMEMBERED, base, self._held_total > UNDECIDED_TOTAL], np.int64)
        first, stop = active(advance)(
            self._table.arrays,
            self._budget.recent.arrays(size, count, 2 * self._table.rows, 2 * len(self._table.flows)),
            self._builder.arrays(size, count),
            self._row_flows.ports,
            self._row_flows.openings,
            limits,
            octets(data),  # type: ignore[arg-type]  # any buffer will do
            packets,
            entries,
            at,
        )
        self._table.changed()
        self._builder.used()
        return int(first), int(stop)

    @property
    def uses_kernels(self) -> bool:
        """Whether kernels follow packets that are in order: uncompiled they would be slower than `packet`."""
        return active(advance) is not advance

    @property
    def version(self) -> int:
        """Changes whenever key numbers of `advance` do not hold any more."""
        return self._table.version

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
        entry: int | None = None,
    ) -> None:
        """Add one TCP segment: `record` is the file offset of its packet, `offset` that of its payload.

        `missing` bytes were cut off. `entry` is the key number of its flow, if that is known.
        """
        key = (source, source_port, destination, destination_port)
        if entry is None:
            entry = self._table.find(key)
        is_syn = bool(flags & SYN)
        data_at = (sequence + is_syn) % _WRAP
        found = self._owned(entry >> 1) if entry >= 0 else None
        to_server = found is not None and found.is_forward == bool(entry & 1)
        if found is not None and (is_syn or payload) and self._is_new(found, to_server, data_at, acknowledged, flags):
            self._end(found)
            found = None
        if found is None:
            found, to_server = self._start(key, sequence, acknowledged, flags, ts)
        tracked, half = found, found.halves[to_server]
        if is_syn and not half.from_start:
            half.opens_at(data_at)
            if not tracked.halves[not to_server].from_start:
                self._event(tracked, True, ts, record, "opened")
        if half.is_unseen and (payload or flags & FIN) and tracked.halves[not to_server].from_start:
            self._event(tracked, to_server, ts, record, "missing")
        if payload and flags & RST:
            self._accounting.add(OTHER, "text of a reset", len(payload), 1, offset)
        elif payload:
            self._payload(tracked, to_server, half, data_at, ts, offset, payload)
        if missing:
            half.lose((data_at + len(payload)) % _WRAP, missing)
        is_last = (flags & RST and not payload and not tracked.closed) or (flags & FIN and not half.finished)
        if is_last and (half.is_short((data_at + len(payload)) % _WRAP) or any(one.is_waiting for one in tracked.halves)):
            self._event(tracked, to_server, ts, record, "missing")
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
        self._release(tracked)

    def settle(self) -> None:
        """Keep the bytes held for all flows inside their limit; called after each window."""
        while self._budget.ahead > HELD_TOTAL:
            half, (tracked, to_server) = next(iter(self._waiting.items()))
            self._skip(tracked, to_server, half)
        if self._budget.remembered > HELD_TOTAL:
            self._budget.recent.forget_all()

    def finish(self) -> None:
        """End all flows: the capture is over."""
        entries = self._table.entries()
        self._end_rows(entries)
        self._table.drop(entries)

    def places(self) -> list[int]:
        """Return the source offsets of everything held."""
        flows = self.flows().values()
        held = [one.bit.offset for tracked, _ in flows for one in tracked.held]
        return held + [place for tracked, _ in flows for half in tracked.halves for place in half.places()]

    def move(self, moved: Callable[[int], int]) -> None:
        """Renumber the source offsets of everything held."""
        for tracked in {tracked.row: tracked for tracked, _ in self.flows().values()}.values():
            tracked.held = [one._replace(bit=one.bit._replace(offset=moved(one.bit.offset))) for one in tracked.held]
            for half in tracked.halves:
                half.move(moved)

    def flows(self) -> dict[Key, tuple[Tracked, bool]]:
        """Return all flows by key, in the order in which they began, and whether the key's source is the client."""
        return {
            self._table.key(entry): (self._owned(entry >> 1), self._row_flows.to_server(entry)) for entry in self._table.entries().tolist()
        }

    def restore(self, keys: list[Key], is_client: bool, made: Callable[[Budget, int], Tracked]) -> Tracked:
        """Track a flow of a stored state, by one or both of its keys; `is_client` tells of the last key's source."""
        row = self._table.start(keys[-1])
        if len(keys) == 1:
            self._table.drop(np.array([2 * row]))
        self._table.flows[row, [STATE, TO_SERVER]] = OWNED, is_client
        tracked = self._tracked[row] = made(self._budget, row)
        tracked.is_forward = is_client
        self._held_total += sum(tracked.held_bytes)
        return tracked

    def wait(self, tracked: Tracked, to_server: bool) -> None:
        """Track a direction of a stored state that waits for a gap."""
        self._waiting[tracked.halves[to_server]] = (tracked, to_server)

    def flows_of(self, rows: Array) -> Flows:
        """Return the flow of each row; a block that had numbers for them was taken."""
        return self._row_flows.of(rows, self._tracked)

    # Rows and their flows.

    def _owned(self, row: int) -> Tracked:
        """Take a flow out of its row."""
        tracked = self._tracked.get(row)
        if tracked is not None and tracked.is_owned:
            return tracked
        flow = self._table.flows[row]
        state = int(flow[STATE])
        if tracked is None:
            if state == FAST:
                named = self._row_flows.flow(row)
                tracked = Tracked(named.client, named.server, named.session_id, self._budget, row)
                tracked.flow = named
            else:
                tracked = Tracked(*self._row_flows.identity(row), self._budget, row)
            self._tracked[row] = tracked
            if flow[HELD_AT] >= 0:
                tracked.held.append(Held(True, SegmentPart("", 0, int(flow[HELD_TS]), int(flow[HELD_AT]), b""), "opened"))
                flow[HELD_AT] = -1
        tracked.closed = bool(flow[CLOSED])
        for half, values in zip(tracked.halves, self._table.halves[2 * row : 2 * row + 2].tolist(), strict=True):
            half.put(*values)
        flow[STATE] = OWNED
        tracked.is_owned, tracked.is_forward = True, bool(flow[TO_SERVER])
        return tracked

    def _release(self, tracked: Tracked) -> None:
        """Put a flow back into its row, if kernels can follow it."""
        if not self.is_following:
            return
        row, halves = tracked.row, tracked.halves
        if tracked.flow is None or tracked.given_up or halves[0].is_waiting or halves[1].is_waiting:
            return
        self._table.flows[row, CLOSED] = tracked.closed
        self._table.flows[row, STATE] = FAST
        tracked.is_owned = False
        for number, half in enumerate(halves):
            self._table.halves[2 * row + number] = half.take()
        if not (halves[0].has_gaps or halves[1].has_gaps):
            self._row_flows.name(row, tracked.flow)
            del self._tracked[row]

    def _moved(self, rows: Array) -> None:
        """Rows got new numbers."""
        if self._tracked:
            numbers = dict(zip(rows.tolist(), range(len(rows)), strict=True))
            self._tracked = {numbers[row]: tracked for row, tracked in self._tracked.items() if row in numbers}
        for row, tracked in self._tracked.items():
            tracked.row = row
            for to_server, half in enumerate(tracked.halves):
                half.move_slot(2 * row + to_server)
        self._row_flows.moved(rows)
        self._builder.moved(rows)

    def _number(self, tracked: Tracked) -> int:
        """The number of a flow in the block."""
        number = int(self._table.flows[tracked.row, NUMBER])
        if number < 0:
            number = self._builder.new_number(tracked.row)
            self._table.flows[tracked.row, NUMBER] = number
        return number

    def _end_rows(self, entries: Array) -> None:
        """End the flows of these keys, in their order."""
        rows = np.unique(entries >> 1)
        is_fast = self._table.flows[rows, STATE] == FAST
        for row in rows[~is_fast].tolist():
            self._end(self._owned(row))
        self._budget.recent.forget((2 * rows[:, None] + np.arange(2)).reshape(-1))

    # One packet.

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
        _, source_port, _, destination_port = key
        if flags & SYN:
            to_server = not flags & ACK
            since = (BY_SEQUENCE, sequence if to_server else (acknowledged - 1) % _WRAP)
        else:
            to_server = is_client(source_port, destination_port, self._ports)
            since = (BY_TIME, ts) if ts != NO_TIME else (BY_BYTE, sequence)
        if self._table.keys >= 2 * MAX_FLOWS:
            self._forget()
        row = self._table.start(key)
        self._row_flows.began(row, to_server, *since)
        client, server, identity = self._row_flows.identity(row)
        tracked = self._tracked[row] = Tracked(client, server, identity, self._budget, row)
        tracked.is_forward = to_server
        protocol = by_port(server.port, client.port, self._ports)
        if protocol and self._dialect(protocol, b"") is not None:
            tracked.is_named(protocol, "port")
        return tracked, to_server

    def _forget(self) -> None:
        entries = self._table.entries()
        oldest = entries[: len(entries) // 4 * 2]
        self._end_rows(oldest)
        self._table.drop(oldest)
        rows = np.unique(oldest >> 1)
        is_gone = ~self._table.alive[2 * rows].astype(bool) & ~self._table.alive[2 * rows + 1].astype(bool)
        for row in rows[is_gone & (self._table.flows[rows, NUMBER] < 0)].tolist() if self._tracked else ():
            self._tracked.pop(row, None)

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
            self._builder.append(self._number(tracked), to_server, ts, offset, payload)
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
            self._hand_on(tracked, item)
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
        most = UNDECIDED_DIALECT if self._expected(tracked) else UNDECIDED_SEGMENTS
        if is_too_much or len(tracked.held) > most:
            self._give_up(tracked)

    def _is_recognised(self, tracked: Tracked, half: Half, *, is_all: bool = False) -> bool:
        """Whether the first bytes of a direction show the protocol and its dialect. With `is_all`, no more come.

        If so, deliver what is held.
        """
        first = bytes(half.first_bytes)
        half.sniffed += len(first)
        expected = self._expected(tracked)
        protocol = expected or self._sniff(first)
        if not protocol or (dialect := self._dialect(protocol, first, is_all=is_all)) is None:
            return False
        tracked.is_named(protocol, "port" if expected else "bytes", dialect)
        if expected:
            self._row_flows.learn(protocol, first, dialect)
        self._settle(tracked)
        return True

    def _expected(self, tracked: Tracked) -> str:
        """The protocol of a known port; its dialect may still be unknown."""
        return by_port(tracked.server.port, tracked.client.port, self._ports)

    def _settle(self, tracked: Tracked) -> None:
        """Deliver everything held of a flow."""
        for held in self._give_back(tracked):
            self._hand_on(tracked, held)

    def _hand_on(self, tracked: Tracked, item: Held) -> None:
        bit = item.bit
        side = "client" if item.to_server else "server"
        if item.event:
            by = "" if item.event == "closed" else side
            self._builder.event(self._number(tracked), bit.ts, bit.offset, item.event, by)
        elif bit.what == FRESH:
            if bit.missing > 0:
                self._accounting.add(GAP, "bytes missing from a tcp stream", 0, 1, bit.offset)
                self._builder.event(self._number(tracked), bit.ts, bit.offset, "missing", side)
            self._builder.append(self._number(tracked), item.to_server, bit.ts, bit.offset, bit.chunk, bit.missing)
        else:
            self._accounting.quarantine(bit.offset, bit.chunk, "tcp", _REASONS[bit.what])

    def _give_up(self, tracked: Tracked) -> None:
        """Decide an undecided flow: on a known port it has that protocol, without a dialect if its bytes show none.

        On other ports it is unrecognised.
        """
        if tracked.flow is not None or tracked.given_up:
            return
        if expected := self._expected(tracked):
            if not any(self._is_recognised(tracked, half, is_all=True) for half in tracked.halves if half.first_bytes):
                tracked.is_named(expected, "port")
                self._settle(tracked)
            return
        # 0: the first bytes come from a stored state, and were not sniffed since.
        skipped = [half for half in tracked.halves if half.first_bytes and not 0 < half.sniffed <= UNDECIDED_SNIFFED]
        if any(self._is_recognised(tracked, half) for half in skipped):
            return
        tracked.given_up = True
        for held in self._give_back(tracked):
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

    def _give_back(self, tracked: Tracked) -> list[Held]:
        """Return what is held of a flow, and hold it no longer."""
        held, tracked.held = tracked.held, []
        self._held_total -= sum(tracked.held_bytes)
        for half in tracked.halves:
            half.first_bytes = bytearray()
        return held
