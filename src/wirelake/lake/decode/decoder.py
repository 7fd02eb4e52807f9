"""Decoder: blocks of bytes to rows of tables. Runs in the task that writes.

Every message becomes a row, all other bytes go to `quarantine`, and the ledger accounts for every byte. The rows do not depend on how
bytes were cut into blocks, files, tasks or batches: a `DecoderState` carries everything from one to the next.

Does not import Spark or any protocol: descriptors (`wirelake.protocols.get`) have the kernels and columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wirelake import protocols
from wirelake.capture.blocks.accounting import HEADERS
from wirelake.capture.blocks.block import (
    OFFSET_MASK,
    SEGMENT_FLOW,
    SEGMENT_MISSING,
    SEGMENT_START,
    SEGMENT_STOP,
    SEGMENT_TO_SERVER,
    SOURCE_SHIFT,
    Block,
    Flow,
)
from wirelake.capture.blocks.flow_events import event_places, event_words
from wirelake.capture.blocks.flows import FlowKind, Flows, view_id
from wirelake.lake.decode import accounting, rows
from wirelake.lake.decode.accounting import Extent, LedgerEntries, Where
from wirelake.lake.decode.batches import Batches, Gathering
from wirelake.lake.decode.handshake import Opened, PendingHandshakes, speaker
from wirelake.lake.decode.options import DecodeOptions
from wirelake.lake.decode.places import first_places
from wirelake.lake.decode.runs import Runs
from wirelake.lake.decode.scan import Scanner
from wirelake.lake.decode.state import DecoderState, Reason, Segment, Speaker
from wirelake.lake.decode.streams import GAP, ScanInput, StreamReader, joined, segments_of
from wirelake.lake.decode.unrecognised import UnrecognisedTraffic
from wirelake.lake.decode.websocket import Unwrapped, Unwrapper
from wirelake.lake.decode.whole_handshakes import read_whole_handshakes
from wirelake.lake.decode.xmpp import Stanzas, Taken
from wirelake.lake.tables import connections, ledger, messages, unrecognised
from wirelake.lake.tables.protocol_schema import table_of
from wirelake.protocols.arrow import BodySerializers, Columns, within
from wirelake.protocols.kernel import FAULT, LENGTH, PARTS, START, ScanLimits

__all__ = ["MAX_CARRIED", "Batches", "DecodeOptions", "Decoder"]

ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
MAX_CARRIED: Final = 64 * 1024 * 1024
"""Bytes of all connections together that may wait for more.

Beyond this, those that wait longest go to quarantine.

This is the one limit that makes rows depend on what else is read.
"""

MAX_GATHERED: Final = 8 * 1024 * 1024
"""Bytes of rows after which the sink gets them, if options do not say less."""

_NO_SEGMENTS: Final = np.zeros((0, SEGMENT_MISSING), np.int64)


class Decoder:
    """Takes blocks, those of one connection in order, and returns rows."""

    def __init__(
        self,
        options: DecodeOptions,
        keys: object | None = None,
        decoder_state: DecoderState | None = None,
        keyring: object | None = None,
        sink: Callable[[Batches], object] | None = None,
    ) -> None:
        """`sink` takes rows as soon as they are more than a batch; without one, `feed` gives all rows of a block at once.

        `keys` verify messages, and both `keys` and `keyring` decrypt them. A protocol takes only keys of its own type (`Signatures`,
        `PassiveDecoding`).
        """
        self._options = options
        self._keys = keys
        self._keyring = keyring
        self.decoder_state = decoder_state or DecoderState()
        """To be stored, and passed to the decoder that goes on."""
        self._unwrapper = Unwrapper(self.decoder_state.wrapped)
        self._stanzas = Stanzas(self.decoder_state.stanzas)
        self._handshakes = PendingHandshakes(self.decoder_state)
        self._scanners: dict[tuple[str, tuple[str, ...]], Scanner] = {}
        self._stream_readers: dict[Scanner, StreamReader] = {}
        self._ledger_entries = LedgerEntries()
        self._unrecognised = UnrecognisedTraffic()
        self._gathering = Gathering(min(options.max_batch_bytes // 2, MAX_GATHERED), sink)
        for one in self.decoder_state.directions.values():  # kernels size their arrays by limits: never by stored ones
            one.scan_limits = self._scanner_of(one.flow).resumed(one.scan_limits)

    def feed(self, block: Block) -> Batches:
        """The rows of one block, without those that the sink got."""
        block = self.decoder_state.renumber(block)
        block.flows = Flows.of(block.flows)
        self._ledger_entries.open(Where.of(block) if block.spans else self._where)
        for account in block.accounts:
            self._ledger_entries.add(self._where, account.at, account.category, account.reason, account.bytes, account.items)
            self._unrecognised.add(self._where, account)
        self._note_connections(block)
        for one in block.unreadable:
            fields = (one.reason, None, one.reason, one.raw, one.offset, one.length)
            self._gathering.spoil(rows.spoilt(self._where, None, None, None, one.layer, *fields), len(one.raw))
        self._decode_segments(block)
        self._let_go(MAX_CARRIED)
        self.decoder_state.forget()
        return self._gathering.give()

    def rest(self) -> Batches:
        """The remaining rows, the ledger since the last call, and unrecognised traffic.

        Unfinished messages stay in the state.
        """
        return self._gathering.give() | {
            unrecognised.TABLE.name: [self._unrecognised.close()],
            ledger.TABLE.name: [accounting.rows(self._ledger_entries.close())],
        }

    def finish(self) -> Batches:
        """The rows of everything that still waits when no more blocks come, and the ledger."""
        for connection in list(self.decoder_state.pending):
            scanner = self._scanner_of(self.decoder_state.pending[connection][0].flow)
            self._open(scanner, [self._handshakes.release(scanner, connection)])
        self._leave_frames(0)
        alike: dict[Scanner, list[Speaker]] = {}
        for key, one in self.decoder_state.directions.items():
            alike.setdefault(self._scanner_of(one.flow), []).append(key)
        for scanner, mine in alike.items():
            self._stream_reader(scanner).end(mine, scanner.protocol.cut())
        self._leave_stanzas(0)
        return self.rest()

    # Inside.

    @property
    def _where(self) -> Where:
        return self.decoder_state.where

    def _add(self, table: str, batch: pa.RecordBatch) -> None:
        self._gathering.add(table, batch)

    def _scanner_of(self, flow: Flow | FlowKind) -> Scanner:
        """The scanner for a flow; one for each dialect of a protocol, whatever else a file names."""
        dialects = protocols.get(flow.protocol).dialects if flow.dialect else ()
        key = (flow.protocol, tuple(name for name in dialects if name in flow.dialect))
        if key not in self._scanners:
            self._scanners[key] = Scanner(flow.protocol, self._options.limits(*key))
        return self._scanners[key]

    def _stream_reader(self, scanner: Scanner) -> StreamReader:
        if scanner not in self._stream_readers:
            handshake = scanner.protocol.handshake

            def scan_limits_of(key: Speaker) -> ScanLimits | None:
                if handshake is None:
                    return scanner.scan_limits
                return self.decoder_state.handshakes[key[0]].limits(speaker(key[1]), scanner.limits)

            unknown = None if handshake is None else handshake.unknown
            directions = self.decoder_state.directions
            self._stream_readers[scanner] = StreamReader(scanner, directions, self._put, self._quarantine, scan_limits_of, unknown)
        return self._stream_readers[scanner]

    def _decode_segments(self, block: Block) -> None:
        if not len(block.segments):
            return
        data = np.frombuffer(block.data, np.uint8)
        flows = Flows.of(block.flows)
        scanners: dict[Scanner | str, int] = {}
        reading = np.empty((len(flows.kinds), 2), np.int64)  # flows of a kind are read alike
        for code, kind in enumerate(flows.kinds):
            scanner = self._scanner_of(kind) if kind.protocol in protocols.names() else kind.protocol
            is_stream = isinstance(scanner, Scanner) and _is_stream(kind, scanner)
            reading[code] = scanners.setdefault(scanner, len(scanners)), is_stream
        how = reading[flows.kind_of[block.segments[:, SEGMENT_FLOW]]]
        for scanner, number in scanners.items():
            mine = how[:, 0] == number
            is_alone = len(scanners) == 1
            segments = block.segments if is_alone else block.segments[mine]
            if isinstance(scanner, str):
                sizes = segments[:, SEGMENT_STOP] - segments[:, SEGMENT_START]
                self._ledger_entries.spread(
                    self._where, "other", f"no room for {scanner}", block.origins, segments[:, SEGMENT_START], sizes
                )
                continue
            # A record or a datagram holds whole messages; segments of a stream must be joined.
            streams = (how if is_alone else how[mine])[:, 1] != 0
            if not streams.all():
                self._walk(scanner, ScanInput(data, segments[~streams], block.origins, flows), scanner.scan_limits)
                segments = segments[streams]
            if len(segments):
                self._read_streams(scanner, block, data, segments)

    def _read_streams(self, scanner: Scanner, block: Block, data: ByteArray, segments: IntArray) -> None:
        """Read runs of streams, taken out of XMPP or WebSockets if they travel in those."""
        flows = Flows.of(block.flows)
        if flows.are_distinct:
            segments, opened = read_whole_handshakes(scanner, self.decoder_state, data, segments, block.origins, flows, self._put)
            if opened is not None:
                self._stream_reader(scanner).feed_runs(opened)
            if not len(segments):
                return
            runs = Runs(data, segments, block.origins, flows)
            if self._is_plain(scanner, runs):
                self._stream_reader(scanner).feed_runs(runs)
                return
        self._read_wrapped(scanner, block, data, segments)

    def _is_plain(self, scanner: Scanner, runs: Runs) -> bool:
        """Whether all runs are those of bare streams, whose handshake is over if there is one."""
        protocol = scanner.protocol
        if protocol.handshake is not None:
            return all(runs.speaker(item)[0] in self.decoder_state.handshakes for item in range(len(runs)))
        if protocol.xmpp is not None and not self._stanzas.is_absent(runs):
            return False
        return not protocol.websocket or self._unwrapper.is_absent(runs)

    def _read_wrapped(self, scanner: Scanner, block: Block, data: ByteArray, segments: IntArray) -> None:
        """Read runs of streams one by one: some are inside XMPP or WebSockets, or wait for the end of a handshake."""
        protocol = scanner.protocol
        if protocol.xmpp is not None:
            taken = self._stanzas.take(data, segments, block.origins, block.flows, protocol.xmpp.is_text)
            self._take(scanner, taken)
            segments = taken.rest
        if protocol.websocket:
            self._unwrap(scanner, self._unwrapper.unwrap(data, segments, block.origins, block.flows))
            return
        scan_input = segments_of(data, segments, block.origins, block.flows)
        if protocol.handshake is not None:
            opened, scan_input = self._handshakes.feed(scanner, scan_input)
            self._open(scanner, opened)
        self._stream_reader(scanner).feed(scan_input)

    def _unwrap(self, scanner: Scanner, unwrapped: Unwrapped) -> None:
        """Read what WebSocket frames carried, and account for the frames."""
        for origins, spans in unwrapped.wrapping:
            self._ledger_entries.spread(self._where, HEADERS, "websocket", origins, spans[:, 0], spans[:, 1], counted=False)
        for one in unwrapped.lost:
            self._quarantine(one.flow, one.to_server, GAP, ScanInput(one.data, _NO_SEGMENTS, one.origins, []), 0, len(one.data))
        self._stream_reader(scanner).feed(unwrapped.scan_input, self._unwrapper.why)

    def _take(self, scanner: Scanner, taken: Taken) -> None:
        """Read texts that were bodies of XMPP stanzas, and account for the rest."""
        for category, reason, origins, spans in taken.accounts:
            places = np.array(spans, np.int64)
            self._ledger_entries.spread(self._where, category, reason, origins, places[:, 0], places[:, 1], counted=False)
        noted: list[rows.Noted] = []
        for begun in taken.begun:
            by = "client" if begun.to_server else "server"
            noted += [(begun.flow, begun.ts, begun.place, what, by, "") for what in ("seen", *(["opened"] if begun.is_whole else []))]
            if not begun.is_whole:  # rules about missing messages do not apply to a session with a gap
                gap = (scanner.protocol.name, GAP.name, GAP.clause, GAP.text, b"", begun.place, 0)
                self._gathering.spoil(rows.spoilt(self._where, begun.flow, begun.to_server, begun.ts, *gap), 0)
        if noted:
            self._add(connections.TABLE.name, rows.connected(self._where, noted))
        xmpp = scanner.protocol.xmpp
        if taken.scan_input is not None and xmpp is not None:
            self._walk(scanner, taken.scan_input, xmpp.scan_limits(scanner.limits))

    def _open(self, scanner: Scanner, opened: list[Opened]) -> None:
        """Read connections whose handshake is over: first its parts, those with the same scan limits together."""
        alike: dict[ScanLimits, list[Segment]] = {}
        for connection in opened:
            for scan_limits, part in connection.parts:
                alike.setdefault(scan_limits, []).append(part)
        for scan_limits, parts in alike.items():
            self._walk(scanner, joined(parts), scan_limits)
        self._stream_reader(scanner).feed(segment for connection in opened for segment in connection.rest)

    def _walk(self, scanner: Scanner, scan_input: ScanInput, scan_limits: ScanLimits) -> None:
        """Read runs that hold whole messages; an unfinished one at the end of a run goes to quarantine."""
        starts, stops = (
            np.ascontiguousarray(scan_input.segments[:, SEGMENT_START]),
            np.ascontiguousarray(scan_input.segments[:, SEGMENT_STOP]),
        )
        ends = stops.copy()
        for scanned, parts, segment_of in scanner.walk(scan_input.data, starts, stops, ends, scan_limits):
            self._put(scanner, scan_input, scanned, parts, segment_of)
        for index in np.flatnonzero(ends < stops).tolist():
            left = slice(int(ends[index]), int(stops[index]))
            last_limits = scanner.at_end(scan_input.data[left].tobytes())
            if last_limits is not None:
                starts, stop = ends[index : index + 1].copy(), stops[index : index + 1]
                for scanned, parts, segment_of in scanner.walk(scan_input.data, starts, stop, stop.copy(), last_limits):
                    self._put(scanner, scan_input, scanned, parts, segment_of + index)
                continue
            flow, to_server = scan_input.flows[scan_input.segments[index, SEGMENT_FLOW]], int(scan_input.segments[index, SEGMENT_TO_SERVER])
            self._quarantine(flow, to_server, scanner.cut(flow), scan_input, int(ends[index]), int(stops[index] - ends[index]))

    def _put(self, scanner: Scanner, scan_input: ScanInput, scanned: IntArray, parts: IntArray, segment_of: IntArray) -> None:
        """Messages to their tables, the rest to quarantine."""
        good = scanner.columns.readable(scanned)
        segments = scan_input.segments[segment_of]
        serializers = self._body_serializers(scanner, scan_input, scanned, segments, good)
        if not good.all():
            self._quarantine_rows(scanner, scan_input, scanned[~good], segments[~good])
            parts = parts[np.repeat(good, scanned[:, PARTS])]
            scanned, segments = scanned[good], segments[good]
        if not len(scanned):
            return
        self._ledger_entries.spread(
            self._where, "message", scanner.protocol.name, scan_input.origins, scanned[:, START], scanned[:, LENGTH]
        )
        extent = self._where.extent(scan_input.origins, scanned[:, START], scanned[:, LENGTH])
        firsts = np.concatenate(([0], np.cumsum(scanned[:, PARTS])))
        budget, at, until, base = self._options.max_batch_bytes, 0, 0, 0
        payloads: dict[int, msgspec.Struct] = {}
        while at < len(scanned):
            if at == until:  # each row goes through passive decoding once
                base, until = at, at + within(scanned[at:, LENGTH], budget)
                payloads, count = self._payloads(scanner, scan_input, scanned[at:until], segments[at:until], extent.ts[at:until])
                until = at + count
            rows_parts = parts[firsts[at] : firsts[until]]
            own = (scan_input.data, scanned[at:until], rows_parts, scanner.limits, self._options.json_bodies, budget)
            if scanner.protocol.body_serializers is not None and serializers is not None:
                made = scanner.protocol.body_serializers().columns(*own, serializers.where(slice(at, until)))
            elif scanner.protocol.passive is not None:
                here = {index + base - at: payload for index, payload in payloads.items() if index + base >= at}
                made = scanner.protocol.passive.columns().columns(*own, here)
            else:
                made = scanner.columns.columns(*own)
            some = slice(at, until if made.taken is None else at + made.taken)
            self._put_columns(
                scanner, scan_input, scanned[some], parts[firsts[at] : firsts[some.stop]], segments[some], extent.part(some), made
            )
            at = some.stop

    def _put_columns(
        self, scanner: Scanner, scan_input: ScanInput, scanned: IntArray, parts: IntArray, segments: IntArray, extent: Extent, made: Columns
    ) -> None:
        """Messages of one batch to their two tables."""
        protocol = scanner.protocol.name
        links: list[bytes | None] = []
        if scanner.protocol.handshake is not None:
            agreed = self.decoder_state.handshakes
            links = [
                _link(agreed[name].session if name in agreed else None, observer)
                for name, observer in zip(_connections(scan_input), _observers(scan_input), strict=True)
            ]
        leading = rows.leading(self._where, extent, scan_input.flows, segments, links, made.sessions)
        signatures = scanner.protocol.signatures
        if signatures is not None and isinstance(self._keys, signatures.keys):
            made.shared["verified"] = signatures.verify_rows(scan_input.data, scanned, parts, extent.ts, self._keys)
        size = pa.array(scanned[:, LENGTH])
        shared = {"protocol": rows.constant(protocol, len(scanned)), "size": size, **leading, **made.shared}
        self._add(messages.TABLE.name, rows.batch(messages.TABLE.schema, shared))
        self._add(protocol, rows.batch(table_of(protocol).schema, {**leading, **made.own}))

    def _body_serializers(
        self, scanner: Scanner, scan_input: ScanInput, scanned: IntArray, segments: IntArray, good: npt.NDArray[np.bool_]
    ) -> BodySerializers | None:
        """The serializers of readable rows, where peers negotiate them, perhaps in an earlier block.

        None where they do not.
        """
        if scanner.protocol.body_serializers is None:
            return None
        speakers, keys = _speakers(scan_input, segments)
        agreed = self.decoder_state.agreed
        known = {number: agreed[key] for number, key in keys.items() if key in agreed}
        serializers = scanner.protocol.body_serializers().negotiated(scan_input.data, scanned, speakers, known)
        agreed |= {keys[number]: name for number, name in known.items()}
        return serializers.where(good)

    def _payloads(
        self, scanner: Scanner, scan_input: ScanInput, scanned: IntArray, segments: IntArray, micros: IntArray
    ) -> tuple[dict[int, msgspec.Struct], int]:
        """Payloads that need earlier messages of their speaker, or keys, by row; and how many of the first rows were looked at."""
        if scanner.protocol.passive is None:
            return {}, len(scanned)
        if scanner.protocol.passive.state is None:
            speakers, keys = np.zeros(len(scanned), np.int64), dict[int, tuple[bytes, int]]()
        else:
            speakers, keys = _speakers(scan_input, segments)
        states = self.decoder_state.fragment_states
        own = {number: states.pop(key) for number, key in keys.items() if key in states}
        payloads, count = scanner.protocol.passive.columns().passive(
            scan_input.data,
            scanned,
            speakers,
            micros / 1e6,
            own,
            scanner.limits,
            (self._keys, self._keyring),
            self._options.max_batch_bytes,
        )
        states |= {keys[number]: state for number, state in own.items() if not state.is_idle}
        return payloads, count

    def _quarantine_rows(self, scanner: Scanner, scan_input: ScanInput, scanned: IntArray, segments: IntArray) -> None:
        """Rows of a scanner that are no messages, many at once."""
        starts, lengths = scanned[:, START], scanned[:, LENGTH]
        is_short = (lengths > 0) & (lengths <= self._options.max_raw)
        extent = self._where.extent(scan_input.origins, starts, lengths)
        for code in np.unique(scanned[is_short, FAULT]).tolist():
            same = is_short & (scanned[:, FAULT] == code)
            self._ledger_entries.spread(
                self._where, "quarantine", scanner.protocol.faults(code).name, scan_input.origins, starts[same], lengths[same]
            )
        for index, (start, length, code) in enumerate(scanned[:, [START, LENGTH, FAULT]].tolist()):
            fault, flow, to_server = (
                scanner.protocol.faults(code),
                scan_input.flows[segments[index, SEGMENT_FLOW]],
                int(segments[index, SEGMENT_TO_SERVER]),
            )
            if is_short[index]:
                self._keep_raw(flow, to_server, fault, scan_input, slice(start, start + length), extent, index)
            else:
                self._quarantine(flow, to_server, fault, scan_input, start, length)

    def _keep_raw(
        self, flow: Flow, to_server: int, fault: Reason, scan_input: ScanInput, place: slice[int, int, int], extent: Extent, index: int
    ) -> None:
        """One row of `quarantine`; `extent` has the place of its bytes at `index`."""
        raw = scan_input.data[place].tobytes()
        first = int(extent.first[index]) & ~OFFSET_MASK | int(extent.offsets[index])
        fields = (flow.protocol, fault.name, fault.clause, fault.text, raw, first, int(extent.lengths[index]))
        self._gathering.spoil(rows.spoilt(self._where, flow, to_server, int(extent.ts[index]), *fields), len(raw))

    def _quarantine(self, flow: Flow, to_server: int, fault: Reason, scan_input: ScanInput, start: int, length: int) -> None:
        """Account for bytes that are no message, and keep them."""
        self._ledger_entries.spread(self._where, "quarantine", fault.name, scan_input.origins, np.array([start]), np.array([length]))
        for at in range(start, start + length, self._options.max_raw):
            size = min(self._options.max_raw, start + length - at)
            extent = self._where.extent(scan_input.origins, np.array([at]), np.array([size]))
            self._keep_raw(flow, to_server, fault, scan_input, slice(at, at + size), extent, 0)

    def _note_connections(self, block: Block) -> None:
        seen = self._first_seen(block)
        later = event_places(block.events)
        if not len(seen) + len(later):
            return
        flows, times, places = (np.concatenate((seen[:, column], later[:, column])) for column in range(3))
        words = event_words(block.events, len(seen))
        self._add(connections.TABLE.name, rows.happened(self._where, Flows.of(block.flows), flows, times, places, *words))

    def _first_seen(self, block: Block) -> IntArray:
        """The rows of `first_places` that no earlier block had."""
        sources = self._where.sources
        places = first_places(block, len(sources))
        ids = np.frombuffer(b"".join([source.id for source in sources]), np.uint8).reshape(len(sources), -1)
        pairs = np.concatenate((Flows.of(block.flows).session_ids[places[:, 0]], ids[places[:, 2] >> SOURCE_SHIFT]), axis=1)
        fresh: IntArray = places[self.decoder_state.seen.add(pairs)]
        return fresh

    def _let_go(self, limit: int) -> None:
        """Quarantine bytes that wait, oldest first, until no more than this wait.

        Pieces of messages are counted by themselves.
        """
        weight = sum(state.weight for state in self.decoder_state.fragment_states.values())
        for state in self.decoder_state.fragment_states.values():
            if weight <= limit:
                break
            weight -= state.weight
            state.forget_pieces()
        if self.decoder_state.waiting <= limit:
            return
        self._leave_frames(limit)
        waiting = self.decoder_state.waiting
        for connection, held in list(self.decoder_state.pending.items()):
            if waiting <= limit:
                return
            scanner = self._scanner_of(held[0].flow)
            waiting -= sum(len(one.data) for one in held)
            self._open(scanner, [self._handshakes.release(scanner, connection)])
            both = [self.decoder_state.directions.get((connection, to_server)) for to_server in (0, 1)]
            waiting += sum(len(one.data) for one in both if one is not None)
        for key, left in list(self.decoder_state.directions.items()):
            if waiting <= limit:
                return
            if len(left.data):
                waiting -= len(left.data)
                scanner = self._scanner_of(left.flow)
                self._stream_reader(scanner).let_go(key, scanner.protocol.cut())
        self._leave_stanzas(limit)

    def _leave_frames(self, limit: int) -> None:
        """Stop searching for WebSocket frames, oldest first, until no more bytes wait than this."""
        waiting = self.decoder_state.waiting
        for key, waiting_stream in self.decoder_state.wrapped.items():
            if waiting <= limit:
                return
            if waiting_stream is not None and len(waiting_stream.data):
                waiting -= len(waiting_stream.data)
                self._unwrap(self._scanner_of(waiting_stream.flow), self._unwrapper.end(key))

    def _leave_stanzas(self, limit: int) -> None:
        """Give up unfinished XMPP stanzas, oldest first, until no more bytes wait than this."""
        waiting = self.decoder_state.waiting
        for key, waiting_stream in self.decoder_state.stanzas.items():
            if waiting <= limit:
                return
            if waiting_stream is not None and len(waiting_stream.data):
                waiting -= len(waiting_stream.data)
                self._take(self._scanner_of(waiting_stream.flow), self._stanzas.end(key))


def _speakers(scan_input: ScanInput, segments: IntArray) -> tuple[IntArray, dict[int, Speaker]]:
    """A number for the speaker of each row, and the speaker of each number."""
    speakers = 2 * segments[:, SEGMENT_FLOW] + segments[:, SEGMENT_TO_SERVER]
    connections = _connections(scan_input)
    return speakers, {number: (connections[number // 2], number % 2) for number in np.unique(speakers).tolist()}


def _link(link: bytes | None, observer: str) -> bytes | None:
    """The session of a connection that carries a link: what one observer saw of it. Captures without a name have one for all."""
    return view_id(link, observer) if link and observer else link


def _observers(scan_input: ScanInput) -> list[str]:
    """The observer of each flow."""
    flows = scan_input.flows
    if isinstance(flows, Flows):
        return [flows.kinds[kind].observer for kind in flows.kind_of.tolist()]
    return [flow.observer for flow in flows]


def _connections(scan_input: ScanInput) -> list[bytes]:
    """The session id of each flow."""
    flows = scan_input.flows
    return flows.names() if isinstance(flows, Flows) else [flow.session_id for flow in flows]


def _is_stream(flow: FlowKind, scanner: Scanner) -> bool:
    """Whether runs of a flow must be joined.

    Those of a recording only where the handshake decides how bytes are read.
    """
    return flow.transport != "udp" and (flow.observer_kind == "wire" or scanner.protocol.handshake is not None)
