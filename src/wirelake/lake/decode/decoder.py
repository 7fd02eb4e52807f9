"""Blocks to rows: every message, every stretch that is none, and an account of every byte. Runs in the task that writes.

What is decoded depends on what was said, not on how it was cut into blocks, files, tasks or batches: all that is carried from one to the
next is in a `DecoderState`.

It refuses to know Spark, files and what protocols mean: rooms scan and make columns, this puts them in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from wirelake import protocols
from wirelake.capture.blocks.accounting import HEADERS
from wirelake.capture.blocks.block import (
    OFFSET_MASK,
    ORIGIN_OFFSET,
    ORIGIN_START,
    ORIGIN_TS,
    SEGMENT_FLOW,
    SEGMENT_MISSING,
    SEGMENT_START,
    SEGMENT_STOP,
    SEGMENT_TO_SERVER,
    SOURCE_SHIFT,
    Block,
    Flow,
)
from wirelake.lake.decode import accounting, rows, signatures
from wirelake.lake.decode.accounting import Extent, LedgerEntries, Where
from wirelake.lake.decode.batches import Batches, Gathering
from wirelake.lake.decode.handshake import Opened, PendingHandshakes
from wirelake.lake.decode.options import DecodeOptions
from wirelake.lake.decode.scan import Scanner
from wirelake.lake.decode.state import DecoderState, Speaker
from wirelake.lake.decode.streams import GAP, ScanInput, StreamReader, said
from wirelake.lake.decode.unrecognised import UnrecognisedTraffic
from wirelake.lake.decode.websocket import Unwrapped, Unwrapper
from wirelake.lake.decode.xmpp import Stanzas, Taken
from wirelake.lake.tables import connections, ledger, messages, unrecognised
from wirelake.lake.tables.catalog import TABLES
from wirelake.protocols.arrow import Columns, within
from wirelake.protocols.kernel import FAULT, LENGTH, PARTS, START

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.security.trust import TrustStore
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["MAX_CARRIED", "Batches", "DecodeOptions", "Decoder"]

Array = np.ndarray[Any, Any]
MAX_CARRIED: Final = 64 * 1024 * 1024
"""Bytes of all connections together that wait for more. Beyond this those that wait longest are let go: the one thing that depends on
what else is read."""


_NO_SEGMENTS: Final = np.zeros((0, SEGMENT_MISSING), np.int64)


class Decoder:
    """Takes blocks, those of one connection in order; gives rows."""

    def __init__(
        self,
        options: DecodeOptions,
        keys: TrustStore | None = None,
        decoder_state: DecoderState | None = None,
        keyring: Keyring | None = None,
        sink: Callable[[Batches], object] | None = None,
    ) -> None:
        """`sink` takes rows as soon as they are more than a batch; without one, `feed` gives all rows of a block at once."""
        self._options = options
        self._keys = keys
        self._keyring = keyring
        self.decoder_state = decoder_state or DecoderState()
        """What is remembered so far; whoever takes it out puts it into the decoder that goes on."""
        self._unwrapper = Unwrapper(self.decoder_state.wrapped)
        self._stanzas = Stanzas(self.decoder_state.stanzas)
        self._handshakes = PendingHandshakes(self.decoder_state)
        self._readings: dict[tuple[str, tuple[str, ...]], Scanner] = {}
        self._stream_readers: dict[Scanner, StreamReader] = {}
        self._ledger_entries = LedgerEntries()
        self._unrecognised = UnrecognisedTraffic()
        self._gathering = Gathering(options.max_batch_bytes // 2, sink)
        for one in self.decoder_state.directions.values():  # kernels size their arrays by limits: never by stored ones
            one.given = self._reading(one.flow).resumed(one.given)

    def feed(self, block: Block) -> Batches:
        """The rows of one block, without those that the sink got."""
        block = self.decoder_state.renumber(block)
        self._ledger_entries.open(Where.of(block) if block.spans else self._where)
        for account in block.accounts:
            self._ledger_entries.add(self._where, account.at, account.category, account.reason, account.bytes, account.items)
            self._unrecognised.add(self._where, account)
        self._note_connections(block)
        for stretch in block.unreadable:
            found = (stretch.reason, None, stretch.reason, stretch.raw, stretch.offset, stretch.length)
            self._gathering.spoil(rows.spoilt(self._where, None, None, None, stretch.layer, *found), len(stretch.raw))
        self._decode_segments(block)
        self._let_go(MAX_CARRIED)
        self.decoder_state.forget()
        return self._gathering.give()

    def rest(self) -> Batches:
        """The ledger of all that came since it was asked for, and what nobody recognised; what is unfinished stays in the memory."""
        given = self._gathering.give()
        return given | {
            unrecognised.TABLE.name: [self._unrecognised.close()],
            ledger.TABLE.name: [accounting.rows(self._ledger_entries.close())],
        }

    def finish(self) -> Batches:
        """What is left when no more blocks come, and the ledger of all that came."""
        for connection in list(self.decoder_state.pending):
            reading = self._reading(self.decoder_state.pending[connection][0].flow)
            self._open(reading, [self._handshakes.release(reading, connection)])
        self._leave_frames(0)
        alike: dict[Scanner, list[Speaker]] = {}
        for speaker, one in self.decoder_state.directions.items():
            alike.setdefault(self._reading(one.flow), []).append(speaker)
        for reading, mine in alike.items():
            self._stream_reader(reading).end(mine, reading.room.Fault.MESSAGE_CUT)
        self._leave_stanzas(0)
        return self.rest()

    # Inside.

    @property
    def _where(self) -> Where:
        return self.decoder_state.where

    def _add(self, table: str, batch: pa.RecordBatch) -> None:
        self._gathering.add(table, batch)

    def _reading(self, flow: Flow) -> Scanner:
        """How the bytes of a flow are read; there are no more ways than a room has dialects, whatever a file says."""
        known = getattr(protocols.room(flow.protocol).Limits, "DIALECT", ()) if flow.dialect else ()
        key = (flow.protocol, tuple(name for name in known if name in flow.dialect))
        if key not in self._readings:
            self._readings[key] = Scanner(flow.protocol, self._options.limits(*key))
        return self._readings[key]

    def _stream_reader(self, reading: Scanner) -> StreamReader:
        if reading not in self._stream_readers:

            def given(speaker: Speaker) -> tuple[int, ...] | None:
                if not reading.needs_handshake:
                    return reading.given
                who = reading.room.Speaker.CLIENT if speaker[1] else reading.room.Speaker.SERVER
                known: tuple[int, ...] | None = self.decoder_state.handshakes[speaker[0]].limits(who, reading.limits)
                return known

            why = reading.room.Fault.ID_SIZES_UNKNOWN if reading.needs_handshake else None
            self._stream_readers[reading] = StreamReader(reading, self.decoder_state.directions, self._put, self._spoil, given, why)
        return self._stream_readers[reading]

    def _decode_segments(self, block: Block) -> None:
        if not len(block.segments):
            return
        data = np.frombuffer(block.data, np.uint8)
        alike: dict[Scanner | str, list[int]] = {}
        for number, flow in enumerate(block.flows):
            alike.setdefault(self._reading(flow) if flow.protocol in protocols.ROOMS else flow.protocol, []).append(number)
        for reading, flows in alike.items():
            segments = block.segments[np.isin(block.segments[:, SEGMENT_FLOW], flows)]
            if isinstance(reading, str):
                sizes = segments[:, SEGMENT_STOP] - segments[:, SEGMENT_START]
                self._ledger_entries.spread(
                    self._where, "other", f"no room for {reading}", block.origins, segments[:, SEGMENT_START], sizes
                )
                continue
            # Records hold whole messages and a datagram stands for itself; what was seen of a stream must be put together.
            streams = np.array([_is_stream(flow, reading) for flow in block.flows])[segments[:, SEGMENT_FLOW]]
            if not streams.all():
                self._walk(reading, ScanInput(data, segments[~streams], block.origins, block.flows), reading.given)
            if streams.any():
                self._hear(reading, block, data, segments[streams])

    def _hear(self, reading: Scanner, block: Block, data: Array, segments: Array) -> None:
        """What was said on streams, taken out of what they travel in."""
        if "xmpp" in reading.wrappings:
            taken = self._stanzas.take(data, segments, block.origins, block.flows, reading.is_text)
            self._take(reading, taken)
            segments = taken.rest
        if "websocket" in reading.wrappings:
            self._unwrap(reading, self._unwrapper.unwrap(data, segments, block.origins, block.flows))
            return
        heard = said(data, segments, block.origins, block.flows)
        if reading.needs_handshake:
            opened, heard = self._handshakes.hear(reading, heard)
            self._open(reading, opened)
        self._stream_reader(reading).hear(heard)

    def _unwrap(self, reading: Scanner, found: Unwrapped) -> None:
        """What the frames of WebSockets carried, and an account of the frames."""
        for origins, spans in found.wrapping:
            self._ledger_entries.spread(self._where, HEADERS, "websocket", origins, spans[:, 0], spans[:, 1], counted=False)
        for one in found.lost:
            self._spoil(one.flow, one.to_server, GAP, ScanInput(one.data, _NO_SEGMENTS, one.origins, []), 0, len(one.data))
        self._stream_reader(reading).hear(found.heard, self._unwrapper.why)

    def _take(self, reading: Scanner, taken: Taken) -> None:
        """Texts that were the bodies of messages, and an account of what they travelled in."""
        for category, reason, origins, spans in taken.accounts:
            places = np.array(spans, np.int64)
            self._ledger_entries.spread(self._where, category, reason, origins, places[:, 0], places[:, 1], counted=False)
        noted: list[rows.Noted] = []
        for one in taken.begun:
            by = "client" if one.to_server else "server"
            noted += [(one.flow, one.ts, one.place, what, by, "") for what in ("seen", *(["opened"] if one.is_whole else []))]
            if not one.is_whole:  # so that nobody judges it by what was not said
                gap = (reading.protocol, GAP.name, GAP.clause, GAP.text, b"", one.place, 0)
                self._gathering.spoil(rows.spoilt(self._where, one.flow, one.to_server, one.ts, *gap), 0)
        if noted:
            self._add(connections.TABLE.name, rows.connected(self._where, noted))
        if taken.scan_input is not None:
            self._walk(reading, taken.scan_input, reading.limits.for_text())

    def _open(self, reading: Scanner, opened: list[Opened]) -> None:
        """Connections that can be read from now on."""
        for connection in opened:
            for given, part in connection.parts:
                segment = np.array([[0, len(part.data), 0, part.to_server]], np.int64)
                self._walk(reading, ScanInput(np.ascontiguousarray(part.data), segment, part.origins, [part.flow]), given)
            self._stream_reader(reading).hear(connection.rest)

    def _walk(self, reading: Scanner, scan_input: ScanInput, given: tuple[int, ...]) -> None:
        """Runs that hold whole messages; an unfinished one at the end of a run is spoilt."""
        starts, stops = (
            np.ascontiguousarray(scan_input.segments[:, SEGMENT_START]),
            np.ascontiguousarray(scan_input.segments[:, SEGMENT_STOP]),
        )
        ends = stops.copy()
        for scanned, parts, segment_of in reading.walk(scan_input.data, starts, stops, ends, given):
            self._put(reading, scan_input, scanned, parts, segment_of)
        for index in np.flatnonzero(ends < stops).tolist():
            flow, to_server = scan_input.flows[scan_input.segments[index, SEGMENT_FLOW]], int(scan_input.segments[index, SEGMENT_TO_SERVER])
            self._spoil(flow, to_server, reading.cut(flow), scan_input, int(ends[index]), int(stops[index] - ends[index]))

    def _put(self, reading: Scanner, scan_input: ScanInput, scanned: Array, parts: Array, segment_of: Array) -> None:
        """Messages to their tables, the rest to quarantine."""
        good = reading.shape.readable(scanned)
        segments = scan_input.segments[segment_of]
        self._spoil_rows(reading, scan_input, scanned[~good], segments[~good])
        more = self._learnt(reading.shape, scan_input, scanned, segments, good)
        parts = parts[np.repeat(good, scanned[:, PARTS])]
        scanned, segments = scanned[good], segments[good]
        if not len(scanned):
            return
        self._ledger_entries.spread(self._where, "message", reading.protocol, scan_input.origins, scanned[:, START], scanned[:, LENGTH])
        extent = self._where.extent(scan_input.origins, scanned[:, START], scanned[:, LENGTH])
        firsts = np.concatenate(([0], np.cumsum(scanned[:, PARTS])))
        budget, heard, at, until = self._options.max_batch_bytes, None, 0, 0
        while at < len(scanned):
            if at == until:  # what is heard of a speaker is heard once
                base, until = at, at + within(scanned[at:, LENGTH], budget)
                heard, count = self._heard(reading, scan_input, scanned[at:until], segments[at:until], extent.ts[at:until])
                until = at + count
            told = {name: body_serializers.where(slice(at, until)) for name, body_serializers in more.items()}
            if heard is not None:
                told["heard"] = {index + base - at: one for index, one in heard.items() if index + base >= at}
            taken = slice(firsts[at], firsts[until])
            made = reading.shape.columns(
                scan_input.data, scanned[at:until], parts[taken], reading.limits, self._options.json_bodies, budget, **told
            )
            some = slice(at, until if made.taken is None else at + made.taken)
            self._put_columns(
                reading, scan_input, scanned[some], parts[firsts[at] : firsts[some.stop]], segments[some], extent.part(some), made
            )
            at = some.stop

    def _put_columns(
        self, reading: Scanner, scan_input: ScanInput, scanned: Array, parts: Array, segments: Array, extent: Extent, made: Columns
    ) -> None:
        """Messages of one batch to their two tables."""
        protocol = reading.protocol
        agreed = self.decoder_state.handshakes if reading.needs_handshake else {}
        links = [agreed[flow.session_id].session if flow.session_id in agreed else None for flow in scan_input.flows]
        leading = rows.leading(self._where, extent, scan_input.flows, segments, links, made.sessions)
        if self._keys is not None and protocol == "event_mesh":
            made.shared["verified"] = signatures.verified(scan_input.data, scanned, parts, extent.ts, self._keys)
        size = pa.array(scanned[:, LENGTH])
        shared = {"protocol": rows.constant(protocol, len(scanned)), "size": size, **leading, **made.shared}
        self._add(messages.TABLE.name, rows.batch(messages.TABLE.schema, shared))
        self._add(protocol, rows.batch(TABLES[protocol].schema, {**leading, **made.own}))

    def _learnt(self, shape: Any, scan_input: ScanInput, scanned: Array, segments: Array, good: Array) -> dict[str, Any]:
        """What the columns of these rows depend on that their speaker said before them, perhaps in an earlier block."""
        if not hasattr(shape, "negotiated"):
            return {}
        speakers, who = _speakers(scan_input, segments)
        agreed = self.decoder_state.agreed
        known = {number: agreed[speaker] for number, speaker in who.items() if speaker in agreed}
        body_serializers = shape.negotiated(scan_input.data, scanned, speakers, known)
        agreed |= {who[number]: name for number, name in known.items()}
        return {"body_serializers": body_serializers.where(good)}

    def _heard(
        self, reading: Scanner, scan_input: ScanInput, scanned: Array, segments: Array, micros: Array
    ) -> tuple[dict[int, Any] | None, int]:
        """What these rows carry that takes other texts of their speaker, or keys, to be read; and of how many of them that is."""
        if not hasattr(reading.shape, "passive"):
            return None, len(scanned)
        speakers, who = _speakers(scan_input, segments)
        fragment_states = {
            number: self.decoder_state.fragment_states.pop(speaker)
            for number, speaker in who.items()
            if speaker in self.decoder_state.fragment_states
        }
        found, count = reading.shape.passive(
            scan_input.data, scanned, speakers, micros / 1e6, fragment_states, reading.limits, self._keyring, self._options.max_batch_bytes
        )
        self.decoder_state.fragment_states |= {who[number]: ear for number, ear in fragment_states.items() if not ear.is_idle}
        return found, count

    def _spoil_rows(self, reading: Scanner, scan_input: ScanInput, scanned: Array, segments: Array) -> None:
        """Rows of a scanner that are no messages, many at once."""
        starts, lengths = scanned[:, START], scanned[:, LENGTH]
        is_short = (lengths > 0) & (lengths <= self._options.max_raw)
        extent = self._where.extent(scan_input.origins, starts, lengths)
        for code in np.unique(scanned[is_short, FAULT]).tolist():
            same = is_short & (scanned[:, FAULT] == code)
            self._ledger_entries.spread(
                self._where, "quarantine", reading.room.Fault(code).name, scan_input.origins, starts[same], lengths[same]
            )
        for index, (start, length, code) in enumerate(scanned[:, [START, LENGTH, FAULT]].tolist()):
            fault, flow, to_server = (
                reading.room.Fault(code),
                scan_input.flows[segments[index, SEGMENT_FLOW]],
                int(segments[index, SEGMENT_TO_SERVER]),
            )
            if is_short[index]:
                self._keep_raw(flow, to_server, fault, scan_input, slice(start, start + length), extent, index)
            else:
                self._spoil(flow, to_server, fault, scan_input, start, length)

    def _keep_raw(self, flow: Flow, to_server: int, fault: Any, scan_input: ScanInput, place: slice, extent: Extent, index: int) -> None:
        """One row of `quarantine`; `extent` says of its bytes, at `index`, where they are."""
        raw = scan_input.data[place].tobytes()
        first = int(extent.first[index]) & ~OFFSET_MASK | int(extent.offsets[index])
        found = (flow.protocol, fault.name, fault.clause, fault.text, raw, first, int(extent.lengths[index]))
        self._gathering.spoil(rows.spoilt(self._where, flow, to_server, int(extent.ts[index]), *found), len(raw))

    def _spoil(self, flow: Flow, to_server: int, fault: Any, scan_input: ScanInput, start: int, length: int) -> None:
        """Bytes of a stream that are no message: accounted for, and kept."""
        self._ledger_entries.spread(self._where, "quarantine", fault.name, scan_input.origins, np.array([start]), np.array([length]))
        for at in range(start, start + length, self._options.max_raw):
            size = min(self._options.max_raw, start + length - at)
            extent = self._where.extent(scan_input.origins, np.array([at]), np.array([size]))
            self._keep_raw(flow, to_server, fault, scan_input, slice(at, at + size), extent, 0)

    def _note_connections(self, block: Block) -> None:
        noted: list[rows.Noted] = [(block.flows[number], ts, at, "seen", "", "") for number, ts, at in self._first_seen(block)]
        noted += [(block.flows[event.flow], event.ts, event.offset, event.what, event.by, event.detail) for event in block.events]
        if noted:
            self._add(connections.TABLE.name, rows.connected(self._where, noted))

    def _first_seen(self, block: Block) -> Iterator[tuple[int, int, int]]:
        """(flow, time, place) of every flow of a block, once for each source: what came first of it, bytes or something that happened."""
        flows = np.array([event.flow for event in block.events], np.int64)
        times = np.array([event.ts for event in block.events], np.int64)
        places = np.array([event.offset for event in block.events], np.int64)
        came = np.array([event.after for event in block.events], np.int64)
        if len(block.segments):
            segment_of = np.searchsorted(block.segments[:, SEGMENT_START], block.origins[:, ORIGIN_START], side="right") - 1
            flows = np.concatenate((block.segments[segment_of, SEGMENT_FLOW], flows))
            times = np.concatenate((block.origins[:, ORIGIN_TS], times))
            places = np.concatenate((block.origins[:, ORIGIN_OFFSET], places))
            came = np.concatenate((block.origins[:, ORIGIN_START] + 0.5, came))
        order = np.argsort(came, kind="stable")
        sources = self._where.sources
        _, firsts = np.unique((flows * len(sources) + (places >> SOURCE_SHIFT))[order], return_index=True)
        for index in order[np.sort(firsts)].tolist():
            number, ts, at = int(flows[index]), int(times[index]), int(places[index])
            key = (block.flows[number].session_id, self._where.source(at)[0].id)
            if key not in self.decoder_state.seen:
                self.decoder_state.seen[key] = None
                yield number, ts, at

    def _let_go(self, limit: int) -> None:
        """Do without what waits, longest first, until no more bytes wait than this; pieces of messages are counted by themselves."""
        heard = sum(ear.weight for ear in self.decoder_state.fragment_states.values())
        for ear in self.decoder_state.fragment_states.values():
            if heard <= limit:
                break
            heard -= ear.weight
            ear.forget_pieces()
        if self.decoder_state.waiting <= limit:
            return
        self._leave_frames(limit)
        waiting = self.decoder_state.waiting
        for connection, held in list(self.decoder_state.pending.items()):
            if waiting <= limit:
                return
            reading = self._reading(held[0].flow)
            waiting -= sum(len(one.data) for one in held)
            self._open(reading, [self._handshakes.release(reading, connection)])
            both = [self.decoder_state.directions.get((connection, to_server)) for to_server in (0, 1)]
            waiting += sum(len(one.data) for one in both if one is not None)
        for speaker, left in list(self.decoder_state.directions.items()):
            if waiting <= limit:
                return
            if len(left.data):
                waiting -= len(left.data)
                reading = self._reading(left.flow)
                self._stream_reader(reading).let_go(speaker, reading.room.Fault.MESSAGE_CUT)
        self._leave_stanzas(limit)

    def _leave_frames(self, limit: int) -> None:
        """Stop to look for frames of WebSockets in what waits, until no more bytes wait than this."""
        waiting = self.decoder_state.waiting
        for speaker, one in self.decoder_state.wrapped.items():
            if waiting <= limit:
                return
            if one is not None and len(one.data):
                waiting -= len(one.data)
                self._unwrap(self._reading(one.flow), self._unwrapper.end(speaker))

    def _leave_stanzas(self, limit: int) -> None:
        """Do without stanzas that are not finished, until no more bytes wait than this."""
        waiting = self.decoder_state.waiting
        for speaker, one in self.decoder_state.stanzas.items():
            if waiting <= limit:
                return
            if one is not None and len(one.data):
                waiting -= len(one.data)
                self._take(self._reading(one.flow), self._stanzas.end(speaker))


def _speakers(scan_input: ScanInput, segments: Array) -> tuple[Array, dict[int, Speaker]]:
    """A number for who says each row, and whose number it is."""
    speakers = 2 * segments[:, SEGMENT_FLOW] + segments[:, SEGMENT_TO_SERVER]
    return speakers, {number: (scan_input.flows[number // 2].session_id, number % 2) for number in np.unique(speakers).tolist()}


def _is_stream(flow: Flow, reading: Scanner) -> bool:
    """Whether what comes on a flow must be put together; of a recording only where both sides must be heard before either is read."""
    return flow.transport != "udp" and (flow.observed_by == "wire" or reading.needs_handshake)
