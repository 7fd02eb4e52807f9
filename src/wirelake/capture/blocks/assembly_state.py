"""Encode and restore the state of an assembly, between two micro-batches.

Every connection is stored once, and tables refer to it by number. Derived values are not stored: sums, budgets, keys, addresses as text.
The options of an assembly (ports, recognisers) are not stored either: the caller passes them.

Blocks are taken before, and IP fragments are joined before packets are partitioned. So builders, accounting and fragments are empty here.
"""

from __future__ import annotations

import ipaddress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
import numpy as np

from wirelake.capture.blocks.assemble import Sighting
from wirelake.capture.blocks.block import Endpoint, Source, Span
from wirelake.capture.blocks.flows import SESSION_ID_SIZE
from wirelake.capture.blocks.stored_state import Count, End, FilePosition, Number, Record, check, check_places, check_spans, decode, encode
from wirelake.capture.packets.flow_table import Key
from wirelake.capture.packets.remembered import KEEP_ALL
from wirelake.capture.packets.tcp_flows import UNDECIDED_BYTES
from wirelake.capture.packets.tcp_stream import MAX_GAPS, Budget, Half, SegmentPart
from wirelake.capture.packets.tracked import Held, Tracked
from wirelake.capture.packets.udp_flows import Pair

if TYPE_CHECKING:
    from wirelake.capture.blocks.assemble import Assembly
    from wirelake.capture.packets.tcp_flows import Tracker
    from wirelake.capture.packets.udp_flows import Datagrams

__all__ = ["encoded", "restore"]

Position = Annotated[int, msgspec.Meta(ge=-1, le=1 << 60)]
"""A sequence number that does not wrap; -1: unknown."""
Ref = tuple[Count, bool]
"""The number of a connection, and whether the direction is to the server."""
Name = tuple[str, Literal["port", "bytes"], tuple[str, ...]]
"""Protocol, how it was recognised, dialect."""
_WIDTHS: Final = (4, 16)
"""Bytes of an IP address."""


class HalfState(Record):
    """A `Half`."""

    next: Position
    first: Position
    ahead: list[tuple[Position, Number, FilePosition, bytes]]
    recent: list[tuple[Position, bytes]]
    gaps: Annotated[list[tuple[Position, Position]], msgspec.Meta(max_length=MAX_GAPS)]
    missing: Position
    from_start: bool
    finished: bool
    first_bytes: Annotated[bytes, msgspec.Meta(max_length=UNDECIDED_BYTES)]


class HeldState(Record):
    """A `Held`."""

    to_server: bool
    what: Literal["", "fresh", "disputed", "early", "late"]
    missing: Position
    ts: Number
    offset: FilePosition
    chunk: bytes
    event: Literal["", "opened", "finished", "closed", "reset"]


class TrackedState(Record):
    """A `Tracked`."""

    client: End
    server: End
    identity: Annotated[bytes, msgspec.Meta(min_length=SESSION_ID_SIZE, max_length=SESSION_ID_SIZE)]
    name: Name | None
    given_up: bool
    closed: bool
    held: list[HeldState]
    halves: tuple[HalfState, HalfState]


class PairState(Record):
    """A `Pair`."""

    client: End
    server: End
    name: Name | None
    unknown: Count


class AssemblyState(Record):
    """An `Assembly`."""

    sources: list[Source]
    spans: list[Span]
    tracked: list[TrackedState]
    flows: list[Ref]
    """The table of flows in its order."""
    waiting: list[Ref]
    """Directions that wait for a gap, longest first."""
    pairs: list[PairState]
    met: list[Ref]
    """The table of pairs in its order."""
    observer: str = ""
    others: list[tuple[bytes, bytes]] = []
    """Id of a source, and the state of what its observer saw of connections that others saw, too."""
    seen: list[tuple[Count, list[Sighting]]] = []


def encoded(assembly: Assembly) -> bytes:
    """Return the state of an assembly as bytes."""
    tracker, datagrams = assembly._flow_assembler._tracker, assembly._flow_assembler._datagrams
    flows = tracker.flows()
    known = {id(tracked): tracked for tracked, _ in flows.values()}
    numbers = {key: number for number, key in enumerate(known)}
    ends: dict[int, tuple[End, End]] = {}
    for (here, port, there, other), (tracked, to_server) in flows.items():
        ends[id(tracked)] = ((here, port), (there, other)) if to_server else ((there, other), (here, port))
    pairs = {id(pair): pair for pair, _ in datagrams._pairs.values()}
    met = {key: number for number, key in enumerate(pairs)}
    meetings: dict[int, tuple[End, End]] = {}
    for (here, port, there, other), (pair, to_server) in datagrams._pairs.items():
        meetings[id(pair)] = ((here, port), (there, other)) if to_server else ((there, other), (here, port))
    return encode(
        AssemblyState(
            assembly._sources,
            assembly._spans,
            [_tracked_state(tracked, *(ends.get(key) or (_end(tracked.client), _end(tracked.server)))) for key, tracked in known.items()],
            [(numbers[id(tracked)], to_server) for tracked, to_server in flows.values()],
            [(numbers[id(tracked)], to_server) for tracked, to_server in tracker._waiting.values()],
            [PairState(*meetings[key], _name(pair), pair.unknown) for key, pair in pairs.items()],
            [(met[id(pair)], to_server) for pair, to_server in datagrams._pairs.values()],
            assembly._observer,
            [(source_id, other.take()) for source_id, other in assembly._others.items()],
            list(assembly._seen.items()),
        )
    )


def restore(assembly: Assembly, content: bytes) -> None:
    """Restore a stored state in a new assembly; raises StateError if the state is invalid."""
    state = decode(content, AssemblyState)
    check_spans(state.sources, state.spans)
    halves = [half for one in state.tracked for half in one.halves]
    held = [item for one in state.tracked for item in one.held]
    places = [*(place for half in halves for _, _, place, _ in half.ahead), *(item.offset for item in held)]
    sizes = [*(len(chunk) for half in halves for *_, chunk in half.ahead), *(len(item.chunk) for item in held)]
    check_places(state.sources, state.spans, np.array(places, np.int64), np.array(sizes, np.int64))
    assembly._sources[:], assembly._spans[:] = state.sources, state.spans
    assembly._starts[:] = [span.at for span in state.spans]  # in place: the accounting shares the list
    _restore_flows(assembly._flow_assembler._tracker, state)
    _restore_pairs(assembly._flow_assembler._datagrams, state)
    assembly._observer, assembly._seen = state.observer, dict(state.seen)
    known = (assembly._ports, assembly._sniff, assembly._dialect)
    for source_id, other in state.others:
        check(not state.observer, "an observer has observers")
        assembly._others[source_id] = type(assembly).put(other, *known)


def _end(end: Endpoint) -> End:
    return ipaddress.ip_address(end.address).packed, end.port


def _endpoint(end: End) -> Endpoint:
    check(len(end[0]) in _WIDTHS, "an address is neither IPv4 nor IPv6")
    return Endpoint(str(ipaddress.ip_address(end[0])), end[1])


def _key(client: End, server: End, to_server: bool) -> tuple[bytes, int, bytes, int]:
    return (*client, *server) if to_server else (*server, *client)


def _name(one: Tracked | Pair) -> Name | None:
    return None if one.flow is None else (one.flow.protocol, one.flow.known_by, one.flow.dialect)  # type: ignore[return-value]  # one of two


def _tracked_state(one: Tracked, client: End, server: End) -> TrackedState:
    held = [HeldState(item.to_server, *item.bit[:4], bytes(item.bit.chunk), item.event) for item in one.held]  # type: ignore[arg-type]  # one of few
    halves = (_half_state(one.halves[0]), _half_state(one.halves[1]))
    return TrackedState(client, server, one.identity, _name(one), one.given_up, one.closed, held, halves)


def _half_state(half: Half) -> HalfState:
    return HalfState(
        half._next,
        half._first,
        half._ahead,
        list(half._budget.recent.chunks(half._slot)),
        half._gaps,
        half._missing,
        half.from_start,
        half.finished,
        bytes(half.first_bytes),
    )


def _restore_flows(tracker: Tracker, state: AssemblyState) -> None:
    keys: dict[int, list[tuple[Key, bool]]] = {}
    for number, to_server in state.flows:
        check(number < len(state.tracked), "there is no flow of this number")
        stored = state.tracked[number]
        keys.setdefault(number, []).append((_key(stored.client, stored.server, to_server), to_server))
    distinct = {key for mine in keys.values() for key, _ in mine}
    check(len(distinct) == len(state.flows), "a flow is there twice")
    check(len(keys) == len(state.tracked), "a flow has no key")
    known = {}
    for number, mine in keys.items():
        is_client = mine[-1][1]
        known[number] = tracker.restore([key for key, _ in mine], is_client, partial(_tracked, state.tracked[number]))
    for number, to_server in state.waiting:
        check(number in known, "there is no flow of this number")
        tracker.wait(known[number], to_server)
    waiting = {half for stored in known.values() for half in stored.halves if half.is_waiting}
    check(len(tracker._waiting) == len(state.waiting) and tracker._waiting.keys() == waiting, "what waits is not what is said to wait")


def _tracked(state: TrackedState, budget: Budget, row: int) -> Tracked:
    tracked = Tracked(_endpoint(state.client), _endpoint(state.server), state.identity, budget, row)
    if state.name is not None:
        tracked.is_named(*state.name)
    check(not state.held or (state.name is None and not state.given_up), "bytes are held of a flow that is decided")
    for item in state.held:
        check(bool(item.event) != bool(item.what), "what is held is neither bytes nor an event")
        tracked.held.append(Held(item.to_server, SegmentPart(item.what, item.missing, item.ts, item.offset, item.chunk), item.event))
        tracked.held_bytes[item.to_server] += len(item.chunk)
    tracked.given_up, tracked.closed = state.given_up, state.closed
    for half, stored in zip(tracked.halves, state.halves, strict=True):
        _restore_half(half, stored, budget)
    return tracked


def _restore_half(half: Half, state: HalfState, budget: Budget) -> None:
    ends = [(state.next, state.next), *((at, at + len(chunk)) for at, _, _, chunk in state.ahead)]
    check(all(stop <= start for (_, stop), (start, _) in pairwise(ends)), "what waits in a stream is not in order")
    check(all(chunk for *_, chunk in state.ahead) and (state.next >= 0 or not state.ahead), "what waits in a stream has no place")
    seen = [(at, at + len(chunk)) for at, chunk in state.recent]
    for known in (seen, state.gaps):
        check(all(0 <= start <= stop for start, stop in known), "what was seen of a stream has no place")
        check(all(stop <= start for (_, stop), (start, _) in pairwise([*known, (state.next, state.next)])), "a stream is not in order")
    half._next, half._first, half._missing = state.next, state.first, state.missing
    half.from_start, half.finished, half.first_bytes = state.from_start, state.finished, bytearray(state.first_bytes)
    half._ahead, half._gaps = state.ahead, state.gaps
    for at, chunk in state.recent:
        budget.recent.remember(half._slot, at, chunk, KEEP_ALL)
    half._ahead_bytes = sum(len(chunk) for *_, chunk in state.ahead)
    budget.ahead += half._ahead_bytes


def _restore_pairs(datagrams: Datagrams, state: AssemblyState) -> None:
    known = []
    for stored in state.pairs:
        pair = Pair(_endpoint(stored.client), _endpoint(stored.server))
        if stored.name is not None:
            pair.is_named(*stored.name[:2])
        pair.unknown = stored.unknown
        known.append(pair)
    for number, to_server in state.met:
        check(number < len(known), "there is no pair of this number")
        stored = state.pairs[number]
        datagrams._pairs[_key(stored.client, stored.server, to_server)] = (known[number], to_server)
    check(len(datagrams._pairs) == len(state.met), "a pair is there twice")
