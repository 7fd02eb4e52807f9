"""Recordings to blocks: exported PDUs of a window become one block over the window's bytes.

Records with the same tags belong to the same direction of the same flow. So a kernel finds the distinct tags by comparing bytes, and each
is parsed once; no Python runs per record. Tags identify a flow completely: a window needs nothing of the window before, and a file of a
rotated recording nothing of the file before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from wirelake.capture.blocks.accounting import HEADERS, OTHER, Accounting
from wirelake.capture.blocks.block import Block, Endpoint, Flow, FlowEvent, Source, Unrecognised
from wirelake.capture.containers.records import DATA, SIZE, START, TS, WIRE_SIZE
from wirelake.capture.packets.flow_ids import session_id
from wirelake.capture.packets.tcp_flows import UNRECOGNISED
from wirelake.capture.packets.tracked import by_port, is_client
from wirelake.capture.record.exported_pdu import RECEIVED, Tags, info_words, parse, recorded_session_id
from wirelake.protocols.kernel import active, array, kernel, u16, u32

__all__ = ["MAX_MEANINGS", "Meaning", "RecordingReader", "intern", "tags_size"]

MAX_PORT: Final = 0xFFFF
"""The highest port; a tag has four bytes for one."""
MAX_DIGITS: Final = 18
"""Digits of a number that a recording may have: it fits into eight bytes."""
MAX_MEANINGS: Final = 65_536
"""Distinct tags whose meaning is cached; beyond this, the cache is cleared."""

_TRANSPORTS: Final = {2: "tcp", 3: "udp"}
_EVENTS: Final = frozenset(["opened", "finished", "closed", "reset"])

Array = np.ndarray[Any, Any]

NO_TAGS: Final = -1
"""In place of a number: the tags do not end inside the record."""


@kernel
def tags_size(data: Any, start: int, stop: int) -> int:
    """Bytes of tags at data[start:stop], end tag included; -1 when they do not end."""
    at = start
    while stop - at >= 4:
        tag = u16(data, at)
        at += 4 + u16(data, at + 2)
        if at > stop:
            return -1
        if tag == 0:
            return at - start
    return -1


@kernel
def _same(data: Any, one: int, other: int, size: int) -> bool:
    """Whether data[one:one+size] and data[other:other+size] are equal.

    A loop without an early exit runs on wide registers.
    """
    differences = 0
    for index in range(size):
        differences |= data[one + index] ^ data[other + index]
    return differences == 0


@kernel
def intern(data: Any, records: Any, table: Any, numbers: Any, places: Any) -> int:
    """Number the distinct tags of exported records; returns how many there are.

    `numbers` gets one number per record, or `NO_TAGS`; `places` one row (offset, size) per distinct tags. `table` is a hash table full of
    -1, its size a power of two and more than the number of records.
    """
    distinct = 0
    mask = len(table) - 1
    for index in range(len(records)):
        start = int(records[index, DATA])
        size = tags_size(data, start, start + int(records[index, SIZE]))
        if size < 0:
            numbers[index] = NO_TAGS
            continue
        mixed = size
        at = start
        while at + 4 <= start + size:
            mixed = ((mixed ^ u32(data, at)) * 0x9E3779B1) & 0xFFFFFFFF
            mixed ^= mixed >> 15
            at += 4
        slot = mixed & mask
        while True:
            number = int(table[slot])
            if number < 0:
                table[slot] = distinct
                places[distinct, 0] = start
                places[distinct, 1] = size
                numbers[index] = distinct
                distinct += 1
                break
            if places[number, 1] == size and _same(data, start, int(places[number, 0]), size):
                numbers[index] = number
                break
            slot = (slot + 1) & mask
    return distinct


class Unconfirmed(NamedTuple):
    """The end of what a recording peer sent, which had not left its machine when the connection broke."""

    by: str
    """The recording side."""
    since: int
    """Time of the record in which it begins, in microseconds since 1970."""
    detail: str
    """See `unconfirmed_part`."""


class Meaning(msgspec.Struct, frozen=True):
    """The meaning of tags for the records behind them."""

    flow: Flow | None
    """None if the protocol is not known."""
    to_server: bool
    event: str = ""
    by: str = ""
    detail: str = ""
    unconfirmed: Unconfirmed | None = None
    """What was recorded as sent, and had not left when the connection ended."""
    unrecognised: Unrecognised | None = None
    """The peers, if the protocol is not known."""
    fault: str = ""
    """Why records with these tags cannot be read; empty if they can."""


class RecordingReader:
    """Turns windows of exported PDUs into blocks."""

    def __init__(self, ports: Mapping[int, str], protocols: Collection[str] | None, accounting: Accounting, observer: str = "") -> None:
        """`observer` is the name of the observer, if one was given. A recording without one is named after the role of its peer."""
        self._observer = observer
        self._ports = ports
        self._protocols = protocols
        self._accounting = accounting
        self._meanings: dict[bytes, Meaning] = {}

    def block(self, source: Source, base: int, window: bytes, used: int, records: np.ndarray[Any, Any]) -> Block | None:
        """Return the block of the first `used` bytes of a window, from byte `base` of its source on.

        Returns None if it has no known flow.
        """
        numbers = np.empty(len(records), np.int64)
        places = np.empty((len(records), 2), np.int64)
        table = np.full(1 << (2 * len(records)).bit_length(), -1, np.int64)
        distinct = active(intern)(array(window), records, table, numbers, places)

        readable = (numbers >= 0) & (records[:, SIZE] >= records[:, WIRE_SIZE])
        if not readable.all():
            for record, number in zip(records[~readable].tolist(), numbers[~readable].tolist(), strict=True):
                reason = "tags do not end" if number == NO_TAGS else "cut by the snap length"
                raw = window[record[DATA] : record[DATA] + record[SIZE]]
                self._accounting.quarantine(base + record[DATA], raw, "exported pdu", reason)
            records, numbers = records[readable], numbers[readable]

        meanings = [self._meaning(window[start : start + size]) for start, size in places[:distinct].tolist()]
        faulty = np.array([bool(m.fault) for m in meanings], np.bool_)[numbers]
        if faulty.any():
            for record, number in zip(records[faulty].tolist(), numbers[faulty].tolist(), strict=True):
                raw = window[record[DATA] : record[DATA] + record[SIZE]]
                self._accounting.quarantine(base + record[DATA], raw, "exported pdu", meanings[number].fault)
            records, numbers = records[~faulty], numbers[~faulty]
        flows: dict[Flow, int] = {}
        flow_of = np.array([-1 if m.flow is None else flows.setdefault(m.flow, len(flows)) for m in meanings], np.int64)
        to_server_of = np.array([m.to_server for m in meanings], np.int64)

        tags_sizes = places[numbers, 1]
        payload_sizes = records[:, SIZE] - tags_sizes
        self._accounting.add(HEADERS, "exported pdu tags", int(tags_sizes.sum()), len(records), base)
        lost = (flow_of[numbers] < 0) & (payload_sizes > 0)
        if lost.any():
            self._leave(meanings, numbers[lost], payload_sizes[lost], records[lost, TS], base)
        if not flows:
            return None

        spoken = (flow_of[numbers] >= 0) & (payload_sizes > 0)
        stops = (records[:, DATA] + records[:, SIZE])[spoken]
        starts = stops - payload_sizes[spoken]
        segments = np.column_stack((starts, stops, flow_of[numbers[spoken]], to_server_of[numbers[spoken]], np.zeros_like(starts)))
        origins = np.column_stack((starts, starts + base, records[spoken, TS]))
        events = []
        happened = np.array([bool(m.event) and m.flow is not None for m in meanings], np.bool_)[numbers]
        for record, number in zip(records[happened].tolist(), numbers[happened].tolist(), strict=True):
            meaning = meanings[number]
            event = (meaning.event, meaning.by, meaning.detail, record[START])
            if (lost := meaning.unconfirmed) is not None:
                before = ("unconfirmed", lost.by, lost.detail, record[START])
                events.append(FlowEvent(int(flow_of[number]), lost.since, base + record[START], *before))
            events.append(FlowEvent(int(flow_of[number]), record[TS], base + record[START], *event))
        return Block(source, memoryview(window)[:used], segments, origins, list(flows), events)

    def _leave(self, meanings: list[Meaning], numbers: Array, sizes: Array, times: Array, base: int) -> None:
        """Account for unrecognised payloads, by their meanings."""
        order = np.lexsort((times, numbers))
        firsts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        lasts = np.append(firsts[1:], len(order)) - 1
        sums, times = np.add.reduceat(sizes[order], firsts), times[order]
        for number, size, count, first, last in zip(
            *(one.tolist() for one in (numbers[order][firsts], sums, lasts - firsts + 1, times[firsts], times[lasts])), strict=True
        ):
            self._accounting.add(OTHER, UNRECOGNISED, size, count, base, meanings[number].unrecognised, first, last)

    def _meaning(self, tags: bytes) -> Meaning:
        meaning = self._meanings.get(tags)
        if meaning is None:
            if len(self._meanings) >= MAX_MEANINGS:
                self._meanings.clear()
            meaning = self._meanings[tags] = self._understand(parse(tags) or Tags())
        return meaning

    def _understand(self, tags: Tags) -> Meaning:
        words = info_words(tags.info)
        if max(tags.source_port or 0, tags.destination_port or 0) > MAX_PORT:
            return Meaning(None, to_server=False, fault="port over 65535")
        source = Endpoint(tags.source or words.get("source", ""), tags.source_port or 0)
        destination = Endpoint(tags.destination or words.get("destination", ""), tags.destination_port or 0)
        role = words.get("role", "")
        if role in ("client", "server") and tags.direction is not None:
            to_server = (role == "client") != (tags.direction == RECEIVED)
        else:
            role = "wire"
            to_server = is_client(source.port, destination.port, self._ports)
        client, server = (source, destination) if to_server else (destination, source)
        transport = words.get("transport") or _TRANSPORTS.get(tags.port_type or 0, "")
        protocol, known_by = tags.dissector, "tag"
        if not protocol:
            protocol, known_by = by_port(server.port, client.port, self._ports), "port"
        if not protocol or (self._protocols is not None and protocol not in self._protocols):
            why = f"recorded as {protocol}" if protocol else "neither a tag nor a known port"
            return Meaning(None, to_server, unrecognised=Unrecognised(transport, client.address, server.address, server.port, why))
        connection = words.get("connection", "")
        if connection:
            identity = recorded_session_id(connection)
        else:
            identity = session_id("exported", transport, client.address, client.port, server.address, server.port, protocol)
        dialect = tuple(words["dialect"].split(",")) if "dialect" in words else ()
        observer = words.get("observer", "") or ("" if role == "wire" else role)
        flow = Flow(identity, protocol, transport, client, server, known_by, role, dialect, self._observer or observer)
        what = words.get("event", "")
        if what not in _EVENTS:
            return Meaning(flow, to_server)
        by = "client" if what == "opened" else words.get("by", "")
        by = by if by in ("client", "server") else ""
        return Meaning(flow, to_server, what, by, words.get("how", ""), _unconfirmed(words, role) if role != "wire" else None)


def _unconfirmed(words: Mapping[str, str], role: str) -> Unconfirmed | None:
    """Return what the words of a closing record say of bytes that had not left; None if that is nothing, or no number."""
    size, since, confirmed = (words.get(name, "") for name in ("unconfirmed", "since", "confirmed"))
    if not all(word.isascii() and word.isdigit() and len(word) <= MAX_DIGITS for word in (size, since, confirmed)):
        return None
    return Unconfirmed(role, int(since), f"bytes={int(size)} confirmed={int(confirmed)}")
