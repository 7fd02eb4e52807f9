"""Blocks to rows: every message, every stretch that is none, and an account of every byte. Runs in the task that writes.

It refuses to know Spark, files and what protocols mean: rooms scan and make columns, this puts them in place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirelake import protocols
from wirelake.capture.blocks import (
    PIECE_OFFSET,
    PIECE_START,
    PIECE_TS,
    RUN_FLOW,
    RUN_START,
    RUN_STOP,
    RUN_TO_SERVER,
    SOURCE_SHIFT,
    Block,
    Flow,
    Source,
)
from wirelake.capture.tally import HEADERS
from wirelake.lake import books, proofs
from wirelake.lake.books import Books, Where
from wirelake.lake.catalog import TABLES
from wirelake.lake.schema import TIME
from wirelake.lake.streams import GAP, Carried, Speaker, Speech, clip, join, rounds
from wirelake.lake.tables import connections, ledger, messages, quarantine
from wirelake.lake.unwrapping import Unwrapper
from wirelake.protocols.arrow import binary, names
from wirelake.protocols.kernel import FAULT, LENGTH, PARTS, START, compiled

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.trust import TrustStore

__all__ = ["Batches", "DecodeOptions", "Decoder"]

Array = np.ndarray[Any, Any]
Batches = dict[str, list[pa.RecordBatch]]
"""Table name -> its new rows."""

ROWS: Final = 65_536
"""Messages scanned and written as columns in one go."""
MAX_CARRIED: Final = 64 * 1024 * 1024
"""Bytes of unfinished messages of all connections together that are carried from block to block."""
DIRECTIONS: Final = ("to_client", "to_server")


class DecodeOptions(msgspec.Struct, frozen=True):
    """What decoding may be told."""

    rooms: dict[str, dict[str, Any]] = {}
    """Protocol -> what its `Limits` are told; what is not named is as the room has it."""
    json_bodies: bool = True
    """Fill `body_json` where a body is a JSON object or array."""
    max_raw: int = 1024 * 1024
    """Bytes of one row of `quarantine`; longer stretches take several."""

    def limits(self, protocol: str) -> Any:
        """The limits of one room."""
        return msgspec.convert(self.rooms.get(protocol, {}), protocols.room(protocol).Limits)


class Decoder:
    """Takes the blocks of sources, one source after the other; gives rows."""

    def __init__(self, options: DecodeOptions, keys: TrustStore | None = None) -> None:
        self._options = options
        self._keys = keys
        self._carried: dict[Speaker, Carried] = {}
        self._prologues: dict[bytes, Any] = {}
        """How far each connection of a protocol is whose way of being read its peers agree on."""
        self._agreed: dict[Speaker, str] = {}
        """What each speaker's bodies are in, where a protocol lets its peers agree on that."""
        self._unwrapper = Unwrapper()
        self._books = Books()
        self._seen: set[tuple[bytes, bytes]] = set()
        self._where = Where([], [])
        self._rows: Batches = defaultdict(list)

    def feed(self, block: Block) -> Batches:
        """The rows of one block."""
        where = self._where = Where.of(block)
        self._books.open(where)
        for account in block.accounts:
            self._books.add(where, account.at, account.category, account.reason, account.bytes, account.items)
        self._note_connections(block)
        for stretch in block.stretches:
            self._quarantine(
                None, None, None, stretch.layer, stretch.reason, None, stretch.reason, stretch.raw, stretch.offset, stretch.length
            )
        self._decode_runs(block)
        if block.last:
            self._end_source()
        self._let_go(MAX_CARRIED)
        return self._give()

    def finish(self) -> Batches:
        """What is left when no more blocks come, and the ledger of all that came."""
        self._end_source()
        self._rows[ledger.TABLE.name].append(books.rows(self._books.close()))
        return self._give()

    # Inside.

    def _give(self) -> Batches:
        rows, self._rows = self._rows, defaultdict(list)
        return dict(rows)

    def _decode_runs(self, block: Block) -> None:
        if not len(block.runs):
            return
        data = np.frombuffer(block.data, np.uint8)
        for protocol in {flow.protocol for flow in block.flows}:
            ours = np.array([flow.protocol == protocol for flow in block.flows])
            runs = block.runs[ours[block.runs[:, RUN_FLOW]]]
            if protocol not in protocols.ROOMS:
                sizes = runs[:, RUN_STOP] - runs[:, RUN_START]
                self._books.spread(self._where, "other", f"no room for {protocol}", block.pieces, runs[:, RUN_START], sizes)
                continue
            # Records hold whole messages and a datagram stands for itself; only what was seen of a stream must be put together.
            streams = np.array([flow.observed_by == "wire" and flow.transport != "udp" for flow in block.flows])[runs[:, RUN_FLOW]]
            if not streams.all():
                self._decode(protocol, block, Speech(data, runs[~streams], block.pieces), carry=False)
            mine, said = self._unwrapped(protocol, block, data, runs[streams])
            for turn in rounds(said):
                speech, passed = join(mine, turn, block.pieces, block.flows, self._carried, self._where, *self._bearings(protocol))
                for one in passed:
                    self._spoil(one.flow, one.to_server, GAP, speech, one.start, one.stop - one.start)
                self._decode(protocol, block, speech, carry=True)

    def _unwrapped(self, protocol: str, block: Block, data: Array, runs: Array) -> tuple[Array, Array]:
        """Runs of streams, taken out of what they travel in, and the bytes they lie in."""
        if "websocket" not in getattr(protocols.room(protocol), "WRAPPINGS", ()):
            return data, runs
        found = self._unwrapper.unwrap(data, runs, block.flows)
        self._books.spread(self._where, HEADERS, "websocket", block.pieces, found.wrapping[:, 0], found.wrapping[:, 1])
        for one in found.lost:
            self._spoil(one.flow, one.to_server, one.why, Speech(found.data, runs, block.pieces), one.start, one.stop - one.start)
        return found.data, found.runs

    def _bearings(self, protocol: str) -> tuple[Callable[[Array, int], int], Callable[[Array], int]]:
        """How a room finds its way after a gap: where messages certainly begin, and how long the one at the start is."""
        shape, limits = protocols.columns(protocol), self._options.limits(protocol)
        if hasattr(protocols.room(protocol), "Prologue"):  # after a gap nobody knows how far it is: nothing is certain
            return (lambda data, _: len(data)), (lambda _: 0)
        search, scan = compiled(protocols.finder(protocol)), compiled(protocols.room(protocol).scan)

        def find(data: Array, start: int) -> int:
            return int(search(data, start, len(data), limits.for_scan()))

        def need(data: Array) -> int:
            rows, parts = np.zeros(shape.ROW_COLUMNS, np.int64), np.zeros((1 + limits.max_parts) * shape.PART_COLUMNS, np.int64)
            count, _, _, needed = scan(data, 0, len(data), rows, parts, limits.for_scan())
            return 0 if count else int(needed)

        return find, need

    def _decode(self, protocol: str, block: Block, speech: Speech, *, carry: bool) -> None:
        """Walk the runs, a table of rows at a time."""
        if not len(speech.runs):
            return
        room, shape = protocols.room(protocol), protocols.columns(protocol)
        limits = self._options.limits(protocol)
        walk = compiled(room.walk)
        rows = np.zeros(ROWS * shape.ROW_COLUMNS, np.int64)
        parts = np.zeros((ROWS + limits.max_parts) * shape.PART_COLUMNS, np.int64)
        run_of = np.zeros(ROWS, np.int64)
        for given, starts, stops, whose in self._ways(room, limits, block.flows, speech):
            ends = stops.copy()
            run, at = 0, int(starts[0])
            while run < len(starts):
                count, used, run, at = walk(speech.data, starts, stops, run, at, rows, run_of, parts, ends, given)
                if count:
                    scanned = rows[: count * shape.ROW_COLUMNS].reshape(count, -1)
                    blocks = parts[: used * shape.PART_COLUMNS].reshape(-1, shape.PART_COLUMNS)
                    self._put(protocol, block, speech, scanned, blocks, whose[run_of[:count]])
            for index in np.flatnonzero(ends < stops):
                self._leave(protocol, block.flows, speech, int(whose[index]), int(ends[index]), carry=carry)

    def _ways(
        self, room: ModuleType, limits: Any, flows: list[Flow], speech: Speech
    ) -> Iterator[tuple[tuple[int, ...], Array, Array, Array]]:
        """The runs of a speech by how they are to be read: what the scanner is given, starts, stops, and which run each is of.

        A room with a `Prologue` is read in ways that its connections agree on first; who opened the connection decides for both.
        """
        runs = speech.runs
        if not hasattr(room, "Prologue"):
            starts, stops = np.ascontiguousarray(runs[:, RUN_START]), np.ascontiguousarray(runs[:, RUN_STOP])
            yield limits.for_scan(), starts, stops, np.arange(len(runs))
            return
        ways: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
        for index in np.argsort(-runs[:, RUN_TO_SERVER], kind="stable").tolist():
            start, stop, number, to_server = runs[index, : RUN_TO_SERVER + 1].tolist()
            flow = flows[number]
            prologue = self._prologues.setdefault(flow.session_id, room.Prologue(limits))
            speaker = room.Speaker.CLIENT if to_server else room.Speaker.SERVER
            for given, begin, end in prologue.pieces(speaker, speech.data, start, stop):
                if given is None:
                    self._spoil(flow, to_server, room.Fault.ID_SIZES_UNKNOWN, speech, begin, end - begin)
                else:
                    ways.setdefault(given, []).append((begin, end, index))
        for given, pieces in ways.items():
            starts, stops, whose = np.array(pieces, np.int64).T.copy()
            yield given, starts, stops, whose

    def _put(self, protocol: str, block: Block, speech: Speech, rows: Array, parts: Array, run_of: Array) -> None:
        """Messages to their tables, the rest to quarantine."""
        shape = protocols.columns(protocol)
        good = shape.readable(rows)
        runs = speech.runs[run_of]
        for index in np.flatnonzero(~good):
            fault = protocols.room(protocol).Fault(int(rows[index, FAULT]))
            flow = block.flows[runs[index, RUN_FLOW]]
            self._spoil(flow, int(runs[index, RUN_TO_SERVER]), fault, speech, int(rows[index, START]), int(rows[index, LENGTH]))
        more = self._learnt(shape, block, speech, rows, runs, good)
        parts = parts[np.repeat(good, rows[:, PARTS])]
        rows, runs = rows[good], runs[good]
        if not len(rows):
            return
        self._books.spread(self._where, "message", protocol, speech.pieces, rows[:, START], rows[:, LENGTH])
        made = shape.columns(speech.data, rows, parts, self._options.limits(protocol), self._options.json_bodies, **more)
        extent = self._where.extent(speech.pieces, rows[:, START], rows[:, LENGTH])
        connection = pa.DictionaryArray.from_arrays(
            pa.array(runs[:, RUN_FLOW].astype(np.int32)), pa.array([flow.session_id for flow in block.flows], pa.binary())
        )
        leading: dict[str, pa.Array] = {
            "message_id": _message_ids(self._where.sources, extent.numbers, extent.first),
            "session_id": self._sessions(block.flows, connection, made.sessions),
            "connection_id": connection,
            "ts": pa.array(extent.ts, pa.int64()).cast(TIME),
            "direction": names(runs[:, RUN_TO_SERVER], DIRECTIONS),
            "source": pa.DictionaryArray.from_arrays(
                pa.array(extent.numbers.astype(np.int32)), [source.path for source in self._where.sources]
            ),
            "offset": pa.array(extent.offsets),
            "length": pa.array(extent.lengths),
        }
        if self._keys is not None and protocol == "event_mesh":
            made.shared["verified"] = proofs.verified(speech.data, rows, parts, extent.ts, self._keys)
        shared = {"protocol": _constant(protocol, len(rows)), "size": pa.array(rows[:, LENGTH]), **leading, **made.shared}
        self._rows[messages.TABLE.name].append(_batch(messages.TABLE.schema, shared))
        self._rows[protocol].append(_batch(TABLES[protocol].schema, {**leading, **made.own}))

    def _sessions(self, flows: list[Flow], connection: pa.DictionaryArray, made: pa.Array | None) -> pa.Array:
        """Whose session each message belongs to: what the room says, or the link its connection carries, or the connection."""
        if made is not None:
            return pc.coalesce(made, connection.cast(pa.binary()))
        links = [self._prologues[flow.session_id].session if flow.session_id in self._prologues else None for flow in flows]
        if not any(links):
            return connection
        ids = pa.array([link or flow.session_id for link, flow in zip(links, flows, strict=True)], pa.binary())
        return pa.DictionaryArray.from_arrays(connection.indices, ids)

    def _learnt(self, shape: Any, block: Block, speech: Speech, rows: Array, runs: Array, good: Array) -> dict[str, Any]:
        """What the columns of these rows depend on that was said before them, perhaps in an earlier block."""
        if not hasattr(shape, "negotiated"):
            return {}
        speakers = 2 * runs[:, RUN_FLOW] + runs[:, RUN_TO_SERVER]
        who = {number: (block.flows[number // 2].session_id, number % 2) for number in np.unique(speakers).tolist()}
        known = {number: self._agreed[speaker] for number, speaker in who.items() if speaker in self._agreed}
        tongues = shape.negotiated(speech.data, rows, speakers, known)
        self._agreed |= {who[number]: name for number, name in known.items()}
        # What one side said holds for the other, too, if that was not heard to say it.
        others = {number: (session, 1 - to_server) for number, (session, to_server) in who.items() if number not in known}
        if heard := {number: self._agreed[other] for number, other in others.items() if other in self._agreed}:
            tongues = shape.negotiated(speech.data, rows, speakers, known | heard)
        return {"tongues": tongues.where(good)}

    def _leave(self, protocol: str, flows: list[Flow], speech: Speech, index: int, end: int, *, carry: bool) -> None:
        """The unfinished frame at the end of a run: kept for the next block, or spoilt if none will finish it."""
        run = speech.runs[index]
        stop = int(run[RUN_STOP])
        flow, to_server = flows[run[RUN_FLOW]], int(run[RUN_TO_SERVER])
        if carry:
            self._carried[flow.session_id, to_server] = Carried(
                flow, speech.data[end:stop].copy(), clip(speech.pieces, end, stop), self._where
            )
        else:
            self._spoil(flow, to_server, protocols.room(protocol).Fault.MESSAGE_CUT, speech, end, stop - end)

    def _spoil(self, flow: Flow, to_server: int, fault: Any, speech: Speech, start: int, length: int) -> None:
        """Bytes of a stream that are no message: accounted for, and kept."""
        self._books.spread(self._where, "quarantine", fault.name, speech.pieces, np.array([start]), np.array([length]))
        for at in range(start, start + length, self._options.max_raw):
            size = min(self._options.max_raw, start + length - at)
            extent = self._where.extent(speech.pieces, np.array([at]), np.array([size]))
            raw = speech.data[at : at + size].tobytes()
            first = int(extent.first[0]) & ~books.OFFSET_MASK | int(extent.offsets[0])
            ts, length_there = int(extent.ts[0]), int(extent.lengths[0])
            self._quarantine(flow, to_server, ts, flow.protocol, fault.name, fault.clause, fault.text, raw, first, length_there)

    def _quarantine(
        self,
        flow: Flow | None,
        to_server: int | None,
        ts: int | None,
        layer: str,
        reason: str,
        clause: str | None,
        text: str,
        raw: bytes,
        offset: int,
        length: int,
    ) -> None:
        source, there = self._where.source(offset)
        row = {
            "session_id": flow.session_id if flow else None,
            "connection_id": flow.session_id if flow else None,
            "ts": ts,
            "protocol": flow.protocol if flow else None,
            "direction": None if to_server is None else DIRECTIONS[to_server],
            "layer": layer,
            "reason": reason,
            "clause": clause,
            "text": text,
            "raw": raw,
            "source": source.path,
            "offset": there,
            "length": length,
        }
        self._rows[quarantine.TABLE.name].append(_rows(quarantine.TABLE.schema, [row]))

    def _note_connections(self, block: Block) -> None:
        noted = [(block.flows[number], ts, offset, "seen", "", "") for number, ts, offset in self._first_seen(block)]
        noted += [(block.flows[event.flow], event.ts, event.offset, event.what, event.by, event.detail) for event in block.events]
        rows = [
            {
                "connection_id": flow.session_id,
                "ts": ts,
                "protocol": flow.protocol,
                "what": what,
                "by": by,
                "detail": detail,
                "transport": flow.transport,
                "client_address": flow.client.address,
                "client_port": flow.client.port,
                "server_address": flow.server.address,
                "server_port": flow.server.port,
                "known_by": flow.known_by,
                "observed_by": flow.observed_by,
                "source": self._where.source(offset)[0].path,
                "offset": self._where.source(offset)[1],
            }
            for flow, ts, offset, what, by, detail in noted
        ]
        if rows:
            self._rows[connections.TABLE.name].append(_rows(connections.TABLE.schema, rows))

    def _first_seen(self, block: Block) -> Iterator[tuple[int, int, int]]:
        """(flow, time, place) of every flow of a block, once for each source it is first seen in: by its bytes, or by what happened."""
        flows = np.array([event.flow for event in block.events], np.int64)
        times = np.array([event.ts for event in block.events], np.int64)
        places = np.array([event.offset for event in block.events], np.int64)
        if len(block.runs):
            run_of = np.searchsorted(block.runs[:, RUN_START], block.pieces[:, PIECE_START], side="right") - 1
            flows = np.concatenate((block.runs[run_of, RUN_FLOW], flows))
            times = np.concatenate((block.pieces[:, PIECE_TS], times))
            places = np.concatenate((block.pieces[:, PIECE_OFFSET], places))
        _, firsts = np.unique(flows * len(self._where.sources) + (places >> SOURCE_SHIFT), return_index=True)
        for index in np.sort(firsts).tolist():
            number, ts, at = int(flows[index]), int(times[index]), int(places[index])
            key = (block.flows[number].session_id, self._where.source(at)[0].id)
            if key not in self._seen:
                self._seen.add(key)
                yield number, ts, at

    def _let_go(self, limit: int) -> None:
        """Spoil unfinished messages, those that wait longest first, until no more bytes wait than this."""
        waiting = sum(len(left.data) for left in self._carried.values())
        for speaker, left in list(self._carried.items()):
            if waiting <= limit:
                break
            if not len(left.data):
                continue
            waiting -= len(left.data)
            _, need = self._bearings(left.flow.protocol)
            owed = 0 if left.is_lost else max(0, need(left.data) - len(left.data))
            del self._carried[speaker]
            self._leave_unread(left, speaker[1])
            nothing = Carried(left.flow, left.data[:0], left.pieces[:0], left.where, owed, not owed)
            self._carried[speaker] = nothing

    def _leave_unread(self, left: Carried, to_server: int) -> None:
        """What was carried over is never finished."""
        here, self._where = self._where, left.where
        speech = Speech(left.data, np.zeros((0, 4), np.int64), left.pieces)
        fault = GAP if left.is_lost else protocols.room(left.flow.protocol).Fault.MESSAGE_CUT
        if len(left.data):
            self._spoil(left.flow, to_server, fault, speech, 0, len(left.data))
        self._where = here

    def _end_source(self) -> None:
        """Nothing more comes of this source: unfinished messages are spoilt."""
        for (_, to_server), left in self._carried.items():
            self._leave_unread(left, to_server)
        self._carried.clear()
        self._agreed.clear()
        self._prologues.clear()
        self._unwrapper.clear()
        self._seen.clear()


def _message_ids(sources: list[Source], numbers: Array, places: Array) -> pa.Array:
    """16 bytes each: the source's id, then the offset of the first byte, big-endian."""
    ids = np.empty((len(places), 16), np.uint8)
    ids[:, :8] = np.frombuffer(b"".join(source.id for source in sources), np.uint8).reshape(-1, 8)[numbers]
    ids[:, 8:] = (places & books.OFFSET_MASK).astype(">i8").view(np.uint8).reshape(-1, 8)
    return binary(ids.reshape(-1), np.arange(len(places)) * 16, np.full(len(places), 16))


def _constant(value: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value], pa.string()))


def _batch(schema: pa.Schema, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Columns in the order of the schema of record; dictionary-encoded strings stay so until they are written."""
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], names=schema.names)


def _rows(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema)
